//! The pool, driven by the test.

use core::time::Duration;
use std::collections::VecDeque;
use std::net::SocketAddr;

mod health;
mod timers;

use super::*;
use crate::ping::Ping;
use crate::{Action, Queue};

const SECOND: Duration = Duration::from_secs(1);

/// The actions of a pool; any machine can carry them.
type Carrier = Ping;

struct Driver {
    pool: Pool<u32>,
    queue: Queue<Carrier>,
    now: Instant,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Did {
    Open(StreamId, SocketAddr),
    Write(StreamId, Vec<u8>),
    Read(StreamId, usize),
    Finish(StreamId),
    Abort(StreamId),
}

fn addr(last: u8) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, last], 22001))
}

fn config() -> Config {
    Config {
        connections_max: 2,
        accepted_per_address_max: 3,
        queue_bytes_max: 1 << 20,
        queues_bytes_max: 2 << 20,
        message_bytes_max: 1 << 20,
        unfinished_bytes_max: 8 << 20,
        connect_timeout: 3 * SECOND,
        idle_timeout: 60 * SECOND,
        keeps_connections: false,
    }
}

impl Driver {
    fn new(config: Config) -> Self {
        let mut pool = Pool::new(config);
        pool.set_greeting(b"hi".to_vec(), None);
        Self { pool, queue: Queue::new(), now: Instant::ZERO }
    }

    fn send(&mut self, to: u8, message: &[u8]) -> Result<Taken, Full> {
        self.pool.send(self.now, addr(to), message, Expects::Nothing, &mut self.queue.outbox())
    }

    /// Sends a message that the peer must answer.
    fn ask(&mut self, to: u8, message: &[u8]) -> Result<Taken, Full> {
        self.pool.send(self.now, addr(to), message, Expects::Reply, &mut self.queue.outbox())
    }

    /// Answers a message that came over a connection.
    fn answer(&mut self, over: StreamId, to: u8, message: &[u8]) -> Result<Taken, Full> {
        self.pool.answer(self.now, (over, addr(to)), message, &mut self.queue.outbox())
    }

    fn connect(&mut self, to: u8) -> StreamId {
        let taken = self.send(to, b"first").unwrap();
        assert!(!taken.connected);
        self.stand(taken.stream);
        taken.stream
    }

    /// A connect succeeds after one millisecond.
    fn stand(&mut self, stream: StreamId) {
        self.now += SECOND / 1000;
        let bytes = self.written(stream).len();
        self.pool.connected(self.now, stream, &mut self.queue.outbox());
        self.sent(stream, bytes);
    }

    fn sent(&mut self, stream: StreamId, bytes: usize) {
        self.pool.sent(self.now, stream, bytes, &mut self.queue.outbox());
    }

    fn closed(&mut self, stream: StreamId, reason: CloseReason) -> Option<Lost> {
        self.pool.closed(self.now, stream, reason, &mut self.queue.outbox())
    }

    fn greeted(&mut self, stream: StreamId, label: u32, peer: u8) {
        self.pool.greeted(self.now, stream, label, addr(peer), &mut self.queue.outbox());
    }

    fn lost(&mut self) -> Vec<Lost> {
        core::iter::from_fn(|| self.pool.next_lost()).collect()
    }

    fn accept(&mut self, stream: u64) -> StreamId {
        self.accept_from(stream, 9)
    }

    fn accept_from(&mut self, stream: u64, from: u8) -> StreamId {
        let stream = StreamId::accepted(stream);
        self.pool.accepted(self.now, stream, addr(from).ip(), &mut self.queue.outbox());
        stream
    }

    fn receive(&mut self, stream: StreamId, bytes: &[u8]) -> Result<Vec<Vec<u8>>, DecodeError> {
        let mut messages = Vec::new();
        let mut take = |message: &[u8]| {
            messages.push(message.to_vec());
            Ok(())
        };
        self.pool.received(self.now, stream, bytes, &mut take, &mut self.queue.outbox())?;
        Ok(messages)
    }

    fn pass(&mut self, by: Duration) -> Vec<Lost> {
        self.now += by;
        self.pool.expire(self.now, &mut self.queue.outbox());
        self.lost()
    }

