//! The `pulsegate` program: arguments, logging, and the only way out.

use std::process::ExitCode;

use pulsegate::cli;

// glibc's allocator keeps its peak and costs more per request.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cli::main()
}
