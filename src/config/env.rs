//! `${NAME}` in values: the environment's word, so that secrets and addresses need not stand in the file.

/// The text with every `${NAME}` replaced and every `$${` made `${`; `None` where there is nothing to do.
pub(super) fn expand(text: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<Option<String>, String> {
    if !text.contains("${") {
        return Ok(None);
    }
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(dollar) = rest.find('$') {
        expanded.push_str(&rest[..dollar]);
        rest = &rest[dollar..];
        if let Some(after) = rest.strip_prefix("$${") {
            expanded.push_str("${");
            rest = after;
        } else if let Some(after) = rest.strip_prefix("${") {
            let Some(end) = after.find('}') else {
                return Err("`${` has no closing `}`; a literal `${` is written `$${`".to_owned());
            };
            expanded.push_str(&value(&after[..end], env)?);
            rest = &after[end + 1..];
        } else {
            expanded.push('$');
            rest = &rest[1..];
        }
    }
    expanded.push_str(rest);
    Ok(Some(expanded))
}

fn value(name: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    if !is_name(name) {
        return Err(format!(
            "`${{{name}}}` is not a name of letters, digits and `_`; a literal `${{` is written `$${{`"
        ));
    }
    env(name).ok_or_else(|| format!("the environment has no `{name}`; set it, or write `$${{` for a literal `${{`"))
}

/// Whether the environment can have it.
pub(super) fn is_name(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && text.bytes().next().is_some_and(|b| !b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_their_values_and_nothing_else_changes() {
        let rows = [
            ("plain", Ok(None)),
            ("$5 and $", Ok(None)),
            ("${A}", Ok(Some("1"))),
            ("x${A}y${B_2}z", Ok(Some("x1ytwoz"))),
            ("$${A}", Ok(Some("${A}"))),
            ("$$${A}", Ok(Some("$${A}"))),
            ("$${A} ${A}", Ok(Some("${A} 1"))),
            ("${INNER}", Ok(Some("${A}"))),
            ("${A", Err("closing")),
            ("${}", Err("not a name")),
            ("${A:-x}", Err("not a name")),
            ("${1A}", Err("not a name")),
            ("${GONE}", Err("has no `GONE`")),
        ];
        let env = |name: &str| match name {
            "A" => Some("1".to_owned()),
            "B_2" => Some("two".to_owned()),
            "INNER" => Some("${A}".to_owned()),
            _ => None,
        };
        for (text, wanted) in rows {
            match (expand(text, &env), wanted) {
                (Ok(got), Ok(wanted)) => assert_eq!(got.as_deref(), wanted, "{text}"),
                (Err(message), Err(part)) => assert!(message.contains(part), "{text}: {message}"),
                (got, _) => panic!("{text}: {got:?}"),
            }
        }
    }
}
