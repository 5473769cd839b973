//! Custody in the worst moments (CUF-2 … CUF-10): few nodes, faults that are aimed, and every delivery counted.
//!
//! | checker | what it holds |
//! |---|---|
//! | D | every message that was acknowledged arrives in the end, unless its sender withdrew it or its lifetime is over |
//! | O | a letter, or a plain message, is delivered once |
//! | T | a message that is reported as delivered was; one that expired here was not |

mod neighbours;
mod post;

use core::time::Duration;

use annulus_core::w3w::{Command, Config, Fault as Broken, Presence, Reply, Sent, SentState, Why};
use annulus_sim::{Config as World, DiskFate, Fault, HostId};

use post::{DAY, MINUTE, Post, SECOND};

#[test]
fn cuf_2_a_recipient_that_is_away_for_six_days_gets_its_letters_by_name_though_all_others_restarted() {
    let mut post = Post::new(4, 2, |_, _| {});
    let [red, green, white, blue] = post.hosts[..] else { unreachable!("there are four") };
    let nid = post.nid(blue);
    let member = Command::Member {
        nid,
        name: "blue".into(),
        ip: None,
        presence: Presence::Alive,
        knows_letters: true,
    };
    post.ask(red, member);
    post.run(5 * SECOND);
    post.crash(blue, true, DiskFate::UnsyncedLost);
    (0..10).for_each(|number| post.letter(red, blue, &format!("letter {number}")));
    post.run(DAY);
    for host in [red, green, white] {
        post.restart(host);
        post.run(MINUTE);
    }
    let Reply::Book(found) = post.ask(red, Command::Lookup { name: "blue".into() }) else {
        panic!("no book")
    };
    assert_eq!(
        found.iter().map(|entry| entry.nid).collect::<Vec<_>>(),
        [nid],
        "the name outlives everything"
    );
    (10..15).for_each(|number| post.letter(red, blue, &format!("letter {number}")));
    post.run(5 * DAY);
    assert_eq!(post.watch.total(), 0);
    post.sim.fault(Fault::Start(blue));
    post.run(2 * MINUTE);
    assert_eq!((post.inbox(blue), post.watch.total()), (15, 15));
    post.all_delivered(red);
}

#[test]
fn cuf_3_a_kill_at_any_moment_of_an_exchange_loses_nothing_and_repeats_nothing() {
    let mut world = World::default();
    world.disk.sync = Duration::from_millis(1)..=Duration::from_millis(4);
    for role in 0..3 {
        for moment in 0..40_u32 {
            // The sender and the recipient are not connected: everything goes through the second.
            let mut post = Post::with_world(3, u64::from(moment) + 100, world.clone(), |_, _| {});
            let [sender, relay, recipient] = post.hosts[..] else { unreachable!("there are three") };
            post.cut(sender, recipient);
            post.run(30 * SECOND);
            (0..3).for_each(|number| post.letter(sender, recipient, &format!("letter {number}")));
            post.run(Duration::from_micros(400) * moment);
            let host = [sender, relay, recipient][role];
            post.crash(host, moment % 2 == 0, DiskFate::UnsyncedLost);
            post.run(SECOND);
            post.sim.fault(Fault::Start(host));
            post.run(5 * MINUTE);
            let acknowledged = post.watch.acknowledged.len();
            let inbox = post.inbox(recipient);
            assert!(inbox >= acknowledged, "role {role}, moment {moment}: {inbox} of {acknowledged}");
            post.all_delivered(sender);
        }
    }
}

#[test]
fn cuf_4_a_relay_that_loses_its_disk_after_held_delays_a_letter_and_no_more() {
    for (seed, fate) in [(1, DiskFate::Lost), (2, DiskFate::Lied), (3, DiskFate::Lied), (4, DiskFate::Lost)] {
        let mut world = World::default();
        world.disk.history = 16;
        let mut post = Post::with_world(3, seed, world, |_, _| {});
        let [sender, relay, recipient] = post.hosts[..] else { unreachable!("there are three") };
        post.cut(sender, recipient);
        post.run(30 * SECOND);
        post.crash(recipient, true, DiskFate::UnsyncedLost);
        post.run(15 * SECOND);
        (0..5).for_each(|number| post.letter(sender, recipient, &format!("letter {number}")));
        post.run(5 * SECOND);
        assert!(post.watch.held > 0, "the relay holds them");
        post.crash(relay, true, fate);
        post.run(SECOND);
        post.sim.fault(Fault::Start(relay));
        post.run(MINUTE);
        post.sim.fault(Fault::Start(recipient));
        // CU-18: the origin sends them again after ten minutes, and later.
        post.run(60 * MINUTE);
        assert_eq!(post.inbox(recipient), 5, "seed {seed}");
        post.all_delivered(sender);
    }
}

