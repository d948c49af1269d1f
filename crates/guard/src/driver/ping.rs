//! Pinging an exit node until it answers. A disco ping needs no WireGuard session; the first ones are lost as long as
//! the other node has not yet heard of this one, so new ones go out while old ones are still waited for.

use std::net::IpAddr;
use std::time::Duration;

use sallyport_tailnet::{Client, PingKind, StableId};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::machine::Event;

/// Between pings at first.
const OFTEN: Duration = Duration::from_millis(100);
/// Between pings after [`AT_FIRST`].
const LATER: Duration = Duration::from_millis(300);
/// How long pings go out often.
const AT_FIRST: Duration = Duration::from_secs(2);
/// How long one ping is waited for; longer than any path's round trip.
const DEADLINE: Duration = Duration::from_millis(1500);
/// Most pings under way: as many as go out within [`DEADLINE`], so that there is always one on its way when the other
/// node hears of this one. With 8, nothing was sent between 0.8 and 1.5 s.
const MAX_UNDER_WAY: usize = 16;

/// Pings until an answer comes, and tells of that.
pub(super) async fn until_answered(
    client: Client,
    id: StableId,
    address: IpAddr,
    events: mpsc::Sender<Event>,
) {
    let start = Instant::now();
    let mut pings = JoinSet::new();
    loop {
        if pings.len() < MAX_UNDER_WAY {
            let client = client.clone();
            pings.spawn(async move { client.ping(address, PingKind::Disco, DEADLINE).await });
        }
        let pause = sleep(if start.elapsed() < AT_FIRST { OFTEN } else { LATER });
        tokio::pin!(pause);
        loop {
            tokio::select! {
                () = &mut pause => break,
                Some(answer) = pings.join_next() => {
                    let Ok(Ok(result)) = answer else { continue };
                    let Ok(round_trip) = result.answered() else { continue };
                    let via = if result.endpoint.is_empty() {
                        format!("DERP({})", result.derp_region_code)
                    } else {
                        result.endpoint.clone()
                    };
                    let _ = events.send(Event::Ponged { id, round_trip, via }).await;
                    return;
                }
            }
        }
    }
}
