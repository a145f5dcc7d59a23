//! Whose fault it was: the one place that decides retry, evidence and status together.
//!
//! Pingora says where an error surfaced, which is not always where it began: a deadline of our own comes back as a broken
//! client, a forbidden `Connection` nomination as a failed attempt with a member beside it. So the cut that our own stream
//! made is looked at first, and nothing that a client sent can ever count against a member.

use std::io;

use pingora::{Error, ErrorSource, ErrorType};

use super::refusal::Refusal;
use crate::listener::Cut;
use crate::telemetry::AttemptResult;
use crate::tls;

/// Who is to blame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// Left, stalled, or sent what must not be forwarded.
    Client,
    /// Did not answer, or answered wrongly.
    Member,
    /// We ended it: out of resources, out of time, or broken.
    Proxy,
}

/// How far an attempt had come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Nothing was sent: the request cannot have been processed.
    Connect,
    /// Something may have been sent.
    Exchange,
}

/// What went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// Whose fault.
    pub blame: Blame,
    /// How far it had come.
    pub stage: Stage,
    /// The word beside the attempt.
    pub result: AttemptResult,
    /// The answer, if it is still to be given; `None` where nobody is left to read one.
    pub refusal: Option<Refusal>,
}

/// Whether the member has ended the handshake over our certificate, or for want of one. In TLS 1.3 it can say so only when we
/// have begun to speak, and has heard nothing of it (RFC 8446 section 4.4.2.4).
pub fn refuses_certificate(error: &Error) -> bool {
    use rustls::AlertDescription::*;
    let alerts = [
        CertificateRequired,
        BadCertificate,
        UnsupportedCertificate,
        CertificateRevoked,
        CertificateExpired,
        CertificateUnknown,
        UnknownCA,
        AccessDenied,
        HandshakeFailure,
    ];
    let said = root(error).and_then(tls::error_within);
    matches!(said, Some(rustls::Error::AlertReceived(alert)) if alerts.contains(alert))
}

/// Whether a connection ended in the middle of an answer's header. Pingora says how much of one there was in words alone.
pub fn breaks_off_in_a_header(error: &Error) -> bool {
    const WORDS: &str = "while reading response headers, bytes already read: ";
    let mut error = error;
    loop {
        let said = error.context.as_ref().and_then(|context| context.as_str().strip_prefix(WORDS));
        if let Some(bytes) = said {
            return bytes != "0";
        }
        match error.cause.as_deref().and_then(|cause| cause.downcast_ref::<Box<Error>>()) {
            Some(cause) => error = cause,
            None => return false,
        }
    }
}

/// Judges `error` at `stage`; `cut` is what our own stream or timers ended.
pub fn judge(error: &Error, stage: Stage, cut: Cut) -> Fault {
    match cut {
        Cut::Deadline => return fault(Blame::Proxy, stage, AttemptResult::Abandoned, Some(Refusal::Deadline)),
        Cut::WriteTimeout => return fault(Blame::Client, stage, AttemptResult::ClientAborted, None),
        Cut::None
        | Cut::HeaderTimeout
        | Cut::HeaderTooLarge
        | Cut::Malformed
        | Cut::TunnelIdle
        | Cut::TunnelDrained
        | Cut::Left
        | Cut::CalledAway => {}
    }
    match (error.esource(), stage) {
        (ErrorSource::Downstream, _) => client(error.etype(), stage),
        (_, Stage::Connect) => connect(error),
        (ErrorSource::Upstream, Stage::Exchange) => exchange(error),
        // What Pingora cannot make a request of, after all that was checked, is still the client's making; and writing to a
        // client that has gone is not always marked as such.
        (ErrorSource::Internal, Stage::Exchange) if *error.etype() == ErrorType::InvalidHTTPHeader => {
            client(error.etype(), stage)
        }
        (ErrorSource::Unset, Stage::Exchange)
            if matches!(error.etype(), ErrorType::WriteError | ErrorType::ReadError | ErrorType::ConnectionClosed) =>
        {
            client(error.etype(), stage)
        }
        (ErrorSource::Internal | ErrorSource::Unset, Stage::Exchange) => internal(stage),
    }
}

