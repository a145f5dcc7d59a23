//! An explanation as the API shows it.

use serde::Serialize;
use utoipa::ToSchema;

use super::super::routes::Standing as RouteStanding;
use super::super::views::{millis, time_of};
use super::super::words;
use super::facts::{self, Facts};
use super::why::{self, Chance};
use crate::clock;
use crate::config::Listener;
use crate::control::Control;
use crate::health::{Mode, Ramp};
use crate::pool::Foreseen;
use crate::proxy::{self, Described, End, Fate, Led};
use crate::route::{Host, Route};
use crate::snapshot::Snapshot;

/// What the next such request would get, and why.
#[derive(Debug, Serialize, ToSchema)]
pub struct Explanation {
    /// All of it in a sentence, for people.
    summary: String,
    /// `member`, `one_of` where a draw says which, `wait` or `answer`.
    #[schema(schema_with = facts::ends)]
    end: &'static str,
    /// When this was so.
    #[schema(format = DateTime)]
    at: String,
    /// The latest event that had been told by then.
    event: u64,
    /// Which configuration it went by: 1 is that of the start.
    generation: u64,
    /// The request, as it would be read.
    request: RequestView,
    /// The address of the member it would go to; null where a draw says that, and where it would go to none.
    member: Option<String>,
    /// The answer it would get from the proxy itself; null where it would go on.
    answer: Option<AnswerView>,
    /// What it would wait for first; null where it would not.
    wait: Option<WaitView>,
    /// Its route; null where it would not come to that.
    route: Option<RouteMatch>,
    /// The route's pools, in the order of preference.
    pools: Vec<RankedPool>,
    /// The pool that would serve it; null as above.
    pool: Option<PoolFacts>,
    /// What the request's cookie says, where the pool binds clients; null elsewhere.
    sticky: Option<StickyView>,
    /// All of that pool's members.
    members: Vec<MemberWhy>,
}

/// A cookie that binds a client to a member, and what becomes of it.
#[derive(Debug, Serialize, ToSchema)]
struct StickyView {
    /// The cookie's name.
    cookie: String,
    /// `bound`: it leads to its member. `full`: that one is full, and another lends a hand. For any other word the answer sets a new
    /// one: `new`, `invalid`, `expired`, `removed`, `out`.
    #[schema(schema_with = facts::bonds)]
    state: &'static str,
    /// The address of its member; null where it names none that is in the pool.
    member: Option<String>,
    /// Why, for people.
    because: String,
}

/// A request, as it would be read.
#[derive(Debug, Serialize, ToSchema)]
struct RequestView {
    /// Its method.
    method: String,
    /// The host it is for, as sent; empty where there is none.
    host: String,
    /// The path it is for.
    path: String,
    /// Who it is from: the peer, or whom trusted proxies vouch for.
    client: String,
    /// The listener it comes to.
    listener: String,
}

/// An answer of the proxy's own.
#[derive(Debug, Serialize, ToSchema)]
struct AnswerView {
    /// Its status.
    status: u16,
    /// The access log's `reason`; null where all is well.
    reason: Option<&'static str>,
    /// Why, for people.
    because: String,
}

/// A wait.
#[derive(Debug, Serialize, ToSchema)]
struct WaitView {
    /// `verdict` or `room`.
    #[schema(schema_with = facts::waits)]
    r#for: &'static str,
    /// For so long, in milliseconds; null where nothing ends it but the request's own time.
    at_most_ms: Option<f64>,
    /// Why, for people.
    because: String,
}

/// The route, and why it is that one.
#[derive(Debug, Serialize, ToSchema)]
struct RouteMatch {
    /// Host and path, as logs have it.
    name: String,
    /// The host, or `*.suffix`; null for every host.
    host: Option<String>,
    /// The prefix of paths.
    path: String,
    /// Why it is this one, for people.
    because: String,
}

