//! `pulsegate demo`: the proxy on the shipped proxy.yaml, with embedded origins that misbehave in turn.
//!
//! It is the real program: the same code, and a copy of that file, its access log elsewhere, that can be edited while it runs.
//! Only the origins and the audience are ours; examples/failover has them too.

mod audience;
mod origin;
mod story;
mod traffic;

use std::error::Error;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use origin::{Mood, Origin};

use super::output::print;
use crate::config::{self, Config};
use crate::control::SetupError;
use crate::telemetry::Logging;
use crate::{clock, server};

/// The file at the top of the repository.
const SHIPPED: &str = include_str!("../../../proxy.yaml");

/// Runs the demo for `limit`, or until it is interrupted. With `any_port` every port is a free one.
pub fn run(limit: Option<Duration>, any_port: bool, logging: &Logging) -> Result<(), Box<dyn Error>> {
    let stage = Stage::set()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let shipped = config::parse("proxy.yaml", SHIPPED, &config::environment).map_err(|p| format!("{p:?}"))?.config;
    let origins = runtime.block_on(async { open(&shipped, any_port) })?;
    let listener = listener(&shipped, any_port)?;
    let admin = shipped.admin.as_ref().map(|admin| admin.address).ok_or("the shipped file has no admin listener")?;
    let admin = if any_port { free_port()? } else { admin };
    for address in [listener, admin] {
        // Before anything is said of them; the server binds them for good.
        let tried = std::net::TcpListener::bind(address);
        tried.map_err(|error| format!("cannot listen on {address}: {error} (try --any-port)"))?;
    }
    stage.write(&shipped, &origins, listener, admin)?;
    print(&introduction(&stage, listener, admin, &origins))?;
    runtime.spawn(traffic::flow(listener));
    runtime.spawn(tell(origins, admin));
    server::run(stage.config.clone(), limit, logging).map_err(|error| match error {
        SetupError::Bind { .. } => format!("{error} (try --any-port)").into(),
        _ => Box::<dyn Error>::from(error),
    })?;
    Ok(print("the demo is over\n")?)
}

/// A directory for this run's files.
struct Stage {
    directory: PathBuf,
    config: PathBuf,
    access_log: PathBuf,
}

impl Stage {
    fn set() -> std::io::Result<Stage> {
        let directory = std::env::temp_dir().join(format!("pulsegate-demo-{}", std::process::id()));
        fs::create_dir_all(&directory)?;
        let (config, access_log) = (directory.join("proxy.yaml"), directory.join("access.log"));
        Ok(Stage { directory, config, access_log })
    }

    /// Writes the shipped file with this run's ports, and the access log beside it instead of on stdout.
    fn write(
        &self,
        shipped: &Config,
        origins: &[Origin],
        listener: SocketAddr,
        admin: SocketAddr,
    ) -> std::io::Result<()> {
        let mut text = SHIPPED.replace("path: stdout", &format!("path: {}", self.access_log.display()));
        let written = members(shipped);
        let ports = written.iter().copied().zip(origins.iter().map(|origin| origin.address));
        let ports = ports.chain([(shipped.listeners[0].address, listener)]);
        let ports = ports.chain(shipped.admin.iter().map(|a| (a.address, admin)));
        for (from, to) in ports {
            text = text.replace(&from.to_string(), &to.to_string());
        }
        fs::write(&self.config, text)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // Left behind only if somebody else wrote into it.
        let _ = fs::remove_file(&self.config);
        let _ = fs::remove_file(&self.access_log);
        let _ = fs::remove_dir(&self.directory);
    }
}

/// The different members of the shipped file, in its order.
fn members(shipped: &Config) -> Vec<SocketAddr> {
    let mut members: Vec<SocketAddr> =
        shipped.pools.values().flat_map(|pool| &pool.members).filter_map(|m| m.name.parse().ok()).collect();
    members.sort_unstable();
    members.dedup();
    members
}

fn open(shipped: &Config, any_port: bool) -> Result<Vec<Origin>, String> {
    let start = |mut address: SocketAddr| {
        if any_port {
            address.set_port(0);
        }
        Origin::start(address).map_err(|e| format!("an origin cannot listen on {address}: {e} (try --any-port)"))
    };
    members(shipped).into_iter().map(start).collect()
}

fn listener(shipped: &Config, any_port: bool) -> Result<SocketAddr, Box<dyn Error>> {
    if any_port { free_port() } else { Ok(shipped.listeners.first().ok_or("no listener")?.address) }
}

/// A port that was free a moment ago.
fn free_port() -> Result<SocketAddr, Box<dyn Error>> {
    Ok(std::net::TcpListener::bind(("127.0.0.1", 0))?.local_addr()?)
}

fn introduction(stage: &Stage, listener: SocketAddr, admin: SocketAddr, origins: &[Origin]) -> String {
    let pid = std::process::id();
    let show = |path: &Path| path.display().to_string();
    let mut lines = vec![
        "pulsegate demo: four origins that misbehave in turn, and a proxy that copes. Try, in another terminal:"
            .to_owned(),
        String::new(),
        format!("  curl -i http://{listener}/                    a request through the proxy"),
        format!("  curl -s http://{admin}/api/v1/pools/web       how each member stands, and why"),
    ];
    lines.extend(origins.first().map(|origin| {
        let member = origin.address;
        format!("  curl -s -X POST http://{admin}/api/v1/pools/web/members/{member}/drain    (or disable; enable has it back)")
    }));
    lines.extend([
        String::new(),
        format!("  every request, with the health of who served it:  tail -f {}", show(&stage.access_log)),
        format!("  edit {}: it is taken when it is saved (or by kill -HUP {pid})", show(&stage.config)),
    ]);
    lines.join("\n") + "\n\n"
}

/// Tells the story, over and over: of each turn what was done, and what comes of it while all four members take part.
async fn tell(origins: Vec<Origin>, admin: SocketAddr) {
    for turn in story::STORY.iter().cycle() {
        tokio::time::sleep(turn.after).await;
        if let Some(origin) = origins.get(turn.origin) {
            origin.turn(turn.mood);
            let meanwhile = if turn.so.is_empty() { None } else { audience::meanwhile(admin).await };
            let so = meanwhile.unwrap_or_else(|| turn.so.to_owned());
            let stop = if so.is_empty() { "" } else { "; " };
            say(&format!("---- origin {}: {}{stop}{so}", origin.address, turn.words));
        }
    }
}

/// A line of the demo's own, with the time as the log beside it has it. Where it cannot be written the demo goes on.
pub fn say(line: &str) {
    drop(print(&format!("{} {line}\n", humantime::format_rfc3339_millis(clock::wall()))));
}
