//! Which labs there are on this machine: a folder each, locked by its supervisor for life.
//!
//! A lab whose lock is free is dead, whatever else the folder says. What a dead lab left is found by its ownership
//! mark, an environment variable with a random value that every process of the lab was started with.

use std::fs::File;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

pub mod record;
pub mod sweep;

use record::Record;

/// The environment variable that marks every process of a lab; its value is the lab's [`LabId`].
pub const MARK: &str = "SALLYPORT_LAB";

/// The environment variable that moves [`Registry::of_machine`] elsewhere.
pub const ROOT_VARIABLE: &str = "SALLYPORT_LAB_ROOT";

/// Where labs are kept when nothing else is said.
pub const ROOT: &str = "/run/sallyport/lab";

/// The name of a lab when none is given.
pub const DEFAULT_NAME: &str = "lab";

/// What went wrong with the registry.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// A name that cannot be a folder's.
    #[error("{name:?} cannot name a lab: expected up to 31 lower-case letters, digits and inner hyphens")]
    Name {
        /// The name.
        name: String,
    },
    /// Another supervisor holds the lab.
    #[error("a lab named {name} is already up")]
    InUse {
        /// The lab.
        name: String,
    },
    /// No lab of that name is up.
    #[error("no lab named {name} is up")]
    Missing {
        /// The lab.
        name: String,
    },
    /// No name was given and it is not clear which is meant.
    #[error("several labs are up: {}", names.join(", "))]
    Ambiguous {
        /// Those that are up.
        names: Vec<String>,
    },
    /// The lab is still coming up, or was when its record was read.
    #[error("the lab {name} is not up yet")]
    Starting {
        /// The lab.
        name: String,
    },
    /// A file or folder of the registry could not be used.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A lab's record could not be read.
    #[error("cannot read the record {}", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
}

impl RegistryError {
    fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io { action, path, source }
    }
}

/// A lab's random identity: the value of its mark.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LabId(String);

impl LabId {
    /// A new one, of 128 bits from the kernel.
    ///
    /// # Errors
    /// Without `/dev/urandom`.
    pub fn random() -> io::Result<Self> {
        let mut bytes = [0u8; 16];
        io::Read::read_exact(&mut File::open("/dev/urandom")?, &mut bytes)?;
        Ok(Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The folder of one lab, and where things are in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabDir {
    name: String,
    path: PathBuf,
}

impl LabDir {
    /// The lab's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The folder itself, 0700.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The supervisor's socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.path.join("supervisor.sock")
    }

    /// Where the supervisor logs.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.path.join("supervisor.log")
    }

    /// The folder of one host.
    #[must_use]
    pub fn host(&self, name: &str) -> PathBuf {
        self.path.join("hosts").join(name)
    }

    /// The control server's folder.
    #[must_use]
    pub fn control(&self) -> PathBuf {
        self.path.join("control")
    }

    /// Where captures are written.
    #[must_use]
    pub fn captures(&self) -> PathBuf {
        self.path.join("captures")
    }

    fn lock_file(&self) -> PathBuf {
        self.path.join("lock")
    }

    fn owner_file(&self) -> PathBuf {
        self.path.join("owner")
    }

    fn record_file(&self) -> PathBuf {
        self.path.join("lab.json")
    }

    /// The lab's record.
    ///
    /// # Errors
    /// [`RegistryError::Starting`] before the first one is written, [`RegistryError::Record`].
    pub fn record(&self) -> Result<Record, RegistryError> {
        let path = self.record_file();
        let text = match std::fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(RegistryError::Starting { name: self.name.clone() });
            }
            text => text.map_err(RegistryError::io("read", &path))?,
        };
        serde_json::from_slice(&text).map_err(|source| RegistryError::Record { path, source })
    }
}

/// A lab's folder with its lock held: whoever has it is the lab.
#[derive(Debug)]
pub struct Claim {
    dir: LabDir,
    id: LabId,
    lock: Flock<File>,
}

impl Claim {
    /// The folder.
    #[must_use]
    pub fn dir(&self) -> &LabDir {
        &self.dir
    }

    /// The lab's mark.
    #[must_use]
    pub fn id(&self) -> &LabId {
        &self.id
    }

