//! `sallyport lab capture`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use sallyport_lab::wire::Request;

use super::{Named, ask, failure};
use crate::report::Failure;

/// Arguments of `sallyport lab capture`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  sallyport lab capture --seconds 5 --output uplink.pcap && tcpdump -nr uplink.pcap"
)]
pub(crate) struct Args {
    #[command(flatten)]
    named: Named,
    /// For how long; Ctrl-C ends it earlier
    #[arg(long, value_name = "N", default_value_t = 10)]
    seconds: u64,
    /// The file (pcap), `-` for standard output at the end; by default one in the lab's folder, which `down` removes
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Runs `sallyport lab capture`: every frame from the worker's uplink, as the leak counter sees it.
pub(super) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let to_stdout = args.output.as_deref() == Some(Path::new("-"));
    let file = match &args.output {
        Some(file) if !to_stdout => std::path::absolute(file).map_err(failure)?,
        _ => {
            let folder = args.named.find()?.path().join("captures");
            std::fs::create_dir_all(&folder).map_err(failure)?;
            folder.join(format!("{}.pcap", std::process::id()))
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failure)?;
    ask(&args.named, &Request::Record { file: file.clone() })?;
    runtime.block_on(async {
        tokio::select! {
            // Either way it ends here.
            _ = tokio::signal::ctrl_c() => {}
            () = tokio::time::sleep(Duration::from_secs(args.seconds)) => {}
        }
    });
    let recorded = ask(&args.named, &Request::StopRecording)?;
    if to_stdout {
        let copied =
            std::fs::File::open(&file).and_then(|mut from| std::io::copy(&mut from, &mut std::io::stdout()));
        std::fs::remove_file(&file).map_err(failure)?;
        copied.map_err(failure)?;
        writeln!(anstream::stderr(), "{} frames", recorded["frames"]).map_err(failure)?;
        return Ok(ExitCode::SUCCESS);
    }
    writeln!(anstream::stdout(), "{} frames in {}", recorded["frames"], file.display()).map_err(failure)?;
    Ok(ExitCode::SUCCESS)
}
