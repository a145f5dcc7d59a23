//! What was replaced and when: how much of each limit is used (health.md §10).
//!
//! Limits are rolling windows of wall-clock time, and a wall clock may be set. So each entry carries two times: by the wall
//! clock, and *counted*, which goes on only as far as the wall clock and the monotonic one both have. An entry is in a
//! window while either time says so: neither a clock that is set ahead nor one that is set back makes room.
//!
//! Not here: who is due (`mod`), where the ledger is kept (`remediate`).

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::step;

const HOUR: Duration = Duration::from_secs(3600);
const HALF_A_DAY: Duration = Duration::from_secs(12 * 3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Between two clocks that nobody sets there is less, within [`HOUR`].
const JUMP: Duration = Duration::from_secs(10);

/// Over how long replacements are counted, and whose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Limit {
    /// Of one pool within an hour.
    Hour,
    /// Of one pool within a day.
    Day,
    /// Of all pools within twelve hours.
    Global,
}

impl Limit {
    /// The window's length.
    pub fn span(self) -> Duration {
        match self {
            Limit::Hour => HOUR,
            Limit::Day => DAY,
            Limit::Global => HALF_A_DAY,
        }
    }

    /// The word used in logs, API and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Limit::Hour => "hour",
            Limit::Day => "day",
            Limit::Global => "global",
        }
    }
}

/// How many replacements a pool allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Within an hour.
    pub per_hour: u32,
    /// Within a day.
    pub per_day: u32,
}

/// A moment: counted, and by the wall clock (since 1970).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stamp {
    /// Goes on only as far as both clocks have.
    pub counted: Duration,
    /// The time of day.
    pub wall: Duration,
}

/// One replacement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// When it began.
    pub at: Stamp,
    /// The pools it counts for.
    pub pools: Vec<Arc<str>>,
}

/// A limit that keeps something from being replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Full {
    /// Which.
    pub limit: Limit,
    /// Whose; the empty text where it is that of all pools.
    pub pool: Arc<str>,
    /// How many it allows.
    pub most: u32,
    /// In how long there is room again, if the clocks go on as they do; `None`: never.
    pub free_in: Option<Duration>,
    /// Not what was replaced fills it, or not for as long: an earlier ledger is lost.
    pub is_lost: bool,
}

/// Replacements as far as they count, oldest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ledger {
    now: Stamp,
    monotonic: Duration,
    entries: Vec<Entry>,
    /// When the entries were that count for a pool: a look asks it of every pool.
    of: HashMap<Arc<str>, Vec<Stamp>>,
    /// When it turned out that an earlier ledger is lost: nobody knows what was in it, so every window is full.
    lost_at: Option<Stamp>,
}

impl Ledger {
    /// An empty one, at `monotonic` time and the time of day.
    pub fn new(monotonic: Duration, wall: Duration) -> Ledger {
        Ledger { now: Stamp { counted: wall, wall }, monotonic, entries: Vec::new(), of: HashMap::new(), lost_at: None }
    }

    /// One that goes on from where another process left it, at `left`.
    pub fn resumed(
        monotonic: Duration,
        wall: Duration,
        left: Stamp,
        entries: Vec<Entry>,
        lost_at: Option<Stamp>,
    ) -> Ledger {
        let counted = left.counted.saturating_add(wall.saturating_sub(left.wall));
        let of = by_pool(&entries);
        Ledger { now: Stamp { counted, wall }, monotonic, entries, of, lost_at }
    }

    /// One in place of another that cannot be read: full, until everything it may have held is out of its window.
    pub fn lost(monotonic: Duration, wall: Duration) -> Ledger {
        let mut ledger = Ledger::new(monotonic, wall);
        ledger.lost_at = Some(ledger.now);
        ledger
    }

    /// Lets time pass, and drops what counts no more.
    pub fn advance(&mut self, monotonic: Duration, wall: Duration) {
        let by_wall = wall.saturating_sub(self.now.wall);
        let by_monotonic = monotonic.saturating_sub(self.monotonic);
        self.now = Stamp { counted: self.now.counted.saturating_add(by_wall.min(by_monotonic)), wall };
        self.monotonic = monotonic;
        let (now, before) = (self.now, self.entries.len());
        self.entries.retain(|entry| left_of(entry.at, now, DAY).is_some());
        if self.entries.len() < before {
            self.of = by_pool(&self.entries);
        }
        self.lost_at = self.lost_at.filter(|at| left_of(*at, now, DAY).is_some());
    }

