//! One mapping of the file while its keys are given a meaning: ranges are checked, problems get their place.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::places::At;
use super::problem::Problems;
use super::spelling::{Bytes, Spelled, Text, Written, spell_duration};

/// Longest duration any key takes.
pub(super) const DAY: Duration = Duration::from_secs(24 * 3600);
/// Shortest duration of a key that cannot be zero.
pub(super) const TICK: Duration = Duration::from_millis(1);

/// A mapping and where problems with it go.
pub(super) struct Reading<'a> {
    pub(super) at: At<'a>,
    pub(super) problems: &'a mut Problems,
}

impl<'a> Reading<'a> {
    pub(super) fn new(at: At<'a>, problems: &'a mut Problems) -> Reading<'a> {
        Reading { at, problems }
    }

    /// The mapping under `key`.
    pub(super) fn under(&mut self, key: &str) -> Reading<'_> {
        Reading { at: self.at.key(key), problems: self.problems }
    }

    /// Notes an error in the value of `key`.
    pub(super) fn error(&mut self, key: &str, message: impl Into<String>) {
        self.problems.error(self.at.key(key), message);
    }

    /// Notes that `key` is not written, unless what was meant for it was refused already.
    pub(super) fn missing(&mut self, key: &str, message: impl Into<String>) {
        if !self.at.may_have_lost(key) {
            self.problems.error(self.at.key(key), message);
        }
    }

    /// A duration within `range`; `None` where it is not written, or wrong, which is noted.
    pub(super) fn span(
        &mut self,
        key: &str,
        written: &Written<Duration>,
        range: RangeInclusive<Duration>,
    ) -> Option<Duration> {
        let Spelled(value) = (*written)?;
        if value < *range.start() {
            self.error(key, format!("`{key}` is too short; write at least `{}`", spell_duration(*range.start())));
        } else if value > *range.end() {
            self.error(key, format!("`{key}` is too long; write at most `{}`", spell_duration(*range.end())));
        } else {
            return Some(value);
        }
        None
    }

    /// A whole number within `range`.
    pub(super) fn count<T>(&mut self, key: &str, written: &Written<u64>, range: RangeInclusive<T>) -> Option<T>
    where
        T: Copy + PartialOrd + TryFrom<u64> + std::fmt::Display,
    {
        let Spelled(value) = (*written)?;
        match T::try_from(value).ok().filter(|v| range.contains(v)) {
            Some(value) => Some(value),
            None => {
                self.error(key, format!("`{key}` cannot be {value}; write {} to {}", range.start(), range.end()));
                None
            }
        }
    }

    /// A size within `range`, in bytes.
    pub(super) fn bytes(&mut self, key: &str, written: &Written<Bytes>, range: RangeInclusive<u64>) -> Option<usize> {
        let Spelled(Bytes(value)) = (*written)?;
        if range.contains(&value) {
            return usize::try_from(value).ok();
        }
        let (least, most) = (spell_bytes(*range.start()), spell_bytes(*range.end()));
        self.error(key, format!("`{key}` cannot be {}; write `{least}` to `{most}`", spell_bytes(value)));
        None
    }

    /// A text as `read` understands it.
    pub(super) fn text<T>(
        &mut self,
        key: &str,
        written: &Written<Text>,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let Spelled(Text(text)) = written.as_ref()?;
        match read(text) {
            Ok(value) => Some(value),
            Err(message) => {
                self.error(key, message);
                None
            }
        }
    }
}

/// A size in the largest unit that divides it: `64KiB`, `100B`.
pub(super) fn spell_bytes(bytes: u64) -> String {
    match bytes {
        0 => "0B".to_owned(),
        b if b % (1 << 20) == 0 => format!("{}MiB", b >> 20),
        b if b % (1 << 10) == 0 => format!("{}KiB", b >> 10),
        b => format!("{b}B"),
    }
}
