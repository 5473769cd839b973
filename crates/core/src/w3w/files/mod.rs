//! Files: offered by a manifest, sent block by block as the recipient reports missing blocks, confirmed when complete.
//!
//! Neither side holds a file in memory: the sender's application supplies each block when its turn comes, and the
//! recipient's blocks are in the store. At most `WINDOW_BLOCKS` are under way, so no queue between the two fills up.
//! The store has everything that is needed to continue after a restart.

mod state;

use core::time::Duration;
use std::collections::BTreeMap;

use super::delivery::{Delivery, FileForm};
use super::disk::Pending;
use super::env::Cx;
use super::form::{Form, Manifest, Progress, read_form};
use super::machine::{FILES, HOLD_DOWN_MAX, INBOX};
use super::mailboxes::{Listing, remaining};
use super::message::Message;
use super::nid::{Key, Nid};
use super::records::{Received, SentState, number};
use super::timers::Timer;
use super::{Event, Reply};
use crate::common::ExpiringSet;
use crate::time::Instant;

pub use state::FileStatus;
use state::{FILES_MAX, Incoming, Outgoing, PROGRESS_BLOCKS, Transfer};

/// Files from this node and files for it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Files {
    /// By file and recipient: the same file may go to several recipients.
    outgoing: BTreeMap<Transfer, Outgoing>,
    incoming: BTreeMap<Key, Incoming>,
    /// Declined files.
    declined: ExpiringSet<Key>,
}

impl Files {
    pub(super) fn new() -> Self {
        let declined = ExpiringSet::new(HOLD_DOWN_MAX);
        Self { outgoing: BTreeMap::new(), incoming: BTreeMap::new(), declined }
    }

    /// The key of a block of an incoming file.
    pub(super) fn block_key(&self, file: Key, index: u32) -> Option<Key> {
        self.incoming.get(&file)?.have.get(&index).copied()
    }

    /// The next timeout: an outgoing file times out after `expiry` without an answer, an incoming one after `keep`.
    pub(super) fn deadline(&self, expiry: Duration, keep: Duration) -> Option<Instant> {
        let ours = |outgoing: &Outgoing| {
            (outgoing.last_progress + outgoing.retry_after).min(outgoing.heard + expiry)
        };
        let silent = self.outgoing.values().map(ours);
        let unfinished = self.incoming.values().filter(|incoming| !incoming.is_complete);
        silent.chain(unfinished.map(|incoming| incoming.last_progress + keep)).min()
    }

    pub(super) fn list(&self) -> Vec<FileStatus> {
        let outgoing = self.outgoing.iter().map(|((file, _), outgoing)| outgoing.status(*file));
        let incoming = self.incoming.iter().map(|(file, incoming)| incoming.status(*file));
        outgoing.chain(incoming).collect()
    }

    /// The status of one outgoing or incoming file.
    pub(super) fn status(&self, file: Key, to: Option<Nid>) -> Option<FileStatus> {
        match to {
            Some(to) => self.outgoing.get(&(file, to)).map(|outgoing| outgoing.status(file)),
            None => self.incoming.get(&file).map(|incoming| incoming.status(file)),
        }
    }

