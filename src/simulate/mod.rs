//! A scenario in virtual time: what the real pools, routes, schedules and retries do when members behave as it says.
//!
//! Nothing here decides: verdicts, standings and picks are those of [`Pool`](crate::pool::Pool), failover that of a route's
//! switch, the times of probes those of the prober's timetable, retries and what attempts say of members those of the proxy.
//! What is made up is the world around them: members that answer as the story says, requests at an even rate, and a clock
//! that goes from one thing to the next without waiting. So a day takes seconds, and the same seed gives the same history to
//! the byte.
//!
//! Not here: how a scenario is read (`config::scenario`), who asks for it (`cli`). Not simulated: the network, bodies, queues,
//! limits on connections, and probes that several pools share.

mod agenda;
mod chronicle;
mod origin;
mod picture;
mod requests;
mod stand;
mod told;
mod totals;
mod world;

use std::time::Duration;

pub use chronicle::{Entry, Track};
pub use picture::picture;
pub use told::{in_days, json, text};
pub use totals::Totals;

use crate::config::scenario::{Policy, Scenario};
use crate::health::{Mode, Standing};

/// What came of one policy.
#[derive(Debug, Clone)]
pub struct Run {
    /// The policy's name.
    pub policy: String,
    /// What was told, oldest first.
    pub timeline: Vec<Entry>,
    /// By name.
    pub pools: Vec<PoolRun>,
}

/// What came of one pool.
#[derive(Debug, Clone)]
pub struct PoolRun {
    /// Its name.
    pub name: String,
    /// How it served.
    pub modes: Track<Mode>,
    /// In the order of the scenario.
    pub members: Vec<MemberRun>,
    /// In numbers.
    pub totals: Totals,
    /// The same for requests over time: each for an equal part of it.
    pub bins: Vec<Bin>,
}

/// What came of one member.
#[derive(Debug, Clone)]
pub struct MemberRun {
    /// As the event log calls it.
    pub label: String,
    /// How it stood; `None` while it was no member.
    pub standings: Track<Option<Standing>>,
    /// Whether it was ill by the story, whoever knew.
    pub ills: Track<Truth>,
}

/// How a member really was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Truth {
    /// Its probe would have passed, but for latency gates.
    Well,
    /// It would not.
    Ill,
}

/// Requests in a part of the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bin {
    /// Attempts on members that were ill.
    pub to_ill: u32,
    /// Requests that failed.
    pub failed: u32,
}

/// Parts that time is cut in for [`Bin`].
pub const BINS: usize = 240;

/// Plays `scenario` with each of its policies.
pub fn run(scenario: &Scenario) -> Vec<Run> {
    scenario.policies.iter().map(|policy| play(scenario, policy)).collect()
}

fn play(scenario: &Scenario, policy: &Policy) -> Run {
    // Pools ask the thread's generator, and nobody else does on this thread meanwhile.
    fastrand::seed(scenario.seed);
    let mut world = world::World::new(scenario, policy);
    world.go_on();
    world.end()
}

/// The `nth` part of `time`, of [`BINS`].
fn bin_of(at: Duration, time: Duration) -> usize {
    let bin = at.as_micros() * BINS as u128 / time.as_micros().max(1);
    (bin as usize).min(BINS - 1)
}
