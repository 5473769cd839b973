//! Two tokens in one ring, noticed by who sees both.
//!
//! Tokens that go round at the same pace never meet, and the coin would part them only after hundreds of loops. But a node
//! that had token A, then B, then A again knows for certain that both are under way: an id that was merged into another
//! never comes back. So it keeps the one with the greater id for about one loop. The other goes on, arrives here, and the
//! two become one. Nothing of this is on the wire: a tenure just takes longer.

use core::time::Duration;

use super::message::TokenId;
use crate::time::Instant;

/// What a node remembers of its last two tenures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Twins {
    last: Option<(TokenId, Instant)>,
    before: Option<(TokenId, Instant)>,
}

impl Twins {
    /// A token came; how long it is worth waiting for its twin, if it has one: a loop and a quarter, but no longer
    /// than anybody waits for the token.
    pub(super) fn came(&mut self, token: TokenId, now: Instant, renew: Duration) -> Option<Duration> {
        let (last, before) = (self.last, self.before);
        self.before = last;
        self.last = Some((token, now));
        let (twin, _) = last?;
        let (same, at) = before?;
        let loop_time = now.since(at);
        // Only the greater one is kept: if both were, each would wait for the other.
        let both = same == token && twin != token && token > twin && loop_time < 4 * renew;
        both.then(|| (loop_time + loop_time / 4).min(renew))
    }
}
