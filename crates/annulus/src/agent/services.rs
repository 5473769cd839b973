//! The services: their tags, their names, and how each is built from the configuration.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::Duration;

use annulus_core::jitterbug::{self, HostId, Ledger};
use annulus_core::node::{Node, Part, Token};
use annulus_core::pastry::{self, AppName, Liveness, Pastry};
use annulus_core::swim::{self, Preset, Services, Swim, Tags};
use annulus_core::w3w::{self, Announce, Forward, KnownNode, Mesh};
use annulus_core::{Id, Seed, Service, ping};
use annulus_net::Store;

use super::data_dir::DataDir;
use super::identity::Identity;
use super::kept_port::kept_port;
use super::kept_tags::KeptTags;
use super::known_nodes::KnownNodes;
use crate::cli::UsageError;
use crate::config::Settings;

/// The tag of ping.
pub(crate) const PING: Service = Service(1);

/// The tag of members.
pub(crate) const MEMBERS: Service = Service(2);

/// The tag of token.
pub(crate) const TOKEN: Service = Service(3);

/// The tag of route.
pub(crate) const ROUTE: Service = Service(4);

/// The tag of mesh.
pub(crate) const MESH: Service = Service(5);

/// The longest time for which an application may keep the token, or wait for it.
pub(crate) const HOLD_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// How many ports above its own an agent listens on if it announces the next one each time.
const INCREMENTING_PORTS: u16 = 64;

/// Every service with its name. A tag is part of the store's file: never change one.
const ALL: &[(&str, Service)] =
    &[("ping", PING), ("members", MEMBERS), ("token", TOKEN), ("route", ROUTE), ("mesh", MESH)];

/// What people call a service.
pub(crate) fn name_of(service: Service) -> &'static str {
    ALL.iter().find(|(_, tag)| *tag == service).map_or("unknown", |(name, _)| name)
}

/// The tag of a service.
pub(crate) fn tag(name: &str) -> Option<Service> {
    ALL.iter().find(|(known, _)| *known == name).map(|(_, tag)| *tag)
}

/// The node that the configuration asks for, with what its data directory remembers.
pub(crate) fn build(settings: &Settings, name: &str, data: &DataDir) -> anyhow::Result<Node> {
    let (mut parts, identity) = (Vec::new(), data.identity);
    if !settings.addrs("node.join").is_empty()
        && !settings.words("node.services").any(|name| name == "members")
    {
        let text = "node.join (--join) is for members, which this agent does not run: add members to node.services \
                    (--services), or leave it out";
        return Err(UsageError(text.into()).into());
    }
    for service in settings.words("node.services") {
        let part = match tag(service) {
            Some(PING) => Part::Ping(Box::new(ping(settings)?)),
            Some(MEMBERS) => Part::Members(Box::new(members(settings, data, name)?)),
            Some(TOKEN) => Part::Token(Box::new(token(settings, &data.store())?)),
            Some(ROUTE) => Part::Route(Box::new(route(settings, identity.id())?)),
            Some(MESH) => Part::Mesh(Box::new(mesh(settings, identity, &KnownNodes::read(data.path()))?)),
            _ => anyhow::bail!("there is no service {service:?}: `annulus config show` lists them"),
        };
        parts.push((tag(service).expect("it was found above"), part));
    }
    Node::new(parts).map_err(|twice| {
        let name = name_of(twice.0);
        UsageError(format!("node.services names {name} twice: name each service once")).into()
    })
}

/// Whether the configuration asks for a service.
fn runs(settings: &Settings, service: Service) -> bool {
    settings.words("node.services").any(|name| tag(name) == Some(service))
}

fn ping(settings: &Settings) -> anyhow::Result<ping::Ping> {
    let config = ping::Config {
        bind: SocketAddr::new(settings.ip("node.bind"), settings.number("ping.port")),
        peers: settings.addrs("ping.peers"),
        interval: settings.duration("ping.interval"),
        timeout: settings.duration("ping.timeout"),
        stream_every: settings.number("ping.stream_every"),
        vanished_after: settings.number("ping.vanished_after"),
        keep_interval: settings.duration("ping.keep_interval"),
        ..ping::Config::default()
    };
    ping::Ping::new(&config, seed()?).map_err(|error| UsageError(error.to_string()).into())
}

