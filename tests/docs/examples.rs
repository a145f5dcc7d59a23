//! Keeps the worked examples of docs/health.md true: each has its test, and each test that is named is there.

use super::{read, section};

#[test]
fn every_worked_example_names_tests_that_there_are() {
    let page = read("docs/health.md");
    let rows = section(&page, "## Worked examples").lines().filter(|line| line.starts_with("| "));
    let rows: Vec<Vec<&str>> =
        rows.map(|line| line.trim_matches('|').split('|').map(str::trim).collect()).skip(1).collect();
    let numbers: Vec<String> = (1..=16).map(|number| number.to_string()).collect();
    assert!(rows.iter().map(|cells| cells[0]).eq(&numbers), "{rows:?}");
    for cells in rows {
        let tests: Vec<&str> = cells[2].split('`').skip(1).step_by(2).collect();
        assert!(!tests.is_empty() || cells[2].starts_with("open: "), "example {} has no test", cells[0]);
        for test in tests {
            let (file, name) = test.split_once("::").unwrap_or_else(|| panic!("{test} names no file"));
            let is_there = read(file).contains(&format!("#[test]\n{}fn {name}(", margin(file)));
            assert!(is_there, "example {}: {file} has no test {name}", cells[0]);
        }
    }
}

/// Tests beside the code are in a module of their own.
fn margin(file: &str) -> &'static str {
    let is_tests_alone = file.starts_with("tests/") || file.ends_with("tests.rs") || file.ends_with("examples.rs");
    if is_tests_alone { "" } else { "    " }
}