    fn did(&mut self) -> Vec<Did> {
        let mut did = Vec::new();
        while let Some(action) = self.queue.next() {
            did.push(match action {
                Action::Open { stream, to, .. } => Did::Open(stream, to),
                Action::Write { stream, bytes } => Did::Write(stream, bytes.to_vec()),
                Action::Read { stream, credit } => Did::Read(stream, credit),
                Action::Finish { stream } => Did::Finish(stream),
                Action::Abort { stream } => Did::Abort(stream),
                Action::Watch { watch, .. } => {
                    assert!(watch.dead_after.is_some_and(|after| after >= 4 * SECOND), "{watch:?}");
                    continue;
                }
                other => panic!("a pool does not do {other:?}"),
            });
        }
        did
    }

    fn written(&mut self, stream: StreamId) -> Vec<u8> {
        let writes = self.did().into_iter().filter_map(|did| match did {
            Did::Write(at, bytes) if at == stream => Some(bytes),
            _ => None,
        });
        writes.flatten().collect()
    }
}

/// A whole frame.
fn frame(payload: &[u8]) -> Vec<u8> {
    [&(payload.len() as u32).to_be_bytes()[..], payload].concat()
}

/// A ping or a pong.
fn probe(which: u8, nonce: u32) -> Vec<u8> {
    [&(3u32 << 30 | 5).to_be_bytes()[..], &[which], &nonce.to_be_bytes()].concat()
}

#[test]
fn a_connection_is_opened_once_and_greets_first() {
    let mut driver = Driver::new(config());
    let taken = driver.send(2, b"one").unwrap();
    assert_eq!(driver.send(2, b"two"), Ok(taken));
    let expected = [
        Did::Open(taken.stream, addr(2)),
        Did::Read(taken.stream, CREDIT_BYTES),
        Did::Write(taken.stream, frame(b"hi")),
        Did::Write(taken.stream, frame(b"one")),
        Did::Write(taken.stream, frame(b"two")),
    ];
    assert_eq!(driver.did(), expected);
    assert!(!driver.pool.is_connected(addr(2)));
    driver.pool.connected(driver.now, taken.stream, &mut driver.queue.outbox());
    assert_eq!(driver.did(), []);
    assert!(driver.pool.is_connected(addr(2)) && driver.send(2, b"three").unwrap().connected);
}

#[test]
fn an_accepted_connection_is_used_once_it_has_greeted() {
    let mut driver = Driver::new(config());
    let stream = driver.accept_from(1, 2);
    assert_eq!(driver.receive(stream, &frame(b"hello")), Ok(vec![b"hello".to_vec()]));
    assert_eq!(driver.pool.peer(stream), None);
    driver.did();
    driver.greeted(stream, 7, 2);
    assert_eq!(driver.pool.peer(stream), Some(Peer { label: &7, addr: Some(addr(2)), rtt: None }));
    assert_eq!(driver.send(2, b"one").unwrap().stream, stream);
    let expected = [frame(b"hi"), probe(0, 1), frame(b"one")].map(|bytes| Did::Write(stream, bytes));
    assert_eq!(driver.did(), expected);
}

#[test]
fn a_peer_that_claims_another_address_gets_none_of_its_messages() {
    let mut driver = Driver::new(config());
    let stream = driver.accept_from(1, 9);
    driver.did();
    driver.greeted(stream, 7, 2);
    assert_eq!(driver.pool.peer(stream), Some(Peer { label: &7, addr: None, rtt: None }));
    assert!(!driver.pool.is_connected(addr(2)));
    let own = driver.send(2, b"one").unwrap().stream;
    assert_ne!(own, stream);
    assert!(driver.did().contains(&Did::Open(own, addr(2))));
    assert_eq!(
        driver.closed(stream, CloseReason::Reset).map(|lost| lost.peer),
        Some(None),
        "its end does not identify the peer"
    );
}

