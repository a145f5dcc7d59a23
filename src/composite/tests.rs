//! Composites over living pools: what is told, when, and how often.

use proptest::prelude::*;

use super::*;
use crate::balance::Policy;
use crate::config::Config;
use crate::health::{Admin, Key, Reason, Sample, Spec};
use crate::pool::{Audience, Limits, Plan, Pool};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Pools that may serve from the start, one sample is enough; each of the composites over them as written.
fn config(composites: &str) -> Config {
    let pool = |name: &str, keys: &str| {
        format!(
            "  {name}: {{ members: [\"10.0.0.1:80\"], probe: {{ path: /, consecutive: {{ failures: 1, passes: 1 }} }}, {keys} }}\n"
        )
    };
    let pools =
        [pool("api", "initial: healthy"), pool("web", "initial: healthy"), pool("cold", "initial: probe")].concat();
    let text = format!(
        "listeners: [{{ address: \"127.0.0.1:0\" }}]\npools:\n{pools}composites: {composites}\nroutes: [{{ pool: api }}]\n"
    );
    crate::config::parse("a.yaml", &text, &|_| None).unwrap_or_else(|problems| panic!("{problems:?}")).config
}

struct Stage {
    events: Arc<EventLog>,
    composites: Arc<Composites>,
    pools: HashMap<String, Arc<Pool>>,
    seen: u64,
}

impl Stage {
    /// Four members in each pool.
    fn new(composites: &str) -> Stage {
        let config = config(composites);
        let events = Arc::new(EventLog::default());
        let composites = Arc::new(Composites::new(events.clone()));
        let audience = Arc::new(Audience { events: events.clone(), onlookers: vec![composites.clone()] });
        let spec = |number: u8| {
            let name = format!("10.0.0.{number}:80");
            let key = Key { address: name.parse().ok(), name, tls: false };
            Spec { key, weight: 1, split: 1, tier: 0, admin: Admin::Enabled, source: None, roll: None, fingerprint: 7 }
        };
        let pool = |(name, pool): (&String, &Arc<config::Pool>)| {
            let plan = Plan {
                rules: pool.rules.clone(),
                observed: None,
                policy: Policy::RoundRobin,
                budget_percent: 20,
                members: (1..=4).map(spec).collect(),
                limits: Limits::default(),
            };
            (name.clone(), Arc::new(Pool::new(name, ms(0), plan, audience.clone())))
        };
        let pools = config.pools.iter().map(pool).collect();
        let mut stage = Stage { events, composites, pools, seen: 0 };
        stage.follow(0, &config);
        stage
    }

    fn follow(&mut self, at: u64, config: &Config) {
        self.composites
            .follow(ms(at), &config.composites, &config.tried_composites, |pool| Some(self.pools.get(pool)?.roster()));
    }

    fn report(&self, at: u64, pool: &str, member: usize, sample: Sample) {
        let pool = &self.pools[pool];
        pool.report(ms(at), pool.roster().members()[member].id(), 7, sample);
    }

    fn fail(&self, at: u64, pool: &str, member: usize) {
        self.report(at, pool, member, Sample::fail(Reason::Status, ms(1)));
    }

    fn pass(&self, at: u64, pool: &str, member: usize) {
        self.report(at, pool, member, Sample::pass(ms(1)));
    }

    /// What was told of composites and their sources since the last look.
    fn told(&mut self) -> Vec<String> {
        let events = self.events.since(self.seen, 1_000);
        self.seen = self.events.last_id();
        let own = events.iter().filter(|event| event.kind == crate::telemetry::Kind::Composite);
        own.map(|event| event.message.clone()).collect()
    }

    fn state(&self, name: &str) -> State {
        self.composites.state(name).expect("there is one")
    }
}

