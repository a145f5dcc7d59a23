//! Clients that are bound to a member by a cookie of ours: what `sticky` means.
//!
//! Not here: what the cookie holds, and who may read it (`proxy`).

mod advice;

use std::path::PathBuf;
use std::time::Duration;

use super::file::StickyKeys;
use super::probe::is_token_byte;
use super::proof::{Secret, Unquoted};
use super::reading::Reading;
use super::spelling::{Spelled, Spelling, Text, Written, shown, word};
use super::words::{Off, Or};

pub(super) use advice::advise;

/// Where nothing is written.
const TTL: Duration = Duration::from_secs(3600);
/// A year. Browsers keep no cookie for much longer (RFC 6265bis section 5.5).
const MAX_TTL: Duration = Duration::from_secs(31_557_600);
/// Every request of every client carries it.
const MAX_NAME: usize = 100;

/// How clients are bound to the members of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sticky {
    /// The cookie's name. Default `pulsegate-POOL`.
    pub cookie: String,
    /// How long it holds after it was set; it is set anew once half of that is over. Default 1 h.
    pub ttl: Duration,
    /// What it is signed with; `None`: what the process has made for itself.
    pub secret: Option<Secret>,
    /// What it may be signed with too: that of before, or the next one.
    pub previous: Option<Secret>,
    /// Whether requests that another site has caused carry it. Default lax.
    pub same_site: SameSite,
    /// Whether it is for secure connections alone. Default: where the client has one.
    pub secure: Secure,
    /// Whether scripts must not see it. Default yes.
    pub http_only: bool,
    /// The paths it is for. Default all.
    pub path: String,
}

/// `SameSite` of a cookie (RFC 6265bis section 4.1.2.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SameSite {
    /// Never with requests that another site has caused.
    Strict,
    /// Only where such a request shows the page itself.
    Lax,
    /// With every request.
    None,
}

impl SameSite {
    /// As it is written in the file.
    pub fn as_str(self) -> &'static str {
        match self {
            SameSite::Strict => "strict",
            SameSite::Lax => "lax",
            SameSite::None => "none",
        }
    }
}

/// When a cookie is for secure connections alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Secure {
    /// Where the client came by one, as far as it is known.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl Spelling for SameSite {
    const EXPECTED: &'static str = "`strict`, `lax` or `none`";

    fn read(text: &str) -> Result<SameSite, String> {
        let words = [("strict", SameSite::Strict), ("lax", SameSite::Lax), ("none", SameSite::None)];
        match text.to_ascii_lowercase().as_str() {
            "off" | "false" => Err(format!("`{text}` is not known here; write {}", SameSite::EXPECTED)),
            lower => word(lower, &words),
        }
    }
}

impl Spelling for Secure {
    const EXPECTED: &'static str = "`auto`, `true` or `false`";

    fn read(text: &str) -> Result<Secure, String> {
        word(text, &[("auto", Secure::Auto), ("true", Secure::Always), ("false", Secure::Never)])
    }

    fn read_unquoted(text: &str) -> Result<Secure, String> {
        Secure::read(text)
    }
}

