//! The highest fences that this client has seen: a store that lost its data, and whose clock is behind, grants above them (I3).
//!
//! One number serves all names, because fences follow the store's clock: the highest on any name is about what the store would give anyway.
//! If names live on servers with clocks of their own, there is one number for each group of names: a clock that is ahead must not raise
//! fences that follow another clock. Those would go back as soon as their server loses its data.

use std::collections::HashMap;

use crate::backend::GroupOf;
use crate::types::name::Name;

#[derive(Default)]
pub(crate) struct Floors {
    /// Of all names, if they are in one group.
    highest: u64,
    group_of: Option<GroupOf>,
    groups: HashMap<u16, u64>,
}

impl Floors {
    /// Keeps the names of this store apart by these groups from now on. Nothing was seen before a store is opened.
    pub(crate) fn group_by(&mut self, group_of: Option<GroupOf>) {
        self.group_of = group_of;
    }

    /// The highest fence that was seen in the group of this name.
    pub(crate) fn of(&self, name: &Name) -> u64 {
        match &self.group_of {
            None => self.highest,
            Some(group_of) => self.groups.get(&group_of(name)).copied().unwrap_or(0),
        }
    }

    /// The store granted this fence.
    pub(crate) fn saw(&mut self, name: &Name, fence: u64) {
        let highest = match &self.group_of {
            None => &mut self.highest,
            Some(group_of) => self.groups.entry(group_of(name)).or_default(),
        };
        *highest = fence.max(*highest);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn one_floor_for_all_names_or_one_for_each_group() {
        let name = |text: &str| Name::new(text).expect("a name");
        let mut floors = Floors::default();
        floors.saw(&name("a"), 7);
        floors.saw(&name("b"), 3);
        assert_eq!(floors.of(&name("c")), 7);

        let mut floors = Floors::default();
        floors.group_by(Some(Arc::new(|name| name.as_str().len().try_into().expect("a short name"))));
        floors.saw(&name("a"), 7);
        floors.saw(&name("bb"), 3);
        assert_eq!(["c", "dd", "eee"].map(|text| floors.of(&name(text))), [7, 3, 0]);
    }
}
