//! What a tailnet's own policy file says of a flow: beside our rules, the tailnet decides too.

use std::io::Write;
use std::path::{Path, PathBuf};

use sallyport_tailnet::policy_file::{
    self, Answer, Destination, Overall, Policy, Source, Tag, Verdict, World,
};
use serde_json::{Value, json};

use crate::cmd::policy::say;
use crate::report::Failure;

/// The part of the command line that asks a tailnet policy file.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub(super) struct Args {
    /// A tailnet policy file (HuJSON): may the tag of --as reach the flow's host and port?
    #[arg(long, value_name = "FILE", requires = "tag")]
    tailnet_policy: Option<PathBuf>,
    /// As whom, such as tag:worker
    #[arg(long = "as", value_name = "TAG", requires = "tailnet_policy")]
    tag: Option<String>,
}

/// The tailnet's word on one flow.
pub(super) struct Told {
    question: String,
    answer: Answer,
}

impl Args {
    /// Asks it.
    pub(super) fn ask(&self, flow: Option<&str>) -> Result<Option<Told>, Failure> {
        let (Some(file), Some(tag)) = (&self.tailnet_policy, &self.tag) else { return Ok(None) };
        let flow = flow.ok_or_else(|| {
            Failure::usage("nothing_to_explain", anyhow::anyhow!("--tailnet-policy needs a --flow to judge"))
        })?;
        let policy = read(file)?;
        let source: Tag =
            tag.parse().map_err(|error| Failure::usage("tailnet_tag", anyhow::Error::new(error)))?;
        let destination = destination(flow)?;
        let question = format!("{tag} to {destination}");
        let answer =
            policy_file::may_reach(&policy, &World::unknown(), &Source::tagged(source), &destination);
        Ok(Some(Told { question, answer }))
    }
}

impl Told {
    /// The verdict without its reasons.
    pub(super) fn overall(&self) -> Overall {
        self.answer.overall()
    }

    /// For programs.
    pub(super) fn json(&self) -> Value {
        json!({ "question": self.question, "verdict": self.overall(), "answer": self.answer })
    }

    /// For people.
    pub(super) fn print(&self, out: &mut impl Write) -> Result<(), Failure> {
        let word = |overall: Overall| match overall {
            Overall::Allowed => "allowed",
            Overall::Refused => "refused",
            Overall::Indeterminate => "cannot be told",
        };
        say(out, &format!("{}: the tailnet's policy, {}", word(self.overall()), self.question))?;
        for (family, verdict) in self.answer.families() {
            let why = match verdict {
                Verdict::Allowed { rule, .. } => format!("by {rule}"),
                Verdict::Refused { why } => why.to_string(),
                Verdict::Indeterminate { why, .. } => {
                    why.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
                }
            };
            say(out, &format!("   {}: {family}: {why}", word(verdict.overall())))?;
        }
        Ok(())
    }
}

fn read(file: &Path) -> Result<Policy, Failure> {
    let shown = file.display();
    let bytes = std::fs::read(file).map_err(|error| {
        Failure::usage("tailnet_policy", anyhow::Error::new(error).context(format!("read {shown}")))
    })?;
    Policy::parse_bytes(&bytes)
        .map_err(|mistakes| Failure::usage("tailnet_policy", anyhow::anyhow!("{shown}: {mistakes}")))
}

/// A flow as `explain` takes it, `tcp:HOST:PORT` or `HOST:PORT`, in the tailnet's words: `HOST:PORT/PROTOCOL`.
fn destination(flow: &str) -> Result<Destination, Failure> {
    let words = match flow.split_once(':') {
        Some((protocol @ ("tcp" | "udp" | "sctp"), rest)) => format!("{rest}/{protocol}"),
        _ => flow.to_owned(),
    };
    words.parse().map_err(|error| Failure::usage("tailnet_flow", anyhow::Error::new(error)))
}
