//! The one reporter: what failed, its causes, what to do next, and the exit code.

use std::io::Write;
use std::process::ExitCode;

/// A failed verb: exit code (docs/exit-codes.md), stable reason word, the error with its causes, and advice.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The process's exit code.
    pub(crate) code: u8,
    /// A stable word for programs.
    pub(crate) reason: &'static str,
    /// What failed, with its chain of causes.
    pub(crate) error: anyhow::Error,
    /// What to do next.
    pub(crate) advice: Option<String>,
}

impl Failure {
    /// Exit code 1: refused, or failed for a reason that has no code of its own.
    pub(crate) fn general(reason: &'static str, error: impl Into<anyhow::Error>) -> Self {
        Self { code: 1, reason, error: error.into(), advice: None }
    }

    /// Exit code 2: usage or configuration.
    pub(crate) fn usage(reason: &'static str, error: impl Into<anyhow::Error>) -> Self {
        Self { code: 2, reason, error: error.into(), advice: None }
    }

    /// The same failure with a sentence on what to do next.
    pub(crate) fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }
}

/// Prints the failure on stderr and returns its exit code. A reader that went away is no failure.
pub(crate) fn failure(failure: &Failure) -> ExitCode {
    let broken_pipe = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<std::io::Error>().is_some_and(|io| io.kind() == std::io::ErrorKind::BrokenPipe)
    };
    if failure.error.chain().any(broken_pipe) {
        return ExitCode::SUCCESS;
    }
    let mut stderr = anstream::stderr().lock();
    // Nothing is left to tell when stderr itself is gone.
    let _ = writeln!(stderr, "error: {:#}", failure.error);
    if let Some(advice) = &failure.advice {
        let _ = writeln!(stderr, "  try: {advice}");
    }
    let _ = writeln!(stderr, "  reason: {}", failure.reason);
    ExitCode::from(failure.code)
}
