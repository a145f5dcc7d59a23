//! What members and pools take on at once, and where requests wait for room.

use std::time::Duration;

use super::domain::{Capacity, Queue};
use super::file::QueueKeys;
use super::reading::{DAY, Reading, TICK};
use super::spelling::Written;

/// More than one process can serve; whoever wants no limit writes none.
const MOST: u32 = 10_000_000;

/// A waiting request costs a few kilobytes and a client's connection.
const LONGEST_QUEUE: usize = 1_000_000;

/// Where none is written: longer than a hiccup, shorter than a client's patience.
const WAIT: Duration = Duration::from_secs(5);

/// The limits written in the mapping that `read` stands on.
pub(super) fn capacity(in_flight: &Written<u64>, connections: &Written<u64>, read: &mut Reading<'_>) -> Capacity {
    Capacity {
        max_in_flight: read.count("max_in_flight", in_flight, 1..=MOST),
        max_connections: read.count("max_connections", connections, 1..=MOST),
    }
}

/// The queue, if it has a size.
pub(super) fn queue(keys: &QueueKeys, mut read: Reading<'_>) -> Option<Queue> {
    let timeout = read.span("timeout", &keys.timeout, TICK..=DAY).unwrap_or(WAIT);
    if keys.size.is_none() {
        read.missing("size", "a queue needs a size, such as `{ size: 100, timeout: 5s }`");
    }
    let size = read.count("size", &keys.size, 1..=LONGEST_QUEUE)?;
    Some(Queue { size, timeout })
}
