//! Two regions and an edge (README.md beside it): starts their origins and three pulsegates, sends a steady traffic through
//! the edge, and prints what comes of it while origins are stopped and started.

use std::collections::BTreeMap;
use std::error::Error;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use clap::Parser;
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use pulsegate::cli::demo::{Mood, Origin, say};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

/// Origins of a region.
const ORIGINS: usize = 4;
/// Between two requests of the traffic.
const PACE: Duration = Duration::from_millis(20);
/// How long a pulsegate may take until it serves.
const PATIENCE: Duration = Duration::from_secs(30);

/// Two regions and an edge that fails over between them
#[derive(Debug, Parser)]
struct Args {
    /// The program
    #[arg(long)]
    pulsegate: PathBuf,
    /// The folder with region.yaml and edge.yaml
    #[arg(long)]
    files: PathBuf,
    /// Tell the story, and end after so many seconds: at least 30, or there is no time to go back
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(30..))]
    seconds: Option<u64>,
}

/// What happens to region one, at which share of the whole time.
const STORY: [(f64, &[usize], Mood, &str); 4] = [
    (0.08, &[0], Mood::Dead, "origin 1 of region one is stopped: 3 of 4 are 75 %, nothing happens at the edge"),
    (
        0.20,
        &[1],
        Mood::Dead,
        "origin 2 of region one is stopped: 2 of 4 are 50 %, its aggregate breaks and the edge leaves",
    ),
    (0.35, &[2, 3], Mood::Dead, "origins 3 and 4 of region one are stopped: nobody notices any more"),
    (
        0.50,
        &[0, 1, 2, 3],
        Mood::Well,
        "all origins of region one are started again: the edge goes back after its failback_delay",
    ),
];

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let folder = Folder::new()?;
    let (one, two) = (Region::start("one", &args).await?, Region::start("two", &args).await?);
    let edge = Edge::start(&one, &two, &folder, &args).await?;
    introduce(&one, &two, &edge, &folder, args.seconds.is_some());
    let seen = Arc::new(Mutex::new(Seen::default()));
    let names = origins(&one, "one").chain(origins(&two, "two")).collect();
    let audience = [tokio::spawn(flow(edge.address, names, seen.clone())), tokio::spawn(report(seen.clone()))];
    let story = async {
        match args.seconds {
            Some(seconds) => tell(&one, Duration::from_secs(seconds)).await,
            None => follow_orders(&one, &two).await,
        }
    };
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        () = story => {}
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
    // First whoever asks, so that the end of the edge is nobody's failure.
    for task in audience {
        task.abort();
        let _ = task.await;
    }
    edge.pulsegate.end().await;
    one.pulsegate.end().await;
    two.pulsegate.end().await;
    let seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    println!("all requests: {}, of them without a 200: {}", seen.all, seen.failed);
    Ok(())
}

/// A pulsegate and its origins.
struct Region {
    address: SocketAddr,
    admin: SocketAddr,
    origins: Vec<Origin>,
    pulsegate: Pulsegate,
}

impl Region {
    async fn start(name: &'static str, args: &Args) -> Result<Region, Box<dyn Error>> {
        let start = |_| Origin::start(([127, 0, 0, 1], 0).into());
        let origins = (0..ORIGINS).map(start).collect::<Result<Vec<_>, _>>()?;
        let (address, admin) = (free()?, free()?);
        let mut env = vec![("LISTEN".to_owned(), address.to_string()), ("ADMIN".to_owned(), admin.to_string())];
        let named = |(at, origin): (usize, &Origin)| (format!("ORIGIN_{}", at + 1), origin.address.to_string());
        env.extend(origins.iter().enumerate().map(named));
        let pulsegate = Pulsegate::start(name, "region.yaml", &env, args).await?;
        Ok(Region { address, admin, origins, pulsegate })
    }
}

/// The pulsegate in front.
struct Edge {
    address: SocketAddr,
    admin: SocketAddr,
    pulsegate: Pulsegate,
}

