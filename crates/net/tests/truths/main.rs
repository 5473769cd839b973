//! Truths: one script, two worlds (FA-33 … FA-35). The simulator must match the kernel.
//!
//! A truth is a script for two puppets and a path between them. Here it is run in the simulator and, as root, against
//! the kernel: two network namespaces, two bridges and a cable between them that can be pulled. The table of both:
//!
//! ```sh
//! cargo test --workspace --test truths -- --include-ignored --nocapture
//! ```
//!
//! The quick ones are run by every test as root; all of them take about four minutes.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a helper of a test fails like a test")]
#![expect(clippy::print_stdout, reason = "the table is for people, and a child tells its parent by it")]

mod kernel;
mod script;
mod simulated;

use std::sync::Mutex;

use script::{Outcome, TRUTHS, Truth};

/// Compares the two, and prints a row of the table.
fn compare(truth: &Truth, lab: &kernel::Lab) -> Result<(), String> {
    let (kernel, simulated) = (kernel::run(truth, lab), simulated::run(truth, lab.has_rto_max()));
    println!("| {} | {kernel} | {simulated} |", truth.name);
    agree(truth, &kernel, &simulated)
}

/// Times may differ by a third or by the tolerance, bytes by a half; all else is equal.
fn agree(truth: &Truth, kernel: &Outcome, simulated: &Outcome) -> Result<(), String> {
    let agree = match (kernel, simulated) {
        (Outcome::Seconds(one), Outcome::Seconds(other)) => {
            (one - other).abs() <= truth.tolerance_seconds.max(one.max(*other) / 3.0)
        }
        (Outcome::Bytes(one), Outcome::Bytes(other)) => one.max(other) * 2 <= one.min(other) * 3,
        (one, other) => one == other,
    };
    if agree { Ok(()) } else { Err(format!("{}: kernel {kernel}, simulator {simulated}", truth.name)) }
}

/// Without root: the simulator against the values that a kernel has shown.
#[test]
fn fa_33_the_simulator_matches_the_recorded_kernel() {
    let compare = |truth: &Truth| agree(truth, &truth.recorded, &simulated::run(truth, true)).err();
    let differ: Vec<String> = TRUTHS.iter().filter_map(compare).collect();
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}

#[test]
fn fa_34_a_difference_is_noticed() {
    let truth = &TRUTHS[2];
    assert!(agree(truth, &Outcome::Seconds(0.02), &Outcome::Seconds(0.2)).is_ok());
    assert!(agree(truth, &Outcome::Seconds(0.02), &Outcome::Seconds(0.9)).is_err());
    assert!(agree(truth, &Outcome::Nothing, &Outcome::Seconds(0.02)).is_err());
    assert!(agree(truth, &Outcome::Bytes(65_536), &Outcome::Bytes(4_000_000)).is_err());
}

/// One laboratory at a time: the tests of this file are threads of one process.
static LAB: Mutex<()> = Mutex::new(());

fn table(which: impl Fn(&Truth) -> bool) {
    let _alone = LAB.lock();
    if !kernel::Lab::is_possible() {
        return;
    }
    let lab = kernel::Lab::new();
    println!("| truth | kernel | simulator |\n|---|---|---|");
    let differ: Vec<String> =
        TRUTHS.iter().filter(|truth| which(truth)).filter_map(|truth| compare(truth, &lab).err()).collect();
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}

#[test]
fn fa_34_the_simulator_matches_the_kernel_in_quick_truths() {
    table(|truth| truth.is_quick);
}

#[test]
#[ignore = "it takes four minutes; nightly and before a release"]
fn fa_34_the_simulator_matches_the_kernel() {
    table(|_| true);
}

/// The other process: a puppet that reads its steps from standard input.
#[test]
#[ignore = "started by the others as a process of its own"]
fn puppet_process() {
    if std::env::var_os("ANNULUS_TRUTH").is_some() {
        kernel::child();
    }
}
