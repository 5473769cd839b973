//! The work of a tenure: random drop, merges, next data, holds, and the check for a pause of the process.

use super::super::application::{Answer, Application, Next};
use super::super::lower::{Cx, Transition};
use super::super::machine::{KEPT_KEY, SPACE};
use super::super::records::Branch;
use super::super::{Compute, DropReason, Event, LostReason, Reply};
use super::{Awaited, Step, Tenure};
use crate::tag::OpId;

impl Tenure {
    /// Does all steps that are possible now.
    pub(in super::super) fn advance<A: Application>(&mut self, cx: &mut Cx<'_, '_, A>) -> Option<Transition> {
        loop {
            if self.step != Step::Here || self.is_waiting() {
                return None;
            }
            if let Some(branch) = self.arrivals.pop_front() {
                self.merge(cx, branch);
            } else if !self.begun {
                self.begun = true;
                let (env, ring) = (&mut cx.lower.env, &mut cx.lower.ring);
                let probability = env.config().drop_probability(ring.list().len());
                if env.rng().chance(probability) {
                    return Some(Transition::Drop(DropReason::Random));
                }
                if ring.seeks_unlisted(cx.now.mono, env.config()) {
                    return Some(Transition::Drop(DropReason::Unlisted));
                }
            } else if !self.computed {
                self.compute(cx);
            } else if cx.lower.holds.active().is_none()
                && self.leaves_at(cx.lower.env.config()) <= cx.now.mono
            {
                return self.start_round(cx);
            } else {
                return None;
            }
        }
    }

    /// Handles timers that may have fired.
    pub(in super::super) fn on_timeout<A: Application>(
        &mut self,
        cx: &mut Cx<'_, '_, A>,
    ) -> Option<Transition> {
        let now = cx.now.mono;
        let awaited = self.awaited.as_ref().filter(|awaited| awaited.deadline <= now);
        if let Some(ask) = awaited.map(|awaited| awaited.ask)
            && let Ok(Some(transition)) = self.on_computed(cx, ask, None)
        {
            return Some(transition);
        }
        match &self.step {
            Step::Passing(attempt) if attempt.deadline() <= now => self.time_out(cx),
            Step::Idle { until } if *until <= now => Some(Transition::Again),
            Step::Here => self.advance(cx),
            Step::Passing(_) | Step::Idle { .. } => None,
        }
    }

    /// Runs before every input. If a check is overdue by too much, this process was paused, and the others may have
    /// restored the token. So the hold is lost and the token dropped (J-31). If another node has a token by then, it
    /// denies the restore.
    pub(in super::super) fn check_pause<A: Application>(
        &mut self,
        cx: &mut Cx<'_, '_, A>,
    ) -> Option<Transition> {
        let now = cx.now.mono;
        if now < self.pause_check_at {
            return None;
        }
        let interval = cx.lower.env.config().pause_check_interval();
        // The exact begin of the pause is unknown, so the last interval counts as well.
        let paused = now.since(self.pause_check_at) + interval;
        self.pause_check_at = now + interval;
        if paused <= cx.lower.env.config().pause_max() || cx.is_stopping {
            return None;
        }
        cx.lose_hold(LostReason::Stalled);
        self.abort(cx);
        Some(Transition::Drop(DropReason::Stalled))
    }

