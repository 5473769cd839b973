//! PA-36a: a message of which there may be another copy is delivered if the neighbours did not deliver it.

use core::time::Duration;

use super::joining::{Joiner, contact};
use super::*;

const SECOND: Duration = Duration::from_secs(1);
const OWN: u128 = 0x5000 << 112;

/// A node that has had two neighbours for long, and those; the third is further away.
fn settled() -> (Joiner, [Contact; 3]) {
    let mut host = Joiner::new(Config { id: Id::new(OWN), ..small() });
    let neighbours = [contact(OWN - 10, 1), contact(OWN + 10, 2), contact(OWN + 1000, 3)];
    let announce =
        Message::Announce { seen: None, versions: Versions::default(), tables: TablesSent::default() };
    for from in neighbours {
        host.hear(from, core::slice::from_ref(&announce));
        let said = host.said();
        host.answer_probes(&said, &neighbours);
    }
    // Longer than it takes to settle, shorter than until the leaves are asked whether they live.
    for _ in 0..20 {
        host.rig.advance(SECOND / 2);
        let said = host.said();
        host.answer_probes(&said, &neighbours);
    }
    (host, neighbours)
}

/// A message to our own id, sent when our clock showed what it shows now.
fn doubtful(host: &Joiner, number: u128, age: Duration) -> Message {
    let envelope = Envelope {
        id: MessageId(number),
        attempt: 0,
        key: Id::new(OWN + 1),
        origin: contact(OWN + 1000, 3),
        ttl: 9,
        hops: 3,
        copies: Copies::Doubtful,
        doubted: Vec::new(),
        body: Body::App { app: AppName::default(), ask: false, payload: b"hi".to_vec() },
    };
    let clock = Pastry::clock(host.rig.now);
    let sent = Some(Sent { clock, patience_micros: 200_000, age_micros: age.as_micros() as u32 });
    Message::Route { transmission: 3, sent, envelope }
}

fn outcomes(said: &[Message]) -> Vec<Outcome> {
    let receipts = said.iter().filter_map(|message| match message {
        Message::Receipt { outcome, .. } => Some(*outcome),
        _ => None,
    });
    receipts.collect()
}

fn testify(testimony: Testimony) -> Message {
    Message::Testify { id: MessageId(7), testimony }
}

/// What becomes of a message of which the two neighbours asked say this.
fn judged(testimonies: [Testimony; 2]) -> (u64, Vec<Outcome>) {
    let (mut host, neighbours) = settled();
    let message = doubtful(&host, 7, SECOND);
    host.hear(neighbours[2], &[message]);
    let said = host.said();
    let asked = said.iter().filter(|message| matches!(message, Message::Inquire { .. })).count();
    assert_eq!((asked, outcomes(&said)), (2, vec![]), "the two closest to the key are asked first");
    for (from, testimony) in neighbours.into_iter().zip(testimonies) {
        host.hear(from, &[testify(testimony)]);
    }
    (host.rig.machine.counted().messages_delivered, outcomes(&host.said()))
}

#[test]
fn it_is_delivered_if_no_neighbour_has_delivered_it() {
    let (delivered, told) = judged([Testimony::No, Testimony::No]);
    assert!(delivered == 1 && matches!(told[..], [Outcome::Delivered { by }] if by.id == Id::new(OWN)));
}

#[test]
fn a_neighbour_that_has_delivered_it_is_told_to_its_origin() {
    let (delivered, told) = judged([Testimony::No, Testimony::Delivered]);
    assert!(delivered == 0 && matches!(told[..], [Outcome::Delivered { by }] if by == contact(OWN + 10, 2)));
}

#[test]
fn if_a_neighbour_cannot_tell_it_ends_as_unknown() {
    assert_eq!(judged([Testimony::No, Testimony::Perhaps]), (0, vec![Outcome::Unknown]));
}

