//! The bytes of a peer on one stream, in chunks as the first byte chooses: accepted or refused, never half.

use annulus_core::contract::Rig;
use annulus_core::ping::{self, Config, Message, Ping};
use annulus_core::{CloseReason, Refusal, StreamEvent, StreamId};

use crate::world::peer;

/// The read credit before the FIN: a message and one byte.
const GRANTED: usize = ping::MESSAGE_BYTES + 1;

pub(super) fn run(bytes: &[u8]) {
    let Some((&choice, said)) = bytes.split_first() else { return };
    let said = &said[..said.len().min(GRANTED)];
    let chunks: Vec<&[u8]> = said.chunks(usize::from(choice) + 1).collect();
    let mut rig = started();
    let outcome = speak(&mut rig, &chunks);
    match (ping::decode(said), outcome) {
        (Ok(Message::Ping { sequence }), Ok(())) => {
            let expected = [
                format!("Read {STREAM} {GRANTED}"),
                format!("Write {STREAM} 0101{sequence:016x}"),
                format!("Finish {STREAM}"),
            ];
            assert_eq!(rig.log, expected);
        }
        (Ok(Message::Ping { .. }), Err(refused)) => panic!("a ping was refused: {refused:?}"),
        (_, Ok(())) => panic!("{said:02x?} was taken"),
        (_, Err((taken, _))) => check_refused(&rig, &chunks[..taken]),
    }
}

const STREAM: StreamId = StreamId::accepted(1);

fn started() -> Rig<Ping> {
    let mut rig = Rig::new(Ping::new(&Config::default(), [7; 32]).expect("the defaults go together"));
    rig.start();
    rig.take_log();
    rig
}

/// Sends all chunks and a FIN; a refusal returns the number of chunks taken before.
fn speak(rig: &mut Rig<Ping>, chunks: &[&[u8]]) -> Result<(), (usize, Refusal)> {
    accept(rig);
    for (index, chunk) in chunks.iter().enumerate() {
        rig.stream(STREAM, StreamEvent::Data(chunk)).map_err(|refusal| (index, refusal))?;
    }
    rig.stream(STREAM, StreamEvent::Finished).map_err(|refusal| (chunks.len(), refusal))
}

fn accept(rig: &mut Rig<Ping>) {
    let event = StreamEvent::Accepted { listener: ping::TCP, from: peer(0), local: peer(1) };
    rig.stream(STREAM, event).expect("a stream itself is no offence");
}

/// The stream is reset, and the machine as if the peer had done so after `taken`.
fn check_refused(rig: &Rig<Ping>, taken: &[&[u8]]) {
    assert_eq!(rig.log, [format!("Read {STREAM} {GRANTED}"), format!("Abort {STREAM}")]);
    assert_eq!(rig.counted(), 1, "a refusal is counted once");
    let mut reset = started();
    accept(&mut reset);
    for chunk in taken {
        reset.stream(STREAM, StreamEvent::Data(chunk)).expect("it was taken the first time");
    }
    reset.stream(STREAM, StreamEvent::Closed(CloseReason::Reset)).expect("a reset is no offence");
    let mut machines = [rig.machine.clone(), reset.machine];
    machines.iter_mut().for_each(Ping::forget_counters);
    assert_eq!(machines[0], machines[1], "refused, yet something changed besides counters");
}
