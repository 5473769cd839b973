//! The messages of a run and the checks of each: D, O, T and P, against the disks and not against the machines.
//!
//! | | what is held, at every second and at every frame |
//! |---|---|
//! | D | a letter that was acknowledged and has not arrived is in the queue on its sender's disk, with its bytes |
//! | O | a letter is reported once, and is in the inbox on the recipient's disk once |
//! | T | a state is true; `held` and receipts are sent when the disk has the message, synced |
//! | P | a letter arrives soon after the last fault |

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use annulus_core::RequestId;
use annulus_core::w3w::{
    BLOCKS, Body, Custody, Form, INBOX, Key, Mesh, Nid, OUTBOX, QUEUE, Receipts, SeenKey, Sent, SentState,
    Verdict as Said, decode_body, listed_key, queued_key, read_form,
};

use crate::causes::Cause;
use crate::disk::Disk;
use crate::host::HostId;
use crate::ledger::{Excuse, Ledger, Promise};
use crate::observer::{Verdict, Violation};
use crate::sim::Sim;

/// The sender's disk is gone, and no custodian had the letter.
pub const DISKS_LOST: Excuse = Excuse {
    name: "DISKS_LOST",
    because: "nobody has what the disks of the sender and of all custodians lost",
    needs: &[Cause::DiskLost, Cause::DiskLied, Cause::Died],
    reach: Duration::MAX,
    most_per_run: 200,
    each_at_most: Duration::MAX,
};

/// The recipient's disk is gone, and with it the numbers of the letters that it had.
pub const BOX_LOST: Excuse = Excuse {
    name: "BOX_LOST",
    because: "a recipient without its disk cannot know which letters it had",
    needs: &[Cause::DiskLost, Cause::DiskLied],
    reach: Duration::MAX,
    most_per_run: 200,
    each_at_most: Duration::MAX,
};

/// How soon after the last fault, or after it was sent, a letter is in the inbox.
pub const ARRIVES: Promise =
    Promise { name: "arrives", prompt: Duration::from_secs(300), at_last: Duration::from_secs(3600) };

/// The situations that a run may meet.
pub(super) const SITUATIONS: [&str; 7] =
    ["held", "full", "sender_down", "recipient_down", "letter_resent", "cancelled", "expired"];

/// A message of the scenario.
#[derive(Clone, Copy)]
pub(super) struct Plan {
    pub(super) from: HostId,
    pub(super) to: HostId,
    pub(super) is_letter: bool,
    /// Its lifetime outlasts the run.
    pub(super) is_long: bool,
    /// When it is sent, if its recipient is there all the time.
    pub(super) prompt_from: Option<Duration>,
}

struct Message {
    plan: Plan,
    payload: Key,
    number: Option<u64>,
    acknowledged_at: Option<Duration>,
    /// Epoch and number, once a frame with it was seen.
    letter: Option<(u64, u64)>,
    /// How often it was reported, and whether it ever was in the inbox on the recipient's disk.
    reported: u32,
    has_arrived: bool,
    /// Its receipt was written, and its line was synced then.
    is_confirmed: bool,
    arrived_at: Option<Duration>,
    has_left: bool,
    is_withdrawn: bool,
    is_excused: bool,
    /// The nodes that answered `held`.
    custodians: BTreeSet<Nid>,
    state: Option<SentState>,
}

/// All messages of a run.
#[derive(Default)]
pub(super) struct Letters {
    messages: Vec<Message>,
    by_request: BTreeMap<RequestId, usize>,
    by_payload: BTreeMap<Key, usize>,
    by_number: BTreeMap<(HostId, u64), usize>,
    by_seen: BTreeMap<SeenKey, usize>,
    /// The payload of each block that was read.
    payloads: BTreeMap<Key, Option<Key>>,
    pub(super) duplicates: u64,
    /// The longest way of a message to a recipient that was there all the time.
    pub(super) slowest: Duration,
}

impl Letters {
    /// A message will be sent.
    pub(super) fn expect(&mut self, request: RequestId, data: &[u8], plan: Plan) {
        self.by_request.insert(request, self.messages.len());
        self.by_payload.insert(Key::of(data), self.messages.len());
        self.messages.push(Message {
            plan,
            payload: Key::of(data),
            number: None,
            acknowledged_at: None,
            letter: None,
            reported: 0,
            has_arrived: false,
            is_confirmed: false,
            arrived_at: None,
            has_left: false,
            is_withdrawn: false,
            is_excused: false,
            custodians: BTreeSet::new(),
            state: None,
        });
    }

