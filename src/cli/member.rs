//! `pulsegate drain`, `enable` and `disable`: an operator's word on one member of the running proxy.

use std::process::ExitCode;
use std::time::Duration;

use http::Method;
use serde::Deserialize;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::operator::{self, AskError, Format, Operator, segment};

/// Between two looks whether a member has finished.
const LOOK: Duration = Duration::from_millis(250);

/// Which member of which pool.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The pool's name
    #[arg(value_name = "POOL")]
    pool: String,
    /// The member's address as the API shows it, or its name where no other member has it
    #[arg(value_name = "MEMBER")]
    member: String,
    #[command(flatten)]
    operator: Operator,
}

/// The same, and how long to wait.
#[derive(Debug, Clone, clap::Args)]
pub struct DrainArgs {
    #[command(flatten)]
    args: Args,
    /// Wait until nothing runs on it any more, and fail if something still does after so long (such as 30s)
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    wait: Option<Duration>,
}

/// What is read of the API's member.
#[derive(Debug, Deserialize)]
struct Member {
    address: String,
    /// A proxy of another release may not say it.
    #[serde(default)]
    name: String,
    admin: String,
    standing: String,
    in_flight: u32,
    tunnels: u32,
}

#[derive(Debug, Deserialize)]
struct Pool {
    members: Vec<Member>,
}

/// Says `word` (`enable`, `disable`) on a member.
pub fn run(args: &Args, word: &str) -> ExitCode {
    operator::run(&args.operator, async { Ok(args.shown(&args.say(word).await?)) })
}

/// Says `drain`, and waits.
pub fn drain(args: &DrainArgs) -> ExitCode {
    let DrainArgs { args, wait } = args;
    operator::run(&args.operator, async {
        let answer = args.say("drain").await?;
        match (wait, serde_json::from_str::<Member>(&answer)) {
            (Some(wait), Ok(member)) => args.wait(&member, *wait).await,
            _ => Ok(args.shown(&answer)),
        }
    })
}

impl Member {
    fn is(&self, other: &Member) -> bool {
        self.address == other.address && self.name == other.name
    }
}

impl Args {
    async fn say(&self, word: &str) -> Result<String, AskError> {
        let path = format!("/api/v1/pools/{}/members/{}/{word}", segment(&self.pool), segment(&self.member));
        self.operator.ask(Method::POST, &path).await
    }

    /// Looks until nothing runs on the member `drained`, or it is gone. Another name may have its address.
    async fn wait(&self, drained: &Member, wait: Duration) -> Result<String, AskError> {
        let path = format!("/api/v1/pools/{}", segment(&self.pool));
        let until = Instant::now() + wait;
        loop {
            let looked = timeout_at(until + LOOK, self.operator.ask(Method::GET, &path)).await;
            let answer = looked.unwrap_or_else(|_| Err(late("the proxy does not answer".to_owned())))?;
            let pool: Pool = serde_json::from_str(&answer).map_err(std::io::Error::other)?;
            let Some(member) = pool.members.into_iter().find(|member| member.is(drained)) else {
                return Ok(format!("{} is not in {} any more", drained.address, self.pool));
            };
            if member.in_flight == 0 && member.tunnels == 0 {
                return Ok(self.words(&member));
            }
            if Instant::now() >= until {
                return Err(late(format!("{} after {}", self.words(&member), humantime::format_duration(wait))));
            }
            sleep_until((Instant::now() + LOOK).min(until)).await;
        }
    }

    fn shown(&self, answer: &str) -> String {
        match (self.operator.format(), serde_json::from_str::<Member>(answer)) {
            (Format::Text, Ok(member)) => self.words(&member),
            // A proxy of another release says more, or less.
            _ => answer.to_owned(),
        }
    }

    fn words(&self, member: &Member) -> String {
        let Member { address, admin, standing, in_flight, tunnels, .. } = member;
        format!("{address} of {}: {admin}, stands {standing}; {in_flight} in flight, {tunnels} tunnels", self.pool)
    }
}

fn late(words: String) -> AskError {
    AskError::Io(std::io::Error::other(words))
}
