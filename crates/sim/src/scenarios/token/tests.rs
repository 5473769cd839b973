//! The failure scenarios JF-n, each in the simulator. Those that one node shows alone are in core's tests.

use std::collections::BTreeMap;

use annulus_core::jitterbug::{Command, Event, LostReason, Reply, Set, TokenId};
use annulus_core::{RequestId, StreamId};

use super::commands::Commands;
use super::*;
use crate::conditions::FaultPlan;
use crate::observer::{Datagram, DatagramFate, Observer, Verdict};
use crate::scenario::{Checker, Lines, Report, run};

const SECOND: Duration = Duration::from_secs(1);

fn local(nodes: u32) -> TokenScenario {
    TokenScenario { nodes, preset: Preset::Local, ..TokenScenario::default() }
}

fn with_faults(nodes: u32, faults: FaultPlan) -> TokenScenario {
    TokenScenario { conditions: Conditions { faults, ..Conditions::default() }, ..local(nodes) }
}

fn all_hold(scenario: &TokenScenario, seeds: core::ops::Range<u64>) -> Vec<Report> {
    let hold = |seed| {
        let report = run(scenario, seed, Lines::default());
        assert!(report.ok, "seed {seed}: {:?}", report.violation);
        assert_eq!(
            (&report.measured["tokens_final"], &report.measured["lists_equal"]),
            (&1.into(), &true.into())
        );
        report
    };
    seeds.map(hold).collect()
}

/// A checker for worlds in which two commands may run at once.
fn lenient(nodes: usize) -> TokenChecker {
    TokenChecker::new(nodes, Commands::shared(&Config::local(), false), false)
}

fn number(report: &Report, name: &str) -> f64 {
    report.measured[name].as_f64().expect("it is measured")
}

/// Watches with the checker, and interferes.
struct Meddler<F, G> {
    checker: TokenChecker,
    on_sent: F,
    on_datagram: G,
    events: BTreeMap<HostId, Vec<Event>>,
}

impl<F, G> Observer<Node> for Meddler<F, G>
where
    F: FnMut(&Sim<Node>, HostId, StreamId, u64, bool),
    G: FnMut(&mut Vec<u8>) -> DatagramFate,
{
    fn on_event(&mut self, sim: &Sim<Node>, host: HostId, event: &Event) -> Verdict {
        self.events.entry(host).or_default().push(event.clone());
        self.checker.on_event(sim, host, event)
    }

    fn on_crash(&mut self, sim: &Sim<Node>, host: HostId, disk: DiskFate) {
        self.checker.on_crash(sim, host, disk);
    }

    fn on_sent(&mut self, sim: &Sim<Node>, host: HostId, stream: StreamId, bytes: u64, fin: bool) {
        (self.on_sent)(sim, host, stream, bytes, fin);
    }

    fn on_datagram(&mut self, _: &Sim<Node>, datagram: Datagram<'_>) -> DatagramFate {
        (self.on_datagram)(datagram.bytes)
    }
}

type Meddling = Meddler<fn(&Sim<Node>, HostId, StreamId, u64, bool), fn(&mut Vec<u8>) -> DatagramFate>;

fn meddler(nodes: u32) -> Meddling {
    Meddler {
        checker: lenient(nodes as usize),
        on_sent: |_, _, _, _, _| {},
        on_datagram: |_| DatagramFate::Pass,
        events: BTreeMap::new(),
    }
}

/// Mends everything and lets the ring become one.
fn settle(sim: &mut Sim<Node>, checker: &mut impl Observer<Node>, mut done: impl FnMut(&Sim<Node>) -> bool) {
    sim.fault(Fault::Calm);
    let settled = sim.run_until_that(600 * SECOND, SECOND / 10, checker, |sim, _| done(sim));
    assert_eq!(settled, Ok(true), "one ring in the end");
}

fn is_one(sim: &Sim<Node>) -> bool {
    let ids: std::collections::BTreeSet<TokenId> = sim.machines().map(|(_, node)| node.token_id()).collect();
    let whole = sim.machines().all(|(_, node)| node.list().len() == sim.len());
    ids.len() == 1 && whole && sim.machines().count() == sim.len()
}

