//! Exclusive turns against etcd's locks: both with three members on this machine and this disk, both over HTTP and JSON, one
//! client on one connection. And `annulus lock` against flock(1), which contacts no other host. `bars.rs` has the
//! figures that need no other program.

mod bars;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use crate::cpu::median;
use crate::table::Table;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How long each side is measured, twice, in turns.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// The program etcd (Debian: etcd-server); the one in PATH if not given.
    #[arg(long)]
    etcd: Option<PathBuf>,
}

/// A process that ends with the measurement.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // If it has ended already there is nothing to end.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const MEMBERS: u8 = 3;

pub(crate) fn run(args: &Args) -> anyhow::Result<Vec<Table>> {
    let own = std::env::current_exe()?.with_file_name("annulus");
    ensure!(own.exists(), "{} is not there: build it with `cargo build --release`", own.display());
    let dir = tempfile::tempdir()?;
    let _agents = agents(&own, dir.path())?;
    let etcd = args.etcd.clone().or_else(|| installed("etcd"));
    let _members = etcd.as_deref().map(|etcd| members(etcd, dir.path())).transpose()?;
    let mut turns = Turns { http: Http::connect(([127, 98, 0, 1], 7373).into())?, number: 0 };
    wait_until("the group votes", || turns.cycle().is_ok())?;
    let mut locks = etcd.map(|_| Locks::start()).transpose()?;
    let mut taken: [Vec<Duration>; 2] = Default::default();
    for _ in 0..2 {
        measure(args, &mut taken[0], || turns.cycle())?;
        if let Some(locks) = &mut locks {
            measure(args, &mut taken[1], || locks.cycle())?;
        }
    }
    let mut rows = vec![row("annulus, 3 voters", &taken[0])];
    if locks.is_some() {
        rows.push(row("etcd, 3 members", &taken[1]));
    }
    let agent = "127.98.0.1:7373";
    let file = dir.path().join("flock");
    let file = file.to_string_lossy();
    let (mut ours, mut flock) = (Vec::new(), Vec::new());
    for _ in 0..100 {
        ours.push(start(&own, &["lock", "b", "--agent", agent, "--"])?);
        flock.push(start(Path::new("flock"), &[&file])?);
    }
    let from = requests(&own, dir.path())?;
    rows.push(row("annulus lock NAME, until its command starts", &ours));
    rows.push(row("flock FILE, until its command starts", &flock));
    rows.push(row("annulus lock NAME, until its request", &from.ours));
    rows.push(row("flock FILE, from its call until its command starts", &from.flock));
    let acquire = Table {
        bench: "turns",
        setup: format!("acquire and release, one client, {} s twice in turns", args.seconds),
        columns: vec!["what", "per second", "p50 us", "p99 us"],
        rows,
    };
    Ok(vec![acquire, bars(&taken, &ours, &flock, &from)?])
}

/// The figures beside their bounds.
fn bars(
    taken: &[Vec<Duration>; 2],
    ours: &[Duration],
    flock: &[Duration],
    from: &Requests,
) -> anyhow::Result<Table> {
    let rate =
        |taken: &[Duration]| taken.len() as f64 / taken.iter().sum::<Duration>().as_secs_f64().max(1e-9);
    let round_trip = bars::round_trip()?;
    let (acquire, transfer) = bars::acquire_and_transfer()?;
    let (renewal, echo) = bars::renewal_and_echo()?;
    let (without, with, pace) = bars::rings()?;
    let trips = |time: Duration| format!("{:.2}", time.as_secs_f64() / round_trip.as_secs_f64());
    let mut rows = vec![
        bar_row(
            "a free name, beside a round trip",
            micros(acquire),
            micros(round_trip),
            trips(acquire),
            "at most 1.3",
        ),
        bar_row(
            "from a release to the next holder, beside a round trip",
            micros(transfer),
            micros(round_trip),
            trips(transfer),
            "at most 3",
        ),
        bar_row(
            "CPU of a renewal, beside an echo",
            format!("{renewal:.0} ns"),
            format!("{echo:.0} ns"),
            format!("{:.2}", renewal / echo),
            "at most 3",
        ),
        bar_row(
            "passes per second with voters, beside without",
            format!("{with:.0}"),
            format!("{without:.0}"),
            format!("{pace:.3}"),
            "at least 0.98",
        ),
    ];
    if !taken[1].is_empty() {
        let (own, etcd) = (rate(&taken[0]), rate(&taken[1]));
        rows.insert(
            2,
            bar_row(
                "acquires per second, beside etcd",
                format!("{own:.0}"),
                format!("{etcd:.0}"),
                format!("{:.1}", own / etcd),
                "at least 5",
            ),
        );
    }
    rows.splice(1..1, start_rows(ours, flock, from, round_trip));
    Ok(Table {
        bench: "turns, bars",
        setup: format!("medians; load average {} at the end", load_average()),
        columns: vec!["bar", "ours", "beside", "ratio", "must be"],
        rows,
    })
}

