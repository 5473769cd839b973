//! The settings in force: four layers on top of each other, each value with its source.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::file;
use super::key::{self, Key};
use super::keys::KEYS;

/// The source of a value; a later one overrides an earlier one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The default.
    Default,
    /// The configuration file.
    File(PathBuf),
    /// This environment variable.
    Environment(String),
    /// This flag.
    Flag(String),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Environment(variable) => write!(f, "${variable}"),
            Self::Flag(flag) => f.write_str(flag),
        }
    }
}

/// The error of a configuration. It is the caller's fault: exit code 2.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    /// No such key.
    #[error("unknown key {key:?} in {source}: {hint}", source = from)]
    UnknownKey {
        /// As written.
        key: String,
        /// Its source.
        from: Source,
        /// The nearest key.
        hint: String,
    },
    /// A value that the key cannot have.
    #[error("{key} = {value:?} in {source}: {problem}", source = from)]
    BadValue {
        /// The key.
        key: &'static str,
        /// As written.
        value: String,
        /// Its source.
        from: Source,
        /// The problem.
        problem: String,
    },
    /// The file cannot be read.
    #[error("cannot read the configuration file {}: {error}; check the path after --config, or write one with `annulus config init`", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: std::io::Error,
    },
    /// A variable holds bytes that are no text.
    #[error("${0} is no text in UTF-8: set it anew, or unset it")]
    NotText(String),
    /// The file is no TOML, or not of the right form.
    #[error("{}: {problem}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The reason.
        problem: String,
    },
    /// `--set` without a value.
    #[error("--set {0:?}: write it as section.key=VALUE, such as --set members.interval=2s")]
    NoValue(String),
}

/// The layers above the defaults, weakest first.
#[derive(Debug, Default)]
pub(crate) struct Layers {
    /// The file to read.
    pub(crate) file: Option<PathBuf>,
    /// The environment, as variables and values.
    pub(crate) environment: Vec<(String, String)>,
    /// Flags with a key of their own: flag, key, value.
    pub(crate) flags: Vec<(&'static str, &'static str, String)>,
    /// `--set section.key=VALUE`, as written.
    pub(crate) sets: Vec<String>,
}

/// The settings in force.
#[derive(Debug)]
pub(crate) struct Settings {
    values: BTreeMap<&'static str, (String, Source)>,
}

impl Settings {
    /// Puts the layers over the defaults.
    pub(crate) fn load(layers: &Layers) -> Result<Self, ConfigError> {
        let defaults = KEYS.iter().map(|key| (key.name, (key.default.to_owned(), Source::Default)));
        let mut settings = Self { values: defaults.collect() };
        if let Some(path) = &layers.file {
            settings.load_file(path)?;
        }
        settings.load_environment(&layers.environment)?;
        for (flag, key, value) in &layers.flags {
            settings.set(key, value, &Source::Flag((*flag).into()))?;
        }
        for assignment in &layers.sets {
            let (key, value) =
                assignment.split_once('=').ok_or_else(|| ConfigError::NoValue(assignment.clone()))?;
            settings.set(key.trim(), value.trim(), &Source::Flag(format!("--set {}", key.trim())))?;
        }
        settings.leave_mesh_out();
        Ok(settings)
    }

    /// On an IPv6 address the default is without mesh, which supports IPv4 only.
    fn leave_mesh_out(&mut self) {
        let is_ipv6 = self.ip("node.bind").is_ipv6();
        if let Some((services, Source::Default)) = self.values.get_mut("node.services").filter(|_| is_ipv6) {
            *services = key::items(services).filter(|name| *name != "mesh").collect::<Vec<_>>().join(",");
        }
    }

    /// Every key with its value and where it came from, in the order of the list; secrets are hidden.
    pub(crate) fn shown(&self) -> impl Iterator<Item = (&'static Key, String, &Source)> {
        KEYS.iter().map(|key| {
            let (value, source) = &self.values[key.name];
            let hidden = key.kind == key::Kind::Secret && !value.is_empty();
            let value = if hidden { "\"(hidden)\"".to_owned() } else { file::written(key, value) };
            (key, value, source)
        })
    }

