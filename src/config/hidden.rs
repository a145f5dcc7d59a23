//! What problems must not show: values from the environment, tokens and the fields of probes, passwords in addresses.
//!
//! Problems are read by more people than the file is: they go to logs, to events and to whoever reads the API. So what a
//! problem quotes of such a value is covered by how it is written, `${NAME}`. It is done where problems are noted, and not by
//! each of the many that quote.

use std::collections::{BTreeMap, BTreeSet};

use super::effective::without_secrets;
use super::places::{Mark, Step};

/// Stands for what is written in the file itself and is a secret by its key.
const MASK: &str = "********";

/// Of a value at most so much is looked for, in bytes: no problem quotes more.
const LOOKED_AT: usize = 4096;

/// A piece as long as this is covered where a problem of the value itself quotes it, in bytes. Others quote it whole: what
/// they share with it may be the domain of a host.
const PIECE: usize = 6;

/// A value shorter than this is no secret: in its own problems, and in others.
const SHORTEST: (usize, usize) = (3, 6);

/// The values of one text that are not to be shown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Hidden {
    /// How each is written, by the value itself in small letters.
    written: BTreeMap<String, String>,
    /// Those that are at one place.
    at: BTreeMap<Mark, Vec<String>>,
    /// Where the file itself has a secret.
    literals: BTreeSet<Mark>,
}

impl Hidden {
    /// The environment's value of `name` is part of what is at `mark`.
    pub(super) fn environment(&mut self, mark: Mark, name: &str, value: &str) {
        self.add(mark, value, format!("${{{name}}}"));
    }

    /// The text at `path` is in the file, where it is a secret by its key.
    pub(super) fn literal(&mut self, mark: Mark, path: &[Step], text: &str) {
        let is = |step: &Step, key: &str| matches!(step, Step::Key(name) if name == key);
        let is_secret = path
            .last()
            .is_some_and(|step| ["token", "secret", "previous_secret", "auth"].iter().any(|key| is(step, key)))
            || path.iter().any(|step| is(step, "headers"));
        // What stands there for the environment's may be shown.
        if is_secret && !text.contains("${") {
            self.add(mark, text, MASK.to_owned());
            self.literals.insert(mark);
        }
    }

    /// Whether the secret at `mark` stands in the file itself.
    pub(super) fn is_literal(&self, mark: Mark) -> bool {
        self.literals.contains(&mark)
    }

    /// How the environment's values at `mark` are written, of those that are in what is shown of it.
    pub(super) fn shown_at<'a>(&'a self, mark: Mark, shown: &str) -> impl Iterator<Item = &'a str> {
        let shown = shown.to_ascii_lowercase();
        let here = self.at.get(&mark).map_or(&[][..], Vec::as_slice).iter().filter(move |value| shown.contains(*value));
        here.filter_map(|value| self.written.get(value)).map(String::as_str).filter(|written| written.starts_with("${"))
    }

    fn add(&mut self, mark: Mark, value: &str, written: String) {
        let value: String = value.chars().take(LOOKED_AT).collect::<String>().to_ascii_lowercase();
        if value.len() >= SHORTEST.0 {
            self.at.entry(mark).or_default().push(value.clone());
            self.written.entry(value).or_insert(written);
        }
    }

    /// The message of a problem at `mark`, with whatever it quotes of these covered.
    pub(super) fn covered(&self, mark: Mark, message: String) -> String {
        let own = self.at.get(&mark).map_or(&[][..], Vec::as_slice);
        let others = self.written.keys().filter(|value| value.len() >= SHORTEST.1 && !own.contains(value));
        let mut values: Vec<(&str, usize)> = own.iter().map(|value| (value.as_str(), value.len().min(PIECE))).collect();
        values.extend(others.map(|value| (value.as_str(), value.len())));
        // Of two that a piece is of, the one that has more of it is meant.
        values.sort_by_key(|(value, _)| std::cmp::Reverse(value.len()));
        let mut covered = String::with_capacity(message.len());
        for (part, is_quoted) in parts(&message) {
            let mut part = without_password(part, is_quoted);
            for (value, least) in &values {
                let (whole, written) = (part.to_ascii_lowercase(), &self.written[*value]);
                // Beside quotes stand numbers at most, and what the system says.
                let least = if is_quoted { *least } else { value.len() };
                if is_quoted && whole.len() >= SHORTEST.0 && own.iter().any(|o| o == value) && value.contains(&whole) {
                    part.clone_from(written);
                } else if !part.contains(written.as_str()) {
                    part = cover(&part, &whole, value, least, written);
                }
            }
            // After the environment's, which are known by what they are.
            covered.push_str(&if is_quoted { without_parameters(&part) } else { part });
        }
        covered
    }
}

