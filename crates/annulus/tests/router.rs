//! The library's handle of `route`, on real sockets.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use annulus::core::Id;
use annulus::core::pastry::{AppName, Application, Config, Event, Failure, Passing, Verdict};
use annulus::net::Ended;
use annulus::{Options, RouteError, Router, StartError};

/// It guards against hanging; nothing is measured by it. On a slow machine an acknowledgement may come late, so messages
/// that must arrive may be repeated.
const PATIENCE: Duration = Duration::from_secs(60);
/// The longest message of the default configuration, less what an envelope needs.
const LARGE_BYTES: usize = 16 * 1024 * 1024;

fn config(block: u8, number: u8, seeds: Vec<SocketAddr>) -> Config {
    let bind = SocketAddr::from(([127, 65, block, number], 0));
    Config { id: Id::new(u128::from(number) << 124), bind, seeds, ..Config::default() }
}

/// A ring of nodes with the ids 1 << 124, 2 << 124 and so on.
async fn ring(block: u8, size: u8) -> Vec<Router> {
    let mut nodes: Vec<Router> = Vec::new();
    for number in 1..=size {
        let seeds = nodes.first().map(Router::addr).into_iter().collect();
        let node = Router::start(config(block, number, seeds), Options::default()).expect("it can start");
        in_time(node.joined()).await.expect("it joins");
        nodes.push(node);
    }
    nodes
}

async fn in_time<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.expect("it is done in time")
}

fn key(number: u8) -> Id {
    Id::new(u128::from(number) << 124 | 5)
}

/// Who does not read loses messages, and learns how many: no other event takes their room or is counted with them.
#[tokio::test]
async fn an_inbox_that_is_full_counts_what_it_misses() {
    let options = Options { events_max: 16, ..Options::default() };
    let node = Router::start(config(9, 1, Vec::new()), options).expect("it can start");
    in_time(node.joined()).await.expect("it joins");
    let (app, other) = (AppName::default(), AppName::new("other").unwrap());
    node.register(&other).await.unwrap();
    let (mut inbox, mut others) = (node.inbox(&app), node.inbox(&other));
    for number in 0..20_u8 {
        in_time(node.route(&app, key(1), [number])).await.unwrap();
        in_time(node.route(&other, key(1), [number])).await.unwrap();
    }
    assert_eq!((inbox.missed(), others.missed()), (4, 4));
    for number in 0..16 {
        assert_eq!(in_time(inbox.next()).await.unwrap().payload, [number]);
    }
    in_time(node.route(&app, key(1), "again")).await.unwrap();
    assert_eq!(in_time(inbox.next()).await.unwrap().payload, b"again");
    assert_eq!(inbox.missed(), 4, "there was room again");
    assert_eq!(in_time(others.next()).await.unwrap().payload, [0]);
}

#[tokio::test]
async fn n_6_n_7_messages_arrive_at_the_owner_and_questions_are_answered() {
    let nodes = ring(1, 3).await;
    let (app, other) = (AppName::default(), AppName::new("other").unwrap());
    let mut inbox = nodes[1].inbox(&app);
    let delivered = in_time(nodes[2].route_with_retries(&app, key(2), "hello", 3)).await.unwrap();
    assert_eq!(delivered.by.addr, nodes[1].addr());
    let message = in_time(inbox.next()).await.unwrap();
    assert_eq!((message.payload.as_slice(), message.key, message.ask), (&b"hello"[..], key(2), false));

    // Several applications on one node, told apart by a name.
    let refused = in_time(nodes[2].route(&other, key(2), "hello")).await.unwrap_err();
    assert!(matches!(refused, RouteError::Failed(Failure::NoApplication)), "{refused}");
    nodes[1].register(&other).await.unwrap();
    let mut others = nodes[1].inbox(&other);
    let asking = tokio::spawn({
        let (node, other) = (nodes[0].clone(), other.clone());
        async move { node.ask(&other, key(2), "which?").await }
    });
    let question = in_time(others.next()).await.unwrap();
    assert!(question.ask);
    nodes[1].answer(question.id, "this").await.unwrap();
    assert_eq!(in_time(asking).await.unwrap().unwrap().payload, b"this");
    let again = nodes[1].answer(question.id, "that").await.unwrap_err();
    assert!(matches!(again, RouteError::NoSuchQuestion), "{again}");

    let path = in_time(nodes[0].path(key(3))).await.unwrap();
    assert_eq!(path.last().map(|step| step.contact.addr), Some(nodes[2].addr()));
    nodes[1].unregister(&other).await.unwrap();
    assert!(in_time(nodes[0].route(&other, key(2), "x")).await.is_err());
}

