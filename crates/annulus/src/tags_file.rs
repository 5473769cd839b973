//! The tags file: changes of tags at run time, kept in the data directory. After a restart they apply again, over the
//! configured tags.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::data_dir::{read_or_set_aside, replace};

/// The name of the file.
const FILE: &str = "tags.json";

/// The changes against the configured tags.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct TagChanges {
    set: BTreeMap<String, String>,
    removed: BTreeSet<String>,
}

impl TagChanges {
    /// Adds a change: a tag that is both set and removed is removed.
    pub(crate) fn change(&mut self, set: BTreeMap<String, String>, remove: &[String]) {
        self.removed.retain(|key| !set.contains_key(key));
        self.set.extend(set);
        for key in remove {
            self.set.remove(key);
            self.removed.insert(key.clone());
        }
    }

    /// These changes, and then further ones.
    #[must_use]
    pub(crate) fn then(mut self, later: Self) -> Self {
        let removed: Vec<String> = later.removed.into_iter().collect();
        self.change(later.set, &removed);
        self
    }

    /// Applies the changes to these tags.
    pub(crate) fn apply(&self, tags: &mut BTreeMap<String, String>) {
        tags.retain(|key, _| !self.removed.contains(key));
        tags.extend(self.set.clone());
    }
}

/// The file, if there is a data directory.
#[derive(Clone, Debug)]
pub(crate) struct TagsFile {
    dir: Option<PathBuf>,
}

impl TagsFile {
    /// The file in this directory.
    #[must_use]
    pub(crate) fn new(dir: Option<&Path>) -> Self {
        Self { dir: dir.map(Path::to_owned) }
    }

    /// All changes so far. A file that cannot be read is set aside as `tags.bad`.
    #[must_use]
    pub(crate) fn read(&self) -> TagChanges {
        let Some(file) = self.dir.as_deref().map(|dir| dir.join(FILE)) else { return TagChanges::default() };
        read_or_set_aside(&file, |text| serde_json::from_str(text)).unwrap_or_default()
    }

    /// Replaces the file. A crash leaves the old file or the new one. Without a directory nothing is kept.
    ///
    /// # Errors
    /// If the system refuses.
    pub(crate) fn write(&self, changes: &TagChanges) -> io::Result<()> {
        let Some(dir) = &self.dir else { return Ok(()) };
        replace(dir, &dir.join(FILE), &serde_json::to_string(changes)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn changed_tags_override_configured_ones() {
        let dir = tempfile::tempdir().unwrap();
        let file = TagsFile::new(Some(dir.path()));
        let mut changes = file.read();
        changes.change(tags(&[("role", "db"), ("zone", "north")]), &["rack".into()]);
        changes.change(tags(&[("rack", "7")]), &["zone".into()]);
        file.write(&changes).unwrap();
        let mut configured = tags(&[("role", "web"), ("zone", "south"), ("disk", "ssd")]);
        TagsFile::new(Some(dir.path())).read().apply(&mut configured);
        assert_eq!(configured, tags(&[("role", "db"), ("rack", "7"), ("disk", "ssd")]));
    }

    #[test]
    fn a_spoilt_file_is_set_aside() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(FILE), "{").unwrap();
        assert_eq!(TagsFile::new(Some(dir.path())).read(), TagChanges::default());
        assert!(dir.path().join("tags.bad").exists());
    }
}
