//! The `pulsegate` program: arguments, logging, and the only way out.

use std::process::ExitCode;

use clap::Parser;
use pulsegate::cli::Cli;

// glibc's allocator keeps its peak and costs more per request.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    Cli::parse().execute()
}
