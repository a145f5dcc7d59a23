//! As many descriptors as the system lets us have: each connection takes one, and the usual soft limit is 1,024.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What nobody needs more of; some systems have no hard limit at all.
const PLENTY: u64 = 1 << 20;

/// Descriptors kept for probes, logs, the admin listener and whatever else is no client's.
const RESERVE: u64 = 64;

/// A client's own, one of its connection to a member, and one by which it is watched while it uploads, or a member is dialled
/// for it.
const OF_A_CLIENT: u64 = 3;

/// How many clients there is room for while probes have so many. Half of what is kept for others is for probes; those beyond
/// it are the clients'.
pub fn room(limit: u64, probes: usize) -> usize {
    let reserve = RESERVE.min(limit / 2);
    let left = (limit - reserve).saturating_sub((probes as u64).saturating_sub(reserve / 2));
    count(left / OF_A_CLIENT)
}

/// How many probes may be in flight at once: silent members must not have all descriptors.
pub fn probes_in_flight(limit: u64) -> usize {
    count(limit / 8)
}

/// How many connections probes may keep.
pub fn kept_by_probes(limit: u64) -> usize {
    count(limit / 4)
}

/// The limit under which there is room for so many.
pub fn limit_for_kept(connections: usize) -> u64 {
    (connections as u64).saturating_mul(4)
}

fn count(share: u64) -> usize {
    usize::try_from(share).unwrap_or(usize::MAX).max(1)
}

/// The limit that a start here would have.
pub fn possible() -> u64 {
    getrlimit(Resource::Nofile).maximum.unwrap_or(PLENTY).min(PLENTY)
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
    fn what_is_left_is_for_clients() {
        // Descriptors, room, and whether that is little.
        let rows = [(0, 1, true), (100, 16, true), (1_024, 320, true), (3_063, 999, true), (3_064, 1_000, false)];
        for (limit, clients, little) in rows {
            assert_eq!((room(limit, 0), is_little(room(limit, 0))), (clients, little), "{limit}");
        }
    }

    #[test]
    fn with_what_probes_have_some_are_left_for_logs_and_operators() {
        for limit in [16, 64, 100, 129, 300, 1_024, 65_536, PLENTY] {
            let probes = probes_in_flight(limit) + kept_by_probes(limit);
            for probes in 0..=probes.min(100_000) {
                let taken = OF_A_CLIENT as usize * room(limit, probes) + probes;
                let left = RESERVE.min(limit / 2) / 2;
                assert!(taken as u64 + left <= limit, "{limit}, {probes}: {taken} taken");
            }
        }
        // The usual probes take nothing from clients; those that are kept do.
        assert_eq!([room(1_024, 32), room(1_024, 34), room(1_024, 256 + 128)], [320, 319, 202]);
    }
}
