//! One file per target; [`TARGETS`] is the list of them.

mod id_parse;
mod members_datagram;
mod members_life;
mod mesh_datagram;
mod mesh_life;
mod mesh_stream;
mod ping_datagram;
mod ping_life;
mod ping_stream;
mod route_life;
mod route_message;
mod route_stream;
mod token_datagram;
mod token_frame;
mod token_life;
mod token_stream;
mod turns_datagram;
mod wire_reader;

/// A function to feed with bytes.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name for `fuzz/run` and the folder of its corpus.
    pub name: &'static str,
    /// Panics if the bytes break a promise.
    pub run: fn(&[u8]),
}

/// All targets, by name.
pub const TARGETS: &[Target] = &[
    Target { name: "id_parse", run: id_parse::run },
    Target { name: "members_datagram", run: members_datagram::run },
    Target { name: "members_life", run: members_life::run },
    Target { name: "mesh_datagram", run: mesh_datagram::run },
    Target { name: "mesh_life", run: mesh_life::run },
    Target { name: "mesh_stream", run: mesh_stream::run },
    Target { name: "node_life", run: ping_life::run_node },
    Target { name: "ping_datagram", run: ping_datagram::run },
    Target { name: "ping_life", run: ping_life::run },
    Target { name: "ping_stream", run: ping_stream::run },
    Target { name: "route_life", run: route_life::run },
    Target { name: "route_message", run: route_message::run },
    Target { name: "route_stream", run: route_stream::run },
    Target { name: "token_datagram", run: token_datagram::run },
    Target { name: "token_frame", run: token_frame::run },
    Target { name: "token_life", run: token_life::run },
    Target { name: "token_stream", run: token_stream::run },
    Target { name: "turns_datagram", run: turns_datagram::run },
    Target { name: "wire_reader", run: wire_reader::run },
];