/// A plain message is in the custody of the two neighbours of its recipient once they have answered `held`. They lose
/// power.
fn custodians_die_after_held(seed: u64, change: fn(&mut Config, usize)) -> bool {
    let mut world = World::default();
    world.disk.sync = Duration::from_millis(2)..=Duration::from_millis(20);
    let mut post = Post::with_world(6, seed, world, change);
    let mut ring = post.hosts.clone();
    ring.sort_by_key(|host| post.nid(*host));
    // The sender is on the other side of the ring, so it does not hold the message itself.
    let (recipient, sender) = (ring[0], ring[3]);
    post.crash(recipient, true, DiskFate::UnsyncedLost);
    post.run(15 * SECOND);
    post.plain(sender, recipient, "plain");
    post.run(Duration::from_millis(200));
    let others: Vec<HostId> = ring.into_iter().filter(|host| ![sender, recipient].contains(host)).collect();
    others.iter().for_each(|host| post.crash(*host, true, DiskFate::UnsyncedLost));
    post.run(SECOND);
    others.iter().for_each(|host| post.sim.fault(Fault::Start(*host)));
    post.run(30 * SECOND);
    post.sim.fault(Fault::Start(recipient));
    post.run(10 * MINUTE);
    post.inbox(recipient) == 1
}

#[test]
fn cu_13_messages_held_by_a_relay_survive_its_loss_of_power() {
    for seed in 1..9 {
        assert!(custodians_die_after_held(seed, |_, _| {}), "seed {seed}");
    }
    let broken: fn(&mut Config, usize) = |config, _| config.fault = Some(Broken::ReplyBeforeDurable);
    assert!(
        (1..30).any(|seed| !custodians_die_after_held(seed, broken)),
        "a `held` before the sync goes unnoticed"
    );
}

/// The recipient loses power while plain messages are on their way to it.
fn recipient_dies_in_the_middle(seed: u64, change: fn(&mut Config, usize)) -> bool {
    let mut post = Post::new(3, seed, change);
    let [sender, _, recipient] = post.hosts[..] else { unreachable!("there are three") };
    for number in 0..20 {
        post.plain(sender, recipient, &format!("plain {number}"));
    }
    post.run(Duration::from_micros(1500));
    post.crash(recipient, true, DiskFate::UnsyncedLost);
    post.run(20 * SECOND);
    post.sim.fault(Fault::Start(recipient));
    post.run(10 * MINUTE);
    post.inbox(recipient) == 20
}

#[test]
fn cu_11_a_peer_that_loses_power_swallows_nothing_that_it_did_not_confirm() {
    for seed in 1..6 {
        assert!(recipient_dies_in_the_middle(seed, |_, _| {}), "seed {seed}");
    }
    let broken: fn(&mut Config, usize) = |config, _| config.fault = Some(Broken::TrustKernel);
    assert!(
        (1..6).any(|seed| !recipient_dies_in_the_middle(seed, broken)),
        "a kernel that is trusted goes unnoticed"
    );
}

#[test]
fn cuf_7_a_full_node_answers_full_and_everything_arrives_when_there_is_room() {
    // The recipient has room for two messages, the relay for a few.
    let mut post = Post::new(3, 7, |config, index| match index {
        2 => config.quota_bytes = 700,
        1 => config.quota_bytes = 4000,
        _ => {}
    });
    let [sender, _, recipient] = post.hosts[..] else { unreachable!("there are three") };
    for number in 0..12 {
        post.letter(sender, recipient, &format!("letter {number} {}", ".".repeat(200)));
    }
    post.run(MINUTE);
    let states: Vec<(SentState, Option<Why>)> =
        post.outbox(sender).iter().map(|line| (line.state, line.why)).collect();
    assert!(states.iter().all(|(state, _)| state.is_open() || *state == SentState::Delivered), "{states:?}");
    let delivered = states.iter().filter(|(state, _)| *state == SentState::Delivered).count();
    assert_eq!(delivered, post.inbox(recipient), "what is delivered is there");
    assert!(delivered < 12 && states.iter().any(|(_, why)| *why == Some(Why::PeersFull)), "{states:?}");
    for _ in 0..40 {
        let Reply::Inbox(lines) = post.ask(recipient, Command::Inbox { from: 0 }) else { panic!("no inbox") };
        for line in lines {
            post.ask(recipient, Command::Remove { number: line.number });
        }
        post.run(MINUTE);
    }
    assert_eq!(post.watch.total(), 12);
    post.all_delivered(sender);
    // The sender's own store is full: `send` fails at once, and nothing is lost.
    let mut post = Post::new(2, 8, |config, index| {
        if index == 0 {
            config.quota_bytes = 4000;
        }
    });
    let (full, other) = (post.hosts[0], post.hosts[1]);
    post.crash(other, true, DiskFate::UnsyncedLost);
    post.run(15 * SECOND);
    let (to, data) = (post.nid(other), vec![b'.'; 300]);
    let send = Command::SendLetter { to, data, lifetime: None, certain: true, receipt: false };
    let replies: Vec<Reply> = (0..6).map(|_| post.ask(full, send.clone())).collect();
    let is_taken = |reply: &Reply| matches!(reply, Reply::Sent { .. });
    assert!(is_taken(&replies[0]) && replies.iter().filter(|reply| is_taken(reply)).count() < 6);
    assert!(replies.contains(&Reply::RecipientQuotaFull(to)), "CU-26: a quarter is for one recipient");
    let taken = replies.iter().filter(|reply| is_taken(reply)).count();
    post.sim.fault(Fault::Start(other));
    post.run(2 * MINUTE);
    assert_eq!(post.inbox(other), taken);
}

