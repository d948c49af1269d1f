//! The leak counter's two witnesses on a real link: known frames are seen by both for what they are, whatever is done to
//! them both see the same, and what a kernel sends of itself is told from what a program sends.

use std::collections::BTreeMap;
use std::net::{Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::process::Command;
use std::time::Duration;

use etherparse::{Ethernet2Header, PacketBuilder, PacketBuilderStep};
use nix::errno::Errno;
use sallyport_gate::counter::IngressCounters;
use sallyport_lab::host::Place;
use sallyport_lab::leak::capture::Capture;
use sallyport_lab::leak::declared::{Declared, Ports, Rule, Traffic};
use sallyport_lab::leak::rules;
use sallyport_lab::packet_socket::{Offload, PacketSocket, View};

#[path = "support/places.rs"]
mod support;

use support::{Ipv6, is_possible, place, wait_for};

const WORKER: [u8; 4] = [10, 77, 0, 10];
const CONTROL: [u8; 4] = [10, 77, 0, 1];
const EXIT: [u8; 4] = [203, 0, 113, 10];
const WORLD: [u8; 4] = [203, 0, 113, 9];
const RESOLVER: [u8; 4] = [203, 0, 113, 53];
const WORKER6: &str = "2001:db8:77::10";
const EXIT6: &str = "2001:db8:77::21";
const WORLD6: &str = "2001:db8:203::9";

/// The worker's side of its uplink, and the far side.
const NEAR: &str = "u0";
const FAR: &str = "h-worker";

/// Frames that are sent before it is waited until they have arrived; the kernel's own queue holds a thousand.
const AT_ONCE: usize = 200;

fn declared() -> Declared {
    let addresses =
        |texts: &[&str]| texts.iter().map(|text| text.parse().expect("valid")).collect::<Vec<_>>();
    let mut declared = Declared::tailscaled(
        addresses(&["10.77.0.1", "2001:db8:77::1"]),
        addresses(&["10.77.0.21", "203.0.113.10", EXIT6]),
        ["2001:db8:77::/64".parse().expect("valid")],
    );
    for (to, traffic) in [
        ("203.0.113.64/26", Traffic::Tcp(Ports::To(440, 450))),
        ("203.0.113.128/26", Traffic::Icmp),
        ("2001:db8:dead::/48", Traffic::Any),
        ("203.0.113.192/26", Traffic::Udp(Ports::From(9000, 9001))),
    ] {
        declared.rules.push(Rule { to: to.parse().expect("valid"), traffic });
    }
    declared
}

/// A worker and its uplink, counted twice at the far end from before its first packet.
struct Uplink {
    worker: Place,
    internet: Place,
    counters: IngressCounters,
    capture: Capture,
}

impl Uplink {
    async fn raise(ipv6: Ipv6) -> Self {
        let (worker, internet) = (place("worker", ipv6).await, place("internet", ipv6).await);
        worker.links().add_veth(NEAR, FAR, internet.namespace_ref()).await.expect("a pair");
        internet.links().up(FAR).await.expect("up");
        let counters = rules::counters(FAR, "test", &declared());
        counters.install(internet.namespace_ref()).expect("nft takes them");
        let capture = Capture::start(internet.namespace_ref(), FAR, declared()).expect("a capture");
        worker.links().up(NEAR).await.expect("up");
        Self { worker, internet, counters, capture }
    }

    /// Frames by class as the kernel counts them, without the classes that it has seen none of.
    fn kernel(&self) -> BTreeMap<String, u64> {
        let counts = self.counters.read(self.internet.namespace_ref()).expect("read");
        counts
            .into_iter()
            .map(|(class, count)| (class, count.packets))
            .filter(|(_, count)| *count > 0)
            .collect()
    }

    /// The same as the capture counts them.
    fn captured(&self) -> BTreeMap<String, u64> {
        self.capture.report().packets
    }

    /// What both say once they say the same, and have seen `at_least` frames.
    fn agreed(&self, at_least: u64) -> BTreeMap<String, u64> {
        let mut last = (BTreeMap::new(), BTreeMap::new());
        wait_for("both counters have seen everything", || {
            last = (self.kernel(), self.captured());
            last.0.values().sum::<u64>() >= at_least && last.1.values().sum::<u64>() >= at_least
        });
        assert_eq!(last.0, last.1, "the kernel's counters on the left, the capture's on the right");
        assert_eq!(self.capture.report().dropped, 0);
        last.0
    }

    fn socket(&self) -> PacketSocket {
        let open = || PacketSocket::open(NEAR, Offload::Bare, View::Incoming, 8 << 20);
        self.worker.namespace_ref().run(open).expect("inside").expect("a socket")
    }
}

fn send(socket: &PacketSocket, frame: &[u8]) {
    wait_for("there is room for a frame", || match socket.send(frame) {
        Ok(()) => true,
        Err(Errno::EAGAIN | Errno::ENOBUFS) => false,
        Err(error) => panic!("cannot send {frame:02x?}: {error}"),
    });
}

fn v6(text: &str) -> [u8; 16] {
    text.parse::<Ipv6Addr>().expect("valid").octets()
}

/// To an address that nobody here has, so that the far side only looks.
fn ethernet() -> PacketBuilderStep<Ethernet2Header> {
    PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
}

fn udp(source: [u8; 4], source_port: u16, destination: [u8; 4], port: u16) -> Vec<u8> {
    let mut frame = Vec::new();
    let step = ethernet().ipv4(source, destination, 64).udp(source_port, port);
    step.write(&mut frame, b"payload").expect("memory takes it");
    frame
}

fn udp6(source: &str, source_port: u16, destination: &str, port: u16) -> Vec<u8> {
    let mut frame = Vec::new();
    let step = ethernet().ipv6(v6(source), v6(destination), 64).udp(source_port, port);
    step.write(&mut frame, b"payload").expect("memory takes it");
    frame
}

fn tcp(destination: [u8; 4], port: u16) -> Vec<u8> {
    let mut frame = Vec::new();
    let step = ethernet().ipv4(WORKER, destination, 64).tcp(40000, port, 1, 1000).syn();
    step.write(&mut frame, &[]).expect("memory takes it");
    frame
}

fn ping(destination: [u8; 4]) -> Vec<u8> {
    let mut frame = Vec::new();
    let step = ethernet().ipv4(WORKER, destination, 64).icmpv4_echo_request(7, 1);
    step.write(&mut frame, b"payload").expect("memory takes it");
    frame
}

/// "No such port", for a packet that came from `destination` to `port` here.
fn no_such_port(destination: [u8; 4], port: u16) -> Vec<u8> {
    let quoted = udp(destination, 41641, WORKER, port);
    let mut frame = Vec::new();
    let step = ethernet().ipv4(WORKER, destination, 64).icmpv4_raw(3, 3, [0; 4]);
    step.write(&mut frame, &quoted[14..]).expect("memory takes it");
    frame
}

fn no_such_port6(destination: &str, port: u16) -> Vec<u8> {
    let quoted = udp6(destination, 41641, WORKER6, port);
    let mut frame = Vec::new();
    let step = ethernet().ipv6(v6(WORKER6), v6(destination), 64).icmpv6_raw(1, 4, [0; 4]);
    step.write(&mut frame, &quoted[14..]).expect("memory takes it");
    frame
}

fn neighbour6(kind: u8, destination: &str, hops: u8) -> Vec<u8> {
    let mut frame = Vec::new();
    let step = ethernet().ipv6(v6("fe80::1"), v6(destination), hops).icmpv6_raw(kind, 0, [0; 4]);
    step.write(&mut frame, &[0; 16]).expect("memory takes it");
    frame
}

/// A multicast listener report, or another ICMPv6 message in its clothes.
fn group_report(kind: u8, destination: &str, hops: u8) -> Vec<u8> {
    let mut frame = neighbour6(kind, destination, hops);
    // A hop-by-hop header with the router alert, then ICMPv6.
    frame.splice(54..54, [58, 0, 5, 2, 0, 0, 1, 0]);
    frame[20] = 0;
    frame[19] += 8;
    frame
}

fn arp() -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend([2, 0, 0, 0, 0, 2]);
    frame.extend([0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 1]);
    frame.extend([0; 32]);
    frame
}

