//! A few nodes, and everything that they deliver.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};

use annulus_core::w3w::{
    Body, Command, Config, Event, Form, Key, Mesh, Nid, QUEUE, Reply, Sent, SentState, Verdict as Said,
    decode_body, queued_key, read_form,
};
use annulus_core::{RequestId, StreamId};
use annulus_sim::{Config as World, DiskFate, Fault, HostId, Observer, Sim, Verdict, Violation};

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MINUTE: Duration = Duration::from_secs(60);
pub(crate) const DAY: Duration = Duration::from_secs(86_400);

/// The identity of a message: sender, epoch and number of a letter; sender and hash of a plain one.
pub(crate) type Name = (Nid, u64, u64, Option<Key>);

#[derive(Default)]
pub(crate) struct Watch {
    /// The number of deliveries of each message.
    pub(crate) delivered: BTreeMap<Name, u32>,
    pub(crate) acknowledged: BTreeMap<RequestId, (HostId, u64)>,
    pub(crate) states: BTreeMap<(HostId, u64), SentState>,
    pub(crate) stores_lost: u32,
    /// Recipients whose stores were lost or restored: their letters may arrive again.
    pub(crate) forgetful: Vec<HostId>,
    /// The number of `held` frames.
    pub(crate) held: u32,
    /// A node that loses power when it writes `held`, and how often.
    pub(crate) kill_at_held: Option<(HostId, u32)>,
    /// The DATA of all plain messages that were written, by writer.
    pub(crate) plain_written: BTreeSet<(HostId, Vec<u8>)>,
}

impl Watch {
    pub(crate) fn total(&self) -> usize {
        self.delivered.len()
    }
}

impl Observer<Mesh> for Watch {
    fn on_event(&mut self, _: &Sim<Mesh>, host: HostId, event: &Event) -> Verdict {
        match event {
            Event::MessageReceived { message, data } => {
                let name = match read_form(data) {
                    Form::Letter(letter) => (message.from, letter.epoch, letter.number, None),
                    _ => (message.from, 0, 0, Some(message.key)),
                };
                let times = self.delivered.entry(name).or_default();
                *times += 1;
                if *times > 1 && !self.forgetful.contains(&host) {
                    return Err(Violation::new(format!("{host} was given {name:?} twice")));
                }
            }
            Event::MessageStateChanged { number, state, .. } => {
                self.states.insert((host, *number), *state);
            }
            Event::RecipientLostStore { .. } => self.stores_lost += 1,
            _ => {}
        }
        Ok(())
    }

    fn on_reply(&mut self, _: &Sim<Mesh>, host: HostId, request: RequestId, reply: &Reply) -> Verdict {
        if let Reply::Sent { number, .. } = reply {
            self.acknowledged.insert(request, (host, *number));
        }
        Ok(())
    }

    fn on_write(&mut self, sim: &Sim<Mesh>, host: HostId, _: StreamId, bytes: &[u8]) {
        let Some(Ok(Body::Message(message))) = bytes.get(4..).map(decode_body) else {
            return;
        };
        let custody = match read_form(message.data()) {
            Form::Custody(custody) => custody,
            Form::Plain(_) => {
                self.plain_written.insert((host, message.data().to_vec()));
                return;
            }
            _ => return,
        };
        if custody.verdicts.iter().any(|(_, verdict)| *verdict == Said::Held) {
            self.held += 1;
            if let Some((victim, left)) = &mut self.kill_at_held
                && *victim == host
                && *left > 0
            {
                *left -= 1;
                sim.inject(Fault::Crash { host, power: true, disk: DiskFate::UnsyncedLost });
            }
        }
    }
}

/// A few nodes that all know the first one.
pub(crate) struct Post {
    pub(crate) sim: Sim<Mesh>,
    pub(crate) watch: Watch,
    pub(crate) hosts: Vec<HostId>,
}

impl Post {
    pub(crate) fn new(nodes: u32, seed: u64, change: fn(&mut Config, usize)) -> Self {
        Self::with_world(nodes, seed, World::default(), change)
    }

