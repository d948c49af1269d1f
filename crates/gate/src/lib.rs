//! Network namespaces, links and counters.
