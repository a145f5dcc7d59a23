//! Clients that are bound to a member by a cookie: what the cookie of a request says, and what an answer sets.
//!
//! A client is told anew whom it is bound to in the very answer that another member has given, whatever the reason (case
//! C29), so that it stays there and does not go back. An answer that tells it is for that client alone, and no shared cache
//! may give it to another. Not here: whether the member may serve (`pool`), what a cookie looks like inside ([`token`]).

mod signer;
mod token;

use std::fmt::Write;
use std::time::{Duration, UNIX_EPOCH};

use http::HeaderName;
use http::header::CACHE_CONTROL;
use pingora::http::{RequestHeader, ResponseHeader};

pub use signer::{Signer, SignerError};

use super::ctx::Ctx;
use super::{cookies, headers};
use crate::clock;
use crate::config::{SameSite, Secure, Sticky};
use crate::health::{MemberId, Standing};
use crate::pool::{Binding, Choice, Lease};
use crate::snapshot::Served;

/// Of several cookies of the name, as a browser has where paths differ, the first so many are looked at.
const LOOKED_AT: usize = 4;

/// Fields that tell shared caches alone, and come before `Cache-Control` for them (RFC 9213, and what was before it).
static FOR_SHARED_CACHES: [HeaderName; 2] =
    [HeaderName::from_static("cdn-cache-control"), HeaderName::from_static("surrogate-control")];

/// What the cookie of a request says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// It has none, or its pool binds nobody.
    None,
    /// It is none of ours, or not of this pool, or was changed.
    Invalid,
    /// It is too old.
    Expired,
    /// Its member is no longer in the pool.
    Removed,
    /// It names a member.
    Bound {
        /// Who that is.
        member: MemberId,
        /// The cookie need not be set anew.
        is_fresh: bool,
    },
}

impl Claim {
    /// The member that is named.
    pub fn member(self) -> Option<MemberId> {
        match self {
            Claim::Bound { member, .. } => Some(member),
            Claim::None | Claim::Invalid | Claim::Expired | Claim::Removed => None,
        }
    }
}

/// What the cookie of `request` says to this pool.
pub fn claim(pool: &Served, request: &RequestHeader) -> Claim {
    let Some((sticky, signer)) = binds(pool) else { return Claim::None };
    let mut values = cookies::values(&request.headers, &sticky.cookie).take(LOOKED_AT).peekable();
    if values.peek().is_none() {
        return Claim::None;
    }
    let Some(read) = values.find_map(|value| signer.read(value)) else { return Claim::Invalid };
    let age = age(read.token.set_at, since_1970());
    if age >= sticky.ttl {
        return Claim::Expired;
    }
    match pool.live.badged(read.token.badge) {
        None => Claim::Removed,
        Some(member) => Claim::Bound { member, is_fresh: read.is_present && age < sticky.ttl / 2 },
    }
}

/// Takes the cookie out of what goes to a member: it is between the client and us.
///
/// # Errors
/// A value that cannot be sent.
pub fn upward(pool: &Served, up: &mut RequestHeader) -> pingora::Result<()> {
    pool.config.sticky.as_ref().map_or(Ok(()), |sticky| cookies::remove(up, &sticky.cookie))
}

/// Sets the cookie in the answer of a member, unless the client has it already.
///
/// # Errors
/// A value that cannot be sent.
pub fn downward(ctx: &Ctx, request: &RequestHeader, answer: &mut ResponseHeader) -> pingora::Result<()> {
    let (Some(pool), Some(lease)) = (&ctx.pool, &ctx.lease) else { return Ok(()) };
    let Some((sticky, signer)) = binds(pool) else { return Ok(()) };
    let Some(why) = binding(ctx.claim, lease, ctx.left.all()) else { return Ok(()) };
    let is_secure = match sticky.secure {
        Secure::Always => true,
        Secure::Never => false,
        Secure::Auto => ctx.peer_is_trusted && came_securely(request),
    };
    let value = signer.sign(lease.member().badge(), since_1970());
    answer.append_header("Set-Cookie", set_cookie(sticky, &value, is_secure.then_some("; Secure")))?;
    keep_from_shared_caches(answer)?;
    pool.live.tally().binds(why);
    Ok(())
}

fn binds(pool: &Served) -> Option<(&Sticky, &Signer)> {
    let sticky = pool.config.sticky.as_ref()?;
    Some((sticky, pool.signer.as_ref()?.downcast_ref()?))
}

/// Why the cookie is set; `None`: it is not.
fn binding(claim: Claim, lease: &Lease, tried: &[MemberId]) -> Option<Binding> {
    let (own, is_fresh) = match (lease.choice(), claim) {
        // Its own member may have room the next time.
        (Choice::Instead, _) => return None,
        (_, Claim::Bound { member, is_fresh }) => (member, is_fresh),
        (_, Claim::None) => return Some(Binding::New),
        (_, Claim::Invalid) => return Some(Binding::Invalid),
        (_, Claim::Expired) => return Some(Binding::Expired),
        (_, Claim::Removed) => return Some(Binding::Removed),
    };
    if own == lease.member().id() {
        // One that is drained keeps its clients for no longer than they have been promised.
        return (!is_fresh && lease.standing() != Standing::Draining).then_some(Binding::Renewed);
    }
    Some(if tried.contains(&own) { Binding::Failed } else { Binding::Out })
}

