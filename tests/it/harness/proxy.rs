//! `pulsegate run` on a configuration of the case's own, on ports the kernel chose, and what its log, its access log and
//! its admin API say.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use serde_json::Value;
use tempfile::TempDir;

use super::client::{self, Connection, Reply};
use super::origin::Origin;
use super::process::{Line, Process};
use super::wait::{eventually, eventually_some};

/// A probe that notices soon: at most one interval until the first contrary sample, then 50 ms apart. Its timeout is
/// long enough that a busy machine fails no member that answers.
pub const PROBE: &str = "probe: { path: /healthz, interval: 500ms, fast_interval: 50ms, timeout: 500ms, consecutive: { failures: 2, passes: 1 } }";

/// A running proxy.
#[derive(Debug)]
pub struct Proxy {
    process: Process,
    dir: TempDir,
    listeners: BTreeMap<String, SocketAddr>,
    admin: Option<SocketAddr>,
}

impl Proxy {
    /// Starts on this configuration and waits until it serves. Sections the case does not write are added: one listener
    /// named `web`, the admin listener, the access log on stdout, no lame duck.
    #[track_caller]
    pub fn start(config: &str) -> Proxy {
        Proxy::start_with(config, &[])
    }

    /// One pool `web` of these members with [`PROBE`] and `more` keys, and a route to it.
    #[track_caller]
    pub fn of(members: &[&Origin], more: &str) -> Proxy {
        Proxy::start(&pool_config(members, more))
    }

    /// As [`Proxy::start`], with these environment variables.
    #[track_caller]
    pub fn start_with(config: &str, env: &[(&str, &str)]) -> Proxy {
        Proxy::launch(config, |dir, args| Process::start(dir, args, env))
    }

    /// As [`Proxy::start`], with no more than this many file descriptors.
    #[track_caller]
    pub fn start_with_descriptors(config: &str, descriptors: u32) -> Proxy {
        Proxy::start_after(config, &["sh"], &format!("ulimit -n {descriptors}"))
    }

    /// As [`Proxy::start`], in a shell that has done something before.
    #[track_caller]
    pub fn start_after(config: &str, shell: &[&str], before: &str) -> Proxy {
        Proxy::launch(config, |dir, args| Process::start_after(dir, args, shell, before))
    }

    /// As [`Proxy::start`], with its standard output at this path.
    #[track_caller]
    pub fn start_with_stdout(config: &str, stdout: &Path) -> Proxy {
        Proxy::launch(config, |dir, args| Process::start_with_stdout(dir, args, stdout))
    }

    /// As [`Proxy::start`], on the file that `place` has made of the folder with `proxy.yaml` in it.
    #[track_caller]
    pub fn start_at(config: &str, place: impl FnOnce(&Path) -> PathBuf) -> Proxy {
        Proxy::launch_at(config, place, |dir, args| Process::start(dir, args, &[]))
    }

    #[track_caller]
    fn launch(config: &str, start: impl FnOnce(&Path, &[&str]) -> Process) -> Proxy {
        Proxy::launch_at(config, |dir| dir.join("proxy.yaml"), start)
    }

    #[track_caller]
    fn launch_at(
        config: &str,
        place: impl FnOnce(&Path) -> PathBuf,
        start: impl FnOnce(&Path, &[&str]) -> Process,
    ) -> Proxy {
        let dir = tempfile::tempdir().expect("a temporary folder");
        write_config(dir.path(), config);
        let path = place(dir.path());
        let process = start(dir.path(), &["run", "--config", &path.to_string_lossy()]);
        let mut proxy = Proxy { process, dir, listeners: BTreeMap::new(), admin: None };
        eventually("the proxy serves", || {
            if let Some(status) = proxy.process.ended() {
                panic!("the proxy ended at start: {status}");
            }
            proxy.process.stderr.lines().iter().any(|line| line.text("message") == "serving")
        });
        for line in proxy.process.stderr.lines().iter().filter(|line| line.text("message") == "listening") {
            let address = line.text("address").parse().expect("an address in the listening line");
            match line.text("kind") {
                "admin" => proxy.admin = Some(address),
                _ => drop(proxy.listeners.insert(line.text("listener").to_owned(), address)),
            }
        }
        proxy
    }

    /// Where the listener is, of which there is one.
    #[track_caller]
    pub fn address(&self) -> SocketAddr {
        assert_eq!(self.listeners.len(), 1, "not one listener: {:?}", self.listeners);
        *self.listeners.values().next().expect("one")
    }

    /// Where the listener of this name is.
    #[track_caller]
    pub fn listener(&self, name: &str) -> SocketAddr {
        *self.listeners.get(name).unwrap_or_else(|| panic!("no listener {name}: {:?}", self.listeners))
    }

    /// Where the admin listener is.
    #[track_caller]
    pub fn admin(&self) -> SocketAddr {
        self.admin.expect("an admin listener")
    }

