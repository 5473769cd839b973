//! The driver: one task that owns a machine and everything it asked for.
//!
//! It is a hand-written future. Each poll is one *turn*. The driver serves the sources on the [`crate::ready`] list, each
//! with a bounded amount of work. After each call it performs the actions of the machine and reports their results. Sources
//! with work left are on the list again, and the task yields to others before it goes on.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use annulus_core::{Action, Bound, Instant, Machine, Queue};

use crate::app::App;
use crate::clock::{self, Clock};
use crate::counters::DriverCounters;
use crate::error::BindError;
use crate::handle::{Ended, Handle};
use crate::listener::Listener;
use crate::options::Options;
use crate::port::Ports;
use crate::ready::{Ready, Token};
use crate::store::Client;
use crate::stream::Stream;
use crate::streams::Streams;
use crate::timer::Timer;

/// One buffer takes every datagram and every read of a stream. A datagram needs a quarter of it at most; of a stream that
/// brings much, a machine should see several messages at once.
const BUFFER_BYTES: usize = 256 * 1024;

/// A machine on real sockets and a real disk, ready to run: a future that ends when the machine does.
///
/// [`spawn`] is all that most programs need. Bind first to get the very first events, or to run the machine on a
/// task of your own:
///
/// ```no_run
/// # async fn run<M: annulus_core::Machine>(machine: M) -> Result<(), annulus_net::BindError> {
/// let (driver, handle) = annulus_net::Driver::bind(machine, annulus_net::Options::default())?;
/// let mut events = handle.events();
/// let (ended, first) = tokio::join!(driver, events.next());
/// # Ok(()) }
/// ```
#[must_use = "a driver runs only while it is polled: give it to `tokio::spawn`"]
pub struct Driver<M: Machine> {
    pub(crate) machine: M,
    pub(crate) queue: Queue<M>,
    pub(crate) app: App<M>,
    pub(crate) world: World,
    pub(crate) phase: Phase,
    pub(crate) buffer: Box<[u8]>,
    /// When the timeout of a graceful stop ends.
    pub(crate) stop_by: Option<Instant>,
    /// Sources that must wait until everything is loaded.
    pub(crate) held: Vec<Token>,
    /// Whether bytes written in the last turn have not gone out yet.
    pub(crate) is_late: bool,
    tokens: Vec<Token>,
}

/// The phase of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The machine has not been called.
    Born,
    /// The machine reads its store and gets no other input until all requests are answered.
    Loading,
    /// The machine runs.
    Open,
    /// The application requested a stop.
    Stopping,
    /// The machine is not called any more; the store is being closed.
    Closing(Ended),
}

/// Everything around a machine that does not depend on its type.
pub(crate) struct World {
    pub(crate) ready: Arc<Ready>,
    pub(crate) options: Options,
    pub(crate) counters: DriverCounters,
    pub(crate) clock: Clock,
    pub(crate) timer: Timer,
    pub(crate) ports: Ports,
    pub(crate) listeners: Vec<Listener>,
    pub(crate) streams: Streams,
    pub(crate) store: Client,
}

/// Runs a machine on a task of its own.
///
/// Opening the store may block for a moment, longer if it has to be repaired after a crash.
///
/// # Errors
/// If a declared endpoint or store cannot be opened.
///
/// # Panics
/// Outside a tokio runtime with I/O and time enabled.
pub fn spawn<M>(machine: M, options: Options) -> Result<Handle<M>, BindError>
where
    M: Machine + Send + 'static,
    M::Command: Send,
    M::Reply: Send,
    M::Event: Send + Sync,
{
    let (driver, handle) = Driver::bind(machine, options)?;
    tokio::spawn(driver);
    Ok(handle)
}

impl<M: Machine> Driver<M> {
    /// Binds everything the machine declares and opens its store. The machine is not called before the driver is
    /// polled.
    ///
    /// # Errors
    /// If a declared endpoint or store cannot be opened.
    ///
    /// # Panics
    /// Outside a tokio runtime with I/O and time enabled.
    pub fn bind(machine: M, options: Options) -> Result<(Self, Handle<M>), BindError> {
        let (world, bound) = World::bind(&machine, options)?;
        let (app, handle) = App::new(bound, &world.options, &world.ready);
        if let Some(gate) = &world.options.gate {
            gate.attach(&app.control);
        }
        let driver = Self {
            machine,
            queue: Queue::new(),
            app,
            world,
            phase: Phase::Born,
            buffer: vec![0; BUFFER_BYTES].into_boxed_slice(),
            stop_by: None,
            held: Vec::new(),
            is_late: false,
            tokens: Vec::new(),
        };
        Ok((driver, handle))
    }

