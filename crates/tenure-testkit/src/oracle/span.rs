//! Stretches of time: half-open, so that one may begin in the instant in which another ends.

use super::event::Nanos;

/// From an instant until another, which is not part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Span {
    pub(super) from: Nanos,
    pub(super) until: Nanos,
}

impl Span {
    pub(super) fn has(&self, at: Nanos) -> bool {
        self.from <= at && at < self.until
    }

    pub(super) fn length(&self) -> Nanos {
        self.until.saturating_sub(self.from)
    }
}

/// The same time in as few spans as possible, in order.
pub(super) fn union(mut spans: Vec<Span>) -> Vec<Span> {
    spans.retain(|span| span.length() > 0);
    spans.sort_unstable();
    let mut joined: Vec<Span> = Vec::new();
    for span in spans {
        match joined.last_mut() {
            Some(last) if span.from <= last.until => last.until = last.until.max(span.until),
            _ => joined.push(span),
        }
    }
    joined
}

/// The time of `spans` that is not in `holes`, in order.
pub(super) fn subtract(spans: Vec<Span>, holes: Vec<Span>) -> Vec<Span> {
    let holes = union(holes);
    let mut left = Vec::new();
    for mut span in union(spans) {
        let first = holes.partition_point(|hole| hole.until <= span.from);
        for hole in holes[first..].iter().take_while(|hole| hole.from < span.until) {
            left.push(Span { from: span.from, until: hole.from });
            span.from = hole.until;
        }
        left.push(span);
    }
    left.retain(|span| span.length() > 0);
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans<const N: usize>(spans: [(Nanos, Nanos); N]) -> Vec<Span> {
        spans.map(|(from, until)| Span { from, until }).to_vec()
    }

    #[test]
    fn touching_spans_are_one_and_empty_ones_are_none() {
        assert_eq!(union(spans([(5, 9), (1, 3), (3, 4), (7, 8), (6, 6)])), spans([(1, 4), (5, 9)]));
    }

    #[test]
    fn holes_are_cut_out() {
        let cut = |holes| subtract(spans([(10, 20), (30, 40)]), holes);
        assert_eq!(cut(spans([])), spans([(10, 20), (30, 40)]));
        assert_eq!(cut(spans([(12, 14), (16, 35)])), spans([(10, 12), (14, 16), (35, 40)]));
        assert_eq!(cut(spans([(0, 10), (20, 30), (40, 50)])), spans([(10, 20), (30, 40)]));
        assert_eq!(cut(spans([(0, 15), (38, 50)])), spans([(15, 20), (30, 38)]));
        assert_eq!(cut(spans([(0, 100)])), spans([]));
    }
}
