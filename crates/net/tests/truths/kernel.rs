//! A truth against the kernel: a puppet in each of two network namespaces, and a cable between them.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use annulus_core::contract::puppet::{Do, Puppet, Saw};
use annulus_core::{CloseReason, StreamId, Watch};
use annulus_net::{Driver, Options};

use crate::script::{Act, Outcome, Truth};
use crate::simulated::measure;

const PORT: u16 = 4000;

fn ip(args: &str) -> bool {
    let run = Command::new("ip").args(args.split(' ')).stdout(Stdio::null()).stderr(Stdio::null()).status();
    run.is_ok_and(|status| status.success())
}

fn must(args: &str) {
    assert!(ip(args), "`ip {args}` fails");
}

/// Two namespaces with a bridge each, and a cable between the bridges. It goes with the test.
pub(crate) struct Lab {
    tag: String,
}

impl Lab {
    /// Whether this machine lets us build one. Under CI it has to.
    pub(crate) fn is_possible() -> bool {
        let probe = format!("ant{}", std::process::id());
        let possible = ip(&format!("netns add {probe}")) && ip(&format!("link add {probe} type bridge"));
        ip(&format!("link del {probe}"));
        ip(&format!("netns del {probe}"));
        assert!(
            possible || std::env::var_os("CI").is_none(),
            "CI needs root and `ip` for network namespaces"
        );
        if !possible {
            println!("SKIPPED: no root, or no `ip`, or no network namespaces here");
        }
        possible
    }

    pub(crate) fn new() -> Self {
        let lab = Self { tag: format!("tr{}", std::process::id() % 100_000) };
        let tag = &lab.tag;
        must(&format!("netns add {tag}s"));
        must(&format!("-n {tag}s link add cable0 type veth peer name cable1"));
        for side in 0..2 {
            must(&format!("-n {tag}s link add br{side} type bridge"));
            must(&format!("-n {tag}s link set cable{side} master br{side}"));
            must(&format!("-n {tag}s link set cable{side} up"));
            must(&format!("-n {tag}s link set br{side} up"));
            lab.add_host(side);
        }
        lab
    }

    /// A host: its namespace and its cable to the bridge. It has the same hardware address each time. The other host has it as
    /// a fixed ARP entry, as if a router were between the two: a cut drops packets and makes no error.
    fn add_host(&self, side: usize) {
        let tag = &self.tag;
        must(&format!("netns add {tag}{side}"));
        must(&format!("-n {tag}s link add port{side} type veth peer name eth0 netns {tag}{side}"));
        must(&format!("-n {tag}s link set port{side} master br{side}"));
        must(&format!("-n {tag}s link set port{side} up"));
        must(&format!("-n {tag}{side} link set lo up"));
        must(&format!("-n {tag}{side} link set eth0 address 02:00:00:00:77:0{side}"));
        must(&format!("-n {tag}{side} addr add 10.77.0.{}/24 dev eth0", side + 1));
        must(&format!("-n {tag}{side} link set eth0 up"));
        let (ip, mac) = (2 - side, 1 - side);
        must(&format!(
            "-n {tag}{side} neigh add 10.77.0.{ip} lladdr 02:00:00:00:77:0{mac} dev eth0 nud permanent"
        ));
    }

    /// A host loses power: its kernel's state is gone without a packet to the other one. Its process has ended before.
    fn power_cycle(&self, side: usize) {
        let tag = &self.tag;
        must(&format!("-n {tag}s link del port{side}"));
        must(&format!("netns del {tag}{side}"));
        self.add_host(side);
    }

    /// Whether streams of the driver have bounded waits here: Linux 6.15 and later.
    pub(crate) fn has_rto_max(&self) -> bool {
        use std::os::fd::AsFd as _;
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        annulus_sys::rto_max(socket.as_fd()).is_ok()
    }

    fn cable(&self, state: &str) {
        must(&format!("-n {}s link set cable0 {state}", self.tag));
    }

