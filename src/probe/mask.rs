//! Covers secrets in what is shown of an exchange: in the request, and in an answer that repeats it.
//!
//! PURE. An origin that shows errors repeats what it was sent, as it came or with some of its characters written in one of the
//! usual ways. Where a recording ends within a secret, its beginning is covered too; what is cut for a line is covered before.
//!
//! Not here: whatever else can be made of a secret, such as its bytes in hexadecimal. The page of it promises no more
//! (docs/probe-identity.md).

use crate::config::percent_decoded;

/// Stands for a secret.
const MASK: &[u8] = b"********";
/// A shorter value is no secret, and would be found everywhere.
const SHORTEST: usize = 6;
/// Of a secret that a recording cuts, so much at its end may be seen.
const CUT: usize = 4;

/// The secrets of one probe, in each way they may be written; printed they are not shown.
#[derive(Clone, Default)]
pub(super) struct Mask {
    /// The longest first.
    secrets: Vec<Secret>,
}

/// A secret, character by character: an answer may write one as it is and the next one otherwise.
#[derive(Clone)]
struct Secret {
    characters: Vec<Vec<Form>>,
    /// So many of them make it up; what follows is padding of base64, which may be left out.
    needed: usize,
}

/// One way to write one character.
#[derive(Clone)]
struct Form {
    bytes: Vec<u8>,
    letters: Letters,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Letters {
    /// As they are.
    Exact,
    /// Small or capital: digits of hexadecimal.
    Either,
}

/// How a secret meets what is shown.
enum Meeting {
    /// It is here, up to this place.
    Whole(usize),
    /// Its beginning is here, and then nothing more.
    Cut,
}

impl Mask {
    pub(super) fn of<'a>(secrets: impl Iterator<Item = &'a str>) -> Mask {
        // Whoever is asked for a path with `%2B` in its query reads it as `+`.
        let both = secrets.flat_map(|secret| [secret.to_owned(), percent_decoded(secret)]);
        let mut all: Vec<String> = both.filter(|secret| secret.len() >= SHORTEST).collect();
        all.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        all.dedup();
        Mask { secrets: all.iter().map(|secret| Secret::of(secret)).collect() }
    }

    /// `bytes` with every secret covered, and the beginning of one that they end with.
    pub(super) fn covered(&self, bytes: Vec<u8>) -> Vec<u8> {
        self.secrets.iter().fold(bytes, |bytes, secret| secret.cover(bytes))
    }

    /// The same of a text.
    pub(super) fn covered_text(&self, text: String) -> String {
        if self.secrets.is_empty() {
            return text;
        }
        // What is put in is ASCII, and what is taken out was a text of its own.
        String::from_utf8(self.covered(text.into_bytes())).unwrap_or_default()
    }

    /// At most so much of what others wrote goes into a detail. It is covered before it is cut: of a secret that is cut,
    /// the beginning would not be known again.
    pub(super) fn short(&self, text: &str) -> String {
        const SHOWN: usize = 200;
        let text = self.covered_text(text.to_owned());
        match text.char_indices().nth(SHOWN) {
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text,
        }
    }

    /// The first bytes of something unexpected, fit for a log line.
    pub(super) fn quote(&self, bytes: &[u8]) -> String {
        let bytes = self.covered(bytes.to_vec());
        format!("\"{}\"", bytes[..bytes.len().min(32)].escape_ascii())
    }
}

impl std::fmt::Debug for Mask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mask").field("secrets", &self.secrets.len()).finish()
    }
}

impl Secret {
    fn of(secret: &str) -> Secret {
        let bare = secret.trim_end_matches('=');
        let needed = if bare.len() >= SHORTEST { bare } else { secret };
        Secret { characters: secret.chars().map(forms).collect(), needed: needed.chars().count() }
    }

    fn cover(&self, bytes: Vec<u8>) -> Vec<u8> {
        let Some(first) = self.characters.first() else { return bytes };
        let may_begin = |byte: &u8| first.iter().any(|form| form.bytes[0] == *byte);
        let (mut covered, mut done): (Option<Vec<u8>>, usize) = (None, 0);
        for at in (0..bytes.len()).filter(|at| may_begin(&bytes[*at])) {
            if at < done {
                continue;
            }
            let Some(meeting) = self.meets(&bytes[at..]) else { continue };
            let covered = covered.get_or_insert_default();
            covered.extend_from_slice(&bytes[done..at]);
            covered.extend_from_slice(MASK);
            done = match meeting {
                Meeting::Whole(length) => at + length,
                Meeting::Cut => bytes.len(),
            };
        }
        match covered {
            Some(mut covered) => {
                covered.extend_from_slice(&bytes[done..]);
                covered
            }
            None => bytes,
        }
    }

    /// Whether `bytes` begin with it, or are the beginning of it.
    fn meets(&self, bytes: &[u8]) -> Option<Meeting> {
        let (mut ends, mut whole, mut is_cut) = (vec![0], None, false);
        for (count, forms) in self.characters.iter().enumerate() {
            let mut next = Vec::new();
            for (end, form) in ends.iter().flat_map(|end| forms.iter().map(move |form| (*end, form))) {
                let rest = &bytes[end..];
                if form.is_at(rest) {
                    next.push(end + form.bytes.len());
                } else if rest.len() < form.bytes.len() && count < self.needed {
                    is_cut |= form.begins_with(rest);
                }
            }
            next.sort_unstable();
            next.dedup();
            let Some(longest) = next.last() else { break };
            if count + 1 >= self.needed {
                whole = Some(*longest);
            }
            ends = next;
        }
        match whole {
            Some(length) => Some(Meeting::Whole(length)),
            None => (is_cut && bytes.len() >= CUT).then_some(Meeting::Cut),
        }
    }
}

