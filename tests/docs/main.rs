//! Keeps the documents true where a machine can: every configuration in them is one that `check` accepts, every JSON is
//! JSON, and every relative link leads somewhere. A fence marked `yaml fragment` shows a part of a file and is not run.

mod examples;
mod presets;

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use pulsegate::config;
use pulsegate::telemetry::metrics::{self, Metric};

/// A fenced block of a document.
#[derive(Debug, PartialEq, Eq)]
struct Fence {
    /// What stands behind the opening backticks.
    info: String,
    /// Of the first line inside, counted from 1.
    line: usize,
    text: String,
}

/// The fenced blocks of a document. One that is never closed reaches to the end, as it does for a reader.
fn fences(document: &str) -> Vec<Fence> {
    let mut fences = Vec::new();
    // With its margin and the number of backticks that closes it.
    let mut open: Option<(usize, usize, Fence)> = None;
    for (index, line) in document.lines().enumerate() {
        let indent = line.len() - line.trim_start().len();
        let ticks = line.trim_start().chars().take_while(|c| *c == '`').count();
        match &mut open {
            None if ticks >= 3 => {
                let info = line.trim_start()[ticks..].trim().to_owned();
                open = Some((indent, ticks, Fence { info, line: index + 2, text: String::new() }));
            }
            Some((_, closing, _)) if ticks >= *closing && line.trim().len() == ticks => {
                fences.extend(open.take().map(|(_, _, fence)| fence));
            }
            Some((margin, _, fence)) => {
                // A block inside a list is indented with it.
                fence.text.push_str(line.get((*margin).min(indent)..).unwrap_or_default());
                fence.text.push('\n');
            }
            None => {}
        }
    }
    fences.extend(open.map(|(_, _, fence)| fence));
    fences
}

/// The links of a document, as (line, target), without those in code and those that lead out of the repository.
fn links(document: &str) -> Vec<(usize, String)> {
    let mut links = Vec::new();
    let prose = without_code(document);
    for (index, line) in prose.lines().enumerate() {
        let inline = line.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
        let reference =
            line.starts_with('[').then(|| line.split_once("]: ")).flatten().map(|(_, target)| target.trim());
        let local = |target: &&str| !target.contains("://") && !target.starts_with("mailto:");
        links.extend(inline.chain(reference).filter(local).map(|target| (index + 1, target.to_owned())));
    }
    links
}

/// The document with fences and code spans blanked, line for line.
fn without_code(document: &str) -> String {
    let mut fenced = false;
    let blank = |line: &str| {
        let marker = line.trim_start().starts_with("```");
        fenced ^= marker;
        if fenced || marker { String::new() } else { line.split('`').step_by(2).collect::<Vec<_>>().join("code") }
    };
    document.lines().map(blank).collect::<Vec<_>>().join("\n")
}

/// The names that a document's headings can be linked by.
fn anchors(document: &str) -> HashSet<String> {
    let heading = |line: &str| line.starts_with('#').then(|| line.trim_start_matches('#').trim().to_lowercase());
    let fenced: HashSet<usize> =
        fences(document).iter().flat_map(|fence| fence.line..fence.line + fence.text.lines().count()).collect();
    let lines = document.lines().enumerate().filter(|(index, _)| !fenced.contains(&(index + 1)));
    lines
        .filter_map(|(_, line)| heading(line))
        .map(|title| title.replace(' ', "-").chars().filter(|c| c.is_alphanumeric() || "-_".contains(*c)).collect())
        .collect()
}

/// What is wrong with the fences of the document `name`.
fn broken_fences(name: &str, document: &str) -> Vec<String> {
    fences(document).iter().filter_map(|fence| broken_fence(name, fence)).collect()
}

