//! One request on a connection of its own, without threads and before any runtime: sent at once, its answer awaited later.
//!
//! The request is HTTP/1.0. So the answer is not chunked, and the agent closes the connection after it.

use std::io::Write as _;
use std::net::TcpStream;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::Value;
use tokio::io::Interest;

use super::{BROKE_OFF, Client, refused};

/// The timeout of a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// The longest answer that is read.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// A request that was sent. The connection ends with it.
pub(crate) struct Exchange {
    stream: TcpStream,
    client: Client,
}

impl Exchange {
    /// Sends a POST.
    pub(crate) fn begin(client: &Client, path: &str, body: &Value) -> anyhow::Result<Self> {
        let begin = || {
            let mut stream = TcpStream::connect_timeout(&client.addr, CONNECT)?;
            stream.set_nodelay(true)?;
            let (body, addr, authorization) = (body.to_string(), client.addr, client.authorization());
            let length = body.len();
            let request = format!(
                "POST {path} HTTP/1.0\r\nHost: {addr}\r\nAuthorization: {authorization}\r\n\
                 Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
            );
            stream.write_all(request.as_bytes())?;
            stream.set_nonblocking(true)?;
            Ok(stream)
        };
        let stream = begin().map_err(|error: std::io::Error| client.unreached(&error))?;
        Ok(Self { stream, client: client.clone() })
    }

    /// Waits for the answer.
    pub(crate) async fn answer(self) -> anyhow::Result<Value> {
        let stream = tokio::net::TcpStream::from_std(self.stream)?;
        let mut bytes = Vec::new();
        let answer = loop {
            stream.ready(Interest::READABLE).await?;
            let mut part = [0; 4096];
            let is_over = match stream.try_read(&mut part) {
                Ok(read) => {
                    bytes.extend_from_slice(&part[..read]);
                    read == 0
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
                Err(error) => return Err(error).context(BROKE_OFF),
            };
            if let Some(answer) = Answer::of(&bytes, is_over) {
                break answer;
            }
            anyhow::ensure!(!is_over && bytes.len() < ANSWER_BYTES_MAX, BROKE_OFF);
        };
        if !(200..300).contains(&answer.status) {
            return Err(refused(answer.status, answer.body));
        }
        self.client.parsed(answer.body)
    }
}

/// An answer as it came.
#[derive(Debug, PartialEq, Eq)]
struct Answer<'a> {
    status: u16,
    body: &'a str,
}

impl<'a> Answer<'a> {
    /// Reads it, if it is whole. Without a length it ends with the connection.
    fn of(bytes: &'a [u8], is_over: bool) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let (head, body) = text.split_once("\r\n\r\n")?;
        let mut lines = head.lines();
        let status = lines.next()?.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok()?;
        let length = lines
            .filter_map(|line| line.split_once(':'))
            .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
            .map(|(_, value)| value.trim().parse::<usize>());
        match length {
            Some(length) => Some(Self { status, body: body.get(..length.ok()?)? }),
            None => is_over.then_some(Self { status, body }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_when_it_is_whole() {
        let text = "HTTP/1.0 409 Conflict\r\nContent-length: 4\r\nDate: today\r\n\r\n{ü}";
        for length in 0..text.len() {
            assert_eq!(Answer::of(&text.as_bytes()[..length], true), None, "{length} bytes of it");
        }
        assert_eq!(Answer::of(text.as_bytes(), false), Some(Answer { status: 409, body: "{ü}" }));
    }

    #[test]
    fn an_answer_without_a_length_ends_with_the_connection() {
        let text = b"HTTP/1.1 200 OK\r\n\r\n{}";
        assert_eq!(Answer::of(text, false), None);
        assert_eq!(Answer::of(text, true), Some(Answer { status: 200, body: "{}" }));
    }
}
