//! Nodes after which the token is lost repeatedly: they are left out of the round for a while, and reported.
//!
//! A pass counts as done when the kernel has the FIN, so a candidate that cannot read the data loses the token
//! unnoticed. The evidence is indirect: the token returns under another id, made by a restore, and the candidate's
//! count in the data has not grown. A crash or a random drop looks the same once, so the second loss in a row counts.
//!
//! One loss is enough if the candidate has never led, waited as if it had got no token, and then sent a TR1 with an id
//! other than the passed one. Such a candidate cannot read the data (JA-32b).

use core::time::Duration;
use std::collections::BTreeMap;

use super::super::message::{HostId, TokenId};
use crate::time::Instant;

/// This many losses in a row leave a node out.
const LOSSES_MAX: u32 = 2;
/// How long it is left out the first time; each further loss doubles it.
const LEFT_OUT_FOR: Duration = Duration::from_secs(300);
const LEFT_OUT_FOR_MAX: Duration = Duration::from_secs(3600);

/// The last pass, while its outcome is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pass {
    to: HostId,
    token: TokenId,
    tenures: u64,
    at: Instant,
    /// Whether the candidate's first TR1 since then showed that it did not take the token.
    was_not_taken: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Suspect {
    losses: u32,
    left_out_until: Instant,
}

/// The losses of all candidates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Losses {
    pass: Option<Pass>,
    suspects: BTreeMap<HostId, Suspect>,
}

impl Losses {
    /// Notes a pass to a node with this many tenures; `None` if the application does not count tenures.
    pub(super) fn passed(&mut self, now: Instant, to: HostId, token: TokenId, tenures: Option<u64>) {
        self.pass = tenures.map(|tenures| Pass { to, token, tenures, at: now, was_not_taken: None });
    }

    /// Notes the TR1 of a node and the token id in it. A node that took our token has its id. A node that restarted
    /// sends TR1 before it has waited this long.
    pub(super) fn asked(&mut self, now: Instant, host: HostId, token: TokenId, waits: Duration) {
        if let Some(pass) = self.pass.as_mut().filter(|pass| pass.to == host) {
            let waited = now.since(pass.at) >= waits;
            pass.was_not_taken.get_or_insert(waited && pass.tenures == 0 && token != pass.token);
        }
    }

    /// Clears a node that brought a token: it can read and pass one.
    pub(super) fn clear(&mut self, host: HostId) {
        self.pass.take_if(|pass| pass.to == host);
        self.suspects.remove(&host);
    }

    /// The receiver of the last pass, while its outcome is unknown.
    pub(super) fn awaited(&self) -> Option<HostId> {
        self.pass.map(|pass| pass.to)
    }

    /// Notes the arrival of a token, and the tenures of the last receiver by now. Returns that receiver with its
    /// losses, if it is left out from now on.
    pub(super) fn came(
        &mut self,
        now: Instant,
        token: TokenId,
        tenures: Option<u64>,
    ) -> Option<(HostId, u32)> {
        let pass = self.pass.take()?;
        if token == pass.token || tenures.is_none_or(|tenures| tenures > pass.tenures) {
            self.suspects.remove(&pass.to);
            return None;
        }
        let suspect = self.suspects.entry(pass.to).or_insert(Suspect { losses: 0, left_out_until: now });
        suspect.losses += 1;
        let losses_max = if pass.was_not_taken == Some(true) { 1 } else { LOSSES_MAX };
        let beyond = suspect.losses.checked_sub(losses_max)?;
        let wait = LEFT_OUT_FOR.saturating_mul(1 << beyond.min(8)).min(LEFT_OUT_FOR_MAX);
        suspect.left_out_until = now + wait;
        Some((pass.to, suspect.losses))
    }

    /// Whether a node is left out of the round now.
    pub(super) fn leaves_out(&self, host: HostId, now: Instant) -> bool {
        self.suspects.get(&host).is_some_and(|suspect| suspect.left_out_until > now)
    }
}
