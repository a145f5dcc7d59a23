//! How the program comes to read its file again, and what it says came of it.

use std::fs;

use serde_json::Value;

use crate::harness::{Line, Proxy, Scrape};

/// A way to a reload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// SIGHUP.
    Signal,
    /// `POST /api/v1/reload`.
    Api,
    /// The file, which is watched.
    File,
}

/// Reloads the program has counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    pub taken: usize,
    pub refused: usize,
    pub unchanged: usize,
}

impl Way {
    /// The key of the configuration: who is told by hand does not look by itself.
    pub fn key(self) -> &'static str {
        match self {
            Way::Signal | Way::Api => "reload: { watch: false }\n",
            Way::File => "",
        }
    }

    /// Has this text taken, and returns the event that tells how it ended.
    #[track_caller]
    pub fn take(self, proxy: &Proxy, text: &str) -> Line {
        let line = self.put(proxy, text);
        assert!(!line.is_error(), "refused: {}", line.raw);
        line
    }

    /// Has this text refused, and returns the errors with a place in the file.
    #[track_caller]
    pub fn refused(self, proxy: &Proxy, text: &str) -> usize {
        let mark = proxy.mark();
        let line = self.put(proxy, text);
        assert_eq!(line.text("reason"), "refused", "{}", line.raw);
        let told = |line: &Line| line.is_error() && line.text("target") == "config" && has_place(line.text("message"));
        proxy.log()[mark..].iter().filter(|line| told(line)).count()
    }

    /// Writes the file in one step; the event of the reload that follows is one, and comes last of what is told.
    #[track_caller]
    fn put(self, proxy: &Proxy, text: &str) -> Line {
        let mark = proxy.mark();
        let (path, part) = (proxy.dir().join("proxy.yaml"), proxy.dir().join("proxy.yaml.part"));
        fs::write(&part, text).and_then(|()| fs::rename(&part, &path)).expect("the folder is ours");
        let answer = match self {
            Way::Signal => {
                proxy.signal("HUP");
                None
            }
            Way::Api => Some(proxy.admin_post("/api/v1/reload", &[])),
            Way::File => None,
        };
        let line = proxy.await_log("how the reload ended", mark, |line| line.text("kind") == "reload");
        if let Some(answer) = answer {
            let told = answer.json();
            let agrees = match answer.status {
                200 => told["unchanged"] == (line.text("reason") == "unchanged"),
                422 => line.is_error() && told["problems"].as_array().is_some_and(|all| all.iter().any(is_placed)),
                _ => false,
            };
            assert!(agrees, "the answer {}: {told}, and the event: {}", answer.status, line.raw);
        }
        line
    }
}

impl Counted {
    /// So far.
    #[track_caller]
    pub fn of(proxy: &Proxy) -> Counted {
        let scrape = Scrape::of(proxy);
        let count = |result: &str| scrape.value(&format!("config_reloads_total{{result=\"{result}\"}}")) as usize;
        Counted { taken: count("taken"), refused: count("refused"), unchanged: count("unchanged") }
    }
}

/// A problem of the API.
fn is_placed(problem: &Value) -> bool {
    problem["severity"] == "error" && problem["line"].is_u64() && problem["column"].is_u64()
}

/// `proxy.yaml:LINE:COLUMN:`.
fn has_place(message: &str) -> bool {
    let Some((_, behind)) = message.split_once("proxy.yaml:") else { return false };
    let mut numbers = behind.split(':').map(|part| part.parse::<u32>().is_ok());
    numbers.next() == Some(true) && numbers.next() == Some(true)
}
