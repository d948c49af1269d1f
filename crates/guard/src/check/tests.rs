//! Services that answer well, badly, late and for ever.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::sleep;

use super::*;

/// A service on the loopback that answers every request with these bytes.
async fn service(answer: impl Into<Vec<u8>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port of the loopback");
    let address = listener.local_addr().expect("its address");
    let answer = answer.into();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.expect("a client");
            let answer = answer.clone();
            tokio::spawn(async move {
                let mut request = [0; 1024];
                let _ = stream.read(&mut request).await;
                if answer.is_empty() {
                    sleep(Duration::from_secs(3600)).await;
                }
                let _ = stream.write_all(&answer).await;
            });
        }
    });
    format!("http://{address}/")
}

fn http(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

fn ok(body: &str) -> String {
    http("200 OK", body)
}

async fn ask_ipv4(services: &[&str]) -> Learned {
    let environment =
        crate::env::Environment::new([("TS_EGRESS_CHECK_URLS".to_owned(), services.join(",").into())], None);
    let config = crate::env::Config::from_environment(environment).expect("good URLs");
    let question = Question {
        services: config.check_urls,
        resolvers: Resolvers::System,
        path: Path::Normal,
        need: PerFamily { ipv4: Need::Needed, ipv6: Need::Welcome },
    };
    ask_family(&question, Family::Ipv4).await
}

fn seen(learned: &Learned) -> Option<String> {
    learned.seen.as_ref().map(|sighting| sighting.address.to_string())
}

#[tokio::test]
async fn the_second_service_is_asked_when_the_first_has_had_enough_of_us() {
    let busy = service(http("429 Too Many Requests", "slow down")).await;
    let good = service(ok("203.0.113.10\r\n")).await;
    let learned = ask_ipv4(&[&busy, &good]).await;
    assert_eq!(seen(&learned).as_deref(), Some("203.0.113.10"));
    assert_eq!(learned.seen.expect("a sighting").service, good);
    assert_eq!(learned.misses.len(), 1);
    assert!(learned.misses[0].message.contains("429"), "{:?}", learned.misses);
}

#[tokio::test]
async fn the_first_good_service_is_the_only_one_asked() {
    let good = service(ok("203.0.113.10")).await;
    let other = service(ok("198.51.100.1")).await;
    let learned = ask_ipv4(&[&good, &other]).await;
    assert_eq!(seen(&learned).as_deref(), Some("203.0.113.10"));
    assert!(learned.misses.is_empty());
}

#[tokio::test]
async fn whatever_is_not_one_address_is_a_miss_that_says_why() {
    let endless = format!("HTTP/1.1 200 OK\r\n\r\n{}", "9".repeat(1_000_000));
    let redirect =
        "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n".to_owned();
    let cases = [
        (ok("<html>203.0.113.10</html>"), "not an address"),
        (ok(r#"{"ip":"203.0.113.10"}"#), "not an address"),
        (ok("203.0.113.10\n203.0.113.11\n"), "more than one"),
        (ok(""), "empty"),
        (ok("2001:db8::1"), "other address family"),
        (redirect, "redirects are not followed"),
        (endless, "longer than 4096"),
        (http("403 Forbidden", "203.0.113.10"), "403"),
        ("SSH-2.0-OpenSSH_9.2\r\n".to_owned(), "request failed"),
        (format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n203.0.113.10", "y".repeat(100_000)), "request failed"),
    ];
    for (answer, expected) in cases {
        let url = service(answer).await;
        let learned = ask_ipv4(&[&url]).await;
        assert_eq!(seen(&learned), None, "{expected}");
        assert!(learned.misses[0].message.contains(expected), "{expected}: {:?}", learned.misses);
    }
}

#[tokio::test]
async fn a_mapped_answer_is_read_as_the_ipv4_address_it_holds() {
    let url = service(ok("::ffff:203.0.113.10")).await;
    assert_eq!(seen(&ask_ipv4(&[&url]).await).as_deref(), Some("203.0.113.10"));
}

#[tokio::test(start_paused = true)]
async fn a_service_that_stalls_uses_up_its_own_deadline_and_no_more() {
    let stalled = service("").await;
    let good = service(ok("203.0.113.10")).await;
    let start = Instant::now();
    let learned = ask_ipv4(&[&stalled, &good]).await;
    assert_eq!(seen(&learned).as_deref(), Some("203.0.113.10"));
    let took = start.elapsed();
    assert!(took >= DEADLINE && took < 2 * DEADLINE, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_stops_half_way_is_not_waited_for_longer_than_the_deadline() {
    let half = service("HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n203.0").await;
    let learned = ask_ipv4(&[&half]).await;
    assert_eq!(seen(&learned), None);
}

#[tokio::test]
async fn nothing_is_sent_when_the_route_leads_past_the_tailnet() {
    let url = service(ok("203.0.113.10")).await;
    let environment = crate::env::Environment::new([("TS_EGRESS_CHECK_URLS".to_owned(), url.into())], None);
    let config = crate::env::Config::from_environment(environment).expect("a good URL");
    let question = Question {
        services: config.check_urls,
        resolvers: Resolvers::System,
        path: Path::Tailnet(vec!["100.64.0.1".parse().expect("an address")]),
        need: PerFamily::default(),
    };
    let learned = ask_family(&question, Family::Ipv4).await;
    assert!(learned.seen.is_none() && learned.misses[0].bypass, "{learned:?}");
}