#[test]
fn if_a_neighbour_does_not_answer_it_ends_as_unknown() {
    let (mut host, neighbours) = settled();
    let message = doubtful(&host, 7, SECOND);
    host.hear(neighbours[2], &[message]);
    host.hear(neighbours[0], &[testify(Testimony::No)]);
    // Word of somebody who was not asked does not count.
    host.hear(neighbours[2], &[testify(Testimony::No)]);
    host.rig.advance(host.rig.machine.config.network_timeout);
    assert_eq!(outcomes(&host.said()), [Outcome::Unknown]);
    host.hear(neighbours[1], &[testify(Testimony::No)]);
    assert_eq!(host.rig.machine.counted().messages_delivered, 0, "too late");
}

#[test]
fn it_ends_as_unknown_if_it_is_older_than_we_are() {
    let (mut host, neighbours) = settled();
    let message = doubtful(&host, 7, 9 * SECOND);
    host.hear(neighbours[2], &[message]);
    assert_eq!(outcomes(&host.said()), [Outcome::Unknown], "our former self may have delivered it");
}

#[test]
fn it_ends_as_unknown_if_its_origin_should_be_our_neighbour_and_is_not() {
    let (mut host, neighbours) = settled();
    let Message::Route { transmission, sent, mut envelope } = doubtful(&host, 7, SECOND) else {
        panic!("it is one")
    };
    envelope.origin = contact(OWN + 500, 9);
    host.hear(neighbours[2], &[Message::Route { transmission, sent, envelope }]);
    let said = host.said();
    assert_eq!(outcomes(&said), [Outcome::Unknown], "there are two rings");
    assert_eq!(host.answer_probes(&said, &[contact(OWN + 500, 9)]), 1, "which meet by that");
    assert!(host.rig.machine.leaf_set().contains(Id::new(OWN + 500)));
}

#[test]
fn it_ends_as_unknown_if_who_may_have_it_should_be_our_neighbour_and_is_not() {
    let (mut host, neighbours) = settled();
    let mut message = doubtful(&host, 7, SECOND);
    if let Message::Route { envelope, .. } = &mut message {
        envelope.doubted = vec![neighbours[0].id, Id::new(OWN + 3)];
    }
    host.hear(neighbours[2], &[message]);
    assert_eq!(outcomes(&host.said()), [Outcome::Unknown], "another ring has an owner of its own");
}

#[test]
fn who_says_no_does_not_deliver_it_later() {
    let (mut host, neighbours) = settled();
    let inquire = |number: u128, key: u128| Message::Inquire {
        id: MessageId(number),
        key: Id::new(key),
        age_micros: 1_000_000,
    };
    let answer = |host: &mut Joiner, message: Message| {
        host.hear(neighbours[1], &[message]);
        host.said().iter().find_map(|message| match message {
            Message::Testify { testimony, .. } => Some(*testimony),
            _ => None,
        })
    };
    assert_eq!(answer(&mut host, inquire(7, OWN + 9)), Some(Testimony::No));
    let Message::Route { transmission, sent, mut envelope } = doubtful(&host, 7, SECOND) else {
        panic!("it is one")
    };
    envelope.copies = Copies::One;
    host.hear(neighbours[2], &[Message::Route { transmission, sent, envelope }]);
    assert_eq!(outcomes(&host.said()), [Outcome::Unknown], "though there is no doubt about this one");
    assert_eq!(answer(&mut host, inquire(8, OWN + 1)), Some(Testimony::Perhaps), "the key is ours");
    let old = Message::Inquire { id: MessageId(9), key: Id::new(OWN + 9), age_micros: 60_000_000 };
    assert_eq!(answer(&mut host, old), Some(Testimony::Perhaps), "older than we are");
    let Message::Route { transmission, sent, mut envelope } = doubtful(&host, 10, SECOND) else {
        panic!("it is one")
    };
    envelope.copies = Copies::One;
    host.hear(neighbours[2], &[Message::Route { transmission, sent, envelope }]);
    host.said();
    assert_eq!(answer(&mut host, inquire(10, OWN + 1)), Some(Testimony::Delivered));
}

#[test]
fn who_leaves_tells_what_becomes_of_the_messages_that_wait_with_it() {
    let (mut host, neighbours) = settled();
    let message = doubtful(&host, 7, SECOND);
    host.hear(neighbours[2], &[message]);
    host.said();
    host.rig.stop();
    assert_eq!(outcomes(&host.said()), [Outcome::Unknown]);
}