impl Edge {
    async fn start(one: &Region, two: &Region, folder: &Folder, args: &Args) -> Result<Edge, Box<dyn Error>> {
        let (address, admin) = (free()?, free()?);
        let env = [
            ("LISTEN".to_owned(), address.to_string()),
            ("ADMIN".to_owned(), admin.to_string()),
            ("REGION_ONE".to_owned(), one.address.to_string()),
            ("REGION_TWO".to_owned(), two.address.to_string()),
            ("ACCESS_LOG".to_owned(), folder.access_log().display().to_string()),
        ];
        Ok(Edge { address, admin, pulsegate: Pulsegate::start("edge", "edge.yaml", &env, args).await? })
    }
}

/// One process of ours.
struct Pulsegate {
    child: Child,
}

impl Pulsegate {
    async fn start(
        name: &'static str,
        file: &str,
        env: &[(String, String)],
        args: &Args,
    ) -> Result<Pulsegate, Box<dyn Error>> {
        let mut child = Command::new(&args.pulsegate)
            .args(["run", "--log-format", "json", "--config"])
            .arg(args.files.join(file))
            .envs(env.iter().map(|(key, value)| (key, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let stderr = child.stderr.take().ok_or("no standard error")?;
        let mut lines = BufReader::new(stderr).lines();
        let serving = timeout(PATIENCE, until_it_serves(name, &mut lines)).await?;
        serving?;
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                pass_on(name, &line);
            }
        });
        Ok(Pulsegate { child })
    }

    /// Ends it by its id.
    async fn end(mut self) {
        let _ = self.child.start_kill();
        let _ = self.child.wait().await;
    }
}

async fn until_it_serves<R: tokio::io::AsyncRead + Unpin>(
    name: &str,
    lines: &mut Lines<BufReader<R>>,
) -> Result<(), Box<dyn Error>> {
    while let Some(line) = lines.next_line().await? {
        if line.contains("\"message\":\"serving\"") {
            return Ok(());
        }
        pass_on(name, &line);
    }
    Err(format!("pulsegate {name} has ended at its start").into())
}

/// What the audience wants to know of a log: composites and failovers, and whatever is wrong.
fn pass_on(name: &str, line: &str) {
    let Ok(event) = serde_json::from_str::<serde_json::Value>(line) else {
        // Problems of a configuration are no JSON.
        return say(&format!("{name}: {line}"));
    };
    let text = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
    if ["composite", "failover"].contains(&text("kind").as_str()) || text("level") == "error" {
        say(&format!("{name}: {}: {}", text("kind"), text("message")));
    }
}

/// What came of the traffic.
#[derive(Default)]
struct Seen {
    all: u64,
    failed: u64,
    lately: BTreeMap<String, u64>,
}

fn origins(region: &Region, name: &'static str) -> impl Iterator<Item = (String, &'static str)> {
    region.origins.iter().map(move |origin| (origin.address.port().to_string(), name))
}

/// A steady traffic through the edge, for ever.
async fn flow(edge: SocketAddr, regions: BTreeMap<String, &'static str>, seen: Arc<Mutex<Seen>>) {
    let mut connection = None;
    loop {
        let answer = ask(edge, &mut connection).await;
        let (fine, what) = match &answer {
            Some((200, origin)) => (true, format!("200 from region {}", regions.get(origin).unwrap_or(&"?"))),
            Some((status, _)) => (false, format!("{status}")),
            None => (false, "no answer".to_owned()),
        };
        {
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.all += 1;
            seen.failed += u64::from(!fine);
            *seen.lately.entry(what).or_default() += 1;
        }
        sleep(PACE).await;
    }
}

/// Status and origin of one request; the connection is kept while it can be.
async fn ask(edge: SocketAddr, connection: &mut Option<SendRequest<Empty<Bytes>>>) -> Option<(u16, String)> {
    let mut sender = match connection.take() {
        Some(sender) if !sender.is_closed() => sender,
        _ => {
            let stream = TcpStream::connect(edge).await.ok()?;
            let (sender, driver) = handshake(TokioIo::new(stream)).await.ok()?;
            tokio::spawn(driver);
            sender
        }
    };
    sender.ready().await.ok()?;
    let request = Request::get("/").header("host", "shop.example.com").body(Empty::new()).ok()?;
    let response = sender.send_request(request).await.ok()?;
    let status = response.status().as_u16();
    let origin = response.headers().get("x-origin").and_then(|origin| origin.to_str().ok()).unwrap_or("").to_owned();
    response.into_body().collect().await.ok()?;
    *connection = Some(sender);
    Some((status, origin))
}

