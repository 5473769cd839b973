//! The nodes of the demo and everything that can be done to them.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use annulus::core::node::Node;
use annulus::net::{Events, Gate};
use anyhow::Context as _;
use axum::http::StatusCode;
use tempfile::TempDir;
use tokio::sync::watch;

use super::digest::Digest;
use super::events::{DemoEvent, What};
use super::member::{Group, Member};
use crate::agent::Journal;
use crate::agent::http::ApiError;
use crate::page::Look;

/// The events that a page can resume from.
const EVENTS_KEPT: usize = 4096;
/// The longest wait for the nodes to find each other at the start.
const READY_WITHIN: Duration = Duration::from_secs(20);
/// How long the next turn may take to come.
const TURN_WITHIN: Duration = Duration::from_secs(10);
/// How many address blocks are tried.
const BLOCKS: u8 = 200;

/// The nodes of the demo.
pub(crate) struct Cluster {
    pub(super) members: Vec<Member>,
    /// The names of the nodes on one side of a cut; empty if there is none.
    side: Mutex<Vec<String>>,
    /// Nodes that wait for their turn.
    pub(super) waiting: Mutex<Vec<String>>,
    /// Ring ids by the host ids of token: of the nodes that run, and of those that are gone but in the generation graph.
    pub(super) token_hosts: Mutex<BTreeMap<u32, String>>,
    /// The node that has its turn.
    pub(super) turn: watch::Sender<Option<String>>,
    pub(super) journal: Arc<Journal>,
    digest: Mutex<Digest>,
    pub(super) started_micros: u64,
    token_port: u16,
    http: SocketAddr,
    // Removed with everything in it when the demo ends.
    _dir: TempDir,
}

impl Cluster {
    /// Starts `count` nodes; `http` is where the demo is served.
    pub(crate) async fn start(count: usize, http: SocketAddr) -> anyhow::Result<Arc<Self>> {
        let dir = tempfile::Builder::new().prefix("annulus-demo-").tempdir();
        let dir = dir.context("cannot make a directory for the stores; set TMPDIR to one you can write")?;
        let block = free_block()?;
        let ip = |index: usize| IpAddr::V4(Ipv4Addr::new(127, 73, block, index as u8 + 1));
        let members = (0..count).map(|index| Member::new(index, count, ip(index), dir.path()));
        let members = members.collect::<anyhow::Result<Vec<_>>>()?;
        let names = members.iter().map(|member| (member.id.clone(), member.name.clone())).collect();
        let started_micros = now_micros();
        let cluster = Arc::new(Self {
            members,
            side: Mutex::default(),
            waiting: Mutex::default(),
            token_hosts: Mutex::default(),
            turn: watch::Sender::default(),
            journal: Arc::new(Journal::new("demo".into(), started_micros, EVENTS_KEPT)),
            digest: Mutex::new(Digest::new(names)),
            started_micros,
            token_port: free_udp_port()?,
            http,
            _dir: dir,
        });
        for (index, member) in cluster.members.iter().enumerate() {
            let first = cluster.members[0].members_addr();
            cluster.bring_up(member, if index == 0 { &[] } else { std::slice::from_ref(&first) }).await?;
        }
        Ok(cluster)
    }