/// One of the route's pools.
#[derive(Debug, Serialize, ToSchema)]
struct RankedPool {
    /// Its place in the order of preference, 0 first.
    rank: usize,
    /// Its name.
    pool: String,
    /// Whether it is the one that serves.
    serves: bool,
    /// The composite that says whether it can serve; null where the pool itself does.
    when: Option<String>,
    /// The composite that is written for that and only observes, so that the pool itself says it; null where there is none.
    observed_when: Option<String>,
    /// Whether it can serve.
    #[schema(schema_with = words::ability)]
    ability: &'static str,
    /// When the route goes back to it, if nothing changes until then; null where it does not.
    #[schema(format = DateTime)]
    failback_at: Option<String>,
    /// Why it serves or does not, for people.
    why: String,
}

/// The pool that would serve.
#[derive(Debug, Serialize, ToSchema)]
struct PoolFacts {
    /// Its name.
    name: String,
    /// How it serves.
    #[schema(schema_with = words::mode)]
    mode: &'static str,
    /// The tier that serves; null where none does.
    tier: Option<u8>,
    /// Members of that tier that take traffic.
    in_rotation: usize,
    /// Members of that tier; of the pool, where no tier serves.
    total: usize,
    /// How many of that tier the cap allows to be out.
    ejectable: usize,
    /// How many of them are.
    ejected: usize,
    /// How it shares requests: `balance`, as configured.
    #[schema(schema_with = facts::policies)]
    policy: &'static str,
    /// What requests go by under `consistent_hash`; null elsewhere.
    hash_key: Option<String>,
    /// That of this request; null where it has none, and goes to any member.
    hash_value: Option<String>,
    /// How it serves and shares, for people.
    because: String,
}

/// A member, and why it would get this request or not.
#[derive(Debug, Serialize, ToSchema)]
struct MemberWhy {
    /// Where it is; its name, while that has no address.
    address: String,
    /// What its source calls it.
    name: String,
    /// `picked`, `possible` (a draw says), `not_now` (another one is) or `out` (it may not be picked).
    #[schema(schema_with = facts::chances)]
    chance: &'static str,
    /// Why, for people.
    why: String,
    /// What follows from its health for traffic.
    #[schema(schema_with = words::standing)]
    standing: &'static str,
    /// What its judge says.
    #[schema(schema_with = words::verdict)]
    verdict: &'static str,
    /// Since when.
    #[schema(format = DateTime)]
    since: String,
    /// What an operator wants of it.
    #[schema(schema_with = words::admin)]
    admin: &'static str,
    /// Its rank, 0 first.
    tier: u8,
    /// Its share among its equals.
    weight: u32,
    /// The part of its weight that it has for now, 0.1 to 0.9, while it comes back; null where it has all of it.
    ramp: Option<f64>,
    /// The part of requests without a hash key that it gets in the long run, 0 to 1; null where loads decide, or it is out.
    share: Option<f64>,
    /// Requests that it is serving.
    in_flight: u32,
    /// How many it may; null where there is no limit.
    max_in_flight: Option<u32>,
    /// Median of its last right answers to probes, in milliseconds.
    latency_ms: Option<f64>,
    /// What its answers to requests took of late, in milliseconds: what `peak_ewma` goes by; null with another policy.
    peak_ms: Option<f64>,
    /// What the access log's `lb.reason` would say; null where it is out.
    reason: Option<&'static str>,
}