fn broken_fence(name: &str, fence: &Fence) -> Option<String> {
    match fence.info.as_str() {
        // What is Prometheus's is checked by its own tool (tests/it/metrics_cases.rs).
        "yaml fragment" | "yaml prometheus config" | "yaml prometheus rules" => None,
        "yaml" => {
            // Empty lines ahead, so that the checker's own positions are those in the document.
            let text = format!("{}{}", "\n".repeat(fence.line - 1), fence.text);
            // Whoever copies it is to be told nothing of it, not even with `--strict`.
            let value = |_: &str| Some("a-value-of-the-environment".to_owned());
            let problems = config::parse(name, &text, &value).map_or_else(|problems| problems, |loaded| loaded.advice);
            if problems.is_empty() {
                return None;
            }
            Some(problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
        }
        "json" => {
            let error = fence.text.lines().find_map(|line| serde_json::from_str::<serde_json::Value>(line).err());
            let whole = serde_json::from_str::<serde_json::Value>(&fence.text);
            // One value over several lines, or one value a line, as logs have them.
            error.filter(|_| whole.is_err()).map(|error| format!("{name}:{}: no JSON: {error}", fence.line))
        }
        other if other.contains("yml") || other.contains("yaml") => {
            Some(format!("{name}:{}: write ```yaml, or ```yaml fragment for a part of a file", fence.line - 1))
        }
        _ => None,
    }
}

/// What is wrong with the links of the document at `path`, which `name` names.
fn broken_links(name: &str, path: &Path, document: &str) -> Vec<String> {
    let broken = |(line, target): &(usize, String)| {
        let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
        let file = if file.is_empty() { path.to_owned() } else { path.with_file_name("").join(file) };
        if !file.exists() {
            return Some(format!("{name}:{line}: {target} does not exist"));
        }
        let found = anchor.is_empty() || anchors(&fs::read_to_string(&file).unwrap_or_default()).contains(anchor);
        (!found).then(|| format!("{name}:{line}: {target} has no such heading"))
    };
    links(document).iter().filter_map(broken).collect()
}

/// README.md and its neighbours, and all below docs/.
fn documents() -> Vec<(String, PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders = vec![root.join("docs")];
    let mut paths: Vec<PathBuf> = markdown_in(root);
    while let Some(folder) = folders.pop() {
        paths.extend(markdown_in(&folder));
        let entries =
            fs::read_dir(&folder).expect("docs is readable").map(|entry| entry.expect("docs is readable").path());
        folders.extend(entries.filter(|path| path.is_dir()));
    }
    paths.sort();
    let named = |path: PathBuf| {
        let name = path.strip_prefix(root).expect("below the root").to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).expect("a document is UTF-8");
        (name, path, text)
    };
    paths.into_iter().map(named).collect()
}

fn markdown_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("the folder is readable").map(|entry| entry.expect("readable").path());
    entries.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect()
}

#[test]
fn every_configuration_in_the_documents_passes_check() {
    let documents = documents();
    let whole = documents.iter().flat_map(|(_, _, text)| fences(text)).filter(|fence| fence.info == "yaml").count();
    assert!(whole >= 3, "only {whole} whole configurations were found in the documents");
    let broken: Vec<String> = documents.iter().flat_map(|(name, _, text)| broken_fences(name, text)).collect();
    assert!(broken.is_empty(), "the documents show what does not work:\n{}", broken.join("\n"));
}

#[test]
fn every_relative_link_leads_somewhere() {
    let documents = documents();
    let count: usize = documents.iter().map(|(_, _, text)| links(text).len()).sum();
    assert!(count >= 5, "only {count} links were found in the documents");
    let broken: Vec<String> = documents.iter().flat_map(|(name, path, text)| broken_links(name, path, text)).collect();
    assert!(broken.is_empty(), "the documents link to nowhere:\n{}", broken.join("\n"));
}

#[test]
fn the_shipped_configuration_passes_check_without_advice() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("proxy.yaml");
    let text = fs::read_to_string(path).expect("proxy.yaml is readable");
    let said = match config::parse("proxy.yaml", &text, &|_| None) {
        Ok(loaded) => loaded.advice,
        Err(problems) => problems,
    };
    let said: Vec<String> = said.iter().map(ToString::to_string).collect();
    assert!(said.is_empty(), "{}", said.join("\n"));
}

/// The words that `source` gives its variants: `Why::NoRoute => "no_route"`.
fn words(source: &str) -> Vec<String> {
    let word = |line: &str| Some(line.trim().split_once(" => \"")?.1.strip_suffix("\",")?.to_owned());
    source.lines().filter_map(word).collect()
}

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).expect("a file of the repository")
}