    /// Waits until every node knows every other and is in the ring of route.
    pub(crate) async fn ready(&self) {
        let begin = Instant::now();
        while begin.elapsed() < READY_WITHIN && !self.is_settled().await {
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        self.tell(What::Ready { took_ms: begin.elapsed().as_millis() as u64 });
    }

    /// Ends a node as a crash would.
    pub(crate) async fn kill(&self, name: &str) -> Result<(), ApiError> {
        let member = self.member(name)?;
        let id = member.id.clone();
        if !member.kill().await {
            return Err(wrong_state(name, "is down already", "revive it first"));
        }
        self.tell(What::Killed { id });
        Ok(())
    }

    /// Kills the next node that has its turn, and the token with it; the first node is spared, since `/v1` is its view.
    pub(super) async fn kill_in_turn(&self) -> Result<&Member, ApiError> {
        let mut turns = self.turn.subscribe();
        let next = async {
            loop {
                turns.changed().await.ok()?;
                let id = turns.borrow_and_update().clone();
                if let Some(id) = id.filter(|id| *id != self.members[0].id) {
                    return Some(id);
                }
            }
        };
        let Ok(Some(id)) = tokio::time::timeout(TURN_WITHIN, next).await else {
            return Err(wrong_state("no node", "had its turn", "try again"));
        };
        self.kill(&id).await?;
        self.member(&id)
    }

    /// Starts a node again, with its identity and its disk.
    pub(crate) async fn revive(self: &Arc<Self>, name: &str) -> Result<(), ApiError> {
        let member = self.member(name)?;
        if member.api().is_some() {
            return Err(wrong_state(name, "runs already", "kill it first"));
        }
        let join: Vec<SocketAddr> = self.members.iter().map(Member::members_addr).collect();
        self.bring_up(member, &join).await.map_err(|error| {
            let hint = "wait a moment and try again";
            ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "not_started", format!("{error:#}"), hint)
        })?;
        self.apply_cut();
        self.tell(What::Revived { id: member.id.clone() });
        Ok(())
    }

    /// Suspends a node, or resumes it.
    pub(crate) fn suspend(&self, name: &str, is_to_stop: bool) -> Result<(), ApiError> {
        let member = self.member(name)?;
        let gate = member.gate().ok_or_else(|| wrong_state(name, "is down", "revive it first"))?;
        match (is_to_stop, gate.is_suspended()) {
            (true, true) => return Err(wrong_state(name, "is suspended already", "resume it first")),
            (false, false) => return Err(wrong_state(name, "runs already", "suspend it first")),
            (true, false) => gate.suspend(),
            (false, true) => gate.resume(),
        }
        let id = member.id.clone();
        self.tell(if is_to_stop { What::Suspended { id } } else { What::Resumed { id } });
        Ok(())
    }

    /// Cuts the network between these nodes and all others; without names, between the halves of the ring.
    pub(crate) fn cut(&self, names: &[String]) -> Result<(), ApiError> {
        for name in names {
            self.member(name)?;
        }
        let half = self.members.iter().take(self.members.len() / 2).map(|member| member.name.clone());
        let side: Vec<String> = if names.is_empty() { half.collect() } else { names.to_vec() };
        if self.members.iter().all(|member| side.contains(&member.name)) {
            return Err(ApiError::new(
                StatusCode::BAD_REQUEST,
                "bad_cut",
                "all nodes are on one side",
                "name the nodes of one side only",
            ));
        }
        let ids = self.members.iter().filter(|member| side.contains(&member.name));
        let ids = ids.map(|member| member.id.clone()).collect();
        *lock(&self.side) = side;
        self.apply_cut();
        self.tell(What::Cut { side: ids });
        Ok(())
    }

    /// Lets all nodes reach each other again.
    pub(crate) fn heal(&self) {
        lock(&self.side).clear();
        self.apply_cut();
        self.tell(What::Healed);
    }

    /// Stops all nodes.
    pub(crate) async fn stop(&self) {
        self.heal();
        futures_util::future::join_all(self.members.iter().map(Member::stop)).await;
    }

    pub(super) fn member(&self, name: &str) -> Result<&Member, ApiError> {
        self.members.iter().find(|member| member.name == name || member.id == name).ok_or_else(|| {
            let names: Vec<&str> = self.members.iter().map(|member| member.name.as_str()).collect();
            ApiError::new(
                StatusCode::NOT_FOUND,
                "no_such_node",
                format!("the demo has no node {name:?}"),
                format!("name one of {}", names.join(", ")),
            )
        })
    }

    /// 1 for the nodes on the named side of a cut, else 0.
    pub(super) fn side_of(&self, member: &Member) -> u8 {
        u8::from(lock(&self.side).contains(&member.name))
    }

