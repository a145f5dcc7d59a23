//! The closed lists of words, for the document of the API.

use utoipa::openapi::schema::{ObjectBuilder, SchemaType, Type};

use crate::health::failover::Ability;
use crate::health::{Admin, Mode, Standing, State, Verdict};
use crate::telemetry::Kind;

/// What an event is about.
pub fn kind() -> ObjectBuilder {
    one_of(Kind::ALL.map(Kind::as_str))
}

/// How loud an event is.
pub fn level() -> ObjectBuilder {
    one_of(["info", "warn", "error"])
}

/// How a pool serves.
pub fn mode() -> ObjectBuilder {
    one_of(Mode::ALL.map(Mode::as_str))
}

/// The same, where it may be absent.
pub fn mode_or_null() -> ObjectBuilder {
    one_of_or_null(Mode::ALL.map(Mode::as_str))
}

/// How a pool stands as a whole.
pub fn state() -> ObjectBuilder {
    one_of(State::ALL.map(State::as_str))
}

/// How a member stands.
pub fn standing() -> ObjectBuilder {
    one_of(Standing::ALL.map(Standing::as_str))
}

/// The same, where it may be absent.
pub fn standing_or_null() -> ObjectBuilder {
    one_of_or_null(Standing::ALL.map(Standing::as_str))
}

/// How often a probe is made.
pub fn pace() -> ObjectBuilder {
    one_of(["steady", "fast", "idle"])
}

/// What a probe speaks.
pub fn probe_kind() -> ObjectBuilder {
    one_of(["tcp", "http", "grpc"])
}

/// What a judge says of a member.
pub fn verdict() -> ObjectBuilder {
    one_of(Verdict::ALL.map(Verdict::as_str))
}

/// What an operator wants of a member.
pub fn admin() -> ObjectBuilder {
    one_of(Admin::ALL.map(Admin::as_str))
}

/// Whether a pool of a route can serve.
pub fn ability() -> ObjectBuilder {
    one_of([Ability::Able, Ability::Unknown, Ability::Unable].map(Ability::as_str))
}

/// What a probe taught.
pub fn result() -> ObjectBuilder {
    one_of(["pass", "fail", "inconclusive"])
}

fn one_of<const N: usize>(words: [&'static str; N]) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String).enum_values(Some(words))
}

fn one_of_or_null<const N: usize>(words: [&'static str; N]) -> ObjectBuilder {
    let words = words.into_iter().map(Some).chain([None]);
    ObjectBuilder::new().schema_type(SchemaType::from_iter([Type::String, Type::Null])).enum_values(Some(words))
}
