//! The bus: lines cut anywhere, streams that end, daemons that come back.

use std::io::Write;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sallyport_tailnet::{BackendState, BusEvent, Client, Error, Mask};
use tokio::time::timeout;

use crate::server::{PATIENCE, STREAM, Server, answer, chunk};

async fn next(bus: &mut sallyport_tailnet::Bus) -> BusEvent {
    timeout(PATIENCE, bus.next()).await.unwrap()
}

#[test]
fn the_guards_mask_is_the_sum_of_what_it_needs() {
    assert_eq!(Mask::GUARD.bits(), 61574);
    assert_eq!((Mask::NONE | Mask::INITIAL_STATE | Mask::INITIAL_PREFS).bits(), 6);
}

#[tokio::test]
async fn lines_arrive_whole_however_they_were_cut() {
    let server = Server::playing(|_, _, mut stream| {
        stream.write_all(STREAM).unwrap();
        for part in ["{\"Sta", "te\":2}\n{\"State\":5}\n\n  \n{\"Sta", "te\"", ":6}", "\n", "{\"cut\":"] {
            stream.write_all(&chunk(part)).unwrap();
        }
        stream.write_all(b"0\r\n\r\n").unwrap();
    });
    let mut watch = server.client().watch(Mask::GUARD).await.unwrap();
    assert!(server.request().starts_with("GET /localapi/v0/watch-ipn-bus?mask=61574 "));
    for state in [BackendState::NeedsLogin, BackendState::Starting, BackendState::Running] {
        assert_eq!(watch.next().await.unwrap().unwrap().state, Some(state));
    }
    assert_eq!(watch.next().await.unwrap(), None, "half a line is none");
}

#[tokio::test]
async fn a_broken_stream_a_line_that_is_none_and_a_rejected_mask_are_errors() {
    let broken = Server::playing(|_, _, mut stream| {
        stream.write_all(STREAM).unwrap();
        stream.write_all(&chunk("{}\n")).unwrap();
    });
    let mut watch = broken.client().watch(Mask::NONE).await.unwrap();
    assert!(watch.next().await.unwrap().is_some());
    assert!(matches!(watch.next().await, Err(Error::Disconnected { .. })));

    let garbage = Server::answering([STREAM, &chunk("canary\n")].concat());
    let error = garbage.client().watch(Mask::NONE).await.unwrap().next().await.unwrap_err();
    assert!(matches!(error, Error::Malformed { .. }), "{error:?}");
    assert!(!error.to_string().contains("canary"), "{error}");

    let rejected = Server::answering(answer("400 Bad Request", "bad mask\n"));
    let error = rejected.client().watch(Mask::NONE).await.unwrap_err();
    assert!(matches!(&error, Error::Http { status: 400, message, .. } if message == "bad mask"), "{error:?}");
}

#[tokio::test]
async fn a_bus_that_is_not_answered_is_no_answer_in_time() {
    let server = Server::playing(|_, _, stream| std::mem::forget(stream));
    let error =
        server.client().with_deadline(Duration::from_millis(200)).watch(Mask::NONE).await.unwrap_err();
    assert!(matches!(error, Error::NoAnswer { .. }), "{error:?}");
}

#[tokio::test]
async fn a_bus_comes_back_and_says_so() {
    let server = Server::playing(|number, _, mut stream| {
        let _ = stream.write_all(&[STREAM, &chunk(&format!("{{\"Version\":\"{number}\"}}\n"))].concat());
    });
    let mut bus = server.client().bus(Mask::GUARD);
    assert!(matches!(next(&mut bus).await, BusEvent::Connected));
    for number in 0..3 {
        let BusEvent::Notify(notify) = next(&mut bus).await else { panic!("a notification") };
        assert_eq!(notify.version, number.to_string());
        assert!(matches!(next(&mut bus).await, BusEvent::Disconnected(Error::Disconnected { .. })));
        assert!(matches!(next(&mut bus).await, BusEvent::Reconnected));
    }
}

#[tokio::test]
async fn a_bus_waits_for_a_daemon_that_is_not_there_yet() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.sock");
    let mut bus = Client::new(&path).bus(Mask::GUARD);
    assert!(matches!(next(&mut bus).await, BusEvent::Disconnected(Error::SocketMissing { .. })));
    drop(UnixListener::bind(&path).unwrap());
    while !matches!(next(&mut bus).await, BusEvent::Disconnected(Error::Refused { .. })) {}
    std::fs::remove_file(&path).unwrap();
    let listener = UnixListener::bind(&path).unwrap();
    let _server = Server::on(dir, listener, |_, _, mut stream| {
        let _ = stream.write_all(&[STREAM, &chunk("{\"State\":6}\n")].concat());
        std::mem::forget(stream);
    });
    loop {
        match next(&mut bus).await {
            BusEvent::Connected => break,
            BusEvent::Disconnected(_) => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(
        matches!(next(&mut bus).await, BusEvent::Notify(notify) if notify.state == Some(BackendState::Running))
    );
}

#[tokio::test]
async fn a_daemon_that_hangs_up_before_its_first_word_is_asked_ever_less_often() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    let server = Server::playing(move |_, _, mut stream| {
        counter.fetch_add(1, Ordering::SeqCst);
        let _ = stream.write_all(STREAM);
    });
    let mut bus = server.client().bus(Mask::GUARD);
    let _ = timeout(Duration::from_millis(1200), async {
        loop {
            bus.next().await;
        }
    })
    .await;
    // 0, 50, 150, 350, 750 ms.
    let asked = asked.load(Ordering::SeqCst);
    assert!((2..=5).contains(&asked), "{asked} attempts");
}

#[tokio::test]
async fn nothing_is_lost_by_a_reader_that_is_cancelled_all_the_time() {
    const LINES: usize = 50;
    let server = Server::playing(|_, _, mut stream| {
        stream.write_all(STREAM).unwrap();
        for number in 0..LINES {
            let line = format!("{{\"Version\":\"{number}\"}}\n");
            let (start, end) = line.split_at(7);
            for part in [start, end] {
                stream.write_all(&chunk(part)).unwrap();
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        std::mem::forget(stream);
    });
    let mut bus = server.client().bus(Mask::GUARD);
    let mut seen = Vec::new();
    let mut cancelled = 0;
    timeout(PATIENCE, async {
        while seen.len() < LINES {
            match timeout(Duration::from_micros(300), bus.next()).await {
                Ok(BusEvent::Notify(notify)) => seen.push(notify.version),
                Ok(BusEvent::Connected) => {}
                Ok(other) => panic!("{other:?}"),
                Err(_) => cancelled += 1,
            }
        }
    })
    .await
    .unwrap();
    assert_eq!(seen, (0..LINES).map(|number| number.to_string()).collect::<Vec<_>>());
    assert!(cancelled > LINES, "only {cancelled} cancellations");
}
