//! Kernel settings of a namespace (`net.…`), written from inside it.

use std::path::PathBuf;

use crate::netns::{Namespace, NetnsError};

/// A setting that could not be written.
#[derive(Debug, thiserror::Error)]
pub enum SysctlError {
    /// The namespace could not be entered.
    #[error(transparent)]
    Namespace(#[from] NetnsError),
    /// The kernel refused the value, or has no such setting.
    #[error("cannot set {key} to {value} in namespace {label}")]
    Write {
        /// The namespace.
        label: String,
        /// The setting, with dots.
        key: String,
        /// The value.
        value: String,
        /// Why.
        source: std::io::Error,
    },
}

/// Writes settings in order, such as `("net.ipv4.ip_forward", "1")`. A link name with a dot cannot be addressed.
///
/// # Errors
/// [`SysctlError`] with the first setting that failed; those before it stay written.
pub fn write(namespace: &Namespace, settings: &[(&str, &str)]) -> Result<(), SysctlError> {
    namespace.run(|| {
        for (key, value) in settings {
            // Looked up by the calling thread's namespace, so the plain path is right here.
            let path: PathBuf = ["/proc/sys", &key.replace('.', "/")].iter().collect();
            std::fs::write(path, value).map_err(|source| SysctlError::Write {
                label: namespace.label().to_string(),
                key: (*key).to_string(),
                value: (*value).to_string(),
                source,
            })?;
        }
        Ok(())
    })?
}
