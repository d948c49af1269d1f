//! Children in a namespace that die with us. The one module with `unsafe`: code between fork and exec.

use std::fs::File;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};
use std::sync::{Arc, Condvar, Mutex, PoisonError, mpsc};

use nix::sys::signal::Signal;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use tokio::sync::watch;

use crate::netns::Namespace;

/// A child that could not be started.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// The program could not be executed, or its namespace not be entered.
    #[error("cannot start {program} in namespace {label}")]
    Exec {
        /// The program.
        program: String,
        /// The namespace, or `-`.
        label: String,
        /// Why.
        source: io::Error,
    },
    /// The thread that starts children is gone.
    #[error("cannot start {program}: the spawning thread is gone")]
    Gone {
        /// The program.
        program: String,
    },
}

type Job = Box<dyn FnOnce() + Send>;

/// Starts children from one thread that lives as long as the process: the kernel's parent-death signal
/// (`PR_SET_PDEATHSIG`) is sent when the *thread* that forked a child ends, and must not come early.
///
/// Dropping it kills the children and waits until they are gone.
#[derive(Debug)]
pub struct Spawner {
    jobs: mpsc::Sender<Job>,
    children: Mutex<Vec<Process>>,
}

impl Spawner {
    /// Starts the thread.
    ///
    /// # Errors
    /// Where no thread can be started.
    pub fn start() -> io::Result<Self> {
        let (jobs, inbox) = mpsc::channel::<Job>();
        std::thread::Builder::new().name("spawner".into()).spawn(move || {
            for job in inbox {
                job();
            }
        })?;
        Ok(Self { jobs, children: Mutex::default() })
    }

    /// Starts `command` in `namespace`, in a session of its own (no terminal, no signals meant for us), to be killed
    /// when this `Spawner` or the process ends.
    ///
    /// # Errors
    /// [`SpawnError::Exec`] with the program and the namespace.
    pub fn spawn(&self, mut command: Command, namespace: &Arc<Namespace>) -> Result<Process, SpawnError> {
        let program = command.get_program().to_string_lossy().into_owned();
        let label = namespace.label().to_string();
        enter_before_exec(&mut command, Arc::clone(namespace));
        let (answer, spawned) = mpsc::sync_channel(1);
        let job = Box::new(move || {
            let child = command.spawn().map(|child| child.id());
            drop(answer.send(child));
        });
        let gone = || SpawnError::Gone { program: program.clone() };
        self.jobs.send(job).map_err(|_| gone())?;
        let child = spawned.recv().map_err(|_| gone())?;
        let child = child
            .and_then(|pid| Process::watch(pid, &program))
            .map_err(|source| SpawnError::Exec { program, label, source })?;
        let mut children = self.children.lock().unwrap_or_else(PoisonError::into_inner);
        children.retain(|child| child.status().is_none());
        children.push(child.clone());
        Ok(child)
    }
}

impl Drop for Spawner {
    fn drop(&mut self) {
        let children = std::mem::take(self.children.get_mut().unwrap_or_else(PoisonError::into_inner));
        for child in &children {
            // The only failure is that it has changed its user to one whom we may not kill; then the kernel still does.
            let _ = child.signal(Signal::SIGKILL);
        }
        for child in &children {
            let _ = child.wait_blocking();
        }
    }
}

/// Makes the child enter `namespace`, lead a session of its own, and die with its parent thread.
fn enter_before_exec(command: &mut Command, namespace: Arc<Namespace>) {
    let parent = Pid::this();
    let prepare = move || -> io::Result<()> {
        nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
        if Pid::parent() != parent {
            // The parent died before the signal was asked for.
            return Err(io::ErrorKind::NotFound.into());
        }
        nix::unistd::setsid()?;
        namespace.enter_raw()?;
        Ok(())
    };
    // SAFETY: the closure runs in the forked child of a process with threads, so it may only make system calls:
    // prctl, getppid, setsid, setns and unshare on descriptors that are already open. It allocates nothing and takes
    // no lock; `io::Error` from an errno or a kind is a plain value; the `Arc` was cloned before the fork and is
    // dropped in the parent only (exec or `_exit` ends the child without running destructors).
    // JUSTIFICATION: a child must be inside before its first instruction; std has no safe way to say so.
    unsafe {
        command.pre_exec(prepare);
    }
}

