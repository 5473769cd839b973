//! Metadata that people can read: a name and tags, in at most 512 bytes.

use std::collections::BTreeMap;

use serde::Serialize;

use super::contents::META_BYTES_MAX;
use crate::wire::{DecodeError, Reader, Writer};

/// The first byte of metadata in this form.
const FORM: u8 = 1;

/// The key of the services. Tags of users have a non-empty key, so none can be mistaken for it.
const SERVICES_KEY: &str = "";

/// The name and tags of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tags {
    /// Its name for people.
    pub name: String,
    /// The ports of its other services.
    pub services: Services,
    /// Keys and values, in order of keys.
    pub tags: BTreeMap<String, String>,
}

/// The ports of the other services of a node, at the address of its membership, and its address in the mesh.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Services {
    /// The TCP port of `route`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route: Option<u16>,
    /// The UDP port of `token`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<u16>,
    /// The port of `mesh`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mesh: Option<u16>,
    /// The UDP port of `turns`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns: Option<u16>,
    /// Its address in the mesh, 64 hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nid: Option<String>,
    /// Whether its mesh supports letters (CU-6).
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    pub letters: bool,
}

impl Services {
    /// `route=22001 mesh=22000 nid=…`, in this order, without those that are absent.
    fn to_text(&self) -> String {
        let ports =
            [("route", self.route), ("token", self.token), ("mesh", self.mesh), ("turns", self.turns)];
        let ports = ports.into_iter().filter_map(|(name, port)| Some(format!("{name}={}", port?)));
        let nid = self.nid.iter().map(|nid| format!("nid={nid}"));
        let letters = self.letters.then(|| "letters=1".to_owned());
        ports.chain(nid).chain(letters).collect::<Vec<_>>().join(" ")
    }

    /// Unknown entries are skipped: a later version may add some.
    fn from_text(text: &str) -> Self {
        let mut services = Self::default();
        for (name, value) in text.split(' ').filter_map(|word| word.split_once('=')) {
            match name {
                "route" => services.route = value.parse().ok(),
                "token" => services.token = value.parse().ok(),
                "mesh" => services.mesh = value.parse().ok(),
                "turns" => services.turns = value.parse().ok(),
                "nid" => services.nid = Some(value.to_owned()),
                "letters" => services.letters = value == "1",
                _ => {}
            }
        }
        services
    }
}

/// Why a name and tags cannot be metadata.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TagsError {
    /// The metadata would be larger than its limit.
    #[error(
        "name and tags take more than {META_BYTES_MAX} bytes: use fewer or shorter ones (each at most 255 bytes)"
    )]
    TooLarge,
    /// A text has control characters, which could disturb a terminal.
    #[error("{0:?} has a control character in it: names and tags are for people to read, leave it out")]
    Control(String),
}

impl Tags {
    /// The metadata: form 1, then the name, then each key and value in order, each with a length byte. The services, if
    /// there are any, come first, under the empty key.
    ///
    /// # Errors
    /// If it would be over 512 bytes, a text over 255 bytes, or a text has control characters. Metadata of other nodes
    /// may still have them, so a program that shows it must escape them.
    pub fn encode(&self) -> Result<Vec<u8>, TagsError> {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes, META_BYTES_MAX);
        writer.u8(FORM);
        let services = self.services.to_text();
        let services = [SERVICES_KEY, &services].into_iter().filter(|_| !services.is_empty());
        let tags = self.tags.iter().flat_map(|(key, value)| [key.as_str(), value]);
        for text in core::iter::once(self.name.as_str()).chain(services).chain(tags) {
            if text.chars().any(char::is_control) {
                return Err(TagsError::Control(text.to_owned()));
            }
            writer.u8(u8::try_from(text.len()).map_err(|_| TagsError::TooLarge)?);
            writer.bytes(text.as_bytes());
        }
        writer.finish().map_err(|_| TagsError::TooLarge)?;
        Ok(bytes)
    }

    /// Reads metadata; empty metadata is no name and no tags.
    ///
    /// # Errors
    /// If it has another form.
    pub fn decode(meta: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(meta);
        let mut tags = Self::default();
        if meta.is_empty() {
            return Ok(tags);
        }
        if reader.u8()? != FORM {
            return Err(DecodeError::Version);
        }
        tags.name = text(&mut reader)?;
        let mut last = None;
        while reader.remaining() > 0 {
            let (key, value) = (text(&mut reader)?, text(&mut reader)?);
            if last.is_some_and(|last| last >= key) {
                return Err(DecodeError::Field("tags"));
            }
            last = Some(key.clone());
            if key == SERVICES_KEY {
                tags.services = Services::from_text(&value);
            } else {
                tags.tags.insert(key, value);
            }
        }
        Ok(tags)
    }
}

fn text(reader: &mut Reader<'_>) -> Result<String, DecodeError> {
    let len = usize::from(reader.u8()?);
    let bytes = reader.bytes(len)?;
    core::str::from_utf8(bytes).map(str::to_owned).map_err(|_| DecodeError::Field("tags"))
}

/// The name in both metadata, if it is the same.
pub(super) fn common_name<'a>(own: &'a [u8], other: &[u8]) -> Option<&'a str> {
    let named = 2 + usize::from(*own.get(1)?);
    let name = own.get(2..named).filter(|name| own[0] == FORM && !name.is_empty())?;
    (other.get(..named) == Some(&own[..named])).then(|| core::str::from_utf8(name).ok()).flatten()
}