    /// Offers a file, or continues one that was offered before.
    pub(super) fn offer(
        &mut self,
        cx: &mut Cx<'_, '_>,
        delivery: &mut Delivery,
        to: Nid,
        manifest: Manifest,
    ) -> Reply {
        let file = manifest.file();
        let transfer = (file, to);
        if let Some(outgoing) = self.outgoing.get_mut(&transfer) {
            outgoing.on_timeout(cx.low.now.mono);
            outgoing.heard = cx.low.now.mono;
            let number = outgoing.number;
            self.ask_recipient(cx, delivery, transfer);
            self.schedule(cx);
            return Reply::Offered { file, number };
        }
        let is_too_long = manifest.block_bytes as usize + BLOCK_HEADER_BYTES
            > cx.low.env.config.data_bytes_max
            || 32 * manifest.blocks.len() + BLOCK_HEADER_BYTES + usize::from(u16::MAX)
                > cx.low.env.config.data_bytes_max;
        if !manifest.is_sound() || is_too_long || to == cx.low.env.own {
            return Reply::BadManifest;
        }
        if self.outgoing.len() >= FILES_MAX {
            return Reply::QueueFull;
        }
        let mut outgoing = Outgoing::new(to, manifest, cx.low.env.rng.next_u32() >> 1, cx.low.now.mono);
        let data = outgoing.first_offer();
        let size = outgoing.manifest.size;
        let lifetime = cx.low.env.config.expiry;
        let listing = Listing { wants_receipt: true, is_file: true, size, letter: None, lifetime };
        let message = Message::new(cx.low.env.own, to, &data);
        if let Err(reply) = delivery.send(cx, message, Some(listing), None) {
            return reply;
        }
        let number = cx.low.mailboxes.answered_by(to, Key::of(&data));
        outgoing.number = number;
        let op = cx.low.disk.begin(Pending::Other);
        let value = [&to.to_bytes()[..], &outgoing.offer.to_be_bytes(), &outgoing.manifest.core()].concat();
        cx.low.out.put(op, FILES, &transfer_key(transfer), &value, true);
        self.outgoing.insert(transfer, outgoing);
        self.schedule(cx);
        Reply::Offered { file, number }
    }

    /// Takes a requested block from the application.
    pub(super) fn supply(
        &mut self,
        cx: &mut Cx<'_, '_>,
        delivery: &mut Delivery,
        transfer: Transfer,
        index: u32,
        bytes: &[u8],
    ) -> Reply {
        let Some(outgoing) = self.outgoing.get(&transfer) else { return Reply::NoSuchFile };
        if outgoing.manifest.blocks.get(index as usize) != Some(&Key::of(bytes)) {
            return Reply::WrongBlock;
        }
        if !outgoing.wanted.contains(&index) {
            // It was requested before a timeout. If it is still missing, it is requested again.
            return Reply::Done;
        }
        let ((file, to), attempt) = (transfer, outgoing.attempt);
        let form = Form::Block { file, index, attempt, bytes };
        let message = Message::of_form(cx.low.env.own, to, &form);
        match delivery.send(cx, message, None, None) {
            // A block that is already under way was requested twice; that is no error.
            Ok(_) | Err(Reply::Duplicate { .. }) => {
                let outgoing = self.outgoing.get_mut(&transfer);
                outgoing.map(|outgoing| outgoing.wanted.remove(&index));
                Reply::Done
            }
            Err(reply) => reply,
        }
    }

    /// Drops a file in any direction. The node declines an incoming one while its sender offers it; a received one
    /// leaves the inbox.
    pub(super) fn drop(&mut self, cx: &mut Cx<'_, '_>, delivery: &mut Delivery, file: Key) -> Reply {
        let transfers = self.outgoing.keys().filter(|(of, _)| *of == file);
        let transfers: Vec<Transfer> = transfers.copied().collect();
        for (file, peer) in &transfers {
            self.give_up(cx, *file, *peer);
        }
        let incoming = self.incoming.get(&file).map(|incoming| (incoming.from, incoming.is_complete));
        match incoming {
            Some((_, true)) => {
                let number = cx.low.mailboxes.file_number(file);
                number.map(|number| self.remove_received(cx, delivery, number));
            }
            Some((from, false)) => {
                self.drop_incoming(cx, file);
                self.decline(cx, file);
                cx.low.out.event(Event::FileGivenUp { file, peer: from });
                delivery.wake_deferred(cx);
            }
            None if transfers.is_empty() => return Reply::NoSuchFile,
            None => {}
        }
        self.schedule(cx);
        Reply::Done
    }

