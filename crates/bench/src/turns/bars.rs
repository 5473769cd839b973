//! The bounds of exclusive turns that need no other program (TU-46 … TU-48). They are round trips of an acquire and
//! of a hand-over, CPU time of a renewal beside an echo, and the pace of a ring with voters.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use annulus_core::jitterbug::{self, Ledger};
use annulus_core::node::{Command, Node, Part, PartCommand, Reply, Token};
use annulus_core::turns::{self, Ask, Body, Config, Group, Key, Lock, Message, PORT, TurnId, Turns};
use annulus_core::wire::Writer;
use annulus_core::{Id, Service};
use annulus_net::{Handle, Options, spawn};
use anyhow::{Context, bail, ensure};

use crate::cpu::median;
use crate::server::{Kind, Server};

const TOKEN: Service = Service(3);
const TURNS: Service = Service(8);

/// Where the voters of [`super::agents`] listen.
fn voters() -> Vec<SocketAddr> {
    (1..=super::MEMBERS).map(|number| SocketAddr::from(([127, 98, 0, number], PORT))).collect()
}

fn bytes(message: &Message) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, turns::MESSAGE_BYTES_MAX);
    turns::encode(message, &mut writer);
    writer.finish().context("the message is too long")?;
    Ok(bytes)
}

/// The median round trip to the median voter: a question that a voter answers at once.
pub(super) fn round_trip() -> anyhow::Result<Duration> {
    let socket = UdpSocket::bind("127.98.0.9:0")?;
    socket.set_read_timeout(Some(Duration::from_secs(1)))?;
    let read = Message { group: Group([0; 16]), epoch: 0, nonce: 1, body: Body::Read { key: None } };
    let (read, mut buffer) = (bytes(&read)?, [0; 2048]);
    let mut medians = Vec::new();
    for voter in voters() {
        let mut taken = Vec::new();
        for _ in 0..2000 {
            let begin = Instant::now();
            socket.send_to(&read, voter)?;
            socket.recv_from(&mut buffer)?;
            taken.push(begin.elapsed().as_secs_f64());
        }
        medians.push(median(taken));
    }
    Ok(Duration::from_secs_f64(median(medians)))
}

/// The medians of an acquire of a free name, and of a hand-over from one node to another.
pub(super) fn acquire_and_transfer() -> anyhow::Result<(Duration, Duration)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let askers = [Arc::new(asker(8)?), Arc::new(asker(9)?)];
        let mut number = 0;
        let mut acquires = Vec::new();
        // The first ones learn the group and the round trips.
        for round in 0..1200 {
            number += 1;
            let begin = Instant::now();
            acquire(&askers[0], "free", number).await?;
            if round >= 200 {
                acquires.push(begin.elapsed().as_secs_f64());
            }
            release(&askers[0], number).await?;
        }
        let mut transfers = Vec::new();
        acquire(&askers[0], "busy", number + 1).await?;
        for round in 0..300 {
            number += 1;
            let (next, turn) = (Arc::clone(&askers[(round + 1) % 2]), number + 1);
            let waiting = tokio::spawn(async move {
                acquire(&next, "busy", turn).await?;
                anyhow::Ok(Instant::now())
            });
            tokio::time::sleep(Duration::from_millis(20)).await;
            let begin = Instant::now();
            release(&askers[round % 2], number).await?;
            transfers.push(waiting.await??.duration_since(begin).as_secs_f64());
        }
        Ok((Duration::from_secs_f64(median(acquires)), Duration::from_secs_f64(median(transfers))))
    })
}

fn asker(last: u8) -> anyhow::Result<Handle<Turns>> {
    let own = SocketAddr::from(([127, 98, 0, last], PORT));
    let config = Config { id: Id::new(last.into()), bind: own, own, voters: voters(), ..Config::default() };
    Ok(spawn(Turns::new(&config, [last; 32])?, Options::default())?)
}

async fn acquire(asker: &Handle<Turns>, name: &str, turn: u128) -> anyhow::Result<()> {
    let (wait, limit) = (Duration::from_secs(20), Duration::from_secs(60));
    let lock = Lock { name: name.to_owned(), turn: TurnId(turn), wait, limit, attended: false };
    match asker.command(turns::Command::Lock(lock)).await? {
        turns::Reply::Granted(_) => Ok(()),
        other => bail!("asked for a free name, the voters said {other:?}"),
    }
}

async fn release(asker: &Handle<Turns>, turn: u128) -> anyhow::Result<()> {
    asker.command(turns::Command::Release(TurnId(turn))).await?;
    Ok(())
}

