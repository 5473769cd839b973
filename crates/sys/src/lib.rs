//! Two socket options of Linux's TCP, a clock and `fork` as safe calls. It is the only place of the project with `unsafe`.
//!
//! `rustix`, `nix` and `socket2` lack the options; `tcp-info-sys` runs bindgen at build time and lacks the second. For the
//! clock alone, `rustix` would be four crates more. No crate has a `fork` that is safe to call.

#![cfg(target_os = "linux")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use libc::{IPPROTO_TCP, TCP_INFO, c_int, c_void, socklen_t};

/// Not in `libc` yet; Linux has it since 6.15.
const TCP_RTO_MAX_MS: c_int = 44;

/// Linux's figures of a connection (`struct tcp_info`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpInfo {
    /// `tcpi_bytes_acked`. It counts the SYN of a connection that we opened, and the FIN.
    pub bytes_acked: u64,
    /// `tcpi_last_ack_recv`: time since any acknowledgement came.
    pub last_ack_received: Duration,
    /// `tcpi_unacked`: segments under way.
    pub segments_in_flight: u32,
    /// `tcpi_probes`: window and keep-alive probes without an answer.
    pub probes: u32,
    /// `tcpi_rtt`: the smoothed round trip.
    pub round_trip: Duration,
}

/// Asks the kernel about a connection.
///
/// # Errors
/// If `socket` is not TCP, or the kernel is older than 4.1 and does not count acknowledged bytes.
pub fn tcp_info(socket: BorrowedFd<'_>) -> io::Result<TcpInfo> {
    let mut bytes = [0; 128];
    if get(socket, TCP_INFO, &mut bytes)? < bytes.len() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let word = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let mut bytes_acked = [0; 8];
    bytes_acked.copy_from_slice(&bytes[120..]);
    Ok(TcpInfo {
        bytes_acked: u64::from_ne_bytes(bytes_acked),
        last_ack_received: Duration::from_millis(u64::from(word(56))),
        segments_in_flight: word(24),
        probes: u32::from(bytes[3]),
        round_trip: Duration::from_micros(u64::from(word(68))),
    })
}

/// Bounds the doubling of the kernel's retransmission timer: it waits no longer than this. Accepted connections have
/// it from their listener. Linux takes 1 s to 120 s.
///
/// # Errors
/// If the kernel does not have the option.
pub fn set_rto_max(socket: BorrowedFd<'_>, rto_max: Duration) -> io::Result<()> {
    let millis = c_int::try_from(rto_max.as_millis()).unwrap_or(c_int::MAX);
    let (value, length) = ((&raw const millis).cast::<c_void>(), size_of::<c_int>() as socklen_t);
    // SAFETY: the descriptor is borrowed for the call, and `value` points to `length` readable bytes of `millis`.
    #[expect(unsafe_code, reason = "a system call")]
    let done = unsafe { libc::setsockopt(socket.as_raw_fd(), IPPROTO_TCP, TCP_RTO_MAX_MS, value, length) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The value that [`set_rto_max`] has set, or the system's default.
///
/// # Errors
/// If the kernel does not have the option.
pub fn rto_max(socket: BorrowedFd<'_>) -> io::Result<Duration> {
    let mut millis = [0; size_of::<c_int>()];
    get(socket, TCP_RTO_MAX_MS, &mut millis)?;
    Ok(Duration::from_millis(u64::from(u32::from_ne_bytes(millis))))
}

/// CLOCK_BOOTTIME: the time since the machine was started, sleep included.
#[must_use]
pub fn boot_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is writable for the call. Linux has the clock since 2.6.39, so the call cannot fail.
    #[expect(unsafe_code, reason = "a system call")]
    let done = unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
    debug_assert_eq!(done, 0, "Linux has the clock");
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Makes a copy of this process. The parent gets the pid of the child, and the child gets `None`.
///
/// The starter of a command must not wait for its `exec`, as `std::process` does: the file may be on a disk that hangs.
///
/// # Errors
/// If this process has more than one thread, or the system has no room for another process.
pub fn fork() -> io::Result<Option<i32>> {
    // The links of this directory are two and one for each thread.
    if std::fs::metadata("/proc/self/task")?.nlink() != 3 {
        return Err(io::Error::other("a process with several threads cannot fork safely"));
    }
    // SAFETY: only the calling thread lives on in the child. There is no other one that could hold a lock or start now, so
    // all memory of the child is in a state that this thread left.
    #[expect(unsafe_code, reason = "a system call")]
    let pid = unsafe { libc::fork() };
    match pid {
        0 => Ok(None),
        1.. => Ok(Some(pid)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Reads an option into `value`; how many bytes the kernel wrote.
fn get(socket: BorrowedFd<'_>, option: c_int, value: &mut [u8]) -> io::Result<usize> {
    let mut length = value.len() as socklen_t;
    let into = value.as_mut_ptr().cast::<c_void>();
    // SAFETY: the descriptor is borrowed for the call, and the kernel writes at most `length` bytes, all of `value`.
    #[expect(unsafe_code, reason = "a system call")]
    let done = unsafe { libc::getsockopt(socket.as_raw_fd(), IPPROTO_TCP, option, into, &raw mut length) };
    if done == 0 { Ok(length as usize) } else { Err(io::Error::last_os_error()) }
}
