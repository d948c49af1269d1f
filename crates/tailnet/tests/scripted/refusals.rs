//! The four shapes of a refusal, each at the endpoint that uses it, and what the client itself sends.

use std::io::Write;
use std::time::Duration;

use sallyport_tailnet::{Error, MaskedPrefs, Peers, PingKind, Prefs, StableId, StartOptions, Wait};

use crate::server::{Server, answer};

#[tokio::test]
async fn a_request_names_the_one_host_and_carries_no_origin() {
    let server = Server::answering(answer("200 OK", "{}"));
    server.client().status(Peers::Omit).await.unwrap();
    let request = server.request().to_ascii_lowercase();
    assert!(request.starts_with("get /localapi/v0/status?peers=false http/1.1\r\n"), "{request}");
    assert!(request.contains("\r\nhost: local-tailscaled.sock\r\n"), "{request}");
    assert!(!request.contains("origin") && !request.contains("referer"), "{request}");
}

#[tokio::test]
async fn a_change_is_sent_with_its_masks() {
    let server = Server::answering(answer("200 OK", r#"{"ExitNodeID":"nA"}"#));
    let prefs =
        server.client().patch_prefs(&MaskedPrefs::new().exit_node_id(&StableId::new("nA"))).await.unwrap();
    assert_eq!(prefs.exit_node_id, StableId::new("nA"));
    let request = server.request();
    assert!(request.starts_with("PATCH /localapi/v0/prefs HTTP/1.1\r\n"), "{request}");
    assert!(request.ends_with(r#"{"ExitNodeID":"nA","ExitNodeIDSet":true}"#), "{request}");
}

#[tokio::test]
async fn refused_preferences_come_with_the_daemons_words() {
    let text = "Cannot advertise an exit node and use an exit node at the same time.";
    let server = Server::answering(answer("400 Bad Request", &format!("{{\"Error\":\"{text}\"}}\n")));
    let error = server.client().patch_prefs(&MaskedPrefs::new()).await.unwrap_err();
    assert!(matches!(&error, Error::PrefsRefused { message } if message == text), "{error:?}");
}

#[tokio::test]
async fn a_check_that_refuses_with_a_success_is_a_refusal() {
    let server = Server::answering(answer("200 OK", "{\"Error\":\"no such tag\"}\n"));
    let error = server.client().check_prefs(&Prefs::default()).await.unwrap_err();
    assert!(matches!(&error, Error::PrefsRefused { message } if message == "no such tag"), "{error:?}");
    for fine in ["{}", "{\"Error\":\"\"}"] {
        Server::answering(answer("200 OK", fine)).client().check_prefs(&Prefs::default()).await.unwrap();
    }
}

#[tokio::test]
async fn text_and_json_refusals_are_told_apart_by_status() {
    for (status, body, reason) in [
        ("403 Forbidden", "prefs write access denied\n", "access-denied"),
        ("412 Precondition Failed", "etag mismatch", "precondition-failed"),
        ("500 Internal Server Error", "{\"error\":\"no preferred DERP, try again later\"}", "http-error"),
        ("400 Bad Request", "want POST", "http-error"),
        ("404 Not Found", "404 page not found", "http-error"),
        ("503 Service Unavailable", "{\"error\":\"backend not ready\"}", "backend-not-ready"),
    ] {
        let server = Server::answering(answer(status, body));
        let error = server.client().patch_prefs(&MaskedPrefs::new()).await.unwrap_err();
        assert_eq!(error.reason(), reason, "{status} {body}");
        let error = server.client().suggest_exit_node().await.unwrap_err();
        assert_eq!(error.reason(), reason, "{status} {body}");
    }
}

#[tokio::test]
async fn nobody_behind_an_address_is_an_answer_and_an_unknown_endpoint_is_not() {
    let nobody = Server::answering(answer("404 Not Found", "no match for IP:port\n"));
    assert_eq!(nobody.client().whois("100.64.0.9").await.unwrap(), None);
    assert!(nobody.request().starts_with("GET /localapi/v0/whois?addr=100.64.0.9 "));
    let unknown = Server::answering(answer("404 Not Found", "404 page not found\n"));
    assert!(matches!(unknown.client().whois("a b&c").await, Err(Error::Http { status: 404, .. })));
    assert!(unknown.request().starts_with("GET /localapi/v0/whois?addr=a%20b%26c "));
}

#[tokio::test]
async fn a_wait_for_the_backend_is_judged_by_its_body_not_by_its_early_status() {
    let server = Server::playing(|_, _, mut stream| {
        // tailscaled sends the head before it waits (`ipn/ipnserver/server.go:serveServerStatus`).
        stream.write_all(b"HTTP/1.1 503 Service Unavailable\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
        std::thread::sleep(Duration::from_millis(50));
        let _ = stream.write_all(b"3\r\n{}\n\r\n0\r\n\r\n");
    });
    server.client().server_status(Wait::UntilReady).await.unwrap();
    assert!(server.request().starts_with("GET /server-status?wait=true "));
}

#[tokio::test]
async fn a_backend_that_is_not_ready_is_an_error_and_a_build_without_the_question_is_not() {
    let not_ready =
        Server::answering(answer("503 Service Unavailable", "{\"error\":\"backend not ready\"}\n"));
    assert!(matches!(not_ready.client().server_status(Wait::No).await, Err(Error::NotReady)));
    Server::answering(answer("404 Not Found", "not built in"))
        .client()
        .server_status(Wait::No)
        .await
        .unwrap();
    Server::answering(answer("200 OK", "{}\n")).client().server_status(Wait::No).await.unwrap();
}

#[tokio::test]
async fn a_key_that_the_daemon_echoes_is_in_no_error() {
    let server = Server::answering(answer("500 Internal Server Error", "cannot use tskey-auth-canary here"));
    let options = StartOptions { update_prefs: None, auth_key: Some("tskey-auth-canary".into()) };
    let error = server.client().start(&options).await.unwrap_err();
    assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
    assert!(error.to_string().contains("cannot use [auth key] here"), "{error}");
    assert!(server.request().ends_with("{\"AuthKey\":\"tskey-auth-canary\"}"), "the daemon got it");
}

#[tokio::test]
async fn a_ping_without_an_answer_is_a_result() {
    let server = Server::answering(answer("200 OK", "{\"IP\":\"100.64.0.9\",\"Err\":\"no matching peer\"}"));
    let to = "fd7a:115c:a1e0::9".parse().unwrap();
    let result = server.client().ping(to, PingKind::Tsmp, Duration::from_secs(5)).await.unwrap();
    assert_eq!(result.answered(), Err("no matching peer"));
    assert!(server.request().starts_with("POST /localapi/v0/ping?ip=fd7a:115c:a1e0::9&type=TSMP "));
}
