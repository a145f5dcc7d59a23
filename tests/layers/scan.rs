//! From Rust source to the paths it names, each with its line.
//!
//! Not a parser of Rust: it knows enough of `use`, `mod` and `#[cfg(test)]` to say which path is meant and whether it is
//! test code. A name that a `use` or a `mod` of the same file
//! brings in is spelled out, so `use tokio::net; … net::TcpStream` is seen as `tokio::net::TcpStream`.

use std::collections::HashMap;

use crate::tokens::{Token, tokens};

/// A path that a file names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mention {
    /// Counted from 1.
    pub line: usize,
    /// Absolute: `crate`, a crate's name or a local name comes first; a glob ends in `*`. Single words are mentions too.
    pub path: Vec<String>,
    /// Inside something marked `#[cfg(test)]`.
    pub test: bool,
}

/// What a file holds.
#[derive(Debug)]
pub struct Scan {
    /// Every path it names.
    pub mentions: Vec<Mention>,
    /// The files it brings in with `#[cfg(test)] mod name;`, as modules: `health::tests`.
    pub test_modules: Vec<String>,
}

/// Reads `source`, a file that is the module `module` (`["health", "pool"]`; empty for the crate's root).
pub fn scan(source: &str, module: &[&str]) -> Scan {
    let mut walk = Walk {
        tokens: tokens(source),
        at: 0,
        module: module.iter().map(|name| (*name).to_owned()).collect(),
        blocks: Vec::new(),
        names: HashMap::new(),
        found: Vec::new(),
        test_modules: Vec::new(),
    };
    walk.file();
    let Walk { names, found, test_modules, .. } = walk;
    Scan { mentions: found.into_iter().map(|mention| spell_out(mention, &names)).collect(), test_modules }
}

/// Replaces a first word that the file itself brought in by what it stands for.
fn spell_out(mention: Mention, names: &HashMap<String, Vec<String>>) -> Mention {
    match names.get(&mention.path[0]) {
        Some(whole) if mention.path.len() > 1 => {
            Mention { path: whole.iter().chain(&mention.path[1..]).cloned().collect(), ..mention }
        }
        _ => mention,
    }
}

/// An open `{`: the module it opened, if any, and whether it is test code.
struct Block {
    module: bool,
    test: bool,
}

struct Walk {
    tokens: Vec<(usize, Token)>,
    at: usize,
    module: Vec<String>,
    blocks: Vec<Block>,
    names: HashMap<String, Vec<String>>,
    found: Vec<Mention>,
    test_modules: Vec<String>,
}

impl Walk {
    fn file(&mut self) {
        // Set between `#[cfg(test)]` and the block or the semicolon that ends what it marks.
        let mut marked = false;
        while let Some(token) = self.peek(0) {
            match token {
                Token::Word(word) if word == "use" && self.peek(1) != Some(&Token::Other('<')) => {
                    self.at += 1;
                    self.use_tree(Vec::new(), marked);
                }
                Token::Word(word) if word == "mod" => {
                    self.module_start(marked);
                    marked = false;
                }
                Token::Word(_) => self.path(marked),
                Token::Colons => self.at += 1,
                Token::Other('#') if self.is_cfg_test() => {
                    marked = true;
                    self.at += 7;
                }
                Token::Other(sign) => {
                    match sign {
                        '{' => {
                            let test = marked || self.in_test();
                            self.blocks.push(Block { module: false, test });
                            marked = false;
                        }
                        '}' => self.close(),
                        ';' => marked = false,
                        _ => {}
                    }
                    self.at += 1;
                }
            }
        }
    }

    fn peek(&self, ahead: usize) -> Option<&Token> {
        self.tokens.get(self.at + ahead).map(|(_, token)| token)
    }

    fn word(&self, ahead: usize) -> Option<&str> {
        match self.peek(ahead) {
            Some(Token::Word(word)) => Some(word),
            _ => None,
        }
    }

    fn in_test(&self) -> bool {
        self.blocks.iter().any(|block| block.test)
    }

