//! What is behind a member: how it answers at a time, by the story. It remembers nothing of whom it answered.

use std::time::Duration;

use super::Truth;
use crate::config::scenario::{Ill, Latency, Manner};
use crate::config::{Probe, ProbeKind};
use crate::health::{Outcome, Phases, Reason, Sample};

/// A refusal is fast.
const REFUSAL: Duration = Duration::from_millis(1);

/// One origin.
#[derive(Debug, Clone)]
pub(super) struct Origin {
    manner: Manner,
    /// Since when it is of this manner.
    since: Duration,
    latency: Latency,
    /// What its chance begins with: its own, so that it is the same whoever asks it how often.
    seed: u64,
}

/// What comes back, if it is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reply {
    /// An answer with this status.
    Status(u16),
    /// No connection, at once.
    Refusal,
    /// The connection is closed without an answer.
    Reset,
    /// A connection, and nothing more.
    Silence,
    /// Not even a connection.
    Nothing,
}

impl Origin {
    pub(super) fn new(latency: Latency, seed: u64) -> Origin {
        Origin { manner: Manner::Well, since: Duration::ZERO, latency, seed }
    }

    pub(super) fn behaves(&mut self, now: Duration, manner: Manner) {
        (self.manner, self.since) = (manner, now);
    }

    pub(super) fn takes(&mut self, latency: Latency) {
        self.latency = latency;
    }

    /// What it answers at `now`, and how long that takes.
    pub(super) fn reply(&self, now: Duration) -> (Reply, Duration) {
        let took = self.took(now);
        match self.ill(now) {
            None => (Reply::Status(200), took),
            Some(Ill::Status(status)) => (Reply::Status(status), took),
            Some(Ill::Refuses) => (Reply::Refusal, REFUSAL),
            Some(Ill::Resets) => (Reply::Reset, took),
            Some(Ill::Freezes) => (Reply::Silence, Duration::MAX),
            Some(Ill::Vanishes) => (Reply::Nothing, Duration::MAX),
        }
    }

    /// How it is at `now`, as a pool with this probe has it: ill where a probe would not get the answer it wants, or not in its
    /// time, by the mean. Gates (`max_latency`) are no part of it: whether who is slow is ill is what they judge.
    pub(super) fn truth(&self, now: Duration, probe: Option<&Probe>) -> Truth {
        let waits = probe.filter(|probe| probe.kind != ProbeKind::Tcp).map(|probe| probe.timeout);
        let is_late = waits.is_some_and(|timeout| self.latency.mean > timeout);
        match self.ill(now) {
            None if is_late => Truth::Ill,
            None => Truth::Well,
            Some(Ill::Status(status)) if accepts(probe, status) && !is_late => Truth::Well,
            Some(_) => Truth::Ill,
        }
    }

    /// When it next turns from well to ill, or back, by itself.
    pub(super) fn turns_at(&self, now: Duration) -> Option<Duration> {
        let Manner::Flaps { well_for, ill_for, .. } = self.manner else { return None };
        let into = self.since_it_was_well(now, well_for + ill_for);
        Some(now + if into < well_for { well_for - into } else { well_for + ill_for - into })
    }

    fn ill(&self, now: Duration) -> Option<Ill> {
        match self.manner {
            Manner::Well => None,
            Manner::Ill(ill) => Some(ill),
            Manner::Flaps { well_for, ill_for, how } => {
                (self.since_it_was_well(now, well_for + ill_for) >= well_for).then_some(how)
            }
        }
    }

    fn since_it_was_well(&self, now: Duration, cycle: Duration) -> Duration {
        let since = now.saturating_sub(self.since).as_nanos();
        Duration::from_nanos((since % cycle.as_nanos().max(1)) as u64)
    }

    fn took(&self, now: Duration) -> Duration {
        let Latency { mean, spread } = self.latency;
        let width = spread.as_nanos() as u64 * 2 + 1;
        let drawn = mixed(self.seed ^ now.as_nanos() as u64) % width;
        mean - spread + Duration::from_nanos(drawn)
    }
}

