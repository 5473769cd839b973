//! One test for each rule of `annulus_core::StreamEvent`, on real TCP.

use std::io::ErrorKind;
use std::time::Duration;

use annulus_core::{CloseReason, StreamId};
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::puppet::{Do, Saw, Stage, guard};

/// A puppet, the stream that a plain client opened to it, and the client's end.
pub(crate) async fn stage_and_client(stage: &mut Stage) -> (StreamId, TcpStream) {
    let client = guard(TcpStream::connect(stage.tcp())).await.unwrap();
    (stage.accepted().await, client)
}

/// Closes the client's end with a reset.
pub(crate) fn reset(client: TcpStream) {
    SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
    drop(client);
}

#[tokio::test]
async fn data_comes_only_within_credit() {
    let mut stage = Stage::plain();
    let (id, mut client) = stage_and_client(&mut stage).await;
    client.write_all(b"0123456789abcdef").await.unwrap();
    assert_eq!(stage.rest().await, [], "a new stream has no credit");

    stage.tell([Do::Read(id, 10)]).await;
    let mut got = Vec::new();
    while got.len() < 10 {
        let Saw::Data(_, bytes) = stage.next().await else { panic!("only data comes here") };
        got.extend(bytes);
    }
    assert_eq!(got, b"0123456789");
    assert_eq!(stage.rest().await, [], "the credit is used up");

    stage.tell([Do::Read(id, 2), Do::Read(id, 1)]).await;
    assert_eq!(stage.next().await, Saw::Data(id, b"abc".to_vec()));
    assert_eq!(stage.rest().await, []);
}

#[tokio::test]
async fn finished_needs_no_credit_and_our_direction_goes_on() {
    let mut stage = Stage::plain();
    let (id, mut client) = stage_and_client(&mut stage).await;
    client.shutdown().await.unwrap();
    assert_eq!(stage.next().await, Saw::Finished(id));

    stage.tell([Do::Write(id, b"still here".to_vec())]).await;
    assert_eq!(stage.next().await, Saw::Sent(id, 10, false));
    stage.tell([Do::Write(id, b"!".to_vec()), Do::Finish(id)]).await;
    assert_eq!(stage.next().await, Saw::Sent(id, 1, true));
    assert_eq!(stage.next().await, Saw::Closed(id, CloseReason::Done));
    let mut got = Vec::new();
    guard(client.read_to_end(&mut got)).await.unwrap();
    assert_eq!(got, b"still here!");

    stage.tell([Do::Write(id, b"x".to_vec()), Do::Read(id, 5), Do::Finish(id), Do::Abort(id)]).await;
    assert_eq!(stage.rest().await, [], "actions on a closed stream do nothing");
}

#[tokio::test]
async fn finished_comes_after_all_data() {
    let mut stage = Stage::plain();
    let (id, mut client) = stage_and_client(&mut stage).await;
    client.write_all(b"last words").await.unwrap();
    client.shutdown().await.unwrap();
    assert_eq!(stage.rest().await, [], "there is data before the end, and no credit for it");
    stage.tell([Do::Read(id, 4)]).await;
    assert_eq!(stage.next().await, Saw::Data(id, b"last".to_vec()));
    assert_eq!(stage.rest().await, []);
    stage.tell([Do::Read(id, 6)]).await;
    assert_eq!(stage.next().await, Saw::Data(id, b" words".to_vec()));
    assert_eq!(stage.next().await, Saw::Finished(id));
}

#[tokio::test]
async fn we_finish_first_and_go_on_reading() {
    let mut stage = Stage::plain();
    let (id, mut client) = stage_and_client(&mut stage).await;
    stage.tell([Do::Finish(id), Do::Read(id, 100)]).await;
    assert_eq!(stage.next().await, Saw::Sent(id, 0, true));
    assert_eq!(guard(client.read(&mut [0; 8])).await.unwrap(), 0, "the client sees our end");
    client.write_all(b"answer").await.unwrap();
    assert_eq!(stage.next().await, Saw::Data(id, b"answer".to_vec()));
    drop(client);
    assert_eq!(stage.next().await, Saw::Finished(id));
    assert_eq!(stage.next().await, Saw::Closed(id, CloseReason::Done));
    assert_eq!(stage.rest().await, []);
}