/// What `sticky:` means in the pool `name` that `pool` stands on.
pub(super) fn sticky(name: &str, written: Option<&Or<Off, StickyKeys>>, pool: &mut Reading<'_>) -> Option<Sticky> {
    let Some(Or::Keys(keys)) = written else { return None };
    let mut read = pool.under("sticky");
    let secure = keys.secure.map_or(Secure::Auto, |Spelled(secure)| secure);
    let same_site = keys.same_site.map_or(SameSite::Lax, |Spelled(same_site)| same_site);
    if same_site == SameSite::None && secure != Secure::Always && !read.at.lost("secure") {
        let message = "browsers drop a cookie with `same_site: none` that is not for secure connections alone; write \
                       `secure: true` too";
        read.error("same_site", message);
    }
    let path = read.text("path", &keys.path, path).unwrap_or_else(|| "/".to_owned());
    let cookie = read.text("cookie", &keys.cookie, cookie);
    refuse_prefix(cookie.as_deref(), secure, &path, &mut read);
    let ttl = read.span("ttl", &keys.ttl, Duration::from_secs(1)..=MAX_TTL);
    let own = secret(("secret", &keys.secret), ("secret_file", &keys.secret_file), &mut read);
    let previous = secret(
        ("previous_secret", &keys.previous_secret),
        ("previous_secret_file", &keys.previous_secret_file),
        &mut read,
    );
    let has_secret = keys.secret.is_some() || keys.secret_file.is_some();
    if let Some(key) = previous_key(keys).filter(|_| !has_secret)
        && !read.at.may_have_lost("secret")
    {
        read.error(key, format!("`{key}` is beside a secret, and there is none; write `secret` or `secret_file`"));
    }
    Some(Sticky {
        cookie: cookie.unwrap_or_else(|| format!("pulsegate-{name}")),
        // A cookie counts in seconds.
        ttl: Duration::from_secs(ttl.unwrap_or(TTL).as_secs()),
        secret: own,
        previous,
        same_site,
        secure,
        http_only: keys.http_only.is_none_or(|Spelled(http_only)| http_only),
        path,
    })
}

fn previous_key(keys: &StickyKeys) -> Option<&'static str> {
    let file = keys.previous_secret_file.as_ref().map(|_| "previous_secret_file");
    keys.previous_secret.as_ref().map(|_| "previous_secret").or(file)
}

fn secret(
    (key, text): (&str, &Written<Unquoted>),
    (file_key, file): (&str, &Written<Text>),
    read: &mut Reading<'_>,
) -> Option<Secret> {
    match (text, file) {
        (Some(_), Some(_)) => {
            read.error(file_key, format!("`{key}` and `{file_key}` are two secrets; remove one of them"));
            None
        }
        (Some(Spelled(secret)), None) => {
            if secret.text().is_empty() {
                read.error(key, "the secret is empty, which everybody knows");
            }
            Some(Secret::Text(secret.text().to_owned()))
        }
        (None, file) => read.text(file_key, file, |path| {
            let fits = !path.is_empty() && !path.contains('\0');
            fits.then(|| Secret::File(PathBuf::from(path))).ok_or_else(|| format!("`{file_key}` is the path of a file"))
        }),
    }
}

fn cookie(name: &str) -> Result<String, String> {
    if name.is_empty() || !name.bytes().all(is_token_byte) {
        return Err(format!("`{}` cannot be the name of a cookie; use letters, digits, `-` and `_`", shown(name)));
    }
    match name.len() {
        ..=MAX_NAME => Ok(name.to_owned()),
        long => Err(format!("a name of {long} bytes goes with every request; write at most {MAX_NAME}")),
    }
}

/// Names that promise something: browsers drop a cookie that does not keep it (RFC 6265bis section 4.1.3).
fn refuse_prefix(cookie: Option<&str>, secure: Secure, path: &str, read: &mut Reading<'_>) {
    let has =
        |prefix: &str| cookie.and_then(|name| name.get(..prefix.len())).is_some_and(|p| p.eq_ignore_ascii_case(prefix));
    let (host, is_secure) = (has("__Host-"), has("__Secure-"));
    if (host || is_secure) && secure != Secure::Always && !read.at.lost("secure") {
        let prefix = if host { "__Host-" } else { "__Secure-" };
        read.error("cookie", format!("browsers drop a cookie `{prefix}…` without `secure: true`; write that too"));
    }
    if host && path != "/" {
        read.error("path", "browsers drop a cookie `__Host-…` that is not for all paths; remove `path`");
    }
}

fn path(path: &str) -> Result<String, String> {
    let is_sent = |byte: u8| byte.is_ascii_graphic() && byte != b';';
    match path.starts_with('/') && path.bytes().all(is_sent) {
        true => Ok(path.to_owned()),
        false => Err(format!("`{}` cannot be a cookie's path; write one such as `/` or `/shop`", shown(path))),
    }
}
