//! The library's handle of `route`, on real sockets.

use std::collections::BTreeSet;
use std::future::IntoFuture as _;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use annulus::core::Id;
use annulus::core::pastry::{AppName, Application, Config, Event, Failure, Forward, Passing, Verdict};
use annulus::net::Ended;
use annulus::{Limits, Options, Request, RouteError, Router, SendOptions, StartError};

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

/// Sends so many messages at once; the numbers of those that were delivered.
async fn send_all(node: &Router, app: &AppName, count: u32) -> Vec<u32> {
    let sends = (0..count).map(|number| {
        let (node, app) = (node.clone(), app.clone());
        tokio::spawn(async move {
            let sent = node.route(&app, key(2), number.to_be_bytes()).await;
            (number, sent.is_ok())
        })
    });
    let mut delivered = Vec::new();
    for send in sends.collect::<Vec<_>>() {
        let (number, is_delivered) = in_time(send).await.expect("the task does not panic");
        delivered.extend(is_delivered.then_some(number));
    }
    delivered
}

/// CUF-13: ten times more messages than a slow handler takes. A message that is reported as delivered was handled.
#[tokio::test]
async fn only_messages_that_a_slow_handler_finished_are_delivered() {
    let nodes = ring(9, 2).await;
    let app = AppName::default();
    let handled = Arc::new(Mutex::new(BTreeSet::new()));
    let server = nodes[1].serve(&app, Limits { workers: 4, waiting: 8 }, {
        let handled = Arc::clone(&handled);
        move |request: Request| {
            let handled = Arc::clone(&handled);
            async move {
                // It is slow: others run in between.
                for _ in 0..50 {
                    tokio::task::yield_now().await;
                }
                let number = u32::from_be_bytes(request.payload.try_into().unwrap());
                handled.lock().unwrap().insert(number);
                Verdict::Accept
            }
        }
    });
    let _server = server.await.unwrap();
    let delivered = send_all(&nodes[0], &app, 1000).await;
    let handled = handled.lock().unwrap();
    assert!(delivered.iter().all(|number| handled.contains(number)), "some were told, but not handled");
    assert!(!delivered.is_empty());
}

#[tokio::test]
async fn a_handler_answers_refuses_and_may_panic() {
    let nodes = ring(10, 2).await;
    let app = AppName::default();
    let server = nodes[1].serve(&app, Limits::default(), |request| async move {
        match request.payload.first() {
            Some(b'a') => Verdict::Answer(b"yes".to_vec()),
            Some(b'r') => Verdict::Refuse("not today".to_owned()),
            Some(b'p') => panic!("a handler may panic"),
            Some(b'q') => {
                tokio::task::yield_now().await;
                panic!("a handler may panic after it waited")
            }
            _ => Verdict::Accept,
        }
    });
    let server = server.await.unwrap();
    assert_eq!(in_time(nodes[0].ask(&app, key(2), "a")).await.unwrap().payload, b"yes");
    let refused = in_time(nodes[0].route(&app, key(2), "r")).await.unwrap_err();
    assert!(matches!(&refused, RouteError::Refused(reason) if reason == "not today"), "{refused}");
    for panics in ["p", "q"] {
        let refused = in_time(nodes[0].route(&app, key(2), panics)).await.unwrap_err();
        assert!(matches!(&refused, RouteError::Refused(reason) if reason.contains("panicked")), "{refused}");
    }
    assert_eq!(in_time(nodes[0].route(&app, key(2), "x")).await.unwrap().by.addr, nodes[1].addr());
    // The application runs no longer: no message is reported as delivered.
    drop(server);
    let failed = in_time(nodes[0].route(&app, key(2), "x")).await.unwrap_err();
    assert!(matches!(failed, RouteError::Failed(Failure::NoApplication)), "{failed}");
}

/// A handler that waits lets the next ones begin.
#[tokio::test]
async fn a_handler_that_waits_delays_no_other() {
    let nodes = ring(14, 2).await;
    let app = AppName::default();
    let met = Arc::new(tokio::sync::Barrier::new(3));
    let server = nodes[1].serve(&app, Limits { workers: 3, waiting: 0 }, move |_| {
        let met = Arc::clone(&met);
        async move {
            met.wait().await;
            Verdict::Accept
        }
    });
    let _server = server.await.unwrap();
    assert_eq!(send_all(&nodes[0], &app, 3).await, [0, 1, 2]);
}

