//! A scenario for `pulsegate simulate`: pools as in proxy.yaml, and what happens to their members over time.
//!
//! It is read as proxy.yaml is: every problem at once, each at its place, with what to write instead. Pools and routes go
//! through the very same parser, so what a scenario shows is what a proxy would do.
//!
//! Not here: what comes of it (`simulate`).

mod keys;
mod story;
mod unplayed;
mod words;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use keys::{PolicyKeys, ScenarioKeys};

use super::domain::{Config, Pool};
use super::file::{File, ListenerKeys, RouteKeys};
use super::places::{At, Mark};
use super::problem::{Problem, Problems};
use super::reading::{DAY, Reading};
use super::spelling::{Spelled, Text, Written, likely, shown};
use super::yaml::{Document, Laid};
use super::{advice, parse, text_of};
use crate::health::Admin;

/// Requests that one scenario may cause.
const MOST_REQUESTS: u128 = 100_000_000;
/// Probes that one may cause at the usual pace.
const MOST_PROBES: u128 = 100_000_000;
/// Where members are that have a name alone: no name is asked for. The range is for such use (RFC 2544 section C.2.2).
const NAMED: [u8; 2] = [198, 18];

/// A scenario.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// What it is called: its own word, else the file's name.
    pub title: String,
    /// How long it lasts.
    pub duration: Duration,
    /// What chance begins with.
    pub seed: u64,
    /// How long members take to answer as long as the story says nothing else.
    pub latency: Latency,
    /// One, or two to be compared.
    pub policies: Vec<Policy>,
    /// Where requests come from.
    pub traffic: Vec<Traffic>,
    /// What happens to members, in the order of time.
    pub story: Vec<Turn>,
    /// What its author may want to know.
    pub advice: Vec<Problem>,
}

impl Scenario {
    /// With `policy` too, of which `problems` were found; `None`: it cannot be used.
    fn compare_with(&mut self, policy: Option<Policy>, problems: Problems) -> Result<(), Vec<Problem>> {
        let problems = problems.sorted();
        let Some(policy) = policy else { return Err(problems) };
        self.policies.push(policy);
        self.advice.extend(problems);
        Ok(())
    }
}

/// Pools and routes under a name.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// What it is called.
    pub name: String,
    /// All else in it is as in a file that writes nothing of it.
    pub config: Arc<Config>,
}

/// Requests at one rate.
#[derive(Debug, Clone, PartialEq)]
pub struct Traffic {
    /// How often.
    pub rate: Rate,
    /// What they ask for, by which they find their route.
    pub host: String,
    /// The same.
    pub path: String,
    /// When the first one comes.
    pub from: Duration,
    /// None comes from then on.
    pub until: Duration,
    /// How many of a hundred may not be repeated once they were sent.
    pub post_percent: u8,
}

/// Requests at even distances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// From one to the next.
    pub between: Duration,
}

/// How long answers take: evenly spread around a mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Latency {
    /// On average.
    pub mean: Duration,
    /// At most so much less or more; not over the mean.
    pub spread: Duration,
}

/// One thing that happens to one member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    /// When.
    pub at: Duration,
    /// Of this pool.
    pub pool: String,
    /// Its place among the pool's members.
    pub member: usize,
    /// What.
    pub deed: Deed,
}

/// What a member does, or what is done with it. How it answers and how long that takes are two things: each lasts until the
/// next word of its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    /// From now on it answers so.
    Answers(Manner),
    /// From now on it takes so long.
    TakesLonger(Latency),
    /// It becomes a member of the pool: until its first `join` it is none.
    Joins,
    /// It is no member any more.
    Leaves,
    /// An operator's word.
    Ordered(Admin),
}

/// How a member answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// Rightly.
    Well,
    /// Not as it should.
    Ill(Ill),
    /// In turns, well first.
    Flaps {
        /// For so long it is well.
        well_for: Duration,
        /// And for so long ill.
        ill_for: Duration,
        /// In this way.
        how: Ill,
    },
}

/// How a member fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ill {
    /// It answers with this status.
    Status(u16),
    /// It refuses connections.
    Refuses,
    /// It closes connections instead of answering.
    Resets,
    /// It takes connections and never answers.
    Freezes,
    /// Nothing comes back, not even a refusal.
    Vanishes,
}

