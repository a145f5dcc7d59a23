//! proxy.yaml: what was written (`file`), what is meant (`domain`), and every problem with its place.
//!
//! A text goes through two stages. `marks` and `yaml` make of it the shapes of `file`, in which nothing has a meaning
//! yet; `parse`, `pool`, `member`, `probe`, `tls`, `judge`, `remediation`, `webhook`, `alert`, `route` and `composite` make of those the [`Config`], with `preset` for what is not
//! written. Neither stage stops at a mistake, so all of them are reported at once.
//!
//! Not here: sockets, name resolution, anything that lives on after the file is read.

mod access_log;
mod address;
mod advice;
mod alert;
mod bare;
mod capacity;
mod composite;
mod cost;
mod diagnostics;
mod domain;
mod effective;
mod env;
mod file;
mod hidden;
mod hints;
mod judge;
mod lasting;
mod marks;
mod member;
mod observe;
mod parse;
mod passive;
mod places;
mod pool;
mod preset;
mod probe;
mod problem;
mod proof;
mod reading;
mod regular;
mod remediation;
mod resolver;
mod roll;
mod route;
pub mod scenario;
mod spelling;
mod sticky;
mod tls;
mod webhook;
mod words;
mod yaml;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Read;
use std::net::SocketAddr;
use std::path::Path;

pub use access_log::{AccessLog, AttemptField, Field, LbField, LogFilter, LogFormat, Piece, Sample, Sink, Template};
pub use address::authority;
pub use alert::{Alert, MOST_FLAPS, Occasion, Trigger};
pub use cost::{Cost, PLANNED, Placed, PoolCost, stretch};
pub use diagnostics::Diagnostics;
pub use domain::*;
pub use effective::{percent_decoded, sounds_secret, without_secrets};
pub use lasting::Lasting;
pub use problem::{Problem, Severity};
pub use proof::{Proof, Secret};
pub use regular::{O_NONBLOCK, line, open_regular};
pub use roll::{load_roll, read_roll};
pub use sticky::{SameSite, Secure, Sticky};

use hidden::Hidden;
use places::Mark;
use problem::Problems;

/// A larger file is refused unread.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// A file that can be used.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    /// What it means.
    pub config: Config,
    /// What its author may want to know: warnings, sorted by place.
    pub advice: Vec<Problem>,
    /// Of its text, as [`digest`] has it.
    pub digest: u64,
    places: Places,
}

/// Where things were written, for problems that show only when the file is put to use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    file: String,
    access_log: Mark,
    state_dir: Mark,
    alerts: Vec<Mark>,
    listeners: Vec<(SocketAddr, Mark)>,
    pools: BTreeMap<String, PoolPlaces>,
    hidden: Hidden,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct PoolPlaces {
    probe: Mark,
    probe_secret: Mark,
    probe_bind: Mark,
    sticky_secret: Mark,
    sticky_previous: Mark,
    remediation: Mark,
    members: Vec<Mark>,
    services: Vec<Mark>,
    files: Vec<Mark>,
    traffic_tls: TlsPlaces,
    probe_tls: TlsPlaces,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TlsPlaces {
    whole: Mark,
    ca: Mark,
    client_cert: Mark,
    client_key: Mark,
}

/// Which of the secrets of a pool's cookies a problem is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StickySecret {
    /// `sticky.secret_file`.
    Present,
    /// `sticky.previous_secret_file`.
    Previous,
}

/// Which of a pool's TLS a problem is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsOf {
    /// `upstream.tls`.
    Traffic,
    /// `probe.tls`.
    Probe,
}

/// Which part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsPart {
    /// All of it.
    Whole,
    /// `ca`.
    Ca,
    /// `client_cert`.
    ClientCert,
    /// `client_key`.
    ClientKey,
}

impl Loaded {
    /// Where things were written.
    pub fn places(&self) -> &Places {
        &self.places
    }
}

impl Places {
    fn new(file: &str, config: &Config, at: places::At<'_>, hidden: Hidden) -> Places {
        let pool = |pool: &Pool| {
            let at = at.key("pools").key(&pool.name);
            let (traffic, probe) = (at.key("upstream").key("tls"), at.key("probe").key("tls"));
            let mut places = PoolPlaces {
                probe: at.key("probe").mark(),
                probe_secret: at.key("probe").key("auth").key("secret_file").mark(),
                probe_bind: at.key("probe").key("bind").mark(),
                sticky_secret: at.key("sticky").key("secret_file").mark(),
                sticky_previous: at.key("sticky").key("previous_secret_file").mark(),
                remediation: at.key("remediation").mark(),
                members: Vec::new(),
                services: Vec::new(),
                files: Vec::new(),
                traffic_tls: TlsPlaces::new(&[traffic]),
                // What is not written here is the traffic's.
                probe_tls: TlsPlaces::new(&[probe, traffic]),
            };
            for index in 0..pool.members.len() + pool.services.len() + pool.files.len() {
                let at = at.key("members").item(index);
                let of = |key: &str| at.key(key).exists();
                let kind = match (of("srv"), of("file")) {
                    (true, _) => &mut places.services,
                    (_, true) => &mut places.files,
                    _ => &mut places.members,
                };
                kind.push(at.mark());
            }
            places
        };
        Places {
            file: file.to_owned(),
            access_log: at.key("access_log").key("path").mark(),
            state_dir: at.key("state_dir").mark(),
            alerts: (0..config.alerts.len()).map(|index| at.key("alerts").item(index).mark()).collect(),
            listeners: (config.listeners.iter().enumerate())
                .map(|(index, listener)| (listener.address, at.key("listeners").item(index).key("address").mark()))
                .collect(),
            pools: config.pools.iter().map(|(name, p)| (name.clone(), pool(p))).collect(),
            hidden,
        }
    }

