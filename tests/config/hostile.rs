//! Files that were damaged, or written to do damage: they are refused or read, in bounded time and memory, and
//! nothing panics (http-rows.md Y01 to Y05).

use std::fmt::Write;

use pulsegate::config::load;

use super::{env, files, lines, parse};

/// Parses and checks what must hold for any text.
fn survives(text: &str) {
    let Err(problems) = parse(text) else { return };
    assert!(!problems.is_empty());
    // YAML 1.1 breaks lines at these (section 5.4), and serde_yaml counts so.
    let last = text.split(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']).count() + 1;
    for problem in &problems {
        assert!((1..=last).contains(&problem.line) && problem.column >= 1, "{problem}");
        assert!(!problem.message.is_empty() && !problem.message.contains('\n'), "{problem}");
    }
    assert!(problems.is_sorted_by_key(|p| (p.line, p.column)), "{}", lines(&problems));
}

#[test]
fn thousands_of_damaged_files_are_read_or_refused() {
    let whole: Vec<String> = files("good").iter().map(|f| std::fs::read_to_string(f).expect("a good file")).collect();
    let mut random = fastrand::Rng::with_seed(0x5eed);
    for round in 0..4_000 {
        let mut text = whole[round % whole.len()].clone();
        for _ in 0..random.usize(1..4) {
            text = damage(&text, &mut random);
        }
        survives(&text);
    }
}

/// Bits of yaml that change what is around them.
const SHRAPNEL: &[&str] = &[
    "\t",
    "\0",
    "\u{7f}",
    "\u{feff}",
    "\u{2028}",
    "\r",
    "\n",
    " ",
    "  ",
    ":",
    ": ",
    "- ",
    "-",
    "? ",
    "{",
    "}",
    "[",
    "]",
    ",",
    "&a ",
    "*a",
    "!",
    "!!str ",
    "!x ",
    "|",
    ">",
    "|-\n",
    "'",
    "\"",
    "\\",
    "%YAML 1.2\n",
    "---\n",
    "...\n",
    "#",
    " #",
    "@",
    "`",
    "<<: *a",
    "null",
    "~",
    "${",
    "${HOST}",
    "}",
    "$${",
    "0x10",
    "1e999",
    "-1",
    ".nan",
    "18446744073709551616",
    "true",
    "é",
    "🦀",
];

fn damage(text: &str, random: &mut fastrand::Rng) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    let mut rows: Vec<&str> = text.split('\n').collect();
    let place = random.usize(0..=chars.len());
    let row = random.usize(0..rows.len());
    let other = random.usize(0..rows.len());
    match random.u8(0..9) {
        0 => chars.truncate(place),
        1 => drop(chars.drain(..place)),
        2 => {
            let end = (place + random.usize(1..20)).min(chars.len());
            drop(chars.drain(place..end));
        }
        3 => drop(chars.splice(place..place, random.choice(SHRAPNEL).copied().unwrap_or_default().chars())),
        4 if place < chars.len() => chars[place] = random.char(..),
        5 => {
            rows.swap(row, other);
            return rows.join("\n");
        }
        6 => {
            rows.insert(other, rows[row]);
            return rows.join("\n");
        }
        7 => {
            rows.remove(row);
            return rows.join("\n");
        }
        _ => {
            let indented = format!("{}{}", " ".repeat(random.usize(0..8)), rows[row].trim_start());
            rows[row] = &indented;
            return rows.join("\n");
        }
    }
    chars.into_iter().collect()
}

#[test]
fn aliases_that_multiply_are_refused_before_they_do() {
    let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..40 {
        let alias = format!("*a{}", level - 1);
        let _ = writeln!(text, "a{level}: &a{level} [{}]", [alias.as_str(); 10].join(", "));
    }
    let problems = parse(&text).expect_err("10 to the 40th values");
    assert!(lines(&problems).contains("aliases expanded"), "{}", lines(&problems));

    let mut text = format!("a: &a \"{}\"\nb: [", "x".repeat(1 << 20));
    text.push_str(&"*a, ".repeat(1000));
    text.push_str("]\n");
    let problems = parse(&text).expect_err("a gigabyte of text");
    assert!(lines(&problems).contains("bytes of text, aliases expanded"), "{}", lines(&problems));
}

