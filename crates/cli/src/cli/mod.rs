//! The command line: one file per verb.
//!
//! A verb that calls an agent is a struct of its arguments with a `run(self, &Client, &Output)`. Add it to [`Verb`]
//! and to [`dispatch`].

mod addr;
mod agent;
mod client;
mod completions;
mod config;
mod decode;
mod demo;
#[cfg(target_os = "linux")]
mod guard;
mod info;
mod lock;
mod members;
mod mesh;
mod monitor;
mod output;
mod ping;
mod replay;
mod route;
mod sim;
mod token;
mod version;
mod voters;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::config::ConfigError;
use client::{AgentArgs, Client};
use output::Output;
pub(crate) use output::plain;

/// Know who is alive, find who owns a key, take turns and reach each other, with no server.
#[derive(Parser)]
#[command(name = "annulus", version, arg_required_else_help = true, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    agent: AgentArgs,
    /// Print JSON instead of text.
    #[arg(long, global = true, display_order = 900)]
    json: bool,
}

#[derive(Subcommand)]
#[expect(clippy::large_enum_variant, reason = "a process parses one verb")]
enum Verb {
    Agent(agent::AgentVerb),
    Info(info::Info),
    Monitor(monitor::Monitor),
    Members(members::Members),
    Join(members::Join),
    Leave(members::Leave),
    ForceLeave(members::ForceLeave),
    Event(members::Event),
    Tags(members::Tags),
    Rtt(members::Rtt),
    Token(token::Token),
    Lock(lock::Lock),
    Turn(voters::TurnVerb),
    Voters(voters::Voters),
    Route(route::Route),
    Send(route::Send),
    Ask(route::Ask),
    Listen(route::Listen),
    Ring(route::Ring),
    Tables(route::Tables),
    Mesh(mesh::Mesh),
    Ping(ping::Ping),
    Config(config::ConfigVerb),
    Demo(demo::Demo),
    Replay(replay::Replay),
    Sim(sim::Sim),
    Decode(decode::Decode),
    Completions(completions::Completions),
    Version(version::Version),
}

/// The verbs that start a command in a turn, alone: to parse all verbs takes a millisecond, as long as the rest of the start.
#[derive(Parser)]
#[command(name = "annulus")]
struct Turn {
    #[command(subcommand)]
    verb: TurnCommand,
    #[command(flatten)]
    agent: AgentArgs,
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum TurnCommand {
    Lock(lock::Lock),
    Token(token::Token),
}

impl Cli {
    /// Parses the command line.
    fn read() -> Result<Self, clap::Error> {
        let is_turn = std::env::args_os().nth(1).is_some_and(|verb| verb == "lock" || verb == "token");
        // Help and errors are those of the whole command line.
        let Some(Turn { verb, agent, json }) = is_turn.then(|| Turn::try_parse().ok()).flatten() else {
            return Self::try_parse();
        };
        let verb = match verb {
            TurnCommand::Lock(verb) => Verb::Lock(verb),
            TurnCommand::Token(verb) => Verb::Token(verb),
        };
        Ok(Self { verb, agent, json })
    }
}

/// Runs the program: 0 if all went well, 2 if it was called wrongly (clap's own code), 1 for the rest.
pub(crate) fn run() -> ExitCode {
    #[cfg(target_os = "linux")]
    if let Some(code) = guard::run_if_started() {
        return code;
    }
    let cli = match Cli::read() {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    let output = Output::new(cli.json);
    dispatch(cli.verb, &cli.agent, &output).unwrap_or_else(|error| {
        if error.chain().any(is_broken_pipe) {
            // The reader has enough: `annulus … | head`.
            return ExitCode::SUCCESS;
        }
        output.error(&error);
        let is_usage = error.chain().any(|cause| cause.is::<ConfigError>() || cause.is::<UsageError>());
        ExitCode::from(if is_usage { 2 } else { 1 })
    })
}

fn is_broken_pipe(cause: &(dyn std::error::Error + 'static)) -> bool {
    cause.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

/// Prints help and versions as clap has them, and usage errors in one line.
fn refuse(error: &clap::Error) -> ExitCode {
    if error.exit_code() == 0
        || error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    {
        // A closed output is ignored.
        let _ = error.print();
        return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
    }
    let text = error.render().to_string();
    let told =
        |line: &&str| !line.trim().is_empty() && !line.starts_with("Usage:") && !line.starts_with("For more");
    let lines: Vec<&str> = text.lines().filter(told).map(str::trim).collect();
    // A line that ends with a colon introduces the next one.
    let line = lines.join("; ").replace(":; ", ": ").replacen("error: ", "", 1);
    Output::new(false).error(&anyhow::anyhow!("{line}; see --help"));
    ExitCode::from(2)
}

/// The program was called wrongly in a way that only the verb could see.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct UsageError(pub(crate) String);

fn dispatch(verb: Verb, agent: &AgentArgs, output: &Output) -> anyhow::Result<ExitCode> {
    let client = || Client::new(agent);
    match verb {
        Verb::Agent(verb) => verb.run(output.json)?,
        Verb::Info(verb) => verb.run(&client(), output)?,
        Verb::Monitor(verb) => verb.run(&client(), output)?,
        Verb::Members(verb) => verb.run(&client(), output)?,
        Verb::Join(verb) => verb.run(&client(), output)?,
        Verb::Leave(verb) => verb.run(&client(), output)?,
        Verb::ForceLeave(verb) => verb.run(&client(), output)?,
        Verb::Event(verb) => verb.run(&client(), output)?,
        Verb::Tags(verb) => verb.run(&client(), output)?,
        Verb::Rtt(verb) => verb.run(&client(), output)?,
        Verb::Route(verb) => verb.run(&client(), output)?,
        Verb::Send(verb) => verb.run(&client(), output)?,
        Verb::Ask(verb) => verb.run(&client(), output)?,
        Verb::Listen(verb) => verb.run(&client(), output)?,
        Verb::Ring(verb) => verb.run(&client(), output)?,
        Verb::Tables(verb) => verb.run(&client(), output)?,
        Verb::Ping(verb) => verb.run(&client(), output)?,
        Verb::Config(verb) => verb.run(output)?,
        Verb::Completions(verb) => verb.run::<Cli>(),
        Verb::Decode(verb) => verb.run(output)?,
        Verb::Version(verb) => verb.run(output),
        Verb::Mesh(verb) => return verb.run(&client(), output),
        Verb::Token(verb) => return verb.run(&client(), output),
        Verb::Lock(verb) => return verb.run(&client(), output),
        Verb::Turn(verb) => return verb.run(&client(), output),
        Verb::Voters(verb) => verb.run(&client(), output)?,
        Verb::Demo(verb) => return verb.run(output),
        Verb::Replay(verb) => verb.run(output)?,
        Verb::Sim(verb) => return verb.run(output.json),
    }
    Ok(ExitCode::SUCCESS)
}