fn tagged(frame: &[u8], protocol: [u8; 2]) -> Vec<u8> {
    [&frame[..12], &protocol, &[0, 5], &frame[12..]].concat()
}

fn with(mut frame: Vec<u8>, at: usize, value: u8) -> Vec<u8> {
    frame[at] = value;
    frame
}

/// An IPv4 header of 24 bytes instead of 20.
fn with_option(mut frame: Vec<u8>) -> Vec<u8> {
    frame[14] = 0x46;
    frame[17] += 4;
    frame.splice(34..34, [1, 1, 1, 1]);
    frame
}

/// What is what.
fn known() -> Vec<(&'static str, Vec<u8>)> {
    let peer = || udp(WORKER, 41641, EXIT, 41641);
    vec![
        // tailscaled's own, and the link's.
        ("control", tcp(CONTROL, 8080)),
        ("stun", udp(WORKER, 41641, CONTROL, 3478)),
        ("stun", udp(WORKER, 50000, CONTROL, 3478)),
        ("peer", peer()),
        ("peer", with_option(peer())),
        ("peer", udp6(WORKER6, 41641, EXIT6, 41641)),
        ("peer_error", no_such_port(EXIT, 41641)),
        ("peer_error", no_such_port6(EXIT6, 41641)),
        ("neighbour", arp()),
        ("neighbour", neighbour6(133, "ff02::2", 255)),
        ("neighbour", neighbour6(135, "ff02::1:ff00:1", 255)),
        ("neighbour", neighbour6(136, "2001:db8:77::254", 255)),
        ("neighbour", group_report(143, "ff02::16", 1)),
        // Declared.
        ("declared_0", tcp([203, 0, 113, 70], 443)),
        ("declared_1", ping([203, 0, 113, 130])),
        ("declared_2", udp6(WORKER6, 1, "2001:db8:dead::1", 1)),
        ("declared_3", udp(WORKER, 9001, [203, 0, 113, 200], 5)),
        // All else is a leak.
        ("leak", udp(WORKER, 5000, WORLD, 9999)),
        ("leak", udp6(WORKER6, 5000, WORLD6, 9999)),
        ("leak", udp(WORKER, 5000, RESOLVER, 53)),
        ("leak", tcp(RESOLVER, 53)),
        ("leak", tcp(WORLD, 443)),
        ("leak", tcp(WORLD, 8080)),
        ("leak", tcp(CONTROL, 8081)),
        ("leak", ping(WORLD)),
        ("leak", ping(CONTROL)),
        ("leak", udp(WORKER, 41641, WORLD, 41641)),
        ("leak", udp(WORKER, 5000, EXIT, 41641)),
        ("leak", udp(WORKER, 41641, EXIT, 5000)),
        ("leak", udp(EXIT, 5000, WORLD, 9999)),
        ("leak", no_such_port(EXIT, 5000)),
        ("leak", no_such_port(WORLD, 41641)),
        ("leak", no_such_port6(EXIT6, 5000)),
        ("leak", neighbour6(134, "ff02::1", 255)),
        ("leak", neighbour6(135, "2001:db8:77::254", 64)),
        ("leak", neighbour6(135, WORLD6, 255)),
        ("leak", group_report(143, "ff02::16", 64)),
        ("leak", group_report(143, "ff0e::16", 1)),
        ("leak", group_report(135, "ff02::16", 1)),
        ("leak", tagged(&tcp(CONTROL, 8080), [0x81, 0])),
        ("leak", tagged(&peer(), [0x88, 0xa8])),
        ("leak", tagged(&arp(), [0x81, 0])),
        ("leak", tagged(&tagged(&arp(), [0x81, 0]), [0x88, 0xa8])),
        // A later fragment; a total length beyond the frame; IPv6 in an IPv4 frame; a transport unheard of.
        ("leak", with(peer(), 21, 1)),
        ("leak", with(peer(), 16, 4)),
        ("leak", with(peer(), 14, 0x65)),
        ("leak", with(peer(), 23, 132)),
        ("leak", tcp([203, 0, 113, 70], 451)),
        ("leak", ping([203, 0, 113, 192])),
        ("leak", udp(WORKER, 9002, [203, 0, 113, 200], 5)),
        // Cut off behind the Ethernet header, and within the IP header.
        ("leak", peer()[..14].to_vec()),
        ("leak", peer()[..30].to_vec()),
        ("leak", vec![0x5a; 60]),
    ]
}