/// What a probe makes of a reply, and how long it takes. The words are those of the prober (`probe::fault`).
pub(super) fn sample(probe: &Probe, reply: Reply, took: Duration) -> Sample {
    let fail = |reason, detail: String, total| Sample { detail, ..Sample::fail(reason, total) };
    let within = |what: &str| format!("{what} within {}", humantime::format_duration(probe.timeout));
    let is_tcp = probe.kind == ProbeKind::Tcp;
    match reply {
        Reply::Refusal => fail(Reason::Refused, "Connection refused (os error 111)".to_owned(), took),
        Reply::Nothing => fail(Reason::ConnectTimeout, within("no connection"), probe.timeout),
        _ if is_tcp => Sample::pass(took.min(REFUSAL)),
        Reply::Reset => fail(Reason::Reset, "closed without an answer".to_owned(), took),
        Reply::Silence => fail(Reason::Timeout, within("no answer"), probe.timeout),
        Reply::Status(_) if took > probe.timeout => fail(Reason::Timeout, within("no answer"), probe.timeout),
        Reply::Status(status) => {
            let phases = Phases { first_byte: Some(took), total: took, ..Phases::default() };
            let (outcome, detail) = match accepts(Some(probe), status) {
                true => (Outcome::Pass, String::new()),
                false => (Outcome::Fail(Reason::Status), format!("{status}, expected {}", expected(probe))),
            };
            Sample { outcome, detail, status: Some(status), phases }
        }
    }
}

/// Whether a member that answers so is well.
fn accepts(probe: Option<&Probe>, status: u16) -> bool {
    match probe.map(|probe| &probe.kind) {
        Some(ProbeKind::Http(http)) => http.expect.status.iter().any(|(low, high)| (*low..=*high).contains(&status)),
        Some(ProbeKind::Grpc(_)) => status == 200,
        Some(ProbeKind::Tcp) => true,
        None => status < 500,
    }
}

fn expected(probe: &Probe) -> String {
    let ProbeKind::Http(http) = &probe.kind else { return "200".to_owned() };
    let range = |(low, high): &(u16, u16)| if low == high { low.to_string() } else { format!("{low}-{high}") };
    http.expect.status.iter().map(range).collect::<Vec<_>>().join(",")
}

/// A number that looks like chance (splitmix64).
pub(super) fn mixed(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    #[test]
    fn one_that_flaps_is_well_first_and_turns_at_its_times() {
        let mut origin = Origin::new(Latency { mean: s(0), spread: s(0) }, 1);
        origin.behaves(s(10), Manner::Flaps { well_for: s(2), ill_for: s(3), how: Ill::Refuses });
        let truths: Vec<Truth> = (10..16).map(|at| origin.truth(s(at), None)).collect();
        assert_eq!(truths, [Truth::Well, Truth::Well, Truth::Ill, Truth::Ill, Truth::Ill, Truth::Well]);
        assert_eq!((origin.turns_at(s(10)), origin.turns_at(s(13))), (Some(s(12)), Some(s(15))));
    }

    #[test]
    fn one_whose_probes_time_out_is_ill_and_one_that_a_gate_calls_slow_is_not() {
        let text = "listeners: [{ address: \"127.0.0.1:0\" }]\npools:\n  web: { members: [\"10.0.0.1:80\"], \
                    probe: { path: /, timeout: 2s, max_latency: 1s } }\n  tcp: { members: [\"10.0.0.1:80\"], probe: tcp }\n\
                    routes: [{ pool: web }, { path: /tcp, pool: tcp }]\n";
        let config = crate::config::parse("a.yaml", text, &|_| None).expect("a good file").config;
        for (mean, pool, truth) in [
            (s(1), "web", Truth::Well),
            (s(2), "web", Truth::Well),
            (s(3), "web", Truth::Ill),
            (s(9), "tcp", Truth::Well),
        ] {
            let mut origin = Origin::new(Latency { mean: s(0), spread: s(0) }, 1);
            origin.takes(Latency { mean, spread: s(0) });
            assert_eq!(origin.truth(s(1), config.pools[pool].probe.as_deref()), truth, "{mean:?} {pool}");
        }
    }

    #[test]
    fn latencies_keep_within_their_spread_and_reach_both_ends_nearly() {
        let (mean, spread) = (Duration::from_millis(100), Duration::from_millis(40));
        let origin = Origin::new(Latency { mean, spread }, 7);
        let took: Vec<Duration> = (0..1000).map(|at| origin.reply(s(at)).1).collect();
        let (least, most) = (took.iter().min(), took.iter().max());
        assert!(least.is_some_and(|l| *l >= mean - spread && *l < mean - spread * 9 / 10), "{least:?}");
        assert!(most.is_some_and(|m| *m <= mean + spread && *m > mean + spread * 9 / 10), "{most:?}");
    }
}
