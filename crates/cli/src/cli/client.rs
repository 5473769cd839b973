//! Talking to an agent over HTTP.

#[cfg(target_os = "linux")]
mod exchange;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use serde::de::DeserializeOwned;
use serde_json::Value;
use ureq::http::Response;
use ureq::typestate::WithBody;
use ureq::{Agent, Body, RequestBuilder};

#[cfg(target_os = "linux")]
pub(crate) use exchange::Exchange;

/// The agent to call.
#[derive(clap::Args)]
pub(crate) struct AgentArgs {
    /// The HTTP address of the agent.
    #[arg(
        long = "agent",
        global = true,
        value_name = "ADDR",
        env = "ANNULUS_AGENT",
        default_value = "127.0.0.1:7373",
        display_order = 901
    )]
    addr: SocketAddr,
    /// The bearer token of the agent, if it requires one.
    #[arg(
        long,
        global = true,
        value_name = "TOKEN",
        env = "ANNULUS_TOKEN",
        hide_env_values = true,
        display_order = 902,
        value_parser = parse_token
    )]
    token: Option<String>,
}

fn parse_token(text: &str) -> Result<String, String> {
    crate::config::check_secret(text).map(|()| text.to_owned())
}

/// The longest answer that is read: the data of a token may have 64 MiB, and more as JSON.
const BODY_BYTES_MAX: u64 = 256 << 20;

/// Longer bodies are sent when the agent wants them.
const EXPECT_BYTES_MIN: usize = 64 << 10;

/// The error for an answer that ends early.
const BROKE_OFF: &str = "the agent's answer broke off: check that the agent runs, and try again";

/// A connection to an agent.
#[derive(Clone)]
pub(crate) struct Client {
    addr: SocketAddr,
    token: Option<String>,
    http: Agent,
}

impl Client {
    pub(crate) fn new(args: &AgentArgs) -> Self {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(Duration::from_secs(5)))
            .timeout_await_100(Some(Duration::from_secs(10)))
            .proxy(None)
            .build();
        Self { addr: args.addr, token: args.token.clone(), http: config.into() }
    }

    /// The answer of the agent to a GET.
    pub(crate) fn get(&self, path: &str) -> anyhow::Result<Value> {
        let request = self.http.get(self.url(path)).header("Authorization", self.authorization());
        self.json(request.call())
    }

    /// The answer of the agent to a POST.
    pub(crate) fn post(&self, path: &str, body: &impl std::fmt::Display) -> anyhow::Result<Value> {
        let (mut request, body) = (self.posting(path), body.to_string());
        if body.len() > EXPECT_BYTES_MIN {
            // An agent that refuses a long body closes the connection early, and its reason would be lost.
            request = request.header("Expect", "100-continue");
        }
        self.json(request.send(body))
    }

    /// The answer of the agent to a DELETE.
    pub(crate) fn delete(&self, path: &str) -> anyhow::Result<Value> {
        let request = self.http.delete(self.url(path)).header("Authorization", self.authorization());
        self.json(request.call())
    }

    /// The answer of the agent to a POST, if it does so in time.
    pub(crate) fn post_within(&self, path: &str, body: &str, limit: Duration) -> anyhow::Result<Value> {
        let request = self.posting(path).config().timeout_global(Some(limit)).build();
        self.json(request.send(body))
    }

    /// The address of the agent.
    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The answer of the agent to a PUT of bytes.
    pub(crate) fn put(&self, path: &str, bytes: &[u8]) -> anyhow::Result<Value> {
        let request = self
            .http
            .put(self.url(path))
            .header("Authorization", self.authorization())
            .header("Content-Type", "application/octet-stream");
        self.json(request.send(bytes))
    }

    /// Copies the bytes that the agent answers to a GET, as they come; how many they are.
    pub(crate) fn copy(&self, path: &str, to: &mut impl Write) -> anyhow::Result<u64> {
        let request = self.http.get(self.url(path)).header("Authorization", self.authorization());
        let response = self.reached(request.call())?;
        if !response.status().is_success() {
            return Err(refused_by(response));
        }
        let mut from = response.into_body().into_reader();
        let (mut part, mut copied) = (vec![0; 1 << 16], 0);
        loop {
            let read = from.read(&mut part).context(BROKE_OFF)?;
            if read == 0 {
                return Ok(copied);
            }
            to.write_all(&part[..read])?;
            copied += read as u64;
        }
    }

    /// The agent's events, behind `last` if given, until it ends the stream.
    pub(crate) fn events(&self, last: Option<&str>) -> anyhow::Result<Events> {
        let mut request = self.http.get(self.url("/v1/events")).header("Authorization", self.authorization());
        if let Some(last) = last {
            request = request.header("Last-Event-ID", last);
        }
        Events::of(self.reached(request.call())?)
    }

    /// The events that the agent answers to a POST, until it ends the stream.
    pub(crate) fn stream(&self, path: &str, body: &Value) -> anyhow::Result<Events> {
        Events::of(self.reached(self.posting(path).send(body.to_string()))?)
    }

    fn posting(&self, path: &str) -> RequestBuilder<WithBody> {
        self.http
            .post(self.url(path))
            .header("Authorization", self.authorization())
            .header("Content-Type", "application/json")
    }

    /// The text of the answer to a GET, and its parsed form.
    pub(crate) fn read<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<(String, T)> {
        let request = self.http.get(self.url(path)).header("Authorization", self.authorization());
        let text = self.answer(request.call())?;
        let read = self.parsed(&text)?;
        Ok((text, read))
    }

    fn json(&self, outcome: Result<Response<Body>, ureq::Error>) -> anyhow::Result<Value> {
        self.parsed(&self.answer(outcome)?)
    }

    fn answer(&self, outcome: Result<Response<Body>, ureq::Error>) -> anyhow::Result<String> {
        let mut response = self.reached(outcome)?;
        if !response.status().is_success() {
            return Err(refused_by(response));
        }
        let body = response.body_mut().with_config().limit(BODY_BYTES_MAX);
        body.read_to_string().context(BROKE_OFF)
    }

    fn parsed<T: DeserializeOwned>(&self, text: &str) -> anyhow::Result<T> {
        serde_json::from_str(text).with_context(|| {
            format!("{} answers, but not as an annulus agent does; check --agent", self.addr)
        })
    }

    fn reached(&self, outcome: Result<Response<Body>, ureq::Error>) -> anyhow::Result<Response<Body>> {
        outcome.map_err(|error| self.unreached(&error))
    }

    fn unreached(&self, error: &impl std::fmt::Display) -> anyhow::Error {
        anyhow!(
            "no agent answers at {} ({error}): start one with `annulus agent`, or name another with --agent",
            self.addr
        )
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.addr)
    }

    fn authorization(&self) -> String {
        self.token.as_ref().map_or_else(String::new, |token| format!("Bearer {token}"))
    }
}

