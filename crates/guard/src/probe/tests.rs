//! Targets that answer, refuse and stay silent.

use tokio::net::TcpListener;

use super::*;

fn probe(targets: &[String]) -> Probe {
    let environment = crate::env::Environment::new(
        [("TS_EGRESS_PROBE_TARGETS".to_owned(), targets.join(",").into())],
        None,
    );
    let config = crate::env::Config::from_environment(environment).expect("good targets");
    Probe { targets: config.probe_targets, resolvers: Resolvers::System, path: Path::Normal }
}

async fn listener() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port of the loopback");
    let address = listener.local_addr().expect("its address").to_string();
    (listener, address)
}

/// A port on which nobody listens.
async fn refused() -> String {
    listener().await.1
}

#[tokio::test]
async fn one_target_that_answers_is_enough() {
    let (_listener, good) = listener().await;
    let outcome = cross(&probe(&[refused().await, good.clone()])).await;
    let Some(Crossing::Through { target, .. }) = outcome.ipv4 else { panic!("{outcome:?}") };
    assert_eq!(target.to_string(), good);
    assert_eq!(outcome.ipv6, Some(Crossing::NoTarget));
}

#[tokio::test(start_paused = true)]
async fn a_target_that_comes_up_late_is_met_by_a_later_connection() {
    let late = refused().await;
    let address = late.clone();
    tokio::spawn(async move {
        sleep(Duration::from_secs(3)).await;
        let listener = TcpListener::bind(address).await.expect("the port is still free");
        sleep(Duration::from_secs(60)).await;
        drop(listener);
    });
    assert!(cross_family(&probe(&[late]), Family::Ipv4).await.is_through());
}

#[tokio::test(start_paused = true)]
async fn a_family_that_never_answers_fails_in_time_and_says_why() {
    let start = Instant::now();
    let outcome = cross_family(&probe(&[refused().await]), Family::Ipv4).await;
    let Crossing::Failed { message } = outcome else { panic!("{outcome:?}") };
    assert!(message.contains("refused"), "{message}");
    assert!(start.elapsed() < PATIENCE + AGAIN);
}

#[tokio::test]
async fn nothing_is_sent_when_the_route_leads_past_the_tailnet() {
    let (listener, address) = listener().await;
    let mut probe = probe(&[address]);
    probe.path = Path::Tailnet(vec!["100.64.0.1".parse().expect("an address")]);
    let outcome = cross_family(&probe, Family::Ipv4).await;
    assert!(matches!(outcome, Crossing::Bypass { .. }), "{outcome:?}");
    let accepted = tokio::time::timeout(Duration::from_millis(50), listener.accept()).await;
    assert!(accepted.is_err(), "a connection was made all the same");
}
