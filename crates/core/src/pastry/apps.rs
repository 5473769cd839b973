//! The applications that run on a node.

use core::fmt;
use std::sync::Arc;

use super::Application;
use super::message::AppName;

/// The application of a name and what decides for it.
#[derive(Clone)]
pub(super) struct Registered {
    pub(super) name: AppName,
    pub(super) application: Option<Arc<dyn Application>>,
}

impl fmt::Debug for Registered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.name)
    }
}

impl PartialEq for Registered {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}