fn client(etype: &ErrorType, stage: Stage) -> Fault {
    match etype {
        ErrorType::ReadError | ErrorType::WriteError | ErrorType::ConnectionClosed | ErrorType::WriteTimedout => {
            fault(Blame::Client, stage, AttemptResult::ClientAborted, None)
        }
        ErrorType::ReadTimedout => fault(Blame::Client, stage, AttemptResult::Abandoned, Some(Refusal::BodyTimeout)),
        _ => fault(Blame::Client, stage, AttemptResult::Abandoned, Some(Refusal::BadRequest)),
    }
}

fn connect(error: &Error) -> Fault {
    use rustix::io::Errno;
    let local = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM, Errno::AGAIN];
    if root(error).and_then(Errno::from_io_error).is_some_and(|errno| local.contains(&errno)) {
        // Descriptors, buffers: the member was never asked.
        return fault(Blame::Proxy, Stage::Connect, AttemptResult::Abandoned, Some(Refusal::Overloaded));
    }
    let (result, refusal) = match error.etype() {
        ErrorType::ConnectTimedout | ErrorType::TLSHandshakeTimedout => {
            (AttemptResult::ConnectTimeout, Refusal::ConnectTimeout)
        }
        ErrorType::TLSHandshakeFailure
        | ErrorType::InvalidCert
        | ErrorType::HandshakeError
        | ErrorType::TLSWantX509Lookup => (AttemptResult::Tls, Refusal::UpstreamTls),
        ErrorType::ConnectRefused | ErrorType::ConnectNoRoute | ErrorType::ConnectError => {
            (AttemptResult::ConnectFailed, Refusal::ConnectFailed)
        }
        // No port left for this address, or a rule of this machine forbids it.
        _ => return fault(Blame::Proxy, Stage::Connect, AttemptResult::Abandoned, Some(Refusal::Overloaded)),
    };
    fault(Blame::Member, Stage::Connect, result, Some(refusal))
}

