//! What tests of this crate need from the machine, and how they say that it is missing.

/// Whether namespaces can be made here. Says so loudly where not, and fails where `CI` is set.
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
pub(crate) fn missing() -> bool {
    let Err(error) = crate::Namespace::builder("probe").create() else {
        return false;
    };
    assert!(std::env::var_os("CI").is_none(), "this test needs namespaces: {error:?}");
    eprintln!("SKIPPED, needs root: {error:?}");
    true
}
