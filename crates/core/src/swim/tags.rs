//! Metadata that people can read: a name and tags, in at most 512 bytes.

use std::collections::BTreeMap;

use serde::Serialize;

use super::contents::META_BYTES_MAX;
use crate::wire::{DecodeError, Reader, Writer};

/// The first byte of metadata in this form.
const FORM: u8 = 1;

/// The name of a node and what else it tells of itself, such as where its other services listen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tags {
    /// What people call it.
    pub name: String,
    /// Keys and values, in order of keys.
    pub tags: BTreeMap<String, String>,
}

/// Why a name and tags cannot be metadata.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TagsError {
    /// The metadata would be larger than a packet is to carry.
    #[error(
        "name and tags take more than {META_BYTES_MAX} bytes: use fewer or shorter ones (each at most 255 bytes)"
    )]
    TooLarge,
    /// A text would do something to the terminals it is shown on.
    #[error("{0:?} has a control character in it: names and tags are for people to read, leave it out")]
    Control(String),
}

impl Tags {
    /// The metadata: form 1, then name, and each key and value in order, all with a byte of length in front.
    ///
    /// # Errors
    /// If it would be over 512 bytes, or a text over 255, or a text has control characters. What others have encoded
    /// may have them all the same: whoever shows it escapes them.
    pub fn encode(&self) -> Result<Vec<u8>, TagsError> {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes, META_BYTES_MAX);
        writer.u8(FORM);
        let texts = self.tags.iter().flat_map(|(key, value)| [key, value]);
        for text in core::iter::once(&self.name).chain(texts) {
            if text.chars().any(char::is_control) {
                return Err(TagsError::Control(text.clone()));
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
    /// If it is not of this form.
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
        while reader.remaining() > 0 {
            let key = text(&mut reader)?;
            if tags.tags.last_key_value().is_some_and(|(last, _)| *last >= key) {
                return Err(DecodeError::Field("tags"));
            }
            tags.tags.insert(key, text(&mut reader)?);
        }
        Ok(tags)
    }
}

fn text(reader: &mut Reader<'_>) -> Result<String, DecodeError> {
    let len = usize::from(reader.u8()?);
    let bytes = reader.bytes(len)?;
    core::str::from_utf8(bytes).map(str::to_owned).map_err(|_| DecodeError::Field("tags"))
}