/// The start of a command: from the request on, and from the start of the program.
fn start_rows(
    ours: &[Duration],
    flock: &[Duration],
    from: &Requests,
    round_trip: Duration,
) -> [Vec<String>; 2] {
    let row = |bar: &str, ours: Duration, flock: Duration| {
        let ratio = ours.as_secs_f64() / (flock + round_trip.mul_f64(1.3)).as_secs_f64();
        bar_row(bar, micros(ours), micros(flock), format!("{ratio:.2}"), "at most 1")
    };
    // The request is in the middle of the program, so its time is taken in runs of its own.
    let from_request = p50(ours).saturating_sub(p50(&from.ours));
    [
        row(
            "from the request to the command, beside flock(1) from its call and 1.3 round trips",
            from_request,
            p50(&from.flock),
        ),
        row(
            "from the start of the program to the command, beside flock(1) and 1.3 round trips",
            p50(ours),
            p50(flock),
        ),
    ]
}

fn micros(time: Duration) -> String {
    format!("{:.0} us", time.as_secs_f64() * 1e6)
}

fn p50(taken: &[Duration]) -> Duration {
    Duration::from_secs_f64(median(taken.iter().map(Duration::as_secs_f64).collect()))
}

/// One row: our figure, the one beside it, their ratio, and its bound.
fn bar_row(bar: &str, own: String, beside: String, ratio: String, must: &str) -> Vec<String> {
    vec![bar.to_owned(), own, beside, ratio, must.to_owned()]
}

/// The load of the last minute, as the kernel writes it.
fn load_average() -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split(' ').next().unwrap_or_default().to_owned()
}

/// One acquire and one release, again and again for the time.
fn measure(
    args: &Args,
    taken: &mut Vec<Duration>,
    mut cycle: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(args.seconds) {
        let start = Instant::now();
        cycle()?;
        taken.push(start.elapsed());
    }
    Ok(())
}

fn row(what: &str, taken: &[Duration]) -> Vec<String> {
    let mut sorted = taken.to_vec();
    sorted.sort_unstable();
    let at = |share: usize| sorted.get(sorted.len() * share / 100).map_or(0, Duration::as_micros);
    let all: Duration = taken.iter().sum();
    let rate = taken.len() as f64 / all.as_secs_f64().max(1e-9);
    vec![what.into(), format!("{rate:.0}"), at(50).to_string(), at(99).to_string()]
}

/// The time until the command of a program has started: the command reports it.
fn start(program: &Path, args: &[&str]) -> anyhow::Result<Duration> {
    let begin = wall()?;
    let output = Command::new(program).args(args).args(["date", "+%s.%N"]).output()?;
    ensure!(output.status.success(), "{} ends with {}", program.display(), output.status);
    Ok(reported(output.stdout)?.saturating_sub(begin))
}

fn wall() -> anyhow::Result<Duration> {
    Ok(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?)
}

/// The time that date(1) wrote.
fn reported(output: Vec<u8>) -> anyhow::Result<Duration> {
    let text = String::from_utf8(output)?;
    let (seconds, nanos) = text.trim().split_once('.').context("date says seconds and nanoseconds")?;
    Ok(Duration::new(seconds.parse()?, nanos.parse()?))
}

/// The parts of both starts around the moment of the request.
struct Requests {
    /// From the start of `annulus lock` until an agent can read its request.
    ours: Vec<Duration>,
    /// From the call of flock(1) until its command has started.
    flock: Vec<Duration>,
}

fn requests(own: &Path, dir: &Path) -> anyhow::Result<Requests> {
    let listener = TcpListener::bind("127.98.0.9:0")?;
    let agent = listener.local_addr()?.to_string();
    let pipe = dir.join("pipe");
    ensure!(Command::new("mkfifo").arg(&pipe).status()?.success(), "mkfifo makes no pipe");
    let mut requests = Requests { ours: Vec::new(), flock: Vec::new() };
    for _ in 0..100 {
        let mut lock = Command::new(own);
        lock.args(["lock", "b", "--agent", &agent, "--", "true"]);
        let begin = Instant::now();
        let lock = spawn(lock)?;
        let (mut connection, _) = listener.accept()?;
        ensure!(connection.read(&mut [0; 1024])? > 0, "annulus lock sends no request");
        requests.ours.push(begin.elapsed());
        drop((connection, lock));
        // flock(1) opens the pipe right before it locks it, and both ends wait for each other.
        let mut flock = Command::new("flock");
        flock.arg(&pipe).args(["date", "+%s.%N"]).stdin(Stdio::null()).stdout(Stdio::piped());
        let flock = flock.spawn().context("cannot start flock")?;
        let end = std::fs::File::options().write(true).open(&pipe)?;
        let call = wall()?;
        let output = flock.wait_with_output()?;
        drop(end);
        requests.flock.push(reported(output.stdout)?.saturating_sub(call));
    }
    Ok(requests)
}

