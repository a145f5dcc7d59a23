//! Every file of `good/` with what it means, every file of `bad/` with all that is said of it.
//!
//! `PULSEGATE_BLESS=1 cargo test --test config` writes the golden files anew; the reviewer reads the difference.

use std::fmt::Write;
use std::path::Path;

use pulsegate::config::{Severity, load};

use super::{env, files, lines, stem};

#[test]
fn good_files_mean_what_they_meant() {
    let mut differing = String::new();
    for file in files("good") {
        let loaded = load(&file, &env).unwrap_or_else(|problems| panic!("{}", lines(&problems)));
        let mut text = String::new();
        for advice in &loaded.advice {
            let _ = writeln!(text, "# {}:{}: {}: {}", advice.line, advice.column, advice.severity, advice.message);
        }
        let _ = writeln!(text, "# {:.3} probes/s", loaded.config.probes_per_second());
        text.push_str(&serde_yaml::to_string(&loaded.config.effective()).expect("values are representable"));
        compare(&file.with_extension("meaning"), &text, &mut differing);
    }
    assert!(differing.is_empty(), "{differing}");
}

#[test]
fn bad_files_are_refused_with_every_problem_at_its_place() {
    let mut differing = String::new();
    let (mut count, mut with_four) = (0, 0);
    for file in files("bad") {
        let problems = match load(&file, &env) {
            Err(problems) => problems,
            Ok(_) => panic!("{} was taken", file.display()),
        };
        count += 1;
        with_four += usize::from(problems.len() >= 4);
        assert!(problems.iter().any(|p| p.severity == Severity::Error), "{}", file.display());
        let name = stem(&file);
        let mut text = String::new();
        for p in &problems {
            let _ = writeln!(text, "{name}.yaml:{}:{}: {}: {}", p.line, p.column, p.severity, p.message);
        }
        compare(&file.with_extension("problems"), &text, &mut differing);
    }
    assert!(differing.is_empty(), "{differing}");
    assert!(count >= 45 && with_four >= 6, "{count} files, {with_four} with four problems or more");
}

fn compare(golden: &Path, text: &str, differing: &mut String) {
    if std::env::var_os("PULSEGATE_BLESS").is_some() {
        std::fs::write(golden, text).unwrap_or_else(|e| panic!("{}: {e}", golden.display()));
        return;
    }
    let wanted = std::fs::read_to_string(golden).unwrap_or_default();
    if wanted == text {
        return;
    }
    let _ = writeln!(differing, "{}:", golden.display());
    for line in wanted.lines().filter(|line| !text.lines().any(|l| l == *line)) {
        let _ = writeln!(differing, "  -{line}");
    }
    for line in text.lines().filter(|line| !wanted.lines().any(|l| l == *line)) {
        let _ = writeln!(differing, "  +{line}");
    }
}
