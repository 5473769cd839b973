//! Errors of the API: a code for programs, a sentence for people, and what to do.

use std::time::Duration;

use axum::Json;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

/// Why a request was not fulfilled.
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

    /// As it stands in the body of a response.
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

/// How long a body may take: enough for the largest over a slow line.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);

/// A JSON body; one that cannot be read is refused in the form of all errors.
pub(crate) struct JsonBody<T>(pub(crate) T);

impl<S: Send + Sync, T: serde::de::DeserializeOwned> axum::extract::FromRequest<S> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: axum::extract::Request, state: &S) -> Result<Self, ApiError> {
        use axum::extract::rejection::JsonRejection;
        let read = tokio::time::timeout(BODY_TIMEOUT, Json::<T>::from_request(request, state));
        match read.await {
            Err(_) => Err(ApiError::new(
                StatusCode::REQUEST_TIMEOUT,
                "body_too_slow",
                "the body did not come in time",
                "send it without pauses, or less of it",
            )),
            Ok(Ok(Json(value))) => Ok(Self(value)),
            Ok(Err(rejection)) => {
                let (code, hint) = match &rejection {
                    JsonRejection::BytesRejection(_) => {
                        ("body_too_large", "send less, or raise http.body_bytes_max")
                    }
                    _ => ("bad_body", "GET /v1/openapi.json describes what this route takes"),
                };
                Err(ApiError::new(rejection.status(), code, rejection.body_text(), hint))
            }
        }
    }
}

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
