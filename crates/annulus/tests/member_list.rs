//! The library's handle of `members`, on real sockets.

use std::net::SocketAddr;
use std::time::Duration;

use annulus::core::Id;
use annulus::core::swim::{Config, Event, Handler, Member, Message, Next, Preset, State, Verdict};
use annulus::net::Ended;
use annulus::{MemberList, MembersError, Options, StartError};

/// It guards against hanging; nothing is measured by it.
const PATIENCE: Duration = Duration::from_secs(60);

fn node(number: u8) -> MemberList {
    let bind = SocketAddr::from(([127, 64, 7, number], 0));
    let config = Config { bind, user_max: 2, ..Config::new(Id::from_uuid([number; 16]), Preset::Local) };
    MemberList::start(&config, Options::default()).expect("loopback can be bound")
}

/// Waits for an event.
async fn told(
    events: &mut annulus::ServiceEvents<annulus::core::swim::Swim>,
    wanted: impl Fn(&Event) -> bool,
) {
    let heard = async {
        while let Some(event) = events.next().await {
            if wanted(&event) {
                return;
            }
        }
        panic!("the node ended");
    };
    tokio::time::timeout(PATIENCE, heard).await.expect("it gets the event in time");
}

#[tokio::test]
async fn s_125_a_member_list_has_the_members_and_their_broadcasts() {
    let (red, blue) = (node(1), node(2));
    let mut events = red.events();
    assert_eq!(blue.join(&[red.addr(), blue.addr()]).await.unwrap(), 1, "the own address is left out");
    told(&mut events, |event| matches!(event, Event::MemberJoined { .. })).await;
    assert_eq!(red.member_count().await.unwrap(), 2);
    let own = blue.local_node().await.unwrap();
    assert!(red.members().await.unwrap().iter().any(|member| member.node == own));
    blue.set_meta("role=db").await.unwrap();
    told(&mut events, |event| matches!(event, Event::MemberUpdated { id, .. } if *id == own.id)).await;
    assert!(red.members().await.unwrap().iter().any(|member| member.node.meta == b"role=db"));
    blue.update(Some(PATIENCE)).await.unwrap();
    for number in 0..6u8 {
        blue.broadcast([number]).await.unwrap();
    }
    told(&mut events, |event| matches!(event, Event::UserReceived { data, .. } if data == &[5])).await;
    blue.leave(Some(PATIENCE)).await.unwrap();
    told(&mut events, |event| matches!(event, Event::MemberLeft { .. })).await;
    assert_eq!((red.members().await.unwrap().len(), red.all_members().await.unwrap().len()), (1, 2));
    assert_eq!(
        red.all_members().await.unwrap().iter().filter(|member| member.state == State::Left).count(),
        1
    );
    assert_eq!(blue.stop().await, Ended::Stopped);
    assert!(matches!(blue.member_count().await, Err(MembersError::Stopped)));
}

#[tokio::test]
async fn a_member_list_returns_errors() {
    let red = node(3);
    let large = red.broadcast(vec![0; 5000]).await.unwrap_err();
    assert!(matches!(large, MembersError::TooLarge { bytes: 5000, .. }), "{large}");
    assert!(matches!(red.set_meta(vec![0; 513]).await, Err(MembersError::TooLarge { bytes_max: 512, .. })));
    assert!(matches!(red.join(&[red.addr()]).await, Err(MembersError::NoAddress)));
    assert!(matches!(red.force_leave(Id::from_uuid([9; 16])).await, Err(MembersError::NoSuchMember)));
    assert!(matches!(red.resume().await, Err(MembersError::Running)));
    red.pause().await.unwrap();
    assert!(matches!(red.update(None).await, Err(MembersError::Paused)));
    red.resume().await.unwrap();
    // SF-16: a node alone waits for no other member.
    red.update(None).await.unwrap();
    red.leave(None).await.unwrap();
    let config = Config { bind: red.addr(), ..Config::new(Id::from_uuid([4; 16]), Preset::Local) };
    let taken = MemberList::start(&config, Options::default()).unwrap_err();
    assert!(matches!(taken, MembersError::Start(StartError::Bind(_))), "{taken}");
}

/// Refuses secret messages.
#[derive(Clone, Debug)]
struct Discreet;

impl Handler for Discreet {
    fn handle(&mut self, message: &Message<'_>, member: Option<&Member>, next: Next<'_>) -> Verdict {
        match message {
            Message::User { data: b"secret", .. } if member.is_some() => Verdict::Refused,
            _ => next.handle(message, member),
        }
    }

    fn boxed(&self) -> Box<dyn Handler> {
        Box::new(self.clone())
    }
}

#[tokio::test]
async fn s_9_s_108_a_member_list_takes_handlers_that_see_messages_and_records_first() {
    let blue = node(12);
    let bind = SocketAddr::from(([127, 64, 7, 13], 0));
    let config = Config { bind, ..Config::new(Id::from_uuid([13; 16]), Preset::Local) };
    let red = MemberList::start_with(&config, vec![Box::new(Discreet)], Options::default()).unwrap();
    let mut events = red.events();
    blue.join(&[red.addr()]).await.unwrap();
    told(&mut events, |event| matches!(event, Event::MemberJoined { .. })).await;
    blue.broadcast("secret").await.unwrap();
    blue.broadcast("public").await.unwrap();
    told(&mut events, |event| match event {
        Event::UserReceived { data, .. } => {
            assert_eq!(data, b"public", "the handler refused the other");
            true
        }
        _ => false,
    })
    .await;
}
