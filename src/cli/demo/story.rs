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
    /// For the audience.
    pub words: &'static str,
}

/// The story, told again and again.
pub const STORY: &[Turn] = &[
    turn(4, 1, Failing, "the second origin begins to answer 503"),
    turn(5, 2, Dead, "the third origin dies"),
    turn(5, 3, Failing, "the fourth fails too, but the cap (50 % of 4) is used up: it is kept"),
    turn(5, 0, Failing, "now all four are unwell: the pool falls open, round-robin over everyone"),
    turn(5, 0, Well, "the first recovers, and the fallback is over"),
    turn(4, 1, Well, "the second recovers"),
    turn(1, 2, Well, "the third comes back to life"),
    turn(1, 3, Well, "and the fourth: all is well"),
    turn(5, 3, Slow, "the fourth becomes slow: right answers, but late"),
    turn(8, 3, Well, "and quick again"),
];

const fn turn(after: u64, origin: usize, mood: Mood, words: &'static str) -> Turn {
    Turn { after: Duration::from_secs(after), origin, mood, words }
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
