//! The access log while files are moved, disks are full and readers stop; and what a filter leaves out of it.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::harness::proxy::{Proxy, config_of};
use crate::harness::{Answer, Connection, Gate, Line, Load, Origin, Step, When, eventually, eventually_some};

/// `O_NONBLOCK` of Linux: a FIFO's reader that waits for no writer.
const O_NONBLOCK: i32 = 0o4000;

/// A proxy's configuration with these keys of the access log.
fn config(log: &str, origin: &Origin) -> String {
    format!("access_log: {{ {log} }}\n{}", config_of(&[origin.to_string()], "probe: off"))
}

fn to(path: &Path) -> String {
    format!("path: \"{}\"", path.display())
}

/// The lines of a log; one that is torn does not parse.
fn lines_in(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("torn: {line:?}"))).collect()
}

fn paths_in(path: &Path) -> Vec<String> {
    lines_in(path).iter().map(|line| line["path"].as_str().unwrap_or_default().to_owned()).collect()
}

#[track_caller]
fn await_paths(path: &Path, wanted: &[&str]) {
    eventually(&format!("{} has {wanted:?}", path.display()), || {
        // The last line may be on its way.
        fs::read_to_string(path).is_ok_and(|text| text.is_empty() || text.ends_with('\n')) && paths_in(path) == wanted
    });
}

/// GET until the proxy has closed the connection, which it does after the request's line; returns the status.
#[track_caller]
fn get(proxy: &Proxy, path: &str) -> u16 {
    let mut client = proxy.connect();
    client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
    let status = client.reply().status;
    assert!(client.is_closed(), "{path}");
    status
}

/// The numbers of the last line that the program says.
fn lost_and_filtered(proxy: &mut Proxy) -> (u64, u64) {
    proxy.signal("INT");
    assert_eq!(proxy.wait().code(), Some(0));
    let ended = proxy.await_log("the end", 0, |line| line.text("message") == "ended");
    let number = |field: &str| ended.json[field].as_u64().unwrap_or_else(|| panic!("no {field}: {}", ended.raw));
    (number("log_lines_lost"), number("log_lines_filtered"))
}

fn says(words: &str) -> impl Fn(&Line) -> bool {
    move |line: &Line| line.text("target") == "access_log" && line.text("message").contains(words)
}

#[test]
fn rotations_under_load_lose_and_tear_no_line() {
    const ROTATIONS: usize = 30;
    let origin = Origin::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("access.log");
    let mut proxy = Proxy::start(&config(&to(&path), &origin));
    let load = Load::start(proxy.address(), 3, "/load");
    for rotation in 0..ROTATIONS {
        // As logrotate does with `create`: there is an empty file before anybody is told.
        fs::rename(&path, folder.path().join(rotation.to_string())).expect("ours");
        let empty = File::create(&path).expect("ours");
        proxy.signal("USR1");
        eventually("lines come to the new file", || empty.metadata().is_ok_and(|metadata| metadata.len() > 0));
    }
    let tally = load.finish();
    tally.assert_all_ok();
    assert_eq!(lost_and_filtered(&mut proxy), (0, 0));
    let mut ids: Vec<String> = Vec::new();
    for file in fs::read_dir(folder.path()).expect("ours") {
        let lines = lines_in(&file.expect("ours").path());
        ids.extend(lines.iter().map(|line| line["request_id"].as_str().expect("an id").to_owned()));
    }
    assert_eq!(ids.len(), tally.total(), "lines and requests");
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), tally.total(), "a line is there twice");
}

#[test]
fn every_reopening_is_told_with_the_path_and_whether_there_was_a_new_file() {
    let origin = Origin::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("access.log");
    let proxy = Proxy::start(&config(&to(&path), &origin));
    for (moved, words) in [(false, "the same one, nobody has moved it"), (true, "a new one")] {
        if moved {
            fs::rename(&path, folder.path().join("access.log.1")).expect("ours");
        }
        let mark = proxy.mark();
        proxy.signal("USR1");
        let told = proxy.await_log("what came of it", mark, says("the file is opened again"));
        assert!(told.text("message").contains(words), "{}", told.raw);
        assert_eq!((told.text("level"), told.text("path")), ("info", &*path.to_string_lossy()), "{}", told.raw);
    }
}

