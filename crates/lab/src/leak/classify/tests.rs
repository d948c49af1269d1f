//! Frames by hand, and what each of them is.

use etherparse::PacketBuilder;
use proptest::prelude::*;

use super::*;
use crate::leak::declared::Rule;

const WORKER: [u8; 4] = [10, 77, 0, 10];
const CONTROL: [u8; 4] = [10, 77, 0, 1];
const EXIT: [u8; 4] = [203, 0, 113, 10];
const WORLD: [u8; 4] = [203, 0, 113, 9];

fn declared() -> Declared {
    let addresses =
        |texts: &[&str]| texts.iter().map(|text| text.parse().expect("an address")).collect::<Vec<_>>();
    Declared::tailscaled(
        addresses(&["10.77.0.1", "2001:db8:77::1"]),
        addresses(&["10.77.0.21", "203.0.113.10", "2001:db8:77::21"]),
        ["2001:db8:77::/64".parse().expect("a network")],
    )
}

fn v6(text: &str) -> [u8; 16] {
    text.parse::<Ipv6Addr>().expect("an address").octets()
}

fn built(step: etherparse::PacketBuilderStep<etherparse::UdpHeader>) -> Vec<u8> {
    let mut frame = Vec::new();
    step.write(&mut frame, b"payload").expect("a frame is built");
    frame
}

fn udp(source: [u8; 4], source_port: u16, destination: [u8; 4], port: u16) -> Vec<u8> {
    built(PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(source, destination, 64).udp(source_port, port))
}

fn udp6(source: &str, source_port: u16, destination: &str, port: u16) -> Vec<u8> {
    built(
        PacketBuilder::ethernet2([2; 6], [4; 6]).ipv6(v6(source), v6(destination), 64).udp(source_port, port),
    )
}

fn tcp(destination: [u8; 4], port: u16) -> Vec<u8> {
    let mut frame = Vec::new();
    PacketBuilder::ethernet2([2; 6], [4; 6])
        .ipv4(WORKER, destination, 64)
        .tcp(40000, port, 1, 1000)
        .syn()
        .write(&mut frame, &[])
        .expect("a frame is built");
    frame
}

fn class(frame: &[u8]) -> Class {
    classify(frame, frame.len(), &declared())
}

#[test]
fn what_tailscaled_needs_is_its_own() {
    assert_eq!(class(&tcp(CONTROL, 8080)), Class::Control);
    assert_eq!(class(&udp(WORKER, 41641, CONTROL, 3478)), Class::Stun);
    assert_eq!(class(&udp(WORKER, 41641, EXIT, 41641)), Class::Peer);
    assert_eq!(class(&udp6("2001:db8:77::10", 41641, "2001:db8:77::21", 41641)), Class::Peer);
}

#[test]
fn whatever_else_goes_to_the_world_is_a_leak() {
    for frame in [
        tcp(WORLD, 443),
        tcp(WORLD, 8080),
        udp(WORKER, 5000, WORLD, 9999),
        udp(WORKER, 41641, WORLD, 41641),
        udp(WORKER, 5000, [203, 0, 113, 53], 53),
        udp6("2001:db8:77::10", 5000, "2001:db8:203::9", 9999),
    ] {
        assert_eq!(class(&frame), Class::Leak, "{}", Summary::of(&frame, frame.len()));
    }
}

#[test]
fn a_right_place_with_a_wrong_port_is_a_leak() {
    assert_eq!(class(&tcp(CONTROL, 8081)), Class::Leak);
    assert_eq!(class(&udp(WORKER, 41641, CONTROL, 53)), Class::Leak);
    assert_eq!(class(&udp(WORKER, 5000, EXIT, 41641)), Class::Leak);
    assert_eq!(class(&udp(WORKER, 41641, EXIT, 5000)), Class::Leak);
}

#[test]
fn arp_is_a_neighbours_question() {
    let mut frame = vec![0xff; 6];
    frame.extend([4; 6]);
    frame.extend(ARP.to_be_bytes());
    frame.extend([0; 28]);
    assert_eq!(class(&frame), Class::Neighbour);
}

#[test]
fn ipv6_neighbours_are_asked_on_the_link_alone() {
    let ask = |destination: &str, hops: u8| {
        let mut frame = Vec::new();
        PacketBuilder::ethernet2([2; 6], [4; 6])
            .ipv6(v6("fe80::1"), v6(destination), hops)
            .icmpv6_raw(135, 0, [0; 4])
            .write(&mut frame, &[0; 16])
            .expect("a frame is built");
        class(&frame)
    };
    assert_eq!(ask("ff02::1:ff00:1", 255), Class::Neighbour);
    assert_eq!(ask("2001:db8:77::254", 255), Class::Neighbour);
    assert_eq!(ask("2001:db8:77::254", 64), Class::Leak);
    assert_eq!(ask("2001:db8:203::9", 255), Class::Leak);
}