    /// Writes the record, atomically.
    ///
    /// # Errors
    /// [`RegistryError::Io`].
    pub fn write(&self, record: &Record) -> Result<(), RegistryError> {
        let text = serde_json::to_vec_pretty(record).expect("a record has string keys only");
        write_atomically(&self.dir.record_file(), &text)
    }

    /// Removes the folder and gives up the lock. The processes are the caller's to end first.
    ///
    /// # Errors
    /// [`RegistryError::Io`].
    pub fn release(self) -> Result<(), RegistryError> {
        remove(&self.dir)?;
        drop(self.lock);
        Ok(())
    }
}

fn write_atomically(path: &Path, text: &[u8]) -> Result<(), RegistryError> {
    let new = path.with_extension("new");
    std::fs::write(&new, text).map_err(RegistryError::io("write", &new))?;
    std::fs::rename(&new, path).map_err(RegistryError::io("replace", path))
}

fn remove(dir: &LabDir) -> Result<(), RegistryError> {
    match std::fs::remove_dir_all(&dir.path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(RegistryError::io("remove", &dir.path)(error));
        }
        Ok(()) | Err(_) => {}
    }
    // The folders above go with the last lab; they stay, and the error with them, while another lab is there.
    for above in dir.path.ancestors().skip(1).take(2) {
        let _ = std::fs::remove_dir(above);
    }
    Ok(())
}

/// All labs of a machine, or of a test.
#[derive(Debug, Clone)]
pub struct Registry {
    root: PathBuf,
}

impl Registry {
    /// The labs of this machine: under [`ROOT`], or where [`ROOT_VARIABLE`] says.
    #[must_use]
    pub fn of_machine() -> Self {
        Self::at(std::env::var_os(ROOT_VARIABLE).map_or_else(|| ROOT.into(), PathBuf::from))
    }

    /// The labs under `root`.
    #[must_use]
    pub fn at(root: PathBuf) -> Self {
        Self { root }
    }

    /// The folder that a lab of this name has, or would have.
    ///
    /// # Errors
    /// [`RegistryError::Name`].
    pub fn dir(&self, name: &str) -> Result<LabDir, RegistryError> {
        let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let fits = !name.is_empty() && name.len() <= 31 && name.bytes().all(inner);
        if !fits || name.starts_with('-') || name.ends_with('-') {
            return Err(RegistryError::Name { name: name.into() });
        }
        Ok(LabDir { name: name.into(), path: self.root.join(name) })
    }

    /// Takes the name for a new lab, and sweeps what a dead lab of that name left.
    ///
    /// # Errors
    /// [`RegistryError::InUse`] where it is up.
    pub fn claim(&self, name: &str) -> Result<Claim, RegistryError> {
        let dir = self.dir(name)?;
        loop {
            let Some(lock) = take_lock(&dir, Missing::Create)? else {
                return Err(RegistryError::InUse { name: name.into() });
            };
            if dir.owner_file().exists() || dir.record_file().exists() {
                sweep_dead(&dir)?;
                drop(lock);
                continue;
            }
            let id = LabId::random().map_err(RegistryError::io("read", "/dev/urandom".as_ref()))?;
            // Before the first process of the lab exists, so that all of them can be found.
            write_atomically(&dir.owner_file(), id.as_str().as_bytes())?;
            return Ok(Claim { dir, id, lock });
        }
    }

