//! Streams under all faults at once: a machine that sends at random and checks every rule of streams.

use core::time::Duration;
use std::collections::BTreeMap;
use std::net::SocketAddr;

use annulus_core::{
    Bound, CloseReason, Endpoints, Instant, Listener, ListenerId, Machine, Now, Outbox, Refusal, RequestId,
    Rng, SocketId, StoreReply, StreamEvent, StreamId, VisitCounter, Watch,
};
use annulus_sim::{Conditions, Fault, HostId, Observer, Sim, Stats, Verdict};
use serde::Serialize;

/// The byte that every writer writes at a place.
fn pattern(at: u64) -> u8 {
    (at * 31 + at / 256) as u8
}

/// A machine's state of one of its streams.
#[derive(Default)]
struct Talk {
    begun: bool,
    written: u64,
    sent: u64,
    confirmed: u64,
    finish: bool,
    fin_sent: bool,
    credit: u64,
    received: u64,
    finished: bool,
}

struct Chatter {
    bind: SocketAddr,
    peers: Vec<SocketAddr>,
    rng: Rng,
    next: Option<Instant>,
    opened: u64,
    talks: BTreeMap<StreamId, Talk>,
}

#[derive(Debug, Serialize)]
struct Closed(CloseReason, u64);

impl Chatter {
    /// Does something to a stream, or opens one.
    fn act(&mut self, out: &mut Outbox<'_, Self>) {
        let streams: Vec<StreamId> = self.talks.keys().copied().collect();
        let chosen = self.rng.pick(&streams).copied();
        match (self.rng.below(10), chosen) {
            (0, _) | (_, None) => {
                self.opened += 1;
                let stream = StreamId::opened(self.opened);
                let to = *self.rng.pick(&self.peers).expect("there are peers");
                self.talks.insert(stream, Talk::default());
                out.open(stream, to, None);
            }
            (1..=4, Some(stream)) => self.write(stream, out),
            (5..=7, Some(stream)) => self.read(stream, out),
            (8, Some(stream)) if self.rng.chance(0.5) => {
                let dead_after =
                    self.rng.chance(0.5).then(|| Duration::from_millis(self.rng.between(500, 9_000)));
                out.watch(stream, Watch { confirm: self.rng.chance(0.8), dead_after });
            }
            (8, Some(stream)) => {
                let talk = self.talks.get_mut(&stream).expect("chosen from them");
                talk.finish = true;
                out.finish(stream);
            }
            (_, Some(stream)) => {
                if self.rng.chance(0.2) {
                    self.talks.remove(&stream);
                    out.abort(stream);
                }
            }
        }
    }

    fn write(&mut self, stream: StreamId, out: &mut Outbox<'_, Self>) {
        let length = 1 << self.rng.below(15);
        let talk = self.talks.get_mut(&stream).expect("chosen from them");
        // Heeds `Sent`: never more under way than a driver keeps.
        if talk.finish || talk.written - talk.sent > 100_000 {
            return;
        }
        let bytes: Vec<u8> = (talk.written..talk.written + length).map(pattern).collect();
        talk.written += length;
        out.write(stream, &bytes);
    }

    fn read(&mut self, stream: StreamId, out: &mut Outbox<'_, Self>) {
        let credit = 1 << self.rng.below(16);
        self.talks.get_mut(&stream).expect("chosen from them").credit += credit;
        out.read(stream, credit as usize);
    }

    fn close(&mut self, stream: StreamId, reason: CloseReason, out: &mut Outbox<'_, Self>) {
        let talk = self.talks.remove(&stream).expect("closed once, and not after an abort");
        match reason {
            CloseReason::Done => assert!(talk.finished && talk.fin_sent && talk.sent == talk.written),
            CloseReason::Refused | CloseReason::Unreachable | CloseReason::Failed => assert!(!talk.begun),
            CloseReason::TimedOut | CloseReason::Reset => {}
            reason => panic!("it heeded what was sent: {reason:?}"),
        }
        out.event(Closed(reason, talk.received));
    }
}

impl Machine for Chatter {
    type Command = ();
    type Reply = ();
    type Event = Closed;

    fn endpoints(&self) -> Endpoints {
        let listener = Listener { id: ListenerId::new(0), name: "tcp", bind: self.bind, streams_max: 20 };
        Endpoints { listeners: vec![listener], ..Endpoints::default() }
    }

    fn handle_start(&mut self, now: Now, _: &Bound, _: &mut Outbox<'_, Self>) {
        self.next = Some(now.mono);
    }

    fn handle_datagram(
        &mut self,
        _: Now,
        _: SocketId,
        _: SocketAddr,
        _: &[u8],
        _: &mut Outbox<'_, Self>,
    ) -> Result<(), Refusal> {
        unreachable!("it has no socket")
    }

