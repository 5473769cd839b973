//! Streams in the simulator: one test for each rule of `annulus_core::StreamEvent`, and for each effect of TCP.

use annulus_core::StreamId;
use annulus_sim::{Config, DiskFate, Fault, HostSpec, Stats, StreamConfig};

use super::puppet::{Do, PORT, Strings, World, host, inn, ms, out};

fn world() -> World {
    World::new(2, stream_config(|_| {}))
}

/// Without credit unless it is granted by a command.
fn stingy(config: Config) -> World {
    World::with(1, 2, config, Strings { credit: 0, ..Strings::default() })
}

fn stream_config(change: impl FnOnce(&mut Config)) -> Config {
    let mut config = Config { stream: StreamConfig::quick(), ..Config::default() };
    change(&mut config);
    config
}

/// Opens stream `n` from 0 to 1 and drops its inputs so far.
fn connect(world: &mut World, n: u64) -> (StreamId, StreamId) {
    let to = world.addr(1);
    world.tell(0, Do::OpenAs(out(n), to, None));
    world.run(10);
    world.log.heard.clear();
    (out(n), inn(n))
}

fn crash(world: &mut World, number: u32, power: bool) {
    world.fault(Fault::Crash { host: host(number), power, disk: DiskFate::Kept });
    world.run(1);
}

fn stats(world: &World) -> &Stats {
    world.sim.stats()
}

/// The number of bytes of data lines.
fn data_bytes(lines: &[String]) -> usize {
    let length = |line: &String| {
        let data = line.split_once(" data ")?.1;
        Some(data.strip_suffix(" B").map_or(data.len(), |n| n.parse().unwrap()))
    };
    lines.iter().filter_map(length).sum()
}

#[test]
fn the_first_event_is_connected_or_accepted() {
    let mut world = world();
    let to = world.addr(1);
    world.tell(0, Do::OpenAs(out(0), to, None));
    world.run(10);
    assert_eq!(world.heard(0), ["0:0 connected 10.0.0.1"]);
    assert_eq!(world.heard(1), ["0:1 accepted 10.0.0.1"]);
    assert_eq!((stats(&world).streams_opened, stats(&world).streams_accepted), (1, 1));
}

#[test]
fn a_connect_without_a_listener_is_refused() {
    let mut world = world();
    let mut to = world.addr(1);
    to.set_port(PORT + 1);
    world.tell(0, Do::OpenAs(out(0), to, None));
    world.run(10);
    assert_eq!(world.heard(0), ["0:0 closed Refused"]);
    // A machine whose process has ended refuses too.
    crash(&mut world, 1, false);
    let to = world.addr(1);
    world.tell(0, Do::OpenAs(out(1), to, None));
    world.run(10);
    assert_eq!(world.heard(0), ["0:2 closed Refused"]);
}

#[test]
fn a_host_without_power_times_out() {
    let mut world = world();
    crash(&mut world, 1, true);
    let to = world.addr(1);
    world.tell(0, Do::OpenAs(out(0), to, None));
    world.run(9_000);
    assert!(world.heard(0).is_empty());
    world.run(2_000);
    assert_eq!(world.heard(0), ["0:0 closed TimedOut"]);
}

#[test]
fn an_unused_address_is_unreachable_and_a_foreign_source_address_fails() {
    let mut world = world();
    world.tell(0, Do::OpenAs(out(0), "203.0.113.1:4000".parse().unwrap(), None));
    world.tell(0, Do::OpenAs(out(1), "[fd00::1]:4000".parse().unwrap(), None));
    let to = world.addr(1);
    world.tell(0, Do::OpenAs(out(2), to, Some("10.9.9.9".parse().unwrap())));
    world.run(10);
    assert_eq!(world.heard(0), ["0:0 closed Unreachable", "0:2 closed Unreachable", "0:4 closed Failed"]);
}

