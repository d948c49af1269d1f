//! The own-namespace shape.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sallyport_gate::Namespace;
use sallyport_gate::kill_switch::{
    Condition, Established, ExitNodeFamily as F, Gate, GatePolicy, Keeper, OwnNamespace, Passage, Tailnet,
    WorkloadEnd,
};
use sallyport_gate::nf_tables::{Change, Family, NfTables, Statement as S, Table, Transaction};

use crate::probe::{ALL, Sender, Try, fence};
use crate::world::{
    Arrived, Internet, SINK4, SINK6, exit_off, exit_on, ip, namespace, nft, settings, unable, veth,
};

const GATE_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const INTERNET_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
const SENDER: Sender = Sender { link: "eth0", next: GATE_MAC, v4: "10.88.1.2", v6: "fd88:1::2" };

pub(crate) struct World {
    pub(crate) internet: Internet,
    pub(crate) gate: Arc<Namespace>,
    pub(crate) workload: Arc<Namespace>,
}

impl World {
    pub(crate) fn new() -> Self {
        let [gate, workload] = ["gate", "workload"].map(namespace);
        let internet = Internet::around(&gate);
        settings(&workload);
        veth(&gate, "gw1", &workload, "eth0");
        ip(
            &gate,
            "link set gw1 address 02:00:00:00:00:01\nlink set gw1 up\naddr add 169.254.1.1/32 dev gw1 scope link\n\
             route add 10.88.1.2/32 dev gw1 scope link\naddr add fe80::1/64 dev gw1 nodad\nroute add fd88:1::2/128 dev gw1\n",
        );
        ip(
            &workload,
            "link set lo up\nlink set eth0 up\naddr add 10.88.1.2/32 dev eth0\n\
             route add 169.254.1.1/32 dev eth0 scope link\nroute add default via 169.254.1.1\n\
             addr add fd88:1::2/128 dev eth0 nodad\nroute add default via fe80::1 dev eth0\n",
        );
        ip(&internet.namespace, "link set i0 address 02:00:00:00:00:02\n");
        Self { internet, gate, workload }
    }

    /// What arrives of five attempts.
    pub(crate) fn attempt(&mut self, how: Try, v6: bool) -> Arrived {
        let (workload, gate) = (Arc::clone(&self.workload), Arc::clone(&self.gate));
        self.internet.during(
            || workload.run(|| (0..5).for_each(|_| SENDER.attempt(how, v6))).unwrap(),
            || gate.run(|| fence("u0", INTERNET_MAC)).unwrap(),
        )
    }

    fn until_arrival(&mut self, how: Try, v6: bool) -> Arrived {
        let workload = Arc::clone(&self.workload);
        self.internet.until_arrival(|| workload.run(|| SENDER.attempt(how, v6)).unwrap())
    }

    pub(crate) fn keeper(&self, policy: GatePolicy) -> Keeper {
        Keeper::install(NfTables::inside(&self.gate).unwrap(), Gate::Own(own()), policy).unwrap()
    }
}

pub(crate) fn own() -> OwnNamespace {
    OwnNamespace {
        owner: "test".into(),
        tunnel: "tailscale0".into(),
        workload_prefix: "gw".into(),
        tailscaled_uid: None,
        resolver: None,
        dns_port: None,
        workloads: [WorkloadEnd {
            link: "gw1".into(),
            ipv4: Some("10.88.1.2".parse().unwrap()),
            ipv6: Some("fd88:1::2".parse().unwrap()),
            passage: Passage::Open,
        }]
        .into(),
    }
}

fn cut() -> Gate {
    let mut gate = own();
    gate.workloads =
        gate.workloads.into_iter().map(|end| WorkloadEnd { passage: Passage::Shut, ..end }).collect();
    Gate::Own(gate)
}

fn open() -> GatePolicy {
    GatePolicy::exit_node(F::Allowed, F::Allowed)
}

