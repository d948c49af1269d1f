//! Posture of a workload: established before it starts.