/// A text, escaped for a query.
pub(crate) fn escaped(text: &str) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~".contains(byte);
    text.bytes()
        .map(|byte| if plain(&byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

/// Whether the agent answered this error code.
pub(crate) fn is_refused(error: &anyhow::Error, code: &str) -> bool {
    error.downcast_ref::<Refused>().is_some_and(|refused| refused.code == code)
}

/// An error that the agent answered.
#[derive(Debug, thiserror::Error)]
#[error("{message}: {hint}")]
struct Refused {
    code: String,
    message: String,
    hint: String,
}

/// The error that the agent answered with.
fn refused_by(mut response: Response<Body>) -> anyhow::Error {
    let text = response.body_mut().read_to_string().unwrap_or_default();
    refused(response.status().as_u16(), &text)
}

fn refused(status: u16, body: &str) -> anyhow::Error {
    let body: Value = serde_json::from_str(body).unwrap_or_default();
    let text = |key: &str| body["error"][key].as_str().map(str::to_owned);
    match (text("message"), text("hint")) {
        (Some(message), Some(hint)) => {
            Refused { code: text("code").unwrap_or_default(), message, hint }.into()
        }
        _ => {
            let status = ureq::http::StatusCode::from_u16(status)
                .map_or_else(|_| status.to_string(), |status| status.to_string());
            anyhow!("the agent answers {status}; is it one of annulus? check --agent")
        }
    }
}

/// Server-sent events, one after the other.
pub(crate) struct Events {
    lines: BufReader<Box<dyn Read + Send>>,
}

/// One server-sent event.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ServerEvent {
    /// Its type; empty is an ordinary one.
    pub(crate) kind: String,
    /// The `Last-Event-ID` that continues behind it.
    pub(crate) id: String,
    /// Its content.
    pub(crate) data: String,
}

/// The longest line that is read: an event is a small JSON object.
const LINE_BYTES_MAX: u64 = 1 << 20;

impl Events {
    fn of(response: Response<Body>) -> anyhow::Result<Self> {
        if response.status() != 200 {
            return Err(refused_by(response));
        }
        Ok(Self { lines: BufReader::new(Box::new(response.into_body().into_reader())) })
    }

    /// Waits for an event of this kind, or for a `missed` event.
    pub(crate) fn wait(&mut self, mut is_it: impl FnMut(&Value) -> bool) -> anyhow::Result<()> {
        while let Some(event) = self.next()? {
            if event.kind == "missed" || is_it(&serde_json::from_str(&event.data).unwrap_or_default()) {
                return Ok(());
            }
        }
        bail!("the agent has ended the stream: it is stopping; start it again and retry")
    }

    /// The next event; `None` if the agent has ended the stream.
    pub(crate) fn next(&mut self) -> anyhow::Result<Option<ServerEvent>> {
        let mut event = ServerEvent::default();
        loop {
            let mut line = String::new();
            let read = (&mut self.lines).take(LINE_BYTES_MAX).read_line(&mut line);
            match read.context(BROKE_OFF)? {
                0 => return Ok(None),
                read if read as u64 == LINE_BYTES_MAX => {
                    bail!("the agent sends an event without end; check --agent")
                }
                _ => {}
            }
            match line.trim_end_matches(['\r', '\n']).split_once(':') {
                Some(("event", value)) => value.trim_start().clone_into(&mut event.kind),
                Some(("id", value)) => value.trim_start().clone_into(&mut event.id),
                Some(("data", value)) => event.data.push_str(value.trim_start()),
                None if line.trim().is_empty() && !event.data.is_empty() => return Ok(Some(event)),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_carries_any_text() {
        assert_eq!(escaped("db-1.a"), "db-1.a");
        assert_eq!(escaped("a b&c=ü"), "a%20b%26c%3D%C3%BC");
    }

    #[test]
    fn events_are_read_with_their_ids_and_comments_are_passed_over() {
        let text = ": hello\n\nid: a-1\ndata: {\"x\":1}\n\nevent: missed\nid: a-5\ndata: {}\n\n";
        let mut events = Events { lines: BufReader::new(Box::new(text.as_bytes())) };
        let first = events.next().unwrap().unwrap();
        assert_eq!((first.id.as_str(), first.data.as_str()), ("a-1", "{\"x\":1}"));
        assert_eq!(events.next().unwrap().unwrap().kind, "missed");
        assert_eq!(events.next().unwrap(), None);
    }
}