#[test]
fn file_that_cannot_be_opened_again_leaves_the_old_one_until_the_next_signal() {
    let origin = Origin::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (there, moved) = (folder.path().join("logs"), folder.path().join("moved"));
    fs::create_dir(&there).expect("ours");
    let (path, old) = (there.join("access.log"), moved.join("access.log"));
    let mut proxy = Proxy::start(&config(&to(&path), &origin));
    get(&proxy, "/before");
    fs::rename(&there, &moved).expect("ours");
    for round in ["/gone", "/still-gone"] {
        let mark = proxy.mark();
        proxy.signal("USR1");
        let error = proxy.await_log("the error", mark, says("cannot open again, the old file stays"));
        assert!(error.is_error() && error.raw.contains("access.log: No such file"), "{}", error.raw);
        get(&proxy, round);
    }
    await_paths(&old, &["/before", "/gone", "/still-gone"]);
    // Here it is a directory.
    fs::create_dir_all(&path).expect("ours");
    let mark = proxy.mark();
    proxy.signal("USR1");
    proxy.await_log("the error", mark, says("Is a directory"));
    get(&proxy, "/directory");
    await_paths(&old, &["/before", "/gone", "/still-gone", "/directory"]);
    fs::remove_dir(&path).expect("ours");
    let mark = proxy.mark();
    proxy.signal("USR1");
    let told = proxy.await_log("the success", mark, says("the file is opened again: a new one"));
    assert_eq!((told.text("level"), told.text("path")), ("info", &*path.to_string_lossy()), "{}", told.raw);
    get(&proxy, "/after");
    await_paths(&path, &["/after"]);
    assert_eq!(lost_and_filtered(&mut proxy), (0, 0));
}

#[test]
fn full_disk_costs_counted_lines_and_no_request_until_a_reload_names_another() {
    let origin = Origin::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("access.log");
    let mut proxy = Proxy::start(&config("path: /dev/full", &origin));
    for i in 0..50 {
        assert_eq!(get(&proxy, &format!("/full/{i}")), 200);
    }
    let error = proxy.await_log("the error", 0, says("lines are dropped and counted: cannot write"));
    assert!(error.is_error() && error.raw.contains("No space left"), "{}", error.raw);
    let mark = proxy.mark();
    proxy.reload(&config(&to(&path), &origin));
    get(&proxy, "/room");
    await_paths(&path, &["/room"]);
    let told = proxy.await_log("what was lost", mark, says("lines are written again, 50 were lost"));
    assert_eq!((&told.json["lost"], &told.json["dropped"]), (&50.into(), &50.into()), "{}", told.raw);
    assert_eq!(lost_and_filtered(&mut proxy), (50, 0));
}

/// Limits the size of the files that a process may write, as a full disk would: the write up to the limit is cut short.
fn limit_file_size(proxy: &Proxy, bytes: &str) {
    let limit = format!("--fsize={bytes}:");
    let status = Command::new("prlimit").args(["--pid", &proxy.id().to_string(), &limit]).status();
    assert!(status.expect("prlimit runs").success());
}

#[test]
fn line_that_a_full_disk_cut_is_made_whole_when_there_is_room() {
    let origin = Origin::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("access.log");
    let mut proxy = Proxy::start(&config(&to(&path), &origin));
    limit_file_size(&proxy, "3000");
    for i in 0..20 {
        assert_eq!(get(&proxy, &format!("/few/{i}")), 200);
    }
    proxy.await_log("the error", 0, says("cannot write: File too large"));
    let text = fs::read_to_string(&path).expect("the log");
    assert!(text.len() == 3_000 && !text.ends_with('\n'), "{text}");
    let whole = text.matches('\n').count();
    let mark = proxy.mark();
    limit_file_size(&proxy, "unlimited");
    get(&proxy, "/room");
    eventually("the line is there", || {
        fs::read_to_string(&path).is_ok_and(|text| text.contains("/room") && text.ends_with('\n'))
    });
    let told = proxy.await_log("what was lost", mark, says("lines are written again"));
    let paths = paths_in(&path);
    // What was still queued when there was room again is behind the one that was cut.
    let lost = 21 - paths.len() as u64;
    assert!(lost > 0 && told.json["lost"] == lost, "{} lines, and {}", paths.len(), told.raw);
    let begun: Vec<String> = (0..=whole).map(|i| format!("/few/{i}")).collect();
    assert_eq!(paths[..=whole], begun, "the cut one is whole, and joined to nothing");
    assert_eq!((paths.last().map(String::as_str), lost_and_filtered(&mut proxy)), (Some("/room"), (lost, 0)));
}