#[test]
fn each_change_of_a_source_and_of_a_composite_is_told_once_from_below() {
    let mut stage = Stage::new("{ region: { sources: [front, api] }, front: { sources: [web, api] } }");
    assert_eq!((stage.told(), stage.state("region")), (vec![], State::Healthy), "so it began");
    stage.fail(1, "web", 0);
    assert_eq!(stage.told(), Vec::<String>::new(), "3 of 4");
    let report = stage.composites.report("front").unwrap();
    assert_eq!(report.sources[0].count, Count { healthy: 3, unknown: 0, total: 4 }, "and seen all the same");
    stage.fail(2, "web", 1);
    assert_eq!(
        stage.told(),
        [
            "pool web as a whole is UNHEALTHY, was HEALTHY: 2 of 4 members healthy",
            "composite front is UNHEALTHY, was HEALTHY: web UNHEALTHY (2 of 4 members healthy)",
            "composite region is UNHEALTHY, was HEALTHY: front UNHEALTHY (1 of 2 sources healthy)",
        ]
    );
    let report = stage.composites.report("region").unwrap();
    assert_eq!((report.state, report.since, report.sources[0].since), (State::Unhealthy, ms(2), ms(2)));
    stage.fail(3, "api", 0);
    stage.fail(4, "api", 1);
    assert_eq!(
        stage.told(),
        ["pool api as a whole is UNHEALTHY, was HEALTHY: 2 of 4 members healthy"],
        "the composites were so already"
    );
    stage.pass(5, "web", 0);
    stage.pass(6, "api", 0);
    assert_eq!(
        stage.told(),
        [
            "pool web as a whole is HEALTHY, was UNHEALTHY: 3 of 4 members healthy",
            "pool api as a whole is HEALTHY, was UNHEALTHY: 3 of 4 members healthy",
            "composite front is HEALTHY, was UNHEALTHY: all 2 sources are healthy",
            "composite region is HEALTHY, was UNHEALTHY: all 2 sources are healthy",
        ]
    );
    assert_eq!((stage.state("region"), stage.composites.report("region").unwrap().since), (State::Healthy, ms(6)));
}

#[test]
fn first_verdicts_are_waited_for() {
    let mut stage = Stage::new("{ region: { sources: [cold, api] } }");
    assert_eq!(stage.state("region"), State::Unknown);
    stage.pass(1, "cold", 0);
    assert_eq!((stage.told(), stage.state("region")), (vec![], State::Unknown), "1 of 4 known");
    stage.pass(2, "cold", 1);
    stage.pass(3, "cold", 2);
    assert_eq!(stage.state("region"), State::Healthy);
    assert_eq!(stage.told().len(), 2);
    // A pool that nobody has for a source is nobody's business.
    (0..4).for_each(|member| stage.fail(4, "web", member));
    assert_eq!(stage.told(), Vec::<String>::new());
}

#[test]
fn one_that_only_observes_is_told_and_nothing_goes_by_it() {
    let mut stage = Stage::new("{ region: { sources: [web], observe: true }, all: { sources: [region, api] } }");
    (0..2).for_each(|member| stage.fail(1, "web", member));
    assert_eq!(
        stage.told(),
        [
            "observed (region): pool web as a whole is UNHEALTHY, was HEALTHY: 2 of 4 members healthy",
            "observed (region): composite region is UNHEALTHY, was HEALTHY: web UNHEALTHY (2 of 4 members healthy)",
            "observed (region): composite all is UNHEALTHY, was HEALTHY: region UNHEALTHY (0 of 1 source healthy)",
        ]
    );
    assert_eq!((stage.composites.state("region"), stage.state("all")), (None, State::Healthy));
    let observed = stage.composites.all().1;
    assert_eq!((observed.len(), &*observed[0].name, observed[0].state), (1, "region", State::Unhealthy));
    // What is so for both is told once.
    (0..2).for_each(|member| stage.pass(2, "web", member));
    stage.told();
    (0..2).for_each(|member| stage.fail(3, "api", member));
    let told = stage.told();
    assert_eq!(told.iter().filter(|words| words.contains("composite all is UNHEALTHY")).count(), 1, "{told:#?}");
    assert_eq!(stage.composites.would_be("all"), None, "it does more than observe");
}

