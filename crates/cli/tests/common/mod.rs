//! Running the real binary: agents on loopback addresses of their own, and the verbs that call them.

#![allow(dead_code, reason = "each test file uses its part of this")]

pub(crate) mod browser;
pub(crate) mod foreign;
pub(crate) mod members;
pub(crate) mod mesh;
pub(crate) mod netns;
pub(crate) mod ring;
pub(crate) mod tables;

use std::fmt::Display;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

/// The timeout of any wait in a test. It guards against hanging; nothing is measured by it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The binary with these arguments, without the environment variables of the test run.
pub(crate) fn annulus(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_annulus"));
    command.args(args).env_remove("RUST_LOG").env_remove("NO_COLOR").stdin(Stdio::null());
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("ANNULUS_")) {
        command.env_remove(name);
    }
    // Rings of token on one machine receive each other's broadcasts, so a test names the services that it needs
    // beyond members.
    if args.first() == Some(&"agent") && !args.contains(&"--config") {
        command.env("ANNULUS_NODE_SERVICES", "members");
    }
    command
}

/// Runs a verb to its end.
pub(crate) fn run(args: &[&str]) -> Output {
    annulus(args).output().expect("the binary runs")
}

/// The output of a verb that succeeds.
pub(crate) fn stdout(args: &[&str]) -> String {
    let output = run(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("it prints text")
}

/// The JSON output of a verb.
pub(crate) fn json(args: &[&str]) -> serde_json::Value {
    serde_json::from_str(&stdout(args)).expect("it prints JSON")
}

/// An address that no other test uses, in this process or another.
pub(crate) fn own_ip() -> IpAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = (std::process::id() << 6).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
    let [_, high, middle, low] = (number & 0x003f_ffff).to_be_bytes();
    IpAddr::V4(Ipv4Addr::new(127, 64 + high, middle, low))
}

/// A UDP port for a ring of its own: rings on one machine receive each other's broadcasts.
pub(crate) fn own_udp_port() -> u16 {
    let socket = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("there is a free port");
    socket.local_addr().expect("it is bound").port()
}

/// A running agent. It is killed with the test.
pub(crate) struct Agent {
    pub(crate) ip: IpAddr,
    pub(crate) child: Child,
    /// Behind a lock only so that threads can share an agent.
    log: Mutex<mpsc::Receiver<String>>,
}

impl Agent {
    /// Starts one on an address of its own and waits until it serves.
    pub(crate) fn start(args: &[&str]) -> Self {
        Self::start_on(own_ip(), args)
    }

    pub(crate) fn start_on(ip: IpAddr, args: &[&str]) -> Self {
        let child = annulus(&["agent", "--bind", &ip.to_string()])
            .args(args)
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let mut agent = Self::adopt(ip, child);
        agent.wait_for_log("agent started");
        agent
    }

    /// One that was started with its standard error piped, before its first line.
    pub(crate) fn adopt(ip: IpAddr, mut child: Child) -> Self {
        let stderr = BufReader::new(child.stderr.take().expect("it is piped"));
        let (sender, log) = mpsc::channel();
        std::thread::spawn(move || {
            stderr.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Self { ip, child, log: Mutex::new(log) }
    }

    /// Waits for a line of its log.
    pub(crate) fn wait_for_log(&mut self, part: &str) -> String {
        let mut seen = Vec::new();
        loop {
            match self.log.get_mut().expect("nobody panicked with it").recv_timeout(PATIENCE) {
                Ok(line) if line.contains(part) => return line,
                Ok(line) => seen.push(line),
                Err(_) => panic!("no {part:?} in the log: {seen:#?}"),
            }
        }
    }

    pub(crate) fn http(&self) -> SocketAddr {
        SocketAddr::new(self.ip, 7373)
    }

    /// The JSON output of a verb that calls this agent.
    pub(crate) fn json(&self, args: &[&str]) -> serde_json::Value {
        let http = self.http().to_string();
        json(&[args, &["--json", "--agent", &http]].concat())
    }

    pub(crate) fn stdout(&self, args: &[&str]) -> String {
        let http = self.http().to_string();
        stdout(&[args, &["--agent", &http]].concat())
    }

    /// A whole HTTP exchange, byte for byte.
    pub(crate) fn raw(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(self.http()).expect("the agent listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
        // An agent that refuses a long body answers, and closes, before it has read all of it.
        if let Err(error) = stream.write_all(request.as_bytes()) {
            assert!(matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{error}");
        }
        let mut answer = Vec::new();
        // A reset after the answer is as good as an end.
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// The status and the body of a request with these headers.
    pub(crate) fn request(&self, method: &str, path: &str, headers: &[&str], body: &str) -> (u16, String) {
        let host = format!("Host: {}", self.http());
        let has_host = headers.iter().any(|header| header.starts_with("Host:"));
        let mut lines = vec![format!("{method} {path} HTTP/1.1")];
        lines.extend((!has_host).then_some(host));
        lines.extend(headers.iter().map(|header| (*header).to_owned()));
        lines.push("Connection: close".into());
        lines.push(format!("Content-Length: {}", body.len()));
        let answer = self.raw(&format!("{}\r\n\r\n{body}", lines.join("\r\n")));
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
        let in_chunks = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
        (status, if in_chunks { unchunked(body) } else { body.to_owned() })
    }

    /// Sends a signal by its name.
    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(status.expect("kill runs").success());
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self) -> Option<i32> {
        wait_until("the agent ends", || {
            self.child.try_wait().expect("it is our child").map(|status| status.code())
        })
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The content of a body in chunks, as far as it came.
fn unchunked(mut body: &str) -> String {
    let mut text = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).expect("a chunk begins with its size");
        let Some(chunk) = rest.get(..size).filter(|chunk| !chunk.is_empty()) else { break };
        text.push_str(chunk);
        body = rest.get(size + 2..).unwrap_or_default();
    }
    text
}

/// Asks again and again until there is an answer.
pub(crate) fn wait_until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    wait_until_seen(what, || ask().ok_or(""))
}

/// The same, and the panic has the last error.
pub(crate) fn wait_until_seen<T, E: Display>(what: &str, mut ask: impl FnMut() -> Result<T, E>) -> T {
    let begin = Instant::now();
    // The pause grows: each query takes CPU time from the agent.
    let mut nap = Duration::from_millis(5);
    loop {
        match ask() {
            Ok(answer) => return answer,
            Err(seen) if begin.elapsed() > PATIENCE => panic!("waited too long until {what} {seen}"),
            Err(_) => pause(nap),
        }
        nap = (nap * 3 / 2).min(Duration::from_millis(200));
    }
}

/// The one sleep of the tests: between two queries of a process, which needs the CPU more than the test, and in tests
/// of slowness. No test assumes that something has happened meanwhile.
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// Prints a line in the output of a test.
#[expect(clippy::print_stdout, reason = "what a test measured or skipped is to be seen")]
pub(crate) fn tell(what: std::fmt::Arguments<'_>) {
    println!("{what}");
}
