//! The promises of every machine, as tests for any machine.
//!
//! Describe the machine as a [`Subject`] and call [`check`] from a test. `Machine` documents the promises. A machine
//! that breaks one fails here first, with a message that names the promise.
mod disk;
mod network;
pub mod puppet;
mod rig;

#[cfg(test)]
mod network_tests;

use core::fmt::Debug;
use core::time::Duration;
use std::net::SocketAddr;

pub use disk::{Disk, Entries};
pub use network::{Network, Node};
pub use rig::Rig;

use crate::machine::{Machine, Refusal};
use crate::stream::{CloseReason, StreamEvent};
use crate::tag::{ListenerId, SocketId, StreamId};

/// A machine to test, and its valid inputs.
pub trait Subject {
    /// The machine.
    type M: Machine + Clone + PartialEq + Debug;

    /// A new machine; two calls return equal ones.
    fn machine(&self) -> Self::M;

    /// A scenario with as many kinds of input as there are, from before the start to somewhere in the middle. It is run
    /// several times and must do the same each time.
    fn live(&self, rig: &mut Rig<Self::M>);

    /// Every kind of datagram that it decodes, with its socket and sender.
    fn datagrams(&self) -> Vec<(SocketId, SocketAddr, Vec<u8>)>;

    /// Everything that a peer may send on a stream it opened, with the listener. The bytes end with the peer's FIN.
    fn streams(&self) -> Vec<(ListenerId, Vec<u8>)>;

    /// Sets the counters to zero.
    fn forget_counters(&self, machine: &mut Self::M);
}

/// Runs all tests of the contract on a machine.
///
/// # Panics
/// If it breaks a promise.
pub fn check<S: Subject>(subject: &S) {
    same_inputs_give_the_same_actions(subject);
    inputs_may_follow_without_draining(subject);
    waking_early_is_harmless(subject);
    waking_twice_is_harmless(subject);
    waking_late_is_harmless(subject);
    bad_datagrams_change_nothing(subject);
    bad_streams_are_as_good_as_reset(subject);
}

/// Promise 1: state and seed decide everything.
fn same_inputs_give_the_same_actions<S: Subject>(subject: &S) {
    let (one, two) = (lived(subject), lived(subject));
    assert!(!one.log.is_empty(), "the life of the subject makes the machine do something");
    assert_eq!(one.log, two.log, "the same inputs gave other actions");
    assert_eq!(one.machine, two.machine, "the same inputs led to another state");
}

/// Promise 3: the driver decides when to drain the outbox.
fn inputs_may_follow_without_draining<S: Subject>(subject: &S) {
    let mut drained = lived(subject);
    let mut held = drained.clone();
    held.hold();
    for rig in [&mut drained, &mut held] {
        rig.take_log();
        for (socket, from, bytes) in subject.datagrams() {
            let _ = rig.datagram(socket, from, &bytes);
        }
        for (index, (listener, bytes)) in subject.streams().into_iter().enumerate() {
            let _ = speak(rig, fresh_stream(index, listener), listener, &[&bytes], true);
        }
        rig.drain();
    }
    assert_eq!(drained.log, held.log, "the actions depend on when they are taken");
    assert_eq!(drained.machine, held.machine, "the state depends on when the actions are taken");
}

/// Promise 2: a driver may call `handle_timeout` without need.
fn waking_early_is_harmless<S: Subject>(subject: &S) {
    let mut rig = lived(subject);
    rig.wake();
    for _ in 0..8 {
        rig.take_log();
        let Some((at, name)) = rig.machine.poll_timeout() else { return };
        let before = rig.machine.clone();
        rig.sleep(at.since(rig.now.mono) / 2);
        rig.wake();
        assert_eq!(rig.log, Vec::<String>::new(), "woken before {name} was due, it did something");
        assert_eq!(rig.machine, before, "woken before {name} was due, it changed");
        rig.advance(at.since(rig.now.mono));
    }
}

/// Promise 2: a driver may call `handle_timeout` twice; one call must be enough to make the machine wait again.
fn waking_twice_is_harmless<S: Subject>(subject: &S) {
    let mut rig = lived(subject);
    for _ in 0..64 {
        let Some((at, name)) = rig.machine.poll_timeout() else { return };
        rig.sleep(at.since(rig.now.mono));
        rig.wake();
        let still_due = rig.machine.poll_timeout().filter(|(at, _)| *at <= rig.now.mono);
        assert_eq!(
            still_due, None,
            "woken for {name}, it wants to be woken again at once: a driver would spin"
        );
        rig.take_log();
        let before = rig.machine.clone();
        rig.wake();
        assert_eq!(rig.log, Vec::<String>::new(), "woken twice for {name}, it did something the second time");
        assert_eq!(rig.machine, before, "woken twice for {name}, it changed the second time");
    }
}

/// Promise 2: after a suspension a machine does not repeat its missed timers.
fn waking_late_is_harmless<S: Subject>(subject: &S) {
    let actions_after = |late: Duration| {
        let mut rig = lived(subject);
        rig.take_log();
        rig.sleep(late);
        for _ in 0..4 {
            rig.wake();
        }
        rig.log.len()
    };
    let (hour, day) = (Duration::from_secs(3600), Duration::from_secs(86_400));
    assert_eq!(actions_after(hour), actions_after(day), "the later it is woken, the more it does");
}

