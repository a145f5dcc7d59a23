//! Covers secrets in what is shown of an exchange: in the request, in an answer that repeats it, and in fields of both whose names
//! sound like secrets.
//!
//! PURE. An origin that shows errors repeats what it was sent, as it came or with some of its characters written in one of the
//! usual ways. Where a recording ends within a secret, its beginning is covered too; what is cut for a line is covered before.
//!
//! Not here: whatever else can be made of a secret, such as its bytes in hexadecimal. The page of it promises no more
//! (docs/probe-identity.md).

use crate::config::{percent_decoded, sounds_secret};

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
enum Form {
    /// These bytes.
    Spelt { bytes: Vec<u8>, letters: Letters },
    /// Its number after `begin`, with as many zeros before it as anybody likes.
    Numbered { begin: &'static [u8], digits: Vec<u8>, end: End },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Letters {
    /// As they are.
    Exact,
    /// Small or capital: digits of hexadecimal.
    Either,
}

/// What a number ends with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// This, which may be left out.
    Maybe(u8),
    /// This.
    Always(u8),
}

/// Where a form ends that is written here.
#[derive(Default)]
struct Ends {
    whole: Option<usize>,
    /// With what may be left out.
    longer: Option<usize>,
    /// All there is is its beginning.
    is_cut: bool,
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

