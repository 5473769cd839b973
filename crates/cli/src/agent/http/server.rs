//! Takes connections and serves them. Their number, the memory of each and the time of a silent one are bounded, so a
//! client cannot cost the agent more.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use rustix::net::sockopt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

use super::error::ApiError;

/// The most connections. A further client gets an error and is closed, so that one client with all connections cannot
/// block others.
const CONNECTIONS_MAX: usize = 256;

/// The timeout of the head of a request, and of an idle connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// The timeout of a client that does not read its answer.
const UNREAD_TIMEOUT: Duration = Duration::from_secs(60);

/// The most bytes in memory for each direction of a connection.
const BUFFER_BYTES: usize = 16 * 1024;

/// The pause when the system has no more descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until the agent leaves, then until every request under way is answered.
pub(crate) async fn serve(listener: TcpListener, app: Router, mut leaving: watch::Receiver<bool>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let under_way = GracefulShutdown::new();
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener) => accepted,
            _ = leaving.wait_for(|leaving| *leaving) => break,
        };
        let stream = match accepted {
            Ok(stream) => stream,
            Err(error) => {
                tracing::warn!(%error, "cannot take an HTTP connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Ok(place) = places.clone().try_acquire_owned() else {
            refuse(&stream);
            continue;
        };
        let service = TowerToHyperService::new(app.clone());
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_buf_size(BUFFER_BYTES)
            .serve_connection(TokioIo::new(stream), service);
        let connection = under_way.watch(connection);
        tokio::spawn(async move {
            // An error of a connection concerns its client only: it has gone, or sent no HTTP.
            let _ = connection.await;
            drop(place);
        });
    }
    drop(listener);
    under_way.shutdown().await;
}

/// The next connection.
async fn accept(listener: &TcpListener) -> io::Result<TcpStream> {
    let (stream, _) = listener.accept().await?;
    stream.set_nodelay(true)?;
    sockopt::set_tcp_user_timeout(&stream, UNREAD_TIMEOUT.as_millis() as u32)?;
    Ok(stream)
}

/// Answers `too_many_clients` without waiting for the request: the kernel takes that much at once.
fn refuse(stream: &TcpStream) {
    let message = format!("this agent has {CONNECTIONS_MAX} clients already");
    let hint = "close some of them, and try again";
    let error = ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_clients", message, hint);
    let body = error.to_json();
    let head = format!(
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    // If it does not take it, it has gone.
    let _ = stream.try_write((head + &body).as_bytes());
}
