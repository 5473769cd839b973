//! One run of an agent: open, bind, serve, and leave.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use annulus::core::jitterbug::{self, DropReason, HostId};
use annulus::core::node::{Node, PartEvent};
use annulus::core::swim::UserEvent;
use annulus::core::{Bound, Id, Service, pastry, swim};
use annulus::net::{Ended, Events};
use anyhow::{Context as _, bail};
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Semaphore, watch};

use super::http::{self, Api, EndpointInfo, Named, ServiceInfo, Shared};
use super::joining::Joining;
use super::journal::Journal;
use super::mailbox::Mailbox;
use super::{application, log, services};
use crate::config::Settings;

/// The grace period of API clients when the agent stops.
const HTTP_GRACE: Duration = Duration::from_secs(2);

/// Runs an agent until a signal ends it.
pub(crate) fn run(settings: &Settings) -> anyhow::Result<()> {
    log::start(settings);
    // One thread: an agent waits nearly all the time, and its memory is what people look at.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(live(settings))
}

async fn live(settings: &Settings) -> anyhow::Result<()> {
    // Before anything is opened: from here on a signal is a wish, not a death.
    let mut signals = Signals::catch()?;
    let http = http_addr(settings)?;
    let name = settings.text("node.name").map_or_else(host_name, str::to_owned);
    let description = services::describe(settings, &name)?;
    let listener = listen(http).await?;
    let agent = Agent::start(settings, name, description, listener.local_addr()?).await?;
    let api = &agent.api;
    tracing::info!(name = api.name, id = %agent.node.identity().id(), http = %api.http, "agent started");
    if api.services.is_empty() {
        tracing::warn!("this agent runs nothing but its API: name services with --services (node.services)");
    }
    for service in &api.services {
        let addresses: Vec<String> =
            service.addresses.iter().map(|at| format!("{}/{}", at.addr, at.transport)).collect();
        tracing::info!(service = service.name, at = addresses.join(" "), "service started");
    }
    serve(listener, &agent, &mut signals).await
    // `agent` is dropped last: the data directory is locked as long as anything of this node runs.
}

/// A running node and the state of its API.
pub(crate) struct Agent {
    pub(crate) node: annulus::Node,
    pub(crate) api: Api,
    leave: watch::Sender<bool>,
}

impl Agent {
    /// Starts the node, its journal and its mailbox. `http` is where its API will be served.
    pub(crate) async fn start(
        settings: &Settings,
        name: String,
        description: annulus::Builder,
        http: SocketAddr,
    ) -> anyhow::Result<Self> {
        let node = description.start().await.map_err(services::explain)?;
        let (arrivals, events) = (application::arrivals(node.handle()), node.events());
        let data_dir = settings.text("node.data_dir").map(std::path::Path::new);
        let mailbox = Mailbox::open(data_dir, settings.number("route.messages_kept"))?;
        let (leave, leaving) = watch::channel(false);
        let api = Api::new(shared(settings, name, (&node, mailbox), http, leaving));
        tokio::spawn(keep_journal(api.clone(), events));
        tokio::spawn(application::run(api.clone(), arrivals));
        Ok(Self { node, api, leave })
    }

    /// Ends the streams of events of its API: they would hold it for ever.
    pub(crate) fn leave(&self) {
        self.leave.send_replace(true);
    }
}

/// Serves until a signal comes or the node ends, then leaves.
async fn serve(listener: TcpListener, agent: &Agent, signals: &mut Signals) -> anyhow::Result<()> {
    let (node, leaving) = (agent.node.handle().clone(), agent.api.leaving.clone());
    let server = tokio::spawn(http::serve(listener, http::app(agent.api.clone()), leaving));
    let outcome = tokio::select! {
        signal = signals.next() => {
            tracing::info!(signal, "leaving");
            match node.stop().await {
                Ended::Stopped => Ok(()),
                Ended::GraceOver => {
                    tracing::warn!("left before everything was said: the grace period was over");
                    Ok(())
                }
                ended => bail!("the node ended on its own ({ended:?}): see the log above"),
            }
        }
        ended = node.ended() => bail!("the node ended on its own ({ended:?}): see the log above"),
    };
    agent.leave();
    let mut server = server;
    tokio::select! {
        served = &mut server => served.context("the HTTP server failed")?,
        // A client that sends half a request, or reads nothing, must not hold the agent; nor must a second signal wait.
        () = tokio::time::sleep(HTTP_GRACE) => server.abort(),
        _ = signals.next() => server.abort(),
    }
    tracing::info!("agent stopped");
    outcome
}