    pub(crate) fn with_world(nodes: u32, seed: u64, world: World, change: fn(&mut Config, usize)) -> Self {
        let mut sim: Sim<Mesh> = Sim::new(seed, world, move |birth| {
            let IpAddr::V4(ip) = birth.address else { unreachable!("the own address of a host is IPv4") };
            let mut config = Config {
                uuid: (birth.host.index() as u128 + 1).to_be_bytes(),
                bind: SocketAddrV4::new(ip, 22_000),
                seeds: vec![Ipv4Addr::new(10, 0, 0, 1)],
                ..Config::default()
            };
            change(&mut config, birth.host.index());
            Mesh::new(&config, birth.seed).expect("valid")
        });
        let hosts: Vec<HostId> = (0..nodes).map(|_| sim.add_host()).collect();
        let mut post = Self { sim, watch: Watch::default(), hosts };
        post.run(MINUTE);
        post
    }

    pub(crate) fn run(&mut self, time: Duration) {
        self.sim.run_for(time, &mut self.watch).unwrap_or_else(|violation| panic!("{violation}"));
    }

    pub(crate) fn nid(&self, host: HostId) -> Nid {
        Nid::from_uuid((host.index() as u128 + 1).to_be_bytes())
    }

    pub(crate) fn crash(&mut self, host: HostId, power: bool, disk: DiskFate) {
        if matches!(disk, DiskFate::Lost | DiskFate::Rollback) {
            self.watch.forgetful.push(host);
        }
        self.sim.fault(Fault::Crash { host, power, disk });
    }

    pub(crate) fn restart(&mut self, host: HostId) {
        self.crash(host, true, DiskFate::UnsyncedLost);
        self.run(SECOND);
        self.sim.fault(Fault::Start(host));
    }

    pub(crate) fn cut(&mut self, one: HostId, other: HostId) {
        self.sim.fault(Fault::Cut { from: one, to: other });
        self.sim.fault(Fault::Cut { from: other, to: one });
    }

    pub(crate) fn letter(&mut self, from: HostId, to: HostId, text: &str) {
        self.letter_for(from, to, text, None);
    }

    pub(crate) fn letter_for(&mut self, from: HostId, to: HostId, text: &str, lifetime: Option<Duration>) {
        let (to, data) = (self.nid(to), text.as_bytes().to_vec());
        self.sim.command(from, Command::SendLetter { to, data, lifetime, certain: true, receipt: false });
    }

    pub(crate) fn plain(&mut self, from: HostId, to: HostId, text: &str) {
        let (to, data) = (self.nid(to), text.as_bytes().to_vec());
        self.sim.command(from, Command::Send { to, data, receipt: false });
    }

    pub(crate) fn ask(&mut self, host: HostId, command: Command) -> Reply {
        let reply = self.sim.ask(host, command, 10 * SECOND, &mut self.watch);
        reply.unwrap_or_else(|violation| panic!("{violation}")).expect("it answers")
    }

    pub(crate) fn outbox(&mut self, host: HostId) -> Vec<Sent> {
        match self.ask(host, Command::Outbox { from: 0 }) {
            Reply::Outbox(lines) => lines,
            other => panic!("the outbox is an answer: {other:?}"),
        }
    }

    pub(crate) fn inbox(&mut self, host: HostId) -> usize {
        match self.ask(host, Command::Inbox { from: 0 }) {
            Reply::Inbox(lines) => lines.len(),
            other => panic!("the inbox is an answer: {other:?}"),
        }
    }

    /// All letters of a sender are reported as delivered.
    pub(crate) fn all_delivered(&mut self, from: HostId) {
        for line in self.outbox(from) {
            assert_eq!(line.state, SentState::Delivered, "{line:?}");
        }
    }

    /// The messages in the queue of a node, by the disk.
    pub(crate) fn queued(&self, host: HostId) -> usize {
        let disk = self.sim.disk(host).expect("it has a disk");
        disk.entries(QUEUE).filter(|(_, record)| queued_key(record).is_some()).count()
    }

    /// A message as the node decides: a letter only if it knows that the recipient knows letters.
    pub(crate) fn message(&mut self, from: HostId, to: HostId, text: &str) {
        let (to, data) = (self.nid(to), text.as_bytes().to_vec());
        let (lifetime, certain, receipt) = (None, false, false);
        self.sim.command(from, Command::SendLetter { to, data, lifetime, certain, receipt });
    }
}
