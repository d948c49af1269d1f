//! The arrows between crates: a room may use only what the map in ARCHITECTURE.md allows.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::Report;

/// Room and what of ours it may use. The same table is drawn in ARCHITECTURE.md.
const MAP: &[(&str, &[&str])] = &[
    ("policy", &[]),
    ("tailnet", &[]),
    ("gate", &["policy"]),
    ("guard", &["tailnet", "gate"]),
    ("lab", &["tailnet", "gate"]),
    ("cli", &["policy", "tailnet", "gate", "guard", "lab"]),
];

/// Reads the workspace's normal and build dependencies from cargo and compares them with the map.
pub(crate) fn check() -> Result<Report> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version=1", "--offline"])
        .output()
        .context("run cargo metadata")?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let map: BTreeMap<&str, BTreeSet<&str>> =
        MAP.iter().map(|(room, may)| (*room, may.iter().copied().collect())).collect();
    let mut wrong = Vec::new();
    let mut arrows = 0;
    for package in metadata["packages"].as_array().context("cargo metadata lists no packages")? {
        let manifest = package["manifest_path"].as_str().unwrap_or_default();
        let Some(room) = room_of(manifest) else { continue };
        let Some(may) = map.get(room) else {
            wrong.push(format!(
                "crates/{room} is not on the map: add it to ARCHITECTURE.md and xtask/src/arrows.rs"
            ));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let Some(target) = dependency["path"].as_str().and_then(|path| path.rsplit('/').next()) else {
                continue;
            };
            // A test may look at the whole house.
            if dependency["kind"] == "dev" {
                continue;
            }
            arrows += 1;
            if !may.contains(target) {
                wrong.push(format!("crates/{room} may not use crates/{target}"));
            }
        }
    }
    Ok(Report { looked_at: format!("{arrows} arrows between {} rooms, all on the map", map.len()), wrong })
}

/// The folder's name of a member under `crates/`.
fn room_of(manifest: &str) -> Option<&str> {
    let folder = manifest.strip_suffix("/Cargo.toml")?;
    let (parent, room) = folder.rsplit_once('/')?;
    parent.ends_with("/crates").then_some(room)
}
