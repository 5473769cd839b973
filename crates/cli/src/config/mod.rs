//! The configuration: a list of keys, four layers of values, and where each value came from.
//!
//! A service declares its keys in `keys.rs`. That list drives `--set`, the environment, the file, `config show`,
//! `config init`, the checks and the hints.

mod file;
mod key;
mod keys;
mod settings;

pub(crate) use file::template;
pub(crate) use key::{check_secret, network};
pub(crate) use settings::{ConfigError, Layers, PREFIX, Settings};