    /// Ends an outgoing file; whether it arrived is unknown.
    fn give_up(&mut self, cx: &mut Cx<'_, '_>, file: Key, peer: Nid) {
        let number = self.drop_outgoing(cx, (file, peer)).and_then(|outgoing| outgoing.number);
        if let Some(number) = number {
            let low = &mut cx.low;
            low.mailboxes.set_state(low.disk, number, SentState::Unconfirmed, low.out);
            cx.forward.drop_own(low, number);
        }
        cx.low.out.event(Event::FileGivenUp { file, peer });
    }

    /// Declines a file: offers of it are ignored until none came for `expiry`.
    fn decline(&mut self, cx: &mut Cx<'_, '_>, file: Key) {
        self.declined.insert(file, cx.low.now.mono, cx.low.now.mono + cx.low.env.config.expiry);
        let until = cx.low.now.wall.as_seconds() + cx.low.env.config.expiry.as_secs();
        let op = cx.low.disk.begin(Pending::Other);
        cx.low.out.put(op, FILES, &file_key(b'd', file), &until.to_be_bytes(), false);
        cx.low.env.schedule_expiry();
    }

    /// Forgets declined files that have expired.
    pub(super) fn expire_declined(&mut self, cx: &mut Cx<'_, '_>) {
        while let Some(file) = self.declined.pop_expired(cx.low.now.mono) {
            let op = cx.low.disk.begin(Pending::Other);
            cx.low.out.delete(op, FILES, &file_key(b'd', file), false);
        }
    }

    fn drop_outgoing(&mut self, cx: &mut Cx<'_, '_>, transfer: Transfer) -> Option<Outgoing> {
        let outgoing = self.outgoing.remove(&transfer)?;
        let op = cx.low.disk.begin(Pending::Other);
        cx.low.out.delete(op, FILES, &transfer_key(transfer), false);
        Some(outgoing)
    }

    /// Drops an incoming file, and unpins its blocks.
    pub(super) fn drop_incoming(&mut self, cx: &mut Cx<'_, '_>, file: Key) -> bool {
        let Some(incoming) = self.incoming.remove(&file) else { return false };
        incoming.have.values().for_each(|key| cx.low.blocks.unpin(*key));
        let op = cx.low.disk.begin(Pending::Other);
        cx.low.out.batch(op, false, |batch| {
            batch.delete(FILES, &file_key(b'i', file));
            incoming.have.keys().for_each(|index| batch.delete(FILES, &part_key(file, *index)));
        });
        true
    }

    /// Handles a message of a form that belongs to a file.
    pub(super) fn on_form(&mut self, cx: &mut Cx<'_, '_>, delivery: &mut Delivery, form: &FileForm) {
        let (sender, mut stays_pinned) = (form.message.sender, false);
        match read_form(form.message.data()) {
            Form::Manifest { manifest, .. } => self.offered(cx, delivery, sender, manifest),
            Form::Block { file, index, bytes, .. } => {
                stays_pinned = self.take_part(cx, delivery, (file, index, bytes), form.key);
            }
            Form::Progress(progress) => self.progressed(cx, sender, &progress),
            Form::ProgressRequest { file, .. } => {
                let incoming = self.incoming.get(&file);
                if incoming.is_some_and(|incoming| incoming.senders().any(|nid| nid == sender)) {
                    self.tell_or_finish(cx, delivery, file);
                }
            }
            _ => {}
        }
        if form.is_pinned && !stays_pinned {
            cx.low.blocks.unpin(form.key);
        }
    }

    /// The outbox line of the file that a progress message confirms.
    pub(super) fn confirmed_by(&self, progress: &Progress, from: Nid) -> Option<u64> {
        let outgoing = self.outgoing.get(&(progress.file, from)).filter(|_| progress.is_complete)?;
        outgoing.number
    }

