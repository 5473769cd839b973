//! The machine: dispatches inputs to the parts, and passes the reports of one part to another.
//!
//! ```text
//! machine commands load ─► files ─► delivery ─► forward ─► links + ring ─► mailboxes ─► blocks ─► disk ─► env
//!                     └──► peering ───────────► forward
//! ```

use core::time::Duration;
use std::net::{SocketAddr, SocketAddrV4};

use super::blocks::BlockIndex;
use super::book::Book;
use super::config::{Announce, Config, ConfigError};
use super::counters::Counters;
use super::custody::{Custody, Due, pong};
use super::delivery::Delivery;
use super::disk::{Disk, Pending, PendingWrite, delete_blocks};
use super::env::{Cx, Env, LazyTimers, Lower, MemoryUse, not_at_once};
use super::files::Files;
use super::form::{Custody as CustodyFrame, Form, is_custody, read_form};
use super::forward::Forward;
use super::links::Links;
use super::load::Loading;
use super::mailboxes::Mailboxes;
use super::message::{Message, SeenKey};
use super::nid::{Key, Nid};
use super::peering::{Peering, ping};
use super::records::SentState;
use super::ring::Ring;
use super::timers::Timer;
use super::wire::{data_of, decode_here, message_frame};
use super::{Command, Event, Reply};
use crate::common::Timers;
use crate::counters::VisitCounter;
use crate::endpoint::{Bound, Endpoints, Listener, Socket, Space};
use crate::machine::{Machine, Refusal};
use crate::outbox::Outbox;
use crate::rng::{Rng, Seed};
use crate::store::{StoreFault, StoreReply, StoreResult};
use crate::stream::StreamEvent;
use crate::tag::{ListenerId, RequestId, SocketId, SpaceId, StreamId};
use crate::time::{Instant, Now};

/// The datagram socket.
pub const UDP: SocketId = SocketId::new(0);
/// The stream listener; with incrementing ports the others follow it.
pub const TCP: ListenerId = ListenerId::new(0);
/// DATA by its hash (M-52).
pub const BLOCKS: SpaceId = SpaceId::new(0);
/// The index of [`BLOCKS`]: length and age, so that a start need not read the blocks.
pub const INDEX: SpaceId = SpaceId::new(1);
/// Messages for this node.
pub const INBOX: SpaceId = SpaceId::new(2);
/// Messages from this node.
pub const OUTBOX: SpaceId = SpaceId::new(3);
/// The queue.
pub const QUEUE: SpaceId = SpaceId::new(4);
/// Delivered messages, so that none is delivered again (MA-40b).
pub const SEEN: SpaceId = SpaceId::new(5);
/// The known nodes (M-2).
pub const KNOWN: SpaceId = SpaceId::new(6);
/// Files under way, outgoing and incoming.
pub const FILES: SpaceId = SpaceId::new(7);

/// Numbers of letters that were delivered here, and the number of the mailbox (CU-9).
pub const LETTERS: SpaceId = SpaceId::new(8);
/// The address book (CU-25).
pub const BOOK: SpaceId = SpaceId::new(9);

/// How long a handshake (MA-27) or the close of a connection may take.
pub(super) const HANDSHAKE: Duration = Duration::from_secs(5);
/// How long introductions and dropped peers are remembered (MA-37).
pub(super) const HOLD_DOWN: Duration = Duration::from_secs(60);
/// The most pairs and peers that are remembered for that time.
pub(super) const HOLD_DOWN_MAX: usize = 4096;

/// A node of the mesh.
#[derive(Clone, Debug, PartialEq)]
pub struct Mesh {
    pub(super) lower: Lower,
    pub(super) forward: Forward,
    pub(super) delivery: Delivery,
    pub(super) peering: Peering,
    pub(super) files: Files,
    pub(super) loading: Option<Loading>,
}

pub(super) type Out<'a, 'b> = &'a mut Outbox<'b, Mesh>;

/// The upper parts, and their context.
pub(super) struct Parts<'a, 'b> {
    pub(super) cx: Cx<'a, 'b>,
    pub(super) delivery: &'a mut Delivery,
    pub(super) peering: &'a mut Peering,
    pub(super) files: &'a mut Files,
}

