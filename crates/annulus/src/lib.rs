//! Know who is alive, find who owns a key, take turns and reach each other, with no server.
//!
//! This is the library that most people add; the machines without I/O are in `annulus-core`, the driver that runs
//! them on tokio is in `annulus-net`.
