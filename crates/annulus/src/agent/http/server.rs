//! Takes connections and serves them. How many there are, what each may hold in memory and how long a silent one may
//! stay is bounded: no client can cost the agent more than that.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use rustix::net::sockopt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

/// The most connections. One more waits until one ends.
const CONNECTIONS_MAX: usize = 256;

/// How long the head of a request may take, and how long a connection may wait for the next one.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a client may leave what was sent to it unread.
const UNREAD_TIMEOUT: Duration = Duration::from_secs(60);

/// The most bytes in memory for each direction of a connection.
const BUFFER_BYTES: usize = 16 * 1024;

/// How long to wait when the system has no more descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until the agent leaves, then until every request under way is answered.
pub(crate) async fn serve(listener: TcpListener, app: Router, mut leaving: watch::Receiver<bool>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let under_way = GracefulShutdown::new();
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &places) => accepted,
            _ = leaving.wait_for(|leaving| *leaving) => break,
        };
        let (stream, place) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot take an HTTP connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let service = TowerToHyperService::new(app.clone());
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_buf_size(BUFFER_BYTES)
            .serve_connection(TokioIo::new(stream), service);
        let connection = under_way.watch(connection);
        tokio::spawn(async move {
            // What goes wrong on a connection is the client's trouble; it has gone, or sent no HTTP.
            let _ = connection.await;
            drop(place);
        });
    }
    drop(listener);
    under_way.shutdown().await;
}

/// The next connection, once there is a place for it.
async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> io::Result<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let place = places.clone().acquire_owned().await.map_err(io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    stream.set_nodelay(true)?;
    sockopt::set_tcp_user_timeout(&stream, UNREAD_TIMEOUT.as_millis() as u32)?;
    Ok((stream, place))
}
