//! The names of nodes: those of `members`, and those that the address book of `mesh` keeps over restarts and absences.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use annulus::core::node::{Command, PartCommand, Reply};
use annulus::core::swim::{self, Tags};
use annulus::core::{Id, w3w};

use serde::Serialize;
use serde_json::Value;

use super::Api;
use crate::agent::services;

/// The age up to which cached names are used in answers.
const RECENT: Duration = Duration::from_secs(1);

/// The most names that are read anew for one event.
const READ_MAX: usize = 256;

/// The names that were read last, for answers that come often.
#[derive(Debug, Default)]
pub(crate) struct RecentNames(Mutex<Option<(Instant, Arc<Names>)>>);

impl RecentNames {
    fn get(&self) -> Option<Arc<Names>> {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().filter(|(at, _)| at.elapsed() < RECENT).map(|(_, names)| Arc::clone(names))
    }
}

/// The names by id and by address.
#[derive(Debug, Default)]
pub(crate) struct Names {
    by_id: BTreeMap<Id, String>,
    /// Empty if several nodes are at one address.
    by_ip: BTreeMap<IpAddr, String>,
}

impl Names {
    /// Reads all names. A service that does not run has none.
    pub(super) async fn read(api: &Api) -> Self {
        let mut names = Self::default();
        for entry in book(api).await {
            let id = Id::from_bytes(*entry.nid.to_bytes().first_chunk().expect("32 bytes have 16"));
            if let Some(name) = entry.names.into_iter().next() {
                names.by_id.insert(id, name.clone());
                entry.ip.into_iter().for_each(|ip| names.note(ip.into(), &name));
            }
        }
        let command = PartCommand::Members(swim::Command::Members { all: true });
        let reply = api.node.command(Command { service: services::MEMBERS, command }).await;
        if let Ok(Reply::Members(swim::Reply::Members(members))) = reply {
            for member in members {
                let name = Tags::decode(&member.node.meta).unwrap_or_default().name;
                if !name.is_empty() {
                    member.node.addrs.first().into_iter().for_each(|addr| names.note(addr.ip(), &name));
                    names.by_id.insert(member.node.id, name);
                }
            }
        }
        names.by_id.insert(api.identity.id(), api.name.clone());
        names
    }

    /// All names, as they were a second ago or later.
    pub(super) async fn recent(api: &Api) -> Arc<Self> {
        if let Some(names) = api.names.get() {
            return names;
        }
        let names = Arc::new(Self::read(api).await);
        let mut last = api.names.0.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Some((Instant::now(), Arc::clone(&names)));
        names
    }

    /// The names of the nodes whose ids or NIDs are in this value, however deep, by what stands there.
    fn within(&self, value: &Value, named: &mut BTreeMap<String, String>) {
        match value {
            // The id of a node is the first half of its NID.
            Value::String(text) if matches!(text.len(), 32 | 64) => {
                let id = text.get(..32).and_then(|id| id.parse().ok());
                named.extend(id.and_then(|id| self.of(id)).map(|name| (text.clone(), name)));
            }
            Value::Array(values) => values.iter().for_each(|value| self.within(value, named)),
            Value::Object(fields) => fields.values().for_each(|value| self.within(value, named)),
            _ => {}
        }
    }

    /// The name of a node.
    pub(crate) fn of(&self, id: Id) -> Option<String> {
        self.by_id.get(&id).cloned()
    }

    /// The name of the only node at an address.
    pub(super) fn at(&self, ip: IpAddr) -> Option<String> {
        self.by_ip.get(&ip).filter(|name| !name.is_empty()).cloned()
    }

    fn note(&mut self, ip: IpAddr, name: &str) {
        let known = self.by_ip.entry(ip).or_insert_with(|| name.to_owned());
        if known != name {
            known.clear();
        }
    }
}

/// An event, and the names of the nodes that it has ids of.
#[derive(Serialize)]
pub(crate) struct Named<'a, E> {
    #[serde(flatten)]
    event: &'a E,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    names: BTreeMap<String, String>,
}

impl<'a, E: Serialize> Named<'a, E> {
    /// Finds the names. Those of a second ago do, but for a member that nobody knew then. A large group has many such at
    /// once, and to read all names for each would take long: there the first events of a member have no name.
    pub(crate) async fn new(api: &Api, event: &'a E, is_of_member: bool) -> Self {
        let value = serde_json::to_value(event).unwrap_or_default();
        let (recent, mut names) = (Names::recent(api).await, BTreeMap::new());
        recent.within(&value, &mut names);
        if names.is_empty() && is_of_member && recent.by_id.len() < READ_MAX {
            Names::read(api).await.within(&value, &mut names);
        }
        Self { event, names }
    }
}

/// The first part of the address book; more nodes than that have no names on one page.
async fn book(api: &Api) -> Vec<w3w::BookEntry> {
    let command = PartCommand::Mesh(w3w::Command::Book { from: None });
    match api.node.command(Command { service: services::MESH, command }).await {
        Ok(Reply::Mesh(w3w::Reply::Book(entries))) => entries,
        _ => Vec::new(),
    }
}