    pub(super) fn is_cut(&self) -> bool {
        !lock(&self.side).is_empty()
    }

    /// Records an act of the demo.
    pub(super) fn tell(&self, what: What) {
        lock(&self.digest).on_demo(&what);
        self.journal.push_of("demo", now_micros(), &DemoEvent::from(what));
    }

    /// Adds a line for people.
    pub(super) fn note(&self, line: String) {
        lock(&self.digest).note(line);
    }

    /// The lines for people that were not taken yet.
    pub(crate) fn take_lines(&self) -> Vec<String> {
        lock(&self.digest).take_lines()
    }

    /// The last messages with their paths, newest first.
    pub(super) fn messages(&self) -> Vec<String> {
        lock(&self.digest).messages()
    }

    /// Name, address and state of every node, as the demo knows it.
    pub(crate) fn rows(&self) -> Vec<Row> {
        let row = |member: &Member| Row {
            name: member.name.clone(),
            addr: member.ip.to_string(),
            state: match (member.api().is_some(), member.awake().is_some()) {
                (false, _) => "down",
                (true, false) => "suspended",
                (true, true) => "up",
            },
        };
        self.members.iter().map(row).collect()
    }

    async fn bring_up(self: &Arc<Self>, member: &Member, join: &[SocketAddr]) -> anyhow::Result<()> {
        let group = Group { token_port: self.token_port, join, http: self.http };
        member.start(&group, Gate::new()).await?;
        if let Some(events) = member.events() {
            tokio::spawn(note_events(Arc::clone(self), member.name.clone(), events));
        }
        Ok(())
    }

    /// Sets the gates of all nodes as the cut wants it.
    fn apply_cut(&self) {
        for member in &self.members {
            let own = self.side_of(member);
            let others = self.members.iter().filter(|other| self.is_cut() && self.side_of(other) != own);
            let others: Vec<IpAddr> = others.map(|other| other.ip).collect();
            if let Some(gate) = member.gate() {
                gate.cut_off(others);
            }
        }
    }

    async fn is_settled(&self) -> bool {
        for member in &self.members {
            let Some(api) = member.api() else { return false };
            let Some(look) = Look::into(&api).await else { return false };
            let is_in = look.tables.is_some_and(|tables| tables.active);
            if !is_in || look.members.len() < self.members.len() {
                return false;
            }
        }
        true
    }
}

/// A node for the table at the end.
#[derive(serde::Serialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) addr: String,
    pub(crate) state: &'static str,
}

/// Records the events of one run of a node.
async fn note_events(cluster: Arc<Cluster>, name: String, mut events: Events<Node>) {
    while let Some(event) = events.next().await {
        lock(&cluster.digest).on_event(&name, &event.event);
        cluster.journal.push_of(&name, now_micros(), &*event);
    }
}

fn wrong_state(name: &str, what: &str, hint: &str) -> ApiError {
    ApiError::new(StatusCode::CONFLICT, "wrong_state", format!("{name} {what}"), hint)
}

/// A block of loopback addresses on which no other demo runs: all services have their usual ports there.
fn free_block() -> anyhow::Result<u8> {
    let first = (std::process::id() % u32::from(BLOCKS)) as u8;
    let blocks = (0..BLOCKS).map(|step| (first + step) % BLOCKS);
    let is_free = |block: &u8| UdpSocket::bind((Ipv4Addr::new(127, 73, *block, 1), 7946)).is_ok();
    blocks.into_iter().find(is_free).context(
        "no loopback address 127.73.x.1 has a free UDP port 7946: end other demos, or give the loopback interface 127.0.0.0/8",
    )
}

/// A UDP port for the broadcasts of token, which other agents of this machine do not receive.
fn free_udp_port() -> anyhow::Result<u16> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot bind to 127.0.0.1")?;
    Ok(socket.local_addr()?.port())
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn now_micros() -> u64 {
    annulus::core::micros(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}
