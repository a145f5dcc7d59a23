//! Where everything stands in the file: a tree of positions, without the values.
//!
//! Not here: how it is made (`marks`), what the values are (`yaml`).

use std::collections::BTreeMap;
use std::rc::Rc;

use super::hints::may_mean;
use super::spelling::likely;

/// A position, both counted from 1, the column in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Mark {
    pub(super) line: u32,
    pub(super) column: u32,
}

impl Mark {
    pub(super) const START: Mark = Mark { line: 1, column: 1 };

    /// Of what follows `text`.
    pub(super) fn after(text: &str) -> Mark {
        let last = text.rsplit('\n').next().unwrap_or_default();
        Mark::new(text.matches('\n').count() + 1, last.chars().count() + 1)
    }

    pub(super) fn new(line: usize, column: usize) -> Mark {
        let bounded = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Mark { line: bounded(line), column: bounded(column) }
    }
}

/// One value's place and those of its parts.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) mark: Mark,
    pub(super) parts: Parts,
    /// Names of the parts that were found wrong and taken out; what is missing beside them may just be misspelt.
    pub(super) lost: Vec<String>,
}

#[derive(Debug, Clone)]
pub(super) enum Parts {
    Scalar,
    Items(Vec<Rc<Node>>),
    Keys(BTreeMap<String, (Mark, Rc<Node>)>),
}

/// One step down from a value to a part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Key(String),
    Item(usize),
}

impl Node {
    /// Takes out the part at the end of `path` and notes its loss in its parent.
    pub(super) fn prune(&mut self, path: &[Step]) {
        match (path, &mut self.parts) {
            ([Step::Key(key)], Parts::Keys(keys)) => {
                keys.remove(key);
                self.lost.push(key.clone());
            }
            ([Step::Item(index)], Parts::Items(items)) if *index < items.len() => {
                items.remove(*index);
                self.lost.push(String::new());
            }
            ([Step::Key(key), rest @ ..], Parts::Keys(keys)) => {
                if let Some((_, node)) = keys.get_mut(key) {
                    Rc::make_mut(node).prune(rest);
                }
            }
            ([Step::Item(index), rest @ ..], Parts::Items(items)) => {
                if let Some(node) = items.get_mut(*index) {
                    Rc::make_mut(node).prune(rest);
                }
            }
            _ => {}
        }
    }
}

impl Node {
    /// Lays the mapping `over`, whose key stands at `name`, over the part called `key`. Of the keys `either` one drives out the
    /// others, and the value of `whole` is never laid over but exchanged.
    pub(super) fn lay(&mut self, key: &str, name: Mark, over: &Node, either: &[&str], whole: &str) {
        let Parts::Keys(base) = &mut self.parts else { return };
        if either.contains(&key) {
            base.retain(|other, _| other == key || !either.contains(&other.as_str()));
        }
        let (Parts::Keys(parts), Some((mark, node))) = (&over.parts, base.get_mut(key).filter(|_| key != whole)) else {
            base.insert(key.to_owned(), (name, Rc::new(over.clone())));
            return;
        };
        *mark = name;
        let node = Rc::make_mut(node);
        if !matches!(node.parts, Parts::Keys(_)) {
            *node = over.clone();
            return;
        }
        parts.iter().for_each(|(key, (name, part))| node.lay(key, *name, part, either, whole));
    }

    /// From now on all of it stands at `mark`.
    pub(super) fn move_to(&mut self, mark: Mark) {
        self.mark = mark;
        match &mut self.parts {
            Parts::Scalar => {}
            Parts::Items(items) => items.iter_mut().for_each(|item| Rc::make_mut(item).move_to(mark)),
            Parts::Keys(keys) => keys.values_mut().for_each(|(name, part)| {
                *name = mark;
                Rc::make_mut(part).move_to(mark);
            }),
        }
    }
}

/// A value of the file, or the nearest thing to one that is not there.
#[derive(Debug, Clone, Copy)]
pub(super) struct At<'a> {
    node: Option<&'a Node>,
    name: Mark,
}

impl<'a> At<'a> {
    pub(super) fn root(node: &'a Node) -> At<'a> {
        At { node: Some(node), name: node.mark }
    }

    /// The value under `key`; where there is none, the place of this one's name.
    pub(super) fn key(self, key: &str) -> At<'a> {
        match self.node.map(|n| &n.parts) {
            Some(Parts::Keys(keys)) => match keys.get(key) {
                Some((name, node)) => At { node: Some(node), name: *name },
                None => At { node: None, name: self.name },
            },
            _ => At { node: None, name: self.name },
        }
    }

    /// The item at `index`.
    pub(super) fn item(self, index: usize) -> At<'a> {
        match self.node.map(|n| &n.parts) {
            Some(Parts::Items(items)) => match items.get(index) {
                Some(node) => At { node: Some(node), name: node.mark },
                None => At { node: None, name: self.name },
            },
            _ => At { node: None, name: self.name },
        }
    }

    /// The end of `path`, or of the part of it that exists.
    pub(super) fn walk(self, path: &[Step]) -> At<'a> {
        path.iter().fold(self, |at, step| match step {
            Step::Key(key) => at.key(key),
            Step::Item(index) => at.item(*index),
        })
    }

    /// A scalar's own place; that of the name where the value has parts or is not there.
    pub(super) fn mark(self) -> Mark {
        match self.node {
            Some(Node { mark, parts: Parts::Scalar, .. }) => *mark,
            _ => self.name,
        }
    }

    /// The value itself, with its parts.
    pub(super) fn node(self) -> Option<&'a Node> {
        self.node
    }

    /// Where the key of this value is.
    pub(super) fn name(self) -> Mark {
        self.name
    }

    /// The value is written.
    pub(super) fn exists(self) -> bool {
        self.node.is_some()
    }

    /// A part was taken out because it was wrong, so nothing can be said of what is missing.
    pub(super) fn damaged(self) -> bool {
        self.node.is_some_and(|n| !n.lost.is_empty())
    }

    /// The part called `key` was taken out.
    pub(super) fn lost(self, key: &str) -> bool {
        self.node.is_some_and(|n| n.lost.iter().any(|l| l == key))
    }

    /// The part called `key`, or one whose name looks like a slip or another product's word of it, was taken out.
    pub(super) fn may_have_lost(self, key: &str) -> bool {
        let may_be =
            |lost: &String| lost == key || lost == "<<" || likely(lost, &[key]).is_some() || may_mean(lost, key);
        self.node.is_some_and(|n| n.lost.iter().any(may_be))
    }
}
