//! One datagram to a node of the mesh that has a peer: decoding, and the reaction of the machine.

use annulus_core::contract::Rig;
use annulus_core::w3w::{Mesh, UDP, decode_here, encode_here};
use annulus_core::wire::Writer;

use super::mesh_life::{connected, mesh};
use crate::world::peer;

pub(super) fn run(bytes: &[u8]) {
    let Some((&choice, datagram)) = bytes.split_first() else { return };
    thread_local! {
        static CONNECTED: Rig<Mesh> = connected(mesh(7));
    }
    let mut rig = CONNECTED.with(Clone::clone);
    if let Ok(here) = decode_here(datagram) {
        let mut encoded = Vec::new();
        encode_here(&here, &mut Writer::new(&mut encoded, 128));
        let text = datagram.strip_suffix(b"\n").unwrap_or(datagram);
        assert_eq!(encoded, text, "what is decoded encodes to the same bytes");
    }
    let before = rig.clone();
    if rig.datagram(UDP, peer(choice), datagram).is_err() {
        assert!(rig.log.is_empty(), "refused, yet it did {:?}", rig.log);
        assert_eq!(rig.counted(), before.counted() + 1, "a refusal is counted once");
        let mut machines = [rig.machine, before.machine];
        machines.iter_mut().for_each(Mesh::forget_counters);
        assert_eq!(machines[0], machines[1], "refused, yet something changed besides counters");
    }
}
