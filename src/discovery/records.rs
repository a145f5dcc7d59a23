//! What a server's answer is to us: trouble must never look like a name that does not exist, nor another name's records
//! like this one's.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use hickory_resolver::proto::op::{Message, ResponseCode};
use hickory_resolver::proto::rr::{DNSClass, Name, RData, Record, RecordType};

use super::meaning::Answer;
use super::service::Target;

/// Of a server that does not answer.
pub const LATE: &str = "no answer in time";

/// Aliases that lead to one name at most, as many as others follow.
const ALIASES: usize = 16;

/// What a record is to the one who asked.
pub enum Picked<T> {
    /// One of those wanted.
    Record(T),
    /// It says that there is none, on purpose.
    Nobody,
    /// Of another kind, or of no use.
    Other,
}

/// What an answer says.
#[derive(Debug, PartialEq, Eq)]
pub enum Said<T> {
    /// What was asked for.
    Answer(Answer<T>),
    /// It is an alias, and the server says no more: its end is to be asked for. With the time for which that holds.
    Alias(Name, Duration),
}

/// What `answer` says of the records of `kind` that `name` has. Only records of this name and of those it is an alias of
/// count: whatever else an answer brings is not what was asked for.
///
/// That there are none is believed where the server knows: with the zone's SOA, from the zone's own server, or from one
/// that asks others for us and does not point to them (RFC 2308 section 2.2). One that only says whom else to ask has said
/// nothing.
pub fn said<T: Ord>(answer: &Message, name: &Name, kind: RecordType, pick: fn(&RData) -> Picked<T>) -> Said<T> {
    let code = answer.metadata.response_code;
    if !matches!(code, ResponseCode::NoError | ResponseCode::NXDomain) {
        return trouble(&code.to_string().to_lowercase());
    }
    if answer.metadata.truncation {
        return trouble("its answer is cut off");
    }
    let Some((end, ttl)) = end_of_aliases(answer, name) else { return trouble("its aliases lead nowhere") };
    let found: Vec<&Record> = of(answer, end, kind).collect();
    if !found.is_empty() {
        return Said::Answer(picked(&found, ttl, pick));
    }
    let soa = answer.authorities.iter().find_map(|record| match &record.data {
        // The time for which it holds that there is nothing (RFC 2308 section 5).
        RData::SOA(soa) => Some(Duration::from_secs(record.ttl.min(soa.minimum).into())),
        _ => None,
    });
    if code == ResponseCode::NXDomain {
        return Said::Answer(Answer::Nothing("no such name", soa));
    }
    let is_alias = end != name;
    if !answer.answers.is_empty() && !is_alias {
        return trouble("its answer is about something else");
    }
    if soa.is_some() {
        return Said::Answer(Answer::Nothing("its answer is empty", soa));
    }
    if let (true, Some(ttl)) = (is_alias, ttl) {
        return Said::Alias(end.clone(), ttl);
    }
    let refers = answer.authorities.iter().any(|record| record.record_type() == RecordType::NS);
    match (answer.metadata.authoritative, answer.metadata.recursion_available) {
        (true, _) => Said::Answer(Answer::Nothing("its answer is empty", None)),
        (false, true) if !refers => Said::Answer(Answer::Nothing("its answer is empty", None)),
        _ => trouble("it does not know the name, and only refers to other servers"),
    }
}

fn trouble<T>(why: &str) -> Said<T> {
    Said::Answer(Answer::Trouble(why.to_owned()))
}

/// Where the aliases of `name` end, and for how long that holds; `None` where they go in a circle.
fn end_of_aliases<'a>(answer: &'a Message, name: &'a Name) -> Option<(&'a Name, Option<Duration>)> {
    let (mut end, mut ttl) = (name, None);
    for _ in 0..=ALIASES {
        let alias = of(answer, end, RecordType::CNAME).find_map(|record| match &record.data {
            RData::CNAME(target) => Some((&target.0, Duration::from_secs(record.ttl.into()))),
            _ => None,
        });
        let Some((target, holds)) = alias else { return Some((end, ttl)) };
        ttl = Some(ttl.map_or(holds, |ttl: Duration| ttl.min(holds)));
        end = target;
    }
    None
}

fn of<'a>(answer: &'a Message, owner: &'a Name, kind: RecordType) -> impl Iterator<Item = &'a Record> {
    let records = answer.answers.iter();
    records.filter(move |r| r.record_type() == kind && r.dns_class == DNSClass::IN && r.name == *owner)
}

