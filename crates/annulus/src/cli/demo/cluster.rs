//! The cluster of the demo: real drivers, real sockets, real stores in a directory that goes away with it.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use annulus_core::ping::{Command, Config, Event, PeerState, PeerStatus, Ping, Reply};
use annulus_net::{Events, Handle, Options, Store};
use anyhow::Context as _;
use serde::Serialize;
use tempfile::TempDir;

/// How many happenings are remembered.
const NEWS_MAX: usize = 6;

/// A node of the demo, dead or alive.
struct Member {
    addr: SocketAddr,
    life: Option<Life>,
    count: u64,
    peers: Vec<PeerStatus>,
}

struct Life {
    handle: Handle<Ping>,
    events: Events<Ping>,
}

/// What is shown about a node.
#[derive(Serialize)]
pub(super) struct Row {
    /// Where it is.
    pub(super) addr: SocketAddr,
    /// Whether it runs.
    pub(super) alive: bool,
    /// Peers it sees, of all it has.
    pub(super) present: usize,
    /// All its peers.
    pub(super) peers: usize,
    /// The mean of its smoothed round-trip times.
    pub(super) rtt_ms: Option<f64>,
    /// Pings of its own that were answered.
    pub(super) answered: u64,
    /// Pings of its own that were not.
    pub(super) missed: u64,
    /// Pings of others that it has answered, ever.
    pub(super) count: u64,
}

/// All nodes.
pub(super) struct Cluster {
    members: Vec<Member>,
    news: VecDeque<String>,
    dir: TempDir,
}

impl Cluster {
    /// Starts `nodes` nodes on 127.0.0.1 and following, all on one port.
    pub(super) fn start(nodes: u8, port: Option<u16>) -> anyhow::Result<Self> {
        let port = port.map_or_else(free_port, Ok)?;
        let addr = |number: u8| SocketAddr::from((Ipv4Addr::new(127, 0, 0, number), port));
        let members =
            (1..=nodes).map(|number| Member { addr: addr(number), life: None, count: 0, peers: Vec::new() });
        let dir = tempfile::tempdir()
            .context("cannot make a directory for the stores; set TMPDIR to one you can write")?;
        let mut cluster = Self { members: members.collect(), news: VecDeque::new(), dir };
        cluster.revive_all()?;
        Ok(cluster)
    }

    /// Ends a node as a crash would, if it lives.
    pub(super) async fn kill(&mut self, index: usize) {
        let Some(life) = self.members[index].life.take() else { return };
        life.handle.abort();
        life.handle.ended().await;
        self.tell(format!("{} was killed", self.members[index].addr.ip()));
    }

    /// Starts every node that does not live.
    pub(super) fn revive_all(&mut self) -> anyhow::Result<()> {
        for index in 0..self.members.len() {
            if self.members[index].life.is_none() {
                self.revive(index)?;
            }
        }
        Ok(())
    }

    /// Takes in what the nodes say of themselves.
    pub(super) async fn observe(&mut self) {
        let mut news = Vec::new();
        for member in &mut self.members {
            let Some(life) = &mut member.life else { continue };
            while let Some(event) = life.events.try_next() {
                news.extend(worth_telling(member.addr, &event));
            }
            if let Ok(Reply::Peers(peers)) = life.handle.command(Command::Peers).await {
                member.peers = peers;
            }
            if let Ok(Reply::Count(count)) = life.handle.command(Command::Count).await {
                member.count = count;
            }
        }
        for line in news {
            self.tell(line);
        }
    }

    /// Ends all nodes in good order.
    pub(super) async fn stop(&mut self) {
        for member in &mut self.members {
            if let Some(life) = member.life.take() {
                life.handle.stop().await;
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    /// The last things that happened, oldest first.
    pub(super) fn news(&self) -> impl Iterator<Item = &String> {
        self.news.iter()
    }

    /// What is shown about each node.
    pub(super) fn rows(&self) -> Vec<Row> {
        self.members.iter().map(row).collect()
    }

    fn revive(&mut self, index: usize) -> anyhow::Result<()> {
        let addr = self.members[index].addr;
        let peers = self.members.iter().map(|member| member.addr).filter(|peer| *peer != addr).collect();
        let config = Config { bind: addr, peers, ..Config::default() };
        let mut seed = [0; 32];
        getrandom::fill(&mut seed)
            .map_err(|error| anyhow::anyhow!("the system gives no randomness: {error}"))?;
        let store = Store::File(self.dir.path().join(format!("{}.redb", addr.ip())));
        let handle = annulus_net::spawn(Ping::new(&config, seed)?, Options::with_store(store))?;
        let events = handle.events();
        self.members[index].life = Some(Life { handle, events });
        self.tell(format!("{} was started", addr.ip()));
        Ok(())
    }

    fn tell(&mut self, line: String) {
        self.news.push_back(line);
        if self.news.len() > NEWS_MAX {
            self.news.pop_front();
        }
    }
}

fn row(member: &Member) -> Row {
    let rtts: Vec<u64> = member.peers.iter().filter_map(|peer| peer.rtt_micros).collect();
    let mean = rtts.iter().sum::<u64>() as f64 / rtts.len().max(1) as f64;
    Row {
        addr: member.addr,
        alive: member.life.is_some(),
        present: member.peers.iter().filter(|peer| peer.state == PeerState::Present).count(),
        peers: member.peers.len(),
        rtt_ms: (!rtts.is_empty()).then_some(mean / 1000.0),
        answered: member.peers.iter().map(|peer| peer.answered).sum(),
        missed: member.peers.iter().map(|peer| peer.missed).sum(),
        count: member.count,
    }
}

fn worth_telling(addr: SocketAddr, event: &Event) -> Option<String> {
    match event {
        Event::PeerAppeared { peer } => Some(format!("{} sees {}", addr.ip(), peer.ip())),
        Event::PeerVanished { peer } => Some(format!("{} no longer sees {}", addr.ip(), peer.ip())),
        Event::CountLoaded { count } if *count > 0 => {
            Some(format!("{} remembers {count} answered pings", addr.ip()))
        }
        Event::CountFailed { fault } => Some(format!("{} cannot keep its count: {fault:?}", addr.ip())),
        _ => None,
    }
}

/// A port that nobody uses on the first address; the others are as good as certainly free there too.
fn free_port() -> anyhow::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot bind to 127.0.0.1")?;
    Ok(listener.local_addr()?.port())
}
