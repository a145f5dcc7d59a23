//! How many requests ended with which status, told apart to the last digit.
//!
//! There are 900 of them and most are never seen, so each hundred has its places once the first of it comes. Counting
//! takes no lock: one look, one addition.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

type Hundred = Box<[AtomicU64; 100]>;

/// Counts by status.
#[derive(Debug, Default)]
pub struct Codes {
    /// From 100 on.
    hundreds: [OnceLock<Hundred>; 9],
    none: AtomicU64,
}

/// What a request ended with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Code {
    /// Without an answer.
    None,
    /// With this status.
    Status(u16),
}

impl Codes {
    /// One more request is over; `None`: its client got no answer.
    pub fn count(&self, status: Option<u16>) {
        let place = status.and_then(|status| {
            let hundred = self.hundreds.get(usize::from(status / 100).checked_sub(1)?)?;
            hundred.get_or_init(empty).get(usize::from(status % 100))
        });
        place.unwrap_or(&self.none).fetch_add(1, Relaxed);
    }

    /// Every code that was seen, and how often.
    pub fn read(&self) -> impl Iterator<Item = (Code, u64)> + '_ {
        let hundreds = (100..).step_by(100).zip(&self.hundreds);
        let kept = hundreds.filter_map(|(first, hundred)| Some((first, hundred.get()?)));
        let statuses = kept.flat_map(|(first, places)| (first..).map(Code::Status).zip(places.iter()));
        let all = statuses.chain([(Code::None, &self.none)]).map(|(code, count)| (code, count.load(Relaxed)));
        all.filter(|(_, count)| *count > 0)
    }
}

fn empty() -> Hundred {
    Box::new([const { AtomicU64::new(0) }; 100])
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Code::None => f.write_str("none"),
            Code::Status(status) => write!(f, "{status}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_its_own_count() {
        let codes = Codes::default();
        let statuses = (100..1000).flat_map(|status| std::iter::repeat_n(Some(status), usize::from(status) % 7));
        statuses.for_each(|status| codes.count(status));
        let expected = (100..1000).filter(|status| status % 7 > 0).map(|s| (Code::Status(s), u64::from(s) % 7));
        assert!(codes.read().eq(expected));
    }

    #[test]
    fn what_is_no_status_counts_as_none() {
        let codes = Codes::default();
        [None, Some(0), Some(99), Some(1000), Some(u16::MAX)].into_iter().for_each(|status| codes.count(status));
        assert!(codes.read().eq([(Code::None, 5)]));
        assert_eq!(Code::None.to_string(), "none");
    }
}