/// After a handler that computed for long, the next ones run on threads of their own: two of them meet.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn handlers_that_compute_for_long_share_the_threads() {
    let nodes = ring(15, 2).await;
    let app = AppName::default();
    let begun = Arc::new(AtomicU32::new(0));
    let server = nodes[1].serve(&app, Limits::default(), move |request: Request| {
        let begun = Arc::clone(&begun);
        async move {
            let until = |most: Duration, is_over: &dyn Fn() -> bool| {
                let since = Instant::now();
                while since.elapsed() < most && !is_over() {
                    std::hint::spin_loop();
                }
                is_over()
            };
            if request.payload == b"long" {
                until(Duration::from_millis(5), &|| false);
                return Verdict::Accept;
            }
            begun.fetch_add(1, Ordering::Relaxed);
            // It guards against a hang only.
            let is_met = until(PATIENCE / 4, &|| begun.load(Ordering::Relaxed) == 2);
            if is_met { Verdict::Accept } else { Verdict::Refuse("the other did not begin".to_owned()) }
        }
    });
    let _server = server.await.unwrap();
    in_time(nodes[0].route(&app, key(2), "long")).await.unwrap();
    assert_eq!(send_all(&nodes[0], &app, 2).await, [0, 1]);
}

/// No application reads: nothing is delivered. An arrival that is dropped was not taken, and comes again.
#[tokio::test]
async fn a_pulled_message_is_delivered_when_the_application_accepts_it() {
    let nodes = ring(11, 2).await;
    let app = AppName::default();
    let failed = in_time(nodes[0].route(&app, key(2), "x")).await.unwrap_err();
    assert!(matches!(failed, RouteError::Failed(Failure::NoApplication)), "{failed}");
    let mut inbox = nodes[1].inbox(&app).await.unwrap();
    let short = SendOptions { deadline: Some(Duration::from_millis(300)), ..SendOptions::default() };
    let unknown = in_time(nodes[0].route_with(&app, key(2), "x", short)).await.unwrap_err();
    assert!(matches!(unknown, RouteError::Unknown), "{unknown}");
    let unread = in_time(inbox.next()).await.unwrap();
    assert!(matches!(unread.accept().await, Err(RouteError::NotOpen)), "its sender waits no longer");
    let sending = tokio::spawn({
        let (node, app) = (nodes[0].clone(), app.clone());
        async move { node.route(&app, key(2), "y").await }
    });
    let dropped = in_time(inbox.next()).await.unwrap();
    let id = dropped.id;
    drop(dropped);
    let again = in_time(inbox.next()).await.unwrap();
    assert!(again.id == id && again.attempt > 0);
    again.accept().await.unwrap();
    in_time(sending).await.unwrap().unwrap();
}

#[tokio::test]
async fn n_6_n_7_messages_arrive_at_the_owner_and_questions_are_answered() {
    let nodes = ring(1, 3).await;
    let (app, other) = (AppName::default(), AppName::new("other").unwrap());
    let mut inbox = nodes[1].inbox(&app).await.unwrap();
    let sending = tokio::spawn({
        let (node, app) = (nodes[2].clone(), app.clone());
        async move { node.route(&app, key(2), "hello").await }
    });
    let message = in_time(inbox.next()).await.unwrap();
    let told = (message.payload.as_slice(), message.key, message.wants_answer);
    assert_eq!(told, (&b"hello"[..], key(2), false));
    message.accept().await.unwrap();
    assert_eq!(in_time(sending).await.unwrap().unwrap().by.addr, nodes[1].addr());

    // Several applications on one node, with different names.
    let refused = in_time(nodes[2].route(&other, key(2), "hello")).await.unwrap_err();
    assert!(matches!(refused, RouteError::Failed(Failure::NoApplication)), "{refused}");
    let mut others = nodes[1].inbox(&other).await.unwrap();
    let asking = tokio::spawn({
        let (node, other) = (nodes[0].clone(), other.clone());
        async move { node.ask(&other, key(2), "which?").await }
    });
    let question = in_time(others.next()).await.unwrap();
    assert!(question.wants_answer);
    question.answer("this").await.unwrap();
    assert_eq!(in_time(asking).await.unwrap().unwrap().payload, b"this");
    drop(others);
    assert!(in_time(nodes[0].route(&other, key(2), "x")).await.is_err());

    let path = in_time(nodes[0].path(key(3))).await.unwrap();
    assert_eq!(path.last().map(|step| step.contact.addr), Some(nodes[2].addr()));
    let next = in_time(nodes[0].next_hop(key(3))).await.unwrap().unwrap();
    assert_eq!(next.addr, nodes[2].addr());
    assert!(in_time(nodes[2].owned_range()).await.unwrap().contains(key(3)));
    let replicas = in_time(nodes[0].replicas(key(3), 3)).await.unwrap().unwrap();
    assert_eq!((replicas.len(), replicas[0].addr), (3, nodes[2].addr()));
}

/// Decides by the first byte.
struct Judge;

impl Application for Judge {
    fn forward(&self, passing: &Passing<'_>) -> Forward {
        let (payload, next) = (Some(b"rewritten".to_vec()), None);
        match passing.payload.first() {
            Some(b's') => Forward::Stop,
            Some(b'r') => Forward::Change { payload, next },
            Some(b'd') if passing.next.is_some() => {
                Forward::Change { payload: None, next: Some(Id::new(1 << 124)) }
            }
            _ => Forward::Continue,
        }
    }

    fn deliver(&self, _: &Passing<'_>) -> Option<Verdict> {
        Some(Verdict::Accept)
    }
}

