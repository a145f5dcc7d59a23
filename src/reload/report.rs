//! What a reload has changed, for people and for programs.
//!
//! Everything is named, however much it is; who writes a line of it shortens.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::config::{Composite, Config, Problem};
use crate::control::Few;
use crate::health::Key;
use crate::route::Route;
use crate::snapshot::{Served, Snapshot};

/// What a reload has changed. The command line reads what the API writes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Report {
    /// That is in force now.
    pub generation: u64,
    /// True: there was nothing to change.
    pub unchanged: bool,
    /// Where it is `unchanged`: the reload that made the present generation; null where the start did.
    #[serde(default)]
    pub last_change: Option<LastChange>,
    /// By their names.
    pub pools: Pools,
    /// Of all pools that went on; nobody of those that came or went whole.
    pub members: Members,
    /// By their names. What is `changed` stands as its sources of now say.
    #[serde(default)]
    pub composites: Changes,
    /// By host and path.
    pub routes: Changes,
    /// By their names. What is `changed` keeps its socket and its connections.
    pub listeners: Changes,
    /// Other parts of the file that are in force as they are written now, such as `access_log`.
    pub sections: Vec<String>,
    /// What is written otherwise and holds only from the next start on.
    pub needs_restart: Vec<String>,
    /// Warnings on the file.
    #[schema(value_type = Vec<Object>)]
    pub advice: Vec<Problem>,
}

/// A reload that was taken, as one that came after it and had nothing to change sees it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LastChange {
    /// How long before this reload, in milliseconds.
    pub ago_ms: f64,
    /// Who wanted it: `signal`, `api` or `file`.
    pub cause: String,
    /// What it changed, in a sentence.
    pub detail: String,
}

/// The pools of two generations.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Pools {
    /// Fresh ones.
    pub added: Vec<String>,
    /// They take no new request.
    pub removed: Vec<String>,
    /// Other settings, other members, or other contents of their files; what is known of members that stay is kept.
    pub changed: Vec<ChangedPool>,
    /// As before in everything.
    pub kept: Vec<String>,
}

/// A pool that is another and goes on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChangedPool {
    /// Its name.
    pub name: String,
    /// In which of its keys it differs; none where only its members or the contents of files do.
    pub keys: Vec<String>,
    /// Who came and who went.
    pub members: MemberChanges,
}

/// The members of a pool in two generations.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MemberChanges {
    /// Who was not there before.
    pub added: Vec<String>,
    /// Who is not there any more.
    pub removed: Vec<String>,
    /// Under the same name another one, who starts fresh: its address or its scheme is another.
    pub new_identity: Vec<String>,
    /// Who goes on with all that is known of them.
    pub kept: usize,
    /// Of those, whose verdict is from another probe; the next sample decides.
    pub unverified: usize,
}

/// The same in numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Members {
    /// Who was not there before.
    pub added: usize,
    /// Who is not there any more.
    pub removed: usize,
    /// Under the same name another one.
    pub new_identity: usize,
    /// Who goes on with all that is known of them.
    pub kept: usize,
    /// Of those, whose verdict is from another probe.
    pub unverified: usize,
}

/// What came, went, and became another.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Changes {
    /// New ones.
    pub added: Vec<String>,
    /// Gone ones.
    pub removed: Vec<String>,
    /// Those that stay and are not as they were.
    pub changed: Vec<String>,
    /// How many are as before.
    pub kept: usize,
}

/// Who was in the pools, and how they were probed, just before a generation is taken.
#[derive(Debug)]
pub struct Before(HashMap<String, Crowd>);

/// Members, each with the fingerprint of its probe.
type Crowd = Vec<(Key, u64)>;

impl Before {
    /// The members of `snapshot` now.
    pub fn of(snapshot: &Snapshot) -> Before {
        Before(snapshot.pools.iter().map(|(name, served)| (name.clone(), crowd(served))).collect())
    }
}

impl Report {
    /// Of a reload that had nothing to change.
    pub fn unchanged(snapshot: &Snapshot) -> Report {
        let config = &snapshot.config;
        let mut pools = Pools { kept: config.pools.keys().cloned().collect(), ..Pools::default() };
        pools.kept.sort();
        let kept = snapshot.pools.values().map(|served| served.live.roster().members().len()).sum();
        Report {
            generation: snapshot.generation,
            unchanged: true,
            pools,
            members: Members { kept, ..Members::default() },
            composites: Changes { kept: config.written_composites().len(), ..Changes::default() },
            routes: Changes { kept: config.routes.len(), ..Changes::default() },
            listeners: Changes { kept: config.listeners.len(), ..Changes::default() },
            ..Report::default()
        }
    }

