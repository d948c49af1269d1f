//! A raw view of one link: whole Ethernet frames in and out by `AF_PACKET`, below every rule of the IP stack.
//!
//! Frames are as on the wire: a VLAN tag that the kernel keeps beside the frame is put back where it was. With
//! [`Offload::Header`] each frame carries the kernel's `virtio_net_hdr`, so that unsegmented and unsummed ones
//! survive being forwarded. See packet(7).

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::sockopt::{RcvBufForce, ReceiveTimestampns, SndBufForce};
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType, bind,
    getsockopt, recvmsg, send, setsockopt, socket,
};
use nix::sys::time::TimeSpec;
use nix::{getsockopt_impl, setsockopt_impl, sockopt_impl};

use crate::stamp::Stamp;

/// The size of `struct virtio_net_hdr` (linux/virtio_net.h), which precedes the frame with [`Offload::Header`].
pub const OFFLOAD_HEADER: usize = 10;

/// The largest frame that is received whole: an unsegmented 64 KiB packet with its headers.
const LARGEST_FRAME: usize = 65_536 + 64;

const VLAN_TAG: usize = 4;
/// `ETH_P_8021Q` (linux/if_ether.h).
const VLAN_ETHERTYPE: u16 = 0x8100;
/// `TP_STATUS_VLAN_VALID` and `TP_STATUS_VLAN_TPID_VALID` (linux/if_packet.h).
const VLAN_VALID: u32 = 1 << 4;
const VLAN_TPID_VALID: u32 = 1 << 6;
/// `VIRTIO_NET_HDR_F_NEEDS_CSUM` (linux/virtio_net.h).
const NEEDS_CHECKSUM: u8 = 1;
/// The size of `struct tpacket_auxdata` (linux/if_packet.h).
const AUXDATA: usize = 20;

sockopt_impl!(
    /// Whether frames carry a `virtio_net_hdr`.
    VnetHeader, SetOnly, libc::SOL_PACKET, libc::PACKET_VNET_HDR, bool
);
sockopt_impl!(
    /// Whether frames that this machine sends are kept from the socket.
    IgnoreOutgoing, SetOnly, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, bool
);
sockopt_impl!(
    /// Whether the VLAN tag comes as a control message.
    AuxiliaryData, SetOnly, libc::SOL_PACKET, libc::PACKET_AUXDATA, bool
);
sockopt_impl!(
    /// The kernel's counts, which reading resets.
    KernelStatistics, GetOnly, libc::SOL_PACKET, libc::PACKET_STATISTICS, libc::tpacket_stats
);

/// What went wrong while opening a link.
#[derive(Debug, thiserror::Error)]
pub enum PacketSocketError {
    /// There is no such link in the namespace of the calling thread.
    #[error("no link {link} here")]
    NoLink {
        /// The link's name.
        link: String,
    },
    /// The kernel refused; without `CAP_NET_RAW` it is the first step.
    #[error("cannot open link {link}: {step}")]
    Kernel {
        /// The link's name.
        link: String,
        /// The call that failed.
        step: &'static str,
        /// The kernel's answer.
        source: Errno,
    },
}

/// Whether frames come and go with the kernel's offload header in front.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offload {
    /// The frame alone; checksums of local senders may be missing.
    Bare,
    /// `virtio_net_hdr` of [`OFFLOAD_HEADER`] bytes, then the frame.
    Header,
}

/// Which frames of the link are seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum View {
    /// Those that arrive by the link.
    Incoming,
    /// Those that arrive, and those that this side sends.
    Both,
}

/// Which way a received frame went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// It arrived by the link.
    Incoming,
    /// This side sent it.
    Outgoing,
}

/// What is known of a frame beside its bytes.
#[derive(Debug, Clone, Copy)]
pub struct Received<'a> {
    /// The frame; its offload header stands in front where the socket was opened so.
    pub frame: &'a [u8],
    /// When the kernel took it.
    pub at: Stamp,
    /// Which way it went.
    pub direction: Direction,
    /// Its length on the wire in bytes: more than what was received where the frame was cut.
    pub wire_length: usize,
}