    /// Now, as it was told last.
    pub fn now(&self) -> Stamp {
        self.now
    }

    /// Nothing counts.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.lost_at.is_none()
    }

    /// Whether one that was written down at `written` would mislead who goes on from there: a clock has been set since, which
    /// he cannot see, or it is long ago.
    pub fn is_stale(&self, written: Stamp) -> bool {
        let counted = self.now.counted.saturating_sub(written.counted);
        let as_counted = written.wall.saturating_add(counted);
        counted >= HOUR || self.now.wall.abs_diff(as_counted) >= JUMP
    }

    /// What counts, oldest first.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Since when it is known that an earlier ledger is lost.
    pub fn lost_at(&self) -> Option<Stamp> {
        self.lost_at
    }

    /// Something is replaced now, and counts for `pools`: the entry, for who strikes it out.
    pub fn enter(&mut self, pools: Vec<Arc<str>>) -> Entry {
        let entry = Entry { at: self.now, pools };
        count(&mut self.of, &entry);
        self.entries.push(entry.clone());
        entry
    }

    /// Nothing came of this entry. Of several that are alike it does not matter which goes.
    pub fn strike(&mut self, entry: &Entry) {
        if let Some(index) = self.entries.iter().rposition(|other| other == entry) {
            self.entries.remove(index);
            self.of = by_pool(&self.entries);
        }
    }

    /// How many count under a limit; under that of all pools, `pool` is no matter.
    pub fn used(&self, limit: Limit, pool: &str) -> usize {
        self.left(limit, pool).len()
    }

    /// How many of `most` are used up under a limit: all of them while it is not known what was in an earlier ledger.
    pub fn spent(&self, limit: Limit, pool: &str, most: u32) -> usize {
        let used = self.used(limit, pool);
        match self.lost_for(limit).is_zero() {
            true => used,
            false => used.max(most as usize),
        }
    }

    /// In how long there is room under a limit that allows `most`: zero where there is, `None` where there never is.
    pub fn free_in(&self, limit: Limit, pool: &str, most: u32) -> Option<Duration> {
        if most == 0 {
            return None;
        }
        Some(self.filled_for(limit, pool, most).max(self.lost_for(limit)))
    }

    /// How long what was replaced fills a limit that allows `most`, which is not zero.
    fn filled_for(&self, limit: Limit, pool: &str, most: u32) -> Duration {
        let mut left = self.left(limit, pool);
        left.sort_unstable();
        let over = (left.len() + 1).saturating_sub(most as usize);
        over.checked_sub(1).map_or(Duration::ZERO, |last| left[last])
    }

    /// How long a ledger that is lost fills a limit.
    fn lost_for(&self, limit: Limit) -> Duration {
        self.lost_at.and_then(|at| left_of(at, self.now, limit.span())).unwrap_or_default()
    }

    /// Why nothing may be replaced that counts for these pools; `None`: it may. Of several limits the one that lasts longest.
    pub fn full(&self, pools: &[(Arc<str>, Limits)], max_global: u32) -> Option<Full> {
        let of_pools = pools.iter().map(|(pool, limits)| self.full_for(pool, *limits));
        longest(of_pools.chain([self.full_for_all(max_global)]))
    }

    /// Which of a pool's own limits keeps what counts for it; `None`: none does.
    pub fn full_for(&self, pool: &Arc<str>, limits: Limits) -> Option<Full> {
        longest([self.filled(Limit::Hour, pool, limits.per_hour), self.filled(Limit::Day, pool, limits.per_day)])
    }

    /// Whether the limit of all pools together keeps everything.
    pub fn full_for_all(&self, max_global: u32) -> Option<Full> {
        self.filled(Limit::Global, &Arc::from(""), max_global)
    }

    fn filled(&self, limit: Limit, pool: &Arc<str>, most: u32) -> Option<Full> {
        let free_in = self.free_in(limit, pool, most);
        if free_in == Some(Duration::ZERO) {
            return None;
        }
        let is_lost = most > 0 && self.lost_for(limit) > self.filled_for(limit, pool, most);
        Some(Full { limit, pool: pool.clone(), most, free_in, is_lost })
    }

    /// How long each that counts under a limit still does.
    fn left(&self, limit: Limit, pool: &str) -> Vec<Duration> {
        step();
        let left = |at| {
            step();
            left_of(at, self.now, limit.span())
        };
        match limit {
            Limit::Global => self.entries.iter().filter_map(|entry| left(entry.at)).collect(),
            Limit::Hour | Limit::Day => self.of.get(pool).into_iter().flatten().copied().filter_map(left).collect(),
        }
    }
}