#[tokio::test]
async fn n_8_n_9_applications_intercept_messages_and_get_leaf_set_changes() {
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
            changed = Some((added.iter().map(|contact| contact.id).collect::<Vec<Id>>(), clockwise.len()));
        }
    }
    assert_eq!(changed, Some((vec![Id::new(4 << 124)], 1)));

    let mut inbox = first.inbox(&app).await.unwrap();
    let stopped = in_time(judge.route(&app, key(1), "stop")).await.unwrap_err();
    assert!(matches!(stopped, RouteError::Failed(Failure::Stopped)), "{stopped}");
    let sending = tokio::spawn(async move { judge.route(&app, key(1), "rewrite me").await });
    let message = in_time(inbox.next()).await.unwrap();
    assert_eq!(message.payload, b"rewritten");
    message.accept().await.unwrap();
    in_time(sending).await.unwrap().unwrap();
}

/// Intercepts passing messages, and leaves arriving ones to a server.
struct Passer(AtomicU32);

impl Application for Passer {
    fn forward(&self, _: &Passing<'_>) -> Forward {
        self.0.fetch_add(1, Ordering::SeqCst);
        Forward::Continue
    }
}

/// CU-37: an application has one server at a time, and its messages fail without one. The code that judges them stays.
#[tokio::test]
async fn an_application_has_one_server_and_its_judge_outlives_it() {
    let (app, passer) = (AppName::default(), Arc::new(Passer(AtomicU32::new(0))));
    let applications: Vec<(AppName, Arc<dyn Application>)> =
        vec![(app.clone(), Arc::clone(&passer) as Arc<dyn Application>)];
    let node = Router::start_with(config(12, 1, Vec::new()), applications, Options::default()).unwrap();
    in_time(node.joined()).await.unwrap();
    let failed = in_time(node.route(&app, key(1), "nobody")).await.unwrap_err();
    assert!(matches!(failed, RouteError::Failed(Failure::NoApplication)), "{failed}");
    for _ in 0..2 {
        let server = node.serve(&app, Limits::default(), |_| async { Verdict::Accept });
        let server = in_time(server.into_future()).await.unwrap();
        let second = in_time(node.inbox(&app)).await.unwrap_err();
        assert!(matches!(second, RouteError::AlreadyServed), "{second}");
        in_time(node.route(&app, key(1), "served")).await.unwrap();
        drop(server);
    }
    let failed = in_time(node.route(&app, key(1), "nobody")).await.unwrap_err();
    assert!(matches!(failed, RouteError::Failed(Failure::NoApplication)), "{failed}");
    assert_eq!(passer.0.load(Ordering::SeqCst), 4, "it was asked about every message");
}

#[tokio::test]
async fn a_broken_connection_gives_an_event() {
    let first = ring(13, 1).await.remove(0);
    let mut broken = first.broken_connections();
    // Dropping its own runtime ends a node like a killed process, without a leave.
    let (seeds, (tell, told), (end, ended)) =
        (vec![first.addr()], tokio::sync::oneshot::channel(), tokio::sync::oneshot::channel::<()>());
    let other = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let node = runtime.block_on(async {
            let node = Router::start(config(13, 2, seeds), Options::default()).unwrap();
            node.joined().await.unwrap();
            node
        });
        tell.send(node.addr()).unwrap();
        runtime.block_on(ended).unwrap();
        drop(runtime);
    });
    let second = in_time(told).await.unwrap();
    end.send(()).unwrap();
    let event = in_time(broken.next()).await.unwrap();
    let Event::ConnectionBroken { contact } = &*event else { panic!("{event:?}") };
    assert_eq!((contact.id, contact.addr), (Id::new(2 << 124), second));
    other.join().unwrap();
}

#[tokio::test]
async fn a_large_message_does_not_stall_small_ones() {
    let nodes = ring(3, 2).await;
    let app = AppName::default();
    let server = nodes[1].serve(&app, Limits::default(), |_| async { Verdict::Accept });
    let _server = server.await.unwrap();
    let large = tokio::spawn({
        let (node, app) = (nodes[0].clone(), app.clone());
        async move { node.route(&app, key(2), vec![7; LARGE_BYTES]).await }
    });
    // Not by the clock: while the large one is under way, small ones go there and back by the same connection, one after
    // the other. They wait for what the kernels hold of it, a megabyte or two, but not for all of it.
    let mut small = 0;
    while !large.is_finished() {
        in_time(nodes[0].route(&app, key(2), "small")).await.unwrap();
        small += 1;
    }
    in_time(large).await.unwrap().expect("it arrives");
    assert!(small >= 4, "only {small} small messages arrived while the large one was under way");
    let long = in_time(nodes[0].route(&app, key(2), vec![7; LARGE_BYTES + 2048])).await.unwrap_err();
    assert!(matches!(long, RouteError::TooLong), "{long}");
}

#[tokio::test]
async fn failures_are_returned_as_errors() {
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
