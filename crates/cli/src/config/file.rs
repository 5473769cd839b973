//! The configuration file: reading TOML into keys and values, and writing a commented template.

use std::fmt::Write as _;

use super::key::{Key, items};
use super::keys::KEYS;

/// The keys and values of a TOML text. Lists become texts with commas, as on the command line.
pub(super) fn parse(text: &str) -> Result<Vec<(String, String)>, String> {
    // Not the error's own text: it shows the line, and the line may hold the token.
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        let line =
            error.span().map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        format!(
            "line {line} is not TOML ({}): correct it",
            error.message().lines().next().unwrap_or_default()
        )
    })?;
    let mut found = Vec::new();
    for (section, value) in table {
        let toml::Value::Table(keys) = value else {
            return Err(format!(
                "{section:?} stands outside a section: write it under [node] or another section"
            ));
        };
        for (name, value) in keys {
            let key = format!("{section}.{name}");
            let value =
                plain(&value).ok_or_else(|| format!("{key} is neither a value nor a list of values"))?;
            found.push((key, value));
        }
    }
    Ok(found)
}

fn plain(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Float(number) => Some(number.to_string()),
        toml::Value::Boolean(flag) => Some(flag.to_string()),
        toml::Value::Array(items) => {
            let items: Option<Vec<String>> = items.iter().map(plain).collect();
            items.map(|items| items.join(","))
        }
        toml::Value::Datetime(_) | toml::Value::Table(_) => None,
    }
}

/// A file with every key, its meaning and its default, all commented out.
pub(crate) fn template() -> String {
    let mut text = String::from(
        "# The configuration of an annulus agent. Every line below shows a default; remove the # to change it.\n\
         # Flags are stronger than the environment, the environment is stronger than this file.\n",
    );
    let mut section = "";
    for key in KEYS {
        let (own, name) = key.name.split_once('.').expect("a key is section.name");
        if own != section {
            section = own;
            let _ = write!(text, "\n[{section}]\n");
        }
        let _ =
            write!(text, "# {} ({})\n# {name} = {}\n", key.help, key.kind.hint(), written(key, key.default));
    }
    text
}

/// A value in the syntax of the file.
pub(super) fn written(key: &Key, value: &str) -> String {
    if key.kind.is_list() {
        let quoted: Vec<String> = items(value).map(|item| format!("{item:?}")).collect();
        format!("[{}]", quoted.join(", "))
    } else if key.kind.is_number() && !value.is_empty() {
        value.into()
    } else {
        format!("{value:?}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_with_every_line_in_force_is_the_default() {
        let active: String = template()
            .lines()
            .filter(|line| !line.starts_with("# ") || (line.contains(" = ") && !line.ends_with(')')))
            .map(|line| line.trim_start_matches("# ").to_owned() + "\n")
            .collect();
        let found = parse(&active).unwrap();
        assert_eq!(found.len(), KEYS.len());
        for (name, value) in found {
            let key = KEYS.iter().find(|key| key.name == name).unwrap();
            assert_eq!(value, key.default, "{name}");
        }
    }

    #[test]
    fn lists_numbers_and_texts_are_read() {
        let found =
            parse("[members]\nadvertise = [\"127.0.0.2:1\", \"127.0.0.3:1\"]\nport = 7\ninterval = \"2s\"\n")
                .unwrap();
        let expected = [
            ("members.advertise", "127.0.0.2:1,127.0.0.3:1"),
            ("members.port", "7"),
            ("members.interval", "2s"),
        ];
        for (name, value) in expected {
            assert!(found.contains(&(name.into(), value.into())), "{name}: {found:?}");
        }
    }

    #[test]
    fn a_key_outside_a_section_is_refused() {
        assert!(parse("port = 7").unwrap_err().contains("outside a section"));
        assert!(parse("[members]\n[members.deep]\nx = 1").unwrap_err().contains("members.deep"));
        let error = parse("[http]\ntoken = \"secret\n").unwrap_err();
        assert!(error.starts_with("line 2 is not TOML") && !error.contains("secret"), "{error}");
    }
}
