//! Sockets that are not there, daemons that do not answer, answers that are none.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::process::Command;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use nix::sys::socket::{Backlog, listen};
use sallyport_tailnet::{Client, Error, Peers, PingKind};
use tokio::net::UnixStream;

use crate::server::{PATIENCE, Server, answer};

/// For what never answers: long enough to be told from a refusal, short enough to wait out.
const SHORT: Duration = Duration::from_millis(300);

async fn failure(client: &Client) -> Error {
    client.status(Peers::Include).await.unwrap_err()
}

#[tokio::test]
async fn a_missing_socket_a_dead_daemon_and_a_file_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let missing = failure(&Client::new(dir.path().join("none.sock"))).await;
    assert!(matches!(missing, Error::SocketMissing { .. }), "{missing:?}");
    let path = dir.path().join("dead.sock");
    drop(UnixListener::bind(&path).unwrap());
    let dead = failure(&Client::new(&path)).await;
    assert!(matches!(dead, Error::Refused { .. }), "{dead:?}");
    assert!(dead.to_string().contains(&path.display().to_string()), "{dead}");
    let long = failure(&Client::new(dir.path().join("x".repeat(200)))).await;
    assert!(matches!(long, Error::Connect { .. }), "{long:?}");
}

#[tokio::test]
async fn a_socket_that_may_not_be_opened_says_so() {
    const SOCKET: &str = "SALLYPORT_TEST_FORBIDDEN_SOCKET";
    if let Some(socket) = std::env::var_os(SOCKET) {
        let error = failure(&Client::new(std::path::PathBuf::from(socket))).await;
        assert!(matches!(error, Error::NotPermitted { .. }), "{error:?}");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let path = dir.path().join("s.sock");
    let _listener = UnixListener::bind(&path).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    // Root may open everything, so this very test runs again as somebody else.
    let program = std::env::current_exe().unwrap();
    let mut command = if nix::unistd::geteuid().is_root() {
        let copy = dir.path().join("as-nobody");
        std::fs::copy(program, &copy).unwrap();
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).arg(copy);
        command
    } else {
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o000)).unwrap();
        Command::new(program)
    };
    let output = command
        .args(["--exact", "failures::a_socket_that_may_not_be_opened_says_so"])
        .env(SOCKET, &path)
        .current_dir("/")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{output:?}");
}

#[tokio::test]
async fn a_daemon_that_accepts_and_says_nothing_is_no_answer_in_time() {
    let server = Server::playing(|_, _, stream| std::mem::forget(stream));
    let start = Instant::now();
    let error = failure(&server.client().with_deadline(SHORT)).await;
    assert!(matches!(error, Error::NoAnswer { after: SHORT, .. }), "{error:?}");
    assert!(start.elapsed() >= SHORT && start.elapsed() < PATIENCE);
}

#[tokio::test]
async fn a_daemon_that_stalls_in_the_middle_is_no_answer_either() {
    let server = Server::playing(|_, _, mut stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"Version\":").unwrap();
        std::mem::forget(stream);
    });
    let error = failure(&server.client().with_deadline(SHORT)).await;
    assert!(matches!(error, Error::NoAnswer { .. }), "{error:?}");
}

#[tokio::test]
async fn a_stopped_daemon_whose_backlog_is_full_is_no_answer() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.sock");
    let listener = UnixListener::bind(&path).unwrap();
    listen(&listener, Backlog::new(1).unwrap()).unwrap();
    let mut waiting = Vec::new();
    while let Ok(stream) = UnixStream::connect(&path).await {
        waiting.push(stream);
        assert!(waiting.len() < 100, "the backlog never filled");
    }
    let error = failure(&Client::new(&path).with_deadline(SHORT)).await;
    assert!(matches!(error, Error::NoAnswer { .. }), "{error:?}");
}

#[tokio::test]
async fn a_request_that_found_the_backlog_full_goes_through_once_it_drains() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.sock");
    let listener = UnixListener::bind(&path).unwrap();
    listen(&listener, Backlog::new(1).unwrap()).unwrap();
    while UnixStream::connect(&path).await.map(std::mem::forget).is_ok() {}
    let client = Client::new(&path).with_deadline(PATIENCE);
    let request = tokio::spawn(async move { client.status(Peers::Omit).await });
    // Those in the way are never served; the server skips them by their silence.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            stream.set_read_timeout(Some(SHORT)).unwrap();
            let mut start = [0; 3];
            if stream.read_exact(&mut start).is_ok() {
                let _ = stream.write_all(&answer("200 OK", "{\"Version\":\"1\"}"));
                // Not closed before the rest of the request is read: that would reset it.
                let _ = stream.read(&mut [0; 1024]);
                return;
            }
        }
    });
    assert_eq!(request.await.unwrap().unwrap().version, "1");
}

#[tokio::test]
async fn a_daemon_that_goes_away_mid_answer_is_a_lost_connection() {
    for begun in [&b""[..], b"HTTP/1.1 2", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"Version\":"] {
        let error = failure(&Server::answering(begun).client()).await;
        assert!(matches!(error, Error::Disconnected { .. }), "{begun:?}: {error:?}");
        assert!(error.is_down());
    }
}

#[tokio::test]
async fn answers_that_are_none_are_malformed_and_never_quoted() {
    for answered in [
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n".to_vec(),
        b"\x00\xff\xfe\x01garbage\r\n\r\n".to_vec(),
        answer("200 OK", ""),
        answer("200 OK", "<html>canary</html>"),
        answer("200 OK", "{\"Version\":[\"canary\"]}"),
        answer("200 OK", "{\"TailscaleIPs\":[\"canary\"]}"),
        answer("200 OK", "{\"Version\":\"1\"} canary"),
        answer("200 OK", &"[".repeat(100_000)),
        answer("200 OK", "\u{feff}{}"),
    ] {
        let error = failure(&Server::answering(answered).client()).await;
        assert!(matches!(error, Error::Malformed { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn an_answer_without_end_is_cut_off() {
    let server = Server::playing(|_, _, mut stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n{").unwrap();
        while stream.write_all(&[b' '; 1 << 16]).is_ok() {}
    });
    let error = failure(&server.client()).await;
    assert!(matches!(&error, Error::Malformed { detail, .. } if detail.contains("longer than")), "{error:?}");
}

#[tokio::test]
async fn a_ping_that_is_given_up_closes_its_connection() {
    let (sender, closed) = channel();
    let server = Server::playing(move |_, _, mut stream| {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        sender.send(stream.read(&mut [0; 16]).unwrap()).unwrap();
    });
    let to = "100.64.0.9".parse().unwrap();
    let error = server.client().ping(to, PingKind::Disco, SHORT).await.unwrap_err();
    assert!(matches!(error, Error::NoAnswer { after: SHORT, .. }), "{error:?}");
    let read = tokio::task::spawn_blocking(move || closed.recv_timeout(PATIENCE).unwrap());
    assert_eq!(read.await.unwrap(), 0, "the daemon saw the end");
}
