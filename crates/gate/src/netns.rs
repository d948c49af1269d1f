//! A network namespace without a name, held by file descriptors: it is gone when the last holder is.
//!
//! `setns` is per thread, so whoever wants to act inside borrows a thread: [`Namespace::run`] for one closure,
//! [`Resident`] for a runtime that stays.

use std::fmt;
use std::fs::File;
use std::future::Future;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

/// What went wrong with a namespace; each names it by its label.
#[derive(Debug, thiserror::Error)]
pub enum NetnsError {
    /// The kernel refused to make one: usually a missing privilege.
    #[error("cannot make namespace {label}: {step}")]
    Create {
        /// The namespace.
        label: String,
        /// The call that failed.
        step: &'static str,
        /// The kernel's answer.
        source: Errno,
    },
    /// The caller's own preparation of the new mount namespace failed.
    #[error("cannot prepare the mounts of namespace {label}")]
    Mounts {
        /// The namespace.
        label: String,
        /// What the preparation returned.
        source: io::Error,
    },
    /// A namespace file could not be opened.
    #[error("cannot open namespace file {path}")]
    Open {
        /// The file, such as `/proc/42/ns/net`.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// A thread could not move into the namespace.
    #[error("cannot enter namespace {label}")]
    Enter {
        /// The namespace.
        label: String,
        /// The kernel's answer.
        source: Errno,
    },
    /// No thread could be started.
    #[error("cannot start a thread for namespace {label}")]
    Thread {
        /// The namespace.
        label: String,
        /// Why.
        source: io::Error,
    },
    /// The namespace's resident thread has ended, or the work panicked.
    #[error("the thread of namespace {label} is gone")]
    Gone {
        /// The namespace.
        label: String,
    },
}

/// Identifies a network namespace while someone holds it: the inode of its file in nsfs. The kernel may use a number
/// again after the namespace is gone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NetnsId(u64);

impl NetnsId {
    /// The namespace that a process lives in; `None` where it is gone or not ours to look at.
    #[must_use]
    pub fn of_process(pid: u32) -> Option<Self> {
        std::fs::metadata(format!("/proc/{pid}/ns/net")).ok().map(|file| Self(file.ino()))
    }

    /// The namespace of the calling thread; `None` without `/proc`.
    #[must_use]
    pub fn of_this_thread() -> Option<Self> {
        std::fs::metadata("/proc/thread-self/ns/net").ok().map(|file| Self(file.ino()))
    }
}

impl fmt::Debug for NetnsId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "net:[{}]", self.0)
    }
}

impl fmt::Display for NetnsId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A network namespace, with the mount and UTS namespaces that were made along with it.
#[derive(Debug)]
pub struct Namespace {
    label: Arc<str>,
    id: NetnsId,
    net: OwnedFd,
    mounts: Option<OwnedFd>,
    uts: Option<OwnedFd>,
}

type Preparation<'a> = Box<dyn FnOnce() -> io::Result<()> + Send + 'a>;

/// What a new [`Namespace`] is to have beside its network.
#[must_use]
pub struct Builder<'a> {
    label: &'a str,
    hostname: Option<&'a str>,
    prepare: Option<Preparation<'a>>,
}

impl<'a> Builder<'a> {
    /// Gives it a host name of its own.
    pub fn hostname(mut self, hostname: &'a str) -> Self {
        self.hostname = Some(hostname);
        self
    }

    /// Gives it a mount namespace of its own, in which `prepare` runs once. Mounts made there are seen nowhere else;
    /// what the machine mounts or unmounts later is still seen inside.
    pub fn mounts(mut self, prepare: impl FnOnce() -> io::Result<()> + Send + 'a) -> Self {
        self.prepare = Some(Box::new(prepare));
        self
    }

    /// Makes the namespace, its loopback interface still down.
    ///
    /// # Errors
    /// [`NetnsError::Create`] without `CAP_SYS_ADMIN`, [`NetnsError::Mounts`] where the preparation failed.
    pub fn create(self) -> Result<Namespace, NetnsError> {
        let label: Arc<str> = self.label.into();
        let thread_label = Arc::clone(&label);
        let name = label.to_string();
        std::thread::scope(|scope| {
            let make = move || make(&thread_label, self.hostname, self.prepare);
            std::thread::Builder::new()
                .name("netns-make".into())
                .spawn_scoped(scope, make)
                .map_err(|source| NetnsError::Thread { label: name.clone(), source })?
                .join()
                .map_err(|_| NetnsError::Gone { label: name.clone() })?
        })
    }
}