    /// An error in the probe of `pool`.
    pub fn probe_error(&self, pool: &str, message: String) -> Problem {
        self.problem(Severity::Error, self.pools.get(pool).map(|places| places.probe), message)
    }

    /// An error in the file of the secret that the probes of `pool` prove themselves with.
    pub fn secret_error(&self, pool: &str, message: String) -> Problem {
        self.problem(Severity::Error, self.pools.get(pool).map(|places| places.probe_secret), message)
    }

    /// An error in the file of the secret that the cookies of `pool` are signed with.
    pub fn sticky_error(&self, pool: &str, of: StickySecret, message: String) -> Problem {
        let mark = self.pools.get(pool).map(|places| match of {
            StickySecret::Present => places.sticky_secret,
            StickySecret::Previous => places.sticky_previous,
        });
        self.problem(Severity::Error, mark, message)
    }

    /// An error in the address that the probes of `pool` are to come from.
    pub fn bind_error(&self, pool: &str, message: String) -> Problem {
        self.problem(Severity::Error, self.pools.get(pool).map(|places| places.probe_bind), message)
    }

    /// An error in a part of the TLS of `pool`.
    pub fn tls_error(&self, pool: &str, of: TlsOf, part: TlsPart, message: String) -> Problem {
        let mark = self.pools.get(pool).map(|places| {
            let tls = match of {
                TlsOf::Traffic => places.traffic_tls,
                TlsOf::Probe => places.probe_tls,
            };
            match part {
                TlsPart::Whole => tls.whole,
                TlsPart::Ca => tls.ca,
                TlsPart::ClientCert => tls.client_cert,
                TlsPart::ClientKey => tls.client_key,
            }
        });
        self.problem(Severity::Error, mark, message)
    }

    /// Advice on the member of `pool` that is written at `index`.
    pub fn member_advice(&self, pool: &str, index: usize, message: String) -> Problem {
        let mark = self.pools.get(pool).and_then(|places| places.members.get(index)).copied();
        self.problem(Severity::Warning, mark, message)
    }

    /// Advice on the service of `pool` that is written at `index` among its services.
    pub fn service_advice(&self, pool: &str, index: usize, message: String) -> Problem {
        let mark = self.pools.get(pool).and_then(|places| places.services.get(index)).copied();
        self.problem(Severity::Warning, mark, message)
    }

    /// Advice on what the file of members says that `pool` has at `index` among its files.
    pub fn file_advice(&self, pool: &str, index: usize, message: String) -> Problem {
        let mark = self.pools.get(pool).and_then(|places| places.files.get(index)).copied();
        self.problem(Severity::Warning, mark, message)
    }

    /// Advice on the probe of `pool`.
    pub fn probe_advice(&self, pool: &str, message: String) -> Problem {
        self.problem(Severity::Warning, self.pools.get(pool).map(|places| places.probe), message)
    }

    /// Advice on how the members of `pool` are replaced.
    pub fn remediation_advice(&self, pool: &str, message: String) -> Problem {
        self.problem(Severity::Warning, self.pools.get(pool).map(|places| places.remediation), message)
    }

    /// Advice on the alert that is written at `index`.
    pub fn alert_advice(&self, index: usize, message: String) -> Problem {
        self.problem(Severity::Warning, self.alerts.get(index).copied(), message)
    }

    /// Advice on where it is kept what the next process has to know.
    pub fn state_dir_advice(&self, message: String) -> Problem {
        self.problem(Severity::Warning, Some(self.state_dir), message)
    }

    /// An error in where it is kept what the next process has to know.
    pub fn state_dir_error(&self, message: String) -> Problem {
        self.problem(Severity::Error, Some(self.state_dir), message)
    }

    /// An error in the address of the listener that is to be at `address`.
    pub fn listener_error(&self, address: SocketAddr, message: String) -> Problem {
        let mark = self.listeners.iter().find(|(other, _)| *other == address).map(|(_, mark)| *mark);
        self.problem(Severity::Error, mark, message)
    }

    /// An error in where the access log goes.
    pub fn access_log_error(&self, message: String) -> Problem {
        self.problem(Severity::Error, Some(self.access_log), message)
    }

