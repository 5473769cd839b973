//! The load of the demo: messages to keys, turns, and mail, also to nodes that are away.

use std::sync::Arc;
use std::time::{Duration, Instant};

use annulus::core::node::{Command, PartCommand, Reply};
use annulus::core::pastry::{AppName, Outcome};
use annulus::core::{Id, Service, jitterbug, pastry, w3w};
use axum::http::StatusCode;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::cluster::{Cluster, lock};
use super::events::What;
use super::member::Member;
use crate::agent::http::{Api, ApiError, milliseconds};
use crate::agent::services;

/// The time between two messages, turns, letters, and rounds of tidying.
const MESSAGES_EVERY: Duration = Duration::from_millis(600);
const TURNS_EVERY: Duration = Duration::from_millis(1700);
const MAIL_EVERY: Duration = Duration::from_secs(5);
const TIDY_EVERY: Duration = Duration::from_secs(3);
/// How long a turn lasts, and how long anything of the load may take.
const TURN: Duration = Duration::from_millis(700);
const LOAD_TIMEOUT: Duration = Duration::from_secs(8);
/// The keys of the load are `users/0` and following.
const KEYS: usize = 1000;
/// The most letters in an inbox, and the most turns that wait.
const INBOX_MAX: usize = 20;
const WAITING_MAX: usize = 3;

/// Runs the load until the demo ends.
pub(crate) async fn run(cluster: Arc<Cluster>, mut leaving: watch::Receiver<bool>) {
    let mut messages = tokio::time::interval(MESSAGES_EVERY);
    let mut turns = tokio::time::interval(TURNS_EVERY);
    let mut mail = tokio::time::interval(MAIL_EVERY);
    let mut tidy = tokio::time::interval(TIDY_EVERY);
    let mut number: usize = 0;
    loop {
        number += 1;
        tokio::select! {
            _ = messages.tick() => drop(tokio::spawn(one_message(Arc::clone(&cluster), number))),
            _ = turns.tick() => drop(tokio::spawn(one_turn(Arc::clone(&cluster), number))),
            _ = mail.tick() => drop(tokio::spawn(one_letter(Arc::clone(&cluster), number))),
            _ = tidy.tick() => drop(tokio::spawn(tidy_up(Arc::clone(&cluster)))),
            _ = leaving.wait_for(|leaving| *leaving) => return,
        }
    }
}

impl Cluster {
    /// Sends a message from a node to the owner of a key; the answer has its path.
    pub(crate) async fn send(&self, from: &str, key: &str, text: &str) -> Result<Value, ApiError> {
        let member = self.member(from)?;
        let api = awake(member)?;
        let sent = tokio::time::timeout(LOAD_TIMEOUT, route(&api, key, text));
        let sent = sent.await.unwrap_or_else(|_| Err("its end is not known".into()));
        match sent {
            Ok(routed) => {
                let Routed { key: id, path, ms } = routed;
                let home = home_of(self, &id).map_or_else(String::new, |home| home.id.clone());
                let answer = json!({ "key": id, "owner": path.last(), "home": home, "path": path, "ms": ms });
                self.tell(What::MessageRouted {
                    from: member.id.clone(),
                    key: id,
                    text: key.to_owned(),
                    message: text.to_owned(),
                    home,
                    path,
                    ms,
                });
                Ok(answer)
            }
            Err(why) => {
                self.tell(What::MessageFailed {
                    from: member.id.clone(),
                    text: key.to_owned(),
                    why: why.clone(),
                });
                let hint = "the ring may be under repair: try again";
                Err(ApiError::new(StatusCode::BAD_GATEWAY, "not_delivered", why, hint))
            }
        }
    }

