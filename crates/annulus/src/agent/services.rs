//! The services: their tags, their names, and how each is built from the configuration.

use std::net::SocketAddr;

use annulus_core::node::{Node, Part};
use annulus_core::{Seed, Service, ping};
use anyhow::Context as _;

use crate::cli::UsageError;
use crate::config::Settings;

/// The tag of ping.
pub(crate) const PING: Service = Service(1);

/// Every service with its name. A tag is part of the store's file: never change one.
const ALL: &[(&str, Service)] = &[("ping", PING)];

/// What people call a service.
pub(crate) fn name(service: Service) -> &'static str {
    ALL.iter().find(|(_, tag)| *tag == service).map_or("unknown", |(name, _)| name)
}

/// The tag of a service.
pub(crate) fn tag(name: &str) -> Option<Service> {
    ALL.iter().find(|(known, _)| *known == name).map(|(_, tag)| *tag)
}

/// The node that the configuration asks for.
pub(crate) fn build(settings: &Settings) -> anyhow::Result<Node> {
    let mut parts = Vec::new();
    for name in settings.words("node.services") {
        let part = match tag(name) {
            Some(PING) => Part::Ping(ping(settings)?),
            _ => anyhow::bail!("there is no service {name:?}: `annulus config show` lists them"),
        };
        parts.push((tag(name).expect("it was found above"), part));
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

/// What a machine draws on real sockets nobody can foresee.
fn seed() -> anyhow::Result<Seed> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(|error| anyhow::anyhow!("the system gives no randomness: {error}"))?;
    Ok(seed)
}
