//! A moment on the wall clock as every instrument of the lab reports it: whole microseconds since 1970, in UTC.
//!
//! Microseconds, because a JSON reader that knows only doubles still holds them exactly.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::sys::time::TimeSpec;
use serde::{Deserialize, Serialize};

/// Microseconds since the Unix epoch. All namespaces of one machine share the clock, so stamps may be compared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Stamp(u64);

impl Stamp {
    /// The present moment.
    #[must_use]
    pub fn now() -> Self {
        Self::from(SystemTime::now())
    }

    /// A stamp that came over the wire or from a file.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Microseconds since the Unix epoch.
    #[must_use]
    pub const fn micros(self) -> u64 {
        self.0
    }

    /// How long after `earlier` this is; zero where the clock went back.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl From<SystemTime> for Stamp {
    fn from(time: SystemTime) -> Self {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
    }
}

impl From<TimeSpec> for Stamp {
    /// A kernel receive time (`SO_TIMESTAMPNS`, real-time clock); one before 1970 is zero.
    fn from(time: TimeSpec) -> Self {
        let seconds = u64::try_from(time.tv_sec()).unwrap_or_default();
        let nanoseconds = u64::try_from(time.tv_nsec()).unwrap_or_default();
        Self(seconds.saturating_mul(1_000_000).saturating_add(nanoseconds / 1_000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_times_and_system_times_are_on_one_scale() {
        let system = Stamp::from(UNIX_EPOCH + Duration::new(1_700_000_000, 123_456_789));
        assert_eq!(system, Stamp::from(TimeSpec::new(1_700_000_000, 123_456_789)));
        assert_eq!(system.micros(), 1_700_000_000_123_456);
    }

    #[test]
    fn a_clock_that_went_back_is_no_time_at_all() {
        assert_eq!(Stamp::from_micros(5).since(Stamp::from_micros(9)), Duration::ZERO);
        assert_eq!(Stamp::from(TimeSpec::new(-1, -1)), Stamp::default());
    }
}
