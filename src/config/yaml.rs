//! From text to typed shapes, every mistake noted at its place. The one file that knows serde_yaml.
//!
//! Every text goes through two parsers: saphyr's says where things are (`places`), serde_yaml says what they are.
//! serde stops at the first mistake; so the value it stumbled over is noted, cut out of both trees, and the rest is
//! read again, until it can be read whole.

use std::cell::RefCell;
use std::fmt;

use serde::de::{self, DeserializeOwned, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_path_to_error::Segment;
use serde_yaml::{Mapping, Value};

use super::bare;
use super::env;
use super::hidden::Hidden;
use super::hints::{self, Complaint};
use super::marks::places;
use super::places::{At, Mark, Node, Step};
use super::problem::Problems;

/// So many problems are listed at most; who has more will come again anyway.
const MAX_PROBLEMS: usize = 100;
/// Values deserialized over all passes, so that a large file with many mistakes ends in time.
const MAX_WORK: usize = 4_000_000;

/// A file's values and their places.
pub(super) struct Document {
    value: Value,
    places: Node,
}

/// A mapping that is laid over another one.
pub(super) struct Laid {
    value: Value,
    name: Mark,
    places: Node,
    is_foreign: bool,
}

impl Laid {
    /// The same, which stands in another file: in what it is laid over, no place means anything there.
    pub(super) fn of_another_file(self) -> Laid {
        Laid { is_foreign: true, ..self }
    }
}

/// Keys of a pool that are other ways to say one thing: who writes one of them means none of the others.
const EITHER: [&str; 2] = ["window", "consecutive"];
/// Keys whose value is one thing as a whole.
const WHOLE: &str = "balance";

/// What is made of the text at a path; `Ok(None)`: it stays.
type Change<'a> = dyn Fn(&[Step], &str) -> Result<Option<String>, String> + 'a;

impl Document {
    /// Reads a text. `None` where no use can be made of it; the reason is among `problems`.
    pub(super) fn new(text: &str, problems: &mut Problems) -> Option<Document> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        if let Some(mark) = control_character(text) {
            problems.error_at(mark, "a control character, which yaml does not take; remove it");
            return None;
        }
        let mut found = problems.none_yet();
        let document = Document::read_whole(text, &mut found);
        if found.any_error()
            && let Some((whole, bare)) = bare::disguised(text)
        {
            // It hides what else is wrong: read on as if it were quoted.
            found = problems.none_yet();
            let mut document = Document::read_whole(&whole, &mut found);
            if let Some(document) = &mut document {
                each_text(&mut document.value, &|text| *text = bare::undisguised(text));
            }
            for (mark, address) in bare {
                found.error_at(
                    mark,
                    format!("an IPv6 address needs quotes, or yaml takes it for a list: \"{address}\""),
                );
            }
            problems.append(found);
            return document;
        }
        problems.append(found);
        document
    }

    fn read_whole(text: &str, problems: &mut Problems) -> Option<Document> {
        let places = places(text, problems)?;
        match serde_yaml::from_str::<Tree>(text) {
            Ok(Tree(value)) => Some(Document { value, places }),
            Err(error) => {
                if !problems.any_error() {
                    let mark = error.location().map_or(Mark::START, |l| Mark::new(l.line(), l.column()));
                    problems.error_at(mark, format!("this is not yaml: {error}"));
                }
                None
            }
        }
    }

    pub(super) fn at(&self) -> At<'_> {
        At::root(&self.places)
    }

    /// Replaces what stands for the environment's values in every text, but in those that `refuse` has a message for. No
    /// problem shows these values from then on, nor the texts that are secrets by their keys.
    pub(super) fn expand(
        &mut self,
        refuse: &dyn Fn(&[Step], &str) -> Option<String>,
        env: &dyn Fn(&str) -> Option<String>,
        problems: &mut Problems,
    ) {
        let (places, hidden) = (self.places.clone(), RefCell::new(Hidden::default()));
        let change = |path: &[Step], text: &str| {
            let mark = At::root(&places).walk(path).mark();
            let asked = |name: &str| {
                let value = env(name)?;
                hidden.borrow_mut().environment(mark, name, &value);
                Some(value)
            };
            hidden.borrow_mut().literal(mark, path, text);
            refuse(path, text).map_or_else(|| env::expand(text, &asked), Err)
        };
        each_number(&self.value, &mut Vec::new(), &|path, number| {
            hidden.borrow_mut().literal(At::root(&places).walk(path).mark(), path, number);
        });
        self.rewrite(&change, problems);
        problems.hide(hidden.into_inner());
    }

    /// Changes every text by `change`; a text that cannot be changed is noted and taken out, and so is every key
    /// without a value.
    fn rewrite(&mut self, change: &Change<'_>, problems: &mut Problems) {
        let mut wrong = Vec::new();
        rewrite(&mut self.value, &mut Vec::new(), change, &mut wrong);
        // Backwards, so that the index of an item still to be taken out stays true.
        for (path, message) in wrong.into_iter().rev() {
            problems.error(At::root(&self.places).walk(&path), message);
            self.prune(&path);
        }
    }

    /// The shape written. What does not fit is noted and left out; `None` where that is the whole or too much.
    pub(super) fn read<T: DeserializeOwned>(&mut self, problems: &mut Problems) -> Option<T> {
        let mut work = 0;
        let each = size(&self.value);
        loop {
            let error = match serde_path_to_error::deserialize::<_, T>(&self.value) {
                Ok(shape) => return Some(shape),
                Err(error) => error,
            };
            let path = steps(error.path());
            let at = At::root(&self.places).walk(&path);
            let (mark, message) = match hints::reword(&error.inner().to_string(), &path) {
                Complaint::Key(message) => (at.name(), message),
                Complaint::Value(message) => (at.mark(), message),
            };
            problems.error_at(mark, message);
            work += each;
            if !self.prune(&path) {
                return None;
            }
            if problems.len() >= MAX_PROBLEMS || work > MAX_WORK {
                problems.error_at(mark, "there are more problems after this one; mend these first");
                return None;
            }
        }
    }

    /// The mapping at the end of `path`, to be laid over another.
    pub(super) fn part(&self, path: &[&str]) -> Option<Laid> {
        let value = path.iter().try_fold(&self.value, |value, key| value.get(key))?;
        let at = path.iter().fold(self.at(), |at, key| at.key(key));
        Some(Laid { value: value.clone(), name: at.name(), places: at.node()?.clone(), is_foreign: false })
    }

    /// Lays a mapping over the one at `key`: what it says counts, and what it does not say stays.
    pub(super) fn lay_over(&mut self, key: &str, laid: Laid) {
        if laid.is_foreign {
            self.places.move_to(Mark::START);
        }
        if let Some(value) = self.value.get_mut(key) {
            lay(value, laid.value);
        }
        self.places.lay(key, laid.name, &laid.places, &EITHER, WHOLE);
    }

    /// Takes a value out of both trees; false where there is nothing to take.
    fn prune(&mut self, path: &[Step]) -> bool {
        self.places.prune(path);
        prune(&mut self.value, path)
    }
}

