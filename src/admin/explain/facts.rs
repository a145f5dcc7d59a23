//! What an explanation is made from beside the roster: the heart's word on each member, and the closed lists of words.

use std::collections::HashMap;
use std::time::Duration;

use utoipa::openapi::schema::{ObjectBuilder, Type};

use super::why::Chance;
use crate::balance::Policy;
use crate::control::Control;
use crate::health::{self, Admin, Ban, MemberId, PoolHealth, Sample, Standing, Verdict, Window};
use crate::pool::{self, Binding, Choice, Foreseen, Member, Shadow};
use crate::proxy::{Claim, CompositeView, Led};

/// What the heart knows of a pool's members.
#[derive(Debug)]
pub struct Facts(HashMap<MemberId, Known>);

/// How a member would stand with the rules that are tried, where that is otherwise than it does.
#[derive(Debug)]
pub struct Would {
    /// The rules, as they are written.
    pub rules: String,
    /// How it would stand.
    pub standing: Standing,
    /// What would be known of it.
    pub known: Known,
    /// How many of its tier might be out, and how many would be.
    pub cap: (usize, usize),
}

/// What the heart knows of one.
#[derive(Debug)]
pub struct Known {
    /// What its judge says, and traffic.
    pub verdict: Verdict,
    /// Since when.
    pub since: Duration,
    /// What its judge alone says.
    pub judged: Verdict,
    /// What traffic holds against it.
    pub ban: Option<Ban>,
    /// What is wanted of it.
    pub admin: Admin,
    /// Since when.
    pub admin_since: Duration,
    /// Since when it drains; `None` where it does not.
    pub draining_since: Option<Duration>,
    /// Since when it comes back; `None` where it does not.
    pub back_since: Option<Duration>,
    /// Its rank.
    pub tier: u8,
    /// As configured.
    pub weight: u32,
    /// Its last samples.
    pub window: Window,
    /// The last of them.
    pub last: Option<Sample>,
    /// Why its name has no address.
    pub trouble: Option<String>,
    /// How it would be.
    pub would: Option<Box<Would>>,
}

impl Facts {
    /// Of the members of the pool that is led to.
    pub fn new(control: &Control, led: &Led) -> Facts {
        // What is followed has a lock of its own.
        let located = control.located(&led.served.config.name);
        let located = located.iter().flat_map(|located| located.iter());
        let trouble: HashMap<(String, Option<std::net::SocketAddr>), String> = located
            .filter_map(|l| Some(((l.member.name.clone(), l.address), l.trouble.as_ref()?.to_string())))
            .collect();
        led.served.live.read_both(|health, shadow, _| {
            let known = |(index, member): (usize, &health::Member)| {
                let key = &member.spec().key;
                let trouble = trouble.get(&(key.name.clone(), key.address)).cloned();
                let would = shadow.and_then(|shadow| Would::new(health, shadow, index)).map(Box::new);
                (member.id(), Known { trouble, would, ..Known::new(member, pool::shown(health, shadow, index)) })
            };
            Facts(health.members().iter().enumerate().map(known).collect())
        })
    }

    /// `None`: it has left meanwhile.
    pub fn of(&self, id: MemberId) -> Option<&Known> {
        self.0.get(&id)
    }
}

impl Known {
    /// What is known of `member`, with the samples that are shown of it.
    fn new(member: &health::Member, shown: &health::Member) -> Known {
        Known {
            verdict: member.verdict(),
            since: member.since(),
            judged: member.judged(),
            ban: member.ban().cloned(),
            admin: member.admin(),
            admin_since: member.admin_since(),
            draining_since: member.draining_since(),
            back_since: member.back_since(),
            tier: member.spec().tier,
            weight: member.spec().weight,
            window: shown.window(),
            last: shown.last_sample().map(|(sample, _)| sample.clone()),
            trouble: None,
            would: None,
        }
    }
}

impl Would {
    /// Of the member at `index`; `None`: it would stand as it does.
    fn new(health: &PoolHealth, shadow: &Shadow, index: usize) -> Option<Would> {
        let (member, picture) = (shadow.health().members().get(index)?, shadow.health().picture());
        let standing = *picture.standings.get(index)?;
        (standing != health.picture().standings[index]).then(|| Would {
            rules: shadow.keys().join(", "),
            standing,
            known: Known::new(member, member),
            cap: (picture.ejectable, picture.ejected),
        })
    }
}

/// How many requests a member may serve at once: a connection has one at a time.
pub fn room(member: &Member) -> Option<u32> {
    let capacity = member.capacity();
    [capacity.max_in_flight, capacity.max_connections].into_iter().flatten().min()
}

/// The status with which a composite is published; `None`: there is none of this name.
pub fn published(control: &Control, name: &str) -> Option<u16> {
    let report = control.composites().report(name)?;
    let view = if control.is_draining() { CompositeView::of_ending(&report) } else { CompositeView::new(&report) };
    Some(view.status().as_u16())
}

/// The word of a policy in the configuration.
pub fn policy(policy: &Policy) -> &'static str {
    match policy {
        Policy::RoundRobin => "round_robin",
        Policy::LeastRequests { .. } => "least_requests",
        Policy::Random => "random",
        Policy::Fastest { .. } => "fastest",
        Policy::PeakEwma(_) => "peak_ewma",
        Policy::ConsistentHash { .. } => "consistent_hash",
    }
}

/// The words of `policy`.
pub fn policies() -> ObjectBuilder {
    one_of(["round_robin", "least_requests", "random", "fastest", "peak_ewma", "consistent_hash"])
}

/// The place of the member that the request's cookie names.
pub fn named(led: &Led) -> Option<usize> {
    let id = led.claim.member()?;
    led.outlook.roster.members().iter().position(|member| member.id() == id)
}

/// What becomes of the request's cookie.
pub fn bond(led: &Led) -> &'static str {
    match led.claim {
        Claim::None => Binding::New.as_str(),
        Claim::Invalid => Binding::Invalid.as_str(),
        Claim::Expired => Binding::Expired.as_str(),
        Claim::Removed => Binding::Removed.as_str(),
        Claim::Bound { .. } => match led.outlook.foreseen {
            Foreseen::Member(_, Choice::ByCookie) => BOUND,
            _ if led.outlook.bond_holds => FULL,
            _ => Binding::Out.as_str(),
        },
    }
}

/// It leads to its member.
pub const BOUND: &str = "bound";
/// Its member has no room.
pub const FULL: &str = "full";

/// The words of `state` of a cookie.
pub fn bonds() -> ObjectBuilder {
    let set = [Binding::New, Binding::Invalid, Binding::Expired, Binding::Removed, Binding::Out].map(Binding::as_str);
    let [new, invalid, expired, removed, out] = set;
    one_of([BOUND, FULL, new, invalid, expired, removed, out])
}

/// The words of `chance`.
pub fn chances() -> ObjectBuilder {
    one_of([Chance::Picked, Chance::Possible, Chance::NotNow, Chance::Out].map(Chance::as_str))
}

/// The words of `end`.
pub fn ends() -> ObjectBuilder {
    one_of(["member", "one_of", "wait", "answer"])
}

/// The words of `for`.
pub fn waits() -> ObjectBuilder {
    one_of(["verdict", "room"])
}

fn one_of<const N: usize>(words: [&'static str; N]) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String).enum_values(Some(words))
}
