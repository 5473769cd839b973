//! The node of the library, on real sockets.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use annulus::core::Id;
use annulus::core::pastry::{AppName, Verdict};
use annulus::core::swim::Preset;
use annulus::{Builder, JoinError, Limits, MemberEvent, Node, RouteError, StartError, Token};

/// It guards against hanging; nothing is measured by it.
const PATIENCE: Duration = Duration::from_secs(60);

async fn in_time<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.expect("it is done in time")
}

/// Node `number` of a group of its own; the first is the seed.
fn node(block: u8, number: u8) -> Builder {
    let seed = (number > 1).then(|| format!("127.67.{block}.1"));
    let bind = IpAddr::from([127, 67, block, number]);
    Node::builder().name(format!("node {number}")).bind(bind).preset(Preset::Local).join(seed)
}

async fn group(block: u8, size: u8, with: impl Fn(Builder) -> Builder) -> Vec<Node> {
    let mut nodes = Vec::new();
    for number in 1..=size {
        let node = with(node(block, number)).start().await.expect("loopback can be bound");
        in_time(node.joined(PATIENCE)).await.expect("it joins");
        nodes.push(node);
    }
    nodes
}

#[tokio::test]
async fn members_are_found_by_name_and_their_events_carry_them() {
    let red = node(1, 1).members().start().await.unwrap();
    let members = red.members().unwrap();
    let mut events = members.member_events();
    let blue = node(1, 2).tag("colour", "blue").members().start().await.unwrap();
    in_time(blue.joined(PATIENCE)).await.unwrap();
    let Some(MemberEvent::Joined(joined)) = in_time(events.next()).await else { panic!("it joins") };
    assert_eq!((joined.name.as_str(), joined.tags["colour"].as_str()), ("node 2", "blue"));
    assert_eq!(
        members.by_name("node 2").await.unwrap(),
        members.by_id(joined.id).await.unwrap().into_iter().collect::<Vec<_>>()
    );
    assert_eq!(members.by_name("nobody").await.unwrap(), []);
    blue.stop().await;
    loop {
        if let MemberEvent::Left(left) = in_time(events.next()).await.expect("red runs") {
            assert_eq!(left.id, joined.id);
            return;
        }
    }
}

#[tokio::test]
async fn a_message_reported_as_delivered_was_handled() {
    let nodes = group(2, 2, |node| node.members().route()).await;
    let (app, seen) = (AppName::new("work").unwrap(), Arc::new(Mutex::new(BTreeSet::new())));
    let mut servers = Vec::new();
    for node in &nodes {
        let seen = Arc::clone(&seen);
        let handler = move |request: annulus::Request| {
            let seen = Arc::clone(&seen);
            async move {
                let work = std::future::pending::<()>();
                assert!(tokio::time::timeout(Duration::from_millis(1), work).await.is_err());
                seen.lock().unwrap().insert(request.payload);
                Verdict::Accept
            }
        };
        servers.push(node.route().unwrap().serve(&app, Limits::default(), handler).await.unwrap());
    }
    let route = nodes[0].route().unwrap();
    let sends: Vec<_> = (0..3_000_u32)
        .map(|number| {
            let (route, app) = (route.clone(), app.clone());
            tokio::spawn(async move {
                let key = Id::from_text(&number.to_string());
                (number, route.send(&app, key, number.to_be_bytes()).await.is_ok())
            })
        })
        .collect();
    let mut delivered = 0;
    for send in sends {
        let (number, is_delivered) = in_time(send).await.unwrap();
        delivered += usize::from(is_delivered);
        assert!(!is_delivered || seen.lock().unwrap().contains(&number.to_be_bytes()[..]), "{number}");
    }
    assert!(delivered > 1_000, "{delivered} of 3000");
}

#[tokio::test]
async fn a_panic_in_a_handler_is_that_calls_error() {
    let nodes = group(3, 1, |node| node.members().route()).await;
    let (route, app) = (nodes[0].route().unwrap(), AppName::new("fragile").unwrap());
    let handler = |request: annulus::Request| async move {
        assert_ne!(request.payload, b"break", "as the test wants it");
        Verdict::Accept
    };
    let _server = route.serve(&app, Limits::default(), handler).await.unwrap();
    let broken = in_time(route.send(&app, Id::MIN, "break")).await;
    assert!(matches!(broken, Err(RouteError::Refused(_))), "{broken:?}");
    in_time(route.send(&app, Id::MIN, "hold")).await.unwrap();
}

