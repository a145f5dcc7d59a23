//! The sentences: why this route, this pool, this member, and why not each other one. Facts first, each once.

use std::time::Duration;

use super::facts::{self, Facts, Known, Would, room};
use crate::admin::views::time_of;
use crate::balance::{Memory, Policy};
use crate::clock;
use crate::config::Listener;
use crate::control::Few;
use crate::health::failover::Ability;
use crate::health::{Admin, Ban, Mode, Outcome, Picture, Ramp, Sample, Standing, Verdict, Window};
use crate::pool::{Choice, Foreseen, Member};
use crate::proxy::{Claim, End, Fate, Led};
use crate::route::{Host, Route, normal};
use crate::snapshot::Snapshot;
use crate::telemetry::Why;

/// What a member can expect of this request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chance {
    /// It is the one.
    Picked,
    /// It may be: a draw says.
    Possible,
    /// It may be picked, and another one is.
    NotNow,
    /// It may not be picked.
    Out,
}

impl Chance {
    /// The word in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Chance::Picked => "picked",
            Chance::Possible => "possible",
            Chance::NotNow => "not_now",
            Chance::Out => "out",
        }
    }
}

/// Why this one of `routes`.
pub fn route(route: &Route, routes: &[Route], host: &str) -> String {
    let Route { path, .. } = route;
    let longest = format!("{path} is the longest of its paths that fit");
    let host = normal(host);
    let closer = |other: &&Route| other.host.rank() > route.host.rank() && other.host.takes(&host);
    let passed_over: Vec<String> = routes.iter().filter(closer).map(|route| route.name.to_string()).collect();
    let none_closer = match (passed_over.as_slice(), &route.host) {
        ([], Host::Any) => format!("no route names {host:?}"),
        ([], _) => format!("no route is closer to {host:?}"),
        ([one], _) => format!("the path of {one} does not fit"),
        (several, _) => format!("the paths of {} do not fit", Few::of(several.iter())),
    };
    match &route.host {
        Host::Exact(_) => format!("the host is its own, and {longest}"),
        Host::Wildcard(suffix) => format!("{host:?} ends in .{suffix}, {none_closer}, and {longest}"),
        Host::Any => format!("it is for every host, {none_closer}, and {longest}"),
    }
}

/// Why this one of a route's pools serves or does not.
pub fn ranked(rank: usize, serving: usize, ability: Ability, because: &str, failback: Option<Duration>) -> String {
    match (rank.cmp(&serving), ability, failback) {
        (std::cmp::Ordering::Equal, Ability::Able, _) => format!("serves: {because}"),
        (std::cmp::Ordering::Equal, ..) => format!("serves, for want of a better one: {because}"),
        (std::cmp::Ordering::Greater, ..) => format!("stands by: {because}"),
        (_, Ability::Unable, _) => format!("cannot serve: {because}"),
        (_, Ability::Unknown, _) => format!("may not serve yet, nothing is known: {because}"),
        (_, Ability::Able, Some(at)) => {
            format!("can serve again, and gets the route back at {} if that lasts: {because}", moment(at))
        }
        (_, Ability::Able, None) => {
            format!("can serve again, and the route stays where it is while that pool can: {because}")
        }
    }
}

/// How the pool serves and shares.
pub fn pool(led: &Led) -> String {
    let Picture { mode, tier, in_rotation, total, .. } = led.outlook.roster.picture();
    let serves = match (mode, tier) {
        (Mode::Down, _) => return "down: nobody may serve".to_owned(),
        (Mode::Waiting, _) => return "waiting: nobody has passed a probe yet".to_owned(),
        (Mode::Fallback, _) => {
            return format!(
                "fallback: nobody is healthy, and {in_rotation} of {total} take turns, whatever their health"
            );
        }
        (mode, Some(tier)) => format!("{}: {in_rotation} of {total} in rotation, of tier {tier}", mode.as_str()),
        (mode, None) => format!("{}: {in_rotation} of {total} in rotation", mode.as_str()),
    };
    let shares = match (&led.served.config.balance, &led.key) {
        (Policy::RoundRobin, _) => "they take turns".to_owned(),
        (Policy::Random, _) => "a draw says who".to_owned(),
        (Policy::LeastRequests { choices }, _) => format!("the least loaded of all, or of {choices} in a large pool"),
        (Policy::Fastest { sensitivity }, _) => {
            format!("those within {} of the fastest take turns", duration(*sensitivity))
        }
        (Policy::PeakEwma(Memory { sensitivity, .. }), _) => format!(
            "they take turns, and whoever has been more than {} slower than the fastest of late passes most of them on",
            duration(*sensitivity)
        ),
        (Policy::ConsistentHash { .. }, Some(_)) => "its hash key says who".to_owned(),
        (Policy::ConsistentHash { .. }, None) => "it has no hash key, so a draw says who".to_owned(),
    };
    format!("{serves}; {shares}")
}

