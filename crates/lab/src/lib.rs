//! A whole tailnet on one machine.

#![forbid(unsafe_code)]

pub mod binaries;
pub mod control;
pub mod daemon;
pub mod fault;
pub mod host;
pub mod internet;
pub mod join;
pub mod lab;
pub mod leak;
pub mod network;
pub mod numbered;
pub mod packet_socket;
pub mod preflight;
pub mod reaper;
pub mod registry;
pub mod relay;
pub mod run;
pub mod stamp;
pub mod supervisor;
pub mod topology;
pub mod unix_http;
pub mod wire;