/// A running or ended child. It is reaped by a thread of its own; signals never reach a recycled process id.
#[derive(Debug, Clone)]
pub struct Process {
    pid: u32,
    shared: Arc<Shared>,
    ended: watch::Receiver<Option<ExitStatus>>,
}

#[derive(Debug, Default)]
struct Shared {
    status: Mutex<Option<ExitStatus>>,
    changed: Condvar,
}

impl Process {
    fn watch(pid: u32, program: &str) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let (tell, ended) = watch::channel(None);
        let name = format!("wait-{program}").rsplit('/').next().unwrap_or("wait").chars().take(15).collect();
        let waiter = Arc::clone(&shared);
        std::thread::Builder::new().name(name).stack_size(64 * 1024).spawn(move || {
            let status = reap(pid, &waiter);
            // Nobody may be listening any more.
            let _ = tell.send(Some(status));
        })?;
        Ok(Self { pid, shared, ended })
    }

    /// Its process id; meaningful to others only while [`Process::status`] is `None`.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// How it ended; `None` while it runs.
    #[must_use]
    pub fn status(&self) -> Option<ExitStatus> {
        *self.shared.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a signal. Nothing happens to one that has ended.
    ///
    /// # Errors
    /// Where the kernel refuses, such as `EPERM`.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        // Held while sending: the child is reaped under the same lock, so the id cannot be somebody else's.
        let status = self.shared.status.lock().unwrap_or_else(PoisonError::into_inner);
        if status.is_some() {
            return Ok(());
        }
        nix::sys::signal::kill(self.nix_pid(), signal).map_err(Into::into)
    }

    /// Waits for its end. Dropping the future does no harm.
    pub async fn wait(&self) -> ExitStatus {
        let mut ended = self.ended.clone();
        let unknown = ExitStatus::from_raw(0);
        ended.wait_for(Option::is_some).await.ok().and_then(|status| *status).unwrap_or(unknown)
    }

    /// Waits for its end, blocking the thread.
    #[must_use]
    pub fn wait_blocking(&self) -> ExitStatus {
        let mut status = self.shared.status.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(status) = *status {
                return status;
            }
            status = self.shared.changed.wait(status).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn nix_pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.pid).expect("the kernel's process ids are positive ints"))
    }
}

/// Waits until `pid` has ended, then reaps it under the lock.
fn reap(pid: u32, shared: &Shared) -> ExitStatus {
    let pid = Pid::from_raw(i32::try_from(pid).expect("the kernel's process ids are positive ints"));
    // Look without reaping, so that the id stays taken until the lock is held.
    while let Err(nix::errno::Errno::EINTR) =
        waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT)
    {}
    let mut status = shared.status.lock().unwrap_or_else(PoisonError::into_inner);
    let ended = match nix::sys::wait::waitpid(pid, None) {
        Ok(WaitStatus::Exited(_, code)) => ExitStatus::from_raw((code & 0xff) << 8),
        Ok(WaitStatus::Signaled(_, signal, dumped)) => {
            ExitStatus::from_raw(signal as i32 | if dumped { 0x80 } else { 0 })
        }
        // Cannot be: it is our child, it has ended, and nobody else reaps it.
        Ok(_) | Err(_) => ExitStatus::from_raw(0xff << 8),
    };
    *status = Some(ended);
    shared.changed.notify_all();
    ended
}

/// Opens a child's log for appending, for use as its standard output and error.
///
/// # Errors
/// As [`File::open`].
pub fn log_file(path: &std::path::Path) -> io::Result<File> {
    File::options().create(true).append(true).open(path)
}

#[cfg(test)]
mod tests;
