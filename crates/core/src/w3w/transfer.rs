//! Files: offered by a manifest, sent block by block as the recipient tells what it lacks, confirmed when whole.
//!
//! Neither side holds a file in memory: the sender's application is asked for each block when its turn comes, and
//! the recipient's blocks lie in the store. At most `WINDOW_BLOCKS` are under way, so no queue between the two
//! fills up either. Everything that is needed to go on after a break is in the store.

use core::time::Duration;

use super::alarms::Alarm;
use super::boxes::{Received, SentState, number};
use super::files::{FILES_MAX, Incoming, Outgoing, PROGRESS_BLOCKS, Parcel};
use super::form::{Form, Manifest, Progress, read_form, write_form};
use super::machine::{FILES, INBOX, Mesh, Out};
use super::message::Message;
use super::nid::{Key, Nid};
use super::post::remaining;
use super::save::{Listing, Pending};
use super::{Event, Reply};
use crate::time::Now;

impl Mesh {
    /// Offers a file, or goes on with one that was offered before.
    pub(super) fn offer_file(&mut self, now: Now, to: Nid, manifest: Manifest, out: Out<'_, '_>) -> Reply {
        let file = manifest.file();
        let parcel = (file, to);
        if let Some(outgoing) = self.files.outgoing.get_mut(&parcel) {
            outgoing.lost_patience(now.mono);
            outgoing.heard = now.mono;
            let number = outgoing.number;
            self.ask_recipient(now, parcel, out);
            self.plan_files(now);
            return Reply::Offered { file, number };
        }
        let is_too_long = manifest.block_bytes as usize + BLOCK_HEADER_BYTES > self.config.data_bytes_max
            || 32 * manifest.blocks.len() + BLOCK_HEADER_BYTES + usize::from(u16::MAX)
                > self.config.data_bytes_max;
        if !manifest.is_sound() || is_too_long || to == self.own {
            return Reply::BadManifest;
        }
        if self.files.outgoing.len() >= FILES_MAX {
            return Reply::QueueFull;
        }
        let mut outgoing = Outgoing::new(to, manifest, self.rng.next_u32() >> 1, now.mono);
        let data = outgoing.first_offer();
        let listing = Listing { wants_receipt: true, is_file: true, size: outgoing.manifest.size };
        if let Err(reply) = self.send_own(now, to, &data, Some(listing), None, out) {
            return reply;
        }
        let number = self.post.answered_by(to, Key::of(&data));
        outgoing.number = number;
        let op = self.begin(Pending::Other);
        let value = [&to.to_bytes()[..], &outgoing.offer.to_be_bytes(), &outgoing.manifest.core()].concat();
        out.put(op, FILES, &parcel_key(parcel), &value, true);
        self.files.outgoing.insert(parcel, outgoing);
        self.plan_files(now);
        Reply::Offered { file, number }
    }

    /// The application has read a block that was wanted.
    pub(super) fn supply(
        &mut self,
        now: Now,
        parcel: Parcel,
        index: u32,
        bytes: &[u8],
        out: Out<'_, '_>,
    ) -> Reply {
        let Some(outgoing) = self.files.outgoing.get(&parcel) else { return Reply::NoSuchFile };
        if outgoing.manifest.blocks.get(index as usize) != Some(&Key::of(bytes)) {
            return Reply::WrongBlock;
        }
        if !outgoing.wanted.contains(&index) {
            // It was asked for before a silence; it is asked for again if it is still missing.
            return Reply::Done;
        }
        let ((file, to), attempt) = (parcel, outgoing.attempt);
        let data = write_form(&Form::Block { file, index, attempt, bytes });
        match self.send_own(now, to, &data, None, None, out) {
            // A block that is on its way already was asked for twice; that is no fault.
            Ok(()) | Err(Reply::Duplicate { .. }) => {
                let outgoing = self.files.outgoing.get_mut(&parcel);
                outgoing.map(|outgoing| outgoing.wanted.remove(&index));
                Reply::Done
            }
            Err(reply) => reply,
        }
    }

