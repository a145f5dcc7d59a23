//! Metrics: what they are called, what is counted for them on the way of requests, and the page that Prometheus reads.
//!
//! They are pulled: nothing is registered, and a scrape walks who is there at that moment. So the series of a pool, a
//! member or a route that has gone go with it, and nobody has to take them out. Whatever is counted belongs to whom it
//! is about, and lives as long: a member's counts in the pool's member, a listener's here.
//!
//! Not here: who walks (`admin`), the counts of pools and members (`pool`).

mod codes;
mod listeners;
mod names;
mod page;
mod rare;
mod times;

pub use codes::{Code, Codes};
pub use listeners::{ListenerCounts, RouteCounts, listeners};
pub use names::*;
pub use page::{CONTENT_TYPE, Page, Series};
pub use rare::Rare;
pub use times::{DIAL_BUCKETS, LATENESS_BUCKETS, REQUEST_BUCKETS, Times};
