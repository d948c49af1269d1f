//! The state file: `KEY=VALUE` lines that a shell can read with `.`, written whole or not at all.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use thiserror::Error;

use crate::posture::Posture;

/// What the state file says. The first three keys are the ancestor's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Record {
    /// `SELECTED_EXIT_NODE`: the node's name in the tailnet; empty by the normal route.
    pub selected_exit_node: String,
    /// `OBSERVED_EGRESS_IP`: the public address that the world sees, IPv4 if both were seen; empty if none was told.
    pub observed_egress_ip: String,
    /// `VALIDATED_AT`: when the route was proved, UTC.
    pub validated_at: String,
    /// `POSTURE`.
    pub posture: Posture,
    /// `TAILNET_HOSTNAME`: what the tailnet calls this node.
    pub tailnet_hostname: String,
    /// `ADVERTISED_TAGS`: the tags in force, with commas.
    pub advertised_tags: String,
    /// `READY_AT`: when the worker could start, UTC.
    pub ready_at: String,
    /// `KILL_SWITCH`: `none` or `off`.
    pub kill_switch: &'static str,
    /// `LOCALAPI`: `exposed` or `private`.
    pub localapi: &'static str,
    /// `OBSERVED_EGRESS_IPV6`: the IPv6 address, where both families were seen.
    pub observed_egress_ipv6: String,
    /// `EGRESS_FAMILIES`: the families that a probe went through, with a comma.
    pub egress_families: String,
    /// `FAIL_OPEN`: `active` when every exit node failed and the normal route was allowed; else empty.
    pub fail_open: &'static str,
}

impl Record {
    /// The file's content.
    #[must_use]
    pub fn render(&self) -> String {
        let lines = [
            ("SELECTED_EXIT_NODE", self.selected_exit_node.as_str()),
            ("OBSERVED_EGRESS_IP", &self.observed_egress_ip),
            ("VALIDATED_AT", &self.validated_at),
            ("POSTURE", self.posture.word()),
            ("TAILNET_HOSTNAME", &self.tailnet_hostname),
            ("ADVERTISED_TAGS", &self.advertised_tags),
            ("READY_AT", &self.ready_at),
            ("KILL_SWITCH", self.kill_switch),
            ("LOCALAPI", self.localapi),
            ("OBSERVED_EGRESS_IPV6", &self.observed_egress_ipv6),
            ("EGRESS_FAMILIES", &self.egress_families),
            ("FAIL_OPEN", self.fail_open),
        ];
        let mut text = String::new();
        for (key, value) in lines {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{key}={}", quote(value));
        }
        text
    }
}

/// The value as `sh` reads it back: plain where that is enough, else in single quotes. Control characters, which no
/// value of ours has and which could end a line, become question marks.
#[must_use]
pub fn quote(value: &str) -> String {
    let value: String = value.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    let plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    if value.chars().all(plain) {
        return value;
    }
    format!("'{}'", value.replace('\'', r"'\''"))
}

/// Why the state file is not as it should be.
#[derive(Debug, Error)]
pub enum StateFileError {
    /// It could not be written.
    #[error("cannot write the state file {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It could not be removed.
    #[error("cannot remove the state file {}", path.display())]
    Remove {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Writes the file beside its place, then moves it there: a reader sees the old one or the new one. The folder is made
/// if there is none. Everybody may read it.
///
/// # Errors
/// When the folder cannot be written.
pub fn write(path: &Path, record: &Record) -> Result<(), StateFileError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let folder = path.parent().unwrap_or(Path::new("/"));
    let beside = folder.join(format!(".{name}.{}", std::process::id()));
    let written = write_beside(folder, &beside, record).and_then(|()| fs::rename(&beside, path));
    written.map_err(|source| {
        // What could not be finished is not left lying; that this may fail too changes nothing.
        let _ = fs::remove_file(&beside);
        StateFileError::Write { path: path.to_owned(), source }
    })
}

fn write_beside(folder: &Path, beside: &Path, record: &Record) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    // What a killed guard with the same pid left there.
    let _ = fs::remove_file(beside);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(beside)?;
    file.write_all(record.render().as_bytes())?;
    file.sync_data()
}