    /// At `#[cfg(test)]`.
    fn is_cfg_test(&self) -> bool {
        self.peek(1) == Some(&Token::Other('[')) && self.word(2) == Some("cfg") && self.word(4) == Some("test")
    }

    fn close(&mut self) {
        if self.blocks.pop().is_some_and(|block| block.module) {
            self.module.pop();
        }
    }

    /// At `mod name;` or `mod name {`.
    fn module_start(&mut self, marked: bool) {
        let Some(name) = self.word(1).map(str::to_owned) else {
            self.at += 1;
            return;
        };
        let mut whole = self.here();
        whole.push(name.clone());
        self.at += 2;
        if self.peek(0) == Some(&Token::Other('{')) {
            let test = marked || self.in_test();
            self.module.push(name);
            self.blocks.push(Block { module: true, test });
            self.at += 1;
        } else if self.blocks.is_empty() {
            if marked {
                self.test_modules.push(whole[1..].join("::"));
            }
            self.names.insert(name, whole);
        }
    }

    /// `crate::` and the module we are in.
    fn here(&self) -> Vec<String> {
        let mut path = vec!["crate".to_owned()];
        path.extend(self.module.iter().cloned());
        path
    }

    /// At the first word of a path in an expression, a type or an attribute.
    fn path(&mut self, marked: bool) {
        let line = self.tokens[self.at].0;
        let mut path = Vec::new();
        while let Some(word) = self.word(0) {
            path.push(word.to_owned());
            self.at += 1;
            if self.peek(0) != Some(&Token::Colons) || self.word(1).is_none() {
                break;
            }
            self.at += 1;
        }
        self.found(line, path, marked);
    }

    /// Inside a `use`, behind `prefix`: up to the `;`, `,` or `}` that ends this branch.
    fn use_tree(&mut self, mut prefix: Vec<String>, marked: bool) {
        let mut line = self.tokens.get(self.at).map_or(0, |(line, _)| *line);
        while let Some(token) = self.peek(0).cloned() {
            match token {
                Token::Word(word) if word == "as" => {
                    let name = self.word(1).map(str::to_owned);
                    self.at += 2;
                    return self.imported(line, prefix, name, marked);
                }
                Token::Word(word) => {
                    line = self.tokens[self.at].0;
                    prefix.push(word);
                }
                Token::Other('*') => {
                    prefix.push("*".to_owned());
                    self.at += 1;
                    return self.imported(line, prefix, None, marked);
                }
                Token::Other('{') => {
                    self.at += 1;
                    while !matches!(self.peek(0), None | Some(Token::Other('}'))) {
                        if self.peek(0) == Some(&Token::Other(',')) {
                            self.at += 1;
                        } else {
                            self.use_tree(prefix.clone(), marked);
                        }
                    }
                    self.at += 1;
                    return;
                }
                Token::Colons => {}
                Token::Other(_) => break,
            }
            self.at += 1;
        }
        self.imported(line, prefix, None, marked);
    }

    /// One leaf of a `use`; `name` where `as` gives another one.
    fn imported(&mut self, line: usize, mut path: Vec<String>, name: Option<String>, marked: bool) {
        if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
            path.pop();
        }
        let Some(last) = path.last().cloned() else { return };
        self.found(line, path, marked);
        if last != "*"
            && let Some(mention) = self.found.last()
        {
            self.names.insert(name.unwrap_or(last), mention.path.clone());
        }
    }

    /// Notes a path, made absolute.
    fn found(&mut self, line: usize, path: Vec<String>, marked: bool) {
        let mut rest = path.as_slice();
        let mut base = Vec::new();
        if matches!(path[0].as_str(), "self" | "super") && path.len() > 1 {
            base = self.here();
            while let Some((first, others)) = rest.split_first() {
                match first.as_str() {
                    "self" => {}
                    "super" => drop(base.pop()),
                    _ => break,
                }
                rest = others;
            }
        }
        base.extend(rest.iter().cloned());
        self.found.push(Mention { line, path: base, test: marked || self.in_test() });
    }
}