#[tokio::test]
async fn an_abort_is_a_reset_and_nothing_comes_after_it() {
    let mut stage = Stage::plain();
    let (id, mut client) = stage_and_client(&mut stage).await;
    // Nothing is left unread on our side: that alone would make the kernel reset the stream.
    stage.tell([Do::Write(id, b"lost or not".to_vec()), Do::Abort(id)]).await;
    let mut got = Vec::new();
    let error = guard(client.read_to_end(&mut got)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert_eq!(stage.rest().await, [], "not even `Sent`");
    assert_eq!(stage.counters().await.streams_aborted, 1);
}

#[tokio::test]
async fn a_reset_is_noticed_while_reading() {
    let mut stage = Stage::plain();
    let (id, client) = stage_and_client(&mut stage).await;
    stage.tell([Do::Read(id, 100)]).await;
    reset(client);
    assert_eq!(stage.next().await, Saw::Closed(id, CloseReason::Reset));
    assert_eq!(stage.rest().await, []);
    assert_eq!(stage.counters().await.streams_reset, 1);
}

#[tokio::test]
async fn a_reset_is_noticed_without_credit() {
    let mut stage = Stage::plain();
    let (id, client) = stage_and_client(&mut stage).await;
    reset(client);
    assert_eq!(stage.next().await, Saw::Closed(id, CloseReason::Reset));
}

#[tokio::test]
async fn a_reset_is_noticed_behind_unread_data() {
    let mut stage = Stage::plain();
    let (id, mut client) = stage_and_client(&mut stage).await;
    client.write_all(b"0123456789").await.unwrap();
    stage.tell([Do::Read(id, 4)]).await;
    assert_eq!(stage.next().await, Saw::Data(id, b"0123".to_vec()));
    assert_eq!(stage.rest().await, []);
    reset(client);
    assert_eq!(stage.next().await, Saw::Closed(id, CloseReason::Reset));
}

#[tokio::test]
async fn a_reset_is_noticed_after_finished() {
    let mut stage = Stage::plain();
    let (id, mut client) = stage_and_client(&mut stage).await;
    client.shutdown().await.unwrap();
    assert_eq!(stage.next().await, Saw::Finished(id));
    assert_eq!(stage.rest().await, []);
    reset(client);
    assert_eq!(stage.next().await, Saw::Closed(id, CloseReason::Reset));
    assert_eq!(stage.rest().await, []);
}

#[tokio::test]
async fn a_reset_is_noticed_behind_unread_data_and_the_end() {
    let mut stage = Stage::plain();
    let (id, mut client) = stage_and_client(&mut stage).await;
    client.write_all(b"unread").await.unwrap();
    client.shutdown().await.unwrap();
    assert_eq!(stage.rest().await, []);
    reset(client);
    assert_eq!(stage.next().await, Saw::Closed(id, CloseReason::Reset));
}

#[tokio::test]
async fn a_stream_is_opened_and_sends_earlier_writes() {
    let mut stage = Stage::plain();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = listener.local_addr().unwrap();
    let id = StreamId::opened(0);
    let opened = stage.tell([
        Do::Open(to, None),
        Do::Write(id, b"early ".to_vec()),
        Do::Write(id, b"bird".to_vec()),
        Do::Finish(id),
    ]);
    assert_eq!(opened.await, id);
    let (mut peer, from) = guard(listener.accept()).await.unwrap();
    assert_eq!(stage.next().await, Saw::Connected(id, from));
    assert_eq!(stage.next().await, Saw::Sent(id, 10, true));
    let mut got = Vec::new();
    guard(peer.read_to_end(&mut got)).await.unwrap();
    assert_eq!(got, b"early bird");
    drop(peer);
    assert_eq!(stage.next().await, Saw::Finished(id));
    assert_eq!(stage.next().await, Saw::Closed(id, CloseReason::Done));
    assert_eq!(stage.counters().await.streams_opened, 1);
}

#[tokio::test]
async fn a_stream_starts_at_the_given_source_address() {
    let mut stage = Stage::plain();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = listener.local_addr().unwrap();
    let id = stage.tell([Do::Open(to, Some("127.0.0.7".parse().unwrap()))]).await;
    let (_peer, from) = guard(listener.accept()).await.unwrap();
    assert_eq!(from.ip().to_string(), "127.0.0.7");
    assert_eq!(stage.next().await, Saw::Connected(id, from));

    let id = stage.tell([Do::Open(to, Some("192.0.2.1".parse().unwrap()))]).await;
    assert_eq!(stage.next().await, Saw::Closed(id, CloseReason::Failed), "not an address of ours");
    assert_eq!(stage.rest().await, []);
}

#[tokio::test]
async fn a_connect_without_a_listener_is_refused() {
    let mut stage = Stage::plain();
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let id = stage.tell([Do::Open(free, None), Do::Write(StreamId::opened(0), b"hello?".to_vec())]).await;
    assert_eq!(stage.next().await, Saw::Closed(id, CloseReason::Refused));
    assert_eq!(stage.rest().await, []);
    let counters = stage.counters().await;
    assert_eq!((counters.streams_failed, counters.streams_opened), (1, 0));
}

#[tokio::test]
async fn an_abort_while_connecting_ends_it_silently() {
    let mut stage = Stage::plain();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = listener.local_addr().unwrap();
    stage.tell([Do::Open(to, None), Do::Abort(StreamId::opened(0))]).await;
    assert_eq!(stage.rest().await, []);
}

#[tokio::test]
async fn refused_bytes_are_counted_and_the_stream_is_reset() {
    let mut stage = Stage::plain();
    let (id, mut client) = stage_and_client(&mut stage).await;
    client.write_all(crate::puppet::GARBAGE).await.unwrap();
    stage.tell([Do::Read(id, 100)]).await;
    assert_eq!(guard(client.read(&mut [0; 8])).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(stage.counters().await.stream_refusals, 1);
}
