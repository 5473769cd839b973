//! The leader: coin, merge, next data, and the pause before the token goes on.
//!
//! A tenure runs through fixed steps, and each of them may have to wait for the application or the disk. [`Lead`] says
//! what is done and what is awaited; `proceed` does whatever can be done now. A token that meets ours in between
//! (JA-30) is put in line to be merged; if the next data was computed without it and not yet used, it is computed anew.

use std::collections::VecDeque;

use super::application::{Answer, Application, Next, Restored, Tenure, guarded};
use super::config::Config;
use super::graph::What;
use super::machine::{Jitterbug, Out, SPACE, State};
use super::message::TokenId;
use super::pass::Pass;
use super::start::KEPT_KEY;
use super::{Compute, DropReason, Event, LostReason, Reply};
use crate::tag::OpId;
use crate::time::{Instant, Now, micros};

/// The most tokens that may wait to be merged with ours.
const ARRIVALS_MAX: usize = 4;
/// The most meetings that are remembered for the graph.
const MERGED_MAX: usize = 64;

/// Another line's data, to be merged with ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// Our id when it came.
    pub(super) own: TokenId,
    /// Its id.
    pub(super) received: TokenId,
    pub(super) data: Vec<u8>,
}

/// What the application elsewhere was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Awaited {
    ask: u64,
    deadline: Instant,
    /// The line to be merged, or the next data.
    line: Option<Line>,
}

/// Where the token is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Here, until the work is done, the pace is kept and no hold is in force.
    Here,
    /// Offered to a candidate.
    Passing(Pass),
    /// Here, for nobody took it: a new tenure begins then.
    Idle { until: Instant },
}

/// A tenure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lead {
    since: Instant,
    /// When it looks whether it stood still.
    pub(super) pulse_at: Instant,
    /// The token has a twin that may arrive until then.
    twin_until: Instant,
    restored: Option<Restored>,
    /// The coin is thrown.
    begun: bool,
    /// The next data is computed, or cannot be.
    computed: bool,
    arrivals: VecDeque<Line>,
    awaited: Option<Awaited>,
    keeping: Option<(OpId, Next)>,
    pub(super) step: Step,
    /// How many candidates this round has seen.
    pub(super) seen: usize,
}

impl Lead {
    fn new(since: Instant, pulse_at: Instant, restored: Option<Restored>) -> Self {
        Self {
            since,
            pulse_at,
            twin_until: since,
            restored,
            begun: false,
            computed: false,
            arrivals: VecDeque::new(),
            awaited: None,
            keeping: None,
            step: Step::Here,
            seen: 0,
        }
    }

    pub(super) fn pass(&self) -> Option<&Pass> {
        if let Step::Passing(pass) = &self.step { Some(pass) } else { None }
    }

    pub(super) fn pass_mut(&mut self) -> Option<&mut Pass> {
        if let Step::Passing(pass) = &mut self.step { Some(pass) } else { None }
    }

    pub(super) fn has_room(&self) -> bool {
        self.arrivals.len() < ARRIVALS_MAX
    }

    /// When it wants to be woken.
    pub(super) fn due(&self, config: &Config, held: bool) -> Option<Instant> {
        match &self.step {
            Step::Passing(pass) => Some(pass.deadline),
            Step::Idle { until } => Some(*until),
            Step::Here => match &self.awaited {
                Some(awaited) => Some(awaited.deadline),
                None if self.keeping.is_some() || held => None,
                None => Some(self.leaves_at(config)),
            },
        }
    }

    /// Whatever is awaited will come too late.
    pub(super) fn give_up_work(&mut self) {
        self.awaited = None;
        self.keeping = None;
        self.step = Step::Here;
    }

    /// When the token may go on.
    fn leaves_at(&self, config: &Config) -> Instant {
        self.twin_until.max(self.since + config.pace)
    }

    /// Whether the next data is being computed or kept.
    pub(super) fn computes(&self) -> bool {
        self.keeping.is_some() || self.awaited.as_ref().is_some_and(|awaited| awaited.line.is_none())
    }

    fn is_waiting(&self) -> bool {
        self.awaited.is_some() || self.keeping.is_some()
    }
}

impl<A: Application> Jitterbug<A> {
    /// A tenure begins, whatever the node was before; a restore under way is thus over (JA-15).
    pub(super) fn lead(&mut self, now: Now, restored: Option<Restored>, out: Out<'_, '_, A>) {
        self.counters.tenures += 1;
        let renew_timeout = self.renew();
        // Nobody took it after a hold: the hold is no part of the way round, short as it is.
        if matches!(self.state, State::Leader(_)) && self.held_already() {
            self.loops.held_until(now.mono);
        }
        if let Some(took) = self.loops.begin(now.mono, renew_timeout / 2) {
            let (took_micros, renew_timeout_micros) = (micros(took), micros(renew_timeout));
            out.event(Event::LoopSlow { took_micros, renew_timeout_micros });
        }
        let lead = Lead::new(now.mono, now.mono + self.pulse_interval(), restored);
        self.enter(State::Leader(Box::new(lead)), out);
    }