/// Records the events of the node, until it ends.
async fn keep_journal(api: Api, mut events: Events<Node>) {
    while let Some(event) = events.next().await {
        match &event.event {
            PartEvent::Members(swim::Event::UserReceived { from, data, .. }) => {
                let user = UserEvent::decode(data).unwrap_or(UserEvent { name: "", payload: data });
                let told = EventReceived {
                    service: event.service,
                    protocol: "members",
                    event: "event_received",
                    from: *from,
                    name: user.name,
                    payload: String::from_utf8_lossy(user.payload),
                };
                api.journal.push(now_micros(), &Named::new(&api, &told, false).await);
            }
            // The application reports these, once they are stored.
            PartEvent::Route(pastry::Event::Delivered { .. }) => {}
            other => {
                match other {
                    PartEvent::Route(pastry::Event::Joined { .. }) => api.joining.joined(),
                    PartEvent::Route(pastry::Event::JoinFailed { tries }) => api.joining.failed(*tries),
                    _ => warn_of(other),
                }
                let at = now_micros();
                if matches!(other, PartEvent::Token(_)) {
                    // Its nodes have numbers instead of ids, and most events are its.
                    api.journal.push(at, &*event);
                } else {
                    let is_of_member = matches!(other, PartEvent::Members(_));
                    api.journal.push(at, &Named::new(&api, &*event, is_of_member).await);
                }
            }
        }
    }
}

/// Logs events that need an action of the operator.
fn warn_of(event: &PartEvent) {
    match event {
        PartEvent::Members(swim::Event::JoinFailed { addr }) => tracing::warn!(
            %addr,
            "nobody answers the join: check that an agent with members runs there, in the same ring"
        ),
        PartEvent::Members(swim::Event::WrongRing { addr }) => tracing::warn!(
            %addr,
            "the node there is of another ring: set members.ring to the same name on both, or join through another node"
        ),
        PartEvent::Members(swim::Event::IdConflict { addr }) => tracing::warn!(
            %addr,
            "another node uses our member id: its data directory is a copy of ours; stop one of the two and start it with an \
             empty data directory (--data-dir, node.data_dir)"
        ),
        PartEvent::Members(swim::Event::MemberConflict { id, addr, other }) => tracing::warn!(
            %id, %addr, %other,
            "two nodes use one member id: the data directory of one is a copy of the other's; stop the one at `other` and start \
             it with an empty data directory (--data-dir, node.data_dir)"
        ),
        PartEvent::Members(swim::Event::NameConflict { name, addr, .. }) => tracing::warn!(
            name, %addr,
            "another member has the name of this node: give one of the two another name (--name, node.name)"
        ),
        PartEvent::Route(pastry::Event::IdTaken) => tracing::warn!(
            "another node of the ring uses our id: its data directory is a copy of ours; stop one of the two and start it \
             with an empty data directory (--data-dir, node.data_dir)"
        ),
        PartEvent::Token(jitterbug::Event::DuplicateHostId { at }) => tracing::warn!(
            %at,
            "another node uses our token.host_id: one of the two gets no turns; give each its own, or set none and let a \
             copied data directory go"
        ),
        PartEvent::Token(jitterbug::Event::LoopSlow { took_micros, renew_timeout_micros }) => tracing::warn!(
            took_micros,
            renew_timeout_micros,
            "the token took over half of token.renew_timeout to come round: somebody may have held it (`annulus token run` on \
             another node), which is in order; if nobody did, lower token.pace, or raise token.renew_timeout on all nodes"
        ),
        PartEvent::Token(jitterbug::Event::TokenDropped { reason: DropReason::Stalled, .. }) => {
            tracing::warn!(
                "this agent was paused for over a quarter of token.renew_timeout: it gave up its token, and the turn that held it is lost"
            );
        }
        PartEvent::Token(jitterbug::Event::TokenRefused { from, host_id }) => tracing::warn!(
            %from,
            host_id = host_id.map(HostId::number),
            "a token from this node was refused, because its data cannot be read: the node runs another application; set \
             token.data = \"opaque\" on all agents of the ring, or stop that node"
        ),
        PartEvent::Token(jitterbug::Event::NodeLeftOut { host_id, losses }) => tracing::warn!(
            host_id = host_id.number(),
            losses,
            "the token was lost again and again after this node got it, so the node is left out for some minutes: it may run \
             another application (token.data); `annulus token` shows its address"
        ),
        _ => {}
    }
}