/// Who answered, every second.
async fn report(seen: Arc<Mutex<Seen>>) {
    loop {
        sleep(Duration::from_secs(1)).await;
        let lately = std::mem::take(&mut seen.lock().unwrap_or_else(PoisonError::into_inner).lately);
        let words: Vec<String> = lately.iter().map(|(what, count)| format!("{count} x {what}")).collect();
        say(&format!("edge: {}", words.join(", ")));
    }
}

/// The story of region one.
async fn tell(one: &Region, whole: Duration) {
    let mut passed = 0.0;
    for (at, origins, mood, words) in STORY {
        sleep(whole.mul_f64(at - passed)).await;
        passed = at;
        say(&format!("---- {words}"));
        origins.iter().for_each(|origin| one.origins[*origin].turn(mood));
    }
    sleep(whole.mul_f64(1.0 - passed)).await;
}

/// What is typed: `stop one 2`, `start one 2`.
async fn follow_orders(one: &Region, two: &Region) {
    let (typed, mut lines) = tokio::sync::mpsc::channel(1);
    // It reads for as long as the process lives; nobody waits for it.
    std::thread::spawn(move || {
        std::io::stdin().lines().map_while(Result::ok).try_for_each(|line| typed.blocking_send(line))
    });
    while let Some(line) = lines.recv().await {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (order, region, which) = match words.as_slice() {
            [order, region @ ("one" | "two")] => (*order, *region, None),
            [order, region @ ("one" | "two"), origin] => (*order, *region, Some(origin.parse().unwrap_or(0))),
            _ => ("", "", None),
        };
        let mood = match order {
            "stop" => Mood::Dead,
            "start" => Mood::Well,
            _ => {
                say("---- type `stop one 2`, `start one 2`, or the same without a number for all of a region");
                continue;
            }
        };
        let region = if region == "two" { two } else { one };
        let meant = |at: usize| which.is_none_or(|which| which == at + 1);
        if !(0..region.origins.len()).any(meant) {
            say(&format!("---- a region has the origins 1 to {}", region.origins.len()));
            continue;
        }
        region.origins.iter().enumerate().filter(|(at, _)| meant(*at)).for_each(|(_, origin)| origin.turn(mood));
        say(&format!("---- {line}"));
    }
    // There is no terminal: until somebody ends it.
    std::future::pending().await
}

fn introduce(one: &Region, two: &Region, edge: &Edge, folder: &Folder, tells: bool) {
    println!("two regions with {ORIGINS} origins each, and an edge that prefers region one. Try, in another terminal:");
    println!();
    println!("  curl -i http://{}/                                   a request through the edge", edge.address);
    println!("  curl -s http://{}/api/v1/routes                      where its route is, and why", edge.admin);
    for (name, region) in [("one", one), ("two", two)] {
        println!("  curl -i http://{}/.well-known/region-health          how region {name} is", region.address);
        println!("  curl -s http://{}/api/v1/pools/web                   and its origins", region.admin);
    }
    println!("  tail -f {}   every request at the edge", folder.access_log().display());
    println!();
    match tells {
        true => println!("origins of region one will be stopped one by one, and started again"),
        false => println!("here: `stop one 2` stops the second origin of region one, `start one` starts all of them"),
    }
    println!();
}

/// A folder for this run's files.
struct Folder(PathBuf);

impl Folder {
    fn new() -> std::io::Result<Folder> {
        let path = std::env::temp_dir().join(format!("pulsegate-failover-{}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Folder(path))
    }

    fn access_log(&self) -> PathBuf {
        Path::new(&self.0).join("access.log")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Left behind only if somebody else wrote into it.
        let _ = std::fs::remove_file(self.access_log());
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// A port that was free a moment ago.
fn free() -> std::io::Result<SocketAddr> {
    TcpListener::bind(("127.0.0.1", 0))?.local_addr()
}
