//! The connection pool under partitions: machines that only exchange messages.

use core::time::Duration;
use std::collections::BTreeMap;
use std::net::SocketAddr;

use annulus_core::pool::{Config, Expects, Lost, Pool};
use annulus_core::{
    Bound, CloseReason, Endpoints, Instant, Listener, ListenerId, Machine, Now, Outbox, Refusal, RequestId,
    SocketId, StoreReply, StreamEvent, StreamId, VisitCounter,
};
use annulus_sim::{Fault, HostId, Observer, Sim, Verdict};
use serde::Serialize;

const PORT: u16 = 4000;
const EVERY: Duration = Duration::from_millis(500);
const SECOND: Duration = Duration::from_secs(1);

/// Sends a request to every other node twice a second, and answers requests at once.
struct Talker {
    own: SocketAddr,
    peers: Vec<SocketAddr>,
    pool: Pool<SocketAddr>,
    /// Questions under way: to whom, by which connection.
    asked: BTreeMap<u64, (SocketAddr, StreamId)>,
    next: u64,
    next_at: Instant,
}

/// An answer came from there.
#[derive(Debug, Serialize)]
struct Answered(SocketAddr);

impl Talker {
    fn new(own: SocketAddr, peers: Vec<SocketAddr>) -> Self {
        let config = Config {
            connections_max: 64,
            accepted_per_address_max: 16,
            queue_bytes_max: 1 << 20,
            queues_bytes_max: 4 << 20,
            message_bytes_max: 1 << 16,
            unfinished_bytes_max: 1 << 20,
            connect_timeout: 3 * SECOND,
            idle_timeout: 60 * SECOND,
            keeps_connections: false,
        };
        let mut pool = Pool::new(config);
        pool.set_greeting(own.to_string().into_bytes(), Some(own.ip()));
        Self { own, peers, pool, asked: BTreeMap::new(), next: 0, next_at: Instant::ZERO }
    }

    fn ask(&mut self, now: Instant, number: u64, to: SocketAddr, out: &mut Outbox<'_, Self>) {
        let question = [&b"?"[..], &number.to_be_bytes()].concat();
        if let Ok(taken) = self.pool.send(now, to, &question, Expects::Reply, out) {
            self.asked.insert(number, (to, taken.stream));
        }
    }

    /// Resends the messages of a lost connection with the same number.
    fn lost(&mut self, now: Instant, lost: Lost, out: &mut Outbox<'_, Self>) {
        let again: Vec<_> = (self.asked.iter().filter(|(_, (_, stream))| *stream == lost.stream))
            .map(|(number, (to, _))| (*number, *to))
            .collect();
        for (number, to) in again {
            self.ask(now, number, to, out);
        }
    }

    fn received(&mut self, now: Instant, stream: StreamId, data: &[u8], out: &mut Outbox<'_, Self>) {
        let mut messages = Vec::new();
        let mut take = |message: &[u8]| {
            messages.push(message.to_vec());
            Ok(())
        };
        self.pool.received(now, stream, data, &mut take, out).expect("only talkers talk");
        for message in messages {
            let Some(&from) = self.pool.peer(stream).map(|peer| peer.label) else {
                let from: SocketAddr =
                    std::str::from_utf8(&message).expect("text").parse().expect("an address");
                self.pool.greeted(now, stream, from, from, out);
                continue;
            };
            if message[0] == b'?' {
                let answer = [&b"!"[..], &message[1..]].concat();
                let _ = self.pool.send(now, from, &answer, Expects::Nothing, out);
            } else if let Ok(number) = message[1..].try_into()
                && self.asked.remove(&u64::from_be_bytes(number)).is_some()
            {
                out.event(Answered(from));
            }
        }
    }

    fn settle(&mut self, now: Instant, out: &mut Outbox<'_, Self>) {
        while let Some(lost) = self.pool.next_lost() {
            self.lost(now, lost, out);
        }
    }
}

impl Machine for Talker {
    type Command = ();
    type Reply = ();
    type Event = Answered;

    fn endpoints(&self) -> Endpoints {
        let listener = Listener { id: ListenerId::new(0), name: "talk/tcp", bind: self.own, streams_max: 64 };
        Endpoints { listeners: vec![listener], ..Endpoints::default() }
    }

    fn handle_start(&mut self, now: Now, _: &Bound, _: &mut Outbox<'_, Self>) {
        self.next_at = now.mono;
    }

