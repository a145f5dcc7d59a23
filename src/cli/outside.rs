//! What a configuration needs from outside, tried without serving: names, files of members, of authorities and of
//! certificates, a place for the log and for what is kept, what replaces members.
//!
//! `run` would stumble over the same, but only when it is too late to mend it at leisure. Nothing is written.
//!
//! Not here: whether addresses can be listened on; the proxy that is to be replaced may hold them.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{Access, access, statfs};

use crate::config::{Action, Config, Cost, Loaded, Placed, Places, PoolCost, Problem, Secret, Severity, Sink, Webhook};
use crate::control::Prepared;
use crate::discovery::Desk;
use crate::remediate::Store;
use crate::server::descriptors;
use crate::snapshot::{Found, Located, Source};
use crate::state_dir::StateDir;
use crate::tls::Files;

/// File systems that show the kernel, by their number (statfs(2)): nobody keeps files there.
const KERNELS: [(u64, &str); 4] =
    [(0x9fa0, "procfs"), (0x6265_6572, "sysfs"), (0x0027_e0eb, "cgroup"), (0x6367_7270, "cgroup2")];

/// The same file with further advice and whom it was found to have, or with the errors that would keep it from being used
/// here.
pub fn tried(mut loaded: Loaded) -> Result<(Loaded, Option<Found>), Vec<Problem>> {
    let (problems, found) = problems(&Arc::new(loaded.config.clone()), loaded.places());
    loaded.advice.extend(problems);
    loaded.advice.sort_by_key(|problem| (problem.line, problem.column, problem.severity));
    loaded.advice.dedup();
    if loaded.advice.iter().any(|problem| problem.severity == Severity::Error) {
        Err(loaded.advice)
    } else {
        Ok((loaded, found))
    }
}

/// What the probes of `config` cost with the members that were found.
pub fn cost(config: &Config, found: &Found) -> Cost {
    config.cost_of(&|pool| {
        let located = found.of(&pool.name).iter();
        located.map(|one| Placed { member: &one.member, address: one.address.map(|at| at.ip()) }).collect()
    })
}

fn problems(config: &Arc<Config>, places: &Places) -> (Vec<Problem>, Option<Found>) {
    let mut problems = Vec::new();
    let mut known = None;
    match found(config) {
        Some(Ok(found)) => {
            known = Some(found.clone());
            problems.extend(crowded(config, &cost(config, &found), places, descriptors::possible()));
            problems.extend(unreachable(config, &found, places));
            problems.extend(unresolved(config, &found, places));
            problems.extend(shared(config, &found, places));
            problems.extend(Prepared::new(config, places, found, Files::default()).err().unwrap_or_default());
        }
        Some(Err(wrong)) => problems.extend(wrong),
        None => {
            problems.extend(Prepared::new(config, places, Found::default(), Files::default()).err().unwrap_or_default())
        }
    }
    problems.extend(config.state_dir.as_deref().and_then(unusable).map(|message| places.state_dir_error(message)));
    let odd = config.state_dir.iter().flat_map(|path| Store::odd_files(path));
    problems.extend(odd.map(|path| {
        let why = "is no regular file: nothing can be noted down there, and nobody will be replaced";
        places.state_dir_advice(format!("`{}` {why}", path.display()))
    }));
    problems.extend(replacers(config, places));
    problems.extend(unwritable(&config.access_log.sink).map(|message| places.access_log_error(message)));
    (problems, known)
}

/// More probes that keep their connection than a limit on descriptors has room for; told of at the pool with the most.
fn crowded(config: &Config, cost: &Cost, places: &Places, limit: u64) -> Option<Problem> {
    let room = descriptors::kept_by_probes(limit);
    if cost.kept <= room {
        return None;
    }
    let keeps = |pool: &&PoolCost| config.pools[&pool.name].probe.as_ref().is_some_and(|probe| probe.reuse);
    let pool = cost.pools.iter().filter(keeps).max_by_key(|pool| pool.members)?;
    let message = format!(
        "{} probes are to keep their connection (`reuse`), and a limit of {limit} descriptors, as here, leaves room for \
         {room}; the others dial each time. Raise the limit to {}, or leave `reuse` out",
        cost.kept,
        descriptors::limit_for_kept(cost.kept)
    );
    Some(places.probe_advice(&pool.name, message))
}

