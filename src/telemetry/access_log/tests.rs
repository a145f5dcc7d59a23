use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use super::super::child;
use super::*;
use crate::clock;
use crate::config::{LogFilter, LogFormat};

/// Far longer than anything takes here: reaching it is a failure.
const LONG: Duration = Duration::from_secs(30);

/// JSON to this file, all of it.
fn to(path: impl Into<PathBuf>) -> Wanted {
    Wanted { sink: Sink::File(path.into()), ..Wanted::default() }
}

fn log_to(path: &Path) -> AccessLog {
    AccessLog::start(&to(path)).unwrap()
}

fn reload(log: &AccessLog, wanted: &Wanted) {
    log.adopt(log.prepare(wanted).unwrap());
}

fn write(log: &AccessLog, connection: u64) {
    log.write(&Record { connection, path: Some("/some/path".into()), ..Record::default() });
}

/// The `connection` of every line; a torn line does not parse.
fn connections(text: &str) -> Vec<u64> {
    let parsed = |line| serde_json::from_str::<serde_json::Value>(line).unwrap_or_else(|_| panic!("torn: {line:?}"));
    assert!(text.is_empty() || text.ends_with('\n'), "the last line is torn");
    text.lines().map(|line| parsed(line)["connection"].as_u64().unwrap()).collect()
}

fn connections_in(path: &Path) -> Vec<u64> {
    connections(&fs::read_to_string(path).unwrap())
}

fn make_fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

#[test]
fn lines_are_appended_in_order_to_what_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("access.log");
    for round in 0..2 {
        let log = log_to(&path);
        (0..1_000).for_each(|n| write(&log, round * 1_000 + n));
        assert_eq!(log.close(LONG), 0);
        assert_eq!(log.dropped(), 0);
    }
    assert_eq!(connections_in(&path), (0..2_000).collect::<Vec<_>>());
}

#[test]
fn a_line_appears_without_being_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fifo");
    make_fifo(&path);
    let log = log_to(&path);
    let mut reader = BufReader::new(File::open(&path).unwrap());
    for n in 0..10 {
        write(&log, n);
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        assert_eq!(connections(&line), [n]);
    }
}

#[test]
fn what_is_queued_is_written_when_the_last_handle_goes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fifo");
    make_fifo(&path);
    let log = log_to(&path);
    let mut reader = File::open(&path).unwrap();
    (0..100).for_each(|n| write(&log, n));
    drop(log.clone());
    drop(log);
    // The end of the file comes when the log's thread has ended.
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(connections(&text), (0..100).collect::<Vec<_>>());
}

#[test]
fn a_file_that_cannot_be_opened_is_named() {
    let error = AccessLog::start(&to("/nonexistent/access.log")).unwrap_err();
    assert_eq!(error.to_string(), "/nonexistent/access.log: No such file or directory (os error 2)");
}

#[test]
fn off_takes_lines_and_does_nothing() {
    let log = AccessLog::start(&Wanted { sink: Sink::Off, ..Wanted::default() }).unwrap();
    write(&log, 1);
    log.reopen();
    assert!(!log.is_on() && log.flush(LONG));
    assert_eq!((log.close(LONG), log.dropped(), log.filtered()), (0, 0, 0));
}

#[test]
fn no_line_is_lost_or_torn_over_fifty_rotations_under_load() {
    const THREADS: u64 = 4;
    const LINES: u64 = 5_000;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("access.log");
    let log = log_to(&path);
    thread::scope(|scope| {
        for id in 0..THREADS {
            let log = &log;
            scope.spawn(move || (id * LINES..(id + 1) * LINES).for_each(|n| write(log, n)));
        }
        for rotation in 0..50 {
            fs::rename(&path, dir.path().join(rotation.to_string())).unwrap();
            log.reopen();
            let deadline = clock::monotonic() + LONG;
            while !path.exists() {
                assert!(clock::monotonic() < deadline, "not reopened");
                thread::yield_now();
            }
        }
    });
    assert_eq!(log.close(LONG), 0);
    let files = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
    let mut seen: Vec<_> = files.flat_map(|path| connections_in(&path)).collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..THREADS * LINES).collect::<Vec<_>>());
}

#[test]
fn lines_queued_before_a_reopen_go_to_the_old_file() {
    let dir = tempfile::tempdir().unwrap();
    let (path, moved) = (dir.path().join("access.log"), dir.path().join("access.log.1"));
    let log = log_to(&path);
    fs::rename(&path, &moved).unwrap();
    (0..100).for_each(|n| write(&log, n));
    log.reopen();
    (100..200).for_each(|n| write(&log, n));
    assert!(log.flush(LONG));
    assert_eq!(connections_in(&moved), (0..100).collect::<Vec<_>>());
    assert_eq!(connections_in(&path), (100..200).collect::<Vec<_>>());
}