#[test]
fn jf_1_a_leader_that_crashes_at_work_is_replaced_and_numbers_grow() {
    let scenario = TokenScenario { crash_holder: 4, seconds: 60, ..local(5) };
    for report in all_hold(&scenario, 0..12) {
        let max = report.measured["recovery_ms"]["max"].as_f64().expect("a number");
        assert!(max < 3500.0, "renew_timeout, a restore and two dead candidates: {max}");
    }
}

#[test]
fn jf_2_and_jf_3_a_leader_killed_before_the_fin_leaves_the_candidate_as_it_was() {
    // The kernel of a killed process sends a FIN: only the frame shows that data is truncated.
    for after in [10, 60, 150_000] {
        let mut setup = local(4).setup(after).expect("a world");
        let sim = &mut setup.sim;
        sim.run_for(5 * SECOND, &mut setup.checker).expect("nothing is violated");
        for n in 0..60 {
            let set = Set { key: format!("key {n}"), value: "x".repeat(4000).as_str().into() };
            sim.command(HostId::new(0), Command::Change { change: set, wait: 30 * SECOND });
        }
        let mut killed = None;
        let mut watch = Meddler {
            checker: setup.checker,
            on_sent: |sim: &Sim<Node>, host: HostId, stream: StreamId, bytes: u64, fin: bool| {
                if killed.is_none() && !stream.is_accepted() && bytes >= after && !fin {
                    killed = Some(host);
                    sim.inject(Fault::Crash { host, power: false, disk: DiskFate::Kept });
                }
            },
            on_datagram: |_: &mut Vec<u8>| DatagramFate::Pass,
            events: BTreeMap::new(),
        };
        sim.run_for(5 * SECOND, &mut watch).expect("nothing is violated");
        settle(sim, &mut watch, is_one);
        assert!(killed.is_some(), "somebody was killed after {after} bytes");
    }
}

#[test]
fn jf_4_a_pass_that_outlasts_its_deadline_leaves_one_leader() {
    // A line on which the data takes longer than a pass may: the leader resets, and the candidate has nothing.
    let mut setup = local(3).setup(4).expect("a world");
    let sim = &mut setup.sim;
    // A buffer that has grown would take all of the data at once, and the pass would be over.
    sim.config_mut().stream = crate::StreamConfig::quick();
    sim.run_for(5 * SECOND, &mut setup.checker).expect("nothing is violated");
    for n in 0..60 {
        let set = Set { key: format!("key {n}"), value: "x".repeat(4000).as_str().into() };
        sim.command(HostId::new(0), Command::Change { change: set, wait: 30 * SECOND });
    }
    sim.config_mut().network.bandwidth = Some(400_000);
    let mut watch = LeadersPerToken { checker: lenient(3), failed: 0 };
    sim.run_for(20 * SECOND, &mut watch).expect("never two leaders with one id");
    assert!(watch.failed > 5, "passes failed: {}", watch.failed);
    sim.config_mut().network.bandwidth = None;
    settle(sim, &mut watch, is_one);
}

/// Holds that no two nodes lead with the same token, at any event.
struct LeadersPerToken {
    checker: TokenChecker,
    failed: u32,
}

impl Observer<Node> for LeadersPerToken {
    fn on_event(&mut self, sim: &Sim<Node>, host: HostId, event: &Event) -> Verdict {
        self.failed += u32::from(matches!(event, Event::PassFailed { .. }));
        let mut seen = std::collections::BTreeSet::new();
        for (host, node) in sim.machines().filter(|(_, node)| node.state_name() == StateName::Leader) {
            if !seen.insert(node.token_id()) {
                return Err(Violation::new(format!("{host} leads with {} too", node.token_id())));
            }
        }
        self.checker.on_event(sim, host, event)
    }
}

#[test]
fn jf_5_a_candidate_that_dies_with_the_token_takes_no_count_with_it() {
    let faults = FaultPlan { crashes: 8, ..FaultPlan::default() };
    all_hold(&with_faults(5, faults), 0..10);
}

