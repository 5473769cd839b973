//! The coverage-guided fuzzer: libFuzzer around the target that `FUZZ_TARGET` names. `fuzz/run` builds and runs it.

#![no_main]

use std::sync::OnceLock;

use annulus_fuzz::{TARGETS, Target};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (chosen().run)(bytes));

fn chosen() -> Target {
    static CHOSEN: OnceLock<Target> = OnceLock::new();
    *CHOSEN.get_or_init(|| {
        let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
        let known: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
        TARGETS
            .iter()
            .copied()
            .find(|target| target.name == name)
            .unwrap_or_else(|| panic!("FUZZ_TARGET is {name:?}: set it to one of {known:?}"))
    })
}