    /// The token that we just got may have a twin: then it is worth waiting for it.
    pub(super) fn watch_for_twin(&mut self, now: Now) {
        let wait = self.twins.came(self.token, now.mono, self.renew());
        if let (Some(wait), State::Leader(lead)) = (wait, &mut self.state) {
            self.counters.twins_awaited += 1;
            lead.twin_until = now.mono + wait;
        }
    }

    /// A token came while or before we lead: its data is to be merged.
    pub(super) fn join_line(&mut self, line: Line, out: Out<'_, '_, A>) {
        // Somebody led that line while our hold thought that it was alone.
        self.lose_hold(LostReason::Merged, out);
        let State::Leader(lead) = &mut self.state else { return };
        // What was computed without it is computed anew, also if it was in use: the other line may have taken higher
        // numbers than ours, and the next must be above those too. A merge under way goes on.
        lead.keeping = None;
        lead.awaited.take_if(|awaited| awaited.line.is_none());
        lead.computed = false;
        lead.step = Step::Here;
        lead.twin_until = lead.since;
        lead.arrivals.push_back(line);
    }

    /// Does what can be done now.
    pub(super) fn proceed(&mut self, now: Now, out: Out<'_, '_, A>) {
        while let State::Leader(lead) = &mut self.state {
            if lead.step != Step::Here || lead.is_waiting() {
                return;
            }
            if let Some(line) = lead.arrivals.pop_front() {
                self.merge(now, line, out);
            } else if !lead.begun {
                lead.begun = true;
                if self.rng.chance(self.config.coin(self.list.len())) {
                    return self.drop_token(now, DropReason::Coin, out);
                }
                let (time_to_join, pause) = (self.config.restore_time(), self.config.renew_timeout);
                if self.config.seek_strangers && self.peers.seeks(now.mono, time_to_join, pause, &self.list) {
                    return self.drop_token(now, DropReason::Strangers, out);
                }
            } else if !lead.computed {
                self.compute(now, out);
            } else if self.holds.active().is_none() && lead.leaves_at(&self.config) <= now.mono {
                return self.start_round(now, out);
            } else {
                return;
            }
        }
    }

    /// A timer of the leader may have run out.
    pub(super) fn lead_on(&mut self, now: Now, out: Out<'_, '_, A>) {
        let State::Leader(lead) = &mut self.state else { return };
        let awaited = lead.awaited.as_ref().filter(|awaited| awaited.deadline <= now.mono);
        if let Some(ask) = awaited.map(|awaited| awaited.ask) {
            self.computed(now, ask, None, out);
        }
        let State::Leader(lead) = &mut self.state else { return };
        match &lead.step {
            Step::Passing(pass) if pass.deadline <= now.mono => self.time_out(now, out),
            Step::Idle { until } if *until <= now.mono => {
                self.lead(now, None, out);
                self.proceed(now, out);
            }
            Step::Here => self.proceed(now, out),
            _ => {}
        }
    }

    /// An application elsewhere has answered, or will not.
    pub(super) fn computed(
        &mut self,
        now: Now,
        ask: u64,
        result: Option<Next>,
        out: Out<'_, '_, A>,
    ) -> Reply {
        let State::Leader(lead) = &mut self.state else { return Reply::Refused("nothing is computed") };
        let Some(awaited) = lead.awaited.take_if(|awaited| awaited.ask == ask) else {
            return Reply::Refused("this is no longer computed");
        };
        match (awaited.line, result) {
            (Some(line), Some(next)) => self.merged(now, &line, next.data, out),
            (None, Some(next)) => self.got_next(now, next, out),
            (Some(_), None) => self.application_failed("it did not merge", out),
            (None, None) => self.no_next("it did not compute the next data", out),
        }
        self.proceed(now, out);
        Reply::Done
    }

    /// What was to be kept is kept, or not.
    pub(super) fn kept(&mut self, now: Now, op: OpId, done: bool, out: Out<'_, '_, A>) {
        let State::Leader(lead) = &mut self.state else { return };
        let Some((_, next)) = lead.keeping.take_if(|(keeping, _)| *keeping == op) else { return };
        if done {
            self.use_next(now, next, out);
        } else {
            // A number that is not safe is not used: the token goes on as it came.
            self.no_next("what it wanted kept could not be kept", out);
        }
        self.proceed(now, out);
    }

    /// Gives the token to the first hold that waits, if it is here and has a number.
    pub(super) fn grant_hold(&mut self, now: Now, out: Out<'_, '_, A>) {
        let State::Leader(lead) = &self.state else { return };
        let here = lead.step == Step::Here && lead.computed && !lead.is_waiting();
        let Some(fence) = self.fence.filter(|_| here && !self.held_already()) else { return };
        if let Some(hold) = self.holds.grant(now.mono, fence) {
            out.reply(hold.request, Reply::Held { fence, hold: hold.request });
        }
    }

