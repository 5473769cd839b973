//! Files that a recipient declines, or that a sender drops.

use core::time::Duration;

use super::desk::{Desk, SECOND, config, nid};
use crate::tag::StreamId;
use crate::w3w::{Command, Form, Key, Manifest, Message, write_form};

fn manifest() -> Manifest {
    Manifest { name: "../../x".into(), size: 5, block_bytes: 5, blocks: vec![Key::of(b"hello")] }
}

fn offer(desk: &mut Desk, stream: StreamId, attempt: u32) {
    let data = write_form(&Form::Manifest { attempt, manifest: manifest() });
    let message = Message::new(nid(0x10), desk.own(), &data);
    desk.message(stream, &message);
}

fn offers(desk: &Desk) -> usize {
    desk.rig.log.iter().filter(|line| line.contains("FileOffered")).count()
}

#[test]
fn a_declined_file_is_not_accepted_while_it_is_offered() {
    let mut desk = Desk::new(&config());
    let stream = desk.call(0x10);
    offer(&mut desk, stream, 1);
    assert!(desk.has("FileOffered") && desk.has("name: \"x\""), "its name leads nowhere");
    let file = manifest().file();
    desk.rig.command(Command::DropFile { file });
    assert!(desk.has("Reply 1 Done") && desk.has("FileGivenUp"));
    desk.rig.command(Command::DropFile { file });
    assert!(desk.has("Reply 2 NoSuchFile"));
    desk.rig.advance(3000 * SECOND);
    offer(&mut desk, stream, 2);
    assert_eq!(offers(&desk), 1);
    let mut desk = desk.restart(&config());
    let stream = desk.call(0x10);
    offer(&mut desk, stream, 3);
    assert_eq!(offers(&desk), 0, "a restart does not forget it");
    desk.rig.advance(Duration::from_secs(3601));
    offer(&mut desk, stream, 4);
    assert_eq!(offers(&desk), 1, "a new try after an hour of silence is another matter");
}

#[test]
fn a_received_file_leaves_the_inbox_when_it_is_dropped() {
    let mut desk = Desk::new(&config());
    let stream = desk.call(0x10);
    offer(&mut desk, stream, 1);
    let file = manifest().file();
    let block = write_form(&Form::Block { file, index: 0, attempt: 1, bytes: b"hello" });
    let block = Message::new(nid(0x10), desk.own(), &block);
    desk.message(stream, &block);
    assert!(desk.has("FileReceived"));
    desk.rig.command(Command::DropFile { file });
    desk.rig.command(Command::Inbox { from: 0 });
    desk.rig.command(Command::Files);
    assert!(desk.has("Reply 1 Done") && desk.has("Reply 2 Inbox([])") && desk.has("Reply 3 Files([])"));
    offer(&mut desk, stream, 2);
    assert_eq!(offers(&desk), 2, "a new send offers it again");
}

#[test]
fn a_sender_that_drops_its_file_sends_no_more_requests() {
    let mut desk = Desk::new(&config());
    let stream = desk.call(0x10);
    desk.rig.command(Command::OfferFile { to: nid(0x10), manifest: manifest() });
    desk.take_all(stream);
    desk.rig.command(Command::DropFile { file: manifest().file() });
    assert!(desk.has("Reply 2 Done") && desk.has("state: Unconfirmed"), "whether it arrived is not known");
    let sent = desk.messages(stream).len();
    desk.rig.advance(Duration::from_secs(4000));
    assert_eq!((desk.messages(stream).len(), desk.rig.machine.waiting()), (sent, 0));
}