#[test]
fn jf_6_nodes_that_start_at_once_make_one_token() {
    for nodes in [2, 3, 5, 10] {
        for report in all_hold(&TokenScenario { seconds: 5, ..local(nodes) }, 0..20) {
            assert!(number(&report, "time_to_first_holder_ms") < 3000.0, "seed {}", report.seed);
        }
    }
}

#[test]
fn jf_8_halves_that_were_apart_merge_and_lose_nothing() {
    let faults = FaultPlan { partitions: 2, ..FaultPlan::default() };
    let merges = all_hold(&with_faults(6, faults), 0..12)
        .iter()
        .filter(|report| number(report, "merges") > 0.0)
        .count();
    assert!(merges > 0, "some of them met");
}

#[test]
fn jf_9_two_rings_on_one_segment_become_one_by_the_random_drop_alone() {
    let scenario = TokenScenario { nodes: 6, rings: 2, seconds: 16, ..TokenScenario::default() };
    let after: Vec<f64> =
        all_hold(&scenario, 0..20).iter().filter_map(|report| report.converged_after_seconds).collect();
    let mean = after.iter().sum::<f64>() / after.len() as f64;
    assert!(mean < 300.0, "{mean} s");
    let coinless = TokenScenario { base: Some(1e12), ..scenario };
    let mut setup = coinless.setup(1).expect("a world");
    setup.sim.run_for(300 * SECOND, &mut setup.checker).expect("nothing is violated");
    assert!(setup.checker.converged(&setup.sim).is_err(), "without the random drop they never do");
}

#[test]
fn jf_11_three_tokens_in_a_ring_of_five_become_one() {
    all_hold(&TokenScenario { rings: 3, seconds: 20, ..local(5) }, 0..20);
}

#[test]
fn jf_12_a_dead_node_does_not_stop_the_ring() {
    let mut setup = local(5).setup(3).expect("a world");
    let (sim, checker) = (&mut setup.sim, &mut setup.checker);
    sim.run_for(5 * SECOND, checker).expect("nothing is violated");
    sim.fault(Fault::Crash { host: HostId::new(2), power: true, disk: DiskFate::Kept });
    sim.run_for(60 * SECOND, checker).expect("nothing is violated");
    let before = sim.machine(HostId::new(0)).and_then(Node::fence);
    sim.run_for(10 * SECOND, checker).expect("nothing is violated");
    let after = sim.machine(HostId::new(0)).and_then(Node::fence);
    assert!(after.zip(before).is_some_and(|(after, before)| after - before > 150), "the loop is fast again");
}

#[test]
fn jf_13_a_dead_node_restarts_on_another_port() {
    let config = local(4).config(4);
    let mut sim = Sim::new(5, crate::config::Config::default(), move |birth| {
        let host_id = TokenHost::new(birth.host.index() as u32 + 1);
        let tcp_port = 4001 + birth.starts as u16;
        let own = Config { addr: birth.address, host_id, tcp_port, ..config.clone() };
        Jitterbug::new(&own, Ledger::new(), birth.seed).expect("the presets go together")
    });
    let hosts: Vec<HostId> = (0..4).map(|_| sim.add_host()).collect();
    let mut checker = lenient(4);
    sim.run_for(5 * SECOND, &mut checker).expect("nothing is violated");
    sim.fault(Fault::Crash { host: hosts[2], power: true, disk: DiskFate::Kept });
    sim.run_for(20 * SECOND, &mut checker).expect("nothing is violated");
    sim.fault(Fault::Start(hosts[2]));
    let back = sim.run_until_that(10 * SECOND, SECOND / 100, &mut checker, |sim, _| {
        sim.machine(hosts[2])
            .is_some_and(|node| node.state_name() == StateName::Leader && node.list().len() == 4)
    });
    assert_eq!(back, Ok(true));
}

#[test]
fn jf_14_a_paused_leader_loses_its_leadership() {
    let mut setup = local(5).setup(9).expect("a world");
    // Two lines for a while: the numbers of one are not those of the other.
    let (sim, checker) = (&mut setup.sim, &mut lenient(5));
    sim.run_for(5 * SECOND, checker).expect("nothing is violated");
    for _ in 0..5 {
        sim.run_until_that(SECOND, SECOND / 1000, checker, |sim, _| holder(sim).is_some())
            .expect("no violation");
        let Some(host) = holder(sim) else { continue };
        sim.fault(Fault::Suspend(host));
        sim.run_for(6 * SECOND, checker).expect("nothing is violated");
        sim.fault(Fault::Resume(host));
        sim.run_for(SECOND, checker).expect("nothing is violated");
    }
    settle(sim, checker, is_one);
}

