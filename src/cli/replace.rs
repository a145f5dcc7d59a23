//! `pulsegate replace`: has a member of the running proxy replaced now, by the pool's own `remediation`.
//!
//! The limits hold; whatever is replaced counts. How it ends is told by events, and by the API's list.

use std::process::ExitCode;

use http::Method;
use serde::Deserialize;

use super::operator::{self, Format, Operator, segment};

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

/// What is read of the API's answer.
#[derive(Debug, Deserialize)]
struct Begun {
    id: String,
    member: String,
    decision: String,
    shared_with: Vec<String>,
}

/// Asks for it, and says what was begun.
pub fn run(args: &Args) -> ExitCode {
    operator::run(&args.operator, async {
        let path = format!("/api/v1/pools/{}/members/{}/replace", segment(&args.pool), segment(&args.member));
        let answer = args.operator.ask::<Begun>(Method::POST, &path).await?;
        if args.operator.format() == Format::Json {
            return Ok(answer.body);
        }
        let Begun { id, member, decision, shared_with } = answer.said;
        let shared = match shared_with.is_empty() {
            true => String::new(),
            false => format!("; its machine also serves {}", shared_with.join(", ")),
        };
        let how = match &*decision {
            "queued" => "is to be replaced as soon as fewer are",
            _ => "is being replaced",
        };
        Ok(format!("{member} of {} {how} ({id}){shared}", args.pool))
    })
}