fn agents(own: &Path, dir: &Path) -> anyhow::Result<Vec<Running>> {
    let start = |number: u8| {
        let data = dir.join(format!("agent{number}"));
        let mut agent = Command::new(own);
        agent.args(["agent", "--bind", &format!("127.98.0.{number}"), "--services", ""]);
        agent.args(["--set", "token.voters=127.98.0.1,127.98.0.2,127.98.0.3"]).arg("--data-dir").arg(data);
        spawn(agent)
    };
    let agents = (1..=MEMBERS).map(start).collect::<anyhow::Result<_>>()?;
    (1..=MEMBERS).try_for_each(|number| wait_for(([127, 98, 0, number], 7373).into()))?;
    Ok(agents)
}

fn members(etcd: &Path, dir: &Path) -> anyhow::Result<Vec<Running>> {
    let peer = |number: u8| format!("http://127.98.1.{number}:2380");
    let cluster = (1..=MEMBERS).map(|number| format!("m{number}={}", peer(number)));
    let cluster = cluster.collect::<Vec<_>>().join(",");
    let start = |number: u8| {
        let (data, client) = (dir.join(format!("etcd{number}")), format!("http://127.98.1.{number}:2379"));
        let mut member = Command::new(etcd);
        member
            .args(["--name", &format!("m{number}"), "--initial-cluster", &cluster])
            .arg("--data-dir")
            .arg(data);
        member.args(["--listen-peer-urls", &peer(number), "--initial-advertise-peer-urls", &peer(number)]);
        member.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        spawn(member)
    };
    let members = (1..=MEMBERS).map(start).collect::<anyhow::Result<_>>()?;
    (1..=MEMBERS).try_for_each(|number| wait_for(([127, 98, 1, number], 2379).into()))?;
    Ok(members)
}

fn spawn(mut command: Command) -> anyhow::Result<Running> {
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    Ok(Running(child.with_context(|| format!("cannot start {command:?}"))?))
}

fn wait_for(addr: SocketAddr) -> anyhow::Result<()> {
    wait_until(&format!("something listens on {addr}"), || TcpStream::connect(addr).is_ok())
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) -> anyhow::Result<()> {
    let begin = Instant::now();
    while !is_so() {
        ensure!(begin.elapsed() < Duration::from_secs(30), "waited 30 s until {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn installed(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|file| file.is_file())
}

/// Exclusive turns of an agent.
struct Turns {
    http: Http,
    number: u128,
}

impl Turns {
    fn cycle(&mut self) -> anyhow::Result<()> {
        self.number += 1;
        let turn = format!("{:032x}", self.number);
        let wish = json!({ "name": "a", "turn": turn, "wait_ms": 10_000, "limit_ms": 60_000 });
        self.http.call("POST", "/v1/turns", &wish)?;
        self.http.call("DELETE", &format!("/v1/turns/{turn}"), &json!({}))?;
        Ok(())
    }
}

/// Locks of etcd under one lease, so that a cycle has one lock and one unlock.
struct Locks {
    http: Http,
    lease: Value,
}

impl Locks {
    fn start() -> anyhow::Result<Self> {
        let mut http = Http::connect(([127, 98, 1, 1], 2379).into())?;
        let mut lease = Value::Null;
        wait_until("etcd has a leader", || {
            let granted = http.call("POST", "/v3/lease/grant", &json!({ "TTL": 600 }));
            lease = granted.map(|granted| granted["ID"].clone()).unwrap_or_default();
            !lease.is_null()
        })?;
        Ok(Self { http, lease })
    }

    fn cycle(&mut self) -> anyhow::Result<()> {
        let wish = json!({ "name": "YQ==", "lease": self.lease });
        let locked = self.http.call("POST", "/v3/lock/lock", &wish)?;
        self.http.call("POST", "/v3/lock/unlock", &json!({ "key": locked["key"] }))?;
        Ok(())
    }
}

/// One connection that is kept.
struct Http {
    addr: SocketAddr,
    stream: BufReader<TcpStream>,
}

impl Http {
    fn connect(addr: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(addr)?;
        stream.set_nodelay(true)?;
        Ok(Self { addr, stream: BufReader::new(stream) })
    }

    fn call(&mut self, method: &str, path: &str, body: &Value) -> anyhow::Result<Value> {
        let body = body.to_string();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.addr,
            body.len()
        );
        self.stream.get_mut().write_all(request.as_bytes())?;
        let status = self.line()?;
        let (mut length, mut is_chunked) = (0, false);
        loop {
            let line = self.line()?.to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse()?;
            }
            is_chunked |= line.starts_with("transfer-encoding:") && line.contains("chunked");
        }
        let mut answer = self.bytes(length)?;
        while is_chunked {
            let size = usize::from_str_radix(&self.line()?, 16)?;
            answer.extend(self.bytes(size)?);
            self.line()?;
            is_chunked = size > 0;
        }
        ensure!(status.contains(" 200 "), "{path}: {status}: {}", String::from_utf8_lossy(&answer));
        Ok(serde_json::from_slice(&answer)?)
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }

    fn bytes(&mut self, count: usize) -> anyhow::Result<Vec<u8>> {
        let mut bytes = vec![0; count];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}
