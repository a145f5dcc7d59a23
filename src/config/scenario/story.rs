//! The story of a scenario: what happens to which member when, each turn of it on its own.

use std::collections::HashMap;
use std::mem::{Discriminant, discriminant};
use std::time::Duration;

use super::keys::TurnKeys;
use super::{Deed, Latency, Manner, Turn};
use crate::config::domain::{Config, Pool};
use crate::config::reading::Reading;
use crate::config::spelling::{Spelled, Text, likely, shown};
use crate::health::Admin;

/// Turns that one scenario may have.
const MOST_TURNS: usize = 1_000_000;

/// One turn as it is written, with those it is about.
struct Written {
    turn: Turn,
    lasts: Option<Duration>,
}

/// What happens, in the order of time; of what happens at the same time, in the order written.
pub(super) fn story(
    written: &[TurnKeys],
    config: &Config,
    duration: Duration,
    usual: Latency,
    top: &mut Reading<'_>,
) -> Vec<Turn> {
    let mut turns = Vec::new();
    for (index, keys) in written.iter().enumerate() {
        let at = top.at.key("story").item(index);
        let mut read = Reading::new(at, top.problems);
        turns.extend(turn(keys, config, duration, &mut read).into_iter().flatten());
        if turns.len() > MOST_TURNS {
            top.error("story", format!("at most {MOST_TURNS} turns are told"));
            break;
        }
    }
    let lasting = Lasting::of(&turns, usual);
    let ends: Vec<Turn> = turns.iter().filter_map(|written| end(written, &lasting)).collect();
    let mut story: Vec<Turn> = turns.into_iter().map(|written| written.turn).chain(ends).collect();
    story.retain(|turn| turn.at < duration);
    story.sort_by_key(|turn| turn.at);
    let flaps = flaps(&story, duration);
    if flaps > MOST_TURNS as u128 {
        let message = format!(
            "members that flap are {flaps} turns in this time; at most {MOST_TURNS} are told. Have them flap more slowly, or `for` \
             a shorter time"
        );
        top.error("story", message);
    }
    story
}

/// What holds of members for good: what is said of them without `for`, by its kind, in the order of time.
struct Lasting<'t> {
    usual: Latency,
    of: HashMap<Kind<'t>, Vec<(Duration, Deed)>>,
}

impl<'t> Lasting<'t> {
    fn of(turns: &'t [Written], usual: Latency) -> Lasting<'t> {
        let mut of: HashMap<_, Vec<_>> = HashMap::new();
        for Written { turn, .. } in turns.iter().filter(|written| written.lasts.is_none()) {
            of.entry(kind_of(turn)).or_default().push((turn.at, turn.deed));
        }
        // Of the same time the one written last.
        of.values_mut().for_each(|deeds| deeds.sort_by_key(|(at, _)| *at));
        Lasting { usual, of }
    }

    /// What held before this one.
    fn before(&self, turn: &Turn) -> Deed {
        let deeds = self.of.get(&kind_of(turn)).map_or(&[][..], Vec::as_slice);
        let earlier = deeds.partition_point(|(at, _)| *at < turn.at);
        match (deeds[..earlier].last(), turn.deed) {
            (Some((_, deed)), _) => *deed,
            (None, Deed::TakesLonger(_)) => Deed::TakesLonger(self.usual),
            (None, Deed::Ordered(_)) => Deed::Ordered(Admin::Enabled),
            (None, _) => Deed::Answers(Manner::Well),
        }
    }
}

/// Whose a deed is, by pool and place in it, and which: each lasts until the next of its kind.
type Kind<'t> = (&'t str, usize, Discriminant<Deed>);

fn kind_of(turn: &Turn) -> Kind<'_> {
    (turn.pool.as_str(), turn.member, discriminant(&turn.deed))
}

/// How often members turn by themselves: each that flaps until the story next says how it answers.
fn flaps(story: &[Turn], duration: Duration) -> u128 {
    let (mut flapping, mut count) = (HashMap::new(), 0);
    let turns = |(since, cycle): (Duration, Duration), until: Duration| {
        2 * (until.saturating_sub(since).as_nanos() / cycle.as_nanos().max(1))
    };
    for turn in story {
        let Deed::Answers(manner) = turn.deed else { continue };
        let member = (turn.pool.as_str(), turn.member);
        let before = match manner {
            Manner::Flaps { well_for, ill_for, .. } => flapping.insert(member, (turn.at, well_for + ill_for)),
            Manner::Well | Manner::Ill(_) => flapping.remove(&member),
        };
        count += before.map_or(0, |flap| turns(flap, turn.at));
    }
    count + flapping.into_values().map(|flap| turns(flap, duration)).sum::<u128>()
}

