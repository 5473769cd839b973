//! The token as this node has or had it: its id, its data, the fence, and the application that reads and writes them.

use super::application::{Answer, Application, Next, Restored, TenureInfo, guarded};
use super::graph::{Log, What};
use super::message::{HostId, TokenId};
use super::records::Branch;
use super::{Compute, DropReason, Entry};
use crate::time::{Instant, Now};

/// The most merges that are remembered for the graph.
const MERGED_MAX: usize = 64;

/// The token, and the application.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Token<A> {
    app: A,
    id: TokenId,
    data: Vec<u8>,
    fence: Option<u64>,
    /// When the data was last known to be that of the token.
    known_at: Instant,
    /// The branches merged here since the last own tenure: ours, theirs.
    merged: Vec<(TokenId, TokenId)>,
    log: Log,
}

impl<A: Application> Token<A> {
    pub(super) fn new(app: A, id: TokenId) -> Self {
        Self {
            app,
            id,
            data: Vec::new(),
            fence: None,
            known_at: Instant::ZERO,
            merged: Vec::new(),
            log: Log::default(),
        }
    }

    /// Notes that the node reads its disk: it has received nothing until now.
    pub(super) fn load(&mut self, now: Instant) {
        self.known_at = now;
    }

    /// Starts the application with the host id and its stored record.
    pub(super) fn start(&mut self, host_id: HostId, kept: Option<&[u8]>) {
        self.app.start(host_id, kept);
        self.data = self.app.initial();
    }

    pub(super) fn set_id(&mut self, id: TokenId) {
        self.id = id;
    }

    /// Turns the token `from` into a restored one. Returns the facts for the tenure.
    pub(super) fn restored(&mut self, now: Now, from: TokenId) -> Restored {
        self.log.push(now.wall, What::Restored { from, to: self.id });
        Restored { from, time_without_token: now.mono.since(self.known_at) }
    }

    pub(super) fn dropped(&mut self, now: Now, reason: DropReason) {
        self.log.push(now.wall, What::Dropped { token_id: self.id, reason });
    }

    pub(super) fn passed(&mut self, now: Now, to: HostId) {
        self.known_at = now.mono;
        if !self.log.ends_with_pass() {
            self.log.push(now.wall, What::Passed { token_id: self.id, to });
        }
    }

    /// Takes newer data of the same token.
    pub(super) fn replace_data(&mut self, now: Instant, data: Vec<u8>) {
        self.data = data;
        self.known_at = now;
    }

    /// Whether received data is complete and valid.
    pub(super) fn accepts(&mut self, data: &[u8]) -> bool {
        self.app.accepts(data)
    }

    /// Whether data that is not accepted is of another application.
    pub(super) fn is_foreign(&self, data: &[u8]) -> bool {
        self.app.is_foreign(data)
    }

    pub(super) fn merge(&mut self, branch: &Branch) -> Answer<Vec<u8>> {
        let (app, own) = (&mut self.app, &self.data);
        guarded(|| app.merge(own, &branch.data))
    }

    /// Takes the data of a merge. Returns whether both branches had data that the other had not.
    pub(super) fn merged(&mut self, now: Now, branch: &Branch, data: Vec<u8>) -> bool {
        let (own, received) = (branch.own, branch.received);
        let both = !self.app.same(&data, &branch.data);
        self.data = data;
        self.known_at = now.mono;
        self.log.push(
            now.wall,
            if both { What::Merged { own, received } } else { What::Adopted { own, received } },
        );
        if both && self.merged.len() < MERGED_MAX {
            self.merged.push((own, received));
        }
        both
    }

    /// Requests the data of an own tenure from the application.
    pub(super) fn next(&mut self, now: Now, host_id: HostId, restored: Option<Restored>) -> Answer<Next> {
        let tenure = self.tenure(now, host_id, restored);
        let (app, data) = (&mut self.app, &self.data);
        guarded(|| app.next(&tenure, data))
    }

    /// The same request, for an application outside of the machine.
    pub(super) fn next_elsewhere(&self, now: Now, host_id: HostId, restored: Option<Restored>) -> Compute {
        Compute::Next { tenure: self.tenure(now, host_id, restored), data: self.data.clone() }
    }

    pub(super) fn merge_elsewhere(&self, branch: &Branch) -> Compute {
        Compute::Merge { own: self.data.clone(), received: branch.data.clone() }
    }

    /// Uses the data of a tenure. Returns the number of the last change in it.
    pub(super) fn use_next(&mut self, now: Instant, next: Next) -> u64 {
        let changed = self.app.used();
        self.data = next.data;
        self.known_at = now;
        self.merged.clear();
        self.fence = next.fence;
        changed
    }

    /// Notes that the tenure has no fence.
    pub(super) fn clear_fence(&mut self) {
        self.fence = None;
    }

    pub(super) fn change(&mut self, change: A::Change) -> Result<u64, &'static str> {
        self.app.change(change)
    }

    pub(super) fn withdraw(&mut self, number: u64) {
        self.app.withdraw(number);
    }

    pub(super) fn last_will(&self) -> Option<Vec<u8>> {
        self.app.last_will(&self.data)
    }

    pub(super) fn app(&self) -> &A {
        &self.app
    }

    pub(super) fn app_mut(&mut self) -> &mut A {
        &mut self.app
    }

    pub(super) fn id(&self) -> TokenId {
        self.id
    }

    pub(super) fn data(&self) -> &[u8] {
        &self.data
    }

    pub(super) fn fence(&self) -> Option<u64> {
        self.fence
    }

    pub(super) fn log(&self) -> Vec<Entry> {
        self.log.entries()
    }

    fn tenure(&self, now: Now, host_id: HostId, restored: Option<Restored>) -> TenureInfo {
        TenureInfo { host_id, token_id: self.id, restored, merged: self.merged.clone(), wall: now.wall }
    }
}