#[test]
fn both_families_and_the_chosen_address_work() {
    let address: std::net::IpAddr = "192.0.2.1".parse().unwrap();
    let hosts = vec![HostSpec { addresses: vec![address], ..HostSpec::default() }, HostSpec::default()];
    let mut world = World::of(1, hosts, Config::default(), Strings::default());
    let to = world.addr(1);
    world.tell(0, Do::OpenAs(out(0), to, Some(address)));
    world.run(10);
    assert_eq!(world.heard(1), ["0:1 accepted 192.0.2.1"]);
    let v6 = |n: u16| std::net::IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, n]);
    let hosts = [1, 2].map(|n| HostSpec { addresses: vec![v6(n)], ..HostSpec::default() });
    let strings = Strings { any_family: true, ..Strings::default() };
    let mut world = World::of(1, hosts.to_vec(), Config::default(), strings);
    world.tell(0, Do::OpenAs(out(0), (v6(2), PORT).into(), None));
    world.run(10);
    assert_eq!(world.heard(1), ["0:1 accepted fd00::1"]);
}

#[test]
fn data_comes_only_with_credit_and_no_more_than_that() {
    let mut world = stingy(Config::default());
    let (a, b) = connect(&mut world, 0);
    world.tell(0, Do::Write(a, b"hello world".to_vec()));
    world.run(10);
    assert!(world.heard(1).is_empty(), "a new stream has no credit");
    world.tell(1, Do::Read(b, 5));
    world.run(10);
    assert_eq!(world.heard(1), ["0:1 data hello"]);
    world.tell(1, Do::Read(b, 100));
    world.run(10);
    assert_eq!(world.heard(1), ["0:1 data  world"]);
}

#[test]
fn finished_needs_no_credit_but_comes_after_all_data() {
    let mut world = stingy(Config::default());
    let (a, b) = connect(&mut world, 0);
    world.tell(0, Do::Finish(a));
    world.run(10);
    assert_eq!(world.heard(1), ["0:1 finished"], "no data, so no credit is needed");
    let (a, _) = connect(&mut world, 1);
    world.tell(0, Do::Write(a, b"abc".to_vec()));
    world.tell(0, Do::Finish(a));
    world.run(10);
    assert!(world.heard(1).is_empty(), "the data waits, and the end behind it");
    world.tell(1, Do::Read(inn(1), 3));
    world.run(10);
    assert_eq!(world.heard(1), ["0:3 data abc", "0:3 finished"]);
    let _ = b;
}

#[test]
fn sent_reports_taken_bytes_and_the_fin_once() {
    let mut world = world();
    let (a, _) = connect(&mut world, 0);
    world.tell(0, Do::Write(a, b"abc".to_vec()));
    world.run(10);
    assert_eq!(world.heard(0), ["0:0 sent 3"]);
    world.tell(0, Do::Write(a, b"de".to_vec()));
    world.tell(0, Do::Finish(a));
    world.run(10);
    assert_eq!(world.heard(0), ["0:0 sent 2 fin"]);
    let (a, _) = connect(&mut world, 1);
    world.tell(0, Do::Write(a, b"abc".to_vec()));
    world.run(10);
    world.tell(0, Do::Finish(a));
    world.run(10);
    assert_eq!(world.heard(0), ["0:2 sent 3", "0:2 sent 0 fin"], "once, and nothing follows");
}

#[test]
fn bytes_written_before_the_connect_are_sent_after_it() {
    let mut world = world();
    let to = world.addr(1);
    world.tell(0, Do::OpenAs(out(0), to, None));
    world.tell(0, Do::Write(out(0), b"early".to_vec()));
    world.tell(0, Do::Finish(out(0)));
    world.run(10);
    assert_eq!(world.heard(0), ["0:0 connected 10.0.0.1", "0:0 sent 5 fin"]);
    assert_eq!(world.heard(1), ["0:1 accepted 10.0.0.1", "0:1 data early", "0:1 finished"]);
}

#[test]
fn both_finished_is_done_on_both_sides() {
    let mut world = world();
    let (a, b) = connect(&mut world, 0);
    world.tell(0, Do::Finish(a));
    world.run(10);
    assert_eq!(world.heard(1), ["0:1 finished"]);
    world.tell(1, Do::Write(b, b"still open".to_vec()));
    world.tell(1, Do::Finish(b));
    world.run(10);
    let (first, second) = (world.heard(0), world.heard(1));
    assert_eq!(first[first.len() - 3..], ["0:0 data still open", "0:0 finished", "0:0 closed Done"]);
    assert_eq!(second.last().unwrap(), "0:1 closed Done");
}

