//! CPU time and memory.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// CPU time of the calling thread so far, in user and kernel.
pub(crate) fn of_thread() -> Duration {
    read(ClockId::ThreadCPUTime)
}

/// CPU time of this process so far, in user and kernel.
pub(crate) fn of_process() -> Duration {
    read(ClockId::ProcessCPUTime)
}

/// Resident memory of this process and the most it ever had, in KiB.
pub(crate) fn resident_kib() -> anyhow::Result<(u64, u64)> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse().ok()
    };
    field("VmRSS:").zip(field("VmHWM:")).ok_or_else(|| anyhow::anyhow!("/proc/self/status tells no memory"))
}

fn read(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// The middle one. An even number of values has two; the lower is taken.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN)
}
