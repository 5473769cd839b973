//! The group under faults: each test is one of the failure scenarios of the spec, small enough for every run.

use core::time::Duration;

use annulus_core::swim::{Preset, Swim};
use annulus_sim::scenarios::members::{
    Broken, Experiment, Group, Measure, Measured, MembersScenario, Places,
};
use annulus_sim::{Conditions, Config, Fault, FaultModel, FaultPlan, HostSpec, Lines, Sim, run};

fn measure(experiment: Experiment, nodes: u32, preset: Preset) -> Measure {
    Measure {
        experiment,
        nodes,
        crash: 0,
        seconds: 60,
        preset,
        settings: preset.settings(),
        suspicion_mult: None,
        aligned: false,
        stalling: 0,
        stall_millis: (5_000, 8_000),
        run_millis: (1_000, 20_000),
        flood: false,
        places: Places::Random,
        far_loss: 0.0,
        cut_seconds: 600,
        config: Config::default(),
    }
}

fn run_once(measure: &Measure, seed: u64) -> Measured {
    measure.run(seed, Lines::default()).expect("nothing is wrong with the simulation")
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// SF-1: crashes of one of 3, 10 and 50.
#[test]
fn a_crash_is_known_to_all_and_no_other_node_dies() {
    for preset in [Preset::OriginalSwim, Preset::GoSwim, Preset::Lan, Preset::Local] {
        for nodes in [3, 10, 50] {
            let seconds = 2 * u64::from(nodes) + 60;
            let measured =
                run_once(&Measure { crash: 1, seconds, ..measure(Experiment::Crash, nodes, preset) }, 7);
            assert!(measured.converged, "{preset} {nodes}");
            assert_eq!(
                (measured.all_know_dead_seconds.len(), measured.false_dead),
                (1, 0),
                "{preset} {nodes}"
            );
        }
    }
}

/// The paper's e/(e − 1) = 1.58 periods, here for 60 members and 150 runs.
#[test]
fn the_first_failed_probe_comes_as_in_the_paper() {
    let crash = Measure {
        crash: 1,
        seconds: 8,
        aligned: true,
        ..measure(Experiment::Crash, 60, Preset::OriginalSwim)
    };
    let periods: Vec<f64> = (1..=150).flat_map(|seed| run_once(&crash, seed).first_suspect_periods).collect();
    assert_eq!(periods.len(), 150);
    assert!((1.35..=1.8).contains(&mean(&periods)), "{}", mean(&periods));
}

/// S-R7: after many periods every node was probed at least once in 2n − 1 periods.
#[test]
fn every_node_is_pinged_within_two_rounds() {
    let quiet = Measure { seconds: 150, ..measure(Experiment::Crash, 20, Preset::OriginalSwim) };
    let measured = run_once(&quiet, 3);
    assert!(measured.unprobed_periods_max < 2 * 19, "{}", measured.unprobed_periods_max);
}

/// SF-17: a third of all datagrams lost.
#[test]
fn loss_buries_few() {
    let mut lossy = Measure { seconds: 120, ..measure(Experiment::Crash, 30, Preset::Lan) };
    lossy.config.network.loss = 0.3;
    let measured = run_once(&lossy, 5);
    assert!(measured.false_dead < 30, "{}", measured.false_dead);
}

/// SF-10 for many at once.
#[test]
fn all_join_through_one() {
    let measured = run_once(&Measure { seconds: 90, ..measure(Experiment::Join, 100, Preset::Lan) }, 1);
    assert!(measured.converged && measured.false_dead == 0);
}

/// In a small group all nodes learn of a newcomer at once, though most updates about it go to the newcomer itself.
#[test]
fn a_few_that_start_one_after_another_know_each_other_within_a_second() {
    for (preset, nodes) in [Preset::Lan, Preset::Local].into_iter().flat_map(|p| [(p, 3), (p, 4), (p, 6)]) {
        for seed in 1..=40 {
            let group = Group { seeds: 1, ..Group::new(nodes, preset) };
            let mut sim = Sim::new(seed, Config::default(), group.factory());
            for n in 0..nodes {
                let host = sim.add_host_with(HostSpec { off: true, ..HostSpec::default() });
                sim.at(Duration::from_millis(40) * n, Fault::Start(host));
            }
            sim.run_for(Duration::from_millis(40) * nodes, &mut ()).unwrap();
            let whole = |sim: &Sim<Swim>, (): &()| {
                sim.machines().all(|(_, machine)| machine.members().live() == nodes as usize)
            };
            let (second, often) = (Duration::from_secs(1), Duration::from_millis(20));
            assert!(sim.run_until_that(second, often, &mut (), whole).unwrap(), "{preset} {nodes} {seed}");
        }
    }
}

/// SF-7: ten minutes, no operator.
#[test]
fn a_partition_heals_by_itself() {
    let measured = run_once(&Measure { seconds: 120, ..measure(Experiment::Partition, 30, Preset::Lan) }, 1);
    assert!(measured.converged);
    assert_eq!(measured.false_dead, 0, "the healing buries nobody");
}

/// SA-33c: a short partition heals as soon as a long one.
#[test]
fn a_partition_of_any_length_heals_within_seconds() {
    for preset in [Preset::Lan, Preset::Local] {
        for cut_seconds in [10, 14, 20, 30, 45, 60] {
            for seed in 1..=4 {
                let cut = Measure { cut_seconds, ..measure(Experiment::Partition, 12, preset) };
                let healed = run_once(&cut, seed).converged_seconds;
                let is_soon = healed.is_some_and(|seconds| seconds <= 6.0);
                assert!(is_soon, "{preset}, {cut_seconds} s, seed {seed}: {healed:?}");
            }
        }
    }
}

/// SF-8 for all at once.
#[test]
fn a_mass_restart_converges() {
    let measured = run_once(&Measure { seconds: 120, ..measure(Experiment::Restart, 60, Preset::Lan) }, 1);
    assert!(measured.converged);
}

/// SF-15: with the user queue full, deaths are found as fast.
#[test]
fn a_flood_of_user_messages_does_not_slow_detection() {
    let crash = Measure { crash: 2, seconds: 40, ..measure(Experiment::Crash, 40, Preset::Lan) };
    let flooded = Measure { flood: true, ..crash.clone() };
    let seconds = |measure: &Measure| {
        let runs = (1..=3).flat_map(|seed| run_once(measure, seed).all_know_dead_seconds);
        mean(&runs.collect::<Vec<_>>())
    };
    let (quiet, loud) = (seconds(&crash), seconds(&flooded));
    assert!(loud < 1.15 * quiet, "{loud} against {quiet}");
}

/// The quiet state costs the same, however many there are.
#[test]
fn the_quiet_state_costs_the_same_for_ten_times_as_many() {
    let cost = |nodes| run_once(&measure(Experiment::Crash, nodes, Preset::Lan), 1).bytes_rate;
    let (few, many) = (cost(60), cost(600));
    assert!((few / many - 1.0).abs() < 0.15, "{few} {many}");
}

/// Lifeguard: paused nodes are declared dead far less often.
#[test]
fn stalls_cause_far_fewer_false_deaths_than_in_the_original() {
    let deaths = |preset| {
        let stall = Measure { stalling: 20, seconds: 90, ..measure(Experiment::Stall, 99, preset) };
        run_once(&Measure { suspicion_mult: Some(4), ..stall }, 1).false_dead
    };
    let (original, lan) = (deaths(Preset::OriginalSwim), deaths(Preset::Lan));
    assert!(original > 100 && lan * 20 < original, "{original} {lan}");
}

/// Every fault at once, and each run twice.
#[test]
fn the_swarm_finds_nothing_and_repeats_itself() {
    for preset in [Preset::Lan, Preset::Local] {
        let (conditions, swarm) = (Conditions::default(), true);
        let scenario = MembersScenario { nodes: 10, seconds: 40, preset, conditions, swarm, broken: None };
        for seed in 1..=12 {
            let report = run(&scenario, seed, Lines::default());
            assert!(report.ok, "{preset}, seed {seed}: {:?}", report.violation);
            let again = run(&scenario, seed, Lines::default());
            assert_eq!(report.trace_hash, again.trace_hash, "{preset}, seed {seed}");
        }
    }
}

/// FA-28: the checker notices machines that are broken on purpose.
#[test]
fn groups_that_do_not_probe_or_that_forget_failed_members_are_caught() {
    for (broken, word) in [(Broken::NoProbes, "not converged"), (Broken::ForgetsFailed, "does not list")] {
        let faults = FaultPlan { model: FaultModel::V2, ..FaultPlan::default() };
        let conditions = Conditions { faults, ..Conditions::default() };
        let (preset, swarm, broken) = (Preset::Local, true, Some(broken));
        let scenario = MembersScenario { nodes: 10, seconds: 60, preset, conditions, swarm, broken };
        let is_caught = |seed: &u64| {
            run(&scenario, *seed, Lines::default())
                .violation
                .is_some_and(|violation| violation.contains(word))
        };
        let seed = (1..=20).find(is_caught);
        println!("{broken:?}: seed {seed:?}");
        assert!(seed.is_some(), "{broken:?} is not caught");
    }
}
