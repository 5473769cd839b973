//! The view of the demo: all nodes at once, each as it is and as the others see it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use annulus::core::jitterbug::StateName;
use annulus::core::node::{Command, PartCommand, Reply};
use annulus::core::swim::{State, Tags};
use annulus::core::{Id, pastry};
use serde_json::{Value, json};

use super::cluster::{Cluster, lock};
use super::member::Member;
use crate::agent::Journal;
use crate::agent::http::milliseconds;
use crate::agent::services;
use crate::page::{Boxed, Look, Sections, View, detail, edges_of, mail_of, peers_of};

/// The key whose owner is shown all the time.
const PROBE: &str = "users/42";
/// How long the owner of it may take to be found.
const PROBE_TIMEOUT: Duration = Duration::from_millis(250);
/// The most mail that is shown.
const MAIL_MAX: usize = 40;

/// The view of the demo.
pub(super) struct DemoView {
    pub(super) cluster: Arc<Cluster>,
}

/// A node and its answer, if it answered.
type Seen<'a> = (&'a Member, Option<Look>);

impl View for DemoView {
    fn sections(&self) -> Boxed<'_, Sections> {
        Box::pin(async {
            let looks = self.cluster.members.iter().map(async |member| {
                let look = match member.awake() {
                    Some(api) => Look::into(&api).await,
                    None => None,
                };
                (member, look)
            });
            let seen: Vec<Seen<'_>> = futures_util::future::join_all(looks).await;
            let probe = probe(&self.cluster).await;
            Sections::from([
                ("view", about(&self.cluster)),
                ("nodes", nodes(&self.cluster, &seen)),
                ("route", json!({ "probe": probe, "ring": neighbours(&self.cluster, &seen) })),
                ("token", token(&self.cluster, &seen)),
                ("mesh", mesh(&seen)),
                ("traffic", traffic(&seen)),
            ])
        })
    }

    fn node<'a>(&'a self, name: &'a str) -> Boxed<'a, Option<Value>> {
        Box::pin(async move {
            let Some(api) = self.cluster.member(name).ok()?.awake() else { return Some(Value::Null) };
            Some(Look::into(&api).await.as_ref().map_or(Value::Null, detail))
        })
    }

    fn journal(&self) -> Option<Arc<Journal>> {
        Some(Arc::clone(&self.cluster.journal))
    }
}

/// All sections of the view, as they are now.
pub(super) async fn sections(cluster: &Arc<Cluster>) -> Sections {
    DemoView { cluster: Arc::clone(cluster) }.sections().await
}

fn about(cluster: &Cluster) -> Value {
    let first = &cluster.members[0];
    json!({
        "kind": "demo", "name": first.name, "id": first.id, "version": env!("CARGO_PKG_VERSION"),
        "services": ["members", "route", "token", "mesh"], "controls": true, "is_cut": cluster.is_cut(),
        "started_micros": cluster.started_micros,
    })
}