    pub(super) fn drop_token(&mut self, now: Now, reason: DropReason, out: Out<'_, '_, A>) {
        match reason {
            DropReason::Coin => self.counters.coin_drops += 1,
            DropReason::Stalled => self.counters.stalls += 1,
            DropReason::Strangers => self.counters.strangers_sought += 1,
        }
        let token_id = self.token;
        self.log.push(now.wall, What::Dropped { token_id, reason });
        out.event(Event::TokenDropped { token_id, reason });
        self.become_orphan(now, out);
    }

    fn merge(&mut self, now: Now, line: Line, out: Out<'_, '_, A>) {
        let (app, own) = (&mut self.app, &self.data);
        match guarded(|| app.merge(own, &line.data)) {
            Answer::Now(data) => self.merged(now, &line, data, out),
            Answer::Later => {
                let compute = Compute::Merge { own: self.data.clone(), received: line.data.clone() };
                self.await_application(now, compute, Some(line), out);
            }
            Answer::Failed(reason) => self.application_failed(reason, out),
        }
    }

    fn merged(&mut self, now: Now, line: &Line, data: Vec<u8>, out: Out<'_, '_, A>) {
        if data.len() > self.config.data_bytes_max {
            return self.application_failed("its merge is over the limit of data", out);
        }
        let (own, received) = (line.own, line.received);
        let lines_met = !self.app.same(&data, &line.data);
        self.data = data;
        self.known_at = now.mono;
        self.counters.merges += 1;
        out.event(Event::TokenMerged { own, received, lines_met });
        if !lines_met {
            return self.log.push(now.wall, What::Adopted { own, received });
        }
        self.counters.lines_met += 1;
        self.log.push(now.wall, What::Merged { own, received });
        if self.merged.len() < MERGED_MAX {
            self.merged.push((own, received));
        }
    }

    fn compute(&mut self, now: Now, out: Out<'_, '_, A>) {
        let State::Leader(lead) = &self.state else { return };
        let tenure = Tenure {
            host_id: self.host_id,
            token_id: self.token,
            restored: lead.restored,
            merged: self.merged.clone(),
        };
        let (app, data) = (&mut self.app, &self.data);
        match guarded(|| app.next(&tenure, data)) {
            Answer::Now(next) => self.got_next(now, next, out),
            Answer::Later => {
                let compute = Compute::Next { tenure, data: self.data.clone() };
                self.await_application(now, compute, None, out);
            }
            Answer::Failed(reason) => self.no_next(reason, out),
        }
    }

    fn await_application(&mut self, now: Now, compute: Compute, line: Option<Line>, out: Out<'_, '_, A>) {
        let State::Leader(lead) = &mut self.state else { return };
        let ask = self.numbers.ask();
        lead.awaited = Some(Awaited { ask, deadline: now.mono + self.config.compute_max, line });
        out.event(Event::ComputeAsked { ask, compute });
    }

    fn got_next(&mut self, now: Now, mut next: Next, out: Out<'_, '_, A>) {
        if next.data.len() > self.config.data_bytes_max {
            return self.no_next("its next data is over the limit", out);
        }
        let Some(keep) = next.keep.take() else { return self.use_next(now, next, out) };
        let State::Leader(lead) = &mut self.state else { return };
        let op = self.numbers.op();
        lead.keeping = Some((op, next));
        out.put(op, SPACE, KEPT_KEY, &keep, true);
    }

    fn use_next(&mut self, now: Now, next: Next, out: Out<'_, '_, A>) {
        let State::Leader(lead) = &mut self.state else { return };
        lead.computed = true;
        // If it is computed again for a line that comes, the jump is made.
        lead.restored = None;
        let changed = self.app.used();
        self.data = next.data;
        self.known_at = now.mono;
        self.merged.clear();
        self.fence = next.fence;
        out.event(Event::TokenTaken { token_id: self.token, fence: self.fence });
        self.changed(changed, out);
        self.grant_hold(now, out);
    }

    /// The tenure goes on with the data as it came, and without a number.
    fn no_next(&mut self, reason: &'static str, out: Out<'_, '_, A>) {
        self.application_failed(reason, out);
        self.fence = None;
        if let State::Leader(lead) = &mut self.state {
            lead.computed = true;
        }
    }

    fn application_failed(&mut self, reason: &'static str, out: Out<'_, '_, A>) {
        self.counters.application_failures += 1;
        out.event(Event::ApplicationFailed { reason });
    }

    /// One hold per tenure: two would share a number.
    pub(super) fn held_already(&self) -> bool {
        self.holds.last_fence() == self.fence
    }
}