#[test]
fn a_small_message_overtakes_a_large_one() {
    let mut driver = Driver::new(config());
    let stream = driver.connect(2);
    let large = vec![7; 500_000];
    driver.send(2, &large).unwrap();
    let mut wire: VecDeque<Vec<u8>> = VecDeque::new();
    let mut reader = frame::Reader::default();
    let mut arrived: Vec<Vec<u8>> = Vec::new();
    let (mut bytes_before_small, mut bytes) = (None, 0);
    driver.send(2, b"small").unwrap();
    loop {
        for did in driver.did() {
            if let Did::Write(_, bytes) = did {
                wire.push_back(bytes);
            }
        }
        let Some(next) = wire.pop_front() else { break };
        bytes += next.len();
        let mut take = |message: &[u8]| {
            arrived.push(message.to_vec());
            Ok(())
        };
        reader.push(&next, 1 << 20, &mut take).unwrap();
        if arrived.contains(&b"small".to_vec()) {
            bytes_before_small.get_or_insert(bytes);
        }
        driver.sent(stream, next.len());
    }
    assert_eq!(arrived, [b"small".to_vec(), large]);
    assert!(bytes_before_small.unwrap() < 6 * CHUNK_BYTES, "{bytes_before_small:?}");
}

#[test]
fn no_more_is_written_than_the_kernel_follows() {
    let mut driver = Driver::new(config());
    let stream = driver.connect(2);
    driver.send(2, &[7; 1_000_000]).unwrap();
    let ahead = driver.written(stream).len();
    assert!((4 * CHUNK_BYTES..6 * CHUNK_BYTES).contains(&ahead), "{ahead}");
    driver.sent(stream, CHUNK_BYTES);
    assert!(driver.written(stream).len() <= CHUNK_BYTES + HEADER_BYTES);
}

#[test]
fn bytes_may_come_in_any_pieces() {
    let bytes = [frame(b"one"), frame(&[9; 3000]), frame(b"two")].concat();
    for piece in [1, 2, 3, 5, 7, 100, bytes.len()] {
        let mut driver = Driver::new(config());
        let stream = driver.accept(1);
        let mut messages = Vec::new();
        for part in bytes.chunks(piece) {
            messages.extend(driver.receive(stream, part).unwrap());
        }
        assert_eq!(messages, [b"one".to_vec(), vec![9; 3000], b"two".to_vec()], "{piece}");
    }
}

#[test]
fn invalid_frames_are_refused() {
    let too_long = ((CHUNK_BYTES + 1) as u32).to_be_bytes();
    for (bytes, error) in [
        (0u32.to_be_bytes(), DecodeError::Field("frame length")),
        (too_long, DecodeError::Limit("frame length")),
        ((3u32 << 30 | 4).to_be_bytes(), DecodeError::Field("probe length")),
    ] {
        let mut driver = Driver::new(config());
        let stream = driver.accept(1);
        assert_eq!(driver.receive(stream, &bytes), Err(error));
    }
    // A large message that never ends is cut off at the limit, whatever it declares.
    let mut driver = Driver::new(Config { message_bytes_max: 40_000, ..config() });
    let stream = driver.accept(1);
    let part = [&(1u32 << 30 | 16_384).to_be_bytes()[..], &[0; 16_384]].concat();
    assert!(driver.receive(stream, &part).is_ok() && driver.receive(stream, &part).is_ok());
    assert_eq!(driver.receive(stream, &part), Err(DecodeError::Limit("message length")));
}

#[test]
fn credit_is_renewed_as_bytes_come() {
    let mut driver = Driver::new(config());
    let stream = driver.accept(1);
    driver.did();
    let message = frame(&[1; 10_000]);
    let mut granted = CREDIT_BYTES;
    for received in 1..100 {
        driver.receive(stream, &message).unwrap();
        granted += driver
            .did()
            .iter()
            .map(|did| if let Did::Read(_, credit) = did { *credit } else { 0 })
            .sum::<usize>();
        assert!(granted >= received * message.len() + CREDIT_BYTES / 2, "it never runs dry");
        assert!(granted <= received * message.len() + CREDIT_BYTES, "and never grows");
    }
}