#[test]
fn depth_is_refused_in_every_style() {
    let deep = 200_000;
    let flow = "[".repeat(deep);
    let flow_maps = "{a: ".repeat(deep);
    let dashes = "- ".repeat(deep);
    let questions = "? ".repeat(deep);
    let mut block = String::new();
    for level in 0..300 {
        let _ = writeln!(block, "{}a:", " ".repeat(level));
    }
    for text in [flow, flow_maps, dashes, questions, block] {
        let problems = parse(&text).expect_err("no configuration is this deep");
        assert!(
            lines(&problems).contains("nested more than") || lines(&problems).contains("not yaml"),
            "{}",
            lines(&problems)
        );
    }
}

#[test]
fn ten_megabytes_are_read_or_refused() {
    const SIZE: usize = 10 << 20;
    let ten_lines = "listeners: [{ address: \"0.0.0.0:80\" }]\npools: { web: { members: [\"a:80\"], probe: tcp } }\nroutes: [{ pool: web }]\n";
    let comment = format!("{ten_lines}# {}\n", "x".repeat(SIZE));
    let comments = ten_lines.to_owned() + &"# one more line\n".repeat(SIZE / 16);
    for text in [comment, comments] {
        assert!(parse(&text).is_ok(), "comments cost nothing");
    }
    let scalar = format!("{ten_lines}zzz: \"{}\"\n", "x".repeat(SIZE));
    let list = format!("{ten_lines}zzz:\n{}", "- a\n".repeat(SIZE / 4));
    let quotes = format!("{ten_lines}zzz: {}\n", "\"a\" ".repeat(SIZE / 4));
    let colons = "a: ".repeat(SIZE / 3);
    let mut keys = String::from("pools:\n");
    for n in 0..SIZE / 64 {
        let _ = writeln!(keys, "  p{n}: {{ members: [\"a:80\"], probe: tcp, zz: 1 }}");
    }
    for text in [scalar, list, quotes, colons, keys] {
        assert!(parse(&text).is_err());
        survives(&text);
    }
}

#[test]
fn a_large_honest_file_is_read() {
    let mut text = String::from("listeners: [{ address: \"0.0.0.0:80\" }]\npools:\n");
    for pool in 0..200 {
        let _ = writeln!(text, "  p{pool}:\n    probe: {{ path: /healthz }}\n    members:");
        for member in 0..50 {
            let _ = writeln!(text, "      - {{ address: \"10.{pool}.0.{member}:80\", weight: 2 }}");
        }
    }
    text.push_str("routes:\n");
    for pool in 0..200 {
        let _ = writeln!(text, "  - {{ path: /p{pool}, pool: p{pool} }}");
    }
    let loaded = parse(&text).unwrap_or_else(|problems| panic!("{}", lines(&problems)));
    assert_eq!(loaded.config.pools.values().map(|p| p.members.len()).sum::<usize>(), 10_000);
    assert_eq!(loaded.config.probes_per_second(), 2_000.0);
}

#[test]
fn a_file_with_more_mistakes_than_anyone_reads_says_so() {
    let text = "listeners:\n".to_owned() + &"  - { adress: x }\n".repeat(5_000);
    let problems = parse(&text).expect_err("5,000 unknown keys");
    assert!((100..=102).contains(&problems.len()), "{}", problems.len());
    assert!(lines(&problems).contains("there are more problems"), "{}", lines(&problems));
}

#[test]
fn bytes_that_are_no_text_are_refused_with_their_place() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("proxy.yaml");
    let mut random = fastrand::Rng::with_seed(7);
    for size in 0..400 {
        let mut bytes: Vec<u8> = (0..size).map(|_| random.u8(..)).collect();
        bytes.push(0xff);
        std::fs::write(&path, &bytes).expect("a file");
        let problems = load(&path, &env).expect_err("0xff is in no text");
        assert_eq!(problems.len(), 1);
        assert!(problems[0].message.contains("UTF-"), "{}", problems[0]);
    }
}