/// The first character that YAML does not take (YAML 1.2.2 section 5.1).
fn control_character(text: &str) -> Option<Mark> {
    let forbidden = |c: char| c.is_control() && !matches!(c, '\t' | '\n' | '\r' | '\u{85}');
    let place = text.find(forbidden)?;
    Some(Mark::after(&text[..place]))
}

fn steps(path: &serde_path_to_error::Path) -> Vec<Step> {
    let step = |segment: &Segment| match segment {
        Segment::Map { key } => Some(Step::Key(key.clone())),
        Segment::Seq { index } => Some(Step::Item(*index)),
        Segment::Enum { .. } | Segment::Unknown => None,
    };
    path.iter().map_while(step).collect()
}

fn prune(value: &mut Value, path: &[Step]) -> bool {
    match (path, value) {
        ([Step::Key(key)], Value::Mapping(map)) => map.remove(key.as_str()).is_some(),
        ([Step::Item(index)], Value::Sequence(items)) => {
            let exists = *index < items.len();
            if exists {
                items.remove(*index);
            }
            exists
        }
        ([Step::Key(key), rest @ ..], Value::Mapping(map)) => map.get_mut(key.as_str()).is_some_and(|v| prune(v, rest)),
        ([Step::Item(index), rest @ ..], Value::Sequence(items)) => {
            items.get_mut(*index).is_some_and(|v| prune(v, rest))
        }
        _ => false,
    }
}

