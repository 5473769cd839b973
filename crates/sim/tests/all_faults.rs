//! Every scenario under all faults (FA-23): a slice of each swarm with the fault model v2, in every test.
//!
//! ```sh
//! SEEDS=1000 FIRST=1 cargo test --release -p annulus-sim --test all_faults -- --ignored --nocapture
//! ```

#![expect(clippy::print_stdout, reason = "a campaign is for people")]

use annulus_core::swim::Preset;
use annulus_sim::scenarios::members::MembersScenario;
use annulus_sim::scenarios::mesh::MeshScenario;
use annulus_sim::scenarios::node::NodeScenario;
use annulus_sim::scenarios::ping::PingScenario;
use annulus_sim::scenarios::route::RouteScenario;
use annulus_sim::scenarios::token::{self, TokenScenario};
use annulus_sim::scenarios::turns::TurnsScenario;
use annulus_sim::{Books, Conditions, EXCUSES, FaultModel, FaultPlan, Report, Scenario, run_many};

/// Conditions of which only the fault model counts: the seed draws the rest.
fn all_faults() -> Conditions {
    let faults = FaultPlan { model: FaultModel::V2, ..FaultPlan::default() };
    Conditions { faults, ..Conditions::default() }
}

/// Runs seeds and returns their violations.
fn campaign<S: Scenario>(scenario: &S, seeds: u64) -> Vec<String> {
    let (mut books, mut wrong) = (Books::default(), Vec::new());
    let take = |report: Report| {
        books.add(&report);
        if let Some(text) = &report.violation {
            wrong.push(format!("{} seed {}: {text}", report.scenario, report.seed));
        }
    };
    let first = std::env::var("FIRST").ok().and_then(|first| first.parse().ok()).unwrap_or(1);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    run_many(scenario, first, seeds, threads, take);
    let failed = wrong.len();
    wrong.extend(books.complaints(scenario.name(), EXCUSES));
    let entries = books.entries();
    println!("{}: {failed} of {seeds} seeds failed", scenario.name());
    for (name, used) in &entries.excuses {
        println!("  excuse {name}: {used:?}");
    }
    for (name, kept) in &entries.promises {
        println!("  promise {name}: {kept:?}");
    }
    let exercised: Vec<String> =
        entries.exercised.iter().map(|(name, met)| format!("{name} {met:.2}")).collect();
    println!("  exercised {}", exercised.join(", "));
    wrong
}

fn ping() -> PingScenario {
    PingScenario { nodes: 8, seconds: 60, conditions: all_faults(), swarm: true, ..PingScenario::default() }
}

fn members() -> MembersScenario {
    MembersScenario {
        nodes: 16,
        seconds: 60,
        preset: Preset::Lan,
        conditions: all_faults(),
        swarm: true,
        broken: None,
    }
}

fn route() -> RouteScenario {
    RouteScenario {
        nodes: 12,
        seconds: 60,
        leaf_set_max: 8,
        neighbourhood_max: 8,
        conditions: all_faults(),
        swarm: true,
        broken: None,
    }
}

fn token() -> TokenScenario {
    TokenScenario {
        nodes: 6,
        seconds: 60,
        preset: token::Preset::Local,
        conditions: all_faults(),
        swarm: true,
        ..TokenScenario::default()
    }
}

fn mesh() -> MeshScenario {
    MeshScenario {
        nodes: 10,
        messages: 40,
        settle_seconds: 10,
        conditions: all_faults(),
        swarm: true,
        ..MeshScenario::default()
    }
}

fn node() -> NodeScenario {
    NodeScenario { nodes: 6, seconds: 40, swarm: true, ..NodeScenario::default() }
}

fn turns() -> TurnsScenario {
    TurnsScenario { seconds: 60, conditions: all_faults(), swarm: true, ..TurnsScenario::default() }
}

fn holds<S: Scenario>(scenario: &S, seeds: u64) {
    let wrong = campaign(scenario, seeds);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn fa_23_ping_holds_under_all_faults() {
    holds(&ping(), 40);
}

#[test]
fn fa_23_members_hold_under_all_faults() {
    holds(&members(), 20);
}

#[test]
fn fa_23_route_holds_under_all_faults() {
    holds(&route(), 20);
}

#[test]
fn fa_23_token_holds_under_all_faults() {
    holds(&token(), 20);
}

#[test]
fn fa_23_mesh_holds_under_all_faults() {
    holds(&mesh(), 10);
}

#[test]
fn fa_23_turns_hold_under_all_faults() {
    holds(&turns(), 20);
}

#[test]
#[ignore = "a campaign: SEEDS of each scenario, or of the one that SCENARIO names"]
fn fa_23_campaign() {
    let seeds = std::env::var("SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(100);
    let only = std::env::var("SCENARIO").ok();
    let is_on = |name: &str| only.as_deref().is_none_or(|only| only == name);
    let mut wrong = Vec::new();
    for (name, run) in [
        ("ping", &(|| campaign(&ping(), seeds)) as &dyn Fn() -> Vec<String>),
        ("members", &|| campaign(&members(), seeds)),
        ("route", &|| campaign(&route(), seeds)),
        ("token", &|| campaign(&token(), seeds)),
        ("mesh", &|| campaign(&mesh(), seeds)),
        ("node", &|| campaign(&node(), seeds)),
        ("turns", &|| campaign(&turns(), seeds)),
    ] {
        if is_on(name) {
            wrong.extend(run());
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
