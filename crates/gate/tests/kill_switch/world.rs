//! A small world: a fake Internet with an uplink end and a tunnel end, and counters on both.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sallyport_gate::Namespace;
use sallyport_gate::nf_tables::{
    Base, Chain, Change, Family, Field, FieldKind, Hook, Key, Kind, NfTables, Policy, Set, Shape,
    Statement as S, Table,
};

pub(crate) const SINK4: &str = "203.0.113.9";
pub(crate) const SINK6: &str = "2001:db8:203::9";

/// Says loudly that there is no root, and fails where `CI` is set.
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
pub(crate) fn unable() -> bool {
    let Err(error) = Namespace::builder("probe").create() else { return false };
    assert!(std::env::var_os("CI").is_none(), "this test needs root: {error:?}");
    eprintln!("SKIPPED, needs root: {error:?}");
    true
}

pub(crate) fn namespace(label: &str) -> Arc<Namespace> {
    Arc::new(Namespace::builder(label).create().unwrap())
}

/// Runs lines of `ip` in a namespace.
pub(crate) fn ip(namespace: &Namespace, lines: &str) {
    let output = namespace
        .run(|| {
            let mut child = Command::new("ip")
                .args(["-batch", "-"])
                .stdin(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
            child.wait_with_output().unwrap()
        })
        .unwrap();
    assert!(output.status.success(), "{}: {}", namespace.label(), String::from_utf8_lossy(&output.stderr));
}

/// Runs `nft` in a namespace and returns what it says.
pub(crate) fn nft(namespace: &Namespace, arguments: &[&str]) -> String {
    let output = namespace.run(|| Command::new("nft").args(arguments).output().unwrap()).unwrap();
    assert!(output.status.success(), "nft {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Settings that every namespace needs: no address detection, no reverse path filter, forwarding.
pub(crate) fn settings(namespace: &Namespace) {
    sallyport_gate::sysctl::write(
        namespace,
        &[
            ("net.ipv6.conf.default.accept_dad", "0"),
            ("net.ipv6.conf.all.accept_dad", "0"),
            ("net.ipv6.conf.default.router_solicitations", "0"),
            ("net.ipv4.conf.default.rp_filter", "0"),
            ("net.ipv4.conf.all.rp_filter", "0"),
            ("net.ipv4.ip_forward", "1"),
            ("net.ipv6.conf.all.forwarding", "1"),
        ],
    )
    .unwrap();
}

/// Moves one end of a new veth pair into another namespace.
pub(crate) fn veth(near: &Namespace, name: &str, far: &Namespace, peer: &str) {
    use std::os::fd::AsRawFd;
    let fd = far.net_fd().as_raw_fd();
    let path = format!("/proc/{}/fd/{fd}", std::process::id());
    ip(near, &format!("link add {name} type veth peer name {peer} netns {path}\n"));
}

/// The fake Internet, with counters on its uplink end `i0` and its tunnel end `t0`.
pub(crate) struct Internet {
    pub(crate) namespace: Arc<Namespace>,
    counts: NfTables,
}

/// Packets that have arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arrived {
    pub(crate) uplink: u64,
    pub(crate) tunnel: u64,
}

impl Internet {
    /// Links `home` to the Internet by `u0` and by `tailscale0`, both routed; Internet traffic goes by `u0`.
    pub(crate) fn around(home: &Namespace) -> Self {
        let namespace = namespace("internet");
        settings(&namespace);
        settings(home);
        veth(home, "u0", &namespace, "i0");
        veth(home, "tailscale0", &namespace, "t0");
        ip(
            &namespace,
            &format!(
                "link set lo up\nlink set i0 up\nlink set t0 up\naddr add {SINK4}/32 dev lo\naddr add 203.0.113.53/32 dev lo\n\
                 addr add {SINK6}/128 dev lo\naddr add 10.77.0.254/24 dev i0\naddr add 2001:db8:77::254/64 dev i0\n\
                 addr add 100.100.100.100/32 dev lo\n\
                 addr add fe80::2/64 dev t0\nroute add 100.64.0.10/32 dev t0\nroute add fd7a:115c:a1e0::10/128 dev t0\n"
            ),
        );
        ip(
            home,
            "link set lo up\nlink set u0 up\nlink set tailscale0 up\naddr add 10.77.0.10/24 dev u0\n\
             addr add 2001:db8:77::10/64 dev u0\naddr add 100.64.0.10/32 dev tailscale0\n\
             addr add fd7a:115c:a1e0::10/128 dev tailscale0\nroute add default via 10.77.0.254\n\
             route add default via 2001:db8:77::254\nroute add 100.64.0.0/10 dev tailscale0\n",
        );
        let mut counts = NfTables::inside(&namespace).unwrap();
        counts.commit(&Change::Replace(arrivals()).into()).unwrap();
        Self { namespace, counts }
    }

    pub(crate) fn arrived(&mut self) -> Arrived {
        let counters = self.counts.counters(Family::Netdev, "arrivals").unwrap();
        Arrived { uplink: counters["i0"].packets, tunnel: counters["t0"].packets }
    }

    fn fences(&mut self) -> u64 {
        self.counts.counters(Family::Netdev, "arrivals").unwrap()["fence"].packets
    }

    /// What arrives while `act` runs. `fence` sends a packet to port 7777 or 53 by the uplink, which arrives after all
    /// that was sent before.
    pub(crate) fn during(&mut self, act: impl FnOnce(), fence: impl Fn()) -> Arrived {
        let before = self.arrived();
        act();
        let fences = self.fences();
        let deadline = Instant::now() + Duration::from_secs(5);
        fence();
        while self.fences() == fences {
            assert!(Instant::now() < deadline, "the fence does not arrive");
            std::thread::yield_now();
        }
        let after = self.arrived();
        Arrived { uplink: after.uplink - before.uplink, tunnel: after.tunnel - before.tunnel }
    }

    /// Waits until something arrives while `act` is repeated.
    pub(crate) fn until_arrival(&mut self, act: impl Fn()) -> Arrived {
        let before = self.arrived();
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            act();
            let after = self.arrived();
            let new = Arrived { uplink: after.uplink - before.uplink, tunnel: after.tunnel - before.tunnel };
            if new.uplink + new.tunnel > 0 || Instant::now() > deadline {
                return new;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Counts what arrives, less neighbour discovery, ARP, IGMP, MLD, and the fence.
fn arrivals() -> Table {
    let mut table = Table::new(Family::Netdev, "arrivals", "test");
    table.counters.extend(["i0", "t0", "fence"].map(String::from));
    let types = [130, 131, 132, 133, 134, 135, 136, 143].map(|kind| [Field::Protocol(kind, kind)].into());
    table.sets.insert("quiet".into(), Set::new(Shape::Exact, [FieldKind::Protocol]).with(types));
    for device in ["i0", "t0"] {
        let hook = Hook::Ingress { device: device.into() };
        let fence = |port: u16| {
            [
                S::ipv4(),
                S::udp(),
                S::Is(Key::DestinationPort, port.to_be_bytes().into()),
                S::count("fence"),
                S::accept(),
            ]
            .into()
        };
        table.chains.insert(
            device.into(),
            Chain {
                base: Some(Base { kind: Kind::Filter, hook, priority: 0, policy: Policy::Accept }),
                rules: vec![
                    [S::Is(Key::EtherType, vec![8, 6]), S::accept()].into(),
                    [S::within(&[Key::Icmp6Type], "quiet"), S::accept()].into(),
                    [S::ipv4(), S::Is(Key::L4Proto, vec![2]), S::accept()].into(),
                    fence(7777),
                    fence(53),
                    [S::count(device), S::accept()].into(),
                ],
            },
        );
    }
    table
}

/// Internet traffic of the gate goes by the tunnel from now on.
pub(crate) fn exit_on(home: &Namespace) {
    ip(
        home,
        "route add 203.0.113.0/24 dev tailscale0\nroute add 2001:db8:203::/48 via fe80::2 dev tailscale0\n",
    );
}

/// The tunnel is gone, as after a crash of tailscaled: traffic goes by the uplink.
pub(crate) fn exit_off(home: &Namespace) {
    ip(home, "route del 203.0.113.0/24 dev tailscale0\nroute del 2001:db8:203::/48 dev tailscale0\n");
}