/// What becomes of the request's cookie.
pub fn sticky(led: &Led) -> String {
    let ttl = led.served.config.sticky.as_ref().map_or(Duration::ZERO, |sticky| sticky.ttl);
    let named = facts::named(led).map_or("", |index| led.outlook.roster.members()[index].label());
    let then = "the answer sets one for whoever gives it";
    match (led.claim, facts::bond(led)) {
        (Claim::None, _) => format!("it has no such cookie; {then}"),
        (Claim::Invalid, _) => {
            format!("the cookie is none of ours: changed, of another pool, or signed with another secret; {then}")
        }
        (Claim::Expired, _) => format!("the cookie is older than {} s (`ttl`); {then}", ttl.as_secs()),
        (Claim::Removed, _) => format!("the member that the cookie names is no longer in the pool; {then}"),
        (Claim::Bound { .. }, facts::BOUND) => format!("the cookie leads to {named}"),
        (Claim::Bound { .. }, facts::FULL) => {
            format!("the cookie leads to {named}, which has no room; it stays as it is")
        }
        (Claim::Bound { .. }, _) => format!("the cookie names {named}, which may not serve; {then}"),
    }
}

/// Why the proxy answers itself.
pub fn answer(fate: &Fate, snapshot: &Snapshot, listener: &Listener) -> String {
    let (limits, name) = (&listener.limits, &listener.name);
    let (bytes, fields) = fate.size;
    let why = match &fate.end {
        End::Composite(composite) => return format!("listener {name} publishes composite {composite} there"),
        End::LastHop => return "Max-Forwards is 0, so this proxy is the last to see it".to_owned(),
        End::Refused { flaw: Some(flaw), .. } => return format!("the request is malformed: {flaw}"),
        End::Refused { why, .. } => *why,
        End::Member | End::WaitsForVerdict | End::WaitsForRoom => return String::new(),
    };
    match why {
        Why::NoRoute => {
            let Fate { host, path, .. } = fate;
            let count = snapshot.config.routes.len();
            format!("no route fits host {host:?} and path {path:?}; there are {count} (`routes`)")
        }
        Why::UriTooLong => format!("its target is longer than listener {name} takes: {} bytes", limits.max_uri_bytes),
        Why::HeaderTooLarge => format!(
            "its header has {bytes} bytes and {fields} fields; listener {name} takes {} and {}",
            limits.max_header_bytes, limits.max_header_fields
        ),
        Why::Denied => "its method is not taken there".to_owned(),
        Why::AllUnhealthy => "nobody is healthy, and the pool fails then (`on_all_unhealthy: fail`)".to_owned(),
        Why::NoMember => "the pool has no enabled member with an address".to_owned(),
        Why::Overloaded => fate.led.as_ref().map_or_else(String::new, overloaded),
        _ => "a fault of the proxy's own".to_owned(),
    }
}

/// Why it waits.
pub fn wait(led: &Led, end: &End) -> String {
    match end {
        End::WaitsForVerdict => "nobody has passed a probe yet, and the first verdict is waited for".to_owned(),
        _ => {
            let queue = led.served.live.queue();
            format!("there is no room, and {} of {} places in the queue are taken", queue.length(), queue.size())
        }
    }
}

/// Why this member would get it or not.
pub fn member(led: &Led, facts: &Facts, index: usize, chance: Chance) -> String {
    let roster = &led.outlook.roster;
    let (live, standing) = (&roster.members()[index], roster.standing(index));
    let Some(known) = facts.of(live.id()) else { return "it has just left the pool".to_owned() };
    let why = match chance {
        Chance::Out => return with_would(out(led, known, live, standing), facts, live),
        Chance::Picked => picked(led, live),
        Chance::Possible => match led.served.config.balance {
            Policy::PeakEwma(_) => format!("it is drawn, or another one is: {}", of_late(live)),
            _ => "it is drawn, or another one is".to_owned(),
        },
        Chance::NotNow => not_now(led, index),
    };
    let why = match (standing, roster.picture().ramp(index)) {
        (Standing::Kept, _) => format!("{why}; kept: {}; {}", evidence(known), cap(roster.picture())),
        (Standing::Fallback, _) => format!("{why}; {}", evidence(known)),
        (_, Some(ramp)) => format!("{why}; {}", slow_start(known, ramp)),
        _ => why,
    };
    with_would(why, facts, live)
}

