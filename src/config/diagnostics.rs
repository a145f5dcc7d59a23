//! Where it is kept what a probe saw of a member that became unhealthy: the top-level key `diagnostics`.

use std::path::PathBuf;

use super::file::DiagnosticsKeys;
use super::reading::Reading;
use super::words::{Off, Or};

/// What is kept of failing probes, and how much of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostics {
    /// The directory; made where there is none.
    pub path: PathBuf,
    /// So many files at most, those of earlier runs included. Default 100.
    pub max_files: usize,
    /// So many bytes in all of them at most. Default 16 MiB.
    pub max_bytes: u64,
}

/// The top-level key `diagnostics`; `None`: nothing is kept.
pub(super) fn diagnostics(written: Option<&Or<Off, DiagnosticsKeys>>, top: &mut Reading<'_>) -> Option<Diagnostics> {
    let Or::Keys(keys) = written? else { return None };
    let mut read = top.under("diagnostics");
    let path = read.text("path", &keys.path, |path| {
        let fits = !path.is_empty() && !path.contains('\0');
        if fits { Ok(PathBuf::from(path)) } else { Err("`path` is the path of a directory".to_owned()) }
    });
    if keys.path.is_none() {
        read.missing("path", "name the directory, such as `path: /var/lib/pulsegate/diagnostics`");
    }
    let max_files = read.count("max_files", &keys.max_files, 1..=10_000);
    let max_bytes = read.bytes("max_bytes", &keys.max_bytes, 64 << 10..=1 << 30);
    Some(Diagnostics {
        path: path?,
        max_files: max_files.unwrap_or(100),
        max_bytes: max_bytes.unwrap_or(16 << 20) as u64,
    })
}