#[test]
fn every_word_of_the_access_log_is_in_its_page() {
    let (page, source, health) =
        (read("docs/access-log.md"), read("src/telemetry/words.rs"), read("src/health/mod.rs"));
    // Words of two lists stand in both: so each list is looked for under its own heading.
    let section = |heading: &str| {
        let rest = page.split_once(heading).map(|(_, rest)| rest).expect(heading);
        rest.split("\n## ").next().unwrap_or_default().to_owned()
    };
    let listed = |source: &str, of: &str| {
        let body = source.split_once(&format!("impl {of} {{")).map(|(_, rest)| rest).expect(of);
        words(body.split("\n}").next().unwrap_or_default())
    };
    let lists = [
        (listed(&source, "Outcome"), "## `outcome`"),
        (listed(&source, "Why"), "## `reason`"),
        (listed(&source, "PickReason"), "## `lb.mode` and `lb.reason`"),
        (listed(&source, "AttemptResult"), "## `attempts[].result`"),
        (listed(&health, "Standing"), "## `attempts[].standing`"),
    ];
    for (words, heading) in lists {
        assert!(words.len() >= 6, "{heading}: {words:?}");
        let section = section(heading);
        let missing: Vec<_> = words.iter().filter(|word| !section.contains(&format!("\n| `{word}` |"))).collect();
        assert!(missing.is_empty(), "not in docs/access-log.md, {heading}: {missing:?}");
    }
}

/// The part of `document` below the heading `heading`, up to the next one of its rank or a higher one.
fn section<'a>(document: &'a str, heading: &str) -> &'a str {
    let rank = heading.chars().take_while(|c| *c == '#').count();
    let rest = document.split_once(&format!("\n{heading}\n")).map(|(_, rest)| rest).expect(heading);
    let next = (1..=rank).filter_map(|rank| rest.find(&format!("\n{} ", "#".repeat(rank)))).min();
    &rest[..next.unwrap_or(rest.len())]
}

/// The words in backticks in the first cell of each row of the tables of `section`.
fn named_in_rows(section: &str) -> HashSet<&str> {
    let cells = section.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect()
}

#[test]
fn every_field_of_the_access_log_is_in_the_table_of_the_readme() {
    let (readme, source) = (read("README.md"), read("src/config/access_log/field.rs"));
    let listed = named_in_rows(section(&readme, "## A line of the access log"));
    let pairs = source.lines().filter_map(|line| line.trim().strip_prefix("(\"")?.split_once("\", Field::"));
    let fields: Vec<&str> = pairs.map(|(name, _)| name).collect();
    assert!(fields.len() > 40, "{fields:?}");
    // A row names the list once: `attempts[].status` `result`.
    let is_listed = |field: &str| match field.split_once('.') {
        Some((list, last)) => {
            ["", "[]"].iter().any(|of| listed.contains(&*format!("{list}{of}.{last}"))) || listed.contains(last)
        }
        None => listed.contains(field),
    };
    let missing: Vec<_> = fields.iter().filter(|field| !is_listed(field)).collect();
    assert!(missing.is_empty(), "not in README.md: {missing:?}");
}

#[test]
fn every_field_of_an_event_is_in_its_page() {
    let (page, source) = (read("docs/access-log.md"), read("src/telemetry/events.rs"));
    let event = source.split_once("pub struct Event {").map(|(_, rest)| rest).expect("the struct");
    let lines = event.split("\n}").next().unwrap_or_default().lines();
    let fields: Vec<&str> =
        lines.filter_map(|line| line.trim().strip_prefix("pub ")?.split_once(": ")).map(|f| f.0).collect();
    assert!(fields.len() > 15, "{fields:?}");
    let section = section(&page, "## The program's own log");
    let missing: Vec<_> = fields.iter().filter(|field| !section.contains(&format!("`{field}`"))).collect();
    assert!(missing.is_empty(), "not in docs/access-log.md: {missing:?}");
}

#[test]
fn every_metric_is_in_its_page_and_every_one_there_exists() {
    let page = read("docs/metrics.md");
    let row = |metric: &Metric| {
        let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        format!(
            "| `{}` | {} | {} | {} |",
            metric.name,
            metric.kind.as_str(),
            if labels.is_empty() { "-".to_owned() } else { labels.join(" ") },
            metric.help.trim_end_matches('.')
        )
    };
    let known: Vec<String> = metrics::ALL.iter().map(row).collect();
    let is_row = |line: &&str| line.starts_with("| `pulsegate_") || line.starts_with("| `process_");
    let shown: Vec<&str> = page.lines().filter(is_row).collect();
    assert!(
        shown.iter().copied().eq(known.iter().map(String::as_str)),
        "docs/metrics.md has to have these rows:\n{}",
        known.join("\n")
    );
    let rules = fences(&page).into_iter().find(|fence| fence.info == "yaml prometheus rules").expect("rules").text;
    let words = rules.split(|c: char| !c.is_ascii_lowercase() && c != '_');
    let named: HashSet<&str> = words.filter(|w| w.starts_with("pulsegate_") || w.starts_with("process_")).collect();
    assert!(named.len() >= 8, "{named:?}");
    let unknown: Vec<_> = named.iter().filter(|name| metrics::ALL.iter().all(|metric| metric.name != **name)).collect();
    assert!(unknown.is_empty(), "the rules name what is not there: {unknown:?}");
}

