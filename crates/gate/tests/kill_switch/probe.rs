//! Ways of trying to get out, each from inside the calling thread's namespace.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, SockaddrIn6, bind, connect, send,
    sendto, setsockopt, socket, sockopt,
};

use crate::world::{SINK4, SINK6};

/// One way of trying.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Try {
    Udp,
    Tcp,
    Icmp,
    BindToDevice,
    Mark(u32),
    BindAndMark(u32),
    /// A whole frame with the sender's own address.
    Frame,
    /// The same, marked.
    MarkedFrame(u32),
    /// A whole frame with someone else's address.
    Forged,
}

pub(crate) const ALL: [Try; 11] = [
    Try::Udp,
    Try::Tcp,
    Try::Icmp,
    Try::BindToDevice,
    Try::Mark(0x80000),
    Try::Mark(0x40000),
    Try::Mark(0xc0000),
    Try::BindAndMark(0x80000),
    Try::Frame,
    Try::MarkedFrame(0x80000),
    Try::Forged,
];

/// Where the sender stands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sender {
    pub(crate) link: &'static str,
    /// The hardware address that frames go to.
    pub(crate) next: [u8; 6],
    pub(crate) v4: &'static str,
    pub(crate) v6: &'static str,
}

impl Sender {
    /// Tries. A refusal by the kernel is what the rules may do; nothing is said about it.
    pub(crate) fn attempt(&self, how: Try, v6: bool) {
        let to: IpAddr = if v6 { SINK6 } else { SINK4 }.parse().unwrap();
        match how {
            Try::Udp => datagram(to, |_| ()),
            Try::BindToDevice => datagram(to, |socket| bind_to(socket, self.link)),
            Try::Mark(mark) => datagram(to, |socket| setsockopt(socket, sockopt::Mark, &mark).unwrap()),
            Try::BindAndMark(mark) => datagram(to, |socket| {
                bind_to(socket, self.link);
                setsockopt(socket, sockopt::Mark, &mark).unwrap();
            }),
            Try::Tcp => open_tcp(to),
            Try::Icmp => echo(to),
            Try::Frame => self.frame(if v6 { self.v6 } else { self.v4 }, to, None),
            Try::MarkedFrame(mark) => self.frame(if v6 { self.v6 } else { self.v4 }, to, Some(mark)),
            Try::Forged => self.frame(if v6 { "2001:db8:666::6" } else { "198.51.100.66" }, to, None),
        }
    }

    fn frame(&self, from: &str, to: IpAddr, mark: Option<u32>) {
        let from: IpAddr = from.parse().unwrap();
        let socket =
            socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, None::<SockProtocol>)
                .unwrap();
        if let Some(mark) = mark {
            setsockopt(&socket, sockopt::Mark, &mark).unwrap();
        }
        let mut links = getifaddrs().unwrap();
        let address = links
            .find_map(|found| {
                (found.interface_name == self.link).then(|| found.address?.as_link_addr().copied()).flatten()
            })
            .unwrap();
        bind(socket.as_raw_fd(), &address).unwrap();
        let mut frame = self.next.to_vec();
        frame.extend(address.addr().unwrap());
        frame.extend(packet(from, to, 9999));
        // ENOBUFS is how an egress rule says no.
        let _ = send(socket.as_raw_fd(), &frame, MsgFlags::empty());
    }
}

fn bind_to(socket: &UdpSocket, link: &str) {
    setsockopt(socket, sockopt::BindToDevice, &link.into()).unwrap();
}

fn any(to: IpAddr) -> SocketAddr {
    match to {
        IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        IpAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}

fn datagram(to: IpAddr, prepare: impl FnOnce(&UdpSocket)) {
    let socket = UdpSocket::bind(any(to)).unwrap();
    prepare(&socket);
    let _ = socket.send_to(b"probe", (to, 9999));
}

fn open_tcp(to: IpAddr) {
    let family = if to.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let socket = socket(family, SockType::Stream, SockFlag::SOCK_NONBLOCK, None).unwrap();
    let _ = match to {
        IpAddr::V4(to) => connect(socket.as_raw_fd(), &SockaddrIn::from(std::net::SocketAddrV4::new(to, 80))),
        IpAddr::V6(to) => {
            connect(socket.as_raw_fd(), &SockaddrIn6::from(std::net::SocketAddrV6::new(to, 80, 0, 0)))
        }
    };
}

fn echo(to: IpAddr) {
    let (family, protocol, kind) = match to {
        IpAddr::V4(_) => (AddressFamily::Inet, SockProtocol::Icmp, 8),
        IpAddr::V6(_) => (AddressFamily::Inet6, SockProtocol::IcmpV6, 128),
    };
    let socket = socket(family, SockType::Raw, SockFlag::empty(), protocol).unwrap();
    let mut message = [kind, 0, 0, 0, 0, 1, 0, 1];
    let sum = checksum(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let fd = socket.as_fd().as_raw_fd();
    let _ = match to {
        IpAddr::V4(to) => {
            sendto(fd, &message, &SockaddrIn::from(std::net::SocketAddrV4::new(to, 0)), MsgFlags::empty())
        }
        IpAddr::V6(to) => sendto(
            fd,
            &message,
            &SockaddrIn6::from(std::net::SocketAddrV6::new(to, 0, 0, 0)),
            MsgFlags::empty(),
        ),
    };
}

/// Ethertype, IP and UDP headers of a datagram with 5 bytes.
pub(crate) fn packet(from: IpAddr, to: IpAddr, port: u16) -> Vec<u8> {
    let mut udp = [40000u16.to_be_bytes(), port.to_be_bytes(), 13u16.to_be_bytes(), [0; 2]].concat();
    udp.extend(b"probe");
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let mut ip = vec![0x45, 0, 0, 33, 0, 1, 0, 0, 64, 17, 0, 0];
            ip.extend(from.octets());
            ip.extend(to.octets());
            let sum = checksum(&ip);
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
            [vec![0x08, 0x00], ip, udp].concat()
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let pseudo = [&from.octets()[..], &to.octets(), &[0, 0, 0, 13, 0, 0, 0, 17], &udp].concat();
            let sum = checksum(&pseudo);
            udp[6..8].copy_from_slice(&sum.to_be_bytes());
            let mut ip = vec![0x60, 0, 0, 0, 0, 13, 17, 64];
            ip.extend(from.octets());
            ip.extend(to.octets());
            [vec![0x86, 0xdd], ip, udp].concat()
        }
        _ => panic!("two families"),
    }
}

fn checksum(bytes: &[u8]) -> u16 {
    let mut sum: u32 = bytes
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)])))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap()
}

/// Sends a whole frame to port 7777 from a link of the calling thread's namespace.
pub(crate) fn fence(link: &'static str, next: [u8; 6]) {
    let sender = Sender { link, next, v4: "10.77.0.10", v6: "::" };
    let socket =
        socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, None::<SockProtocol>).unwrap();
    let mut links = getifaddrs().unwrap();
    let address = links
        .find_map(|found| {
            (found.interface_name == link).then(|| found.address?.as_link_addr().copied()).flatten()
        })
        .unwrap();
    bind(socket.as_raw_fd(), &address).unwrap();
    let mut frame = sender.next.to_vec();
    frame.extend(address.addr().unwrap());
    frame.extend(packet(sender.v4.parse().unwrap(), SINK4.parse().unwrap(), 7777));
    send(socket.as_raw_fd(), &frame, MsgFlags::empty()).unwrap();
}