/// Promise 4, on datagrams: every vector, cut everywhere, lengthened, and with every bit flipped.
fn bad_datagrams_change_nothing<S: Subject>(subject: &S) {
    let rig = lived(subject);
    let mut refused = 0;
    for (socket, from, bytes) in subject.datagrams() {
        for bad in spoilt(&bytes) {
            let mut spoiled = rig.clone();
            spoiled.take_log();
            if spoiled.datagram(socket, from, &bad).is_err() {
                refused += 1;
                assert_eq!(spoiled.log, Vec::<String>::new(), "refused {bad:02x?}, yet it did something");
                assert!(spoiled.counted() > rig.counted(), "refused {bad:02x?} without counting it");
                assert_same(subject, &spoiled, &rig, &bad);
            }
        }
    }
    assert!(refused > 0 || subject.datagrams().is_empty(), "nothing was refused: the vectors test nothing");
}

/// Promise 4, on streams: invalid bytes have the same effect as a reset.
fn bad_streams_are_as_good_as_reset<S: Subject>(subject: &S) {
    let rig = lived(subject);
    let mut refused = 0;
    for (listener, bytes) in subject.streams() {
        for bad in spoilt(&bytes) {
            for chunk in [1, bad.len().max(1)] {
                let chunks: Vec<&[u8]> = bad.chunks(chunk).collect();
                refused += usize::from(refuses_cleanly(subject, &rig, listener, &chunks));
            }
        }
    }
    assert!(refused > 0 || subject.streams().is_empty(), "nothing was refused: the vectors test nothing");
}

/// Sends `chunks` and a FIN on a new stream. If the machine refuses some of it, compares it with a machine whose peer
/// reset the stream just before.
fn refuses_cleanly<S: Subject>(subject: &S, rig: &Rig<S::M>, listener: ListenerId, chunks: &[&[u8]]) -> bool {
    let stream = fresh_stream(0, listener);
    let mut spoiled = rig.clone();
    let Err((said, _)) = speak(&mut spoiled, stream, listener, chunks, true) else { return false };
    let abort = format!("Abort {stream}");
    assert!(spoiled.log.contains(&abort), "refused {chunks:02x?} without resetting the stream");
    assert!(spoiled.counted() > rig.counted(), "refused {chunks:02x?} without counting it");
    let mut reset = rig.clone();
    speak(&mut reset, stream, listener, &chunks[..said], false).expect("it was taken the first time");
    let closed = reset.stream(stream, StreamEvent::Closed(CloseReason::Reset));
    assert_eq!(closed, Ok(()), "a reset is no fault of the bytes");
    assert_same(subject, &spoiled, &reset, &chunks.concat());
    true
}

/// Opens a stream to the machine and sends the chunks. On refusal, returns how many chunks were accepted before.
fn speak<M: Machine>(
    rig: &mut Rig<M>,
    stream: StreamId,
    listener: ListenerId,
    chunks: &[&[u8]],
    finish: bool,
) -> Result<(), (usize, Refusal)> {
    let (from, local) = (SocketAddr::from(([127, 0, 0, 9], 50_000)), SocketAddr::from(([127, 0, 0, 1], 1)));
    rig.stream(stream, StreamEvent::Accepted { listener, from, local }).map_err(|refusal| (0, refusal))?;
    for (index, chunk) in chunks.iter().enumerate() {
        rig.stream(stream, StreamEvent::Data(chunk)).map_err(|refusal| (index, refusal))?;
    }
    if finish {
        rig.stream(stream, StreamEvent::Finished).map_err(|refusal| (chunks.len(), refusal))?;
    }
    Ok(())
}

fn assert_same<S: Subject>(subject: &S, left: &Rig<S::M>, right: &Rig<S::M>, bad: &[u8]) {
    let (mut left, mut right) = (left.machine.clone(), right.machine.clone());
    subject.forget_counters(&mut left);
    subject.forget_counters(&mut right);
    assert_eq!(left, right, "refused {bad:02x?}, yet something changed besides counters");
}

fn lived<S: Subject>(subject: &S) -> Rig<S::M> {
    let mut rig = Rig::new(subject.machine());
    subject.live(&mut rig);
    rig
}

/// A stream to this listener that no scenario uses.
fn fresh_stream(index: usize, listener: ListenerId) -> StreamId {
    StreamId::accepted(1_000_000 + index as u64).in_service(listener.service())
}

/// Every truncation of `bytes`, `bytes` with one more, and `bytes` with each bit flipped.
fn spoilt(bytes: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let truncated = (0..bytes.len()).map(|len| bytes[..len].to_vec());
    let longer = core::iter::once([bytes, &[0]].concat());
    let flipped = (0..bytes.len() * 8).map(|bit| {
        let mut flipped = bytes.to_vec();
        flipped[bit / 8] ^= 1 << (bit % 8);
        flipped
    });
    truncated.chain(longer).chain(flipped)
}