/// CPU time of a voter per renewal, and of a bare echo per datagram of that length, in nanoseconds.
pub(super) fn renewal_and_echo() -> anyhow::Result<(f64, f64)> {
    let (voter, echo) = (Server::start(Kind::Voter)?, Server::start(Kind::Bare)?);
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.set_read_timeout(Some(Duration::from_secs(1)))?;
    let mut buffer = [0; 2048];
    let mut ask = |to: SocketAddr, bytes: &[u8]| -> anyhow::Result<Vec<u8>> {
        socket.send_to(bytes, to)?;
        let length = socket.recv(&mut buffer)?;
        Ok(buffer[..length].to_vec())
    };
    let read = Message { group: Group([0; 16]), epoch: 0, nonce: 1, body: Body::Read { key: None } };
    let (group, epoch, floor) = loop {
        let answer = turns::decode(&ask(voter.udp, &bytes(&read)?)?)?;
        if let Body::State(state) = answer.body
            && state.standing == turns::Standing::Voting
        {
            break (answer.group, answer.epoch, state.floor);
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    let first = Ask {
        key: Key([7; 32]),
        number: floor + 1,
        holder: Id::new(5),
        session: 5,
        length_ms: 10_000,
        waited_ms: 0,
        renew: false,
        queue: false,
    };
    let message = |renew: bool| Message { group, epoch, nonce: 9, body: Body::Ask(Ask { renew, ..first }) };
    // The bound is written before the first grant.
    std::thread::sleep(Duration::from_millis(200));
    ask(voter.udp, &bytes(&message(false))?)?;
    let renewal = bytes(&message(true))?;
    let answer = turns::decode(&ask(voter.udp, &renewal)?)?;
    let granted = matches!(&answer.body, Body::Answer(answer) if answer.verdict == turns::Verdict::Granted);
    ensure!(granted, "a renewal was answered with {answer:?}");
    let (mut renewals, mut echoes) = (Vec::new(), Vec::new());
    for _ in 0..9 {
        for (server, figures) in [(&voter, &mut renewals), (&echo, &mut echoes)] {
            let before = server.cpu()?;
            for _ in 0..5000 {
                ask(server.udp, &renewal)?;
            }
            figures.push((server.cpu()? - before).as_nanos() as f64 / 5000.0);
        }
    }
    voter.stop()?;
    echo.stop()?;
    Ok((median(renewals), median(echoes)))
}

/// Passes per second of a ring without voters and of one with, and the median of the ratios.
pub(super) fn rings() -> anyhow::Result<(f64, f64, f64)> {
    let (mut without, mut with, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..8 {
        let one = passes(round, false)?;
        let other = passes(round, true)?;
        // The first round warms up.
        if round > 0 {
            without.push(one);
            with.push(other);
            ratios.push(other / one);
        }
    }
    Ok((median(without), median(with), median(ratios)))
}

const RING: u8 = 5;

fn passes(round: u8, voters: bool) -> anyhow::Result<f64> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let port = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let mut ring = Vec::new();
        for node in 1..=RING {
            let kind = 104 + u8::from(voters);
            let ip = move |node| IpAddr::V4(Ipv4Addr::new(127, kind, round, node));
            let config = jitterbug::Config {
                addr: ip(node),
                broadcast: vec![IpAddr::V4(Ipv4Addr::new(127, 255, 255, 255))],
                udp_port: port,
                tr_interval: Duration::from_millis(20),
                pace: Duration::ZERO,
                loose_prob_base: 1e15,
                ..jitterbug::Config::lan()
            };
            let token = Token::new(&config, Ledger::new().into(), [node; 32])?;
            let mut parts = vec![(TOKEN, Part::Token(Box::new(token)))];
            if voters {
                let own = SocketAddr::new(ip(node), PORT);
                let list = (1..=super::MEMBERS).map(|voter| SocketAddr::new(ip(voter), PORT)).collect();
                let config =
                    Config { id: Id::new(node.into()), bind: own, own, voters: list, ..Config::default() };
                parts.push((TURNS, Part::Turns(Box::new(Turns::new(&config, [node + 100; 32])?))));
            }
            ring.push(spawn(Node::new(parts)?, Options::default())?);
        }
        let begin = Instant::now();
        loop {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let mut whole = true;
            for node in &ring {
                let status = status(node).await?;
                whole &= status.nodes.len() == usize::from(RING) && status.voters.is_some() == voters;
            }
            if whole {
                break;
            }
            ensure!(begin.elapsed() < Duration::from_secs(30), "the ring is not whole after 30 s");
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        let (before, begin) = (status(&ring[0]).await?.fence.unwrap_or(0), Instant::now());
        tokio::time::sleep(Duration::from_secs(2)).await;
        let passes = status(&ring[0]).await?.fence.unwrap_or(0) - before;
        let rate = passes as f64 / begin.elapsed().as_secs_f64();
        for node in ring {
            node.stop().await;
        }
        Ok(rate)
    })
}

async fn status(node: &Handle<Node>) -> anyhow::Result<Box<jitterbug::Status>> {
    let command = PartCommand::Token(jitterbug::Command::Status);
    match node.command(Command { service: TOKEN, command }).await? {
        Reply::Token(jitterbug::Reply::Status(status)) => Ok(status),
        other => bail!("asked for its status, the node said {other:?}"),
    }
}