fn turn(keys: &TurnKeys, config: &Config, duration: Duration, read: &mut Reading<'_>) -> Option<Vec<Written>> {
    if keys.at.is_none() {
        read.missing("at", "when? write `at: 10m`");
    }
    if keys.does.is_none() {
        read.missing("does", "what happens? write `does: refuse`, `does: status 503` or the like");
    }
    let at = read.span("at", &keys.at, Duration::ZERO..=duration);
    let every = read.span("every", &keys.every, Duration::ZERO..=duration).unwrap_or_default();
    let lasts = read.span("for", &keys.lasts, Duration::from_millis(1)..=duration);
    let (pool, members) = cast(keys, config, read)?;
    let (at, Spelled(deed)) = (at?, keys.does?);
    if deed == Deed::Answers(Manner::Well) && lasts.is_some() {
        read.error("for", "`recover` lasts until the next turn; remove `for`");
    }
    let of = |(nth, member): (usize, usize)| {
        let turn = Turn { at: at + every * nth as u32, pool: pool.name.clone(), member, deed };
        Written { turn, lasts }
    };
    Some(members.into_iter().enumerate().map(of).collect())
}

/// Whom it is about.
fn cast<'c>(keys: &TurnKeys, config: &'c Config, read: &mut Reading<'_>) -> Option<(&'c Pool, Vec<usize>)> {
    let texts: Vec<(&str, Option<usize>)> = match (&keys.member, &keys.members) {
        (Some(_), Some(_)) => {
            read.error("members", "a turn has `member` or `members`, not both; write all of them in `members`");
            return None;
        }
        (Some(Spelled(Text(member))), None) => vec![(member, None)],
        (None, Some(list)) => {
            list.iter().enumerate().map(|(n, Spelled(Text(member)))| (member.as_str(), Some(n))).collect()
        }
        (None, None) => {
            if !read.at.may_have_lost("members") {
                read.missing("member", "who? write `member: \"10.0.0.1:80\"`, `members: [ … ]` or `member: all`");
            }
            return None;
        }
    };
    if texts.is_empty() {
        read.error("members", "who? write `members: [\"10.0.0.1:80\"]`, or `member: all`");
        return None;
    }
    let pool = match &keys.pool {
        Some(Spelled(Text(name))) => match config.pools.get(name) {
            Some(pool) => pool,
            None => {
                read.error("pool", format!("there is no pool \"{}\"{}", shown(name), hint(name, config.pools.keys())));
                return None;
            }
        },
        None => of_several(&texts, config, read)?,
    };
    if texts.len() == 1 && texts[0].0 == "all" {
        return Some((pool, (0..pool.members.len()).collect()));
    }
    let mut members = Vec::new();
    for (text, nth) in texts {
        match pool.members.iter().position(|member| member.name == text) {
            Some(member) => members.push(member),
            None => {
                let at = nth.map_or(read.at.key("member"), |nth| read.at.key("members").item(nth));
                let names = pool.members.iter().map(|member| &member.name);
                let message = format!("\"{}\" has no member \"{}\"{}", pool.name, shown(text), hint(text, names));
                read.problems.error(at, message);
            }
        }
    }
    Some((pool, members))
}

/// The pool that is meant where none is named: the only one, or the only one with the first of these members.
fn of_several<'c>(texts: &[(&str, Option<usize>)], config: &'c Config, read: &mut Reading<'_>) -> Option<&'c Pool> {
    let first = texts.first().map_or("", |(text, _)| *text);
    let has = |pool: &&'c std::sync::Arc<Pool>| config.pools.len() == 1 || pool.members.iter().any(|m| m.name == first);
    let mut having = config.pools.values().filter(has);
    match (having.next(), having.next()) {
        (Some(pool), None) => Some(pool),
        (None, _) if config.pools.is_empty() => None,
        (None, _) if first == "all" => {
            read.error("member", "all of which pool? write `pool` beside it");
            None
        }
        (None, _) => {
            let names = config.pools.values().flat_map(|pool| &pool.members).map(|member| &member.name);
            let key = if texts.first().is_some_and(|(_, nth)| nth.is_some()) { "members" } else { "member" };
            read.error(key, format!("no pool has a member \"{}\"{}", shown(first), hint(first, names)));
            None
        }
        (Some(_), Some(_)) => {
            read.error("member", format!("several pools have \"{}\"; write `pool` beside it", shown(first)));
            None
        }
    }
}

fn hint<'n>(name: &str, known: impl Iterator<Item = &'n String>) -> String {
    let known: Vec<&str> = known.map(String::as_str).collect();
    likely(name, &known).map_or_else(String::new, |other| format!("; did you mean \"{other}\"?"))
}

/// What ends a turn that lasts for a time: it is as before.
fn end(written: &Written, lasting: &Lasting<'_>) -> Option<Turn> {
    let Written { turn, lasts } = written;
    let deed = match turn.deed {
        Deed::Joins => Deed::Leaves,
        Deed::Leaves => Deed::Joins,
        Deed::Answers(_) | Deed::TakesLonger(_) | Deed::Ordered(_) => lasting.before(turn),
    };
    Some(Turn { at: turn.at + (*lasts)?, deed, ..turn.clone() })
}