    /// Of its process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Its working folder.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// GET on a connection of its own.
    #[track_caller]
    pub fn get(&self, path: &str) -> Reply {
        client::get(self.address(), path)
    }

    /// One request on a connection of its own.
    #[track_caller]
    pub fn request(&self, method: &str, path: &str, fields: &[&str], body: &str) -> Reply {
        client::request(self.address(), method, path, fields, body)
    }

    /// A new connection.
    #[track_caller]
    pub fn connect(&self) -> Connection {
        Connection::open(self.address())
    }

    /// GET on the admin listener.
    #[track_caller]
    pub fn admin_get(&self, path: &str) -> Reply {
        client::request(self.admin(), "GET", path, &[&format!("Host: {}", self.admin())], "")
    }

    /// POST on the admin listener, as a program does.
    #[track_caller]
    pub fn admin_post(&self, path: &str, fields: &[&str]) -> Reply {
        let host = format!("Host: {}", self.admin());
        client::request(self.admin(), "POST", path, &[&[host.as_str()], fields].concat(), "")
    }

    /// A pool as the API shows it.
    #[track_caller]
    pub fn pool(&self, pool: &str) -> Value {
        let reply = self.admin_get(&format!("/api/v1/pools/{pool}"));
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()
    }

    /// A member as the API shows it.
    #[track_caller]
    pub fn member(&self, pool: &str, address: &str) -> Value {
        let shown = self.pool(pool);
        let members = shown["members"].as_array().expect("members");
        let found = members.iter().find(|member| member["address"] == address);
        found.unwrap_or_else(|| panic!("no member {address} in {shown}")).clone()
    }

    /// Waits until the member of pool `web` has this standing.
    #[track_caller]
    pub fn await_standing(&self, origin: &Origin, standing: &str) {
        let what = format!("{} stands {standing}", origin.address());
        eventually(&what, || self.member("web", &origin.address())["standing"] == standing);
    }

    /// The same of another pool.
    #[track_caller]
    pub fn await_standing_of(&self, pool: &str, origin: &Origin, standing: &str) {
        let what = format!("{} stands {standing} in {pool}", origin.address());
        eventually(&what, || self.member(pool, &origin.address())["standing"] == standing);
    }

    /// Waits until every member of pool `web` is judged healthy; the pool serves as soon as one is.
    #[track_caller]
    pub fn await_all_healthy(&self) {
        eventually("every member of pool web is healthy", || {
            let pool = self.pool("web");
            pool["members"].as_array().is_some_and(|members| members.iter().all(|m| m["verdict"] == "healthy"))
        });
    }

    /// Waits until pool `web` is in this mode.
    #[track_caller]
    pub fn await_mode(&self, mode: &str) {
        eventually(&format!("pool web is {mode}"), || self.pool("web")["mode"] == mode);
    }

    /// A place in the event log: what follows it is new. What the API shows already has its line before it, though lines
    /// come a moment later than what they tell of.
    #[track_caller]
    pub fn mark(&self) -> usize {
        if let Some(id) = self.last_event() {
            eventually("the log has the events so far", || {
                let lines = self.log();
                lines.iter().rev().any(|line| line.text("target") == "health" && line.json["id"].as_u64() >= Some(id))
            });
        }
        self.process.stderr.len()
    }

    /// The id of the latest event, where there is one and the API tells whoever asks.
    fn last_event(&self) -> Option<u64> {
        self.shown("/api/v1/events?limit=1")?["last_id"].as_u64().filter(|id| *id > 0)
    }

    /// What the API shows, where it does so to whoever asks.
    fn shown(&self, path: &str) -> Option<Value> {
        let reply = client::try_request(self.admin?, "GET", path, &["Host: localhost"], "").ok()?;
        (reply.status == 200).then(|| reply.json())
    }

    /// Every line on stderr so far.
    pub fn log(&self) -> Vec<Line> {
        self.process.stderr.lines()
    }

    /// Every health event so far with all these fields.
    pub fn events(&self, fields: &[(&str, &str)]) -> Vec<Line> {
        self.log().into_iter().filter(|line| line.text("target") == "health" && line.has(fields)).collect()
    }

    /// Waits for a health event with all these fields after `mark`.
    #[track_caller]
    pub fn await_event(&self, mark: usize, fields: &[(&str, &str)]) -> Line {
        let wanted = |line: &Line| line.text("target") == "health" && line.has(fields);
        self.process.stderr.find(&format!("an event with {fields:?}"), mark, wanted)
    }

    /// Waits for a line on stderr that is `wanted`, after `mark`.
    #[track_caller]
    pub fn await_log(&self, what: &str, mark: usize, wanted: impl Fn(&Line) -> bool) -> Line {
        self.process.stderr.find(what, mark, wanted)
    }

    /// The access log so far.
    pub fn access_log(&self) -> Vec<Line> {
        self.process.stdout.lines()
    }

    /// Waits for the access-log line of a request, by its path.
    #[track_caller]
    pub fn access(&self, path: &str) -> Line {
        self.await_access(&format!("path {path}"), |line| line.text("path") == path)
    }

