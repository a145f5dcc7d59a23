//! What the cases are written with: scriptable origins, the real program, a raw client, a load, and waiting for conditions.
//!
//! Everything is threads and blocking sockets, so that a case reads from top to bottom and nothing of the program under
//! test is needed to test it. Not here: any case.

pub mod client;
pub mod dns;
pub mod dnsmasq;
pub mod grpc;
pub mod load;
pub mod nginx;
pub mod on_paper;
pub mod origin;
pub mod process;
pub mod proxy;
mod reading;
pub mod region;
pub mod scrape;
pub mod script;
pub mod switcher;
pub mod tls;
pub mod wait;
pub mod websocket;

pub use client::Connection;
pub use load::Load;
pub use origin::Origin;
pub use process::Line;
pub use proxy::Proxy;
pub use scrape::Scrape;
pub use script::{Answer, Gate, Step, When};
pub use switcher::Switcher;
pub use wait::{eventually, eventually_some};
pub use websocket::{Echo, WebSocket};
