//! The lab's undertaker: a process that waits for the supervisor's death and clears away what a kill -9 leaves, at once.
//!
//! It knows the supervisor to be dead by the end of a pipe. Should it be killed too, the next `lab up` or `lab down`
//! does the same by the ownership mark.

use std::io::Read;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use sallyport_gate::Namespace;

use crate::registry::sweep::Belongs;
use crate::registry::{Registry, RegistryError};

/// How long the kernel may take to free a dead process's lock.
const PATIENCE: Duration = Duration::from_secs(10);

/// Waits until `pipe` ends, then sweeps the lab of that name, unless it was taken down properly.
///
/// # Errors
/// Where there is no such lab, or something could not be removed.
pub fn watch(registry: &Registry, name: &str, mut pipe: impl Read) -> Result<()> {
    let record = registry.dir(name)?.record()?;
    // Held, so that their numbers stay theirs.
    let hosts = record.places.keys();
    let namespaces: Vec<Namespace> = hosts
        .map(|host| record.open(host))
        .collect::<Result<_, _>>()
        .context("cannot hold the lab's namespaces")?;
    // Nothing is ever written to it.
    let _ = pipe.read_to_end(&mut Vec::new());
    let belongs = Belongs::marked_or_in(&record.id, namespaces.iter().map(Namespace::id));
    let deadline = Instant::now() + PATIENCE;
    loop {
        match registry.sweep_one(name, &record.id, &belongs) {
            Err(RegistryError::InUse { .. }) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(5));
            }
            swept => return Ok(swept?),
        }
    }
}
