//! How a scenario spells rates, latencies and what a member does.

use std::time::Duration;

use super::{Deed, Ill, Manner};
pub(super) use super::{Latency, Rate};
use crate::config::reading::DAY;
use crate::config::spelling::{Spelling, likely, one_of, shown, spell_duration};
use crate::health::Admin;

const DEEDS: [&str; 12] = [
    "recover", "status", "refuse", "reset", "freeze", "vanish", "latency", "flap", "join", "leave", "drain", "disable",
];
const ILLS: [&str; 5] = ["status 503", "refuse", "reset", "freeze", "vanish"];
/// Nobody flaps faster: half a turn.
const SHORTEST: Duration = Duration::from_millis(1);
/// No answer takes longer than the longest scenario.
const LONGEST: Duration = DAY.saturating_mul(31);

impl Spelling for Rate {
    const EXPECTED: &'static str = "a rate such as `50/s`";

    fn read(text: &str) -> Result<Rate, String> {
        let bad = || format!("`{}` is not a rate; write one such as `50/s`, `600/m` or `10/h`", shown(text));
        let (count, unit) = text.split_once('/').ok_or_else(bad)?;
        let count: u32 = count.trim().parse().map_err(|_| bad())?;
        let per = match unit.trim() {
            "s" => Duration::from_secs(1),
            "m" | "min" => Duration::from_secs(60),
            "h" => Duration::from_secs(3600),
            _ => return Err(bad()),
        };
        if count == 0 {
            return Err("a rate of 0 is no traffic; leave it out".to_owned());
        }
        let between = per / count;
        if between < Duration::from_micros(10) {
            return Err(format!("`{}` is more than 100000/s, which is the most that is simulated", shown(text)));
        }
        Ok(Rate { between })
    }
}

impl Spelling for Latency {
    const EXPECTED: &'static str = "a latency such as `20ms` or `20ms ± 5ms`";

    fn read(text: &str) -> Result<Latency, String> {
        let (mean, spread) = match text.split_once('±').or_else(|| text.split_once("+-")) {
            Some((mean, spread)) => (mean.trim(), spread.trim()),
            None => (text.trim(), "0ms"),
        };
        let mean_time = Duration::read(mean)?;
        if mean_time > LONGEST {
            return Err(format!(
                "`{}` is longer than any scenario; write at most `{}`",
                shown(mean),
                spell_duration(LONGEST)
            ));
        }
        // `200ms ± 50`: of the same unit.
        let spread = match spread.parse::<u32>() {
            Ok(number) => format!("{number}{}", mean.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.')),
            Err(_) => spread.to_owned(),
        };
        let spread = Duration::read(&spread)?;
        if spread > mean_time {
            return Err(format!("`{}` would be less than nothing at times; write a smaller spread", shown(text)));
        }
        Ok(Latency { mean: mean_time, spread })
    }
}

impl Spelling for Deed {
    const EXPECTED: &'static str = "what the member does, such as `refuse` or `status 503`";

