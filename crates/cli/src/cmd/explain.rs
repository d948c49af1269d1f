//! `sallyport explain`: why rules are allowed or refused, and what becomes of one flow.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use sallyport_policy::file::Policy;
use sallyport_policy::{Ceiling, Flow, Mark, Platform, RuleSet, Tree, compile, contains, evaluate};
use sallyport_tailnet::policy_file::Overall;
use serde_json::json;

use super::policy::{policy, say, unsound};
use crate::report::Failure;

mod tailnet;

/// Arguments of `sallyport explain`.
///
/// Exit codes: 0 allowed, 1 refused, 2 usage, 10 cannot be told from what was given.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The ceiling; without one anything may be declared
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// What the workload declares; without it the ceiling's default rules apply
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// One flow: `tcp:203.0.113.9:443`, `udp:[2001:db8::1]:53`, `pkg.example.org:443`, `tcp:{app=db}@{team=x}:8080`
    #[arg(long)]
    flow: Option<String>,
    #[command(flatten)]
    tailnet: tailnet::Args,
    /// One JSON object on stdout
    #[arg(long)]
    json: bool,
}

/// Runs `sallyport explain`.
pub(crate) fn run(args: Args) -> Result<ExitCode, Failure> {
    let told = args.tailnet.ask(args.flow.as_deref())?;
    if args.policy.is_none() && args.rules.is_none() {
        if let Some(told) = &told {
            return answer(&args, &[], true, Some(told));
        }
        return Err(Failure::usage(
            "nothing_to_explain",
            anyhow::anyhow!("neither --policy nor --rules nor --tailnet-policy is given"),
        ));
    }
    let wrong = |flag: &str, wanted: &str| {
        Failure::usage("policy_kinds", anyhow::anyhow!("the file of {flag} is not a {wanted}"))
    };
    let ceiling = match args.policy.as_deref().map(policy).transpose()? {
        None => Ceiling::unrestricted(),
        Some(Policy::Ceiling(ceiling)) => *ceiling,
        Some(Policy::Rules(_)) => return Err(wrong("--policy", "ceiling")),
    };
    let rules = match args.rules.as_deref().map(policy).transpose()? {
        None => RuleSet::default(),
        Some(Policy::Rules(rules)) => *rules,
        Some(Policy::Ceiling(_)) => return Err(wrong("--rules", "rule set")),
    };
    let decision = contains(&ceiling, &rules);
    let mut trees = vec![decision.explain()];
    let mut allowed = decision.is_allowed();
    if let Some(flow) = &args.flow {
        let flow: &Flow =
            &flow.parse().map_err(|error| Failure::usage("policy_flow", anyhow::anyhow!("{error}")))?;
        let path = args.rules.clone().or(args.policy.clone()).unwrap_or_default();
        let program =
            compile(&ceiling, &rules, &Platform::standard()).map_err(|mistakes| unsound(&path, &mistakes))?;
        let verdict = evaluate(&program, flow);
        allowed &= verdict.is_allowed();
        trees.push(verdict.explain(&ceiling, &rules, flow));
    }
    answer(&args, &trees, allowed, told.as_ref())
}

/// Prints what was found; a packet needs both, the rules' and the tailnet's consent.
fn answer(
    args: &Args,
    trees: &[Tree],
    allowed: bool,
    told: Option<&tailnet::Told>,
) -> Result<ExitCode, Failure> {
    let mut out = anstream::stdout().lock();
    let overall = told.map_or(Overall::Allowed, tailnet::Told::overall);
    if args.json {
        let mut object = json!({ "allowed": allowed && overall == Overall::Allowed, "because": trees });
        if let Some(told) = told {
            object["tailnet"] = told.json();
        }
        say(&mut out, &object.to_string())?;
    } else {
        for tree in trees {
            print(&mut out, tree, "", "")?;
        }
        if let Some(told) = told {
            told.print(&mut out)?;
        }
    }
    Ok(match overall {
        _ if !allowed => ExitCode::from(1),
        Overall::Allowed => ExitCode::SUCCESS,
        Overall::Refused => ExitCode::from(1),
        Overall::Indeterminate => ExitCode::from(10),
    })
}

/// A tree, each level drawn under its parent.
fn print(out: &mut impl Write, tree: &Tree, head: &str, indent: &str) -> Result<(), Failure> {
    let mark = match tree.mark {
        Mark::Allowed => "allowed: ",
        Mark::Refused => "refused: ",
        Mark::Note => "",
    };
    say(out, &format!("{head}{mark}{}", tree.text))?;
    for (i, child) in tree.because.iter().enumerate() {
        let (branch, below) =
            if i + 1 == tree.because.len() { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        print(out, child, &format!("{indent}{branch}"), &format!("{indent}{below}"))?;
    }
    Ok(())
}
