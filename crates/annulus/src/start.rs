//! What the start of any node needs.

use annulus_core::{Machine, Seed};
use annulus_net::{BindError, Handle, Options};

/// Why a node could not start, whatever its service.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address or the store cannot be used.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// There is nothing to draw from.
    #[error("the system gives no randomness: {0}")]
    Randomness(String),
}

/// What a machine draws from.
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
    Ok(annulus_net::spawn(machine, options)?)
}