/// Of these limits the one that lasts longest, and of several such the last.
pub fn longest(full: impl IntoIterator<Item = Option<Full>>) -> Option<Full> {
    full.into_iter().flatten().max_by_key(Full::lasts)
}

impl Full {
    /// In how long there is room again; never is the longest.
    pub fn lasts(&self) -> Duration {
        self.free_in.unwrap_or(Duration::MAX)
    }
}

fn by_pool(entries: &[Entry]) -> HashMap<Arc<str>, Vec<Stamp>> {
    let mut of = HashMap::new();
    entries.iter().for_each(|entry| count(&mut of, entry));
    of
}

/// Counts an entry for each of its pools, once.
fn count(of: &mut HashMap<Arc<str>, Vec<Stamp>>, entry: &Entry) {
    for pool in entry.pools.iter().collect::<BTreeSet<_>>() {
        of.entry(pool.clone()).or_default().push(entry.at);
    }
}

/// How long what was at `at` still is in a window of `span`; `None`: it is not. What is ahead by the wall clock may come
/// into it again: the clock was set back.
pub(super) fn left_of(at: Stamp, now: Stamp, span: Duration) -> Option<Duration> {
    let counted = span.checked_sub(now.counted.saturating_sub(at.counted)).filter(|left| !left.is_zero());
    let by_wall = match now.wall.checked_sub(at.wall) {
        Some(age) => span.checked_sub(age).filter(|left| !left.is_zero()),
        None => Some(at.wall - now.wall).filter(|ahead| *ahead < span).map(|ahead| ahead + span),
    };
    counted.max(by_wall)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);
    /// A time of day.
    const NOON: Duration = Duration::from_secs(1_800_000_000);

    /// By how many minutes the clocks move, the monotonic one and the wall clock.
    type Moves = &'static [(u32, i64)];

    fn web() -> Arc<str> {
        Arc::from("web")
    }

    /// One entry, and then both clocks move: monotonic and wall in minutes.
    fn after(moves: &[(u32, i64)]) -> Ledger {
        let mut ledger = Ledger::new(Duration::ZERO, NOON);
        ledger.enter(vec![web()]);
        let (mut monotonic, mut wall) = (Duration::ZERO, NOON);
        for (by_monotonic, by_wall) in moves {
            monotonic += MINUTE * *by_monotonic;
            let by = MINUTE * by_wall.unsigned_abs() as u32;
            wall = if *by_wall < 0 { wall - by } else { wall + by };
            ledger.advance(monotonic, wall);
        }
        ledger
    }

    #[test]
    fn a_window_rolls_and_no_jump_of_the_wall_clock_makes_room() {
        let rows: [(&str, Moves, Option<u32>); 9] = [
            ("at once", &[(0, 0)], Some(60)),
            ("a minute before", &[(59, 59)], Some(1)),
            ("an hour later", &[(60, 60)], Some(0)),
            ("set ahead", &[(1, 1), (0, 600)], Some(59)),
            ("set ahead, and an hour", &[(0, 600), (60, 60)], Some(0)),
            ("set back a little, and an hour", &[(1, -30), (60, 60)], Some(30)),
            ("set back by far", &[(0, -600), (30, 30)], Some(30)),
            ("set back by far, and an hour", &[(0, -600), (60, 60)], Some(0)),
            ("set back and ahead again", &[(10, -600), (10, 620)], Some(50)),
        ];
        for (what, moves, expected) in rows {
            let free_in = after(moves).free_in(Limit::Hour, "web", 1);
            assert_eq!(free_in, expected.map(|minutes| MINUTE * minutes), "{what}");
        }
        assert_eq!(after(&[]).free_in(Limit::Hour, "api", 1), Some(Duration::ZERO), "another pool's");
        assert_eq!(after(&[]).free_in(Limit::Global, "", 1), Some(HALF_A_DAY));
        assert_eq!(after(&[(600, 600)]).free_in(Limit::Hour, "web", 0), None, "never");
    }

    #[test]
    fn what_another_process_did_counts_and_what_is_lost_fills_everything() {
        let before = after(&[(10, 10)]);
        let again =
            |wall| Ledger::resumed(Duration::ZERO, wall, before.now(), before.entries().to_vec(), before.lost_at());
        let free_in = |ledger: &Ledger| ledger.free_in(Limit::Hour, "web", 1).unwrap();
        assert_eq!(free_in(&again(NOON + MINUTE * 30)), MINUTE * 30);
        assert_eq!(free_in(&again(NOON - MINUTE * 600)), MINUTE * 50, "set back meanwhile");
        let mut lost = Ledger::lost(Duration::ZERO, NOON);
        let limits = [(web(), Limits { per_hour: 9, per_day: 9 })];
        let full = lost.full(&limits, 9).unwrap();
        assert_eq!((full.limit, full.free_in, full.is_lost), (Limit::Day, Some(DAY), true));
        let spent =
            |ledger: &Ledger| [Limit::Hour, Limit::Day, Limit::Global].map(|limit| ledger.spent(limit, "web", 9));
        assert_eq!((spent(&lost), spent(&before)), ([9, 9, 9], [1, 1, 1]));
        let none = [(web(), Limits { per_hour: 0, per_day: 9 })];
        assert_eq!(lost.full(&none, 9).map(|full| full.is_lost), Some(false), "it would not be without either");
        lost.advance(HOUR * 13, NOON + HOUR * 13);
        assert_eq!(lost.free_in(Limit::Global, "", 9), Some(Duration::ZERO));
        assert_eq!(spent(&lost), [0, 9, 0]);
        lost.advance(DAY, NOON + DAY);
        assert_eq!((lost.full(&limits, 9), lost.lost_at()), (None, None));
    }

    #[test]
    fn what_is_written_down_is_stale_after_an_hour_and_when_a_clock_was_set() {
        let rows: [(&str, Moves, bool); 6] = [
            ("at once", &[(0, 0)], false),
            ("a while", &[(59, 59)], false),
            ("an hour", &[(60, 60)], true),
            ("set ahead", &[(0, 600)], true),
            ("set back", &[(1, -1)], true),
            ("set ahead and back", &[(1, 600), (1, -598)], true),
        ];
        for (what, moves, expected) in rows {
            let written = after(&[]).now();
            assert_eq!(after(moves).is_stale(written), expected, "{what}");
        }
        // Written down after the clock was set, it makes no room for the next process.
        let set = after(&[(1, 1), (0, 48 * 60)]);
        let again =
            Ledger::resumed(Duration::ZERO, NOON + MINUTE * (1 + 48 * 60), set.now(), set.entries().to_vec(), None);
        assert_eq!(again.free_in(Limit::Hour, "web", 1), Some(MINUTE * 59));
    }

    #[test]
    fn the_limit_that_lasts_longest_is_named() {
        let mut ledger = Ledger::new(Duration::ZERO, NOON);
        let limits = |per_hour, per_day| [(web(), Limits { per_hour, per_day })];
        assert_eq!(ledger.full(&limits(1, 3), 10), None);
        let entry = ledger.enter(vec![web()]);
        let named = |ledger: &Ledger, hour, day, global| ledger.full(&limits(hour, day), global).map(|full| full.limit);
        assert_eq!(named(&ledger, 1, 3, 10), Some(Limit::Hour));
        assert_eq!(named(&ledger, 1, 1, 1), Some(Limit::Day));
        assert_eq!(named(&ledger, 2, 2, 1), Some(Limit::Global));
        assert_eq!(named(&ledger, 2, 2, 0), Some(Limit::Global));
        ledger.strike(&entry);
        assert_eq!(named(&ledger, 1, 1, 1), None);
        ledger.enter(vec!["api".into()]);
        ledger.strike(&entry);
        assert_eq!(ledger.entries().len(), 1, "another one's is left");
    }
}
