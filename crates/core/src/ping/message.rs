//! The messages and their meaning.

use serde::Serialize;

/// A message on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(tag = "message", rename_all = "snake_case")]
pub enum Message {
    /// Tests whether the receiver is alive. The receiver answers with a [`Message::Pong`] of the same number, in every
    /// state.
    Ping {
        /// The sender's number for it, never used twice by one process.
        sequence: u64,
    },
    /// The answer. It counts only at the node that sent the ping of that number to this address and still awaits it.
    Pong {
        /// The number of the ping.
        sequence: u64,
    },
}
