//! What is wrong with a file, or could be better, and where.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::hidden::Hidden;
use super::places::{At, Mark};

/// One thing to tell the author of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{file}:{line}:{column}: {severity}: {message}")]
pub struct Problem {
    /// Whether the file can be used all the same.
    pub severity: Severity,
    /// As named by the caller, normally the path given on the command line.
    pub file: String,
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
    /// Lower case; what is wrong and what to write instead.
    pub message: String,
}

impl Problem {
    /// An error of a file of which nothing was read.
    pub fn of_file(path: &Path, message: String) -> Problem {
        Problem { severity: Severity::Error, file: path.display().to_string(), line: 1, column: 1, message }
    }
}

/// How bad a problem is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The file is refused.
    Error,
    /// The file is used; its author may want something else.
    Warning,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        })
    }
}

/// Where problems are gathered while a file is read.
#[derive(Debug)]
pub(super) struct Problems {
    file: String,
    found: Vec<Problem>,
    hidden: Hidden,
}

impl Problems {
    pub(super) fn new(file: &str) -> Problems {
        Problems { file: file.to_owned(), found: Vec::new(), hidden: Hidden::default() }
    }

    /// An empty list for the same file.
    pub(super) fn none_yet(&self) -> Problems {
        Problems::new(&self.file)
    }

    /// Adds what was found apart.
    pub(super) fn append(&mut self, other: Problems) {
        self.found.extend(other.found);
    }

    /// From now on no problem shows these.
    pub(super) fn hide(&mut self, hidden: Hidden) {
        self.hidden = hidden;
    }

    /// What problems do not show.
    pub(super) fn hidden(&self) -> &Hidden {
        &self.hidden
    }

    /// Notes an error in the value at `at` (for a value that is missing: where its parent is named).
    pub(super) fn error(&mut self, at: At<'_>, message: impl Into<String>) {
        self.note(Severity::Error, at.mark(), message.into());
    }

    /// Notes an advice on the value at `at`.
    pub(super) fn warn(&mut self, at: At<'_>, message: impl Into<String>) {
        self.note(Severity::Warning, at.mark(), message.into());
    }

    pub(super) fn error_at(&mut self, mark: Mark, message: impl Into<String>) {
        self.note(Severity::Error, mark, message.into());
    }

    pub(super) fn len(&self) -> usize {
        self.found.len()
    }

    pub(super) fn any_error(&self) -> bool {
        self.found.iter().any(|p| p.severity == Severity::Error)
    }

    /// All of them, sorted by place.
    pub(super) fn sorted(mut self) -> Vec<Problem> {
        self.found.sort_by(|a, b| {
            (a.line, a.column, a.severity, &a.message).cmp(&(b.line, b.column, b.severity, &b.message))
        });
        self.found.dedup();
        self.found
    }

    fn note(&mut self, severity: Severity, mark: Mark, message: String) {
        let (line, column) = (mark.line as usize, mark.column as usize);
        let message = self.hidden.covered(mark, message);
        self.found.push(Problem { severity, file: self.file.clone(), line, column, message });
    }
}
