//! How a member does of late, by the requests that it answers (health.md §5): what `peak_ewma` goes by.
//!
//! A *peak* is the time to the first byte of its answers. It rises at once to what takes longer and falls slowly, with a
//! time constant of `decay`; without answers it falls towards nothing, so that one that was slow is asked again. A slow
//! answer that stands alone moves nobody: a pause of a moment is no reason to leave a member, and the next one tells.
//! An answer that fails teaches nothing of how fast it is, only that a part of its answers fails.
//!
//! Not here: where this is kept (`pool`), what is made of it (`peak_ewma`), which answers count (`proxy`).

use std::time::Duration;

/// Time is counted in parts of 2^14 µs, which is 16 ms: in two years they are too many for 32 bits, and begin anew.
const TICK: u32 = 14;

/// Of about so many answers the failing part is known.
const ANSWERS: f32 = 16.0;

/// How answers of the past count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// In this time a peak falls to 37 % without answers, and most of the way to faster ones with them.
    pub decay: Duration,
    /// An answer that takes so much longer than the peak stands out.
    pub sensitivity: Duration,
}

/// A moment at which forms are read: what all of them need of it, worked out once.
#[derive(Debug, Clone, Copy)]
pub struct AsOf {
    us: u64,
    /// What a peak falls by in a tick, as a power of e.
    fall: f32,
}

/// How a member does of late.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Form {
    us: Option<f32>,
    failing: f32,
}

impl Memory {
    /// For reading forms at `now`.
    pub fn as_of(self, now: Duration) -> AsOf {
        AsOf { us: whole_us(now), fall: -((1 << TICK) as f32) / us(self.decay).max(1.0) }
    }
}

impl AsOf {
    /// In microseconds.
    pub fn us(self) -> u64 {
        self.us
    }
}

impl Form {
    /// Of a member whose answers took so long of late, `None` where nothing is known; of the last ones this part failed, 0 to
    /// 1.
    pub fn new(peak: Option<Duration>, failing: f32) -> Form {
        Form { us: peak.map(us), failing }
    }

    /// Of one with this peak, from which other answers have been awaited for `age` microseconds on average.
    pub fn of(peak: Peak, age: Option<f32>, failing: f32, as_of: AsOf) -> Form {
        let us = match (peak.us_at(as_of), age) {
            (Some(us), Some(age)) => Some(us.max(age)),
            (us, age) => us.or(age),
        };
        Form { us, failing }
    }

    /// The peak of its times to the first byte, or the mean age of what is awaited from it, where that is more. `None`:
    /// nothing is known.
    pub fn peak(self) -> Option<Duration> {
        self.us.map(|us| Duration::from_micros(us as u64))
    }

    /// The part of its last answers that failed, 0 to 1.
    pub fn failing(self) -> f32 {
        self.failing
    }

    /// The peak in microseconds.
    pub(super) fn us(self) -> Option<f32> {
        self.us
    }
}

/// The peak of a member, in 64 bits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Peak {
    us: f32,
    /// The last answer stood out.
    stands_out: bool,
    /// As of when, in ticks.
    at: u32,
}

impl Peak {
    /// Of a member that has answered nothing.
    pub const NONE: Peak = Peak { us: f32::NAN, stands_out: false, at: 0 };

    /// After an answer whose first byte took `took`.
    pub fn answered(self, now: Duration, took: Duration, memory: Memory) -> Peak {
        let left = self.left(memory.as_of(now));
        let (before, took) = (self.known() * left, us(took));
        let edge = before + us(memory.sensitivity);
        let stands_out = took > edge;
        if stands_out && !self.stands_out {
            return Peak { us: edge, stands_out, at: ticks(now) };
        }
        if took >= before || self.us.is_nan() {
            return Peak { us: took, stands_out, at: ticks(now) };
        }
        // Within a tick nothing falls: most answers of a busy member change nothing, and cost no write.
        let share = 1.0 - left;
        if share == 0.0 {
            return Peak { stands_out, ..self };
        }
        Peak { us: before + took * share, stands_out, at: ticks(now) }
    }

    /// After `took`, in which an answer was awaited in vain. That it ended soon says nothing; and where nothing is known, any
    /// time might be fast beside the others'.
    pub fn gave_nothing(self, now: Duration, took: Duration, memory: Memory) -> Peak {
        let (before, took) = (self.known() * self.left(memory.as_of(now)), us(took));
        let counts = !self.us.is_nan() && took > before + us(memory.sensitivity);
        if counts { Peak { us: took, stands_out: true, at: ticks(now) } } else { self }
    }

    /// As a number, never 0.
    pub fn to_bits(self) -> u64 {
        let us = if self.stands_out { -self.us } else { self.us };
        u64::from(us.to_bits()) << 32 | u64::from(self.at)
    }

    /// From such a number.
    pub fn from_bits(bits: u64) -> Peak {
        let us = f32::from_bits((bits >> 32) as u32);
        Peak { us: us.abs(), stands_out: us.is_sign_negative(), at: bits as u32 }
    }

    /// What it has come to, in microseconds.
    fn us_at(self, as_of: AsOf) -> Option<f32> {
        (!self.us.is_nan()).then(|| self.us * self.left(as_of))
    }

    fn known(self) -> f32 {
        if self.us.is_nan() { 0.0 } else { self.us }
    }

    /// The part of it that is left.
    fn left(self, as_of: AsOf) -> f32 {
        // A moment that is told late may be before the last one.
        match ((as_of.us >> TICK) as u32).wrapping_sub(self.at) as i32 {
            ..=0 => 1.0,
            passed => (passed as f32 * as_of.fall).exp(),
        }
    }
}

