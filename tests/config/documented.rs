//! docs/configuration.md is code: every key is in it, and what it shows can be used.

use super::{lines, parse, root};

fn page() -> String {
    std::fs::read_to_string(root().join("docs/configuration.md")).expect("the page")
}

/// The keys of every struct of src/config/file.rs.
fn keys() -> Vec<String> {
    let source = std::fs::read_to_string(root().join("src/config/file.rs")).expect("the shapes");
    let fields = source.lines().filter_map(|line| line.trim().strip_prefix("pub(super) "));
    let mut keys: Vec<String> = fields.filter_map(|f| f.split_once(": ")).map(|(key, _)| key.to_owned()).collect();
    keys.sort();
    keys.dedup();
    keys
}

#[test]
fn every_key_has_its_row() {
    let page = page();
    let keys = keys();
    assert!(keys.len() > 60, "{keys:?}");
    let missing: Vec<&String> = keys.iter().filter(|key| !page.contains(&format!("| `{key}` |"))).collect();
    assert!(missing.is_empty(), "not in docs/configuration.md: {missing:?}");
}

#[test]
fn every_whole_file_it_shows_can_be_used() {
    let mut shown = 0;
    for block in page().split("```yaml\n").skip(1) {
        let text = block.split("```").next().unwrap_or_default();
        shown += 1;
        if let Err(problems) = parse(text) {
            panic!("{}\n{text}", lines(&problems));
        }
    }
    assert!(shown >= 2, "{shown} files are shown");
}