    /// A sender got its answer: the message is synced on its disk.
    pub(super) fn acknowledged(
        &mut self,
        sim: &Sim<Mesh>,
        host: HostId,
        request: RequestId,
        number: u64,
    ) -> Verdict {
        let Some(&index) = self.by_request.get(&request) else { return Ok(()) };
        self.messages[index].number = Some(number);
        self.messages[index].acknowledged_at = Some(sim.elapsed());
        self.by_number.insert((host, number), index);
        let disk = sim.disk(host);
        if disk.is_some_and(|disk| disk.is_synced(OUTBOX, &number.to_be_bytes())) {
            return Ok(());
        }
        Err(Violation::new(format!("{host} acknowledged {number} before it was on its disk")))
    }

    /// O: a recipient reports a message.
    pub(super) fn reported(
        &mut self,
        sim: &Sim<Mesh>,
        ledger: &mut Ledger,
        host: HostId,
        payload: Key,
    ) -> Verdict {
        let Some(message) = self.by_payload.get(&payload).and_then(|index| self.messages.get_mut(*index))
        else {
            return Err(Violation::new(format!("{host} was given {payload}, which nobody sent")));
        };
        if message.plan.to != host {
            return Err(Violation::new(format!(
                "{host} was given {payload}, which is for {}",
                message.plan.to
            )));
        }
        message.reported += 1;
        message.arrive(sim.elapsed());
        if message.reported == 1 {
            let took = message.plan.prompt_from.map(|at| sim.elapsed().saturating_sub(at));
            self.slowest = self.slowest.max(took.unwrap_or_default());
            return Ok(());
        }
        self.duplicates += 1;
        let excused = ledger.excuse(sim, &BOX_LOST, host, Duration::ZERO);
        excused.map_err(|why| Violation::new(format!("O: {host} was given {payload} twice; {why}")))
    }

    /// T: a sender reports a state.
    pub(super) fn state_changed(
        &mut self,
        sim: &Sim<Mesh>,
        ledger: &mut Ledger,
        host: HostId,
        number: u64,
        state: SentState,
    ) -> Verdict {
        let Some(&index) = self.by_number.get(&(host, number)) else { return Ok(()) };
        self.messages[index].state = Some(state);
        match state {
            SentState::Cancelled => ledger.met("cancelled"),
            SentState::Expired | SentState::Unconfirmed => ledger.met("expired"),
            _ => {}
        }
        self.check_state(sim, host, index, state)
    }

    /// The sender withdrew a message; for certain only if it never left.
    pub(super) fn cancelled(&mut self, host: HostId, number: u64, is_certain: bool) -> Verdict {
        let Some(message) =
            self.by_number.get(&(host, number)).and_then(|index| self.messages.get_mut(*index))
        else {
            return Ok(());
        };
        message.is_withdrawn = true;
        if is_certain && (message.has_left || message.has_arrived) {
            return Err(Violation::new(format!("T: {host} says that {number} never left, and it did")));
        }
        Ok(())
    }

    /// T: a frame goes out. A verdict and a receipt are true when they are written.
    pub(super) fn wrote(
        &mut self,
        sim: &Sim<Mesh>,
        ledger: &mut Ledger,
        host: HostId,
        bytes: &[u8],
    ) -> Verdict {
        let Some(Ok(Body::Message(message))) = bytes.get(4..).map(decode_body) else { return Ok(()) };
        let own = sim.machine(host).map(Mesh::nid).unwrap_or_default();
        match read_form(message.data()) {
            Form::Custody(custody) => self.said(sim, ledger, (host, own), &custody),
            Form::Receipts(receipts) if message.sender() == own => self.confirmed(sim, host, &receipts),
            form => {
                let (payload, letter) = match &form {
                    Form::Letter(letter) => (letter.payload, Some((letter.epoch, letter.number))),
                    Form::Plain(payload) | Form::Ask { payload, .. } => (*payload, None),
                    _ => return Ok(()),
                };
                if let Form::Letter(letter) = &form
                    && letter.attempt > 0
                {
                    ledger.met("letter_resent");
                }
                let Some(&index) = self.by_payload.get(&Key::of(payload)) else { return Ok(()) };
                let seen = SeenKey::new(message.sender(), message.recipient(), Key::of(message.data()));
                self.by_seen.insert(seen, index);
                self.messages[index].letter = letter;
                self.messages[index].has_left |= self.messages[index].plan.from == host;
                Ok(())
            }
        }
    }

