//! A server that answers each connection with bytes, and remembers what it was asked.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use sallyport_tailnet::Client;
use tempfile::TempDir;

/// Generous, for a busy machine; nothing waits it out but a failing test.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Server {
    dir: TempDir,
    requests: Receiver<String>,
}

impl Server {
    /// Serves connection after connection, each by `play`, which gets the request and the stream to answer on.
    pub(crate) fn playing(play: impl FnMut(usize, &str, UnixStream) + Send + 'static) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("s.sock")).unwrap();
        Self::on(dir, listener, play)
    }

    pub(crate) fn on(
        dir: TempDir,
        listener: UnixListener,
        mut play: impl FnMut(usize, &str, UnixStream) + Send + 'static,
    ) -> Self {
        let (sender, requests) = channel();
        std::thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                let Ok(mut stream) = stream else { return };
                let request = read_request(&mut stream);
                if sender.send(request.clone()).is_err() {
                    return;
                }
                play(number, &request, stream);
            }
        });
        Self { dir, requests }
    }

    /// Answers every request with the same bytes and closes.
    pub(crate) fn answering(answer: impl Into<Vec<u8>>) -> Self {
        let answer = answer.into();
        Self::playing(move |_, _, mut stream| {
            let _ = stream.write_all(&answer);
        })
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("s.sock")
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(self.socket()).with_deadline(PATIENCE)
    }

    /// The next request, as it was written.
    pub(crate) fn request(&self) -> String {
        self.requests.recv_timeout(PATIENCE).unwrap()
    }
}

/// An answer with a status line, a length and a body.
pub(crate) fn answer(status: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// The head of an answer that never ends.
pub(crate) const STREAM: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

pub(crate) fn chunk(text: &str) -> Vec<u8> {
    format!("{:x}\r\n{text}\r\n", text.len()).into_bytes()
}

fn read_request(stream: &mut UnixStream) -> String {
    let mut request = Vec::new();
    let mut byte = [0];
    while !request.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).unwrap_or(0) == 0 {
            break;
        }
        request.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&request).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    let _ = stream.read_exact(&mut body);
    request.extend_from_slice(&body);
    String::from_utf8_lossy(&request).into_owned()
}