/// Members that no probe can reach from where it is to come: an address of the other family.
fn unreachable(config: &Config, found: &Found, places: &Places) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (name, pool) in &config.pools {
        let Some(bind) = pool.probe.as_ref().and_then(|probe| probe.bind) else { continue };
        let mut told = BTreeSet::new();
        for located in found.of(name) {
            let Some(address) = located.address.filter(|address| address.is_ipv6() != bind.is_ipv6()) else { continue };
            if !told.insert(&located.member.host) {
                continue;
            }
            let message = format!(
                "`{}` is {} here, and probes that come from {bind} (`bind`) cannot reach it: nothing is learnt of such a member",
                located.member.host,
                address.ip()
            );
            problems.push(advice(places, name, located, message));
        }
    }
    problems
}

/// Who would be a member here, or what is wrong with the files of members; `None` if nobody can be asked.
fn found(config: &Arc<Config>) -> Option<Result<Found, Vec<Problem>>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    let found = runtime.block_on(async {
        super::outlive_rotations();
        let desk = Desk::new(config);
        desk.prepare(config).await?;
        Ok(desk.found(config).await)
    });
    // A server that hangs is not waited for.
    runtime.shutdown_background();
    Some(found)
}

/// A name is told of once a pool: the same one with many ports is one thing to mend.
fn unresolved(config: &Config, found: &Found, places: &Places) -> Vec<Problem> {
    let mut problems = Vec::new();
    for name in config.pools.keys() {
        let mut told = BTreeSet::new();
        for located in found.of(name).iter().filter(|located| located.address.is_none()) {
            let host = &located.member.host;
            if !told.insert(host) {
                continue;
            }
            let why = located.trouble.as_deref().unwrap_or("no answer in time");
            let message = format!(
                "`{host}` does not resolve here ({why}); a member without an address gets no traffic until it does"
            );
            problems.push(advice(places, name, located, message));
        }
    }
    problems
}

/// An address that several names of a pool lead to is told of once, at the last of them.
fn shared(config: &Config, found: &Found, places: &Places) -> Vec<Problem> {
    let mut problems = Vec::new();
    for name in config.pools.keys() {
        for (address, names) in found.shared_addresses(name) {
            let Some(last) = found.of(name).iter().rfind(|located| located.address == Some(address)) else { continue };
            let names = names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
            let message = format!(
                "{names} are all {address} here; each is a member with a share, probes and limits of its own, so list \
                 the server once"
            );
            problems.push(advice(places, name, last, message));
        }
    }
    problems
}

/// Advice at the place that a member comes from.
fn advice(places: &Places, pool: &str, located: &Located, message: String) -> Problem {
    match located.source {
        Source::Written(index) => places.member_advice(pool, index, message),
        Source::Service(index) => places.service_advice(pool, index, message),
        Source::File(index) => places.file_advice(pool, index, message),
    }
}

/// Why `state_dir` cannot be had. What is not there yet is made, directories above it too.
fn unusable(path: &Path) -> Option<String> {
    let shown = path.display();
    let there = path.ancestors().find(|ancestor| ancestor.exists())?;
    if !there.is_dir() {
        return Some(format!("`state_dir` `{shown}` cannot be used: `{}` is no directory", there.display()));
    }
    // There even root may be allowed what the kernel will not do.
    if let Some(kind) = statfs(there).ok().and_then(|of| KERNELS.iter().find(|(magic, _)| *magic == of.f_type as u64)) {
        let (there, kind) = (there.display(), kind.1);
        return Some(format!("`state_dir` `{shown}` cannot be used: `{there}` is {kind}, where no files can be made"));
    }
    if let Some(error) = access(there, Access::WRITE_OK | Access::EXEC_OK).err() {
        return Some(format!("`state_dir` `{shown}` cannot be used: `{}`: {error}", there.display()));
    }
    StateDir::lock_trouble(path).map(|error| format!("`state_dir` `{shown}` cannot be used: {error}"))
}

/// Programs and secrets that are not here: they are needed only when a member is to be replaced, or somebody told, which is late.
fn replacers(config: &Config, places: &Places) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (name, pool) in &config.pools {
        let remediation = pool.remediation.as_ref().or(pool.observed_remediation.as_ref());
        let missing = match remediation.map(|remediation| &remediation.action) {
            Some(Action::Command { argv, .. }) => {
                let path = Path::new(&argv[0]);
                let why = match path.is_dir() {
                    true => Some("it is a directory".to_owned()),
                    false => access(path, Access::EXEC_OK).err().map(|error| error.to_string()),
                };
                why.map(|why| format!("`{}` cannot be run here: {why}", path.display()))
            }
            Some(Action::Webhook(Webhook { secret: Secret::File(path), .. })) => {
                let why = crate::webhook::read_secret(path).err();
                why.map(|why| format!("`secret_file` {} {why}", path.display()))
            }
            _ => None,
        };
        problems.extend(missing.map(|message| places.remediation_advice(name, message)));
    }
    for (index, alert) in config.alerts.iter().enumerate() {
        let Secret::File(path) = &alert.webhook.secret else { continue };
        let missing = crate::webhook::read_secret(path).err();
        let message = missing.map(|why| format!("`secret_file` {} {why}", path.display()));
        problems.extend(message.map(|message| places.alert_advice(index, message)));
    }
    problems
}

