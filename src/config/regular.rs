//! Files that must be files: a pipe may keep us waiting for ever, and a device may never end.

use std::fs::{File, OpenOptions, metadata};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// `O_NONBLOCK`, which std does not name: asm-generic of Linux, and the BSDs.
pub const O_NONBLOCK: i32 = if cfg!(target_os = "linux") { 0o4000 } else { 0x4 };

/// What a file of one line holds: an editor ends the line, with or without CR, and that end is no part of it.
pub fn line(bytes: &[u8]) -> &[u8] {
    let Some(bytes) = bytes.strip_suffix(b"\n") else { return bytes };
    bytes.strip_suffix(b"\r").unwrap_or(bytes)
}

/// Opens the file at `path` to be read; `None`: it is something else. Does not wait for a pipe's other end.
///
/// # Errors
/// It cannot be opened.
pub fn open_regular(path: &Path) -> io::Result<Option<File>> {
    // Before it is opened, which devices may notice; and again, since another one may have come in its place.
    if !metadata(path)?.is_file() {
        return Ok(None);
    }
    let file = OpenOptions::new().read(true).custom_flags(O_NONBLOCK).open(path)?;
    let is_file = file.metadata()?.is_file();
    Ok(is_file.then_some(file))
}
