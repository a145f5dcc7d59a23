//! Whether a text is well-formed XML, as far as our pictures use it: elements, attributes, text and five entities.

/// What is wrong with it, if anything is.
pub fn check(text: &str) -> Result<(), String> {
    let mut open: Vec<String> = Vec::new();
    let mut rest = text.trim_end();
    let mut elements = 0;
    while !rest.is_empty() {
        let Some(tag) = rest.strip_prefix('<') else {
            let end = rest.find('<').unwrap_or(rest.len());
            characters(&rest[..end])?;
            if open.is_empty() {
                return Err(format!("text outside the root: {:?}", &rest[..end]));
            }
            rest = &rest[end..];
            continue;
        };
        let end = tag.find('>').ok_or("a tag that does not end")?;
        let inside = &tag[..end];
        rest = &tag[end + 1..];
        if let Some(name) = inside.strip_prefix('/') {
            if open.pop().as_deref() != Some(name) {
                return Err(format!("</{name}> closes another element"));
            }
        } else {
            if open.is_empty() && elements > 0 {
                return Err("two roots".to_owned());
            }
            elements += 1;
            let (name, attributes) =
                inside.trim_end_matches('/').split_once(' ').unwrap_or((inside.trim_end_matches('/'), ""));
            self::attributes(attributes)?;
            if !inside.ends_with('/') {
                open.push(name.to_owned());
            }
        }
    }
    if open.is_empty() && elements > 5 {
        Ok(())
    } else {
        Err(format!("{elements} elements, open at the end: {open:?}"))
    }
}

fn attributes(text: &str) -> Result<(), String> {
    let mut rest = text.trim();
    let mut names = Vec::new();
    while !rest.is_empty() {
        let (name, value) = rest.split_once("=\"").ok_or(format!("no attribute: {rest:?}"))?;
        let (value, after) = value.split_once('"').ok_or(format!("an attribute that does not end: {rest:?}"))?;
        let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        if !is_name || names.contains(&name) {
            return Err(format!("no name of an attribute, or one that is there twice: {name:?}"));
        }
        names.push(name);
        characters(value)?;
        rest = after.trim();
    }
    Ok(())
}

fn characters(text: &str) -> Result<(), String> {
    for part in text.split('&').skip(1) {
        let entity = part.split_once(';').map(|(entity, _)| entity);
        if !matches!(entity, Some("amp" | "lt" | "gt" | "quot" | "apos")) {
            return Err(format!("no entity: &{part}"));
        }
    }
    match text.chars().find(|c| c.is_control() && !matches!(c, '\t' | '\n' | '\r')) {
        Some(c) => Err(format!("{c:?} cannot be in XML")),
        None => Ok(()),
    }
}

#[test]
fn what_is_no_xml_is_found() {
    let with = |inside: &str| format!("<a>{}{inside}</a>", "<b/>".repeat(6));
    assert_eq!(check(&with("<c d=\"1\" e=\"2\">x &amp; y</c>")), Ok(()));
    for wrong in ["<c>", "</c>", "x & y", "<c d=1/>", "<c d=\"1\" d=\"2\"/>", "&x;", "\u{1}", "<c"] {
        assert!(check(&with(wrong)).is_err(), "{wrong}");
    }
}
