//! From the first bind to the last byte: errors at the start, commands, events, timers, the end.

use std::net::{TcpListener, UdpSocket};
use std::time::Duration;

use annulus_net::{Driver, Ended, Options, Stopped, TryCommandError};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use crate::puppet::{Do, Puppet, Saw, Stage, guard, owned, patient};

#[tokio::test]
async fn a_port_in_use_is_named_with_a_remedy() {
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let bind = taken.local_addr().unwrap();
    let refused = Driver::bind(Puppet { bind, ..Puppet::default() }, patient());
    let text = refused.err().expect("the port is taken").to_string();
    assert_eq!(text, format!("another process uses {bind}/udp (puppet/udp): stop it or choose another port"));

    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let bind = taken.local_addr().unwrap();
    let refused = Driver::bind(Puppet { bind, ..Puppet::default() }, patient());
    let text = refused.err().expect("the port is taken").to_string();
    assert_eq!(text, format!("another process uses {bind}/tcp (puppet/tcp): stop it or choose another port"));

    let bind = "192.0.2.1:0".parse().unwrap();
    let refused = Driver::bind(Puppet { bind, ..Puppet::default() }, patient());
    let text = refused.err().expect("not an address of ours").to_string();
    assert!(text.starts_with("192.0.2.1 is not an address of this machine"), "{text}");
}

#[tokio::test]
async fn a_timer_wakes_the_machine() {
    let mut stage = Stage::plain();
    stage.tell([Do::Wake(Duration::from_millis(20))]).await;
    assert_eq!(stage.next().await, Saw::Timeout);
    stage.tell([Do::Wake(Duration::from_secs(3600))]).await;
    stage.tell([Do::Wake(Duration::ZERO)]).await;
    assert_eq!(stage.next().await, Saw::Timeout, "an earlier deadline replaces a later one");
    assert_eq!(stage.counters().await.timeouts, 2);
}

#[tokio::test]
async fn commands_beyond_the_limit_come_back_or_wait() {
    let options = Options { commands_max: 4, requests_max: 2, ..patient() };
    let stage = Stage::new(Puppet::default(), options);
    // The runtime has one thread and does not leave this function before the next await.
    let mut pending = Vec::new();
    let full = loop {
        match stage.handle.try_command(Vec::new()) {
            Ok(reply) => pending.push(reply),
            Err(error) => break error,
        }
    };
    assert!(matches!(full, TryCommandError::Full(_)));
    assert_eq!(pending.len(), 4);
    // One more waits in line, and all are answered, two at a time.
    stage.tell([]).await;
    for reply in pending {
        guard(reply.reply()).await.unwrap();
    }

    // Two commands without a reply fill the limit; when their callers drop them there is room again.
    let never: Vec<_> = (0..2).map(|_| stage.handle.try_command(vec![Do::Ignore]).unwrap()).collect();
    let waits = stage.handle.try_command(Vec::new()).unwrap();
    while guard(stage.handle.counters()).await.unwrap().driver.commands < 7 {}
    drop(never);
    stage.tell([]).await;
    guard(waits.reply()).await.unwrap();
}

#[tokio::test]
async fn only_a_slow_subscriber_misses_events() {
    let options = Options { events_max: 10, ..patient() };
    let (driver, handle) = Driver::bind(Puppet::default(), options).unwrap();
    let mut slow = handle.events();
    tokio::spawn(driver);
    assert_eq!(owned(guard(slow.next()).await), Some(Saw::Start));
    guard(handle.command(vec![Do::Shout(30)])).await.unwrap();
    let mut late = handle.events();
    guard(handle.command(vec![Do::Shout(3)])).await.unwrap();
    let heard = |events: &mut annulus_net::Events<Puppet>| {
        std::iter::from_fn(|| owned(events.try_next())).filter(|saw| matches!(saw, Saw::Shout(_))).count()
    };
    assert_eq!(heard(&mut slow), 9, "ten with the command itself");
    assert_eq!(slow.missed(), 21 + 4);
    assert_eq!((heard(&mut late), late.missed()), (3, 0));
    assert_eq!(guard(handle.counters()).await.unwrap().driver.events_shed, 25);
    guard(handle.stop()).await;
    assert_eq!(owned(guard(slow.next()).await), Some(Saw::Stop));
    assert_eq!(owned(guard(slow.next()).await), None);
}

