use super::*;
use std::collections::BTreeSet;

use crate::alert::conditions::{Roll, Standings};
use crate::config;
use crate::health::Mode;
use crate::telemetry::{Event, Kind, Severity};

/// The alerts of a file, and everything that has happened.
struct Stage {
    alerts: Vec<Alert>,
    conditions: Conditions,
    episodes: Episodes,
    ids: u32,
    now: u64,
}

impl Stage {
    /// One alert on these.
    fn on(on: &str) -> Stage {
        Stage { alerts: alerts(on), conditions: Conditions::default(), episodes: Episodes::default(), ids: 0, now: 0 }
    }

    fn moment(&self) -> Moment {
        let monotonic = Duration::from_secs(self.now);
        Moment { monotonic, wall: SystemTime::UNIX_EPOCH + monotonic }
    }

    /// Something is heard at this second; returns what is told.
    fn hear(&mut self, now: u64, event: Event) -> Vec<String> {
        self.now = now;
        let touched = self.conditions.hear(self.moment(), &event, |_, pool| pool == "web");
        self.settle(Some((&touched, &event.message)))
    }

    /// Nothing is heard; returns what is told.
    fn wait(&mut self, now: u64) -> Vec<String> {
        self.now = now;
        self.settle(None)
    }

    fn settle(&mut self, heard: Option<(&[Key], &str)>) -> Vec<String> {
        let (now, is_about) = (self.moment(), |_: &Alert, _: &Subject| true);
        let because = heard.map(|(_, because)| because);
        let step = Step { now, alerts: &self.alerts, conditions: &self.conditions, is_about: &is_about, because };
        let ids = &mut self.ids;
        let new_id = || {
            *ids += 1;
            ids.to_string()
        };
        let told = match heard {
            Some((keys, _)) => self.episodes.settle(&step, keys, new_id),
            None => self.episodes.settle_all(&step, new_id),
        };
        let told = told.iter().map(|telling| {
            let Telling { episode, phase, .. } = telling;
            let since = episode.since.monotonic.as_secs();
            format!("{} {} {} since {since}", episode.id, episode.key.0.as_str(), phase.as_str())
        });
        told.collect()
    }

    /// Everybody is there, and these are due; returns what is told.
    fn call(&mut self, due: &[&str]) -> Vec<String> {
        let (now, roll) = (self.moment(), self.roll(due));
        let touched = self.conditions.call(now, &roll);
        touched.iter().flat_map(|(key, _)| self.settle(Some((std::slice::from_ref(key), "heard")))).collect()
    }

    fn roll(&self, due: &[&str]) -> Roll {
        let due: BTreeSet<Subject> = due.iter().map(|name| member_named(name)).collect();
        Roll { there: self.conditions.members().union(&due).cloned().collect(), due: Some(due) }
    }

    fn deadline(&self) -> Option<u64> {
        self.episodes.next_deadline(&self.alerts, &self.conditions).map(|at| at.as_secs())
    }
}

fn alerts(on: &str) -> Vec<Alert> {
    let text = format!(
        "listeners: [{{ address: \"127.0.0.1:0\" }}]\npools: {{ web: {{ members: [\"10.0.0.1:80\"] }} }}\n\
         routes: [{{ pool: web }}]\n\
         alerts: [{{ webhook: {{ url: \"http://ops.test\", secret: s3cret }}, on: [{on}] }}]\n"
    );
    config::parse("a.yaml", &text, &|_| None).expect("a good file").config.alerts
}

fn member_named(name: &str) -> Subject {
    Subject::Member("web".to_owned(), name.to_owned())
}

fn event(kind: Kind) -> Event {
    Event { pool: Some("web".to_owned()), ..Event::new(kind, Severity::Info, "heard".to_owned()) }
}

fn mode(mode: Mode) -> Event {
    Event { mode: Some(mode.as_str()), ..event(Kind::Pool) }
}

fn member(kind: Kind, from: &str, to: &str) -> Event {
    Event {
        member: Some("10.0.0.1:80".to_owned()),
        from: Some(from.to_owned()),
        to: Some(to.to_owned()),
        ..event(kind)
    }
}

#[test]
fn an_episode_is_told_once_and_its_end_once() {
    let mut stage = Stage::on("fallback, down");
    let rows: [(u64, Mode, &[&str]); 6] = [
        (1, Mode::Normal, &[]),
        (2, Mode::Fallback, &["1 fallback firing since 2"]),
        (3, Mode::Fallback, &[]),
        (5, Mode::Down, &["2 down firing since 5", "1 fallback resolved since 2"]),
        (6, Mode::Capped, &["2 down resolved since 5"]),
        (7, Mode::Fallback, &["3 fallback firing since 7"]),
    ];
    for (now, to, told) in rows {
        assert_eq!(stage.hear(now, mode(to)), told, "at {now}");
        assert_eq!(stage.wait(now), [""; 0], "at {now}, looked at again");
    }
    let observed = Event { observed: true, ..mode(Mode::Normal) };
    assert_eq!(stage.hear(8, observed), [""; 0], "what would have been is not");
}

