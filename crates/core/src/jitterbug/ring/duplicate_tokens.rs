//! Two tokens in one ring, detected by a node that sees both.
//!
//! Tokens of the same pace never meet, and a random drop would end one only after hundreds of loops. A node that had
//! token A, then B, then A again knows that both are under way: a merged id never returns. So it keeps the one with the
//! greater id for about one loop. The other arrives here, and the two are merged. Nothing of this is on the wire: a
//! tenure takes longer.

use core::time::Duration;

use super::super::message::TokenId;
use crate::time::Instant;

/// The tokens of the last two tenures of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DuplicateTokens {
    last: Option<(TokenId, Instant)>,
    before: Option<(TokenId, Instant)>,
}

impl DuplicateTokens {
    /// Notes a token. Returns how long to wait for a second one, if the ring has it: a loop and a quarter, but at most
    /// `renew`.
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
