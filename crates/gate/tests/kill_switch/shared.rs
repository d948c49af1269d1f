//! The shared-namespace shape. The worker here is root with every capability but that it is not tailscaled: more than
//! the guard would let it have.

use std::net::UdpSocket;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::Arc;

use nix::sys::socket::{setsockopt, sockopt};
use sallyport_gate::Namespace;
use sallyport_gate::kill_switch::{
    AllowRule, Dhcp, ExitNodeFamily as F, FORWARDER_MARK, Gate, GatePolicy, Keeper, PortRange, Protocol,
    Resolver, SharedNamespace, Via,
};
use sallyport_gate::nf_tables::{Change, Family, Key, NfTables, Ruleset, Statement, Transaction};

use crate::probe::{ALL, Sender, Try};
use crate::world::{Arrived, Internet, SINK4, SINK6, exit_on, ip, namespace, nft, unable};

const INTERNET_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
const SENDER: Sender = Sender { link: "u0", next: INTERNET_MAC, v4: "10.77.0.10", v6: "2001:db8:77::10" };
const TAILSCALED: u32 = 64100;

struct World {
    internet: Internet,
    home: Arc<Namespace>,
}

impl World {
    fn new() -> Self {
        let home = namespace("home");
        let internet = Internet::around(&home);
        ip(&internet.namespace, "link set i0 address 02:00:00:00:00:02\n");
        Self { internet, home }
    }

    fn attempt(&mut self, how: Try, v6: bool) -> Arrived {
        let home = Arc::clone(&self.home);
        self.internet.during(
            || home.run(|| (0..5).for_each(|_| SENDER.attempt(how, v6))).unwrap(),
            || as_tailscaled(&home, "203.0.113.53"),
        )
    }
}

/// A question to tailscaled's resolver, by tailscaled's uid and without its mark.
fn as_tailscaled(home: &Namespace, to: &str) {
    let script = format!("echo question > /dev/udp/{to}/53");
    home.run(|| Command::new("bash").args(["-c", &script]).uid(TAILSCALED).gid(TAILSCALED).output().unwrap())
        .unwrap();
}

fn shared() -> SharedNamespace {
    SharedNamespace {
        owner: "test".into(),
        tunnel: "tailscale0".into(),
        uplinks: ["u0".to_string()].into(),
        tailscaled_uid: TAILSCALED,
        resolver: Some(Resolver { addresses: ["203.0.113.53".parse().unwrap()].into() }),
        forwarder_port: None,
        dhcp: Dhcp::No,
    }
}

fn keeper(world: &World, gate: SharedNamespace, policy: GatePolicy) -> Keeper {
    Keeper::install(NfTables::inside(&world.home).unwrap(), Gate::Shared(gate), policy).unwrap()
}

#[test]
fn nothing_of_the_worker_leaves_by_the_uplink_in_the_shared_shape() {
    if unable() {
        return;
    }
    let mut world = World::new();
    let home = Arc::clone(&world.home);
    for how in ALL {
        for v6 in [false, true] {
            let seen = world.internet.until_arrival(|| home.run(|| SENDER.attempt(how, v6)).unwrap());
            assert!(seen.uplink > 0, "{how:?} v6={v6}: the probe sees no leak: {seen:?}");
        }
    }
    let mut keeper = keeper(&world, shared(), GatePolicy::bootstrap());
    for exit in ["off", "on"] {
        for how in ALL {
            for v6 in [false, true] {
                let seen = world.attempt(how, v6);
                assert_eq!(seen.uplink, 0, "{how:?} v6={v6}, exit {exit}: {seen:?}");
            }
        }
        if exit == "off" {
            exit_on(&world.home);
            keeper.set_policy(GatePolicy::exit_node(F::Allowed, F::Allowed)).unwrap();
        }
    }
    for v6 in [false, true] {
        let seen = world.internet.until_arrival(|| home.run(|| SENDER.attempt(Try::Udp, v6)).unwrap());
        assert!(seen.tunnel > 0 && seen.uplink == 0, "v6={v6}: {seen:?}");
    }
    let counters = keeper.counters().unwrap();
    assert!(counters[&(Family::Netdev, "frames".to_string())].packets >= 30, "{counters:?}");
}

