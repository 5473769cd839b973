//! Local health (Lifeguard): a slow node must not suspect members because of its own delays.

/// A score; 0 is healthy. Intervals and timeouts are multiplied by the score plus one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Health {
    score: u32,
    score_max: u32,
}

impl Health {
    /// A healthy node. With `score_max` 0 the score stays 0.
    pub(super) const fn new(score_max: u32) -> Self {
        Self { score: 0, score_max }
    }

    /// Lowers the score after an answered probe.
    pub(super) fn better(&mut self) {
        self.score = self.score.saturating_sub(1);
    }

    /// Raises the score: proxies that sent no nack, an accusation, or a late tick show that this node is slow.
    pub(super) fn worse(&mut self, by: u32) {
        self.score = self.score.saturating_add(by).min(self.score_max);
    }

    /// The factor of intervals and timeouts.
    pub(super) const fn factor(self) -> u32 {
        self.score + 1
    }

    /// The score.
    pub(super) const fn score(self) -> u32 {
        self.score
    }
}
