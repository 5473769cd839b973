//! Streams of Linux, and the events of a watched one (FA-1, FA-2, FA-7; CU-19, CU-20).

use annulus_core::{StreamId, Watch};
use annulus_sim::{Config, DiskFate, Fault, StreamConfig};

use super::puppet::{Do, Strings, World, host, inn, ms, out};

const CONFIRM: Watch = Watch { confirm: true, dead_after: None };

fn dead_after(millis: u64) -> Watch {
    Watch { confirm: false, dead_after: Some(ms(millis)) }
}

fn world(config: Config, credit: usize) -> World {
    let mut world = World::with(1, 2, config, Strings { credit, ..Strings::default() });
    let to = world.addr(1);
    world.tell(0, Do::OpenAs(out(0), to, None));
    world.run(10);
    world.log.heard.clear();
    world
}

fn linux() -> World {
    world(Config::default(), 1 << 30)
}

fn write(world: &mut World, bytes: usize) -> StreamId {
    world.tell(0, Do::Write(out(0), vec![7; bytes]));
    out(0)
}

/// Cuts both directions, or mends them.
fn cut(world: &mut World, is_cut: bool) {
    for (from, to) in [(host(0), host(1)), (host(1), host(0))] {
        world.fault(if is_cut { Fault::Cut { from, to } } else { Fault::Mend { from, to } });
    }
    world.run(1);
}

/// The time in milliseconds at which the first host got an input with this text.
fn heard_at(world: &World, text: &str) -> Option<u128> {
    world.log.heard.iter().find(|(_, _, line)| line.contains(text)).map(|(at, ..)| at.as_millis())
}

#[test]
fn cu_19_bytes_in_the_peers_kernel_are_confirmed_after_sent() {
    let mut world = linux();
    let stream = write(&mut world, 1000);
    world.tell(0, Do::Watch(stream, CONFIRM));
    world.run(50);
    assert_eq!(world.heard(0), ["0:0 sent 1000", "0:0 confirmed 1000"]);
    cut(&mut world, true);
    write(&mut world, 500);
    world.run(5_000);
    assert_eq!(world.heard(0), ["0:0 sent 500"], "the kernel took them, nobody else has them");
    cut(&mut world, false);
    world.run(10_000);
    assert_eq!(world.heard(0), ["0:0 confirmed 500"]);
}

#[test]
fn cu_19_a_driver_that_sees_no_acknowledgements_confirms_nothing() {
    let config =
        Config { stream: StreamConfig { confirms: false, ..StreamConfig::linux() }, ..Config::default() };
    let mut world = world(config, 1 << 30);
    let stream = write(&mut world, 1000);
    world.tell(0, Do::Watch(stream, CONFIRM));
    world.run(1000);
    assert_eq!(world.heard(0), ["0:0 sent 1000"]);
}

#[test]
fn cu_20_dead_after_ends_a_stream_behind_a_cut_and_no_other() {
    let mut world = linux();
    world.tell(0, Do::Watch(out(0), dead_after(3_000)));
    world.run(60_000);
    assert_eq!(world.heard(0), [""; 0], "idle, and the peer answers probes");
    cut(&mut world, true);
    let began = world.sim.elapsed().as_millis();
    write(&mut world, 1000);
    world.run(10_000);
    let lasted = heard_at(&world, "closed TimedOut").expect("it is dead") - began;
    assert!((3_000..3_600).contains(&lasted), "{lasted} ms");
}

#[test]
fn cu_20_a_peer_that_does_not_read_lives() {
    let mut world = world(Config::default(), 0);
    world.tell(0, Do::Watch(out(0), dead_after(3_000)));
    write(&mut world, 400_000);
    world.run(3_600_000);
    assert!(heard_at(&world, "closed").is_none(), "it answers probes of its window");
    cut(&mut world, true);
    world.run(600_000);
    assert!(heard_at(&world, "closed TimedOut").is_some(), "now it does not");
}

