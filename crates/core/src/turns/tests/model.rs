//! A random model of granting, renewing and releasing. It has three voters, two or three askers, loss, duplicates,
//! delays up to 25 s, crashes, stops in good order, stalled askers, and drift of ±10 %. Turns never overlap and fences
//! rise.

use super::world::{MS, SECOND, World};
use super::*;

const NAME: &str = "model";

struct Client {
    node: usize,
    request: Option<u64>,
    turn: Option<u128>,
    next: u64,
}

/// Runs the model once. Returns the number of turns, or the violation.
pub(super) fn live(seed: u64, drift: f64, fault: Option<Fault>, crashes: bool) -> Result<usize, String> {
    let mut draw = Rng::from_number(seed, 7);
    let askers = 2 + draw.index(2);
    let mut world = World::new(3, askers, seed, |_, config| config.fault = fault);
    for node in 0..3 + askers {
        let extreme = seed.is_multiple_of(2);
        let rate = if extreme { [-1.0, 1.0][draw.index(2)] } else { draw.unit() * 2.0 - 1.0 };
        // A clock that changes its rate here also jumps, but it must not go back.
        world.set_rate(node, 1.0 + drift * rate);
        if world.is_up(node) {
            world.crash(node);
        }
    }
    // Rates are set while no node runs: a clock must not jump while its process runs.
    (0..3 + askers).for_each(|node| world.start(node));
    world.run(12 * SECOND);
    world.told.clear();
    (world.loss, world.duplicates, world.wild) = (0.12, 0.15, true);
    let begin = world.now;
    let mut faults: Vec<(u64, u64)> = Vec::new();
    if crashes {
        faults.extend((0..draw.index(7)).map(|_| (begin + draw.below(60 * SECOND), draw.below(10))));
    }
    faults.extend((0..draw.index(5)).map(|_| (begin + draw.below(60 * SECOND), 10 + draw.below(4))));
    faults.sort_unstable();
    faults.reverse();
    let mut starts: Vec<(u64, usize)> = Vec::new();
    let mut clients: Vec<Client> =
        (3..3 + askers).map(|node| Client { node, request: None, turn: None, next: begin }).collect();
    let mut turns = 0;
    while world.now < begin + 70 * SECOND {
        if !world.step(world.now + 20 * MS) {
            world.run(20 * MS);
        }
        while let Some((_, what)) = faults.pop_if(|(at, _)| *at <= world.now) {
            strike(&mut world, what, askers, &mut draw, &mut starts);
        }
        starts.retain(|(at, node)| {
            if *at > world.now {
                return true;
            }
            world.start(*node);
            false
        });
        for client in &mut clients {
            act(&mut world, client, &mut draw, &mut turns);
        }
        check(&world)?;
    }
    Ok(turns)
}

fn strike(world: &mut World, what: u64, askers: usize, draw: &mut Rng, starts: &mut Vec<(u64, usize)>) {
    let voter = draw.index(3);
    if what >= 10 {
        let by = [SECOND / 2, 3 * SECOND, 9 * SECOND, 15 * SECOND][(what - 10) as usize];
        world.stall(3 + draw.index(askers), by);
    } else if world.is_up(voter) {
        if what < 4 {
            world.stop(voter);
        } else {
            world.crash(voter);
        }
        starts.push((world.now + draw.between(10 * MS, 4 * SECOND), voter));
    }
}

fn act(world: &mut World, client: &mut Client, draw: &mut Rng, turns: &mut usize) {
    if world.now < client.next {
        return;
    }
    client.next = world.now + 10 * MS;
    match (client.turn, client.request) {
        (None, None) => {
            let turn = draw.next_u128();
            client.request = Some(world.lock(client.node, NAME, turn, Duration::from_secs(30)));
            client.turn = Some(turn);
        }
        (Some(turn), Some(request)) => match world.replies.get(&request) {
            Some(Reply::Granted(_)) => {
                *turns += 1;
                client.request = None;
                client.next = world.now + [300 * MS, 2 * SECOND, 8 * SECOND, 20 * SECOND][draw.index(4)];
                client.turn = Some(turn);
            }
            Some(_) => (client.request, client.turn) = (None, None),
            None => {}
        },
        (Some(turn), None) => {
            world.command(client.node, Command::Release(TurnId(turn)));
            client.turn = None;
            client.next = world.now + draw.between(10 * MS, 2 * SECOND);
        }
        (None, Some(_)) => client.request = None,
    }
}

fn check(world: &World) -> Result<(), String> {
    let holders = world.holders(NAME);
    if holders.len() > 1 {
        return Err(format!("X at {}: {holders:?}", world.now));
    }
    let mut last = 0;
    for told in &world.told {
        if let Event::TurnGranted { fence, .. } = told.event {
            if fence <= last {
                return Err(format!("F at {}: {fence} after {last}", told.at));
            }
            last = fence;
        }
    }
    Ok(())
}

#[test]
fn turns_do_not_overlap_and_fences_rise_in_a_random_world() {
    let mut turns = 0;
    for seed in 0..120 {
        turns += live(seed, 0.1, None, true).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    assert!(turns > 240, "{turns} turns are too few to show anything");
}

#[test]
#[ignore = "the long form of the random model: minutes"]
fn the_random_model_at_length() {
    let runs = 20_000;
    let turns: usize = (0..runs)
        .map(|seed| live(seed, 0.1, None, true).unwrap_or_else(|error| panic!("seed {seed}: {error}")))
        .sum();
    assert!(turns > 0);
}