#[test]
fn the_probes_see_what_each_layer_holds_back() {
    if unable() {
        return;
    }
    let mut world = World::new();
    let home = Arc::clone(&world.home);
    let commit = |ruleset: Ruleset| {
        let changes = ruleset.tables.into_iter().map(Change::Replace).collect();
        NfTables::inside(&world.home).unwrap().commit(&Transaction { changes }).unwrap();
    };
    // Without the egress hook, raw frames leave.
    let mut ruleset = shared().ruleset(&GatePolicy::bootstrap());
    ruleset.tables.truncate(1);
    commit(ruleset);
    let seen = world.internet.until_arrival(|| home.run(|| SENDER.attempt(Try::Frame, false)).unwrap());
    assert!(seen.uplink > 0, "frames");
    // Without the uid, a marked socket leaves.
    let mut ruleset = shared().ruleset(&GatePolicy::bootstrap());
    for rule in ruleset.tables.iter_mut().flat_map(|t| t.chains.values_mut()).flat_map(|c| &mut c.rules) {
        rule.statements.retain(|statement| !matches!(statement, Statement::Is(Key::SkUid, _)));
    }
    commit(ruleset);
    let seen =
        world.internet.until_arrival(|| home.run(|| SENDER.attempt(Try::Mark(0x80000), false)).unwrap());
    assert!(seen.uplink > 0, "marks");
}

#[test]
fn a_shut_namespace_keeps_tailscaled_in_too() {
    if unable() {
        return;
    }
    let mut world = World::new();
    let mut keeper = keeper(&world, shared(), GatePolicy::shut());
    let home = Arc::clone(&world.home);
    // Nothing arrives of what is sent before the gate opens for tailscaled; then its question is the first.
    let mut count = NfTables::inside(&world.internet.namespace).unwrap();
    as_tailscaled(&home, "203.0.113.53");
    keeper.set_policy(GatePolicy::bootstrap()).unwrap();
    let before = count.counters(Family::Netdev, "arrivals").unwrap()["fence"].packets;
    let seen = world.internet.during(|| (), || as_tailscaled(&home, "203.0.113.53"));
    let after = count.counters(Family::Netdev, "arrivals").unwrap()["fence"].packets;
    assert_eq!((before, after), (0, 1), "{seen:?}");
}

/// Runs in a child that is tailscaled by uid, and marks its socket if asked.
#[test]
#[ignore = "the child of another test"]
fn speak() {
    let Ok(to) = std::env::var("SALLYPORT_TEST_SPEAK_TO") else { return };
    let socket = UdpSocket::bind(if to.contains("[") { "[::]:0" } else { "0.0.0.0:0" }).unwrap();
    if std::env::var_os("SALLYPORT_TEST_SPEAK_MARKED").is_some() {
        setsockopt(&socket, sockopt::Mark, &0x80000).unwrap();
    }
    let _ = socket.send_to(b"probe", to.parse::<std::net::SocketAddr>().unwrap());
}