/// Why the access log cannot be opened.
fn unwritable(to: &Sink) -> Option<String> {
    let Sink::File(path) = to else { return None };
    let shown = path.display();
    let refused = |error: rustix::io::Errno| format!("the access log `{shown}` cannot be written: {error}");
    match fs::metadata(path) {
        Ok(meta) if meta.is_dir() => Some(format!("the access log `{shown}` is a directory; write a file")),
        Ok(_) => access(path, Access::WRITE_OK).err().map(refused),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let directory = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
            if !directory.is_dir() {
                return Some(format!(
                    "the access log `{shown}` cannot be written: there is no directory `{}`",
                    directory.display()
                ));
            }
            access(directory, Access::WRITE_OK | Access::EXEC_OK).err().map(refused)
        }
        Err(error) => Some(format!("the access log `{shown}` cannot be written: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    fn said(log: &str, members: &str, probe: &str) -> Vec<String> {
        let text = format!(
            "listeners: [{{ address: \"127.0.0.1:0\" }}]\naccess_log: {log}\npools:\n  web:\n    members: [{members}]\n    \
             probe: {probe}\nroutes: [{{ pool: web }}]\n"
        );
        let mut loaded = config::parse("a.yaml", &text, &|_| None).unwrap();
        let advice: Vec<_> =
            loaded.advice.iter().filter(|advice| !advice.message.contains("without `state_dir`")).collect();
        assert!(advice.is_empty(), "{advice:?}");
        loaded.advice.clear();
        let problems = tried(loaded).map_or_else(|problems| problems, |(loaded, _)| loaded.advice);
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn more_kept_connections_than_descriptors_allow_are_told_of() {
        let text = r#"
listeners: [{ address: "127.0.0.1:0" }]
pools:
  a: { members: ["10.0.0.1:80", "10.0.0.2:80"], probe: { path: /, reuse: true } }
  b: { members: ["10.0.0.1:80", "10.0.0.3:80", "10.0.0.4:80"], probe: { path: /, reuse: true } }
  c: { members: ["10.0.0.5:80", "10.0.0.6:80", "10.0.0.7:80", "10.0.0.8:80"], probe: { path: / } }
routes: [{ pool: a }, { path: /b, pool: b }, { path: /c, pool: c }]
"#;
        let loaded = config::parse("a.yaml", text, &|_| None).unwrap();
        let said = |limit| {
            let told = crowded(&loaded.config, &loaded.config.cost(), loaded.places(), limit);
            told.map(|problem| problem.to_string())
        };
        assert_eq!(said(16), None);
        let words = "a.yaml:5:64: warning: 4 probes are to keep their connection (`reuse`), and a limit of 12 descriptors, as here, \
                     leaves room for 3; the others dial each time. Raise the limit to 16, or leave `reuse` out";
        assert_eq!(said(12).as_deref(), Some(words));
    }

    #[test]
    fn what_run_would_stumble_over_is_said_at_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).display().to_string();
        fs::write(at("there.log"), "").unwrap();
        let (log, plain, member) = ("off".to_owned(), "{ path: / }".to_owned(), "\"127.0.0.1:80\"");
        let path = |path: String| format!("{{ path: {path} }}");
        assert_eq!(said(&log, member, &plain), [""; 0]);
        assert_eq!(said(&path(at("there.log")), member, &plain), [""; 0]);
        assert_eq!(said(&path(at("new.log")), member, &plain), [""; 0]);
        assert!(!folder.path().join("new.log").exists(), "nothing is written");
        let error = |column, words: &str| format!("a.yaml:2:{column}: error: the access log {words}");
        let (gone, directory) = (at("no/where.log"), at("no"));
        assert_eq!(
            said(&path(gone.clone()), member, &plain),
            [error(21, &format!("`{gone}` cannot be written: there is no directory `{directory}`"))]
        );
        let directory = at("");
        assert_eq!(
            said(&path(directory.clone()), member, &plain),
            [error(21, &format!("`{directory}` is a directory; write a file"))]
        );
        let ca = said(&log, member, "{ path: /, tls: { ca: /no/where.pem } }");
        assert!(
            ca.len() == 1 && ca[0].starts_with("a.yaml:6:34: error: ") && ca[0].contains("/no/where.pem"),
            "{ca:?}"
        );
        // RFC 6761 section 6.4: this name never resolves.
        let name = said(&log, "\"127.0.0.1:80\", \"app.invalid:80\", \"app.invalid:81\"", &plain);
        assert!(
            name.len() == 1 && name[0].starts_with("a.yaml:5:31: warning: `app.invalid` does not resolve here"),
            "{name:?}"
        );
        let twice = said(&log, "\"127.0.0.1:80\", \"localhost:80\"", &plain);
        assert!(
            twice.len() == 1
                && twice[0].starts_with("a.yaml:5:31: warning: `127.0.0.1:80`, `localhost:80` are all 127.0"),
            "{twice:?}"
        );
        // A name of each family, and one whose address is written.
        let bound = said(&log, "\"localhost:80\", \"127.0.0.1:81\"", "{ path: /, bind: 127.0.0.1 }");
        assert_eq!(bound, [""; 0]);
        let bound = said(&log, "\"localhost:80\"", "{ path: /, bind: \"::1\" }");
        let words = "a.yaml:5:15: warning: `localhost` is 127.0.0.1 here, and probes that come from ::1 (`bind`)";
        assert!(bound.len() == 1 && bound[0].starts_with(words), "{bound:?}");
        let replaced = |keys: &str| said(&log, member, &format!("{{ path: / }}\n    remediation: {{ {keys} }}"));
        let rows =
            [("command: [/bin/sh]".to_owned(), None), ("command: [/no/such]".to_owned(), Some("cannot be run here"))];
        let hook = |path: String| format!("webhook: {{ url: \"http://a.test\", secret_file: {path} }}");
        fs::write(at("secret"), "open sesame\r\n").unwrap();
        let files = [
            (hook(at("secret")), None),
            (hook(at("no")), Some("cannot be read: No such file")),
            (hook(at("there.log")), Some("is empty")),
            (hook("/dev/zero".to_owned()), Some("cannot be read: it is not a regular file")),
        ];
        for (keys, expected) in rows.into_iter().chain(files) {
            let problems = replaced(&keys);
            let found = problems.iter().any(|problem| expected.is_some_and(|words| problem.contains(words)));
            assert_eq!((problems.len(), found), (usize::from(expected.is_some()), expected.is_some()), "{problems:?}");
        }
        let state = |path: &str| unusable(Path::new(path));
        assert_eq!((state(&at("")), state(&at("new/er"))), (None, None));
        assert!(state("/proc/x").is_some_and(|message| message.contains("is procfs, where no files can be made")));
        assert!(state(&at("there.log/x")).is_some_and(|message| message.contains("is no directory")));
        fs::create_dir_all(at("state/remediation.json")).unwrap();
        let with_state = |log: &str| said(&format!("{log}\nstate_dir: {}", at("state")), member, &plain);
        let problems = with_state(&log);
        assert!(problems.len() == 1 && problems[0].contains("warning: ") && problems[0].contains("is no regular file"));
        fs::create_dir_all(at("state/lock")).unwrap();
        assert!(state(&at("state")).is_some_and(|message| message.ends_with("lock is not a regular file")));
        let service = said(&log, "\"127.0.0.1:80\", { srv: _http._tcp.app.invalid }", &plain);
        let words = "warning: `_http._tcp.app.invalid` does not resolve here (no such name)";
        assert!(service.len() == 1 && service[0].contains(words), "{service:?}");
        let file = said(&log, &format!("\"127.0.0.1:80\", {{ file: {} }}", at("members.yaml")), &plain);
        assert!(file.len() == 1 && file[0].contains("members.yaml:1:1: error: the file cannot be read"), "{file:?}");
        fs::write(at("members.yaml"), "- 10.0.0.1:80\n- app.invalid:80\n").unwrap();
        let file = said(&log, &format!("\"127.0.0.1:80\", {{ file: {} }}", at("members.yaml")), &plain);
        assert!(file.len() == 1 && file[0].contains("warning: `app.invalid` does not resolve here"), "{file:?}");
    }
}
