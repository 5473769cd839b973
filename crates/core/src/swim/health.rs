//! Local health (Lifeguard): a node that fails itself must not believe that everybody else does.

/// A score from 0, all well, upwards. Intervals and timeouts are multiplied by one more than it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Health {
    score: u32,
    score_max: u32,
}

impl Health {
    /// All well; `score_max` 0 is never anything else.
    pub(super) const fn new(score_max: u32) -> Self {
        Self { score: 0, score_max }
    }

    /// A probe was answered.
    pub(super) fn better(&mut self) {
        self.score = self.score.saturating_sub(1);
    }

    /// So many signs that it is us: proxies that did not even say no, a refutation, a late tick.
    pub(super) fn worse(&mut self, by: u32) {
        self.score = self.score.saturating_add(by).min(self.score_max);
    }

    /// What intervals and timeouts are multiplied by.
    pub(super) const fn factor(self) -> u32 {
        self.score + 1
    }

    /// The score.
    pub(super) const fn score(self) -> u32 {
        self.score
    }
}