#[test]
fn jf_14_a_paused_holder_gets_an_event_as_soon_as_it_resumes() {
    let mut setup = local(3).setup(2).expect("a world");
    let (sim, watch) = (&mut setup.sim, &mut meddler(3));
    sim.run_for(5 * SECOND, watch).expect("nothing is violated");
    let (stalled, other) = (HostId::new(1), HostId::new(2));
    let holds = |sim: &Sim<Node>, host| sim.machine(host).and_then(Node::held);
    sim.command(stalled, Command::Hold { limit: 100 * SECOND });
    let held = sim.run_until_that(5 * SECOND, SECOND / 1000, watch, |sim, _| holds(sim, stalled).is_some());
    assert_eq!(held, Ok(true));
    let stale = holds(sim, stalled);
    sim.fault(Fault::Suspend(stalled));
    sim.command(other, Command::Hold { limit: 100 * SECOND });
    let held = sim.run_until_that(20 * SECOND, SECOND / 1000, watch, |sim, _| holds(sim, other).is_some());
    assert_eq!(held, Ok(true), "the others go on");
    sim.fault(Fault::Resume(stalled));
    sim.run_for(SECOND / 1000, watch).expect("nothing is violated");
    assert_eq!(holds(sim, stalled), None, "it learns that at once");
    let told = |event: &Event| matches!(event, Event::TokenLost { reason: LostReason::Stalled, fence, .. } if Some(*fence) == stale);
    assert!(watch.events[&stalled].iter().any(told));
    sim.run_for(10 * SECOND, watch).expect("nothing is violated");
    assert!(holds(sim, other) > stale, "and nobody disturbs who holds now");
}

#[test]
fn tuf_14_no_two_commands_run_at_once_however_long_processes_are_paused() {
    for nodes in 2..=6 {
        for crash_holder in [0, 3] {
            let scenario = TokenScenario { stall_holder: 8, crash_holder, seconds: 90, ..local(nodes) };
            let reports = all_hold(&scenario, 0..6);
            let sum = |name: &str| {
                reports
                    .iter()
                    .map(|report| report.measured["holds"][name].as_u64().expect("a number"))
                    .sum::<u64>()
            };
            assert!(
                sum("granted") > 1000 && sum("lost") > 0,
                "{} granted, {} lost",
                sum("granted"),
                sum("lost")
            );
        }
    }
}

#[test]
fn tuf_14_a_ring_without_grace_runs_two_commands_at_once() {
    let scenario = TokenScenario { stall_holder: 8, seconds: 90, patient: false, ..local(5) };
    let caught = (0..10).filter(|seed| {
        let report = run(&scenario, *seed, Lines::default());
        report
            .violation
            .is_some_and(|violation| violation.contains("beside") || violation.contains("after a hold"))
    });
    assert!(caught.count() >= 5, "the checker sees what the grace period prevents");
}

