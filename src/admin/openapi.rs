//! The API described in OpenAPI 3.1, made from the handlers and the types they answer with.
//!
//! What holds everywhere is added here: who may ask, the problems that any request may be answered with, and that no field
//! is ever left out of an answer.

use std::sync::LazyLock;

use axum::http::header;
use axum::response::{IntoResponse, Response};
use utoipa::openapi::path::{Operation, Parameter, PathItem};
use utoipa::openapi::response::Response as Answer;
use utoipa::openapi::schema::{Schema, SchemaType, Type};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{self, Content, Ref, RefOr};
use utoipa::{Modify, OpenApi};

use super::{
    alerts, composites, config, diagnostics, events, explain, metrics, pools, probes, problem, reload, remediation,
    routes, status, stream, words,
};

/// The document of the API.
#[derive(OpenApi)]
#[openapi(
    info(title = "pulsegate admin API", description = "The proxy as operators see it."),
    paths(
        status::livez,
        status::readyz,
        metrics::metrics,
        pools::pools,
        pools::pool,
        pools::act,
        composites::composites,
        composites::composite,
        probes::probes,
        routes::routes,
        explain::explain,
        events::events,
        stream::stream,
        diagnostics::diagnostics,
        diagnostics::diagnosis,
        config::config,
        reload::last,
        reload::reload,
        remediation::remediation,
        remediation::replace,
        alerts::alerts,
        document,
    ),
    components(schemas(problem::Problem, pools::Action)),
    modifiers(&Everywhere),
)]
struct Api;

/// This document.
#[utoipa::path(
    get, path = "/api/v1/openapi.json", tag = "status",
    responses((status = 200, description = "OpenAPI 3.1", body = Object)),
)]
pub async fn document() -> Response {
    // It is the same for as long as the process runs.
    static TEXT: LazyLock<String> = LazyLock::new(|| Api::openapi().to_json().unwrap_or_default());
    ([(header::CONTENT_TYPE, "application/json")], TEXT.as_str()).into_response()
}

/// What is true of every endpoint.
struct Everywhere;

impl Modify for Everywhere {
    fn modify(&self, api: &mut openapi::OpenApi) {
        let components = api.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)));
        components.schemas.values_mut().for_each(require_all);
        for (path, item) in &mut api.paths.paths {
            let open = matches!(path.as_str(), "/livez" | "/readyz");
            for (method, operation) in operations(item) {
                operation.parameters.iter_mut().flatten().for_each(written_or_not);
                add(operation, "413", "The body is too large");
                if open {
                    continue;
                }
                if path != "/metrics" {
                    add(operation, "400", "A parameter is unknown");
                }
                add(operation, "401", "The token is missing or wrong");
                add(operation, "421", "Asked for by a name that may be another site's, without the token");
                if method == "post" {
                    add(operation, "403", "Sent by a page of another site");
                }
                let token = SecurityRequirement::new("token", Vec::<String>::new());
                // On a loopback address reading needs no token, and writing only where one is configured.
                operation.security = Some(vec![SecurityRequirement::default(), token]);
            }
        }
    }
}

/// The operations of a path, by the name of their method.
fn operations(item: &mut PathItem) -> impl Iterator<Item = (&'static str, &mut Operation)> {
    [("get", item.get.as_mut()), ("post", item.post.as_mut())].into_iter().filter_map(|(name, o)| Some((name, o?)))
}

fn add(operation: &mut Operation, status: &str, description: &str) {
    let problem = Content::new(Some(RefOr::Ref(Ref::from_schema_name("Problem"))));
    let mut answer = Answer::new(description);
    answer.content.insert("application/problem+json".to_owned(), problem);
    operation.responses.responses.entry(status.to_owned()).or_insert(RefOr::T(answer));
}

/// A parameter that need not be there is not null where it is.
fn written_or_not(parameter: &mut Parameter) {
    if parameter.name == "kind" {
        parameter.schema = Some(words::kind().into());
    } else if let Some(RefOr::T(Schema::Object(object))) = &mut parameter.schema
        && let SchemaType::Array(types) = &mut object.schema_type
    {
        types.retain(|kind| *kind != Type::Null);
        if let [only] = types.as_slice() {
            object.schema_type = SchemaType::Type(only.clone());
        }
    }
}

/// A field that has no value is null, and there all the same.
fn require_all(schema: &mut RefOr<Schema>) {
    if let RefOr::T(Schema::Object(object)) = schema {
        object.required = object.properties.keys().cloned().collect();
    }
}

#[cfg(test)]
mod page;
#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_document_has_every_endpoint_and_no_other() {
        let mut api = Api::openapi();
        let documented: BTreeSet<String> = api
            .paths
            .paths
            .iter_mut()
            .flat_map(|(path, item)| {
                let methods: Vec<_> = operations(item).map(|(method, _)| format!("{method} {path}")).collect();
                methods
            })
            .collect();
        let of = |method: &'static str, endpoints: Vec<super::super::Endpoint>| {
            endpoints.into_iter().map(move |(path, _)| format!("{method} {path}"))
        };
        let served: BTreeSet<String> =
            of("get", super::super::reading()).chain(of("post", super::super::writing())).collect();
        assert_eq!(documented, served, "each handler needs `#[utoipa::path]`, and its place in `Api`");
    }

    #[test]
    fn the_document_is_whole() {
        let api = serde_json::to_value(Api::openapi()).expect("json");
        assert_eq!(api["openapi"], "3.1.0");
        let text = api.to_string();
        let schemas = api["components"]["schemas"].as_object().expect("schemas");
        for named in text.split("#/components/schemas/").skip(1).filter_map(|rest| rest.split('"').next()) {
            assert!(schemas.contains_key(named), "{named}");
        }
        let member = &schemas["MemberView"];
        assert_eq!(member["required"].as_array().map(Vec::len), member["properties"].as_object().map(|p| p.len()));
    }
}