#[test]
fn fa_1_a_cut_stream_answers_as_late_after_the_heal_as_linux_does() {
    // A kernel showed this: 12.5 s after 14 s of cut, 26.0 s after 27 s, 0.74 s with TCP_RTO_MAX_MS = 1000.
    let after = |stream: StreamConfig, cut_for: u64| {
        let mut world = world(Config { stream, ..Config::default() }, 1 << 30);
        cut(&mut world, true);
        write(&mut world, 100);
        world.run(cut_for);
        cut(&mut world, false);
        let healed = world.sim.elapsed().as_millis();
        world.run(200_000);
        heard_at(&world, "0:1 data").map(|at| at - healed)
    };
    let near = |found: Option<u128>, kernel: u128| {
        let found = found.expect("it goes on");
        assert!(
            found * 2 <= kernel * 3 + 400 && kernel * 2 <= found * 3 + 400,
            "{found} ms, a kernel {kernel} ms"
        );
    };
    near(after(StreamConfig::linux(), 14_000), 12_450);
    near(after(StreamConfig::linux(), 27_000), 26_000);
    let bounded = after(StreamConfig::linux_rto_max(), 14_000);
    assert!(bounded.is_some_and(|after| after < 1_100), "within one wait of a second: {bounded:?} ms");
    assert_eq!(after(StreamConfig::linux_rto_max(), 27_000), None, "15 tries take 14.4 s there");
}

#[test]
fn fa_1_a_kernel_takes_more_for_a_dead_peer_when_the_stream_has_carried_more() {
    let taken = |first: usize| {
        let mut world = linux();
        for _ in 0..first / 500_000 {
            write(&mut world, 500_000);
            world.run(5_000);
        }
        world.log.heard.clear();
        cut(&mut world, true);
        for _ in 0..10 {
            write(&mut world, 500_000);
            world.run(10);
        }
        let lines = world.heard(0);
        let taken = lines.iter().filter_map(|line| line.strip_prefix("0:0 sent ")?.parse::<usize>().ok());
        taken.sum::<usize>()
    };
    assert_eq!(taken(0), 65_536);
    assert_eq!(taken(1_000_000), 2_000_000);
    assert_eq!(taken(3_000_000), 4 << 20);
}

#[test]
fn fa_2_an_idle_stream_to_a_host_without_power_ends_by_keep_alive() {
    let mut world = linux();
    world.fault(Fault::Crash { host: host(1), power: true, disk: DiskFate::Kept });
    world.run(110_000);
    assert_eq!(world.heard(0), [""; 0]);
    world.run(20_000);
    assert_eq!(world.heard(0), ["0:0 closed TimedOut"], "60 s and four probes of 15 s");
}

#[test]
fn fa_2_keep_alive_notices_a_host_that_came_back() {
    let mut world = linux();
    world.fault(Fault::Crash { host: host(1), power: true, disk: DiskFate::Kept });
    world.run(1_000);
    world.fault(Fault::Start(host(1)));
    world.run(70_000);
    assert_eq!(world.heard(0), ["0:0 closed Reset"]);
}

#[test]
fn fa_2_a_living_idle_stream_stays() {
    let mut world = linux();
    world.run(3_600_000);
    assert_eq!((world.heard(0), world.heard(1)), (Vec::new(), Vec::new()));
    write(&mut world, 10);
    world.run(100);
    assert_eq!(
        world.heard(1),
        [format!("{} data \u{7}\u{7}\u{7}\u{7}\u{7}\u{7}\u{7}\u{7}\u{7}\u{7}", inn(0))]
    );
}

#[test]
fn fa_7_a_sleeping_kernel_sends_nothing_and_gives_nothing_up() {
    let stream = StreamConfig { keepalive: None, ..StreamConfig::linux() };
    let mut world = world(Config { stream, ..Config::default() }, 1 << 30);
    cut(&mut world, true);
    write(&mut world, 100);
    world.run(1_000);
    world.fault(Fault::Sleep { host: host(0), counts: false });
    world.run(1);
    let before = world.sim.stats().segments_sent;
    world.run(3_600_000);
    assert_eq!(world.sim.stats().segments_sent, before, "it sleeps");
    world.heard(0);
    world.fault(Fault::Resume(host(0)));
    cut(&mut world, false);
    world.run(5_000);
    assert_eq!(world.heard(0), [""; 0]);
    assert_eq!(world.heard(1).len(), 1, "an hour of sleep is no hour of silence");
}

#[test]
fn fa_4_syns_are_sent_as_linux_sends_them() {
    let mut world = World::new(2, Config::default());
    cut(&mut world, true);
    let to = world.addr(1);
    world.tell(0, Do::OpenAs(out(0), to, None));
    let mut counts = Vec::new();
    world.run(500);
    for _ in 0..12 {
        counts.push(world.sim.stats().segments_sent);
        world.run(1_000);
    }
    assert_eq!(counts, [1, 2, 3, 4, 5, 6, 6, 7, 7, 7, 7, 8], "after 1, 1, 1, 1, 1, 2, 4 … seconds");
    world.run(118_000);
    assert_eq!(world.heard(0), [""; 0]);
    world.run(2_000);
    assert_eq!(world.heard(0), ["0:0 closed TimedOut"]);
}
