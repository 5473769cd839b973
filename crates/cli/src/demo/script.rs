//! A script for the demo: timed actions.
//!
//! ```text
//! # time, verb, arguments
//! at 5 s kill blue
//! at 8.5s mail red blue see you later
//! at 12 s revive blue
//! at 20 s cut red orange amber
//! at 30 s heal
//! at 31 s send red users/42 hello
//! ```

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::cluster::Cluster;
use crate::agent::http::ApiError;
use crate::cli::UsageError;

/// The lines of a script, in order of time.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Script {
    steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq)]
struct Step {
    at: Duration,
    line: usize,
    act: Act,
}

#[derive(Clone, Debug, PartialEq)]
enum Act {
    Kill(String),
    Revive(String),
    Suspend(String),
    Resume(String),
    Cut(Vec<String>),
    Heal,
    Send { from: String, key: String, text: String },
    Mail { from: String, to: String, text: String },
}

impl Script {
    /// Reads a script.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            UsageError(format!("cannot read the script {}: {error}; check the path", path.display()))
        })?;
        Self::parse(&text).map_err(|problem| UsageError(format!("{}: {problem}", path.display())).into())
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut steps = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let words: Vec<&str> = line.split('#').next().unwrap_or_default().split_whitespace().collect();
            if !words.is_empty() {
                let step = step(index + 1, &words);
                steps.push(step.ok_or_else(|| {
                    format!("line {}: write it as `at 5 s kill blue`; verbs are kill, revive, suspend, resume, cut, heal, send, mail", index + 1)
                })?);
            }
        }
        steps.sort_by_key(|step| step.at);
        Ok(Self { steps })
    }

    /// Finds a name that no node of the demo has, before anything is done.
    pub(crate) fn check(&self, cluster: &Cluster) -> Result<(), UsageError> {
        for step in &self.steps {
            for name in step.act.names() {
                cluster.member(name).map_err(|error| {
                    UsageError(format!("line {} of the script: {}", step.line, error.sentence()))
                })?;
            }
        }
        Ok(())
    }

    /// Does everything at its time; the error of the first step that failed, with its line.
    pub(crate) async fn run(self, cluster: Arc<Cluster>) -> Result<(), String> {
        let begin = tokio::time::Instant::now();
        let mut first = Ok(());
        for step in self.steps {
            tokio::time::sleep_until(begin + step.at).await;
            if let Err(error) = act(&cluster, step.act).await {
                let problem = format!("line {} of the script: {}", step.line, error.sentence());
                cluster.note(problem.clone());
                first = first.and(Err(problem));
            }
        }
        first
    }
}

impl Act {
    /// The nodes that it names.
    fn names(&self) -> Vec<&str> {
        match self {
            Self::Kill(name) | Self::Revive(name) | Self::Suspend(name) | Self::Resume(name) => vec![name],
            Self::Cut(names) => names.iter().map(String::as_str).collect(),
            Self::Heal => Vec::new(),
            Self::Send { from, .. } => vec![from],
            Self::Mail { from, to, .. } => vec![from, to],
        }
    }
}

async fn act(cluster: &Arc<Cluster>, act: Act) -> Result<(), ApiError> {
    match act {
        Act::Kill(name) => cluster.kill(&name).await,
        Act::Revive(name) => cluster.revive(&name).await,
        Act::Suspend(name) => cluster.suspend(&name, true),
        Act::Resume(name) => cluster.suspend(&name, false),
        Act::Cut(names) => cluster.cut(&names),
        Act::Heal => {
            cluster.heal();
            Ok(())
        }
        Act::Send { from, key, text } => cluster.send(&from, &key, &text).await.map(drop),
        Act::Mail { from, to, text } => cluster.mail(&from, &to, &text).await.map(drop),
    }
}

fn step(line: usize, words: &[&str]) -> Option<Step> {
    let (&"at", rest) = words.split_first()? else { return None };
    let (time, rest) = rest.split_first()?;
    // The unit may stand apart.
    let (time, rest) = match (time.strip_suffix("ms"), time.strip_suffix('s'), rest) {
        (Some(ms), ..) => (ms.parse::<f64>().ok()? / 1000.0, rest),
        (None, Some(seconds), _) => (seconds.parse::<f64>().ok()?, rest),
        (None, None, [unit, rest @ ..]) => (time.parse::<f64>().ok()? * unit_of(unit)?, rest),
        _ => return None,
    };
    let at = Duration::try_from_secs_f64(time).ok()?;
    let (verb, rest) = rest.split_first()?;
    let word = |index: usize| rest.get(index).map(|word| (*word).to_owned());
    let only = |act: fn(String) -> Act| if rest.len() == 1 { word(0).map(act) } else { None };
    let text = || rest.get(2..).unwrap_or_default().join(" ");
    let act = match *verb {
        "kill" => only(Act::Kill)?,
        "revive" => only(Act::Revive)?,
        "suspend" => only(Act::Suspend)?,
        "resume" => only(Act::Resume)?,
        "cut" => Act::Cut(rest.iter().map(|word| (*word).to_owned()).collect()),
        "heal" if rest.is_empty() => Act::Heal,
        "send" => Act::Send { from: word(0)?, key: word(1)?, text: text() },
        "mail" => Act::Mail { from: word(0)?, to: word(1)?, text: text() },
        _ => return None,
    };
    Some(Step { at, line, act })
}

fn unit_of(unit: &str) -> Option<f64> {
    match unit {
        "s" => Some(1.0),
        "ms" => Some(0.001),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_read_in_the_order_of_time() {
        let text = "# a story\nat 8.5s revive blue\nat 5 s kill blue # at first\n\nat 900 ms cut red green\nat 9s mail red blue see you\n";
        let script = Script::parse(text).unwrap();
        let acts: Vec<(u128, Act)> =
            script.steps.into_iter().map(|step| (step.at.as_millis(), step.act)).collect();
        let mail = Act::Mail { from: "red".into(), to: "blue".into(), text: "see you".into() };
        assert_eq!(
            acts,
            [
                (900, Act::Cut(vec!["red".into(), "green".into()])),
                (5000, Act::Kill("blue".into())),
                (8500, Act::Revive("blue".into())),
                (9000, mail),
            ]
        );
    }

    #[test]
    fn a_line_that_cannot_be_read_is_named() {
        for line in [
            "kill blue",
            "at kill blue",
            "at 5 kill blue",
            "at 5 s kill",
            "at 5s explode blue",
            "at -1s heal",
            "at 5s heal all",
        ] {
            let problem = Script::parse(&format!("at 1s heal\n{line}")).unwrap_err();
            assert!(problem.starts_with("line 2: "), "{line}: {problem}");
        }
    }
}