#[tokio::test]
async fn each_known_frame_is_what_it_is_to_the_kernel_and_to_the_capture() {
    if !is_possible() {
        return;
    }
    let uplink = Uplink::raise(Ipv6::Off).await;
    let socket = uplink.socket();
    let mut expected = BTreeMap::new();
    for (number, (class, frame)) in known().into_iter().enumerate() {
        send(&socket, &frame);
        *expected.entry(class.to_string()).or_default() += 1;
        let seen = uplink.agreed(number as u64 + 1);
        assert_eq!(seen, expected, "after a frame that is {class}: {frame:02x?}");
    }
    let report = uplink.capture.report();
    let told: Vec<String> = report.leaks.iter().map(|leak| leak.what.to_string()).collect();
    assert!(told.contains(&"udp 10.77.0.10:5000 > 203.0.113.53:53, 49 bytes".into()), "{told:#?}");
    assert!(told.contains(&"vlan tcp 10.77.0.10:40000 > 10.77.0.1:8080, 58 bytes".into()), "{told:#?}");
    uplink.capture.reset();
    uplink.counters.install(uplink.internet.namespace_ref()).expect("made anew");
    assert!(uplink.agreed(0).is_empty(), "both begin again at nothing");
    assert!(uplink.capture.report().leaks.is_empty());
}

