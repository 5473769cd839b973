//! A node of another application in the ring: it writes its data as an object stream without a length, up to the FIN.

use core::time::Duration;
use std::collections::BTreeMap;

use annulus_core::RequestId;
use annulus_core::jitterbug::{
    Answer, Application, Config, Event, HostId as TokenHost, Jitterbug, Ledger, Next, Opaque, Reply, Set,
    Shipped, TenureInfo,
};

use super::{Preset, TokenScenario};
use crate::fault::Fault;
use crate::host::{HostId, HostSpec};
use crate::observer::{Observer, Verdict};
use crate::sim::Sim;

const SECOND: Duration = Duration::from_secs(1);
/// How an object stream begins.
const MAGIC: &[u8] = b"\xac\xed\x00\x05";
/// The foreign node.
const FOREIGN: u32 = 3;

/// An application of one of the two kinds.
#[expect(clippy::large_enum_variant, reason = "a test has four of them")]
enum App {
    Ours(Shipped),
    /// Its tenures, the data as it last passed it on, and whether it replaces data that it cannot read.
    Theirs {
        tenures: u64,
        passed: Vec<u8>,
        replaces: bool,
    },
}

impl Application for App {
    type Change = Set;

    fn start(&mut self, host_id: TokenHost, kept: Option<&[u8]>) {
        if let Self::Ours(app) = self {
            app.start(host_id, kept);
        }
    }

    fn initial(&mut self) -> Vec<u8> {
        match self {
            Self::Ours(app) => app.initial(),
            Self::Theirs { .. } => MAGIC.to_vec(),
        }
    }

    fn accepts(&mut self, data: &[u8]) -> bool {
        match self {
            Self::Ours(app) => app.accepts(data),
            Self::Theirs { replaces: true, .. } => true,
            Self::Theirs { passed, .. } => {
                assert!(passed.is_empty() || data != MAGIC, "its data came back empty");
                data.starts_with(MAGIC) && (passed.is_empty() || data == *passed)
            }
        }
    }

    fn is_foreign(&self, data: &[u8]) -> bool {
        matches!(self, Self::Ours(app) if app.is_foreign(data))
    }

    fn next(&mut self, tenure: &TenureInfo, data: &[u8]) -> Answer<Next> {
        match self {
            Self::Ours(app) => app.next(tenure, data),
            Self::Theirs { tenures, passed, .. } => {
                *tenures += 1;
                *passed = [MAGIC, &tenures.to_le_bytes(), &[0xff, 0, b'{'].repeat(*tenures as usize % 700)]
                    .concat();
                Answer::Now(Next { data: passed.clone(), fence: None, keep: None })
            }
        }
    }

    fn merge(&mut self, own: &[u8], received: &[u8]) -> Answer<Vec<u8>> {
        match self {
            Self::Ours(app) => app.merge(own, received),
            Self::Theirs { .. } => Answer::Now(received.to_vec()),
        }
    }

    fn used(&mut self) -> u64 {
        if let Self::Ours(app) = self { app.used() } else { 0 }
    }

    fn same(&self, one: &[u8], other: &[u8]) -> bool {
        if let Self::Ours(app) = self { app.same(one, other) } else { one == other }
    }

    fn change(&mut self, _: Set) -> Result<u64, &'static str> {
        Err("nothing is changed here")
    }

    fn tenures_of(&self, host: TokenHost) -> Option<u64> {
        if let Self::Ours(app) = self { app.tenures_of(host) } else { None }
    }

    fn last_will(&self, data: &[u8]) -> Option<Vec<u8>> {
        if let Self::Ours(app) = self { app.last_will(data) } else { None }
    }
}

type Node = Jitterbug<App>;

/// Counts tenures by host, and records which nodes were left out or refused, and when.
#[derive(Default)]
struct Watch {
    tenures: BTreeMap<HostId, u32>,
    left_out: Vec<(Duration, u32)>,
    refused: u32,
}

