//! Covers secrets in what is shown of an exchange: in the request, and in an answer that repeats it.
//!
//! PURE. An origin that shows errors repeats what it was sent, as it came or written in one of the usual ways. Where a
//! recording ends within a secret, its beginning is covered too.

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
    secrets: Vec<Vec<u8>>,
}

impl Mask {
    pub(super) fn of<'a>(secrets: impl Iterator<Item = &'a str>) -> Mask {
        let mut all: Vec<Vec<u8>> = secrets.filter(|secret| secret.len() >= SHORTEST).flat_map(written).collect();
        all.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        all.dedup();
        Mask { secrets: all }
    }

    /// `bytes` with every secret covered, and the beginning of one that they end with.
    pub(super) fn covered(&self, bytes: Vec<u8>) -> Vec<u8> {
        self.secrets.iter().fold(bytes, |bytes, secret| cover(bytes, secret))
    }

    /// The same of a text.
    pub(super) fn covered_text(&self, text: String) -> String {
        if self.secrets.is_empty() {
            return text;
        }
        // What is put in is ASCII, and what is taken out was a text of its own.
        String::from_utf8(self.covered(text.into_bytes())).unwrap_or_default()
    }
}

impl std::fmt::Debug for Mask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mask").field("secrets", &self.secrets.len()).finish()
    }
}

/// As it is; as JSON may have it; percent-encoded.
fn written(secret: &str) -> [Vec<u8>; 4] {
    let percent = |c: char| match c {
        '+' => "%2B".to_owned(),
        '/' => "%2F".to_owned(),
        '=' => "%3D".to_owned(),
        ' ' => "%20".to_owned(),
        other => other.to_string(),
    };
    let unicode = |c: char| match c {
        '+' | '=' | '/' | '&' | '<' | '>' | '\'' => format!("\\u{:04X}", u32::from(c)),
        other => other.to_string(),
    };
    let slashes = secret.replace('/', "\\/");
    // Where only a slash is not escaped, as .NET has it.
    let of_net: String =
        secret.split('/').map(|part| part.chars().map(unicode).collect::<String>()).collect::<Vec<_>>().join("/");
    [secret.to_owned(), slashes, secret.chars().map(percent).collect(), of_net].map(String::into_bytes)
}

fn cover(bytes: Vec<u8>, secret: &[u8]) -> Vec<u8> {
    let Some(first) = secret.first() else { return bytes };
    let is_here = |at: usize| bytes[at..].starts_with(secret);
    let is_cut = |at: usize| bytes.len() - at >= CUT && secret.starts_with(&bytes[at..]);
    let mut covered: Option<Vec<u8>> = None;
    let mut done = 0;
    for at in (0..bytes.len()).filter(|at| bytes[*at] == *first) {
        if at < done || !(is_here(at) || is_cut(at)) {
            continue;
        }
        let covered = covered.get_or_insert_default();
        covered.extend_from_slice(&bytes[done..at]);
        covered.extend_from_slice(MASK);
        done = (at + secret.len()).min(bytes.len());
    }
    match covered {
        Some(mut covered) => {
            covered.extend_from_slice(&bytes[done..]);
            covered
        }
        None => bytes,
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
}