/// Runs on a thread that is thrown away afterwards: it ends inside the namespace that it made.
fn make(
    label: &Arc<str>,
    hostname: Option<&str>,
    prepare: Option<Preparation<'_>>,
) -> Result<Namespace, NetnsError> {
    let fail = |step| move |source| NetnsError::Create { label: label.to_string(), step, source };
    let mut flags = CloneFlags::CLONE_NEWNET;
    if prepare.is_some() {
        flags |= CloneFlags::CLONE_NEWNS;
    }
    if hostname.is_some() {
        flags |= CloneFlags::CLONE_NEWUTS;
    }
    unshare(flags).map_err(fail("unshare"))?;
    if let Some(hostname) = hostname {
        nix::unistd::sethostname(hostname).map_err(fail("sethostname"))?;
    }
    let private_mounts = prepare.is_some();
    if let Some(prepare) = prepare {
        // Slave, not private: a private copy would keep file systems busy that the machine has unmounted.
        let slave = MsFlags::MS_SLAVE | MsFlags::MS_REC;
        mount(None::<&str>, "/", None::<&str>, slave, None::<&str>).map_err(fail("mount --make-rslave /"))?;
        prepare().map_err(|source| NetnsError::Mounts { label: label.to_string(), source })?;
    }
    Namespace::hold(label, "/proc/thread-self/ns".as_ref(), private_mounts, hostname.is_some())
}