#[test]
fn a_reopen_that_fails_keeps_the_old_file() {
    let dir = tempfile::tempdir().unwrap();
    let (path, moved) = (dir.path().join("access.log"), dir.path().join("access.log.1"));
    let log = log_to(&path);
    fs::rename(&path, &moved).unwrap();
    fs::create_dir(&path).unwrap();
    log.reopen();
    write(&log, 1);
    assert!(log.flush(LONG));
    fs::remove_dir(&path).unwrap();
    log.reopen();
    write(&log, 2);
    assert_eq!(log.close(LONG), 0);
    assert_eq!((connections_in(&moved), connections_in(&path)), (vec![1], vec![2]));
}

#[test]
fn a_full_disk_costs_lines_that_are_counted_until_there_is_another_file() {
    let dir = tempfile::tempdir().unwrap();
    let (path, file) = (dir.path().join("access.log"), dir.path().join("file"));
    symlink("/dev/full", &path).unwrap();
    let log = log_to(&path);
    (0..100).for_each(|n| write(&log, n));
    assert!(log.flush(LONG));
    assert_eq!(log.dropped(), 100);
    fs::remove_file(&path).unwrap();
    symlink(&file, &path).unwrap();
    log.reopen();
    write(&log, 100);
    assert!(log.flush(LONG));
    assert_eq!((log.dropped(), connections_in(&file)), (100, vec![100]));
}

/// Limits the size of files that this process writes, as a full disk would: a write up to the limit is cut short there.
fn limit_file_size(bytes: &str) {
    let limit = format!("--fsize={bytes}:");
    let status = Command::new("prlimit").args(["--pid", &std::process::id().to_string(), &limit]).status();
    assert!(status.unwrap().success());
}

#[test]
fn a_line_that_a_full_disk_cut_in_two_is_made_whole_when_there_is_room_again() {
    if !child::is_here() {
        let name = "a_line_that_a_full_disk_cut_in_two_is_made_whole_when_there_is_room_again";
        child::run(module_path!(), name, "trap '' XFSZ;");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("access.log");
    let whole_lines = || fs::read_to_string(&path).unwrap().matches('\n').count() as u64;
    let is_torn = || !fs::read_to_string(&path).unwrap().ends_with('\n');
    let log = log_to(&path);

    limit_file_size("2000");
    (0..10).for_each(|n| write(&log, n));
    assert!(log.flush(LONG));
    let (whole, dropped) = (whole_lines(), log.dropped());
    assert!(whole > 0 && is_torn());
    assert_eq!(whole + 1 + dropped, 10);

    // Room again: the line that is begun is finished, and the next one follows it, also where the same file is opened anew.
    log.reopen();
    limit_file_size("unlimited");
    write(&log, 10);
    assert!(log.flush(LONG));
    assert_eq!(connections_in(&path), (0..=whole).chain([10]).collect::<Vec<_>>());
    assert_eq!(log.dropped(), dropped);

    // Full again, and this time the room is made by truncating the log itself: the first half is gone.
    let length = fs::metadata(&path).unwrap().len();
    limit_file_size(&(length + 100).to_string());
    write(&log, 11);
    assert!(log.flush(LONG));
    assert!(is_torn());
    File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
    write(&log, 12);
    assert_eq!(log.close(LONG), 0);
    assert_eq!((connections_in(&path), log.dropped()), (vec![12], dropped + 1));

    // What somebody else left torn, and cannot be ended for want of room, is no line of ours.
    let torn = dir.path().join("torn.log");
    fs::write(&torn, "half").unwrap();
    limit_file_size("4");
    let log = log_to(&torn);
    reload(&log, &to(dir.path().join("other.log")));
    assert_eq!((log.close(LONG), log.dropped()), (0, 0));
}

#[test]
fn a_reader_that_does_not_read_costs_lines_and_no_time() {
    const WRITTEN: u64 = 2_000;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fifo");
    make_fifo(&path);
    let log = AccessLog::with_capacity(&to(&path), 64 << 10).unwrap();
    // Nobody has the other end open; about a tenth of this fits into pipe and queue.
    (0..WRITTEN).for_each(|n| write(&log, n));
    let dropped = log.dropped();
    assert!(dropped > WRITTEN / 2, "{dropped} dropped");
    // A reader comes, and gets what was accepted, and what is written from now on.
    let mut reader = BufReader::new(File::open(&path).unwrap());
    let mut text = String::new();
    for _ in 0..WRITTEN - dropped {
        reader.read_line(&mut text).unwrap();
    }
    assert!(log.flush(LONG));
    write(&log, WRITTEN);
    reader.read_line(&mut text).unwrap();
    let seen = connections(&text);
    assert_eq!(seen.last(), Some(&WRITTEN));
    assert_eq!(log.dropped(), dropped);
}

#[test]
fn a_reader_that_left_costs_lines_and_nothing_else() {
    let (reader, writer) = std::io::pipe().unwrap();
    let lines = Lines::start(Output::descriptor("access-log", writer, Told::Log).unwrap(), CAPACITY).unwrap();
    let log = AccessLog::of(lines, &Wanted::default());
    write(&log, 0);
    assert!(log.flush(LONG));
    drop(reader);
    (1..100).for_each(|n| write(&log, n));
    log.reopen();
    assert_eq!(log.close(LONG), 0);
    assert_eq!(log.dropped(), 99);
}

#[test]
fn a_stuck_reader_can_be_left_for_a_file_and_no_line_is_torn() {
    const WRITTEN: u64 = 400;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("access.log");
    make_fifo(&path);
    let log = log_to(&path);
    let mut reader = File::options().read(true).open(&path).unwrap();
    (0..WRITTEN).for_each(|n| write(&log, n));
    fs::remove_file(&path).unwrap();
    log.reopen();
    assert!(log.flush(LONG));
    assert_eq!(log.dropped(), 0);
    let in_file = connections_in(&path);
    // What had fitted into the pipe is there, and perhaps the beginning of a line that the file has whole.
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    let mut seen = connections(&text[..whole]);
    assert!(!seen.is_empty() && !in_file.is_empty());
    seen.extend(in_file);
    assert_eq!(seen, (0..WRITTEN).collect::<Vec<_>>());
}

#[test]
fn a_close_is_bounded_and_counts_what_it_leaves_behind() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fifo");
    make_fifo(&path);
    let log = log_to(&path);
    (0..1_000).for_each(|n| write(&log, n));
    let left = log.close(Duration::from_millis(20));
    assert!(left > 0);
    assert_eq!(log.dropped(), left);
}