#[test]
fn what_has_to_last_is_told_when_it_has() {
    let mut stage = Stage::on("capped for 10s");
    assert_eq!(stage.hear(1, mode(Mode::Capped)), [""; 0]);
    assert_eq!((stage.deadline(), stage.wait(10).len()), (Some(11), 0));
    assert_eq!(stage.hear(10, mode(Mode::Normal)), [""; 0], "it was nothing");
    assert_eq!(stage.deadline(), None);
    assert_eq!(stage.hear(12, mode(Mode::Capped)), [""; 0]);
    assert_eq!(stage.wait(22), ["2 capped firing since 12"]);
    assert_eq!(stage.deadline(), None);
    assert_eq!(stage.hear(30, mode(Mode::Normal)), ["2 capped resolved since 12"]);
}

#[test]
fn a_member_flaps_when_its_verdict_changes_often_and_until_it_stays() {
    let mut stage = Stage::on("flapping 3 in 10s");
    let (down, up) = (("healthy", "unhealthy"), ("unhealthy", "healthy"));
    let mut told = Vec::new();
    for (now, (from, to)) in [(0, ("unknown", "healthy")), (1, down), (12, up), (14, down), (21, up), (25, down)] {
        told.extend(stage.hear(now, member(Kind::Member, from, to)));
    }
    assert_eq!(told, ["1 flapping firing since 21"]);
    assert_eq!((stage.deadline(), stage.wait(34).len()), (Some(35), 0));
    assert_eq!(stage.wait(35), ["1 flapping resolved since 21"]);
    assert_eq!(stage.deadline(), None);
}

#[test]
fn a_replacement_is_one_episode_whatever_it_goes_through() {
    let mut stage = Stage::on("replacement");
    let rows: [(&str, &[&str]); 7] = [
        ("deferred", &["1 replacement firing since 1"]),
        ("started", &[]),
        ("failed", &[]),
        ("started", &[]),
        ("done", &["1 replacement resolved since 1"]),
        ("refused", &[]),
        ("spared", &["2 replacement firing since 7"]),
    ];
    for (at, (to, told)) in rows.into_iter().enumerate() {
        assert_eq!(stage.hear(at as u64 + 1, member(Kind::Remediation, "", to)), told, "{to}");
    }
    // it has recovered by itself
    let recovered = member(Kind::Member, "unhealthy", "healthy");
    assert_eq!(stage.hear(9, recovered), [""; 0], "who is due is looked at");
    assert_eq!(stage.call(&[]), ["2 replacement resolved since 7"]);
    assert!(!stage.conditions.is_in_doubt());
    // at the end of the process nobody is replaced any more, and the member is as it was
    stage.hear(10, member(Kind::Remediation, "", "queued"));
    stage.call(&["10.0.0.1:80"]);
    let dropped = Event { reason: Some("ending"), ..member(Kind::Remediation, "", "dropped") };
    assert_eq!(stage.hear(11, dropped), [""; 0]);
}

#[test]
fn whoever_is_due_is_told_of_though_only_the_first_are_named() {
    let mut stage = Stage::on("replacement");
    let (first, second, third) = ("10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80");
    assert_eq!(stage.hear(1, member(Kind::Remediation, "", "deferred")).len(), 1);
    let further = |to: &str| Event { to: Some(to.to_owned()), count: Some(2), ..event(Kind::Remediation) };
    assert_eq!(stage.hear(1, further("deferred")), [""; 0]);
    assert!(stage.conditions.is_in_doubt());
    let begun = stage.call(&[first, second, third]);
    assert_eq!(begun, ["2 replacement firing since 1", "3 replacement firing since 1"]);
    assert_eq!(stage.conditions.because(&(Occasion::Replacement, member_named(second))), Some("heard"));
    assert_eq!(stage.call(&[first, second, third]), [""; 0]);
    // some are, without a word of each
    stage.hear(2, further("over"));
    assert_eq!(stage.call(&[first]), ["2 replacement resolved since 1", "3 replacement resolved since 1"]);
    // how it stands is looked at when somebody else serves, and when nobody has listened
    let look = |stage: &mut Stage, due: &[&str]| {
        let standings = Standings { roll: stage.roll(due), ..Standings::default() };
        stage.conditions.look(stage.moment(), &standings);
        stage.wait(3)
    };
    assert_eq!(look(&mut stage, &[first]), [""; 0]);
    assert_eq!(look(&mut stage, &[third]), ["1 replacement resolved since 1", "4 replacement firing since 3"]);
    assert_eq!(look(&mut stage, &[]), ["4 replacement resolved since 3"]);
    // where nobody knows it is as it was
    stage.call(&[first]);
    let standings = Standings { roll: Roll { due: None, ..stage.roll(&[first]) }, ..Standings::default() };
    stage.conditions.look(stage.moment(), &standings);
    assert_eq!(stage.wait(4), [""; 0]);
}

