//! From names to addresses, when a configuration is read.
//!
//! All names are asked for at once and none may take long; one that cannot be resolved is a member without an address,
//! which says so, and stops nothing else (case C66). One that had addresses keeps them: a resolver that is away during a
//! reload must not take pools down that serve. Not here yet: asking again while the configuration stays.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::config::Config;
use crate::snapshot::Addresses;

/// How long one name may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// What the resolver says of each name: its addresses, or why there are none.
type Answers = HashMap<String, io::Result<Vec<IpAddr>>>;

/// The addresses of every member's host; an IP literal is its own. A name that is not answered keeps those of `before`, if
/// it was there; it is logged in any case.
pub async fn resolve(config: &Config, before: &Addresses) -> Addresses {
    let hosts: BTreeSet<&str> = config.pools.values().flat_map(|p| &p.members).map(|m| m.host.as_str()).collect();
    let mut answers = Answers::new();
    let mut asked = JoinSet::new();
    for host in hosts {
        match host.parse::<IpAddr>() {
            Ok(ip) => drop(answers.insert(host.to_owned(), Ok(vec![ip]))),
            Err(_) => drop(asked.spawn(look_up(host.to_owned()))),
        }
    }
    while let Some(answer) = asked.join_next().await {
        if let Ok((host, answer)) = answer {
            answers.insert(host, answer);
        }
    }
    for (host, answer) in &answers {
        let Err(error) = answer else { continue };
        let kept = before.get(host).map_or(0, Vec::len);
        tracing::warn!(target: "discovery", %host, %error, kept, "a member's name does not resolve");
    }
    merged(answers, before)
}

/// What names mean after `answers`: only one that is new may be without an address.
fn merged(answers: Answers, before: &Addresses) -> Addresses {
    let known = |host: &String| before.get(host).cloned().unwrap_or_default();
    answers.into_iter().map(|(host, answer)| (host.clone(), answer.unwrap_or_else(|_| known(&host)))).collect()
}

async fn look_up(host: String) -> (String, io::Result<Vec<IpAddr>>) {
    let answer = match timeout(PATIENCE, tokio::net::lookup_host((host.as_str(), 0))).await {
        // Sorted and each once: the order of an answer means nothing.
        Ok(Ok(found)) => Ok(found.map(|address| address.ip()).collect::<BTreeSet<_>>().into_iter().collect()),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, format!("no answer in {PATIENCE:?}"))),
    };
    (host, answer.and_then(not_empty))
}

fn not_empty(found: Vec<IpAddr>) -> io::Result<Vec<IpAddr>> {
    if found.is_empty() { Err(io::Error::new(io::ErrorKind::NotFound, "the answer is empty")) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ips(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().expect("an address")).collect()
    }

    /// Each name's addresses before, the resolver's answer, and what holds afterwards; `None` is no answer.
    type Row<'a> = (&'a str, Option<&'a [&'a str]>, Option<&'a [&'a str]>, &'a [&'a str]);

    #[test]
    fn name_without_an_answer_keeps_its_addresses() {
        let rows: [Row<'_>; 6] = [
            ("away.test", Some(&["10.0.0.1", "10.0.0.2"]), None, &["10.0.0.1", "10.0.0.2"]),
            ("moved.test", Some(&["10.0.0.1"]), Some(&["10.0.0.9"]), &["10.0.0.9"]),
            ("shrunk.test", Some(&["10.0.0.1", "10.0.0.2"]), Some(&["10.0.0.2"]), &["10.0.0.2"]),
            ("never.test", Some(&[]), None, &[]),
            ("new.test", None, None, &[]),
            ("found.test", None, Some(&["10.0.0.3"]), &["10.0.0.3"]),
        ];
        let before = rows.iter().filter_map(|(host, before, ..)| Some(((*host).to_owned(), ips((*before)?))));
        let answers = rows.iter().map(|(host, _, answer, _)| {
            let answer = answer.map_or_else(|| Err(io::ErrorKind::TimedOut.into()), |found| Ok(ips(found)));
            ((*host).to_owned(), answer)
        });
        let mut before: Addresses = before.collect();
        before.insert("gone.test".to_owned(), ips(&["10.0.0.4"]));
        let after = merged(answers.collect(), &before);
        for (host, _, _, expected) in rows {
            assert_eq!(after.get(host), Some(&ips(expected)), "{host}");
        }
        assert_eq!(after.get("gone.test"), None, "no member has it any more");
    }

    #[test]
    fn an_empty_answer_is_none() {
        assert!(not_empty(Vec::new()).is_err());
        assert!(not_empty(ips(&["::1"])).is_ok());
    }
}
