//! Commands of the application.

use core::time::Duration;
use std::net::Ipv4Addr;

use super::book::Book;
use super::delivery::{Delivery, SendOptions};
use super::disk::{Pending, delete_blocks};
use super::env::Cx;
use super::form::{Form, read_form};
use super::forward::LIFETIME_MAX;
use super::machine::{BLOCKS, Mesh, OUTBOX, Out, Parts};
use super::nid::{Key, Nid};
use super::peering::{Peering, send_here};
use super::records::{Sent, SentState};
use super::{Command, Presence, Reply, Status};
use crate::id::Id;
use crate::store::StoreFault;
use crate::tag::RequestId;
use crate::time::Now;

/// The shortest lifetime of a letter (CU-22).
const LIFETIME_MIN: Duration = Duration::from_secs(60);
/// The most lines of inbox or outbox in one reply.
const LINES_MAX: usize = 1024;

impl Mesh {
    pub(super) fn command(&mut self, now: Now, request: RequestId, command: Command, out: Out<'_, '_>) {
        let Parts { cx, delivery, peering, files } = &mut self.parts(now, out);
        let reply = match command {
            Command::Send { to, data, receipt } => {
                let options = SendOptions { receipt, letter: false, lifetime: None };
                return send(cx, delivery, (request, to, &data), options);
            }
            Command::SendLetter { to, data, lifetime, certain, receipt } => {
                let lifetime = lifetime.map(|lifetime| lifetime.clamp(LIFETIME_MIN, LIFETIME_MAX));
                let options = SendOptions { receipt, letter: certain, lifetime };
                return send(cx, delivery, (request, to, &data), options);
            }
            Command::Cancel { number } => return cancel(cx, request, number),
            Command::Member { nid, name, ip, presence, knows_letters } => {
                let seconds = now.wall.as_seconds();
                cx.low.note_contact(nid, |entry| {
                    Book::add_name(entry, &name);
                    Book::set_presence(entry, presence, seconds);
                    entry.ip = ip.or(entry.ip);
                    entry.knows_letters |= knows_letters;
                });
                peering.on_member(cx, nid, ip, presence);
                Reply::Done
            }
            Command::MemberPresence { id, presence } => note_presence(cx, peering, id, presence),
            Command::Book { from } => Reply::Book(cx.low.book.list(from, LINES_MAX)),
            Command::Lookup { name } => Reply::Book(cx.low.book.lookup(&name)),
            Command::SetName { name, nid, knows_letters } => {
                cx.low.book.set(&name, nid, knows_letters, now.wall.as_seconds());
                cx.low.book.store(cx.low.disk, cx.low.out);
                Reply::Done
            }
            Command::Get { key } => return read_block(cx, request, key, false),
            Command::Find { first, last, is_file } => Reply::Found(self.find(first, last, is_file)),
            Command::Inbox { from } => Reply::Inbox(cx.low.mailboxes.inbox(from, LINES_MAX)),
            Command::Outbox { from } => {
                let mut lines = cx.low.mailboxes.outbox(from, LINES_MAX);
                for line in lines.iter_mut().filter(|line| line.state.is_open()) {
                    line.why = cx.forward.why(&cx.low, line.number);
                }
                Reply::Outbox(lines)
            }
            Command::Remove { number } => files.remove_received(cx, delivery, number),
            Command::Peers => Reply::Peers(cx.low.ring.peers()),
            Command::Known => Reply::Known(peering.known()),
            Command::AddKnown { ip } => add_known(cx, peering, ip),
            Command::Collect => collect(cx),
            Command::Status => Reply::Status(Box::new(self.status())),
            Command::OfferFile { to, manifest } => files.offer(cx, delivery, to, manifest),
            Command::Supply { to, file, index, bytes } => {
                files.supply(cx, delivery, (file, to), index, &bytes)
            }
            Command::Files => Reply::Files(files.list()),
            Command::File { file, to } => {
                let status = files.status(file, to);
                status.map_or(Reply::NoSuchFile, |status| Reply::File(Box::new(status)))
            }
            Command::DropFile { file } => files.drop(cx, delivery, file),
            Command::ReadBlock { file, index } => match files.block_key(file, index) {
                Some(key) => return read_block(cx, request, key, true),
                None => Reply::NoSuchBlock,
            },
        };
        out.reply(request, reply);
    }

    /// At most two keys in a range: of files, or of blocks.
    fn find(&self, first: Key, last: Key, is_file: bool) -> Vec<Key> {
        let blocks = self.lower.blocks.range(first, last).take(if is_file { 0 } else { 2 });
        let mut found: Vec<Key> = self.files.range(first, last, is_file).chain(blocks).collect();
        found.sort_unstable();
        found.dedup();
        found.truncate(2);
        found
    }

    fn status(&self) -> Status {
        let (inbox, outbox) = self.lower.mailboxes.len();
        let (deferred, deferred_bytes) = self.delivery.deferred();
        let env = &self.lower.env;
        Status {
            nid: env.own,
            at: env.at,
            peers: self.lower.ring.len(),
            neighbours: self.lower.ring.neighbours(),
            known: self.peering.known().len(),
            inbox,
            outbox,
            waiting: self.forward.len(),
            seen: self.forward.seen() + self.delivery.seen(),
            blocks: self.lower.blocks.len(),
            bytes: self.lower.blocks.bytes(),
            quota_bytes: env.config.quota_bytes,
            deferred,
            memory_bytes: env.memory.total() + deferred_bytes,
        }
    }
}

