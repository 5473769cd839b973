//! A system without free descriptors. It concerns the whole process, so it is alone in this file.

use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use annulus_core::ping::{Config, Ping, TCP};
use annulus_net::{Options, spawn};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[tokio::test]
async fn a_listener_without_descriptors_rests_and_goes_on_when_there_are_some() {
    let config = Config { bind: "127.0.0.1:0".parse().unwrap(), ..Config::default() };
    let handle = spawn(Ping::new(&config, [1; 32]).unwrap(), Options::default()).unwrap();
    // Everyone is at the door before the driver has its first turn: this thread does not leave before it awaits.
    let door = handle.bound().listener(TCP).unwrap();
    let clients: Vec<_> = (0..3).map(|_| TcpStream::connect(door).unwrap()).collect();

    let before = getrlimit(Resource::Nofile);
    // The next descriptor would have this number, and it is the first that is too many.
    let next = std::fs::File::open("/dev/null").unwrap().as_raw_fd().unsigned_abs();
    setrlimit(Resource::Nofile, Rlimit { current: Some(next.into()), maximum: before.maximum }).unwrap();
    let start = Instant::now();
    let failed = loop {
        let counters = handle.counters().await.unwrap().driver;
        assert_eq!(counters.streams_accepted, 0);
        if counters.accept_errors >= 3 {
            break counters.accept_errors;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "it does not try again");
    };
    let rests = start.elapsed().as_millis() as u64 / 100;
    assert!(failed <= rests + 2, "{failed} attempts with time for {rests} rests: it spins");

    setrlimit(Resource::Nofile, before).unwrap();
    while handle.counters().await.unwrap().driver.streams_accepted < 3 {
        assert!(start.elapsed() < Duration::from_secs(60), "it never accepts again");
    }
    drop(clients);
}