    /// The value of a key as it was written; `None` if it is not set.
    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        let (value, _) = self.values.get(key).expect("the program asks only for keys that exist");
        (!value.is_empty()).then_some(value.as_str())
    }

    /// A number; it always has a value.
    pub(crate) fn number<N: TryFrom<u64>>(&self, key: &str) -> N {
        let number: u64 =
            self.text(key).and_then(|text| text.parse().ok()).expect("a number was checked when set");
        N::try_from(number).ok().expect("the range of the key fits its use")
    }

    /// A duration; it always has a value.
    pub(crate) fn duration(&self, key: &str) -> Duration {
        key::duration(self.text(key).expect("a duration always has a value"))
    }

    /// A duration, if set.
    pub(crate) fn optional_duration(&self, key: &str) -> Option<Duration> {
        self.text(key).map(key::duration)
    }

    /// A number, if set.
    pub(crate) fn optional_number<N: TryFrom<u64>>(&self, key: &str) -> Option<N> {
        self.text(key).map(|_| self.number(key))
    }

    /// An IP address; it always has a value.
    pub(crate) fn ip(&self, key: &str) -> IpAddr {
        self.text(key).and_then(|text| text.parse().ok()).expect("an address was checked when set")
    }

    /// An address with a port, if set.
    pub(crate) fn addr(&self, key: &str) -> Option<SocketAddr> {
        self.text(key).map(|text| text.parse().expect("an address was checked when set"))
    }

    /// Addresses with ports.
    pub(crate) fn addrs(&self, key: &str) -> Vec<SocketAddr> {
        self.words(key).map(|text| text.parse().expect("an address was checked when set")).collect()
    }

    /// The items of a list.
    pub(crate) fn words(&self, key: &str) -> impl Iterator<Item = &str> {
        key::items(self.text(key).unwrap_or_default())
    }

    fn load_file(&mut self, path: &Path) -> Result<(), ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| ConfigError::Unreadable { path: path.into(), error })?;
        let found = file::parse(&text).map_err(|problem| ConfigError::Malformed {
            path: path.into(),
            problem: problem.trim().into(),
        })?;
        let source = Source::File(path.into());
        found.iter().try_for_each(|(key, value)| self.set(key, value, &source))
    }

    /// Takes the variables that name a key. Those that begin like one but name none are refused: a misspelt one
    /// would otherwise be silently ignored.
    fn load_environment(&mut self, environment: &[(String, String)]) -> Result<(), ConfigError> {
        for (variable, value) in environment {
            let Some(rest) = variable.strip_prefix(PREFIX) else { continue };
            if PROGRAM_VARIABLES.contains(&variable.as_str()) {
                continue;
            }
            let source = Source::Environment(variable.clone());
            match KEYS.iter().find(|key| key.variable() == *variable) {
                Some(key) => self.set(key.name, value, &source)?,
                None => return Err(unknown(&rest.to_lowercase().replacen('_', ".", 1), source)),
            }
        }
        Ok(())
    }

    fn set(&mut self, name: &str, value: &str, source: &Source) -> Result<(), ConfigError> {
        let Some(key) = KEYS.iter().find(|key| key.name == name) else {
            return Err(unknown(name, source.clone()));
        };
        // Empty unsets, for the keys that may be unset.
        if !(value.is_empty() && (key.default.is_empty() || key.kind.is_list())) {
            key.kind.check(value).map_err(|problem| ConfigError::BadValue {
                key: key.name,
                value: value.into(),
                from: source.clone(),
                problem,
            })?;
        }
        self.values.insert(key.name, (value.to_owned(), source.clone()));
        Ok(())
    }
}

/// The prefix of every environment variable of the program.
pub(crate) const PREFIX: &str = "ANNULUS_";

/// Variables with the program's prefix that are no keys.
const PROGRAM_VARIABLES: &[&str] = &["ANNULUS_CONFIG", "ANNULUS_AGENT", "ANNULUS_TOKEN", "ANNULUS_FENCE"];

