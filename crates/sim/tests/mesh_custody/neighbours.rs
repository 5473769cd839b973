//! Answers between neighbours: lost answers (CUF-5), nodes that pass a message to each other in a circle (CUF-6), and
//! foreign nodes, which send none (CUF-8).

use core::time::Duration;

use annulus_core::w3w::{Config, Fault as Broken, SentState};
use annulus_sim::{DiskFate, Fault, HostId};

use crate::post::{MINUTE, Post, SECOND};

#[test]
fn cuf_5_an_answer_that_is_lost_again_and_again_makes_no_second_copy_at_the_relay() {
    for seed in 1..6 {
        let mut post = Post::new(3, seed, |_, _| {});
        let [sender, relay, recipient] = post.hosts[..] else { unreachable!("there are three") };
        post.cut(sender, recipient);
        post.run(30 * SECOND);
        post.crash(recipient, true, DiskFate::UnsyncedLost);
        post.run(15 * SECOND);
        post.watch.kill_at_held = Some((relay, 4));
        (0..5).for_each(|number| post.letter(sender, recipient, &format!("letter {number}")));
        for _ in 0..12 {
            post.run(10 * SECOND);
            post.sim.fault(Fault::Start(relay));
        }
        post.run(MINUTE);
        let left = post.watch.kill_at_held.map_or(4, |(_, left)| left);
        assert!(left < 4, "seed {seed}: the relay lost power {} times with its answer", 4 - left);
        assert_eq!((post.queued(sender), post.queued(relay)), (5, 5), "seed {seed}: one copy at each");
        let nid = post.nid(relay);
        for line in post.outbox(sender) {
            assert_eq!((line.state, line.custodians[0]), (SentState::UnderWay, Some(nid)), "seed {seed}");
        }
        post.watch.kill_at_held = None;
        post.sim.fault(Fault::Start(recipient));
        post.run(3 * MINUTE);
        assert_eq!((post.inbox(recipient), post.watch.total()), (5, 5), "seed {seed}");
        post.all_delivered(sender);
    }
}

/// A foreign node between two that know letters.
fn between(config: &mut Config, index: usize) {
    if index == 1 {
        config.fault = Some(Broken::Foreign);
    }
}

#[test]
fn cuf_8_letters_pass_a_foreign_relay_that_loses_power_at_any_moment() {
    for moment in 0..24_u32 {
        let mut post = Post::new(3, u64::from(moment) + 1, between);
        let [sender, relay, recipient] = post.hosts[..] else { unreachable!("there are three") };
        post.cut(sender, recipient);
        post.run(30 * SECOND);
        (0..3).for_each(|number| post.letter(sender, recipient, &format!("letter {number}")));
        // From before the first byte leaves to long after the relay's kernel has confirmed all of them.
        post.run(Duration::from_micros(300) * 2_u32.pow(moment / 2));
        post.crash(relay, true, DiskFate::UnsyncedLost);
        post.run(SECOND);
        post.sim.fault(Fault::Start(relay));
        post.run(30 * MINUTE);
        assert_eq!(post.inbox(recipient), 3, "moment {moment}");
        post.all_delivered(sender);
    }
}

#[test]
fn cuf_8_a_foreign_recipient_gets_the_bytes_of_the_document_once() {
    for moment in 0..12_u32 {
        let mut post = Post::new(2, u64::from(moment) + 1, between);
        let [sender, recipient] = post.hosts[..] else { unreachable!("there are two") };
        let texts = ["one", "two", "three"];
        texts.iter().for_each(|text| post.message(sender, recipient, text));
        post.run(Duration::from_millis(1) * 2_u32.pow(moment));
        // The connection is reset within a minute after the confirmation.
        post.crash(recipient, true, DiskFate::UnsyncedLost);
        post.run(SECOND);
        post.sim.fault(Fault::Start(recipient));
        post.run(2 * 60 * MINUTE);
        // A crash between the disk and the report leaves a message unreported in the inbox.
        assert_eq!(post.inbox(recipient), 3, "moment {moment}");
        let written: Vec<&[u8]> = post.watch.plain_written.iter().map(|(_, data)| data.as_slice()).collect();
        assert!(written.iter().all(|data| texts.iter().any(|text| *data == text.as_bytes())), "{written:?}");
        for line in post.outbox(sender) {
            assert_eq!((line.state, line.letter), (SentState::Given, None), "no more can be known");
        }
    }
}

#[test]
fn cu_23_a_plain_message_that_a_peer_holds_does_not_wait_here_only() {
    // The recipient is foreign, so the message is no letter.
    let mut post = Post::new(3, 23, |config, index| {
        if index == 2 {
            config.fault = Some(Broken::Foreign);
        }
    });
    let [sender, peer, recipient] = post.hosts[..] else { unreachable!("there are three") };
    post.crash(recipient, true, DiskFate::UnsyncedLost);
    post.run(15 * SECOND);
    post.plain(sender, recipient, "plain");
    post.run(5 * SECOND);
    // The sender is next to the recipient, so both keep it.
    assert_eq!((post.queued(sender), post.queued(peer)), (1, 1));
    let states: Vec<SentState> = post.outbox(sender).iter().map(|line| line.state).collect();
    assert_eq!(states, [SentState::Given], "a peer has it");
    post.sim.fault(Fault::Start(recipient));
    post.run(MINUTE);
    assert_eq!((post.inbox(recipient), post.watch.total()), (1, 1));
}

#[test]
fn cuf_8_a_foreign_recipient_that_is_away_for_half_an_hour_gets_a_message_once() {
    let mut post = Post::new(4, 8, |config, index| {
        if index == 3 {
            config.fault = Some(Broken::Foreign);
        }
    });
    let [sender, .., recipient] = post.hosts[..] else { unreachable!("there are four") };
    post.crash(recipient, true, DiskFate::UnsyncedLost);
    post.run(15 * SECOND);
    post.message(sender, recipient, "plain");
    post.run(30 * MINUTE);
    let others: Vec<HostId> = post.hosts[1..3].to_vec();
    others.iter().for_each(|host| post.restart(*host));
    post.sim.fault(Fault::Start(recipient));
    post.run(3 * 60 * MINUTE);
    assert_eq!((post.inbox(recipient), post.watch.total()), (1, 1));
}
