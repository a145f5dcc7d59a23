//! `pulsegate drain` and `disable`: an operator's word on one member of the running proxy, and what it made of the pool.
//!
//! Not here: how one comes back (`enable`), how pool and member are put in words (`standing`).

use std::process::ExitCode;
use std::time::Duration;

use http::Method;
use serde_json::Value;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::operator::{self, Answer, AskError, Format, Operator, segment};
use super::output;
use super::standing::{Member, Pool, bound, member_words, pool_words, rank, running, warning};

/// Between two looks whether a member has finished.
pub(super) const LOOK: Duration = Duration::from_millis(250);

/// Nobody waits longer.
pub(super) const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// Which member of which pool.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The pool's name
    #[arg(value_name = "POOL")]
    pub(super) pool: String,
    /// The member's address as the API shows it, or its name where no other member has it
    #[arg(value_name = "MEMBER")]
    pub(super) member: String,
    #[command(flatten)]
    pub(super) operator: Operator,
}

/// The same, and how long to wait.
#[derive(Debug, Clone, clap::Args)]
pub struct DrainArgs {
    #[command(flatten)]
    args: Args,
    /// Wait until nothing runs on it and nothing more may come, and fail if that is not so within this time (such as 30s)
    ///
    /// In a sticky pool clients that are bound to the member come until the pool's `drain` (10m) is over: that is waited for,
    /// and where the time given here is over before it, this fails at once. Tunnels are waited for too, and a drain does not end
    /// them. However that ends, the member stays drained.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    wait: Option<Duration>,
}

/// Says `disable` on a member.
pub fn disable(args: &Args) -> ExitCode {
    operator::run(&args.operator, async {
        let answer = args.say("disable").await?;
        Ok(args.shown(&answer).await)
    })
}

/// Says `drain`, and waits.
pub fn drain(args: &DrainArgs) -> ExitCode {
    let DrainArgs { args, wait } = args;
    operator::run(&args.operator, async {
        let answer = args.say("drain").await?;
        match wait {
            Some(wait) => args.wait(&answer.said, *wait).await,
            None => Ok(args.shown(&answer).await),
        }
    })
}

