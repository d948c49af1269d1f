//! A whole tailnet on one machine.

#![forbid(unsafe_code)]

pub mod internet;
pub mod numbered;
pub mod packet_socket;
pub mod stamp;