impl Explanation {
    /// Of what would become of a request in `snapshot`.
    pub fn new(
        control: &Control,
        snapshot: &Snapshot,
        listener: &Listener,
        described: &Described,
        fate: &Fate,
        event: u64,
    ) -> Explanation {
        let led = fate.led.as_ref();
        let facts = led.map(|led| Facts::new(control, led));
        let members = led.zip(facts.as_ref()).map_or_else(Vec::new, |(led, facts)| members(led, facts, &fate.end));
        let picked = members.iter().find(|member| member.chance == Chance::Picked.as_str());
        let member = picked.map(|member| member.address.clone());
        let route = led.and_then(|led| snapshot.config.routes.get(led.place));
        let (answer, wait) = (AnswerView::new(control, snapshot, listener, fate), WaitView::new(fate));
        let possible = members.iter().filter(|member| member.chance == Chance::Possible.as_str()).count();
        let end = match (&answer, &wait, &member) {
            (Some(_), ..) => "answer",
            (_, Some(_), _) => "wait",
            (.., Some(_)) => "member",
            _ => "one_of",
        };
        let by =
            led.zip(route).map(|(led, route)| format!(" of pool {}, by route {}", led.served.config.name, route.name));
        let by = by.unwrap_or_default();
        let summary = match (&answer, &wait, &member) {
            (Some(answer), ..) => answer.words(),
            (_, Some(wait), _) => format!("it would wait for a member{by}: {}", wait.because),
            (.., Some(member)) => format!("it would go to {member}{by}"),
            _ => format!("it would go to one of {possible} members{by}: a draw says which"),
        };
        Explanation {
            summary,
            end,
            at: time_of(clock::monotonic()),
            event,
            generation: snapshot.generation,
            request: RequestView {
                method: described.method.clone(),
                host: fate.host.clone(),
                path: fate.path.clone(),
                client: fate.client.to_string(),
                listener: listener.name.clone(),
            },
            member,
            answer,
            wait,
            route: route.map(|route| RouteMatch::new(route, &snapshot.config.routes, &fate.host)),
            pools: led.zip(route).map_or_else(Vec::new, |(led, route)| pools(control, snapshot, led, route)),
            pool: led.map(PoolFacts::new),
            sticky: led.and_then(StickyView::new),
            members,
        }
    }
}

impl AnswerView {
    fn new(control: &Control, snapshot: &Snapshot, listener: &Listener, fate: &Fate) -> Option<AnswerView> {
        let (status, reason) = match &fate.end {
            End::Member | End::WaitsForVerdict | End::WaitsForRoom => return None,
            End::LastHop => (200, None),
            End::Refused { status, why, .. } => (status.as_u16(), Some(why.as_str())),
            End::Composite(name) => match facts::published(control, name) {
                Some(status) => (status, None),
                // A reload has just taken it out.
                None => (404, Some("no_route")),
            },
        };
        Some(AnswerView { status, reason, because: why::answer(fate, snapshot, listener) })
    }

    fn words(&self) -> String {
        let AnswerView { status, reason, because } = self;
        match reason {
            Some(reason) => format!("it would be answered {status} ({reason}): {because}"),
            None => format!("it would be answered {status}: {because}"),
        }
    }
}

