//! Where the programs are that a lab runs: named in the environment, in the cache that `make setup` fills, or on `PATH`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The versions that this repository pins (`versions.env` at its root).
const PINNED: &str = include_str!("../../../versions.env");

/// A program that a lab needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// Tailscale's daemon, of the pinned version.
    Tailscaled,
    /// The lab's own control server.
    Labctl,
    /// A foreign control server; only ever taken from the environment or `PATH`.
    Headscale,
}

impl Program {
    fn name(self) -> &'static str {
        match self {
            Self::Tailscaled => "tailscaled",
            Self::Labctl => "labctl",
            Self::Headscale => "headscale",
        }
    }

    /// The environment variable that names it.
    #[must_use]
    pub fn variable(self) -> &'static str {
        match self {
            Self::Tailscaled => "SALLYPORT_TAILSCALED",
            Self::Labctl => "SALLYPORT_LABCTL",
            Self::Headscale => "SALLYPORT_HEADSCALE",
        }
    }

    fn in_cache(self, cache: &Path) -> Option<PathBuf> {
        match self {
            Self::Tailscaled => {
                Some(cache.join(format!("tailscale-{}", pinned("TAILSCALE_VERSION"))).join("tailscaled"))
            }
            Self::Labctl => Some(cache.join("bin").join("labctl")),
            Self::Headscale => None,
        }
    }
}

/// A program that is nowhere.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProgramError {
    /// Not found in any place.
    #[error("{name} is missing (looked at {})", looked.join(", "))]
    Missing {
        /// The program.
        name: &'static str,
        /// Where it was looked for.
        looked: Vec<String>,
    },
    /// The environment names something that is no program.
    #[error("{variable} names {}, which is no executable file", path.display())]
    Unusable {
        /// The variable.
        variable: &'static str,
        /// Its value.
        path: PathBuf,
    },
}

/// One value of the file of pinned versions.
///
/// # Panics
/// Where the file has no such line; a test shows that it has.
fn pinned(name: &str) -> &'static str {
    let line = PINNED.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    line.expect("versions.env pins it")
}

/// Finds a program with the environment of this process.
///
/// # Errors
/// [`ProgramError`], which says where it was looked for.
pub fn find(program: Program) -> Result<PathBuf, ProgramError> {
    let names = [program.variable(), "SALLYPORT_CACHE", "XDG_CACHE_HOME", "HOME", "PATH"];
    let environment = names.into_iter().filter_map(|name| Some((name, std::env::var_os(name)?))).collect();
    find_in(program, &environment, is_executable)
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

fn find_in(
    program: Program,
    environment: &BTreeMap<&str, OsString>,
    usable: impl Fn(&Path) -> bool,
) -> Result<PathBuf, ProgramError> {
    let set = |name: &str| environment.get(name).filter(|value| !value.is_empty());
    if let Some(path) = set(program.variable()).map(PathBuf::from) {
        let variable = program.variable();
        return if usable(&path) { Ok(path) } else { Err(ProgramError::Unusable { variable, path }) };
    }
    let cache = set("SALLYPORT_CACHE")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(set("XDG_CACHE_HOME")?).join("sallyport")))
        .or_else(|| Some(PathBuf::from(set("HOME")?).join(".cache/sallyport")));
    let cached = cache.and_then(|cache| program.in_cache(&cache));
    if let Some(path) = cached.as_ref().filter(|path| usable(path)) {
        return Ok(path.clone());
    }
    let directories =
        set("PATH").map(|path| std::env::split_paths(path).collect::<Vec<_>>()).unwrap_or_default();
    let mut on_path = directories.iter().map(|directory| directory.join(program.name()));
    on_path.find(|path| usable(path)).ok_or_else(|| {
        let cached = cached.map(|path| path.display().to_string());
        let looked =
            std::iter::once(program.variable().to_string()).chain(cached).chain(["PATH".to_string()]);
        ProgramError::Missing { name: program.name(), looked: looked.collect() }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(pairs: &[(&'static str, &str)]) -> BTreeMap<&'static str, OsString> {
        pairs.iter().map(|(name, value)| (*name, OsString::from(value))).collect()
    }

    fn found(
        program: Program,
        pairs: &[(&'static str, &str)],
        there: &[&str],
    ) -> Result<PathBuf, ProgramError> {
        find_in(program, &environment(pairs), |path| there.iter().any(|known| path == Path::new(known)))
    }

    #[test]
    fn the_environment_wins_over_the_cache_and_the_cache_over_path() {
        let pairs =
            [("SALLYPORT_TAILSCALED", "/own/tailscaled"), ("SALLYPORT_CACHE", "/cache"), ("PATH", "/bin")];
        let cached = format!("/cache/tailscale-{}/tailscaled", pinned("TAILSCALE_VERSION"));
        let there = ["/own/tailscaled", cached.as_str(), "/bin/tailscaled"];
        let find = |from: usize| found(Program::Tailscaled, &pairs[from.min(1)..], &there[from..]);
        assert_eq!(find(0), Ok("/own/tailscaled".into()));
        assert_eq!(find(1), Ok(cached.clone().into()));
        assert_eq!(find(2), Ok("/bin/tailscaled".into()));
    }

    #[test]
    fn a_variable_that_names_nothing_is_an_error_and_not_a_reason_to_look_on() {
        let error =
            found(Program::Labctl, &[("SALLYPORT_LABCTL", "/gone"), ("PATH", "/bin")], &["/bin/labctl"]);
        assert_eq!(error, Err(ProgramError::Unusable { variable: "SALLYPORT_LABCTL", path: "/gone".into() }));
    }

    #[test]
    fn what_is_missing_says_where_it_was_looked_for() {
        let error = found(Program::Labctl, &[("HOME", "/root")], &[]).expect_err("nothing is there");
        assert_eq!(
            error.to_string(),
            "labctl is missing (looked at SALLYPORT_LABCTL, /root/.cache/sallyport/bin/labctl, PATH)"
        );
    }
}
