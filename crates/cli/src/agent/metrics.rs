//! `/metrics`: the counters of driver and machines as Prometheus text.

use std::fmt::Write as _;

use annulus::core::Counter;
use annulus::net::Counters;

use super::services;

/// Gauges beside the counters.
pub(crate) struct About<'a> {
    /// The node's name.
    pub(crate) name: &'a str,
    /// The node's id.
    pub(crate) id: &'a str,
    /// Seconds since the start.
    pub(crate) uptime_seconds: f64,
}

/// All metrics as text.
pub(crate) fn render(about: &About<'_>, counters: &Counters) -> String {
    let mut text = String::with_capacity(8192);
    head(&mut text, "annulus_info", "gauge", "Version and identity of this node; always 1.");
    let (name, id, version) = (escaped(about.name), about.id, env!("CARGO_PKG_VERSION"));
    let _ = writeln!(text, "annulus_info{{name=\"{name}\",id=\"{id}\",version=\"{version}\"}} 1");
    head(&mut text, "annulus_uptime_seconds", "gauge", "Seconds since the agent started.");
    let _ = writeln!(text, "annulus_uptime_seconds {:.3}", about.uptime_seconds);
    if let Some(bytes) = resident_bytes() {
        head(&mut text, "process_resident_memory_bytes", "gauge", "Resident memory of the process.");
        let _ = writeln!(text, "process_resident_memory_bytes {bytes}");
    }
    counters.driver.visit(&mut |counter| write_counter(&mut text, "driver", counter));
    for counter in &counters.machine {
        write_counter(&mut text, services::name_of(counter.service), *counter);
    }
    text
}

fn write_counter(text: &mut String, of: &str, counter: Counter) {
    let name = format!("annulus_{of}_{}_total", counter.name);
    head(text, &name, "counter", counter.help);
    let _ = writeln!(text, "{name} {}", counter.value);
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let help = help.replace('\\', "\\\\").replace('\n', "\\n");
    let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
}

/// A label's value may hold anything but these three as they are.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// The resident memory of this process; `None` where the system does not report it this way.
fn resident_bytes() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split(' ').nth(1)?.parse().ok()?;
    Some(pages * 4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sample_has_help_and_type_and_labels_are_escaped() {
        let about = About { name: "a\"b", id: "00", uptime_seconds: 1.5 };
        let text = render(&about, &Counters::default());
        assert!(text.contains("name=\"a\\\"b\""));
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let name = line.split(['{', ' ']).next().unwrap();
            assert!(text.contains(&format!("# HELP {name} ")), "{name}");
            assert!(text.contains(&format!("# TYPE {name} ")), "{name}");
        }
        assert!(text.contains("annulus_driver_datagrams_received_total 0"));
    }
}