/// The answer that these records are; `ttl` is that of the aliases before them.
fn picked<T: Ord>(found: &[&Record], ttl: Option<Duration>, pick: fn(&RData) -> Picked<T>) -> Answer<T> {
    let own = found.iter().map(|record| Duration::from_secs(record.ttl.into()));
    let ttl = own.chain(ttl).min().unwrap_or_default();
    let (mut records, mut nobody) = (BTreeSet::new(), false);
    for record in found {
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
    // Nobody can be reached there.
    if srv.port == 0 {
        return Picked::Other;
    }
    Picked::Record(Target { priority: srv.priority, weight: srv.weight, port: srv.port, host })
}

#[cfg(test)]
mod tests {
    use hickory_resolver::proto::op::{MessageType, OpCode};
    use hickory_resolver::proto::rr::rdata::{CNAME, NS, SOA, SRV};

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

    fn picked<T: Ord>(records: &[Record], pick: fn(&RData) -> Picked<T>) -> Answer<T> {
        super::picked(&records.iter().collect::<Vec<_>>(), None, pick)
    }

    #[test]
    fn what_is_no_address_of_anybody_is_none() {
        let answer = |records: &[Record]| match picked(records, address) {
            Answer::Records(found, ttl) => Some((found.len(), ttl.as_secs())),
            _ => None,
        };
        assert_eq!(answer(&[ip(60, "10.0.0.1"), ip(30, "10.0.0.2"), ip(60, "10.0.0.1")]), Some((2, 30)));
        assert_eq!(answer(&[ip(60, "10.0.0.1"), ip(60, "0.0.0.0"), ip(60, "224.0.0.1")]), Some((1, 60)));
        for blocked in ["0.0.0.0", "255.255.255.255", "239.1.2.3"] {
            assert_eq!(answer(&[ip(60, blocked)]), None, "{blocked}");
        }
        assert_eq!(answer(&[]), None);
    }

    #[test]
    fn a_target_is_a_host_or_says_that_there_is_none() {
        let answer = |targets: &[&str]| {
            let srv = |text: &&str| record(5, RData::SRV(SRV::new(1, 2, 80, name(text))));
            match picked(&targets.iter().map(srv).collect::<Vec<_>>(), target) {
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
        let nowhere = RData::SRV(SRV::new(1, 2, 0, name("a.test.")));
        assert!(matches!(target(&nowhere), Picked::Other), "nobody is at port 0");
    }

    /// An answer about `app.` with these records and in the authority section those: `AA`, `RA` or neither.
    fn answer(flags: &str, answers: Vec<Record>, authorities: Vec<Record>) -> Message {
        let mut answer = Message::new(1, MessageType::Response, OpCode::Query);
        answer.metadata.authoritative = flags.contains("AA");
        answer.metadata.recursion_available = flags.contains("RA");
        answer.metadata.truncation = flags.contains("TC");
        answer.answers = answers;
        answer.authorities = authorities;
        answer
    }

    fn shown(answer: &Message) -> String {
        match said(answer, &name("app."), RecordType::A, address) {
            Said::Answer(Answer::Records(found, ttl)) => format!("{found:?} {}", ttl.as_secs()),
            Said::Answer(Answer::Nothing(why, ttl)) => format!("nothing: {why} {:?}", ttl.map(|ttl| ttl.as_secs())),
            Said::Answer(Answer::Trouble(why)) => format!("trouble: {why}"),
            Said::Alias(end, ttl) => format!("alias: {end} {}", ttl.as_secs()),
        }
    }

    fn alias(from: &str, to: &str, ttl: u32) -> Record {
        Record::from_rdata(name(from), ttl, RData::CNAME(CNAME(name(to))))
    }

    fn of_other(owner: &str, text: &str) -> Record {
        Record::from_rdata(name(owner), 60, text.parse::<IpAddr>().expect("an address").into())
    }

    fn soa() -> Record {
        Record::from_rdata(name("."), 60, RData::SOA(SOA::new(name("ns."), name("root."), 1, 2, 3, 4, 30)))
    }

    fn ns() -> Record {
        Record::from_rdata(name("."), 60, RData::NS(NS(name("ns."))))
    }

    #[test]
    fn only_a_server_that_knows_can_say_that_there_is_nothing() {
        const EMPTY: &str = "nothing: its answer is empty None";
        const REFERS: &str = "trouble: it does not know the name, and only refers to other servers";
        for (flags, authorities, expected) in [
            ("AA", vec![], EMPTY),
            ("AA", vec![ns()], EMPTY),
            ("RA", vec![], EMPTY),
            ("RA", vec![soa()], "nothing: its answer is empty Some(30)"),
            ("", vec![soa()], "nothing: its answer is empty Some(30)"),
            ("RA", vec![ns()], REFERS),
            ("", vec![ns()], REFERS),
            ("", vec![], REFERS),
            ("RA TC", vec![], "trouble: its answer is cut off"),
        ] {
            assert_eq!(shown(&answer(flags, vec![], authorities)), expected, "{flags}");
        }
        for (code, expected) in [
            (ResponseCode::NXDomain, "nothing: no such name None"),
            (ResponseCode::ServFail, "trouble: server failure"),
            (ResponseCode::Refused, "trouble: query refused"),
        ] {
            let mut answer = answer("RA", vec![], vec![]);
            answer.metadata.response_code = code;
            assert_eq!(shown(&answer).to_lowercase(), expected.to_lowercase(), "{code}");
        }
    }

    #[test]
    fn only_records_of_the_name_and_its_aliases_count() {
        let rows = [
            (vec![ip(60, "10.0.0.1"), of_other("evil.", "10.6.6.6")], "{10.0.0.1} 60"),
            (vec![of_other("APP.", "10.0.0.1")], "{10.0.0.1} 60"),
            (vec![of_other("evil.", "10.6.6.6")], "trouble: its answer is about something else"),
            (vec![ip(60, "::1")], "trouble: its answer is about something else"),
            (vec![of_other("b.", "10.0.0.1"), alias("app.", "b.", 5)], "{10.0.0.1} 5"),
            (vec![alias("app.", "b.", 90), alias("b.", "c.", 90), of_other("c.", "10.0.0.1")], "{10.0.0.1} 60"),
            (vec![alias("app.", "b.", 90), of_other("evil.", "10.6.6.6")], "alias: b. 90"),
            (vec![alias("app.", "b.", 1), alias("b.", "app.", 1)], "trouble: its aliases lead nowhere"),
            (vec![alias("app.", "app.", 1)], "trouble: its aliases lead nowhere"),
        ];
        for (answers, expected) in rows {
            assert_eq!(shown(&answer("RA", answers, vec![])), expected);
        }
        let dead_end = answer("RA", vec![alias("app.", "b.", 90)], vec![soa()]);
        assert_eq!(shown(&dead_end), "nothing: its answer is empty Some(30)");
    }
}
