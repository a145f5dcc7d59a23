//! docs/admin.md beside the document: its examples have every field that an answer has and no other, and each section names
//! every field of its answers. That real answers are as the document says is tested elsewhere.

use std::collections::BTreeSet;

use serde_json::Value;
use utoipa::OpenApi;

use super::Api;

/// The heading of each section with examples, and the schema of each of its examples in their order.
const SECTIONS: &[(&str, &[&str])] = &[
    ("Errors", &["Problem"]),
    ("A pool", &["PoolView"]),
    ("Probes", &["ProbesView"]),
    ("Routes", &["RouteView"]),
    ("Explaining a request", &["Explanation"]),
    ("Composites", &["CompositeView"]),
    ("Events", &["EventsView"]),
    ("Diagnostics", &["DiagnosticsView", "Case"]),
    ("Replacement", &["RemediationView", "BegunView"]),
    ("Alerts", &["AlertsView"]),
    ("The configuration", &["ConfigView"]),
    ("Reload", &["Report", "RefusedProblem"]),
];

/// Schemas whose fields a section names that has no example of them.
const NAMED_ONLY: &[(&str, &str)] = &[("Reload", "ReloadView"), ("Replacement", "FinishedView")];

/// Sections whose words mean the same wherever they come again.
const COMMON: &[&str] = &["Errors", "A pool", "Routes", "Events"];

/// What needs no explanation.
const PLAIN: &[&str] = &["name", "pool", "member", "at", "time", "message"];

fn schemas() -> Value {
    let api = serde_json::to_value(Api::openapi()).expect("JSON");
    api["components"]["schemas"].clone()
}

fn page() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/admin.md");
    std::fs::read_to_string(path).expect("the page is there")
}

fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let (_, rest) = page.split_once(&format!("\n## {heading}\n")).expect(heading);
    rest.split("\n## ").next().unwrap_or_default()
}

fn examples(section: &str) -> Vec<Value> {
    let fences = section.split("\n```json\n").skip(1).filter_map(|rest| rest.split("\n```").next());
    fences.map(|text| serde_json::from_str(text).expect(text)).collect()
}

/// What a schema stands for: a reference is followed, and of something that may be null it is the something.
fn meant<'a>(schemas: &'a Value, schema: &'a Value) -> &'a Value {
    if let Some(name) = schema["$ref"].as_str().and_then(|name| name.rsplit('/').next()) {
        return meant(schemas, &schemas[name]);
    }
    let choices = ["oneOf", "anyOf", "allOf"].iter().find_map(|key| schema[key].as_array());
    let some = choices.and_then(|choices| choices.iter().find(|choice| choice["type"] != "null"));
    some.map_or(schema, |some| meant(schemas, some))
}

/// Where `value` has other fields than `schema`.
fn differences(schemas: &Value, schema: &Value, value: &Value, place: &str, found: &mut Vec<String>) {
    let schema = meant(schemas, schema);
    match (value, schema["properties"].as_object()) {
        (Value::Object(fields), Some(known)) => {
            let (here, there): (BTreeSet<_>, BTreeSet<_>) = (fields.keys().collect(), known.keys().collect());
            found.extend(there.difference(&here).map(|field| format!("{place}.{field} is missing")));
            found.extend(here.difference(&there).map(|field| format!("{place}.{field} is not in the API")));
            for (field, value) in fields.iter().filter(|(field, _)| known.contains_key(*field)) {
                differences(schemas, &known[field], value, &format!("{place}.{field}"), found);
            }
        }
        (Value::Array(values), _) => {
            for value in values {
                differences(schemas, &schema["items"], value, &format!("{place}[]"), found);
            }
        }
        _ => {}
    }
}

/// The names of all fields below `schema`.
fn fields(schemas: &Value, schema: &Value, found: &mut BTreeSet<String>) {
    let schema = meant(schemas, schema);
    if schema["items"].is_object() {
        fields(schemas, &schema["items"], found);
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        found.insert(name.clone());
        fields(schemas, property, found);
    }
}

#[test]
fn the_examples_of_the_page_are_whole() {
    let (schemas, page) = (schemas(), page());
    let mut found = Vec::new();
    for (heading, names) in SECTIONS {
        let examples = examples(section(&page, heading));
        assert_eq!(examples.len(), names.len(), "{heading}");
        for (name, example) in names.iter().zip(&examples) {
            assert!(schemas[name].is_object(), "there is no {name}");
            differences(&schemas, &schemas[name], example, heading, &mut found);
        }
    }
    assert!(found.is_empty(), "docs/admin.md:\n{}", found.join("\n"));
    let told_of: usize = SECTIONS.iter().map(|(_, names)| names.len()).sum();
    assert_eq!(page.matches("\n```json\n").count(), told_of, "each example has its place in SECTIONS");
}

#[test]
fn each_section_of_the_page_names_every_field_of_its_answers() {
    let (schemas, page) = (schemas(), page());
    let whole = SECTIONS.iter().flat_map(|(heading, names)| names.iter().map(move |name| (*heading, *name)));
    let mut missing = Vec::new();
    for (heading, name) in whole.chain(NAMED_ONLY.iter().copied()) {
        let (text, mut known) = (section(&page, heading), BTreeSet::new());
        assert!(schemas[name].is_object(), "there is no {name}");
        fields(&schemas, &schemas[name], &mut known);
        // In prose and tables; an example is no explanation.
        let prose = |text: &str| text.split("```").step_by(2).collect::<String>();
        let told: String = COMMON.iter().map(|heading| prose(section(&page, heading))).chain([prose(text)]).collect();
        let is_named = |field: &&String| PLAIN.contains(&field.as_str()) || told.contains(&format!("`{field}`"));
        missing.extend(
            known.iter().filter(|field| !is_named(field)).map(|field| format!("{heading}: `{field}` of {name}")),
        );
    }
    assert!(missing.is_empty(), "not in docs/admin.md:\n{}", missing.join("\n"));
}

#[test]
fn a_field_that_an_example_lacks_or_invents_is_found() {
    let schemas = schemas();
    let mut found = Vec::new();
    let example = serde_json::json!({ "alerts": [{ "name": "pager", "open": [{ "episode": "1", "is": 1 }], "waiting": 0, "sent": 1, "failed": 0 }] });
    differences(&schemas, &schemas["AlertsView"], &example, "Alerts", &mut found);
    found.sort();
    let expected = [
        "Alerts.alerts[].dropped is missing",
        "Alerts.alerts[].open[].is is not in the API",
        "Alerts.alerts[].open[].key is missing",
        "Alerts.alerts[].open[].message is missing",
        "Alerts.alerts[].open[].since is missing",
    ];
    assert_eq!(found, expected);
}
