//! A whole tailnet on one machine.
