//! The services: their tags, their names, and how each is built from the configuration.

use std::net::SocketAddr;

use annulus_core::node::{Node, Part};
use annulus_core::swim::{self, Preset, Swim, Tags};
use annulus_core::{Id, Seed, Service, ping};
use anyhow::Context as _;

use crate::cli::UsageError;
use crate::config::Settings;

/// The tag of ping.
pub(crate) const PING: Service = Service(1);

/// The tag of members.
pub(crate) const MEMBERS: Service = Service(2);

/// Every service with its name. A tag is part of the store's file: never change one.
const ALL: &[(&str, Service)] = &[("ping", PING), ("members", MEMBERS)];

/// What people call a service.
pub(crate) fn name(service: Service) -> &'static str {
    ALL.iter().find(|(_, tag)| *tag == service).map_or("unknown", |(name, _)| name)
}

/// The tag of a service.
pub(crate) fn tag(name: &str) -> Option<Service> {
    ALL.iter().find(|(known, _)| *known == name).map(|(_, tag)| *tag)
}

/// The node that the configuration asks for.
pub(crate) fn build(settings: &Settings, id: Id, name: &str) -> anyhow::Result<Node> {
    let mut parts = Vec::new();
    for service in settings.words("node.services") {
        let part = match tag(service) {
            Some(PING) => Part::Ping(Box::new(ping(settings)?)),
            Some(MEMBERS) => Part::Members(Box::new(members(settings, id, name)?)),
            _ => anyhow::bail!("there is no service {service:?}: `annulus config show` lists them"),
        };
        parts.push((tag(service).expect("it was found above"), part));
    }
    Node::new(parts).context("node.services names a service twice")
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

fn members(settings: &Settings, id: Id, name: &str) -> anyhow::Result<Swim> {
    let usage = |error: String| anyhow::Error::from(UsageError(error));
    let preset: Preset = settings.text("members.preset").unwrap_or("lan").parse()?;
    let tags = settings.words("node.tags").filter_map(|tag| tag.split_once('='));
    let tags = tags.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    let meta = Tags { name: name.to_owned(), tags }.encode().map_err(|error| usage(error.to_string()))?;
    let mut config = swim::Config {
        bind: SocketAddr::new(settings.ip("node.bind"), settings.number("members.port")),
        meta,
        ring: settings.text("members.ring").unwrap_or_default().to_owned(),
        seeds: settings.addrs("node.join"),
        keep_interval: settings.duration("members.keep_interval"),
        ..swim::Config::new(id, preset)
    };
    let with = &mut config.settings;
    with.probe_interval = settings.optional_duration("members.interval").unwrap_or(with.probe_interval);
    with.probe_timeout = settings.optional_duration("members.probe_timeout").unwrap_or(with.probe_timeout);
    with.suspicion_mult = settings.optional_number("members.suspicion_mult").unwrap_or(with.suspicion_mult);
    with.packet_bytes_max =
        settings.optional_number("members.packet_bytes_max").unwrap_or(with.packet_bytes_max);
    Swim::new(&config, seed()?).map_err(|error| usage(error.to_string()))
}

/// What a machine draws on real sockets nobody can foresee.
fn seed() -> anyhow::Result<Seed> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(|error| anyhow::anyhow!("the system gives no randomness: {error}"))?;
    Ok(seed)
}
