//! One generation: the routes and pools of one configuration, seen whole by every request that began under it.
//!
//! Pools outlive generations: the next one takes over those whose names stay, reshaped, with all they know (health.md §9).
//! Whatever can fail is done before (`reload`), so that a configuration is taken whole or not at all.

mod found;
mod way;

use std::any::Any;
use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

pub use found::{Found, Located, Source};
pub use way::{Stop, Way};

use crate::composite::{Beneath, Composites, Doors};
use crate::config::{self, Config, Lasting, authority};
use crate::failover::Switch;
use crate::health::{Admin, Key, Member, Spec};
use crate::pool::{Audience, Limits, Plan, Pool};
use crate::route::{Route, Table};

/// One generation.
#[derive(Debug)]
pub struct Snapshot {
    /// Counts up from 1.
    pub generation: u64,
    /// Since when it is the present one, in monotonic time.
    pub since: Duration,
    /// What was configured.
    pub config: Arc<Config>,
    /// Where requests go.
    pub routes: Table,
    /// Where each of them leads, in their order.
    pub ways: Vec<Way>,
    /// Where composites are answered for.
    pub doors: Doors,
    /// By name.
    pub pools: HashMap<String, Arc<Served>>,
    succeeded: Notify,
}

/// What was made of a pool's files when its configuration was read.
#[derive(Debug, Clone, Default)]
pub struct Outfit {
    /// Of what the files of the probe held; `None`: it has none.
    pub probe: Option<u64>,
    /// Of what the files of the traffic held; `None`: it is plain.
    pub traffic: Option<u64>,
    /// Of the secrets of its cookies; `None`: it sets none.
    pub sticky: Option<u64>,
    /// What its cookies are signed with. Kept here as the next one is.
    pub signer: Option<Arc<dyn Any + Send + Sync>>,
    /// What the traffic's connections need of them. Only kept here: it is made of types that only the edges know.
    pub connector: Option<Arc<dyn Any + Send + Sync>>,
}

/// A pool as one generation has it.
#[derive(Debug)]
pub struct Served {
    /// How it was configured.
    pub config: Arc<config::Pool>,
    /// The pool itself, older than this generation maybe.
    pub live: Arc<Pool>,
    /// Of its upstream connections: only a pool of the same name and the same settings shares them.
    pub group_key: u64,
    /// What its connections need of its files; `None`: they are plain.
    pub connector: Option<Arc<dyn Any + Send + Sync>>,
    /// What its cookies are signed with; `None`: it sets none.
    pub signer: Option<Arc<dyn Any + Send + Sync>>,
    /// Of the secrets of its cookies.
    sticky: Option<u64>,
    /// Of what the files of its probe held.
    seal: Option<u64>,
    /// Of members that the configuration names.
    names: HashMap<String, Names>,
    /// Of members that its sources name now.
    discovered: ArcSwap<HashMap<String, Names>>,
}

/// What a member is called.
#[derive(Debug)]
struct Names {
    host: String,
    authority: String,
}

impl Served {
    /// The own name of the member that is configured as `member`, without port. One of another generation goes by its
    /// configured name, as do most.
    pub fn host_of<'a>(&'a self, member: &'a str) -> Cow<'a, str> {
        match self.names.get(member) {
            Some(names) => Cow::Borrowed(&names.host),
            None => self.discovered_host_of(member).map_or_else(|| host_of(member).into(), Cow::Owned),
        }
    }

    /// The same as a Host field.
    pub fn authority_of<'a>(&'a self, member: &'a str) -> Cow<'a, str> {
        match self.names.get(member) {
            Some(names) => Cow::Borrowed(&names.authority),
            None => match self.discovered.load().get(member) {
                Some(names) => Cow::Owned(names.authority.clone()),
                None => Cow::Borrowed(member),
            },
        }
    }

    /// The own name of a member that a source of this pool names now; `None` for every other.
    pub fn discovered_host_of(&self, member: &str) -> Option<String> {
        self.discovered.load().get(member).map(|names| names.host.clone())
    }

    /// Whether its files held the same for `other`, and its connections may be shared.
    pub fn has_files_of(&self, other: &Served) -> bool {
        (self.seal, self.sticky, self.group_key) == (other.seal, other.sticky, other.group_key)
    }