/// The kernel's own counts since the socket was opened (`PACKET_STATISTICS`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct KernelCount {
    /// Frames meant for the socket, dropped ones included.
    pub seen: u64,
    /// Frames that found no room in the receive buffer.
    pub dropped: u64,
}

/// An open link.
#[derive(Debug)]
pub struct PacketSocket {
    socket: OwnedFd,
    link: String,
    address: LinkAddr,
    offload: Offload,
    /// Room for a frame, and in front of it for the tag that may have to be put back.
    frame: Vec<u8>,
    snap: usize,
    control: Vec<u8>,
    count: KernelCount,
}

impl PacketSocket {
    /// Opens `link` in the namespace of the calling thread, with kernel buffers of `buffer` bytes each way.
    ///
    /// # Errors
    /// [`PacketSocketError`].
    pub fn open(link: &str, offload: Offload, view: View, buffer: usize) -> Result<Self, PacketSocketError> {
        let fail = |step| move |source| PacketSocketError::Kernel { link: link.to_string(), step, source };
        let address = link_address(link)?;
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(AddressFamily::Packet, SockType::Raw, flags, SockProtocol::EthAll)
            .map_err(fail("socket"))?;
        setsockopt(&socket, AuxiliaryData, &true).map_err(fail("PACKET_AUXDATA"))?;
        setsockopt(&socket, ReceiveTimestampns, &true).map_err(fail("SO_TIMESTAMPNS"))?;
        setsockopt(&socket, RcvBufForce, &buffer).map_err(fail("SO_RCVBUFFORCE"))?;
        setsockopt(&socket, SndBufForce, &buffer).map_err(fail("SO_SNDBUFFORCE"))?;
        set_view(&socket, view).map_err(fail("PACKET_IGNORE_OUTGOING"))?;
        if offload == Offload::Header {
            setsockopt(&socket, VnetHeader, &true).map_err(fail("PACKET_VNET_HDR"))?;
        }
        bind(socket.as_raw_fd(), &address).map_err(fail("bind"))?;
        let mut opened = Self {
            socket,
            link: link.to_string(),
            address,
            offload,
            frame: vec![0; VLAN_TAG + OFFLOAD_HEADER + LARGEST_FRAME],
            snap: OFFLOAD_HEADER + LARGEST_FRAME,
            control: nix::cmsg_space!(TimeSpec, [u8; AUXDATA]),
            count: KernelCount::default(),
        };
        opened.forget_strangers().map_err(fail("recvmsg"))?;
        Ok(opened)
    }

    /// Until `bind` the socket hears every link: takes out what came from others, and starts the counts there.
    ///
    /// Frames of our own link that were queued before this are lost with them, as if the socket had been opened a
    /// moment later.
    fn forget_strangers(&mut self) -> Result<(), Errno> {
        loop {
            match self.receive() {
                Ok(_) | Err(Errno::EINVAL) => {}
                Err(Errno::EAGAIN) => break,
                Err(error) => return Err(error),
            }
        }
        self.statistics()?;
        self.count = KernelCount::default();
        Ok(())
    }

    /// The link's name.
    #[must_use]
    pub fn link(&self) -> &str {
        &self.link
    }

    /// The link's own Ethernet address; all zero where it has none.
    #[must_use]
    pub fn ethernet_address(&self) -> [u8; 6] {
        self.address.addr().unwrap_or_default()
    }

