//! The process that is the lab: it holds the namespaces, is the parent of the daemons, and answers the command line
//! until it is told to end.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::rc::Rc;
use std::sync::Arc;

use anyhow::{Context, Result};
use sallyport_gate::NetnsId;
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Mutex, Notify};
use tokio::task::LocalSet;
use tracing::{info, warn};

use crate::control::KeyOrder;
use crate::lab::{Lab, Plan, Progress};
use crate::registry::Claim;
use crate::registry::sweep::{self, Belongs};
use crate::wire::{Failed, Reply, Request, Spent};

/// How a lab that was up came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Somebody asked for it.
    Down,
    /// A signal came.
    Signal,
}

/// Raises a lab, tells `up` when it is there, and holds it until it is to end. When this returns, nothing of it is left.
///
/// `reaper` is as for [`Lab::raise`].
///
/// # Errors
/// Where the lab could not be raised; it is taken down then, too.
pub async fn run(
    claim: Claim,
    plan: Plan,
    reaper: Command,
    progress: Progress<'_>,
    up: impl FnOnce(Value),
) -> Result<Ended> {
    let mut signals = Signals::listen()?;
    let claim = Arc::new(claim);
    let raising = Lab::raise(Arc::clone(&claim), plan, reaper, progress);
    let raised = tokio::select! {
        raised = raising => raised,
        () = signals.any() => Err(anyhow::anyhow!("ended by a signal while it came up")),
    };
    let ended = match raised {
        Ok(lab) => {
            let lab = Rc::new(Mutex::new(lab));
            let ended = hold(&lab, &mut signals, up).await;
            let lab = Rc::into_inner(lab).expect("every task that used it has ended").into_inner();
            let namespaces: Vec<NetnsId> = lab.namespaces().map(|namespace| namespace.id()).collect();
            // Before the namespaces are let go: their numbers are theirs until then.
            sweep::kill(&Belongs::marked_or_in(claim.id(), namespaces));
            lab.lower().await;
            ended
        }
        Err(error) => {
            // What was raised is dropped by now; its children may be a moment behind.
            sweep::kill(&Belongs::marked(claim.id()));
            Err(error)
        }
    };
    Arc::into_inner(claim).expect("the lab that shared it is gone").release()?;
    ended
}

struct Signals([Signal; 3]);

impl Signals {
    fn listen() -> Result<Self> {
        let of = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self([of(SignalKind::interrupt())?, of(SignalKind::terminate())?, of(SignalKind::hangup())?]))
    }

    async fn any(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}

/// Answers requests until one asks for the end, or a signal comes.
async fn hold(lab: &Rc<Mutex<Lab>>, signals: &mut Signals, up: impl FnOnce(Value)) -> Result<Ended> {
    let socket = lab.lock().await.claim().dir().socket();
    let listener =
        UnixListener::bind(&socket).with_context(|| format!("cannot listen on {}", socket.display()))?;
    std::fs::set_permissions(&socket, Permissions::from_mode(0o600))?;
    up(serde_json::to_value(lab.lock().await.status().await?)?);

    let down = Rc::new(Notify::new());
    let tasks = LocalSet::new();
    let serving = tasks.run_until(async {
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        tokio::task::spawn_local(converse(stream, Rc::clone(lab), Rc::clone(&down)));
                    }
                    Err(error) => warn!(%error, "cannot accept a connection"),
                },
                () = down.notified() => return Ended::Down,
                () = signals.any() => return Ended::Signal,
            }
        }
    });
    let ended = serving.await;
    info!(?ended, "the lab ends");
    // With it, whatever was being answered.
    drop(tasks);
    Ok(ended)
}

/// One connection: one request, one answer.
async fn converse(stream: UnixStream, lab: Rc<Mutex<Lab>>, down: Rc<Notify>) {
    let (read, mut write) = stream.into_split();
    let mut line = String::new();
    if BufReader::new(read).read_line(&mut line).await.is_err() {
        return;
    }
    let reply = match serde_json::from_str::<Request>(&line) {
        Ok(Request::Down) => {
            down.notify_one();
            Reply::Done(Value::Null)
        }
        Ok(request) => {
            info!(?request, "asked");
            match answer(&lab, request).await {
                Ok(value) => Reply::Done(value),
                Err(error) => {
                    warn!("refused: {error:#}");
                    Reply::Failed(Failed::from(&error))
                }
            }
        }
        Err(error) => Reply::Failed(Failed { chain: vec![format!("not understood: {error}")] }),
    };
    let mut line = serde_json::to_vec(&reply).expect("a reply has string keys only");
    line.push(b'\n');
    // Who has gone does not want to know.
    let _ = write.write_all(&line).await;
}

async fn answer(lab: &Mutex<Lab>, request: Request) -> Result<Value> {
    let mut lab = lab.lock().await;
    Ok(match request {
        Request::Status => serde_json::to_value(lab.status().await?)?,
        Request::Fault(order) => json!({ "done": lab.apply(&order).await? }),
        Request::Undo(order) => json!({ "undone": lab.undo(&order).await? }),
        Request::UndoAll => json!({ "undone": lab.undo_all().await? }),
        Request::Key { order, spent } => key(&lab, order, spent).await?,
        Request::Record { file } => {
            lab.capture.record(file.clone()).with_context(|| format!("cannot make {}", file.display()))?;
            Value::Null
        }
        Request::StopRecording => serde_json::to_value(lab.capture.stop_recording()?)?,
        Request::Reset => {
            lab.reset().await?;
            Value::Null
        }
        Request::Down => Value::Null,
    })
}

async fn key(lab: &Lab, mut order: KeyOrder, spent: Option<Spent>) -> Result<Value> {
    if spent == Some(Spent::Expired) {
        order.lifetime_seconds = 1;
    }
    let key = lab.mint(&order).await?;
    match spent {
        // A second is the shortest life that a control server gives; it has to pass.
        Some(Spent::Expired) => tokio::time::sleep(std::time::Duration::from_millis(1100)).await,
        Some(Spent::Revoked) => lab.revoke(&key.id).await?,
        None => {}
    }
    Ok(json!({ "id": key.id, "key": key.secret.expose_secret(), "tags": order.tags, "uses": order.uses }))
}
