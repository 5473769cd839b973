//! JSON as it was written: numbers of any size, any depth, every space. Data of the token is decoded only where its
//! meaning is needed; the rest is passed on unchanged.

use core::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// The greatest depth of a user's value: every reader of JSON supports it, also inside the document.
pub const DEPTH_MAX: usize = 64;

/// Any JSON, as a text that was checked to be such.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Raw(Box<RawValue>);

impl Raw {
    /// A text that is JSON.
    ///
    /// # Errors
    /// If it is not; the error has the reason.
    pub fn new(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text).map(Self)
    }

    /// As it was written.
    #[must_use]
    pub fn text(&self) -> &str {
        self.0.get()
    }

    /// Whether it is `null`.
    #[must_use]
    pub fn is_null(&self) -> bool {
        self.text() == "null"
    }

    /// Whether a text in it has half of a surrogate pair (`"\\ud800"`). That is valid in JSON's grammar, but it is no
    /// text, and many readers refuse the whole document for it.
    #[must_use]
    pub fn has_half_a_pair(&self) -> bool {
        let (text, mut at, mut high) = (self.text().as_bytes(), 0, false);
        while at < text.len() {
            let unit = match text[at] {
                b'\\' if text.get(at + 1) == Some(&b'u') => {
                    let digits =
                        text.get(at + 2..at + 6).and_then(|digits| core::str::from_utf8(digits).ok());
                    digits.and_then(|digits| u16::from_str_radix(digits, 16).ok())
                }
                _ => None,
            };
            let is_low = unit.is_some_and(|unit| (0xdc00..0xe000).contains(&unit));
            if high != is_low {
                return true;
            }
            high = unit.is_some_and(|unit| (0xd800..0xdc00).contains(&unit));
            at += match (text[at], unit) {
                (_, Some(_)) => 6,
                (b'\\', None) => 2,
                _ => 1,
            };
        }
        high
    }

    /// How deep its lists and objects are nested.
    #[must_use]
    pub fn depth(&self) -> usize {
        let (mut depth, mut deepest, mut quoted, mut escaped) = (0_usize, 0, false, false);
        for byte in self.text().bytes() {
            match byte {
                _ if escaped => escaped = false,
                b'\\' if quoted => escaped = true,
                b'"' => quoted = !quoted,
                b'[' | b'{' if !quoted => {
                    depth += 1;
                    deepest = deepest.max(depth);
                }
                b']' | b'}' if !quoted => depth = depth.saturating_sub(1),
                _ => {}
            }
        }
        deepest
    }
}

impl PartialEq for Raw {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl Eq for Raw {}

impl fmt::Debug for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl fmt::Display for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl From<Box<RawValue>> for Raw {
    fn from(raw: Box<RawValue>) -> Self {
        Self(raw)
    }
}

impl From<&RawValue> for Raw {
    fn from(raw: &RawValue) -> Self {
        Self(raw.to_owned())
    }
}

impl From<Value> for Raw {
    fn from(value: Value) -> Self {
        Self(RawValue::from_string(value.to_string()).expect("a value is written as JSON"))
    }
}

impl From<&str> for Raw {
    fn from(text: &str) -> Self {
        Value::from(text).into()
    }
}

impl From<u64> for Raw {
    fn from(number: u64) -> Self {
        Value::from(number).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_pair_is_found_and_whole_ones_are_not() {
        let has = |json: &str| Raw::new(json).unwrap().has_half_a_pair();
        for whole in
            [r#""x""#, r#""\ud83d\ude00""#, r#"{"\ud83d\ude00":"\\ud800"}"#, r#""\u00e4\n\\\\""#, "[1,2]"]
        {
            assert!(!has(whole), "{whole}");
        }
        for half in [
            r#""\ud800""#,
            r#""\udc00""#,
            r#""\uDBFFx\uDFFF""#,
            r#""\ude00\ud83d""#,
            r#"["\ud83d","\ude00"]"#,
            r#"{"\ud800":1}"#,
            r#""\\\ud800""#,
        ] {
            assert!(has(half), "{half}");
        }
    }
}