#[test]
fn nothing_leaves_a_shut_gate_and_an_open_one_is_left_by_the_tunnel_only() {
    if unable() {
        return;
    }
    let mut world = World::new();
    // Control: without rules every probe is seen on the uplink.
    for how in ALL {
        for v6 in [false, true] {
            let seen = world.until_arrival(how, v6);
            assert!(seen.uplink > 0, "{how:?} v6={v6}: the probe sees no leak: {seen:?}");
        }
    }
    let mut keeper = world.keeper(GatePolicy::shut());
    for policy in [GatePolicy::shut(), GatePolicy::bootstrap(), open()] {
        keeper.set_policy(policy.clone()).unwrap();
        for how in ALL {
            for v6 in [false, true] {
                let seen = world.attempt(how, v6);
                assert_eq!(seen, Arrived { uplink: 0, tunnel: 0 }, "{how:?} v6={v6} under {policy:?}");
            }
        }
    }
    exit_on(&world.gate);
    for how in ALL {
        for v6 in [false, true] {
            if how == Try::Forged {
                assert_eq!(world.attempt(how, v6), Arrived { uplink: 0, tunnel: 0 }, "forged v6={v6}");
                continue;
            }
            let seen = world.until_arrival(how, v6);
            assert!(seen.tunnel > 0 && seen.uplink == 0, "{how:?} v6={v6}: {seen:?}");
        }
    }
    let counters = keeper.counters().unwrap();
    let count = |name: &str| counters[&(Family::Inet, name.to_string())].packets;
    assert!(count("spoofed") >= 40 && count("refused") >= 200, "{counters:?}");
}

/// The rule set of an open gate with something taken out of it, in place of the keeper's.
fn sabotaged(world: &World, sabotage: impl FnOnce(&mut Table)) {
    let mut ruleset = own().ruleset(&open());
    sabotage(&mut ruleset.tables[0]);
    let changes = ruleset.tables.into_iter().map(Change::Replace).collect();
    NfTables::inside(&world.gate).unwrap().commit(&Transaction { changes }).unwrap();
}

fn last_rule_accepts(table: &mut Table, chain: &str) {
    let chain = table.chains.get_mut(chain).unwrap();
    *chain.rules.last_mut().unwrap() = [S::accept()].into();
}

#[test]
fn the_probes_see_what_each_rule_holds_back() {
    if unable() {
        return;
    }
    let mut world = World::new();
    sabotaged(&world, |table| last_rule_accepts(table, "leave"));
    for v6 in [false, true] {
        assert!(world.until_arrival(Try::Udp, v6).uplink > 0, "the end of `leave` holds the uplink");
    }
    exit_on(&world.gate);
    sabotaged(&world, |table| {
        last_rule_accepts(table, "raw");
        last_rule_accepts(table, "outward");
    });
    for v6 in [false, true] {
        assert!(world.until_arrival(Try::Forged, v6).tunnel > 0, "`raw` and `outward` hold forged sources");
    }
    sabotaged(&world, |_| ());
    assert_eq!(world.attempt(Try::Forged, false), Arrived { uplink: 0, tunnel: 0 });
}

#[test]
fn the_gates_own_processes_leave_by_the_uplink_only_with_tailscaleds_mark_and_when_it_may() {
    if unable() {
        return;
    }
    let mut world = World::new();
    let mut keeper = world.keeper(GatePolicy::bootstrap());
    let gate = Arc::clone(&world.gate);
    let here = Sender { link: "u0", next: INTERNET_MAC, v4: "10.77.0.10", v6: "2001:db8:77::10" };
    let attempt = |how, v6| gate.run(|| here.attempt(how, v6)).unwrap();
    let mark = Try::Mark(0x80000);
    for v6 in [false, true] {
        keeper.set_policy(GatePolicy::bootstrap()).unwrap();
        assert!(world.internet.until_arrival(|| attempt(mark, v6)).uplink > 0, "v6={v6}");
        for (policy, how) in [
            (GatePolicy::bootstrap(), Try::Udp),
            (open(), Try::BindToDevice),
            (GatePolicy::shut(), mark),
            (GatePolicy::shut(), Try::Udp),
        ] {
            keeper.set_policy(policy).unwrap();
            let fence = || gate.run(|| fence("u0", INTERNET_MAC)).unwrap();
            let seen = world.internet.during(|| attempt(how, v6), fence);
            assert_eq!(seen, Arrived { uplink: 0, tunnel: 0 }, "{how:?} v6={v6}");
        }
    }
}

