//! versions.env is the one place for outside versions: go.mod and Cargo.toml may not say something else.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result};

use crate::Report;

/// Compares versions.env with lab/control/go.mod and the workspace manifest.
pub(crate) fn check() -> Result<Report> {
    let text = fs::read_to_string("versions.env").context("read versions.env")?;
    let pins: BTreeMap<&str, &str> =
        text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once('=')).collect();
    let pin = |name: &str| pins.get(name).copied().with_context(|| format!("versions.env has no {name}"));
    let go_mod = fs::read_to_string("lab/control/go.mod").context("read lab/control/go.mod")?;
    let manifest: toml::Table = fs::read_to_string("Cargo.toml").context("read Cargo.toml")?.parse()?;
    let rust = manifest["workspace"]["package"]["rust-version"].as_str().unwrap_or_default();

    let mut wrong = Vec::new();
    let tailscale = pin("TAILSCALE_VERSION")?;
    if !go_mod.lines().any(|line| {
        line.trim().trim_start_matches("require ").starts_with(&format!("tailscale.com v{tailscale}"))
    }) {
        wrong.push(format!("lab/control/go.mod does not require tailscale.com v{tailscale}"));
    }
    if pin("RUST_MIN_VERSION")? != rust {
        wrong.push(format!("Cargo.toml says rust-version {rust}, versions.env {}", pin("RUST_MIN_VERSION")?));
    }
    Ok(Report { looked_at: format!("{} versions, one file", pins.len()), wrong })
}
