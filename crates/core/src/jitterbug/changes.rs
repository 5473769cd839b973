//! Changes of the data that users wait for. Each is answered when it is really in the data of a tenure of this node, or
//! taken back when its time is over.

use core::time::Duration;
use std::collections::VecDeque;

use super::Reply;
use super::application::Application;
use super::machine::{Jitterbug, Out, State};
use crate::tag::RequestId;
use crate::time::{Instant, Now};

/// A change that its user waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pending {
    request: RequestId,
    /// Under which number the application has it.
    number: u64,
    until: Instant,
}

/// All of them, in the order they were asked; the application bounds their number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    pending: VecDeque<Pending>,
}

impl Changes {
    /// When the next one is to be taken back.
    pub(super) fn due(&self) -> Option<Instant> {
        self.pending.iter().map(|change| change.until).min()
    }
}

impl<A: Application> Jitterbug<A> {
    /// Somebody wants the data changed; the reply comes with the tenure that does it.
    pub(super) fn change(
        &mut self,
        now: Now,
        request: RequestId,
        change: A::Change,
        wait: Duration,
    ) -> Option<Reply> {
        match self.app.change(change) {
            Ok(number) => {
                self.changes.pending.push_back(Pending { request, number, until: now.mono + wait });
                None
            }
            Err(reason) => Some(Reply::Refused(reason)),
        }
    }

    /// The data in use has all changes up to this number.
    pub(super) fn changed(&mut self, up_to: u64, out: Out<'_, '_, A>) {
        while let Some(change) = self.changes.pending.front().filter(|change| change.number <= up_to) {
            out.reply(change.request, Reply::Done);
            self.changes.pending.pop_front();
        }
    }

    /// Takes back whose time is over.
    pub(super) fn take_back(&mut self, now: Now, out: Out<'_, '_, A>) {
        if self.changes.due().is_none_or(|due| due > now.mono) {
            return;
        }
        // What is being made durable right now will be in the data, or not, in a moment.
        let in_work = matches!(&self.state, State::Leader(lead) if lead.computes());
        for mut change in core::mem::take(&mut self.changes.pending) {
            if change.until > now.mono {
                self.changes.pending.push_back(change);
            } else if in_work {
                change.until = now.mono + self.config.tr_interval;
                self.changes.pending.push_back(change);
            } else {
                self.app.withdraw(change.number);
                out.reply(change.request, Reply::NotChanged);
            }
        }
    }

    /// The node ends: what is not in the data will not be.
    pub(super) fn give_changes_up(&mut self, out: Out<'_, '_, A>) {
        for change in core::mem::take(&mut self.changes.pending) {
            self.app.withdraw(change.number);
            out.reply(change.request, Reply::Stopping);
        }
    }
}