#[test]
fn the_tunnel_going_away_under_an_open_gate_leaks_nothing() {
    if unable() {
        return;
    }
    let mut world = World::new();
    let _keeper = world.keeper(open());
    exit_on(&world.gate);
    assert!(world.until_arrival(Try::Udp, false).tunnel > 0);
    exit_off(&world.gate);
    for v6 in [false, true] {
        for how in ALL {
            assert_eq!(world.attempt(how, v6), Arrived { uplink: 0, tunnel: 0 }, "{how:?} v6={v6}");
        }
    }
    ip(&world.gate, "link del tailscale0\n");
    for v6 in [false, true] {
        assert_eq!(world.attempt(Try::Udp, v6).uplink, 0, "v6={v6}");
    }
}

/// An echo server on TCP port 80 of the fake Internet; ends with the process.
fn echo_server(world: &World) {
    let listeners = world
        .internet
        .namespace
        .run(|| [SINK4, SINK6].map(|address| TcpListener::bind((address, 80)).unwrap()))
        .unwrap();
    for listener in listeners {
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                std::thread::spawn(move || {
                    let mut buffer = [0; 64];
                    while let Ok(length) = stream.read(&mut buffer)
                        && length > 0
                        && stream.write_all(&buffer[..length]).is_ok()
                    {}
                });
            }
        });
    }
}

fn dial(world: &World, address: &str) -> std::io::Result<TcpStream> {
    let to = (address.parse::<std::net::IpAddr>().unwrap(), 80).into();
    let stream = world.workload.run(|| TcpStream::connect_timeout(&to, Duration::from_secs(3))).unwrap()?;
    stream.set_read_timeout(Some(Duration::from_millis(500)))?;
    Ok(stream)
}

fn echoes(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.write_all(b"hello")?;
    stream.read_exact(&mut [0; 5])
}

#[test]
fn a_cut_stops_open_flows_both_ways_at_once_and_tells_the_workload() {
    if unable() {
        return;
    }
    let mut world = World::new();
    let mut keeper = world.keeper(open());
    exit_on(&world.gate);
    echo_server(&world);
    for address in [SINK4, SINK6] {
        let mut stream = dial(&world, address).unwrap();
        echoes(&mut stream).unwrap();
        let before = world.internet.arrived();
        assert!(keeper.set_passage("gw1", Passage::Shut).unwrap());
        let asked = Instant::now();
        let error = echoes(&mut stream).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error:?}");
        assert!(asked.elapsed() < Duration::from_millis(50), "told after {:?}", asked.elapsed());
        assert_eq!(world.internet.arrived(), before, "nothing after the commit");
        assert!(keeper.set_passage("gw1", Passage::Open).unwrap());
        assert_eq!(keeper.check().unwrap(), Condition::Intact);
        assert_eq!(keeper.gate(), &Gate::Own(own()));
    }
    keeper.set_gate(cut()).unwrap();
    assert_eq!(world.attempt(Try::Udp, false), Arrived { uplink: 0, tunnel: 0 });
    assert!(!keeper.set_passage("gw2", Passage::Open).unwrap(), "no such workload");
}

