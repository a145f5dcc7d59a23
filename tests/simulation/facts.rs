//! Everything that can be observed of a pool, once as the heart tells it and once as the model does.

use crate::model::Model;
use pulsegate::health::{Admin, Change, Member, MemberId, Mode, Outcome, Pace, PoolHealth, Reason, Standing, Verdict};
use std::collections::BTreeMap;
use std::time::Duration;

/// A pool as observed.
#[derive(Debug, Clone, PartialEq)]
pub struct Facts {
    pub mode: Mode,
    pub tier: Option<u8>,
    pub ejectable: usize,
    pub ejected: usize,
    pub in_rotation: usize,
    pub total: usize,
    pub next_deadline: Option<Duration>,
    pub members: Vec<MemberFacts>,
}

/// A member as observed.
#[derive(Debug, Clone, PartialEq)]
pub struct MemberFacts {
    pub name: String,
    pub id: MemberId,
    pub admin: Admin,
    pub verdict: Verdict,
    pub proven: bool,
    pub unverified: bool,
    pub standing: Standing,
    /// Passes, shown, size, required.
    pub window: (u32, u32, u32, Option<u32>),
    pub streak: i64,
    pub latency: Option<Duration>,
    pub since: Duration,
    pub cause: Option<Reason>,
    pub last: Option<(Outcome, Duration)>,
    pub pace: Pace,
    pub leaves_at: Option<Duration>,
    /// Until when traffic has put it out.
    pub banned_until: Option<Duration>,
    /// In tenths.
    pub ramp: Option<u32>,
}

/// As the heart tells it.
pub fn told(heart: &PoolHealth) -> Facts {
    let picture = heart.picture();
    let member = |(at, (m, standing)): (usize, (&Member, &Standing))| MemberFacts {
        name: m.spec().key.name.clone(),
        id: m.id(),
        admin: m.admin(),
        verdict: m.verdict(),
        proven: m.proven(),
        unverified: m.unverified(),
        standing: *standing,
        window: (m.window().passes, m.window().shown, m.window().size, m.window().required),
        streak: m.streak(),
        latency: m.latency(),
        since: m.since(),
        cause: m.cause(),
        last: m.last_sample().map(|(sample, at)| (sample.outcome, at)),
        pace: m.pace(),
        leaves_at: picture.leaves_at(at),
        banned_until: m.ban().map(|ban| ban.until),
        ramp: picture.ramp(at).map(|ramp| ramp.tenths()),
    };
    Facts {
        mode: picture.mode,
        tier: picture.tier,
        ejectable: picture.ejectable,
        ejected: picture.ejected,
        in_rotation: picture.in_rotation,
        total: picture.total,
        next_deadline: heart.next_deadline(),
        members: heart.members().iter().zip(&picture.standings).enumerate().map(member).collect(),
    }
}

/// As the model reckons it; `ids` are the heart's names for the model's identities.
pub fn reckoned(model: &Model, ids: &[MemberId]) -> Facts {
    let stand = &model.stand;
    let fits = model.fits();
    let lives = model.lives.iter().zip(&fits).zip(&stand.standings).zip(&model.ramps);
    let members = lives.map(|(((life, fit), standing), ramp)| MemberFacts {
        name: life.spec.key.name.clone(),
        id: ids[life.id],
        admin: life.admin,
        verdict: fit.verdict,
        proven: fit.proven,
        unverified: fit.unverified,
        standing: *standing,
        window: fit.window(),
        streak: fit.streak,
        latency: fit.latency(),
        since: fit.since,
        cause: fit.cause,
        last: fit.last,
        pace: fit.pace,
        leaves_at: model.leaves_at(life, fit),
        banned_until: life.banned.until(),
        ramp: *ramp,
    });
    Facts {
        mode: stand.mode,
        tier: stand.tier,
        ejectable: stand.ejectable,
        ejected: stand.ejected,
        in_rotation: stand.in_rotation,
        total: stand.total,
        next_deadline: model.next_deadline(),
        members: members.collect(),
    }
}

/// What must have been announced, once each, between two observations, in a fixed order. `seen` is how everybody stood when
/// last observed, those included who have left: who returns is compared with that. Those who had `returned` were healthy for
/// the moment before whatever else happened.
pub fn news(
    before: &Facts,
    seen: &BTreeMap<MemberId, MemberFacts>,
    after: &Facts,
    returned: &[MemberId],
) -> Vec<String> {
    let mut news = vec![];
    for member in returned.iter().copied().filter(|id| !after.members.iter().any(|m| m.id == *id)) {
        news.push(Change::Verdict { member, from: Verdict::Unhealthy, to: Verdict::Healthy });
    }
    for m in &after.members {
        let Some(was) = seen.get(&m.id) else { continue };
        let (member, stayed) = (m.id, before.members.iter().any(|w| w.id == m.id));
        if returned.contains(&member) && m.verdict != Verdict::Healthy {
            news.push(Change::Verdict { member, from: was.verdict, to: Verdict::Healthy });
            news.push(Change::Verdict { member, from: Verdict::Healthy, to: m.verdict });
        } else if was.verdict != m.verdict {
            news.push(Change::Verdict { member, from: was.verdict, to: m.verdict });
        } else if stayed
            && matches!(
                (was.standing, m.standing),
                (Standing::Kept, Standing::Ejected) | (Standing::Ejected, Standing::Kept)
            )
        {
            news.push(Change::Place { member, from: was.standing, to: m.standing });
        }
        if was.admin != m.admin {
            news.push(Change::Admin { member, from: was.admin, to: m.admin });
        }
    }
    if (before.mode == Mode::Fallback) != (after.mode == Mode::Fallback) {
        news.push(Change::Fallback { entered: after.mode == Mode::Fallback });
    }
    if before.tier != after.tier {
        news.push(Change::Tier { from: before.tier, to: after.tier });
    }
    if before.mode != after.mode {
        news.push(Change::Mode { from: before.mode, to: after.mode });
    }
    in_order(&news)
}