impl Mesh {
    /// INIT 2 and 3: a node with these settings and an empty ring; `seed` decides all random choices.
    ///
    /// # Errors
    /// If the settings cannot work together.
    pub fn new(config: &Config, seed: Seed) -> Result<Self, ConfigError> {
        config.check()?;
        let own = Nid::from_uuid(config.uuid);
        let env = Env {
            own,
            at: SocketAddrV4::new(config.own_ip(), config.bind.port()),
            rng: Rng::new(seed),
            timers: Timers::default(),
            counters: Counters::default(),
            memory: MemoryUse::default(),
            is_stopping: false,
            is_expiry_stale: false,
            is_custody_stale: false,
            lazy: LazyTimers::default(),
            config: config.clone(),
        };
        let lower = Lower {
            env,
            disk: Disk::default(),
            blocks: BlockIndex::new(config.quota_bytes, config.blocks_max, config.keep),
            mailboxes: Mailboxes::new(config.boxes_max),
            book: Book::default(),
            links: Links::default(),
            custody: Custody::default(),
            ring: Ring::new(own),
        };
        Ok(Self {
            lower,
            forward: Forward::new(config),
            delivery: Delivery::new(config),
            peering: Peering::new(config),
            files: Files::new(),
            loading: None,
        })
    }

    /// The own address in the mesh.
    #[must_use]
    pub fn nid(&self) -> Nid {
        self.lower.env.own
    }

    /// The peers in the ring, ascending.
    #[must_use]
    pub fn peers(&self) -> Vec<super::Peer> {
        self.lower.ring.peers()
    }

    /// The ring in the form of the document (M-9).
    #[must_use]
    pub fn ring_json(&self) -> String {
        self.lower.ring.to_json()
    }

    /// The counters.
    #[must_use]
    pub fn counted(&self) -> Counters {
        self.lower.env.counters
    }

    /// Sets all counters to zero, so that two states can be compared without them.
    pub fn forget_counters(&mut self) {
        self.lower.env.counters = Counters::default();
    }

    /// A line of the outbox.
    #[must_use]
    pub fn outbox_line(&self, number: u64) -> Option<super::Sent> {
        self.lower.mailboxes.sent(number).copied()
    }

    /// Whether the node still reads its store.
    #[must_use]
    pub fn is_loading(&self) -> bool {
        self.loading.is_some()
    }

