//! `annulus agent`: runs one node.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use super::addr::look_up;
use crate::config::{self, ConfigError, Layers, Settings};

/// Run a node in the foreground.
///
/// A flag overrides the environment variable (ANNULUS_SECTION_KEY), which overrides the configuration file.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  annulus agent --data-dir ~/.annulus
  annulus agent --name red --bind 127.0.0.2 --join 127.0.0.1:7946")]
pub(crate) struct AgentVerb {
    #[command(flatten)]
    pub(super) settings: SettingsArgs,
}

impl AgentVerb {
    /// Runs the node; for a program the log is JSON too.
    pub(crate) fn run(mut self, json: bool) -> anyhow::Result<()> {
        self.settings.set.extend(json.then(|| "log.format=json".to_owned()));
        crate::agent::run(&self.settings.load()?)
    }
}

/// Everything that can be set from the command line.
#[derive(clap::Args)]
pub(super) struct SettingsArgs {
    /// The name of this node [default: the host name].
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The IP address of all services [default: 127.0.0.1].
    #[arg(long, value_name = "IP")]
    bind: Option<IpAddr>,
    /// The address of the HTTP API [default: port 7373 of the bind address, or of 127.0.0.1].
    #[arg(long, value_name = "ADDR")]
    http: Option<SocketAddr>,
    /// The directory for identity and state. Without it the node gets a new identity at every start.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// The services to run, with commas: members, route, token, mesh.
    #[arg(long, value_name = "A,B")]
    services: Option<String>,
    /// A member to join through, as IP:PORT or NAME:PORT. Repeatable; one that answers is enough.
    #[arg(long, value_name = "ADDR")]
    join: Vec<String>,
    /// The configuration file.
    #[arg(long, value_name = "FILE", env = "ANNULUS_CONFIG")]
    config: Option<PathBuf>,
    /// Sets any configuration key. Repeatable; `annulus config show` lists the keys.
    #[arg(long, value_name = "SECTION.KEY=VALUE")]
    set: Vec<String>,
}

impl SettingsArgs {
    /// The settings in force.
    pub(super) fn load(self) -> anyhow::Result<Settings> {
        let join = look_up(&self.join)?.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let flags = [
            ("--name", "node.name", self.name),
            ("--bind", "node.bind", self.bind.map(|bind| bind.to_string())),
            ("--http", "http.addr", self.http.map(|http| http.to_string())),
            ("--data-dir", "node.data_dir", self.data_dir.map(|dir| dir.to_string_lossy().into_owned())),
            ("--services", "node.services", self.services),
            ("--join", "node.join", (!self.join.is_empty()).then_some(join)),
        ];
        Ok(Settings::load(&Layers {
            file: self.config,
            environment: environment()?,
            flags: flags.into_iter().filter_map(|(flag, key, value)| Some((flag, key, value?))).collect(),
            sets: self.set,
        })?)
    }
}

/// Our environment variables. The value of each must be UTF-8.
fn environment() -> Result<Vec<(String, String)>, ConfigError> {
    let named = std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
    let ours = named.filter(|(name, _)| name.starts_with(config::PREFIX));
    ours.map(|(name, value)| match value.into_string() {
        Ok(value) => Ok((name, value)),
        Err(_) => Err(ConfigError::NotText(name)),
    })
    .collect()
}