/// Where a kind of announcement stands within one step: first the members', then what follows from them.
pub fn rank(change: &Change) -> usize {
    match change {
        Change::Verdict { .. } | Change::Admin { .. } => 1,
        Change::Place { .. } => 2,
        Change::Fallback { .. } => 3,
        Change::Tier { .. } => 4,
        Change::Mode { .. } => 5,
    }
}

/// Announcements as text, sorted, so that the members' own order means nothing.
pub fn in_order(changes: &[Change]) -> Vec<String> {
    let mut lines: Vec<String> = changes.iter().map(|change| format!("{change:?}")).collect();
    lines.sort();
    lines
}

/// The kinds of what was announced, without whom it was about.
pub fn kinds(news: &[String]) -> Vec<String> {
    news.iter().map(|line| line.split(' ').next().unwrap_or_default().to_owned()).collect()
}

/// What there is to see of a pool, as words.
pub fn words(facts: &Facts) -> Vec<String> {
    let mut words = vec![format!("{:?}", facts.mode), format!("tier {:?}", facts.tier)];
    for m in &facts.members {
        words.push(format!("stands {:?}", m.standing));
        words.push(format!("{:?} {:?} pace", m.verdict, m.pace));
        words.extend(m.cause.map(|reason| format!("by {:?}", reason.class())));
        words.extend(m.leaves_at.map(|_| "serves its own".to_owned()));
        words.extend(m.banned_until.map(|_| "by traffic".to_owned()));
        words.extend(m.ramp.map(|tenths| if tenths == 1 { "begins to ramp" } else { "ramps" }.to_owned()));
        words.extend(m.unverified.then(|| "unverified".to_owned()));
        words.extend((m.verdict == Verdict::Unhealthy && !m.proven).then(|| "never healthy".to_owned()));
    }
    let stands = |s: Standing| facts.members.iter().any(|m| m.standing == s);
    words.extend((stands(Standing::Kept) && stands(Standing::Ejected)).then(|| "the cap bites".to_owned()));
    let healthy = facts.members.iter().any(|m| m.standing == Standing::Standby && m.verdict == Verdict::Healthy);
    words.extend((facts.mode == Mode::Waiting && healthy).then(|| "waits for a better tier".to_owned()));
    words
}

/// What a good set of histories has seen: words of [`words`] and [`kinds`].
pub const WORDS: [&str; 40] = [
    "Down",
    "Waiting",
    "Fallback",
    "Failover",
    "Capped",
    "Normal",
    "tier None",
    "tier Some(0)",
    "tier Some(1)",
    "tier Some(2)",
    "stands Healthy",
    "stands Kept",
    "stands Ejected",
    "stands Unknown",
    "stands Fallback",
    "stands Standby",
    "stands Draining",
    "stands Disabled",
    "Unknown Steady pace",
    "Unknown Fast pace",
    "Healthy Steady pace",
    "Healthy Fast pace",
    "Unhealthy Steady pace",
    "Unhealthy Fast pace",
    "by Unreachable",
    "by Wrong",
    "by Slow",
    "serves its own",
    "by traffic",
    "begins to ramp",
    "ramps",
    "unverified",
    "never healthy",
    "the cap bites",
    "waits for a better tier",
    "Verdict",
    "Admin",
    "Place",
    "Tier",
    "Mode",
];

/// Where two observations differ, one line each: what the heart says, what the model says.
pub fn differences(heart: &Facts, model: &Facts) -> Vec<String> {
    let mut lines = vec![];
    let mut compare = |what: &str, heart: String, model: String| {
        for (h, m) in heart.lines().zip(model.lines()).filter(|(h, m)| h != m) {
            lines.push(format!("{what}: heart {} / model {}", h.trim(), m.trim()));
        }
    };
    let alone = |f: &Facts| format!("{:#?}", Facts { members: vec![], ..f.clone() });
    compare("pool", alone(heart), alone(model));
    for (h, m) in heart.members.iter().zip(&model.members) {
        // `window`, `latency` and the like are told on one line each, so that no line stands without its name.
        compare(&h.name, one_a_line(h), one_a_line(m));
    }
    if lines.is_empty() && heart != model {
        lines.push(format!("heart {heart:?} / model {model:?}"));
    }
    lines
}

fn one_a_line(m: &MemberFacts) -> String {
    let MemberFacts {
        id,
        admin,
        verdict,
        proven,
        unverified,
        standing,
        window,
        streak,
        latency,
        since,
        cause,
        leaves_at,
        ramp,
        ..
    } = m;
    format!(
        "id {id:?}\nadmin {admin:?}\nverdict {verdict:?}\nproven {proven}\nunverified {unverified}\nstanding {standing:?}\n\
         banned until {:?}\nwindow {window:?}\nstreak {streak}\nlatency {latency:?}\nsince {since:?}\ncause {cause:?}\nleaves at {leaves_at:?}\nramp {ramp:?}\nlast {:?}\npace {:?}",
        m.banned_until, m.last, m.pace
    )
}