fn with_would(why: String, facts: &Facts, live: &Member) -> String {
    would(facts, live).map_or_else(|| why.clone(), |would| format!("{why}; {would}"))
}

/// How it would stand with the rules that are tried; `None`: as it does, or none is tried.
fn would(facts: &Facts, live: &Member) -> Option<String> {
    let Would { rules, standing, known, cap: (ejectable, ejected) } = &**facts.of(live.id())?.would.as_ref()?;
    let why = match standing {
        Standing::Ejected => format!(", {}; cap {ejectable}, out {ejected}", evidence(known)),
        Standing::Kept => format!(": {}; cap {ejectable}, out {ejected}", evidence(known)),
        Standing::Fallback => ", since nobody would be healthy".to_owned(),
        Standing::Standby => ", since another tier would serve".to_owned(),
        Standing::Healthy | Standing::Unknown => format!(": {}", evidence(known)),
        Standing::Draining | Standing::Disabled => String::new(),
    };
    Some(format!("would be {} (observed: {rules}){why}", standing.as_str()))
}

/// `slow start since 12:03:11 UTC: 0.3 of its weight`.
fn slow_start(known: &Known, ramp: Ramp) -> String {
    let since = known.back_since.map(|since| format!(" since {}", moment(since))).unwrap_or_default();
    format!("slow start{since}: {} of its weight", ramp.part())
}

fn overloaded(led: &Led) -> String {
    let queue = led.served.live.queue();
    let room = match (&led.outlook.foreseen, led.served.live.capacity().max_in_flight) {
        (Foreseen::Crowded, _) => return "too many requests wait for a first verdict".to_owned(),
        (_, Some(most)) if led.served.live.in_flight() >= most => format!("the pool has {most} of {most} requests"),
        _ => "everyone who may be picked is full".to_owned(),
    };
    match queue.size() {
        0 => format!("{room}, and there is no queue"),
        size => format!("{room}, and its queue is full: {} of {size}", queue.length()),
    }
}

/// Who may not be picked.
fn out(led: &Led, known: &Known, live: &Member, standing: Standing) -> String {
    let picture = led.outlook.roster.picture();
    match standing {
        Standing::Disabled => format!("disabled since {}", moment(known.admin_since)),
        Standing::Draining => draining(known, live),
        _ if live.address().is_none() => {
            let trouble = known.trouble.as_deref().unwrap_or("nothing is known of it yet");
            format!("without an address: {trouble}")
        }
        Standing::Ejected if picture.mode == Mode::Down => format!("nobody may serve: {}", evidence(known)),
        Standing::Ejected => match by_traffic_alone(known) {
            Some(ban) => format!("ejected {}; {}", by_traffic(ban), cap(picture)),
            None => format!("ejected, {}; {}", evidence(known), cap(picture)),
        },
        Standing::Unknown if known.window.shown == 0 => "unknown: no probe of it has ended yet".to_owned(),
        Standing::Unknown => format!("unknown: not healthy yet; {}", samples(known)),
        Standing::Standby => match picture.tier {
            Some(tier) => format!("standby: tier {tier} serves, and it is of tier {}; {}", known.tier, evidence(known)),
            None => format!("standby: first verdicts are waited for; {}", evidence(known)),
        },
        Standing::Healthy | Standing::Kept | Standing::Fallback => format!("left out: {}", evidence(known)),
    }
}

fn draining(known: &Known, live: &Member) -> String {
    let light = if known.admin == Admin::Draining { "" } else { ", its weight is 0" };
    let since = known.draining_since.map(|since| format!(" since {}", moment(since))).unwrap_or_default();
    format!("draining{since}{light}: {} in flight", live.in_flight())
}

fn picked(led: &Led, live: &Member) -> String {
    let roster = &led.outlook.roster;
    if let Foreseen::Member(index, Choice::ByCookie) = led.outlook.foreseen {
        return match roster.standing(index) {
            Standing::Draining => "the cookie leads to it; it is drained, and keeps those it has".to_owned(),
            _ => "the cookie leads to it".to_owned(),
        };
    }
    let candidates = led.outlook.prospects.iter().flatten();
    match candidates.clone().filter(|prospect| prospect.has_room).count() {
        _ if candidates.count() == 1 => return "the only one who may be picked".to_owned(),
        1 => return "the only one with room".to_owned(),
        _ => {}
    }
    match &led.served.config.balance {
        _ if roster.mode() == Mode::Fallback => "nobody is healthy, and it is its turn".to_owned(),
        Policy::ConsistentHash { .. } => "the hash key leads to it".to_owned(),
        Policy::LeastRequests { .. } => format!("nobody is less loaded: {}", load(live)),
        Policy::Fastest { .. } => "fast enough, and it is its turn".to_owned(),
        Policy::PeakEwma(_) => format!("fast enough, and it is its turn: {}", of_late(live)),
        Policy::RoundRobin | Policy::Random => "it is its turn".to_owned(),
    }
}