#[test]
fn an_idle_connection_closes_in_good_order_and_a_hung_one_is_reset() {
    let mut driver = Driver::new(config());
    let stream = driver.connect(2);
    assert_eq!(driver.pass(59 * SECOND), []);
    assert_eq!(driver.did(), []);
    assert_eq!(driver.pass(SECOND), []);
    assert_eq!(driver.did(), [Did::Finish(stream)]);
    assert!(driver.send(2, b"one").unwrap().stream != stream, "a new one for new messages");
    driver.did();
    let lost: Vec<Lost> = (0..30).flat_map(|_| driver.pass(SECOND / 10)).collect();
    let slow = lost.iter().find(|lost| lost.stream == stream).expect("it never ended");
    assert_eq!((slow.peer, slow.connected), (None, true), "a slow close says nothing of the peer");
    assert!(lost.iter().any(|lost| lost.stream != stream && !lost.connected), "it never stood");
    for _ in 0..150 {
        driver.pass(SECOND / 10);
    }
    assert!(driver.pool.is_empty() && driver.pool.deadline().is_none(), "it is no longer needed");
}

#[test]
fn pl_6_a_connection_that_its_peer_ends_and_does_not_close_is_reported_with_the_peer() {
    let mut driver = Driver::new(config());
    let stream = driver.connect(2);
    driver.pool.finished(driver.now, stream, &mut driver.queue.outbox()).unwrap();
    let lost: Vec<Lost> = (0..80).flat_map(|_| driver.pass(SECOND / 10)).collect();
    assert!(lost.iter().any(|lost| lost.stream == stream && lost.peer == Some(addr(2))), "{lost:?}");
}

#[test]
fn a_peer_that_does_not_read_or_sends_no_greeting_is_reset() {
    let mut driver = Driver::new(config());
    let reads_nothing = driver.connect(2);
    driver.send(2, &[7; 500_000]).unwrap();
    let silent = driver.accept(1);
    driver.did();
    driver.pass(3 * SECOND);
    assert_eq!(driver.did(), [Did::Abort(silent)]);
    driver.pass(57 * SECOND);
    assert_eq!(driver.did(), [Did::Abort(reads_nothing)]);
}

#[test]
fn limits_hold() {
    let mut driver = Driver::new(config());
    let first = driver.connect(2);
    driver.now += SECOND;
    driver.connect(3);
    driver.did();
    driver.send(4, b"one").unwrap();
    assert!(driver.did().contains(&Did::Finish(first)), "the one idle longest makes room");
    assert_eq!(driver.send(5, &[0; (1 << 20) + 1]), Err(Full), "too long");
    let mut driver = Driver::new(Config { connections_max: 1, ..config() });
    driver.send(2, b"one").unwrap();
    assert_eq!(driver.send(3, b"one"), Err(Full), "the only one is still being opened");
    let mut driver = Driver::new(Config { queue_bytes_max: 300_000, ..config() });
    driver.connect(2);
    assert!(driver.send(2, &[0; 250_000]).is_ok());
    assert_eq!(driver.send(2, &[0; 250_000]), Err(Full), "too much waits");
}

#[test]
fn an_end_within_a_message_is_an_error_and_between_messages_is_not() {
    let mut driver = Driver::new(config());
    let stream = driver.connect(2);
    driver.receive(stream, &frame(b"one")).unwrap();
    let (now, queue) = (driver.now, &mut driver.queue);
    assert_eq!(driver.pool.finished(now, stream, &mut queue.outbox()), Ok(()));
    assert_eq!(driver.did(), [Did::Finish(stream)]);
    assert_eq!(driver.closed(stream, CloseReason::Reset).map(|lost| lost.peer), Some(Some(addr(2))));
    let stream = driver.connect(2);
    driver.receive(stream, &frame(b"one")[..5]).unwrap();
    let (now, queue) = (driver.now, &mut driver.queue);
    assert_eq!(driver.pool.finished(now, stream, &mut queue.outbox()), Err(DecodeError::Truncated));
}