/// Decides by the first byte.
struct Judge;

impl Application for Judge {
    fn forward(&self, passing: &Passing<'_>) -> Verdict {
        match passing.payload.first() {
            Some(b's') => Verdict::Stop,
            Some(b'r') => Verdict::Rewrite(b"rewritten".to_vec()),
            Some(b'd') if passing.next.is_some() => Verdict::Redirect(Id::new(1 << 124)),
            _ => Verdict::Forward,
        }
    }
}

#[tokio::test]
async fn n_8_n_9_applications_judge_what_passes_and_hear_of_the_leaf_set() {
    let first = Router::start(config(2, 1, Vec::new()), Options::default()).unwrap();
    let mut events = first.events();
    let app = AppName::default();
    let applications: Vec<(AppName, Arc<dyn Application>)> = vec![(app.clone(), Arc::new(Judge))];
    let judge =
        Router::start_with(config(2, 4, vec![first.addr()]), applications, Options::default()).unwrap();
    in_time(judge.joined()).await.unwrap();
    let mut changed = None;
    while changed.is_none() {
        if let Event::LeafSetChanged { added, clockwise, .. } = &*in_time(events.next()).await.unwrap() {
            changed = Some((added.clone(), clockwise.len()));
        }
    }
    assert_eq!(changed, Some((vec![Id::new(4 << 124)], 1)));

    let mut inbox = first.inbox(&app);
    let stopped = in_time(judge.route(&app, key(1), "stop")).await.unwrap_err();
    assert!(matches!(stopped, RouteError::Failed(Failure::Stopped)), "{stopped}");
    in_time(judge.route_with_retries(&app, key(1), "rewrite me", 3)).await.unwrap();
    assert_eq!(in_time(inbox.next()).await.unwrap().payload, b"rewritten");
}

#[tokio::test]
async fn a_large_message_does_not_stall_small_ones() {
    let nodes = ring(3, 2).await;
    let app = AppName::default();
    let large = tokio::spawn({
        let (node, app) = (nodes[0].clone(), app.clone());
        async move { node.route_with_retries(&app, key(2), vec![7; LARGE_BYTES], 3).await }
    });
    // Not by the clock: while the large one is under way, small ones go there and back by the same connection, one after
    // the other. They wait for what the kernels hold of it, a megabyte or two, but not for all of it.
    let mut small = 0;
    while !large.is_finished() {
        in_time(nodes[0].route_with_retries(&app, key(2), "small", 3)).await.unwrap();
        small += 1;
    }
    in_time(large).await.unwrap().expect("it arrives");
    assert!(small >= 4, "only {small} small messages arrived while the large one was under way");
    let long = in_time(nodes[0].route(&app, key(2), vec![7; LARGE_BYTES + 2048])).await.unwrap_err();
    assert!(matches!(long, RouteError::TooLong), "{long}");
}

#[tokio::test]
async fn what_goes_wrong_is_told() {
    let mut broken = config(4, 1, Vec::new());
    broken.leaf_set_max = 3;
    let told = Router::start(broken, Options::default()).unwrap_err().to_string();
    assert!(told.contains("route.leaf_set_max is 3"), "{told}");
    let node = Router::start(config(4, 1, Vec::new()), Options::default()).unwrap();
    let mut taken = config(4, 1, Vec::new());
    taken.bind = node.addr();
    assert!(matches!(Router::start(taken, Options::default()), Err(RouteError::Start(StartError::Bind(_)))));
    assert_eq!(in_time(node.stop()).await, Ended::Stopped);
    let told = node.route(&AppName::default(), key(1), "x").await.unwrap_err();
    assert!(matches!(told, RouteError::Stopped), "{told}");
}
