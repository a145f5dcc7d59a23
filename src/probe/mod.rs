//! Asks members how they are: one request, one answer, one sample.
//!
//! A probe is a request of its own, on a connection of its own (or kept from the one before), on a runtime of its own: what traffic does, and how busy
//! it keeps the proxy, must not colour what is learnt. [`Check`] makes one probe, [`Prober`] makes them at the right
//! times, `schedule` says which times those are, and `ceiling` how many a second there may be.
//!
//! Not here: what samples add up to (`health`), who hears of it (`pool`); the two meet in [`Target::report`].

mod ceiling;
mod check;
mod counters;
mod fault;
mod gate;
mod grpc;
mod http;
mod mask;
mod needle;
mod places;
mod posts;
mod prober;
mod proof;
pub(crate) mod schedule;
mod script;
mod session;
mod shelf;
mod tape;
mod target;
mod task;
mod tcp;
mod way;

#[cfg(test)]
mod tests;

pub use ceiling::{Demand, Stretch};
pub use check::{Asked, Check, CheckError, Exchange, Recipe, Secured, Tracks};
pub use counters::Counters;
pub use prober::{Haste, Prober};
pub use session::Kept;
pub use shelf::Allowance;
pub use target::{Idle, Listed, Report, Taping, Target};
pub use tcp::try_source;
