//! From text to places, by saphyr's marked events.
//!
//! saphyr's loader is not used: it copies whatever an alias refers to and recurses once per level, so that a short
//! hostile file could take all memory or the stack. Here aliases share one node, and depth, values and bytes are
//! bounded before anything is expanded.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use saphyr_parser::{Event, Marker, Parser, ScanError};

use super::places::{Mark, Node, Parts};
use super::problem::Problems;

/// A document may have this many levels.
const MAX_DEPTH: usize = 48;
/// And this many values, aliases expanded.
const MAX_VALUES: usize = 1_000_000;
/// And this many bytes of text, aliases expanded.
const MAX_BYTES: usize = 64 << 20;

/// The positions of a text's only document. `None` where no use can be made of it; the reason is among `problems`.
pub(super) fn places(text: &str, problems: &mut Problems) -> Option<Node> {
    let mut parser = Parser::new_from_str(text);
    let mut builder = Builder::default();
    loop {
        let (event, span) = match parser.next_event() {
            None => break,
            Some(Ok(event)) => event,
            Some(Err(error)) => {
                problems.error_at(error.marker().into(), syntax(text, &error));
                return None;
            }
        };
        let mark = Mark::from(&span.start);
        if let Err(message) = builder.event(event, mark, problems) {
            problems.error_at(mark, message);
            return None;
        }
    }
    match builder.root {
        Some(root) => Some(Rc::unwrap_or_clone(root)),
        None => {
            problems.error_at(Mark::START, "the file is empty; it needs `listeners`, `pools` and `routes`");
            None
        }
    }
}

impl From<&Marker> for Mark {
    fn from(marker: &Marker) -> Mark {
        Mark::new(marker.line(), marker.col() + 1)
    }
}

fn syntax(text: &str, error: &ScanError) -> String {
    let line = text.lines().nth(error.marker().line().saturating_sub(1)).unwrap_or_default();
    let indent = &line[..line.len() - line.trim_start().len()];
    if indent.contains('\t') {
        return "a tab indents this line; yaml takes spaces only".to_owned();
    }
    if line.contains('[') && line.split("]:").nth(1).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    {
        return "this is not yaml: an IPv6 address needs quotes, as in \"[::1]:8080\"".to_owned();
    }
    let info = error.info();
    let hint = match info {
        _ if info.contains("invalid indentation in flow") => "a `[` or `{` above is still open",
        _ if info.contains("unknown anchor") => "the alias has no anchor above it",
        _ if info.contains("expected key") || info.contains("invalid indentation") => {
            "this line is indented less than those beside it, or more"
        }
        _ if info.contains("mapping values are not allowed") => "a value with `: ` in it needs quotes",
        _ => return format!("this is not yaml: {info}"),
    };
    format!("this is not yaml: {hint} ({info})")
}

#[derive(Default)]
struct Builder {
    open: Vec<Open>,
    anchors: HashMap<usize, Anchored>,
    values: usize,
    bytes: usize,
    documents: usize,
    root: Option<Rc<Node>>,
}

/// A list or mapping whose end has not come yet.
struct Open {
    mark: Mark,
    anchor: usize,
    values_before: usize,
    bytes_before: usize,
    parts: OpenParts,
}

enum OpenParts {
    Items(Vec<Rc<Node>>),
    Keys { keys: BTreeMap<String, (Mark, Rc<Node>)>, pending: Option<Key> },
}

/// A key whose value has not come yet; `None` where the key is of no use.
type Key = Option<(String, Mark)>;

/// A finished anchored value and what one more copy of it adds.
struct Anchored {
    node: Rc<Node>,
    values: usize,
    bytes: usize,
}

