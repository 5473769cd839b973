//! A key: its name, the kind of its values, its default, and a sentence that explains it.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// One thing that can be set.
#[derive(Debug)]
pub(crate) struct Key {
    /// `section.name`, as in the file.
    pub(crate) name: &'static str,
    /// The form of a value.
    pub(crate) kind: Kind,
    /// The default value; empty is "not set".
    pub(crate) default: &'static str,
    /// Its purpose, in one sentence.
    pub(crate) help: &'static str,
}

impl Key {
    /// The environment variable that sets it.
    pub(crate) fn variable(&self) -> String {
        format!("ANNULUS_{}", self.name.to_uppercase().replace('.', "_"))
    }
}

/// The form of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Any text.
    Text,
    /// Text that is never shown.
    Secret,
    /// A whole number from the first to the second.
    Number(u64, u64),
    /// Such as `200ms`, `10s`, `1h`.
    Duration,
    /// An IP address.
    Ip,
    /// IP addresses.
    Ips,
    /// An address with a port.
    Addr,
    /// Addresses with ports.
    Addrs,
    /// Networks: IP addresses, each with the length of a prefix or without.
    Networks,
    /// IP addresses, each with a port or without.
    Hosts,
    /// `KEY=VALUE`, several of them.
    Tags,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Some of these words.
    Choices(&'static [&'static str]),
}

impl Kind {
    /// Checks that `value` is one of this kind; the error says how to write it.
    pub(crate) fn check(self, value: &str) -> Result<(), String> {
        match self {
            Self::Text => Ok(()),
            Self::Secret => check_secret(value),
            Self::Number(low, high) => match value.parse::<u64>() {
                Ok(number) if (low..=high).contains(&number) => Ok(()),
                _ => Err(format!("give a whole number from {low} to {high}")),
            },
            Self::Duration => match humantime::parse_duration(value) {
                Ok(_) => Ok(()),
                Err(_) => Err("give a duration with its unit, such as 200ms, 10s or 1h".into()),
            },
            Self::Ip => {
                value.parse::<IpAddr>().map(drop).map_err(|_| "give an IP address, such as 127.0.0.1".into())
            }
            Self::Ips => items(value).try_for_each(|ip| match ip.parse::<IpAddr>() {
                Ok(_) => Ok(()),
                Err(_) => Err(format!("{ip:?} is no address: give an IP address, such as 10.0.0.255")),
            }),
            Self::Addr => check_addr(value),
            Self::Addrs => items(value).try_for_each(check_addr),
            Self::Hosts => items(value)
                .try_for_each(|host| if host.parse::<IpAddr>().is_ok() { Ok(()) } else { check_addr(host) }),
            Self::Networks => items(value).try_for_each(|item| match network(item) {
                Some(_) => Ok(()),
                None => {
                    Err(format!("{item:?} is no network: give an address and a prefix, such as 10.0.0.0/8"))
                }
            }),
            Self::Tags => items(value).try_for_each(check_tag),
            Self::Choice(words) => check_word(value, words),
            Self::Choices(words) => items(value).try_for_each(|word| check_word(word, words)),
        }
    }

    /// How its values are written, for `config init`.
    pub(crate) fn hint(self) -> String {
        match self {
            Self::Text => "text".into(),
            Self::Secret => "text without spaces".into(),
            Self::Number(low, high) if high == u64::MAX => format!("a number, at least {low}"),
            Self::Number(low, high) => format!("{low} to {high}"),
            Self::Duration => "a duration: 200ms, 10s, 1h".into(),
            Self::Ip => "an IP address".into(),
            Self::Ips => "a list of IP addresses".into(),
            Self::Addr => "IP:PORT".into(),
            Self::Addrs => "a list of IP:PORT".into(),
            Self::Hosts => "a list of IP or IP:PORT".into(),
            Self::Networks => "a list of IP/PREFIX".into(),
            Self::Tags => "a list of KEY=VALUE".into(),
            Self::Choice(words) => format!("one of: {}", words.join(", ")),
            Self::Choices(words) => format!("a list of: {}", words.join(", ")),
        }
    }

    /// Whether a value is a list.
    pub(crate) fn is_list(self) -> bool {
        matches!(self, Self::Ips | Self::Addrs | Self::Networks | Self::Hosts | Self::Tags | Self::Choices(_))
    }

    /// Whether a value is a bare number in the file.
    pub(crate) fn is_number(self) -> bool {
        matches!(self, Self::Number(..))
    }
}

/// The items of a list, written with commas.
pub(crate) fn items(value: &str) -> impl Iterator<Item = &str> {
    value.split(',').map(str::trim).filter(|item| !item.is_empty())
}

/// A network: its address and the length of its prefix. An address alone is a network of one.
pub(crate) fn network(item: &str) -> Option<(IpAddr, u8)> {
    let (ip, bits) = item.split_once('/').map_or((item, None), |(ip, bits)| (ip, Some(bits)));
    let ip: IpAddr = ip.parse().ok()?;
    let longest = if ip.is_ipv4() { 32 } else { 128 };
    let bits = bits.map_or(Some(longest), |bits| bits.parse().ok())?;
    (bits <= longest).then_some((ip, bits))
}

/// A duration that was checked before.
pub(crate) fn duration(value: &str) -> Duration {
    humantime::parse_duration(value).expect("a duration was checked when it was set")
}

/// A secret travels in an HTTP header: every other character would be changed or refused on its way.
pub(crate) fn check_secret(value: &str) -> Result<(), String> {
    if value.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(());
    }
    Err("use only ASCII letters, digits and punctuation, without spaces".into())
}

fn check_addr(value: &str) -> Result<(), String> {
    value
        .parse::<SocketAddr>()
        .map(drop)
        .map_err(|_| format!("{value:?} is no address: give IP:PORT, such as 127.0.0.2:7946"))
}

fn check_tag(tag: &str) -> Result<(), String> {
    match tag.split_once('=') {
        Some((key, _)) if !key.is_empty() => Ok(()),
        _ => Err(format!("{tag:?} is no tag: give KEY=VALUE, such as role=db")),
    }
}

fn check_word(value: &str, words: &[&str]) -> Result<(), String> {
    if words.contains(&value) {
        return Ok(());
    }
    Err(format!("{value:?} is not known here: choose from {}", words.join(", ")))
}
