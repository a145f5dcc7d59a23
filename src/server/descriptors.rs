//! As many descriptors as the system lets us have: each connection takes one, and the usual soft limit is 1,024.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What nobody needs more of; some systems have no hard limit at all.
const PLENTY: u64 = 1 << 20;

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
