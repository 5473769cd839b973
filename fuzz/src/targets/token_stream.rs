//! The bytes of a peer on a stream to a waiter: accepted or refused, never half, whatever the chunks.

use annulus_core::contract::Rig;
use annulus_core::jitterbug::{self, Document, Jitterbug, Ledger, StateName};
use annulus_core::{CloseReason, Refusal, StreamEvent, StreamId};

use super::token_life::config;
use crate::world::peer;

const STREAM: StreamId = StreamId::accepted(1);
/// The bytes that a candidate reads before its answer: a TP1.
const OFFER_BYTES: usize = 9;

pub(super) fn run(bytes: &[u8]) {
    let Some((&choice, said)) = bytes.split_first() else { return };
    let (offer, rest) = said.split_at(said.len().min(OFFER_BYTES));
    let mut cut = waiter();
    let outcome = speak(&mut cut, offer, rest, usize::from(choice) + 1);
    let mut whole = waiter();
    let same = speak(&mut whole, offer, rest, usize::MAX);
    assert_eq!(outcome.is_ok(), same.is_ok(), "it does not matter how it is cut");
    // Merges remember nothing of the stream, so the whole machines can be compared.
    let mut machines = [cut.machine.clone(), whole.machine.clone()];
    machines.iter_mut().for_each(Jitterbug::forget_counters);
    assert_eq!(machines[0], machines[1], "it does not matter how it is cut");
    // JA-32c: data of another application is no error, but makes the node ask for the token.
    let is_foreign = outcome.is_ok() && cut.machine.state_name() == StateName::Orphan;
    if outcome.is_ok() && !is_foreign {
        assert_eq!(cut.machine.state_name(), StateName::Leader, "a whole token is taken");
        assert!(Document::from_data(cut.machine.data()).is_ok(), "and its data is a document");
    } else {
        let mut reset = waiter();
        accept(&mut reset);
        reset.stream(STREAM, StreamEvent::Closed(CloseReason::Reset)).expect("a reset is no offence");
        let [mut refused, mut reset] = [cut.machine, reset.machine];
        [&mut refused, &mut reset].into_iter().for_each(Jitterbug::forget_counters);
        let same = (refused.data(), refused.list()) == (reset.data(), reset.list());
        assert!(same, "refused, yet something changed");
        let same = (refused.token_id(), refused.state_name()) == (reset.token_id(), reset.state_name());
        assert!(same || is_foreign, "refused, yet something changed");
    }
}

fn waiter() -> Rig<Jitterbug<Ledger>> {
    thread_local! {
        static WAITER: Rig<Jitterbug<Ledger>> = started();
    }
    WAITER.with(Clone::clone)
}

fn started() -> Rig<Jitterbug<Ledger>> {
    let machine = Jitterbug::new(&config(0), Ledger::new(), [7; 32]).expect("these settings go together");
    let mut rig = Rig::new(machine);
    rig.start();
    rig.datagram(jitterbug::UDP, peer(0), &[0x11, 0, 0, 0, 5]).expect("an orphan hears answers");
    rig.take_log();
    rig
}

/// Sends all of it and a FIN.
fn speak(rig: &mut Rig<Jitterbug<Ledger>>, offer: &[u8], rest: &[u8], piece: usize) -> Result<(), Refusal> {
    accept(rig);
    for chunk in offer.chunks(piece).chain(rest.chunks(piece)) {
        rig.stream(STREAM, StreamEvent::Data(chunk))?;
    }
    rig.stream(STREAM, StreamEvent::Finished)
}

fn accept(rig: &mut Rig<Jitterbug<Ledger>>) {
    let event = StreamEvent::Accepted { listener: jitterbug::TCP, from: peer(0), local: peer(1) };
    rig.stream(STREAM, event).expect("a stream itself is no offence");
}
