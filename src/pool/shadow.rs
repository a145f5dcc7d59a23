//! A pool's health as it would be if the rules that are tried were in force: a second heart beside the real one.
//!
//! It is told everything that the real one is told and decides nothing: nobody picks by it, nobody waits for it, and what it
//! says of members' ids is true of the real ones too, since it began as a copy of them or with them and gives ids in the
//! same order. Not here: how what it says is told apart (`telemetry::events`).

use std::sync::Arc;
use std::time::Duration;

use crate::config::Observed;
use crate::health::{Carried, Change, PoolHealth, Spec, State};

/// The second heart of a pool that tries something.
#[derive(Debug)]
pub struct Shadow {
    health: PoolHealth,
    tried: Arc<Observed>,
}

/// What a step would have changed.
#[derive(Debug)]
pub(super) struct Would {
    pub(super) changes: Vec<Change>,
    /// How the pool stood as a whole before the step, where it stands otherwise after it.
    pub(super) state_before: Option<State>,
}

impl Would {
    pub(super) fn is_something(&self) -> bool {
        !self.changes.is_empty() || self.state_before.is_some()
    }
}

impl Shadow {
    /// Of a pool that starts.
    pub(super) fn new(now: Duration, tried: &Arc<Observed>, members: Vec<Spec>) -> Shadow {
        Shadow { health: PoolHealth::new(now, tried.rules.clone(), members), tried: tried.clone() }
    }

    /// Of a pool that lives already: it has seen what the real one has seen.
    pub(super) fn of(health: &PoolHealth, tried: &Arc<Observed>) -> Shadow {
        Shadow { health: health.clone(), tried: tried.clone() }
    }

    /// How everyone would stand.
    pub fn health(&self) -> &PoolHealth {
        &self.health
    }

    /// The rules that are tried, as they are written.
    pub fn keys(&self) -> &[&'static str] {
        &self.tried.keys
    }

    /// At the start: what the process before knew, which the real one is told too.
    pub(super) fn resume(&mut self, now: Duration, carried: Vec<Carried>) {
        self.health.resume(now, carried);
    }

    /// A reload: what is tried is another maybe, and so are the members.
    pub(super) fn reshape(&mut self, now: Duration, tried: &Arc<Observed>, members: Vec<Spec>) -> Would {
        self.tried = tried.clone();
        self.step(|health| health.reshape(now, tried.rules.clone(), members))
    }

    /// The same step as the real one's.
    pub(super) fn step(&mut self, step: impl FnOnce(&mut PoolHealth) -> Vec<Change>) -> Would {
        let before = self.health.picture().state;
        // What is wanted of members is wanted all the same, and told by the real one.
        let mut changes = step(&mut self.health);
        changes.retain(|change| !matches!(change, Change::Admin { .. }));
        Would { changes, state_before: Some(before).filter(|before| *before != self.health.picture().state) }
    }
}
