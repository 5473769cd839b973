//! The guard alone: the kernel's half of a truth whose other half is the simulator's runner (FA-34).
#![cfg(target_os = "linux")]

mod common;

use std::io::{Read as _, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use annulus_sim::scenarios::turns::guard_alone;
use common::{annulus, tell, wait_until};
use rustix::time::{ClockId, clock_gettime};

/// The validity of the turn. KILL comes when an eighth of it is left. It is long, so that a busy machine keeps the bound.
const LEFT: Duration = Duration::from_secs(12);

/// Now on the clock that counts sleep, as the guard reads it.
fn since_boot() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(
        time.tv_sec.unsigned_abs(),
        u32::try_from(time.tv_nsec).expect("nanoseconds of a second fit"),
    )
}

/// A process that ignores TERM and writes its pid.
fn stubborn(dir: &Path, name: &str, then: &str) -> String {
    format!("trap '' TERM; echo $$ > {0}.new; mv {0}.new {0}; {then}", dir.join(name).display())
}

/// A client that says nothing is, to its guard, one that is stopped.
#[test]
fn fa_34_a_guard_without_its_client_ends_all_descendants_as_in_the_simulator() {
    let dir = tempfile::tempdir().unwrap();
    let names = ["command", "child", "grandchild"];
    for (name, then) in [
        ("child", format!("setsid sh {}/grandchild.sh & wait", dir.path().display())),
        ("grandchild", "sleep 600".into()),
    ] {
        std::fs::write(dir.path().join(format!("{name}.sh")), stubborn(dir.path(), name, &then)).unwrap();
    }
    let command = stubborn(
        dir.path(),
        "command",
        &format!("setsid sh {}/child.sh & wait; sleep 600", dir.path().display()),
    );

    let socket = format!("annulus-test-guard-{}", std::process::id());
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&socket).unwrap()).unwrap();
    let asked = since_boot();
    let mut guard = annulus(&["guard", &socket, "--", "sh", "-c", &command]);
    let mut guard = guard.stdin(Stdio::null()).spawn().unwrap();
    let (mut client, _) = listener.accept().unwrap();
    // When the turn was asked for, what was left of it; no limit, and no variables.
    let start = [asked, LEFT, Duration::ZERO, Duration::ZERO, Duration::ZERO];
    let start =
        start.map(|time| u64::try_from(time.as_micros()).expect("a time since boot fits").to_be_bytes());
    client.write_all(&start.concat()).unwrap();
    let pids = names.map(|name| {
        wait_until("all processes run", || {
            std::fs::read_to_string(dir.path().join(name)).ok()?.trim().parse::<u32>().ok()
        })
    });

    // The guard reports after the last descendant has ended.
    let mut report = [0; 2];
    client.read_exact(&mut report).unwrap();
    let kernel = since_boot().saturating_sub(asked + LEFT * 7 / 8);
    for pid in pids {
        assert!(!Path::new(&format!("/proc/{pid}")).exists(), "{pid} runs after its guard reported the end");
    }
    guard.wait().unwrap();
    let simulated = guard_alone(LEFT);
    tell(format_args!(
        "| guard with a deadline, its client is stopped, processes in own sessions | {kernel:.4?} | {simulated:.4?} |"
    ));
    assert_eq!(report[0], 1, "the turn ended before the command");
    assert!(kernel > Duration::ZERO, "the guard kills no command before the time of KILL");
    assert!(kernel < LEFT / 8 && simulated < LEFT / 8, "both end the command before the turn ends");
}
