//! The applications that run on a node.

use core::fmt;
use std::sync::Arc;

use crate::common::caught;
use crate::id::Id;
use crate::pastry::message::{AppName, Body, Envelope};
use crate::pastry::{Application, Forward, ForwardError, Passing, Verdict};

/// The application of a name: code inside the machine, a server outside, or both.
#[derive(Clone)]
struct Registered {
    name: AppName,
    application: Option<Arc<dyn Application>>,
    /// Whether a server outside settles its messages.
    is_served: bool,
}

impl fmt::Debug for Registered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.name)
    }
}

impl PartialEq for Registered {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.is_served == other.is_served
    }
}

/// All applications.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Applications {
    list: Vec<Registered>,
}

/// The decision of an application about a message on its path; new content is in the envelope already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Consulted {
    Unchanged,
    Changed { next: Option<Id> },
    Stopped,
}

impl Applications {
    /// Registers a server outside. Returns false if there is one already.
    pub(super) fn register(&mut self, name: AppName) -> bool {
        match self.list.iter_mut().find(|app| app.name == name) {
            Some(app) => !core::mem::replace(&mut app.is_served, true),
            None => {
                self.list.push(Registered { name, application: None, is_served: true });
                true
            }
        }
    }

    pub(super) fn register_with(&mut self, name: AppName, application: Arc<dyn Application>) {
        let is_served = self.is_served(&name);
        self.list.retain(|app| app.name != name);
        self.list.push(Registered { name, application: Some(application), is_served });
    }

    /// Removes the server outside. Code inside the machine stays, and is still called.
    pub(super) fn unregister(&mut self, name: &AppName) {
        for app in self.list.iter_mut().filter(|app| app.name == *name) {
            app.is_served = false;
        }
        self.list.retain(|app| app.is_served || app.application.is_some());
    }

    /// Whether there is an application of this name, inside the machine or outside.
    pub(super) fn contains(&self, name: &AppName) -> bool {
        self.list.iter().any(|app| app.name == *name)
    }

    /// Whether a server outside settles the messages of an application.
    pub(super) fn is_served(&self, name: &AppName) -> bool {
        self.list.iter().any(|app| app.name == *name && app.is_served)
    }

    /// Calls the application for a message on its path (N-8). `is_possible` says whether a node can be the next hop.
    pub(super) fn consult(
        &self,
        envelope: &mut Envelope,
        next: Option<Id>,
        payload_bytes_max: usize,
        is_possible: impl Fn(Id) -> bool,
    ) -> Consulted {
        let Some(application) = self.of(envelope) else { return Consulted::Unchanged };
        let Some(passing) = passing(envelope, next) else { return Consulted::Unchanged };
        // An application that panics stops the message.
        let (payload, next) = match caught(|| application.forward(&passing)).unwrap_or(Forward::Stop) {
            Forward::Continue => return Consulted::Unchanged,
            Forward::Stop => return Consulted::Stopped,
            Forward::Change { payload, next } => (payload, next),
        };
        let error = match (&payload, next) {
            (Some(payload), _) if payload.len() > payload_bytes_max => {
                Some(ForwardError::TooLong(payload.len()))
            }
            (_, Some(next)) if !is_possible(next) => Some(ForwardError::UnknownNode(next)),
            _ => None,
        };
        if let Some(error) = error {
            let _ = caught(|| application.forward_failed(&passing, error));
            return Consulted::Unchanged;
        }
        if let (Some(content), Body::App { payload, .. }) = (payload, &mut envelope.body) {
            *payload = content.into();
        }
        Consulted::Changed { next }
    }

    /// Delivers a message to the application. Returns its verdict, if it has one at once. An application that panics
    /// refuses the message.
    pub(super) fn deliver(&self, envelope: &Envelope) -> Option<Verdict> {
        let (application, passing) = (self.of(envelope)?, passing(envelope, None)?);
        caught(|| application.deliver(&passing))
            .unwrap_or_else(|| Some(Verdict::Refuse("the application panicked".into())))
    }

    fn of(&self, envelope: &Envelope) -> Option<&Arc<dyn Application>> {
        let Body::App { app, .. } = &envelope.body else { return None };
        self.list.iter().find(|at| at.name == *app)?.application.as_ref()
    }
}

fn passing(envelope: &Envelope, next: Option<Id>) -> Option<Passing<'_>> {
    let &Envelope { id, attempt, key, origin, hops, .. } = envelope;
    let Body::App { app, wants_answer, payload } = &envelope.body else { return None };
    Some(Passing { id, attempt, app, key, origin, payload, hops, wants_answer: *wants_answer, next })
}
