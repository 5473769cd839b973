//! Slow readers, greedy writers and crowds.

use annulus_core::{CloseReason, StreamId};
use annulus_net::Options;
use socket2::SockRef;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpSocket, TcpStream};

use crate::puppet::{Do, Puppet, Saw, Stage, guard, patient};
use crate::streams::{reset, stage_and_client};

const MEGABYTE: usize = 1024 * 1024;

/// A client whose kernel keeps little for it.
async fn small_client(stage: &mut Stage) -> (StreamId, TcpStream) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let client = guard(socket.connect(stage.tcp())).await.unwrap();
    (stage.accepted().await, client)
}

fn roomy() -> Options {
    Options { stream_bytes_max: 64 * MEGABYTE, ..patient() }
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|n| (n * 7 + n / 251) as u8).collect()
}

#[tokio::test]
async fn sent_counts_only_bytes_that_the_kernel_took() {
    let mut stage = Stage::new(Puppet::default(), roomy());
    let (id, client) = small_client(&mut stage).await;
    let all = 32 * MEGABYTE;
    stage.tell([Do::Write(id, pattern(all)), Do::Finish(id)]).await;
    stage.see(|saw| matches!(saw, Saw::Sent(..)).then_some(())).await;
    assert!(!stage.rest().await.iter().any(|saw| matches!(saw, Saw::Sent(_, _, true))), "nobody has read it");
    reset(client);

    // All reports together, those before this point too, are in the driver's counter.
    assert_eq!(stage.closed(id).await, CloseReason::Reset);
    let sent = stage.counters().await.stream_bytes_sent;
    assert!(sent > 0 && sent < all as u64, "{sent} bytes of {all} cannot all have been taken");
}

#[tokio::test]
async fn every_byte_is_reported_once_when_a_slow_reader_reads_on() {
    let mut stage = Stage::new(Puppet::default(), roomy());
    let (id, mut client) = small_client(&mut stage).await;
    let all = pattern(5 * MEGABYTE);
    stage.tell([Do::Write(id, all.clone()), Do::Write(id, all.clone()), Do::Finish(id)]).await;
    let (mut sent, mut reports) = (0, 0);
    let mut got = Vec::new();
    let (_, ()) = tokio::join!(
        async {
            guard(client.read_to_end(&mut got)).await.unwrap();
        },
        async {
            loop {
                let (bytes, fin) = stage
                    .see(|saw| match saw {
                        Saw::Sent(_, bytes, fin) => Some((*bytes, *fin)),
                        _ => None,
                    })
                    .await;
                sent += bytes;
                reports += 1;
                if fin {
                    break;
                }
            }
        }
    );
    assert_eq!(sent, 2 * all.len());
    assert!(reports > 1);
    assert!(got[..all.len()] == all && got[all.len()..] == all, "bytes came out of order");
    drop(client);
    assert_eq!(stage.next().await, Saw::Finished(id));
    assert_eq!(stage.next().await, Saw::Closed(id, CloseReason::Done));
}

#[tokio::test]
async fn a_stream_with_too_many_unsent_bytes_is_overrun() {
    let options = Options { stream_bytes_max: 1000, ..patient() };
    let mut stage = Stage::new(Puppet::default(), options);
    let (id, mut client) = stage_and_client(&mut stage).await;
    stage.tell([Do::Write(id, pattern(64 * MEGABYTE)), Do::Write(id, pattern(5)), Do::Finish(id)]).await;
    assert_eq!(stage.closed(id).await, CloseReason::Overrun);
    assert_eq!(stage.rest().await, [], "closed exactly once");
    let counters = stage.counters().await;
    assert_eq!(counters.streams_overrun, 1);
    let mut got = Vec::new();
    assert!(guard(client.read_to_end(&mut got)).await.is_err(), "the peer must not take it for a good end");
    assert!(got.len() as u64 <= counters.stream_bytes_sent);
}

#[tokio::test]
async fn a_listener_has_room_for_so_many_and_again_when_one_goes() {
    let mut stage = Stage::new(Puppet { streams_max: 2, ..Puppet::default() }, patient());
    let (first, kept) = stage_and_client(&mut stage).await;
    let (second, other) = stage_and_client(&mut stage).await;
    assert_ne!(first, second);
    let mut third = guard(TcpStream::connect(stage.tcp())).await.unwrap();
    assert!(guard(third.read(&mut [0; 8])).await.is_err(), "the one too many is reset");
    assert_eq!(stage.counters().await.streams_refused, 1);

    reset(other);
    assert_eq!(stage.closed(second).await, CloseReason::Reset);
    let (fourth, _client) = stage_and_client(&mut stage).await;
    stage.tell([Do::Abort(first)]).await;
    let (fifth, _client) = stage_and_client(&mut stage).await;
    assert!(fourth != fifth && stage.counters().await.streams_accepted == 4);
    drop(kept);
}

#[tokio::test]
async fn a_thousand_idle_streams_and_one_busy_one() {
    let mut stage = Stage::new(Puppet { streams_max: 1000, ..Puppet::default() }, patient());
    let mut clients = Vec::new();
    for _ in 0..200 {
        clients.push(stage_and_client(&mut stage).await);
    }
    let (id, client) = &mut clients[100];
    SockRef::from(&*client).set_tcp_nodelay(true).unwrap();
    for _ in 0..100 {
        stage.tell([Do::Write(*id, b"x".to_vec())]).await;
        assert_eq!(guard(client.read_u8()).await.unwrap(), b'x');
    }
    let turns = stage.counters().await.turns;
    assert!(turns < 5000, "{turns} turns for a few hundred things to do");
}