/// Every node with its true state and with the state that most others on its side of a cut see.
fn nodes(cluster: &Cluster, seen: &[Seen<'_>]) -> Value {
    let node = |member: &Member| {
        let side = cluster.side_of(member);
        let (mut all, mut own, mut rtts, mut tags) = ([0; 4], [0; 4], Vec::new(), None);
        for (other, look) in seen.iter().filter(|(other, _)| other.id != member.id) {
            let members = look.iter().flat_map(|look| &look.members);
            for status in members.filter(|status| status.node.id.to_string() == member.id) {
                let column = match status.state {
                    State::Alive => 0,
                    State::Suspect => 1,
                    State::Dead => 2,
                    State::Left => 3,
                };
                all[column] += 1;
                own[column] += u32::from(cluster.side_of(other) == side);
                rtts.extend(status.rtt_micros);
                tags = tags.or_else(|| Tags::decode(&status.node.meta).ok());
            }
        }
        rtts.sort_unstable();
        let is_up = member.api().is_some();
        let counts = if own.iter().sum::<u32>() > 0 { own } else { all };
        json!({
            "id": member.id, "name": member.name, "addr": member.ip, "state": most(counts), "up": is_up,
            "suspended": is_up && member.awake().is_none(), "side": side,
            "seen": { "alive": all[0], "suspect": all[1], "dead": all[2] + all[3] },
            "rtt_ms": rtts.get(rtts.len() / 2).map(|micros| milliseconds(*micros)),
            "tags": tags.map(|tags| tags.tags).unwrap_or_default(), "is_self": member.id == cluster.members[0].id,
        })
    };
    cluster.members.iter().map(node).collect()
}

/// The most frequent state; a node that no other lists is alive.
fn most(counts: [u32; 4]) -> State {
    let states = [State::Alive, State::Suspect, State::Dead, State::Left];
    let best = (0..4).rev().max_by_key(|column| counts[*column]).unwrap_or(0);
    states[best]
}

/// How many of the running nodes have the right nodes beside them, on their side of a cut: all, when the ring is repaired.
fn neighbours(cluster: &Cluster, seen: &[Seen<'_>]) -> Value {
    let running: Vec<(&str, u8, &pastry::Tables)> = seen
        .iter()
        .filter_map(|(member, look)| {
            Some((member.id.as_str(), cluster.side_of(member), look.as_ref()?.tables.as_deref()?))
        })
        .collect();
    let right = running.iter().filter(|(id, side, tables)| {
        // Members are in the order of their ids.
        let others =
            running.iter().filter(|(other, of, _)| of == side && other != id).map(|(other, ..)| *other);
        let (below, above): (Vec<&str>, Vec<&str>) = others.partition(|other| other < id);
        let next = above.first().or(below.first()).copied();
        let previous = below.last().or(above.last()).copied();
        let nearest = |leaves: &[pastry::PeerStatus]| leaves.first().map(|leaf| leaf.contact.id.to_string());
        tables.active
            && nearest(&tables.clockwise).as_deref() == next
            && nearest(&tables.counter_clockwise).as_deref() == previous
    });
    json!({ "right": right.count(), "of": running.len() })
}

/// All tokens: one, or two while the network is cut.
fn token(cluster: &Cluster, seen: &[Seen<'_>]) -> Value {
    let mut tokens: BTreeMap<String, Value> = BTreeMap::new();
    let (mut hosts, mut edges) = (BTreeMap::new(), BTreeSet::new());
    let (mut loop_micros, mut availability) = (None, 0.0f64);
    for (member, look) in seen {
        let Some(look) = look else { continue };
        edges.extend(look.edges.iter().copied());
        let Some(status) = &look.token else { continue };
        hosts.insert(status.host_id.number(), member.id.clone());
        loop_micros = loop_micros.max(status.loop_micros);
        availability = availability.max(status.availability);
        let entry = tokens.entry(format!("{:?}", status.token_id)).or_insert_with(|| {
            json!({ "token_id": status.token_id, "holder": null, "fence": null, "nodes": 0, "known_by": 0 })
        });
        entry["known_by"] = (entry["known_by"].as_u64().unwrap_or(0) + 1).into();
        if status.state == StateName::Leader {
            entry["holder"] = member.id.clone().into();
            entry["nodes"] = status.nodes.len().into();
        }
        let fence = entry["fence"].as_u64().max(status.fence);
        entry["fence"] = fence.into();
    }
    let edges: Vec<_> = edges.into_iter().collect();
    let mut known = lock(&cluster.token_hosts);
    known.retain(|host, _| edges.iter().any(|edge| edge.host == *host));
    known.extend(hosts);
    json!({
        "tokens": tokens.into_values().collect::<Vec<_>>(),
        "hosts": *known,
        "waiting": *lock(&cluster.waiting),
        "loop_ms": loop_micros.map(milliseconds),
        "availability": availability,
        "edges": edges_of(&edges),
    })
}

fn mesh(seen: &[Seen<'_>]) -> Value {
    let (mut links, mut queues, mut mail) = (BTreeSet::new(), BTreeMap::new(), Vec::new());
    for (member, look) in seen {
        let Some(look) = look else { continue };
        for peer in peers_of(look) {
            let own = member.id.clone();
            links.insert(if own < peer { [own, peer] } else { [peer, own] });
        }
        if let Some(mesh) = &look.mesh {
            let queue = json!({ "inbox": mesh.inbox, "outbox": mesh.outbox, "waiting": mesh.waiting });
            queues.insert(&member.id, queue);
        }
        mail.extend(mail_of(&member.id, look));
    }
    mail.sort_by_key(|line| std::cmp::Reverse(line["sent_at"].as_u64()));
    mail.truncate(MAIL_MAX);
    json!({ "links": links, "queues": queues, "mail": mail })
}

fn traffic(seen: &[Seen<'_>]) -> Value {
    let per_node = seen.iter().filter_map(|(member, look)| {
        let counters = &look.as_ref()?.counters;
        let bytes = counters.datagram_bytes_sent + counters.stream_bytes_sent;
        Some((&member.id, json!([counters.datagrams_sent, bytes])))
    });
    json!({ "nodes": per_node.collect::<BTreeMap<_, _>>() })
}

/// The owner of one key, as each side of a cut finds it.
async fn probe(cluster: &Cluster) -> Value {
    let key = Id::from_text(PROBE);
    let mut owners = Vec::new();
    for side in [0, 1] {
        let mut nodes = cluster.members.iter().filter(|member| cluster.side_of(member) == side);
        let Some(api) = nodes.find_map(Member::awake) else { continue };
        let command =
            Command { service: services::ROUTE, command: PartCommand::Route(pastry::Command::Trace { key }) };
        let asked = tokio::time::timeout(PROBE_TIMEOUT, api.node.command(command)).await;
        if let Ok(Ok(Reply::Route(pastry::Reply::Path(path)))) = asked {
            owners.extend(path.last().map(|step| json!({ "side": side, "owner": step.contact.id })));
        }
    }
    json!({ "text": PROBE, "key": key, "owners": owners })
}
