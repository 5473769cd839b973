//! `annulus demo`: a real cluster on loopback addresses in one process, with a live table.

mod cluster;
mod screen;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde_json::json;

use super::output::Output;
use cluster::Cluster;
use screen::Screen;

/// How often the table is drawn.
const REFRESH: Duration = Duration::from_millis(250);
/// How long all nodes are up before one of them is killed, and how long it stays dead.
const UP: Duration = Duration::from_secs(8);
const DOWN: Duration = Duration::from_secs(4);

/// Run a cluster of real nodes on loopback addresses and watch it.
///
/// Five nodes on 127.0.0.1 to 127.0.0.5 ping each other over UDP and TCP. Every few seconds one of them is killed and
/// comes back, with the count it had kept on disk. Ctrl-C ends it and removes everything.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  annulus demo --nodes 8 --seconds 30")]
pub(crate) struct Demo {
    /// How many nodes.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u8).range(2..=50))]
    nodes: u8,
    /// The port of all nodes; any free one if not given.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// End after so many seconds.
    #[arg(long)]
    seconds: Option<u64>,
    /// Leave all nodes alone.
    #[arg(long)]
    no_kill: bool,
}

impl Demo {
    pub(crate) fn run(self, output: &Output) -> anyhow::Result<ExitCode> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(self.play(output))
    }

    async fn play(self, output: &Output) -> anyhow::Result<ExitCode> {
        let mut cluster = Cluster::start(self.nodes, self.port)?;
        let mut screen = Screen::new(output);
        let begin = Instant::now();
        let mut tick = tokio::time::interval(REFRESH);
        let quit = tokio::signal::ctrl_c();
        tokio::pin!(quit);
        loop {
            tokio::select! {
                _ = tick.tick() => {}
                _ = &mut quit => break,
            }
            if !self.no_kill {
                drama(&mut cluster, begin.elapsed()).await?;
            }
            cluster.observe().await;
            screen.draw(&cluster, begin.elapsed());
            if self.seconds.is_some_and(|seconds| begin.elapsed() >= Duration::from_secs(seconds)) {
                break;
            }
        }
        cluster.observe().await;
        screen.close(&cluster);
        if output.json {
            output.json(&json!({ "nodes": cluster.rows(), "seconds": begin.elapsed().as_secs() }));
        }
        cluster.stop().await;
        Ok(ExitCode::SUCCESS)
    }
}

/// Kills a node and revives it, one after the other, each in its turn.
async fn drama(cluster: &mut Cluster, elapsed: Duration) -> anyhow::Result<()> {
    let act = elapsed.as_millis() / (UP + DOWN).as_millis();
    let victim = (act as usize * 3 + 2) % cluster.len();
    let is_down = elapsed.as_millis() % (UP + DOWN).as_millis() >= UP.as_millis();
    if is_down {
        cluster.kill(victim).await;
    } else {
        cluster.revive_all()?;
    }
    Ok(())
}