fn send(
    cx: &mut Cx<'_, '_>,
    delivery: &mut Delivery,
    (request, to, data): (RequestId, Nid, &[u8]),
    options: SendOptions,
) {
    if let Err(reply) = delivery.send_user_message(cx, request, to, data, options) {
        cx.low.out.reply(request, reply);
    }
}

/// A node is there; it gets a HERE if this one has too few peers.
fn add_known(cx: &mut Cx<'_, '_>, peering: &mut Peering, ip: Ipv4Addr) -> Reply {
    peering.contacted(cx, ip);
    if cx.low.ring.len() < cx.low.env.config.peers_min && ip != *cx.low.env.at.ip() {
        let here = cx.low.env.here();
        send_here(cx, here, ip);
    }
    Reply::Done
}

/// `members` says whether the nodes with an id are there.
fn note_presence(cx: &mut Cx<'_, '_>, peering: &mut Peering, id: Id, presence: Presence) -> Reply {
    let seconds = cx.low.now.wall.as_seconds();
    let in_ring = cx.low.ring.iter().map(|(nid, _)| nid).filter(|nid| nid.id() == id);
    let mut nids: Vec<Nid> = in_ring.chain(cx.low.book.with_id(id)).collect();
    nids.dedup();
    for nid in nids {
        cx.low.note_about(nid, |entry| Book::set_presence(entry, presence, seconds));
        peering.on_member(cx, nid, None, presence);
    }
    Reply::Done
}

/// Whether a command brings news of other nodes. It needs nothing of the store.
pub(super) fn is_about_members(command: &Command) -> bool {
    matches!(
        command,
        Command::AddKnown { .. } | Command::Member { .. } | Command::MemberPresence { .. } | Command::Status
    )
}

/// Withdraws a message once that is on disk (CU-23): a withdrawal must survive a restart.
fn cancel(cx: &mut Cx<'_, '_>, request: RequestId, number: u64) {
    let low = &mut cx.low;
    let Some(line) = low.mailboxes.sent(number).copied() else {
        return low.out.reply(request, Reply::NoSuchMessage);
    };
    if line.is_file || !line.state.is_open() || !low.mailboxes.begin_closing(number) {
        return low.out.reply(request, Reply::NotOpen { state: line.state });
    }
    let op = low.disk.begin(Pending::Cancel { request, number });
    let cancelled = Sent { state: SentState::Cancelled, ..line };
    low.out.put(op, OUTBOX, &number.to_be_bytes(), &cancelled.to_bytes(), true);
}

/// Handles the store's reply to a withdrawal. It is certain only if the message never left this node.
pub(super) fn on_cancelled(
    cx: &mut Cx<'_, '_>,
    delivery: &mut Delivery,
    request: RequestId,
    number: u64,
    fault: Option<StoreFault>,
) {
    if let Some(fault) = fault {
        delivery.reopen(cx, number);
        return cx.low.out.reply(request, Reply::StoreFailed { fault });
    }
    let low = &mut cx.low;
    low.mailboxes.abandon_closing(number);
    let Some(line) = low.mailboxes.sent(number).copied() else {
        return low.out.reply(request, Reply::NoSuchMessage);
    };
    let is_certain = cx.forward.cancel(low, number);
    if let Some(line) = low.mailboxes.note_state(number, SentState::Cancelled) {
        low.out.event(line.state_changed());
    }
    if let Some((epoch, letter)) = line.letter {
        delivery.on_closed(cx, (line.to, epoch, letter), number, true);
    }
    cx.low.out.reply(request, Reply::Cancelled { is_certain });
}

fn read_block(cx: &mut Cx<'_, '_>, request: RequestId, key: Key, is_part: bool) {
    let op = cx.low.disk.begin(Pending::Read { request, key, is_part });
    cx.low.out.get(op, BLOCKS, &key.to_bytes());
}

/// Handles the store's reply to a read of the application.
pub(super) fn answer_read(
    cx: &mut Cx<'_, '_>,
    request: RequestId,
    key: Key,
    is_part: bool,
    value: Option<&[u8]>,
) {
    let low = &mut cx.low;
    let reply = match value {
        None => Reply::NoSuchBlock,
        Some(data) if Key::of(data) != key => {
            low.blocks.delete_corrupt(&mut low.env.counters, low.disk, key, low.out);
            Reply::Corrupt { key }
        }
        Some(data) if is_part => match read_form(data) {
            Form::Block { bytes, .. } => Reply::Block(bytes.into()),
            _ => Reply::NoSuchBlock,
        },
        Some(data) => Reply::Block(data.into()),
    };
    low.out.reply(request, reply);
}

/// Deletes every unpinned block.
fn collect(cx: &mut Cx<'_, '_>) -> Reply {
    let low = &mut cx.low;
    let before = low.blocks.bytes();
    let keys = low.blocks.remove_unpinned();
    let op = low.disk.begin(Pending::Other);
    low.out.batch(op, false, |batch| delete_blocks(&keys, batch));
    Reply::Collected { blocks: keys.len(), bytes: before - low.blocks.bytes() }
}
