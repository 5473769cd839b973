//! The services of the agent: their names, and the node that the configuration describes.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use annulus::core::Service;
use annulus::core::jitterbug::{self, HostId, Ledger, Opaque, Shipped};
use annulus::core::pastry::AppName;
use annulus::core::swim::{self, Codec, NodeSorter, Preset};
use annulus::core::w3w::{Announce, Forward};
pub(crate) use annulus::services::{MEMBERS, MESH, ROUTE, TOKEN, TURNS};
use annulus::{Builder, DataDirError, DataDirProblem, Node, StartError};

use crate::cli::UsageError;
use crate::config::{Settings, network};

/// The longest time for which an application may keep the token, or wait for it.
pub(crate) const HOLD_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// How many ports above its own an agent listens on if it announces the next one each time.
const INCREMENTING_PORTS: u16 = 64;

/// Every service with its name. A tag is part of the store's format: it never changes. Tag 1 is reserved.
const ALL: &[(&str, Service)] =
    &[("members", MEMBERS), ("token", TOKEN), ("route", ROUTE), ("mesh", MESH), ("turns", TURNS)];

/// The name of a service.
pub(crate) fn name_of(service: Service) -> &'static str {
    ALL.iter().find(|(_, tag)| *tag == service).map_or("unknown", |(name, _)| name)
}

/// The tag of a service.
pub(crate) fn tag(name: &str) -> Option<Service> {
    ALL.iter().find(|(known, _)| *known == name).map(|(_, tag)| *tag)
}

/// The node that the configuration describes.
pub(crate) fn describe(settings: &Settings, name: &str) -> anyhow::Result<Builder> {
    let mut node = Node::builder().name(name).bind(settings.ip("node.bind"));
    if let Some(path) = settings.text("node.data_dir") {
        node = node.data_dir(Path::new(path));
    }
    if !settings.addrs("node.join").is_empty() && !runs(settings, MEMBERS) {
        let text = "node.join (--join) is for members, which this agent does not run: add members to node.services \
                    (--services), or leave it out";
        return Err(UsageError(text.into()).into());
    }
    let mut seen = Vec::new();
    for service in settings.words("node.services") {
        if seen.contains(&service) {
            let text = format!("node.services names {service} twice: name each service once");
            return Err(UsageError(text).into());
        }
        seen.push(service);
        node = match tag(service) {
            Some(MEMBERS) => members(settings, node)?,
            Some(TOKEN) => token(settings, node)?,
            Some(ROUTE) => route(settings, node)?,
            Some(MESH) => mesh(settings, node)?,
            _ => anyhow::bail!("there is no service {service:?}: `annulus config show` lists them"),
        };
    }
    Ok(turns(settings, node))
}

/// An error of the library in the words of the command line and the configuration.
pub(crate) fn explain(error: StartError) -> anyhow::Error {
    match error {
        StartError::DataDir(error) => explain_data_dir(&error),
        StartError::Members(error) => UsageError(in_keys(&error)).into(),
        StartError::Tags(error) => {
            UsageError(format!("node.name, node.tags and the tags kept in the data directory: {error}"))
                .into()
        }
        StartError::Route(error) => UsageError(error.to_string()).into(),
        StartError::Token(error) => UsageError(error.to_string()).into(),
        StartError::Mesh(error) => UsageError(error.to_string()).into(),
        StartError::Turns(error) => UsageError(error.to_string()).into(),
        StartError::MeshNeedsIpv4 => {
            UsageError("mesh speaks IPv4 only: set node.bind to an IPv4 address".into()).into()
        }
        other => other.into(),
    }
}

