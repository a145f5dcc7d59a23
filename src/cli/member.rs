//! `pulsegate drain`, `enable` and `disable`: an operator's word on one member of the running proxy, and what it made of
//! the pool.
//!
//! Not here: how pool and member are put in words (`standing`).

use std::process::ExitCode;
use std::time::Duration;

use http::Method;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::operator::{self, AskError, Format, Operator, segment};
use super::standing::{Member, Pool, member_words, pool_words, rank, running, warning};

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
    ///
    /// Tunnels are waited for too, and a drain does not end them. However that ends, the member stays drained.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    wait: Option<Duration>,
}

/// Says `word` (`enable`, `disable`) on a member.
pub fn run(args: &Args, word: &str) -> ExitCode {
    operator::run(&args.operator, async {
        let answer = args.say(word).await?;
        Ok(args.shown(&answer).await)
    })
}

/// Says `drain`, and waits.
pub fn drain(args: &DrainArgs) -> ExitCode {
    let DrainArgs { args, wait } = args;
    operator::run(&args.operator, async {
        let answer = args.say("drain").await?;
        match (wait, serde_json::from_str::<Member>(&answer)) {
            (Some(wait), Ok(member)) => args.wait(&member, *wait).await,
            _ => Ok(args.shown(&answer).await),
        }
    })
}

impl Member {
    fn is(&self, other: &Member) -> bool {
        self.address == other.address && self.name == other.name
    }
}

impl Args {
    /// Says it, and warns at once where the pool serves worse than before.
    async fn say(&self, word: &str) -> Result<String, AskError> {
        // Whoever is not there need not be asked twice.
        let before = match self.look().await {
            Err(error @ (AskError::Nobody { .. } | AskError::Stranger { .. })) => return Err(error),
            looked => looked,
        };
        let path = format!("/api/v1/pools/{}/members/{}/{word}", segment(&self.pool), segment(&self.member));
        let answer = self.operator.ask(Method::POST, &path).await?;
        if let (Ok(before), Ok(after)) = (before, self.look().await)
            && rank(&after.mode) > rank(&before.mode)
        {
            eprintln!("pulsegate: warning: {}", warning(&self.pool, &after));
        }
        Ok(answer)
    }

    async fn look(&self) -> Result<Pool, AskError> {
        let path = format!("/api/v1/pools/{}", segment(&self.pool));
        let answer = self.operator.ask(Method::GET, &path).await?;
        serde_json::from_str(&answer).map_err(|error| AskError::Io(std::io::Error::other(error)))
    }

    /// Looks until nothing runs on the member `drained`, or it is gone. Another name may have its address.
    async fn wait(&self, drained: &Member, wait: Duration) -> Result<String, AskError> {
        let until = Instant::now() + wait;
        loop {
            let looked = timeout_at(until + LOOK, self.look()).await;
            let pool = looked.unwrap_or_else(|_| Err(late("the proxy does not answer".to_owned())))?;
            let Some(member) = pool.members.iter().find(|member| member.is(drained)) else {
                return Ok(format!("{} is not in {} any more", drained.address, self.pool));
            };
            if member.in_flight == 0 && member.tunnels == 0 {
                return Ok(format!("{}\n{}", member_words(&self.pool, member), pool_words(&self.pool, &pool)));
            }
            if Instant::now() >= until {
                return Err(late(format!("still {}; it stays {}", running(member, wait), stays(&member.admin))));
            }
            sleep_until((Instant::now() + LOOK).min(until)).await;
        }
    }

    /// The member as it was answered, and the pool as it is now.
    async fn shown(&self, answer: &str) -> String {
        match (self.operator.format(), serde_json::from_str::<Member>(answer)) {
            (Format::Text, Ok(member)) => {
                let member = member_words(&self.pool, &member);
                // What was asked for is done, whether or not the pool can be looked at.
                self.look().await.map_or(member.clone(), |pool| format!("{member}\n{}", pool_words(&self.pool, &pool)))
            }
            // A proxy of another release says more, or less.
            _ => answer.to_owned(),
        }
    }
}

/// Somebody may have said another word meanwhile.
fn stays(admin: &str) -> &str {
    if admin == "draining" { "drained" } else { admin }
}

fn late(words: String) -> AskError {
    AskError::Io(std::io::Error::other(words))
}
