//! The view of an agent: the group as its one node sees it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Weak};

use annulus::core::swim::Tags;
use serde_json::{Value, json};

use super::{Boxed, Look, Sections, View, detail, edges_of, id_of, mail_of, peers_of};
use crate::agent::Journal;
use crate::agent::http::{Api, Shared, milliseconds};

/// The view of one agent. It does not keep the agent alive.
pub(crate) struct AgentView {
    agent: Weak<Shared>,
}

impl AgentView {
    pub(crate) fn new(agent: Weak<Shared>) -> Self {
        Self { agent }
    }

    fn api(&self) -> Option<Api> {
        self.agent.upgrade().map(Api::from)
    }
}

impl View for AgentView {
    fn sections(&self) -> Boxed<'_, Sections> {
        Box::pin(async {
            let Some(api) = self.api() else { return Sections::new() };
            match Look::into(&api).await {
                Some(look) => sections(&api, &look),
                // A node that does not answer now is shown as it was.
                None => Sections::from([("view", about(&api))]),
            }
        })
    }

    fn node<'a>(&'a self, name: &'a str) -> Boxed<'a, Option<Value>> {
        Box::pin(async move {
            let api = self.api()?;
            let is_own = name == api.name || name == api.identity.id().to_string();
            if !is_own {
                return None;
            }
            Some(Look::into(&api).await.as_ref().map_or(Value::Null, detail))
        })
    }

    fn journal(&self) -> Option<Arc<Journal>> {
        self.api().map(|api| Arc::clone(&api.journal))
    }
}

fn about(api: &Api) -> Value {
    let services: Vec<&str> = api.services.iter().map(|service| service.name).collect();
    json!({
        "kind": "agent", "name": api.name, "id": api.identity.id(), "version": env!("CARGO_PKG_VERSION"),
        "services": services, "controls": false, "started_micros": api.started_micros,
    })
}

fn sections(api: &Api, look: &Look) -> Sections {
    let own = api.identity.id().to_string();
    let counters = &look.counters;
    Sections::from([
        ("view", about(api)),
        ("nodes", nodes(api, look)),
        ("token", token(look)),
        (
            "mesh",
            json!({
                "links": peers_of(look).iter().map(|peer| [&own, peer]).collect::<Vec<_>>(),
                "queues": look.mesh.as_ref().map(|mesh| BTreeMap::from([(
                    &own, json!({ "inbox": mesh.inbox, "outbox": mesh.outbox, "waiting": mesh.waiting }),
                )])),
                "mail": mail_of(&own, look),
            }),
        ),
        (
            "traffic",
            json!({
                "datagrams": counters.datagrams_sent,
                "bytes": counters.datagram_bytes_sent + counters.stream_bytes_sent,
            }),
        ),
    ])
}

/// The members; without the service, those that the other services know.
fn nodes(api: &Api, look: &Look) -> Value {
    if !look.members.is_empty() {
        let shown = look.members.iter().map(|member| {
            let tags = Tags::decode(&member.node.meta).unwrap_or_default();
            json!({
                "id": member.node.id, "name": tags.name, "addr": member.node.addrs.first(), "state": member.state,
                "rtt_ms": member.rtt_micros.map(milliseconds), "tags": tags.tags, "is_self": member.is_self,
            })
        });
        return shown.collect();
    }
    let own = api.identity.id().to_string();
    let mut found: BTreeMap<String, Value> = BTreeMap::new();
    let tables = look.tables.iter();
    let leaves = tables.flat_map(|tables| tables.clockwise.iter().chain(&tables.counter_clockwise));
    for status in leaves {
        found.insert(status.contact.id.to_string(), json!(status.contact.addr));
    }
    for peer in &look.peers {
        found.entry(id_of(peer.nid)).or_insert_with(|| json!(peer.ip));
    }
    found.remove(&own);
    let other = |(id, addr): (&String, &Value)| json!({ "id": id, "name": &id[..8], "addr": addr, "state": "alive", "rtt_ms": null, "tags": {}, "is_self": false });
    let own = json!({ "id": own, "name": api.name, "addr": null, "state": "alive", "rtt_ms": null, "tags": {}, "is_self": true });
    std::iter::once(own).chain(found.iter().map(other)).collect()
}

/// The token as this node knows it; nodes of its ring are found among the members by their addresses.
fn token(look: &Look) -> Value {
    let Some(status) = &look.token else { return Value::Null };
    let by_ip = |ip: IpAddr| {
        let member = look.members.iter().find(|member| member.node.addrs.iter().any(|addr| addr.ip() == ip));
        member.map(|member| member.node.id.to_string())
    };
    let holder = status.holder.and_then(|host| {
        let node = status.nodes.iter().find(|node| node.host_id == host)?;
        by_ip(node.addr.ip())
    });
    let hosts: BTreeMap<String, Option<String>> =
        status.nodes.iter().map(|node| (node.host_id.number().to_string(), by_ip(node.addr.ip()))).collect();
    json!({
        "tokens": [{
            "token_id": status.token_id, "holder": holder, "fence": status.fence, "nodes": status.nodes.len(),
        }],
        "hosts": hosts,
        "waiting": [],
        "loop_ms": status.loop_micros.map(milliseconds),
        "availability": status.availability,
        "edges": edges_of(&look.edges),
    })
}