fn explain_data_dir(error: &DataDirError) -> anyhow::Error {
    let path = error.path.display();
    let cause = error.cause.as_ref().map_or_else(String::new, |cause| format!(": {cause}"));
    match error.problem {
        DataDirProblem::Make => {
            anyhow::anyhow!("cannot make the data directory {path}; choose another with --data-dir{cause}")
        }
        DataDirProblem::Write => anyhow::anyhow!(
            "cannot write to the data directory {path}; check its owner, or choose another with --data-dir{cause}"
        ),
        DataDirProblem::InUse => anyhow::anyhow!(
            "another agent uses the data directory {path}: stop it, or give this one its own with --data-dir"
        ),
        DataDirProblem::BadIdentity => {
            anyhow::anyhow!("{path} holds no UUID: restore it, or remove it to become a new node")
        }
        _ => anyhow::anyhow!("{error}; check its owner"),
    }
}

/// Whether the configuration asks for a service.
fn runs(settings: &Settings, service: Service) -> bool {
    settings.words("node.services").any(|name| tag(name) == Some(service))
}

fn members(settings: &Settings, node: Builder) -> anyhow::Result<Builder> {
    let preset: Preset = settings.text("members.preset").unwrap_or("lan").parse()?;
    let mut node = node.preset(preset);
    for (key, value) in settings.words("node.tags").filter_map(|tag| tag.split_once('=')) {
        node = node.tag(key, value);
    }
    let port = settings.number("members.port");
    let addrs = settings.addrs("members.advertise");
    let ring = settings.text("members.ring").unwrap_or_default().to_owned();
    let store_interval = settings.duration("members.store_interval");
    let interval = settings.optional_duration("members.interval");
    let probe_timeout = settings.optional_duration("members.probe_timeout");
    let suspicion_mult = settings.optional_number("members.suspicion_mult");
    let packet_bytes_max = settings.optional_number("members.packet_bytes_max");
    let keep_failed = settings.duration("members.keep_failed");
    let sorter: Option<NodeSorter> = settings.text("members.sorter").and_then(|name| name.parse().ok());
    let region_count = settings.optional_number("members.region_count");
    let region_probes = settings.optional_number("members.region_probes");
    let neighbor_count = settings.optional_number("members.neighbor_count");
    let neighbor_probes = settings.optional_number("members.neighbor_probes");
    let codec: Option<Codec> = settings.text("members.codec").and_then(|name| name.parse().ok());
    let join = settings.addrs("node.join").into_iter().map(|addr| addr.to_string());
    Ok(node.join(join).members_with(move |config| {
        config.bind.set_port(port);
        config.addrs = addrs;
        config.ring = ring;
        config.store_interval = store_interval;
        config.keep_failed = keep_failed;
        let with = &mut config.settings;
        with.probe_interval = interval.unwrap_or(with.probe_interval);
        with.probe_timeout = probe_timeout.unwrap_or(with.probe_timeout);
        with.suspicion_mult = suspicion_mult.unwrap_or(with.suspicion_mult);
        with.packet_bytes_max = packet_bytes_max.unwrap_or(with.packet_bytes_max);
        with.codec = codec.unwrap_or(with.codec);
        with.sorter = sorter.unwrap_or(with.sorter);
        with.region_count = region_count.unwrap_or(with.region_count);
        with.region_probes = region_probes.unwrap_or(with.region_probes);
        with.neighbor_count = neighbor_count.unwrap_or(with.neighbor_count);
        with.neighbor_probes = neighbor_probes.unwrap_or(with.neighbor_probes);
    }))
}

/// The error of the settings of members, in terms of configuration keys.
fn in_keys(error: &swim::ConfigError) -> String {
    use swim::ConfigError::{Addrs, Interval, Neighbors, NoProbes, NoRegions, Packet, Timeout, Unreachable};
    match error {
        Unreachable(addr) => format!(
            "others cannot reach members at {addr}: bind to an address of this machine (--bind, node.bind), or say \
             in members.advertise where they can"
        ),
        Interval(_) => format!("members.interval: {error}"),
        Timeout { .. } => format!("members.probe_timeout: {error} (members.interval)"),
        Packet(_) => format!("members.packet_bytes_max: {error}"),
        NoRegions => format!("members.region_count: {error}"),
        NoProbes => format!("members.region_probes, members.neighbor_probes: {error}"),
        Neighbors { .. } => format!("members.neighbor_probes: {error}"),
        Addrs(_) => format!("members.advertise: {error}"),
        _ => format!("members: {error}"),
    }
}

