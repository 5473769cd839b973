//! What the application asks.

use super::form::{Form, write_form};
use super::machine::{BLOCKS, INBOX, Mesh, Out};
use super::nid::{Key, Nid};
use super::save::{Listing, Pending, forget_blocks};
use super::{Command, Reply, Status};
use crate::tag::RequestId;
use crate::time::Now;

/// The most lines of inbox or outbox in one reply.
const LINES_MAX: usize = 1024;

impl Mesh {
    pub(super) fn command(&mut self, now: Now, request: RequestId, command: Command, out: Out<'_, '_>) {
        let reply = match command {
            Command::Send { to, data, receipt } => {
                match self.send_for_people(now, request, to, &data, receipt, out) {
                    Ok(()) => return,
                    Err(reply) => reply,
                }
            }
            Command::Get { key } => {
                let op = self.begin(Pending::Read { request, key, is_part: false });
                return out.get(op, BLOCKS, &key.to_bytes());
            }
            Command::Find { first, last, is_file } => Reply::Found(self.find(first, last, is_file)),
            Command::Inbox { from } => Reply::Inbox(self.post.inbox(from, LINES_MAX)),
            Command::Outbox { from } => Reply::Outbox(self.post.outbox(from, LINES_MAX)),
            Command::Remove { number } => self.remove_received(now, number, out),
            Command::Peers => Reply::Peers(self.ring.peers()),
            Command::Known => Reply::Known(self.known.list()),
            Command::AddKnown { ip } => {
                self.met(now, ip);
                if self.ring.len() < self.config.peers_min && ip != *self.at.ip() {
                    self.send_here(self.here(), ip, out);
                }
                Reply::Done
            }
            Command::Collect => self.collect(out),
            Command::Status => Reply::Status(Box::new(self.status())),
            Command::OfferFile { to, manifest } => self.offer_file(now, to, manifest, out),
            Command::Supply { to, file, index, bytes } => self.supply(now, (file, to), index, &bytes, out),
            Command::Files => Reply::Files(self.files.list()),
            Command::File { file, to } => {
                let status = self.files.status(file, to);
                status.map_or(Reply::NoSuchFile, |status| Reply::File(Box::new(status)))
            }
            Command::DropFile { file } => self.drop_file(now, file, out),
            Command::ReadBlock { file, index } => match self.files.block_key(file, index) {
                Some(key) => {
                    let op = self.begin(Pending::Read { request, key, is_part: true });
                    return out.get(op, BLOCKS, &key.to_bytes());
                }
                None => Reply::NoSuchBlock,
            },
        };
        out.reply(request, reply);
    }

    /// At most two keys in a range: of files under way or here, and of blocks.
    fn find(&self, first: Key, last: Key, is_file: bool) -> Vec<Key> {
        let incoming = self.files.incoming.range(first..=last).map(|(key, _)| *key).take(2);
        let parcels = (first, Nid::from_bytes([0; 32]))..=(last, Nid::from_bytes([255; 32]));
        let outgoing = self.files.outgoing.range(parcels).map(|((key, _), _)| *key);
        let blocks = self.shelf.range(first, last).take(if is_file { 0 } else { 2 });
        let outgoing = outgoing.take(if is_file { usize::MAX } else { 0 });
        let mut found: Vec<Key> = incoming.chain(outgoing).chain(blocks).collect();
        found.sort_unstable();
        found.dedup();
        found.truncate(2);
        found
    }

    /// Plain DATA goes as it is; only if it looks like a form, or a receipt is wanted, is it wrapped.
    fn send_for_people(
        &mut self,
        now: Now,
        request: RequestId,
        to: Nid,
        data: &[u8],
        receipt: bool,
        out: Out<'_, '_>,
    ) -> Result<(), Reply> {
        let form =
            if receipt { Form::Ask { nonce: self.rng.next_u64(), payload: data } } else { Form::Plain(data) };
        let data = write_form(&form);
        let listing = Listing { wants_receipt: receipt, is_file: false, size: data.len() as u64 };
        self.send_own(now, to, &data, Some(listing), Some(request), out)
    }

    /// Takes a line out of the inbox; its block is then one that nobody waits for.
    pub(super) fn remove_received(&mut self, now: Now, number: u64, out: Out<'_, '_>) -> Reply {
        let Some(line) = self.post.remove_in(number) else { return Reply::NoSuchMessage };
        if line.is_file {
            self.drop_incoming(line.key, out);
        } else {
            self.shelf.unpin(line.key);
        }
        let op = self.begin(Pending::Other);
        out.delete(op, INBOX, &number.to_be_bytes(), false);
        self.knock(now);
        Reply::Done
    }

    /// Throws away every block that nobody waits for.
    fn collect(&mut self, out: Out<'_, '_>) -> Reply {
        let before = self.shelf.bytes();
        let keys = self.shelf.sweep();
        let op = self.begin(Pending::Other);
        out.batch(op, false, |batch| forget_blocks(&keys, batch));
        Reply::Collected { blocks: keys.len(), bytes: before - self.shelf.bytes() }
    }

    fn status(&self) -> Status {
        let (inbox, outbox) = self.post.len();
        Status {
            nid: self.own,
            at: self.at,
            peers: self.ring.len(),
            neighbours: self.ring.neighbours(),
            known: self.known.list().len(),
            inbox,
            outbox,
            waiting: self.queue.len(),
            seen: self.passed.len() + self.received.len(),
            blocks: self.shelf.len(),
            bytes: self.shelf.bytes(),
            quota_bytes: self.config.quota_bytes,
            kept_out: self.doorstep.len(),
            memory_bytes: self.memory_bytes() + self.doorstep.bytes(),
        }
    }
}
