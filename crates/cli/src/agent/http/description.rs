//! The description of the API, completed with the answers that all routes share.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::{ContentBuilder, OpenApi, Ref, RefOr, ResponseBuilder};

/// An address with a port; of IPv6 the forms without an IPv4 address in them.
const ADDR: &str = concat!(
    r"^((25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])(\.(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])){3}|",
    r"\[(([0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}|([0-9a-fA-F]{1,4}:){1,6}:[0-9a-fA-F]{1,4}|",
    r"::([0-9a-fA-F]{1,4}:){0,5}[0-9a-fA-F]{1,4})\])",
    r":(6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5][0-9]{4}|[1-9][0-9]{0,3})$",
);

/// The errors that any route may give. A route that gives another one names it itself.
const COMMON: [(&str, &str); 11] = [
    ("400", "The request cannot be read."),
    ("401", "The token is missing or wrong."),
    ("403", "A page of another origin asks."),
    ("404", "The agent does not run the service."),
    ("405", "The route does not have this method."),
    ("408", "The request took too long to come."),
    ("413", "The body is too long."),
    ("415", "The body is not JSON."),
    ("422", "The body is JSON, but its fields are not those of the schema."),
    ("503", "The agent stops, or has too much to do."),
    ("504", "The answer took too long."),
];

/// Adds to every route a name that no other has, and the errors that any of them may give.
pub(super) fn complete(description: &mut OpenApi) {
    let operations =
        description.paths.paths.iter_mut().flat_map(|(path, item)| {
            operations(item).map(move |(method, operation)| (path, method, operation))
        });
    for (path, method, operation) in operations {
        operation.operation_id = Some(name_of(method, path));
        for (code, what) in COMMON {
            let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("ErrorBody"))).build();
            let response = ResponseBuilder::new().description(what).content("application/json", content);
            let responses = &mut operation.responses.responses;
            responses.entry(code.to_owned()).or_insert_with(|| RefOr::T(response.build()));
        }
    }
}

/// Adds the patterns of texts inside of lists and maps, for which the handlers' attributes have no place.
pub(super) fn detailed(description: &OpenApi) -> Value {
    let mut json = serde_json::to_value(description).unwrap_or_default();
    for (schema, key, value) in [
        ("JoinRequest/properties/addrs/items", "pattern", json!(ADDR)),
        ("JoinRequest/properties/addrs", "minItems", json!(1)),
        ("TagsRequest/properties/set/propertyNames", "pattern", json!("^[^=\\x00-\\x1f\\x7f-\\x9f]+$")),
        ("TagsRequest/properties/set/additionalProperties", "pattern", json!("^[^\\x00-\\x1f\\x7f-\\x9f]*$")),
    ] {
        if let Some(schema) = json.pointer_mut(&format!("/components/schemas/{schema}")) {
            schema[key] = value;
        }
    }
    json
}

/// The paths that take a POST.
pub(super) fn posts(description: &OpenApi) -> BTreeSet<String> {
    let paths = description.paths.paths.iter().filter(|(_, item)| item.post.is_some());
    paths.map(|(path, _)| path.clone()).collect()
}

/// `get_mesh_inbox_number` of `GET /v1/mesh/inbox/{number}`.
fn name_of(method: &str, path: &str) -> String {
    let words = path.split(['/', '-']).map(|word| word.trim_matches(['{', '}']));
    let words = words.filter(|word| !word.is_empty() && *word != "v1");
    std::iter::once(method).chain(words).collect::<Vec<_>>().join("_")
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = (&'static str, &mut Operation)> {
    let all = [
        ("get", &mut item.get),
        ("put", &mut item.put),
        ("post", &mut item.post),
        ("delete", &mut item.delete),
    ];
    all.into_iter().filter_map(|(method, operation)| Some((method, operation.as_mut()?)))
}
