//! A place of several pools that is asked for its composite, by an edge or by a case.

use super::client::{self, Reply};
use super::origin::Origin;
use super::proxy::{PROBE, Proxy};
use super::script::{Answer, When};
use super::wait::eventually;

/// Where composites are published in these cases.
pub const PLACE: &str = "/.well-known/region-health";

/// A pool of these members with [`PROBE`], a line of a file.
pub fn pool(name: &str, members: &[Origin], keys: &str) -> String {
    let members: Vec<String> = members.iter().map(ToString::to_string).collect();
    format!("  {name}: {{ members: [{}], {PROBE}, {keys} }}\n", members.join(", "))
}

/// Fails its probes from now on.
pub fn break_probe(origin: &Origin) {
    origin.when(When::probe(), Answer::status(503));
}

/// Passes them again.
pub fn mend_probe(origin: &Origin) {
    origin.when(When::probe(), Answer::status(200));
}

/// What is published says this; the answer.
#[track_caller]
pub fn await_published(proxy: &Proxy, state: &str) -> Reply {
    let ask = || client::get(proxy.address(), PLACE);
    eventually(&format!("{PLACE} says {state}"), || ask().field("x-health-state") == Some(state));
    ask()
}
