//! Ten thousand members, each probed every 5 s: how late probes begin, and what they cost in processor time and memory.
//!
//! It runs the program itself against an origin on every address of 127/8, in this process; so the figures are of a machine
//! that does both. `docs/scale.md` has those of one machine, and how to make them again.
//!
//! `cargo bench --profile quick --bench probe_scale -- [MEMBERS] [INTERVAL] [SECONDS] [KEYS OF THE FILE]`

#![expect(clippy::disallowed_methods, reason = "what is measured is measured over a time")]

use std::error::Error;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

type Fallible<T> = Result<T, Box<dyn Error>>;

/// What is measured.
struct Plan {
    members: u32,
    interval: String,
    seconds: u64,
    /// Further keys at the top of the file.
    keys: String,
}

/// A proxy that runs.
struct Proxy {
    child: Child,
    admin: SocketAddr,
}

fn main() -> Fallible<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // `cargo test` runs benches too, to see that they do.
    if !arguments.iter().any(|argument| argument == "--bench") {
        return Ok(());
    }
    let mut arguments = arguments.into_iter().filter(|argument| argument != "--bench");
    let mut next = |default: &str| arguments.next().unwrap_or_else(|| default.to_owned());
    let plan =
        Plan { members: next("10000").parse()?, interval: next("5s"), seconds: next("30").parse()?, keys: next("") };
    let (origin, _runtime) = origin()?;
    let dir = tempfile::tempdir()?;
    let few =
        Proxy::start(dir.path(), origin, &Plan { members: 10, ..plan.of(10) })?.resident(Duration::from_secs(3))?;
    measure(dir.path(), origin, &plan, few)
}

/// Starts it, lets the first round pass, watches it and says what was seen; `few` is the memory of one with ten members.
fn measure(dir: &Path, origin: SocketAddr, plan: &Plan, few: u64) -> Fallible<()> {
    let began = Instant::now();
    let mut proxy = Proxy::start(dir, origin, plan)?;
    proxy
        .until("first verdicts", |proxy| Ok(proxy.get("/readyz").is_ok_and(|page| page.starts_with("HTTP/1.1 200"))))?;
    let ready = began.elapsed();
    proxy.until("the first round", |proxy| {
        Ok(total(&proxy.metrics()?, "pulsegate_probe_total") >= f64::from(plan.members))
    })?;
    let first_round = began.elapsed();
    // The second round begins on the grid.
    std::thread::sleep(Duration::from_secs(6));
    let before = proxy.metrics()?;
    let (cpu, at) = (proxy.cpu()?, Instant::now());
    std::thread::sleep(Duration::from_secs(plan.seconds));
    let (busy, watched) = (proxy.cpu()? - cpu, at.elapsed().as_secs_f64());
    let resident = proxy.resident(Duration::ZERO)?;
    let after = proxy.metrics()?;
    let probes = total(&after, "pulsegate_probe_total") - total(&before, "pulsegate_probe_total");
    let failed = failures(&after);
    println!(
        "{} members every {}: ready after {ready:.1?}, first round within {first_round:.1?}",
        plan.members, plan.interval
    );
    println!(
        "{:.0} probes a second, {failed:.0} failed in all; asked for {:.0}",
        probes / watched,
        total(&after, "pulsegate_probes_per_second ")
    );
    let quantile = |share| late(&before, &after, share);
    println!(
        "late: p50 <= {}, p99 <= {}, p99.9 <= {}, max <= {}",
        quantile(0.5),
        quantile(0.99),
        quantile(0.999),
        quantile(1.0)
    );
    println!("processor: {:.1} % of one, {:.0} us a probe", 100.0 * busy / watched, 1e6 * busy / probes);
    let each = resident.saturating_sub(few) / u64::from(plan.members);
    println!("memory: {:.1} MiB resident, {:.1} KiB a member", resident as f64 / 1048576.0, each as f64 / 1024.0);
    Ok(())
}

impl Plan {
    fn of(&self, members: u32) -> Plan {
        Plan { members, interval: self.interval.clone(), seconds: self.seconds, keys: self.keys.clone() }
    }

