//! A detached lease as a printable string.
//!
//! It goes through shells, files and variables, so all that they could take for something else is escaped. It says the name, the fence and the ttl, so that it is
//! enough to renew the lease and to give it back; not where the name lives, because that may have a password in it.
//!
//! `tenure1/+CRC/NAME/FENCE/TTL/TOKEN`: the CRC-32 of what follows it tells a damaged ticket from one whose lease has ended. It comes first, so that a
//! ticket that was cut still has it. A ticket without a CRC, as versions before 0.1.0 printed it, is accepted: its first field is a name, where a plus
//! is escaped.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::types::error::Error;
use crate::types::fence::{FENCE_END, Fence};
use crate::types::name::Name;
use crate::types::owner::Token;

const PREFIX: &str = "tenure1";
/// What is escaped in a field: all that a shell, a terminal or a URL could take for something else.
const FIELD: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b':');

/// A detached lease, to be handed to another process and [adopted](Self::adopt), [renewed](Self::renew) or [released](Self::release) there.
///
/// Its text is safe in a shell, a file and an environment variable. Whoever has it can take the lease: treat it as a password.
/// `Debug` shows the name and the fence alone.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tenure::Error> {
/// use tenure::Ticket;
///
/// let domain = tenure::Domain::open("memory:").await?;
/// let ticket = domain.lock("orders/42").acquire().await?.detach().await?;
///
/// let same: Ticket = ticket.to_string().parse()?;
/// assert_eq!(same, ticket);
/// assert_eq!(same.name(), "orders/42");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Ticket {
    pub(crate) name: Name,
    pub(crate) token: Token,
    pub(crate) fence: Fence,
    pub(crate) ttl: Duration,
}

impl Ticket {
    pub(crate) fn new(name: Name, token: Token, fence: Fence, ttl: Duration) -> Self {
        Ticket { name, token, fence, ttl }
    }

    /// The name whose lease it is.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// The fence that the lease was detached with; adopting it yields a higher one.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// How long the lease lasts from its last renewal on.
    #[must_use]
    pub fn ttl(&self) -> Duration {
        self.ttl
    }
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = utf8_percent_encode(self.name.as_str(), FIELD);
        let token = utf8_percent_encode(self.token.as_str(), FIELD);
        let fields = format!("{name}/{}/{}/{token}", self.fence, self.ttl.as_millis());
        write!(f, "{PREFIX}/{}/{fields}", checksum(&fields))
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket").field("name", &self.name).field("fence", &self.fence).finish_non_exhaustive()
    }
}

impl FromStr for Ticket {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        // The text is a secret: no message repeats it.
        let malformed = |what: &str| Error::invalid(format!("ticket {what}")).fix("give its whole text");
        let decode = |field: &str| percent_decode_str(field).decode_utf8().map(|text| text.into_owned());
        if text.trim().is_empty() {
            return Err(malformed("is empty"));
        }
        // The error for a name in place of a ticket says how a ticket begins.
        let Some((PREFIX, text)) = text.trim().split_once('/') else {
            return Err(malformed("does not start with `tenure1/`"));
        };
        let fields: Vec<&str> = text.split('/').collect();
        let (name, fence, ttl, token) = match fields[..] {
            [crc, name, fence, ttl, token] if checksum(&text[crc.len() + 1..]) == crc => {
                (name, fence, ttl, token)
            }
            [name, fence, ttl, token] if !name.starts_with('+') => (name, fence, ttl, token),
            _ => return Err(malformed("is damaged: its text was changed or cut")),
        };
        let name = Name::new(&decode(name).map_err(|_| malformed("has a name that is not UTF-8"))?)?;
        let fence = fence.parse().map_err(|_| malformed("has a fence that is no number"))?;
        if fence >= FENCE_END {
            return Err(malformed("has a fence that is out of range"));
        }
        let ttl = ttl.parse().map_err(|_| malformed("has a ttl that is no number"))?;
        let token = decode(token).map_err(|_| malformed("has a token that is not UTF-8"))?;
        if token.is_empty() {
            return Err(malformed("has no token"));
        }
        let (token, fence, ttl) = (Token::from_store(&token), Fence::new(fence), Duration::from_millis(ttl));
        if token.ttl().is_some_and(|longest| ttl > longest) {
            return Err(malformed("has a ttl that is not that of its token"));
        }
        Ok(Ticket::new(name, token, fence, ttl))
    }
}

