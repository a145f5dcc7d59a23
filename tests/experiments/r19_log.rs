//! R19: the access log cannot be written: a full disk, a device that takes nothing, a reader that does not read, and files
//! moved away fifty times. One fault at a time and without a load: `log_fault_cases` of tests/it.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use crate::figures::{Figures, Scale, ms};
use crate::harness::nginx::Nginx;
use crate::harness::proxy::{Proxy, config_of};
use crate::harness::wait::{now, pause};
use crate::harness::{Line, eventually, eventually_some};
use crate::load::{Connections, Paced, Tally, Wish};
use crate::logged::Logged;
use crate::site::{LogFile, PROBE, Vitals, members, quoted, reached};

/// `O_NONBLOCK` of Linux: a FIFO's reader that waits for no writer.
const O_NONBLOCK: i32 = 0o4000;

/// A proxy with a load on it.
struct Stage {
    scale: Scale,
    nginx: Vec<Nginx>,
    proxy: Proxy,
    loads: [Paced; 2],
    past: Paced,
    began: std::time::Instant,
}

impl Stage {
    /// With its log at `path`, started by `start`.
    fn new(path: &Path, start: impl FnOnce(&str) -> Proxy) -> Stage {
        let (scale, nginx) = (Scale::wanted(), members(4));
        let proxy = start(&config(&nginx, path));
        proxy.await_all_healthy();
        let wish = |rate, path| Wish { clients: 8, rate, connections: Connections::Kept, method: "GET", path };
        let rate = scale.of(150, 1_000);
        let loads = [
            Paced::start(proxy.address(), wish(rate, "/load/a")),
            Paced::start(proxy.address(), wish(rate, "/load/b")),
        ];
        let past = Paced::past(&nginx[0]);
        Stage { scale, nginx, proxy, loads, past, began: now() }
    }

    /// The load goes on for a while.
    fn while_it_goes_on(&self) {
        self.loads.iter().for_each(Paced::fence);
        pause(Duration::from_secs(self.scale.of(0, 5)));
    }

    /// Ends all of it: what came back, what the program says it has lost, and the table with what holds for every fault. `fault`
    /// is when it began.
    fn end(self, title: &'static str, fault: std::time::Instant) -> (Proxy, Tally, u64, Figures) {
        let Stage { scale, nginx, mut proxy, loads, past, began } = self;
        let over = now();
        let [mut tally, other] = loads.map(Paced::finish);
        tally.add(other);
        let past = past.finish();
        proxy.signal("INT");
        let exit = proxy.wait().code();
        let ended = proxy.await_log("the end", 0, |line| line.text("message") == "ended");
        let lost = ended.json["log_lines_lost"].as_u64().expect("a number");
        let mut figures = Figures::new(title, scale);
        figures.told("requests", tally.total());
        figures.must("failed", format!("{}: {}", tally.failed(), tally.reasons()), "0", tally.failed() == 0);
        figures.same("client, members", tally.total(), reached(&nginx, "/load/"));
        figures.slowest("before, since", &tally, &past, [began..fault, fault..over]);
        figures.must("exit code", format!("{exit:?}"), "0", exit == Some(0));
        (proxy, tally, lost, figures)
    }
}

fn config(nginx: &[Nginx], path: &Path) -> String {
    format!("access_log: {{ path: \"{}\" }}\n{}", path.display(), config_of(&quoted(nginx), PROBE))
}

fn says(words: &'static str) -> impl Fn(&Line) -> bool {
    move |line| line.text("target") == "access_log" && line.text("message").contains(words)
}

fn runs(program: &str, args: &[&str]) -> bool {
    Command::new(program).args(args).output().is_ok_and(|output| output.status.success())
}

