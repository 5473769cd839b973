//! `annulus config`: shows the settings in force, and writes a commented file.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use serde_json::json;

use super::agent::SettingsArgs;
use super::output::{DIM, Output};
use crate::config;

/// Show the configuration in force, or write a commented file.
#[derive(clap::Args)]
pub(crate) struct ConfigVerb {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// Print every key with its value and its source. Takes the flags of `agent`.
    #[command(after_help = "Example:\n  annulus config show --config annulus.toml --set members.interval=2s")]
    Show {
        #[command(flatten)]
        settings: Box<SettingsArgs>,
    },
    /// Write a file with every key, its meaning and its default.
    #[command(after_help = "Example:\n  annulus config init annulus.toml")]
    Init {
        /// The file to write; `-` is standard output.
        #[arg(default_value = "annulus.toml")]
        file: PathBuf,
        /// Overwrite an existing file.
        #[arg(long)]
        force: bool,
    },
}

impl ConfigVerb {
    pub(crate) fn run(self, output: &Output) -> anyhow::Result<()> {
        match self.verb {
            Verb::Show { settings } => show(*settings, output),
            Verb::Init { file, force } => init(&file, force, output),
        }
    }
}

fn show(settings: SettingsArgs, output: &Output) -> anyhow::Result<()> {
    let settings = settings.load()?;
    if output.json {
        let keys: Vec<_> = settings
            .shown()
            .map(|(key, value, source)| json!({ "key": key.name, "value": value, "source": source.to_string() }))
            .collect();
        output.json(&json!(keys));
        return Ok(());
    }
    let rows: Vec<Vec<String>> = settings
        .shown()
        .map(|(key, value, source)| vec![key.name.into(), value, format!("{DIM}{source}{DIM:#}")])
        .collect();
    output.table(&["KEY", "VALUE", "FROM"], &rows);
    Ok(())
}

fn init(file: &Path, force: bool, output: &Output) -> anyhow::Result<()> {
    if file.as_os_str() == "-" {
        output.line(config::template().trim_end());
        return Ok(());
    }
    let mut options = OpenOptions::new();
    let opened = if force {
        options.create(true).truncate(true).write(true).open(file)
    } else {
        options.create_new(true).write(true).open(file)
    };
    let mut writer = opened.map_err(|error| {
        let replace =
            if error.kind() == ErrorKind::AlreadyExists { ", or add --force to replace it" } else { "" };
        let hint = format!("cannot write {}; choose another file{replace}", file.display());
        anyhow::Error::from(error).context(hint)
    })?;
    writer.write_all(config::template().as_bytes())?;
    output.line(format!(
        "wrote {}: edit it, then run `annulus agent --config {}`",
        file.display(),
        file.display()
    ));
    Ok(())
}