impl Form {
    fn is_at(&self, bytes: &[u8]) -> bool {
        bytes.get(..self.bytes.len()).is_some_and(|bytes| self.begins_with(bytes))
    }

    fn begins_with(&self, bytes: &[u8]) -> bool {
        self.bytes.get(..bytes.len()).is_some_and(|own| match self.letters {
            Letters::Exact => own == bytes,
            Letters::Either => own.eq_ignore_ascii_case(bytes),
        })
    }
}

/// As it is; percent-encoded (RFC 3986 section 2.1), as forms have it too; escaped in JSON or a program's text; as an entity
/// of HTML.
fn forms(character: char) -> Vec<Form> {
    let code = u32::from(character);
    let hex = |prefix: &str, bytes: &[u8]| bytes.iter().map(|byte| format!("{prefix}{byte:02x}")).collect::<String>();
    let (mut utf8, mut utf16) = ([0; 4], [0; 2]);
    let as_it_is = character.encode_utf8(&mut utf8).to_owned();
    let percent = hex("%", as_it_is.as_bytes());
    let escaped = hex("\\x", as_it_is.as_bytes());
    let unicode: String = character.encode_utf16(&mut utf16).iter().map(|unit| format!("\\u{unit:04x}")).collect();
    let mut either = vec![percent, escaped, unicode];
    either
        .extend(["", "0", "00"].iter().flat_map(|zeros| [format!("&#{zeros}{code};"), format!("&#x{zeros}{code:x};")]));
    let mut exact = vec![as_it_is];
    if character.is_ascii_punctuation() {
        exact.push(format!("\\{character}"));
    }
    exact.extend(names(character).iter().map(|name| format!("&{name};")));
    exact.extend((character == ' ').then(|| "+".to_owned()));
    let form = |letters: Letters| move |text: String| Form { bytes: text.into_bytes(), letters };
    let exact = exact.into_iter().map(form(Letters::Exact));
    exact.chain(either.into_iter().map(form(Letters::Either))).collect()
}

/// What HTML calls it.
fn names(character: char) -> &'static [&'static str] {
    match character {
        '&' => &["amp"],
        '<' => &["lt"],
        '>' => &["gt"],
        '"' => &["quot"],
        '\'' => &["apos"],
        '+' => &["plus"],
        '/' => &["sol"],
        '=' => &["equals"],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_covered_however_it_is_written() {
        let mask = Mask::of(["xLvL/NP+Z6=", "xLvL/NP", "short"].into_iter());
        let rows = [
            ("X-Proof: xLvL/NP+Z6=\r\nA: b", "X-Proof: ********\r\nA: b"),
            ("\"xLvL\\/NP+Z6=\"", "\"********\""),
            ("\"xLvL/NP\\u002BZ6\\u003D\"", "\"********\""),
            ("?t=xLvL%2FNP%2BZ6%3D&", "?t=********&"),
            ("?t=xLvL%2fNP%2bZ6%3d&", "?t=********&"),
            ("?t=xLvL/NP%2BZ6%3D&", "?t=********&"),
            ("?t=%78LvL/NP+Z6=&", "?t=********&"),
            ("\"xLvL/NP+Z6\\u003d\"", "\"********\""),
            ("'xLvL\\x2fNP\\x2BZ6='", "'********'"),
            ("<b>xLvL/NP&#43;Z6=</b>", "<b>********</b>"),
            ("<b>xLvL&#047;NP&plus;Z6&#x3D;</b>", "<b>********</b>"),
            ("<b>xLvL&#x2f;NP+Z6&#x3d;</b>", "<b>********</b>"),
            ("no padding: xLvL/NP+Z6.", "no padding: ********."),
            ("cut: xLvL%2", "cut: ********"),
            ("cut: xLvL/NP&#4", "cut: ********"),
            ("xLvL/NP+Z6=xLvL/NP+Z6=", "****************"),
            ("the other: xLvL/NP.", "the other: ********."),
            ("cut: xLvL/N", "cut: ********"),
            ("not cut: xLv", "not cut: xLv"),
            ("short", "short"),
            ("", ""),
        ];
        for (shown, covered) in rows {
            assert_eq!(mask.covered_text(shown.to_owned()), covered, "{shown}");
        }
        assert_eq!(mask.covered(b"\xff\xfexLvL/NP\xff".to_vec()), b"\xff\xfe********\xff");
        assert!(!format!("{mask:?}").contains("xLvL"));
    }
    #[test]
    fn what_is_in_a_query_is_covered_as_it_is_read() {
        let mask = Mask::of(["S%26cr%2Bt%20\u{e9}"].into_iter());
        for shown in ["S%26cr%2Bt%20\u{e9}", "S&cr+t \u{e9}", "S&amp;cr+t \\u00E9", "S%26cr%2bt+%c3%A9"] {
            assert_eq!(mask.covered_text(format!("<{shown}>")), "<********>", "{shown}");
        }
    }

    #[test]
    fn what_is_cut_is_covered_before() {
        let mask = Mask::of(["xLvLH77JnWW/WdhcjLYu4tuWPw/hBvSD2a+nO9Tjmoo="].into_iter());
        let proof = "xLvLH77JnWW/WdhcjLYu4tuWPw/hBvSD2a+nO9Tjmoo=";
        for before in 0..=250 {
            let text = format!("{}{proof}", "y".repeat(before));
            assert!(!mask.short(&text).contains("xLvL"), "{before}");
            // So much is kept of what is no answer.
            assert!(!mask.quote(&text.as_bytes()[..text.len().min(64)]).contains("xLvL"), "{before}");
        }
        assert_eq!(mask.quote(b"\x00GET\xff"), "\"\\x00GET\\xff\"");
    }
}