fn token(settings: &Settings, node: Builder) -> anyhow::Result<Builder> {
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
    let udp_port = settings.number("token.udp_port");
    let tcp_port: u16 = settings.number("token.tcp_port");
    let host_id = settings.optional_number::<u32>("token.host_id").and_then(HostId::new);
    let renew_timeout = settings.optional_duration("token.renew_timeout").unwrap_or(preset.renew_timeout);
    let pass_timeout = settings.optional_duration("token.pass_timeout").unwrap_or(preset.pass_timeout);
    let tr_interval = settings.optional_duration("token.tr_interval").unwrap_or(preset.tr_interval);
    let tr_count = settings.optional_number("token.tr_count").unwrap_or(preset.tr_count);
    let base = settings.optional_number::<u32>("token.loose_prob_base").map(f64::from);
    let pace = settings.optional_duration("token.pace").unwrap_or(preset.pace);
    let allow = settings.words("token.allow").filter_map(network).collect();
    let data = match settings.text("token.data") {
        Some("opaque") => Shipped::Opaque(Opaque::new()),
        _ => Shipped::Ledger(Ledger::new()),
    };
    Ok(node.token_data(data).token_with(move |config| {
        *config = jitterbug::Config {
            addr: config.addr,
            udp_port,
            // Port 0 keeps the port of the last run.
            tcp_port: if tcp_port == 0 { config.tcp_port } else { tcp_port },
            broadcast: if given.is_empty() { std::mem::take(&mut config.broadcast) } else { given },
            host_id,
            renew_timeout,
            pass_timeout,
            tr_interval,
            tr_count,
            loose_prob_base: base.unwrap_or(preset.loose_prob_base),
            pace,
            hold_max: HOLD_MAX,
            allow,
            ..preset
        };
    }))
}

/// Holds that token has its ports for itself.
fn own_ports(settings: &Settings) -> Result<(), String> {
    let others = [(MEMBERS, "members.port"), (ROUTE, "route.port"), (MESH, "mesh.port")];
    let others = others.iter().filter(|(service, _)| runs(settings, *service));
    for (_, other) in others {
        for own in ["token.udp_port", "token.tcp_port"] {
            // One port number for two services is refused, even if one uses only datagrams and the other only
            // streams.
            let (port, taken): (u16, u16) = (settings.number(own), settings.number(other));
            if port != 0 && port == taken {
                return Err(format!("{own} and {other} are both {port}: give each its own"));
            }
        }
    }
    Ok(())
}

/// The voters of exclusive turns; without a port they listen on that of this node.
fn voters(settings: &Settings) -> Vec<SocketAddr> {
    let port = settings.number("turns.port");
    let addr = |host: &str| host.parse().ok().or_else(|| Some(SocketAddr::new(host.parse().ok()?, port)));
    settings.words("token.voters").filter_map(addr).collect()
}

/// Exclusive turns, where voters are configured.
fn turns(settings: &Settings, node: Builder) -> Builder {
    let voters = voters(settings);
    if voters.is_empty() {
        return node;
    }
    if voters.len().is_multiple_of(2) {
        tracing::warn!(
            voters = voters.len(),
            "an even number of voters survives no more failures than one less"
        );
    }
    let (port, lease) = (settings.number("turns.port"), settings.duration("turns.lease"));
    node.turns_with(move |config| {
        config.bind.set_port(port);
        config.own = own_voter(config.bind, &voters).unwrap_or(config.bind);
        config.voters = voters;
        config.lease = lease;
    })
}

/// The voter that this node is, if it is bound to all addresses of the machine.
fn own_voter(bind: SocketAddr, voters: &[SocketAddr]) -> Option<SocketAddr> {
    if !bind.ip().is_unspecified() {
        return None;
    }
    let own: Vec<IpAddr> = if_addrs::get_if_addrs().ok()?.iter().map(if_addrs::Interface::ip).collect();
    voters.iter().copied().find(|voter| voter.port() == bind.port() && own.contains(&voter.ip()))
}

