//! What is known of members as a file: times as how long ago they were when it was written.
//!
//! Not here: when it is written, and whom it is given to (the room's own page).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::boot::Stamp;
use crate::health::{Admin, Carried, Evidence, Held, Judge, Key, Outcome, Phases, Reason, Sample, Verdict};

/// The form that is written and read.
const VERSION: u32 = 1;

/// What is known of all pools at one moment.
#[derive(Debug, Serialize, Deserialize)]
pub struct File {
    version: u32,
    /// When it was written.
    pub left: Stamp,
    /// By name.
    pub pools: BTreeMap<String, Vec<MemberRecord>>,
}

/// One member.
#[derive(Debug, Serialize, Deserialize)]
pub struct MemberRecord {
    name: String,
    address: Option<SocketAddr>,
    tls: bool,
    source: Option<String>,
    file: Option<String>,
    fingerprint: String,
    written: String,
    admin: String,
    admin_ago_ms: u64,
    draining_ago_ms: Option<u64>,
    evidence: Option<EvidenceRecord>,
}

#[derive(Debug, Serialize, Deserialize)]
struct EvidenceRecord {
    judge: JudgeRecord,
    newcomer: bool,
    verdict: String,
    against: u32,
    places: String,
    proven: bool,
    unverified: bool,
    bits: String,
    shown: u32,
    streak: i64,
    totals_us: Vec<u64>,
    since_ago_ms: u64,
    cause: Option<String>,
    last_fail: Option<String>,
    last_sample: SampleRecord,
    sampled_ago_ms: u64,
    out: bool,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum JudgeRecord {
    Consecutive { failures: u32, passes: u32 },
    Window { size: u32, required: u32 },
}

#[derive(Debug, Serialize, Deserialize)]
struct SampleRecord {
    /// `None`: it passed.
    reason: Option<String>,
    detail: String,
    status: Option<u16>,
    connect_us: Option<u64>,
    tls_us: Option<u64>,
    first_byte_us: Option<u64>,
    total_us: u64,
}

impl File {
    /// As everything stands at `now`, which is `left`.
    pub fn new(now: Duration, left: Stamp, pools: BTreeMap<String, Vec<Carried>>) -> File {
        let records =
            |members: Vec<Carried>| members.into_iter().map(|member| MemberRecord::new(now, member)).collect();
        let pools = pools.into_iter().map(|(name, members)| (name, records(members))).collect();
        File { version: VERSION, left, pools }
    }

    /// What the file's bytes say.
    ///
    /// # Errors
    /// They are damaged, or of another release.
    pub fn read(bytes: &[u8]) -> Result<File, String> {
        #[derive(Deserialize)]
        struct Any {
            version: u32,
        }
        let of = |error: serde_json::Error| error.to_string();
        match serde_json::from_slice::<Any>(bytes).map_err(of)?.version {
            VERSION => serde_json::from_slice(bytes).map_err(of),
            other => Err(format!("it is of version {other}, this release knows {VERSION}")),
        }
    }