/// What the system said, under Pingora's layers.
fn root(error: &Error) -> Option<&io::Error> {
    let mut cause: &(dyn std::error::Error + 'static) = error.root_cause();
    loop {
        match cause.downcast_ref() {
            Some(error) => return Some(error),
            None => cause = cause.source()?,
        }
    }
}

fn exchange(error: &Error) -> Fault {
    // The stream of what may become a tunnel has a timeout of its own.
    let timed_out = root(error).is_some_and(|error| error.kind() == io::ErrorKind::TimedOut);
    let (result, refusal) = match error.etype() {
        _ if root(error).and_then(tls::error_within).is_some() => (AttemptResult::Tls, Refusal::UpstreamTls),
        ErrorType::ReadError | ErrorType::WriteError if timed_out => (AttemptResult::Timeout, Refusal::UpstreamTimeout),
        ErrorType::ReadTimedout | ErrorType::WriteTimedout => (AttemptResult::Timeout, Refusal::UpstreamTimeout),
        ErrorType::ConnectionClosed | ErrorType::ReadError | ErrorType::WriteError => {
            (AttemptResult::Reset, Refusal::UpstreamReset)
        }
        _ => (AttemptResult::Protocol, Refusal::UpstreamProtocol),
    };
    fault(Blame::Member, Stage::Exchange, result, Some(refusal))
}

fn internal(stage: Stage) -> Fault {
    fault(Blame::Proxy, stage, AttemptResult::Abandoned, Some(Refusal::Internal))
}

fn fault(blame: Blame, stage: Stage, result: AttemptResult, refusal: Option<Refusal>) -> Fault {
    Fault { blame, stage, result, refusal }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn up(etype: ErrorType) -> Box<Error> {
        Error::new_up(etype)
    }

    #[test]
    fn a_member_that_refuses_our_certificate_late_is_told_from_one_that_resets() {
        let alert = rustls::Error::AlertReceived(rustls::AlertDescription::CertificateRequired);
        let rows = [
            (io::Error::new(io::ErrorKind::InvalidData, alert), AttemptResult::Tls, Refusal::UpstreamTls),
            (io::ErrorKind::ConnectionReset.into(), AttemptResult::Reset, Refusal::UpstreamReset),
        ];
        for (cause, result, refusal) in rows {
            let error = Error::because(ErrorType::ReadError, "reading an answer", cause).into_up();
            assert_eq!(refuses_certificate(&error), result == AttemptResult::Tls);
            let fault = judge(&error, Stage::Exchange, Cut::None);
            assert_eq!((fault.blame, fault.result, fault.refusal), (Blame::Member, result, Some(refusal)));
        }
    }

    #[test]
    fn a_header_that_breaks_off_is_told_from_none() {
        let closed = |words: &str| Error::explain(ErrorType::ConnectionClosed, words.to_owned());
        let rows = [
            ("while reading response headers, bytes already read: 0", false),
            ("while reading response headers, bytes already read: 17", true),
            ("while reading response headers", false),
            ("", false),
        ];
        for (words, expected) in rows {
            assert_eq!(breaks_off_in_a_header(&closed(words)), expected, "{words}");
            assert_eq!(breaks_off_in_a_header(&closed(words).more_context("more").into_up()), expected, "{words}");
            let reset = Error::because(ErrorType::ReadError, words, io::Error::from(io::ErrorKind::ConnectionReset));
            assert_eq!(breaks_off_in_a_header(&reset), expected, "{words}");
        }
    }

    #[test]
    fn each_error_is_laid_where_it_belongs() {
        use AttemptResult as R;
        use Blame::{Client, Member, Proxy};
        use Stage::{Connect, Exchange};
        let rows = [
            (up(ErrorType::ConnectRefused), Connect, Cut::None, Member, R::ConnectFailed, Some(502)),
            (up(ErrorType::ConnectTimedout), Connect, Cut::None, Member, R::ConnectTimeout, Some(504)),
            (up(ErrorType::InvalidCert), Connect, Cut::None, Member, R::Tls, Some(502)),
            (up(ErrorType::InternalError), Connect, Cut::None, Proxy, R::Abandoned, Some(503)),
            (up(ErrorType::BindError), Connect, Cut::None, Proxy, R::Abandoned, Some(503)),
            (up(ErrorType::ReadTimedout), Exchange, Cut::None, Member, R::Timeout, Some(504)),
            (up(ErrorType::ConnectionClosed), Exchange, Cut::None, Member, R::Reset, Some(502)),
            (up(ErrorType::InvalidHTTPHeader), Exchange, Cut::None, Member, R::Protocol, Some(502)),
            (Error::new_down(ErrorType::ConnectionClosed), Exchange, Cut::None, Client, R::ClientAborted, None),
            (Error::new_down(ErrorType::ReadTimedout), Exchange, Cut::None, Client, R::Abandoned, Some(408)),
            (Error::new_down(ErrorType::InvalidHTTPHeader), Exchange, Cut::None, Client, R::Abandoned, Some(400)),
            (Error::new_down(ErrorType::ReadError), Exchange, Cut::Deadline, Proxy, R::Abandoned, Some(504)),
            (Error::new_down(ErrorType::WriteError), Exchange, Cut::WriteTimeout, Client, R::ClientAborted, None),
            (Error::new_in(ErrorType::InternalError), Exchange, Cut::None, Proxy, R::Abandoned, Some(500)),
        ];
        for (error, stage, cut, blame, result, status) in rows {
            let fault = judge(&error, stage, cut);
            let answered = fault.refusal.map(|r| r.status().as_u16());
            assert_eq!((fault.blame, fault.result, answered), (blame, result, status), "{error:?} {stage:?} {cut:?}");
        }
    }
}