fn route(settings: &Settings, node: Builder) -> anyhow::Result<Builder> {
    let usage = |error: String| anyhow::Error::from(UsageError(error));
    let named = settings.words("route.apps").map(AppName::new);
    let named: Vec<AppName> = named.collect::<Result<_, _>>().map_err(|error| usage(error.to_string()))?;
    let bind = SocketAddr::new(settings.ip("node.bind"), settings.number("route.port"));
    // The advertised IP address of members is also that of route.
    let elsewhere =
        settings.addrs("members.advertise").first().map(|at| SocketAddr::new(at.ip(), bind.port()));
    let elsewhere = elsewhere.filter(|_| bind.ip().is_unspecified() && runs(settings, MEMBERS));
    let advertise = settings.addr("route.advertise").or(elsewhere);
    let reached_at = advertise.unwrap_or(bind);
    if reached_at.ip().is_unspecified() || advertise.is_some_and(|at| at.port() == 0) {
        return Err(usage(format!(
            "others cannot reach route at {reached_at}: bind to an address of this machine (--bind, node.bind), or say in \
             route.advertise where they can"
        )));
    }
    let ring = settings.text("route.ring").unwrap_or_default().to_owned();
    let seeds = settings.addrs("route.seeds");
    let leaf_set_max = settings.number("route.leaf_set_max");
    let neighbourhood_max = settings.number("route.neighbourhood_max");
    let network_timeout = settings.duration("route.network_timeout");
    let message_timeout = settings.duration("route.message_timeout");
    let message_bytes_max = settings.number("route.message_bytes_max");
    let leaf_interval = settings.duration("route.leaf_interval");
    let table_interval = settings.duration("route.table_interval");
    Ok(node.route_with(move |config| {
        config.bind = bind;
        config.advertise = advertise;
        config.ring = ring;
        config.await_members &= seeds.is_empty();
        config.seeds = seeds;
        config.applications = std::iter::once(AppName::default()).chain(named).collect();
        config.leaf_set_max = leaf_set_max;
        config.neighbourhood_max = neighbourhood_max;
        config.network_timeout = network_timeout;
        config.message_timeout = message_timeout;
        config.message_bytes_max = message_bytes_max;
        config.leaf_interval = leaf_interval;
        config.table_interval = table_interval;
    }))
}

fn mesh(settings: &Settings, node: Builder) -> anyhow::Result<Builder> {
    let port = settings.number("mesh.port");
    let announce = match settings.text("mesh.announce") {
        Some("incrementing") => Announce::Incrementing { ports: INCREMENTING_PORTS },
        _ => Announce::Fixed,
    };
    // A HERE carries an IPv4 address, so no other can be a seed.
    let seeds = settings.words("mesh.seeds").filter_map(|ip| ip.parse().ok()).collect();
    let (peers_max, peers_min) = (settings.number("mesh.max"), settings.number("mesh.min"));
    let forward = match settings.text("mesh.forward") {
        Some("both") => Forward::Both,
        _ => Forward::Nearest,
    };
    let expiry = settings.duration("mesh.expiry");
    let quota_bytes = settings.number("mesh.quota");
    let mut allow = Vec::new();
    for (ip, bits) in settings.words("mesh.allow").filter_map(network) {
        let IpAddr::V4(ip) = ip else {
            let text = format!("mesh.allow names {ip}, which no node of the mesh has: name IPv4 networks");
            return Err(UsageError(text).into());
        };
        allow.push((ip, bits));
    }
    Ok(node.mesh_with(move |config| {
        config.allow = allow;
        config.bind.set_port(port);
        config.announce = announce;
        config.seeds = seeds;
        config.peers_max = peers_max;
        config.peers_min = peers_min;
        config.forward = forward;
        config.expiry = expiry;
        config.quota_bytes = quota_bytes;
    }))
}