    fn file(&self, origin: SocketAddr, admin: SocketAddr) -> String {
        let mut text = format!(
            "listeners: [{{ address: \"127.0.0.1:0\" }}]\nadmin: {{ address: \"{admin}\" }}\naccess_log: off\n{}\nroutes: [{{ pool: web }}]\n\
             pools:\n  web:\n    probe: {{ path: /healthz, interval: {} }}\n    members:\n",
            self.keys, self.interval
        );
        for nth in 0..self.members {
            let ip = Ipv4Addr::from(0x7f01_0001 + nth);
            let _ = writeln!(text, "      - \"{ip}:{}\"", origin.port());
        }
        text
    }
}

impl Proxy {
    fn start(dir: &Path, origin: SocketAddr, plan: &Plan) -> Fallible<Proxy> {
        let admin = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let file = dir.join("proxy.yaml");
        std::fs::write(&file, plan.file(origin, admin))?;
        let mut command = Command::new(env!("CARGO_BIN_EXE_pulsegate"));
        command.arg("run").arg("-c").arg(&file).stdout(Stdio::null()).stderr(Stdio::null());
        let mut proxy = Proxy { child: command.spawn()?, admin };
        proxy.until("the admin listener", |proxy| Ok(TcpStream::connect(proxy.admin).is_ok()))?;
        Ok(proxy)
    }

    fn until(&mut self, what: &str, holds: impl Fn(&Proxy) -> Fallible<bool>) -> Fallible<()> {
        let began = Instant::now();
        while !holds(self)? {
            if began.elapsed() > Duration::from_secs(120) || self.child.try_wait()?.is_some() {
                return Err(format!("no sign of {what}").into());
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(())
    }

    fn get(&self, path: &str) -> Fallible<String> {
        let mut stream = TcpStream::connect(self.admin)?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut page = String::new();
        stream.read_to_string(&mut page)?;
        Ok(page)
    }

    fn metrics(&self) -> Fallible<String> {
        self.get("/metrics")
    }

    /// Seconds of processor time so far.
    fn cpu(&self) -> Fallible<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks: f64 = fields[11].parse::<f64>()? + fields[12].parse::<f64>()?;
        Ok(ticks / 100.0)
    }

    /// Bytes that are resident, after a while.
    fn resident(&self, after: Duration) -> Fallible<u64> {
        std::thread::sleep(after);
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
        Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An origin on every address of this machine that answers 200 to whatever it is asked.
fn origin() -> Fallible<(SocketAddr, tokio::runtime::Runtime)> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let listener = runtime.block_on(tokio::net::TcpListener::bind("0.0.0.0:0"))?;
    let address = listener.local_addr()?;
    runtime.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream));
        }
    });
    Ok((address, runtime))
}

async fn answer(mut stream: tokio::net::TcpStream) -> std::io::Result<()> {
    let (mut seen, mut buffer) = (Vec::new(), [0; 1024]);
    while !seen.ends_with(b"\r\n\r\n") {
        let count = stream.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        seen.extend_from_slice(&buffer[..count]);
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await?;
    // The prober closes.
    while stream.read(&mut buffer).await? > 0 {}
    Ok(())
}

/// The sum of a family's series.
fn total(page: &str, name: &str) -> f64 {
    let values = page.lines().filter(|line| line.starts_with(name)).filter_map(|line| line.rsplit(' ').next());
    values.filter_map(|value| value.parse::<f64>().ok()).sum()
}

fn failures(page: &str) -> f64 {
    let failed = |line: &&str| line.starts_with("pulsegate_probe_total") && line.contains("result=\"fail\"");
    // From a zero that is positive: the sum of nothing is not.
    page.lines().filter(failed).filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).fold(0.0, |a, b| a + b)
}

/// The bound of the bucket that so many of the probes between two pages fall under.
fn late(before: &str, after: &str, share: f64) -> String {
    let buckets = |page: &str| -> Vec<(String, f64)> {
        let lines = page.lines().filter_map(|line| line.strip_prefix("pulsegate_probe_lateness_seconds_bucket{le=\""));
        lines
            .filter_map(|line| line.split_once("\"} "))
            .filter_map(|(le, count)| Some((le.to_owned(), count.parse().ok()?)))
            .collect()
    };
    let counts: Vec<_> = buckets(before).into_iter().zip(buckets(after)).map(|((le, b), (_, a))| (le, a - b)).collect();
    let all = counts.last().map_or(0.0, |(_, count)| *count);
    let bound = counts.iter().find(|(_, count)| *count >= all * share).map(|(le, _)| le.clone());
    bound.map_or_else(|| "unknown".to_owned(), |bound| format!("{bound} s"))
}