#[test]
fn an_abort_resets_the_peer_and_is_followed_by_nothing() {
    let mut world = world();
    let (a, b) = connect(&mut world, 0);
    world.tell(1, Do::Write(b, b"on its way".to_vec()));
    world.tell(0, Do::Abort(a));
    world.run(100);
    assert!(world.heard(0).is_empty());
    assert_eq!(world.heard(1).last().unwrap(), "0:1 closed Reset");
}

#[test]
fn actions_on_a_closed_stream_do_nothing() {
    let mut world = world();
    let (a, b) = connect(&mut world, 0);
    world.tell(0, Do::Abort(a));
    world.run(100);
    world.log.heard.clear();
    for command in [Do::Write(b, b"x".to_vec()), Do::Read(b, 9), Do::Finish(b), Do::Abort(b)] {
        world.tell(1, command);
    }
    world.run(100);
    assert!(world.heard(0).is_empty() && world.heard(1).is_empty());
}

#[test]
fn a_number_is_used_once() {
    let mut world = world();
    connect(&mut world, 0);
    let to = world.addr(1);
    world.tell(0, Do::OpenAs(out(0), to, None));
    let violation = world.sim.run_for(ms(10), &mut world.log).unwrap_err();
    assert!(violation.text.contains("a number it may not use again"), "{violation}");
}

#[test]
fn writing_after_finish_is_a_violation() {
    let mut world = world();
    let (a, _) = connect(&mut world, 0);
    world.tell(0, Do::Finish(a));
    world.tell(0, Do::Write(a, b"x".to_vec()));
    let violation = world.sim.run_for(ms(10), &mut world.log).unwrap_err();
    assert!(violation.text.contains("after it has finished"), "{violation}");
}

#[test]
fn a_slow_reader_stops_the_writer() {
    let config = stream_config(|c| {
        c.stream.send_buffer_bytes = 10_000;
        c.stream.receive_buffer_bytes = 5_000;
    });
    let mut world = stingy(config);
    let (a, b) = connect(&mut world, 0);
    world.tell(0, Do::Write(a, vec![7; 50_000]));
    world.run(60_000);
    let sent = |lines: &[String]| -> usize {
        lines.iter().map(|line| line.split(' ').nth(2).unwrap().parse::<usize>().unwrap()).sum()
    };
    assert_eq!(sent(&world.heard(0)), 15_000, "one buffer on each side");
    world.tell(1, Do::Read(b, 20_000));
    world.run(1_000);
    let first = data_bytes(&world.heard(1));
    assert_eq!(first, 20_000);
    world.tell(1, Do::Read(b, 1 << 20));
    world.run(1_000);
    assert_eq!(first + data_bytes(&world.heard(1)), 50_000);
    assert_eq!(sent(&world.heard(0)), 35_000);
}

#[test]
fn a_reader_that_never_reads_does_not_break_the_stream() {
    let mut world = stingy(stream_config(|c| c.stream.receive_buffer_bytes = 100));
    let (a, b) = connect(&mut world, 0);
    world.tell(0, Do::Write(a, vec![7; 1_000]));
    world.run(600_000);
    assert!(!world.heard(0).iter().any(|line| line.contains("closed")), "it answers, it just does not read");
    world.tell(1, Do::Read(b, 10_000));
    world.run(120_000);
    assert_eq!(data_bytes(&world.heard(1)), 1_000);
}

#[test]
fn writing_beyond_the_limit_of_the_driver_is_an_overrun() {
    let config = stream_config(|c| {
        c.stream.unsent_max_bytes = 1_000;
        c.stream.send_buffer_bytes = 500;
    });
    let mut world = stingy(config);
    let (a, b) = connect(&mut world, 0);
    world.tell(0, Do::Write(a, vec![7; 1_500]));
    world.run(1);
    assert_eq!(world.heard(0), ["0:0 sent 500"]);
    let (a2, _) = connect(&mut world, 1);
    world.tell(0, Do::Write(a2, vec![7; 1_501]));
    world.run(10);
    assert_eq!(world.heard(0).last().unwrap(), "0:2 closed Overrun");
    assert_eq!(world.heard(1), ["0:3 closed Reset"]);
    assert_eq!(stats(&world).streams_overrun, 1);
    let _ = b;
}

