//! What the system is set to: `/etc/resolv.conf` and `/etc/hosts`.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::{Duration, SystemTime};

use hickory_resolver::Hosts;
use hickory_resolver::proto::op::Query;
use hickory_resolver::proto::rr::{Name, RecordType};
use hickory_resolver::system_conf::read_system_conf;

use super::meaning::Answer;

const FILES: [&str; 2] = ["/etc/resolv.conf", "/etc/hosts"];

/// Where DNS is spoken (RFC 1035 section 4.2); `resolv.conf` knows no other port.
const DNS_PORT: u16 = 53;

/// How soon a change of `/etc/hosts` is seen.
const HOSTS_HOLD: Duration = Duration::from_secs(10);

/// The system's settings.
#[derive(Debug)]
pub struct System {
    /// Who is asked, in this order.
    pub servers: Vec<SocketAddr>,
    /// Domains in which names are looked for.
    pub search: Vec<Name>,
    /// A name with so many dots is looked for as it is first.
    pub ndots: usize,
    /// Why nobody can be asked.
    pub fault: Option<String>,
    hosts: Hosts,
    stamps: [Option<Stamp>; 2],
}

/// By which a changed file is known.
type Stamp = (SystemTime, u64);

impl System {
    /// Reads both files; where one cannot be read, what is in it is not there.
    pub fn read() -> System {
        let stamps = FILES.map(stamp);
        let hosts = Hosts::from_system().unwrap_or_default();
        let (servers, search, ndots, fault) = match read_system_conf() {
            Ok((config, options)) => {
                let (domain, search, servers) = config.into_parts();
                // `search` has the domain where only that is written.
                let search = if search.is_empty() { domain.into_iter().collect() } else { search };
                let servers = servers.iter().map(|server| SocketAddr::new(server.ip, DNS_PORT)).collect();
                (servers, search, options.ndots, None)
            }
            Err(error) => (Vec::new(), Vec::new(), 1, Some(format!("{}: {error}", FILES[0]))),
        };
        System { servers, search, ndots, fault, hosts, stamps }
    }

    /// Whether one of the files is another one now.
    pub fn has_changed(&self) -> bool {
        FILES.map(stamp) != self.stamps
    }

    /// The addresses that `/etc/hosts` has for a name, both families; `None` where it has none of either.
    pub fn host(&self, name: &str) -> Option<(Answer<IpAddr>, Answer<IpAddr>)> {
        let name = Name::from_utf8(name).ok()?;
        let of = |kind| {
            let found = self.hosts.lookup_static_host(&Query::query(name.clone(), kind));
            let records: BTreeSet<IpAddr> =
                found.iter().flat_map(|lookup| lookup.answers()).filter_map(|record| record.data.ip_addr()).collect();
            match records.is_empty() {
                true => Answer::Nothing("not in /etc/hosts", Some(HOSTS_HOLD)),
                false => Answer::Records(records, HOSTS_HOLD),
            }
        };
        let both = (of(RecordType::A), of(RecordType::AAAA));
        (!matches!(both, (Answer::Nothing(..), Answer::Nothing(..)))).then_some(both)
    }
}

fn stamp(path: &str) -> Option<Stamp> {
    let meta = std::fs::metadata(Path::new(path)).ok()?;
    Some((meta.modified().ok()?, meta.len()))
}
