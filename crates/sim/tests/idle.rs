//! The memory of an idle node. In a process of its own, because it measures the whole process.

use core::time::Duration;
use std::net::SocketAddr;

use annulus_core::ping::{Config, Ping};
use annulus_sim::Sim;

/// Resident memory of this process in bytes, if the system reports it.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib * 1024)
}

#[test]
fn an_idle_node_weighs_less_than_two_kibibytes() {
    const NODES: u64 = 20_000;
    let Some(before) = resident_bytes() else { return };
    let mut sim = Sim::new(1, annulus_sim::Config::default(), |birth| {
        let bind = SocketAddr::new(birth.address, 7001);
        Ping::new(&Config { bind, ..Config::default() }, birth.seed).expect("the defaults go together")
    });
    for _ in 0..NODES {
        sim.add_host();
    }
    sim.run_for(Duration::from_secs(3), &mut ()).unwrap();
    let bytes = (resident_bytes().unwrap() - before) / NODES;
    println!("{bytes} bytes for an idle node");
    assert!(bytes < 2048, "{bytes} bytes for an idle node");
    assert_eq!(sim.machines().count() as u64, NODES);
}