    /// Whether it is probed more rarely while nobody uses it.
    pub fn dozes(&self) -> bool {
        self.config.probe.as_ref().is_some_and(|probe| probe.idle.is_some())
    }

    /// Its sources say something else: other members, and nothing else is another.
    pub fn readdress(&self, now: Duration, located: &[Located]) {
        // First, so that whoever is picked has a name.
        self.discovered.store(Arc::new(discovered(&self.config, located)));
        self.live.reshape(now, plan(&self.config, located, self.seal));
    }
}

impl Snapshot {
    /// Members that would be enabled if `pool` were taken after this generation, by their names: by the file's word, or by an
    /// operator's, which holds as long as the file says the same as before (health.md §9).
    pub fn enabled_under(&self, pool: &config::Pool, located: &[Located]) -> Vec<String> {
        let members = self.pools.get(&pool.name).map(|served| {
            let present = |member: &Member| (member.spec().key.clone(), (member.spec().admin, member.admin()));
            served.live.read(|health, _| health.members().iter().map(present).collect::<HashMap<Key, _>>())
        });
        let members = members.unwrap_or_default();
        let stays = |spec: &Spec| members.get(&spec.key).filter(|(file, _)| *file == spec.admin);
        let is_enabled = |spec: &Spec| stays(spec).map_or(spec.admin, |(_, admin)| *admin) == Admin::Enabled;
        let mut enabled: Vec<String> =
            plan(pool, located, None).members.into_iter().filter(is_enabled).map(|spec| spec.key.name).collect();
        // A name with several addresses is one origin.
        enabled.dedup();
        enabled
    }

    /// Those of its routes that choose among several pools.
    pub fn switches(&self) -> Vec<Arc<Switch>> {
        self.ways.iter().filter_map(Way::switch).cloned().collect()
    }

    /// Its place and where it leads: the route of this name.
    pub fn way_of(&self, route: &str) -> Option<(usize, &Way)> {
        let place = self.config.routes.iter().position(|other| &*other.name == route)?;
        Some((place, self.ways.get(place)?))
    }

    /// Resolves when another generation serves. To miss nothing, enable it before looking at which one does.
    pub fn succeeded(&self) -> Notified<'_> {
        self.succeeded.notified()
    }

    /// Another generation serves: whoever waits under this one is told.
    pub fn make_way(&self) {
        self.succeeded.notify_waiters();
    }

    /// What is known of all of its routes' choices, those that have none included.
    pub fn memories(&self) -> Vec<Arc<Switch>> {
        self.ways.iter().map(Way::memory).cloned().collect()
    }

    /// Whether it was made of this configuration, and of files that held the same.
    pub fn is_of(&self, config: &Config, outfits: &HashMap<String, Outfit>) -> bool {
        let plain = Outfit::default();
        let same_files = |(name, served): (&String, &Arc<Served>)| {
            let outfit = outfits.get(name).unwrap_or(&plain);
            (served.seal, served.sticky) == (outfit.probe, outfit.sticky)
                && served.group_key == group_key(&served.config, outfit)
        };
        *self.config == *config && self.pools.iter().all(same_files)
    }

    /// The generation after `old`, by `config`, with the members that were `found` and files as in `outfits`. Cannot fail.
    pub fn next(
        old: Option<&Snapshot>,
        now: Duration,
        config: Arc<Config>,
        found: &Found,
        outfits: &HashMap<String, Outfit>,
        audience: &Arc<Audience>,
    ) -> Snapshot {
        let pools = config.pools.iter().map(|(name, pool)| {
            let outfit = outfits.get(name).cloned().unwrap_or_default();
            let plan = plan(pool, found.of(name), outfit.probe);
            let live = match old.and_then(|old| old.pools.get(name)) {
                Some(served) => {
                    served.live.reshape(now, plan);
                    served.live.clone()
                }
                None if old.is_some() => Arc::new(Pool::added(name, now, plan, audience.clone())),
                None => Arc::new(Pool::new(name, now, plan, audience.clone())),
            };
            let served = Served {
                config: pool.clone(),
                live,
                group_key: group_key(pool, &outfit),
                connector: outfit.connector,
                signer: outfit.signer,
                sticky: outfit.sticky,
                seal: outfit.probe,
                names: names(pool, pool.members.iter()),
                discovered: ArcSwap::from_pointee(discovered(pool, found.of(name))),
            };
            (name.clone(), Arc::new(served))
        });
        let pools: HashMap<String, Arc<Served>> = pools.collect();
        let served = |name: &str| pools.get(name).cloned();
        let beneath = Beneath::new(&config.composites);
        let dozing = |composite: &str| {
            let below = beneath.pools(composite).into_iter().filter_map(|name| pools.get(name));
            below.filter(|served| served.dozes()).map(|served| served.live.clone()).collect()
        };
        // After the pools, whose states they go by.
        let before = old.iter().flat_map(|old| old.config.routes.iter().zip(&old.ways));
        let before: HashMap<&str, &Way> = before.map(|(route, way)| (&*route.name, way)).collect();
        let way = |route: &Route| Way::new(before.get(&*route.name).copied(), now, route, served, dozing, audience);
        let ways = config.routes.iter().map(way).collect();
        let gone = old.iter().flat_map(|old| &old.pools).filter(|(name, _)| !pools.contains_key(*name));
        gone.for_each(|(_, served)| served.live.remove());
        let doors = Doors::next(old.map(|old| &old.doors), &config.composites, dozing);
        Snapshot {
            generation: old.map_or(1, |old| old.generation + 1),
            since: now,
            pools,
            ways,
            doors,
            routes: Table::new(config.routes.clone()),
            config,
            succeeded: Notify::new(),
        }
    }
}