    /// How many messages are queued.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.forward.len()
    }

    pub(super) fn parts<'a, 'b>(&'a mut self, now: Now, out: &'a mut Outbox<'b, Self>) -> Parts<'a, 'b> {
        let Self { lower, forward, delivery, peering, files, .. } = self;
        Parts { cx: Cx { low: lower.low(now, out), forward }, delivery, peering, files }
    }

    fn on_timer(&mut self, now: Now, timer: Timer, out: Out<'_, '_>) {
        let is_loading = self.is_loading();
        let Parts { cx, delivery, peering, files } = &mut self.parts(now, out);
        match timer {
            Timer::Announce => peering.announce(cx),
            Timer::Maintain => peering.maintain(cx),
            Timer::Handshake(stream) => peering.handshake_over(cx, stream),
            Timer::Stalls => peering.stalls_due(cx),
            Timer::Silent(stream) => peering.silent(cx, stream),
            Timer::Redial => peering.redial_due(cx),
            Timer::Expire => self.expire(now, out),
            Timer::StoreKnown => peering.store_known(cx),
            Timer::Files => files.push(cx, delivery),
            Timer::RetryStore if is_loading => self.load_next(out),
            Timer::RetryStore => {
                cx.forward.retry_fetches(&mut cx.low);
                delivery.retry_closing(cx);
                cx.low.disk.resume(cx.low.env, now, cx.low.out);
            }
            Timer::Deferred => delivery.retry_deferred(cx),
            Timer::Retransmit => cx.forward.retransmit_due(&mut cx.low),
            Timer::Custody => self.custody_due(now, out),
            Timer::Verdicts => cx.forward.write_verdicts(&mut cx.low),
            Timer::Retry => cx.forward.retry_due(&mut cx.low),
            Timer::Resend => cx.forward.resend_due(&mut cx.low),
            Timer::Receipts => delivery.send_receipts(cx),
            Timer::StoreBook => cx.low.book.store(cx.low.disk, cx.low.out),
            Timer::Stop => peering.abort_all(cx),
        }
    }

    /// Pings silent peers, and releases messages that foreign peers have had long enough.
    fn custody_due(&mut self, now: Now, out: Out<'_, '_>) {
        let Parts { cx, peering, .. } = &mut self.parts(now, out);
        for due in cx.low.custody.due(now.mono) {
            match due {
                Due::Ping(stream) => ping(cx, stream),
                Due::Silent(stream) => peering.on_peer_silent(cx, stream),
                Due::Released(stream, entry) => cx.forward.on_released(&mut cx.low, stream, entry),
            }
        }
        cx.low.env.schedule_custody();
    }

    /// WAIT 3 (M-38): handles received bytes.
    fn on_data(&mut self, now: Now, stream: StreamId, data: &[u8], out: Out<'_, '_>) -> Result<(), Refusal> {
        let Lower { links, env, custody, .. } = &mut self.lower;
        let Some((frames, end)) = links.take_frames(&mut env.memory, stream, data) else { return Ok(()) };
        custody.on_heard(stream, now.mono);
        let is_whole = !frames.is_empty();
        // All at once: the hash is the largest cost of a message. Verdicts have no key.
        let has_key = |data: &&[u8]| !is_custody(data);
        let mut keys = if frames.len() > 1 {
            Key::of_all(frames.iter().map(|frame| data_of(frame)).filter(has_key))
        } else {
            Vec::new()
        }
        .into_iter();
        for frame in frames {
            let data = data_of(&frame);
            let key = has_key(&data).then(|| keys.next().unwrap_or_else(|| Key::of(data)));
            if self.lower.links.get(stream).is_none() {
                return Ok(());
            }
            let Parts { cx, peering, .. } = &mut self.parts(now, out);
            if let Some((from, message)) = peering.on_frame(cx, stream, frame)? {
                if key.is_none() && message.recipient == cx.low.env.own {
                    self.on_custody(now, (stream, from), &message, out);
                } else {
                    let key = key.unwrap_or_else(|| Key::of(message.data()));
                    self.receive(now, from, message, key, out);
                }
            }
        }
        let Parts { cx, peering, .. } = &mut self.parts(now, out);
        if let Err(error) = end {
            return peering.bad_length(cx, stream, error);
        }
        cx.low.grant(stream, data.len(), is_whole);
        Ok(())
    }

    /// Handles a frame of custody. It ends at the link: it is neither stored nor forwarded (CU-7).
    fn on_custody(&mut self, now: Now, (stream, from): (StreamId, Nid), message: &Message, out: Out<'_, '_>) {
        let Parts { cx, .. } = &mut self.parts(now, out);
        let Form::Custody(custody) = read_form(message.data()) else { return };
        if message.sender != from || !cx.low.custody.speaks(stream) {
            return;
        }
        match custody.flag {
            CustodyFrame::PING => {
                let frame = message_frame(cx.low.env.own, from, &pong());
                cx.forward.write_control(&mut cx.low, stream, frame);
            }
            CustodyFrame::VERDICTS => {
                for (seen, verdict) in custody.verdicts {
                    cx.forward.on_verdict(&mut cx.low, (stream, from), seen, verdict);
                }
            }
            _ => {}
        }
    }

    /// RECEIVE (M-47): handles a message of a peer.
    fn receive(&mut self, now: Now, from: Nid, message: Message, key: Key, out: Out<'_, '_>) {
        let Parts { cx, delivery, peering, files } = &mut self.parts(now, out);
        let own = cx.low.env.own;
        tracing::trace!(state = "RECEIVE", nid = %own, from = %from, recipient = %message.recipient);
        cx.low.env.counters.messages_received += 1;
        if let Some(ip) = cx.low.ring.get(from).map(|route| *route.at.ip()) {
            peering.contacted(cx, ip);
        }
        if message.recipient == own {
            let sender = message.sender;
            let confirmed = match read_form(message.data()) {
                Form::Receipt { key, .. } => cx.low.mailboxes.answered_by(sender, key).into_iter().collect(),
                Form::Progress(progress) => files.confirmed_by(&progress, sender).into_iter().collect(),
                Form::Receipts(receipts) => delivery.covered(cx, sender, &receipts),
                Form::Refusal { epoch, number, reason, .. } => {
                    delivery.on_refusal(cx, (sender, epoch, number), reason);
                    Vec::new()
                }
                _ => Vec::new(),
            };
            return delivery.receive(cx, from, message, key, confirmed);
        }
        let seen = SeenKey::new(message.sender, message.recipient, key);
        let is_new = cx.forward.note_seen(&mut cx.low, seen);
        cx.low.env.schedule_expiry();
        if is_new || cx.low.env.config.forgets_seen() {
            cx.forward.accept(&mut cx.low, from, message, (key, seen));
        } else {
            cx.low.env.counters.duplicates_dropped += 1;
            cx.forward.on_duplicate(&mut cx.low, from, message, (key, seen));
        }
    }

    fn on_stored(&mut self, now: Now, reply: StoreReply<'_>, out: Out<'_, '_>) {
        let Some(pending) = self.lower.disk.answered(reply.op) else { return };
        let fault = if let StoreResult::Failed(fault) = reply.result { Some(fault) } else { None };
        let value = if let StoreResult::Value(value) = reply.result { value } else { None };
        let Parts { cx, delivery, files, .. } = &mut self.parts(now, out);
        let low = &mut cx.low;
        if let (Pending::Write(write), Some(StoreFault::Busy)) = (&pending, fault) {
            return low.disk.retry(low.env, now, write.clone());
        }
        if let Some(fault) = fault {
            low.env.counters.store_failed += 1;
            if !matches!(pending, Pending::Write(PendingWrite::Deliver(_))) {
                low.out.event(Event::StoreFailed { fault });
            }
        }
        match pending {
            Pending::Load => self.loaded(now, reply.result, out),
            Pending::Write(PendingWrite::Transit(transit)) => {
                if fault.is_some() {
                    low.blocks.write_failed(transit.key, transit.is_new);
                }
                cx.forward.on_stored(low, transit.entry, transit.record.is_some(), fault.is_none());
            }
            Pending::Write(PendingWrite::Deliver(stored)) => {
                if let Some(form) = delivery.on_stored(cx, *stored, fault) {
                    files.on_form(cx, delivery, &form);
                }
                cx.low.env.schedule_expiry();
                cx.low.release_credit();
            }
            Pending::Own { entry, key, is_new, request } => {
                if fault.is_some() {
                    low.blocks.write_failed(key, is_new);
                }
                cx.forward.on_own_stored(low, (entry, key), request, fault);
            }
            Pending::Close { letter, number } => delivery.on_closed(cx, letter, number, fault.is_none()),
            Pending::Cancel { request, number } => {
                super::commands::on_cancelled(cx, delivery, request, number, fault);
            }
            Pending::Promise(entry) => cx.forward.on_promised(low, entry, fault.is_none()),
            Pending::Resend { entry, key, is_new } => {
                if fault.is_some() {
                    low.blocks.write_failed(key, is_new);
                }
                cx.forward.on_resent(low, entry, fault.is_none());
            }
            Pending::Fetch(entry) => cx.forward.on_fetched(low, entry, value, fault),
            Pending::Read { request, key, is_part } => match fault {
                Some(fault) => low.out.reply(request, Reply::StoreFailed { fault }),
                None => super::commands::answer_read(cx, request, key, is_part, value),
            },
            Pending::FileSync(received) => files.on_synced(cx, delivery, received, fault.is_none()),
            Pending::Other => {}
        }
        let Lower { disk, env, .. } = &mut self.lower;
        disk.resume(env, now, out);
    }

    /// Forgets everything that has expired.
    fn expire(&mut self, now: Now, out: Out<'_, '_>) {
        let Parts { cx, delivery, peering, files } = &mut self.parts(now, out);
        cx.forward.expire_seen(now.mono);
        peering.expire(now.mono);
        files.expire_declined(cx);
        let forgotten = delivery.expire(now.mono);
        let low = &mut cx.low;
        let blocks: Vec<Key> = core::iter::from_fn(|| low.blocks.pop_expired(now.mono)).collect();
        if !forgotten.is_empty() || !blocks.is_empty() {
            let op = low.disk.begin(Pending::Other);
            low.out.batch(op, false, |batch| {
                forgotten.iter().for_each(|seen| batch.delete(SEEN, &seen.to_bytes()));
                delete_blocks(&blocks, batch);
            });
        }
        for (letter, number) in cx.forward.expire(low) {
            delivery.close_letter(cx, letter, number);
        }
        let low = &mut cx.low;
        while let Some(number) = low.mailboxes.take_overdue(now.mono) {
            low.mailboxes.set_state(low.disk, number, SentState::Unconfirmed, low.out);
        }
        low.env.schedule_expiry();
    }

    /// Sets the timer for the next deadline of any part, if one has changed.
    fn after_input(&mut self, now: Now) {
        let env = &mut self.lower.env;
        if core::mem::take(&mut env.is_custody_stale) {
            let (due_at, flush_at) = (self.lower.custody.next_deadline(), self.lower.custody.flush_at());
            env.lazy.custody.set(&mut env.timers, Timer::Custody, due_at.map(|at| not_at_once(at, now)));
            env.lazy.verdicts.set(&mut env.timers, Timer::Verdicts, flush_at);
        }
        if !core::mem::take(&mut env.is_expiry_stale) {
            return;
        }
        let deadlines = [
            self.forward.next_deadline(),
            self.delivery.next_deadline(),
            self.peering.next_deadline(),
            self.files.next_deadline(),
            self.lower.blocks.next_deadline(),
            self.lower.mailboxes.deadline(),
        ];
        self.lower.env.set_expiry(deadlines.into_iter().flatten().min(), now);
    }

    fn listeners(&self) -> Vec<Listener> {
        let extra =
            if let Announce::Incrementing { ports } = self.lower.env.config.announce { ports } else { 0 };
        let listener = |offset: u16| Listener {
            id: ListenerId::new(offset.min(255)),
            name: "mesh/tcp",
            bind: SocketAddr::from((
                *self.lower.env.config.bind.ip(),
                self.lower.env.config.bind.port() + offset,
            )),
            streams_max: self.lower.env.config.streams_max,
        };
        (0..=extra.min(255)).map(listener).collect()
    }
}