    /// Handles the result of an application outside of the machine, or its failure. Returns an error if no result was
    /// requested.
    pub(in super::super) fn on_computed<A: Application>(
        &mut self,
        cx: &mut Cx<'_, '_, A>,
        ask: u64,
        result: Option<Next>,
    ) -> Result<Option<Transition>, &'static str> {
        let Some(awaited) = self.awaited.take_if(|awaited| awaited.ask == ask) else {
            return Err("this is no longer computed");
        };
        match (awaited.branch, result) {
            (Some(branch), Some(next)) => merged(cx, &branch, next.data),
            (None, Some(next)) => self.got_next(cx, next),
            (Some(_), None) => application_failed(cx, "it did not merge"),
            (None, None) => self.no_next(cx, "it did not compute the next data"),
        }
        Ok(self.advance(cx))
    }

    /// Handles the reply of the store: the bytes are durable, or not.
    pub(in super::super) fn on_stored<A: Application>(
        &mut self,
        cx: &mut Cx<'_, '_, A>,
        op: OpId,
        done: bool,
    ) -> Option<Transition> {
        let (_, next) = self.keeping.take_if(|(keeping, _)| *keeping == op)?;
        if done {
            self.use_next(cx, next);
        } else if self.restored.is_some() {
            // The fence was not raised, so this token must not continue (TU-43): another node makes one.
            return Some(Transition::GiveUp);
        } else {
            // A fence that is not durable is not used: the token continues unchanged.
            self.no_next(cx, "what it wanted kept could not be kept");
        }
        self.advance(cx)
    }

    /// Queues the data of a token that arrived before or during this tenure, to be merged.
    pub(in super::super) fn merge_branch<A: Application>(&mut self, cx: &mut Cx<'_, '_, A>, branch: Branch) {
        // Another node led that branch while this hold was in force.
        cx.lose_hold(LostReason::Merged);
        // Data that was computed without the branch is computed again, even if it is in use. The other branch may have
        // used higher fences, and the next one must be above those too. A merge under way continues.
        self.keeping = None;
        self.awaited.take_if(|awaited| awaited.branch.is_none());
        self.computed = false;
        self.step = Step::Here;
        self.duplicate_until = self.since;
        self.arrivals.push_back(branch);
    }

    /// Grants the first waiting hold, if the token is here and has a fence. One hold per tenure: two would share a
    /// fence.
    pub(in super::super) fn grant_hold<A: Application>(&self, cx: &mut Cx<'_, '_, A>) {
        let here = self.step == Step::Here && self.computed && !self.is_waiting();
        let here = here && !cx.lower.is_cut_off(cx.now.mono);
        let fence = cx.lower.token.fence();
        let Some(fence) = fence.filter(|_| here && !cx.lower.holds.used(fence)) else { return };
        if let Some(hold) = cx.lower.holds.grant(cx.now.mono, fence) {
            cx.out.reply(hold.request, Reply::Held { fence, hold: hold.request });
        }
    }

    fn merge<A: Application>(&mut self, cx: &mut Cx<'_, '_, A>, branch: Branch) {
        match cx.lower.token.merge(&branch) {
            Answer::Now(data) => merged(cx, &branch, data),
            Answer::Later => {
                let compute = cx.lower.token.merge_elsewhere(&branch);
                self.await_application(cx, compute, Some(branch));
            }
            Answer::Failed(reason) => application_failed(cx, reason),
        }
    }

    fn compute<A: Application>(&mut self, cx: &mut Cx<'_, '_, A>) {
        let host_id = cx.lower.env.host_id();
        match cx.lower.token.next(cx.now, host_id, self.restored) {
            Answer::Now(next) => self.got_next(cx, next),
            Answer::Later => {
                let compute = cx.lower.token.next_elsewhere(cx.now, host_id, self.restored);
                self.await_application(cx, compute, None);
            }
            Answer::Failed(reason) => self.no_next(cx, reason),
        }
    }

    fn await_application<A: Application>(
        &mut self,
        cx: &mut Cx<'_, '_, A>,
        compute: Compute,
        branch: Option<Branch>,
    ) {
        let ask = cx.lower.env.next_ask();
        let deadline = cx.now.mono + cx.lower.env.config().compute_max;
        self.awaited = Some(Awaited { ask, deadline, branch });
        cx.out.event(Event::ComputeAsked { ask, compute });
    }

    fn got_next<A: Application>(&mut self, cx: &mut Cx<'_, '_, A>, mut next: Next) {
        if next.data.len() > cx.lower.env.config().data_bytes_max {
            return self.no_next(cx, "its next data is over the limit");
        }
        let Some(keep) = next.keep.take() else { return self.use_next(cx, next) };
        let op = cx.lower.env.next_op();
        self.keeping = Some((op, next));
        cx.out.put(op, SPACE, KEPT_KEY, &keep, true);
    }

    fn use_next<A: Application>(&mut self, cx: &mut Cx<'_, '_, A>, next: Next) {
        self.computed = true;
        // If it is computed again for a branch that comes, the fence has been raised already.
        let is_own = self.restored.take().is_some();
        let token = &mut cx.lower.token;
        let changed = token.use_next(cx.now.mono, next);
        cx.out.event(Event::TokenTaken { token_id: token.id(), fence: token.fence() });
        let tenures = cx.lower.ring.awaited().and_then(|host| token.app().tenures_of(host));
        if let Some((host_id, losses)) = cx.lower.ring.token_came(cx.now.mono, token.id(), is_own, tenures) {
            cx.out.event(Event::NodeLeftOut { host_id, losses });
        }
        while let Some(request) = cx.lower.changes.pop_done(changed) {
            cx.out.reply(request, Reply::Done);
        }
        self.grant_hold(cx);
    }

    /// Continues the tenure with unchanged data and without a fence.
    fn no_next<A: Application>(&mut self, cx: &mut Cx<'_, '_, A>, reason: &'static str) {
        application_failed(cx, reason);
        cx.lower.token.clear_fence();
        self.computed = true;
    }
}

fn merged<A: Application>(cx: &mut Cx<'_, '_, A>, branch: &Branch, data: Vec<u8>) {
    if data.len() > cx.lower.env.config().data_bytes_max {
        return application_failed(cx, "its merge is over the limit of data");
    }
    let (own, received) = (branch.own, branch.received);
    let branches_merged = cx.lower.token.merged(cx.now, branch, data);
    let count = cx.lower.env.count();
    count.merges += 1;
    count.branches_merged += u64::from(branches_merged);
    cx.out.event(Event::TokenMerged { own, received, branches_merged });
}

fn application_failed<A: Application>(cx: &mut Cx<'_, '_, A>, reason: &'static str) {
    cx.lower.env.count().application_failures += 1;
    cx.out.event(Event::ApplicationFailed { reason });
}