fn speak_as(home: &Namespace, uid: u32, marked: bool, to: &str) {
    let uid = uid.to_string();
    let output = home
        .run(|| {
            let mut command = Command::new("setpriv");
            command.args(["--reuid", &uid, "--regid", &uid, "--clear-groups"]);
            command.args(["--inh-caps", "+net_admin,+net_raw", "--ambient-caps", "+net_admin,+net_raw"]);
            command.arg(std::env::current_exe().unwrap()).args(["shared::speak", "--exact", "--ignored"]);
            command.env("SALLYPORT_TEST_SPEAK_TO", to);
            if marked {
                command.env("SALLYPORT_TEST_SPEAK_MARKED", "1");
            }
            command.output().unwrap()
        })
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn tailscaled_passes_by_uid_and_mark_together_only() {
    if unable() {
        return;
    }
    let mut world = World::new();
    let _keeper = keeper(&world, shared(), GatePolicy::bootstrap());
    let home = Arc::clone(&world.home);
    for (to, v6) in [(format!("{SINK4}:9999"), false), (format!("[{SINK6}]:9999"), true)] {
        let seen = world.internet.until_arrival(|| speak_as(&home, TAILSCALED, true, &to));
        assert!(seen.uplink > 0, "uid and mark, v6={v6}");
        for (uid, marked) in [(TAILSCALED, false), (1000, true), (0, true)] {
            let seen = world
                .internet
                .during(|| speak_as(&home, uid, marked, &to), || as_tailscaled(&home, "203.0.113.53"));
            assert_eq!(seen, Arrived { uplink: 0, tunnel: 0 }, "uid {uid}, marked {marked}, v6={v6}");
        }
    }
}

#[test]
fn the_workers_dns_is_turned_to_the_forwarder_and_the_forwarders_own_is_not() {
    if unable() {
        return;
    }
    let mut world = World::new();
    let gate = SharedNamespace { forwarder_port: Some(5353), ..shared() };
    let _keeper = keeper(&world, gate, GatePolicy::exit_node(F::Allowed, F::Allowed));
    exit_on(&world.home);
    let home = Arc::clone(&world.home);
    home.run(|| {
        for (own, resolvers) in [
            ("127.0.0.1", ["203.0.113.9:53", "127.0.0.53:53"]),
            ("::1", ["[2001:db8:203::9]:53", "[2001:db8:9::9]:53"]),
        ] {
            let forwarder = UdpSocket::bind((own, 5353)).unwrap();
            forwarder.set_read_timeout(Some(std::time::Duration::from_secs(2))).unwrap();
            for to in resolvers {
                let worker = UdpSocket::bind(if own == "::1" { "[::]:0" } else { "0.0.0.0:0" }).unwrap();
                worker.set_read_timeout(Some(std::time::Duration::from_secs(2))).unwrap();
                worker.connect(to).unwrap();
                worker.send(b"question").unwrap();
                let mut buffer = [0; 16];
                let (length, from) = forwarder.recv_from(&mut buffer).expect(to);
                assert_eq!(&buffer[..length], b"question");
                forwarder.send_to(b"answer", from).unwrap();
                let length = worker.recv(&mut buffer).expect(to);
                assert_eq!(&buffer[..length], b"answer", "{to}");
            }
        }
    })
    .unwrap();
    let mut count = NfTables::inside(&world.internet.namespace).unwrap();
    let mut fences = || count.counters(Family::Netdev, "arrivals").unwrap()["fence"].packets;
    assert_eq!(fences(), 0, "no question of the worker has left");
    let forwarder = || {
        home.run(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            setsockopt(&socket, sockopt::Mark, &FORWARDER_MARK).unwrap();
            socket.send_to(b"question", (SINK4, 53)).unwrap();
        })
        .unwrap();
    };
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(3);
    while fences() == 0 {
        assert!(std::time::Instant::now() < deadline, "the forwarder's question does not leave");
        forwarder();
    }
    assert_eq!(world.internet.arrived().uplink, 0);
}

#[test]
fn a_health_check_is_answered_on_its_port_and_on_no_other() {
    if unable() {
        return;
    }
    let world = World::new();
    let _keeper = keeper(&world, shared(), GatePolicy::bootstrap().with_ingress([8080]));
    let listeners = world
        .home
        .run(|| [8080, 8081].map(|port| std::net::TcpListener::bind(("::", port)).unwrap()))
        .unwrap();
    let dial = |to: &str| {
        let to = to.parse().unwrap();
        world
            .internet
            .namespace
            .run(|| std::net::TcpStream::connect_timeout(&to, std::time::Duration::from_millis(700)))
            .unwrap()
    };
    for address in ["10.77.0.10", "[2001:db8:77::10]"] {
        dial(&format!("{address}:8080")).unwrap();
        dial(&format!("{address}:8081")).unwrap_err();
    }
    drop(listeners);
}

#[test]
fn what_is_spelled_out_is_reached_by_its_way_and_its_neighbour_is_not() {
    if unable() {
        return;
    }
    let mut world = World::new();
    let rule =
        |to: &str| AllowRule::new(to.parse().unwrap(), Protocol::Udp, PortRange::one(9999), Via::Uplink);
    let policy = GatePolicy::bootstrap().with_allow([rule("203.0.113.9/32"), rule("2001:db8:203::9/128")]);
    let mut keeper = keeper(&world, shared(), policy);
    let home = Arc::clone(&world.home);
    for v6 in [false, true] {
        let seen = world.internet.until_arrival(|| home.run(|| SENDER.attempt(Try::Udp, v6)).unwrap());
        assert!(seen.uplink > 0, "v6={v6}");
        assert_eq!(world.attempt(Try::Tcp, v6), Arrived { uplink: 0, tunnel: 0 }, "v6={v6}");
        assert_eq!(world.attempt(Try::Icmp, v6), Arrived { uplink: 0, tunnel: 0 }, "v6={v6}");
    }
    keeper.set_policy(GatePolicy::bootstrap()).unwrap();
    assert_eq!(world.attempt(Try::Udp, false), Arrived { uplink: 0, tunnel: 0 });
    // The normal route, where somebody chose it.
    keeper.set_policy(GatePolicy::uplink()).unwrap();
    for how in [Try::Udp, Try::Tcp, Try::Icmp] {
        let seen = world.internet.until_arrival(|| home.run(|| SENDER.attempt(how, true)).unwrap());
        assert!(seen.uplink > 0, "{how:?}");
    }
}

