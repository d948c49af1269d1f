//! Where the real programs are.

use std::env::var_os;
use std::path::{Path, PathBuf};

const PINNED: &str = include_str!("../../../../versions.env");

/// The daemon of the pinned version; `None` says that the test is skipped, and has said so.
pub(crate) fn tailscaled() -> Option<PathBuf> {
    let version = PINNED.lines().find_map(|line| line.strip_prefix("TAILSCALE_VERSION=")).unwrap();
    find("SALLYPORT_TAILSCALED", &format!("tailscale-{version}/tailscaled"))
}

/// The lab's control server; `None` as above.
pub(crate) fn labctl() -> Option<PathBuf> {
    find("SALLYPORT_LABCTL", "bin/labctl")
}

#[expect(clippy::print_stderr, reason = "a skipped test has to be seen")]
fn find(variable: &str, in_cache: &str) -> Option<PathBuf> {
    let cache = var_os("SALLYPORT_CACHE")
        .map(PathBuf::from)
        .or_else(|| Some(Path::new(&var_os("XDG_CACHE_HOME")?).join("sallyport")))
        .or_else(|| Some(Path::new(&var_os("HOME")?).join(".cache/sallyport")));
    let path = var_os(variable).map(PathBuf::from).or_else(|| Some(cache?.join(in_cache)));
    if let Some(path) = path.as_ref().filter(|path| path.is_file()) {
        return Some(path.clone());
    }
    assert!(var_os("CI").is_none(), "{variable}: {path:?} is missing; run `make setup`");
    eprintln!("SKIPPED: {variable}: {path:?} is missing; run `make setup`");
    None
}