impl Namespace {
    /// Starts the making of a namespace; `label` appears in errors and logs only.
    pub fn builder(label: &str) -> Builder<'_> {
        Builder { label, hostname: None, prepare: None }
    }

    /// Opens a namespace that another process holds, by its files (`/proc/PID/fd/N` or `/proc/PID/ns/…`).
    ///
    /// # Errors
    /// [`NetnsError::Open`] with the path.
    pub fn open(
        label: &str,
        net: &Path,
        mounts: Option<&Path>,
        uts: Option<&Path>,
    ) -> Result<Self, NetnsError> {
        let (net, id) = open_file(net)?;
        let optional = |path: Option<&Path>| path.map(|path| open_file(path).map(|(fd, _)| fd)).transpose();
        Ok(Self { label: label.into(), id, net, mounts: optional(mounts)?, uts: optional(uts)? })
    }

    fn hold(label: &Arc<str>, dir: &Path, mounts: bool, uts: bool) -> Result<Self, NetnsError> {
        let (net, id) = open_file(&dir.join("net"))?;
        let part = |wanted: bool, name: &str| {
            wanted.then(|| open_file(&dir.join(name)).map(|(fd, _)| fd)).transpose()
        };
        Ok(Self { label: Arc::clone(label), id, net, mounts: part(mounts, "mnt")?, uts: part(uts, "uts")? })
    }

    /// What it is called in errors and logs.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Which network namespace this is.
    #[must_use]
    pub fn id(&self) -> NetnsId {
        self.id
    }

    /// The descriptor of the network namespace, for netlink requests that name a namespace.
    #[must_use]
    pub fn net_fd(&self) -> BorrowedFd<'_> {
        self.net.as_fd()
    }

    /// The numbers of its descriptors in this process: network, mounts, host name. `/proc/PID/fd/N` lets others in.
    #[must_use]
    pub fn raw_fds(&self) -> (RawFd, Option<RawFd>, Option<RawFd>) {
        let raw = |fd: &Option<OwnedFd>| fd.as_ref().map(AsRawFd::as_raw_fd);
        (self.net.as_raw_fd(), raw(&self.mounts), raw(&self.uts))
    }

    /// Moves the calling thread inside, for good. Only for a thread that ends there, or a process about to `exec`.
    ///
    /// With a mount namespace the working folder becomes `/`.
    ///
    /// # Errors
    /// [`NetnsError::Enter`], such as without `CAP_SYS_ADMIN`.
    pub fn enter(&self) -> Result<(), NetnsError> {
        self.enter_raw().map_err(|source| NetnsError::Enter { label: self.label.to_string(), source })
    }

    /// As [`Namespace::enter`], by system calls alone: no allocation, so that a forked child may use it.
    pub(crate) fn enter_raw(&self) -> Result<(), Errno> {
        setns(&self.net, CloneFlags::CLONE_NEWNET)?;
        if let Some(uts) = &self.uts {
            setns(uts, CloneFlags::CLONE_NEWUTS)?;
        }
        if let Some(mounts) = &self.mounts {
            // A thread shares root and working folder with its process; the kernel moves only who has them alone.
            unshare(CloneFlags::CLONE_FS)?;
            setns(mounts, CloneFlags::CLONE_NEWNS)?;
        }
        Ok(())
    }

    /// Runs a closure on a new thread inside, and waits for it. A panic of the closure goes on in the caller.
    ///
    /// # Errors
    /// [`NetnsError::Enter`] and [`NetnsError::Thread`].
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, NetnsError> {
        std::thread::scope(|scope| {
            let inside = move || self.enter().map(|()| work());
            let thread = std::thread::Builder::new()
                .name("netns-run".into())
                .spawn_scoped(scope, inside)
                .map_err(|source| NetnsError::Thread { label: self.label.to_string(), source })?;
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

fn open_file(path: &Path) -> Result<(OwnedFd, NetnsId), NetnsError> {
    let fail = |source| NetnsError::Open { path: path.display().to_string(), source };
    let file = File::open(path).map_err(fail)?;
    let id = NetnsId(file.metadata().map_err(fail)?.ino());
    Ok((file.into(), id))
}

type Job = Box<dyn FnOnce() -> Pin<Box<dyn Future<Output = ()>>> + Send>;

/// A thread that lives in a namespace, with a current-thread runtime: sockets opened by its futures belong there.
///
/// Dropping it ends the thread, and with it every future that it still runs.
#[derive(Debug)]
pub struct Resident {
    namespace: Arc<Namespace>,
    jobs: Option<mpsc::UnboundedSender<Job>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Resident {
    /// Starts the thread.
    ///
    /// # Errors
    /// [`NetnsError::Thread`] and [`NetnsError::Enter`].
    pub fn start(namespace: Arc<Namespace>) -> Result<Self, NetnsError> {
        let label = namespace.label().to_string();
        let fail = |source| NetnsError::Thread { label: label.clone(), source };
        let (jobs, inbox) = mpsc::unbounded_channel();
        let (report, started) = std::sync::mpsc::sync_channel(1);
        let home = Arc::clone(&namespace);
        let thread = std::thread::Builder::new()
            .name(format!("in-{}", namespace.label()).chars().take(15).collect())
            .spawn(move || live(&home, inbox, &report))
            .map_err(fail)?;
        match started.recv() {
            Ok(Ok(())) => Ok(Self { namespace, jobs: Some(jobs), thread: Some(thread) }),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(NetnsError::Gone { label }),
        }
    }

    /// The namespace it lives in.
    #[must_use]
    pub fn namespace(&self) -> &Arc<Namespace> {
        &self.namespace
    }

    /// Runs a future inside and returns its output. The future is made inside too, so it need not be `Send`.
    /// Dropping the returned future does not stop the work.
    ///
    /// # Errors
    /// [`NetnsError::Gone`] where the thread has ended or the work panicked.
    pub async fn run<F, Fut, T>(&self, work: F) -> Result<T, NetnsError>
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = T> + 'static,
        T: Send + 'static,
    {
        let (answer, wait) = oneshot::channel();
        let job: Job = Box::new(move || {
            let work = work();
            Box::pin(async move {
                // The caller may have stopped listening.
                let _ = answer.send(work.await);
            })
        });
        let gone = || NetnsError::Gone { label: self.namespace.label().to_string() };
        self.jobs.as_ref().and_then(|jobs| jobs.send(job).ok()).ok_or_else(gone)?;
        wait.await.map_err(|_| gone())
    }
}

impl Drop for Resident {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was seen by whoever waited for its answer.
            let _ = thread.join();
        }
    }
}

fn live(
    home: &Namespace,
    mut inbox: mpsc::UnboundedReceiver<Job>,
    report: &std::sync::mpsc::SyncSender<Result<(), NetnsError>>,
) {
    let label = || home.label().to_string();
    let runtime = home.enter().and_then(|()| {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|source| NetnsError::Thread { label: label(), source })
    });
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return drop(report.send(Err(error))),
    };
    drop(report.send(Ok(())));
    let tasks = tokio::task::LocalSet::new();
    tasks.block_on(&runtime, async {
        while let Some(job) = inbox.recv().await {
            tokio::task::spawn_local(job());
        }
    });
}

#[cfg(test)]
mod tests;