    /// The header of a request or an answer, and what follows it, covered: every secret, and every field whose name sounds like
    /// one, whatever it holds (a value that is wrong may be somebody else's right one).
    pub(super) fn covered_head(&self, bytes: Vec<u8>) -> Vec<u8> {
        self.covered(without_secret_fields(&bytes))
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

/// What a challenge asks for is for everybody to read.
const CHALLENGES: [&str; 2] = ["www-authenticate", "proxy-authenticate"];

/// Up to the end of the header, interim answers before it included.
fn without_secret_fields(bytes: &[u8]) -> Vec<u8> {
    let (mut covered, mut is_head, mut is_secret) = (Vec::with_capacity(bytes.len()), true, false);
    let mut is_interim = false;
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let text = line.trim_ascii_end();
        if !is_head {
            covered.extend_from_slice(line);
            continue;
        }
        if text.starts_with(b"HTTP/1") {
            is_interim = text.get(8..10) == Some(b" 1") && text.get(9..12) != Some(b"101");
        }
        is_head = !text.is_empty() || is_interim;
        let is_continued = text.starts_with(b" ") || text.starts_with(b"\t");
        // Some of HTTP/2's begin with a colon.
        let name = text.iter().skip(1).position(|byte| *byte == b':').map_or(&[][..], |at| &text[..=at]);
        if !is_continued {
            let name = String::from_utf8_lossy(name).trim().to_ascii_lowercase();
            // Of HTTP/2 `:authority` is the host.
            let is_field = !name.starts_with(':') && !name.contains(' ') && !CHALLENGES.contains(&&*name);
            is_secret = is_field && sounds_secret(&name);
        }
        if !is_secret || text.is_empty() {
            covered.extend_from_slice(line);
            continue;
        }
        if !is_continued {
            covered.extend_from_slice(name);
            covered.push(b':');
        }
        covered.push(b' ');
        covered.extend_from_slice(MASK);
        covered.extend_from_slice(&line[text.len()..]);
    }
    covered
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
        let may_begin = |byte: &u8| first.iter().any(|form| form.first() == *byte);
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
                let here = form.ends(&bytes[end..]);
                next.extend([here.whole, here.longer].into_iter().flatten().map(|length| end + length));
                is_cut |= here.is_cut && count < self.needed;
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
    /// With what byte it begins.
    fn first(&self) -> u8 {
        match self {
            Form::Spelt { bytes, .. } => bytes[0],
            Form::Numbered { begin, .. } => begin[0],
        }
    }

    fn ends(&self, bytes: &[u8]) -> Ends {
        match self {
            Form::Spelt { bytes: own, letters } => {
                let most = own.len().min(bytes.len());
                let is_same = match letters {
                    Letters::Exact => own[..most] == bytes[..most],
                    Letters::Either => own[..most].eq_ignore_ascii_case(&bytes[..most]),
                };
                Ends {
                    whole: (is_same && most == own.len()).then_some(most),
                    is_cut: is_same && most < own.len(),
                    longer: None,
                }
            }
            Form::Numbered { begin, digits, end } => number(bytes, begin, digits, *end),
        }
    }
}

/// Where a number ends that is written here.
fn number(bytes: &[u8], begin: &[u8], digits: &[u8], end: End) -> Ends {
    let (mut at, mut rest) = (0, bytes);
    for part in [begin, &[], digits] {
        let is_zeros = part.is_empty();
        let part = if is_zeros { &rest[..rest.iter().take_while(|byte| **byte == b'0').count()] } else { part };
        let most = part.len().min(rest.len());
        if !part[..most].eq_ignore_ascii_case(&rest[..most]) {
            return Ends::default();
        }
        if most < part.len() {
            return Ends { is_cut: true, ..Ends::default() };
        }
        (at, rest) = (at + most, &rest[most..]);
    }
    match end {
        End::Maybe(byte) => {
            Ends { whole: Some(at), longer: (rest.first() == Some(&byte)).then_some(at + 1), is_cut: false }
        }
        End::Always(byte) => {
            let whole = (rest.first() == Some(&byte)).then_some(at + 1);
            Ends { whole, longer: None, is_cut: rest.is_empty() }
        }
    }
}

/// As it is; percent-encoded (RFC 3986 section 2.1), as forms have it too; escaped in JSON or a program's text; as an entity
/// of HTML, whose `;` browsers do not need after a number.
fn forms(character: char) -> Vec<Form> {
    let code = u32::from(character);
    let hex = |prefix: &str, bytes: &[u8]| bytes.iter().map(|byte| format!("{prefix}{byte:02x}")).collect::<String>();
    let octal = |bytes: &[u8]| bytes.iter().map(|byte| format!("\\{byte:03o}")).collect::<String>();
    let (mut utf8, mut utf16) = ([0; 4], [0; 2]);
    let as_it_is = character.encode_utf8(&mut utf8).to_owned();
    let bytes = as_it_is.as_bytes();
    let unicode: String = character.encode_utf16(&mut utf16).iter().map(|unit| format!("\\u{unit:04x}")).collect();
    let either = [hex("%", bytes), hex("\\x", bytes), unicode, format!("\\U{code:08x}")];
    let mut exact = vec![as_it_is.clone(), octal(bytes)];
    exact.extend(character.is_ascii().then(|| format!("\\{code:o}")));
    exact.extend(character.is_ascii_punctuation().then(|| format!("\\{character}")));
    exact.extend(names(character).iter().map(|name| format!("&{name};")));
    exact.extend((character == ' ').then(|| "+".to_owned()));
    let spelt = |letters: Letters| move |text: String| Form::Spelt { bytes: text.into_bytes(), letters };
    let numbered = |begin: &'static str, digits: String, end: End| Form::Numbered {
        begin: begin.as_bytes(),
        digits: digits.into_bytes(),
        end,
    };
    let numbers = [
        numbered("&#", code.to_string(), End::Maybe(b';')),
        numbered("&#x", format!("{code:x}"), End::Maybe(b';')),
        numbered("\\u{", format!("{code:x}"), End::Always(b'}')),
    ];
    exact.into_iter().map(spelt(Letters::Exact)).chain(either.map(spelt(Letters::Either))).chain(numbers).collect()
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
            (r"'xLvL\057NP\053Z6\075'", "'********'"),
            (r"'xLvL\57NP\53Z6\75'", "'********'"),
            (r"'xLvL\u{2f}NP\u{00002B}Z6='", "'********'"),
            (r"'xLvL\U0000002fNP\U0000002BZ6='", "'********'"),
            ("<b>xLvL&#47NP&#x2BZ6&#61</b>", "<b>********</b>"),
            ("<b>xLvL&#x0002F;NP&#0000043;Z6&#x0003D;</b>", "<b>********</b>"),
            (r"cut: xLvL\u{2", "cut: ********"),
            (r"cut: xLvL\u{0002f", "cut: ********"),
            ("cut: xLvL&#x00", "cut: ********"),
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
    fn fields_that_sound_secret_are_covered_whatever_they_hold() {
        let rows = [
            (
                "HTTP/1.1 403 No\r\nX-Api-Key: WRONG\r\nset-cookie: sid=1; Path=/\r\nDate: now\r\n\r\nx-api-key: body",
                "HTTP/1.1 403 No\r\nX-Api-Key: ********\r\nset-cookie: ********\r\nDate: now\r\n\r\nx-api-key: body",
            ),
            (
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 401 No\r\nWWW-Authenticate: Basic\r\nX-Token: a\r\n b\r\n\r\n",
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 401 No\r\nWWW-Authenticate: Basic\r\nX-Token: ********\r\n ********\r\n\r\n",
            ),
            (
                "GET /a:token HTTP/2\r\n:authority: a\r\ncookie: a=b",
                "GET /a:token HTTP/2\r\n:authority: a\r\ncookie: ********",
            ),
            ("x-session: 1\r\n", "x-session: ********\r\n"),
            ("\u{ff}\0 no answer", "\u{ff}\0 no answer"),
            ("", ""),
        ];
        for (shown, covered) in rows {
            let bytes = Mask::default().covered_head(shown.as_bytes().to_vec());
            assert_eq!(String::from_utf8_lossy(&bytes), covered, "{shown}");
        }
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
