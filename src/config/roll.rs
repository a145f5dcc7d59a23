//! A file of members: the list that `members` of a pool could be, in a file of its own that others may write.
//!
//! It has its own place in every problem. Nothing in it is taken when something in it is wrong, and one that says nothing
//! is wrong too: who writes a file in place empties it first. A list without members is written `[]`.
//!
//! Not here: when it is read again (`discovery`).

use std::path::Path;

use super::address::Address;
use super::domain::Roll;
use super::file::MemberKeys;
use super::member::{Listed, Sources, list};
use super::places::Mark;
use super::problem::{Problem, Problems};
use super::reading::Reading;
use super::words::Or;
use super::{text_of, yaml};

/// Reads the file of members at `path`.
///
/// # Errors
/// Every problem, each with its place in that file.
pub fn load_roll(path: &Path, env: &dyn Fn(&str) -> Option<String>) -> Result<Roll, Vec<Problem>> {
    read_roll(&path.display().to_string(), &text_of(path)?, env)
}

/// Reads `text`; `file` is what problems call it.
///
/// # Errors
/// As [`load_roll`].
pub fn read_roll(file: &str, text: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<Roll, Vec<Problem>> {
    let mut problems = Problems::new(file);
    if !text.lines().any(|line| !matches!(line.trim_start().chars().next(), None | Some('#'))) {
        problems.error_at(Mark::START, "the file lists no members; write `[]` if that is meant");
        return Err(problems.sorted());
    }
    let Some(mut document) = yaml::Document::new(text, &mut problems) else {
        return Err(problems.sorted());
    };
    document.expand(&|_, _| None, env, &mut problems);
    let Some(written) = document.read::<Vec<Or<Address, MemberKeys>>>(&mut problems) else {
        return Err(problems.sorted());
    };
    let mut read = Reading::new(document.at(), &mut problems);
    let Listed { members, services, .. } = list("the file", &written, Sources::Services, &mut read);
    if problems.any_error() { Err(problems.sorted()) } else { Ok(Roll { members, services }) }
}