    /// Gives up a file, wherever it goes. One for us is not taken again as long as somebody goes on offering it; one
    /// that has come leaves the inbox.
    pub(super) fn drop_file(&mut self, now: Now, file: Key, out: Out<'_, '_>) -> Reply {
        let parcels = self.files.outgoing.keys().filter(|(of, _)| *of == file);
        let parcels: Vec<Parcel> = parcels.copied().collect();
        for (file, peer) in &parcels {
            self.give_up(*file, *peer, out);
        }
        let incoming = self.files.incoming.get(&file).map(|incoming| (incoming.from, incoming.is_complete));
        match incoming {
            Some((_, true)) => {
                let number = self.post.file_number(file);
                number.map(|number| self.remove_received(now, number, out));
            }
            Some((from, false)) => {
                self.drop_incoming(file, out);
                self.decline(now, file, out);
                out.event(Event::FileGivenUp { file, peer: from });
                self.knock(now);
            }
            None if parcels.is_empty() => return Reply::NoSuchFile,
            None => {}
        }
        self.plan_files(now);
        Reply::Done
    }

    /// A file of ours is given up; whether it arrived is not known.
    fn give_up(&mut self, file: Key, peer: Nid, out: Out<'_, '_>) {
        let number = self.drop_outgoing((file, peer), out).and_then(|outgoing| outgoing.number);
        number.map(|number| self.set_sent_state(number, SentState::Unknown, out));
        if let Some(line) = number.and_then(|number| self.queue.line_of(number)) {
            self.forget_line(line, out);
        }
        out.event(Event::FileGivenUp { file, peer });
    }

    /// A file is not wanted: offers of it are not heard until they have ceased for `expiry`.
    fn decline(&mut self, now: Now, file: Key, out: Out<'_, '_>) {
        self.declined.add(file, now.mono, now.mono + self.config.expiry);
        let until = now.wall.as_seconds() + self.config.expiry.as_secs();
        let op = self.begin(Pending::Other);
        out.put(op, FILES, &file_key(b'd', file), &until.to_be_bytes(), false);
        self.remind(now);
    }

    /// Forgets that a file was not wanted.
    pub(super) fn forget_declined(&mut self, now: Now, out: Out<'_, '_>) {
        while let Some(file) = self.declined.take_expired(now.mono) {
            let op = self.begin(Pending::Other);
            out.delete(op, FILES, &file_key(b'd', file), false);
        }
    }

    fn drop_outgoing(&mut self, parcel: Parcel, out: Out<'_, '_>) -> Option<Outgoing> {
        let outgoing = self.files.outgoing.remove(&parcel)?;
        let op = self.begin(Pending::Other);
        out.delete(op, FILES, &parcel_key(parcel), false);
        Some(outgoing)
    }

    /// Forgets a file for us; from then on nobody waits for its blocks.
    pub(super) fn drop_incoming(&mut self, file: Key, out: Out<'_, '_>) -> bool {
        let Some(incoming) = self.files.incoming.remove(&file) else { return false };
        incoming.have.values().for_each(|key| self.shelf.unpin(*key));
        let op = self.begin(Pending::Other);
        out.batch(op, false, |batch| {
            batch.delete(FILES, &file_key(b'i', file));
            incoming.have.keys().for_each(|index| batch.delete(FILES, &part_key(file, *index)));
        });
        true
    }

    /// A message of a form that belongs to a file; true if its DATA is a block we keep.
    pub(super) fn file_message(&mut self, now: Now, message: &Message, key: Key, out: Out<'_, '_>) -> bool {
        match read_form(message.data()) {
            Form::Manifest { manifest, .. } => self.offered(now, message.sender, manifest, out),
            Form::Block { file, index, bytes, .. } => {
                return self.take_part(now, (file, index, bytes), key, out);
            }
            Form::Progress(progress) => self.progressed(now, message.sender, &progress, out),
            Form::Inquiry { file, .. } => {
                let incoming = self.files.incoming.get(&file);
                if incoming.is_some_and(|incoming| incoming.senders().any(|nid| nid == message.sender)) {
                    self.tell_or_finish(now, file, out);
                }
            }
            Form::Plain(_) | Form::Ask { .. } | Form::Receipt { .. } => {}
        }
        false
    }

    fn offered(&mut self, now: Now, from: Nid, manifest: Manifest, out: Out<'_, '_>) {
        let file = manifest.file();
        if self.declined.has(file, now.mono) {
            return self.decline(now, file, out);
        }
        if let Some(incoming) = self.files.incoming.get_mut(&file) {
            if !incoming.is_sent_by(from) {
                return;
            }
        } else {
            if self.files.incoming.values().filter(|incoming| !incoming.is_complete).count() >= FILES_MAX {
                return;
            }
            let op = self.begin(Pending::Other);
            let value = [&from.to_bytes()[..], &manifest.core()].concat();
            out.put(op, FILES, &file_key(b'i', file), &value, true);
            out.event(Event::FileOffered { file, from, name: manifest.shown_name(), size: manifest.size });
            let round = self.rng.next_u32() >> 1;
            self.files.incoming.insert(file, Incoming::new(from, manifest, round, now.mono));
            self.plan_files(now);
        }
        self.tell_or_finish(now, file, out);
    }

