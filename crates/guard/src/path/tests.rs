//! Paths on the loopback: proxies that behave, and proxies that do not.

use std::future::Future;

use tokio::net::TcpListener;

use super::*;

async fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port of the loopback");
    let address = listener.local_addr().expect("its address");
    (listener, address)
}

/// A proxy that takes one connection and does what the test says.
async fn proxy<F: Future<Output = ()> + Send + 'static>(
    serve: impl FnOnce(TcpStream) -> F + Send + 'static,
) -> SocketAddr {
    let (listener, address) = listener().await;
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.expect("a client");
        serve(stream).await;
    });
    address
}

fn target() -> SocketAddr {
    "203.0.113.9:80".parse().expect("an address")
}

#[tokio::test]
async fn a_route_that_leads_past_the_tailnet_is_refused_before_a_packet_is_sent() {
    let (listener, address) = listener().await;
    let path = Path::Tailnet(vec!["100.64.0.1".parse().expect("an address")]);
    let error = path.connect(address).await.expect_err("the loopback is not the tailnet");
    assert!(matches!(error, PathError::Bypass { .. }), "{error:?}");
    let accepted = tokio::time::timeout(std::time::Duration::from_millis(50), listener.accept()).await;
    assert!(accepted.is_err(), "a connection was made all the same");
}

#[tokio::test]
async fn a_route_into_the_tailnet_is_taken() {
    let (_listener, address) = listener().await;
    let path = Path::Tailnet(vec!["127.0.0.1".parse().expect("an address")]);
    path.connect(address).await.expect("connected");
}

#[tokio::test]
async fn socks5_is_asked_for_the_address_and_carries_the_bytes() {
    let proxy = proxy(|mut client| async move {
        let mut greeting = [0; 3];
        client.read_exact(&mut greeting).await.expect("a greeting");
        client.write_all(&[5, 0]).await.expect("chosen");
        let mut request = [0; 10];
        client.read_exact(&mut request).await.expect("a request");
        assert_eq!(request, [5, 1, 0, 1, 203, 0, 113, 9, 0, 80]);
        client.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await.expect("granted");
        client.write_all(b"hello").await.expect("bytes of the target");
    })
    .await;
    let mut stream = Path::Socks5(proxy).connect(target()).await.expect("connected");
    let mut bytes = [0; 5];
    stream.read_exact(&mut bytes).await.expect("the target's bytes");
    assert_eq!(&bytes, b"hello");
}

#[tokio::test]
async fn a_socks5_refusal_says_why() {
    let proxy = proxy(|mut client| async move {
        let mut request = [0; 13];
        client.write_all(&[5, 0]).await.expect("chosen");
        client.read_exact(&mut request).await.expect("greeting and request");
        client.write_all(&[5, 4, 0, 1, 0, 0, 0, 0, 0, 0]).await.expect("refused");
    })
    .await;
    let error = Path::Socks5(proxy).connect(target()).await.expect_err("refused");
    assert!(error.to_string().contains("host unreachable"), "{error}");
}

#[tokio::test]
async fn something_else_on_the_proxys_port_is_named_as_that() {
    let speaks_http = proxy(|mut client| async move {
        client.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.expect("written");
    })
    .await;
    let error = Path::Socks5(speaks_http).connect(target()).await.expect_err("no SOCKS5");
    assert!(matches!(error, PathError::Proxy { .. }), "{error:?}");
    let speaks_ssh = proxy(|mut client| async move {
        client.write_all(b"SSH-2.0-OpenSSH\r\n\r\n").await.expect("written");
    })
    .await;
    let error = Path::HttpProxy(speaks_ssh).connect(target()).await.expect_err("no HTTP");
    assert!(matches!(error, PathError::Proxy { .. }), "{error:?}");
}

#[tokio::test]
async fn an_http_proxy_leaves_the_targets_first_bytes_alone() {
    let proxy = proxy(|mut client| async move {
        client.write_all(b"HTTP/1.1 200 OK\r\n\r\nhello").await.expect("written");
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).await.expect("the request");
        assert!(rest.starts_with(b"CONNECT 203.0.113.9:80 HTTP/1.1\r\n"));
    })
    .await;
    let mut stream = Path::HttpProxy(proxy).connect(target()).await.expect("connected");
    let mut bytes = [0; 5];
    stream.read_exact(&mut bytes).await.expect("the target's bytes");
    assert_eq!(&bytes, b"hello");
}

#[tokio::test]
async fn an_http_proxys_refusal_carries_tailscaleds_words() {
    let proxy = proxy(|mut client| async move {
        let head = "HTTP/1.1 500 Internal Server Error\r\nTailscale-Connect-Error: no route\r\n\r\n";
        client.write_all(head.as_bytes()).await.expect("written");
    })
    .await;
    let error = Path::HttpProxy(proxy).connect(target()).await.expect_err("refused");
    assert!(error.to_string().ends_with("no route"), "{error}");
}