/// Waits until the ring of the token has so many nodes.
async fn ring_of(token: &Token, nodes: usize) {
    let mut events = token.events();
    while token.status().await.expect("it runs").nodes.len() < nodes {
        events.next().await.expect("it runs");
    }
}

#[tokio::test]
async fn a_wait_that_is_given_up_frees_its_place_at_once() {
    let with = |node: Builder| node.members().token_with(|token| token.udp_port = 30_671);
    let nodes = group(4, 3, with).await;
    let tokens: Vec<_> = nodes.iter().map(|node| node.token().unwrap()).collect();
    in_time(ring_of(&tokens[2], 3)).await;
    let limit = Duration::from_secs(20);
    // How long the next turn takes to come, after a wait in between that was given up, or after none.
    let next_turn = async |gives_up: bool| {
        let held = in_time(tokens[0].acquire(limit)).await.unwrap();
        if gives_up {
            let given_up = tokio::time::timeout(Duration::from_millis(300), tokens[1].acquire(limit)).await;
            assert!(given_up.is_err(), "another has the token");
        }
        let begin = Instant::now();
        held.release().await;
        let turn = in_time(tokens[2].acquire(limit)).await.unwrap();
        assert!(turn.check().is_ok() && turn.left() > Duration::ZERO);
        begin.elapsed()
    };
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        without.push(next_turn(false).await);
        with.push(next_turn(true).await);
    }
    println!("the next turn came after {without:?}; after a wait that was given up, {with:?}");
    let (least, greatest) = (with.iter().min(), without.iter().max().map(|greatest| *greatest * 3));
    assert!(least < greatest.as_ref(), "a wait that was given up delays nobody");
    in_time(tokens[1].acquire(limit)).await.unwrap();
}

#[tokio::test]
async fn values_travel_with_the_token() {
    let with = |node: Builder| node.members().token_with(|token| token.udp_port = 30_672);
    let nodes = group(5, 2, with).await;
    let (red, blue) = (nodes[0].token().unwrap(), nodes[1].token().unwrap());
    let mut watch = blue.watch("door");
    assert_eq!(in_time(watch.changed()).await.unwrap(), None);
    in_time(ring_of(&blue, 2)).await;
    in_time(red.set("door", "\"open\"", PATIENCE)).await.unwrap();
    assert_eq!(in_time(watch.changed()).await.unwrap().as_deref(), Some("\"open\""));
    assert_eq!(blue.get("door").await.unwrap().as_deref(), Some("\"open\""));
    assert!(red.set("door", "open", PATIENCE).await.is_err(), "no JSON");
}

#[tokio::test]
async fn a_lock_of_a_node_is_given_up_with_its_wait() {
    let voter = "127.67.6.1:30942".parse().unwrap();
    let nodes = group(6, 1, |node| node.members().locks([voter])).await;
    let locks = nodes[0].locks().unwrap();
    let turn = in_time(locks.lock("billing").acquire()).await.unwrap();
    let wait = locks.lock("billing").acquire();
    assert!(tokio::time::timeout(Duration::from_millis(50), wait).await.is_err());
    turn.release().await;
    let next = in_time(locks.lock("billing").acquire()).await.unwrap();
    assert!(next.check().is_ok());
    nodes[0].stop().await;
    in_time(next.lost()).await;
    assert!(next.check().is_err());
}

#[cfg(feature = "disk")]
#[tokio::test]
async fn a_letter_waits_for_an_absent_node_and_stays_until_it_is_accepted() {
    let dir = tempfile::tempdir().unwrap();
    let with = |number: u8| node(7, number).data_dir(dir.path().join(number.to_string())).members().mesh();
    let red = with(1).start().await.unwrap();
    let mut events = red.members().unwrap().member_events();
    let blue = with(2).start().await.unwrap();
    while !matches!(in_time(events.next()).await, Some(MemberEvent::Joined(_))) {}
    let mesh = red.mesh().unwrap();
    blue.stop().await;
    drop(blue);
    let sent = mesh.send("node 2", "hello").await.unwrap();
    let blue = with(2).start().await.unwrap();
    in_time(sent.delivered()).await.unwrap();
    let letter = in_time(blue.mesh().unwrap().inbox().next()).await.unwrap();
    assert_eq!((&letter.data[..], letter.from), (&b"hello"[..], red.identity().nid().parse().unwrap()));
    drop(letter);
    let again = in_time(blue.mesh().unwrap().inbox().next()).await.unwrap();
    assert_eq!(again.from_name().await.unwrap().as_deref(), Some("node 1"));
    again.accept().await.unwrap();
    let mut inbox = blue.mesh().unwrap().inbox();
    assert!(tokio::time::timeout(Duration::from_millis(50), inbox.next()).await.is_err(), "it is gone");
}