#[cfg(test)]
impl Mesh {
    pub(super) fn memory_bytes(&self) -> usize {
        self.lower.env.memory.total()
    }

    pub(super) fn unblocked_stream(&self) -> Option<StreamId> {
        self.lower.links.unblocked_stream()
    }

    pub(super) fn ops_begun(&self) -> u64 {
        self.lower.disk.begun()
    }
}

impl Machine for Mesh {
    type Command = Command;
    type Reply = Reply;
    type Event = Event;

    fn endpoints(&self) -> Endpoints {
        let names =
            ["blocks", "index", "inbox", "outbox", "queue", "seen", "known", "files", "letters", "book"];
        let spaces = [BLOCKS, INDEX, INBOX, OUTBOX, QUEUE, SEEN, KNOWN, FILES, LETTERS, BOOK];
        Endpoints {
            sockets: vec![Socket {
                id: UDP,
                name: "mesh/udp",
                bind: SocketAddr::V4(self.lower.env.config.bind),
                broadcast: Vec::new(),
            }],
            listeners: self.listeners(),
            spaces: spaces.into_iter().zip(names).map(|(id, name)| Space { id, name }).collect(),
        }
    }

    /// INIT 1 and 4 (M-29, M-32); the state NOUNCE follows once everything is read.
    fn handle_start(&mut self, now: Now, bound: &Bound, out: Out<'_, '_>) {
        if let Some(addr) = bound.listener(TCP) {
            self.lower.env.at.set_port(addr.port());
        }
        self.lower.custody.set_confirms(bound.confirms);
        tracing::debug!(state = "INIT", nid = %self.lower.env.own, at = %self.lower.env.at);
        self.load(now, out);
        self.after_input(now);
    }

