//! The tokio driver.

mod app;
mod bind;
mod clock;
mod counters;
mod driver;
mod error;
mod events;
mod handle;
mod listener;
mod options;
mod port;
mod ready;
mod serve;
mod store;
mod stream;
mod streams;
mod timer;

pub use counters::{Counters, DriverCounters};
pub use driver::{Driver, spawn};
pub use error::{BindError, OpenError, Place};
pub use events::Events;
pub use handle::{Ended, Handle, Pending, Stopped, TryCommandError};
pub use options::{KeepAlive, Options};
pub use store::{MakeBackend, StorageBackend, Store};
