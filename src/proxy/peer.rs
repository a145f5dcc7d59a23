//! How Pingora is told to reach a member.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use pingora::upstreams::peer::HttpPeer;

use super::Connector;
use super::dial::{self, Dial};
use super::member_end::Switchable;
use crate::health::Key;
use crate::listener;
use crate::pool::Member;
use crate::snapshot::Served;

/// Which connection an attempt may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connection {
    /// A pooled one, if there is one.
    Any,
    /// A new one: the pooled ones may have gone stale together.
    Fresh,
}

/// What the connection is for.
#[derive(Debug, Clone)]
pub enum Purpose {
    /// A request and its answer.
    Exchange,
    /// A tunnel from this client, if the member agrees: over a stream of ours, which keeps the limits.
    Tunnel(Arc<listener::Connection>),
}

/// Spreads the ids of members over all keys: 2^64 over the golden ratio, odd.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// The peer for `member` of `pool`. `remaining` is what is left of the request's own time.
///
/// `None`: the member has no address, or is of another generation, by whose settings it is to be reached. What is meant for
/// a secure connection is never sent over a plain one.
pub fn peer(
    pool: &Served,
    member: &Arc<Member>,
    remaining: Option<Duration>,
    connection: Connection,
    purpose: Purpose,
) -> Option<Box<HttpPeer>> {
    let (key, address) = (member.key(), member.address()?);
    let upstream = &pool.config.upstream;
    // Pingora's timers do not take less than a millisecond.
    let within = |limit: Duration| Some(remaining.map_or(limit, |left| limit.min(left)).max(Duration::from_millis(1)));
    let dial =
        pool.config.retries.per_try_timeout.map_or(upstream.connect_timeout, |t| t.min(upstream.connect_timeout));
    let mut peer = match (&upstream.tls, key.tls) {
        (None, false) => HttpPeer::new(address, false, String::new()),
        (Some(_), true) => secure(pool, key, address)?,
        (Some(_), false) | (None, true) => return None,
    };
    // Pingora's reuse key leaves much out: a pool, or a generation with other settings, must not share connections.
    // Nor with itself, once its connections cannot be trusted.
    peer.group_key = pool.group_key.wrapping_add(member.connections_left());
    peer.options.connection_timeout = within(dial);
    peer.options.total_connection_timeout = within(dial);
    peer.options.read_timeout = within(upstream.read_timeout);
    peer.options.write_timeout = within(upstream.write_timeout);
    peer.options.idle_timeout = Some(upstream.idle_timeout);
    let (connection, switchable) = match purpose {
        Purpose::Exchange => (connection, None),
        Purpose::Tunnel(client) => {
            let read_timeout = within(upstream.read_timeout).unwrap_or(upstream.read_timeout);
            let write_timeout = within(upstream.write_timeout).unwrap_or(upstream.write_timeout);
            peer.options.read_timeout = None;
            peer.options.write_timeout = None;
            // It will not be a pooled one again.
            (Connection::Fresh, Some(Switchable { connection: client, read_timeout, write_timeout }))
        }
    };
    if member.counts_connections() {
        // Its connections are its own, and none of them is from before they were counted.
        peer.group_key ^= (member.id().0 + 1).wrapping_mul(SPREAD);
        peer.options.custom_l4 = Some(Arc::new(Dial { member: member.clone(), within: dial, switchable }));
        // Before it counts, a dial may have to wait for its place.
        peer.options.total_connection_timeout = within(dial + dial::PATIENCE);
    } else if let Some(switchable) = switchable {
        peer.options.custom_l4 = Some(Arc::new(switchable));
    }
    if connection == Connection::Fresh {
        // Nobody shares this key, so nothing pooled fits; nor will anybody look for the connection again.
        peer.group_key = fastrand::u64(..);
        peer.options.idle_timeout = Some(Duration::ZERO);
    }
    Some(Box::new(peer))
}

fn secure(pool: &Served, key: &Key, address: SocketAddr) -> Option<HttpPeer> {
    let connector: &Connector = pool.connector.as_ref()?.downcast_ref()?;
    let name = match connector.name_of(&key.name) {
        Some(name) => name.to_owned(),
        None => connector.name_for(&pool.discovered_host_of(&key.name)?)?,
    };
    let mut peer = HttpPeer::new(address, true, name);
    connector.equip(&mut peer);
    Some(peer)
}
