//! The bus of a real daemon: what it begins with, what it tells, and how fast its end is known.

use std::time::{Duration, Instant};

use sallyport_tailnet::{BackendState, BusEvent, Error, Mask, MaskedPrefs, Notify};
use tokio::time::timeout;

use crate::tailscaled::{PATIENCE, Tailscaled};

#[tokio::test]
async fn a_watch_begins_with_what_was_asked_for_and_tells_of_changes() {
    let Some(daemon) = Tailscaled::start().await else { return };
    let client = daemon.client();
    let mut watch = client.watch(Mask::GUARD).await.unwrap();
    let told = async {
        let (mut state, mut prefs, mut health, mut status) = (None, None, None, None);
        while state.is_none() || prefs.is_none() || health.is_none() || status.is_none() {
            let notify = watch.next().await.unwrap().unwrap();
            state = state.or(notify.state);
            prefs = prefs.or(notify.prefs);
            health = health.or(notify.health);
            status = status.or(notify.initial_status);
        }
        (state, prefs)
    };
    let (state, prefs) = timeout(PATIENCE, told).await.unwrap();
    assert_eq!(state, Some(BackendState::NeedsLogin));
    assert_eq!(*prefs.unwrap(), client.prefs().await.unwrap());
    client.patch_prefs(&MaskedPrefs::new().hostname("renamed")).await.unwrap();
    let told = async {
        loop {
            if let Some(Notify { prefs: Some(prefs), .. }) = watch.next().await.unwrap()
                && prefs.hostname == "renamed"
            {
                return;
            }
        }
    };
    timeout(PATIENCE, told).await.unwrap();
}

#[tokio::test]
async fn a_mask_that_the_daemon_rejects_is_an_error() {
    let Some(daemon) = Tailscaled::start().await else { return };
    let error = daemon.client().watch(Mask::GUARD | Mask::RATE_LIMIT).await.unwrap_err();
    assert!(matches!(error, Error::Http { status: 400, .. }), "{error:?}");
}

#[tokio::test]
async fn a_killed_daemon_is_known_at_once_and_its_return_is_told() {
    let Some(mut daemon) = Tailscaled::start().await else { return };
    let mut bus = daemon.client().bus(Mask::INITIAL_STATE);
    assert!(matches!(timeout(PATIENCE, bus.next()).await.unwrap(), BusEvent::Connected));
    assert!(matches!(timeout(PATIENCE, bus.next()).await.unwrap(), BusEvent::Notify(_)));
    let killed = Instant::now();
    daemon.kill();
    loop {
        match timeout(PATIENCE, bus.next()).await.unwrap() {
            BusEvent::Disconnected(_) => break,
            BusEvent::Notify(_) => {}
            other => panic!("{other:?}"),
        }
    }
    let known = killed.elapsed();
    assert!(known < Duration::from_secs(2), "known after {known:?}");
    let (mut again, ()) = tokio::join!(
        async {
            loop {
                if let BusEvent::Reconnected = timeout(PATIENCE, bus.next()).await.unwrap() {
                    return bus;
                }
            }
        },
        daemon.restart(),
    );
    let first = timeout(PATIENCE, again.next()).await.unwrap();
    assert!(matches!(&first, BusEvent::Notify(notify) if notify.state.is_some()), "{first:?}");
}
