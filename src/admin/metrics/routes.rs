//! The families of routes with several pools.

use std::sync::Arc;

use super::count;
use crate::failover::{Switch, Switchboard};
use crate::health::failover::{Ability, Cause};
use crate::snapshot::Snapshot;
use crate::telemetry::metrics::{self, Page};

/// Which of their pools serve, and which could.
pub fn failovers(page: &mut Page, snapshot: &Snapshot, switchboard: &Switchboard) {
    let switches: Vec<Arc<Switch>> = snapshot.switches();
    page.family(&metrics::ROUTE_RANK, |series| {
        switches.iter().for_each(|switch| series.add(&[switch.route()], switch.rank() as f64));
    });
    page.family(&metrics::ROUTE_ABLE_POOLS, |series| {
        for switch in &switches {
            let able = switch
                .shown(switchboard.composites())
                .pools
                .iter()
                .filter(|(ability, ..)| *ability == Ability::Able)
                .count();
            series.add(&[switch.route()], able as f64);
        }
    });
    page.family(&metrics::ROUTE_FAILOVERS, |series| {
        for switch in &switches {
            Cause::ALL.into_iter().for_each(|cause| {
                series.add(&[switch.route(), cause.as_str()], count(switch.moves(cause)));
            });
        }
    });
}