    /// Of the step from `old`, whose members were as in `before`, to `new`.
    pub fn of(old: &Snapshot, before: &Before, new: &Snapshot) -> Report {
        let pools = pools(old, before, new);
        let mut report = Report {
            generation: new.generation,
            composites: composites(old.config.written_composites(), new.config.written_composites()),
            routes: routes(&old.config.routes, &new.config.routes),
            listeners: listeners(&old.config, &new.config),
            sections: sections(&old.config, &new.config).into_iter().map(str::to_owned).collect(),
            ..Report::default()
        };
        for pool in &pools.changed {
            let MemberChanges { added, removed, new_identity, kept, unverified } = &pool.members;
            report.members.added += added.len();
            report.members.removed += removed.len();
            report.members.new_identity += new_identity.len();
            report.members.kept += kept;
            report.members.unverified += unverified;
        }
        for name in &pools.kept {
            report.members.kept += before.0.get(name).map_or(0, Vec::len);
        }
        report.pools = pools;
        report
    }
}

fn crowd(served: &Served) -> Crowd {
    served.live.read(|health, _| {
        health.members().iter().map(|member| (member.spec().key.clone(), member.spec().fingerprint)).collect()
    })
}

fn pools(old: &Snapshot, before: &Before, new: &Snapshot) -> Pools {
    let mut pools = Pools::default();
    for (name, served) in &new.pools {
        let (Some(was), Some(crowd_before)) = (old.pools.get(name), before.0.get(name)) else {
            pools.added.push(name.clone());
            continue;
        };
        let members = member_changes(crowd_before, &crowd(served));
        let keys = match served.config == was.config {
            true => Vec::new(),
            false => served.config.differing_keys(&was.config),
        };
        let same_crowd = members.kept == crowd_before.len() && members.unverified == 0 && members.added.is_empty();
        if served.config == was.config && served.has_files_of(was) && same_crowd {
            pools.kept.push(name.clone());
        } else {
            pools.changed.push(ChangedPool { name: name.clone(), keys, members });
        }
    }
    pools.removed = old.pools.keys().filter(|name| !new.pools.contains_key(*name)).cloned().collect();
    pools.added.sort();
    pools.removed.sort();
    pools.kept.sort();
    pools.changed.sort_by(|a, b| a.name.cmp(&b.name));
    pools
}

fn member_changes(before: &Crowd, now: &Crowd) -> MemberChanges {
    let fingerprints: HashMap<&Key, u64> = before.iter().map(|(key, fingerprint)| (key, *fingerprint)).collect();
    let present: HashMap<&Key, u64> = now.iter().map(|(key, fingerprint)| (key, *fingerprint)).collect();
    let mut changes = MemberChanges::default();
    // Those that went, by their name: one of the same name that came has only another identity.
    let mut gone: BTreeMap<&str, Vec<&Key>> = BTreeMap::new();
    for (key, _) in before.iter().filter(|(key, _)| !present.contains_key(key)) {
        gone.entry(&key.name).or_default().push(key);
    }
    for (key, fingerprint) in now {
        match (fingerprints.get(key), gone.get_mut(key.name.as_str())) {
            (Some(was), _) => {
                changes.kept += 1;
                // None has a verdict from a probe that is not made any more.
                changes.unverified += usize::from(was != fingerprint && *fingerprint != 0);
            }
            (None, Some(gone)) if !gone.is_empty() => {
                gone.pop();
                changes.new_identity.push(label(key));
            }
            (None, _) => changes.added.push(label(key)),
        }
    }
    changes.removed = gone.into_values().flatten().map(label).collect();
    changes
}

/// The member as logs and API show it.
fn label(key: &Key) -> String {
    key.address.map_or_else(|| key.name.clone(), |address| address.to_string())
}

fn composites(old: &[Composite], new: &[Composite]) -> Changes {
    fn named(composites: &[Composite]) -> BTreeMap<String, &Composite> {
        composites.iter().map(|composite| (composite.name.to_string(), composite)).collect()
    }
    changes(&named(old), &named(new))
}

fn routes(old: &[Route], new: &[Route]) -> Changes {
    let named = |routes: &[Route]| -> BTreeMap<String, Route> {
        routes.iter().map(|route| (route.name.to_string(), route.clone())).collect()
    };
    changes(&named(old), &named(new))
}

