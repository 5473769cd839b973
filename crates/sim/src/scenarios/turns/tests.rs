//! The scenario is clean with the real machine, and catches broken ones.

use annulus_core::turns::Fault;

use super::*;
use crate::scenario::{Lines, run};

fn violation(scenario: &TurnsScenario, seed: u64) -> Option<String> {
    run(scenario, seed, Lines::default()).violation
}

fn clean(trouble: Trouble) {
    for seed in 0..4 {
        let scenario = TurnsScenario { trouble: Some(trouble), ..TurnsScenario::default() };
        assert_eq!(violation(&scenario, seed), None, "{} with seed {seed}", trouble.name());
    }
}

/// The violation that the first of twenty seeds finds.
fn caught(scenario: &TurnsScenario) -> String {
    (0..20).find_map(|seed| violation(scenario, seed)).expect("one of twenty seeds finds it")
}

#[test]
fn tuf_1_a_stopped_agent_of_the_holder() {
    clean(Trouble::Stalls);
}

#[test]
fn tuf_2_a_holder_that_is_cut_off() {
    clean(Trouble::Cuts);
}

#[test]
fn tuf_3_client_agent_and_guard_stopped_and_killed() {
    clean(Trouble::Processes);
}

#[test]
fn tuf_4_voters_crash_one_after_another() {
    clean(Trouble::VoterCrashes);
}

#[test]
fn tuf_6_voters_lose_unsynced_data() {
    clean(Trouble::Unsynced);
}

#[test]
fn tuf_6_a_voter_that_grants_before_its_bound_is_durable_is_caught() {
    let (trouble, broken) = (Some(Trouble::Unsynced), Some(Fault::BoundAfterGrant));
    let found = caught(&TurnsScenario { trouble, broken, ..TurnsScenario::default() });
    assert!(found.contains("F: "), "{found}");
}

#[test]
fn tuf_7_voters_lose_their_disks() {
    clean(Trouble::LostDisks);
}

#[test]
fn tuf_8_clocks_drift_within_ten_percent() {
    clean(Trouble::Drift);
}

#[test]
fn tuf_8_a_drift_of_thirty_percent_is_caught() {
    let trouble = Some(Trouble::Cuts);
    let found = caught(&TurnsScenario { trouble, drift_ppm: 300_000, ..TurnsScenario::default() });
    assert!(["X: ", "E: "].iter().any(|kind| found.contains(kind)), "{found}");
}

#[test]
fn tuf_9_two_of_three_voters_are_cut_off() {
    clean(Trouble::NoMajority);
}

#[test]
fn tuf_9_an_hour_without_a_majority() {
    let trouble = Some(Trouble::NoMajority);
    let scenario = TurnsScenario { trouble, seconds: 3700, ..TurnsScenario::default() };
    let report = run(&scenario, 1, Lines::default());
    assert_eq!(report.violation, None);
    assert_eq!(report.entries.exercised["majority_lost"], 1.0);
    assert!(report.measured["grants"].as_u64() < Some(60), "nobody got a turn in it: {:?}", report.measured);
}

#[test]
fn tuf_10_a_crowd_of_askers() {
    let crowd = TurnsScenario { trouble: Some(Trouble::Crowd), ..TurnsScenario::default() };
    let report = run(&crowd, 1, Lines::default());
    assert_eq!(report.violation, None);
    let number = |name: &str| report.measured[name].as_u64().expect("it is a number");
    assert!(number("fewest_turns") > 0, "{:?}", report.measured);
    // A fair share is one turn of 64.
    let fair_ms = 64 * crowd.seconds * 1000 / number("grants");
    assert!(number("longest_wait_ms") <= 2 * fair_ms, "{fair_ms}: {:?}", report.measured);
}

#[test]
fn tuf_3_commands_under_stopped_guards_are_excused_and_counted() {
    let scenario = TurnsScenario { trouble: Some(Trouble::Processes), ..TurnsScenario::default() };
    let uses = (0..30).filter(|seed| {
        let report = run(&scenario, *seed, Lines::default());
        assert_eq!(report.violation, None, "seed {seed}");
        report.entries.excuses.contains_key("GUARD_STOPPED")
    });
    assert!(uses.count() > 0, "two commands ran at once, and the report says why");
}

#[test]
fn tuf_12_machines_sleep_and_are_paused() {
    clean(Trouble::Sleeps);
}

#[test]
fn tuf_13_the_network_splits() {
    clean(Trouble::Splits);
    clean(Trouble::Everything);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let scenario = TurnsScenario::default();
    assert_eq!(
        run(&scenario, 3, Lines::default()).trace_hash,
        run(&scenario, 3, Lines::default()).trace_hash
    );
}

/// A disk that sometimes refuses a write: an interrupted founding continues (these seeds ended with halted voters).
#[test]
fn a_founding_goes_on_after_the_disk_refused_a_record() {
    let scenario = TurnsScenario { swarm: true, ..TurnsScenario::default() };
    for seed in [16, 32, 33, 51, 66] {
        assert_eq!(violation(&scenario, seed), None, "seed {seed}");
    }
}
