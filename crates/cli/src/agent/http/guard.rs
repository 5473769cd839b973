//! Checks before every route: the token, the host, and the origin of a request.
//!
//! On loopback every local user may use the API, but a web page in a browser of this machine may not. It could otherwise
//! change a node by a form, or read it through a name that resolves to loopback. Beyond loopback a token is required; the
//! agent refuses to start without one.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use super::error::ApiError;
use crate::page;

/// The token that every request must carry, if there is one.
#[derive(Clone, Debug)]
pub(crate) struct Guard {
    token: Option<Arc<str>>,
    /// The paths that take a POST; all, if they are not known.
    posts: Option<Arc<BTreeSet<String>>>,
}

impl Guard {
    pub(crate) fn new(token: Option<&str>) -> Self {
        Self { token: token.map(Arc::from), posts: None }
    }

    /// Leaves a POST to any other path to the routes, which say that they take none.
    pub(crate) fn with_posts(mut self, posts: BTreeSet<String>) -> Self {
        self.posts = Some(Arc::new(posts));
        self
    }
}

/// Passes a request on, or answers an error.
pub(crate) async fn check(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    match admit(&guard, &request) {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

fn admit(guard: &Guard, request: &Request) -> Result<(), ApiError> {
    let headers = request.headers();
    match &guard.token {
        // The page itself has no data of the node; it asks for the token.
        Some(_) if request.method() == Method::GET && page::is_asset(request.uri().path()) => {}
        Some(token) => check_token(headers, token)?,
        None => check_host(request)?,
    }
    check_origin(headers)?;
    if request.method() != Method::GET && request.method() != Method::HEAD {
        check_same_site(headers)?;
    }
    // A page of another site can send no other method that changes something without asking first.
    let path = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    let takes_post = guard.posts.as_ref().is_none_or(|posts| path.is_some_and(|path| posts.contains(path)));
    if request.method() == Method::POST && takes_post {
        check_content_type(headers)?;
    }
    Ok(())
}

fn check_token(headers: &HeaderMap, token: &str) -> Result<(), ApiError> {
    let given = text(headers, header::AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer "));
    if given.is_some_and(|given| same(given.as_bytes(), token.as_bytes())) {
        return Ok(());
    }
    Err(ApiError::new(
        StatusCode::UNAUTHORIZED,
        "unauthorized",
        "this agent wants a token",
        "send `Authorization: Bearer TOKEN`, or set ANNULUS_TOKEN for the command line",
    ))
}

/// Without a token, a request must name the agent by its address: a name could be one that an attacker has pointed
/// at loopback.
fn check_host(request: &Request) -> Result<(), ApiError> {
    let named = request.headers().get_all(header::HOST).iter().map(|host| host.to_str().unwrap_or_default());
    let mut named = named.chain(request.uri().authority().map(axum::http::uri::Authority::as_str)).peekable();
    let wrong = if named.peek().is_none() { Some("") } else { named.find(|host| !is_loopback(host)) };
    let Some(host) = wrong else { return Ok(()) };
    Err(ApiError::new(
        StatusCode::FORBIDDEN,
        "wrong_host",
        format!("{host:?} is not a name of this agent"),
        "ask it by its IP address or as localhost",
    ))
}

/// Whether a host, with or without a port, is this machine whatever a name server says.
fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
}

/// A browser names the site of origin in every request that changes something.
fn check_same_site(headers: &HeaderMap) -> Result<(), ApiError> {
    let cross_site =
        text(headers, "sec-fetch-site").is_some_and(|site| site != "same-origin" && site != "none");
    if cross_site { Err(foreign_page()) } else { Ok(()) }
}

/// A page of another origin names it; a link that a person follows does not.
fn check_origin(headers: &HeaderMap) -> Result<(), ApiError> {
    let host = text(headers, header::HOST).unwrap_or_default();
    let foreign =
        text(headers, header::ORIGIN).is_some_and(|origin| origin.split("://").nth(1) != Some(host));
    if foreign { Err(foreign_page()) } else { Ok(()) }
}

fn foreign_page() -> ApiError {
    ApiError::new(
        StatusCode::FORBIDDEN,
        "cross_site",
        "another site's page may not use this node",
        "send the request from the agent's own page, or from a program",
    )
}

/// A page of another site can send forms and plain text without asking, but neither JSON nor a PUT of bytes.
fn check_content_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let kind = text(headers, header::CONTENT_TYPE).unwrap_or_default();
    if kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json")) {
        return Ok(());
    }
    Err(ApiError::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "wrong_content_type",
        "this route takes JSON",
        "send `Content-Type: application/json`",
    ))
}

fn text(headers: &HeaderMap, name: impl header::AsHeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

/// Compares in a time that depends on nothing but the lengths.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
}