    fn handle_datagram(
        &mut self,
        now: Now,
        _: SocketId,
        from: SocketAddr,
        bytes: &[u8],
        out: Out<'_, '_>,
    ) -> Result<(), Refusal> {
        let is_loading = self.is_loading();
        let Parts { cx, peering, .. } = &mut self.parts(now, out);
        let result = match decode_here(bytes) {
            Ok(_) if is_loading => Ok(()),
            Ok(here) => peering.on_here(cx, from, here),
            Err(error) => {
                cx.low.env.counters.malformed_datagrams += 1;
                Err(error.into())
            }
        };
        self.after_input(now);
        result
    }

    // Functions of their own in every build: `.ci/instructions` counts inside of them.
    #[inline(never)]
    fn handle_stream(
        &mut self,
        now: Now,
        stream: StreamId,
        event: StreamEvent<'_>,
        out: Out<'_, '_>,
    ) -> Result<(), Refusal> {
        let is_loading = self.is_loading();
        let Parts { cx, peering, .. } = &mut self.parts(now, out);
        let mut result = Ok(());
        match event {
            StreamEvent::Accepted { .. } if is_loading => cx.low.out.abort(stream),
            StreamEvent::Accepted { from, .. } => peering.accepted(cx, stream, from),
            StreamEvent::Connected { .. } => peering.connected(cx, stream),
            StreamEvent::Data(data) => result = self.on_data(now, stream, data, out),
            StreamEvent::Sent { bytes, .. } => cx.forward.on_sent(&mut cx.low, stream, bytes),
            StreamEvent::Confirmed { bytes } => cx.forward.on_confirmed(&mut cx.low, stream, bytes),
            StreamEvent::Finished => peering.finished(cx, stream),
            StreamEvent::Closed(_) => peering.closed(cx, stream),
        }
        self.after_input(now);
        result
    }

