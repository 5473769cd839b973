//! The document in the form in which this program writes it, without values: counts, edges, voters.
//!
//! Every tenure reads and writes one, and nearly all of them have this form. A reader that knows the form needs a third of the
//! instructions of a reader of any JSON. It reads nothing else: it returns `None`, and the other reader decides.

use std::collections::BTreeMap;

use super::graph::{Edge, EdgeKind};

/// The text before and behind the group of the voters.
pub(super) const TURNS: [&str; 2] = [r#"{"group":""#, r#""}"#];

/// The hexadecimal digits of a group.
pub(super) const GROUP_DIGITS: usize = 32;

/// So many nodes or edges need no second allocation.
const FEW: usize = 8;

/// The fields of a document in this form.
#[derive(Default)]
pub(super) struct Canonical {
    pub(super) counts: BTreeMap<String, u64>,
    pub(super) edges: Vec<Edge>,
    pub(super) group: Option<String>,
}

/// Reads a document, if it has this form.
pub(super) fn read(json: &[u8]) -> Option<Canonical> {
    let mut text = Text(json);
    let mut document = Canonical::default();
    text.skip(br#"{"counts":{"#)?;
    if text.skip(b"}").is_none() {
        document.counts = text.list(Text::count)?.into_iter().collect();
        text.skip(b"}")?;
    }
    if text.skip(br#","edges":["#).is_some() {
        document.edges = text.list(Text::edge)?;
        text.skip(b"]")?;
    }
    if text.skip(br#","turns":"#).is_some() {
        text.skip(TURNS[0].as_bytes())?;
        let group = text.while_is(u8::is_ascii_hexdigit)?;
        document.group = (group.len() == GROUP_DIGITS).then(|| group.to_owned());
        document.group.as_ref()?;
        text.skip(TURNS[1].as_bytes())?;
    }
    text.skip(b"}")?;
    text.0.is_empty().then_some(document)
}

/// The rest of a text.
struct Text<'a>(&'a [u8]);

impl<'a> Text<'a> {
    fn skip(&mut self, start: &[u8]) -> Option<()> {
        self.0 = self.0.strip_prefix(start)?;
        Some(())
    }

    /// One or more of them, with commas between.
    fn list<T>(&mut self, one: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let mut all = Vec::with_capacity(FEW);
        all.push(one(self)?);
        while self.skip(b",").is_some() {
            all.push(one(self)?);
        }
        Some(all)
    }

    /// The bytes up to the first that is not such a one; they are ASCII.
    fn while_is(&mut self, is_one: fn(&u8) -> bool) -> Option<&'a str> {
        let length = self.0.iter().take_while(|byte| is_one(byte)).count();
        let (bytes, rest) = self.0.split_at(length);
        self.0 = rest;
        core::str::from_utf8(bytes).ok()
    }

    fn number(&mut self) -> Option<u64> {
        let (mut number, mut length) = (0_u64, 0);
        while let Some(digit) =
            self.0.get(length).map(|byte| byte.wrapping_sub(b'0')).filter(|digit| *digit < 10)
        {
            number = number.checked_mul(10)?.checked_add(digit.into())?;
            length += 1;
        }
        // JSON has no numbers with a zero in front.
        if length == 0 || (length > 1 && self.0[0] == b'0') {
            return None;
        }
        self.0 = &self.0[length..];
        Some(number)
    }

    fn small(&mut self) -> Option<u32> {
        u32::try_from(self.number()?).ok()
    }

    fn count(&mut self) -> Option<(String, u64)> {
        self.skip(b"\"")?;
        let host = self.while_is(u8::is_ascii_digit)?;
        self.skip(b"\":")?;
        Some((host.to_owned(), self.number()?))
    }

    fn edge(&mut self) -> Option<Edge> {
        self.skip(br#"{"fence":"#)?;
        let fence = self.number()?;
        self.skip(br#","host":"#)?;
        let host = self.small()?;
        self.skip(br#","kind":""#)?;
        let kind = match self.skip(b"restore") {
            Some(()) => EdgeKind::Restore,
            None => self.skip(b"merge").map(|()| EdgeKind::Merge)?,
        };
        self.skip(br#"","from":"#)?;
        let from = self.small()?;
        self.skip(br#","to":"#)?;
        let to = self.small()?;
        self.skip(b"}")?;
        Some(Edge { fence, host, kind, from, to })
    }
}

/// Writes counts whose names need no escape; another name ends it with `false`, and nothing is written.
pub(super) fn write_counts(json: &mut Vec<u8>, counts: &BTreeMap<String, u64>) -> bool {
    let is_plain = |name: &String| name.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if !counts.keys().all(is_plain) {
        return false;
    }
    json.push(b'{');
    for (index, (name, count)) in counts.iter().enumerate() {
        json.extend_from_slice(if index == 0 { b"\"" } else { b",\"" });
        json.extend_from_slice(name.as_bytes());
        json.extend_from_slice(b"\":");
        write_number(json, *count);
    }
    json.push(b'}');
    true
}

/// Writes edges.
pub(super) fn write_edges(json: &mut Vec<u8>, edges: &[Edge]) {
    json.push(b'[');
    for (index, edge) in edges.iter().enumerate() {
        json.extend_from_slice(if index == 0 { br#"{"fence":"# } else { br#",{"fence":"# });
        write_number(json, edge.fence);
        json.extend_from_slice(br#","host":"#);
        write_number(json, edge.host.into());
        json.extend_from_slice(match edge.kind {
            EdgeKind::Restore => br#","kind":"restore","from":"#,
            EdgeKind::Merge => br#","kind":"merge","from":"#,
        });
        write_number(json, edge.from.into());
        json.extend_from_slice(br#","to":"#);
        write_number(json, edge.to.into());
        json.push(b'}');
    }
    json.push(b']');
}

fn write_number(json: &mut Vec<u8>, number: u64) {
    json.extend_from_slice(Decimal::of(number).text().as_bytes());
}

/// A number in decimal digits, without an allocation.
pub(super) struct Decimal {
    digits: [u8; 20],
    first: usize,
}

impl Decimal {
    pub(super) fn of(number: u64) -> Self {
        let (mut digits, mut first, mut rest) = ([b'0'; 20], 20, number);
        loop {
            first -= 1;
            digits[first] += (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                return Self { digits, first };
            }
        }
    }

    pub(super) fn text(&self) -> &str {
        core::str::from_utf8(&self.digits[self.first..]).expect("digits are ASCII")
    }
}

#[cfg(test)]
mod tests {
    use super::super::Document;
    use super::*;

    /// A document without a shortcut: through the reader of any JSON.
    fn through_serde(json: &[u8]) -> Option<Document> {
        serde_json::from_slice(json).ok()
    }

    const WHOLE: &str = concat!(
        r#"{"counts":{"0":18446744073709551615,"17":4},"edges":[{"fence":7,"host":17,"kind":"restore","from":1,"to":2},"#,
        r#"{"fence":9,"host":4294967295,"kind":"merge","from":3,"to":4}],"turns":{"group":"00112233445566778899aabbccddeeff"}}"#
    );

    #[test]
    fn a_document_is_read_as_any_json_is() {
        let edges = &WHOLE[WHOLE.find(r#","edges""#).unwrap()..WHOLE.find(r#","turns""#).unwrap()];
        for json in [WHOLE, &WHOLE.replace(edges, ""), r#"{"counts":{}}"#, r#"{"counts":{"7":0}}"#] {
            let document = Document::from(read(json.as_bytes()).expect("it has the form"));
            assert_eq!(Some(document), through_serde(json.as_bytes()), "{json}");
        }
        // Names that are there twice, and edges in any order.
        for json in [
            r#"{"counts":{"7":1,"7":2,"5":3}}"#,
            r#"{"counts":{},"edges":[{"fence":9,"host":1,"kind":"merge","from":3,"to":4},{"fence":8,"host":1,"kind":"merge","from":3,"to":4}]}"#,
        ] {
            let document = Document::from(read(json.as_bytes()).expect("it has the form"));
            assert_eq!(Some(document), through_serde(json.as_bytes()), "{json}");
        }
    }

    /// Whatever is changed in it, this reader never reads what the other one refuses or reads in another way.
    #[test]
    fn a_document_with_other_bytes_is_read_alike_or_left_to_the_other_reader() {
        let (mut same, bytes) = (0, b"0123456789{}[]\",:.-+eEfgu\\ \n\0\xff");
        for at in 0..WHOLE.len() {
            for byte in bytes {
                let (mut changed, mut more, mut less) =
                    (WHOLE.as_bytes().to_vec(), WHOLE.as_bytes().to_vec(), WHOLE.as_bytes().to_vec());
                changed[at] = *byte;
                more.insert(at, *byte);
                less.remove(at);
                for json in [changed, more, less] {
                    if let Some(document) = read(&json).map(Document::from) {
                        let text = String::from_utf8_lossy(&json);
                        assert_eq!(Some(document), through_serde(&json), "{text}");
                        same += 1;
                    }
                }
            }
        }
        assert!(same > 100, "other digits are read here");
    }

    #[test]
    fn a_document_is_written_as_serde_writes_it() {
        let document = through_serde(WHOLE.as_bytes()).unwrap();
        let (mut counts, mut edges) = (Vec::new(), Vec::new());
        assert!(write_counts(&mut counts, &document.counts));
        write_edges(&mut edges, &document.edges);
        assert_eq!(counts, serde_json::to_vec(&document.counts).unwrap());
        assert_eq!(edges, serde_json::to_vec(&document.edges).unwrap());
        assert_eq!(document.to_json().text(), WHOLE);
        let strange = BTreeMap::from([("a\"b".to_owned(), 1)]);
        assert!(!write_counts(&mut counts, &strange));
    }

    #[test]
    fn a_number_is_written_in_decimal_digits() {
        for number in [0, 9, 10, 1_234_567_890, u64::MAX] {
            assert_eq!(Decimal::of(number).text(), number.to_string());
        }
    }
}