#[test]
fn a_new_link_carries_no_ip_packet_of_the_worker_even_before_it_has_its_chain() {
    if unable() {
        return;
    }
    let mut world = World::new();
    let home = Arc::clone(&world.home);
    // `u0` stands for a link that nobody has told the keeper of: nothing watches its frames.
    let gate = SharedNamespace { uplinks: ["lo".to_string()].into(), ..shared() };
    let mut keeper = keeper(&world, gate.clone(), GatePolicy::uplink());
    for v6 in [false, true] {
        let seen =
            world.internet.until_arrival(|| home.run(|| SENDER.attempt(Try::BindToDevice, v6)).unwrap());
        assert!(seen.uplink > 0, "control: the link carries packets, v6={v6}");
    }
    keeper.set_policy(GatePolicy::bootstrap()).unwrap();
    for how in
        [Try::Udp, Try::Tcp, Try::Icmp, Try::BindToDevice, Try::Mark(0x80000), Try::BindAndMark(0x80000)]
    {
        for v6 in [false, true] {
            assert_eq!(world.attempt(how, v6), Arrived { uplink: 0, tunnel: 0 }, "{how:?} v6={v6}");
        }
    }
    // Raw frames are what the chain is for.
    let seen = world.internet.until_arrival(|| home.run(|| SENDER.attempt(Try::Frame, false)).unwrap());
    assert!(seen.uplink > 0, "a raw frame");
    keeper.set_gate(Gate::Shared(shared())).unwrap();
    assert_eq!(world.attempt(Try::Frame, false), Arrived { uplink: 0, tunnel: 0 });
}

#[test]
fn a_new_link_gets_its_chain_when_it_appears() {
    if unable() {
        return;
    }
    let world = World::new();
    let keeper = Arc::new(std::sync::Mutex::new(keeper(&world, shared(), GatePolicy::bootstrap())));
    let monitor = sallyport_gate::nf_tables::Monitor::inside(&world.home).unwrap();
    let news = world.home.run(sallyport_gate::kill_switch::LinkNews::open).unwrap().unwrap();
    let _watch =
        sallyport_gate::kill_switch::Watch::start(Arc::clone(&keeper), monitor, news, |_| ()).unwrap();
    let began = std::time::Instant::now();
    ip(&world.home, "link add new0 type veth peer name new1\n");
    while !nft(&world.home, &["list", "ruleset"]).contains("hook egress device \"new0\"") {
        assert!(began.elapsed() < std::time::Duration::from_secs(2), "no chain");
    }
    ip(&world.home, "link del new0\n");
    let gone = |keeper: &Keeper| match keeper.gate() {
        Gate::Shared(gate) => !gate.uplinks.contains("new0"),
        Gate::Own(_) => false,
    };
    while !gone(&keeper.lock().unwrap()) {
        assert!(began.elapsed() < std::time::Duration::from_secs(4), "the chain stays");
        std::thread::yield_now();
    }
}

#[test]
fn nft_reads_back_what_was_meant() {
    if unable() {
        return;
    }
    let world = World::new();
    let gate = SharedNamespace { forwarder_port: Some(5353), dhcp: Dhcp::Client, ..shared() };
    let rule =
        AllowRule::new("10.1.0.0/16".parse().unwrap(), Protocol::Tcp, PortRange::one(5432), Via::Uplink);
    let policy = GatePolicy::exit_node(F::Allowed, F::Rejected).with_allow([rule]).with_ingress([8080]);
    let _keeper = keeper(&world, gate, policy);
    let text = nft(&world.home, &["-n", "list", "ruleset"]);
    same_text(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kill_switch/shared.nft"), &text);
}

/// Compares with a file, without what counters hold; `SALLYPORT_BLESS` writes it.
pub(crate) fn same_text(path: &str, text: &str) {
    let text: String = text
        .lines()
        .map(|line| if line.trim_start().starts_with("packets ") { "\t\tpackets 0 bytes 0" } else { line })
        .map(|line| format!("{line}\n"))
        .collect();
    if std::env::var_os("SALLYPORT_BLESS").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    let expected = std::fs::read_to_string(path).unwrap();
    assert!(text == expected, "the kernel holds something else than {path}:\n{text}");
}
