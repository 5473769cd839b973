//! Files: offered by a manifest, sent block by block as the recipient tells what it lacks, confirmed when whole.
//!
//! Neither side holds a file in memory: the sender's application is asked for each block when its turn comes, and
//! the recipient's blocks lie in the store. At most `WINDOW_BLOCKS` are under way, so no queue between the two
//! fills up either. Everything that is needed to go on after a break is in the store.

use super::alarms::Alarm;
use super::boxes::{Received, SentState};
use super::files::{FILES_MAX, Incoming, Outgoing, PROGRESS_BLOCKS};
use super::form::{Form, Manifest, Progress, read_form, write_form};
use super::machine::{FILES, INBOX, Mesh, Out};
use super::message::Message;
use super::nid::{Key, Nid};
use super::save::Pending;
use super::{Event, Reply};
use crate::time::Now;

impl Mesh {
    /// Offers a file, or goes on with one that was offered before.
    pub(super) fn offer_file(&mut self, now: Now, to: Nid, manifest: Manifest, out: Out<'_, '_>) -> Reply {
        let file = manifest.file();
        if let Some(outgoing) = self.files.outgoing.get_mut(&file) {
            outgoing.lost_patience(now.mono);
            self.ask_recipient(now, file, out);
            return Reply::Offered { file };
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
        let data = write_form(&Form::Manifest { attempt: 0, manifest: manifest.clone() });
        if let Err(reply) = self.send_own(now, to, &data, Some(true), None, out) {
            return reply;
        }
        let op = self.begin(Pending::Other);
        let value = [&to.to_bytes()[..], &manifest.core()].concat();
        out.put(op, FILES, &file_key(b'o', file), &value, true);
        self.files.outgoing.insert(file, Outgoing::new(to, manifest, now.mono));
        self.plan_files(now);
        Reply::Offered { file }
    }

    /// The application has read a block that was wanted.
    pub(super) fn supply(
        &mut self,
        now: Now,
        file: Key,
        index: u32,
        bytes: &[u8],
        out: Out<'_, '_>,
    ) -> Reply {
        let Some(outgoing) = self.files.outgoing.get(&file) else { return Reply::NoSuchFile };
        if outgoing.manifest.blocks.get(index as usize) != Some(&Key::of(bytes)) {
            return Reply::WrongBlock;
        }
        let (to, attempt) = (outgoing.to, outgoing.attempt);
        let data = write_form(&Form::Block { file, index, attempt, bytes });
        match self.send_own(now, to, &data, None, None, out) {
            // A block that is on its way already was asked for twice; that is no fault.
            Ok(()) | Err(Reply::Duplicate { .. }) => Reply::Done,
            Err(reply) => reply,
        }
    }

    /// Forgets a file, finished or not.
    pub(super) fn drop_file(&mut self, file: Key, out: Out<'_, '_>) -> Reply {
        let outgoing = self.files.outgoing.remove(&file);
        let incoming = self.files.incoming.remove(&file);
        if outgoing.is_none() && incoming.is_none() {
            return Reply::NoSuchFile;
        }
        let parts = incoming.map(|incoming| incoming.have).unwrap_or_default();
        parts.values().for_each(|key| self.shelf.unpin(*key));
        let op = self.begin(Pending::Other);
        out.batch(op, false, |batch| {
            batch.delete(FILES, &file_key(b'o', file));
            batch.delete(FILES, &file_key(b'i', file));
            parts.keys().for_each(|index| batch.delete(FILES, &part_key(file, *index)));
        });
        Reply::Done
    }

    /// A message of a form that belongs to a file; true if its DATA is a block we keep.
    pub(super) fn file_message(&mut self, now: Now, message: &Message, key: Key, out: Out<'_, '_>) -> bool {
        match read_form(message.data()) {
            Form::Manifest { manifest, .. } => self.offered(now, message.sender, manifest, out),
            Form::Block { file, index, bytes, .. } => {
                return self.take_part(now, message.sender, (file, index, bytes), key, out);
            }
            Form::Progress(progress) => self.progressed(now, message.sender, &progress, out),
            Form::Inquiry { file, .. } => {
                if self.files.incoming.get(&file).is_some_and(|incoming| incoming.from == message.sender) {
                    self.tell_or_finish(now, file, out);
                }
            }
            Form::Plain(_) | Form::Ask { .. } | Form::Receipt { .. } => {}
        }
        false
    }

    fn offered(&mut self, now: Now, from: Nid, manifest: Manifest, out: Out<'_, '_>) {
        let file = manifest.file();
        if !self.files.incoming.contains_key(&file) {
            if self.files.incoming.values().filter(|incoming| !incoming.is_complete).count() >= FILES_MAX {
                return;
            }
            let op = self.begin(Pending::Other);
            let value = [&from.to_bytes()[..], &manifest.core()].concat();
            out.put(op, FILES, &file_key(b'i', file), &value, true);
            out.event(Event::FileOffered { file, from, name: manifest.name.clone(), size: manifest.size });
            let round = self.rng.next_u32() >> 1;
            self.files.incoming.insert(file, Incoming::new(from, manifest, round));
        }
        self.tell_or_finish(now, file, out);
    }

    /// A block of a file for us.
    fn take_part(
        &mut self,
        now: Now,
        from: Nid,
        (file, index, bytes): (Key, u32, &[u8]),
        key: Key,
        out: Out<'_, '_>,
    ) -> bool {
        let Some(incoming) = self.files.incoming.get_mut(&file) else {
            self.counters.file_blocks_unwanted += 1;
            return false;
        };
        if !incoming.wants(from, index, bytes) {
            self.counters.file_blocks_unwanted += 1;
            return false;
        }
        incoming.have.insert(index, key);
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
        let Some(incoming) = self.files.incoming.get(&file) else { return };
        if incoming.is_complete || !incoming.has_all() {
            return self.tell_progress(now, file, out);
        }
        let received = Received {
            number: self.post.allot_in(),
            from: incoming.from,
            key: file,
            size: incoming.manifest.size,
            received_at: now.wall.as_seconds(),
            is_file: true,
        };
        self.post.put_in(received);
        let op = self.begin(Pending::FileSync(file));
        // Durable, and with it everything that was written before it: all blocks.
        out.put(op, INBOX, &received.number.to_be_bytes(), &received.to_bytes(), true);
    }

    /// All blocks of a file are safe: that is its receipt.
    pub(super) fn file_synced(&mut self, now: Now, file: Key, is_safe: bool, out: Out<'_, '_>) {
        let Some(incoming) = self.files.incoming.get_mut(&file) else { return };
        if is_safe && !incoming.is_complete {
            incoming.is_complete = true;
            let (from, name, size) = (incoming.from, incoming.manifest.name.clone(), incoming.manifest.size);
            out.event(Event::FileReceived { file, from, name, size });
            self.tell_progress(now, file, out);
        }
    }

    fn tell_progress(&mut self, now: Now, file: Key, out: Out<'_, '_>) {
        if let Some(incoming) = self.files.incoming.get_mut(&file) {
            let (from, progress) = (incoming.from, incoming.progress(file));
            self.send_form(now, from, &Form::Progress(progress), out);
        }
    }

    /// The recipient of a file of ours tells how far it is.
    fn progressed(&mut self, now: Now, from: Nid, progress: &Progress, out: Out<'_, '_>) {
        let file = progress.file;
        let Some(outgoing) = self.files.outgoing.get_mut(&file).filter(|outgoing| outgoing.to == from) else {
            return;
        };
        if !progress.is_complete {
            let wanted = outgoing.progressed(progress, now.mono);
            out.event(Event::FileProgressed { file, missing: progress.missing.clone() });
            wanted.into_iter().for_each(|index| out.event(Event::BlockWanted { file, index }));
            return self.plan_files(now);
        }
        let data = write_form(&Form::Manifest { attempt: 0, manifest: outgoing.manifest.clone() });
        if let Some(number) = self.post.answered_by(from, Key::of(&data)) {
            self.set_sent_state(number, SentState::Delivered, out);
        }
        self.drop_file(file, out);
        out.event(Event::FileDelivered { file, to: from });
        self.plan_files(now);
    }

    pub(super) fn plan_files(&mut self, _: Now) {
        match self.files.deadline() {
            Some(at) if !self.is_stopping => self.alarms.set(Alarm::Files, at),
            _ => self.alarms.clear(Alarm::Files),
        }
    }

    /// Asks after every file of ours of which nothing was heard for too long.
    pub(super) fn push_files(&mut self, now: Now, out: Out<'_, '_>) {
        let silent: Vec<Key> = (self.files.outgoing.iter())
            .filter(|(_, outgoing)| outgoing.news + outgoing.patience <= now.mono)
            .map(|(file, _)| *file)
            .collect();
        for file in silent {
            if let Some(outgoing) = self.files.outgoing.get_mut(&file) {
                outgoing.lost_patience(now.mono);
                self.ask_recipient(now, file, out);
            }
        }
        self.plan_files(now);
    }

    /// Offers the file again if the recipient may not know of it, else asks what it lacks.
    fn ask_recipient(&mut self, now: Now, file: Key, out: Out<'_, '_>) {
        let Some(outgoing) = self.files.outgoing.get(&file) else { return };
        let (to, attempt) = (outgoing.to, outgoing.attempt);
        let manifest = outgoing.missing.is_none().then(|| outgoing.manifest.clone());
        match manifest {
            Some(manifest) => self.send_form(now, to, &Form::Manifest { attempt, manifest }, out),
            None => self.send_form(now, to, &Form::Inquiry { file, round: attempt }, out),
        }
    }

    /// A line of [`FILES`] at the start. Files come before their parts: `i` and `o` sort before `p`.
    pub(super) fn take_in_file(&mut self, key: &[u8], value: &[u8]) {
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
        let Ok(manifest) = Manifest::from_core(core) else { return };
        let nid = Nid::from_bytes(*nid);
        if kind == b'o' {
            let mut outgoing = Outgoing::new(nid, manifest, crate::time::Instant::ZERO);
            // What was sent before the restart is not remembered; DATA must differ from it all the same.
            outgoing.attempt = self.rng.next_u32() >> 1;
            self.files.outgoing.insert(file, outgoing);
        } else {
            let mut incoming = Incoming::new(nid, manifest, self.rng.next_u32() >> 1);
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

fn part_key(file: Key, index: u32) -> Vec<u8> {
    [&file_key(b'p', file)[..], &index.to_be_bytes()].concat()
}
