//! A daemon that never logged in: every endpoint that answers then, and every refusal that it gives.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use sallyport_tailnet::{
    BackendState, Error, ExitNodeArg, MaskedPrefs, Peers, PingKind, Prefs, ResolveError, StableId,
    StartOptions, Wait, exit_node,
};

use crate::tailscaled::Tailscaled;

#[tokio::test]
async fn a_new_daemon_is_ready_and_needs_a_login() {
    let Some(daemon) = Tailscaled::start().await else { return };
    let client = daemon.client();
    client.server_status(Wait::No).await.unwrap();
    for peers in [Peers::Include, Peers::Omit] {
        let status = client.status(peers).await.unwrap();
        assert_eq!(status.backend_state, BackendState::NeedsLogin);
        assert!(!status.tun && !status.have_node_key && status.peers.is_empty(), "{status:?}");
        assert!(status.version.starts_with("1."), "{}", status.version);
        let found = exit_node::resolve(&status, &ExitNodeArg::Name("exit-a".into()), None);
        assert!(matches!(found, Err(ResolveError::StillStarting { .. })), "{found:?}");
    }
}

#[tokio::test]
async fn preferences_change_where_masked_and_nowhere_else() {
    let Some(daemon) = Tailscaled::start().await else { return };
    let client = daemon.client();
    let before = client.prefs().await.unwrap();
    let change =
        MaskedPrefs::new().hostname("worker").accept_dns(false).advertise_tags(&["tag:worker".into()]);
    let answered = client.patch_prefs(&change).await.unwrap();
    let after = client.prefs().await.unwrap();
    assert_eq!(answered, after);
    let expected = Prefs {
        hostname: "worker".into(),
        accept_dns: false,
        advertise_tags: vec!["tag:worker".into()],
        ..before
    };
    assert_eq!(after, expected);
    assert!(change.against(&after).is_empty(), "a second time is no change");
    assert_eq!(client.patch_prefs(&MaskedPrefs::new()).await.unwrap(), after, "nothing set, nothing changed");
}

#[tokio::test]
async fn pinning_an_exit_node_ends_an_automatic_choice_that_is_not_settled() {
    let Some(daemon) = Tailscaled::start().await else { return };
    let client = daemon.client();
    let auto = client.patch_prefs(&MaskedPrefs::new().auto_exit_node("any")).await.unwrap();
    assert!(auto.auto_exit_node == "any" && auto.exit_node_id.as_str() == "auto:any", "{auto:?}");
    let id = StableId::new("nNobody");
    let pinned = client.patch_prefs(&MaskedPrefs::new().pin_exit_node(&id)).await.unwrap();
    assert_eq!((pinned.exit_node_id, pinned.exit_node_ip, pinned.auto_exit_node), (id, None, String::new()));
    let cleared = client.patch_prefs(&MaskedPrefs::new().pin_exit_node(&StableId::default())).await.unwrap();
    assert!(!cleared.names_exit_node(), "{cleared:?}");
}

#[tokio::test]
async fn an_exit_node_by_address_gives_way_to_a_pin() {
    let Some(daemon) = Tailscaled::start().await else { return };
    let client = daemon.client();
    let address = "100.64.0.9".parse().unwrap();
    let by_address = client.patch_prefs(&MaskedPrefs::new().exit_node_ip(Some(address))).await.unwrap();
    assert_eq!(by_address.exit_node_ip, Some(address));
    let id = StableId::new("nNobody");
    let pinned = client.patch_prefs(&MaskedPrefs::new().pin_exit_node(&id)).await.unwrap();
    assert_eq!((pinned.exit_node_id, pinned.exit_node_ip), (id, None));
}

