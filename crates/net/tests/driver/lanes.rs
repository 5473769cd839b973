//! Many commands under way at once.

use annulus_net::{Lane, Options, Stopped, TryCommandError};

use crate::puppet::{Do, Puppet, Saw, Stage, guard, patient};
use crate::streams::stage_and_client;

async fn next(lane: &mut Lane<Puppet>) -> Option<(u64, Result<(), Stopped>)> {
    guard(lane.next()).await.map(|(number, reply)| (number, reply.map(|_| ())))
}

#[tokio::test]
async fn every_command_of_a_lane_has_its_reply() {
    let stage = Stage::new(Puppet::default(), Options { commands_max: 4, requests_max: 3, ..patient() });
    let mut lane = stage.handle.lane(10);
    assert_eq!(next(&mut lane).await, None, "none is under way");
    let mut replied = Vec::new();
    for number in 0..100 {
        if !lane.has_room() {
            let full = lane.give(Vec::new()).await;
            assert!(matches!(full, Err(TryCommandError::Full(_))));
            replied.extend(next(&mut lane).await);
        }
        assert_eq!(guard(lane.give(Vec::new())).await.unwrap(), number);
    }
    while let Some(reply) = next(&mut lane).await {
        replied.push(reply);
    }
    assert_eq!(replied, (0..100).map(|number| (number, Ok(()))).collect::<Vec<_>>());
    assert_eq!(stage.counters().await.commands, 100);
}

#[tokio::test]
async fn a_lane_gets_an_error_at_the_end_of_the_driver() {
    let stage = Stage::plain();
    let mut lane = stage.handle.lane(4);
    guard(lane.give(vec![Do::Ignore])).await.unwrap();
    guard(lane.give(Vec::new())).await.unwrap();
    assert_eq!(next(&mut lane).await, Some((1, Ok(()))), "the first never has a reply");
    stage.handle.abort();
    assert_eq!(next(&mut lane).await, Some((0, Err(Stopped))));
    assert_eq!(next(&mut lane).await, None);
    guard(stage.handle.ended()).await;
    assert!(matches!(lane.give(Vec::new()).await, Err(TryCommandError::Stopped(_))));
}

#[tokio::test]
async fn a_command_gets_the_room_of_a_dropped_lane() {
    let stage = Stage::new(Puppet::default(), Options { requests_max: 2, ..patient() });
    let mut lane = stage.handle.lane(2);
    for _ in 0..2 {
        guard(lane.give(vec![Do::Ignore])).await.unwrap();
    }
    let waits = stage.handle.try_command(Vec::new()).unwrap();
    while guard(stage.handle.counters()).await.unwrap().driver.commands < 2 {}
    drop(lane);
    guard(waits.reply()).await.unwrap();
}

/// Nobody waits for the reply to a command that was given, so its writes go out in the same turn. If somebody answers an
/// event of that turn, they go out with the answer.
#[tokio::test]
async fn the_answer_to_an_event_goes_out_with_what_was_written_before_it() {
    let mut stage = Stage::plain();
    let (id, _client) = stage_and_client(&mut stage).await;
    stage.rest().await;
    guard(stage.handle.give(vec![Do::Write(id, b"alone".to_vec())])).await.unwrap();
    assert_eq!(stage.next().await, Saw::Sent(id, 5, false));
    let mut asked = stage.handle.every_event_where(|saw| *saw == Saw::Command);
    let handle = stage.handle.clone();
    let answers = tokio::spawn(async move {
        asked.next().await.expect("the puppet lives");
        handle.give(vec![Do::Write(id, b"answer".to_vec())]).await
    });
    guard(stage.handle.give(vec![Do::Write(id, b"first ".to_vec())])).await.unwrap();
    assert_eq!(stage.next().await, Saw::Sent(id, 12, false));
    guard(answers).await.unwrap().unwrap();
}
