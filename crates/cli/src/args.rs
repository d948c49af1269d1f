//! What was typed: the command line as clap sees it. What it means is in `cmd`.

use std::ffi::OsString;
use std::path::Path;

use clap::{Parser, Subcommand};

use crate::cmd;

/// Egress control for workloads on a tailnet.
#[derive(Debug, Parser)]
#[command(name = "sallyport", version, propagate_version = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Why rules are allowed or refused, and what becomes of one flow
    Explain(cmd::explain::Args),
    /// Put this machine's (or allocation's) traffic behind its exit node, then exit
    Guard(cmd::guard::Args),
    /// A whole tailnet on this machine: try postures, break things, watch what leaks
    #[command(subcommand)]
    Lab(cmd::lab::Command),
    /// Check a policy file, or tell exactly what changes between two
    #[command(subcommand)]
    Policy(cmd::policy::Command),
}

/// Inserts the verb `guard` when the binary is called as `egress-guard`, the ancestor's name.
pub(crate) fn with_alias(args: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut args: Vec<OsString> = args.collect();
    let called_as = args.first().and_then(|arg0| Path::new(arg0).file_name());
    if called_as.is_some_and(|name| name == "egress-guard") {
        args.insert(1, "guard".into());
    }
    args
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn egress_guard_means_sallyport_guard() {
        let typed = ["/usr/local/bin/egress-guard", "--json"].map(OsString::from);
        assert_eq!(with_alias(typed.into_iter())[1], "guard");
        let typed = ["sallyport", "lab"].map(OsString::from);
        assert_eq!(with_alias(typed.into_iter())[1], "lab");
    }
}