#[tokio::test]
async fn to_offer_and_to_use_an_exit_at_once_is_refused_by_check_and_by_change() {
    const REFUSAL: &str = "Cannot advertise an exit node and use an exit node at the same time.";
    let Some(daemon) = Tailscaled::start().await else { return };
    let client = daemon.client();
    let everywhere = ["0.0.0.0/0".parse().unwrap(), "::/0".parse().unwrap()];
    let both = Prefs {
        advertise_routes: everywhere.to_vec(),
        exit_node_id: StableId::new("nNobody"),
        ..client.prefs().await.unwrap()
    };
    let refused = client.check_prefs(&both).await.unwrap_err();
    assert!(matches!(&refused, Error::PrefsRefused { message } if message == REFUSAL), "{refused:?}");
    let change = MaskedPrefs::new().pin_exit_node(&StableId::new("nNobody")).advertise_routes(&everywhere);
    let refused = client.patch_prefs(&change).await.unwrap_err();
    assert!(matches!(&refused, Error::PrefsRefused { message } if message == REFUSAL), "{refused:?}");
    assert!(!client.prefs().await.unwrap().names_exit_node(), "a refused change changes nothing");
    client.check_prefs(&client.prefs().await.unwrap()).await.unwrap();
}

#[tokio::test]
async fn a_start_replaces_all_preferences_and_keeps_those_it_does_not_know() {
    let Some(daemon) = Tailscaled::start().await else { return };
    let client = daemon.client();
    let before = client.prefs().await.unwrap();
    let whole = Prefs {
        control_url: "http://127.0.0.1:9".into(),
        want_running: true,
        exit_node_id: StableId::new("nNobody"),
        hostname: "worker".into(),
        ..Prefs::fresh()
    };
    client.start(&StartOptions { update_prefs: Some(whole.clone()), auth_key: None }).await.unwrap();
    let after = client.prefs().await.unwrap();
    assert_eq!(after.control_url, whole.control_url);
    assert_eq!(after.exit_node_id, whole.exit_node_id);
    assert_eq!(after.hostname, "worker");
    for field in ["AutoUpdate", "NoStatefulFiltering"] {
        assert_eq!(after.rest.get(field), before.rest.get(field), "{field}");
    }
    // The control server cannot be reached; the daemon goes on trying and the request does not wait for it.
    client.login_interactive().await.unwrap();
    client.disconnect_control().await.unwrap();
    client.logout().await.unwrap();
    assert_eq!(client.prefs().await.unwrap(), after, "a node without a key has nothing to log out of");
}

#[tokio::test]
async fn what_needs_a_network_map_says_so_without_one() {
    let Some(daemon) = Tailscaled::start().await else { return };
    let client = daemon.client();
    for kind in [PingKind::Disco, PingKind::Tsmp, PingKind::Icmp] {
        let result = client.ping("100.64.0.9".parse().unwrap(), kind, Duration::from_secs(20)).await.unwrap();
        assert!(result.answered().is_err(), "{kind}: {result:?}");
    }
    for nobody in ["100.64.0.9", "100.64.0.9:80", "[fd7a:115c:a1e0::9]:80"] {
        assert_eq!(client.whois(nobody).await.unwrap(), None, "{nobody}");
    }
    let nonsense = client.whois("nonsense").await;
    assert!(matches!(nonsense, Err(Error::Http { status: 400, .. })), "{nonsense:?}");
    let suggested = client.suggest_exit_node().await;
    assert!(matches!(&suggested, Err(Error::Http { status: 500, message, .. }) if message.contains("DERP")));
    assert!(client.derp_map().await.unwrap().regions.is_empty());
    client.check_so_mark_in_use().await.unwrap();
    client.check_ip_forwarding().await.unwrap();
}

#[tokio::test]
async fn a_stopped_process_gives_no_answer_and_answers_again_later() {
    let Some(daemon) = Tailscaled::start().await else { return };
    daemon.signal(Signal::SIGSTOP);
    let hasty = daemon.client().with_deadline(Duration::from_millis(300));
    let start = Instant::now();
    let error = hasty.status(Peers::Omit).await.unwrap_err();
    assert!(matches!(error, Error::NoAnswer { .. }), "{error:?}");
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    daemon.signal(Signal::SIGCONT);
    daemon.client().status(Peers::Omit).await.unwrap();
}
