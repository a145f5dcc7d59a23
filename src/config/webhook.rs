//! Somebody else who is told by a signed POST: what `webhook:` means, wherever it is written.

use std::time::Duration;

use super::address::host_name;
use super::domain::Webhook;
use super::file::WebhookKeys;
use super::proof::Secret;
use super::reading::{Reading, TICK};
use super::remediation::whole_path;
use super::spelling::{Spelled, shown};

const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(10);
const RETRIES: u32 = 3;

/// What `webhook:` means, on which `read` stands.
pub(super) fn webhook(keys: &WebhookKeys, read: &mut Reading<'_>) -> Option<Webhook> {
    if keys.url.is_none() {
        read.missing("url", "a webhook needs a `url`, such as `https://ops.example/pulsegate`");
    }
    let url = read.text("url", &keys.url, url);
    let timeout = read.span("timeout", &keys.timeout, TICK..=Duration::from_secs(300));
    let retries = read.count("retries", &keys.retries, 0..=10);
    let text = match keys.secret.as_ref().map(|Spelled(secret)| secret.text()) {
        Some("") => {
            read.error("secret", "the secret is empty, and anybody could sign with it");
            None
        }
        text => text.map(|text| Secret::Text(text.to_owned())),
    };
    let file = read.text("secret_file", &keys.secret_file, |path| whole_path("secret_file", path).map(Secret::File));
    match (keys.secret.is_some(), keys.secret_file.is_some()) {
        (true, true) => read.error("secret_file", "`secret` and `secret_file` are two secrets; keep one"),
        (false, false) if !read.at.may_have_lost("secret_file") => {
            read.missing("secret", "a webhook is signed; write `secret: \"${WEBHOOK_SECRET}\"`, or a `secret_file`");
        }
        _ => {}
    }
    Some(Webhook {
        url: url?,
        secret: text.or(file)?,
        timeout: timeout.unwrap_or(WEBHOOK_TIMEOUT),
        retries: retries.unwrap_or(RETRIES),
    })
}

fn url(text: &str) -> Result<http::Uri, String> {
    let shown = shown(text);
    if text.contains('#') {
        return Err(format!("`{shown}`: what follows `#` is never sent; remove it"));
    }
    let url: http::Uri = text.parse().map_err(|_| format!("`{shown}` is not a URL"))?;
    let scheme = url.scheme_str().filter(|scheme| matches!(*scheme, "http" | "https"));
    match (scheme, url.authority()) {
        (None, _) => Err(format!("`{shown}`: write a URL that begins with `https://` or `http://`")),
        (Some(_), Some(authority)) if authority.as_str().contains('@') => {
            Err(format!("`{shown}`: name and password have no place here; the request is signed with `secret`"))
        }
        (Some(_), Some(authority)) if !authority.host().is_empty() => {
            let host = authority.host();
            let name = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
            host_name(name)?;
            match authority.as_str()[host.len()..].strip_prefix(':') {
                None | Some("") => Ok(url),
                Some(port) if port.parse::<u16>().is_ok_and(|port| port > 0) => Ok(url),
                Some(port) => Err(format!("`{shown}`: `{port}` is not a port; write 1 to 65535")),
            }
        }
        _ => Err(format!("`{shown}` names no host")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_that_cannot_work_is_refused() {
        let rows = [
            ("https://ops.example", None),
            ("https://ops.example:8443/replace?now", None),
            ("http://ops.example?now", None),
            ("http://[::1]:80/", None),
            ("http://ops.example:/", None),
            ("http://ops.example:0/", Some("`0` is not a port; write 1 to 65535")),
            ("http://ops.example:99999/", Some("`99999` is not a port; write 1 to 65535")),
            ("http://[::1]:65536", Some("`65536` is not a port; write 1 to 65535")),
            ("http://10.0.0.256/", Some("it looks like an IPv4 address and is none")),
            ("http://-ops.example/", Some("no `-` at its ends")),
            ("ops.example", Some("begins with `https://`")),
            ("ops.example/replace", Some("is not a URL")),
            ("http:///replace", Some("")),
        ];
        for (text, expected) in rows {
            match (url(text), expected) {
                (Ok(_), None) => {}
                (Err(message), Some(words)) => assert!(message.contains(words), "{text}: {message}"),
                (read, _) => panic!("{text}: {read:?}"),
            }
        }
    }
}