#[test]
fn cuf_9_equal_texts_are_different_letters_and_no_gap_blocks_a_sender() {
    let mut post = Post::new(9, 9, |config, _| config.peers_max = 16);
    let (senders, recipient) = (post.hosts[..8].to_vec(), post.hosts[8]);
    post.crash(recipient, true, DiskFate::UnsyncedLost);
    post.run(15 * SECOND);
    let mut cancelled = 0;
    for round in 0..125_u32 {
        for &sender in &senders {
            let lifetime = (round % 3 == 1).then_some(MINUTE);
            post.letter_for(sender, recipient, "the same text", lifetime);
        }
    }
    post.run(10 * SECOND);
    for &sender in &senders {
        for number in (2..125).step_by(9) {
            if let Reply::Cancelled { .. } = post.ask(sender, Command::Cancel { number }) {
                cancelled += 1;
            }
        }
    }
    // Those of a minute are over when the recipient comes.
    post.run(3 * MINUTE);
    post.sim.fault(Fault::Start(recipient));
    post.run(2 * MINUTE);
    for &sender in &senders {
        post.letter(sender, recipient, "the same text");
    }
    post.run(2 * MINUTE);
    let open = |line: &Sent| line.state.is_open();
    let (mut still_open, mut delivered) = (0, 0);
    for &sender in &senders {
        let lines = post.outbox(sender);
        still_open += lines.iter().filter(|line| open(line)).count();
        delivered += lines.iter().filter(|line| line.state == SentState::Delivered).count();
        assert_eq!(
            lines.last().map(|line| line.state),
            Some(SentState::Delivered),
            "nobody is blocked by a gap"
        );
    }
    assert!(cancelled > 50, "{cancelled} were withdrawn");
    assert_eq!(still_open, 0, "every letter is over");
    // A letter that was withdrawn, or is over at its sender, may have been on its way: it arrives, or does not, once.
    assert!(post.watch.total() >= delivered && delivered >= 8 * 70, "{delivered} of {}", post.watch.total());
}

#[test]
fn cuf_10_a_recipient_with_an_old_disk_gets_every_new_letter_and_senders_get_an_event_for_a_lost_one() {
    for (seed, fate) in [(1, DiskFate::Rollback), (2, DiskFate::Rollback), (3, DiskFate::Lost)] {
        let mut world = World::default();
        world.disk.history = 64;
        let mut post = Post::with_world(3, seed, world, |_, _| {});
        let (sender, recipient) = (post.hosts[0], post.hosts[2]);
        for number in 0..10 {
            post.letter(sender, recipient, &format!("before {number}"));
            post.run(SECOND);
        }
        post.all_delivered(sender);
        post.crash(recipient, true, fate);
        post.run(SECOND);
        post.sim.fault(Fault::Start(recipient));
        post.run(30 * SECOND);
        let left = post.inbox(recipient);
        (0..10).for_each(|number| post.letter(sender, recipient, &format!("after {number}")));
        post.run(MINUTE);
        assert_eq!(
            post.inbox(recipient),
            left + 10,
            "seed {seed}: all new ones are there, and no old one came again"
        );
        post.all_delivered(sender);
        assert_eq!(post.watch.stores_lost > 0, fate == DiskFate::Lost, "seed {seed}");
    }
}
