//! A health-aware layer-7 reverse proxy.
//!
//! The map, in reading order; imports only point down it (docs/architecture.md):
//!
//! - the heart, pure: [`health`] (samples to standings), [`balance`] (who is next), [`route`] (which pool)
//! - meaning: [`config`] (proxy.yaml)
//! - live: [`pool`] (a pool while it runs), [`composite`] (what several add up to), [`snapshot`] (one generation), [`telemetry`] (what it says of itself)
//! - edges: [`listener`] (clients), [`proxy`] (a request's way), [`probe`] (asking members), [`tls`] (what
//!   these two share of TLS), [`disk`] (files that may keep
//!   us waiting), [`watch`] (files that change), [`state_dir`] (files of our own), [`carry`] (what is known of members, from one process to the next), [`discovery`] (names),
//!   [`diagnostics`] (what failing probes saw), [`webhook`] (others who are told), [`remediate`] (who replaces members),
//!   [`alert`] (who is told that something is wrong),
//!   [`control`] (what operators may do), [`admin`] (how they ask), [`reload`] (another configuration),
//!   [`simulate`] (all of this in a time of its own)
//! - assembly: [`server`], [`cli`]
//!
//! [`clock`] is the only reading of a clock.

pub mod admin;
pub mod alert;
pub mod balance;
pub mod carry;
pub mod cli;
pub mod clock;
pub mod composite;
pub mod config;
pub mod control;
pub mod diagnostics;
pub mod discovery;
pub mod disk;
pub mod failover;
pub mod health;
pub mod listener;
pub mod pool;
pub mod probe;
pub mod proxy;
pub mod reload;
pub mod remediate;
pub mod route;
pub mod server;
pub mod simulate;
pub mod snapshot;
pub mod state_dir;
pub mod telemetry;
pub mod tls;
pub mod watch;
pub mod webhook;