#[test]
fn fa_25_two_commands_and_a_lower_fence_need_a_fault_that_explains_them() {
    let mut sim = local(3).setup(1).expect("a world").sim;
    let mut checker = lenient(3);
    sim.run_for(SECOND / 1000, &mut checker).expect("all start");
    let [one, two, three] = [0, 1, 2].map(HostId::new);
    let held = |checker: &mut TokenChecker, sim: &Sim<Node>, host: HostId, fence| {
        let hold = RequestId(fence);
        checker.on_reply(sim, host, hold, &Reply::Held { fence, hold })
    };
    held(&mut checker, &sim, one, 1).expect("the first command");
    let beside = held(&mut checker, &sim, two, 2).expect_err("nothing happened");
    assert!(beside.text.contains("WEAK_SPLIT"), "{beside}");
    let taken = |checker: &mut TokenChecker, sim: &Sim<Node>, token: u64, fence| {
        let token_id = TokenId::draw(&mut Rng::from_number(token, 0));
        checker.on_event(sim, one, &Event::TokenTaken { token_id, fence: Some(fence) })
    };
    taken(&mut checker, &sim, 1, 5).expect("the first fence");
    checker.on_start(&sim, one);
    let lower = taken(&mut checker, &sim, 2, 3).expect_err("its disk was not lost");
    assert!(lower.text.contains("DISK_LOST"), "{lower}");

    sim.fault(Fault::Cut { from: one, to: two });
    sim.fault(Fault::Crash { host: one, power: true, disk: DiskFate::Lost });
    sim.run_for(SECOND / 1000, &mut checker).expect("nothing is violated");
    checker.on_start(&sim, one);
    taken(&mut checker, &sim, 2, 3).expect("it knows no fences");
    held(&mut checker, &sim, three, 3).expect("the ring may be split");
    let excuses = checker.ledger().expect("it keeps one").entries().excuses;
    assert_eq!((excuses["WEAK_SPLIT"].times, excuses["DISK_LOST"].times), (1, 1));
}

#[test]
fn jf_16_a_third_of_the_datagrams_may_be_lost_doubled_and_overtaken() {
    let mut scenario = local(5);
    let network = &mut scenario.conditions.config.network;
    (network.loss, network.duplicate, network.reorder) = (0.3, 0.3, 0.3);
    all_hold(&scenario, 0..10);
}

#[test]
fn jf_17_both_report_a_duplicate_host_id_and_the_ring_turns() {
    let config = local(4).config(4);
    let mut sim = Sim::new(5, crate::config::Config::default(), move |birth| {
        let host_id = TokenHost::new((birth.host.index() as u32).min(2) + 1);
        let own = Config { addr: birth.address, host_id, ..config.clone() };
        Jitterbug::new(&own, Ledger::new(), birth.seed).expect("the presets go together")
    });
    for _ in 0..4 {
        sim.add_host();
    }
    let mut watch = meddler(4);
    sim.run_for(30 * SECOND, &mut watch).ok();
    for clone in [2, 3] {
        let told = |event: &Event| matches!(event, Event::DuplicateHostId { .. });
        assert!(watch.events[&HostId::new(clone)].iter().any(told), "node {clone}");
    }
    assert!(sim.machine(HostId::new(0)).and_then(Node::fence) > Some(100));
}

#[test]
fn jf_21_nodes_of_both_families_are_one_ring_with_one_list() {
    let config = local(5).config(5);
    let mut sim = Sim::new(6, crate::config::Config::default(), move |birth| {
        // All hosts can reach both families; every other node is known by its IPv6 address.
        let is_six = birth.host.index() % 2 == 1;
        let addr = if is_six { birth.addresses[0] } else { birth.address };
        let own = Config { addr, host_id: TokenHost::new(birth.host.index() as u32 + 1), ..config.clone() };
        Jitterbug::new(&own, Ledger::new(), birth.seed).expect("the presets go together")
    });
    for n in 0..5_u16 {
        let six = std::net::IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, n + 1]);
        sim.add_host_with(crate::host::HostSpec { addresses: vec![six], ..Default::default() });
    }
    let mut checker = lenient(5);
    let one_list = |sim: &Sim<Node>| {
        let hashes: std::collections::BTreeSet<i32> =
            sim.machines().map(|(_, node)| node.list().hash()).collect();
        is_one(sim) && hashes.len() == 1
    };
    settle(&mut sim, &mut checker, one_list);
    sim.run_for(2 * SECOND, &mut checker).expect("nothing is violated");
    assert!(one_list(&sim), "and it stays one");
    let list = sim.machine(HostId::new(0)).expect("it is up").list().nodes().to_vec();
    assert_eq!(list.iter().filter(|node| node.addr.is_ipv6()).count(), 2);
    // From here on no list is sent: a pass with one would be longer by its 5 bytes and 10 or 22 for each node.
    let mut watch = meddler(5);
    watch.on_sent = |sim, host, stream, bytes, fin| {
        let data = sim.machine(host).map_or(0, |node| node.data().len() as u64);
        assert!(stream.is_accepted() || !fin || bytes <= 9 + 1 + data, "TP1, TP5 and nothing between");
    };
    let fence = |sim: &Sim<Node>| sim.machines().filter_map(|(_, node)| node.fence()).max();
    let before = fence(&sim);
    sim.run_for(2 * SECOND, &mut watch).expect("nothing is violated");
    assert!(fence(&sim) > before.map(|before| before + 30), "it goes round");
}