    /// Waits for an access-log line.
    #[track_caller]
    pub fn await_access(&self, what: &str, wanted: impl Fn(&Line) -> bool) -> Line {
        self.process.stdout.find(&format!("access log: {what}"), 0, wanted)
    }

    /// Waits until the access log has the lines of all requests that are over: lines come in order, so the line of one
    /// more request is behind them.
    #[track_caller]
    pub fn settle_access_log(&self, sentinel: &str) {
        self.get(sentinel);
        self.access(sentinel);
    }

    /// Sends a signal by its name.
    #[track_caller]
    pub fn signal(&self, name: &str) {
        self.process.signal(name);
    }

    /// Writes another configuration over the first, completed in the same way.
    pub fn rewrite(&self, config: &str) {
        write_config(self.dir.path(), config);
    }

    /// Rewrites, sends SIGHUP and waits until the new configuration is in force.
    #[track_caller]
    pub fn reload(&self, config: &str) {
        self.rewrite(config);
        let mark = self.mark();
        self.signal("HUP");
        let line = self.await_log("a reload", mark, |line| line.text("kind") == "reload");
        assert!(!line.is_error(), "refused: {}", line.raw);
        // The line may be of the watcher, who was quicker; ours would be taken for that of the next reload then.
        eventually("the reload that was asked for", || self.last_cause().is_none_or(|cause| cause == "signal"));
    }

    /// Who wanted the latest reload, where the API tells whoever asks.
    fn last_cause(&self) -> Option<String> {
        let shown = self.shown("/api/v1/reload")?;
        shown["last"]["cause"].as_str().map(str::to_owned)
    }

    /// Rewrites, has it reloaded by the API, and returns the report.
    #[track_caller]
    pub fn report(&self, config: &str) -> Value {
        self.rewrite(config);
        let reply = self.admin_post("/api/v1/reload", &[]);
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()
    }

    /// How it stands with the file, as the API shows it.
    #[track_caller]
    pub fn reloads(&self) -> Value {
        let reply = self.admin_get("/api/v1/reload");
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()
    }

    /// Sends SIGHUP and waits until the reload was refused; its problems are logged before.
    #[track_caller]
    pub fn reload_is_refused(&self) {
        let mark = self.mark();
        self.signal("HUP");
        let refused = |line: &Line| line.is_error() && line.text("message").contains("refused");
        self.await_log("the refusal of a reload", mark, refused);
    }

    /// Waits for the end of the process.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        self.process.wait()
    }

    /// True while the process lives.
    pub fn is_running(&mut self) -> bool {
        self.process.ended().is_none()
    }

    /// Sends `count` GETs, each on its own connection and under its own path below `base`, and returns their lines.
    #[track_caller]
    pub fn sample(&self, base: &str, count: usize) -> Vec<Line> {
        let mut connection = self.connect();
        for i in 0..count {
            connection.get(&format!("{base}/{i}"));
        }
        let prefix = format!("{base}/");
        eventually_some(&format!("{count} lines below {base} in the access log"), || {
            let lines: Vec<Line> =
                self.access_log().into_iter().filter(|line| line.text("path").starts_with(&prefix)).collect();
            (lines.len() >= count).then_some(lines)
        })
    }
}

/// One pool `web` of these members with [`PROBE`] and `more` keys (lines, or empty), and a route to it.
pub fn pool_config(members: &[&Origin], more: &str) -> String {
    let members: Vec<String> = members.iter().map(ToString::to_string).collect();
    config_of(&members, &format!("{PROBE}\n{more}"))
}

/// One pool `web` of these members, as YAML, with these keys, and a route to it.
pub fn config_of(members: &[String], keys: &str) -> String {
    let keys: String = keys.lines().map(|line| format!("    {line}\n")).collect();
    format!("pools:\n  web:\n    members: [{}]\n{keys}routes: [{{ pool: web }}]\n", members.join(", "))
}

/// Adds the sections the case did not write.
pub fn completed(config: &str) -> String {
    let written = |key: &str| config.lines().any(|line| line.starts_with(key));
    let added = [
        ("listeners:", r#"listeners: [{ address: "127.0.0.1:0", name: web }]"#),
        ("admin:", r#"admin: { address: "127.0.0.1:0" }"#),
        ("access_log:", "access_log: { path: stdout }"),
        ("lame_duck:", "lame_duck: 0s"),
    ];
    let added = added.iter().filter(|(key, _)| !written(key)).map(|(_, line)| format!("{line}\n"));
    added.collect::<String>() + config
}

/// Writes `proxy.yaml` in one step, so that no reader sees half of it.
pub fn write_config(dir: &Path, config: &str) -> PathBuf {
    let (path, part) = (dir.join("proxy.yaml"), dir.join("proxy.yaml.part"));
    std::fs::write(&part, completed(config)).expect("the folder is ours");
    std::fs::rename(&part, &path).expect("the folder is ours");
    path
}