/// The same numbers each time (xorshift64).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).expect("31 bits") % limit
    }

    fn byte(&mut self) -> u8 {
        u8::try_from(self.below(256)).expect("a byte")
    }

    /// A frame with some bytes of another, a wrong one or two, or another length.
    fn spoilt(&mut self, frames: &[(&str, Vec<u8>)]) -> Vec<u8> {
        let mut frame = frames[self.below(frames.len())].1.clone();
        for _ in 0..self.below(4) {
            // The fields that decide stand in the first 90 bytes.
            let at = self.below(frame.len().min(90));
            match self.below(3) {
                0 => frame[at] = self.byte(),
                1 => frame[at] ^= 1 << self.below(8),
                _ => {
                    let other = &frames[self.below(frames.len())].1;
                    frame[at] = other.get(at).copied().unwrap_or_default();
                }
            }
        }
        if self.below(5) == 0 {
            let length = self.below(frame.len() + 8);
            frame.resize(length, 0);
        }
        // Where a tag is cut short the kernel drops the frame before anybody sees it.
        if frame.len() < 20 {
            frame.resize(20, 0);
        }
        frame
    }
}

#[tokio::test]
async fn whatever_is_done_to_a_frame_both_witnesses_say_the_same_of_it() {
    if !is_possible() {
        return;
    }
    const FRAMES: usize = 20_000;
    let uplink = Uplink::raise(Ipv6::Off).await;
    let socket = uplink.socket();
    let (frames, mut random) = (known(), Random(0x5a11_9071));
    let mut sent = 0;
    while sent < FRAMES {
        let batch: Vec<Vec<u8>> = (0..AT_ONCE).map(|_| random.spoilt(&frames)).collect();
        for frame in &batch {
            send(&socket, frame);
        }
        sent += batch.len();
        uplink.agreed(sent as u64);
    }
    let seen = uplink.agreed(sent as u64);
    assert_eq!(seen.values().sum::<u64>(), sent as u64);
    // It was no test of the leak class alone.
    for class in ["control", "stun", "peer", "peer_error", "neighbour", "declared_0", "declared_2", "leak"] {
        assert!(seen.get(class).is_some_and(|count| *count > 100), "{class}: {seen:?}");
    }
}

