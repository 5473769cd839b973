//! A reported delivery stays true: the sender loses power at the moment of its event, and reports the same after the
//! restart. And a recipient without room, which dies as well, gets every message once.

use core::time::Duration;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};

use annulus_core::w3w::{Command, Config, Event, Key, Mesh, Reply, Sent, SentState};
use annulus_sim::{Config as World, DiskFate, Fault, HostId, Observer, Sim, Verdict};

const SECOND: Duration = Duration::from_secs(1);

/// Cuts the power of the sender at its delivery event, before anything else happens.
struct Killer {
    sender: HostId,
    told: Option<u64>,
}

impl Observer<Mesh> for Killer {
    fn on_event(&mut self, sim: &Sim<Mesh>, host: HostId, event: &Event) -> Verdict {
        if let (Event::MessageStateChanged { number, state: SentState::Delivered, .. }, true, None) =
            (event, host == self.sender, self.told)
        {
            self.told = Some(*number);
            sim.inject(Fault::Crash { host, power: true, disk: DiskFate::UnsyncedLost });
        }
        Ok(())
    }
}

fn outbox(sim: &mut Sim<Mesh>, host: HostId) -> Vec<Sent> {
    match sim.ask(host, Command::Outbox { from: 0 }, 10 * SECOND, &mut ()) {
        Ok(Some(Reply::Outbox(lines))) => lines,
        other => panic!("the outbox is an answer: {other:?}"),
    }
}

#[test]
fn a_reported_delivery_is_true_after_a_loss_of_power() {
    for seed in 0..40 {
        let mut world = World::default();
        // Slow enough that everything else could come in between.
        world.disk.sync = Duration::from_millis(20)..=Duration::from_millis(400);
        let mut sim: Sim<Mesh> = Sim::new(seed, world, |birth| {
            let IpAddr::V4(ip) = birth.address else { unreachable!("the own address of a host is IPv4") };
            let uuid = (birth.host.index() as u128 + 1).to_be_bytes();
            let seeds = vec![Ipv4Addr::new(10, 0, 0, 1)];
            let bind = SocketAddrV4::new(ip, 22_000);
            Mesh::new(&Config { uuid, bind, seeds, ..Config::default() }, birth.seed).expect("valid")
        });
        let (recipient, sender) = (sim.add_host(), sim.add_host());
        let mut killer = Killer { sender, told: None };
        sim.run_for(10 * SECOND, &mut killer).expect("nothing is violated");
        let to = sim.machine(recipient).expect("it runs").nid();
        for number in 0..4u8 {
            let send = Command::Send { to, data: vec![number], receipt: true };
            sim.command_after(SECOND * u32::from(number) / 8, sender, send);
        }
        sim.run_for(10 * SECOND, &mut killer).expect("nothing is violated");
        let told = killer.told.expect("it was delivered");
        sim.fault(Fault::Start(sender));
        sim.run_for(SECOND, &mut ()).expect("nothing is violated");
        let lines = outbox(&mut sim, sender);
        let line = lines.iter().find(|line| line.number == told).expect("its line is there");
        assert_eq!(line.state, SentState::Delivered, "seed {seed}: {line:?}");
        // All other messages end well: unconfirmed ones are retransmitted, and none is delivered twice.
        sim.run_for(300 * SECOND, &mut ()).expect("nothing is violated");
        let inbox = match sim.ask(recipient, Command::Inbox { from: 0 }, 10 * SECOND, &mut ()) {
            Ok(Some(Reply::Inbox(lines))) => lines.len(),
            other => panic!("the inbox is an answer: {other:?}"),
        };
        assert_eq!(inbox, lines.len(), "seed {seed}: each once");
    }
}

/// Counts the events of the recipient.
#[derive(Default)]
struct Told(BTreeMap<Key, usize>);

impl Observer<Mesh> for Told {
    fn on_event(&mut self, _: &Sim<Mesh>, _: HostId, event: &Event) -> Verdict {
        if let Event::MessageReceived { message, .. } = event {
            *self.0.entry(message.key).or_default() += 1;
        }
        Ok(())
    }
}

#[test]
fn a_recipient_without_room_that_dies_gets_every_message_once_and_confirms_it() {
    const MESSAGES: usize = 24;
    for seed in 0..10 {
        let mut world = World::default();
        world.disk.sync = Duration::from_millis(5)..=Duration::from_millis(50);
        let mut sim: Sim<Mesh> = Sim::new(seed, world, |birth| {
            let IpAddr::V4(ip) = birth.address else { unreachable!("the own address of a host is IPv4") };
            let uuid = (birth.host.index() as u128 + 1).to_be_bytes();
            let seeds = vec![Ipv4Addr::new(10, 0, 0, 1)];
            let bind = SocketAddrV4::new(ip, 22_000);
            let config = Config { uuid, bind, seeds, ..Config::default() };
            // The first has room for two messages, and a few more may wait; the others have enough.
            let few = Config { quota_bytes: 250, memory_bytes_max: 2000, ..config.clone() };
            let config = if birth.host.index() == 0 { few } else { config };
            Mesh::new(&config, birth.seed).expect("valid")
        });
        let hosts = [sim.add_host(), sim.add_host(), sim.add_host()];
        let (recipient, mut told) = (hosts[0], Told::default());
        sim.run_for(10 * SECOND, &mut told).expect("nothing is violated");
        let to = sim.machine(recipient).expect("it runs").nid();
        for number in 0..MESSAGES {
            let send = Command::Send { to, data: vec![number as u8; 80], receipt: true };
            sim.command_after(SECOND * number as u32 / 4, hosts[1 + number % 2], send);
        }
        // The test empties the inbox sometimes, and power fails sometimes.
        for round in 0..100u32 {
            sim.run_for(30 * SECOND, &mut told).expect("nothing is violated");
            if round % 20 == 3 {
                sim.fault(Fault::Crash {
                    host: recipient,
                    power: round % 40 == 3,
                    disk: DiskFate::UnsyncedLost,
                });
                sim.run_for(SECOND, &mut told).expect("nothing is violated");
                sim.fault(Fault::Start(recipient));
                sim.run_for(10 * SECOND, &mut told).expect("nothing is violated");
            }
            if let Ok(Some(Reply::Inbox(lines))) =
                sim.ask(recipient, Command::Inbox { from: 0 }, SECOND, &mut told)
            {
                assert!(lines.len() <= 2, "seed {seed}: no more than there is room for");
                for line in lines {
                    sim.command(recipient, Command::Remove { number: line.number });
                }
            }
        }
        for sender in &hosts[1..] {
            for line in outbox(&mut sim, *sender) {
                assert_eq!(line.state, SentState::Delivered, "seed {seed}: {line:?}");
            }
        }
        // After a crash between the write and the event the message is in the inbox; no event comes twice.
        assert!(told.0.values().all(|times| *times == 1), "seed {seed}: {:?}", told.0);
        assert!(told.0.len() + 5 >= MESSAGES && told.0.len() <= MESSAGES, "seed {seed}: {}", told.0.len());
    }
}
