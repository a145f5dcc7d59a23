//! The numbers a pool starts from: our own, or those of a system it stands in for.
//!
//! One arm for each column of "The presets in one table" (product.md). Every key that is written wins over these.
//! What all of them share with our own defaults (`initial`, fallback, the prober's User-Agent) is not repeated here.

use std::time::Duration;

use super::domain::{Idle, Passive, ProbeMethod};
use super::spelling::{Spelling, word};
use super::words::DEFAULT_SENSITIVITY;
use crate::balance::Policy;
use crate::health::Judge;

/// The system a pool stands in for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Preset {
    /// Azure App Service health check.
    AppService,
    /// Azure Front Door health probes.
    FrontDoor,
    /// Azure Application Gateway probes.
    ApplicationGateway,
}

impl Spelling for Preset {
    const EXPECTED: &'static str = "`app_service`, `front_door` or `application_gateway`";

    fn read(text: &str) -> Result<Preset, String> {
        let presets = [Preset::AppService, Preset::FrontDoor, Preset::ApplicationGateway];
        word(text, &presets.map(|preset| (preset.as_str(), preset)))
    }
}

impl Preset {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Preset::AppService => "app_service",
            Preset::FrontDoor => "front_door",
            Preset::ApplicationGateway => "application_gateway",
        }
    }
}

/// What holds where a key is not written.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Base {
    pub(super) method: ProbeMethod,
    /// `None`: there is no default path.
    pub(super) path: Option<&'static str>,
    /// Sent as Host unless `host` or `host_header` is written; `None`: the member's name.
    pub(super) host_header: Option<&'static str>,
    pub(super) interval: Duration,
    /// `None`: the interval.
    pub(super) fast_interval: Option<Duration>,
    pub(super) timeout: Duration,
    pub(super) idle: Option<Idle>,
    pub(super) status: (u16, u16),
    pub(super) judge: Judge,
    pub(super) max_unhealthy_percent: u8,
    pub(super) balance: Policy,
    pub(super) passive: Passive,
}

/// The judges where none, or only one of its numbers, is written.
pub(super) const WINDOW: (u32, u32) = (5, 3);
pub(super) const CONSECUTIVE: (u32, u32) = (3, 1);

impl Base {
    pub(super) fn of(preset: Option<Preset>) -> Base {
        match preset {
            None => Base {
                method: ProbeMethod::Get,
                path: None,
                host_header: None,
                interval: Duration::from_secs(5),
                fast_interval: Some(Duration::from_secs(1)),
                timeout: Duration::from_secs(2),
                idle: None,
                status: (200, 299),
                judge: Judge::Window { size: WINDOW.0, required: WINDOW.1 },
                max_unhealthy_percent: 50,
                balance: Policy::RoundRobin,
                passive: Passive::Hasten,
            },
            Some(Preset::AppService) => Base {
                method: ProbeMethod::Get,
                path: None,
                host_header: None,
                interval: Duration::from_secs(60),
                fast_interval: None,
                timeout: Duration::from_secs(60),
                idle: None,
                status: (200, 299),
                judge: Judge::Consecutive { failures: 10, passes: 1 },
                max_unhealthy_percent: 50,
                balance: Policy::RoundRobin,
                passive: Passive::Off,
            },
            Some(Preset::FrontDoor) => Base {
                method: ProbeMethod::Head,
                path: Some("/"),
                host_header: None,
                interval: Duration::from_secs(30),
                fast_interval: None,
                timeout: Duration::from_secs(10),
                idle: Some(Idle { after: Duration::from_secs(5 * 60), interval: Duration::from_secs(2 * 60) }),
                status: (200, 200),
                judge: Judge::Window { size: 4, required: 3 },
                max_unhealthy_percent: 100,
                balance: Policy::Fastest { sensitivity: DEFAULT_SENSITIVITY },
                passive: Passive::Off,
            },
            Some(Preset::ApplicationGateway) => Base {
                method: ProbeMethod::Get,
                path: Some("/"),
                host_header: Some("127.0.0.1"),
                interval: Duration::from_secs(30),
                fast_interval: None,
                timeout: Duration::from_secs(30),
                idle: None,
                status: (200, 399),
                judge: Judge::Consecutive { failures: 3, passes: 1 },
                max_unhealthy_percent: 100,
                balance: Policy::RoundRobin,
                passive: Passive::Off,
            },
        }
    }
}