/// A socket is told by its address, free ports by their name; it is shown by its name.
fn listeners(old: &Config, new: &Config) -> Changes {
    let socket = |l: &crate::config::Listener| match l.address.port() {
        0 => format!("{} {}", l.address, l.name),
        _ => l.address.to_string(),
    };
    let mut left: HashMap<String, _> = old.listeners.iter().map(|l| (socket(l), l)).collect();
    let mut changes = Changes::default();
    for listener in &new.listeners {
        match left.remove(&socket(listener)) {
            Some(was) if was == listener => changes.kept += 1,
            Some(_) => changes.changed.push(listener.name.clone()),
            None => changes.added.push(listener.name.clone()),
        }
    }
    changes.removed = left.into_values().map(|listener| listener.name.clone()).collect();
    changes.removed.sort();
    changes
}

fn changes<T: PartialEq>(old: &BTreeMap<String, T>, new: &BTreeMap<String, T>) -> Changes {
    let mut changes = Changes::default();
    for (name, value) in new {
        match old.get(name) {
            Some(was) if was == value => changes.kept += 1,
            Some(_) => changes.changed.push(name.clone()),
            None => changes.added.push(name.clone()),
        }
    }
    changes.removed = old.keys().filter(|name| !new.contains_key(*name)).cloned().collect();
    changes
}

/// What of the rest of the file is another.
fn sections(old: &Config, new: &Config) -> Vec<&'static str> {
    // Whoever adds a key is asked for it here.
    let Config {
        listeners: _,
        admin,
        access_log,
        trusted_proxies,
        lame_duck,
        drain_timeout,
        pools: _,
        composites: _,
        tried_composites: _,
        routes: _,
        max_concurrent_probes,
        max_probes_per_second,
        diagnostics,
        threads: _,
        resolver,
        reload,
        state_dir: _,
        max_global,
        alerts,
    } = new;
    let rows = [
        ("admin", *admin != old.admin),
        ("access_log", *access_log != old.access_log),
        ("trusted_proxies", *trusted_proxies != old.trusted_proxies),
        ("lame_duck", *lame_duck != old.lame_duck),
        ("drain_timeout", *drain_timeout != old.drain_timeout),
        ("max_concurrent_probes", *max_concurrent_probes != old.max_concurrent_probes),
        ("max_probes_per_second", *max_probes_per_second != old.max_probes_per_second),
        ("diagnostics", *diagnostics != old.diagnostics),
        ("resolver", *resolver != old.resolver),
        ("reload", *reload != old.reload),
        ("remediation", *max_global != old.max_global),
        ("alerts", *alerts != old.alerts),
    ];
    rows.into_iter().filter(|(_, differs)| *differs).map(|(section, _)| section).collect()
}

/// One line that somebody can read: of each list the first few.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if self.unchanged {
            parts.push("nothing has changed".to_owned());
        }
        let changed: Vec<String> = self.pools.changed.iter().map(|pool| pool.name.clone()).collect();
        parts.extend(part(
            "pools",
            [("added", &self.pools.added), ("removed", &self.pools.removed), ("changed", &changed)],
        ));
        parts.extend(self.members.part());
        let named = [("composites", &self.composites), ("routes", &self.routes), ("listeners", &self.listeners)];
        for (what, changes) in named {
            let Changes { added, removed, changed, .. } = changes;
            parts.extend(part(what, [("added", added), ("removed", removed), ("changed", changed)]));
        }
        if !self.sections.is_empty() {
            parts.push(format!("in force: {}", self.sections.join(", ")));
        }
        if !self.needs_restart.is_empty() {
            parts.push(format!("only with a restart: {}", self.needs_restart.join(", ")));
        }
        if parts.is_empty() {
            parts.push("only the contents of files have changed".to_owned());
        }
        f.write_str(&parts.join("; "))
    }
}

/// `pools: 1 added (web), 2 removed (a, b)`; `None` where nothing is in any list.
fn part(what: &str, lists: [(&str, &Vec<String>); 3]) -> Option<String> {
    let lists = lists.into_iter().filter(|(_, names)| !names.is_empty());
    let words: Vec<String> =
        lists.map(|(how, names)| format!("{} {how} ({})", names.len(), Few::of(names.iter()))).collect();
    (!words.is_empty()).then(|| format!("{what}: {}", words.join(", ")))
}

