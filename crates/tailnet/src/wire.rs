//! tailscaled's JSON as it is: field for field, unknown fields ignored, absent and null ones read as zero.

pub mod misc;
pub mod notify;
pub mod ping;
pub mod prefs;
pub mod status;

use serde::{Deserialize, Deserializer};

/// Reads a field that Go may leave out or write as `null`: both mean its zero value.
pub(crate) fn zero_if_null<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// Reads a value that Go writes as `""` (a zero `netip.Addr`), as `null`, or not at all when there is none.
pub(crate) fn none_if_empty<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: std::str::FromStr,
    T::Err: std::fmt::Display,
{
    match Option::<String>::deserialize(deserializer)? {
        None => Ok(None),
        Some(text) if text.is_empty() => Ok(None),
        Some(text) => text.parse().map(Some).map_err(serde::de::Error::custom),
    }
}

#[cfg(test)]
mod tests;
