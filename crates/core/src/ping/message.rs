//! What the messages mean.

use serde::Serialize;

/// What goes on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(tag = "message", rename_all = "snake_case")]
pub enum Message {
    /// Are you there? Whoever gets it answers with a [`Message::Pong`] of the same number, in every state.
    Ping {
        /// The sender's number for it, never used twice in the sender's life.
        sequence: u64,
    },
    /// I am. It means something only to who sent the ping of that number to this very address and still waits.
    Pong {
        /// The number of the ping.
        sequence: u64,
    },
}
