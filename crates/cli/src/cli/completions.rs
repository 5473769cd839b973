//! `annulus completions`: a script that lets a shell complete our verbs and flags.

use clap_complete::Shell;

/// Print a completion script for a shell.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  annulus completions bash > /etc/bash_completion.d/annulus")]
pub(crate) struct Completions {
    /// The shell.
    shell: Shell,
}

impl Completions {
    pub(crate) fn run<C: clap::CommandFactory>(self) {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut C::command(), "annulus", &mut script);
        // A reader that has seen enough is no error.
        let _ = std::io::Write::write_all(&mut std::io::stdout(), &script);
    }
}
