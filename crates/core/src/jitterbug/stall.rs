//! A leader that stood still: its process was stopped, its machine paused.
//!
//! While a leader lives it answers every TR1, so nobody makes a second token, however long the application holds the
//! first. One that stands still for longer than `renew_timeout` answers nobody, and the others may have restored the token
//! meanwhile. It cannot know, so it takes the safe side as soon as it wakes: its hold is lost, and its token is dropped as if
//! the coin had fallen (J-31). If there is another token by now, its holder denies the restore and the data of this node is
//! merged when that token comes; if there is none, the restore makes one, with a number above all that may have been taken.
//!
//! A machine whose clocks stood still with it cannot notice; it learns it when the other line comes, for then too a hold is lost.
//!
//! To notice, the machine must be called often enough when nothing happens: a leader has a pulse.

use core::time::Duration;

use super::application::Application;
use super::machine::{Jitterbug, Out, State};
use super::start::Stage;
use super::{DropReason, Event, LostReason};
use crate::time::{Instant, Now};

/// How many pulses fit into `renew_timeout`: a stall is measured that exactly.
const PULSES: u32 = 8;

impl<A: Application> Jitterbug<A> {
    /// Anything happens: if a pulse is overdue by too much, we stood still.
    pub(super) fn wake(&mut self, now: Now, out: Out<'_, '_, A>) {
        let interval = self.pulse_interval();
        let State::Leader(lead) = &mut self.state else { return };
        if now.mono < lead.pulse_at {
            return;
        }
        // Since when exactly is not known, so the last interval counts as well.
        let still = now.mono.since(lead.pulse_at) + interval;
        lead.pulse_at = now.mono + interval;
        if still > self.renew() && self.stage == Stage::Running {
            self.lose_hold(LostReason::Stalled, out);
            self.abort_pass(out);
            self.drop_token(now, DropReason::Stalled, out);
        }
    }

    pub(super) fn pulse_interval(&self) -> Duration {
        self.config.renew_timeout / PULSES
    }

    /// When a leader looks again.
    pub(super) fn pulse(&self) -> Option<Instant> {
        if let State::Leader(lead) = &self.state { Some(lead.pulse_at) } else { None }
    }

    /// Ends the hold in force, if there is one, and tells who holds.
    pub(super) fn lose_hold(&mut self, reason: LostReason, out: Out<'_, '_, A>) {
        if let Some(hold) = self.holds.take_active() {
            out.event(Event::TokenLost { hold: hold.request, fence: hold.fence, reason });
        }
    }
}
