//! Keys of a pool that a scenario does not play: nobody is to take its numbers for theirs.
//!
//! Said where a key is first written: in the scenario, or in the policy that adds it.

use crate::config::domain::{Config, Pool};
use crate::config::places::At;
use crate::config::problem::Problems;

/// Names them in the pools of `config`; what stands in `base` already was named there.
pub(super) fn name(config: &Config, base: Option<&Config>, at: At<'_>, problems: &mut Problems) {
    for (name, pool) in &config.pools {
        let before = base.and_then(|base| base.pools.get(name));
        let is_new = |is_there: fn(&Pool) -> bool| is_there(pool) && !before.is_some_and(|pool| is_there(pool));
        let at = at.key("pools").key(name);
        if is_new(|pool| pool.sticky.is_some()) {
            let message = "in a scenario no client keeps a cookie, so nobody is bound; remove `sticky`";
            problems.error_at(at.key("sticky").name(), message);
        }
        if is_new(|pool| pool.queue.is_some()) {
            let message = "`queue` is not played: in a scenario a request that finds everyone full fails at once";
            problems.warn(at.key("queue"), message);
        }
        if is_new(|pool| pool.remediation.is_some() || pool.observed_remediation.is_some()) {
            let message = "`remediation` is not played: in a scenario nobody is replaced; have the story say \
                           `does: recover` where somebody would be";
            problems.warn(at.key("remediation"), message);
        }
    }
}
