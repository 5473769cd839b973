//! The start of a node or of a single machine.

use annulus_core::node::{AssemblyError, DuplicateService};
use annulus_core::swim::TagsError;
use annulus_core::{Machine, Seed, jitterbug, pastry, swim, turns, w3w};
use annulus_net::{BindError, Handle, Options};

use crate::data_dir::DataDirError;

/// The error of a start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The address or the store cannot be used.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The data directory cannot be used.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// The configuration of `members` cannot work.
    #[error("members: {0}")]
    Members(#[from] swim::ConfigError),
    /// The configuration of `route` cannot work.
    #[error("route: {0}")]
    Route(#[from] pastry::ConfigError),
    /// The configuration of `token` cannot work.
    #[error("token: {0}")]
    Token(#[from] jitterbug::ConfigError),
    /// The configuration of `mesh` cannot work.
    #[error("mesh: {0}")]
    Mesh(#[from] w3w::ConfigError),
    /// The configuration of `turns` cannot work.
    #[error("turns: {0}")]
    Turns(#[from] turns::ConfigError),
    /// The name and the tags cannot be sent to other members.
    #[error("name and tags: {0}")]
    Tags(#[from] TagsError),
    /// `mesh` is enabled on an IPv6 address.
    #[error("mesh speaks IPv4 only: bind to an IPv4 address")]
    MeshNeedsIpv4,
    /// Two parts have one tag.
    #[error(transparent)]
    DuplicateService(#[from] DuplicateService),
    /// There is a join list, but no `members` to join with.
    #[error("a join list needs `members`: run it, or leave the list out")]
    JoinWithoutMembers,
    /// There is no tokio runtime.
    #[error("there is no tokio runtime here: start the node inside one")]
    NoRuntime,
    /// The system gives no random seed.
    #[error("the system gives no randomness: {0}")]
    Randomness(String),
}

impl From<AssemblyError> for StartError {
    fn from(error: AssemblyError) -> Self {
        match error {
            AssemblyError::Members(error) => Self::Members(error),
            AssemblyError::Route(error) => Self::Route(error),
            AssemblyError::Token(error) => Self::Token(error),
            AssemblyError::Mesh(error) => Self::Mesh(error),
            AssemblyError::Turns(error) => Self::Turns(error),
            AssemblyError::Tags(error) => Self::Tags(error),
            AssemblyError::DuplicateService(error) => Self::DuplicateService(error),
            _ => Self::MeshNeedsIpv4,
        }
    }
}

/// The seed of a machine.
pub(crate) fn seed() -> Result<Seed, StartError> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(|error| StartError::Randomness(error.to_string()))?;
    Ok(seed)
}

/// Runs a machine on the runtime that this is called in.
pub(crate) fn spawn<M>(machine: M, options: Options) -> Result<Handle<M>, StartError>
where
    M: Machine<Command: Send, Reply: Send, Event: Send + Sync> + Send + 'static,
{
    if tokio::runtime::Handle::try_current().is_err() {
        return Err(StartError::NoRuntime);
    }
    Ok(annulus_net::spawn(machine, options)?)
}