#[test]
fn each_is_told_with_those_that_make_the_difference() {
    let mut stage = Stage::new(
        "{ one: { sources: [web], observe: true }, two: { sources: [one, api], observe: true }, other: { sources: [cold], observe: true }, \
           top: { sources: [two, api] } }",
    );
    (0..2).for_each(|member| stage.fail(1, "web", member));
    let told = stage.told();
    let rules: Vec<&str> = told.iter().filter_map(|words| words.split(" is ").next()).collect();
    assert_eq!(
        rules,
        [
            "observed (one): pool web as a whole",
            "observed (one): composite one",
            "observed (two): composite two",
            "observed (two): composite top",
        ]
    );
    let observed: Vec<String> = stage.composites.all().1.iter().map(|report| report.name.to_string()).collect();
    assert_eq!(observed, ["one", "other", "two"]);
    assert_eq!(
        ["one", "other", "top"].map(|name| stage.composites.would_be(name)),
        [Some(State::Unhealthy), Some(State::Unknown), None]
    );
}

#[test]
fn one_that_begins_to_count_knows_its_state_and_since_when_and_one_that_ends_goes_quietly() {
    let written =
        |observe: &str| format!("{{ region: {{ sources: [web]{observe} }}, all: {{ sources: [region, api] }} }}");
    let (tried, in_force) = (written(", observe: true"), written(""));
    let mut stage = Stage::new(&tried);
    (0..2).for_each(|member| stage.fail(1, "web", member));
    stage.told();
    stage.follow(2, &config(&in_force));
    assert_eq!(
        stage.told(),
        [
            "composite region is UNHEALTHY, only observed until now: web UNHEALTHY (2 of 4 members healthy)",
            "composite all is UNHEALTHY, was HEALTHY: region UNHEALTHY (0 of 1 source healthy)",
        ]
    );
    let since = |stage: &Stage| {
        let report = stage.composites.report("region").or_else(|| stage.composites.all().1.first().cloned());
        report.map(|report| (report.state, report.since, report.sources[0].since))
    };
    assert_eq!(since(&stage), Some((State::Unhealthy, ms(1), ms(1))));
    assert!(stage.composites.all().1.is_empty());

    stage.follow(3, &config(&tried));
    assert_eq!(stage.told(), ["composite all is HEALTHY, was UNHEALTHY: its source is healthy"]);
    assert_eq!((since(&stage), stage.composites.state("region")), (Some((State::Unhealthy, ms(1), ms(1))), None));

    // One that a reload brings is new, whether it counts or not.
    stage.follow(4, &config(&tried.replacen('{', "{ more: { sources: [api], observe: true },", 1)));
    assert_eq!(stage.told(), ["observed (more): composite more is HEALTHY, is new: its source is healthy"]);
}

#[test]
fn a_reload_keeps_what_is_known_and_looks_at_other_sources_at_once() {
    let mut stage = Stage::new("{ region: { sources: [api] }, gone: { sources: [web] } }");
    (0..2).for_each(|member| stage.fail(1, "api", member));
    stage.told();
    stage.follow(5, &config("{ region: { sources: [api] } }"));
    assert_eq!(stage.told(), Vec::<String>::new(), "nothing is another, and who goes goes quietly");
    assert_eq!((stage.state("region"), stage.composites.state("gone")), (State::Unhealthy, None));
    let report = stage.composites.report("region").unwrap();
    assert_eq!((report.since, report.sources[0].since), (ms(1), ms(1)));
    stage.follow(6, &config("{ region: { sources: [web] }, new: { sources: [region, api] } }"));
    assert_eq!(
        stage.told(),
        [
            "composite region is HEALTHY, was UNHEALTHY: its source is healthy",
            "composite new is UNHEALTHY, is new: api UNHEALTHY (2 of 4 members healthy)",
        ]
    );
    assert_eq!(stage.composites.report("region").unwrap().since, ms(6));
    stage.follow(7, &config("{}"));
    assert!(stage.told().is_empty() && stage.composites.reports().is_empty());
}