    /// Receives a frame, without waiting.
    ///
    /// # Errors
    /// `EAGAIN` when there is none; `EINVAL` when the kernel had one that `virtio_net_hdr` cannot describe, which is
    /// lost; `ENETDOWN` once after the link went down.
    pub fn receive(&mut self) -> Result<Received<'_>, Errno> {
        let header = self.header();
        let mut at = None;
        let mut tag = None;
        let (length, direction) = {
            let mut slices = [IoSliceMut::new(&mut self.frame[VLAN_TAG..VLAN_TAG + self.snap])];
            let control = Some(&mut self.control[..]);
            let message =
                recvmsg::<LinkAddr>(self.socket.as_raw_fd(), &mut slices, control, MsgFlags::MSG_TRUNC)?;
            for part in message.cmsgs()? {
                match part {
                    ControlMessageOwned::ScmTimestampns(time) => at = Some(Stamp::from(time)),
                    ControlMessageOwned::Unknown(part)
                        if part.cmsg_header.cmsg_level == libc::SOL_PACKET
                            && part.cmsg_header.cmsg_type == libc::PACKET_AUXDATA =>
                    {
                        tag = vlan_tag(&part.data_bytes);
                    }
                    _ => {}
                }
            }
            let outgoing = message.address.is_some_and(|from| from.pkttype() == libc::PACKET_OUTGOING);
            (message.bytes, if outgoing { Direction::Outgoing } else { Direction::Incoming })
        };
        let copied = length.min(self.snap);
        let mut frame = VLAN_TAG..VLAN_TAG + copied;
        let mut wire_length = length.saturating_sub(header);
        if let Some(tag) = tag
            && copied >= header + 12
        {
            insert_vlan_tag(&mut self.frame, header, tag);
            frame.start = 0;
            wire_length += VLAN_TAG;
        }
        Ok(Received { frame: &self.frame[frame], at: at.unwrap_or_else(Stamp::now), direction, wire_length })
    }

    fn header(&self) -> usize {
        match self.offload {
            Offload::Bare => 0,
            Offload::Header => OFFLOAD_HEADER,
        }
    }

    /// Receives no more than `length` bytes of each frame from now on; what is not needed need not be copied.
    pub fn cut(&mut self, length: usize) {
        self.snap = length.min(OFFLOAD_HEADER + LARGEST_FRAME);
    }

    /// Receives frames whole again.
    pub fn uncut(&mut self) {
        self.cut(usize::MAX);
    }

    /// Changes which frames are seen from now on.
    ///
    /// # Errors
    /// The kernel's answer.
    pub fn look(&self, view: View) -> Result<(), Errno> {
        set_view(&self.socket, view)
    }

    /// Sends a frame (with its header where the socket was opened so), without waiting.
    ///
    /// # Errors
    /// `EAGAIN` and `ENOBUFS` where the link is congested, `EMSGSIZE` over the link's MTU, `ENETDOWN`.
    pub fn send(&self, frame: &[u8]) -> Result<(), Errno> {
        send(self.socket.as_raw_fd(), frame, MsgFlags::empty()).map(drop)
    }

    /// The kernel's counts since the socket was opened.
    ///
    /// # Errors
    /// The kernel's answer.
    pub fn statistics(&mut self) -> Result<KernelCount, Errno> {
        let fresh = getsockopt(&self.socket, KernelStatistics)?;
        self.count.seen += u64::from(fresh.tp_packets);
        self.count.dropped += u64::from(fresh.tp_drops);
        Ok(self.count)
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl From<PacketSocketError> for io::Error {
    fn from(error: PacketSocketError) -> Self {
        Self::other(error)
    }
}

fn set_view(socket: &OwnedFd, view: View) -> Result<(), Errno> {
    setsockopt(socket, IgnoreOutgoing, &(view == View::Incoming))
}

/// The packet address of a link. Taken from the interface list, since nix makes none from an index; its protocol is
/// zero, with which `bind` keeps the socket's own.
fn link_address(link: &str) -> Result<LinkAddr, PacketSocketError> {
    nix::ifaddrs::getifaddrs()
        .map_err(|source| PacketSocketError::Kernel { link: link.to_string(), step: "getifaddrs", source })?
        .filter(|interface| interface.interface_name == link)
        .find_map(|interface| interface.address.as_ref().and_then(|address| address.as_link_addr()).copied())
        .ok_or_else(|| PacketSocketError::NoLink { link: link.to_string() })
}

/// Reads the tag from a `tpacket_auxdata`: status, len, snaplen (u32 each), mac, net, vlan_tci, vlan_tpid (u16 each).
fn vlan_tag(auxiliary: &[u8]) -> Option<[u8; VLAN_TAG]> {
    let word = |at: usize| auxiliary.get(at..at + 2).map(|bytes| u16::from_ne_bytes([bytes[0], bytes[1]]));
    let status =
        auxiliary.get(..4).map(|bytes| u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))?;
    if status & VLAN_VALID == 0 {
        return None;
    }
    let protocol = if status & VLAN_TPID_VALID == 0 { VLAN_ETHERTYPE } else { word(18)? };
    let [a, b] = protocol.to_be_bytes();
    let [c, d] = word(16)?.to_be_bytes();
    Some([a, b, c, d])
}

