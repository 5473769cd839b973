//! One life of an agent: open, bind, serve, and leave in good order.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use annulus_core::jitterbug::{self, DropReason};
use annulus_core::node::{Node, PartEvent};
use annulus_core::{Bound, Id, Service, pastry, swim};
use annulus_net::{Ended, Events, Handle, Options};
use anyhow::{Context as _, bail};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Mutex, Semaphore, watch};

use super::data_dir::DataDir;
use super::http::{self, Api, EndpointInfo, ServiceInfo, Shared};
use super::joining::Joining;
use super::journal::Journal;
use super::kept_tags::KeptTags;
use super::known_nodes::{self, KnownNodes};
use super::mailbox::{Letter, Mailbox};
use super::user_event::UserEvent;
use super::{log, services};
use crate::config::Settings;

/// How long clients of the API may take to finish when the agent leaves.
const HTTP_GRACE: Duration = Duration::from_secs(2);

/// Runs an agent until it is told to end.
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
    let data = DataDir::open(settings.text("node.data_dir").map(std::path::Path::new))?;
    let machine = services::build(settings, &name, &data)?;
    let listener = listen(http).await?;
    let node = annulus_net::spawn(machine, Options::with_store(data.store()))?;
    tokio::spawn(known_nodes::keep(node.clone(), data.path().map(KnownNodes::new)));
    let (leave, leaving) = watch::channel(false);
    let http = listener.local_addr()?;
    let shared = shared(settings, name, &data, node.clone(), http, leaving);
    tracing::info!(name = shared.name, id = %data.identity.id(), http = %shared.http, "agent started");
    if shared.services.is_empty() {
        tracing::warn!("this agent runs nothing but its API: name services with --services (node.services)");
    }
    for service in &shared.services {
        let addresses: Vec<String> =
            service.addresses.iter().map(|at| format!("{}/{}", at.addr, at.transport)).collect();
        tracing::info!(service = service.name, at = addresses.join(" "), "service started");
    }
    serve(listener, shared, node, leave, &mut signals).await
    // `data` is dropped last: the lock is held as long as anything of this node runs.
}

/// Serves until a signal comes or the node ends, then leaves.
async fn serve(
    listener: TcpListener,
    shared: Shared,
    node: Handle<Node>,
    leave: watch::Sender<bool>,
    signals: &mut Signals,
) -> anyhow::Result<()> {
    let leaving = shared.leaving.clone();
    let api = Api::new(shared);
    tokio::spawn(keep_journal(api.clone(), node.events()));
    let server = tokio::spawn(http::serve(listener, http::app(api), leaving));
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
    leave.send_replace(true);
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

/// Writes down what the node tells, until it ends.
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
                api.journal.push(now_micros(), &told);
            }
            PartEvent::Route(pastry::Event::Delivered { id, app, key, origin, payload, hops, ask }) => {
                let letter = Letter {
                    at_micros: now_micros(),
                    id: *id,
                    app: app.clone(),
                    key: *key,
                    origin: *origin,
                    hops: *hops,
                    ask: *ask,
                    payload: payload.clone(),
                };
                // Kept before it is told: who hears of it finds it.
                let told = MessageDelivered::new(event.service, &letter);
                let at_micros = letter.at_micros;
                api.mailbox.push(letter);
                api.journal.push(at_micros, &told);
            }
            other => {
                match other {
                    PartEvent::Route(pastry::Event::Joined { .. }) => api.joining.joined(),
                    PartEvent::Route(pastry::Event::JoinFailed { tries }) => api.joining.failed(*tries),
                    _ => warn_of(other),
                }
                api.journal.push(now_micros(), &*event);
            }
        }
    }
}

/// Puts into the log what somebody should do something about.
fn warn_of(event: &PartEvent) {
    match event {
        PartEvent::Members(swim::Event::JoinFailed { addr }) => tracing::warn!(
            %addr,
            "nobody answers the join: check that an agent with members runs there, in the same ring"
        ),
        PartEvent::Members(swim::Event::IdConflict { addr }) => tracing::warn!(
            %addr,
            "another node uses our member id: its data directory is a copy of ours; stop one of the two and start it with an \
             empty data directory (--data-dir, node.data_dir)"
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
                "this agent stood still for longer than token.renew_timeout: its token is given up, and what held it was told"
            );
        }
        _ => {}
    }
}

/// The longest payload that an event carries. The journal keeps many events, so none may be large.
const EVENT_PAYLOAD_BYTES_MAX: usize = 16 * 1024;

/// A message as programs and people read it.
#[derive(Serialize)]
struct MessageDelivered {
    service: Service,
    protocol: &'static str,
    event: &'static str,
    id: String,
    app: String,
    key: Id,
    origin: Id,
    hops: u8,
    ask: bool,
    payload_bytes: usize,
    /// Left out if it is too long: then it is in `/v1/messages`.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
}

impl MessageDelivered {
    fn new(service: Service, letter: &Letter) -> Self {
        let fits = letter.payload.len() <= EVENT_PAYLOAD_BYTES_MAX;
        Self {
            service,
            protocol: "route",
            event: "delivered",
            id: letter.id.to_string(),
            app: letter.app.as_str().to_owned(),
            key: letter.key,
            origin: letter.origin.id,
            hops: letter.hops,
            ask: letter.ask,
            payload_bytes: letter.payload.len(),
            payload_base64: fits.then(|| BASE64_STANDARD.encode(&letter.payload)),
        }
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

async fn listen(addr: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(addr).await.with_context(|| {
        format!(
            "cannot listen for HTTP on {addr}; is another agent there? choose another address with --http"
        )
    })
}

fn shared(
    settings: &Settings,
    name: String,
    data: &DataDir,
    node: Handle<Node>,
    http: SocketAddr,
    leaving: watch::Receiver<bool>,
) -> Shared {
    let started_micros = now_micros();
    let journal = Journal::new(name.clone(), started_micros, settings.number("http.events_kept"));
    let services = settings.words("node.services").map(|name| service_info(name, node.bound())).collect();
    Shared {
        journal,
        mailbox: Mailbox::new(settings.number("route.messages_kept")),
        joining: Joining::new(settings),
        identity: data.identity,
        kept_tags: Mutex::new(KeptTags::new(data.path())),
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
        node,
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
    annulus_core::micros(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

fn host_name() -> String {
    gethostname::gethostname().to_string_lossy().into_owned()
}
