//! Peers that send long messages at once, to a node with little memory.

use core::time::Duration;

use super::desk::{Desk, SECOND, config, frame, here, nid};
use crate::stream::StreamEvent;
use crate::tag::StreamId;
use crate::w3w::custody::hello_nid;
use crate::w3w::{Config, Here, Message, here_frame};

/// A peer that sends as much as it is allowed to.
struct Sender {
    stream: StreamId,
    credit: usize,
    left: Vec<u8>,
}

const MEMORY_BYTES: usize = 1 << 20;
const MESSAGE_BYTES: usize = 1 << 20;

fn desk() -> Desk {
    Desk::new(&Config { memory_bytes_max: MEMORY_BYTES, ..config() })
}

fn senders(desk: &mut Desk, count: u8) -> Vec<Sender> {
    (1..=count)
        .map(|number| {
            desk.rig.take_log();
            let stream = desk.call(number);
            let credit = granted(desk, stream);
            let message = Message::new(nid(number), desk.own(), &vec![number; MESSAGE_BYTES]);
            Sender { stream, credit, left: frame(&message) }
        })
        .collect()
}

fn granted(desk: &Desk, stream: StreamId) -> usize {
    let start = format!("Read {stream} ");
    desk.rig.log.iter().filter_map(|line| line.strip_prefix(&start)?.parse::<usize>().ok()).sum()
}

/// All senders take turns until none may send. Returns the most memory that was in use. With `is_mute`, the unblocked
/// sender sends nothing.
fn send(desk: &mut Desk, senders: &mut [Sender], is_mute: bool) -> usize {
    let mut most = 0;
    loop {
        if let (true, Some(unblocked)) = (is_mute, desk.rig.machine.unblocked_stream()) {
            senders
                .iter_mut()
                .filter(|sender| sender.stream == unblocked)
                .for_each(|sender| sender.left.clear());
        }
        let mut has_sent = false;
        for at in 0..senders.len() {
            let Sender { stream, credit, left } = &mut senders[at];
            let bytes = left.len().min(*credit).min(64 * 1024);
            if bytes == 0 {
                continue;
            }
            has_sent = true;
            *credit -= bytes;
            let data: Vec<u8> = left.drain(..bytes).collect();
            desk.rig.stream(*stream, StreamEvent::Data(&data)).expect("a peer may send");
            most = most.max(desk.rig.machine.memory_bytes());
            for sender in senders.iter_mut() {
                sender.credit += granted(desk, sender.stream);
            }
            desk.rig.take_log();
        }
        if !has_sent {
            return most;
        }
    }
}

#[test]
fn ma_48_unfinished_messages_count_as_memory_and_peers_take_turns() {
    let mut desk = desk();
    let mut senders = senders(&mut desk, 12);
    let most = send(&mut desk, &mut senders, false);
    assert!(senders.iter().all(|sender| sender.left.is_empty()), "no sender waits for ever");
    assert_eq!(desk.rig.machine.counted().messages_delivered, 12);
    // A window and the room ahead for each, and one message.
    let bound = MEMORY_BYTES + 12 * (256 * 1024 + (1 << 20)) + MESSAGE_BYTES;
    assert!(
        (MEMORY_BYTES..bound).contains(&most),
        "{most} bytes; all at once would be {}",
        12 * MESSAGE_BYTES
    );
    assert_eq!(desk.rig.machine.memory_bytes(), 0);
}

#[test]
fn ma_48_an_unblocked_peer_that_sends_nothing_is_disconnected() {
    let mut desk = desk();
    let mut senders = senders(&mut desk, 12);
    send(&mut desk, &mut senders, true);
    let is_waiting = |senders: &[Sender]| senders.iter().filter(|sender| !sender.left.is_empty()).count();
    let mute = desk.rig.machine.unblocked_stream().expect("one of them may send");
    assert!(is_waiting(&senders) > 5, "the others wait for it");
    desk.rig.advance(29 * SECOND);
    assert!(!desk.has(&format!("Abort {mute}")));
    desk.rig.advance(2 * SECOND);
    assert!(desk.has(&format!("Abort {mute}")));
    for sender in &mut senders {
        sender.credit += granted(&desk, sender.stream);
    }
    send(&mut desk, &mut senders, false);
    assert_eq!(is_waiting(&senders), 0);
    assert!(desk.rig.machine.counted().messages_delivered >= 10);
}

/// Complete messages that wait for the store leave memory by themselves: no peer is unblocked meanwhile.
#[test]
fn ma_48_a_slow_store_makes_all_peers_wait() {
    let mut desk = desk();
    let mut senders = senders(&mut desk, 2);
    for sender in &mut senders {
        let more =
            [0, 1, 2, 3, 4].map(|number| Message::new(nid(9), desk.own(), &vec![number; MESSAGE_BYTES / 2]));
        more.iter().for_each(|message| sender.left.extend(frame(message)));
    }
    desk.rig.hold();
    let most = send(&mut desk, &mut senders, false);
    let bound = MEMORY_BYTES + 2 * (256 * 1024 + (1 << 20)) + MESSAGE_BYTES;
    assert!(most < bound, "{most} bytes are in memory, {bound} may be");
    assert!(senders.iter().any(|sender| !sender.left.is_empty()));
}

#[test]
fn the_buffer_of_a_message_that_a_peer_has_is_used_again() {
    for speaks in [true, false] {
        let mut desk = Desk::new(&config());
        let (from, to) = (desk.call(0x50), desk.call(0x40));
        if speaks {
            let hello = Here { nid: hello_nid(nid(0x40), desk.own()), ..here(0x40) };
            desk.rig.stream(to, StreamEvent::Data(&here_frame(&hello))).unwrap();
        }
        desk.message(from, &Message::new(nid(0x77), nid(0x40), &[1; 40_000]));
        desk.rig.advance(Duration::from_millis(10));
        assert_eq!(desk.rig.machine.lower.links.pooled_bytes(), 0, "it is being written");
        let _ = desk.rig.stream(to, StreamEvent::Sent { bytes: 1 << 20, fin: false });
        assert_eq!(desk.rig.machine.waiting(), 1, "no verdict, and no minute has passed");
        assert!(desk.rig.machine.lower.links.pooled_bytes() >= 40_000, "custody: {speaks}");
    }
}
