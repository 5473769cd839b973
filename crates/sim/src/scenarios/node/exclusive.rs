//! X in whole nodes: valid turns of their agents, by true time (TU-1).

use annulus_core::node::{Node, Part};
use annulus_core::turns::{TurnStatus, Turns};

use super::super::turns::FROZEN_CLOCK;
use super::NAMES;
use crate::host::{HostId, HostState};
use crate::ledger::Ledger;
use crate::observer::{Verdict, Violation};
use crate::sim::Sim;
use core::time::Duration;

/// No two nodes have one valid turn. A paused process does nothing; its turn is checked by its clock when it runs
/// again. One of the two may keep its turn because its clock stopped (TU-4).
pub(super) fn check(sim: &Sim<Node>, ledger: &mut Ledger) -> Verdict {
    for name in NAMES {
        let holders: Vec<(HostId, u64)> = sim
            .machines()
            .filter(|(host, _)| sim.state(*host) != HostState::Asleep)
            .filter_map(|(host, node)| Some((host, fence(sim, host, turns(node)?, name)?)))
            .collect();
        if holders.len() > 1 {
            let mut hosts = holders.iter().map(|(host, _)| *host);
            let excused = hosts.any(|host| ledger.excuse(sim, &FROZEN_CLOCK, host, Duration::ZERO).is_ok());
            let text =
                format!("X: these hosts have the turn {name:?} at once, with their fences: {holders:?}");
            return if excused { Ok(()) } else { Err(Violation::new(text)) };
        }
    }
    Ok(())
}

/// The fence of the turn that is valid at a node now.
fn fence(sim: &Sim<Node>, host: HostId, turns: &Turns, name: &str) -> Option<u64> {
    let turns = turns.status(sim.clock(host).mono).turns;
    let is_valid = |turn: &&TurnStatus| turn.name == name && turn.left_micros > 0;
    turns.iter().filter(is_valid).find_map(|turn| turn.fence)
}

fn turns(node: &Node) -> Option<&Turns> {
    node.parts().iter().find_map(|(_, part)| match part {
        Part::Turns(turns) => Some(&**turns),
        _ => None,
    })
}