fn checksum(fields: &str) -> String {
    format!("+{:08x}", crc32fast::hash(fields.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::error::ErrorKind;
    use crate::types::owner::Session;

    fn ticket(name: &str) -> Ticket {
        let token = Token::fresh(&Session::random(), "a label/with 'quotes'", Duration::from_secs(10));
        Ticket::new(Name::new(name).unwrap(), token, Fence::new(42), Duration::from_secs(10))
    }

    /// As versions before 0.1.0 printed it.
    fn without_checksum(ticket: &Ticket) -> String {
        let text = ticket.to_string();
        let (prefix, rest) = text.split_once('/').unwrap();
        format!("{prefix}/{}", rest.split_once('/').unwrap().1)
    }

    #[test]
    fn a_damaged_ticket_is_told_from_one_whose_lease_has_ended() {
        let ticket = ticket("orders/42");
        let text = ticket.to_string();
        assert_eq!(without_checksum(&ticket).parse::<Ticket>().unwrap(), ticket);
        for at in 0..text.len() {
            let (before, after) = text.split_at(at);
            let letter = if after.starts_with('a') { 'b' } else { 'a' };
            let damaged = [
                before.to_owned(),
                format!("{before}{}", &after[1..]),
                format!("{before}{letter}{}", &after[1..]),
                format!("{before}{letter}{after}"),
                format!("{text}{letter}"),
            ];
            for damaged in damaged {
                let error = damaged.parse::<Ticket>().unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Invalid, "{damaged}");
            }
        }
        let error = format!("{text}x").parse::<Ticket>().unwrap_err();
        assert_eq!(error.to_string(), "ticket is damaged: its text was changed or cut; give its whole text");
    }

    #[test]
    fn survives_the_way_through_a_shell() {
        for name in [
            "a",
            "orders/42",
            "with space $HOME `x` \\ \"q\" 'q'",
            "a;b&c|d<e>f(g)h*i?j[k]l!m#n~o{p,q}=r",
            "ünïcode %2F \n \0",
        ] {
            let ticket = ticket(name);
            let text = ticket.to_string();
            let echoed =
                std::process::Command::new("sh").arg("-c").arg(format!("printf %s {text}")).output().unwrap();
            assert_eq!(String::from_utf8_lossy(&echoed.stdout), text, "unquoted in a shell");
            assert_eq!(text.parse::<Ticket>().unwrap(), ticket);
            assert_eq!(format!(" {text}\n").parse::<Ticket>().unwrap(), ticket, "as read from a file");
        }
    }

    #[test]
    fn a_broken_ticket_is_invalid_and_not_repeated() {
        let whole = ticket("a").to_string();
        for text in [
            "",
            "tenure1",
            "tenure2/a/1/1/t",
            "tenure1/a/x/1/t",
            "tenure1/a/1/x/t",
            "tenure1/a/9007199254740992/1/t",
            "tenure1/a/1/1/",
            "tenure1//1/1/t",
            &whole[1..],
        ] {
            let error = text.parse::<Ticket>().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{text}");
            assert!(text.len() < 20 || !error.to_string().contains(text));
        }
        let empty = "\n".parse::<Ticket>().unwrap_err();
        assert_eq!(empty.to_string(), "ticket is empty; give its whole text");
    }

    // A store may end a lease that has more left than its token says.
    #[test]
    fn a_ticket_asks_for_no_longer_than_its_token() {
        let (whole, ttl) = (without_checksum(&ticket("a")), "/10000/");
        assert!(whole.replacen(ttl, "/9000/", 1).parse::<Ticket>().is_ok());
        let error = whole.replacen(ttl, "/10001/", 1).parse::<Ticket>().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }

    #[test]
    fn debug_hides_the_token() {
        let ticket = ticket("a");
        assert!(!format!("{ticket:?}").contains(&ticket.token.as_str()[..8]));
    }
}