/// Who may be picked, and is not.
fn not_now(led: &Led, index: usize) -> String {
    let roster = &led.outlook.roster;
    let (live, prospect) = (&roster.members()[index], led.outlook.prospects[index]);
    if let Some(most) = room(live).filter(|_| prospect.is_some_and(|prospect| !prospect.has_room)) {
        return format!("full: {} of {most} requests", live.in_flight());
    }
    if matches!(led.outlook.foreseen, Foreseen::Full) {
        return "the pool is full, or others wait in its queue".to_owned();
    }
    if matches!(led.outlook.foreseen, Foreseen::Member(_, Choice::ByCookie)) {
        return "the cookie leads to another one".to_owned();
    }
    let is_slow = prospect.and_then(|prospect| prospect.share).is_some_and(|share| share == 0.0);
    match &led.served.config.balance {
        _ if roster.mode() == Mode::Fallback => "not its turn".to_owned(),
        Policy::ConsistentHash { .. } => "the hash key leads to another one".to_owned(),
        Policy::LeastRequests { .. } => {
            format!("another one is less loaded, or as little and its turn: {}", load(live))
        }
        Policy::PeakEwma(_) if roster.standing(index) == Standing::Kept => {
            "the healthy come first, however fast it fails".to_owned()
        }
        Policy::PeakEwma(_) => format!("not its turn: {}", of_late(live)),
        Policy::Fastest { .. } if is_slow && roster.standing(index) == Standing::Kept => {
            "the healthy come first, however fast it fails".to_owned()
        }
        Policy::Fastest { sensitivity } if is_slow => slow(led, live, *sensitivity),
        Policy::RoundRobin | Policy::Random | Policy::Fastest { .. } => "not its turn".to_owned(),
    }
}

fn slow(led: &Led, live: &Member, sensitivity: Duration) -> String {
    let roster = &led.outlook.roster;
    let with_share = led.outlook.prospects.iter().zip(roster.members());
    let in_band = with_share.filter(|(prospect, _)| prospect.and_then(|p| p.share).is_some_and(|share| share > 0.0));
    let fastest = in_band.filter_map(|(_, member)| member.latency()).min();
    match (live.latency(), fastest) {
        (Some(its), Some(fastest)) => format!(
            "slow: {}, more than {} over the fastest's {}",
            duration(its),
            duration(sensitivity),
            duration(fastest)
        ),
        _ => "slow: without a latency of its own it counts as the slowest".to_owned(),
    }
}

/// `12 ms of late`, by its answers to requests.
fn of_late(live: &Member) -> String {
    let form = live.form(clock::monotonic()).unwrap_or_default();
    let failing = match (form.failing() * 100.0).round() {
        0.0 => String::new(),
        percent => format!(", {percent} % of its answers fail"),
    };
    match form.peak() {
        Some(peak) => format!("{} of late{failing}", duration(peak)),
        None => format!("nothing is known yet of how fast it answers{failing}"),
    }
}

fn load(live: &Member) -> String {
    format!("{} in flight", live.in_flight())
}

/// `unhealthy since 12:03:11 UTC: 2 of 5 passed, last: 503, expected 200-299, after 1.2 ms`.
fn evidence(known: &Known) -> String {
    if let Some(ban) = by_traffic_alone(known) {
        return format!("{} {}; {}", known.verdict.as_str(), by_traffic(ban), samples(known));
    }
    let judged = format!("{} since {}: {}", known.verdict.as_str(), moment(known.since), samples(known));
    known.ban.as_ref().map_or(judged.clone(), |ban| format!("{judged}; and {}", by_traffic(ban)))
}

/// The passive ejection of a member that its judge calls healthy.
fn by_traffic_alone(known: &Known) -> Option<&Ban> {
    known.ban.as_ref().filter(|_| known.judged == Verdict::Healthy)
}

/// `by traffic since 12:03:11 UTC: 5 failures in a row, last: 503; out until 12:03:41 UTC; offence 1`.
fn by_traffic(ban: &Ban) -> String {
    let (since, until) = (moment(ban.since), moment(ban.until));
    format!("by traffic since {since}: {}; out until {until}; offence {}", ban.charge.words(), ban.offences)
}