#[tokio::test]
async fn a_stop_lets_the_machine_finish_and_sends_its_written_bytes() {
    let mut stage = Stage::new(
        Puppet { stop_timers: 2, ..Puppet::default() },
        Options { stream_bytes_max: 64 << 20, ..patient() },
    );
    let mut client = guard(TcpStream::connect(stage.tcp())).await.unwrap();
    let id = stage.accepted().await;
    let all = 20 << 20;
    stage.tell([Do::Write(id, vec![7; all]), Do::Finish(id)]).await;
    let mut got = Vec::new();
    let (ended, read) = tokio::join!(stage.handle.stop(), guard(client.read_to_end(&mut got)));
    assert_eq!((ended, read.unwrap()), (Ended::Stopped, all));
    let mut saw = Vec::new();
    while let Some(event) = guard(stage.events.next()).await {
        saw.push(Saw::clone(&event));
    }
    let stop = saw.iter().position(|saw| *saw == Saw::Stop).unwrap();
    assert_eq!(saw[stop..].iter().filter(|saw| **saw == Saw::Timeout).count(), 2);
    assert!(matches!(stage.handle.command(Vec::new()).await, Err(Stopped)));
    assert_eq!(stage.handle.stop().await, Ended::Stopped, "to stop twice is harmless");
}

#[tokio::test]
async fn the_timeout_of_a_stop_ends() {
    let options = Options { grace: Duration::from_millis(30), ..patient() };
    let stage = Stage::new(Puppet { refuses_to_stop: true, ..Puppet::default() }, options);
    assert_eq!(guard(stage.handle.stop()).await, Ended::GraceOver);
}

#[tokio::test]
async fn an_abort_frees_the_ports_and_tells_the_machine_nothing() {
    let mut stage = Stage::new(Puppet { refuses_to_stop: true, ..Puppet::default() }, patient());
    let (udp, tcp) = (stage.udp(), stage.tcp());
    stage.handle.abort();
    assert_eq!(guard(stage.handle.ended()).await, Ended::Aborted);
    UdpSocket::bind(udp).unwrap();
    TcpListener::bind(tcp).unwrap();
    while let Some(event) = guard(stage.events.next()).await {
        assert_ne!(*event, Saw::Stop);
    }
}

#[tokio::test]
async fn the_last_handle_dropped_stops_the_machine() {
    let stage = Stage::plain();
    let Stage { handle, mut events } = stage;
    let second = handle.clone();
    drop(handle);
    guard(second.command(Vec::new())).await.unwrap();
    drop(second);
    let mut saw = Vec::new();
    while let Some(event) = guard(events.next()).await {
        saw.push(Saw::clone(&event));
    }
    assert_eq!(saw.last(), Some(&Saw::Stop));
}

#[tokio::test]
async fn handles_report_a_dropped_driver() {
    let (driver, handle) = Driver::bind(Puppet::default(), patient()).unwrap();
    let mut events = handle.events();
    let (ended, ()) = tokio::join!(guard(handle.ended()), async { drop(driver) });
    assert_eq!(ended, Ended::Dropped);
    assert!(matches!(handle.command(Vec::new()).await, Err(Stopped)));
    assert!(events.next().await.is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_runs_on_several_threads_too() {
    let mut stage = Stage::plain();
    for _ in 0..20 {
        let (id, mut client) = crate::streams::stage_and_client(&mut stage).await;
        stage.tell([Do::Write(id, b"hello".to_vec()), Do::Finish(id), Do::Wake(Duration::ZERO)]).await;
        let mut got = Vec::new();
        guard(client.read_to_end(&mut got)).await.unwrap();
        assert_eq!(got, b"hello");
    }
    assert_eq!(guard(stage.handle.stop()).await, Ended::Stopped);
}