#[tokio::test]
async fn what_programs_send_by_the_kernel_is_a_leak_and_finding_neighbours_is_none() {
    if !is_possible() {
        return;
    }
    let uplink = Uplink::raise(Ipv6::On).await;
    for (place, link, addresses) in [
        (&uplink.worker, NEAR, ["10.77.0.10/24", "2001:db8:77::10/64"]),
        (&uplink.internet, FAR, ["10.77.0.254/24", "2001:db8:77::254/64"]),
    ] {
        for address in addresses {
            place.links().add_address(link, address.parse().expect("valid")).await.expect("an address");
        }
    }
    // Over IPv6 the neighbour has to be found first: the kernel's own doing, and no leak but the packet itself.
    let sent = uplink.worker.namespace_ref().run(|| {
        let socket = UdpSocket::bind("[2001:db8:77::10]:0").expect("bound");
        socket.send_to(b"x", "[2001:db8:77::254]:9999").expect("sent");
        let socket = UdpSocket::bind("10.77.0.10:0").expect("bound");
        socket.send_to(b"x", "10.77.0.254:9999").expect("sent");
        // A question for an address, as any resolver sends it.
        let question =
            [&[0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0][..], b"\x01a\x04test\0", &[0, 1, 0, 1]].concat();
        socket.send_to(&question, "10.77.0.254:53").expect("sent");
        // Refused, for nobody listens there; the attempt has left all the same.
        let attempt: SocketAddr = "10.77.0.254:443".parse().expect("valid");
        TcpStream::connect_timeout(&attempt, Duration::from_secs(5)).expect_err("nobody listens");
        Command::new("ping").args(["-c1", "-W5", "10.77.0.254"]).output().expect("ping is installed")
    });
    assert!(sent.expect("inside").status.success(), "the far side answers pings");
    let wanted = [
        "udp [2001:db8:77::10]:PORT > [2001:db8:77::254]:9999, 63 bytes",
        "udp 10.77.0.10:PORT > 10.77.0.254:9999, 43 bytes",
        "udp 10.77.0.10:PORT > 10.77.0.254:53, 66 bytes",
        "tcp 10.77.0.10:PORT > 10.77.0.254:443, 74 bytes",
        "icmp 10.77.0.10 > 10.77.0.254 type 8, 98 bytes",
    ];
    wait_for("all leaks are seen", || uplink.capture.report().leaks.len() >= wanted.len());
    let mut told: Vec<String> = uplink
        .capture
        .report()
        .leaks
        .iter()
        .map(|leak| without_source_port(&leak.what.to_string()))
        .collect();
    told.sort();
    let mut wanted = wanted.map(String::from);
    wanted.sort();
    assert_eq!(told, wanted, "each that was sent, and nothing else");
    // Not all at one moment: the kernel goes on to look after its neighbours.
    let mut counted = (BTreeMap::new(), BTreeMap::new());
    wait_for("both say the same", || {
        counted = (uplink.kernel(), uplink.captured());
        counted.0 == counted.1
    });
    assert_eq!(counted.0["leak"], 5, "{counted:?}");
    assert!(counted.0["neighbour"] >= 3, "ARP, a solicitation, a group report: {counted:?}");
    assert_eq!(counted.0.len(), 2, "nothing of any other kind: {counted:?}");
}

/// The source's port is the kernel's choice.
fn without_source_port(told: &str) -> String {
    let Some((source, rest)) = told.split_once(" > ") else { return told.to_string() };
    match source.rsplit_once(':') {
        Some((address, _)) if !source.starts_with("icmp") => format!("{address}:PORT > {rest}"),
        _ => told.to_string(),
    }
}

#[tokio::test]
async fn a_flood_that_nobody_reads_in_time_is_counted_as_dropped_and_never_silently_lost() {
    if !is_possible() {
        return;
    }
    let uplink = Uplink::raise(Ipv6::Off).await;
    let socket = uplink.socket();
    let frame = udp(WORKER, 5000, WORLD, 9999);
    let flood = std::time::Instant::now();
    let mut sent = 0_u64;
    while flood.elapsed() < Duration::from_secs(1) {
        send(&socket, &frame);
        sent += 1;
        // Whoever asks is answered while it lasts.
        if sent.is_multiple_of(10_000) {
            let asked = std::time::Instant::now();
            drop(uplink.capture.report());
            assert!(asked.elapsed() < Duration::from_secs(1), "the capture does not answer under load");
        }
    }
    let mut last = (0, 0);
    wait_for("every frame that the kernel counted was captured or is known to be dropped", || {
        let report = uplink.capture.report();
        let kernel = uplink.kernel().values().sum::<u64>();
        let captured = report.packets.values().sum::<u64>() + report.dropped;
        let settled = (kernel, captured) == last;
        last = (kernel, captured);
        settled
    });
    assert_eq!(last.0, last.1, "of {sent} that were sent");
    assert!(last.0 > 0);
}