/// Reads the scenario at `path`; `policy` is a file with the policy to compare it with, instead of its own `compare`.
///
/// # Errors
/// Every problem of the scenario, or if it has none, of the policy.
pub fn load(
    path: &Path,
    policy: Option<&Path>,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Scenario, Vec<Problem>> {
    let (file, text) = (path.display().to_string(), text_of(path)?);
    let mut scenario = read(&file, &text, env)?;
    if let Some(policy) = policy {
        scenario.policies.truncate(1);
        compared(&text, &policy.display().to_string(), &text_of(policy)?, &mut scenario, env)?;
    }
    Ok(scenario)
}

/// Reads the scenario `text`; `file` is what problems call it.
///
/// # Errors
/// As [`load`].
pub fn read(file: &str, text: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<Scenario, Vec<Problem>> {
    let mut problems = Problems::new(file);
    let needs = "`duration` and `pools`, and mostly `traffic` and `story`";
    let Some(mut document) = expanded(text, needs, env, &mut problems) else { return Err(problems.sorted()) };
    let laid = document.part(&["compare", "pools"]);
    let Some(mut keys) = document.read::<ScenarioKeys>(&mut problems) else { return Err(problems.sorted()) };
    let (at, names) = (document.at(), names(&keys));
    let compare = keys.compare.take();
    let file_keys = file_of(&mut keys, at, &mut problems);
    let config = Arc::new(parse::config(&file_keys, at, &mut problems));
    let mut scenario = scenario(file, &keys, &config, at, &mut problems);
    let first = keys.policy.as_ref().map_or("as written", |Spelled(Text(name))| name);
    scenario.policies.push(Policy { name: first.to_owned(), config: config.clone() });
    if let Some(compare) = &compare {
        let mut read = Reading::new(at.key("compare"), &mut problems);
        check_policy(compare, &names, first, &mut read);
    }
    if problems.any_error() {
        return Err(problems.sorted());
    }
    advice::advise(&config, &file_keys, at, &mut problems);
    scenario.advice = problems.sorted();
    if let (Some(compare), Some(laid)) = (compare, laid) {
        let mut problems = Problems::new(file);
        let policy = over(text, laid, &policy_name(&compare), (&config, scenario.duration), env, &mut problems);
        scenario.compare_with(policy, problems)?;
    }
    Ok(scenario)
}

/// Has the `scenario` whose text is `base` compared with the policy `text` of a file of its own.
fn compared(
    base: &str,
    file: &str,
    text: &str,
    scenario: &mut Scenario,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<(), Vec<Problem>> {
    let mut problems = Problems::new(file);
    let needs = "`pools`, with what is other in them";
    let Some(mut document) = expanded(text, needs, env, &mut problems) else { return Err(problems.sorted()) };
    let laid = document.part(&["pools"]).map(Laid::of_another_file);
    let Some(keys) = document.read::<PolicyKeys>(&mut problems) else { return Err(problems.sorted()) };
    let config = scenario.policies[0].config.clone();
    let names: Vec<String> = config.pools.keys().cloned().collect();
    check_policy(&keys, &names, &scenario.policies[0].name, &mut Reading::new(document.at(), &mut problems));
    let Some(laid) = laid.filter(|_| !problems.any_error()) else { return Err(problems.sorted()) };
    let policy = over(base, laid, &policy_name(&keys), (&config, scenario.duration), env, &mut problems);
    scenario.compare_with(policy, problems)
}

/// The policy that comes of laying `laid` over the pools of the scenario `text`, whose members it must leave alone.
fn over(
    text: &str,
    laid: Laid,
    name: &str,
    (base, duration): (&Config, Duration),
    env: &dyn Fn(&str) -> Option<String>,
    problems: &mut Problems,
) -> Option<Policy> {
    // What it says itself was said before.
    let mut document = expanded(text, "", env, &mut problems.none_yet())?;
    document.lay_over("pools", laid);
    let mut keys = document.read::<ScenarioKeys>(problems)?;
    let at = document.at();
    let file = file_of(&mut keys, at, &mut problems.none_yet());
    let config = parse::config(&file, at, problems);
    for (name, pool) in &config.pools {
        let others = |other: &Arc<Pool>| names_of(other) != names_of(pool);
        if base.pools.get(name).is_some_and(others) {
            let at = at.key("pools").key(name).key("members");
            problems.error(at, "both policies have the same members; their weights, tiers and states may differ");
        }
    }
    let mut added = problems.none_yet();
    unplayed::name(&config, Some(base), at, &mut added);
    count_probes(&config, duration, at, &mut added);
    match problems.any_error() {
        true => problems.append(added),
        // Advice on what both have was given before.
        false => *problems = added,
    }
    (!problems.any_error()).then(|| Policy { name: name.to_owned(), config: Arc::new(config) })
}

/// `needs` is what a file with nothing in it lacks.
fn expanded(
    text: &str,
    needs: &str,
    env: &dyn Fn(&str) -> Option<String>,
    problems: &mut Problems,
) -> Option<Document> {
    let is_blank = |line: &str| line.trim_start().is_empty() || line.trim_start().starts_with('#');
    if text.lines().all(is_blank) {
        problems.error_at(Mark::START, format!("the file is empty; it needs {needs}"));
        return None;
    }
    let mut document = Document::new(text, problems)?;
    document.expand(&|_, _| None, env, problems);
    Some(document)
}

fn names(keys: &ScenarioKeys) -> Vec<String> {
    keys.pools.iter().flat_map(BTreeMap::keys).cloned().collect()
}

fn names_of(pool: &Pool) -> Vec<&str> {
    pool.members.iter().map(|member| member.name.as_str()).collect()
}

fn policy_name(keys: &PolicyKeys) -> String {
    keys.name.as_ref().map_or_else(|| "compared".to_owned(), |Spelled(Text(name))| name.clone())
}

/// A policy that is called as the `first` one is, that changes nothing, or a pool that is not there, is a slip.
fn check_policy(keys: &PolicyKeys, names: &[String], first: &str, read: &mut Reading<'_>) {
    if policy_name(keys) == first {
        read.error("name", format!("both policies are called \"{}\"; write another `name`", shown(first)));
    }
    let at = read.at.key("pools");
    let Some(pools) = keys.pools.as_ref().filter(|pools| !pools.is_empty()) else {
        if !read.at.may_have_lost("pools") && !at.damaged() {
            read.error(
                "pools",
                "a policy says what is other in which pool; write `pools: { web: { max_unhealthy_percent: 100 } }`",
            );
        }
        return;
    };
    for name in pools.keys().filter(|name| !names.contains(name)) {
        let known: Vec<&str> = names.iter().map(String::as_str).collect();
        let hint = likely(name, &known).map_or_else(String::new, |other| format!("; did you mean \"{other}\"?"));
        read.problems.error_at(at.key(name).name(), format!("the scenario has no pool \"{}\"{hint}", shown(name)));
    }
}

/// The scenario's pools and routes as a file of proxy.yaml.
fn file_of(keys: &mut ScenarioKeys, at: At<'_>, problems: &mut Problems) -> File {
    let pools = keys.pools.take();
    let mut routes = keys.routes.take();
    let only = pools.as_ref().filter(|pools| pools.len() == 1).and_then(|pools| pools.keys().next());
    if routes.is_none() && !at.lost("routes") {
        match only {
            Some(pool) => {
                let pool = Some(Spelled(Text(pool.clone())));
                routes = Some(vec![RouteKeys { pool, ..RouteKeys::default() }]);
            }
            None if pools.as_ref().is_some_and(|pools| pools.len() > 1) => {
                problems.error(
                    at.key("routes"),
                    "with several pools `routes` says where requests go; write it as in proxy.yaml",
                );
                let first = pools.as_ref().and_then(|pools| pools.keys().next()).cloned().unwrap_or_default();
                routes = Some(vec![RouteKeys { pool: Some(Spelled(Text(first))), ..RouteKeys::default() }]);
            }
            None => routes = Some(Vec::new()),
        }
    }
    // A scenario has no listeners; a file needs one.
    let listener = ListenerKeys { address: Some(Spelled(([127, 0, 0, 1], 0).into())), ..ListenerKeys::default() };
    File { listeners: Some(vec![listener]), pools, composites: keys.composites.take(), routes, ..File::default() }
}

fn scenario(file: &str, keys: &ScenarioKeys, config: &Config, at: At<'_>, problems: &mut Problems) -> Scenario {
    let stem = Path::new(file).file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let title = keys.title.as_ref().map(|Spelled(Text(title))| title.clone()).or(stem).unwrap_or_default();
    let mut read = Reading::new(at, problems);
    if keys.duration.is_none() {
        read.missing("duration", "a scenario needs a duration; write `duration: 30m`");
    }
    let duration = read.span("duration", &keys.duration, Duration::from_secs(1)..=DAY * 31).unwrap_or(DAY);
    let latency = keys
        .latency
        .map_or(Latency { mean: Duration::from_millis(20), spread: Duration::from_millis(5) }, |Spelled(l)| l);
    for (name, pool) in config.pools.iter().filter(|(_, pool)| pool.is_discovered()) {
        let at = read.at.key("pools").key(name).key("members");
        let source = if pool.services.is_empty() { "file is read" } else { "name is asked for" };
        read.problems.error(at, format!("in a scenario no {source}; write the members of \"{name}\" themselves"));
    }
    reserve_named(config, &mut read);
    unplayed::name(config, None, read.at, read.problems);
    count_probes(config, duration, read.at, read.problems);
    let traffic = traffic(keys, config, duration, &mut read);
    let story = story::story(keys.story.as_deref().unwrap_or_default(), config, duration, latency, &mut read);
    Scenario {
        title,
        duration,
        seed: keys.seed.map_or(1, |Spelled(seed)| seed),
        latency,
        policies: Vec::new(),
        traffic,
        story,
        advice: Vec::new(),
    }
}

/// Nobody is to wait for days for what a longer interval shows as well.
fn count_probes(config: &Config, duration: Duration, at: At<'_>, problems: &mut Problems) {
    let of = |pool: &Arc<Pool>| {
        let interval = pool.probe.as_ref().map_or(Duration::MAX, |probe| probe.interval);
        duration.as_nanos() / interval.as_nanos().max(1) * pool.members.len() as u128
    };
    let probes: u128 = config.pools.values().map(of).sum();
    if probes > MOST_PROBES {
        let message = format!(
            "that is {probes} probes; at most {MOST_PROBES} are simulated. Write a shorter `duration`, longer intervals or \
             fewer members"
        );
        problems.error(at.key("pools"), message);
    }
}

/// Who has an address of its own cannot have one that members are given that have a name alone.
fn reserve_named(config: &Config, read: &mut Reading<'_>) {
    let mut members = config.pools.values().flat_map(|pool| &pool.members);
    if members.all(|member| member.host.parse::<IpAddr>().is_ok()) {
        return;
    }
    for (name, pool) in &config.pools {
        for (index, member) in pool.members.iter().enumerate() {
            let octets = member.host.parse::<Ipv4Addr>().map(|address| address.octets());
            if octets.is_ok_and(|[first, second, ..]| first == NAMED[0] && second & 0xfe == NAMED[1]) {
                let at = read.at.key("pools").key(name).key("members").item(index);
                let message =
                    "addresses of 198.18.0.0/15 are given to members that have a name alone; write another one";
                read.problems.error(at, message);
            }
        }
    }
}

fn traffic(keys: &ScenarioKeys, config: &Config, duration: Duration, top: &mut Reading<'_>) -> Vec<Traffic> {
    let table = crate::route::Table::new(config.routes.clone());
    let mut all = Vec::new();
    for (index, keys) in keys.traffic.iter().flatten().enumerate() {
        let at = top.at.key("traffic").item(index);
        let mut read = Reading::new(at, top.problems);
        let text =
            |written: &Written<Text>, base: &str| written.as_ref().map_or(base, |Spelled(Text(text))| text).to_owned();
        let (host, path) = (text(&keys.host, ""), text(&keys.path, "/"));
        let until = read.span("until", &keys.until, Duration::ZERO..=duration).unwrap_or(duration);
        let from = read.span("from", &keys.from, Duration::ZERO..=until).unwrap_or_default();
        let post_percent = read.count("post_percent", &keys.post_percent, 0..=100).unwrap_or(0);
        let Some(Spelled(rate)) = keys.rate else {
            read.missing("rate", "traffic needs a rate, such as `{ rate: 50/s }`");
            continue;
        };
        if !path.starts_with('/') {
            read.error("path", format!("`{0}` must begin with `/`; write `/{0}`", shown(&path)));
        } else if !config.routes.is_empty() && table.find(&host, &path).is_none() {
            let key = if keys.path.is_some() { "path" } else { "host" };
            read.error(key, format!("no route is for {host}{path}, so all of it would get 404"));
        }
        all.push(Traffic { rate, host, path, from, until, post_percent });
    }
    let count = |one: &Traffic| (one.until - one.from).as_nanos() / one.rate.between.as_nanos().max(1);
    let requests: u128 = all.iter().map(count).sum();
    if requests > MOST_REQUESTS {
        top.error("traffic", format!("that is {requests} requests; at most {MOST_REQUESTS} are simulated"));
    }
    all
}

/// Where the member at `index` of the pool at `pool` is: its own address, or one of a range for such use.
pub fn address_of(pool: usize, index: usize, host: &str) -> IpAddr {
    let named = [NAMED[0], NAMED[1] + (pool % 2) as u8, (index / 250 + pool / 2) as u8, (index % 250 + 1) as u8];
    host.parse().unwrap_or_else(|_| named.into())
}
