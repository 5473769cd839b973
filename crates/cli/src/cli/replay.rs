//! `annulus replay`: a recorded simulation in the page.

use std::fs::File;
use std::io::BufReader;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use tokio::sync::watch;

use super::UsageError;
use super::output::Output;
use crate::agent::{self, http};
use crate::replay::{self, Trace, TraceError};

/// Play a recorded simulation in the page.
///
/// `annulus sim … --trace FILE` records one. The page shows its hosts on the ring, with a time line, the speed, and a mark for
/// each fault. Ctrl-C ends it.
#[derive(clap::Args)]
#[command(after_help = "Example:
  annulus sim node --nodes 12 --crash 2 --partition 1 --seed 3 --trace run.trace
  annulus replay run.trace")]
pub(crate) struct Replay {
    /// The trace that `annulus sim … --trace FILE` or `--trace-json FILE` wrote.
    file: PathBuf,
    /// The address of the page, on loopback.
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:7373")]
    http: SocketAddr,
}

impl Replay {
    pub(crate) fn run(self, output: &Output) -> anyhow::Result<()> {
        if !self.http.ip().is_loopback() {
            let text = format!(
                "the page of the replay on {} would be open to everybody: choose a loopback address with --http",
                self.http
            );
            return Err(UsageError(text).into());
        }
        let path = self.file.display();
        let file = File::open(&self.file)
            .with_context(|| format!("cannot read the trace {path}; check the path"))?;
        let trace = Trace::read(BufReader::new(file)).map_err(|error| match error {
            TraceError::Unreadable(error) => {
                anyhow::anyhow!("cannot read the trace {path}; check the path: {error}")
            }
            TraceError::NoTrace { line } => UsageError(format!(
                "line {line} of {path} is of no trace: record one with `annulus sim … --trace FILE`"
            ))
            .into(),
        })?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let outcome = runtime.block_on(self.serve(&trace, output));
        runtime.shutdown_timeout(Duration::from_secs(1));
        outcome
    }

    async fn serve(&self, trace: &Trace, output: &Output) -> anyhow::Result<()> {
        let name = self.file.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let app = replay::app(&name, trace)?;
        let listener = agent::listen(self.http).await?;
        let page = format!("http://{}", listener.local_addr()?);
        let (hosts, lines) = trace.size();
        let text = format!("{hosts} hosts and {lines} events; the page: {page}");
        output.done(&serde_json::json!({ "page": page, "hosts": hosts, "events": lines }), &text);
        let (_leave, leaving) = watch::channel(false);
        tokio::select! {
            () = http::serve(listener, app, leaving) => {}
            _ = tokio::signal::ctrl_c() => {}
        }
        Ok(())
    }
}
