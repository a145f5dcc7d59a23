//! What the resolver's records and errors are to us: trouble must never look like a name that does not exist.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::{RData, Record, RecordType};

use super::meaning::Answer;
use super::service::Target;

/// Of a server that does not answer.
pub const LATE: &str = "no answer in time";

/// What a record is to the one who asked.
pub enum Picked<T> {
    /// One of those wanted.
    Record(T),
    /// It says that there is none, on purpose.
    Nobody,
    /// Of another kind, or of no use.
    Other,
}

/// The answer that records of one kind are.
pub fn picked<T: Ord>(answers: &[Record], kind: RecordType, pick: fn(&RData) -> Picked<T>) -> Answer<T> {
    let ttl = Duration::from_secs(answers.iter().map(|record| record.ttl).min().unwrap_or_default().into());
    let (mut records, mut nobody) = (BTreeSet::new(), false);
    for record in answers.iter().filter(|record| record.record_type() == kind) {
        match pick(&record.data) {
            Picked::Record(found) => drop(records.insert(found)),
            Picked::Nobody => nobody = true,
            Picked::Other => {}
        }
    }
    if records.is_empty() && !nobody {
        return Answer::Nothing("its answer has nothing that could be used", Some(ttl));
    }
    Answer::Records(records, ttl)
}

/// An address that somebody may have.
pub fn address(data: &RData) -> Picked<IpAddr> {
    let ip: IpAddr = match data {
        RData::A(a) => a.0.into(),
        RData::AAAA(aaaa) => aaaa.0.into(),
        _ => return Picked::Other,
    };
    // Blockers answer with 0.0.0.0, which would be this very machine.
    let is_nobody = ip.is_unspecified() || ip.is_multicast() || ip == IpAddr::from([255; 4]);
    if is_nobody { Picked::Other } else { Picked::Record(ip) }
}

/// A target, or the word that there is none.
pub fn target(data: &RData) -> Picked<Target> {
    let RData::SRV(srv) = data else { return Picked::Other };
    if srv.target.is_root() {
        return Picked::Nobody;
    }
    let host = srv.target.to_ascii().trim_end_matches('.').to_ascii_lowercase();
    // It stands in the Host field and in logs.
    if !host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.')) {
        return Picked::Other;
    }
    Picked::Record(Target { priority: srv.priority, weight: srv.weight, port: srv.port, host })
}

/// Only a server that answered for this name can say that there is nothing.
pub fn meant<T>(error: &NetError) -> Answer<T> {
    match error {
        NetError::Dns(DnsError::NoRecordsFound(none)) => {
            let ttl = none.negative_ttl.map(|seconds| Duration::from_secs(seconds.into()));
            match none.response_code {
                ResponseCode::NXDomain => Answer::Nothing("no such name", ttl),
                ResponseCode::NoError => Answer::Nothing("its answer is empty", ttl),
                code => Answer::Trouble(code.to_string().to_lowercase()),
            }
        }
        NetError::Dns(DnsError::ResponseCode(code)) => Answer::Trouble(code.to_string().to_lowercase()),
        NetError::Timeout => Answer::Trouble(LATE.to_owned()),
        error => Answer::Trouble(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use hickory_resolver::net::NoRecords;
    use hickory_resolver::proto::op::Query;
    use hickory_resolver::proto::rr::Name;
    use hickory_resolver::proto::rr::rdata::SRV;

    use super::*;

    fn name(text: &str) -> Name {
        Name::from_ascii(text).expect("a name")
    }

    fn record(ttl: u32, data: RData) -> Record {
        Record::from_rdata(name("app."), ttl, data)
    }

    fn ip(ttl: u32, text: &str) -> Record {
        record(ttl, text.parse::<IpAddr>().expect("an address").into())
    }

    #[test]
    fn what_is_no_address_of_anybody_is_none() {
        let answer = |records: &[Record]| match picked(records, RecordType::A, address) {
            Answer::Records(found, ttl) => Some((found.len(), ttl.as_secs())),
            _ => None,
        };
        assert_eq!(answer(&[ip(60, "10.0.0.1"), ip(30, "10.0.0.2"), ip(60, "10.0.0.1")]), Some((2, 30)));
        assert_eq!(answer(&[ip(60, "10.0.0.1"), ip(60, "0.0.0.0"), ip(60, "224.0.0.1"), ip(60, "::1")]), Some((1, 60)));
        for blocked in ["0.0.0.0", "255.255.255.255", "239.1.2.3"] {
            assert_eq!(answer(&[ip(60, blocked)]), None, "{blocked}");
        }
        assert_eq!(answer(&[]), None);
    }

    #[test]
    fn a_target_is_a_host_or_says_that_there_is_none() {
        let answer = |targets: &[&str]| {
            let srv = |text: &&str| record(5, RData::SRV(SRV::new(1, 2, 80, name(text))));
            match picked(&targets.iter().map(srv).collect::<Vec<_>>(), RecordType::SRV, target) {
                Answer::Records(found, _) => Some(found.into_iter().map(|t| t.host).collect::<Vec<_>>().join(" ")),
                _ => None,
            }
        };
        assert_eq!(answer(&["A.Test.", "b.test."]).as_deref(), Some("a.test b.test"));
        assert_eq!(answer(&["."]).as_deref(), Some(""));
        let spaced = Name::from_labels([&b"a b"[..], b"test"]).expect("a name");
        let spaced = RData::SRV(SRV::new(1, 2, 80, spaced));
        assert!(matches!(target(&spaced), Picked::Other), "it would stand in a header");
        assert_eq!(answer(&[]), None);
    }

    #[test]
    fn only_a_server_that_answers_can_say_that_there_is_nothing() {
        let none = |code| NetError::from(NoRecords::new(Query::query(name("app."), RecordType::A), code));
        for (error, is_nothing) in [
            (none(ResponseCode::NXDomain), true),
            (none(ResponseCode::NoError), true),
            (none(ResponseCode::ServFail), false),
            (NetError::Dns(DnsError::ResponseCode(ResponseCode::ServFail)), false),
            (NetError::Dns(DnsError::ResponseCode(ResponseCode::Refused)), false),
            (NetError::Timeout, false),
            (NetError::Truncated, false),
            (NetError::NoConnections, false),
        ] {
            assert_eq!(matches!(meant::<IpAddr>(&error), Answer::Nothing(..)), is_nothing, "{error}");
        }
    }
}