    /// A block of a file for us.
    fn take_part(
        &mut self,
        now: Now,
        (file, index, bytes): (Key, u32, &[u8]),
        key: Key,
        out: Out<'_, '_>,
    ) -> bool {
        let Some(incoming) = self.files.incoming.get_mut(&file) else {
            self.counters.file_blocks_unwanted += 1;
            return false;
        };
        if !incoming.wants(index, bytes) {
            self.counters.file_blocks_unwanted += 1;
            return false;
        }
        incoming.have.insert(index, key);
        incoming.news = now.mono;
        incoming.since_progress += 1;
        let is_time = incoming.since_progress >= PROGRESS_BLOCKS || incoming.has_all();
        let op = self.begin(Pending::Other);
        out.put(op, FILES, &part_key(file, index), &key.to_bytes(), false);
        if is_time {
            self.tell_or_finish(now, file, out);
        }
        true
    }

    /// Tells how far a file is; if it is whole, makes it safe first.
    fn tell_or_finish(&mut self, now: Now, file: Key, out: Out<'_, '_>) {
        let Some(incoming) = self.files.incoming.get_mut(&file) else { return };
        if incoming.is_complete || !incoming.has_all() {
            return self.tell_progress(now, file, out);
        }
        if core::mem::replace(&mut incoming.is_finishing, true) {
            return;
        }
        let received = Received {
            number: self.post.allot_in(),
            from: incoming.from,
            key: file,
            size: incoming.manifest.size,
            received_at: now.wall.as_seconds(),
            is_file: true,
        };
        let op = self.begin(Pending::FileSync(received));
        // Durable, and with it everything that was written before it: all blocks.
        out.put(op, INBOX, &received.number.to_be_bytes(), &received.to_bytes(), true);
    }

    /// All blocks of a file are safe: that is its receipt.
    pub(super) fn file_synced(&mut self, now: Now, received: Received, is_safe: bool, out: Out<'_, '_>) {
        let file = received.key;
        let Some(incoming) = self.files.incoming.get_mut(&file) else { return };
        incoming.is_finishing = false;
        if is_safe {
            incoming.is_complete = true;
            let (from, name, size) = (incoming.from, incoming.manifest.shown_name(), incoming.manifest.size);
            self.put_received(received, out);
            out.event(Event::FileReceived { file, from, name, size });
            self.tell_progress(now, file, out);
        }
    }

    fn tell_progress(&mut self, now: Now, file: Key, out: Out<'_, '_>) {
        if let Some(incoming) = self.files.incoming.get_mut(&file) {
            let (senders, progress): (Vec<Nid>, _) = (incoming.senders().collect(), incoming.progress(file));
            for to in senders {
                self.send_form(now, to, &Form::Progress(progress.clone()), out);
            }
        }
    }

    /// The recipient of a file of ours tells how far it is.
    fn progressed(&mut self, now: Now, from: Nid, progress: &Progress, out: Out<'_, '_>) {
        let (file, parcel) = (progress.file, (progress.file, from));
        let Some(outgoing) = self.files.outgoing.get_mut(&parcel) else { return };
        if !progress.is_complete {
            let wanted = outgoing.progressed(progress, now.mono);
            out.event(Event::FileProgressed { file, to: from, missing: progress.missing.clone() });
            wanted.into_iter().for_each(|index| out.event(Event::BlockWanted { file, to: from, index }));
            return self.plan_files(now);
        }
        // What the outbox says of it has been written down together with this message.
        self.drop_outgoing(parcel, out);
        out.event(Event::FileDelivered { file, to: from });
        self.plan_files(now);
    }

    pub(super) fn plan_files(&mut self, now: Now) {
        match self.files.deadline(self.config.expiry, self.config.keep) {
            Some(at) if !self.is_stopping => self.alarms.set(Alarm::Files, at.max(now.mono)),
            _ => self.alarms.clear(Alarm::Files),
        }
    }