    /// The names of all labs that have a folder, dead or alive, sorted.
    ///
    /// # Errors
    /// [`RegistryError::Io`].
    pub fn names(&self) -> Result<Vec<String>, RegistryError> {
        let entries = match std::fs::read_dir(&self.root) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(RegistryError::io("list", &self.root))?,
        };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> = names.filter(|name| self.dir(name).is_ok()).collect();
        names.sort();
        Ok(names)
    }

    /// The labs that are up or coming up, sorted by name.
    ///
    /// # Errors
    /// [`RegistryError::Io`].
    pub fn living(&self) -> Result<Vec<LabDir>, RegistryError> {
        let mut living = Vec::new();
        for name in self.names()? {
            let dir = self.dir(&name)?;
            if is_locked(&dir)? {
                living.push(dir);
            }
        }
        Ok(living)
    }

    /// The lab that is meant: the named one, or the only one that is up.
    ///
    /// # Errors
    /// [`RegistryError::Missing`], [`RegistryError::Ambiguous`].
    pub fn find(&self, name: Option<&str>) -> Result<LabDir, RegistryError> {
        if let Some(name) = name {
            let dir = self.dir(name)?;
            return if is_locked(&dir)? {
                Ok(dir)
            } else {
                Err(RegistryError::Missing { name: name.into() })
            };
        }
        let mut living = self.living()?;
        match living.len() {
            0 => Err(RegistryError::Missing { name: DEFAULT_NAME.into() }),
            1 => Ok(living.remove(0)),
            _ => Err(RegistryError::Ambiguous { names: living.into_iter().map(|dir| dir.name).collect() }),
        }
    }

    /// Sweeps one dead lab by what the caller knows of it. Nothing happens where it is gone, or another has its name.
    ///
    /// # Errors
    /// [`RegistryError::InUse`] while its lock is held.
    pub fn sweep_one(&self, name: &str, id: &LabId, belongs: &sweep::Belongs) -> Result<(), RegistryError> {
        let dir = self.dir(name)?;
        let is_meant = || std::fs::read_to_string(dir.owner_file()).is_ok_and(|owner| owner == id.as_str());
        if !is_meant() {
            return Ok(());
        }
        let Some(_lock) = take_lock(&dir, Missing::Leave)? else {
            return if is_meant() { Err(RegistryError::InUse { name: name.into() }) } else { Ok(()) };
        };
        if is_meant() {
            sweep::kill(belongs);
            remove(&dir)?;
        }
        Ok(())
    }

    /// Sweeps what dead labs left, and returns their names. A living lab is not touched.
    ///
    /// # Errors
    /// [`RegistryError::Io`].
    pub fn sweep(&self) -> Result<Vec<String>, RegistryError> {
        let mut swept = Vec::new();
        for name in self.names()? {
            let dir = self.dir(&name)?;
            if let Some(lock) = take_lock(&dir, Missing::Leave)? {
                sweep_dead(&dir)?;
                drop(lock);
                swept.push(name);
            }
        }
        Ok(swept)
    }
}

/// Ends what is left of a lab whose lock the caller holds, and removes its folder.
fn sweep_dead(dir: &LabDir) -> Result<(), RegistryError> {
    // Without an owner no process was started yet.
    if let Ok(id) = std::fs::read_to_string(dir.owner_file()) {
        sweep::kill(&sweep::Belongs::marked(&LabId(id)));
    }
    remove(dir)
}

#[derive(Clone, Copy, PartialEq)]
enum Missing {
    Create,
    Leave,
}

/// Takes a lab's lock; `None` where someone else has it, or where there is none and none is to be made.
fn take_lock(dir: &LabDir, missing: Missing) -> Result<Option<Flock<File>>, RegistryError> {
    let path = dir.lock_file();
    loop {
        if missing == Missing::Create {
            match std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir.path) {
                Ok(()) => {}
                // The last other lab went meanwhile, and took the empty folders above with it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(RegistryError::io("make", &dir.path)(error)),
            }
        }
        let opened = File::options()
            .read(true)
            .write(true)
            .create(missing == Missing::Create)
            .truncate(false)
            .mode(0o600)
            .open(&path);
        let file = match opened {
            Err(error) if error.kind() == io::ErrorKind::NotFound && missing == Missing::Create => continue,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(RegistryError::io("open", &path))?,
        };
        let lock = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => lock,
            Err((_, Errno::EWOULDBLOCK)) => return Ok(None),
            Err((_, error)) => return Err(RegistryError::io("lock", &path)(error.into())),
        };
        // The former owner may have removed the file between our opening and locking it.
        let ours = lock.metadata().map_err(RegistryError::io("look at", &path))?.ino();
        if std::fs::metadata(&path).is_ok_and(|there| there.ino() == ours) {
            return Ok(Some(lock));
        }
    }
}

/// Whether a supervisor holds the lab's lock. A shared lock is tried, and given back at once.
fn is_locked(dir: &LabDir) -> Result<bool, RegistryError> {
    let path = dir.lock_file();
    let file = match File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        file => file.map_err(RegistryError::io("open", &path))?,
    };
    match Flock::lock(file, FlockArg::LockSharedNonblock) {
        Ok(_) => Ok(false),
        Err((_, Errno::EWOULDBLOCK)) => Ok(true),
        Err((_, error)) => Err(RegistryError::io("lock", &path)(error.into())),
    }
}

#[cfg(test)]
mod tests;
