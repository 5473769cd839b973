//! Log lines on standard error, for people or for programs.

use std::io::IsTerminal as _;

use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

use crate::config::Settings;

/// Starts logging as configured. `RUST_LOG`, if set, selects lines in detail.
pub(crate) fn start(settings: &Settings) {
    let level = settings.text("log.level").unwrap_or("info");
    let wanted = std::env::var("RUST_LOG").unwrap_or_else(|_| level.to_owned());
    let filter: Targets =
        wanted.parse().unwrap_or_else(|_| Targets::new().with_default(tracing::Level::INFO));
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let registry = tracing_subscriber::registry().with(filter);
    // A second start in one process keeps the first one's lines.
    let _ = match settings.text("log.format") {
        Some("json") => registry.with(lines.json()).try_init(),
        _ => {
            let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            registry.with(lines.with_target(false).with_ansi(colours)).try_init()
        }
    };
}

/// Logs faults of the program only.
pub(crate) fn errors() {
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_target(false);
    let filter = Targets::new().with_default(tracing::Level::ERROR);
    // A second start in one process keeps the first one's lines.
    let _ = tracing_subscriber::registry().with(filter).with(lines).try_init();
}