#[test]
fn log_is_rotated_while_the_process_ends() {
    let (origin, gate) = (Origin::start(), Gate::new());
    origin.when(When::path("/last"), Answer::status(200).held_by(&gate));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (path, moved) = (folder.path().join("access.log"), folder.path().join("access.log.1"));
    let mut proxy = Proxy::start(&config(&to(&path), &origin));
    get(&proxy, "/first");
    let mut client = proxy.connect();
    client.send("GET /last HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("the member has it", || gate.waiting() == 1);
    proxy.signal("TERM");
    eventually("new connections are refused", || Connection::try_open(proxy.address()).is_err());
    fs::rename(&path, &moved).expect("ours");
    proxy.signal("USR1");
    eventually("there is a new file", || path.exists());
    gate.open();
    assert_eq!((client.reply().status, proxy.wait().code()), (200, Some(0)));
    assert_eq!((paths_in(&moved), paths_in(&path)), (vec!["/first".to_owned()], vec!["/last".to_owned()]));
}

fn make_fifo(path: &Path) -> File {
    assert!(Command::new("mkfifo").arg(path).status().expect("mkfifo runs").success());
    File::options().read(true).custom_flags(O_NONBLOCK).open(path).expect("ours")
}

/// What the process has in memory, in KiB.
fn resident(proxy: &Proxy) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", proxy.id())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a size");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[test]
fn reader_of_standard_output_that_stops_costs_counted_lines_and_bounded_memory() {
    const REQUESTS: usize = 1_500;
    let origin = Origin::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let fifo = folder.path().join("stdout");
    let mut reader = make_fifo(&fifo);
    let mut proxy = Proxy::start_with_stdout(&config("path: stdout", &origin), &fifo);
    let agent = "x".repeat(28 << 10);
    let mut client = proxy.connect();
    let mut ask = |path: &str| {
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\nUser-Agent: {agent}\r\n\r\n"));
        assert_eq!(client.reply().status, 200, "{path}");
    };
    (0..100).for_each(|i| ask(&format!("/warm/{i}")));
    let before = resident(&proxy);
    // 40 MiB of lines; the queue takes 8.
    (100..REQUESTS).for_each(|i| ask(&format!("/stuck/{i}")));
    let grown = resident(&proxy).saturating_sub(before);
    assert!(grown < 32 << 10, "{grown} KiB more");
    proxy.await_log("the warning", 0, says("lines are dropped and counted: they come faster than they are written"));
    // It reads again.
    let mark = proxy.mark();
    let mut bytes = Vec::new();
    let told = eventually_some("what was lost is told", || {
        let _ = reader.read_to_end(&mut bytes);
        proxy.log().into_iter().skip(mark).find(says("lines are written again"))
    });
    ask("/after");
    eventually("its line is there", || {
        let _ = reader.read_to_end(&mut bytes);
        bytes.ends_with(b"\n") && String::from_utf8_lossy(&bytes).contains("\"/after\"")
    });
    let text = String::from_utf8(bytes).expect("it is JSON");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("whole")).collect();
    let lost = told.json["lost"].as_u64().expect("a number");
    assert_eq!(lines.len() as u64 + lost, REQUESTS as u64 + 1, "{} lines, {lost} lost", lines.len());
    assert!(lost > 100, "{lost} lost");
    assert_eq!(lost_and_filtered(&mut proxy), (lost, 0));
}

#[test]
fn reader_of_standard_output_that_stopped_does_not_hold_up_the_end() {
    let origin = Origin::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let fifo = folder.path().join("stdout");
    let mut reader = make_fifo(&fifo);
    let mut proxy = Proxy::start_with_stdout(&config("path: stdout", &origin), &fifo);
    let (agent, mut client) = ("x".repeat(28 << 10), proxy.connect());
    for i in 0..50 {
        client.send(format!("GET /{i} HTTP/1.1\r\nHost: a\r\nUser-Agent: {agent}\r\n\r\n"));
        assert_eq!(client.reply().status, 200);
    }
    let (lost, _) = lost_and_filtered(&mut proxy);
    let mut bytes = Vec::new();
    let _ = reader.read_to_end(&mut bytes);
    let read = bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
    // The lines of the batch that was being written count as lost, also those that the pipe had taken.
    assert!(read < 50 && (50 - read..=50).contains(&lost), "{read} read, {lost} lost");
}

