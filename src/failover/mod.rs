//! Routes that lead to several pools, alive: which of them serves, for requests to read and for people to be told.
//!
//! A [`Switch`] is one route's choice in one generation. The rules are the heart's (`health::failover`); here they meet the
//! pools as they stand. The [`Switchboard`] is told of every change of a pool at the moment it happens, so a pool that
//! cannot serve is left before its next request, and nothing is polled. Requests read one number and take no lock.
//!
//! Time alone brings a route back to a better pool: whoever keeps time waits for [`Switchboard::next_deadline`].
//!
//! Composites, by which a route may go, are asked for by name; who works them out is told of a pool before this room.
//!
//! Not here: which requests a route is for (`route`), when a pool's member is healthy (`health`), who keeps time (`control`).

mod standby;
mod switch;
mod switchboard;

pub use standby::{Composites, Standby};
pub use switch::{Place, Shown, Switch};
pub use switchboard::Switchboard;
