//! A program of this machine, run to replace a member.
//!
//! No shell sees it, and no environment of ours but [`KEPT`]: secrets of the configuration are none of its business. It is the
//! head of a process group of its own, which is ended as a whole when its time is over. When pulsegate ends it goes on.
//!
//! Not here: what it is told (`notice`).

use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::webhook::Failed;

/// What it has of our environment, where we have it.
const KEPT: [&str; 8] = ["PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR"];

/// Of what it prints so much is kept, in bytes.
const MOST_SAID: usize = 2048;

/// Between the request to end and the end.
const GRACE: Duration = Duration::from_secs(2);

/// How long after its end somebody may still print whom it has left behind.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Runs the program with `notice` on its standard input, and returns what it printed.
///
/// # Errors
/// It cannot be started, ends with another code than 0, or does not end in time.
pub async fn run(argv: &[String], notice: &[u8], limit: Duration) -> Result<String, Failed> {
    let (program, arguments) = argv.split_first().ok_or_else(|| Failed::new("start", "no program".to_owned()))?;
    let kept = KEPT.iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
    let spawned = Command::new(program)
        .args(arguments)
        .env_clear()
        .envs(kept)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn();
    let mut child = spawned.map_err(|error| Failed::new("start", format!("{program} cannot be started: {error}")))?;
    let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    let said = Said::listen(&mut child);
    let ended = timeout(limit, tell_and_wait(&mut child, notice)).await;
    let failed = match ended {
        Ok(Ok(status)) if status.success() => None,
        Ok(Ok(status)) => Some(("exit", status.to_string())),
        Ok(Err(error)) => Some(("exit", format!("its end was not seen: {error}"))),
        Err(_) => {
            end(group, &mut child).await;
            Some(("timeout", format!("no end within {}", humantime::format_duration(limit))))
        }
    };
    let said = said.all().await;
    match failed {
        None => Ok(said),
        Some((word, why)) if said.is_empty() => Err(Failed::new(word, why)),
        Some((word, why)) => Err(Failed::new(word, format!("{why}: {said}"))),
    }
}

async fn tell_and_wait(child: &mut Child, notice: &[u8]) -> std::io::Result<ExitStatus> {
    let input = child.stdin.take();
    let tell = async {
        if let Some(mut input) = input {
            // Whoever does not want to know closes it.
            let _ = input.write_all(notice).await;
        }
    };
    tokio::join!(tell, child.wait()).1
}

/// Ends all of it: with TERM first, and whoever is left with KILL.
async fn end(group: Option<Pid>, child: &mut Child) {
    let Some(group) = group else { return drop(child.start_kill()) };
    // Nobody is left where it fails.
    let _ = kill_process_group(group, Signal::TERM);
    let _ = timeout(GRACE, child.wait()).await;
    let _ = kill_process_group(group, Signal::KILL);
    let _ = timeout(GRACE, child.wait()).await;
}

/// What is printed, to either stream.
struct Said {
    heard: Arc<Mutex<Vec<u8>>>,
    listeners: Vec<JoinHandle<()>>,
}

impl Said {
    fn listen(child: &mut Child) -> Said {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let output = child.stdout.take().map(|stream| tokio::spawn(hear(stream, heard.clone())));
        let errors = child.stderr.take().map(|stream| tokio::spawn(hear(stream, heard.clone())));
        Said { heard, listeners: output.into_iter().chain(errors).collect() }
    }

    /// Whoever was left behind may keep a stream open for as long as he likes.
    async fn all(self) -> String {
        for listener in self.listeners {
            let stop = listener.abort_handle();
            if timeout(LAST_WORDS, listener).await.is_err() {
                stop.abort();
            }
        }
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&heard).trim().to_owned()
    }
}

/// Reads to the end and keeps the beginning: a program that nobody listens to would wait for us.
async fn hear(mut stream: impl AsyncRead + Unpin, heard: Arc<Mutex<Vec<u8>>>) {
    let mut buffer = [0; 1024];
    while let Ok(length @ 1..) = stream.read(&mut buffer).await {
        let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
        let room = MOST_SAID.saturating_sub(heard.len()).min(length);
        heard.extend_from_slice(&buffer[..room]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    async fn shell(script: &str, limit: Duration) -> Result<String, Failed> {
        let argv = ["/bin/sh", "-c", script].map(str::to_owned);
        run(&argv, b"{\"pool\":\"web\"}", limit).await
    }

    #[tokio::test]
    async fn it_reads_what_it_is_told_and_what_it_prints_is_kept() {
        assert_eq!(shell("cat; echo ' and' >&2", LONG).await, Ok("{\"pool\":\"web\"} and".to_owned()));
        assert_eq!(shell("exec 0<&-; true", LONG).await, Ok(String::new()), "it need not listen");
        let said = shell("yes | head -c 100000", LONG).await.unwrap();
        assert_eq!(said.len(), MOST_SAID - 1, "the rest is heard and forgotten");
    }

    #[tokio::test]
    async fn its_code_says_how_it_went() {
        let failed = shell("echo no such machine; exit 3", LONG).await.unwrap_err();
        assert_eq!((failed.word, &*failed.detail), ("exit", "exit status: 3: no such machine"));
        let failed = shell("kill -9 $$", LONG).await.unwrap_err();
        assert_eq!((failed.word, &*failed.detail), ("exit", "signal: 9 (SIGKILL)"));
        let gone = run(&["/no/such/program".to_owned()], b"", LONG).await.unwrap_err();
        assert_eq!(gone.word, "start");
    }

    #[tokio::test]
    async fn it_has_nothing_of_our_environment_but_what_any_program_needs() {
        let said = shell("/usr/bin/env | cut -d= -f1", LONG).await.unwrap();
        // A shell adds some of its own.
        let known = |name: &str| KEPT.contains(&name) || ["PWD", "OLDPWD", "SHLVL", "_"].contains(&name);
        assert!(said.lines().all(known) && said.contains("PATH"), "{said}");
    }

    #[tokio::test]
    async fn when_its_time_is_over_it_ends_with_all_it_has_started() {
        // The child of it does not hear TERM, and says who it is.
        let script = "sh -c 'trap \"\" TERM; echo $$; sleep 600' & wait";
        let failed = shell(script, Duration::from_millis(500)).await.unwrap_err();
        assert_eq!(failed.word, "timeout");
        let child: i32 = failed.detail.rsplit(' ').next().unwrap().parse().expect(&failed.detail);
        let is_there = || std::path::Path::new(&format!("/proc/{child}/stat")).exists();
        let is_dead = || {
            let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
            !is_there() || stat.contains(") Z")
        };
        timeout(LONG, async {
            while !is_dead() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await
        .expect("its child goes on");
    }

    #[tokio::test]
    async fn whom_it_leaves_behind_is_not_waited_for() {
        let said = timeout(LONG, shell("sleep 600 & echo $!", LONG)).await.expect("an end").unwrap();
        // It was meant to go on, and a test leaves nobody behind.
        let left = Pid::from_raw(said.parse().unwrap()).unwrap();
        assert!(rustix::process::kill_process(left, Signal::KILL).is_ok());
    }
}