    /// Removes a line from the inbox and unpins its blocks.
    pub(super) fn remove_received(
        &mut self,
        cx: &mut Cx<'_, '_>,
        delivery: &mut Delivery,
        number: u64,
    ) -> Reply {
        let Some(line) = cx.low.mailboxes.remove_in(number) else { return Reply::NoSuchMessage };
        if line.is_file {
            self.drop_incoming(cx, line.key);
        } else {
            cx.low.blocks.unpin(line.key);
        }
        cx.low.delete(INBOX, &number.to_be_bytes());
        delivery.wake_deferred(cx);
        Reply::Done
    }

    /// At most two keys of files in a range.
    pub(super) fn range(&self, first: Key, last: Key, with_outgoing: bool) -> impl Iterator<Item = Key> {
        let incoming = self.incoming.range(first..=last).map(|(key, _)| *key).take(2);
        let transfers = (first, Nid::from_bytes([0; 32]))..=(last, Nid::from_bytes([255; 32]));
        let outgoing = self.outgoing.range(transfers).map(|((key, _), _)| *key);
        incoming.chain(outgoing.take(if with_outgoing { usize::MAX } else { 0 }))
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.declined.next_deadline()
    }

    fn offered(&mut self, cx: &mut Cx<'_, '_>, delivery: &mut Delivery, from: Nid, manifest: Manifest) {
        let file = manifest.file();
        if self.declined.contains(file, cx.low.now.mono) {
            return self.decline(cx, file);
        }
        if let Some(incoming) = self.incoming.get_mut(&file) {
            if !incoming.is_sent_by(from) {
                return;
            }
        } else {
            if self.incoming.values().filter(|incoming| !incoming.is_complete).count() >= FILES_MAX {
                return;
            }
            let op = cx.low.disk.begin(Pending::Other);
            let value = [&from.to_bytes()[..], &manifest.core()].concat();
            cx.low.out.put(op, FILES, &file_key(b'i', file), &value, true);
            cx.low.out.event(Event::FileOffered {
                file,
                from,
                name: manifest.shown_name(),
                size: manifest.size,
            });
            let round = cx.low.env.rng.next_u32() >> 1;
            self.incoming.insert(file, Incoming::new(from, manifest, round, cx.low.now.mono));
            self.schedule(cx);
        }
        self.tell_or_finish(cx, delivery, file);
    }

    /// Handles a block of an incoming file.
    fn take_part(
        &mut self,
        cx: &mut Cx<'_, '_>,
        delivery: &mut Delivery,
        (file, index, bytes): (Key, u32, &[u8]),
        key: Key,
    ) -> bool {
        let Some(incoming) = self.incoming.get_mut(&file) else {
            cx.low.env.counters.file_blocks_unwanted += 1;
            return false;
        };
        if !incoming.wants(index, bytes) {
            cx.low.env.counters.file_blocks_unwanted += 1;
            return false;
        }
        incoming.have.insert(index, key);
        incoming.last_progress = cx.low.now.mono;
        incoming.since_progress += 1;
        let is_time = incoming.since_progress >= PROGRESS_BLOCKS || incoming.has_all();
        let op = cx.low.disk.begin(Pending::Other);
        cx.low.out.put(op, FILES, &part_key(file, index), &key.to_bytes(), false);
        if is_time {
            self.tell_or_finish(cx, delivery, file);
        }
        true
    }

    /// Reports the progress of a file to its senders; a complete file is synced first.
    fn tell_or_finish(&mut self, cx: &mut Cx<'_, '_>, delivery: &mut Delivery, file: Key) {
        let Some(incoming) = self.incoming.get_mut(&file) else { return };
        if incoming.is_complete || !incoming.has_all() {
            return self.tell_progress(cx, delivery, file);
        }
        if core::mem::replace(&mut incoming.is_finishing, true) {
            return;
        }
        let received = Received {
            number: cx.low.mailboxes.allot_in(),
            from: incoming.from,
            key: file,
            size: incoming.manifest.size,
            received_at: cx.low.now.wall.as_seconds(),
            is_file: true,
        };
        let op = cx.low.disk.begin(Pending::FileSync(received));
        // Durable, and with it everything that was written before: all blocks.
        cx.low.out.put(op, INBOX, &received.number.to_be_bytes(), &received.to_bytes(), true);
    }