fn members(settings: &Settings, data: &DataDir, name: &str) -> anyhow::Result<Swim> {
    let usage = |error: String| anyhow::Error::from(UsageError(error));
    let preset: Preset = settings.text("members.preset").unwrap_or("lan").parse()?;
    let tags = settings.words("node.tags").filter_map(|tag| tag.split_once('='));
    let mut tags = tags.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    KeptTags::new(data.path()).read().apply(&mut tags);
    let identity = data.identity;
    let port = |service, key| runs(settings, service).then(|| settings.number(key));
    let services = Services {
        route: port(ROUTE, "route.port")
            .map(|port| settings.addr("route.advertise").map_or(port, |at| at.port())),
        token: port(TOKEN, "token.udp_port"),
        mesh: port(MESH, "mesh.port"),
        nid: runs(settings, MESH).then(|| identity.nid()),
    };
    let tags = Tags { name: name.to_owned(), services, tags };
    let meta = tags.encode().map_err(|error| {
        usage(format!("node.name, node.tags and the tags kept in the data directory: {error}"))
    })?;
    let mut config = swim::Config {
        bind: SocketAddr::new(settings.ip("node.bind"), settings.number("members.port")),
        addrs: settings.addrs("members.advertise"),
        meta,
        ring: settings.text("members.ring").unwrap_or_default().to_owned(),
        seeds: settings.addrs("node.join"),
        keep_interval: settings.duration("members.keep_interval"),
        ..swim::Config::new(identity.id(), preset)
    };
    let with = &mut config.settings;
    with.probe_interval = settings.optional_duration("members.interval").unwrap_or(with.probe_interval);
    with.probe_timeout = settings.optional_duration("members.probe_timeout").unwrap_or(with.probe_timeout);
    with.suspicion_mult = settings.optional_number("members.suspicion_mult").unwrap_or(with.suspicion_mult);
    with.packet_bytes_max =
        settings.optional_number("members.packet_bytes_max").unwrap_or(with.packet_bytes_max);
    Swim::new(&config, seed()?).map_err(|error| usage(in_keys(&error)))
}

/// What is wrong with the settings of members, in the words of the configuration.
fn in_keys(error: &swim::ConfigError) -> String {
    use swim::ConfigError::{Addrs, Interval, Packet, Timeout, Unreachable};
    match error {
        Unreachable(addr) => format!(
            "others cannot reach members at {addr}: bind to an address of this machine (--bind, node.bind), or say \
             in members.advertise where they can"
        ),
        Interval(_) => format!("members.interval: {error}"),
        Timeout { .. } => format!("members.probe_timeout: {error} (members.interval)"),
        Packet(_) => format!("members.packet_bytes_max: {error}"),
        Addrs(_) => format!("members.advertise: {error}"),
        _ => format!("members: {error}"),
    }
}

fn token(settings: &Settings, store: &Store) -> anyhow::Result<Token> {
    let usage = |error: String| anyhow::Error::from(UsageError(error));
    let preset = match settings.text("token.preset") {
        Some("local") => jitterbug::Config::local(),
        _ => jitterbug::Config::lan(),
    };
    let addr = settings.ip("node.bind");
    let given: Vec<IpAddr> = settings.words("token.broadcast").filter_map(|ip| ip.parse().ok()).collect();
    if let Some(ip) = given.iter().find(|ip| ip.is_ipv4() != addr.is_ipv4()) {
        let text = format!(
            "token.broadcast names {ip}, which cannot be reached from {addr}: name addresses of its family"
        );
        return Err(usage(text));
    }
    own_ports(settings).map_err(usage)?;
    let tcp_port = match settings.number("token.tcp_port") {
        0 => kept_port(store, addr),
        given => given,
    };
    let base = settings.optional_number::<u32>("token.loose_prob_base").map(f64::from);
    let config = jitterbug::Config {
        addr,
        udp_port: settings.number("token.udp_port"),
        tcp_port,
        broadcast: if given.is_empty() { broadcast_of(addr) } else { given },
        host_id: settings.optional_number::<u32>("token.host_id").and_then(HostId::new),
        renew_timeout: settings.optional_duration("token.renew_timeout").unwrap_or(preset.renew_timeout),
        pass_timeout: settings.optional_duration("token.pass_timeout").unwrap_or(preset.pass_timeout),
        tr_interval: settings.optional_duration("token.tr_interval").unwrap_or(preset.tr_interval),
        tr_count: settings.optional_number("token.tr_count").unwrap_or(preset.tr_count),
        loose_prob_base: base.unwrap_or(preset.loose_prob_base),
        pace: settings.optional_duration("token.pace").unwrap_or(preset.pace),
        hold_max: HOLD_MAX,
        ..preset
    };
    Token::new(&config, Ledger::new(), seed()?).map_err(|error| usage(error.to_string()))
}