/// The parts of a message in their order, and whether each is within quotes, `…` or "…".
fn parts(message: &str) -> Vec<(&str, bool)> {
    let (mut parts, mut rest) = (Vec::new(), message);
    while let Some(open) = rest.find(['`', '"']) {
        let quote = &rest[open..=open];
        let Some(length) = rest[open + 1..].find(quote) else { break };
        let close = open + 1 + length;
        parts.extend([(&rest[..=open], false), (&rest[open + 1..close], true), (quote, false)]);
        rest = &rest[close + 1..];
    }
    parts.push((rest, false));
    parts
}

/// `http://********@host` for `http://user:password@host`.
fn without_password(part: &str, is_quoted: bool) -> String {
    let start = part.find("://").map_or(0, |at| at + 3);
    match part[start..].rsplit_once('@') {
        Some((user, host)) if is_quoted && user.contains(':') => format!("{}{MASK}@{host}", &part[..start]),
        _ => part.to_owned(),
    }
}

/// `/hook?token=********` for `/hook?token=abc`; where a message says what to write, or stands for the environment's, it stays.
fn without_parameters(part: &str) -> String {
    let Some((path, query)) = part.split_once('?') else { return part.to_owned() };
    let shown = |pair: &str| match pair.split_once('=') {
        Some((_, value)) if ["…", "${"].iter().any(|sign| value.starts_with(sign)) => pair.to_owned(),
        _ => without_secrets(&format!("?{pair}"))[1..].to_owned(),
    };
    format!("{path}?{}", query.split_inclusive(['&', ';']).map(shown).collect::<String>())
}

/// `part` with each run of `least` bytes or more that `value` has too replaced; `whole` is the same in small letters.
fn cover(part: &str, whole: &str, value: &str, least: usize, written: &str) -> String {
    let (mut covered, mut at) = (String::with_capacity(part.len()), 0);
    while let Some(next) = whole[at..].chars().next() {
        let in_both = |end: &usize| whole.get(at..*end).is_some_and(|run| value.contains(run));
        let longest = (at + least..=whole.len()).filter(|end| whole.is_char_boundary(*end)).take_while(in_both).last();
        match longest {
            Some(end) => {
                covered.push_str(written);
                at = end;
            }
            None => {
                covered.push_str(&part[at..at + next.len_utf8()]);
                at += next.len_utf8();
            }
        }
    }
    covered
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_problem_quotes_of_a_hidden_value_is_covered() {
        let (here, there) = (Mark::new(3, 5), Mark::new(9, 1));
        let mut hidden = Hidden::default();
        hidden.environment(here, "PROBE_PATH", "h?sv=1&sig=SeCrEtSaS");
        hidden.environment(here, "N", "70000");
        hidden.environment(here, "A", "a");
        hidden.literal(there, &[Step::Key("admin".to_owned()), Step::Key("token".to_owned())], "letmein now");
        let long = "h?sv=1&sig=SeC…";
        let rows = [
            (here, "`h?sv=1&sig=SeCrEtSaS` must begin with `/`", "`${PROBE_PATH}` must begin with `/`"),
            (here, "write `/h?sv=1&sig=secretsas`", "write `/${PROBE_PATH}`"),
            (here, "no \"sig\" here", "no \"${PROBE_PATH}\" here"),
            (here, &format!("`{long}` is long"), "`${PROBE_PATH}…` is long"),
            (here, "`port` cannot be 70000; write 1 to 65535", "`port` cannot be ${N}; write 1 to 65535"),
            (here, "a word `a`", "a word `a`"),
            (there, "no \"sig\" here", "no \"sig\" here"),
            (there, "the same as `/h?sv=1&sig=SeCrEtSaS`", "the same as `/${PROBE_PATH}`"),
            (there, "the same as `&sig=SeCrEt`", "the same as `&sig=SeCrEt`"),
            (there, "`letmein now` has a blank", "`********` has a blank"),
            (there, "`http://me:pass@host:80` is no host", "`http://********@host:80` is no host"),
            (there, "`http://a.test/?x=1&token=abc;y` is no url", "`http://a.test/?x=1&token=********;y` is no url"),
            (there, "`ftp://a.test?key=a` and `?token=…`", "`ftp://a.test?key=********` and `?token=…`"),
            (there, "`/h?sig=${SIG}` ?key=a", "`/h?sig=${SIG}` ?key=a"),
            (there, "`a@b` and mail to me:you@b", "`a@b` and mail to me:you@b"),
            (there, "one ` alone, and é `é`", "one ` alone, and é `é`"),
        ];
        for (mark, message, shown) in rows {
            assert_eq!(hidden.covered(mark, message.to_owned()), shown, "{message}");
        }
    }
}
