//! What says that a webhook's request is ours: `t=SECONDS,v1=HEX`, the HMAC-SHA256 of `SECONDS.BODY` with the shared secret.
//!
//! The time is part of what is signed, so that a request that somebody has kept cannot be sent again later.

use std::fmt::Write;

use ring::hmac;

/// The field that carries it.
pub const FIELD: &str = "x-pulsegate-signature";

/// The signature of `body` at `seconds` since 1970.
pub fn signature(secret: &[u8], seconds: u64, body: &[u8]) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    let mut context = hmac::Context::with_key(&key);
    context.update(format!("{seconds}.").as_bytes());
    context.update(body);
    let mut text = format!("t={seconds},v1=");
    for byte in context.sign().as_ref() {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answer in docs/operations.md, which `openssl` gives too.
    #[test]
    fn a_known_body_has_a_known_signature() {
        let signed =
            signature(b"correct horse battery staple", 1_767_225_600, br#"{"version":1,"id":"0123456789abcdef"}"#);
        assert_eq!(signed, "t=1767225600,v1=190f6e43f60c6999b056d111e0aaba9293b38aa127b59175d013b84b2d82f2eb");
        assert_ne!(signed, signature(b"another", 1_767_225_600, br#"{"version":1,"id":"0123456789abcdef"}"#));
    }
}