impl Builder {
    fn event(&mut self, event: Event<'_>, mark: Mark, problems: &mut Problems) -> Result<(), String> {
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
            Event::DocumentStart(_) => {
                self.documents += 1;
                if self.documents > 1 {
                    return Err("a second document begins here; one file is one document".to_owned());
                }
            }
            Event::Scalar(text, _, anchor, tag) => {
                refuse_tag(tag.is_some(), mark, problems);
                self.grow(1, text.len())?;
                if self.key_is_due() {
                    self.key(Some((text.into_owned(), mark)), problems);
                } else {
                    let node = Rc::new(Node { mark, parts: Parts::Scalar, lost: Vec::new() });
                    self.keep(anchor, &node, 1, text.len());
                    self.value(node);
                }
            }
            Event::SequenceStart(anchor, tag) => {
                refuse_tag(tag.is_some(), mark, problems);
                self.start(anchor, mark, OpenParts::Items(Vec::new()))?;
            }
            Event::MappingStart(anchor, tag) => {
                refuse_tag(tag.is_some(), mark, problems);
                self.start(anchor, mark, OpenParts::Keys { keys: BTreeMap::new(), pending: None })?;
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(problems),
            Event::Alias(anchor) => {
                let Some(Anchored { node, values, bytes }) = self.anchors.get(&anchor) else {
                    return Err("this alias refers to something it is itself a part of".to_owned());
                };
                let (node, values, bytes) = (Rc::clone(node), *values, *bytes);
                self.grow(values, bytes)?;
                if self.key_is_due() {
                    problems.error_at(mark, "an alias cannot be a key; write the key out");
                    self.key(None, problems);
                } else {
                    self.value(node);
                }
            }
        }
        Ok(())
    }

    fn grow(&mut self, values: usize, bytes: usize) -> Result<(), String> {
        self.values = self.values.saturating_add(values);
        self.bytes = self.bytes.saturating_add(bytes);
        if self.values > MAX_VALUES {
            return Err(format!("the file holds more than {MAX_VALUES} values, aliases expanded"));
        }
        if self.bytes > MAX_BYTES {
            return Err(format!("the file holds more than {MAX_BYTES} bytes of text, aliases expanded"));
        }
        Ok(())
    }

    fn start(&mut self, anchor: usize, mark: Mark, parts: OpenParts) -> Result<(), String> {
        if self.open.len() == MAX_DEPTH {
            return Err(format!("this is nested more than {MAX_DEPTH} levels deep"));
        }
        let (values_before, bytes_before) = (self.values, self.bytes);
        self.grow(1, 0)?;
        self.open.push(Open { mark, anchor, values_before, bytes_before, parts });
        Ok(())
    }

    fn end(&mut self, problems: &mut Problems) {
        let Some(open) = self.open.pop() else { return };
        let parts = match open.parts {
            OpenParts::Items(items) => Parts::Items(items),
            OpenParts::Keys { keys, .. } => Parts::Keys(keys),
        };
        let node = Rc::new(Node { mark: open.mark, parts, lost: Vec::new() });
        self.keep(open.anchor, &node, self.values - open.values_before, self.bytes - open.bytes_before);
        if self.key_is_due() {
            problems.error_at(open.mark, "a key must be a plain word, not a list or mapping");
            self.key(None, problems);
        } else {
            self.value(node);
        }
    }

    fn keep(&mut self, anchor: usize, node: &Rc<Node>, values: usize, bytes: usize) {
        // Anchors are numbered from 1; 0 is none.
        if anchor > 0 {
            self.anchors.insert(anchor, Anchored { node: Rc::clone(node), values, bytes });
        }
    }

    fn key_is_due(&self) -> bool {
        matches!(self.open.last(), Some(Open { parts: OpenParts::Keys { pending: None, .. }, .. }))
    }

    fn key(&mut self, key: Key, problems: &mut Problems) {
        let Some(Open { parts: OpenParts::Keys { keys, pending }, .. }) = self.open.last_mut() else { return };
        let repeated = key.as_ref().and_then(|(text, mark)| Some((text, mark, keys.get(text)?.0)));
        *pending = Some(match repeated {
            Some((text, mark, first)) => {
                problems.error_at(*mark, format!("key `{text}` is written twice; the first is on line {}", first.line));
                None
            }
            None => key,
        });
    }

    fn value(&mut self, node: Rc<Node>) {
        match self.open.last_mut().map(|open| &mut open.parts) {
            None => self.root = Some(node),
            Some(OpenParts::Items(items)) => items.push(node),
            Some(OpenParts::Keys { keys, pending }) => {
                if let Some(Some((text, mark))) = pending.take() {
                    keys.insert(text, (mark, node));
                }
            }
        }
    }
}

fn refuse_tag(tagged: bool, mark: Mark, problems: &mut Problems) {
    if tagged {
        problems.error_at(mark, "yaml tags (`!…`) have no meaning here; remove it");
    }
}
