//! Two tokens in one ring, noticed by a node that sees both.
//!
//! Tokens that go round at the same pace never meet, and a random drop would end one only after hundreds of loops. A node
//! that had token A, then B, then A again knows that both are under way: an id that was merged into another never comes
//! back. So it keeps the one with the greater id for about one loop. The other arrives here, and the two become one. Nothing
//! of this is on the wire: a tenure takes longer.

use core::time::Duration;

use super::super::message::TokenId;
use crate::time::Instant;

/// What a node remembers of its last two tenures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DuplicateTokens {
    last: Option<(TokenId, Instant)>,
    before: Option<(TokenId, Instant)>,
}

impl DuplicateTokens {
    /// A token came; how long to wait for a second one, if the ring has it: a loop and a quarter, but at most `renew`.
    pub(super) fn came(&mut self, token: TokenId, now: Instant, renew: Duration) -> Option<Duration> {
        let (last, before) = (self.last, self.before);
        self.before = last;
        self.last = Some((token, now));
        let (other, _) = last?;
        let (same, at) = before?;
        let loop_time = now.since(at);
        // Only the greater one is kept: if both were, each would wait for the other.
        let both = same == token && other != token && token > other && loop_time < 4 * renew;
        both.then(|| (loop_time + loop_time / 4).min(renew))
    }
}
