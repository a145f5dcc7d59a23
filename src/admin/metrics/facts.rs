//! What a page needs of a pool, copied under its lock: reports of probes wait meanwhile, and so that is all that is done.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use crate::control::Control;
use crate::health::{self, Phases, Standing, State, Verdict};
use crate::pool::{self, Headline, Pool};
use crate::snapshot::Served;

/// A pool as it stood at one moment.
pub struct PoolFacts {
    /// The pool, for whatever is read without its lock.
    pub live: Arc<Pool>,
    /// Mode and counts.
    pub headline: Headline,
    /// As a whole, by its aggregate.
    pub state: State,
    /// How many of the serving tier may be ejected, and how many are.
    pub ejectable: usize,
    pub ejected: usize,
    /// Members whose source is in trouble.
    pub troubled: usize,
    /// Services and files that are in trouble.
    pub troubled_sources: usize,
    /// In the order of the configuration.
    pub members: Vec<MemberFacts>,
}

/// A member as it stood then.
pub struct MemberFacts {
    /// The member, for whatever is read without a lock.
    pub live: Arc<pool::Member>,
    /// What it is called in this pool, which no other is.
    name: Arc<str>,
    pub weight: u32,
    pub tier: u8,
    pub verdict: Verdict,
    pub standing: Standing,
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
        let (headline, state, ejectable, ejected, mut members) = live.read(|health, members| {
            let picture = health.picture();
            let both = health.members().iter().zip(members).zip(&picture.standings);
            let members = both.map(|((member, live), standing)| MemberFacts::of(member, live, *standing));
            let headline = Headline {
                mode: picture.mode,
                tier: picture.tier,
                in_rotation: picture.in_rotation,
                total: picture.total,
            };
            (headline, picture.state, picture.ejectable, picture.ejected, members.collect::<Vec<_>>())
        });
        tell_apart(&mut members);
        PoolFacts { live, headline, state, ejectable, ejected, troubled, troubled_sources, members }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.live.name()
    }
}

impl MemberFacts {
    fn of(member: &health::Member, live: &Arc<pool::Member>, standing: Standing) -> MemberFacts {
        MemberFacts {
            live: live.clone(),
            name: live.label().clone(),
            weight: member.spec().weight,
            tier: member.spec().tier,
            verdict: member.verdict(),
            standing,
            probe: member.last_sample().map(|(sample, at)| (sample.phases, at)),
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