#[test]
fn data_comes_in_odd_chunks_and_nothing_is_missing() {
    let mut world = World::new(2, stream_config(|c| c.stream.odd_chunks = 1.0));
    let (a, _) = connect(&mut world, 0);
    world.tell(0, Do::Write(a, vec![7; 20_000]));
    world.run(1_000);
    let heard = world.heard(1);
    assert_eq!(data_bytes(&heard), 20_000);
    assert!(heard.len() > 6, "{} pieces", heard.len());
}

#[test]
fn loss_delays_and_loses_nothing() {
    let mut world = World::new(2, stream_config(|c| c.network.loss = 0.2));
    let to = world.addr(1);
    world.tell(0, Do::OpenAs(out(0), to, None));
    let bytes: Vec<u8> = (0..100_000u32).map(|n| b'a' + (n % 26) as u8).collect();
    world.tell(0, Do::Write(out(0), bytes));
    world.tell(0, Do::Finish(out(0)));
    world.run(300_000);
    let heard = world.heard(1);
    assert_eq!(data_bytes(&heard), 100_000);
    assert_eq!(heard.last().unwrap(), "0:1 finished");
    assert!(stats(&world).retransmissions > 0 && stats(&world).segments_lost > 0);
}

#[test]
fn a_short_cut_is_survived_and_a_long_one_times_out() {
    for (cut_millis, lasts) in [(5_000, true), (60_000, false)] {
        let mut world = world();
        let (a, _) = connect(&mut world, 0);
        world.fault(Fault::Partition(vec![vec![host(0)]]));
        world.run(1);
        world.tell(0, Do::Write(a, b"hello".to_vec()));
        world.run(cut_millis);
        world.fault(Fault::Heal);
        world.run(20_000);
        let (first, second) = (world.heard(0), world.heard(1));
        if lasts {
            assert_eq!(second, ["0:1 data hello"]);
            assert_eq!(first, ["0:0 sent 5"]);
        } else {
            assert_eq!(first, ["0:0 sent 5", "0:0 closed TimedOut"]);
            assert!(second.is_empty(), "the other side never hears of it");
        }
    }
}

#[test]
fn delivered_bytes_may_look_lost_to_their_sender() {
    let mut world = world();
    let (a, _) = connect(&mut world, 0);
    world.fault(Fault::Cut { from: host(1), to: host(0) });
    world.run(1);
    world.tell(0, Do::Write(a, b"hello".to_vec()));
    world.run(60_000);
    assert_eq!(world.heard(1), ["0:1 data hello"], "once, however often it was sent");
    assert_eq!(world.heard(0).last().unwrap(), "0:0 closed TimedOut");
}

#[test]
fn a_peer_that_lost_power_is_noticed_when_it_is_back() {
    let mut world = world();
    let (a, _) = connect(&mut world, 0);
    crash(&mut world, 1, true);
    world.run(10_000);
    assert!(world.heard(0).is_empty(), "gone without a FIN: nothing tells");
    world.fault(Fault::Start(host(1)));
    world.run(1);
    world.tell(0, Do::Write(a, b"are you there".to_vec()));
    world.run(1_000);
    assert_eq!(world.heard(0), ["0:0 sent 13", "0:0 closed Reset"]);
}

#[test]
fn a_peer_that_lost_power_for_good_times_out() {
    let mut world = world();
    let (a, _) = connect(&mut world, 0);
    crash(&mut world, 1, true);
    world.tell(0, Do::Write(a, b"are you there".to_vec()));
    world.run(29_000);
    assert_eq!(world.heard(0), ["0:0 sent 13"]);
    world.run(11_000);
    assert_eq!(world.heard(0), ["0:0 closed TimedOut"]);
    assert_eq!(stats(&world).streams_timed_out, 1);
}

#[test]
fn a_killed_process_looks_finished_and_resets_later_data() {
    let mut world = world();
    let (a, b) = connect(&mut world, 0);
    world.tell(1, Do::Write(b, b"last words".to_vec()));
    world.run(1);
    crash(&mut world, 1, false);
    world.run(10);
    assert_eq!(world.heard(0), ["0:0 data last words", "0:0 finished"], "the kernel sends what it took");
    world.tell(0, Do::Write(a, b"hello?".to_vec()));
    world.run(100);
    assert_eq!(world.heard(0), ["0:0 sent 6", "0:0 closed Reset"]);
}

