//! IPv6 addresses without quotes, which YAML takes for lists: found in a text that cannot be read, and disguised, so that
//! the rest can be.
//!
//! Only asked when something is wrong, so that a text that means something keeps its meaning.

use std::net::Ipv6Addr;

use super::places::Mark;

/// So many are found at most; who has more will come again anyway.
const MOST: usize = 100;
/// No address in brackets is longer.
const LONGEST: usize = 50;

/// Stand for brackets, character for character, so that every place stays true.
const MASKS: [char; 2] = ['\u{e000}', '\u{e001}'];

/// The text with every bare `[::1]:80` disguised, and where they stood; `None` where there is none.
pub(super) fn disguised(text: &str) -> Option<(String, Vec<(Mark, String)>)> {
    let (mut whole, mut bare) = (String::with_capacity(text.len() + 6 * MOST), Vec::new());
    for (index, line) in text.split_inclusive('\n').enumerate() {
        let (mut done, mut seen) = (0, Before::default());
        for (start, _) in line.match_indices('[') {
            seen.more(&line[seen.bytes..start]);
            let Some(address) = address(&line[start..]).filter(|_| bare.len() < MOST && seen.may_begin_value()) else {
                continue;
            };
            bare.push((Mark::new(index + 1, line[..start].chars().count() + 1), address.to_owned()));
            whole.push_str(&line[done..start]);
            whole.push_str(&address.replace('[', &MASKS[0].to_string()).replace(']', &MASKS[1].to_string()));
            done = start + address.len();
        }
        whole.push_str(&line[done..]);
    }
    (!bare.is_empty()).then_some((whole, bare))
}

/// A text of the file with its brackets back.
pub(super) fn undisguised(text: &str) -> String {
    text.replace(MASKS[0], "[").replace(MASKS[1], "]")
}

/// `[::1]:80` at the beginning of `text`, and nothing that goes on.
fn address(text: &str) -> Option<&str> {
    let close = text.bytes().take(LONGEST).position(|b| b == b']')?;
    text[1..close].parse::<Ipv6Addr>().ok()?;
    let digits = text[close + 1..].strip_prefix(':')?.bytes().take_while(u8::is_ascii_digit).count();
    let end = close + 2 + digits;
    let ends = text[end..].chars().next().is_none_or(|c| c.is_whitespace() || ",]}".contains(c));
    (digits > 0 && ends).then(|| &text[..end])
}

/// What stands on a line before a `[`.
#[derive(Debug, Default)]
struct Before {
    bytes: usize,
    double_quotes: usize,
    single_quotes: usize,
    is_comment: bool,
    last: Option<char>,
}

impl Before {
    fn more(&mut self, text: &str) {
        self.is_comment |= text.contains(" #") || self.bytes == 0 && text.trim_start().starts_with('#');
        self.bytes += text.len();
        self.double_quotes += text.matches('"').count();
        self.single_quotes += text.matches('\'').count();
        self.last = text.chars().next_back().or(self.last);
    }

    /// No comment, no quote that is open, and nothing that it would be a part of.
    fn may_begin_value(&self) -> bool {
        let open = !self.double_quotes.is_multiple_of(2) || !self.single_quotes.is_multiple_of(2);
        !self.is_comment && !open && self.last.is_none_or(|c| c.is_whitespace() || "[{,".contains(c))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bare_addresses_with_a_port_are_disguised() {
        let rows: &[(&str, &[&str])] = &[
            ("- [::1]:80\n", &["[::1]:80"]),
            ("[[::1]:80, [fd00::2]:81]", &["[::1]:80", "[fd00::2]:81"]),
            ("a: {b: [::]:8080} # [::1]:80", &["[::]:8080"]),
            ("a: \"[::1]:80\"", &[]),
            ("a: \"x [::1]:80\"", &[]),
            ("a: 'x, [::1]:80'", &[]),
            ("# [::1]:80", &[]),
            ("http://[::1]:80", &[]),
            ("[::1]", &[]),
            ("[::1]: 80", &[]),
            ("[a]:80", &[]),
            ("[::1]:80x", &[]),
            ("[", &[]),
        ];
        for (text, wanted) in rows {
            let found = disguised(text);
            let bare = found.iter().flat_map(|(_, bare)| bare).map(|(_, address)| address.as_str());
            assert_eq!(bare.collect::<Vec<_>>(), *wanted, "{text}");
            if let Some((whole, _)) = found {
                assert_eq!(whole.chars().count(), text.chars().count(), "{text}");
                assert_eq!(undisguised(&whole), *text);
            }
        }
        let (_, bare) = disguised("é: 1\nü: [::1]:80").expect("one");
        assert_eq!(bare, [(Mark::new(2, 4), "[::1]:80".to_owned())]);
    }
}