#[test]
fn r19_disk_is_full_and_has_room_again() {
    if !runs("unshare", &["-m", "true"]) {
        eprintln!("skipped: no mounts of our own here; full disks are cases of log_fault_cases too");
        return;
    }
    let log = LogFile::new();
    let disk = log.folder().join("disk");
    fs::create_dir(&disk).expect("ours");
    let mount = format!("mount -t tmpfs -o size=256k none '{}'", disk.display());
    let path = disk.join("access.log");
    let stage = Stage::new(&path, |config| Proxy::start_after(config, &["unshare", "-m", "sh"], &mount));
    let seen = PathBuf::from(format!("/proc/{}/root{}", stage.proxy.id(), path.display()));
    stage.while_it_goes_on();
    let fault = now();
    stage.proxy.await_log("that it is full", 0, says("No space left"));
    stage.while_it_goes_on();
    // Somebody makes room, and nobody tells the program.
    let (mark, pid) = (stage.proxy.mark(), stage.proxy.id().to_string());
    let size = "remount,size=1g";
    assert!(
        runs("nsenter", &["-t", &pid, "-m", "mount", "-o", size, &disk.to_string_lossy()]),
        "it can be made larger"
    );
    let told = stage.proxy.await_log("that there is room", mark, says("lines are written again"));
    stage.while_it_goes_on();
    // Its disk goes with the process.
    stage.loads.iter().for_each(Paced::stop);
    let dropped = told.json["dropped"].as_u64().expect("a number") as usize;
    let copy = log.folder().join("copy");
    let expected = eventually_some("the members have all of them", || {
        let reached = reached(&stage.nginx, "/load/");
        pause(Duration::from_millis(50));
        (reached == self::reached(&stage.nginx, "/load/")).then_some(reached)
    });
    eventually("every line that is not lost is there", || {
        fs::copy(&seen, &copy).expect("ours");
        Logged::read(std::slice::from_ref(&copy), "/load/").lines + dropped >= expected
    });
    let (_, tally, lost, mut figures) = stage.end("R19: a full disk", fault);
    let logged = Logged::read(&[copy], "/load/");
    figures.must(
        "lines lost, and told",
        format!("{lost}, {dropped}"),
        "the same, > 0",
        lost > 0 && lost == dropped as u64,
    );
    figures.same("client, log and lost", tally.total(), logged.lines + lost as usize);
    figures.none("lines torn", logged.torn);
    figures.finish();
}

#[test]
fn r19_device_takes_nothing_until_a_reload() {
    let log = LogFile::new();
    let stage = Stage::new(&log.path(), Proxy::start);
    stage.while_it_goes_on();
    let fault = now();
    stage.proxy.reload(&config(&stage.nginx, Path::new("/dev/full")));
    stage.proxy.await_log("the error", 0, says("No space left"));
    stage.while_it_goes_on();
    stage.proxy.reload(&config(&stage.nginx, &log.path()));
    stage.while_it_goes_on();
    let (_, tally, lost, mut figures) = stage.end("R19: a device that takes nothing", fault);
    let logged = Logged::read(&log.files(), "/load/");
    figures.must("lines lost, and counted", lost, "> 0", lost > 0);
    figures.same("client, log and lost", tally.total(), logged.lines + lost as usize);
    figures.none("lines torn or double", logged.torn + logged.double);
    figures.finish();
}

