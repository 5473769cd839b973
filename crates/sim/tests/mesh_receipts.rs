//! What a sender was told stays true: it dies in the very moment in which it tells that a message was delivered, and says
//! the same when it comes back.

use core::time::Duration;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};

use annulus_core::w3w::{Command, Config, Event, Mesh, Reply, Sent, SentState};
use annulus_sim::{Config as World, DiskFate, Fault, HostId, Observer, Sim, Verdict};

const SECOND: Duration = Duration::from_secs(1);

/// Lets the sender's machine lose power when it tells that a message was delivered, before anything else happens.
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
fn what_was_told_as_delivered_is_so_after_a_loss_of_power() {
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
        // And whatever else was sent ends well: what is not confirmed is offered again, what is there is not taken twice.
        sim.run_for(300 * SECOND, &mut ()).expect("nothing is violated");
        let inbox = match sim.ask(recipient, Command::Inbox { from: 0 }, 10 * SECOND, &mut ()) {
            Ok(Some(Reply::Inbox(lines))) => lines.len(),
            other => panic!("the inbox is an answer: {other:?}"),
        };
        assert_eq!(inbox, lines.len(), "seed {seed}: each once");
    }
}