impl Snapshot {
    /// Has the composites be those of this generation.
    pub fn look_again(&self, now: Duration, composites: &Composites) {
        let Config { composites: in_force, tried_composites: tried, .. } = &*self.config;
        composites.follow(now, in_force, tried, |pool| Some(self.pools.get(pool)?.live.roster()));
    }
}

/// One member per address; a name without one is a member all the same, and says so (case C66).
fn plan(pool: &config::Pool, located: &[Located], seal: Option<u64>) -> Plan {
    let tls = pool.upstream.tls.is_some();
    let spec = |located: &Located| Spec {
        key: Key { name: located.member.name.clone(), address: located.address, tls },
        weight: located.member.weight,
        split: located.split,
        tier: located.member.tier,
        admin: located.member.state,
        source: source(pool, located),
        roll: roll(pool, located),
        fingerprint: fingerprint(pool, &located.member, seal),
    };
    Plan {
        rules: pool.rules.clone(),
        observed: pool.observed.clone(),
        policy: pool.balance.clone(),
        budget_percent: pool.retries.budget_percent,
        members: located.iter().map(spec).collect(),
        limits: Limits {
            capacity: pool.capacity,
            members: located.iter().map(|located| located.member.capacity.or(pool.each_member)).collect(),
            queue: pool.queue,
        },
    }
}

/// Whose answer has brought the member: a service's, or its own name's.
fn source(pool: &config::Pool, located: &Located) -> Option<Arc<str>> {
    if let Source::Service(index) = located.source {
        return pool.services.get(index).map(|service| service.name.as_str().into());
    }
    located.member.host.parse::<IpAddr>().is_err().then(|| located.member.name.as_str().into())
}

/// The file that lists the member, as the pool's rules call it.
fn roll(pool: &config::Pool, located: &Located) -> Option<Arc<str>> {
    let Source::File(index) = located.source else { return None };
    pool.rules.rolls.get(index).cloned()
}

/// Of the probe, of the name it asks the member by, and of what its files hold.
fn fingerprint(pool: &config::Pool, member: &config::Member, seal: Option<u64>) -> u64 {
    let Some(probe) = &pool.probe else { return 0 };
    let mut hasher = Lasting::default();
    (probe.fingerprint(), &member.known_as, seal).hash(&mut hasher);
    hasher.finish()
}

fn group_key(pool: &config::Pool, outfit: &Outfit) -> u64 {
    let mut hasher = DefaultHasher::new();
    pool.name.hash(&mut hasher);
    format!("{:?}", pool.upstream).hash(&mut hasher);
    outfit.traffic.hash(&mut hasher);
    hasher.finish()
}

/// Of those that the configuration does not name itself.
fn discovered(pool: &config::Pool, located: &[Located]) -> HashMap<String, Names> {
    let discovered = located.iter().filter(|located| !matches!(located.source, Source::Written(_)));
    names(pool, discovered.map(|located| &located.member))
}