    /// A node answers its peer. `held` is true if the record and the bytes are synced here, or if the node dropped them
    /// since because another node has them.
    fn said(
        &mut self,
        sim: &Sim<Mesh>,
        ledger: &mut Ledger,
        (host, own): (HostId, Nid),
        custody: &Custody,
    ) -> Verdict {
        for (seen, verdict) in &custody.verdicts {
            let Some(&index) = self.by_seen.get(seen) else { continue };
            match verdict {
                Said::Full => ledger.met("full"),
                Said::Delivered => {}
                Said::Unable => continue,
                Said::Held => ledger.met("held"),
            }
            if *verdict == Said::Full {
                continue;
            }
            self.messages[index].custodians.insert(own);
            let is_synced = sim.disk(host).and_then(|disk| self.queued_as(disk, index));
            if is_synced == Some(true) || self.is_elsewhere(sim, host, index) {
                continue;
            }
            let text = if is_synced.is_some() { "before it was on its disk" } else { "and has it no more" };
            return Err(Violation::new(format!("T: {host} answered {verdict:?} {text}")));
        }
        Ok(())
    }

    /// A recipient confirms letters: each is synced in its inbox, or is over.
    fn confirmed(&mut self, sim: &Sim<Mesh>, host: HostId, receipts: &Receipts) -> Verdict {
        let Some(disk) = sim.disk(host) else { return Ok(()) };
        let inbox = self.inbox(disk);
        for message in self.messages.iter_mut().filter(|message| message.plan.to == host) {
            let is_covered = message
                .letter
                .is_some_and(|(epoch, number)| epoch == receipts.epoch && receipts.covers(number));
            if !is_covered || message.is_confirmed || message.is_over() || is_harmed(sim, host) {
                continue;
            }
            if !inbox.get(&message.payload).is_some_and(|line| disk.is_synced(INBOX, line)) {
                let from = message.plan.from;
                let text = format!("T: {host} confirms a letter of {from} that is not in its inbox");
                return Err(Violation::new(text));
            }
            message.arrive(sim.elapsed());
            message.is_confirmed = true;
        }
        Ok(())
    }

    /// D, O and T against all disks and all outboxes.
    pub(super) fn check(&mut self, sim: &Sim<Mesh>, ledger: &mut Ledger) -> Verdict {
        let mut queues: BTreeMap<HostId, BTreeSet<Key>> = BTreeMap::new();
        for host in sim.hosts().filter(|host| !sim.is_dead(*host)) {
            let Some(disk) = sim.disk(host) else { continue };
            self.note_inbox(sim, host, disk)?;
            let queued = self.queue(disk);
            queues.insert(host, queued);
        }
        for index in 0..self.messages.len() {
            let message = &self.messages[index];
            let (Some(number), Plan { from, to, .. }) = (message.number, message.plan) else { continue };
            if message.is_pending() {
                note_down(sim, ledger, from, "sender_down");
                note_down(sim, ledger, to, "recipient_down");
            }
            if let Some(mesh) = sim.machine(from).filter(|mesh| !mesh.is_loading() && !is_harmed(sim, from)) {
                self.check_line(sim, (from, index), mesh.outbox_line(number).as_ref())?;
            }
            let message = &mut self.messages[index];
            if from == to || !message.is_pending() || message.is_excused {
                continue;
            }
            let has_it =
                |host: &HostId| queues.get(host).is_some_and(|queue| queue.contains(&message.payload));
            if has_it(&from) || (is_harmed(sim, from) && queues.keys().any(has_it)) {
                continue;
            }
            ledger.excuse(sim, &DISKS_LOST, from, Duration::ZERO).map_err(|why| {
                Violation::new(format!("D: {from} has let go of letter {number} for {to}; {why}"))
            })?;
            message.is_excused = true;
        }
        Ok(())
    }