    fn problem(&self, severity: Severity, mark: Option<Mark>, message: String) -> Problem {
        let mark = mark.unwrap_or(Mark::START);
        let (Mark { line, column }, message) = (mark, self.hidden.covered(mark, message));
        Problem { severity, file: self.file.clone(), line: line as usize, column: column as usize, message }
    }
}

impl TlsPlaces {
    /// Each key where it is first written in `mappings`.
    fn new(mappings: &[places::At<'_>]) -> TlsPlaces {
        let first = |found: &dyn Fn(places::At<'_>) -> Option<Mark>| mappings.iter().find_map(|at| found(*at));
        let whole = first(&|at| at.exists().then(|| at.mark()));
        let whole = whole.or_else(|| mappings.first().map(|at| at.mark())).unwrap_or(Mark::START);
        let key = |key: &str| first(&|at| at.key(key).exists().then(|| at.key(key).mark())).unwrap_or(whole);
        TlsPlaces { whole, ca: key("ca"), client_cert: key("client_cert"), client_key: key("client_key") }
    }
}

/// Asks the process's environment; what is not UTF-8 counts as not set.
pub fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Reads the file at `path`; `env` answers for the environment. An unreadable file is one problem.
pub fn load(path: &Path, env: &dyn Fn(&str) -> Option<String>) -> Result<Loaded, Vec<Problem>> {
    parse(&path.display().to_string(), &text_of(path)?, env)
}

/// What tells one text from another: the same in every process of this release.
pub fn digest(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// The text of a file of configuration, read in bounds; an unreadable file is one problem.
///
/// # Errors
/// Why it cannot be used as a text.
pub fn text_of(path: &Path) -> Result<String, Vec<Problem>> {
    let name = path.display().to_string();
    let refuse = |mark: Mark, message: String| {
        let mut problems = Problems::new(&name);
        problems.error_at(mark, message);
        problems.sorted()
    };
    // A relative path is relative to the directory the program was started in, not to another file.
    let place = std::path::absolute(path).ok().filter(|_| path.is_relative());
    let place = place.map_or_else(String::new, |whole| format!("; it was looked for at {}", whole.display()));
    let unreadable = |e: std::io::Error| refuse(Mark::START, format!("the file cannot be read: {e}{place}"));
    let meta = std::fs::metadata(path).map_err(unreadable)?;
    if meta.len() > MAX_FILE_BYTES {
        return Err(refuse(
            Mark::START,
            format!("the file has {} bytes; at most {MAX_FILE_BYTES} are read", meta.len()),
        ));
    }
    let file = match path == Path::new("/dev/stdin") {
        true => std::fs::File::open(path).map(Some),
        false => open_regular(path),
    };
    let Some(file) = file.map_err(unreadable)? else {
        return Err(refuse(Mark::START, "not a regular file".to_owned()));
    };
    let bytes = read_bounded(file).map_err(unreadable)?;
    match String::from_utf8(bytes) {
        Ok(text) => Ok(text),
        Err(error) => {
            let (mark, message) = not_utf8(error.as_bytes(), error.utf8_error().valid_up_to());
            Err(refuse(mark, message))
        }
    }
}

/// Reads the file, but no more of it than is allowed and one byte: it may grow meanwhile.
fn read_bounded(file: std::fs::File) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 {
        ..=MAX_FILE_BYTES => Ok(bytes),
        _ => Err(std::io::Error::other(format!("it has more than {MAX_FILE_BYTES} bytes"))),
    }
}

/// Reads `text`; `file` is what problems call it. On errors the warnings are among the problems.
pub fn parse(file: &str, text: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<Loaded, Vec<Problem>> {
    let mut problems = Problems::new(file);
    let Some(mut document) = yaml::Document::new(text, &mut problems) else {
        return Err(problems.sorted());
    };
    document.expand(&|path, text| access_log::braced_field(path, text, env), env, &mut problems);
    let Some(written) = document.read::<file::File>(&mut problems) else {
        return Err(problems.sorted());
    };
    let config = parse::config(&written, document.at(), &mut problems);
    if problems.any_error() {
        return Err(problems.sorted());
    }
    advice::advise(&config, &written, document.at(), &mut problems);
    advice::advise_on_state(&config, document.at(), &mut problems);
    let places = Places::new(file, &config, document.at(), problems.hidden().clone());
    Ok(Loaded { config, advice: problems.sorted(), digest: digest(text), places })
}

fn not_utf8(bytes: &[u8], valid_up_to: usize) -> (Mark, String) {
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return (Mark::START, "the file is UTF-16; save it as UTF-8".to_owned());
    }
    let before = String::from_utf8_lossy(&bytes[..valid_up_to]);
    let byte = bytes.get(valid_up_to).copied().unwrap_or_default();
    (Mark::after(&before), format!("byte 0x{byte:02x} is not UTF-8; save the file as UTF-8"))
}
