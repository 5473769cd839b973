//! Errors of the API: a code for programs, a sentence for people, and a hint.

use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// The error answer of a request.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct ApiError {
    #[serde(skip)]
    status: u16,
    /// The code, for programs.
    code: &'static str,
    /// The problem, for people.
    message: String,
    /// The cure.
    hint: String,
}

/// The body of every response that is no success.
#[derive(Serialize, ToSchema)]
pub(crate) struct ErrorBody {
    error: ApiError,
}

impl ApiError {
    /// An error with this status and code.
    pub(crate) fn new(
        status: StatusCode,
        code: &'static str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self { status: status.as_u16(), code, message: message.into(), hint: hint.into() }
    }

    /// Whether it has this code.
    pub(crate) fn is(&self, code: &str) -> bool {
        self.code == code
    }

    /// The problem and its cure, for people.
    pub(crate) fn sentence(&self) -> String {
        format!("{}; {}", self.message, self.hint)
    }

    /// The body of the response.
    pub(crate) fn to_json(&self) -> String {
        serde_json::json!({ "error": self }).to_string()
    }

    /// The node has ended or is about to.
    pub(crate) fn stopping() -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "stopping",
            "the agent is stopping",
            "start it again and retry",
        )
    }

    /// This node is in no ring yet.
    pub(crate) fn not_joined(message: String, hint: &str) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "not_joined", message, hint)
    }

    /// The service was not asked to run here.
    pub(crate) fn no_service(name: &str) -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "no_such_service",
            format!("this agent does not run {name}"),
            format!("start it with {name} in its list of --services (node.services)"),
        )
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, Json(ErrorBody { error: self })).into_response()
    }
}

/// There is nothing at this path.
pub(crate) async fn no_such_route(uri: Uri) -> ApiError {
    let message = format!("there is nothing at {}", uri.path());
    ApiError::new(StatusCode::NOT_FOUND, "no_such_route", message, "GET /v1/openapi.json lists all routes")
}

/// There is something at this path, but not for this method.
pub(crate) async fn wrong_method(uri: Uri) -> ApiError {
    let message = format!("{} is not used with this method", uri.path());
    ApiError::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "wrong_method",
        message,
        "GET /v1/openapi.json lists all routes",
    )
}

/// The timeout of a body: enough for the largest over a slow line.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);

/// A JSON body; one that cannot be read is refused in the form of all errors.
pub(crate) struct JsonBody<T>(pub(crate) T);

impl<S: Send + Sync, T: serde::de::DeserializeOwned> axum::extract::FromRequest<S> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: axum::extract::Request, state: &S) -> Result<Self, ApiError> {
        let read = tokio::time::timeout(BODY_TIMEOUT, Bytes::from_request(request, state));
        match read.await {
            Err(_) => Err(ApiError::new(
                StatusCode::REQUEST_TIMEOUT,
                "body_too_slow",
                "the body did not come in time",
                "send it without pauses, or less of it",
            )),
            Ok(Ok(bytes)) => parse(&bytes).map(Self),
            Ok(Err(rejection)) => {
                let hint = "send less, or raise http.body_bytes_max";
                Err(ApiError::new(rejection.status(), "body_too_large", rejection.body_text(), hint))
            }
        }
    }
}

/// Reads a body. Every body is an object; serde would also take its fields from an array, in their order.
fn parse<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    let bad = |status, text: String| {
        ApiError::new(status, "bad_body", text, "GET /v1/openapi.json describes what this route takes")
    };
    if bytes.trim_ascii_start().first() == Some(&b'[') {
        return Err(bad(StatusCode::UNPROCESSABLE_ENTITY, "the body is an array, not an object".into()));
    }
    match Json::<T>::from_bytes(bytes) {
        Ok(Json(value)) => Ok(value),
        Err(rejection) => {
            let whole = whole_numbers(bytes).and_then(|value| serde_json::from_value(value).ok());
            whole.ok_or_else(|| bad(rejection.status(), rejection.body_text()))
        }
    }
}

/// The same JSON with `5` for `5.0`: JSON Schema counts that among the integers, serde does not.
fn whole_numbers(bytes: &[u8]) -> Option<Value> {
    fn mend(value: &mut Value) {
        match value {
            Value::Number(number) => {
                let whole =
                    number.as_f64().filter(|float| float.fract() == 0.0 && (0.0..WHOLE_MAX).contains(float));
                if let Some(whole) = whole.filter(|_| number.is_f64()) {
                    *value = (whole as u64).into();
                }
            }
            Value::Array(values) => values.iter_mut().for_each(mend),
            Value::Object(fields) => fields.values_mut().for_each(mend),
            _ => {}
        }
    }
    let mut value = serde_json::from_slice(bytes).ok()?;
    mend(&mut value);
    Some(value)
}

/// Below it every whole number is a float.
const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;

/// Reads a number. The description has them as 64-bit integers with a sign, as many clients do.
pub(super) fn number<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let number = u64::deserialize(deserializer)?;
    i64::try_from(number).map_err(|_| serde::de::Error::custom("the number is over 2^63 - 1"))?;
    Ok(number)
}

/// An empty body.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nothing {}

/// The arguments behind the `?` of a path; those that cannot be read are refused in the form of all errors.
pub(crate) struct QueryArgs<T>(pub(crate) T);

impl<S: Send + Sync, T: serde::de::DeserializeOwned> axum::extract::FromRequestParts<S> for QueryArgs<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut axum::http::request::Parts, state: &S) -> Result<Self, ApiError> {
        match axum::extract::Query::<T>::from_request_parts(parts, state).await {
            Ok(axum::extract::Query(value)) => Ok(Self(value)),
            Err(rejection) => {
                let hint = "GET /v1/openapi.json describes what this route takes";
                Err(ApiError::new(rejection.status(), "bad_query", rejection.body_text(), hint))
            }
        }
    }
}

/// The one part of a path that is an argument; one that is no text is refused in the form of all errors.
pub(crate) struct PathArg(pub(crate) String);

impl<S: Send + Sync> axum::extract::FromRequestParts<S> for PathArg {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut axum::http::request::Parts, state: &S) -> Result<Self, ApiError> {
        match axum::extract::Path::<String>::from_request_parts(parts, state).await {
            Ok(axum::extract::Path(value)) => Ok(Self(value)),
            Err(rejection) => {
                let hint = "escape the bytes of a text in UTF-8 with %, such as %C3%BC";
                Err(ApiError::new(rejection.status(), "bad_path", rejection.body_text(), hint))
            }
        }
    }
}
