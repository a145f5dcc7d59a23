//! What an experiment found: a table to read, and a failure where a number is not what it must be.

use std::fmt::Display;
use std::ops::Range;
use std::time::{Duration, Instant};

use crate::load::Tally;

/// How much of an experiment is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// A few seconds, and only what does not depend on how fast the machine is.
    Short,
    /// All of it.
    Full,
}

impl Scale {
    /// As the environment has it: `PULSEGATE_EXPERIMENTS=full`, which scripts/experiments sets.
    pub fn wanted() -> Scale {
        match std::env::var("PULSEGATE_EXPERIMENTS").as_deref() {
            Ok("full") => Scale::Full,
            _ => Scale::Short,
        }
    }

    /// One of two values.
    pub fn of<T>(self, short: T, full: T) -> T {
        match self {
            Scale::Short => short,
            Scale::Full => full,
        }
    }

    /// Whether all of it is done.
    pub fn is_full(self) -> bool {
        self == Scale::Full
    }
}

/// The rows of one experiment's table.
#[derive(Debug)]
pub struct Figures {
    title: &'static str,
    scale: Scale,
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    what: String,
    value: String,
    wanted: String,
    holds: bool,
}

impl Figures {
    /// An empty table.
    pub fn new(title: &'static str, scale: Scale) -> Figures {
        Figures { title, scale, rows: Vec::new() }
    }

    /// A number that is told, and may be what it is.
    pub fn told(&mut self, what: &str, value: impl Display) {
        self.row(what, value, "", true);
    }

    /// A count that holds on any machine.
    pub fn must(&mut self, what: &str, value: impl Display, wanted: &str, holds: bool) {
        self.row(what, value, wanted, holds);
    }

    /// Two counts that must agree.
    pub fn same(&mut self, what: &str, one: usize, other: usize) {
        self.row(what, format!("{one}, {other}"), "the same", one == other);
    }

    /// A count that must be zero.
    pub fn none(&mut self, what: &str, count: usize) {
        self.row(what, count, "0", count == 0);
    }

    /// A time or a size, which is judged in full form alone: a machine that does other things meanwhile is no fault.
    pub fn judged(&mut self, what: &str, value: impl Display, wanted: &str, holds: bool) {
        let judged = self.scale.is_full();
        let wanted = if judged { wanted.to_owned() } else { format!("{wanted} (not judged)") };
        self.row(what, value, &wanted, holds || !judged);
    }

    /// What the slowest hundredth takes at least: while it is `quiet`, and `since` the fault. By as many times as requests that go
    /// past the proxy take longer then, it is the machine, which has the load, the members and what makes the fault to run as
    /// well.
    pub fn slowest(&mut self, when: &str, load: &Tally, past: &Tally, [quiet, since]: [Range<Instant>; 2]) {
        let p99 = |tally: &Tally| (tally.percentile(99, &quiet), tally.percentile(99, &since));
        let ((quiet, then), (past_quiet, past_then)) = (p99(load), p99(past));
        let slower = (past_then.as_secs_f64() / past_quiet.as_secs_f64().max(f64::EPSILON)).max(1.0);
        let found = format!("{}, {}; past the proxy {}, {}", ms(quiet), ms(then), ms(past_quiet), ms(past_then));
        self.judged(
            &format!("p99 {when}"),
            found,
            &format!("≤ 2 × {slower:.1} ×"),
            then <= quiet.mul_f64(2.0 * slower),
        );
    }

    fn row(&mut self, what: &str, value: impl Display, wanted: &str, holds: bool) {
        let row = Row { what: what.to_owned(), value: value.to_string(), wanted: wanted.to_owned(), holds };
        self.rows.push(row);
    }

    /// Prints the table, as Markdown.
    ///
    /// # Panics
    /// A number is not what it must be.
    #[track_caller]
    pub fn finish(self) {
        println!("\n### {}\n| figure | found | must be | |\n|---|---|---|---|", self.title);
        for Row { what, value, wanted, holds } in &self.rows {
            let verdict = if *holds { "" } else { "**no**" };
            println!("| {what} | {value} | {wanted} | {verdict} |");
        }
        let broken: Vec<&Row> = self.rows.iter().filter(|row| !row.holds).collect();
        assert!(broken.is_empty(), "{}: {broken:#?}", self.title);
    }
}

/// Milliseconds with two decimals, as tables have them.
pub fn ms(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1_000.0)
}
