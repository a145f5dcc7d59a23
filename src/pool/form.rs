//! How a member does of late, where requests write it and picks read it: atomics, and no lock.
//!
//! What is awaited from it counts with its age. For that nobody has to remember each: their number and the sum of their
//! beginnings lie in one word, so that a reader never sees one without the other.
//!
//! Not here: the arithmetic of a peak (`balance::form`), who begins and ends what (`lease`).

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::balance::{Answered, AsOf, Form, Memory, Peak, failing_after};

/// Of the word of those that are awaited, the bits of their number: a million at one member, which has no more ports.
const NUMBER: u32 = 20;
/// Their beginnings are counted in parts of 2^6 µs: so the sum of their ages has room for centuries.
const TICK: u32 = 6;

/// The form of one member while it lives.
#[derive(Debug)]
pub struct LiveForm {
    /// A [`Peak`].
    peak: AtomicU64,
    awaited: AtomicU64,
    /// A fraction, as bits.
    failing: AtomicU32,
}

impl Default for LiveForm {
    fn default() -> LiveForm {
        LiveForm {
            peak: AtomicU64::new(Peak::NONE.to_bits()),
            awaited: AtomicU64::new(0),
            failing: AtomicU32::new(0.0_f32.to_bits()),
        }
    }
}

impl LiveForm {
    /// As it is then.
    pub fn at(&self, as_of: AsOf) -> Form {
        let peak = Peak::from_bits(self.peak.load(Relaxed));
        Form::of(peak, self.age(as_of), f32::from_bits(self.failing.load(Relaxed)), as_of)
    }

    /// An answer is awaited from now on.
    pub(super) fn await_begins(&self, began: Duration) {
        self.awaited.fetch_add(word(began), Relaxed);
    }

    /// What began then is not awaited any more.
    pub(super) fn await_ends(&self, began: Duration) {
        self.awaited.fetch_sub(word(began), Relaxed);
    }

    /// Its first byte came at `now`, after `took`, and it is a success.
    pub(super) fn answers(&self, now: Duration, took: Duration, memory: Memory) {
        self.learn(|peak| peak.answered(now, took, memory));
        self.count(Answered::Well);
    }

    /// By `now` it has been awaited for `took`, in vain.
    pub(super) fn gives_nothing(&self, now: Duration, took: Duration, memory: Memory) {
        self.learn(|peak| peak.gave_nothing(now, took, memory));
    }

    /// It failed.
    pub(super) fn fails(&self) {
        self.count(Answered::Badly);
    }

    fn learn(&self, after: impl Fn(Peak) -> Peak) {
        let after = |bits: u64| Some(after(Peak::from_bits(bits)).to_bits()).filter(|after| *after != bits);
        // Refused where nothing changes, which costs nobody the word.
        let _ = self.peak.fetch_update(Relaxed, Relaxed, after);
    }

    fn count(&self, answered: Answered) {
        // One that is lost between two writers is one answer of many.
        let bits = self.failing.load(Relaxed);
        let after = failing_after(f32::from_bits(bits), answered).to_bits();
        if after != bits {
            self.failing.store(after, Relaxed);
        }
    }

    /// The mean age of what is awaited, in microseconds.
    fn age(&self, as_of: AsOf) -> Option<f32> {
        let word = self.awaited.load(Relaxed);
        let number = word & ((1 << NUMBER) - 1);
        if number == 0 {
            return None;
        }
        let ages = number.wrapping_mul(as_of.us() >> TICK).wrapping_sub(word >> NUMBER) << NUMBER;
        // Signed: who picks may have read the clock before somebody else whose request has begun since.
        let ages = (ages as i64 >> NUMBER).max(0);
        Some(ages as f32 * (1 << TICK) as f32 / number as f32)
    }
}

/// One that began then, in the number and in the sum, which goes round without harm.
fn word(began: Duration) -> u64 {
    (began.as_micros() as u64 >> TICK) << NUMBER | 1
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    const MEMORY: Memory = Memory { decay: Duration::from_secs(10), sensitivity: Duration::from_millis(50) };

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn peak(form: &LiveForm, at_ms: u64) -> Option<u128> {
        form.at(MEMORY.as_of(ms(at_ms))).peak().map(|peak| peak.as_millis())
    }

    #[test]
    fn what_is_awaited_counts_with_its_mean_age_where_that_is_more() {
        let form = LiveForm::default();
        assert_eq!(peak(&form, 0), None);
        form.await_begins(ms(1_000));
        assert_eq!((peak(&form, 1_000), peak(&form, 1_640)), (Some(0), Some(640)));
        form.await_begins(ms(1_640));
        assert_eq!(peak(&form, 1_960), Some(640));
        form.await_ends(ms(1_000));
        form.answers(ms(1_960), ms(20), MEMORY);
        assert_eq!((peak(&form, 1_960), peak(&form, 1_650)), (Some(320), Some(20)));
        form.await_ends(ms(1_640));
        assert_eq!(peak(&form, 1_960), Some(20));
    }

    #[test]
    fn a_clock_that_was_read_before_the_last_beginning_makes_nobody_old() {
        let form = LiveForm::default();
        (0..3).for_each(|_| form.await_begins(ms(5_000)));
        assert_eq!(peak(&form, 4_990), Some(0));
    }

    #[test]
    fn ages_are_right_after_years_and_with_many() {
        let (form, year) = (LiveForm::default(), Duration::from_secs(365 * 86_400));
        (0..100_000).for_each(|_| form.await_begins(3 * year));
        let age = form.at(MEMORY.as_of(3 * year + ms(3_600_000))).peak().expect("they are awaited");
        assert!(age.abs_diff(ms(3_600_000)) < ms(10), "{age:?}");
        (0..100_000).for_each(|_| form.await_ends(3 * year));
        assert_eq!(form.at(MEMORY.as_of(4 * year)).peak(), None);
    }

    #[test]
    fn nothing_is_left_of_what_many_threads_began_and_ended() {
        let form = LiveForm::default();
        thread::scope(|scope| {
            for thread in 0..4 {
                let form = &form;
                scope.spawn(move || {
                    for round in 0..10_000_u64 {
                        let began = ms(thread * 7 + round * 13);
                        form.await_begins(began);
                        form.answers(began + ms(5), ms(5), MEMORY);
                        form.await_ends(began);
                    }
                });
            }
        });
        assert_eq!(form.awaited.load(Relaxed), 0);
        assert_eq!(form.at(MEMORY.as_of(ms(130_000))).failing(), 0.0);
    }
}
