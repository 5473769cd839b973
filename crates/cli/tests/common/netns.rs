//! Network namespaces on two bridges with a cable between them: links that are real, and can be taken down.

use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use super::tell;

/// One namespace for each node, and one for the bridges. They go with the value.
pub(crate) struct Netns {
    /// The beginning of all names.
    tag: String,
    nodes: usize,
}

fn ip(args: &str) -> bool {
    let run = Command::new("ip").args(args.split(' ')).stdout(Stdio::null()).stderr(Stdio::null()).status();
    run.is_ok_and(|status| status.success())
}

fn must(args: &str) {
    assert!(ip(args), "`ip {args}` fails");
}

impl Netns {
    /// Whether this machine allows them; prints the reason if not. Under CI that is a failure.
    pub(crate) fn are_possible() -> bool {
        static POSSIBLE: OnceLock<bool> = OnceLock::new();
        *POSSIBLE.get_or_init(|| {
            let probe = format!("anp{}", std::process::id());
            let possible =
                ip(&format!("netns add {probe}")) && ip(&format!("-n {probe} link add br0 type bridge"));
            ip(&format!("netns del {probe}"));
            let is_ci = std::env::var_os("CI").is_some();
            assert!(possible || !is_ci, "CI needs root and `ip` for network namespaces");
            if !possible {
                tell(format_args!("SKIPPED: no root, or no `ip`, or no network namespaces here"));
            }
            possible
        })
    }

    /// Nodes with these addresses, the first `left` of them on the one bridge and the others on the other. `name` is
    /// that of the test.
    pub(crate) fn new(name: &str, addrs: &[Ipv4Addr], left: usize) -> Self {
        let tag = format!("an{name}{}", std::process::id() % 100_000);
        must(&format!("netns add {tag}s"));
        must(&format!("-n {tag}s link add cablel type veth peer name cabler"));
        for side in ["l", "r"] {
            must(&format!("-n {tag}s link add br{side} type bridge"));
            must(&format!("-n {tag}s link set br{side} up"));
            must(&format!("-n {tag}s link set cable{side} master br{side}"));
            must(&format!("-n {tag}s link set cable{side} up"));
        }
        for (node, addr) in addrs.iter().enumerate() {
            let bridge = if node < left { "brl" } else { "brr" };
            must(&format!("netns add {tag}{node}"));
            must(&format!("-n {tag}s link add port{node} type veth peer name eth0 netns {tag}{node}"));
            must(&format!("-n {tag}s link set port{node} master {bridge}"));
            must(&format!("-n {tag}s link set port{node} up"));
            must(&format!("-n {tag}{node} link set lo up"));
            must(&format!("-n {tag}{node} addr add {addr}/24 brd + dev eth0"));
            must(&format!("-n {tag}{node} link set eth0 up"));
        }
        Self { tag, nodes: addrs.len() }
    }

    /// Pulls the cable between the bridges (`down`), or puts it back (`up`).
    pub(crate) fn cable(&self, state: &str) {
        must(&format!("-n {}s link set cablel {state}", self.tag));
    }

    /// Takes the link of a node down, or up again.
    pub(crate) fn link(&self, node: usize, state: &str) {
        must(&format!("-n {}s link set port{node} {state}", self.tag));
    }

    /// A program inside of a node's namespace, without the settings of this process.
    pub(crate) fn within(&self, node: usize, inner: &Command) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &format!("{}{node}", self.tag)]);
        command.arg(inner.get_program()).args(inner.get_args()).stdin(Stdio::null());
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("ANNULUS_")) {
            command.env_remove(name);
        }
        command
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        for name in (0..self.nodes).map(|node| node.to_string()).chain(["s".into()]) {
            ip(&format!("netns del {}{name}", self.tag));
        }
    }
}