#[test]
fn jf_22_wall_clocks_may_jump() {
    let faults = FaultPlan { wall_jumps: 20, ..FaultPlan::default() };
    let jumping = all_hold(&with_faults(4, faults), 0..4);
    assert!(jumping.iter().all(|report| number(report, "availability") > 0.9));
}

#[test]
fn jf_24_a_flood_of_forged_answers_leaves_an_existing_ring_alone() {
    let mut setup = local(4).setup(2).expect("a world");
    let sim = &mut setup.sim;
    sim.run_for(5 * SECOND, &mut setup.checker).expect("nothing is violated");
    let mut watch = meddler(4);
    // Every answer claims that its sender leads.
    watch.on_datagram = |bytes| {
        if bytes.first() == Some(&0x11) {
            *bytes = vec![0x11, 0x7f, 0xff, 0xff, 0xff];
        }
        DatagramFate::Pass
    };
    let fence = |sim: &Sim<Node>| sim.machine(HostId::new(1)).and_then(Node::fence).expect("it has led");
    let before = fence(sim);
    sim.run_for(10 * SECOND, &mut watch).expect("nothing is violated");
    assert!(fence(sim) > before + 100);
}

#[test]
fn from_any_number_of_tokens_and_any_faults_the_ring_comes_down_to_one() {
    let scenario = TokenScenario { swarm: true, seconds: 30, ..local(6) };
    let mut failed = Vec::new();
    crate::run_many(&scenario, 0, 200, 2, |report| {
        if !report.ok {
            failed.push((report.seed, report.violation));
        }
    });
    assert_eq!(failed, []);
}

#[test]
fn a_thousand_nodes_work() {
    let scenario =
        TokenScenario { nodes: 1000, seconds: 150, pace: Some(Duration::from_millis(10)), ..local(2) };
    let mut setup = scenario.setup(1).expect("a world");
    setup.sim.run_for(Duration::from_secs(150), &mut setup.checker).expect("nothing is violated");
    let whole = setup.sim.machines().filter(|(_, node)| node.list().len() == 1000).count();
    assert!(whole > 900 && setup.checker.holders() <= 1, "{whole} know everybody");
}

#[test]
fn many_runs_are_summed() {
    let scenario = TokenScenario { crash_holder: 2, seconds: 20, ..local(4) };
    let (mut summary, mut reports) = (Summary::new(), Vec::new());
    crate::run_many(&scenario, 3, 4, 2, |report| {
        summary.add(&report);
        reports.push(report);
    });
    let sum = summary.to_json();
    assert_eq!(
        (&sum["runs"], &sum["ok"], &sum["tokens_final"]),
        (&4.into(), &true.into(), &1.into()),
        "{sum}"
    );
    let recoveries: u64 = reports.iter().filter_map(|r| r.measured["recovery_ms"]["count"].as_u64()).sum();
    assert_eq!(sum["recovery_ms"]["count"].as_u64(), Some(recoveries));
    let worst = reports.iter().map(|r| r.measured["recovery_ms"]["max"].as_f64().expect("a number"));
    assert_eq!(sum["recovery_ms"]["max"].as_f64(), worst.reduce(f64::max));
    let availability = sum["availability"].as_f64().expect("a number");
    let each: Vec<f64> = reports.iter().map(|report| number(report, "availability")).collect();
    assert!(each.iter().any(|one| *one <= availability) && each.iter().any(|one| *one >= availability));
    without_samples(&mut reports[0]);
    assert!(!reports[0].measured.contains_key("samples"));
}

#[test]
fn a_run_repeats_to_the_last_bit() {
    let scenario = TokenScenario { swarm: true, ..local(6) };
    let twice = [run(&scenario, 5, Lines::default()), run(&scenario, 5, Lines::default())];
    assert_eq!(twice[0], twice[1]);
}