#[test]
fn a_line_longer_than_the_queue_is_dropped_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("access.log");
    let log = AccessLog::with_capacity(&to(&path), 4 << 10).unwrap();
    let endless = "x".repeat(8 << 10);
    write(&log, 1);
    log.write(&Record { path: Some(endless.as_str().into()), ..Record::default() });
    assert!(log.flush(LONG));
    write(&log, 2);
    assert_eq!(log.close(LONG), 0);
    assert_eq!((connections_in(&path), log.dropped()), (vec![1, 2], 1));
}

#[test]
fn a_line_after_the_end_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("access.log");
    let log = log_to(&path);
    assert_eq!(log.close(LONG), 0);
    write(&log, 1);
    assert_eq!((connections_in(&path), log.dropped()), (vec![], 1));
}

#[test]
fn a_reload_changes_format_filter_and_file_and_loses_no_line() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (dir.path().join("first.log"), dir.path().join("second.log"));
    let log = log_to(&first);
    write(&log, 1);
    reload(&log, &Wanted { format: LogFormat::Combined, ..to(&first) });
    write(&log, 2);
    reload(&log, &to(&second));
    write(&log, 3);
    let nothing = LogFilter { status: vec![], min_duration: None, sample: Sample::NONE };
    reload(&log, &Wanted { filter: Some(nothing), ..to(&second) });
    let kept = Record { status: Some(200), ..Record::default() };
    log.write(&kept);
    reload(&log, &to(&second));
    write(&log, 4);
    assert_eq!(log.close(LONG), 0);
    let text = fs::read_to_string(&first).unwrap();
    let (json, combined) = text.split_once('\n').unwrap();
    assert_eq!(
        (connections(&format!("{json}\n")), combined.starts_with("- - - [01/Jan/1970")),
        (vec![1], true),
        "{text}"
    );
    assert_eq!(connections_in(&second), [3, 4]);
    assert_eq!((log.dropped(), log.filtered()), (0, 1));
}

#[test]
fn a_log_can_be_switched_off_and_on_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("access.log");
    let off = Wanted { sink: Sink::Off, ..Wanted::default() };
    let log = AccessLog::start(&off).unwrap();
    write(&log, 1);
    reload(&log, &to(&path));
    write(&log, 2);
    reload(&log, &off);
    write(&log, 3);
    assert!(!log.is_on() && log.flush(LONG));
    log.reopen();
    reload(&log, &to(&path));
    write(&log, 4);
    assert_eq!(log.close(LONG), 0);
    assert_eq!((connections_in(&path), log.dropped()), (vec![2, 4], 0));
}

