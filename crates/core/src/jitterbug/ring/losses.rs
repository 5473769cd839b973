//! Nodes after which the token is lost repeatedly: they are left out of the round for a while, and reported.
//!
//! A pass counts as done when the kernel has the FIN, so a candidate that cannot read the data loses the token unseen. The
//! evidence is indirect: the token came back under another id (a restore made it), and the count of the candidate in the
//! data has not grown since. A crash or a random drop looks the same once, so the second loss in a row counts. If the
//! candidate has led before, the third counts: the token may have been lost further on, and the candidate there is found first.
//!
//! One loss is enough for a candidate that cannot read the data (JA-32b). Such a candidate has never led. After the pass it
//! waits as if it had got no token, and then asks with another id than that of the token it was given. A token that this node restored itself has no
//! news of the candidate. It counts against a candidate that has never led only, and the third time: by then a healthy
//! candidate has found the node behind it.
//!
//! A candidate that has read the token ends the stream. If this node had to reset the stream at its deadline, the network or
//! the candidate was slow, and the reset lost the token. A candidate that later asks with the id of the token has taken it.
//! Both count like a token that this node restored itself.
//!
//! A node that passes data of another application to this one is found at once (JA-32c).

use core::time::Duration;
use std::collections::BTreeMap;
use std::net::IpAddr;

use super::super::message::{HostId, TokenId};
use crate::common::ExpiringSet;
use crate::tag::StreamId;
use crate::time::Instant;

/// The losses in a row that leave a node out if it has never led.
const LOSSES_MAX: u32 = 2;
/// The same if it has led before, or if this node restored the token itself and so has no news of it.
const LOSSES_UNCERTAIN_MAX: u32 = 3;
/// How long it is left out the first time, in `renew_timeout`; each further loss doubles it. A loss costs the ring one and
/// a half of them, so that a ring with such a node keeps 0.95 of its pace.
const LEFT_OUT_FOR: u32 = 30;
/// The longest time, as a multiple of the first.
const LEFT_OUT_MAX: u32 = 12;

/// The most nodes of other applications that are known; beyond that the first one is forgotten.
const FOREIGN_MAX: usize = 64;

/// The last pass, while its outcome is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pass {
    to: HostId,
    token: TokenId,
    tenures: u64,
    at: Instant,
    stream: StreamId,
    /// Whether the candidate ended the stream before its deadline.
    was_read: bool,
    /// Whether a TR1 of the candidate since then had the id of the token: it took the token, and lost it later.
    has_its_id: bool,
    /// Whether the candidate's first TR1 since then showed that it did not take the token.
    was_not_taken: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Suspect {
    losses: u32,
    left_out_until: Instant,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Losses {
    left_out_for: Duration,
    pass: Option<Pass>,
    suspects: BTreeMap<HostId, Suspect>,
    /// Nodes of other applications, by their addresses.
    foreign: ExpiringSet<IpAddr>,
}

impl Losses {
    pub(super) fn new(renew_timeout: Duration) -> Self {
        Self {
            left_out_for: renew_timeout.saturating_mul(LEFT_OUT_FOR),
            pass: None,
            suspects: BTreeMap::new(),
            foreign: ExpiringSet::new(FOREIGN_MAX),
        }
    }

    /// Notes a pass on this stream to a node with this many tenures; `None` if the application does not count tenures.
    pub(super) fn passed(
        &mut self,
        now: Instant,
        to: HostId,
        stream: StreamId,
        token: TokenId,
        tenures: Option<u64>,
    ) {
        let pass = |tenures| Pass {
            to,
            token,
            tenures,
            at: now,
            stream,
            was_read: false,
            has_its_id: false,
            was_not_taken: None,
        };
        self.pass = tenures.map(pass);
    }

    /// Notes that a candidate ended the stream of its pass.
    pub(super) fn was_read(&mut self, stream: StreamId) {
        if let Some(pass) = self.pass.as_mut().filter(|pass| pass.stream == stream) {
            pass.was_read = true;
        }
    }

    /// Notes the TR1 of a node and the token id in it. A node that took our token has its id. A node that restarted
    /// sends TR1 before it has waited this long.
    pub(super) fn asked(&mut self, now: Instant, host: HostId, token: TokenId, waits: Duration) {
        if let Some(pass) = self.pass.as_mut().filter(|pass| pass.to == host) {
            let waited = now.since(pass.at) >= waits;
            pass.has_its_id |= token == pass.token;
            pass.was_not_taken
                .get_or_insert(waited && pass.tenures == 0 && pass.was_read && !pass.has_its_id);
        }
    }

    /// Clears a node that brought a token: it can read and pass one.
    pub(super) fn clear(&mut self, host: HostId) {
        self.pass.take_if(|pass| pass.to == host);
        self.suspects.remove(&host);
    }

    /// A token from there has data of another application.
    pub(super) fn found_foreign(&mut self, now: Instant, from: IpAddr) {
        self.foreign.insert(from.to_canonical(), now, now + self.left_out_for);
    }

    /// A token from there can be read.
    pub(super) fn clear_foreign(&mut self, from: IpAddr) {
        self.foreign.remove(from.to_canonical());
    }

    /// Whether the node at this address is one of another application.
    pub(super) fn is_foreign(&self, now: Instant, ip: IpAddr) -> bool {
        self.foreign.contains(ip.to_canonical(), now)
    }

    /// The node to which the token was passed last, while it is not known what became of it.
    pub(super) fn awaited(&self) -> Option<HostId> {
        self.pass.map(|pass| pass.to)
    }

    /// A token is here, perhaps one that this node restored; the candidate of the last pass has led so often by now. Returns
    /// it with its losses, if it is left out from now on.
    pub(super) fn came(
        &mut self,
        now: Instant,
        token: TokenId,
        is_own: bool,
        tenures: Option<u64>,
    ) -> Option<(HostId, u32)> {
        let pass = self.pass.take()?;
        if token == pass.token || tenures.is_none_or(|tenures| tenures > pass.tenures) {
            self.suspects.remove(&pass.to);
            return None;
        }
        let was_not_taken = pass.was_not_taken == Some(true);
        let has_no_news = is_own || !pass.was_read || pass.has_its_id;
        if has_no_news && !was_not_taken && pass.tenures > 0 {
            return None;
        }
        let suspect = self.suspects.entry(pass.to).or_insert(Suspect { losses: 0, left_out_until: now });
        suspect.losses += 1;
        let losses_max = match pass.tenures {
            _ if was_not_taken => 1,
            0 if !has_no_news => LOSSES_MAX,
            _ => LOSSES_UNCERTAIN_MAX,
        };
        let beyond = suspect.losses.checked_sub(losses_max)?;
        let wait = self.left_out_for.saturating_mul((1 << beyond.min(8)).min(LEFT_OUT_MAX));
        suspect.left_out_until = now + wait;
        Some((pass.to, suspect.losses))
    }

    /// Whether a node is left out of the round now.
    pub(super) fn leaves_out(&self, host: HostId, now: Instant) -> bool {
        self.suspects.get(&host).is_some_and(|suspect| suspect.left_out_until > now)
    }
}