#[test]
fn reader_of_standard_output_that_leaves_costs_lines_and_nothing_else() {
    let origin = Origin::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let fifo = folder.path().join("stdout");
    let mut reader = BufReader::new(make_fifo(&fifo));
    let mut proxy = Proxy::start_with_stdout(&config("path: stdout", &origin), &fifo);
    assert_eq!(get(&proxy, "/read"), 200);
    let mut line = String::new();
    eventually("its line is there", || {
        let _ = reader.read_line(&mut line);
        line.ends_with('\n')
    });
    drop(reader);
    for i in 0..20 {
        assert_eq!(get(&proxy, &format!("/unread/{i}")), 200);
    }
    let error = proxy.await_log("the error", 0, says("cannot write: Broken pipe"));
    assert!(error.is_error() && proxy.is_running(), "{}", error.raw);
    // Somebody reads again.
    let mut reader = File::options().read(true).custom_flags(O_NONBLOCK).open(&fifo).expect("ours");
    get(&proxy, "/again");
    let mut bytes = Vec::new();
    eventually("its line is there", || {
        let _ = reader.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).contains("\"/again\"")
    });
    // What was still queued when somebody came was read.
    let read = String::from_utf8_lossy(&bytes).matches("\"/unread/").count() as u64;
    let (lost, _) = lost_and_filtered(&mut proxy);
    assert!(lost > 0 && lost + read == 20, "{lost} lost, {read} read");
}

#[test]
fn reload_changes_where_how_and_what_is_logged_at_once() {
    let origin = Origin::start();
    origin.when(When::path("/bad"), Answer::status(500));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (first, second) = (folder.path().join("first.log"), folder.path().join("second.log"));
    let mut proxy = Proxy::start(&config(&to(&first), &origin));
    get(&proxy, "/json");
    let mark = proxy.mark();
    proxy.reload(&config(&format!("{}, format: '$path $status'", to(&first)), &origin));
    get(&proxy, "/template");
    proxy.reload(&config(&format!("{}, filter: {{ status: '500-599' }}", to(&first)), &origin));
    get(&proxy, "/left-out");
    get(&proxy, "/bad");
    proxy.reload(&config(&format!("{}, format: combined", to(&second)), &origin));
    get(&proxy, "/combined");
    // Off, and on again.
    proxy.reload(&format!("access_log: off\n{}", config_of(&[origin.to_string()], "probe: off")));
    get(&proxy, "/off");
    proxy.reload(&config("path: stdout", &origin));
    get(&proxy, "/stdout");
    proxy.access("/stdout");
    let text = fs::read_to_string(&first).expect("the log");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines.len(), lines[1]), (3, "/template 200"), "{text}");
    assert!(lines[0].contains("\"/json\"") && lines[2].contains("\"/bad\""), "{text}");
    let text = fs::read_to_string(&second).expect("the log");
    assert!(text.lines().count() == 1 && text.contains("\"GET /combined HTTP/1.1\" 200 3 "), "{text}");
    assert_eq!(proxy.access_log().len(), 1);
    let restarts = proxy.log().into_iter().skip(mark).filter(|line| line.raw.contains("only with a restart")).count();
    assert_eq!((restarts, lost_and_filtered(&mut proxy)), (0, (0, 1)));
}

#[test]
fn reload_to_a_file_that_cannot_be_opened_is_refused_at_its_place() {
    let origin = Origin::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("access.log");
    let proxy = Proxy::start(&config(&to(&path), &origin));
    proxy.rewrite(&config("path: /nonexistent/access.log", &origin));
    proxy.reload_is_refused();
    let problem = proxy.await_log("the problem", 0, |line| line.text("target") == "config" && line.is_error());
    assert!(
        problem.raw.contains("cannot open the access log: /nonexistent/access.log: No such file"),
        "{}",
        problem.raw
    );
    assert!(problem.raw.contains("proxy.yaml:4:21: error:"), "{}", problem.raw);
    get(&proxy, "/as-before");
    await_paths(&path, &["/as-before"]);
}

