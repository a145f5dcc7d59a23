//! From Rust source to words and signs, each with its line, without comments, strings, characters and lifetimes.

/// A piece of code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Token {
    /// A name or a keyword.
    Word(String),
    /// `::`
    Colons,
    /// Any other sign.
    Other(char),
}

/// Words and signs of `source` with their lines, without comments and literals.
pub fn tokens(source: &str) -> Vec<(usize, Token)> {
    let chars: Vec<char> = source.chars().collect();
    let mut tokens = Vec::new();
    let (mut at, mut line) = (0, 1);
    while at < chars.len() {
        let skipped = skipped(&chars[at..]);
        if skipped > 0 {
            line += chars[at..at + skipped].iter().filter(|c| **c == '\n').count();
            at += skipped;
        } else if is_word(chars[at]) {
            let length = chars[at..].iter().take_while(|c| is_word(**c)).count();
            tokens.push((line, Token::Word(chars[at..at + length].iter().collect())));
            at += length;
        } else if chars[at] == ':' && chars.get(at + 1) == Some(&':') {
            tokens.push((line, Token::Colons));
            at += 2;
        } else {
            tokens.push((line, Token::Other(chars[at])));
            at += 1;
        }
    }
    tokens
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// How many characters at the start of `rest` are white space, a comment, a literal or a lifetime.
fn skipped(rest: &[char]) -> usize {
    let next = |index: usize| rest.get(index).copied().unwrap_or(' ');
    match rest[0] {
        c if c.is_whitespace() => 1,
        '/' if next(1) == '/' => rest.iter().take_while(|c| **c != '\n').count(),
        '/' if next(1) == '*' => block_comment(rest),
        '"' => string(rest),
        '\'' if next(1) == '\\' => 2 + until(&rest[2..], 1, |window| window[0] == '\''),
        '\'' if next(2) == '\'' => 3,
        '\'' => 1 + rest[1..].iter().take_while(|c| is_word(**c)).count(),
        'b' | 'c' | 'r' => prefixed_literal(rest),
        _ => 0,
    }
}

/// `b"…"`, `c"…"`, `b'…'`, `r"…"`, `br#"…"#`; 0 where it is a word after all. The prefix of a raw name (`r#type`) counts as nothing.
fn prefixed_literal(rest: &[char]) -> usize {
    let letters = rest.iter().take_while(|c| matches!(c, 'b' | 'c' | 'r')).count();
    let hashes = rest[letters..].iter().take_while(|c| **c == '#').count();
    let raw = rest[..letters].contains(&'r');
    match rest.get(letters + hashes) {
        Some('"') if raw => {
            let body = letters + hashes + 1;
            let end = |window: &[char]| window[0] == '"' && window[1..].iter().all(|c| *c == '#');
            body + until(&rest[body..], hashes + 1, end)
        }
        Some('"') if hashes == 0 => letters + string(&rest[letters..]),
        Some('\'') if hashes == 0 && letters == 1 && rest[0] == 'b' => 1 + skipped(&rest[1..]),
        Some(c) if letters == 1 && hashes == 1 && raw && is_word(*c) => 2,
        _ => 0,
    }
}

fn string(rest: &[char]) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

fn block_comment(rest: &[char]) -> usize {
    let (mut at, mut depth) = (0, 0);
    while at + 1 < rest.len() {
        match (rest[at], rest[at + 1]) {
            ('/', '*') => depth += 1,
            ('*', '/') => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

/// Characters up to and with the first window of `width` that `ends`; all of them where none does.
fn until(rest: &[char], width: usize, ends: impl Fn(&[char]) -> bool) -> usize {
    rest.windows(width).position(ends).map_or(rest.len(), |at| at + width)
}
