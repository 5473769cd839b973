//! The page: a group of nodes and its events, drawn in a browser.
//!
//! An agent shows the view of its node; the demo shows all of its nodes. Both are a [`View`]: sections of JSON that
//! are sampled while a client watches, and a journal of events. The page starts from one snapshot and goes on by
//! server-sent events.

mod agent_view;
mod assets;
mod feed;
mod look;
mod render;
mod routes;

#[cfg(test)]
mod contrast_tests;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;

use serde_json::Value;

use crate::agent::Journal;

pub(crate) use agent_view::AgentView;
pub(crate) use assets::{assets, is_asset};
pub(crate) use feed::Page;
pub(crate) use look::Look;
pub(crate) use render::{detail, edges_of, id_of, mail_of, peers_of};
pub(crate) use routes::routes;

/// A boxed future, so that a view can be behind a pointer.
pub(crate) type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The state of everything that is shown, section by section: a section is sent again only if it has changed.
pub(crate) type Sections = BTreeMap<&'static str, Value>;

/// The content of a page.
pub(crate) trait View: Send + Sync + 'static {
    /// All sections as they are now.
    fn sections(&self) -> Boxed<'_, Sections>;

    /// Tables, token and mailboxes of one node, by its name or its id. Null if it does not answer now, `None` if this
    /// view has no access to it.
    fn node<'a>(&'a self, name: &'a str) -> Boxed<'a, Option<Value>>;

    /// The journal with this view's events; `None` once the node is gone.
    fn journal(&self) -> Option<std::sync::Arc<Journal>>;
}
