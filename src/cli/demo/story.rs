//! What happens to the origins, and when.

use std::time::Duration;

use super::origin::Mood::{self, Dead, Failing, Slow, Well};

/// One turn of events.
#[derive(Debug)]
pub struct Turn {
    /// After the one before.
    pub after: Duration,
    /// Which origin, from 0.
    pub origin: usize,
    /// What becomes of it.
    pub mood: Mood,
    /// For the audience: what was done to it.
    pub words: &'static str,
    /// What comes of it, where all members take part; empty where that is nothing in particular.
    pub so: &'static str,
}

/// The story, told again and again.
pub const STORY: &[Turn] = &[
    turn(4, 1, Failing, "answers 503 from now on", ""),
    turn(5, 2, Dead, "is stopped: connections are refused", ""),
    turn(
        5,
        3,
        Failing,
        "answers 503 from now on",
        "two of four are out, the cap (50 %) allows no more: it will be kept",
    ),
    turn(
        5,
        0,
        Failing,
        "the last one, answers 503 from now on",
        "nobody will be healthy, and all four serve: the fallback",
    ),
    turn(5, 0, Well, "answers 200 again", "once it is healthy the fallback will be over"),
    turn(4, 1, Well, "answers 200 again", ""),
    turn(1, 2, Well, "is started again", ""),
    turn(1, 3, Well, "answers 200 again, as all do now", ""),
    turn(5, 3, Slow, "takes 250 ms longer: right answers, but late", ""),
    turn(8, 3, Well, "is quick again", ""),
];

const fn turn(after: u64, origin: usize, mood: Mood, words: &'static str, so: &'static str) -> Turn {
    Turn { after: Duration::from_secs(after), origin, mood, words, so }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_story_ends_as_it_began() {
        let mut moods = [Well; 4];
        for turn in STORY {
            assert_ne!(moods[turn.origin], turn.mood, "{}", turn.words);
            moods[turn.origin] = turn.mood;
        }
        assert_eq!(moods, [Well; 4]);
    }
}