fn samples(known: &Known) -> String {
    taught(known.window, known.last.as_ref())
}

/// `2 of 5 passed, last: 503, expected 200-299, after 1.2 ms`.
fn taught(window: Window, last: Option<&Sample>) -> String {
    let last = last.map(|sample| {
        let (word, bare) = match sample.outcome {
            Outcome::Pass => ("last passed", None),
            Outcome::Fail(reason) => ("last", Some(reason.as_str())),
            Outcome::Inconclusive => ("last", Some("inconclusive")),
        };
        // Some say nothing of themselves.
        let detail = Some(sample.detail.as_str()).filter(|detail| !detail.is_empty()).or(bare);
        let what = detail.map_or_else(|| word.to_owned(), |detail| format!("{word}: {detail},"));
        format!("{what} after {}", duration(sample.phases.total))
    });
    let window = match window.shown {
        0 => "no probe counted yet".to_owned(),
        shown => format!("{} of {shown} passed", window.passes),
    };
    last.map_or(window.clone(), |last| format!("{window}, {last}"))
}

fn cap(picture: &Picture) -> String {
    format!("cap {}, out {}", picture.ejectable, picture.ejected)
}

fn duration(duration: Duration) -> String {
    format!("{} ms", duration.as_micros() as f64 / 1000.0)
}

/// `12:03:11 UTC`, with the date where that is another one than today's.
fn moment(moment: Duration) -> String {
    let (then, today) = (time_of(moment), time_of(clock::monotonic()));
    let (date, time) = then.split_once('T').unwrap_or(("", then.as_str()));
    let time = time.split('.').next().unwrap_or_default();
    if today.starts_with(date) { format!("{time} UTC") } else { format!("{date} {time} UTC") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::{Phases, Reason};

    fn of(name: &str, host: Host, path: &str) -> Route {
        Route { name: name.into(), host, path: path.to_owned(), pools: Vec::new(), failback: None }
    }

    #[test]
    fn a_route_is_told_with_those_that_were_closer_and_did_not_fit() {
        let any = of("/", Host::Any, "/");
        let wild = of("*.test/w", Host::Wildcard("test".to_owned()), "/w");
        let exact = of("a.test/api", Host::Exact("a.test".to_owned()), "/api");
        let (all, alone) = ([any.clone(), wild.clone(), exact.clone()], [any.clone()]);
        let fits = |path: &str| format!("{path} is the longest of its paths that fit");
        let rows = [
            (
                &any,
                &alone[..],
                "A.test:8080",
                format!("it is for every host, no route names \"a.test\", and {}", fits("/")),
            ),
            (&any, &all, "other.org", format!("it is for every host, no route names \"other.org\", and {}", fits("/"))),
            (
                &any,
                &all,
                "b.test",
                format!("it is for every host, the path of *.test/w does not fit, and {}", fits("/")),
            ),
            (
                &any,
                &all,
                "a.test",
                format!("it is for every host, the paths of *.test/w, a.test/api do not fit, and {}", fits("/")),
            ),
            (
                &wild,
                &all,
                "a.test",
                format!("\"a.test\" ends in .test, the path of a.test/api does not fit, and {}", fits("/w")),
            ),
            (
                &wild,
                &all,
                "b.test:80",
                format!("\"b.test\" ends in .test, no route is closer to \"b.test\", and {}", fits("/w")),
            ),
            (&exact, &all, "a.test", format!("the host is its own, and {}", fits("/api"))),
        ];
        for (chosen, routes, host, expected) in rows {
            assert_eq!(route(chosen, routes, host), expected);
        }
    }

    #[test]
    fn a_sample_without_words_of_its_own_leaves_no_gap() {
        let rows = [
            (Outcome::Pass, "", "last passed after 1.5 ms"),
            (Outcome::Pass, "200", "last passed: 200, after 1.5 ms"),
            (Outcome::Fail(Reason::Refused), "", "last: refused, after 1.5 ms"),
            (Outcome::Fail(Reason::Status), "503", "last: 503, after 1.5 ms"),
            (Outcome::Inconclusive, "", "last: inconclusive, after 1.5 ms"),
        ];
        for (outcome, detail, expected) in rows {
            let phases = Phases { total: Duration::from_micros(1_500), ..Phases::default() };
            let sample = Sample { outcome, detail: detail.to_owned(), status: None, phases };
            let window = Window { passes: 4, shown: 4, size: 5, required: Some(3) };
            assert_eq!(taught(window, Some(&sample)), format!("4 of 4 passed, {expected}"));
        }
    }
}
