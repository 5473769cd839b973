//! Agents that run the mesh, and foreign nodes of the mesh, which use the wire format of the document.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::{Agent, PATIENCE, annulus, own_ip, own_udp_port, wait_until};

/// A network of its own: one port for all its nodes, and one seed.
pub(crate) struct Network {
    pub(crate) port: u16,
    pub(crate) seed: IpAddr,
}

impl Network {
    pub(crate) fn new() -> Self {
        Self { port: own_udp_port(), seed: own_ip() }
    }

    pub(crate) fn start(&self, ip: IpAddr, more: &[&str]) -> Agent {
        let (port, seeds) = (format!("mesh.port={}", self.port), format!("mesh.seeds={}", self.seed));
        let args = ["--services", "mesh", "--set", &port, "--set", &seeds];
        Agent::start_on(ip, &[&args[..], more].concat())
    }

    /// The seed, and others up to `size` together, all connected.
    pub(crate) fn agents(&self, size: usize) -> Vec<Agent> {
        let ip = |index: usize| if index == 0 { self.seed } else { own_ip() };
        let agents: Vec<Agent> = (0..size).map(|index| self.start(ip(index), &[])).collect();
        agents.iter().for_each(|agent| wait_for_peers(agent, 1));
        agents
    }
}

pub(crate) fn nid(agent: &Agent) -> String {
    agent.json(&["mesh", "status"])["nid"].as_str().expect("it is text").to_owned()
}

pub(crate) fn wait_for_peers(agent: &Agent, count: usize) {
    wait_until("it has peers", || (agent.json(&["mesh", "peers"]).as_array()?.len() >= count).then_some(()));
}

pub(crate) fn inbox(agent: &Agent) -> Vec<Value> {
    agent.json(&["mesh", "inbox"]).as_array().expect("it is a list").clone()
}

/// Waits for a message from `from` and gives its line.
pub(crate) fn wait_for_message(agent: &Agent, from: &str) -> Value {
    wait_until("the message arrives", || inbox(agent).into_iter().find(|line| line["from"] == from))
}

/// Sends from standard input.
pub(crate) fn send(agent: &Agent, to: &str, data: &[u8], more: &[&str]) -> Output {
    let http = agent.http().to_string();
    let args = [&["mesh", "send", to, "--json", "--agent", &http], more].concat();
    let mut child =
        annulus(&args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the binary runs");
    child.stdin.take().expect("it is piped").write_all(data).expect("it reads");
    child.wait_with_output().expect("it ends")
}

/// Sends, and returns the answer of the agent.
pub(crate) fn sent(agent: &Agent, to: &str, data: &[u8], more: &[&str]) -> Value {
    let output = send(agent, to, data, more);
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("it prints JSON")
}

/// The output of a verb, byte for byte.
pub(crate) fn bytes(agent: &Agent, args: &[&str]) -> Vec<u8> {
    let http = agent.http().to_string();
    let output = annulus(&[args, &["--agent", &http]].concat()).output().expect("the binary runs");
    assert!(output.status.success(), "{output:?}");
    output.stdout
}

pub(crate) fn counter(agent: &Agent, name: &str) -> Option<u64> {
    let (_, text) = agent.request("GET", "/metrics", &[], "");
    let line = text.lines().find(|line| line.split(' ').next() == Some(name))?;
    line.split(' ').nth(1)?.parse().ok()
}

/// Sends over HTTP, without a program in between; the status and the answer. Nothing if the agent is gone.
pub(crate) fn post(agent: SocketAddr, to: &str, data: &[u8], receipt: bool) -> Option<(u16, Value)> {
    use base64::Engine as _;
    let data = base64::engine::general_purpose::STANDARD.encode(data);
    let body = json!({ "to": to, "data_base64": data, "receipt": receipt }).to_string();
    let mut stream = TcpStream::connect(agent).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let length = body.len();
    let request = format!(
        "POST /v1/mesh/messages HTTP/1.1\r\nHost: {agent}\r\nConnection: close\r\nContent-Type: \
         application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer.split(' ').nth(1)?.parse().ok()?;
    let (_, body) = answer.split_once("\r\n\r\n")?;
    Some((status, serde_json::from_str(body).ok()?))
}

/// A node written from the document: plain sockets, and nothing of ours.
pub(crate) struct Foreign {
    pub(crate) nid: String,
    pub(crate) ip: IpAddr,
    port: u16,
    udp: UdpSocket,
    tcp: TcpListener,
}

impl Foreign {
    /// On the port of the network, with an address and a NID of its own.
    pub(crate) fn new(network: &Network, nid: &str) -> Self {
        let ip = own_ip();
        let at = (ip, network.port);
        let udp = UdpSocket::bind(at).expect("the address is ours");
        let tcp = TcpListener::bind(at).expect("the address is ours");
        Self { nid: nid.to_owned(), ip, port: network.port, udp, tcp }
    }

    /// `w00 HERE nid @ ip:port`
    pub(crate) fn here(&self) -> String {
        format!("w00 HERE {} @ {}:{}", self.nid, self.ip, self.port)
    }

    /// Sends HERE to a node and waits until it dials; returns the connection, with both HEREs exchanged.
    pub(crate) fn announce(&self, to: IpAddr) -> Link {
        self.udp.send_to(self.here().as_bytes(), (to, self.port)).expect("it can be sent");
        let (stream, _) = self.tcp.accept().expect("it dials");
        let mut link = Link::new(stream);
        assert!(link.frame().starts_with(b"w00 HERE "), "the dialler speaks first");
        link.write(self.here().as_bytes());
        link
    }

    /// Dials a node; the connection if it answers with its HERE.
    pub(crate) fn dial(&self, to: IpAddr) -> Option<Link> {
        let mut link = Link::new(TcpStream::connect((to, self.port)).expect("it listens"));
        link.write(self.here().as_bytes());
        link.try_frame().map(|frame| assert!(frame.starts_with(b"w00 HERE "), "{frame:?}")).map(|()| link)
    }

    /// The body of a MESSAGE from us.
    pub(crate) fn message(&self, to: &str, data: &[u8]) -> Vec<u8> {
        [format!("w00{}{to}", self.nid).as_bytes(), data].concat()
    }
}

/// A connection of a foreign node.
pub(crate) struct Link {
    pub(crate) stream: TcpStream,
}

impl Link {
    fn new(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
        Self { stream }
    }

    /// Length and body.
    pub(crate) fn write(&mut self, body: &[u8]) {
        let length = u32::try_from(body.len()).expect("no test is so long").to_be_bytes();
        self.stream.write_all(&[&length[..], body].concat()).expect("the node reads");
    }

    /// The next body.
    pub(crate) fn frame(&mut self) -> Vec<u8> {
        self.try_frame().expect("the connection lives")
    }

    /// The next body; none if the connection was closed.
    pub(crate) fn try_frame(&mut self) -> Option<Vec<u8>> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length).ok()?;
        let mut body = vec![0; u32::from_be_bytes(length) as usize];
        self.stream.read_exact(&mut body).ok()?;
        Some(body)
    }

    /// The next MESSAGE, whatever HEREs come before it.
    pub(crate) fn message(&mut self) -> Vec<u8> {
        loop {
            let frame = self.frame();
            if frame.get(3) != Some(&b' ') {
                return frame;
            }
        }
    }

    /// Waits until the node closes.
    pub(crate) fn wait_for_close(&mut self) {
        self.stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout can be set");
        while self.try_frame().is_some() {}
        let mut rest = [0; 1];
        let end = self.stream.read(&mut rest);
        assert!(!matches!(&end, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock), "{end:?}");
    }
}
