//! Events of the demo itself, in the form of every event.

use serde::Serialize;
use serde_json::Value;

/// An event of the demo. Nodes are named by their ring ids.
#[derive(Clone, Debug, Serialize)]
pub(super) struct DemoEvent {
    protocol: &'static str,
    #[serde(flatten)]
    what: What,
}

impl From<What> for DemoEvent {
    fn from(what: What) -> Self {
        Self { protocol: "demo", what }
    }
}

/// An act of the demo or of its load.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum What {
    /// All nodes know each other and route messages.
    Ready { took_ms: u64 },
    /// A node was ended as by a crash.
    Killed { id: String },
    /// A node was started again.
    Revived { id: String },
    /// A node is not polled any more.
    Suspended { id: String },
    /// A node was resumed.
    Resumed { id: String },
    /// The nodes of one side reach none of the other.
    Cut { side: Vec<String> },
    /// All nodes reach each other again.
    Healed,
    /// A message was delivered to the owner of its key. `home` is the node that owns the key if all nodes are up.
    MessageRouted {
        from: String,
        key: String,
        text: String,
        message: String,
        home: String,
        path: Vec<String>,
        ms: f64,
    },
    /// A message was not delivered.
    MessageFailed { from: String, text: String, why: String },
    /// A node has its turn.
    TurnBegan { id: String, fence: u64 },
    /// Its turn is over.
    TurnEnded { id: String, fence: u64 },
    /// Mail is safe on the disk of its sender.
    MailSent { from: String, to: String, text: String, answer: Value },
}