    #[inline(never)]
    fn handle_stored(&mut self, now: Now, reply: StoreReply<'_>, out: Out<'_, '_>) {
        self.on_stored(now, reply, out);
        self.after_input(now);
    }

    #[inline(never)]
    fn handle_command(&mut self, now: Now, request: RequestId, command: Command, out: Out<'_, '_>) {
        if self.lower.env.is_stopping {
            out.reply(request, Reply::Stopping);
        } else if self.is_loading() && !super::commands::is_about_members(&command) {
            // The driver waits until the store has answered; here the store could not be read.
            out.reply(request, Reply::StoreFailed { fault: StoreFault::Broken });
        } else {
            self.command(now, request, command, out);
            self.after_input(now);
        }
    }

    #[inline(never)]
    fn handle_timeout(&mut self, now: Now, out: Out<'_, '_>) {
        while let Some(timer) = self.lower.env.timers.pop_due(now.mono) {
            self.lower.env.lazy.on_due(timer);
            self.on_timer(now, timer, out);
        }
        self.after_input(now);
    }

    fn handle_stop(&mut self, now: Now, out: Out<'_, '_>) {
        if !self.lower.env.is_stopping {
            self.lower.env.is_stopping = true;
            let Parts { cx, peering, .. } = &mut self.parts(now, out);
            peering.stop(cx);
            self.after_input(now);
        }
    }

    fn is_stopped(&self) -> bool {
        self.lower.env.is_stopping && self.lower.links.len() == 0 && self.lower.disk.is_idle()
    }

    fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        self.lower.env.timers.next().map(|(at, timer)| (at, timer.name()))
    }

    fn counters(&self, visit: VisitCounter<'_>) {
        self.lower.env.counters.visit(visit);
    }

    fn timescales(&self) -> Vec<(&'static str, Duration)> {
        let own = [("mesh.handshake", HANDSHAKE), ("mesh.hold_down", HOLD_DOWN)];
        super::custody::TIMESCALES.into_iter().chain(own).collect()
    }
}
