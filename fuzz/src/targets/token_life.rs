//! The life of one node of the token ring: see `world` for the checks.

use core::cell::RefCell;
use core::time::Duration;
use std::collections::BTreeSet;
use std::net::IpAddr;

use annulus_core::RequestId;
use annulus_core::jitterbug::{
    self, Command, Config, Document, Event, HostId, Jitterbug, Ledger, Message, Raw, Set, StateName,
};
use annulus_core::wire::{DecodeError, Reader, Writer};

use crate::world::{self, Subject, peer};

/// The port of the ring.
pub(super) const PORT: u16 = 30_041;

pub(super) fn run(bytes: &[u8]) {
    world::live(Life::default(), bytes);
}

/// Short timers and small limits, so that a short input reaches them.
pub(super) fn config(choice: u8) -> Config {
    Config {
        addr: IpAddr::from([127, 0, 0, 1]),
        udp_port: PORT,
        tcp_port: 4001,
        broadcast: vec![IpAddr::from([127, 255, 255, 255])],
        host_id: if choice & 1 == 0 { HostId::new(11) } else { None },
        renew_timeout: Duration::from_secs(2),
        pass_timeout: Duration::from_millis(100),
        tr_interval: Duration::from_millis(400),
        tr_count: 1 + u32::from(choice >> 6 & 1),
        loose_prob_base: if choice & 2 == 0 { 1e12 } else { 8.0 },
        pace: Duration::from_millis(if choice & 4 == 0 { 50 } else { 0 }),
        nodes_expected: 3,
        hold_max: Duration::from_millis(100),
        add_set_max: 3,
        streams_max: 3,
        data_bytes_max: 2048,
        tr1_per_second_max: 4,
        restore_together: choice & 8 != 0,
        ..Config::local()
    }
}

/// More holds than this in one run would only wait for each other.
const HOLDS_MAX: u32 = 6;

#[derive(Default)]
struct Life {
    holds: u32,
    /// The token was passed in this step.
    passed: bool,
    /// The list at the end of the last tenure.
    list: RefCell<BTreeSet<HostId>>,
}

impl Subject for Life {
    type M = Jitterbug<Ledger>;
    const SETTLED: Duration = Duration::from_secs(20);

    fn machine(&mut self, input: &mut Reader<'_>) -> Result<Self::M, DecodeError> {
        let choice = input.u8()?;
        Ok(Jitterbug::new(&config(choice), Ledger::new(), [choice; 32]).expect("these settings go together"))
    }

    fn command(&mut self, input: &mut Reader<'_>) -> Result<Command<Set>, DecodeError> {
        let (kind, byte) = (input.u8()?, input.u8()?);
        Ok(match kind % 8 {
            0 => Command::Status,
            1 => Command::Data,
            2 => Command::Log,
            3 => {
                let value = Raw::from(u64::from(byte));
                let change = Set { key: format!("key {}", byte % 8), value };
                Command::Change { change, wait: Duration::from_millis(u64::from(byte) * 20) }
            }
            4 if self.holds < HOLDS_MAX => {
                self.holds += 1;
                Command::Hold { limit: Duration::from_millis(u64::from(byte)) }
            }
            5 => Command::Ask((0..byte).map(|last| IpAddr::from([127, 0, 1, last])).collect()),
            6 => Command::Computed { ask: u64::from(byte), result: None },
            _ => Command::Release { hold: RequestId(u64::from(byte)) },
        })
    }

    /// A TR1 is denied or not, an offer is accepted, and a request for a list or a token is answered with it.
    fn answer(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let kind = bytes.first()?;
        let token = |list: &[u8]| {
            let mut document = Document::default();
            document.raise(12, 3);
            [list, &[0x61], &document.to_data()].concat()
        };
        match kind {
            0x01 => Some(vec![0x11, bytes[1], bytes[2], bytes[3], bytes[4].wrapping_add(1)]),
            0x21 => Some(vec![if bytes[8] & 1 == 0 { 0x31 } else { 0x41 }]),
            0x31 => {
                let node = jitterbug::NodeEntry::new(HostId::new(12)?, peer(0).ip(), 4001);
                let mut list = Vec::new();
                jitterbug::encode(&Message::Tp4 { nodes: vec![node] }, &mut Writer::new(&mut list, 64));
                Some(token(&list))
            }
            0x41 => Some(token(&[])),
            _ => None,
        }
    }

    fn on_event(&mut self, event: &Event) {
        self.passed |= matches!(event, Event::TokenPassed { .. });
    }

    fn check(&self, machine: &Self::M) {
        assert!(machine.data().len() <= 2048, "data is bounded");
        assert!(!machine.is_passing() || machine.state_name() == StateName::Leader, "only a leader passes");
        if self.passed {
            let list: BTreeSet<HostId> = machine.list().nodes().iter().map(|node| node.host_id).collect();
            if machine.state_name() == StateName::Waiter {
                let before = self.list.replace(list.clone());
                assert!(before.is_subset(&list), "a node left the list: {before:?} became {list:?}");
            }
        }
    }

    fn forget_counters(&self, machine: &mut Self::M) {
        machine.forget_counters();
    }
}
