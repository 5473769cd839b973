//! The shipped applications and one of the user, as one type: an agent chooses by `token.data`.

use super::application::{Answer, Application, Next, TenureInfo};
use super::ledger::{Ledger, Set};
use super::message::HostId;
use super::opaque::Opaque;
use super::own_application::OwnApplication;

/// One of the applications.
#[expect(clippy::large_enum_variant, reason = "a machine has one of them")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shipped {
    /// Counts, fences, values and the graph.
    Ledger(Ledger),
    /// Any bytes, unchanged.
    Opaque(Opaque),
    /// An application of the user.
    Own(OwnApplication),
}

impl From<Ledger> for Shipped {
    fn from(ledger: Ledger) -> Self {
        Self::Ledger(ledger)
    }
}

macro_rules! each {
    ($self:expr, $app:ident => $call:expr) => {
        match $self {
            Shipped::Ledger($app) => $call,
            Shipped::Opaque($app) => $call,
            Shipped::Own($app) => $call,
        }
    };
}

impl Application for Shipped {
    type Change = Set;

    fn start(&mut self, host_id: HostId, kept: Option<&[u8]>) {
        each!(self, app => app.start(host_id, kept));
    }

    fn initial(&mut self) -> Vec<u8> {
        each!(self, app => app.initial())
    }

    fn accepts(&mut self, data: &[u8]) -> bool {
        each!(self, app => app.accepts(data))
    }

    fn is_foreign(&self, data: &[u8]) -> bool {
        each!(self, app => app.is_foreign(data))
    }

    fn next(&mut self, tenure: &TenureInfo, data: &[u8]) -> Answer<Next> {
        each!(self, app => app.next(tenure, data))
    }

    fn merge(&mut self, own: &[u8], received: &[u8]) -> Answer<Vec<u8>> {
        each!(self, app => app.merge(own, received))
    }

    fn used(&mut self) -> u64 {
        each!(self, app => app.used())
    }

    fn same(&self, one: &[u8], other: &[u8]) -> bool {
        each!(self, app => app.same(one, other))
    }

    fn change(&mut self, change: Set) -> Result<u64, &'static str> {
        each!(self, app => app.change(change))
    }

    fn withdraw(&mut self, number: u64) {
        each!(self, app => app.withdraw(number));
    }

    fn tenures_of(&self, host: HostId) -> Option<u64> {
        each!(self, app => app.tenures_of(host))
    }

    fn drops_values(&self) -> bool {
        each!(self, app => app.drops_values())
    }

    fn declare_voters(&mut self, group: &str) {
        each!(self, app => app.declare_voters(group));
    }

    fn voters(&self) -> Option<&str> {
        each!(self, app => app.voters())
    }

    fn greatest_fence(&self) -> u64 {
        each!(self, app => app.greatest_fence())
    }

    fn last_will(&self, data: &[u8]) -> Option<Vec<u8>> {
        each!(self, app => app.last_will(data))
    }
}