    /// A letter that has not arrived though a node holds it, or whose sender has no receipt yet.
    pub(super) fn missing(&self, sim: &Sim<Mesh>) -> Option<String> {
        for message in &self.messages {
            let Plan { from, to, is_letter, is_long, .. } = message.plan;
            let Some(number) = message.number.filter(|_| is_letter && is_long && !message.is_withdrawn)
            else {
                continue;
            };
            // Custodians deliver letters of a sender that lost its disk, if they hold any.
            if sim.is_dead(to) || sim.is_dead(from) || is_harmed(sim, from) {
                continue;
            }
            let state = sim.machine(from).and_then(|mesh| mesh.outbox_line(number)).map(|line| line.state);
            if !message.has_arrived {
                return Some(format!(
                    "letter {number} of {from} has not reached {to}; its state is {state:?}"
                ));
            }
            if state.is_some_and(|state| state != SentState::Delivered) {
                return Some(format!(
                    "{from} does not know that letter {number} has reached {to}: {state:?}"
                ));
            }
        }
        None
    }

    /// P: how long each letter took, from the last fault or from its acknowledgement.
    pub(super) fn take_times(&self, ledger: &mut Ledger, calm_at: Duration) -> Verdict {
        for message in self.messages.iter().filter(|message| message.plan.is_letter) {
            if let (Some(sent), Some(arrived)) = (message.acknowledged_at, message.arrived_at)
                && arrived >= calm_at
            {
                ledger.took(&ARRIVES, arrived.saturating_sub(sent.max(calm_at)))?;
            }
        }
        Ok(())
    }

    /// Planned, arrived, and acknowledged without having arrived.
    pub(super) fn counts(&self) -> (usize, usize, usize) {
        let is_lost = |message: &&Message| message.number.is_some() && !message.has_arrived;
        (
            self.messages.len(),
            self.messages.iter().filter(|message| message.has_arrived).count(),
            self.messages.iter().filter(is_lost).count(),
        )
    }

    /// A line of an outbox that a sender acknowledged is there and true.
    fn check_line(&self, sim: &Sim<Mesh>, (host, index): (HostId, usize), line: Option<&Sent>) -> Verdict {
        let message = &self.messages[index];
        let Some(line) = line else {
            let number = message.number.unwrap_or_default();
            let text = format!("D: {host} forgot message {number}, which it had acknowledged");
            return if message.is_pending() { Err(Violation::new(text)) } else { Ok(()) };
        };
        let is_stranger = |nid: &&Nid| !message.custodians.contains(*nid);
        if let Some(nid) = line.custodians.iter().flatten().find(is_stranger) {
            let (nid, number) = (nid.short(), line.number);
            return Err(Violation::new(format!(
                "T: {host} says that {nid} holds {number}; it never said so"
            )));
        }
        self.check_state(sim, host, index, line.state)
    }

    fn check_state(&self, sim: &Sim<Mesh>, host: HostId, index: usize, state: SentState) -> Verdict {
        let message = &self.messages[index];
        let is_false = match state {
            SentState::Delivered => !message.has_arrived && message.plan.from != message.plan.to,
            SentState::Expired => message.has_arrived || message.has_left,
            SentState::Refused => message.has_arrived,
            SentState::UnderWay => !message.has_left,
            SentState::Given => !message.has_left || message.plan.is_letter,
            SentState::Waiting | SentState::Unconfirmed | SentState::Cancelled => false,
            _ => return Err(Violation::new(format!("no rule of T for the state {state}"))),
        };
        if !is_false || is_harmed(sim, host) {
            return Ok(());
        }
        let (number, to) = (message.number.unwrap_or_default(), message.plan.to);
        Err(Violation::new(format!("T: {host} says that {number} for {to} is {state}, which is not true")))
    }

