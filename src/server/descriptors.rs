//! As many descriptors as the system lets us have: each connection takes one, and the usual soft limit is 1,024.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What nobody needs more of; some systems have no hard limit at all.
const PLENTY: u64 = 1 << 20;

/// Descriptors kept for probes, logs, the admin listener and whatever else is no client's.
const RESERVE: u64 = 64;

/// How many clients there is room for: each may need a connection to a member too.
pub fn room(limit: u64) -> usize {
    let left = if limit > 2 * RESERVE { limit - RESERVE } else { limit / 2 };
    usize::try_from(left / 2).unwrap_or(usize::MAX).max(1)
}

/// Room under which it is said at the start that there is little.
const LITTLE: usize = 1_000;

/// Whether `room` is so little that whoever wrote no limit is told of it.
pub fn is_little(room: usize) -> bool {
    room < LITTLE
}

/// Raises the soft limit to the hard one, and says what it is. That it cannot be raised is no reason not to serve.
pub fn raise_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let (now, possible) = (limit.current.unwrap_or(PLENTY), limit.maximum.unwrap_or(PLENTY).min(PLENTY));
    if now >= possible {
        return now;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: Some(possible), maximum: limit.maximum }) {
        Ok(()) => possible,
        Err(error) => {
            tracing::warn!(target: "server", now, possible, %error, "cannot raise the limit on descriptors");
            now
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_what_is_left_is_for_clients() {
        // Descriptors, room, and whether that is little.
        let rows = [(0, 1, true), (100, 25, true), (1_024, 480, true), (2_063, 999, true), (2_064, 1_000, false)];
        for (limit, clients, little) in rows {
            assert_eq!((room(limit), is_little(room(limit))), (clients, little), "{limit}");
        }
    }
}
