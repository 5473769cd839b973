//! The store through the driver: loading, order, limits, and a life after the end.

use annulus_core::StoreFault;
use annulus_net::{BindError, Driver, Ended, OpenError, Options, Store};
use tokio::net::UdpSocket;

use crate::puppet::{Do, Puppet, Saw, Stage, file, guard, patient, with_store};

fn keeper(at_start: Vec<Do>) -> Puppet {
    Puppet { has_store: true, at_start, ..Puppet::default() }
}

#[tokio::test]
async fn written_values_are_read_in_pages() {
    let mut stage = Stage::new(keeper(Vec::new()), patient());
    stage
        .tell([
            Do::Get("a"),
            Do::Put("a", b"1".to_vec(), false),
            Do::Put("b", b"2".to_vec(), true),
            Do::Put("c", b"3".to_vec(), false),
            Do::Get("a"),
            Do::Page("", "", 2),
            Do::Page("", "", 3),
        ])
        .await;
    assert_eq!(stage.next().await, Saw::Value(None));
    for _ in 0..3 {
        assert_eq!(stage.next().await, Saw::Written);
    }
    assert_eq!(stage.next().await, Saw::Value(Some(b"1".to_vec())));
    assert_eq!(stage.next().await, Saw::Page(vec![b"a".to_vec(), b"b".to_vec()], true));
    assert_eq!(stage.next().await, Saw::Page(vec![b"a".to_vec(), b"b".to_vec(), b"c".to_vec()], false));
}

/// Datagrams, streams and commands wait in line before the machine has even started; it must see none of them
/// before it has seen everything that it asked of the store.
#[tokio::test]
async fn nothing_reaches_a_machine_that_is_still_loading() {
    let loads = vec![Do::Put("k", vec![1; 100], true), Do::Get("k"), Do::Put("l", vec![2], true)];
    let (_directory, store) = file();
    let (driver, handle) = Driver::bind(keeper(loads), with_store(store)).unwrap();
    let mut events = handle.events();
    let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    client.send_to(b"early", handle.bound().sockets[0].1).await.unwrap();
    let _stream = guard(tokio::net::TcpStream::connect(handle.bound().listeners[0].1)).await.unwrap();
    let reply = handle.try_command(Vec::new()).unwrap();
    tokio::spawn(driver);
    guard(reply.reply()).await.unwrap();
    let mut saw = Vec::new();
    while saw.len() < 7 {
        saw.push(Saw::clone(&*guard(events.next()).await.unwrap()));
    }
    let loaded = [Saw::Start, Saw::Written, Saw::Value(Some(vec![1; 100])), Saw::Written];
    assert_eq!(saw[..4], loaded, "then the gates open");
    assert!(saw[4..].contains(&Saw::Command));
    assert!(saw[4..].iter().any(|saw| matches!(saw, Saw::Datagram(..))));
    assert!(saw[4..].iter().any(|saw| matches!(saw, Saw::Accepted(..))));
}

#[tokio::test]
async fn too_many_operations_are_answered_busy() {
    let options = Options { store_ops_max: 3, ..patient() };
    let mut stage = Stage::new(keeper(Vec::new()), options);
    stage.tell((0..10).map(|n| Do::Put("k", vec![n], true))).await;
    let (mut written, mut busy) = (0, 0);
    while written + busy < 10 {
        match stage.next().await {
            Saw::Written => written += 1,
            Saw::Failed(StoreFault::Busy) => busy += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(written >= 3 && busy > 0, "{written} written, {busy} busy");
    assert_eq!(stage.counters().await.store_ops_shed, busy);

    let options = Options { store_bytes_max: 1000, ..patient() };
    let mut stage = Stage::new(keeper(Vec::new()), options);
    stage.tell([Do::Put("k", vec![0; 5000], true), Do::Put("k", vec![1; 10], true)]).await;
    let answers = [stage.next().await, stage.next().await];
    assert!(answers.contains(&Saw::Written), "one large value alone is let through");
    assert!(answers.contains(&Saw::Failed(StoreFault::Busy)));
}

#[tokio::test]
async fn a_store_outlives_its_node_and_has_one_owner() {
    let (_directory, store) = file();
    let mut stage = Stage::new(keeper(Vec::new()), with_store(store.clone()));
    stage.tell([Do::Put("durable", b"yes".to_vec(), true), Do::Put("hasty", b"too".to_vec(), false)]).await;
    assert_eq!((stage.next().await, stage.next().await), (Saw::Written, Saw::Written));

    let refused = Driver::bind(keeper(Vec::new()), with_store(store.clone())).err().unwrap();
    assert!(matches!(refused, BindError::Store(OpenError::InUse { .. })), "{refused}");

    assert_eq!(guard(stage.handle.stop()).await, Ended::Stopped);
    let again = keeper(vec![Do::Get("durable"), Do::Get("hasty")]);
    let mut stage = Stage::new(again, with_store(store));
    assert_eq!(stage.next().await, Saw::Value(Some(b"yes".to_vec())));
    assert_eq!(stage.next().await, Saw::Value(Some(b"too".to_vec())), "a graceful stop saves everything");
}

#[tokio::test]
async fn a_file_that_is_no_store_is_refused() {
    let (directory, store) = file();
    std::fs::write(directory.path().join("store.redb"), b"a letter to my mother").unwrap();
    let refused = Driver::bind(keeper(Vec::new()), with_store(store)).err().unwrap().to_string();
    assert!(refused.contains("store.redb") && refused.contains("move it away"), "{refused}");
}

#[tokio::test]
async fn a_store_that_was_not_declared_fails_and_does_not_hang() {
    let mut stage = Stage::new(Puppet::default(), with_store(Store::Memory));
    stage.tell([Do::Get("k")]).await;
    assert_eq!(stage.next().await, Saw::Failed(StoreFault::Broken));
}