/// A user event as people read it: with its name, and its payload as text.
#[derive(Serialize)]
struct EventReceived<'a> {
    service: Service,
    protocol: &'static str,
    event: &'static str,
    from: Id,
    name: &'a str,
    payload: Cow<'a, str>,
}

/// SIGINT and SIGTERM, caught from the moment this is made.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn catch() -> anyhow::Result<Self> {
        let catch = |kind| signal(kind).context("cannot catch signals");
        Ok(Self { terminate: catch(SignalKind::terminate())?, interrupt: catch(SignalKind::interrupt())? })
    }

    /// The name of the first that comes.
    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

/// Where the API is to listen. Beyond loopback it is refused without a token.
fn http_addr(settings: &Settings) -> anyhow::Result<SocketAddr> {
    let addr = settings.addr("http.addr").unwrap_or_else(|| http::default_addr(settings.ip("node.bind")));
    if !addr.ip().is_loopback() && settings.text("http.token").is_none() {
        bail!(
            "the HTTP API on {addr} would be open to everybody: set http.token (ANNULUS_HTTP_TOKEN), or choose a \
             loopback address with --http"
        );
    }
    Ok(addr)
}

pub(crate) async fn listen(addr: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(addr).await.with_context(|| {
        format!(
            "cannot listen for HTTP on {addr}; is another agent there? choose another address with --http"
        )
    })
}

fn shared(
    settings: &Settings,
    name: String,
    (node, mailbox): (&annulus::Node, Mailbox),
    http: SocketAddr,
    leaving: watch::Receiver<bool>,
) -> Shared {
    let started_micros = now_micros();
    let journal = Journal::new(name.clone(), started_micros, settings.number("http.events_kept"));
    let services =
        settings.words("node.services").map(|name| service_info(name, node.handle().bound())).collect();
    Shared {
        journal: Arc::new(journal),
        mailbox,
        joining: Joining::new(settings),
        identity: node.identity(),
        members: node.members(),
        names: http::RecentNames::default(),
        name,
        started: Instant::now(),
        started_micros,
        services,
        http,
        token: settings.text("http.token").map(str::to_owned),
        body_bytes_max: settings.number("http.body_bytes_max"),
        long_bodies: Arc::new(Semaphore::new(http::LONG_BODIES_MAX)),
        message_bytes_max: settings.number("route.message_bytes_max"),
        leaving,
        page: std::sync::OnceLock::new(),
        node: node.handle().clone(),
    }
}

fn service_info(name: &str, bound: &Bound) -> ServiceInfo {
    let service = services::tag(name).expect("only known services are configured");
    let of = bound.of(service);
    let udp = of.sockets.iter().map(|(_, addr)| EndpointInfo { transport: "udp", addr: *addr });
    let tcp = of.listeners.iter().map(|(_, addr)| EndpointInfo { transport: "tcp", addr: *addr });
    ServiceInfo { name: services::name_of(service), addresses: udp.chain(tcp).collect() }
}

fn now_micros() -> u64 {
    annulus::core::micros(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

fn host_name() -> String {
    gethostname::gethostname().to_string_lossy().into_owned()
}
