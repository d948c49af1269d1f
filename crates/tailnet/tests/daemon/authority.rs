//! Who may do what: any user reads, root writes.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use sallyport_tailnet::{Client, Error, MaskedPrefs, Peers};

use crate::tailscaled::{PATIENCE, Tailscaled};

const SOCKET: &str = "SALLYPORT_TEST_READ_ONLY_SOCKET";

#[tokio::test]
#[expect(clippy::print_stderr, reason = "a skipped test has to be seen")]
async fn another_user_may_read_and_not_write() {
    if let Some(socket) = std::env::var_os(SOCKET) {
        let client = Client::new(PathBuf::from(socket)).with_deadline(PATIENCE);
        client.status(Peers::Include).await.unwrap();
        client.prefs().await.unwrap();
        let denied = client.patch_prefs(&MaskedPrefs::new().want_running(true)).await.unwrap_err();
        assert!(
            matches!(&denied, Error::AccessDenied { message, .. } if message.contains("denied")),
            "{denied:?}"
        );
        assert!(denied.is_permission());
        for denied in
            [client.logout().await, client.login_interactive().await, client.disconnect_control().await]
        {
            assert!(matches!(denied, Err(Error::AccessDenied { .. })), "{denied:?}");
        }
        return;
    }
    if !nix::unistd::geteuid().is_root() {
        assert!(std::env::var_os("CI").is_none(), "only root can become somebody else");
        eprintln!("SKIPPED: only root can become somebody else");
        return;
    }
    let Some(daemon) = Tailscaled::start().await else { return };
    // The test's own folder is closed to others; a copy of this program and the socket's folder are not.
    let open = tempfile::tempdir().unwrap();
    for folder in [open.path(), daemon.socket().parent().unwrap()] {
        std::fs::set_permissions(folder, PermissionsExt::from_mode(0o755)).unwrap();
    }
    let program = open.path().join("as-nobody");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"])
        .arg(program)
        .args(["--exact", "authority::another_user_may_read_and_not_write"])
        .env(SOCKET, daemon.socket())
        .current_dir("/")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{output:?}");
}
