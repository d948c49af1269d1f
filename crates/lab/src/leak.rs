//! The leak counter: every packet on the worker's uplink that is neither tailscaled's own nor declared, counted twice, by
//! nftables and by a capture, which must agree.

pub mod capture;
pub mod classify;
pub mod declared;
pub mod pcap;
pub mod rules;
pub mod summary;
