//! `annulus demo`: several agents in one process, a page to watch them and to break them.

use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ratatui::crossterm::event::KeyEvent;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::UsageError;
use super::output::Output;
use crate::agent::{self, http};
use crate::demo::{self, Cluster, Screen, Script, Wish};

/// The interval between two redraws.
const REFRESH: Duration = Duration::from_millis(100);

/// Run a group of real nodes on loopback addresses, with a page to watch and to break them.
///
/// All nodes run in this process, on 127.73.x.1 and following, with members, route, token and mesh. Messages, turns
/// and mail are generated. The page has controls to kill, revive, suspend or partition nodes; its `/v1` is the API of
/// the first node. Ctrl-C ends the demo and removes its files.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  annulus demo
  annulus demo --nodes 24 --http 127.0.0.1:8000
  annulus demo --script story.txt --seconds 60

A script has lines such as:
  at 5 s kill blue
  at 8 s mail red blue see you later
  at 12 s revive blue
  at 20 s cut red orange amber
  at 30 s heal")]
pub(crate) struct Demo {
    /// The number of nodes.
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u8).range(3..=50))]
    nodes: u8,
    /// The address of the page, on loopback.
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:7373")]
    http: SocketAddr,
    /// End after this many seconds.
    #[arg(long)]
    seconds: Option<u64>,
    /// Run the actions of this file; see the examples below.
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
}

impl Demo {
    pub(crate) fn run(self, output: &Output) -> anyhow::Result<ExitCode> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let outcome = runtime.block_on(self.play(output));
        // Tasks that wait for a disk or a client must not hold the end.
        runtime.shutdown_timeout(Duration::from_secs(1));
        outcome
    }

    async fn play(self, output: &Output) -> anyhow::Result<ExitCode> {
        if !self.http.ip().is_loopback() {
            let text = format!(
                "the page of the demo on {} would be open to everybody: choose a loopback address with --http",
                self.http
            );
            return Err(UsageError(text).into());
        }
        let script = self.script.as_deref().map(Script::read).transpose()?.unwrap_or_default();
        agent::log_errors();
        let begin = Instant::now();
        let mut terminate = signal(SignalKind::terminate())?;
        let listener = agent::listen(self.http).await?;
        let page = format!("http://{}", listener.local_addr()?);
        let cluster = Cluster::start(self.nodes.into(), listener.local_addr()?).await?;
        script.check(&cluster)?;
        let (leave, leaving) = watch::channel(false);
        let server = http::serve(listener, demo::app(Arc::clone(&cluster), leaving.clone()), leaving.clone());
        let server = tokio::spawn(server);
        let lines = Lines { output, begin };
        lines.tell(&format!("{} nodes are starting; the page: {page}", self.nodes));
        cluster.ready().await;
        let is_terminal = !output.json && std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
        let mut screen = if is_terminal { Some(Screen::open(page.clone(), begin)?) } else { None };
        tokio::spawn(demo::run_load(Arc::clone(&cluster), leaving));
        let mut script = Box::pin(script.run(Arc::clone(&cluster)));
        let mut script_ended = None;
        let mut tick = tokio::time::interval(REFRESH);
        loop {
            let news = cluster.take_lines();
            match &mut screen {
                Some(screen) => {
                    news.iter().for_each(|line| screen.line(line));
                    screen.draw(&cluster).await?;
                }
                None => news.iter().for_each(|line| lines.tell(line)),
            }
            if self.seconds.is_some_and(|seconds| begin.elapsed() >= Duration::from_secs(seconds)) {
                break;
            }
            tokio::select! {
                _ = tick.tick() => {}
                key = next_key(&mut screen) => {
                    let (Some(screen), Some(key)) = (&mut screen, key) else { continue };
                    if matches!(screen.press(key, &cluster), Wish::Quit) {
                        break;
                    }
                }
                ended = &mut script, if script_ended.is_none() => script_ended = Some(ended),
                _ = tokio::signal::ctrl_c() => break,
                _ = terminate.recv() => break,
            }
        }
        drop(screen);
        let rows = cluster.rows();
        leave.send_replace(true);
        cluster.stop().await;
        server.abort();
        if output.json {
            output.json(&json!({ "page": page, "nodes": rows, "seconds": begin.elapsed().as_secs() }));
        } else {
            let up = rows.iter().filter(|row| row.state == "up").count();
            lines.tell(&format!("the demo ends; {up} of {} nodes were up", rows.len()));
        }
        match script_ended {
            Some(Err(problem)) => Err(anyhow::anyhow!(problem)),
            _ => Ok(ExitCode::SUCCESS),
        }
    }
}

/// The next key; without a terminal there is none.
async fn next_key(screen: &mut Option<Screen>) -> Option<KeyEvent> {
    match screen {
        Some(screen) => screen.key().await,
        None => std::future::pending().await,
    }
}

/// Plain lines with the time, for where there is no terminal.
struct Lines<'a> {
    output: &'a Output,
    begin: Instant,
}

impl Lines<'_> {
    fn tell(&self, line: &str) {
        if !self.output.json {
            self.output.line(format!(
                "{:7.1} s  {}",
                self.begin.elapsed().as_secs_f64(),
                super::output::plain(line)
            ));
        }
    }
}