/// Removes the file if it is there.
///
/// # Errors
/// When it is there and cannot be removed.
pub fn remove(path: &Path) -> Result<(), StateFileError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(StateFileError::Remove { path: path.to_owned(), source: error })
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    fn record() -> Record {
        Record {
            selected_exit_node: "exit-us-east".into(),
            observed_egress_ip: "203.0.113.10".into(),
            validated_at: "2026-01-02T03:04:05Z".into(),
            posture: Posture::Pinned,
            tailnet_hostname: "worker".into(),
            advertised_tags: "tag:worker,tag:egress".into(),
            ready_at: "2026-01-02T03:04:06Z".into(),
            kill_switch: "none",
            localapi: "exposed",
            observed_egress_ipv6: "2001:db8:10::10".into(),
            egress_families: "ipv4,ipv6".into(),
            fail_open: "",
        }
    }

    #[test]
    fn the_ancestors_keys_come_first_and_plain_values_stay_plain() {
        let expected = "SELECTED_EXIT_NODE=exit-us-east\nOBSERVED_EGRESS_IP=203.0.113.10\n\
            VALIDATED_AT=2026-01-02T03:04:05Z\nPOSTURE=pinned\nTAILNET_HOSTNAME=worker\n\
            ADVERTISED_TAGS=tag:worker,tag:egress\nREADY_AT=2026-01-02T03:04:06Z\nKILL_SWITCH=none\n\
            LOCALAPI=exposed\nOBSERVED_EGRESS_IPV6=2001:db8:10::10\nEGRESS_FAMILIES=ipv4,ipv6\nFAIL_OPEN=\n";
        assert_eq!(record().render(), expected);
    }

    #[test]
    fn no_value_can_add_a_line_or_run_a_command() {
        let mut hostile = record();
        hostile.tailnet_hostname = "x\nSELECTED_EXIT_NODE=y; $(touch /tmp/z) `id` 'q'".into();
        let text = hostile.render();
        assert_eq!(text.lines().count(), record().render().lines().count());
        assert!(
            text.contains(r"TAILNET_HOSTNAME='x?SELECTED_EXIT_NODE=y; $(touch /tmp/z) `id` '\''q'\'''"),
            "{text}"
        );
    }

    #[test]
    fn a_written_file_replaces_the_old_one_and_leaves_nothing_beside_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("deep/er/egress-selected");
        write(&path, &record()).expect("write");
        let mut second = record();
        second.selected_exit_node = "exit-us-central".into();
        write(&path, &second).expect("write again");
        assert_eq!(fs::read_to_string(&path).expect("read"), second.render());
        let names: Vec<_> = fs::read_dir(path.parent().expect("a parent")).expect("list").collect();
        assert_eq!(names.len(), 1, "{names:?}");
        remove(&path).expect("remove");
        remove(&path).expect("removing twice is fine");
        assert!(!path.exists());
    }

    #[test]
    fn a_symbolic_link_at_the_place_is_replaced_not_followed() {
        let folder = tempfile::tempdir().expect("a folder");
        let target = folder.path().join("precious");
        fs::write(&target, "keep").expect("write");
        let path = folder.path().join("egress-selected");
        std::os::unix::fs::symlink(&target, &path).expect("link");
        write(&path, &record()).expect("write");
        assert_eq!(fs::read_to_string(&target).expect("read"), "keep");
        assert!(fs::symlink_metadata(&path).expect("stat").is_file());
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_an_error_that_names_the_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("file");
        fs::write(&file, "").expect("write");
        let error = write(&file.join("egress-selected"), &record()).expect_err("not a folder");
        assert!(error.to_string().contains("egress-selected"), "{error}");
    }

    fn read_back_by_sh(value: &str) -> String {
        let script = format!("V={}\nprintf %s \"$V\"", quote(value));
        let output = Command::new("sh").arg("-c").arg(script).output().expect("sh runs");
        String::from_utf8(output.stdout).expect("text")
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        #[test]
        fn a_shell_reads_back_what_was_written(value in r#"([ -~]|[äß€]|['"$`\\!*?~#&|;<>(){}\[\]]){0,24}"#) {
            prop_assert_eq!(read_back_by_sh(&value), value);
        }
    }
}
