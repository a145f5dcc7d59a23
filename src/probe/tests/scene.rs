//! A prober, its origins, and what it reports.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use tokio::runtime::Runtime;

use super::origin::{Origin, Step, ok};
use super::*;
use crate::health::{MemberId, Pace};
use crate::probe::{Allowance, Counters, Prober, Report, Target};

/// Far longer than any test: a probe at this interval comes once.
pub(super) const NEVER: Duration = Duration::from_secs(3600);

/// Reports as they come, and origins to probe.
pub(super) struct Scene {
    pub(super) runtime: Runtime,
    pub(super) prober: Prober,
    pub(super) reports: Receiver<(MemberId, u64, Duration, Sample)>,
    pub(super) sender: Sender<(MemberId, u64, Duration, Sample)>,
    planned: Mutex<HashMap<MemberId, Arc<AtomicU64>>>,
}

impl Scene {
    pub(super) fn new(places: usize) -> Scene {
        Scene::allowed(places, Allowance::unbounded())
    }

    pub(super) fn allowed(places: usize, allowance: Allowance) -> Scene {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (sender, reports) = channel();
        Scene { runtime, prober: Prober::start(places, allowance).unwrap(), reports, sender, planned: Mutex::default() }
    }

    pub(super) fn origin(&self, script: Vec<Step>) -> Origin {
        self.runtime.block_on(Origin::playing(script))
    }

    pub(super) fn healthy(&self) -> Origin {
        self.origin(vec![Step::Read, Step::Write(ok("fine").into_bytes())])
    }

    pub(super) fn target(&self, member: u64, fingerprint: u64, origin: SocketAddr, interval: Duration) -> Target {
        let (member, sender) = (MemberId(member), self.sender.clone());
        let report: Report = Arc::new(move |now, sample, _| {
            sender.send((member, fingerprint, now, sample)).ok()?;
            Some(Pace::Steady)
        });
        self.reporting(member, fingerprint, origin, interval, report)
    }

    pub(super) fn reporting(
        &self,
        member: MemberId,
        fingerprint: u64,
        origin: SocketAddr,
        interval: Duration,
        report: Report,
    ) -> Target {
        let name = format!("app{}.test", member.0);
        Target {
            pool: "web".into(),
            member,
            fingerprint,
            definition: fingerprint,
            label: format!("{name}:80").into(),
            // A name of its own makes it a question of its own.
            check: Arc::new(Check::single(&probe(ProbeKind::Http(http_probe())), &name, origin).unwrap()),
            interval,
            fast_interval: interval,
            idle: None,
            report,
            next_probe_at: self.planned.lock().unwrap().entry(member).or_default().clone(),
        }
    }

    #[track_caller]
    pub(super) fn report(&self) -> (MemberId, u64, Duration, Sample) {
        self.reports.recv_timeout(PATIENCE).expect("a report")
    }

    /// Waits until `holds`.
    #[track_caller]
    pub(super) fn until(&self, what: &str, holds: impl Fn() -> bool) {
        let wait = async {
            while !holds() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        self.runtime.block_on(async { tokio::time::timeout(PATIENCE, wait).await }).expect(what);
    }

    pub(super) fn count(&self, counter: impl Fn(&Counters) -> &AtomicU64) -> u64 {
        counter(self.prober.counters()).load(Relaxed)
    }
}
