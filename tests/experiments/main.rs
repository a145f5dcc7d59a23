//! The real program under load while something goes wrong: what it may cost is a number, and a number can fail.
//!
//! Each experiment has a short form, which counts and is part of the suite, and a full one, which also takes times and sizes:
//! `scripts/experiments`. docs/reliability.md tells what they do and what they said last.
//!
//! Not here: single requests and their faults, which are cases of tests/it.

#[path = "../it/harness/mod.rs"]
#[expect(dead_code, unused_imports, reason = "the harness of tests/it; no experiment needs all of it")]
mod harness;

mod figures;
mod load;
mod logged;
mod site;
mod way;

mod r01_reload;
mod r02_broken;
mod r03_start;
mod r05_drain;
mod r06_kill;
mod r07_freeze;
mod r08_flapping;
mod r10_bad;
mod r14_descriptors;
mod r19_log;
mod r20_clock;