/// Puts a tag back behind the two addresses, and moves what the offload header says accordingly. The frame stands
/// [`VLAN_TAG`] bytes into `buffer`, and at its start afterwards.
fn insert_vlan_tag(buffer: &mut [u8], header: usize, tag: [u8; VLAN_TAG]) {
    let at = header + 12;
    buffer.copy_within(VLAN_TAG..VLAN_TAG + at, 0);
    buffer[at..at + VLAN_TAG].copy_from_slice(&tag);
    if header == OFFLOAD_HEADER {
        // flags, gso_type (u8 each), hdr_len, gso_size, csum_start, csum_offset (u16 each, this machine's order).
        move_offload_field(buffer, 2);
        if buffer[0] & NEEDS_CHECKSUM != 0 {
            move_offload_field(buffer, 6);
        }
    }
}

fn move_offload_field(buffer: &mut [u8], at: usize) {
    let value = u16::from_ne_bytes([buffer[at], buffer[at + 1]]);
    if value > 0 {
        buffer[at..at + 2].copy_from_slice(&value.saturating_add(4).to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn auxiliary(status: u32, tci: u16, tpid: u16) -> Vec<u8> {
        let mut bytes = status.to_ne_bytes().to_vec();
        bytes.extend([0; 12]);
        bytes.extend(tci.to_ne_bytes());
        bytes.extend(tpid.to_ne_bytes());
        bytes
    }

    #[test]
    fn a_vlan_tag_beside_the_frame_is_put_back_into_it() {
        let tag = vlan_tag(&auxiliary(VLAN_VALID | VLAN_TPID_VALID, 7, 0x88a8)).expect("a tag");
        assert_eq!(tag, [0x88, 0xa8, 0, 7]);
        let mut frame = vec![0; VLAN_TAG];
        frame.extend([1; 12]);
        frame.extend([8, 0, 0x45]);
        insert_vlan_tag(&mut frame, 0, tag);
        assert_eq!(frame[..12], [1; 12]);
        assert_eq!(frame[12..], [0x88, 0xa8, 0, 7, 8, 0, 0x45]);
    }

    #[test]
    fn the_offload_header_follows_the_tag() {
        let mut frame = vec![0, 0, 0, 0, NEEDS_CHECKSUM, 1];
        for field in [54_u16, 1448, 34, 16] {
            frame.extend(field.to_ne_bytes());
        }
        frame.extend([0; 60]);
        insert_vlan_tag(&mut frame, OFFLOAD_HEADER, [0x81, 0, 0, 7]);
        let field = |at: usize| u16::from_ne_bytes([frame[at], frame[at + 1]]);
        assert_eq!((field(2), field(4), field(6), field(8)), (58, 1448, 38, 16));
    }

    #[test]
    fn no_tag_and_a_short_answer_are_no_tag() {
        assert_eq!(vlan_tag(&auxiliary(0, 7, 0x8100)), None);
        assert_eq!(vlan_tag(&VLAN_VALID.to_ne_bytes()), None);
        assert_eq!(vlan_tag(&[]), None);
    }
}
