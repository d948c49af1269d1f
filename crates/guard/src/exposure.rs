//! Whether the worker can reach tailscaled's socket, and by it clear the exit node.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use crate::machine::Exposure;

/// What is seen of a socket: its folder's owner and mode, and the uid that tailscaled runs as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Owner of the folder; none if it cannot be looked at.
    pub(crate) folder: Option<(u32, u32)>,
    /// The uid behind the socket.
    pub(crate) daemon_uid: Option<u32>,
}

/// Looks at a socket whose peer runs as `daemon_uid`.
pub(crate) fn look(socket: &Path, daemon_uid: Option<u32>) -> Exposure {
    let folder = socket.parent().and_then(|folder| fs::metadata(folder).ok());
    let folder = folder.map(|folder| (folder.uid(), folder.permissions().mode() & 0o777));
    judge(Seen { folder, daemon_uid })
}

/// The socket is private where tailscaled is not root and the folder belongs to its uid alone. The socket's own mode
/// is 0666 by design (`safesocket/unixsocket.go`).
pub(crate) fn judge(seen: Seen) -> Exposure {
    let Some((owner, mode)) = seen.folder else {
        return Exposure::Exposed("the socket's folder cannot be looked at".to_owned());
    };
    let Some(uid) = seen.daemon_uid else {
        return Exposure::Exposed("the uid behind the socket cannot be looked at".to_owned());
    };
    if mode & 0o077 != 0 {
        return Exposure::Exposed(format!("the socket's folder has mode {mode:04o}, not 0700"));
    }
    if uid == 0 {
        return Exposure::Exposed("tailscaled runs as root, and so may the worker".to_owned());
    }
    if owner != uid {
        return Exposure::Exposed(format!(
            "the socket's folder belongs to uid {owner}, tailscaled runs as {uid}"
        ));
    }
    Exposure::Private
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(folder: Option<(u32, u32)>, daemon_uid: Option<u32>) -> Option<String> {
        match judge(Seen { folder, daemon_uid }) {
            Exposure::Private => None,
            Exposure::Exposed(why) => Some(why),
        }
    }

    #[test]
    fn only_a_closed_folder_of_a_tailscaled_that_is_not_root_is_private() {
        assert_eq!(judged(Some((64100, 0o700)), Some(64100)), None);
        for (folder, uid, why) in [
            (Some((64100, 0o755)), Some(64100), "0755"),
            (Some((64100, 0o710)), Some(64100), "0710"),
            (Some((0, 0o700)), Some(0), "root"),
            (Some((1000, 0o700)), Some(64100), "1000"),
            (None, Some(64100), "folder"),
            (Some((64100, 0o700)), None, "uid"),
        ] {
            let said = judged(folder, uid).expect("exposed");
            assert!(said.contains(why), "{said}");
        }
    }

    #[test]
    fn a_real_folder_is_looked_at() {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("tailscaled.sock");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("mode");
        assert!(matches!(look(&socket, Some(64100)), Exposure::Exposed(why) if why.contains("0755")));
    }
}