#[test]
fn a_killed_process_with_unread_data_resets() {
    let mut world = stingy(Config::default());
    let (a, _) = connect(&mut world, 0);
    world.tell(0, Do::Write(a, b"unread".to_vec()));
    world.run(10);
    crash(&mut world, 1, false);
    world.run(10);
    assert_eq!(world.heard(0), ["0:0 sent 6", "0:0 closed Reset"]);
}

#[test]
fn the_kernel_of_a_suspended_process_goes_on() {
    let mut world = world();
    world.fault(Fault::Suspend(host(1)));
    let to = world.addr(1);
    world.tell(0, Do::OpenAs(out(0), to, None));
    world.tell(0, Do::Write(out(0), b"hello".to_vec()));
    world.run(60_000);
    assert_eq!(world.heard(0), ["0:0 connected 10.0.0.1", "0:0 sent 5"]);
    assert!(world.heard(1).is_empty());
    world.fault(Fault::Resume(host(1)));
    world.run(10);
    assert_eq!(world.heard(1), ["0:1 accepted 10.0.0.1", "0:1 data hello"]);
}

#[test]
fn a_suspended_process_writes_nothing_to_a_connection_that_its_kernel_made() {
    let mut world = world();
    let to = world.addr(1);
    world.tell(0, Do::OpenAs(out(0), to, None));
    world.tell(0, Do::Write(out(0), b"hello".to_vec()));
    world.fault(Fault::Suspend(host(0)));
    world.run(1000);
    assert_eq!(world.heard(1), ["0:1 accepted 10.0.0.1"], "the driver's bytes wait for its process");
    world.tell(1, Do::Abort(inn(0)));
    world.run(10);
    world.fault(Fault::Resume(host(0)));
    world.run(10);
    assert_eq!(world.heard(0), ["0:0 closed Reset"], "without `connected`, the peer got nothing");
}

#[test]
fn one_stream_above_the_listeners_limit_is_reset_and_counted() {
    let mut world = World::with(1, 2, Config::default(), Strings { streams_max: 2, ..Strings::default() });
    let to = world.addr(1);
    for n in 0..3 {
        world.tell(0, Do::OpenAs(out(n), to, None));
    }
    world.run(100);
    assert_eq!(world.heard(0).last().unwrap(), "0:4 closed Reset");
    assert_eq!(world.heard(1).len(), 2);
    assert_eq!(stats(&world).streams_above_limit, 1);
    // One that ends makes room.
    world.tell(0, Do::Abort(out(0)));
    world.run(100);
    world.tell(0, Do::OpenAs(out(3), to, None));
    world.run(100);
    assert_eq!(world.heard(0), ["0:6 connected 10.0.0.1"]);
}

#[test]
fn a_crash_can_lie_between_the_kernel_and_the_machine() {
    let mut world = world();
    let (a, _) = connect(&mut world, 0);
    world.log.sent_hook = Some(Box::new(move |sim, at, stream, bytes| {
        if stream == a && bytes >= 3 {
            sim.inject(Fault::Crash { host: at, power: false, disk: DiskFate::Kept });
        }
    }));
    world.tell(0, Do::Write(a, b"abc".to_vec()));
    world.run(100);
    assert!(world.heard(0).is_empty(), "it never learns that it was sent");
    assert_eq!(world.heard(1), ["0:1 data abc", "0:1 finished"], "but it was");
}

#[test]
fn streams_leave_nothing_behind() {
    let mut world = World::new(2, stream_config(|c| c.network.loss = 0.05));
    for n in 0..50 {
        let to = world.addr(1);
        world.tell(0, Do::OpenAs(out(n), to, None));
        world.tell(0, Do::Write(out(n), b"x".to_vec()));
        world.tell(0, Do::Finish(out(n)));
        world.run(5_000);
        world.tell(1, Do::Finish(inn(n)));
        world.run(5_000);
    }
    let done = |lines: Vec<String>| lines.iter().filter(|line| line.contains("closed Done")).count();
    assert_eq!((done(world.heard(0)), done(world.heard(1))), (50, 50));
    world.run(100_000);
    assert_eq!(world.sim.next_at(), None, "no timer, no segment, nothing");
}