/// Holds that token has its ports for itself.
fn own_ports(settings: &Settings) -> Result<(), String> {
    let others = [(PING, "ping.port"), (MEMBERS, "members.port"), (ROUTE, "route.port"), (MESH, "mesh.port")];
    let others = others.iter().filter(|(service, _)| runs(settings, *service));
    for (_, other) in others {
        for own in ["token.udp_port", "token.tcp_port"] {
            // What has no datagrams or no streams does not matter: two services on one number confuse everybody.
            let (port, taken): (u16, u16) = (settings.number(own), settings.number(other));
            if port != 0 && port == taken {
                return Err(format!("{own} and {other} are both {port}: give each its own"));
            }
        }
    }
    Ok(())
}

fn route(settings: &Settings, id: Id) -> anyhow::Result<Pastry> {
    let usage = |error: String| anyhow::Error::from(UsageError(error));
    let named = settings.words("route.apps").map(AppName::new);
    let fed = runs(settings, MEMBERS);
    let named: Vec<AppName> = named.collect::<Result<_, _>>().map_err(|error| usage(error.to_string()))?;
    let bind = SocketAddr::new(settings.ip("node.bind"), settings.number("route.port"));
    let advertise = settings.addr("route.advertise");
    let told = advertise.unwrap_or(bind);
    if told.ip().is_unspecified() || advertise.is_some_and(|at| at.port() == 0) {
        return Err(usage(format!(
            "others cannot reach route at {told}: bind to an address of this machine (--bind, node.bind), or say in \
             route.advertise where they can"
        )));
    }
    let config = pastry::Config {
        id,
        bind,
        advertise,
        ring: settings.text("route.ring").unwrap_or_default().to_owned(),
        seeds: settings.addrs("route.seeds"),
        applications: std::iter::once(AppName::default()).chain(named).collect(),
        leaf_set_max: settings.number("route.leaf_set_max"),
        neighbourhood_max: settings.number("route.neighbourhood_max"),
        network_timeout: settings.duration("route.network_timeout"),
        message_timeout: settings.duration("route.message_timeout"),
        message_bytes_max: settings.number("route.message_bytes_max"),
        leaf_interval: settings.duration("route.leaf_interval"),
        table_interval: settings.duration("route.table_interval"),
        liveness: if fed { Liveness::Members } else { Liveness::Own },
        await_members: fed
            && settings.addrs("route.seeds").is_empty()
            && !settings.addrs("node.join").is_empty(),
        ..pastry::Config::default()
    };
    Pastry::new(config, seed()?).map_err(|error| usage(error.to_string()))
}

fn mesh(settings: &Settings, identity: Identity, known: &[KnownNode]) -> anyhow::Result<Mesh> {
    let usage = |error: String| anyhow::Error::from(UsageError(error));
    let IpAddr::V4(ip) = settings.ip("node.bind") else {
        return Err(usage("mesh speaks IPv4 only: set node.bind to an IPv4 address".into()));
    };
    let config = w3w::Config {
        uuid: identity.uuid(),
        bind: SocketAddrV4::new(ip, settings.number("mesh.port")),
        announce: match settings.text("mesh.announce") {
            Some("incrementing") => Announce::Incrementing { ports: INCREMENTING_PORTS },
            _ => Announce::Fixed,
        },
        // What is no IPv4 address cannot be told in a HERE, so nobody could be reached there.
        seeds: settings.words("mesh.seeds").filter_map(|ip| ip.parse().ok()).collect(),
        known: known.to_vec(),
        peers_max: settings.number("mesh.max"),
        peers_min: settings.number("mesh.min"),
        forward: match settings.text("mesh.forward") {
            Some("both") => Forward::Both,
            _ => Forward::Nearest,
        },
        expiry: settings.duration("mesh.expiry"),
        quota_bytes: settings.number("mesh.quota"),
        ..w3w::Config::default()
    };
    Mesh::new(&config, seed()?).map_err(|error| usage(error.to_string()))
}

/// The broadcast address of the network that an address of this machine is in; none if there is none.
fn broadcast_of(addr: IpAddr) -> Vec<IpAddr> {
    if addr.is_loopback() && addr.is_ipv4() {
        return vec![IpAddr::V4(Ipv4Addr::new(127, 255, 255, 255))];
    }
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    let own = interfaces.into_iter().filter(|interface| interface.ip() == addr);
    own.filter_map(|interface| match interface.addr {
        if_addrs::IfAddr::V4(v4) => v4.broadcast.map(IpAddr::V4),
        if_addrs::IfAddr::V6(_) => None,
    })
    .collect()
}

/// What a machine draws on real sockets nobody can foresee.
fn seed() -> anyhow::Result<Seed> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(|error| anyhow::anyhow!("the system gives no randomness: {error}"))?;
    Ok(seed)
}
