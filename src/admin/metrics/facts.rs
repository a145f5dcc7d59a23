//! What a page needs of a pool, copied under its lock: reports of probes wait meanwhile, and so that is all that is done.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use crate::control::Control;
use crate::health::{Mode, Phases, Picture, PoolHealth, Ramp, Standing, State, Verdict};
use crate::pool::{self, Headline, Pool, Shadow};
use crate::snapshot::Served;

/// A pool as it stood at one moment.
pub struct PoolFacts {
    /// The pool, for whatever is read without its lock.
    pub live: Arc<Pool>,
    /// It binds clients to members.
    pub is_sticky: bool,
    /// Mode and counts.
    pub headline: Headline,
    /// As a whole, by its aggregate.
    pub state: State,
    /// How many of the serving tier may be ejected, and how many are.
    pub ejectable: usize,
    pub ejected: usize,
    /// How it would be with the rules that are tried; `None`: none is.
    pub observed: Option<Observed>,
    /// Members whose source is in trouble.
    pub troubled: usize,
    /// Services and files that are in trouble.
    pub troubled_sources: usize,
    /// In the order of the configuration.
    pub members: Vec<MemberFacts>,
}

/// How a pool would have stood.
pub struct Observed {
    pub mode: Mode,
    pub state: State,
    pub in_rotation: usize,
    pub ejectable: usize,
    pub ejected: usize,
}

/// A member as it stood then.
pub struct MemberFacts {
    /// The member, for whatever is read without a lock.
    pub live: Arc<pool::Member>,
    /// What it is called in this pool, which no other is.
    name: Arc<str>,
    pub weight: u32,
    /// While it comes back.
    pub ramp: Option<Ramp>,
    pub tier: u8,
    pub verdict: Verdict,
    pub standing: Standing,
    /// The same as they would be.
    pub observed: Option<(Verdict, Standing)>,
    /// What its last probe took, and when it ended.
    pub probe: Option<(Phases, Duration)>,
}

impl PoolFacts {
    /// The pool at `now`.
    pub fn of(control: &Control, served: &Served, now: Duration) -> PoolFacts {
        let live = served.live.clone();
        live.advance(now);
        let located = control.located(&served.config.name);
        let troubled = located.iter().flat_map(|located| located.iter()).filter(|l| l.trouble.is_some()).count();
        let sources = control.desk().sources(&served.config);
        let troubled_sources = sources.iter().filter(|source| source.trouble.is_some()).count();
        let (headline, state, ejectable, ejected, observed, mut members) = live.read_both(|health, shadow, members| {
            let picture = health.picture();
            let members = members.iter().enumerate().map(|(index, live)| MemberFacts::of(health, shadow, live, index));
            let headline = Headline {
                mode: picture.mode,
                tier: picture.tier,
                in_rotation: picture.in_rotation,
                total: picture.total,
            };
            let observed = shadow.map(|shadow| Observed::of(shadow.health().picture()));
            (headline, picture.state, picture.ejectable, picture.ejected, observed, members.collect::<Vec<_>>())
        });
        tell_apart(&mut members);
        let is_sticky = served.config.sticky.is_some();
        PoolFacts {
            live,
            is_sticky,
            headline,
            state,
            ejectable,
            ejected,
            observed,
            troubled,
            troubled_sources,
            members,
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.live.name()
    }
}

impl Observed {
    fn of(picture: &Picture) -> Observed {
        let Picture { mode, state, in_rotation, ejectable, ejected, .. } = *picture;
        Observed { mode, state, in_rotation, ejectable, ejected }
    }
}

impl MemberFacts {
    fn of(health: &PoolHealth, shadow: Option<&Shadow>, live: &Arc<pool::Member>, index: usize) -> MemberFacts {
        let (member, shown) = (&health.members()[index], pool::shown(health, shadow, index));
        let would = |shadow: &Shadow| {
            let health = shadow.health();
            Some((health.members().get(index)?.verdict(), *health.picture().standings.get(index)?))
        };
        MemberFacts {
            live: live.clone(),
            name: live.label().clone(),
            weight: member.spec().weight,
            ramp: health.picture().ramp(index),
            tier: member.spec().tier,
            verdict: member.verdict(),
            standing: health.picture().standings[index],
            observed: shadow.and_then(would),
            probe: shown.last_sample().map(|(sample, at)| (sample.phases, at)),
        }
    }

    /// What it is called in this pool, which no other is.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Several names may lead to one address; two series of the same labels would be one of them too many.
fn tell_apart(members: &mut [MemberFacts]) {
    let mut seen = HashSet::with_capacity(members.len());
    for member in members {
        if !seen.insert(member.name.clone()) {
            member.name = format!("{} {}", member.name, member.live.key().name).into();
        }
    }
}

/// Every member with the name of its pool.
pub fn all(pools: &[PoolFacts]) -> impl Iterator<Item = (&str, &MemberFacts)> {
    pools.iter().flat_map(|pool| pool.members.iter().map(|member| (pool.name(), member)))
}