    /// Asks after every file of ours of which nothing was heard for too long, and gives up what is hopeless: a file
    /// of ours when its recipient was silent for as long as a message may wait, one for us after `keep`.
    pub(super) fn push_files(&mut self, now: Now, out: Out<'_, '_>) {
        let ours = (self.files.outgoing.iter())
            .filter(|(_, outgoing)| outgoing.heard + self.config.expiry <= now.mono)
            .map(|(parcel, _)| *parcel);
        let theirs = (self.files.incoming.iter())
            .filter(|(_, incoming)| !incoming.is_complete && incoming.news + self.config.keep <= now.mono)
            .map(|(file, incoming)| (*file, incoming.from));
        let (ours, theirs): (Vec<_>, Vec<_>) = (ours.collect(), theirs.collect());
        for (file, peer) in ours {
            self.give_up(file, peer, out);
        }
        for (file, peer) in theirs {
            self.drop_incoming(file, out);
            out.event(Event::FileGivenUp { file, peer });
        }
        let silent: Vec<Parcel> = (self.files.outgoing.iter())
            .filter(|(_, outgoing)| outgoing.news + outgoing.patience <= now.mono)
            .map(|(parcel, _)| *parcel)
            .collect();
        for parcel in silent {
            if let Some(outgoing) = self.files.outgoing.get_mut(&parcel) {
                outgoing.lost_patience(now.mono);
                self.ask_recipient(now, parcel, out);
            }
        }
        self.plan_files(now);
    }

    /// Offers the file again if the recipient may not know of it, else asks what it lacks.
    fn ask_recipient(&mut self, now: Now, parcel: Parcel, out: Out<'_, '_>) {
        let Some(outgoing) = self.files.outgoing.get(&parcel) else { return };
        let ((file, to), attempt) = (parcel, outgoing.attempt);
        // Now and then the file is offered anew all the same: the recipient may have forgotten it.
        let is_new = outgoing.missing.is_none() || attempt.is_multiple_of(4);
        let manifest = is_new.then(|| outgoing.manifest.clone());
        match manifest {
            Some(manifest) => self.send_form(now, to, &Form::Manifest { attempt, manifest }, out),
            None => self.send_form(now, to, &Form::Inquiry { file, round: attempt }, out),
        }
    }

    /// A line of [`FILES`] at the start. Files come before their parts: `d`, `i` and `o` sort before `p`.
    pub(super) fn take_in_file(&mut self, now: Now, key: &[u8], value: &[u8]) {
        if let (Some((b'd', file)), Ok(until)) = (key.split_first(), number(value)) {
            let left = remaining(until, now.wall.as_seconds(), self.config.expiry);
            if let Ok(file) = file.try_into() {
                self.declined.add(Key::from_bytes(file), now.mono, now.mono + left);
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
            if let (Some(incoming), Ok(index)) = (self.files.incoming.get_mut(&file), index.try_into()) {
                let key = Key::from_bytes(*nid);
                if self.shelf.has(key) {
                    self.shelf.pin(key);
                    incoming.have.insert(u32::from_be_bytes(index), key);
                }
            }
            return;
        }
        let nid = Nid::from_bytes(*nid);
        if kind == b'o' {
            let Some((offer, core)) = core.split_first_chunk::<4>() else { return };
            let Ok(manifest) = Manifest::from_core(core) else { return };
            let mut outgoing = Outgoing::new(nid, manifest, u32::from_be_bytes(*offer), now.mono);
            // What was sent before the restart is not remembered; DATA must differ from it all the same.
            outgoing.attempt = self.rng.next_u32() >> 1;
            outgoing.patience = Duration::ZERO;
            outgoing.number = self.post.answered_by(nid, Key::of(&outgoing.first_offer()));
            self.files.outgoing.insert((file, nid), outgoing);
        } else if let Ok(manifest) = Manifest::from_core(core) {
            let mut incoming = Incoming::new(nid, manifest, self.rng.next_u32() >> 1, now.mono);
            incoming.is_complete = self.post.has_file(file);
            self.files.incoming.insert(file, incoming);
        }
    }
}

/// What stands before the bytes of a block: magic, kind, file, index, attempt.
const BLOCK_HEADER_BYTES: usize = 16 + 1 + 32 + 4 + 4;

fn file_key(kind: u8, file: Key) -> Vec<u8> {
    [&[kind][..], &file.to_bytes()].concat()
}

fn parcel_key((file, to): Parcel) -> Vec<u8> {
    [&file_key(b'o', file)[..], &to.to_bytes()].concat()
}

fn part_key(file: Key, index: u32) -> Vec<u8> {
    [&file_key(b'p', file)[..], &index.to_be_bytes()].concat()
}
