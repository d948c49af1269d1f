//! What a lab needs of the machine, looked at before anything is made: all that is missing is said at once.

use std::path::{Path, PathBuf};

use crate::binaries::{self, Program};
use crate::registry::record::ControlKind;

/// What is missing.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("this machine cannot hold a lab: {}", .0.join("; "))]
pub struct Missing(pub Vec<String>);

/// Looks whether everything is there.
///
/// # Errors
/// [`Missing`], with everything that is not.
pub fn check(control: ControlKind) -> Result<(), Missing> {
    let mut missing = Vec::new();
    if !nix::unistd::geteuid().is_root() {
        missing.push("root is needed to make network namespaces".to_string());
    }
    if !Path::new("/dev/net/tun").exists() {
        missing.push("/dev/net/tun is missing: tailscaled needs the kernel's TUN device".to_string());
    }
    if !Path::new("/proc/thread-self/ns/net").exists() {
        missing.push("/proc has no namespaces".to_string());
    }
    for tool in ["nft", "tc"] {
        if !on_path(tool) {
            missing.push(format!("{tool} is not on PATH"));
        }
    }
    let server = match control {
        ControlKind::Own => Program::Labctl,
        ControlKind::Headscale => Program::Headscale,
    };
    for program in [Program::Tailscaled, server] {
        if let Err(error) = binaries::find(program) {
            missing.push(error.to_string());
        }
    }
    if missing.is_empty() { Ok(()) } else { Err(Missing(missing)) }
}

fn on_path(tool: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|directory: PathBuf| directory.join(tool)).any(|file| file.is_file())
}
