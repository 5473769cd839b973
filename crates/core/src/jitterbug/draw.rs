//! New token ids: from which of them a restore draws.

use super::message::TokenId;
use crate::rng::Rng;

/// The ids from which a new id is drawn after the first try was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Draw {
    /// From those that beat the id of the first try, while enough of them are left (JA-24b).
    Better,
    /// From all ids, as in the document's appendix. For comparison.
    Any,
}

/// The least number of ids to draw from: two concurrent restores must not draw the same.
const ENOUGH: u32 = 1 << 16;
/// The part of the better ids that is drawn from, so that they last for hundreds of restores instead of thirty.
const PART: u32 = 64;

impl Draw {
    /// A new id, after `tried` was granted.
    pub fn draw(self, rng: &mut Rng, tried: TokenId) -> TokenId {
        // Without a token the smaller magnitude wins.
        let better = tried.magnitude() - 1;
        if self == Self::Any || better < ENOUGH {
            return TokenId::draw(rng);
        }
        let window = (better / PART).max(ENOUGH);
        let magnitude = better - rng.below(u64::from(window)) as u32;
        TokenId::new(magnitude).expect("the window is no larger than the better ids are many")
    }
}
