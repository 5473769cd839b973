//! An application that the user of the library supplies, as a value of one type.

use core::any::Any;
use core::fmt::Debug;

use super::application::{Answer, Application, Next, TenureInfo};
use super::ledger::Set;
use super::message::HostId;
use crate::common::caught;

/// An application of the user: any [`Application`] whose changes are those of the ledger. A panic in it is the error of
/// that call.
#[derive(Debug)]
pub struct OwnApplication(Box<dyn AnyApplication>);

/// The methods of an application, and those of a value.
trait AnyApplication: Application<Change = Set> + Any + Debug + Send {
    fn copy(&self) -> Box<dyn AnyApplication>;
    fn is_equal(&self, other: &dyn AnyApplication) -> bool;
}

impl<A: Application<Change = Set> + Clone + Debug + PartialEq + Send + 'static> AnyApplication for A {
    fn copy(&self) -> Box<dyn AnyApplication> {
        Box::new(self.clone())
    }

    fn is_equal(&self, other: &dyn AnyApplication) -> bool {
        let other: &dyn Any = other;
        other.downcast_ref() == Some(self)
    }
}

impl OwnApplication {
    /// Wraps an application.
    pub fn new<A>(application: A) -> Self
    where
        A: Application<Change = Set> + Clone + Debug + PartialEq + Send + 'static,
    {
        Self(Box::new(application))
    }
}

impl Clone for OwnApplication {
    fn clone(&self) -> Self {
        Self(self.0.copy())
    }
}

impl PartialEq for OwnApplication {
    fn eq(&self, other: &Self) -> bool {
        self.0.is_equal(&*other.0)
    }
}

impl Eq for OwnApplication {}

/// The machine guards `next` and `merge` itself; the other calls are guarded here.
impl Application for OwnApplication {
    type Change = Set;

    fn start(&mut self, host_id: HostId, kept: Option<&[u8]>) {
        let _ = caught(|| self.0.start(host_id, kept));
    }

    fn initial(&mut self) -> Vec<u8> {
        caught(|| self.0.initial()).unwrap_or_default()
    }

    fn accepts(&mut self, data: &[u8]) -> bool {
        caught(|| self.0.accepts(data)).unwrap_or(false)
    }

    fn is_foreign(&self, data: &[u8]) -> bool {
        caught(|| self.0.is_foreign(data)).unwrap_or(false)
    }

    fn next(&mut self, tenure: &TenureInfo, data: &[u8]) -> Answer<Next> {
        self.0.next(tenure, data)
    }

    fn merge(&mut self, own: &[u8], received: &[u8]) -> Answer<Vec<u8>> {
        self.0.merge(own, received)
    }

    fn used(&mut self) -> u64 {
        caught(|| self.0.used()).unwrap_or(0)
    }

    fn same(&self, one: &[u8], other: &[u8]) -> bool {
        caught(|| self.0.same(one, other)).unwrap_or(one == other)
    }

    fn change(&mut self, change: Set) -> Result<u64, &'static str> {
        caught(|| self.0.change(change)).unwrap_or(Err("the application panicked"))
    }

    fn withdraw(&mut self, number: u64) {
        let _ = caught(|| self.0.withdraw(number));
    }

    fn tenures_of(&self, host: HostId) -> Option<u64> {
        caught(|| self.0.tenures_of(host)).flatten()
    }

    fn drops_values(&self) -> bool {
        caught(|| self.0.drops_values()).unwrap_or(false)
    }

    fn declare_voters(&mut self, group: &str) {
        let _ = caught(|| self.0.declare_voters(group));
    }

    fn voters(&self) -> Option<&str> {
        caught(|| self.0.voters()).flatten()
    }

    fn greatest_fence(&self) -> u64 {
        caught(|| self.0.greatest_fence()).unwrap_or(0)
    }

    fn last_will(&self, data: &[u8]) -> Option<Vec<u8>> {
        caught(|| self.0.last_will(data)).flatten()
    }
}