#[test]
fn r19_fifo_has_no_reader() {
    let log = LogFile::new();
    let fifo = log.folder().join("fifo");
    assert!(runs("mkfifo", &[&fifo.to_string_lossy()]));
    let reader = || File::options().read(true).custom_flags(O_NONBLOCK).open(&fifo).expect("ours");
    let stop = Arc::new(AtomicBool::new(false));
    let mut stopped = reader();
    let stage = Stage::new(&fifo, Proxy::start);
    let mut read = Vec::new();
    let quiet = (now(), Vitals::of(&stage.proxy).ticks);
    // It reads for a while.
    for _ in 0..stage.scale.of(20, 1_000) {
        let _ = stopped.read_to_end(&mut read);
        pause(Duration::from_millis(5));
    }
    let look = |stage: &Stage| (now(), Vitals::of(&stage.proxy).ticks);
    let fault = look(&stage);
    stage.while_it_goes_on();
    // So many that no pipe takes them.
    stage.loads.iter().for_each(|load| load.await_each(stage.scale.of(30, 200)));
    let mut take = |reader: &mut File| drop(reader.read_to_end(&mut read));
    let catching_up = look(&stage);
    take(&mut stopped);
    stage.while_it_goes_on();
    take(&mut stopped);
    let gone = look(&stage);
    // The reader goes, and another one comes.
    drop(stopped);
    stage.while_it_goes_on();
    stage.loads.iter().for_each(|load| load.await_each(2));
    let back = look(&stage);
    // This one reads to the end, as otherwise the end would wait for it and then give up.
    let next = thread::spawn({
        let mut next = reader();
        let stop = stop.clone();
        move || {
            let mut read = Vec::new();
            while !stop.load(SeqCst) {
                let _ = next.read_to_end(&mut read);
                pause(Duration::from_millis(5));
            }
            let _ = next.read_to_end(&mut read);
            read
        }
    });
    stage.while_it_goes_on();
    stage.loads.iter().for_each(|load| load.await_each(3));
    let over = look(&stage);
    let (_, tally, lost, mut figures) = stage.end("R19: a FIFO without a reader", fault.0);
    // Other work on the machine makes requests slower, and hardly dearer.
    let mut reading = None;
    for (phase, (from, before), (to, after)) in [
        ("while it reads", quiet, fault),
        ("while nobody reads", fault, catching_up),
        ("while its pipe is emptied twice", catching_up, gone),
        ("while there is no reader", gone, back),
        ("while another one catches up", back, over),
    ] {
        let requests = tally.took.iter().filter(|(sent, _)| (from..to).contains(sent)).count();
        let micros = (after - before) as f64 * 10_000.0 / requests.max(1) as f64;
        let most = *reading.get_or_insert(micros) * 1.5;
        let p99 = ms(tally.percentile(99, &(from..to)));
        let found = format!("{micros:.0} µs of processor a request, p99 {p99}");
        figures.judged(phase, found, &format!("≤ {most:.0} µs"), micros <= most);
    }
    stop.store(true, SeqCst);
    let again = next.join().expect("a reader does not panic");
    let whole = |read: &[u8]| {
        read.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"{") && line.ends_with(b"}")).count()
    };
    let (first, again) = (whole(&read), whole(&again));
    figures.told("lines lost, and counted", lost);
    figures.must("lines that another reader gets", again, "> 0", again > 0);
    // What was in the pipe went with its reader: 64 KiB.
    let missing = tally.total() as i64 - (first + again) as i64 - lost as i64;
    let most = (64 << 10) / 400;
    figures.must(
        "client − log − lost",
        missing,
        &format!("0 to {most}: a pipe's end takes what is in it"),
        (0..=most).contains(&missing),
    );
    figures.finish();
}

#[test]
fn r19_fifty_rotations_lose_no_line() {
    let log = LogFile::new();
    let stage = Stage::new(&log.path(), Proxy::start);
    stage.while_it_goes_on();
    let fault = now();
    for rotation in 0..50 {
        fs::rename(log.path(), log.folder().join(format!("access.log.{rotation}"))).expect("ours");
        let empty = File::create(log.path()).expect("ours");
        // Without the rights of root it cannot be opened: then the old file goes on.
        empty.set_permissions(fs::Permissions::from_mode(0o000)).expect("ours");
        let mark = stage.proxy.mark();
        stage.proxy.signal("USR1");
        stage.proxy.await_log("what came of it", mark, says("open"));
        fs::set_permissions(log.path(), fs::Permissions::from_mode(0o600)).expect("ours");
        stage.proxy.signal("USR1");
        eventually("lines come to the new file", || empty.metadata().is_ok_and(|metadata| metadata.len() > 0));
    }
    let (_, tally, lost, mut figures) = stage.end("R19: fifty rotations", fault);
    let logged = Logged::read(&log.files(), "/load/");
    figures.none("lines lost", lost as usize);
    figures.same("client, log", tally.total(), logged.lines);
    figures.none("lines torn or double", logged.torn + logged.double);
    figures.finish();
}