    fn handle_stream(
        &mut self,
        _: Now,
        stream: StreamId,
        event: StreamEvent<'_>,
        out: &mut Outbox<'_, Self>,
    ) -> Result<(), Refusal> {
        if matches!(event, StreamEvent::Accepted { .. }) {
            assert!(stream.is_accepted());
            let before = self.talks.insert(stream, Talk { begun: true, ..Talk::default() });
            assert!(before.is_none(), "a number is used once");
            return Ok(());
        }
        let talk = self.talks.get_mut(&stream).expect("nothing comes after the end or an abort");
        match event {
            StreamEvent::Accepted { .. } => {}
            StreamEvent::Connected { .. } => {
                assert!(!talk.begun && !stream.is_accepted());
                talk.begun = true;
            }
            StreamEvent::Data(bytes) => {
                assert!(talk.begun && !talk.finished && !bytes.is_empty());
                assert!(bytes.len() as u64 <= talk.credit, "no more than was granted");
                for (place, byte) in (talk.received..).zip(bytes) {
                    assert_eq!(*byte, pattern(place), "byte {place}");
                }
                talk.credit -= bytes.len() as u64;
                talk.received += bytes.len() as u64;
            }
            StreamEvent::Sent { bytes, fin } => {
                assert!(talk.begun && !talk.fin_sent && (bytes > 0 || fin));
                talk.sent += bytes as u64;
                assert!(talk.sent <= talk.written);
                if fin {
                    assert!(talk.finish && talk.sent == talk.written, "the end comes after the last byte");
                    talk.fin_sent = true;
                }
            }
            StreamEvent::Confirmed { bytes } => {
                talk.confirmed += bytes as u64;
                assert!(bytes > 0 && talk.confirmed <= talk.sent, "never ahead of sent");
            }
            StreamEvent::Finished => {
                assert!(talk.begun && !talk.finished);
                talk.finished = true;
            }
            StreamEvent::Closed(reason) => self.close(stream, reason, out),
        }
        Ok(())
    }

    fn handle_stored(&mut self, _: Now, _: StoreReply<'_>, _: &mut Outbox<'_, Self>) {}

    fn handle_command(&mut self, _: Now, _: RequestId, (): (), _: &mut Outbox<'_, Self>) {}

    fn handle_timeout(&mut self, now: Now, out: &mut Outbox<'_, Self>) {
        if self.next.is_some_and(|at| at <= now.mono) {
            self.act(out);
            self.next = Some(now.mono + self.rng.duration_below(Duration::from_millis(50)));
        }
    }

    fn handle_stop(&mut self, _: Now, _: &mut Outbox<'_, Self>) {}

    fn is_stopped(&self) -> bool {
        true
    }

    fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        self.next.map(|at| (at, "chat"))
    }

    fn counters(&self, _: VisitCounter<'_>) {}
}

/// Counts the ends of streams, and the bytes of those that ended well.
#[derive(Default)]
struct Ends {
    counts: BTreeMap<String, u64>,
    bytes: u64,
}

impl Observer<Chatter> for Ends {
    fn on_event(&mut self, _: &Sim<Chatter>, _: HostId, Closed(reason, bytes): &Closed) -> Verdict {
        *self.counts.entry(format!("{reason:?}")).or_default() += 1;
        self.bytes += bytes;
        Ok(())
    }
}

fn chat(seed: u64, ends: &mut Ends) -> (String, Stats) {
    const HOSTS: u8 = 4;
    let peers: Vec<SocketAddr> = (1..=HOSTS + 1).map(|n| SocketAddr::from(([10, 0, 0, n], 80))).collect();
    let mut rng = Rng::from_number(seed, 77);
    let all = seed.is_multiple_of(2);
    let mut conditions = if all { Conditions::all_faults(&mut rng) } else { Conditions::swarm(&mut rng) };
    let buffers = [100, 1_000, 10_000, 65_536];
    conditions.config.stream.send_buffer_bytes = *rng.pick(&buffers).unwrap();
    conditions.config.stream.receive_buffer_bytes = *rng.pick(&buffers).unwrap();
    let mut sim = Sim::new(seed, conditions.config.clone(), move |birth| Chatter {
        bind: SocketAddr::new(birth.address, 80),
        peers: peers.clone(),
        rng: Rng::new(birth.seed),
        next: None,
        opened: 0,
        talks: BTreeMap::new(),
    });
    for _ in 0..HOSTS {
        sim.add_host();
    }
    if all {
        conditions.faults.schedule_all(seed, &mut sim, Duration::from_secs(25), &[]);
    } else {
        conditions.faults.schedule(seed, &mut sim, Duration::from_secs(25));
    }
    sim.run_for(Duration::from_secs(25), ends).unwrap();
    sim.fault(Fault::Calm);
    sim.run_for(Duration::from_secs(5), ends).unwrap();
    (sim.trace_hash().to_string(), *sim.stats())
}

#[test]
fn every_rule_of_streams_holds_under_all_faults() {
    let mut ends = Ends::default();
    for seed in 0..40 {
        let (hash, _) = chat(seed, &mut ends);
        if seed < 5 {
            assert_eq!(hash, chat(seed, &mut Ends::default()).0, "seed {seed}");
        }
    }
    for reason in ["Done", "Refused", "Unreachable", "TimedOut", "Reset"] {
        assert!(ends.counts.get(reason).is_some_and(|count| *count > 3), "{reason}: {:?}", ends.counts);
    }
    assert!(ends.bytes > 1_000_000, "{}", ends.bytes);
}