impl WaitView {
    fn new(fate: &Fate) -> Option<WaitView> {
        let led = fate.led.as_ref()?;
        let live = &led.served.live;
        let (what, at_most) = match fate.end {
            End::WaitsForVerdict => {
                let deadline = live.waits_until();
                ("verdict", deadline.map(|deadline| deadline.saturating_sub(clock::monotonic())))
            }
            End::WaitsForRoom => ("room", Some(live.queue().timeout())),
            _ => return None,
        };
        Some(WaitView { r#for: what, at_most_ms: at_most.map(millis), because: why::wait(led, &fate.end) })
    }
}

impl RouteMatch {
    fn new(route: &Route, routes: &[Route], host: &str) -> RouteMatch {
        RouteMatch {
            name: route.name.to_string(),
            host: match &route.host {
                Host::Any => None,
                Host::Exact(host) => Some(host.clone()),
                Host::Wildcard(suffix) => Some(format!("*.{suffix}")),
            },
            path: route.path.clone(),
            because: why::route(route, routes, host),
        }
    }
}

impl PoolFacts {
    fn new(led: &Led) -> PoolFacts {
        let roster = &led.outlook.roster;
        let picture = roster.picture();
        PoolFacts {
            name: led.served.config.name.clone(),
            mode: picture.mode.as_str(),
            tier: picture.tier,
            in_rotation: picture.in_rotation,
            total: picture.total,
            ejectable: picture.ejectable,
            ejected: picture.ejected,
            policy: facts::policy(&led.served.config.balance),
            hash_key: led.served.config.hash_key.as_ref().map(ToString::to_string),
            hash_value: led.key.as_ref().map(|key| String::from_utf8_lossy(key).into_owned()),
            because: why::pool(led),
        }
    }
}

impl StickyView {
    fn new(led: &Led) -> Option<StickyView> {
        let sticky = led.served.config.sticky.as_ref()?;
        let named = facts::named(led).map(|index| led.outlook.roster.members()[index].label().to_string());
        let cookie = sticky.cookie.clone();
        Some(StickyView { cookie, state: facts::bond(led), member: named, because: why::sticky(led) })
    }
}

fn pools(control: &Control, snapshot: &Snapshot, led: &Led, route: &Route) -> Vec<RankedPool> {
    let Some(way) = snapshot.ways.get(led.place) else { return Vec::new() };
    let standing = RouteStanding::of(control, route, way);
    let all = route.pools.iter().zip(standing.pools).enumerate();
    all.map(|(rank, (at, (ability, because, failback)))| RankedPool {
        rank,
        pool: at.pool.to_string(),
        serves: rank == led.rank,
        when: at.when.as_ref().map(ToString::to_string),
        observed_when: at.tried_when.as_ref().map(ToString::to_string),
        ability: ability.as_str(),
        failback_at: failback.map(time_of),
        why: why::ranked(rank, led.rank, ability, &because, failback),
    })
    .collect()
}

fn members(led: &Led, facts: &Facts, end: &End) -> Vec<MemberWhy> {
    let roster = &led.outlook.roster;
    let chance = |index: usize| match (&led.outlook.foreseen, led.outlook.prospects[index]) {
        // Also one that is drained, for those who are bound to it.
        (Foreseen::Member(picked, _), _) if *picked == index && *end == End::Member => Chance::Picked,
        (_, None) => Chance::Out,
        (Foreseen::OneOf(some), _) if some.contains(&index) && *end == End::Member => Chance::Possible,
        _ => Chance::NotNow,
    };
    let member = |index: usize| {
        let (live, chance) = (&roster.members()[index], chance(index));
        let known = facts.of(live.id());
        let prospect = led.outlook.prospects[index];
        MemberWhy {
            address: live.label().to_string(),
            name: live.key().name.clone(),
            chance: chance.as_str(),
            why: why::member(led, facts, index, chance),
            standing: roster.standing(index).as_str(),
            verdict: known.map_or("unknown", |known| known.verdict.as_str()),
            since: time_of(known.map_or_else(clock::monotonic, |known| known.since)),
            admin: known.map_or("enabled", |known| known.admin.as_str()),
            tier: known.map_or(0, |known| known.tier),
            weight: known.map_or(0, |known| known.weight),
            ramp: roster.picture().ramp(index).map(Ramp::part),
            share: prospect.and_then(|prospect| prospect.share),
            in_flight: live.in_flight(),
            max_in_flight: facts::room(live),
            latency_ms: live.latency().map(millis),
            peak_ms: live.form(clock::monotonic()).and_then(|form| form.peak()).map(millis),
            reason: (chance != Chance::Out).then(|| proxy::reason(led, index).as_str()),
        }
    };
    let mut members: Vec<MemberWhy> = (0..roster.members().len()).map(member).collect();
    if roster.mode() == Mode::Down {
        // Nobody is asked for, but who is drained by those bound to it.
        let others = members.iter_mut().filter(|member| member.chance != Chance::Picked.as_str());
        others.for_each(|member| member.reason = None);
    }
    members
}
