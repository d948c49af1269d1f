//! tailscaled's LocalAPI over its socket, and exit-node resolution.