fn unknown(name: &str, from: Source) -> ConfigError {
    let nearest = KEYS.iter().min_by_key(|key| strsim::damerau_levenshtein(key.name, name));
    let hint = match nearest {
        Some(key) if strsim::damerau_levenshtein(key.name, name) <= 4 => {
            format!("did you mean {:?}?", key.name)
        }
        _ => "`annulus config show` lists all keys".into(),
    };
    ConfigError::UnknownKey { key: name.into(), from, hint }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(
        file: Option<&str>,
        environment: &[(&str, &str)],
        sets: &[&str],
    ) -> Result<Settings, ConfigError> {
        let dir = tempfile::tempdir().unwrap();
        let path = file.map(|text| {
            let path = dir.path().join("annulus.toml");
            std::fs::write(&path, text).unwrap();
            path
        });
        let pair = |(variable, value): &(&str, &str)| ((*variable).to_owned(), (*value).to_owned());
        Settings::load(&Layers {
            file: path,
            environment: environment.iter().map(pair).collect(),
            flags: Vec::new(),
            sets: sets.iter().map(|set| (*set).to_owned()).collect(),
        })
    }

    #[test]
    fn flags_beat_the_environment_which_beats_the_file_which_beats_the_default() {
        let file = Some("[members]\ninterval = \"2s\"\nstore_interval = \"20ms\"\nport = 2\n");
        let environment = [
            ("ANNULUS_MEMBERS_INTERVAL", "3s"),
            ("ANNULUS_MEMBERS_STORE_INTERVAL", "30ms"),
            ("PATH", "/bin"),
        ];
        let settings = load(file, &environment, &["members.interval=4s"]).unwrap();
        assert_eq!(settings.duration("members.interval"), Duration::from_secs(4));
        assert_eq!(settings.duration("members.store_interval"), Duration::from_millis(30));
        assert_eq!(settings.number::<u16>("members.port"), 2);
        assert_eq!(settings.number::<u32>("route.leaf_set_max"), 32);
        let sources: Vec<String> = settings
            .shown()
            .filter(|(key, ..)| ["members.interval", "members.store_interval"].contains(&key.name))
            .map(|(_, value, source)| format!("{value} {source}"))
            .collect();
        assert_eq!(sources, ["\"4s\" --set members.interval", "\"30ms\" $ANNULUS_MEMBERS_STORE_INTERVAL"]);
    }

    #[test]
    fn an_unknown_key_names_the_nearest() {
        let error = load(None, &[], &["members.advertize=x"]).unwrap_err().to_string();
        assert_eq!(
            error,
            "unknown key \"members.advertize\" in --set members.advertize: did you mean \"members.advertise\"?"
        );
        let error = load(Some("[mebmers]\nport = 1\n"), &[], &[]).unwrap_err().to_string();
        assert!(error.contains("did you mean \"members.port\"?"), "{error}");
        let error = load(None, &[("ANNULUS_MEMBERS_INTERVALL", "1s")], &[]).unwrap_err().to_string();
        assert!(error.contains("$ANNULUS_MEMBERS_INTERVALL: did you mean \"members.interval\"?"), "{error}");
        let error = load(None, &[], &["entirely.else=1"]).unwrap_err().to_string();
        assert!(error.contains("config show"), "{error}");
    }

    #[test]
    fn the_error_of_a_bad_value_shows_a_good_one() {
        for (set, part) in [
            ("members.interval=5", "with its unit"),
            ("members.port=70000", "from 0 to 65535"),
            ("members.advertise=localhost", "give IP:PORT"),
            ("node.bind=here", "give an IP address"),
            ("node.services=members,pong", "choose from members"),
            ("node.tags=role", "give KEY=VALUE"),
            ("log.format=xml", "choose from text, json"),
            ("members.interval", "section.key=VALUE"),
            ("members.store_interval=", "with its unit"),
        ] {
            let error = load(None, &[], &[set]).unwrap_err().to_string();
            assert!(error.contains(part), "{set}: {error}");
        }
    }

    #[test]
    fn lists_may_be_empty_and_secrets_are_hidden() {
        let settings = load(None, &[], &["members.advertise=", "http.token=abc"]).unwrap();
        assert!(settings.addrs("members.advertise").is_empty());
        let token = settings.shown().find(|(key, ..)| key.name == "http.token").unwrap().1;
        assert_eq!(token, "\"(hidden)\"");
        assert_eq!(settings.text("http.token"), Some("abc"));
    }

    #[test]
    fn every_default_is_a_good_value_and_every_key_has_a_section() {
        for key in KEYS {
            assert!(key.name.contains('.') && key.help.ends_with('.'), "{}", key.name);
            if !key.default.is_empty() {
                assert_eq!(key.kind.check(key.default), Ok(()), "{}", key.name);
            }
        }
    }

    #[test]
    fn a_missing_file_gives_an_error() {
        let layers = Layers { file: Some("/nowhere/annulus.toml".into()), ..Layers::default() };
        let error = Settings::load(&layers).unwrap_err().to_string();
        assert!(error.contains("/nowhere/annulus.toml") && error.contains("config init"), "{error}");
    }
}