    fn handle_datagram(
        &mut self,
        _: Now,
        _: SocketId,
        _: SocketAddr,
        _: &[u8],
        _: &mut Outbox<'_, Self>,
    ) -> Result<(), Refusal> {
        Ok(())
    }

    fn handle_stream(
        &mut self,
        now: Now,
        stream: StreamId,
        event: StreamEvent<'_>,
        out: &mut Outbox<'_, Self>,
    ) -> Result<(), Refusal> {
        let now = now.mono;
        match event {
            StreamEvent::Accepted { from, .. } => drop(self.pool.accepted(now, stream, from.ip(), out)),
            StreamEvent::Connected { .. } => self.pool.connected(now, stream, out),
            StreamEvent::Data(data) => self.received(now, stream, data, out),
            StreamEvent::Sent { bytes, .. } => self.pool.sent(now, stream, bytes, out),
            StreamEvent::Confirmed { .. } => {}
            StreamEvent::Finished => self.pool.finished(now, stream, out).expect("talkers end well"),
            StreamEvent::Closed(reason) => {
                let lost = self.pool.closed(now, stream, reason, out);
                if let Some(lost) = lost.filter(|_| reason != CloseReason::Done) {
                    self.lost(now, lost, out);
                }
            }
        }
        self.settle(now, out);
        Ok(())
    }

    fn handle_stored(&mut self, _: Now, _: StoreReply<'_>, _: &mut Outbox<'_, Self>) {}

    fn handle_command(&mut self, _: Now, request: RequestId, (): (), out: &mut Outbox<'_, Self>) {
        out.reply(request, ());
    }

    fn handle_timeout(&mut self, now: Now, out: &mut Outbox<'_, Self>) {
        self.pool.expire(now.mono, out);
        if self.next_at <= now.mono {
            self.next_at = now.mono + EVERY;
            for to in self.peers.clone() {
                self.next += 1;
                self.ask(now.mono, self.next, to, out);
            }
        }
        self.settle(now.mono, out);
    }

    fn handle_stop(&mut self, _: Now, _: &mut Outbox<'_, Self>) {}

    fn is_stopped(&self) -> bool {
        true
    }

    fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        let pool = self.pool.deadline().map(|at| (at, "talk.pool"));
        [Some((self.next_at, "talk.next")), pool].into_iter().flatten().min()
    }

    fn counters(&self, _: VisitCounter<'_>) {}
}

/// When each pair last had an answer.
#[derive(Default)]
struct Answers(BTreeMap<(HostId, SocketAddr), Duration>);

impl Observer<Talker> for Answers {
    fn on_event(&mut self, sim: &Sim<Talker>, host: HostId, Answered(from): &Answered) -> Verdict {
        self.0.insert((host, *from), sim.elapsed());
        Ok(())
    }
}

fn addr(host: u32) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host as u8 + 1], PORT))
}

#[test]
fn pl_11_all_pairs_talk_within_two_seconds_after_a_partition_heals() {
    const NODES: u32 = 8;
    for (seed, cut) in [(1, 5), (2, 11), (3, 27), (4, 60)] {
        let mut sim = Sim::new(seed, annulus_sim::Config::default(), |birth| {
            let own = SocketAddr::new(birth.address, PORT);
            let peers = (0..NODES).map(addr).filter(|peer| *peer != own).collect();
            Talker::new(own, peers)
        });
        let hosts: Vec<HostId> = (0..NODES).map(|_| sim.add_host()).collect();
        let mut answers = Answers::default();
        sim.run_for(3 * SECOND, &mut answers).unwrap();
        sim.fault(Fault::Partition(vec![hosts[..4].to_vec(), hosts[4..].to_vec()]));
        sim.run_for(SECOND * cut, &mut answers).unwrap();
        sim.fault(Fault::Heal);
        let healed = sim.elapsed();
        sim.run_for(2 * SECOND, &mut answers).unwrap();
        let silent: Vec<_> = answers.0.iter().filter(|(_, last)| **last <= healed).collect();
        assert_eq!(answers.0.len() as u32, NODES * (NODES - 1));
        assert!(silent.is_empty(), "after {cut} s: {silent:?}");
        sim.run_for(5 * SECOND, &mut answers).unwrap();
        for (host, talker) in sim.machines() {
            assert!(talker.pool.len() < 2 * NODES as usize, "{host} has {}", talker.pool.len());
            assert!(talker.asked.len() <= 2 * NODES as usize, "{host} waits for {}", talker.asked.len());
        }
    }
}