#[tokio::test]
async fn a_file_arrives_with_progress() {
    let dir = tempfile::tempdir().unwrap();
    let nodes = group(8, 2, |node| node.members().mesh()).await;
    let (path, bytes) = (dir.path().join("film"), vec![7; 3 << 20]);
    std::fs::write(&path, &bytes).unwrap();
    let to = nodes[1].identity().nid();
    let mut file = nodes[0].mesh().unwrap().send_file(to, &path).await.unwrap();
    assert!(in_time(file.progress()).await.unwrap().is_some());
    in_time(file.delivered()).await.unwrap();
    let letter = in_time(nodes[1].mesh().unwrap().inbox().next()).await.unwrap();
    let (mesh, key) = (nodes[1].mesh().unwrap(), letter.file.expect("it is a file"));
    let mut read = Vec::new();
    for index in 0..4 {
        read.extend(mesh.read_block(key, index).await.unwrap());
    }
    assert_eq!(read, bytes);
}

#[tokio::test]
async fn a_dead_seed_is_named() {
    let lonely = node(9, 2).members().start().await.unwrap();
    let error = in_time(lonely.joined(Duration::from_secs(5))).await.unwrap_err();
    let JoinError::NoSeedAnswers { tried } = &error else { panic!("{error}") };
    assert_eq!(tried, &["127.67.9.1:7946"]);
}

#[cfg(feature = "disk")]
#[tokio::test]
async fn two_nodes_with_one_id_both_learn_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let first = node(10, 1).data_dir(dir.path().join("first")).members().route();
    let first = first.start().await.unwrap();
    std::fs::create_dir(dir.path().join("copy")).unwrap();
    for file in std::fs::read_dir(dir.path().join("first")).unwrap() {
        let file = file.unwrap();
        if file.file_name().to_string_lossy().contains("id") {
            std::fs::copy(file.path(), dir.path().join("copy").join(file.file_name())).unwrap();
        }
    }
    let copy = node(10, 2).data_dir(dir.path().join("copy")).members().route().start().await.unwrap();
    assert_eq!(first.identity(), copy.identity());
    for node in [&copy, &first] {
        let learns = async {
            let mut events = node.events();
            while !matches!(node.joined(Duration::ZERO).await, Err(JoinError::IdTaken { .. })) {
                events.next().await.expect("it runs");
            }
        };
        in_time(learns).await;
    }
}

#[test]
fn a_start_outside_a_runtime_is_an_error() {
    let mut start = std::pin::pin!(node(11, 1).members().start());
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    let std::task::Poll::Ready(started) = start.as_mut().poll(&mut cx) else { panic!("it does not wait") };
    assert!(matches!(started, Err(StartError::NoRuntime)));
}

/// On several threads a node may have joined before anybody hears its events.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_join_that_is_over_at_once_is_noticed() {
    let red = node(13, 1).members().route().start().await.unwrap();
    for number in 2..22 {
        let blue = node(13, number).members().route().start().await.unwrap();
        in_time(blue.joined(PATIENCE)).await.unwrap();
        // Red was there before the stream.
        let mut events = blue.members().unwrap().member_events();
        let is_red = |member: &annulus::Member| member.id == red.identity().id();
        while !matches!(in_time(events.next()).await, Some(MemberEvent::Joined(member)) if is_red(&member)) {}
        blue.stop().await;
    }
}

#[tokio::test]
async fn a_dropped_node_leaves_the_group() {
    let nodes = group(12, 1, annulus::Builder::members).await;
    let members = nodes[0].members().unwrap();
    let mut events = members.member_events();
    let blue = node(12, 2).members().start().await.unwrap();
    in_time(blue.joined(PATIENCE)).await.unwrap();
    drop(blue);
    while !matches!(in_time(events.next()).await, Some(MemberEvent::Left(_))) {}
}