/// What a proxy before us says of the client's connection.
fn came_securely(request: &RequestHeader) -> bool {
    let scheme = request.headers.get("x-forwarded-proto");
    scheme.is_some_and(|scheme| scheme.as_bytes().eq_ignore_ascii_case(b"https"))
}

fn set_cookie(sticky: &Sticky, value: &str, secure: Option<&str>) -> String {
    let Sticky { cookie, ttl, same_site, http_only, path, .. } = sticky;
    let same_site = match same_site {
        SameSite::Strict => "Strict",
        SameSite::Lax => "Lax",
        SameSite::None => "None",
    };
    let http_only = if *http_only { "; HttpOnly" } else { "" };
    let mut line = String::with_capacity(160);
    let _ = write!(
        line,
        "{cookie}={value}; Path={path}; Max-Age={}{http_only}; SameSite={same_site}{}",
        ttl.as_secs(),
        secure.unwrap_or_default()
    );
    line
}

/// Forbids shared caches to store the answer (RFC 9111 section 5.2.2.7), whatever they were allowed.
fn keep_from_shared_caches(answer: &mut ResponseHeader) -> pingora::Result<()> {
    FOR_SHARED_CACHES.iter().for_each(|name| drop(answer.remove_header(name)));
    let is_quoted = answer.headers.get_all(CACHE_CONTROL).iter().any(|line| line.as_bytes().contains(&b'"'));
    if is_quoted {
        // Commas within say nothing; this is at least as strict as whatever stood there.
        return answer.insert_header("Cache-Control", "private, no-store");
    }
    let is =
        |directive: &str, name: &str| directive.split('=').next().is_some_and(|d| d.trim().eq_ignore_ascii_case(name));
    let directives = || headers::tokens(&answer.headers, &CACHE_CONTROL).filter(|directive| !directive.is_empty());
    if directives().any(|directive| is(directive, "no-store")) {
        return Ok(());
    }
    let kept = directives().filter(|one| !["public", "s-maxage", "private"].iter().any(|name| is(one, name)));
    let line = std::iter::once("private").chain(kept).collect::<Vec<_>>().join(", ");
    answer.insert_header("Cache-Control", line)
}

/// How old a cookie is at least: it says the second it was set in, and may be of that second's end, so that it never ends
/// before its time. One of another instance, whose clock is ahead, has no age yet.
fn age(set_at: Duration, now: Duration) -> Duration {
    now.saturating_sub(set_at + Duration::from_secs(1))
}

fn since_1970() -> Duration {
    clock::wall().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(fields: &[(&'static str, &'static str)]) -> ResponseHeader {
        let mut answer = ResponseHeader::build(200, None).expect("an answer");
        for (name, value) in fields {
            answer.append_header(*name, *value).expect("a field");
        }
        answer
    }

    #[test]
    fn a_cookie_is_never_taken_for_older_than_it_is() {
        let ms = Duration::from_millis;
        // (when it was set, when it comes back, its age at least)
        for (set, now, least) in [(1_000, 3_000, 1_000), (1_999, 3_000, 1_000), (1_999, 2_500, 500), (5_000, 3_000, 0)]
        {
            let said = Duration::from_secs(ms(set).as_secs());
            assert_eq!(age(said, ms(now)), ms(least), "{set} {now}");
            assert!(age(said, ms(now)) <= ms(now).saturating_sub(ms(set)), "{set} {now}");
        }
    }

    #[test]
    fn no_shared_cache_stores_an_answer_that_sets_a_cookie() {
        let rows: &[(&[(&str, &str)], &str)] = &[
            (&[], "private"),
            (&[("cache-control", "public, max-age=60")], "private, max-age=60"),
            (
                &[("cache-control", "max-age=60, S-MaxAge=600"), ("cache-control", "must-revalidate")],
                "private, max-age=60, must-revalidate",
            ),
            (&[("cache-control", "no-store")], "no-store"),
            (&[("cache-control", "private")], "private"),
            (&[("cache-control", "private=\"x, y\", public")], "private, no-store"),
            (&[("cdn-cache-control", "max-age=60"), ("surrogate-control", "max-age=60")], "private"),
        ];
        for (fields, expected) in rows {
            let fields: Vec<(&'static str, &'static str)> = fields.to_vec();
            let mut answer = answer(&fields);
            keep_from_shared_caches(&mut answer).expect("it can be sent");
            let lines: Vec<_> =
                answer.headers.iter().map(|(name, value)| (name.as_str(), value.to_str().ok())).collect();
            assert_eq!(lines, [("cache-control", Some(*expected))], "{fields:?}");
        }
    }

    #[test]
    fn a_cookie_is_written_as_the_configuration_says() {
        let sticky = |same_site, http_only, path: &str| Sticky {
            cookie: "shop".to_owned(),
            ttl: Duration::from_secs(90),
            secret: None,
            previous: None,
            same_site,
            secure: Secure::Auto,
            http_only,
            path: path.to_owned(),
        };
        let rows = [
            (sticky(SameSite::Lax, true, "/"), None, "shop=x; Path=/; Max-Age=90; HttpOnly; SameSite=Lax"),
            (
                sticky(SameSite::None, false, "/a"),
                Some("; Secure"),
                "shop=x; Path=/a; Max-Age=90; SameSite=None; Secure",
            ),
            (sticky(SameSite::Strict, false, "/"), None, "shop=x; Path=/; Max-Age=90; SameSite=Strict"),
        ];
        for (sticky, secure, expected) in rows {
            assert_eq!(set_cookie(&sticky, "x", secure), expected);
        }
    }
}