#[test]
fn a_group_report_stays_on_the_link_or_is_a_leak() {
    let report = |kind: u8, destination: &str, hops: u8| {
        let mut frame = Vec::new();
        PacketBuilder::ethernet2([2; 6], [4; 6])
            .ipv6(v6("fe80::1"), v6(destination), hops)
            .icmpv6_raw(kind, 0, [0; 4])
            .write(&mut frame, &[0; 16])
            .expect("a frame is built");
        // A hop-by-hop header with the router alert in between.
        frame.splice(54..54, [ICMPV6, 0, 5, 2, 0, 0, 1, 0]);
        frame[ETHERNET + 5] += 8;
        frame[ETHERNET + 6] = HOP_BY_HOP;
        class(&frame)
    };
    assert_eq!(report(143, "ff02::16", 1), Class::Neighbour);
    assert_eq!(report(131, "ff02::1", 1), Class::Neighbour);
    assert_eq!(report(143, "ff02::16", 64), Class::Leak);
    assert_eq!(report(143, "ff05::16", 1), Class::Leak);
    assert_eq!(report(128, "ff02::16", 1), Class::Leak);
}

#[test]
fn a_ping_is_a_leak_wherever_it_goes() {
    for destination in [WORLD, EXIT, CONTROL] {
        let mut frame = Vec::new();
        PacketBuilder::ethernet2([2; 6], [4; 6])
            .ipv4(WORKER, destination, 64)
            .icmpv4_echo_request(1, 1)
            .write(&mut frame, b"payload")
            .expect("a frame is built");
        assert_eq!(class(&frame), Class::Leak);
    }
}

#[test]
fn no_such_port_is_tailscaleds_own_only_of_its_own_port_and_to_a_node() {
    let answer = |destination: [u8; 4], port: u16| {
        let mut frame = Vec::new();
        PacketBuilder::ethernet2([2; 6], [4; 6])
            .ipv4(WORKER, destination, 64)
            .icmpv4_raw(3, 3, [0; 4])
            .write(&mut frame, &udp(destination, 41641, WORKER, port)[ETHERNET..])
            .expect("a frame is built");
        class(&frame)
    };
    assert_eq!(answer(EXIT, 41641), Class::PeerError);
    assert_eq!(answer(EXIT, 5000), Class::Leak);
    assert_eq!(answer(WORLD, 41641), Class::Leak);
}

#[test]
fn a_declared_rule_lets_out_what_it_says_and_no_more() {
    let mut declared = declared();
    let traffic = Traffic::Udp(Ports::To(9000, 9999));
    declared.rules.push(Rule { to: "203.0.113.0/24".parse().expect("a network"), traffic });
    let class = |frame: &[u8]| classify(frame, frame.len(), &declared);
    assert_eq!(class(&udp(WORKER, 5000, WORLD, 9999)), Class::Declared(0));
    assert_eq!(class(&udp(WORKER, 5000, WORLD, 53)), Class::Leak);
    assert_eq!(class(&tcp(WORLD, 9999)), Class::Leak);
}

#[test]
fn a_forged_source_does_not_hide_a_leak() {
    assert_eq!(class(&udp(EXIT, 5000, WORLD, 9999)), Class::Leak);
}

#[test]
fn a_vlan_tag_hides_nothing() {
    let plain = tcp(CONTROL, 8080);
    let mut tagged = plain[..12].to_vec();
    tagged.extend([0x81, 0x00, 0, 1]);
    tagged.extend(&plain[12..]);
    assert_eq!(class(&tagged), Class::Leak);
}

#[test]
fn a_later_fragment_shows_no_port_and_is_a_leak() {
    let mut frame = udp(WORKER, 41641, EXIT, 41641);
    frame[ETHERNET + 7] = 1;
    assert_eq!(class(&frame), Class::Leak);
}

#[test]
fn a_leak_is_told_in_a_few_words() {
    let frame = udp(WORKER, 5000, WORLD, 9999);
    let (class, summary) = explain(&frame, frame.len(), &declared());
    assert_eq!(class, Class::Leak);
    assert_eq!(summary.expect("told").to_string(), "udp 10.77.0.10:5000 > 203.0.113.9:9999, 49 bytes");
}

proptest! {
    #[test]
    fn garbage_never_panics(frame in proptest::collection::vec(any::<u8>(), 0..200), more in 0usize..2000) {
        let (class, summary) = explain(&frame, frame.len() + more, &declared());
        prop_assert_eq!(class == Class::Leak, summary.is_some());
    }

    #[test]
    fn a_cut_frame_is_the_same_as_the_whole(length in ENOUGH..400usize) {
        let mut frame = udp(WORKER, 41641, EXIT, 41641);
        frame.resize(400, 0);
        let whole = classify(&frame, 400, &declared());
        prop_assert_eq!(classify(&frame[..length], 400, &declared()), whole);
    }
}