    fn read(text: &str) -> Result<Deed, String> {
        let (first, rest) = text.trim().split_once(char::is_whitespace).unwrap_or((text.trim(), ""));
        let rest = rest.trim();
        let alone = |deed: Deed| match rest {
            "" => Ok(deed),
            _ => Err(after(first, rest)),
        };
        match first {
            "recover" => alone(Deed::Answers(Manner::Well)),
            "latency" if rest.is_empty() => Err("`latency` needs a time; write `latency 200ms ± 50ms`".to_owned()),
            "latency" => Latency::read(rest).map(Deed::TakesLonger),
            "flap" => flap(rest),
            "join" => alone(Deed::Joins),
            "leave" => alone(Deed::Leaves),
            "drain" => alone(Deed::Ordered(Admin::Draining)),
            "disable" => alone(Deed::Ordered(Admin::Disabled)),
            "enable" => alone(Deed::Ordered(Admin::Enabled)),
            _ => match ill(text.trim()) {
                Some(ill) => Ok(Deed::Answers(Manner::Ill(ill?))),
                None => Err(unknown(first)),
            },
        }
    }
}

/// `2s/3s`, and how it is ill where that is not by refusing.
fn flap(text: &str) -> Result<Deed, String> {
    let bad = || "`flap` needs how long it is well and how long it is not; write `flap 2s/3s`".to_owned();
    let (times, how) = text.split_once(char::is_whitespace).unwrap_or((text, "refuse"));
    let (well, not) = times.split_once('/').ok_or_else(bad)?;
    let (well_for, ill_for) = (Duration::read(well.trim())?, Duration::read(not.trim())?);
    if well_for.min(ill_for) < SHORTEST {
        return Err("`flap` needs 1ms or more for each; write `flap 2s/3s`".to_owned());
    }
    let how =
        ill(how.trim()).ok_or_else(|| format!("`flap` cannot do `{}`; write {}", shown(how), one_of(&ILLS)))??;
    Ok(Deed::Answers(Manner::Flaps { well_for, ill_for, how }))
}

fn ill(text: &str) -> Option<Result<Ill, String>> {
    Some(match text.split_once(char::is_whitespace).unwrap_or((text, "")) {
        ("refuse", "") => Ok(Ill::Refuses),
        ("reset", "") => Ok(Ill::Resets),
        ("freeze", "") => Ok(Ill::Freezes),
        ("vanish", "") => Ok(Ill::Vanishes),
        ("refuse" | "reset" | "freeze" | "vanish", rest) => Err(after(text, rest)),
        ("status", code) => match code.trim().parse() {
            Ok(code) if (200..=599).contains(&code) => Ok(Ill::Status(code)),
            _ => Err("`status` needs a code from 200 to 599; write `status 503`".to_owned()),
        },
        _ => return None,
    })
}

fn after(words: &str, rest: &str) -> String {
    let first = words.split_whitespace().next().unwrap_or_default();
    format!("`{first}` takes nothing after it, not `{}`", shown(rest.trim()))
}

fn unknown(word: &str) -> String {
    let meant = match word {
        "well" | "healthy" | "ok" | "up" | "recovers" | "heal" | "start" => Some("recover"),
        "down" | "die" | "dies" | "crash" | "stop" | "kill" => Some("refuse"),
        "hang" | "hangs" | "frozen" | "stall" => Some("freeze"),
        "blackhole" | "drop" | "unreachable" | "timeout" => Some("vanish"),
        "slow" | "delay" => Some("latency 200ms"),
        "draining" | "drained" => Some("drain"),
        "error" | "errors" | "fail" | "fails" => Some("status 503"),
        _ => likely(word, &DEEDS),
    };
    match meant {
        Some(meant) => format!("`{}` is not known here; did you mean `{meant}`?", shown(word)),
        None => format!(
            "`{}` is not known here; write {} or `enable`",
            shown(word),
            DEEDS.map(|d| format!("`{d}`")).join(", ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn what_a_member_does_is_a_word_with_what_it_takes() {
        let flaps = |how| Deed::Answers(Manner::Flaps { well_for: ms(2000), ill_for: ms(3000), how });
        let rows = [
            ("recover", Deed::Answers(Manner::Well)),
            ("status 503", Deed::Answers(Manner::Ill(Ill::Status(503)))),
            (" refuse ", Deed::Answers(Manner::Ill(Ill::Refuses))),
            ("latency 200ms ± 50ms", Deed::TakesLonger(Latency { mean: ms(200), spread: ms(50) })),
            ("latency 200ms +- 50", Deed::TakesLonger(Latency { mean: ms(200), spread: ms(50) })),
            ("latency 2s", Deed::TakesLonger(Latency { mean: ms(2000), spread: ms(0) })),
            ("flap 2s/3s", flaps(Ill::Refuses)),
            ("flap 2s/3s status 500", flaps(Ill::Status(500))),
            ("drain", Deed::Ordered(Admin::Draining)),
            ("join", Deed::Joins),
        ];
        for (text, deed) in rows {
            assert_eq!(Deed::read(text), Ok(deed), "{text}");
        }
    }

    #[test]
    fn what_is_not_known_is_answered_with_what_to_write() {
        let rows = [
            ("joins", "did you mean `join`?"),
            ("hang", "did you mean `freeze`?"),
            ("status", "write `status 503`"),
            ("status 99", "write `status 503`"),
            ("refuse 3", "takes nothing after it"),
            ("flap 2s", "write `flap 2s/3s`"),
            ("flap 1ns/3s", "needs 1ms or more for each"),
            ("flap 3s/0s", "needs 1ms or more for each"),
            ("flap 2s/3s drain", "write `status 503`, `refuse`"),
            ("latency", "write `latency 200ms ± 50ms`"),
            ("latency 10ms ± 20ms", "a smaller spread"),
            ("latency 400y", "write at most `31days`"),
            ("xyzzy", "write `recover`, `status`"),
        ];
        for (text, words) in rows {
            let error = Deed::read(text).expect_err(text);
            assert!(error.contains(words), "{text}: {error}");
        }
        for text in ["50", "50/d", "x/s", "0/s", "900000/s"] {
            assert!(Rate::read(text).is_err(), "{text}");
        }
        assert_eq!(Rate::read("600/m"), Ok(Rate { between: ms(100) }));
    }
}