    /// Sends mail from a node to a node that may be away.
    pub(crate) async fn mail(&self, from: &str, to: &str, text: &str) -> Result<Value, ApiError> {
        let (member, to) = (self.member(from)?, self.member(to)?);
        let api = awake(member)?;
        let nid = nid_of(to)?;
        let command = w3w::Command::SendLetter {
            to: nid,
            data: text.as_bytes().to_vec(),
            lifetime: None,
            certain: true,
            receipt: true,
        };
        let sent =
            tokio::time::timeout(LOAD_TIMEOUT, ask(&api, services::MESH, PartCommand::Mesh(command))).await;
        match sent {
            Ok(Some(Reply::Mesh(w3w::Reply::Sent { number, until, is_letter, .. }))) => {
                let answer = json!({ "number": number, "until": until, "is_letter": is_letter });
                self.tell(What::MailSent {
                    from: member.id.clone(),
                    to: to.id.clone(),
                    text: text.to_owned(),
                    answer: answer.clone(),
                });
                Ok(answer)
            }
            other => {
                let message = format!("{from} did not take the mail: {other:?}");
                Err(ApiError::new(
                    StatusCode::BAD_GATEWAY,
                    "not_sent",
                    message,
                    "wait a moment and try again",
                ))
            }
        }
    }
}

/// A delivered message.
struct Routed {
    key: String,
    path: Vec<String>,
    ms: f64,
}

/// Queries the path to the owner, over the path of a message, and then sends the message.
async fn route(api: &Api, key: &str, text: &str) -> Result<Routed, String> {
    let id = key.parse().unwrap_or_else(|_| Id::from_text(key));
    let trace = PartCommand::Route(pastry::Command::Trace { key: id });
    let path = match ask(api, services::ROUTE, trace).await {
        Some(Reply::Route(pastry::Reply::Path(path))) => path,
        Some(Reply::Route(pastry::Reply::Outcome(outcome))) => return Err(outcome_text(&outcome)),
        _ => return Err("its node is not in the ring yet".into()),
    };
    let command = pastry::Command::Route {
        app: AppName::default(),
        key: id,
        payload: text.as_bytes().to_vec(),
        once: false,
        wants_answer: false,
        deadline: None,
    };
    let begin = Instant::now();
    match ask(api, services::ROUTE, PartCommand::Route(command)).await {
        Some(Reply::Route(pastry::Reply::Outcome(
            Outcome::Delivered { by, .. } | Outcome::Kept { by, .. },
        ))) => {
            let mut path: Vec<String> = path.iter().map(|step| step.contact.id.to_string()).collect();
            // The ring may have changed between the two.
            if path.last() != Some(&by.id.to_string()) {
                path.push(by.id.to_string());
            }
            Ok(Routed { key: id.to_string(), path, ms: milliseconds(begin.elapsed().as_micros() as u64) })
        }
        Some(Reply::Route(pastry::Reply::Outcome(outcome))) => Err(outcome_text(&outcome)),
        _ => Err("its node did not take it".into()),
    }
}

fn outcome_text(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Failed { why } => format!("{why:?}"),
        Outcome::Unknown => "its end is not known".into(),
        Outcome::Refused { reason, .. } => format!("it was refused: {reason}"),
        _ => "its path is not known".into(),
    }
}

async fn one_message(cluster: Arc<Cluster>, number: usize) {
    if let Some(member) = pick(&cluster, number, |member| member.awake().is_some()) {
        // Every second message goes to a key of a stopped node, if there is one: it must take another path.
        let away =
            pick(&cluster, number, |member| member.api().is_none()).filter(|_| number.is_multiple_of(2));
        let numbers = (0..KEYS).map(|step| (number * 7919 + step) % KEYS);
        let mut keys = numbers.map(|number| format!("users/{number}"));
        let Some(key) = keys.find(|key| {
            let home = home_of(&cluster, &Id::from_text(key).to_string());
            away.is_none_or(|away| home.is_some_and(|home| home.id == away.id))
        }) else {
            return;
        };
        // A message that fails is an event.
        let _ = cluster.send(&member.name, &key, &format!("hello {number}")).await;
    }
}