/// What `over` says counts, mapping by mapping.
fn lay(value: &mut Value, over: Value) {
    let (Value::Mapping(base), Value::Mapping(over)) = (&mut *value, &over) else {
        *value = over;
        return;
    };
    for (key, part) in over {
        let name = key.as_str().unwrap_or_default();
        if EITHER.contains(&name) {
            EITHER.iter().filter(|other| **other != name).for_each(|other| drop(base.remove(*other)));
        }
        match base.get_mut(key).filter(|_| name != WHOLE) {
            Some(value) => lay(value, part.clone()),
            None => drop(base.insert(key.clone(), part.clone())),
        }
    }
}

fn size(value: &Value) -> usize {
    match value {
        Value::Sequence(items) => 1 + items.iter().map(size).sum::<usize>(),
        Value::Mapping(map) => 1 + map.values().map(size).sum::<usize>(),
        _ => 1,
    }
}

fn each_text(value: &mut Value, change: &dyn Fn(&mut String)) {
    match value {
        Value::String(text) => change(text),
        Value::Sequence(items) => items.iter_mut().for_each(|item| each_text(item, change)),
        Value::Mapping(map) => map.values_mut().for_each(|item| each_text(item, change)),
        _ => {}
    }
}

/// Numbers as problems quote them: what is meant for a text may be read as one, and be a secret.
fn each_number(value: &Value, path: &mut Vec<Step>, told: &dyn Fn(&[Step], &str)) {
    match value {
        Value::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
            Some(fraction) => told(path, &fraction.to_string()),
            None => told(path, &number.to_string()),
        },
        Value::Sequence(items) => {
            for (index, item) in items.iter().enumerate() {
                path.push(Step::Item(index));
                each_number(item, path, told);
                path.pop();
            }
        }
        Value::Mapping(map) => {
            for (key, item) in map {
                path.push(Step::Key(key.as_str().unwrap_or_default().to_owned()));
                each_number(item, path, told);
                path.pop();
            }
        }
        _ => {}
    }
}

fn rewrite(value: &mut Value, path: &mut Vec<Step>, change: &Change<'_>, wrong: &mut Vec<(Vec<Step>, String)>) {
    match value {
        Value::Null if !path.is_empty() => {
            let name = path.iter().rev().find_map(|s| if let Step::Key(key) = s { Some(key.as_str()) } else { None });
            let message = match (path.last(), name) {
                (Some(Step::Key(_)), Some(key)) => format!("`{key}` has no value; write one or remove the key"),
                _ => "this item is empty".to_owned(),
            };
            wrong.push((path.clone(), message));
        }
        Value::String(text) => match change(path, text) {
            Ok(Some(changed)) => *text = changed,
            Ok(None) => {}
            Err(message) => wrong.push((path.clone(), message)),
        },
        Value::Sequence(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                path.push(Step::Item(index));
                rewrite(item, path, change, wrong);
                path.pop();
            }
        }
        Value::Mapping(map) => {
            for (key, item) in map.iter_mut() {
                path.push(Step::Key(key.as_str().unwrap_or_default().to_owned()));
                rewrite(item, path, change, wrong);
                path.pop();
            }
        }
        _ => {}
    }
}

/// Any value. Unlike serde_yaml's own it takes a key that is there twice (`places` reports it; the first holds), and
/// its keys are always text.
struct Tree(Value);

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Tree, D::Error> {
        deserializer.deserialize_any(TreeVisitor).map(Tree)
    }
}

struct TreeVisitor;

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value without a tag")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u128<E: de::Error>(self, value: u128) -> Result<Value, E> {
        Ok(Value::String(value.to_string()))
    }

    fn visit_i128<E: de::Error>(self, value: i128) -> Result<Value, E> {
        Ok(Value::String(value.to_string()))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Tree(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::Sequence(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Mapping::new();
        while let Some(Tree(key)) = entries.next_key()? {
            let key = match key {
                Value::String(text) => text,
                Value::Number(number) => number.to_string(),
                Value::Bool(word) => word.to_string(),
                Value::Null => "null".to_owned(),
                // Reported by `places`, as is any repeated key.
                Value::Sequence(_) | Value::Mapping(_) | Value::Tagged(_) => {
                    entries.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            let Tree(value) = entries.next_value()?;
            map.entry(Value::String(key)).or_insert(value);
        }
        Ok(Value::Mapping(map))
    }
}