fn names<'a>(pool: &config::Pool, members: impl Iterator<Item = &'a config::Member>) -> HashMap<String, Names> {
    let default = if pool.upstream.tls.is_some() { 443 } else { 80 };
    let names = |member: &config::Member| {
        let host = member.own_name().to_owned();
        Names { authority: authority(&host, member.port, default), host }
    };
    members.map(|member| (member.name.clone(), names(member))).collect()
}

/// The host of `host:port`; an IPv6 literal without its brackets.
fn host_of(name: &str) -> &str {
    let host = name.rsplit_once(':').map_or(name, |(host, _)| host);
    host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The only pool of a file whose members and further keys are these.
    fn pool(members: &str, keys: &str) -> Arc<config::Pool> {
        let text = format!(
            "listeners: [{{ address: \"127.0.0.1:0\" }}]\npools: {{ web: {{ members: [{members}], {keys} }} }}\nroutes: [{{ pool: web }}]\n"
        );
        let loaded = config::parse("a.yaml", &text, &|_| None).expect("a good file");
        loaded.config.pools["web"].clone()
    }

    fn first(pool: &config::Pool, outfit: &Outfit) -> Spec {
        let ip = "10.0.0.1".parse().expect("an address");
        let located = Located::all(&pool.members[0], &[ip], &Source::Written(0), None);
        plan(pool, &located, outfit.probe).members[0].clone()
    }

    const PLAIN: &str = "\"10.0.0.1:443\"";
    const NAMED: &str = "{ address: \"10.0.0.1:443\", host: app1.test }";

    #[test]
    fn the_scheme_is_part_of_who_a_member_is_and_what_its_files_hold_part_of_how_it_is_probed() {
        let probe = "probe: { path: /, scheme: https }";
        let (plain, secure) = (pool(PLAIN, probe), pool(PLAIN, &format!("{probe}, upstream: {{ tls: true }}")));
        let held = |probe| Outfit { probe: Some(probe), traffic: Some(probe), ..Outfit::default() };
        let before = first(&plain, &held(1));
        assert!(!before.key.tls && first(&secure, &held(1)).key.tls);
        let rows = [
            ("the probe is the same, whatever the traffic", first(&secure, &held(1)), true),
            ("other files", first(&plain, &held(2)), false),
            ("another name", first(&pool(NAMED, probe), &held(1)), false),
        ];
        for (what, spec, same) in rows {
            assert_eq!(spec.fingerprint == before.fingerprint, same, "{what}");
        }
    }

    #[test]
    fn connections_are_shared_only_where_everything_is_the_same() {
        let held = |traffic| Outfit { traffic: Some(traffic), ..Outfit::default() };
        let key =
            |upstream: &str, traffic| group_key(&pool(PLAIN, &format!("upstream: {{ {upstream} }}")), &held(traffic));
        let tls = "tls: { ca: /a.pem }";
        assert_eq!(key(tls, 1), key(tls, 1));
        let others = [
            key(tls, 1),
            key(tls, 2),
            key("tls: { ca: /b.pem }", 1),
            key("tls: { ca: /a.pem, verify: false }", 1),
            key("tls: { ca: /a.pem, sni: a.test }", 1),
            key("tls: { ca: /a.pem, client_cert: /a.pem, client_key: /a.key }", 1),
            key("tls: true", 1),
            key("tls: false", 1),
        ];
        assert!((1..others.len()).all(|at| !others[..at].contains(&others[at])), "{others:?}");
    }

    #[test]
    fn a_member_goes_by_its_own_name_with_the_port_that_is_not_the_schemes() {
        let rows = [
            (PLAIN, "true", "10.0.0.1", "10.0.0.1"),
            (PLAIN, "false", "10.0.0.1", "10.0.0.1:443"),
            (NAMED, "true", "app1.test", "app1.test"),
            (NAMED, "false", "app1.test", "app1.test:443"),
            ("\"[fd00::1]:443\"", "true", "fd00::1", "[fd00::1]"),
        ];
        for (member, tls, host, authority) in rows {
            let pool = pool(member, &format!("upstream: {{ tls: {tls} }}"));
            let names = &names(&pool, pool.members.iter())[&pool.members[0].name];
            assert_eq!((&*names.host, &*names.authority), (host, authority), "{member}");
        }
        assert_eq!((host_of("app1.test:80"), host_of("[fd00::1]:80")), ("app1.test", "fd00::1"));
    }
}
