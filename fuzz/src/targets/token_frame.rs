//! The data inside TP5: the frame, the document in it, and that data of any peer can be merged.

use annulus_core::jitterbug::{Document, frame, unframe};

pub(super) fn run(bytes: &[u8]) {
    if let Ok(payload) = unframe(bytes) {
        assert_eq!(frame(payload), bytes, "a frame has one form");
    }
    assert_eq!(unframe(&frame(bytes)), Ok(bytes), "what is framed comes out again");
    let (one, other) = bytes.split_at(bytes.len() / 2);
    let read = |json: &[u8]| Document::from_json(json).ok();
    if let Some(document) = read(bytes) {
        check(&document, &Document::default());
    }
    if let (Some(one), Some(other)) = (read(one), read(other)) {
        check(&one, &other);
    }
}

fn check(one: &Document, other: &Document) {
    let data = one.to_data();
    assert_eq!(Document::from_data(&data).as_ref(), Ok(one), "what is written is read again");
    let both = one.merge(other);
    assert_eq!(both, other.merge(one), "merge is the same from both sides");
    assert_eq!(one.merge(one), *one, "merge of the same is the same");
    assert_eq!(both.merge(one).counts, both.counts, "nothing is lost");
    assert!(both.sum() >= one.sum().max(other.sum()), "a fence never falls by a merge");
}
