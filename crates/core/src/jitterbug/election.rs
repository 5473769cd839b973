//! The election of a leader among orphans (token_restore): an orphan's tries to regenerate a lost token, and the
//! answers of other nodes.
//!
//! An election has two tries. The first sends TR1 with the own id. If it is granted, a new id is drawn for the second.
//! A node of a ring repeats the first try for `Config::grace`. So a holder whose process was paused has lost its hold
//! before another token is made (TU-41). An answer denies the try if it is greater as a signed number: that of a holder
//! is, and that of a node with a better id. A try ends Granted, Denied, or Aborted by the arrival of a token (JA-14);
//! the machine then drops the election.

use core::time::Duration;
use std::net::{IpAddr, SocketAddr};

use super::Event;
use super::application::Application;
use super::lower::{Cx, Transition};
use super::machine::UDP;
use super::message::{Message, NodeEntry, SignedId, TokenId};
use super::ring::Remembered;
use super::wire::{TR1_BYTES, TR2_BYTES, encode};
use crate::machine::Refusal;
use crate::time::Instant;
use crate::wire::{DecodeError, Writer};

/// Which of the two tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attempt {
    First,
    Second,
}

/// The step of an election that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Send a TR1 with the id tried.
    Ask,
    /// This try was granted.
    Granted(Attempt),
    /// It was denied.
    Denied,
}

/// An election under way, as the orphan that began it sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Election {
    attempt: Attempt,
    /// The id before the election.
    origin: TokenId,
    tried: TokenId,
    sent: u32,
    due: Instant,
    denied: bool,
    /// How many more times the first try is made (TU-41).
    tries_left: u32,
    /// How many times it is made after a pause of this process.
    tries_after_pause: u32,
}

impl Election {
    /// An election whose first try is made `tries` times, and `tries_after_pause` times if this process is paused in it.
    pub(super) fn new(own: TokenId, now: Instant, tries: u32, tries_after_pause: u32) -> Self {
        Self {
            attempt: Attempt::First,
            origin: own,
            tried: own,
            sent: 0,
            due: now,
            denied: false,
            tries_left: tries,
            tries_after_pause,
        }
    }

    /// Advances as far as timers allow.
    pub(super) fn advance<A: Application>(&mut self, cx: &mut Cx<'_, '_, A>) -> Option<Transition> {
        let config = cx.lower.env.config();
        let (interval, count, pause_max) = (config.tr_interval, config.tr_count, config.pause_max());
        if cx.now.mono.since(self.due) > pause_max / 2 {
            // The state of the ring after a pause is unknown: all tries start again.
            let tries = self.tries_after_pause;
            *self = Self { origin: self.origin, ..Self::new(self.tried, cx.now.mono, tries, tries) };
        }
        loop {
            match self.step(cx.now.mono, interval, count)? {
                Step::Ask => ask(cx, self.tried.free()),
                Step::Granted(Attempt::First) if self.tries_left > 1 => {
                    self.tries_left -= 1;
                    self.sent = 0;
                }
                Step::Granted(Attempt::First) => {
                    let draw = cx.lower.env.config().draw;
                    let id = draw.draw(cx.lower.env.rng(), self.tried);
                    cx.lower.token.set_id(id);
                    self.second(id, cx.now.mono);
                }
                Step::Granted(Attempt::Second) => return Some(Transition::Restored { from: self.origin }),
                Step::Denied => return Some(denied(cx)),
            }
        }
    }

    /// Handles a TR2.
    pub(super) fn on_tr2<A: Application>(
        &mut self,
        cx: &mut Cx<'_, '_, A>,
        from: IpAddr,
        answer: SignedId,
    ) -> Option<Transition> {
        self.denied |= self.denies(answer);
        // JA-16: its sender holds the token, so the try ends at once.
        answer.is_held().then(|| {
            cx.lower.ring.heard_holder(cx.now.mono, from);
            denied(cx)
        })
    }

    /// Whether an answer denies this try: it is greater as a signed number (J-40, J-41).
    pub(super) fn denies(&self, answer: SignedId) -> bool {
        answer > self.tried.free()
    }

    /// When the next step is due.
    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// Begins the second try.
    fn second(&mut self, id: TokenId, now: Instant) {
        let again = self.tries_after_pause;
        *self = Self { attempt: Attempt::Second, origin: self.origin, ..Self::new(id, now, 1, again) };
    }

    /// The step that is due. Each step follows one interval after the actual time of the one before. So a process that
    /// was paused does not decide before it could receive an answer.
    fn step(&mut self, now: Instant, interval: Duration, count: u32) -> Option<Step> {
        if self.due > now {
            return None;
        }
        if self.sent < count {
            self.sent += 1;
            self.due = now + interval;
            return Some(Step::Ask);
        }
        Some(if self.denied { Step::Denied } else { Step::Granted(self.attempt) })
    }
}

/// Handles a TR1 (J-49 … J-53). `own` is our id with the sign of our role; `is_ring_port` is whether it came from the
/// ring's port.
pub(super) fn on_tr1<A: Application>(
    cx: &mut Cx<'_, '_, A>,
    own: SignedId,
    asker: NodeEntry,
    is_ring_port: bool,
    tried: SignedId,
) -> Result<Asker, Refusal> {
    let (env, ring) = (&mut cx.lower.env, &mut cx.lower.ring);
    let ip = asker.addr.ip();
    if asker.host_id.number() == 0 && ip.is_ipv6() {
        // JA-10: −0 is 0, so such a node has no entry in a list.
        env.count().malformed += 1;
        return Err(DecodeError::Field("host_id").into());
    }
    if asker == env.own_entry() {
        env.count().echoes += 1;
        return Ok(Asker::Ourselves);
    }
    if !ring.allows_tr1(cx.now.mono, ip) {
        env.count().refused += 1;
        return Err(Refusal::Reject("too many requests from there"));
    }
    if asker.host_id == env.host_id() {
        // JA-18: a clone is reported and answered, but the list has no place for it.
        if let Some(conflict) = ring.report_conflict(asker.addr) {
            cx.out.event(conflict);
        }
    } else if ring.remember(asker, is_ring_port) == Remembered::Full {
        env.count().add_set_full += 1;
    }
    if own >= tried {
        let answer = Message::Tr2 { token_id: own };
        // JA-22: to the ring's port, never to the port it came from.
        let to = SocketAddr::new(ip, env.config().udp_port);
        cx.out.send_with(UDP, to, TR2_BYTES, |writer| encode(&answer, writer)).expect("a TR2 has its length");
    }
    Ok(Asker::Other)
}

/// The sender of a TR1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asker {
    /// This node: its own broadcast came back.
    Ourselves,
    /// Another node.
    Other,
}

fn ask<A: Application>(cx: &mut Cx<'_, '_, A>, token_id: SignedId) {
    let env = &cx.lower.env;
    let message = Message::Tr1 { token_id, host_id: env.host_id(), tcp_port: env.tcp_port() };
    let mut bytes = Vec::with_capacity(TR1_BYTES);
    encode(&message, &mut Writer::new(&mut bytes, TR1_BYTES));
    cx.out.broadcast(UDP, &bytes);
    let port = env.config().udp_port;
    for ip in cx.lower.ring.next_peers() {
        cx.out.send(UDP, SocketAddr::new(ip, port), &bytes);
    }
}

/// JA-24 (ii): the wait begins now, not with the last token.
fn denied<A: Application>(cx: &mut Cx<'_, '_, A>) -> Transition {
    cx.lower.env.count().restores_denied += 1;
    cx.out.event(Event::RestoreDenied { token_id: cx.lower.token.id() });
    Transition::Waiter
}
