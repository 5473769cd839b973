//! A cluster of real agents, and their reports.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::Value;

/// The program under test.
#[derive(Clone, Debug)]
pub(super) enum Side {
    /// Agents of this program.
    Annulus(PathBuf),
    /// Serf's, found in the path.
    Serf,
}

/// The report of an agent about another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It is a member.
    Joined(usize),
    /// Its own probe of it failed.
    Suspect(usize),
    /// It is dead.
    Dead(usize),
    /// An event with this name came.
    Event(String),
}

struct Report {
    at: Instant,
    by: usize,
    kind: Kind,
}

type Reports = Arc<Mutex<Vec<Report>>>;

/// Agents that end with the measurement.
pub(super) struct Cluster {
    side: Side,
    round: usize,
    agents: Vec<Child>,
    killed: BTreeSet<usize>,
    reports: Reports,
    _dir: tempfile::TempDir,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for agent in &mut self.agents {
            // If it has ended already there is nothing to end.
            let _ = agent.kill();
            let _ = agent.wait();
        }
    }
}

impl Cluster {
    /// Starts agents that join through the first, and waits until each knows all.
    pub(super) fn start(
        side: &Side,
        agents: usize,
        round: usize,
        settings: (&str, &[String]),
        timeout: Duration,
    ) -> anyhow::Result<Self> {
        let dir = tempfile::tempdir()?;
        let mut cluster = Self {
            side: side.clone(),
            round,
            agents: Vec::new(),
            killed: BTreeSet::new(),
            reports: Reports::default(),
            _dir: dir,
        };
        for number in 0..agents {
            cluster.add(number, settings)?;
        }
        let begin = Instant::now();
        while (0..agents).any(|by| cluster.known_to(by) < agents - 1) {
            let known: Vec<usize> = (0..agents).map(|by| cluster.known_to(by)).collect();
            ensure!(begin.elapsed() < timeout, "not everybody knows everybody: {known:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(cluster)
    }

    /// Sends an event from one agent; returns when the command was given.
    pub(super) fn send_event(&self, from: usize, name: &str) -> anyhow::Result<Instant> {
        let rpc = format!("{}:7373", self.ip(from));
        let mut command = match &self.side {
            Side::Annulus(program) => {
                let mut command = Command::new(program);
                command.args(["event", name, "--agent", &rpc]);
                command
            }
            Side::Serf => {
                let mut command = Command::new("serf");
                command.args(["event", "-coalesce=false", &format!("-rpc-addr={rpc}"), name]);
                command
            }
        };
        let sent = Instant::now();
        let output = command.stdin(Stdio::null()).output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(sent)
    }

    /// Kills an agent as kill -9 does.
    pub(super) fn kill(&mut self, number: usize) -> anyhow::Result<Instant> {
        let at = Instant::now();
        self.agents[number].kill()?;
        self.killed.insert(number);
        Ok(at)
    }

    /// Waits until so many agents other than one reported this; returns the time of the first report of each.
    pub(super) fn wait_for(&self, kind: &Kind, count: usize, but: usize, timeout: Duration) -> Vec<Instant> {
        let begin = Instant::now();
        loop {
            let seen = self.seen(kind, but);
            if seen.len() >= count || begin.elapsed() > timeout {
                return seen;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// When each agent other than one first reported this.
    pub(super) fn seen(&self, kind: &Kind, but: usize) -> Vec<Instant> {
        let reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        let mut seen: Vec<(usize, Instant)> = Vec::new();
        for report in reports.iter().filter(|report| report.kind == *kind && report.by != but) {
            if seen.iter().all(|(by, _)| *by != report.by) && !self.killed.contains(&report.by) {
                seen.push((report.by, report.at));
            }
        }
        seen.into_iter().map(|(_, at)| at).collect()
    }

    /// Deaths that were reported of agents that live.
    pub(super) fn false_deaths(&self) -> usize {
        let reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        let is_false = |kind: &Kind| matches!(kind, Kind::Dead(number) if !self.killed.contains(number));
        reports.iter().filter(|report| is_false(&report.kind)).count()
    }

    fn known_to(&self, by: usize) -> usize {
        let reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        let joined = reports.iter().filter_map(|report| match report.kind {
            Kind::Joined(number) if report.by == by && number != by => Some(number),
            _ => None,
        });
        joined.collect::<BTreeSet<usize>>().len()
    }

    /// Each cluster has addresses of its own: the last one's ports may linger.
    fn ip(&self, number: usize) -> String {
        let side = if matches!(self.side, Side::Serf) { 88 } else { 87 };
        format!("127.{side}.{}.{}", self.round, number + 1)
    }

    fn add(&mut self, number: usize, (preset, more): (&str, &[String])) -> anyhow::Result<()> {
        let (ip, seed, name) = (self.ip(number), self.ip(0), format!("n{number}"));
        let mut command = match &self.side {
            Side::Annulus(program) => {
                let mut command = Command::new(program);
                command.args(["agent", "--name", &name, "--bind", &ip, "--services", "members"]);
                command.args(["--set", &format!("members.preset={preset}")]);
                more.iter().for_each(|setting| {
                    command.args(["--set", setting]);
                });
                if number > 0 {
                    command.args(["--join", &format!("{seed}:7946")]);
                }
                command.stdout(Stdio::null()).stderr(Stdio::null());
                command
            }
            Side::Serf => {
                let mut command = Command::new("serf");
                let flags = [
                    format!("-node={name}"),
                    format!("-bind={ip}:7946"),
                    format!("-rpc-addr={ip}:7373"),
                    format!("-profile={preset}"),
                    "-log-level=info".into(),
                ];
                command.arg("agent").args(flags);
                if number > 0 {
                    command.arg(format!("-join={seed}"));
                }
                command.stdout(Stdio::piped()).stderr(Stdio::null());
                command
            }
        };
        let mut child =
            command.stdin(Stdio::null()).spawn().context("an agent does not start: is it installed?")?;
        let stdout = child.stdout.take();
        self.agents.push(child);
        let (reports, api) = (Arc::clone(&self.reports), format!("{ip}:7373").parse()?);
        if let Some(log) = stdout {
            std::thread::spawn(move || read_serf(log, number, &reports));
            // The next one joins through the first: it has to be there.
            connected(api)?;
        } else {
            let mut stream = connected(api)?;
            let request = format!("GET /v1/events HTTP/1.1\r\nHost: {api}\r\nLast-Event-ID: 0-0\r\n\r\n");
            stream.write_all(request.as_bytes())?;
            std::thread::spawn(move || read_annulus(stream, number, &reports));
        }
        Ok(())
    }
}

/// A connection to an agent, as soon as it listens.
fn connected(addr: SocketAddr) -> anyhow::Result<TcpStream> {
    let begin = Instant::now();
    loop {
        match TcpStream::connect(addr) {
            Ok(stream) => return Ok(stream),
            Err(error) => ensure!(begin.elapsed() < Duration::from_secs(60), "{addr}: {error}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn note(reports: &Reports, by: usize, kind: Kind) {
    let report = Report { at: Instant::now(), by, kind };
    reports.lock().unwrap_or_else(PoisonError::into_inner).push(report);
}

/// Lines such as `memberlist: Suspect n3 has failed, no acks received` and `serf: EventMemberFailed: n3 127.0.0.3`.
fn read_serf(log: impl Read, by: usize, reports: &Reports) {
    for line in BufReader::new(log).lines().map_while(Result::ok) {
        let number = |after: &str| -> Option<usize> {
            let name = line.split_once(after)?.1.split_whitespace().next()?;
            name.strip_prefix('n')?.parse().ok()
        };
        let kind = number("EventMemberJoin: ")
            .map(Kind::Joined)
            .or_else(|| number("memberlist: Suspect ").map(Kind::Suspect))
            .or_else(|| number("EventMemberFailed: ").map(Kind::Dead))
            .or_else(|| {
                let name = line.split_once("Received event: user-event: ")?.1;
                Some(Kind::Event(name.trim().to_owned()))
            });
        kind.into_iter().for_each(|kind| note(reports, by, kind));
    }
}

/// Server-sent events: lines `data: {…}`. Members have numbers in the order in which their addresses do.
fn read_annulus(stream: TcpStream, by: usize, reports: &Reports) {
    let mut ids: Vec<(String, usize)> = Vec::new();
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        let Some(event) =
            line.strip_prefix("data: ").and_then(|data| serde_json::from_str::<Value>(data).ok())
        else {
            continue;
        };
        let text = |key: &str| event[key].as_str().unwrap_or_default();
        let at = text("addr").split(':').next().and_then(|ip| ip.rsplit('.').next()?.parse::<usize>().ok());
        if let (id, Some(last)) = (text("id"), at)
            && !ids.iter().any(|(known, _)| known == id)
        {
            ids.push((id.to_owned(), last - 1));
        }
        let number = ids.iter().find(|(known, _)| known == text("id")).map(|(_, number)| *number);
        let kind = match (text("event"), number) {
            ("member_joined", Some(number)) => Kind::Joined(number),
            ("member_suspected", Some(number)) => Kind::Suspect(number),
            ("member_died", Some(number)) => Kind::Dead(number),
            ("event_received", _) => Kind::Event(text("name").to_owned()),
            _ => continue,
        };
        note(reports, by, kind);
    }
}
