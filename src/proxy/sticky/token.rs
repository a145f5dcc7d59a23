//! What is in a cookie: a member's number and when it was set, so that nobody but us can read the one or change either.
//!
//! A synthetic tag, as in SIV (RFC 5297): the tag, the whole HMAC-SHA256 of what is said, proves it, and is what the number is hidden
//! with. Both keys are made of the secret and the pool's name, so that one pool's cookies mean nothing to another.
//! `time ‖ number ⊕ HMAC(hide, tag) ‖ tag`, 45 bytes, in base64url as 60 characters.
//!
//! There is no nonce in it: cookies that one member got in one second are equal, and two clients that compare theirs may learn
//! that they share it. Nothing of which member it is follows, nor anything for cookies of different seconds; for that little, all
//! cookies that are out would have to change.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac::{self, HMAC_SHA256, Key};

/// Seconds since 1970, enough for 34,000 years.
const TIME: usize = 5;
const NUMBER: usize = 8;
const TAG: usize = 32;
const BYTES: usize = TIME + NUMBER + TAG;
/// Of a cookie's value.
pub const CHARACTERS: usize = BYTES / 3 * 4;

/// What a cookie says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token {
    /// The member's number.
    pub badge: u64,
    /// When it was set, since 1970; in whole seconds.
    pub set_at: Duration,
}

/// The keys of one pool, of one secret.
#[derive(Debug, Clone)]
pub struct Keys {
    prove: Key,
    hide: Key,
}

impl Keys {
    /// Of the secret, for the cookies of `pool`.
    pub fn new(secret: &[u8], pool: &str) -> Keys {
        let secret = Key::new(HMAC_SHA256, secret);
        let key = |use_: &str| {
            let label = format!("pulsegate sticky 1 {use_} {pool}");
            Key::new(HMAC_SHA256, hmac::sign(&secret, label.as_bytes()).as_ref())
        };
        Keys { prove: key("prove"), hide: key("hide") }
    }

    /// The cookie's value.
    pub fn seal(&self, token: Token) -> String {
        let Token { badge, set_at } = token;
        let mut said = [0; TIME + NUMBER];
        said[..TIME].copy_from_slice(&set_at.as_secs().to_be_bytes()[8 - TIME..]);
        said[TIME..].copy_from_slice(&badge.to_be_bytes());
        let tag = hmac::sign(&self.prove, &said);
        said[TIME..].copy_from_slice(&(badge ^ self.mask(tag.as_ref())).to_be_bytes());
        let mut bytes = [0; BYTES];
        bytes[..TIME + NUMBER].copy_from_slice(&said);
        bytes[TIME + NUMBER..].copy_from_slice(tag.as_ref());
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// What the value says; `None`: it is none of ours.
    pub fn open(&self, value: &[u8]) -> Option<Token> {
        if value.len() != CHARACTERS {
            return None;
        }
        let mut bytes = [0; BYTES];
        let length = URL_SAFE_NO_PAD.decode_slice(value, &mut bytes).ok()?;
        let (said, tag) = bytes.get(..length)?.split_first_chunk::<{ TIME + NUMBER }>()?;
        let (time, number) = said.split_first_chunk::<TIME>()?;
        let badge = u64::from_be_bytes(number.try_into().ok()?) ^ self.mask(tag);
        let mut said = *said;
        said[TIME..].copy_from_slice(&badge.to_be_bytes());
        // In constant time.
        hmac::verify(&self.prove, &said, tag).ok()?;
        let mut seconds = [0; 8];
        seconds[8 - TIME..].copy_from_slice(time);
        Some(Token { badge, set_at: Duration::from_secs(u64::from_be_bytes(seconds)) })
    }

    fn mask(&self, tag: &[u8]) -> u64 {
        let mask = hmac::sign(&self.hide, tag);
        mask.as_ref().first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn token(badge: u64, seconds: u64) -> Token {
        Token { badge, set_at: Duration::from_secs(seconds) }
    }

    #[test]
    fn a_cookie_is_read_by_whoever_has_the_secret_for_the_same_pool_alone() {
        let ours = Keys::new(b"secret", "web");
        let said = token(0x0123_4567_89ab_cdef, 1_767_225_600);
        let value = ours.seal(said);
        assert_eq!((value.len(), Keys::new(b"secret", "web").open(value.as_bytes())), (CHARACTERS, Some(said)));
        for other in [Keys::new(b"Secret", "web"), Keys::new(b"secret", "api"), Keys::new(b"", "web")] {
            assert_eq!(other.open(value.as_bytes()), None);
        }
        // By another program; it must stay readable for the next release.
        assert_eq!(value, "AGlVuQBOH8NUTOJPmHkdynT6SSOJdNITamLfUHc7Cs-1xV0EiwNinXovKyyi");
    }

    #[test]
    fn two_cookies_of_one_member_do_not_show_that_they_are() {
        let ours = Keys::new(b"secret", "web");
        let number = |seconds| URL_SAFE_NO_PAD.decode(ours.seal(token(7, seconds))).expect("base64")[TIME..13].to_vec();
        assert_ne!(number(1), number(2));
    }

    #[test]
    fn a_cookie_that_was_changed_anywhere_is_none() {
        let ours = Keys::new(b"secret", "web");
        let value = ours.seal(token(7, 1)).into_bytes();
        for at in 0..value.len() {
            for byte in [b'A', b'_', b'=', b' ', b'%', 0xff] {
                let mut changed = value.clone();
                changed[at] = byte;
                assert!(changed == value || ours.open(&changed).is_none(), "{at} {byte}");
            }
        }
        assert_eq!((ours.open(&value[1..]), ours.open(&[&value[..], b"A"].concat())), (None, None));
    }

    proptest! {
        #[test]
        fn whatever_is_said_comes_back(badge: u64, seconds in 0_u64..1 << 40, pool in "[a-z]{1,9}") {
            let keys = Keys::new(b"secret", &pool);
            prop_assert_eq!(keys.open(keys.seal(token(badge, seconds)).as_bytes()), Some(token(badge, seconds)));
        }

        #[test]
        fn no_bytes_are_a_cookie_by_chance(bytes in prop::collection::vec(any::<u8>(), 0..90), text in "[A-Za-z0-9_-]{60}") {
            let keys = Keys::new(b"secret", "web");
            prop_assert_eq!((keys.open(&bytes), keys.open(text.as_bytes())), (None, None));
        }
    }
}