    /// Checks O on the disk, and counts letters that arrived without an event, because a crash came in between.
    fn note_inbox(&mut self, sim: &Sim<Mesh>, host: HostId, disk: &Disk) -> Verdict {
        let mut lines: BTreeMap<Key, u32> = BTreeMap::new();
        let keys: Vec<Key> = disk.entries(INBOX).filter_map(|(_, value)| listed_key(value)).collect();
        for key in keys {
            if let Some(payload) = self.payload(disk, key) {
                *lines.entry(payload).or_default() += 1;
            }
        }
        for (payload, times) in lines {
            if times > 1 {
                return Err(Violation::new(format!("O: {host} has {payload} {times} times in its inbox")));
            }
            if let Some(&index) = self.by_payload.get(&payload) {
                self.messages[index].arrive(sim.elapsed());
            }
        }
        Ok(())
    }

    /// Whether a message is in the queue of a disk; if so, whether it is synced there.
    fn queued_as(&mut self, disk: &Disk, index: usize) -> Option<bool> {
        let records: Vec<(Vec<u8>, Key)> =
            disk.entries(QUEUE).filter_map(|(id, value)| Some((id.to_vec(), queued_key(value)?))).collect();
        records.into_iter().find_map(|(id, key)| {
            let payload = self.payload(disk, key)?;
            let is_it = payload == self.messages[index].payload;
            is_it.then(|| disk.is_synced(QUEUE, &id) && disk.is_synced(BLOCKS, &key.to_bytes()))
        })
    }

    /// Whether a node was allowed to drop a message: the message has arrived or is over, or the disk of a third node
    /// has it.
    fn is_elsewhere(&mut self, sim: &Sim<Mesh>, host: HostId, index: usize) -> bool {
        if self.messages[index].has_arrived || self.messages[index].is_over() {
            return true;
        }
        let (payload, from) = (self.messages[index].payload, self.messages[index].plan.from);
        let others = sim.hosts().filter(|other| *other != host && *other != from);
        let mut disks = others.filter_map(|host| sim.disk(host));
        disks.any(|disk| self.inbox(disk).contains_key(&payload) || self.queue(disk).contains(&payload))
    }

    /// The payloads in the queue of a disk.
    fn queue(&mut self, disk: &Disk) -> BTreeSet<Key> {
        let keys: Vec<Key> = disk.entries(QUEUE).filter_map(|(_, value)| queued_key(value)).collect();
        keys.into_iter().filter_map(|key| self.payload(disk, key)).collect()
    }

    /// The payloads in the inbox of a disk, and the keys of their lines.
    fn inbox(&mut self, disk: &Disk) -> BTreeMap<Key, Vec<u8>> {
        let lines: Vec<(Vec<u8>, Key)> =
            disk.entries(INBOX).filter_map(|(id, value)| Some((id.to_vec(), listed_key(value)?))).collect();
        lines.into_iter().filter_map(|(id, key)| Some((self.payload(disk, key)?, id))).collect()
    }

    /// The payload of a block that a disk has.
    fn payload(&mut self, disk: &Disk, key: Key) -> Option<Key> {
        let data = disk.value(BLOCKS, &key.to_bytes())?;
        let read = || match read_form(data) {
            Form::Letter(letter) => Some(Key::of(letter.payload)),
            Form::Plain(payload) | Form::Ask { payload, .. } => Some(Key::of(payload)),
            _ => None,
        };
        *self.payloads.entry(key).or_insert_with(read)
    }
}

/// Whether a disk lost durable writes: the reports of its host may be outdated.
fn is_harmed(sim: &Sim<Mesh>, host: HostId) -> bool {
    let harms = [Cause::DiskLost, Cause::DiskLied];
    sim.causes(host, Duration::ZERO, sim.elapsed()).any(|one| harms.contains(&one.cause))
}

fn note_down(sim: &Sim<Mesh>, ledger: &mut Ledger, host: HostId, situation: &'static str) {
    if sim.machine(host).is_none() {
        ledger.met(situation);
    }
}

impl Message {
    fn arrive(&mut self, at: Duration) {
        self.has_arrived = true;
        self.arrived_at.get_or_insert(at);
    }

    /// Whether its sender has to have it: an acknowledged letter that has not arrived and is not over.
    fn is_pending(&self) -> bool {
        self.plan.is_letter && self.number.is_some() && !self.has_arrived && !self.is_over()
    }

    /// Whether its sender withdrew it, or reports a short one as expired.
    fn is_over(&self) -> bool {
        let is_open = self.state.is_none_or(SentState::is_open);
        self.is_withdrawn || (!self.plan.is_long && !is_open)
    }
}