    /// Handles the sync of a complete file, and sends its receipt.
    pub(super) fn on_synced(
        &mut self,
        cx: &mut Cx<'_, '_>,
        delivery: &mut Delivery,
        received: Received,
        is_safe: bool,
    ) {
        let file = received.key;
        let Some(incoming) = self.incoming.get_mut(&file) else { return };
        incoming.is_finishing = false;
        if is_safe {
            incoming.is_complete = true;
            let (from, name, size) = (incoming.from, incoming.manifest.shown_name(), incoming.manifest.size);
            cx.low.mailboxes.insert_inbox(received);
            cx.low.out.event(Event::FileReceived { file, from, name, size });
            self.tell_progress(cx, delivery, file);
        }
    }

    fn tell_progress(&mut self, cx: &mut Cx<'_, '_>, delivery: &mut Delivery, file: Key) {
        if let Some(incoming) = self.incoming.get_mut(&file) {
            let (senders, progress): (Vec<Nid>, _) = (incoming.senders().collect(), incoming.progress(file));
            for to in senders {
                delivery.send_form(cx, to, &Form::Progress(progress.clone()));
            }
        }
    }

    /// Handles the progress of an outgoing file that its recipient reports.
    fn progressed(&mut self, cx: &mut Cx<'_, '_>, from: Nid, progress: &Progress) {
        let (file, transfer) = (progress.file, (progress.file, from));
        let Some(outgoing) = self.outgoing.get_mut(&transfer) else { return };
        if !progress.is_complete {
            let wanted = outgoing.progressed(progress, cx.low.now.mono);
            cx.low.out.event(Event::FileProgressed { file, to: from, missing: progress.missing.clone() });
            wanted
                .into_iter()
                .for_each(|index| cx.low.out.event(Event::BlockWanted { file, to: from, index }));
            return self.schedule(cx);
        }
        // The state of its outbox line was written together with this message.
        self.drop_outgoing(cx, transfer);
        cx.low.out.event(Event::FileDelivered { file, to: from });
        self.schedule(cx);
    }

    pub(super) fn schedule(&mut self, cx: &mut Cx<'_, '_>) {
        match self.deadline(cx.low.env.config.expiry, cx.low.env.config.keep) {
            Some(at) if !cx.low.env.is_stopping => {
                cx.low.env.timers.set(Timer::Files, at.max(cx.low.now.mono));
            }
            _ => drop(cx.low.env.timers.cancel(Timer::Files)),
        }
    }

    /// Sends a request for every outgoing file without recent progress. It ends outgoing files whose recipient was
    /// silent for `expiry`, and incoming files without progress for `keep`.
    pub(super) fn push(&mut self, cx: &mut Cx<'_, '_>, delivery: &mut Delivery) {
        let ours = (self.outgoing.iter())
            .filter(|(_, outgoing)| outgoing.heard + cx.low.env.config.expiry <= cx.low.now.mono)
            .map(|(transfer, _)| *transfer);
        let theirs = (self.incoming.iter())
            .filter(|(_, incoming)| {
                !incoming.is_complete && incoming.last_progress + cx.low.env.config.keep <= cx.low.now.mono
            })
            .map(|(file, incoming)| (*file, incoming.from));
        let (ours, theirs): (Vec<_>, Vec<_>) = (ours.collect(), theirs.collect());
        for (file, peer) in ours {
            self.give_up(cx, file, peer);
        }
        for (file, peer) in theirs {
            self.drop_incoming(cx, file);
            cx.low.out.event(Event::FileGivenUp { file, peer });
        }
        let silent: Vec<Transfer> = (self.outgoing.iter())
            .filter(|(_, outgoing)| outgoing.last_progress + outgoing.retry_after <= cx.low.now.mono)
            .map(|(transfer, _)| *transfer)
            .collect();
        for transfer in silent {
            if let Some(outgoing) = self.outgoing.get_mut(&transfer) {
                outgoing.on_timeout(cx.low.now.mono);
                self.ask_recipient(cx, delivery, transfer);
            }
        }
        self.schedule(cx);
    }

