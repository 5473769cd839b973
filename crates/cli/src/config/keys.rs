//! All configuration keys, section by section. `agent/services.rs` reads them.

use super::key::{Key, Kind};

/// The services an agent can run, in the order of their tags.
pub(crate) const SERVICES: &[&str] = &["members", "token", "route", "mesh"];

const ANY: u64 = u64::MAX;

/// All keys.
#[rustfmt::skip]
pub(crate) const KEYS: &[Key] = &[
    key("node.name", Kind::Text, "", "The name of this node; the host name if not set."),
    key("node.bind", Kind::Ip, "127.0.0.1", "The IP address that all services bind to and announce."),
    key("node.data_dir", Kind::Text, "", "The directory for identity and state; without it the node gets a new identity at every start."),
    key("node.services", Kind::Choices(SERVICES), "members,token,route,mesh", "The services to run; without mesh if node.bind is an IPv6 address and this is not set."),
    key("node.join", Kind::Addrs, "", "Members to join through, as IP:PORT; one that answers is enough."),
    key("node.tags", Kind::Tags, "", "Tags that this node publishes to all members, as KEY=VALUE."),
    key("http.addr", Kind::Addr, "", "The address of the HTTP API; port 7373 of the bind address if that is loopback, else of 127.0.0.1."),
    key("http.token", Kind::Secret, "", "The bearer token that every request must carry; required beyond loopback."),
    key("http.body_bytes_max", Kind::Number(1024, 1 << 30), "1048576", "The largest request body in bytes; bodies with a message of route or mesh may be as long as the message limit."),
    key("http.events_kept", Kind::Number(1, 1_000_000), "1024", "The number of past events that a client can resume from."),
    key("log.format", Kind::Choice(&["text", "json"]), "text", "The format of log lines."),
    key("log.level", Kind::Choice(&["error", "warn", "info", "debug", "trace"]), "info", "The lowest level that is logged."),
    key("members.port", Kind::Number(0, 65_535), "7946", "The UDP port of members."),
    key("members.advertise", Kind::Addrs, "", "The addresses at which other nodes reach members of this node, the best first; the bound address if not set."),
    key("members.preset", Kind::Choice(&["lan", "wan", "local", "go_swim", "original_swim"]), "lan", "The timers and extensions of the protocol; the same on all nodes of a group."),
    key("members.ring", Kind::Text, "annulus", "The name of the group; nodes of other groups are ignored."),
    key("members.interval", Kind::Duration, "", "Time between protocol periods; that of the preset if not set."),
    key("members.probe_timeout", Kind::Duration, "", "The timeout of a direct probe; that of the preset if not set."),
    key("members.suspicion_mult", Kind::Number(1, 1000), "", "The multiplier of the suspicion timeout; that of the preset if not set."),
    key("members.store_interval", Kind::Duration, "5s", "The longest time until a change of the known members is written to disk."),
    key("members.keep_failed", Kind::Duration, "24h", "How long failed and left members are listed."),
    key("members.sorter", Kind::Choice(&["xor", "ring", "chord_finger"]), "xor", "The distance between nodes that defines regions and neighbours."),
    key("members.region_count", Kind::Number(1, 64), "", "Regional buckets of the nodes to probe; that of the preset if not set."),
    key("members.region_probes", Kind::Number(0, 1024), "", "Regional nodes probed per period; that of the preset if not set."),
    key("members.neighbor_count", Kind::Number(0, 65_535), "", "Nodes in the neighbourhood; that of the preset if not set."),
    key("members.neighbor_probes", Kind::Number(0, 1024), "", "Neighbours probed per period; that of the preset if not set."),
    key("members.codec", Kind::Choice(&["compact", "msgpack"]), "compact", "The form of the messages that the agent sends; it receives both."),
    key("members.packet_bytes_max", Kind::Number(768, 32_767), "", "The largest packet; that of the preset if not set."),
    key("token.udp_port", Kind::Number(1, 65_535), "30041", "The UDP port of the whole ring."),
    key("token.tcp_port", Kind::Number(0, 65_535), "0", "The TCP port of this node; 0 is the port of its last run, or any free one."),
    key("token.preset", Kind::Choice(&["lan", "local"]), "lan", "The timers: lan, or local for nodes on one machine."),
    key("token.broadcast", Kind::Ips, "", "The addresses for token requests (TR1); the broadcast address of the bind address's network if not set."),
    key("token.allow", Kind::Networks, "", "Networks whose nodes may join the ring of this one; all if not set."),
    key("token.host_id", Kind::Number(1, (1 << 31) - 1), "", "The number of this node in the ring; drawn once and stored if not set."),
    key("token.renew_timeout", Kind::Duration, "", "The time without the token after which a node requests it (TR1); that of the preset if not set."),
    key("token.pass_timeout", Kind::Duration, "", "The timeout of a pass of the token; that of the preset if not set."),
    key("token.tr_interval", Kind::Duration, "", "The interval between two token requests (TR1); that of the preset if not set."),
    key("token.tr_count", Kind::Number(1, 1000), "", "The number of token requests (TR1) in one attempt; that of the preset if not set."),
    key("token.loose_prob_base", Kind::Number(2, 1_000_000), "", "The mean number of loops between two random drops of the token, by which two rings find each other; that of the preset if not set."),
    key("token.pace", Kind::Duration, "", "The least length of a tenure; that of the preset if not set."),
    key("token.data", Kind::Choice(&["ledger", "opaque"]), "ledger", "The data of the token: ledger (counts, fences, values), or opaque for the bytes of another application, unchanged."),
    key("token.voters", Kind::Hosts, "", "The voters of exclusive turns: 1, 3, 5 or 7 addresses, the same on all nodes. Without them turns are weak."),
    key("turns.port", Kind::Number(1, 65_535), "30042", "The UDP port of exclusive turns."),
    key("turns.lease", Kind::Duration, "10s", "The lease of a turn, used when the group is founded; a crashed holder blocks its name for at most this time."),
    key("route.port", Kind::Number(0, 65_535), "22001", "The TCP and UDP port of route."),
    key("route.advertise", Kind::Addr, "", "The address at which other nodes reach route of this node; the bound address if not set."),
    key("route.seeds", Kind::Addrs, "", "Nodes that run route, to join through; without any this node is the first of its ring."),
    key("route.ring", Kind::Text, "annulus", "The name of the ring; nodes of other names are refused."),
    key("route.apps", Kind::Text, "", "Further applications whose messages this agent keeps, with commas; it always keeps those without a name."),
    key("route.leaf_set_max", Kind::Number(0, 1024), "32", "Nodes of the leaf set, both sides together."),
    key("route.neighbourhood_max", Kind::Number(0, 1024), "32", "Nodes of the neighbourhood set."),
    key("route.network_timeout", Kind::Duration, "3s", "The timeout of a request to another node."),
    key("route.message_timeout", Kind::Duration, "10s", "The deadline of a message: the sender then reports its outcome as unknown."),
    key("route.message_bytes_max", Kind::Number(1 << 16, 1 << 30), "16778240", "The longest message."),
    key("route.leaf_interval", Kind::Duration, "30s", "The interval between probes of the nearest leaves."),
    key("route.table_interval", Kind::Duration, "15m", "The interval between probes of all other known nodes."),
    key("route.messages_kept", Kind::Number(1, 1_000_000), "256", "The most unread messages; senders of further ones get busy and retry. The mailbox keeps as many in all, read ones included."),
    key("mesh.port", Kind::Number(1, 65_535), "22000", "The UDP and TCP port of mesh; the same on all nodes of one network."),
    key("mesh.max", Kind::Number(4, 4096), "32", "The most peers in the ring."),
    key("mesh.min", Kind::Number(0, 4096), "4", "The number of peers below which the node keeps announcing itself; at most mesh.max."),
    key("mesh.seeds", Kind::Ips, "", "IPv4 addresses of nodes to announce to; any one that is up is enough."),
    key("mesh.expiry", Kind::Duration, "7d", "The lifetime of a message, unless its sender sets another."),
    key("mesh.quota", Kind::Number(1 << 20, ANY >> 1), "4294967296", "The most bytes of messages in the store. Messages held for other nodes use at most half of it."),
    key("mesh.allow", Kind::Networks, "", "IPv4 networks of the nodes that this one connects to; all if not set."),
    key("mesh.forward", Kind::Choice(&["nearest", "both"]), "nearest", "The next hops of a message: the nearer ring neighbour of its recipient, or both."),
    key("mesh.announce", Kind::Choice(&["fixed", "incrementing"]), "fixed", "The port that the node announces: mesh.port, or for each known node the next of 64 above it."),
];

const fn key(name: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Key {
    Key { name, kind, default, help }
}