#[test]
fn open_flows_wait_out_a_short_loss_and_go_on() {
    if unable() {
        return;
    }
    let world = World::new();
    let mut keeper = world.keeper(open());
    exit_on(&world.gate);
    echo_server(&world);
    for address in [SINK4, SINK6] {
        let mut stream = dial(&world, address).unwrap();
        echoes(&mut stream).unwrap();
        keeper.set_policy(GatePolicy::bootstrap().with_established(Established::Wait)).unwrap();
        stream.write_all(b"hello").unwrap();
        let error = stream.read_exact(&mut [0; 5]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock, "kept waiting, not reset: {error:?}");
        // A new flow is refused at once even so.
        let asked = Instant::now();
        assert_eq!(dial(&world, address).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        assert!(asked.elapsed() < Duration::from_millis(50));
        keeper.set_policy(open()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        stream.read_exact(&mut [0; 5]).expect("the kernel sends it again");
        echoes(&mut stream).unwrap();
    }
}

#[test]
fn ipv6_that_the_exit_node_has_not_is_refused_at_once_and_ipv4_goes_on() {
    if unable() {
        return;
    }
    let mut world = World::new();
    let mut keeper = world.keeper(GatePolicy::exit_node(F::Allowed, F::Rejected));
    exit_on(&world.gate);
    echo_server(&world);
    echoes(&mut dial(&world, SINK4).unwrap()).unwrap();
    let asked = Instant::now();
    assert_eq!(dial(&world, SINK6).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    assert!(asked.elapsed() < Duration::from_millis(50), "refused after {:?}", asked.elapsed());
    // UDP hears it by ICMPv6.
    let asked = Instant::now();
    let error = world
        .workload
        .run(|| {
            let socket = UdpSocket::bind("[::]:0").unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
            socket.connect((SINK6, 9999)).unwrap();
            socket.send(b"probe").unwrap();
            socket.recv(&mut [0; 8]).unwrap_err()
        })
        .unwrap();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "ICMPv6 administratively prohibited: {error:?}");
    assert!(asked.elapsed() < Duration::from_millis(50), "told after {:?}", asked.elapsed());
    assert_eq!(world.attempt(Try::Udp, true), Arrived { uplink: 0, tunnel: 0 });
    keeper.set_policy(open()).unwrap();
    echoes(&mut dial(&world, SINK6).unwrap()).unwrap();
}

#[test]
fn private_ranges_metadata_and_tailscaleds_own_address_are_shut_beside_an_open_internet() {
    if unable() {
        return;
    }
    let mut world = World::new();
    exit_on(&world.gate);
    ip(&world.gate, "route add 169.254.169.254/32 dev u0\nroute add 192.168.0.0/16 via 10.77.0.254\n");
    ip(&world.internet.namespace, "addr add 169.254.169.254/32 dev lo\naddr add 192.168.7.7/32 dev lo\n");
    let send = |world: &World, to: &str| {
        world
            .workload
            .run(|| {
                let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
                let _ = socket.send_to(b"probe", (to, 9999));
            })
            .unwrap();
    };
    let shut = ["169.254.169.254", "192.168.7.7", "100.100.100.100", "10.77.0.254"];
    // Control: without rules each is reached.
    for to in shut {
        let before = world.internet.arrived();
        let deadline = Instant::now() + Duration::from_secs(3);
        while world.internet.arrived() == before {
            assert!(Instant::now() < deadline, "{to}: the probe sees nothing");
            send(&world, to);
        }
    }
    let mut keeper = world.keeper(open().with_tailnet(Tailnet::All));
    for to in shut {
        let before = world.internet.arrived();
        send(&world, to);
        let gate = Arc::clone(&world.gate);
        let seen = world.internet.during(|| (), || gate.run(|| fence("u0", INTERNET_MAC)).unwrap());
        assert_eq!(seen, Arrived { uplink: 0, tunnel: 0 }, "{to}");
        assert_eq!(world.internet.arrived(), before, "{to}");
    }
    let counters = keeper.counters().unwrap();
    assert!(counters[&(Family::Inet, "refused".to_string())].packets >= 4, "{counters:?}");
}

#[test]
fn nft_reads_back_what_was_meant() {
    if unable() {
        return;
    }
    let world = World::new();
    let _keeper = world.keeper(open().with_tailnet(Tailnet::All));
    let text = nft(&world.gate, &["-n", "list", "ruleset"]);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kill_switch/own.nft");
    crate::shared::same_text(path, &text);
}