impl Members {
    /// `members: 1 added, 7 kept`; `None` where all are kept.
    fn part(&self) -> Option<String> {
        let Members { added, removed, new_identity, kept, unverified } = *self;
        let rows =
            [(added, "added"), (removed, "removed"), (new_identity, "with a new identity"), (unverified, "unverified")];
        let words: Vec<String> =
            rows.into_iter().filter(|(count, _)| *count > 0).map(|(count, how)| format!("{count} {how}")).collect();
        (!words.is_empty()).then(|| format!("members: {}, {kept} kept", words.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::time::Duration;

    use crate::config;
    use crate::snapshot::{Found, Located, Source};

    const BASE: &str = "listeners: [{ address: \"127.0.0.1:80\", name: web }, { address: \"127.0.0.1:81\" }]\npools:\n  a: { members: [\"10.0.0.1:80\", \"10.0.0.2:80\"], probe: { path: / } }\n  b: { members: [\"10.0.0.3:80\"] }\nroutes: [{ pool: a }, { path: /b, pool: b }]\n";

    fn next(old: Option<&Snapshot>, text: &str) -> Snapshot {
        let config = Arc::new(config::parse("a.yaml", text, &|_| None).expect("a good file").config);
        let mut found = Found::default();
        for (name, pool) in &config.pools {
            let located = pool.members.iter().enumerate().flat_map(|(index, member)| {
                let ip = member.host.parse().expect("an address");
                Located::all(member, &[ip], &Source::Written(index), None)
            });
            found.insert(name, located.collect());
        }
        Snapshot::next(old, Duration::ZERO, config, &found, &HashMap::new(), &Arc::default())
    }

    fn report(replace: &[(&str, &str)]) -> Report {
        let old = next(None, BASE);
        let before = Before::of(&old);
        let text = replace.iter().fold(BASE.to_owned(), |text, (from, to)| {
            assert!(text.contains(from), "{from}");
            text.replace(from, to)
        });
        Report::of(&old, &before, &next(Some(&old), &text))
    }

    #[test]
    fn what_is_told_is_what_has_changed() {
        let probe = "probe: { path: / }";
        // What is written instead of what, and the line.
        let rows: [(&[(&str, &str)], &str); 12] = [
            (&[], "only the contents of files have changed"),
            (&[("\"10.0.0.2:80\"", "\"10.0.0.9:80\"")], "pools: 1 changed (a); members: 1 added, 1 removed, 2 kept"),
            (&[("\"10.0.0.2:80\"", "\"10.0.0.2:81\"")], "pools: 1 changed (a); members: 1 added, 1 removed, 2 kept"),
            (
                &[("path: /", "path: /x")],
                "pools: 1 changed (a); members: 2 unverified, 3 kept; routes: 1 added (/xb), 1 removed (/b)",
            ),
            (&[(probe, "probe: { path: /, interval: 9s }")], "pools: 1 changed (a)"),
            (&[(probe, "probe: off")], "pools: 1 changed (a)"),
            (
                &[(probe, "upstream: { tls: true }, probe: { path: / }")],
                "pools: 1 changed (a); members: 2 with a new identity, 1 kept",
            ),
            (
                &[("  b: {", "  c: {"), ("pool: b", "pool: c")],
                "pools: 1 added (c), 1 removed (b); routes: 1 changed (/b)",
            ),
            (&[(", { path: /b, pool: b }", "")], "routes: 1 removed (/b)"),
            (&[("127.0.0.1:81\"", "127.0.0.1:82\"")], "listeners: 1 added (127.0.0.1:82), 1 removed (127.0.0.1:81)"),
            (&[("name: web", "name: web, keepalive_timeout: 5s")], "listeners: 1 changed (web)"),
            (
                &[("pools:", "access_log: off\nlame_duck: 1s\nreload: { watch: false }\npools:")],
                "in force: access_log, lame_duck, reload",
            ),
        ];
        for (replace, line) in rows {
            assert_eq!(report(replace).to_string(), line, "{replace:?}");
        }
    }

    #[test]
    fn a_changed_pool_says_in_which_keys() {
        let keys = |replace| report(replace).pools.changed.remove(0).keys;
        assert_eq!(
            keys(&[("probe: { path: / }", "probe: { path: / }, balance: random, deadline: 3s")]),
            ["balance", "deadline"]
        );
        assert_eq!(keys(&[("probe: { path: / }", "probe: { path: /, headers: { X-Key: a } }")]), ["probe"]);
        assert_eq!(keys(&[("\"10.0.0.1:80\", ", "")]), ["members"]);
    }

    #[test]
    fn many_are_counted_and_a_program_can_read_it_back() {
        let mut report = report(&[("\"10.0.0.2:80\"", "\"10.0.0.9:80\"")]);
        let text = serde_json::to_string(&report).expect("json");
        assert_eq!(serde_json::from_str::<Report>(&text).expect("the same type"), report);
        report.pools.added = (0..30).map(|n| format!("p{n}")).collect();
        assert!(
            report
                .to_string()
                .starts_with("pools: 30 added (p0, p1, p2, p3, p4, p5, p6, p7, p8, p9 and 20 more), 1 changed (a)")
        );
    }
}