    /// Offers the file again if the recipient may not know it, else requests its progress.
    fn ask_recipient(&mut self, cx: &mut Cx<'_, '_>, delivery: &mut Delivery, transfer: Transfer) {
        let Some(outgoing) = self.outgoing.get(&transfer) else { return };
        let ((file, to), attempt) = (transfer, outgoing.attempt);
        // Every fourth time the file is offered again: the recipient may have forgotten it.
        let is_new = outgoing.missing.is_none() || attempt.is_multiple_of(4);
        let manifest = is_new.then(|| outgoing.manifest.clone());
        match manifest {
            Some(manifest) => delivery.send_form(cx, to, &Form::Manifest { attempt, manifest }),
            None => delivery.send_form(cx, to, &Form::ProgressRequest { file, round: attempt }),
        }
    }

    /// Loads a record of [`FILES`]. Files come before their parts: `d`, `i` and `o` sort before `p`.
    pub(super) fn load(&mut self, cx: &mut Cx<'_, '_>, key: &[u8], value: &[u8]) {
        if let (Some((b'd', file)), Ok(until)) = (key.split_first(), number(value)) {
            let left = remaining(until, cx.low.now.wall.as_seconds(), cx.low.env.config.expiry);
            if let Ok(file) = file.try_into() {
                self.declined.insert(Key::from_bytes(file), cx.low.now.mono, cx.low.now.mono + left);
            }
            return;
        }
        let (Some((&kind, name)), Some((nid, core))) = (key.split_first(), value.split_first_chunk::<32>())
        else {
            return;
        };
        let Some((&file, index)) = name.split_first_chunk::<32>() else { return };
        let file = Key::from_bytes(file);
        if kind == b'p' {
            if let (Some(incoming), Ok(index)) = (self.incoming.get_mut(&file), index.try_into()) {
                let key = Key::from_bytes(*nid);
                if cx.low.blocks.contains(key) {
                    cx.low.blocks.pin(key);
                    incoming.have.insert(u32::from_be_bytes(index), key);
                }
            }
            return;
        }
        let nid = Nid::from_bytes(*nid);
        if kind == b'o' {
            let Some((offer, core)) = core.split_first_chunk::<4>() else { return };
            let Ok(manifest) = Manifest::from_core(core) else { return };
            let mut outgoing = Outgoing::new(nid, manifest, u32::from_be_bytes(*offer), cx.low.now.mono);
            // Attempts from before the restart are not remembered; a random start makes DATA differ from them.
            outgoing.attempt = cx.low.env.rng.next_u32() >> 1;
            outgoing.retry_after = Duration::ZERO;
            outgoing.number = cx.low.mailboxes.answered_by(nid, Key::of(&outgoing.first_offer()));
            self.outgoing.insert((file, nid), outgoing);
        } else if let Ok(manifest) = Manifest::from_core(core) {
            let mut incoming = Incoming::new(nid, manifest, cx.low.env.rng.next_u32() >> 1, cx.low.now.mono);
            incoming.is_complete = cx.low.mailboxes.has_file(file);
            self.incoming.insert(file, incoming);
        }
    }
}

/// The bytes before those of a block: magic, kind, file, index, attempt.
const BLOCK_HEADER_BYTES: usize = 16 + 1 + 32 + 4 + 4;

fn file_key(kind: u8, file: Key) -> Vec<u8> {
    [&[kind][..], &file.to_bytes()].concat()
}

fn transfer_key((file, to): Transfer) -> Vec<u8> {
    [&file_key(b'o', file)[..], &to.to_bytes()].concat()
}

fn part_key(file: Key, index: u32) -> Vec<u8> {
    [&file_key(b'p', file)[..], &index.to_be_bytes()].concat()
}