    /// Carries out everything the machine wants, in order.
    pub(crate) fn carry_out(&mut self) {
        let World { counters, ports, streams, store, options, ready, listeners, clock, .. } = &mut self.world;
        while let Some(action) = self.queue.next() {
            match action {
                Action::Send { to, .. }
                    if options.gate.as_ref().is_some_and(|gate| gate.is_cut_off(to.ip())) => {}
                Action::Send { socket, to, bytes } => match ports.of(socket) {
                    Some(port) => port.send(to, bytes, counters),
                    None => tracing::error!(%socket, "the machine used a socket it did not declare"),
                },
                Action::Broadcast { socket, bytes } => match ports.of(socket) {
                    Some(port) => port.broadcast(bytes, counters),
                    None => tracing::error!(%socket, "the machine used a socket it did not declare"),
                },
                Action::Open { stream, to, from } => {
                    streams.open(stream, to, from, ready);
                    if let Some(gate) = &options.gate {
                        streams.with(stream, |stream| stream.hold(gate, clock.now().mono));
                    }
                }
                Action::Write { stream, bytes } => {
                    streams.with(stream, |stream| stream.write(bytes, options.stream_bytes_max));
                }
                Action::Read { stream, credit } => streams.with(stream, |stream| stream.grant(credit)),
                Action::Finish { stream } => streams.with(stream, Stream::finish),
                Action::Watch { stream, watch } => streams.with(stream, |stream| {
                    stream.watch_for(watch, options.keepalive, clock.now().mono);
                }),
                Action::Abort { stream } => {
                    if let Some(mut stream) = streams.remove(stream) {
                        stream.reset();
                        counters.streams_aborted += 1;
                        stream.listener.inspect(|index| listeners[*index].streams -= 1);
                    }
                }
                Action::Store { op, request } => store.ask(op, &request, counters),
                Action::Event(event) => self.app.event(event, counters),
                Action::Reply(request, reply) => self.app.reply(request, reply),
            }
        }
    }

    /// Ends everything but the store, which takes a moment.
    pub(crate) fn close(&mut self, ended: Ended) {
        self.phase = Phase::Closing(ended);
        self.world.ports = Ports::default();
        self.world.listeners = Vec::new();
        self.world.streams = Streams::default();
        self.world.store.close();
        self.app.close();
    }

    /// Whether the gate suspends the driver. One that is suspended can still be aborted.
    fn stands_still(&mut self, task: &std::task::Waker) -> bool {
        if !self.world.options.gate.as_ref().is_some_and(|gate| gate.poll_suspended(task)) {
            return false;
        }
        self.world.ready.attach(task);
        if self.app.wish.is_abort() && !matches!(self.phase, Phase::Closing(_)) {
            self.close(Ended::Aborted);
        }
        !matches!(self.phase, Phase::Closing(_))
    }

    fn start(&mut self) {
        self.phase = Phase::Loading;
        let now = self.world.clock.now();
        self.machine.handle_start(now, self.app.bound(), &mut self.queue.outbox());
        self.carry_out();
        // Each source is polled once, which registers its waker.
        self.world.ports.raise();
        self.world.listeners.iter().for_each(|listener| listener.signal.raise());
        self.world.store.signal.raise();
        self.app.signal.raise();
        self.app.control.raise();
    }
}

impl World {
    fn bind<M: Machine>(machine: &M, options: Options) -> Result<(Self, Bound), BindError> {
        let ready = Arc::new(Ready::default());
        let declared = machine.endpoints();
        let mut bound =
            Bound { confirms: cfg!(target_os = "linux"), boot_id: clock::boot_id(), ..Bound::default() };
        let mut ports = Ports::default();
        for socket in &declared.sockets {
            bound.sockets.push((socket.id, ports.bind(socket, options.datagrams_max, &ready)?));
        }
        let mut listeners = Vec::new();
        for listener in &declared.listeners {
            let (listener, address) = Listener::bind(listener, listeners.len(), &options, &ready)?;
            bound.listeners.push((listener.id, address));
            listeners.push(listener);
        }
        let store = Client::open(
            &options.store,
            &declared.spaces,
            options.store_ops_max.max(1),
            options.store_bytes_max,
            &ready,
        )?;
        let world = Self {
            counters: DriverCounters::default(),
            clock: Clock::new(),
            timer: Timer::new(&ready),
            ports,
            listeners,
            streams: Streams::default(),
            store,
            options,
            ready,
        };
        Ok((world, bound))
    }
}

/// Nothing in a driver is ever pinned in place: the machine is called, never polled.
impl<M: Machine> Unpin for Driver<M> {}

impl<M: Machine> Future for Driver<M> {
    type Output = Ended;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Ended> {
        let driver = &mut *self;
        if driver.stands_still(cx.waker()) {
            return Poll::Pending;
        }
        driver.world.ready.attach(cx.waker());
        driver.world.clock.read_wall();
        driver.world.counters.turns += 1;
        if driver.phase == Phase::Born {
            driver.start();
        }
        let mut tokens = std::mem::take(&mut driver.tokens);
        driver.world.ready.take(&mut tokens);
        for token in tokens.drain(..) {
            driver.serve(token);
        }
        driver.tokens = tokens;
        driver.settle();
        match driver.phase {
            Phase::Closing(ended) if driver.world.store.poll_closed() => {
                driver.app.end(ended);
                Poll::Ready(ended)
            }
            _ => Poll::Pending,
        }
    }
}