#[test]
fn a_file_that_a_reload_cannot_open_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("access.log");
    let log = log_to(&path);
    let error = log.prepare(&to("/nonexistent/access.log")).unwrap_err();
    assert_eq!(error.to_string(), "/nonexistent/access.log: No such file or directory (os error 2)");
    write(&log, 1);
    assert_eq!(log.close(LONG), 0);
    assert_eq!(connections_in(&path), [1]);
}

#[test]
fn no_line_is_lost_or_torn_over_rotations_and_reloads_at_once() {
    const LINES: u64 = 20_000;
    let dir = tempfile::tempdir().unwrap();
    let (one, other) = (dir.path().join("one.log"), dir.path().join("other.log"));
    let log = log_to(&one);
    thread::scope(|scope| {
        scope.spawn(|| (0..LINES).for_each(|n| write(&log, n)));
        for turn in 0..30 {
            reload(&log, &to(if turn % 2 == 0 { &one } else { &other }));
            // As logrotate does with `create`.
            fs::rename(&one, dir.path().join(turn.to_string())).unwrap();
            File::create(&one).unwrap();
            log.reopen();
            assert!(log.flush(LONG));
        }
    });
    assert_eq!((log.close(LONG), log.dropped()), (0, 0));
    let files = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
    let mut seen: Vec<_> = files.flat_map(|path| connections_in(&path)).collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..LINES).collect::<Vec<_>>());
}

#[test]
fn half_a_line_that_somebody_left_is_not_continued() {
    let dir = tempfile::tempdir().unwrap();
    let (torn, whole) = (dir.path().join("torn.log"), dir.path().join("whole.log"));
    fs::write(&torn, "{\"half\":").unwrap();
    fs::write(&whole, "{\"connection\":0}\n").unwrap();
    let log = log_to(&torn);
    write(&log, 1);
    reload(&log, &to(&whole));
    write(&log, 2);
    assert!(log.flush(LONG));
    let text = fs::read_to_string(&torn).unwrap();
    let (half, rest) = text.split_once('\n').unwrap();
    assert_eq!((half, connections(rest), connections_in(&whole)), ("{\"half\":", vec![1], vec![0, 2]));
    // A crash that a rotation finds: the file is there, and torn.
    fs::rename(&whole, dir.path().join("1")).unwrap();
    fs::write(&whole, "half").unwrap();
    log.reopen();
    write(&log, 3);
    assert_eq!((log.close(LONG), log.dropped()), (0, 0));
    let text = fs::read_to_string(&whole).unwrap();
    assert_eq!(text.split_once('\n').map(|(half, rest)| (half, connections(rest))), Some(("half", vec![3])));
}

#[test]
fn the_end_of_an_overflow_is_told_with_what_was_lost() {
    if !child::is_here() {
        let said = child::run(module_path!(), "the_end_of_an_overflow_is_told_with_what_was_lost", "");
        assert!(said.contains("they come faster than they are written"), "{said}");
        assert!(said.contains("\"message\":\"lines are written again, 1900 were lost\""), "{said}");
        return;
    }
    let logging = super::super::init(None, super::super::Format::Json).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fifo");
    make_fifo(&path);
    // Nobody reads, and the queue has room for a hundred lines beside what the pipe holds; the first fill the pipe.
    let line_bytes = {
        let mut line = Vec::new();
        let record = Record { connection: 10_000, path: Some("/some/path".into()), ..Record::default() };
        record.render(&LogFormat::Json, &mut line);
        line.len()
    };
    let log = AccessLog::with_capacity(&to(&path), 100 * line_bytes).unwrap();
    let mut reader = File::options().read(true).custom_flags(0o4000).open(&path).unwrap();
    let mut accepted = 0;
    // The pipe is full once a batch stays: from then on the queue fills.
    while log.flush(Duration::from_millis(100)) {
        write(&log, 10_000);
        accepted += 1;
    }
    while log.dropped() == 0 {
        write(&log, 10_000);
        accepted += 1;
    }
    (1..1_900).for_each(|_| write(&log, 10_000));
    let mut bytes = Vec::new();
    let deadline = clock::monotonic() + LONG;
    while bytes.iter().filter(|byte| **byte == b'\n').count() < accepted - 1 {
        assert!(clock::monotonic() < deadline, "{} bytes of {accepted} lines", bytes.len());
        // As far as the pipe is full; then it would block.
        let _ = reader.read_to_end(&mut bytes);
    }
    assert_eq!(log.close(LONG), 0);
    logging.close(LONG);
    assert_eq!((connections(&String::from_utf8(bytes).unwrap()).len(), log.dropped()), (accepted - 1, 1_900));
}