    /// The puppet of one side. Only the second one may not read, and only its kernel may have a short queue.
    fn puppet(&self, side: usize, truth: &Truth) -> Process {
        let (reads, backlog) = if side == 0 { (true, None) } else { (truth.reads, truth.backlog) };
        let exe = std::env::current_exe().unwrap();
        let set = format!("echo {} > /proc/sys/net/core/somaxconn", backlog.unwrap_or(4096));
        let host = format!("{}{side}", self.tag);
        let status = Command::new("ip").args(["netns", "exec", &host, "sh", "-c", &set]).status();
        assert!(status.is_ok_and(|status| status.success()), "{set}");
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &format!("{}{side}", self.tag)]).arg(exe);
        command.args(["--exact", "puppet_process", "--ignored", "--nocapture", "--test-threads", "1"]);
        command.env("ANNULUS_TRUTH", format!("10.77.0.{} {reads} {}", side + 1, truth.has_rto_max));
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                // The first comes behind the name of the test, on one line with it.
                if let Some(saw) = line.split_once("SAW ").and_then(|(_, saw)| parse(saw)) {
                    let _ = sender.send((Instant::now(), saw));
                }
            }
        });
        Process { child, stdin, lines }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for name in ["s", "0", "1"] {
            ip(&format!("netns del {}{name}", self.tag));
        }
    }
}

struct Process {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<(Instant, Saw)>,
}

impl Process {
    fn tell(&mut self, line: &str) {
        writeln!(self.stdin, "{line}").unwrap();
    }

    fn signal(&self, signal: &str) {
        // `ip netns exec` becomes the puppet itself.
        let status = Command::new("kill").args([signal, &self.child.id().to_string()]).status();
        assert!(status.is_ok_and(|status| status.success()), "kill {signal}");
    }

