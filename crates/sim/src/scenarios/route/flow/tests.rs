//! A slice of every drill, and machines that are broken on purpose.

use super::{Drill, FlowBroken, Gone, RouteFlow};
use crate::scenario::{Lines, run};

fn flow(drill: Drill) -> RouteFlow {
    RouteFlow { drill: Some(drill), ..RouteFlow::default() }
}

/// Runs a drill under some seeds; all must hold, and keep the promise.
fn holds(drill: Drill, seeds: core::ops::RangeInclusive<u64>, promise: &str) {
    for seed in seeds {
        let report = run(&flow(drill), seed, Lines::default());
        assert!(report.ok, "{drill:?}, seed {seed}: {:?}", report.violation);
        assert!(report.entries.promises.contains_key(promise), "{drill:?}, seed {seed}: no {promise}");
    }
}

/// Whether one of twenty seeds notices.
fn is_noticed(drill: Drill, broken: FlowBroken, word: &str) -> bool {
    let scenario = RouteFlow { broken: Some(broken), ..flow(drill) };
    (1..=20).any(|seed| {
        let report = run(&scenario, seed, Lines::default());
        report.violation.is_some_and(|violation| violation.contains(word))
    })
}

#[test]
fn cuf_11_messages_flow_again_after_a_healed_partition() {
    holds(Drill::Heal, 1..=4, "flow");
}

#[test]
fn cuf_12_the_keys_of_an_owner_that_is_gone_move_within_a_second() {
    for gone in [
        Gone::Killed,
        Gone::PowerLost,
        Gone::Stopped,
        Gone::Mute,
        Gone::Deaf,
        Gone::NoDatagrams,
        Gone::NoStreams,
    ] {
        holds(Drill::Owner(gone), 1..=2, "whole");
    }
}

#[test]
fn cuf_13_an_application_under_a_flood_is_busy_and_loses_nothing() {
    holds(Drill::Flood, 1..=2, "whole");
}

#[test]
fn cuf_14_without_an_application_messages_fail() {
    holds(Drill::NoApplication, 1..=2, "no_application");
}

#[test]
fn cuf_15_all_faults_make_no_reply_untrue() {
    holds(Drill::Anything, 1..=4, "whole");
}

#[test]
fn scheduling_noise_evicts_no_node() {
    holds(Drill::Noise, 1..=2, "steady");
}

#[test]
fn a_run_can_be_repeated() {
    let scenario = RouteFlow::default();
    assert_eq!(run(&scenario, 5, Lines::default()), run(&scenario, 5, Lines::default()));
}

#[test]
fn fa_28_every_checker_catches_its_broken_machine() {
    let owner = Drill::Owner(Gone::Stopped);
    assert!(is_noticed(Drill::Heal, FlowBroken::Hasty, "is not true"), "T");
    assert!(is_noticed(Drill::Anything, FlowBroken::Repeating, "sent once"), "O");
    assert!(is_noticed(Drill::Flood, FlowBroken::Unbounded, "open messages"), "B");
    assert!(is_noticed(Drill::Owner(Gone::PowerLost), FlowBroken::Patient, "failover"), "failover");
    assert!(is_noticed(owner, FlowBroken::Impatient, "which lives"), "no eviction");
    assert!(is_noticed(Drill::Heal, FlowBroken::Apart, "flow"), "flow");
}