#[test]
fn half_of_a_reload_is_not_looked_at() {
    let mut stage = Stage::new("{ region: { sources: [api, web] } }");
    (0..2).for_each(|member| stage.fail(1, "web", member));
    stage.told();
    // What is broken moves from one pool to the other.
    stage.composites.hold();
    stage.pass(2, "web", 0);
    assert_eq!((stage.told(), stage.state("region")), (vec![], State::Unhealthy));
    (0..2).for_each(|member| stage.fail(2, "api", member));
    stage.follow(2, &config("{ region: { sources: [api, web] } }"));
    assert_eq!(
        stage.told(),
        [
            "pool api as a whole is UNHEALTHY, was HEALTHY: 2 of 4 members healthy",
            "pool web as a whole is HEALTHY, was UNHEALTHY: 3 of 4 members healthy",
        ]
    );
    assert_eq!(stage.composites.report("region").unwrap().since, ms(1));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_told_adds_up_to_what_is_so(
        acts in prop::collection::vec((0_usize..3, 0_usize..4, any::<bool>()), 1..80),
    ) {
        let mut stage = Stage::new(
            "{ low: { sources: [api, cold] }, high: { sources: [low, web] }, try: { sources: [low, web], observe: true } }",
        );
        let names = ["api", "web", "cold"];
        let mut known: HashMap<String, String> = HashMap::new();
        known.insert("try".to_owned(), stage.state("high").published().to_owned());
        for name in ["low", "high"] {
            known.insert(name.to_owned(), stage.state(name).published().to_owned());
        }
        for name in names {
            known.insert(name.to_owned(), stage.pools[name].roster().state().published().to_owned());
        }
        for (at, (pool, member, passes)) in acts.into_iter().enumerate() {
            let at = at as u64 + 1;
            if passes { stage.pass(at, names[pool], member) } else { stage.fail(at, names[pool], member) }
            let events = stage.events.since(stage.seen, 1_000);
            stage.seen = stage.events.last_id();
            for event in events.iter().filter(|event| event.kind == crate::telemetry::Kind::Composite) {
                let name = event.pool.clone().or(event.composite.clone()).unwrap();
                prop_assert_eq!(event.observed, name == "try");
                let was = known.insert(name, event.to.clone().unwrap());
                prop_assert_eq!(was, event.from.clone(), "from where the last one left it");
                prop_assert_ne!(&event.from, &event.to);
            }
            for name in ["low", "high"] {
                prop_assert_eq!(&known[name], stage.state(name).published());
            }
            prop_assert_eq!(stage.composites.would_be("try"), stage.composites.state("high"));
            let pools: Vec<State> = names.iter().map(|name| stage.pools[*name].roster().state()).collect();
            prop_assert_eq!(stage.state("high") == State::Healthy, pools.iter().all(|state| *state == State::Healthy));
        }
    }
}

#[test]
fn threads_that_report_at_once_lose_no_change() {
    let mut stage = Stage::new("{ region: { sources: [api, web] } }");
    std::thread::scope(|scope| {
        for pool in ["api", "web"] {
            for member in 0..4 {
                let stage = &stage;
                scope.spawn(move || {
                    for at in 0..20 {
                        stage.fail(at, pool, member);
                        stage.pass(at, pool, member);
                    }
                });
            }
        }
    });
    let mut known = HashMap::from([("api", State::Healthy), ("web", State::Healthy), ("region", State::Healthy)]);
    let events = stage.events.since(0, 1_000);
    for event in events.iter().filter(|event| event.kind == crate::telemetry::Kind::Composite) {
        let name = event.pool.as_deref().or(event.composite.as_deref()).unwrap();
        let (_, state) = known.iter_mut().find(|(known, _)| **known == name).unwrap();
        assert_eq!(event.from.as_deref(), Some(state.published()), "{}", event.message);
        *state = State::ALL.into_iter().find(|to| event.to.as_deref() == Some(to.published())).unwrap();
    }
    assert_eq!(known["region"], State::Healthy);
    stage.told();
}