/// One node asks for the token, keeps it a moment, and lets it go.
async fn one_turn(cluster: Arc<Cluster>, number: usize) {
    let Some(member) = pick(&cluster, number * 5 + 3, |member| member.awake().is_some()) else { return };
    let Some(api) = member.awake() else { return };
    {
        let mut waiting = lock(&cluster.waiting);
        let has_turn = cluster.turn.borrow().as_ref() == Some(&member.id);
        if waiting.len() >= WAITING_MAX || waiting.contains(&member.id) || has_turn {
            return;
        }
        waiting.push(member.id.clone());
    }
    // Above every number that the API of a node gives.
    let key = (1 << 48) + number as u64;
    let hold = jitterbug::Command::HoldAs { key, limit: 4 * TURN };
    let held = tokio::time::timeout(LOAD_TIMEOUT, ask(&api, services::TOKEN, PartCommand::Token(hold))).await;
    lock(&cluster.waiting).retain(|id| *id != member.id);
    match held {
        Ok(Some(Reply::Token(jitterbug::Reply::Held { hold, fence }))) => {
            cluster.tell(What::TurnBegan { id: member.id.clone(), fence });
            cluster.turn.send_replace(Some(member.id.clone()));
            tokio::time::sleep(TURN).await;
            cluster.turn.send_replace(None);
            ask(&api, services::TOKEN, PartCommand::Token(jitterbug::Command::Release { hold })).await;
            cluster.tell(What::TurnEnded { id: member.id.clone(), fence });
        }
        Ok(_) => {}
        Err(_) => {
            ask(&api, services::TOKEN, PartCommand::Token(jitterbug::Command::Withdraw { key })).await;
        }
    }
}

/// Mail from one node to another, to one that is away if there is one.
async fn one_letter(cluster: Arc<Cluster>, number: usize) {
    let away = pick(&cluster, number, |member| member.api().is_none());
    let Some(to) = away.or_else(|| pick(&cluster, number * 3 + 1, |_| true)) else { return };
    let from = pick(&cluster, number * 11 + 5, |member| member.awake().is_some() && member.id != to.id);
    if let Some(from) = from {
        // Mail that its sender does not take is none.
        let _ = cluster.mail(&from.name, &to.name, &format!("letter {number} from {}", from.name)).await;
    }
}

/// Marks arrived messages as read, so that there is room for more.
async fn tidy_up(cluster: Arc<Cluster>) {
    for api in cluster.members.iter().filter_map(Member::awake) {
        let mut ids = Vec::new();
        let mut number = 0;
        while let Some((at, letter, is_read)) = api.mailbox.from(number) {
            number = at + 1;
            ids.extend((!is_read).then_some(letter.id));
        }
        api.mailbox.read(&ids).await;
        let inbox = PartCommand::Mesh(w3w::Command::Inbox { from: 0 });
        let asked = tokio::time::timeout(LOAD_TIMEOUT, ask(&api, services::MESH, inbox)).await;
        let Ok(Some(Reply::Mesh(w3w::Reply::Inbox(lines)))) = asked else { continue };
        for line in lines.iter().take(lines.len().saturating_sub(INBOX_MAX)) {
            ask(&api, services::MESH, PartCommand::Mesh(w3w::Command::Remove { number: line.number })).await;
        }
        // Unreferenced blocks would stay until they expire.
        ask(&api, services::MESH, PartCommand::Mesh(w3w::Command::Collect)).await;
    }
}

/// One of the nodes for which `wanted` holds; the number decides which.
fn pick(cluster: &Cluster, number: usize, wanted: impl Fn(&Member) -> bool) -> Option<&Member> {
    let wanted: Vec<&Member> = cluster.members.iter().filter(|member| wanted(member)).collect();
    wanted.get(mixed(number as u64) as usize % wanted.len().max(1)).copied()
}

/// The node that owns a key if all nodes are up: the one with the closest id.
fn home_of<'a>(cluster: &'a Cluster, key: &str) -> Option<&'a Member> {
    let key: Id = key.parse().ok()?;
    let ids = cluster.members.iter().filter_map(|member| member.id.parse::<Id>().ok());
    let closest = key.closest(ids)?.to_string();
    cluster.members.iter().find(|member| member.id == closest)
}

/// A number in which every bit depends on every bit (splitmix64).
fn mixed(number: u64) -> u64 {
    let mut z = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)) >> 1
}

fn awake(member: &Member) -> Result<Api, ApiError> {
    member.awake().ok_or_else(|| {
        let message = format!("{} is down or suspended", member.name);
        ApiError::new(StatusCode::CONFLICT, "wrong_state", message, "revive it, or resume it")
    })
}

fn nid_of(member: &Member) -> Result<w3w::Nid, ApiError> {
    member.nid.parse().map_err(|_| ApiError::stopping())
}

async fn ask(api: &Api, service: Service, command: PartCommand) -> Option<Reply> {
    api.node.command(Command { service, command }).await.ok()
}