    /// As bytes.
    pub fn text(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

impl MemberRecord {
    fn new(now: Duration, member: Carried) -> MemberRecord {
        let Carried { key, source, roll, fingerprint, written, admin, admin_since, draining_since, evidence } = member;
        MemberRecord {
            name: key.name,
            address: key.address,
            tls: key.tls,
            source: source.map(|source| source.to_string()),
            file: roll.map(|roll| roll.to_string()),
            fingerprint: format!("{fingerprint:016x}"),
            written: written.as_str().to_owned(),
            admin: admin.as_str().to_owned(),
            admin_ago_ms: ago(now, admin_since),
            draining_ago_ms: draining_since.map(|since| ago(now, since)),
            evidence: evidence.map(|evidence| EvidenceRecord::new(now, evidence)),
        }
    }

    /// The member, `age` after this was written; what its probes have shown where it is no older than `most`. `None`: a word
    /// is not known here.
    pub fn carried(self, now: Duration, age: Duration, most: Duration) -> Option<Carried> {
        let is_fresh = |evidence: &EvidenceRecord| millis(evidence.sampled_ago_ms).saturating_add(age) <= most;
        Some(Carried {
            key: Key { name: self.name, address: self.address, tls: self.tls },
            source: self.source.map(Arc::from),
            roll: self.file.map(Arc::from),
            fingerprint: hex(&self.fingerprint)?,
            written: admin(&self.written)?,
            admin: admin(&self.admin)?,
            admin_since: then(now, age, self.admin_ago_ms),
            draining_since: self.draining_ago_ms.map(|ago_ms| then(now, age, ago_ms)),
            evidence: self.evidence.filter(is_fresh).and_then(|evidence| evidence.evidence(now, age)),
        })
    }
}

impl EvidenceRecord {
    fn new(now: Duration, evidence: Evidence) -> EvidenceRecord {
        let Held { judge, newcomer, verdict, against, places } = evidence.held;
        let word = |reason: Option<Reason>| reason.map(|reason| reason.as_str().to_owned());
        let Sample { outcome, detail, status, phases } = evidence.last_sample;
        EvidenceRecord {
            judge: match judge {
                Judge::Consecutive { failures, passes } => JudgeRecord::Consecutive { failures, passes },
                Judge::Window { size, required } => JudgeRecord::Window { size, required },
            },
            newcomer,
            verdict: verdict.as_str().to_owned(),
            against,
            places: format!("{places:x}"),
            proven: evidence.proven,
            unverified: evidence.unverified,
            bits: format!("{:x}", evidence.bits),
            shown: evidence.shown,
            streak: evidence.streak,
            totals_us: evidence.totals.into_iter().map(micros).collect(),
            since_ago_ms: ago(now, evidence.since),
            cause: word(evidence.cause),
            last_fail: word(evidence.last_fail),
            last_sample: SampleRecord {
                reason: word(if let Outcome::Fail(reason) = outcome { Some(reason) } else { None }),
                detail,
                status,
                connect_us: phases.connect.map(micros),
                tls_us: phases.tls.map(micros),
                first_byte_us: phases.first_byte.map(micros),
                total_us: micros(phases.total),
            },
            sampled_ago_ms: ago(now, evidence.sampled_at),
            out: evidence.out,
        }
    }

    fn evidence(self, now: Duration, age: Duration) -> Option<Evidence> {
        let word = |word: Option<String>| match word {
            None => Some(None),
            Some(word) => reason(&word).map(Some),
        };
        let SampleRecord { reason, detail, status, connect_us, tls_us, first_byte_us, total_us } = self.last_sample;
        let phases = Phases {
            connect: connect_us.map(Duration::from_micros),
            tls: tls_us.map(Duration::from_micros),
            first_byte: first_byte_us.map(Duration::from_micros),
            total: Duration::from_micros(total_us),
        };
        let outcome = word(reason)?.map_or(Outcome::Pass, Outcome::Fail);
        Some(Evidence {
            held: Held {
                judge: match self.judge {
                    JudgeRecord::Consecutive { failures, passes } => Judge::Consecutive { failures, passes },
                    JudgeRecord::Window { size, required } => Judge::Window { size, required },
                },
                newcomer: self.newcomer,
                verdict: verdict(&self.verdict)?,
                against: self.against,
                places: hex(&self.places)?,
            },
            proven: self.proven,
            unverified: self.unverified,
            bits: hex(&self.bits)?,
            shown: self.shown,
            streak: self.streak,
            totals: self.totals_us.into_iter().map(Duration::from_micros).collect(),
            since: then(now, age, self.since_ago_ms),
            cause: word(self.cause)?,
            last_fail: word(self.last_fail)?,
            last_sample: Sample { outcome, detail, status, phases },
            sampled_at: then(now, age, self.sampled_ago_ms),
            out: self.out,
        })
    }
}

fn ago(now: Duration, moment: Duration) -> u64 {
    now.saturating_sub(moment).as_millis() as u64
}

fn then(now: Duration, age: Duration, ago_ms: u64) -> Duration {
    now.saturating_sub(age).saturating_sub(millis(ago_ms))
}

fn millis(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn micros(duration: Duration) -> u64 {
    duration.as_micros() as u64
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

fn admin(word: &str) -> Option<Admin> {
    Admin::ALL.into_iter().find(|admin| admin.as_str() == word)
}

fn verdict(word: &str) -> Option<Verdict> {
    Verdict::ALL.into_iter().find(|verdict| verdict.as_str() == word)
}

fn reason(word: &str) -> Option<Reason> {
    Reason::ALL.into_iter().find(|reason| reason.as_str() == word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::{MemberId, PoolHealth, Rules, Spec};

    const MINUTE: Duration = Duration::from_secs(60);

    fn key(name: &str) -> Key {
        Key { name: name.to_owned(), address: name.parse().ok(), tls: true }
    }

    /// A pool in which one member has passed and another one has failed, by this judge, and was then drained by hand.
    fn known(judge: Judge) -> PoolHealth {
        let spec = |name: &str| Spec {
            key: key(name),
            weight: 1,
            split: 1,
            tier: 0,
            admin: Admin::Enabled,
            source: Some("app:80".into()),
            roll: None,
            fingerprint: u64::MAX,
        };
        let specs = vec![spec("10.0.0.1:80"), spec("10.0.0.2:80")];
        let mut pool = PoolHealth::new(MINUTE, Rules { judge, ..Rules::default() }, specs);
        let fail = Sample { status: Some(503), detail: "503".to_owned(), ..Sample::fail(Reason::Status, MINUTE) };
        for (member, sample) in [(0, Sample::pass(Duration::from_micros(1234))), (1, fail.clone()), (1, fail)] {
            pool.observe(MINUTE * 2, MemberId(member), u64::MAX, sample);
        }
        pool.administer(MINUTE * 3, MemberId(1), Admin::Draining);
        pool
    }

    fn written(pool: &PoolHealth, now: Duration) -> File {
        let left = Stamp { wall_ms: 0, boot: None };
        let text = File::new(now, left, [("web".to_owned(), pool.carried())].into()).text();
        File::read(&text).expect("ours")
    }

    #[test]
    fn what_is_written_is_what_is_read() {
        for judge in [Judge::Consecutive { failures: 1, passes: 2 }, Judge::Window { size: 64, required: 33 }] {
            let pool = known(judge);
            let members = written(&pool, MINUTE * 5).pools.remove("web").expect("written");
            let read = members.into_iter().map(|member| member.carried(MINUTE * 5, Duration::ZERO, MINUTE * 9));
            assert_eq!(read.collect::<Option<Vec<_>>>(), Some(pool.carried()), "{judge:?}");
        }
    }

    #[test]
    fn what_is_too_old_is_left_out_and_an_operators_word_is_not() {
        let pool = known(Judge::Consecutive { failures: 1, passes: 2 });
        for (age, is_there) in [(MINUTE * 6, true), (MINUTE * 7, false)] {
            let members = written(&pool, MINUTE * 5).pools.remove("web").expect("written");
            let now = MINUTE * 100;
            let read: Vec<Carried> = members.into_iter().filter_map(|m| m.carried(now, age, MINUTE * 9)).collect();
            assert_eq!(read[1].evidence.is_some(), is_there, "{age:?}");
            assert_eq!((read[1].admin, read[1].written), (Admin::Draining, Admin::Enabled));
            assert_eq!(read[1].draining_since, Some(read[1].admin_since));
            assert_eq!(read[1].admin_since, now - age - MINUTE * 2);
        }
    }

    #[test]
    fn what_is_damaged_or_of_another_release_is_refused_with_the_reason() {
        let whole = written(&known(Judge::Window { size: 5, required: 3 }), MINUTE).text();
        for cut in [0, 1, whole.len() / 2, whole.len() - 1] {
            assert!(File::read(&whole[..cut]).is_err(), "{cut}");
        }
        let newer = String::from_utf8(whole).expect("json").replace("\"version\":1", "\"version\":2");
        assert!(File::read(newer.as_bytes()).expect_err("another one").contains("of version 2"));
    }
}