#[test]
fn filter_leaves_out_what_went_well_and_no_failure() {
    let origin = Origin::start();
    for status in [200, 302, 404, 500, 503] {
        origin.when(When::path(&format!("/{status}")), Answer::status(status));
    }
    origin.when(When::path("/close"), Answer::close());
    origin.when(When::path("/hang"), Answer::hang());
    let filter = "path: stdout, filter: { status: '404, 500-599', min_duration: 10m }";
    let pool =
        config_of(&[origin.to_string()], "probe: off\nretries: { attempts: 1 }\nupstream: { read_timeout: 500ms }");
    let mut proxy = Proxy::start(&format!("access_log: {{ {filter} }}\n{pool}"));
    for path in ["/200", "/302", "/404", "/500", "/503", "/close", "/hang"] {
        get(&proxy, path);
    }
    // Not a request, but a 400 of ours: a status like any other.
    let mut garbage = proxy.connect();
    garbage.send("no request\r\n\r\n");
    assert!(garbage.is_closed());
    // The end waits for all of them.
    assert_eq!(lost_and_filtered(&mut proxy), (0, 3));
    assert_eq!(logged(&proxy), ["/404", "/500", "/503", "/close", "/hang"]);
}

/// The paths of all lines, sorted: lines of several connections may come in any order.
fn logged(proxy: &Proxy) -> Vec<String> {
    let mut paths: Vec<String> = proxy.access_log().iter().map(|line| line.text("path").to_owned()).collect();
    paths.sort_unstable();
    paths
}

#[test]
fn failures_pass_a_filter_that_keeps_nothing_else() {
    let (origin, gate) = (Origin::start(), Gate::new());
    origin.when(When::path("/cut"), Answer::status(200).held_by(&gate));
    // A 200 that breaks off half-way.
    let broken =
        Answer::raw(vec![Step::Bytes(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf".to_vec()), Step::Close]);
    origin.when(When::path("/broken"), broken);
    let pools = format!(
        "pools:\n  web: {{ members: [{origin}], probe: off }}\n  off: {{ members: [{{ address: {origin}, state: disabled }}], probe: off }}\n"
    );
    let routes = "routes: [{ path: /, pool: web }, { path: /off, pool: off }]\n";
    let log = "access_log: { path: stdout, filter: { sample: 0% } }\ndrain_timeout: 300ms\n";
    let mut proxy = Proxy::start(&format!("{log}{pools}{routes}"));
    get(&proxy, "/well");
    let mut client = proxy.connect();
    client.send("GET /broken HTTP/1.1\r\nHost: a\r\n\r\n");
    let _ = client.try_reply("GET");
    assert_eq!(get(&proxy, "/off"), 503);
    let mut cut = proxy.connect();
    cut.send("GET /cut HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("the member has it", || gate.waiting() == 1);
    let (lost, filtered) = lost_and_filtered(&mut proxy);
    gate.open();
    assert_eq!((lost, filtered), (0, 1));
    assert_eq!(logged(&proxy), ["/broken", "/cut", "/off"]);
}

#[test]
fn client_that_left_is_a_499_to_a_filter() {
    for (status, filtered) in [("400-499", 0), ("500-599", 1)] {
        let (origin, gate) = (Origin::start(), Gate::new());
        origin.when(When::path("/left"), Answer::status(200).held_by(&gate));
        let mut proxy = Proxy::start(&config(&format!("path: stdout, filter: {{ status: '{status}' }}"), &origin));
        let mut left = proxy.connect();
        left.send("GET /left HTTP/1.1\r\nHost: a\r\n\r\n");
        eventually("the member has it", || gate.waiting() == 1);
        left.reset();
        // The end waits for it.
        assert_eq!(lost_and_filtered(&mut proxy), (0, filtered), "{status}");
        assert_eq!(proxy.access_log().len() as u64, 1 - filtered, "{status}");
        gate.open();
    }
}

#[test]
fn slow_request_passes_a_filter_of_time() {
    let origin = Origin::start();
    origin.when(When::path("/slow"), Answer::status(200).after(Duration::from_millis(600)));
    let proxy = Proxy::start(&config("path: stdout, filter: { min_duration: 500ms }", &origin));
    get(&proxy, "/slow");
    assert!(proxy.access("/slow").json["duration_ms"].as_f64().is_some_and(|ms| ms >= 500.0));
}
