//! Calls of code that an application supplies: a panic there is the error of that call, not the end of the node.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs code of an application; `None` if it panicked. Such code does not touch the state of the machine.
pub(crate) fn caught<T>(call: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(call)).ok()
}