impl Observer<Node> for Watch {
    fn on_event(&mut self, sim: &Sim<Node>, host: HostId, event: &Event) -> Verdict {
        match event {
            Event::TokenTaken { .. } => *self.tenures.entry(host).or_default() += 1,
            Event::NodeLeftOut { host_id, .. } => self.left_out.push((sim.elapsed(), host_id.number())),
            Event::TokenRefused { .. } => self.refused += 1,
            _ => {}
        }
        Ok(())
    }

    fn on_reply(&mut self, _: &Sim<Node>, _: HostId, _: RequestId, _: &Reply) -> Verdict {
        Ok(())
    }
}

/// Three agents with this data, and a foreign node that is still off.
fn world(seed: u64, ours: fn() -> Shipped, replaces: bool) -> Sim<Node> {
    let config =
        TokenScenario { preset: Preset::Lan, base: Some(1e12), ..TokenScenario::default() }.config(4);
    let mut sim = Sim::new(seed, crate::config::Config::default(), move |birth| {
        let number = birth.host.index() as u32;
        let own = Config { addr: birth.address, host_id: TokenHost::new(number + 1), ..config.clone() };
        let theirs = || App::Theirs { tenures: 0, passed: Vec::new(), replaces };
        let app = if number == FOREIGN { theirs() } else { App::Ours(ours()) };
        Jitterbug::new(&own, app, birth.seed).expect("the presets go together")
    });
    for number in 0..=FOREIGN {
        sim.add_host_with(HostSpec { off: number == FOREIGN, ..HostSpec::default() });
    }
    sim
}

/// The tenures of our nodes and of the foreign one within this time.
fn tenures(sim: &mut Sim<Node>, during: Duration) -> (u32, u32, Watch) {
    let mut watch = Watch::default();
    sim.run_for(during, &mut watch).expect("nothing is violated");
    let of = |host| watch.tenures.get(&HostId::new(host)).copied().unwrap_or(0);
    ((0..FOREIGN).map(of).sum(), of(FOREIGN), watch)
}

#[test]
fn ja_32b_agents_with_opaque_data_carry_an_object_stream_unchanged() {
    let mut sim = world(7, || Shipped::Opaque(Opaque::new()), false);
    tenures(&mut sim, 5 * SECOND);
    sim.fault(Fault::Start(HostId::new(FOREIGN)));
    tenures(&mut sim, 20 * SECOND);
    let (ours, theirs, watch) = tenures(&mut sim, 60 * SECOND);
    // The foreign node takes no data but its own, to the last byte: a changed byte would end its tenures.
    assert_eq!((watch.refused, watch.left_out.len()), (0, 0));
    assert!(theirs > 200 && ours.abs_diff(3 * theirs) <= 3, "even tenures: {ours} and {theirs}");
}

/// The ids of the tokens differ by seed: that of the foreign node may beat ours, so that only its neighbour can restore.
#[test]
fn ja_32b_a_node_whose_data_agents_cannot_read_is_named_and_left_out_within_a_minute() {
    for (seed, replaces) in (0..8).map(|seed| (seed, seed % 2 == 0)) {
        let mut sim = world(seed, || Shipped::Ledger(Ledger::new()), replaces);
        tenures(&mut sim, 5 * SECOND);
        let (alone, _, _) = tenures(&mut sim, 60 * SECOND);
        sim.fault(Fault::Start(HostId::new(FOREIGN)));
        let (_, _, watch) = tenures(&mut sim, 60 * SECOND);
        let (_, host) = *watch.left_out.first().unwrap_or_else(|| panic!("seed {seed}: it is not named"));
        assert_eq!(host, FOREIGN + 1);
        let (after, _, watch) = tenures(&mut sim, 240 * SECOND);
        let pace = f64::from(after) / f64::from(4 * alone);
        assert!(pace >= 0.9, "seed {seed}: the others go on at {pace} of their pace");
        assert_eq!(watch.left_out, [], "seed {seed}: it gets no token");
    }
}
