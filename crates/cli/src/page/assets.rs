//! The files of the page, embedded in the program, with the headers that keep everything else out.

use axum::Router;
use axum::http::{HeaderName, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

/// A file of the page.
struct Asset {
    path: &'static str,
    kind: &'static str,
    text: &'static str,
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

macro_rules! asset {
    ($file:literal, $kind:expr) => {
        Asset { path: concat!("/page/", $file), kind: $kind, text: include_str!(concat!("assets/", $file)) }
    };
}

const INDEX: Asset = Asset { path: "/", kind: HTML, text: include_str!("assets/index.html") };

const ASSETS: &[Asset] = &[
    INDEX,
    asset!("page.css", CSS),
    asset!("icon.svg", SVG),
    asset!("main.js", JS),
    asset!("feed.js", JS),
    asset!("model.js", JS),
    asset!("dom.js", JS),
    asset!("ring.js", JS),
    asset!("motion.js", JS),
    asset!("inspector.js", JS),
    asset!("services.js", JS),
    asset!("happened.js", JS),
    asset!("fault.js", JS),
    asset!("graph.js", JS),
    asset!("charts.js", JS),
    asset!("log.js", JS),
    asset!("controls.js", JS),
    asset!("story.js", JS),
    asset!("replay.js", JS),
];

/// Nothing but our own files, no inline code, no frame around us, no form that goes elsewhere.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The routes of all files.
pub(crate) fn assets() -> Router {
    ASSETS.iter().fold(Router::new(), |router, asset| router.route(asset.path, get(async || respond(asset))))
}

/// Whether a path is a file of the page: those have no data of the node.
pub(crate) fn is_asset(path: &str) -> bool {
    ASSETS.iter().any(|asset| asset.path == path)
}

fn respond(asset: &'static Asset) -> Response {
    let headers = [
        (header::CONTENT_TYPE, asset.kind),
        (header::CACHE_CONTROL, "no-cache"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ];
    (headers, asset.text).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_that_a_file_names_is_embedded() {
        for asset in ASSETS {
            for part in asset
                .text
                .split(['"', '\''])
                .filter(|part| part.starts_with("./") || part.starts_with("/page/"))
            {
                let path = part.replacen("./", "/page/", 1);
                assert!(is_asset(&path), "{} names {part}", asset.path);
            }
        }
    }

    #[test]
    fn no_file_has_inline_code_or_makes_html_of_text() {
        for asset in ASSETS {
            for word in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "style=\"",
                "onclick=",
            ] {
                assert!(!asset.text.contains(word), "{} has {word}", asset.path);
            }
        }
        let scripts = INDEX.text.matches("<script").count();
        assert_eq!(scripts, INDEX.text.matches("<script type=\"module\" src=\"/page/").count());
    }
}
