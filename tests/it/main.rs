//! The real program, run against scriptable and real origins over real sockets: what a user of it would see.
//!
//! One file a subject; a case is named after the behaviour it shows. Not here: what the pure parts do by themselves, which
//! their own tests know in more detail.

mod admin_cases;
mod app_service_rows;
mod application_gateway_rows;
mod auth_cases;
mod balance_cases;
mod cap_cases;
mod cli_cases;
mod composite_cases;
mod composite_rows;
mod diagnostics_cases;
mod drain_cases;
mod event_cases;
mod event_stream_cases;
mod explain_cases;
mod failover_cases;
mod forwarding_cases;
mod framing_cases;
mod front_door_rows;
mod grpc_cases;
mod hangup_cases;
mod harness;
mod harness_cases;
mod hash_cases;
mod health_cases;
mod http2_probe_cases;
mod http_cases;
mod latency_cases;
mod lifecycle_cases;
mod limit_cases;
mod log_cases;
mod log_fault_cases;
mod log_format_cases;
mod metrics_cases;
mod name_cases;
mod pipeline_cases;
mod probe_cases;
mod real_origins;
mod refusal_cases;
mod region_cases;
mod reload_cases;
mod reload_file_cases;
mod reload_report_cases;
mod remediation_cases;
mod retry_cases;
mod reuse_cases;
mod room_cases;
mod rows;
mod share_cases;
mod source_cases;
mod stream_cases;
mod tls_cases;
mod tunnel_cases;
mod upload_cases;
