//! Keeps docs/presets.md complete: every rule of the four systems has its row, every row its test or what it waits for, and
//! every test of the suites its row.

use std::collections::BTreeMap;

use super::{read, section};

/// The systems: the heading of each, the file of its suite, and its rows.
const SYSTEMS: [(&str, &str, &str, u32); 4] = [
    ("## Azure App Service health check", "app_service_rows", "A", 18),
    ("## Azure Front Door health probes", "front_door_rows", "F", 10),
    ("## Azure Application Gateway probes", "application_gateway_rows", "G", 10),
    ("## Google Cloud composite health checks", "composite_rows", "C", 7),
];

/// A row of a table of the page.
#[derive(Debug)]
struct Row {
    name: String,
    /// `suite::test`.
    tests: Vec<String>,
    /// What it waits for.
    open: Option<String>,
}

/// The rows of the table in `section`, and what is wrong with them.
fn rows(section: &str) -> (Vec<Row>, Vec<String>) {
    let (mut rows, mut wrong) = (Vec::new(), Vec::new());
    let lines = section.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| row |"));
    for line in lines {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        // A row that is not met yet need not say how.
        let [name, rule, how, last] = cells[..] else {
            wrong.push(format!("not four cells: {line}"));
            continue;
        };
        let (tests, open) = last.split_once("open:").map_or((last, None), |(tests, open)| (tests, Some(open.trim())));
        let tests: Vec<String> = tests.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        if rule.is_empty() || (how.is_empty() && open.is_none()) {
            wrong.push(format!("{name} does not say what the rule is or how it is met"));
        }
        if (tests.is_empty() && open.is_none()) || open.is_some_and(str::is_empty) {
            wrong.push(format!("{name} has neither a test nor what it waits for"));
        }
        rows.push(Row { name: name.to_owned(), tests, open: open.map(str::to_owned) });
    }
    (rows, wrong)
}

/// The tests of a source: each name with its doc comment and attributes.
fn tests(source: &str) -> BTreeMap<String, String> {
    let (mut tests, mut above) = (BTreeMap::new(), String::new());
    for line in source.lines() {
        if line.starts_with("///") || line.starts_with("#[") {
            above += line;
            above.push('\n');
            continue;
        }
        let name = line.strip_prefix("fn ").and_then(|rest| rest.split(['(', '<']).next());
        if let Some(name) = name.filter(|_| above.contains("#[test]\n")) {
            tests.insert(name.to_owned(), above);
        }
        above = String::new();
    }
    tests
}

/// What is wrong with the tests that the rows name; `sources` are the suites by name.
fn mismatches(rows: &[Row], sources: &BTreeMap<&str, String>) -> Vec<String> {
    let known: BTreeMap<&str, _> = sources.iter().map(|(suite, source)| (*suite, tests(source))).collect();
    let mut wrong = Vec::new();
    for (row, name) in rows.iter().flat_map(|row| row.tests.iter().map(move |name| (row, name))) {
        let found = name.split_once("::").and_then(|(suite, test)| known.get(suite)?.get(test));
        match found {
            None => wrong.push(format!("{}: tests/it has no test {name}", row.name)),
            Some(above) if !above.starts_with(&format!("/// {}: ", row.name)) => {
                wrong.push(format!("{name}: its comment does not begin with `{}: `", row.name));
            }
            Some(above) if above.contains("#[ignore") => wrong.push(format!("{name} is ignored")),
            Some(_) => {}
        }
    }
    let listed: Vec<&String> = rows.iter().flat_map(|row| &row.tests).collect();
    for (suite, test) in known.iter().flat_map(|(suite, tests)| tests.keys().map(move |test| (suite, test))) {
        let name = format!("{suite}::{test}");
        if listed.iter().filter(|other| ***other == name).count() != 1 {
            wrong.push(format!("{name} is not exactly once in docs/presets.md"));
        }
    }
    wrong
}

#[test]
fn every_row_of_the_four_systems_has_its_test_or_says_what_it_waits_for() {
    let page = read("docs/presets.md");
    let (mut all, mut wrong) = (Vec::new(), Vec::new());
    for (heading, _, letter, count) in SYSTEMS {
        let (rows, problems) = rows(section(&page, heading));
        wrong.extend(problems);
        let wanted: Vec<String> = (1..=count).map(|number| format!("{letter}{number}")).collect();
        let names: Vec<&String> = rows.iter().map(|row| &row.name).collect();
        assert!(names.iter().copied().eq(&wanted), "{heading}: {names:?}");
        all.extend(rows);
    }
    let source = |suite: &'static str| (suite, read(&format!("tests/it/{suite}.rs")));
    let sources = SYSTEMS.map(|(_, suite, ..)| source(suite)).into();
    wrong.extend(mismatches(&all, &sources));
    assert!(wrong.is_empty(), "docs/presets.md and its tests:\n{}", wrong.join("\n"));
    let open: Vec<&Row> = all.iter().filter(|row| row.open.is_some()).collect();
    println!("{} of {} rows are open or open in part:", open.len(), all.len());
    open.iter().for_each(|row| println!("  {}: {}", row.name, row.open.as_deref().unwrap_or_default()));
}

#[test]
fn rows_and_tests_that_do_not_fit_are_found() {
    let page = "| row | rule | how | test |\n|---|---|---|---|\n| A1 | r | h | `s::one` |\n| A2 | r | | open: x |\n\
                | A3 | r | h | `s::gone` `s::two`; open: rest |\n| A4 | r | h | |\n| A5 | r | h |\n";
    let (rows, wrong) = rows(page);
    let shown = |row: &Row| (row.name.clone(), row.tests.len(), row.open.is_some());
    let shown: Vec<_> = rows.iter().map(shown).collect();
    let expected = [("A1", 1, false), ("A2", 0, true), ("A3", 2, true), ("A4", 0, false)];
    assert_eq!(shown, expected.map(|(name, tests, open)| (name.to_owned(), tests, open)));
    assert_eq!(wrong, ["A4 has neither a test nor what it waits for", "not four cells: | A5 | r | h |"]);
    let source = "/// A1: all is well.\n#[test]\nfn one() {\n}\n\n/// A4: of another row.\n#[test]\nfn two() {}\n\n\
                  /// A5: not in the page.\n#[test]\n#[ignore]\nfn three() {}\n\nfn helper() {}\n";
    let wrong = mismatches(&rows, &BTreeMap::from([("s", source.to_owned())]));
    let expected = [
        "A3: tests/it has no test s::gone",
        "s::two: its comment does not begin with `A3: `",
        "s::three is not exactly once in docs/presets.md",
    ];
    assert_eq!(wrong, expected);
    let ignored = mismatches(&rows[..1], &BTreeMap::from([("s", "/// A1: x\n#[test]\n#[ignore]\nfn one() {}".into())]));
    assert_eq!(ignored, ["s::one is ignored"]);
}