    fn wait_for(&self, wanted: fn(&Saw) -> bool) {
        let until = Instant::now() + Duration::from_secs(20);
        while let Ok((_, saw)) = self.lines.recv_timeout(until - Instant::now().min(until)) {
            if wanted(&saw) {
                return;
            }
        }
        panic!("a puppet does not answer");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs the script.
pub(crate) fn run(truth: &Truth, lab: &Lab) -> Outcome {
    lab.cable("up");
    let (mut here, mut there) = (lab.puppet(0, truth), lab.puppet(1, truth));
    here.wait_for(|saw| *saw == Saw::Start);
    there.wait_for(|saw| *saw == Saw::Start);
    let mut mark = Instant::now();
    for act in truth.acts {
        match *act {
            Act::Open => {
                here.tell("open");
                here.wait_for(|saw| matches!(saw, Saw::Connected(..)));
            }
            Act::OpenAgain => here.tell("open"),
            Act::Watch { confirm, dead_after_ms } => {
                here.tell(&format!("watch {confirm} {}", dead_after_ms.unwrap_or(0)));
            }
            Act::Write(bytes) => here.tell(&format!("write {bytes}")),
            Act::Cut => lab.cable("down"),
            Act::Heal => lab.cable("up"),
            Act::Stop => there.signal("-STOP"),
            Act::Continue => there.signal("-CONT"),
            Act::Kill => there.signal("-KILL"),
            Act::PowerCycle => {
                // The last words of the process go nowhere.
                must(&format!("-n {}s link set port1 down", lab.tag));
                drop(there);
                lab.power_cycle(1);
                there = lab.puppet(1, truth);
                there.wait_for(|saw| *saw == Saw::Start);
            }
            Act::Wait(millis) => std::thread::sleep(Duration::from_millis(millis)),
            Act::Mark => {
                mark = Instant::now();
                while here.lines.try_recv().is_ok() || there.lines.try_recv().is_ok() {}
            }
        }
        if !matches!(act, Act::OpenAgain) {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    std::thread::sleep(truth.within);
    // A stopped puppet is killed when it is dropped, a killed one is gone already.
    let mut lines: Vec<(Instant, bool, Saw)> =
        here.lines.try_iter().map(|(at, saw)| (at, true, saw)).collect();
    lines.extend(there.lines.try_iter().map(|(at, saw)| (at, false, saw)));
    lines.sort_by_key(|(at, ..)| *at);
    measure(truth.measure, lines.iter().map(|(at, is_first, saw)| (*at - mark.min(*at), *is_first, saw)))
}

/// One line of a child's output.
fn print(saw: &Saw) -> Option<String> {
    Some(match saw {
        Saw::Start => "start".into(),
        Saw::Connected(id, _) => format!("connected {}", id.local()),
        Saw::Data(_, bytes) => format!("data {}", bytes.len()),
        Saw::Sent(_, bytes, _) => format!("sent {bytes}"),
        Saw::Confirmed(_, bytes) => format!("confirmed {bytes}"),
        Saw::Closed(id, reason) => format!("closed {} {reason:?}", id.local()),
        _ => return None,
    })
}

fn parse(line: &str) -> Option<Saw> {
    let mut words = line.split(' ');
    let kind = words.next()?;
    let number = |words: &mut std::str::Split<'_, char>| words.next()?.parse::<usize>().ok();
    let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
    let first = StreamId::opened(0);
    Some(match kind {
        "start" => Saw::Start,
        "connected" => Saw::Connected(first, nowhere),
        "data" => Saw::Data(first, vec![0; number(&mut words)?]),
        "sent" => Saw::Sent(first, number(&mut words)?, false),
        "confirmed" => Saw::Confirmed(first, number(&mut words)?),
        "closed" => {
            let id = number(&mut words)? as u64;
            let reasons = [
                CloseReason::Done,
                CloseReason::Refused,
                CloseReason::Unreachable,
                CloseReason::TimedOut,
                CloseReason::Reset,
                CloseReason::Overrun,
                CloseReason::Failed,
            ];
            let name = words.next()?;
            let reason = reasons.into_iter().find(|reason| format!("{reason:?}") == name)?;
            Saw::Closed(if id == first.local() { first } else { StreamId::opened(1) }, reason)
        }
        _ => return None,
    })
}

/// The puppet of a namespace: it reads steps as lines and prints its inputs as lines.
pub(crate) fn child() {
    let role = std::env::var("ANNULUS_TRUTH").unwrap();
    let [address, reads, has_rto_max] = role.split(' ').collect::<Vec<_>>().try_into().unwrap();
    let bind = SocketAddr::new(address.parse().unwrap(), PORT);
    let credit = if reads == "true" { 1 << 30 } else { 0 };
    let mut options = Options::default();
    if has_rto_max == "false" {
        // The kernel's own limit.
        options.rto_max = Duration::from_secs(120);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (sender, mut commands) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    runtime.block_on(async {
        let (driver, handle) = Driver::bind(Puppet { bind, credit, ..Puppet::default() }, options).unwrap();
        let mut events = handle.events();
        tokio::spawn(driver);
        loop {
            tokio::select! {
                event = events.next() => match event {
                    Some(event) => if let Some(line) = print(&event) { println!("SAW {line}") },
                    None => return,
                },
                line = commands.recv() => {
                    let Some(line) = line else { return };
                    let _ = handle.command(vec![act(&line)]).await;
                }
            }
        }
    });
}

fn act(line: &str) -> Do {
    let words: Vec<&str> = line.split(' ').collect();
    let first = StreamId::opened(0);
    match words[..] {
        ["write", bytes] => Do::Write(first, vec![7; bytes.parse().unwrap()]),
        ["watch", confirm, millis] => {
            let millis: u64 = millis.parse().unwrap();
            let dead_after = (millis > 0).then(|| Duration::from_millis(millis));
            Do::Watch(first, Watch { confirm: confirm == "true", dead_after })
        }
        _ => Do::Open(SocketAddr::from(([10, 77, 0, 2], PORT)), None),
    }
}