#[test]
fn every_field_of_the_api_is_in_its_page() {
    let page = read("docs/admin.md");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/admin");
    let files = fs::read_dir(folder).expect("src/admin is readable").map(|entry| entry.expect("readable").path());
    let sources: Vec<String> =
        files.filter(|path| path.is_file()).map(|path| fs::read_to_string(path).expect("a source is UTF-8")).collect();
    let structs = sources.iter().flat_map(|source| source.split("Serialize, ToSchema)]\n").skip(1));
    let bodies = structs.map(|s| s.split("\n}").next().unwrap_or_default());
    let fields = bodies.flat_map(|s| s.lines().skip(1)).map(|line| line.trim().trim_start_matches("pub "));
    let fields = fields.filter(|line| !line.starts_with("//") && !line.starts_with("#["));
    let fields: Vec<&str> = fields.filter_map(|line| Some(line.split_once(": ")?.0.trim_start_matches("r#"))).collect();
    assert!(fields.len() > 70, "{fields:?}");
    let missing: Vec<_> = fields.iter().filter(|field| !page.contains(&format!("`{field}`"))).collect();
    assert!(missing.is_empty(), "not in docs/admin.md: {missing:?}");
}

#[test]
fn a_broken_configuration_is_reported_with_its_place_in_the_document() {
    let document = "# Title\n\ntext\n\n```yaml\nlisteners: [{ address: \"127.0.0.1:80\" }]\npools: { web: { members: [\"10.0.0.1:80\"], probe: { path: / } } }\nroutes: [{ pool: wbe }]\n```\n";
    let broken = broken_fences("docs/x.md", document);
    assert!(broken.len() == 1 && broken[0].contains("docs/x.md:8:"), "{broken:?}");
    assert_eq!(broken_fences("x.md", &document.replace("yaml", "yaml fragment")), Vec::<String>::new());
    assert_eq!(broken_fences("x.md", &document.replace("wbe", "web")), Vec::<String>::new());
    let misspelt = broken_fences("x.md", &document.replace("```yaml", "```yml"));
    assert!(misspelt.len() == 1 && misspelt[0].starts_with("x.md:5: write ```yaml"), "{misspelt:?}");
}

#[test]
fn broken_json_is_reported_and_lines_of_json_are_accepted() {
    assert_eq!(
        broken_fences("x.md", "```json\n{\"a\": 1}\n{\"b\": 2}\n```\n```json\n{\n \"a\": 1\n}\n```"),
        Vec::<String>::new()
    );
    let broken = broken_fences("x.md", "\n```json\n{\"a\": 1,}\n```");
    assert!(broken.len() == 1 && broken[0].starts_with("x.md:3: no JSON"), "{broken:?}");
}

#[test]
fn fences_are_found_with_info_line_and_without_the_margin_of_a_list() {
    let found = fences("a\n````yaml  fragment\n```\nb: 1\n````\n- c\n  ```sh\n  d\n    e\n  ```\n```json\nf");
    let fence = |info: &str, line, text: &str| Fence { info: info.to_owned(), line, text: text.to_owned() };
    assert_eq!(found[1..], [fence("sh", 8, "d\n  e\n"), fence("json", 12, "f\n")]);
    assert_eq!((found[0].info.as_str(), found[0].line), ("yaml  fragment", 3));
}

#[test]
fn broken_links_are_reported_and_code_is_no_link() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/x.md");
    let said = |document: &str| broken_links("docs/x.md", &here, document);
    let good = "[a](../README.md) [b](https://example.com/nowhere) `[c](no.md)` [d](#a-title)\n```\n[e](no.md)\n```\n[f]: ../LICENSE\n";
    let same_file: Vec<String> = said(good).into_iter().filter(|line| !line.contains("#a-title")).collect();
    assert_eq!(same_file, Vec::<String>::new());
    assert_eq!(said("\n[a](no.md)"), ["docs/x.md:2: no.md does not exist"]);
    assert_eq!(said("[a]: ../no.md"), ["docs/x.md:1: ../no.md does not exist"]);
    assert_eq!(
        said("[a](../README.md#no-such-heading)"),
        ["docs/x.md:1: ../README.md#no-such-heading has no such heading"]
    );
    assert_eq!(
        anchors("# A `b` c: d\n```\n# no\n```\n## E_f"),
        HashSet::from(["a-b-c-d".to_owned(), "e_f".to_owned()])
    );
}