/// How far a member is that is waited for.
#[derive(Debug, PartialEq)]
enum Look<'a> {
    Finished(&'a Member),
    /// Something runs there, and this may change.
    Busy(&'a Member),
    /// Whatever runs there, clients that are bound to it may come for so long.
    Bound(&'a Member, Duration),
    /// It takes new requests again.
    Undone(&'a Member),
    /// It has left the pool: what runs there counts for the pool alone.
    Gone,
}

impl Args {
    /// Says it, and warns at once where the pool serves worse than before.
    pub(super) async fn say(&self, word: &str) -> Result<Answer<Member>, AskError> {
        // Whoever is not there need not be asked twice.
        let before = match self.look().await {
            Err(error @ (AskError::Nobody { .. } | AskError::Stranger { .. })) => return Err(error),
            looked => looked,
        };
        let path = format!("/api/v1/pools/{}/members/{}/{word}", segment(&self.pool), segment(&self.member));
        let answer = self.operator.ask(Method::POST, &path).await?;
        if let (Ok(before), Ok(after)) = (before, self.look().await)
            && rank(&after.said.mode) > rank(&before.said.mode)
        {
            output::tell(format_args!("pulsegate: warning: {}", warning(&self.pool, &after.said)));
        }
        Ok(answer)
    }

    pub(super) async fn look(&self) -> Result<Answer<Pool>, AskError> {
        self.operator.ask(Method::GET, &format!("/api/v1/pools/{}", segment(&self.pool))).await
    }

    /// Looks until nothing runs on `drained` and nothing more may come; says what for, where that is not so at once.
    async fn wait(&self, drained: &Member, wait: Duration) -> Result<String, AskError> {
        let until = Instant::now() + wait.min(LONGEST);
        let mut is_told = false;
        loop {
            // Taken before it is asked: what is left counts from a moment after this one, so whoever waits just as long as the
            // pool's `drain` is in time.
            let looked = Instant::now();
            let silent = || late("the proxy does not answer".to_owned(), "null".to_owned());
            let pool = timeout_at(until + LOOK, self.look()).await.unwrap_or_else(|_| Err(silent()))?;
            let is_over = Instant::now() >= until;
            match seen(drained, &pool.said) {
                Look::Finished(member) => return Ok(self.ended(member, &pool)),
                Look::Gone if pool.said.in_flight == 0 => {
                    return Ok(self.said(gone(drained, &self.pool, 0), || removed(drained, 0)));
                }
                Look::Undone(member) => {
                    let words = format!("{}; it was enabled meanwhile", member_words(&self.pool, member));
                    return Err(late(words, raw(member, &pool)));
                }
                Look::Busy(member) if is_over => {
                    let words = format!("still {}; it stays {}", running(member, wait), stays(&member.admin));
                    return Err(late(words, raw(member, &pool)));
                }
                Look::Bound(member, left) if is_over || looked + left.min(2 * LONGEST) > until => {
                    return Err(late(too_short(&self.pool, member, wait), raw(member, &pool)));
                }
                Look::Gone if is_over => {
                    let left = pool.said.in_flight;
                    return Err(late(gone(drained, &self.pool, left), removed(drained, left)));
                }
                Look::Busy(member) | Look::Bound(member, _) if !is_told => {
                    is_told = true;
                    output::tell(format_args!("pulsegate: {}; waiting", member_words(&self.pool, member)));
                }
                Look::Busy(_) | Look::Bound(..) | Look::Gone => {}
            }
            sleep_until((Instant::now() + LOOK).min(until)).await;
        }
    }

    /// The member and its pool, both as they are now: since the answer a probe may have ended.
    pub(super) async fn shown(&self, answer: &Answer<Member>) -> String {
        if self.operator.format() == Format::Json {
            return answer.body.clone();
        }
        // What was asked for is done, whether or not the pool can be looked at.
        let pool = self.look().await.ok();
        stand(&self.pool, &answer.said, pool.as_ref().map(|pool| &pool.said))
    }

    pub(super) fn ended(&self, member: &Member, pool: &Answer<Pool>) -> String {
        let words = format!("{}\n{}", member_words(&self.pool, member), pool_words(&self.pool, &pool.said));
        self.said(words, || raw(member, pool))
    }

    fn said(&self, words: String, body: impl FnOnce() -> String) -> String {
        match self.operator.format() {
            Format::Text => words,
            Format::Json => body(),
        }
    }
}

/// A member that was answered, and its pool, by one and the same look; as it was answered where that does not have it.
fn stand(name: &str, answered: &Member, pool: Option<&Pool>) -> String {
    let Some(pool) = pool else { return member_words(name, answered) };
    let member = pool.members.iter().find(|member| member.is(answered)).unwrap_or(answered);
    format!("{}\n{}", member_words(name, member), pool_words(name, pool))
}

/// How far `drained` is by what `pool` says. Another name may have its address.
fn seen<'a>(drained: &Member, pool: &'a Pool) -> Look<'a> {
    let Some(member) = pool.members.iter().find(|member| member.is(drained)) else { return Look::Gone };
    match (member.admin.as_str(), member.drain_left(), member.in_flight, member.tunnels) {
        ("enabled", ..) => Look::Undone(member),
        (_, Some(left), ..) => Look::Bound(member, left),
        (_, None, 0, 0) => Look::Finished(member),
        _ => Look::Busy(member),
    }
}

/// A wait that ends before the clients that are bound to the member are turned away.
fn too_short(pool: &str, member: &Member, wait: Duration) -> String {
    let (words, wait) = (bound(member).unwrap_or_default(), humantime::format_duration(wait));
    format!(
        "{words} ({} of {pool}, by the pool's `drain`), so --wait {wait} is too short; it stays {}: wait longer, or `disable` it",
        member.address,
        stays(&member.admin)
    )
}

/// The member as it came with the pool.
pub(super) fn raw(member: &Member, pool: &Answer<Pool>) -> String {
    let came = serde_json::from_str::<Value>(&pool.body).unwrap_or_default();
    let members = came["members"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_it = |found: &&Value| found["address"] == *member.address && found["name"] == *member.name;
    members.iter().find(is_it).map_or_else(|| "null".to_owned(), Value::to_string)
}

fn gone(drained: &Member, pool: &str, in_flight: u32) -> String {
    format!("{} is not in {pool} any more; {in_flight} in flight in the whole pool", drained.address)
}

/// In place of a member that has left its pool, which serves `in_flight`.
fn removed(drained: &Member, in_flight: u32) -> String {
    let Member { address, name, .. } = drained;
    serde_json::json!({ "address": address, "name": name, "standing": "removed", "pool_in_flight": in_flight })
        .to_string()
}

/// Somebody may have said another word meanwhile.
fn stays(admin: &str) -> &str {
    if admin == "draining" { "drained" } else { admin }
}

pub(super) fn late(words: String, body: String) -> AskError {
    AskError::Late { words, body }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_and_its_pool_are_shown_as_one_look_has_them() {
        let member = |standing: &str| Member {
            address: "a:80".to_owned(),
            admin: "enabled".to_owned(),
            standing: standing.to_owned(),
            ..Member::default()
        };
        let pool = |members: Vec<Member>| Pool {
            mode: "normal".to_owned(),
            in_rotation: 1,
            total: 1,
            members,
            ..Pool::default()
        };
        let stands = |pool: Option<Pool>| stand("web", &member("unknown"), pool.as_ref());
        let words = |standing: &str| format!("a:80 of web: enabled, stands {standing}; 0 in flight");
        let of_pool = "pool web: 1 of 1 in rotation";
        assert_eq!(stands(Some(pool(vec![member("healthy")]))), format!("{}\n{of_pool}", words("healthy")));
        assert_eq!(stands(Some(pool(Vec::new()))), format!("{}\n{of_pool}", words("unknown")), "it has left since");
        assert_eq!(stands(None), words("unknown"));
    }
}