#[test]
fn a_member_that_is_gone_flaps_no_more_though_nobody_named_it() {
    let mut stage = Stage::on("flapping 2 in 1h");
    stage.hear(1, member(Kind::Member, "healthy", "unhealthy"));
    assert_eq!(stage.hear(2, member(Kind::Member, "unhealthy", "healthy")), ["1 flapping firing since 2"]);
    let further = Event { to: Some("removed".to_owned()), count: Some(2), ..event(Kind::Member) };
    assert_eq!(stage.hear(3, further), [""; 0]);
    assert!(stage.conditions.is_in_doubt());
    let touched = stage.conditions.call(stage.moment(), &Roll::default());
    let keys: Vec<Key> = touched.into_iter().map(|(key, _)| key).collect();
    assert_eq!(stage.settle(Some((&keys, "heard"))), ["1 flapping resolved since 2"]);
}

#[test]
fn a_route_and_a_composite_are_told_of_too() {
    let mut stage = Stage::on("failover, composite");
    let route = |pool: &str| Event {
        route: Some("shop".to_owned()),
        pool: Some(pool.to_owned()),
        to: Some(pool.to_owned()),
        ..event(Kind::Failover)
    };
    assert_eq!(stage.hear(1, route("web-us")), ["1 failover firing since 1"]);
    assert_eq!(stage.hear(2, route("web")), ["1 failover resolved since 1"]);
    let composite = |to: &str| Event {
        pool: None,
        composite: Some("eu".to_owned()),
        to: Some(to.to_owned()),
        ..event(Kind::Composite)
    };
    let rows: [(&str, &[&str]); 5] = [
        ("UNKNOWN", &[]),
        ("UNHEALTHY", &["2 composite firing since 4"]),
        ("UNKNOWN", &[]),
        ("HEALTHY", &["2 composite resolved since 4"]),
        ("UNKNOWN", &[]),
    ];
    for (at, (to, told)) in rows.into_iter().enumerate() {
        assert_eq!(stage.hear(at as u64 + 3, composite(to)), told, "{to}");
    }
}

#[test]
fn an_episode_goes_on_over_a_reload_and_ends_with_who_asked_for_it_or_what_it_was_of() {
    let present = |modes: &[(&str, Mode)]| Standings {
        modes: modes.iter().map(|(pool, mode)| ((*pool).to_owned(), *mode)).collect(),
        ..Standings::default()
    };
    let fallback = present(&[("web", Mode::Fallback)]);
    let begun = || {
        let mut stage = Stage::on("fallback, down");
        assert_eq!(stage.hear(1, mode(Mode::Fallback)).len(), 1);
        stage
    };
    let rows: [(&str, &str, &Standings, &[&str]); 4] = [
        ("nothing is another", "fallback, down", &fallback, &[]),
        ("it has to last longer", "fallback for 5m", &fallback, &[]),
        ("it is not asked for", "down", &fallback, &["1 fallback resolved since 1"]),
        ("the pool is gone", "fallback", &Standings::default(), &["1 fallback resolved since 1"]),
    ];
    for (what, on, standings, told) in rows {
        let mut stage = begun();
        stage.alerts = alerts(on);
        stage.conditions.look(stage.moment(), standings);
        assert_eq!(stage.wait(2), told, "{what}");
    }
    let mut stage = begun();
    stage.alerts.clear();
    assert_eq!(stage.wait(2), [""; 0], "nobody is there to be told");
    // who is asked for later is told of what is already so
    stage.alerts = alerts("fallback");
    assert_eq!(stage.wait(3), ["2 fallback firing since 1"]);
    // a pool that was in it while nobody listened
    let mut stage = Stage::on("fallback");
    stage.conditions.look(stage.moment(), &fallback);
    assert_eq!(stage.wait(4), ["1 fallback firing since 0"]);
}

#[test]
fn what_could_not_be_told_is_told_later() {
    let mut stage = Stage::on("fallback");
    let touched = stage.conditions.hear(stage.moment(), &mode(Mode::Fallback), |_, _| true);
    let is_about = |_: &Alert, _: &Subject| true;
    let now = stage.moment();
    let step = Step { now, alerts: &stage.alerts, conditions: &stage.conditions, is_about: &is_about, because: None };
    let told = stage.episodes.settle(&step, &touched, || "a".to_owned());
    stage.episodes.lose(&told[0]);
    assert_eq!(stage.wait(5), ["1 fallback firing since 0"]);
}