/// The failing part of the last answers, one answer later.
pub fn failing_after(failing: f32, answer: Answered) -> f32 {
    let now = if answer == Answered::Badly { 1.0 } else { 0.0 };
    let after = failing + (now - failing) / ANSWERS;
    // So that those who are well again stop counting.
    if after < 0.001 { 0.0 } else { after }
}

/// How a member answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answered {
    /// As it should.
    Well,
    /// Not, or with an error of its own.
    Badly,
}

fn ticks(now: Duration) -> u32 {
    (whole_us(now) >> TICK) as u32
}

fn us(duration: Duration) -> f32 {
    whole_us(duration) as f32
}

/// As `as_micros`, without its 128 bits, which a pick would pay for at each member.
fn whole_us(duration: Duration) -> u64 {
    duration.as_secs().saturating_mul(1_000_000).saturating_add(duration.subsec_micros().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMORY: Memory = Memory { decay: Duration::from_secs(10), sensitivity: Duration::from_millis(50) };

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn shown(peak: Peak, at_ms: u64) -> Option<u128> {
        let form = Form::of(peak, None, 0.0, MEMORY.as_of(ms(at_ms)));
        form.peak().map(|peak| peak.as_millis())
    }

    /// Answers at these times that took so long.
    fn after(answers: &[(u64, u64)]) -> Peak {
        let answered = |peak: Peak, (at, took): &(u64, u64)| peak.answered(ms(*at), ms(*took), MEMORY);
        answers.iter().fold(Peak::NONE, answered)
    }

    #[test]
    fn a_peak_rises_at_once_and_falls_slowly() {
        assert_eq!(shown(Peak::NONE, 0), None);
        assert_eq!(shown(after(&[(0, 20)]), 0), Some(20));
        assert_eq!(shown(after(&[(0, 20), (1, 60)]), 1), Some(60));
        // 37 % are left after ten seconds, and less than a hundredth after fifty.
        let peak = after(&[(0, 100), (0, 100)]);
        assert_eq!((shown(peak, 0), shown(peak, 10_000), shown(peak, 50_000)), (Some(100), Some(36), Some(0)));
        // With answers it falls to what they take, however many there are.
        for pause in [1, 100, 1_000] {
            let answers = (0..60_000 / pause).map(|n| (n * pause, 20));
            let peak = answers.fold(peak, |peak, (at, took)| peak.answered(ms(at), ms(took), MEMORY));
            let fallen = shown(peak, 60_000).expect("it is known");
            assert!((18..=21).contains(&fallen), "{fallen} ms with an answer each {pause} ms");
        }
    }

    #[test]
    fn one_slow_answer_alone_moves_little_and_the_second_tells() {
        assert_eq!(shown(after(&[(0, 5), (1, 900)]), 1), Some(55));
        assert_eq!(shown(after(&[(0, 5), (1, 900), (2, 5), (3, 900)]), 3), Some(105));
        assert_eq!(shown(after(&[(0, 5), (1, 900), (2, 800)]), 2), Some(800));
        // Also where they come seldom, so that the first has been forgotten by the next.
        assert_eq!(shown(after(&[(0, 5), (30_000, 900), (60_000, 800)]), 60_000), Some(800));
        // The first of all is no proof either.
        assert_eq!(shown(after(&[(0, 900)]), 0), Some(50));
    }

    #[test]
    fn what_was_awaited_in_vain_never_counts_as_fast() {
        let known = after(&[(0, 20)]);
        assert_eq!(known.gave_nothing(ms(1), Duration::ZERO, MEMORY), known);
        assert_eq!(known.gave_nothing(ms(1), ms(60), MEMORY), known);
        assert_eq!(shown(known.gave_nothing(ms(1), ms(5_000), MEMORY), 1), Some(5_000));
        assert_eq!(shown(Peak::NONE.gave_nothing(ms(1), ms(1), MEMORY), 1), None, "a refusal is no time");
        assert_eq!(
            shown(Peak::NONE.gave_nothing(ms(1), ms(5_000), MEMORY), 1),
            None,
            "nor is anything without a success"
        );
    }

    #[test]
    fn bits_are_the_peak_they_were_made_of() {
        for peak in [after(&[(0, 0)]), after(&[(0, 20)]), after(&[(70_000, 900)]), after(&[(9, 900), (9, 900)])] {
            assert_eq!(Peak::from_bits(peak.to_bits()), peak);
        }
        assert!(Peak::from_bits(Peak::NONE.to_bits()).us.is_nan());
    }

    #[test]
    fn time_that_goes_back_or_is_worn_out_does_no_harm() {
        let peak = after(&[(50_000, 40)]);
        assert_eq!(shown(peak, 0), Some(40));
        let late = Duration::from_secs(3 * 365 * 86_400);
        let peak = Peak::NONE.answered(late, ms(40), MEMORY);
        let form = Form::of(peak, None, 0.0, MEMORY.as_of(late + ms(10_000)));
        assert_eq!(form.peak().map(|peak| peak.as_millis()), Some(14));
    }

    #[test]
    fn the_failing_part_is_of_the_last_answers() {
        let after = |failing, answer, times| (0..times).fold(failing, |failing, _| failing_after(failing, answer));
        assert_eq!(after(0.0, Answered::Well, 5), 0.0);
        let one = after(0.0, Answered::Badly, 1);
        assert!((0.06..0.07).contains(&one), "{one}");
        let many = after(0.0, Answered::Badly, 50);
        assert!(many > 0.95, "{many}");
        assert_eq!(after(many, Answered::Well, 150), 0.0);
    }
}
