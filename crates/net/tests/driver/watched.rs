//! A machine watches a stream on real TCP (CU-19, CU-20). Tests that need a cut are truths.

#![cfg(target_os = "linux")]

use std::time::Duration;

use annulus_core::{CloseReason, StreamId, Watch};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::puppet::{Do, Saw, Stage};
use crate::streams::stage_and_client;

const CONFIRM: Watch = Watch { confirm: true, dead_after: None };

/// Collects reports until so many bytes are confirmed; panics if a confirmation is ahead of what was sent.
async fn until_confirmed(stage: &mut Stage, id: StreamId, bytes: usize) {
    let (mut sent, mut confirmed) = (0, 0);
    while confirmed < bytes {
        match stage.next().await {
            Saw::Sent(at, more, _) if at == id => sent += more,
            Saw::Confirmed(at, more) if at == id => confirmed += more,
            other => panic!("{other:?}"),
        }
        assert!(confirmed <= sent && sent <= bytes, "{confirmed} of {sent} of {bytes}");
    }
    assert_eq!((sent, confirmed), (bytes, bytes));
}

#[tokio::test]
async fn cu_19_the_acceptor_confirms_acknowledged_bytes_exactly() {
    let mut stage = Stage::plain();
    let (id, mut client) = stage_and_client(&mut stage).await;
    stage.tell([Do::Watch(id, CONFIRM), Do::Write(id, vec![7; 1000])]).await;
    until_confirmed(&mut stage, id, 1000).await;
    stage.tell([Do::Write(id, vec![7; 70_000]), Do::Finish(id)]).await;
    let mut got = Vec::new();
    let read = client.read_to_end(&mut got);
    tokio::join!(until_confirmed(&mut stage, id, 70_000), async { assert_eq!(read.await.unwrap(), 71_000) });
    client.shutdown().await.unwrap();
    assert_eq!(stage.next().await, Saw::Finished(id));
    assert_eq!(stage.next().await, Saw::Closed(id, CloseReason::Done), "a FIN is no byte");
}

#[tokio::test]
async fn cu_19_the_opener_confirms_also_bytes_sent_before_the_watch() {
    let (mut stage, mut there) = (Stage::plain(), Stage::plain());
    let id = stage.tell([Do::Open(there.tcp(), None)]).await;
    stage.tell([Do::Write(id, vec![7; 500])]).await;
    there.accepted().await;
    assert!(matches!(stage.next().await, Saw::Connected(..)));
    assert_eq!(stage.next().await, Saw::Sent(id, 500, false));
    assert_eq!(stage.rest().await, [], "nobody asked");
    stage.tell([Do::Watch(id, CONFIRM)]).await;
    assert_eq!(stage.next().await, Saw::Confirmed(id, 500), "the SYN is no byte");
}

#[tokio::test]
async fn cu_20_a_peer_that_does_not_read_is_not_dead() {
    let mut stage = Stage::plain();
    let (id, client) = stage_and_client(&mut stage).await;
    let dead_after = Some(Duration::from_millis(1500));
    stage.tell([Do::Watch(id, Watch { confirm: true, dead_after })]).await;
    // More than both kernels take on loopback, so that the window closes.
    for _ in 0..12 {
        stage.tell([Do::Write(id, vec![7; 1 << 20])]).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // Twice as long as it takes to be dead, since only so the absence of a verdict means something.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let rest = stage.rest().await;
    assert!(
        !rest.iter().any(|saw| matches!(saw, Saw::Closed(_, CloseReason::TimedOut))),
        "it answers probes"
    );
    drop(client);
}

#[tokio::test]
async fn the_driver_reports_its_abilities() {
    let stage = Stage::plain();
    let bound = stage.handle.bound();
    assert!(bound.confirms);
    assert_eq!(bound.boot_id, Stage::plain().handle.bound().boot_id);
    assert!(bound.boot_id.is_some());
}