#[test]
fn a_peer_that_has_finished_still_gets_queued_messages() {
    let mut driver = Driver::new(config());
    let stream = driver.connect(2);
    driver.send(2, &[7; 200_000]).unwrap();
    let mut bytes = driver.written(stream).len();
    let (now, queue) = (driver.now, &mut driver.queue);
    driver.pool.finished(now, stream, &mut queue.outbox()).unwrap();
    assert_eq!(driver.did(), [], "our end waits for the queue");
    let mut unsent = bytes;
    loop {
        driver.sent(stream, unsent);
        let did = driver.did();
        unsent = did.iter().map(|did| if let Did::Write(_, bytes) = did { bytes.len() } else { 0 }).sum();
        bytes += unsent;
        if did.contains(&Did::Finish(stream)) {
            break;
        }
    }
    assert!(bytes > 200_000);
}

#[test]
fn all_queues_together_have_a_limit_and_one_more_has_room_always() {
    let mut driver = Driver::new(Config { connections_max: 100, ..config() });
    let mut streams = Vec::new();
    for to in 2..40 {
        streams.push(driver.connect(to));
        while driver.send(to, &[0; 20_000]).is_ok() {}
    }
    let queued =
        |driver: &Driver| driver.pool.connections.iter().map(Connection::queued_bytes).sum::<usize>();
    assert_eq!(driver.pool.connections.queued_bytes(), queued(&driver));
    assert!(queued(&driver) <= 2 << 20 && queued(&driver) > 1 << 20, "{}", queued(&driver));
    let late = driver.connect(50);
    assert!(driver.send(50, &[0; 1000]).is_ok(), "a peer that reads still has room");
    driver.did();
    // The bytes are released by the kernel, by the end, or by a reset.
    for (at, stream) in streams.into_iter().enumerate() {
        match at % 3 {
            0 => driver.sent(stream, 1 << 20),
            1 => drop(driver.closed(stream, CloseReason::Reset)),
            _ => drop(driver.pool.finished(driver.now, stream, &mut driver.queue.outbox())),
        }
        assert_eq!(driver.pool.connections.queued_bytes(), queued(&driver));
    }
    driver.pool.finish_all(driver.now, &mut driver.queue.outbox());
    driver.pass(60 * SECOND);
    driver.pass(60 * SECOND);
    assert!(!driver.pool.contains(late) && driver.pool.is_empty());
    assert_eq!(driver.pool.connections.queued_bytes(), 0);
}

#[test]
fn incomplete_large_messages_have_a_common_limit() {
    let mut driver = Driver::new(Config { unfinished_bytes_max: 1 << 20, ..config() });
    let part = [&(1u32 << 30 | 16_384).to_be_bytes()[..], &[0; 16_384]].concat();
    let mut refused = 0;
    for number in 1..40 {
        let stream = driver.accept_from(number, number as u8);
        for _ in 0..10 {
            if let Err(error) = driver.receive(stream, &part) {
                assert_eq!(error, DecodeError::Limit(UNFINISHED));
                driver.closed(stream, CloseReason::Reset);
                refused += 1;
                break;
            }
        }
        let held: usize = driver.pool.connections.iter().map(Connection::unfinished_bytes).sum();
        assert_eq!(driver.pool.connections.unfinished_bytes(), held);
        assert!(held <= 1 << 20, "{held}");
    }
    assert!((30..39).contains(&refused), "{refused}");
    let stream = driver.accept_from(100, 100);
    assert_eq!(
        driver.receive(stream, &frame(b"one")),
        Ok(vec![b"one".to_vec()]),
        "small ones are not concerned"
    );
    driver.pass(60 * SECOND);
    driver.pass(60 * SECOND);
    assert_eq!((driver.pool.len(), driver.pool.connections.unfinished_bytes()), (0, 0));
}

#[test]
fn connections_from_one_address_are_limited() {
    let mut driver = Driver::new(config());
    for number in 1..=3 {
        driver.accept_from(number, 9);
    }
    driver.did();
    let fourth = driver.accept_from(4, 9);
    assert_eq!((driver.did(), driver.pool.len()), (vec![Did::Abort(fourth)], 3));
    driver.accept_from(5, 8);
    assert_eq!(driver.pool.len(), 4, "another is let in");
    driver.closed(StreamId::accepted(1), CloseReason::Done);
    driver.accept_from(6, 9);
    assert_eq!(driver.pool.len(), 4);
}
