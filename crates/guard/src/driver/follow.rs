//! Reaching tailscaled and following its bus: from the first try at the socket to the end of the stream.

use std::future::pending;
use std::time::Duration;

use sallyport_tailnet::{Mask, Notify, Watch};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use super::daemon::Daemon;
use crate::machine::{Event, News, Ticket, Unreached};

/// How long the bus may take to answer: tailscaled holds requests back until its backend is there.
const ANSWER: Duration = Duration::from_secs(2);
/// When a socket that is not there is tried again: at first often, since a start waits for it.
const SOON: Duration = Duration::from_millis(10);
/// When later.
const LATER: Duration = Duration::from_millis(100);
/// Until when it is tried often.
const OFTEN: Duration = Duration::from_secs(5);

/// Reaches tailscaled, looks once for this ticket, then passes on what it says until it is gone.
pub(super) async fn follow(daemon: Daemon, ticket: Ticket, events: mpsc::Sender<Event>) {
    let mut watch = reach(&daemon, &events).await;
    let look = daemon.look_and_tell(ticket, &events);
    let listen = listen(&mut watch, &events);
    // The first look and the first news go side by side; the look ends, the news do not.
    let news = async {
        listen.await;
        let _ = events.send(Event::Lost).await;
    };
    tokio::select! {
        () = async { look.await; pending().await } => {}
        () = news => {}
    }
}

/// What is said of the state is read by looks, so nothing of it is asked for at the start.
fn wanted() -> Mask {
    Mask::INITIAL_HEALTH | Mask::PEER_CHANGES | Mask::NO_NET_MAP | Mask::PEER_PATCHES
}

async fn reach(daemon: &Daemon, events: &mpsc::Sender<Event>) -> Watch {
    let start = Instant::now();
    let mut told: Option<Unreached> = None;
    loop {
        let error = match timeout(ANSWER, daemon.client().watch(wanted())).await {
            Ok(Ok(watch)) => return watch,
            Ok(Err(error)) => error,
            Err(_) => sallyport_tailnet::Error::NoAnswer { request: "the bus".to_owned(), after: ANSWER },
        };
        let how = daemon.unreached(&error).unwrap_or_else(|| {
            Unreached::Silent(format!("tailscaled's bus: {}", crate::check::with_causes(&error)))
        });
        if told.as_ref() != Some(&how) {
            let _ = events.send(Event::Unreached(how.clone())).await;
            told = Some(how);
        }
        sleep(if start.elapsed() < OFTEN { SOON } else { LATER }).await;
    }
}

/// Passes on what matters until the stream ends.
async fn listen(watch: &mut Watch, events: &mpsc::Sender<Event>) {
    while let Ok(Some(notify)) = watch.next().await {
        for news in news(notify) {
            if events.send(Event::News(news)).await.is_err() {
                return;
            }
        }
    }
}

fn news(notify: Notify) -> Vec<News> {
    let mut news = Vec::new();
    if let Some(text) = &notify.error_message {
        news.push(News::Error(text.clone()));
    }
    let complaints = notify.health.iter().flat_map(|health| health.warnings.get("login-state"));
    news.extend(complaints.map(|warning| News::Complaint(warning.text.clone())));
    let changed = notify.state.is_some()
        || notify.prefs.is_some()
        || notify.self_change.is_some()
        || notify.login_finished
        || notify.browse_to_url.is_some()
        || notify.touches_peers();
    if changed {
        news.push(News::Changed);
    }
    news
}
