//! The same question asked over IPv4 and IPv6 side by side, without waiting for an answer that nobody needs.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::address::{Family, PerFamily};

/// Least time that a family nobody needs is waited for after the other has answered. A network without IPv6 often
/// swallows it in silence, and the worker should not wait for that.
const LEAST_GRACE: Duration = Duration::from_millis(250);

/// Whether the outcome of a family has to be waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Need {
    /// Its outcome decides.
    Needed,
    /// It is told if it comes in time.
    #[default]
    Welcome,
}

/// Runs both. Once every needed family is through and some family has succeeded, the other has a grace: as long again
/// twice, and 250 ms at least. `None` is a family that was not waited for.
pub(crate) async fn side_by_side<T>(
    ipv4: impl Future<Output = T>,
    ipv6: impl Future<Output = T>,
    need: PerFamily<Need>,
    succeeded: impl Fn(&T) -> bool,
) -> PerFamily<Option<T>> {
    let start = Instant::now();
    let (mut ipv4, mut ipv6) = (pin!(ipv4), pin!(ipv6));
    let mut outcomes: PerFamily<Option<T>> = PerFamily { ipv4: None, ipv6: None };
    let mut give_up_at = None;
    while outcomes.ipv4.is_none() || outcomes.ipv6.is_none() {
        tokio::select! {
            outcome = &mut ipv4, if outcomes.ipv4.is_none() => outcomes.ipv4 = Some(outcome),
            outcome = &mut ipv6, if outcomes.ipv6.is_none() => outcomes.ipv6 = Some(outcome),
            () = sleep_until(give_up_at.unwrap_or(start)), if give_up_at.is_some() => break,
        }
        let through = |family: Family| outcomes.of(family).is_some() || *need.of(family) == Need::Welcome;
        let any = outcomes.iter().any(|(_, outcome)| outcome.as_ref().is_some_and(&succeeded));
        if give_up_at.is_none() && any && Family::BOTH.into_iter().all(through) {
            let now = Instant::now();
            give_up_at = Some(now + LEAST_GRACE.max(2 * (now - start)));
        }
    }
    outcomes
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    const V6_NEEDED: PerFamily<Need> = PerFamily { ipv4: Need::Welcome, ipv6: Need::Needed };

    async fn after(milliseconds: u64, good: bool) -> bool {
        sleep(Duration::from_millis(milliseconds)).await;
        good
    }

    async fn run(
        ipv4: (u64, bool),
        ipv6: (u64, bool),
        need: PerFamily<Need>,
    ) -> (PerFamily<Option<bool>>, u128) {
        let start = Instant::now();
        let outcomes = side_by_side(after(ipv4.0, ipv4.1), after(ipv6.0, ipv6.1), need, |good| *good).await;
        (outcomes, start.elapsed().as_millis())
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_family_that_nobody_needs_costs_the_grace_alone() {
        let (outcomes, took) = run((20, true), (6000, false), PerFamily::default()).await;
        assert_eq!(outcomes, PerFamily { ipv4: Some(true), ipv6: None });
        assert!((270..280).contains(&took), "{took} ms");
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_path_gets_a_longer_grace() {
        let (outcomes, took) = run((400, true), (1100, true), PerFamily::default()).await;
        assert_eq!(outcomes, PerFamily { ipv4: Some(true), ipv6: Some(true) });
        assert!(took < 1110, "{took} ms");
    }

    #[tokio::test(start_paused = true)]
    async fn a_needed_family_is_waited_for() {
        let (outcomes, took) = run((20, true), (3000, false), V6_NEEDED).await;
        assert_eq!(outcomes, PerFamily { ipv4: Some(true), ipv6: Some(false) });
        assert!(took >= 3000, "{took} ms");
    }

    #[tokio::test(start_paused = true)]
    async fn as_long_as_nothing_has_succeeded_everything_is_waited_for() {
        let (outcomes, took) = run((20, false), (5000, true), PerFamily::default()).await;
        assert_eq!(outcomes, PerFamily { ipv4: Some(false), ipv6: Some(true) });
        assert!(took >= 5000, "{took} ms");
    }
}
