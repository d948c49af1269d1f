//! Puts a gate's rules in place and keeps them there: what others change is noticed, undone and counted.
//!
//! Noticing costs next to nothing: the kernel numbers every transaction, so as long as the number is that of our last
//! one, nobody has touched anything. Only then are the rules read and compared.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::links::LinkNews;
use super::{GatePolicy, OwnNamespace, Passage, SharedNamespace, Violation, WorkloadEnd, invariants, plan};
use crate::nf_tables::{
    Change, Commit, CounterReading, Family, Generation, Monitor, News, NfTables, NfTablesError, Ruleset,
    SetRef, Snapshot, Transaction,
};

/// How often the rules are looked at when no news comes; news comes at once, so this only bounds lost news.
const LOOK: Duration = Duration::from_millis(100);
/// How often a commit is tried again that others outran.
const TRIES: usize = 50;

/// Why rules could not be put or kept in place.
#[derive(Debug, thiserror::Error)]
pub enum KeeperError {
    /// The kernel or the socket.
    #[error(transparent)]
    NfTables(#[from] NfTablesError),
    /// The rule set breaks an invariant, so it was not applied.
    #[error("the rule set is not safe to apply: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
    Unsafe(Vec<Violation>),
}

/// A gate in one of its two shapes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Gate {
    /// Workloads in namespaces of their own.
    Own(OwnNamespace),
    /// Workload and tailscaled in one namespace.
    Shared(SharedNamespace),
}

impl Gate {
    /// Renders a policy.
    #[must_use]
    pub fn ruleset(&self, policy: &GatePolicy) -> Ruleset {
        match self {
            Self::Own(gate) => gate.ruleset(policy),
            Self::Shared(gate) => gate.ruleset(policy),
        }
    }
}

/// How the rules were found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// As they should be.
    Intact,
    /// Changed by someone else, and put back.
    Repaired(Gap),
}

/// A time in which the rules were not ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    /// What was different.
    pub differences: Vec<String>,
    /// How long it lasted at most: from the news of it, or else from the last good look, to the repair.
    pub at_most: Duration,
    /// Who did it, where the kernel told.
    pub by: Option<Commit>,
}

/// The rules of one namespace, kept.
#[derive(Debug)]
pub struct Keeper {
    nf: NfTables,
    gate: Gate,
    policy: GatePolicy,
    ruleset: Ruleset,
    structure: Vec<Snapshot>,
    generation: Generation,
    good: Instant,
    gaps: u64,
    /// What counters had seen in tables that were replaced since.
    carried: BTreeMap<(Family, String), CounterReading>,
}

impl Keeper {
    /// Puts the rules in place, instead of whatever stands under our name, and begins to keep them.
    ///
    /// # Errors
    /// [`KeeperError`]; nothing is in place then that was not before.
    pub fn install(mut nf: NfTables, gate: Gate, policy: GatePolicy) -> Result<Self, KeeperError> {
        let ruleset = checked(&gate, &policy)?;
        let (structure, generation) = replace(&mut nf, &ruleset)?;
        Ok(Self {
            nf,
            gate,
            policy,
            ruleset,
            structure,
            generation,
            good: Instant::now(),
            gaps: 0,
            carried: BTreeMap::new(),
        })
    }

    /// What may pass now.
    #[must_use]
    pub fn policy(&self) -> &GatePolicy {
        &self.policy
    }

    /// The gate as it stands.
    #[must_use]
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// How often someone else's change was undone.
    #[must_use]
    pub fn gaps(&self) -> u64 {
        self.gaps
    }

    /// Changes what may pass, in one transaction. When this returns, it is in force.
    ///
    /// # Errors
    /// [`KeeperError`]; what was in force stays in force.
    pub fn set_policy(&mut self, policy: GatePolicy) -> Result<(), KeeperError> {
        let gate = self.gate.clone();
        self.set(gate, policy)
    }

    /// Changes the gate, such as its workloads or uplinks, in one transaction.
    ///
    /// # Errors
    /// [`KeeperError`]; what was in force stays in force.
    pub fn set_gate(&mut self, gate: Gate) -> Result<(), KeeperError> {
        let policy = self.policy.clone();
        self.set(gate, policy)
    }

    /// Opens or cuts one workload of an own-namespace gate: the fast way: its
    /// cost does not grow with the number of workloads. Returns whether there is such a workload.
    ///
    /// # Errors
    /// [`KeeperError`]; what was in force stays in force.
    pub fn set_passage(&mut self, link: &str, passage: Passage) -> Result<bool, KeeperError> {
        let Gate::Own(gate) = &mut self.gate else { return Ok(false) };
        let Some(end) = gate.workloads.iter().find(|end| end.link == link).cloned() else { return Ok(false) };
        if end.passage == passage {
            return Ok(true);
        }
        let live = end.live_elements();
        let table = &self.ruleset.tables[0];
        let changes = live
            .iter()
            .filter_map(|(set, element)| {
                let (set, elements) = (SetRef::of(table, set)?, [element.clone()].into());
                Some(match passage {
                    Passage::Open => Change::Add(set, elements),
                    Passage::Shut => Change::Remove(set, elements),
                })
            })
            .collect();
        self.commit(&Transaction { changes })?;
        for (name, element) in live {
            let Some(set) = self.ruleset.tables[0].sets.get_mut(name) else { continue };
            match passage {
                Passage::Open => drop(set.elements.insert(element)),
                Passage::Shut => drop(set.elements.remove(&element)),
            }
        }
        if let Gate::Own(gate) = &mut self.gate {
            gate.workloads.remove(&end);
            gate.workloads.insert(WorkloadEnd { passage, ..end });
        }
        Ok(true)
    }

    /// Commits in our own generation, after seeing to it that the ground is as we think.
    fn commit(&mut self, transaction: &Transaction) -> Result<(), KeeperError> {
        for _ in 0..TRIES {
            match self.nf.commit_after(transaction, self.generation) {
                Ok(()) => {
                    if !transaction.changes.is_empty() {
                        self.generation = self.generation.next();
                    }
                    self.good = Instant::now();
                    return Ok(());
                }
                // Someone was there first.
                Err(NfTablesError::Outrun) => drop(self.look(None, None)?),
                Err(error) => return Err(error.into()),
            }
        }
        Err(NfTablesError::Outrun.into())
    }

    fn set(&mut self, gate: Gate, policy: GatePolicy) -> Result<(), KeeperError> {
        let ruleset = checked(&gate, &policy)?;
        let transaction = plan(&self.ruleset, &ruleset);
        let structural = transaction.changes.iter().any(|change| matches!(change, Change::Replace(_)));
        if structural {
            self.carry();
        }
        self.commit(&transaction)?;
        (self.gate, self.policy, self.ruleset) = (gate, policy, ruleset);
        if structural {
            self.learn()?;
        }
        Ok(())
    }

    /// Tells the links that there are: in the shared shape each one but `lo` and the tailnet interface is watched.
    /// Returns whether that changed anything.
    ///
    /// # Errors
    /// [`KeeperError`].
    pub fn see_links(&mut self, names: &std::collections::BTreeSet<String>) -> Result<bool, KeeperError> {
        let Gate::Shared(gate) = &self.gate else { return Ok(false) };
        let uplinks = names.iter().filter(|name| **name != "lo" && **name != gate.tunnel).cloned().collect();
        if gate.uplinks == uplinks {
            return Ok(false);
        }
        let gate = SharedNamespace { uplinks, ..gate.clone() };
        self.set_gate(Gate::Shared(gate))?;
        Ok(true)
    }

    /// Looks whether the rules are as they should be, and puts them back where not.
    ///
    /// # Errors
    /// [`KeeperError`]; the rules may be anything then.
    pub fn check(&mut self) -> Result<Condition, KeeperError> {
        self.look(None, None)
    }

    fn look(&mut self, since: Option<Instant>, by: Option<Commit>) -> Result<Condition, KeeperError> {
        let generation = self.nf.generation()?;
        if generation == self.generation {
            self.good = Instant::now();
            return Ok(Condition::Intact);
        }
        let mut differences = Vec::new();
        for (table, structure) in self.ruleset.tables.iter().zip(&self.structure) {
            let now = self.nf.snapshot(table.family, &table.name)?;
            let should = structure.clone().with_elements_of(table);
            differences.extend(should.differences(&now).iter().map(|d| format!("{}: {d}", table.family)));
        }
        if differences.is_empty() {
            // Someone else's business. A change since the number was read is seen at the next look.
            self.generation = generation;
            self.good = Instant::now();
            return Ok(Condition::Intact);
        }
        self.carry();
        let begin = since.unwrap_or(self.good);
        let (structure, generation) = replace(&mut self.nf, &self.ruleset)?;
        (self.structure, self.generation) = (structure, generation);
        self.gaps += 1;
        self.good = Instant::now();
        Ok(Condition::Repaired(Gap { differences, at_most: self.good.duration_since(begin), by }))
    }

    /// All counters by name, over every table that we ever put in place. What a table had counted when someone else
    /// removed it is lost.
    ///
    /// # Errors
    /// [`KeeperError`].
    pub fn counters(&mut self) -> Result<BTreeMap<(Family, String), CounterReading>, KeeperError> {
        let mut sum = self.carried.clone();
        for table in &self.ruleset.tables {
            for (name, reading) in self.nf.counters(table.family, &table.name)? {
                let entry = sum.entry((table.family, name)).or_default();
                entry.packets += reading.packets;
                entry.bytes += reading.bytes;
            }
        }
        Ok(sum)
    }

    /// Takes the rules away: the deliberate way out.
    ///
    /// # Errors
    /// [`KeeperError`].
    pub fn release(mut self) -> Result<(), KeeperError> {
        Ok(self.nf.commit(&plan(&self.ruleset, &Ruleset::default()))?)
    }

    fn carry(&mut self) {
        if let Ok(sum) = self.counters() {
            self.carried = sum;
        }
    }

    fn learn(&mut self) -> Result<(), KeeperError> {
        match learn(&mut self.nf, &self.ruleset, self.generation)? {
            Some(structure) => self.structure = structure,
            // Someone changed something in between: begin anew, so that what is learned is ours.
            None => (self.structure, self.generation) = replace(&mut self.nf, &self.ruleset)?,
        }
        Ok(())
    }
}

fn checked(gate: &Gate, policy: &GatePolicy) -> Result<Ruleset, KeeperError> {
    let ruleset = gate.ruleset(policy);
    let violations = invariants(&ruleset);
    if violations.is_empty() { Ok(ruleset) } else { Err(KeeperError::Unsafe(violations)) }
}

/// Replaces all tables and learns how the kernel shows them, with nobody in between.
fn replace(nf: &mut NfTables, ruleset: &Ruleset) -> Result<(Vec<Snapshot>, Generation), NfTablesError> {
    let changes = ruleset.tables.iter().cloned().map(Change::Replace).collect();
    let transaction = Transaction { changes };
    for _ in 0..TRIES {
        let before = nf.generation()?;
        match nf.commit_after(&transaction, before) {
            Err(NfTablesError::Outrun) => continue,
            done => done?,
        }
        if let Some(structure) = learn(nf, ruleset, before.next())? {
            return Ok((structure, before.next()));
        }
    }
    Err(NfTablesError::Outrun)
}

/// `None` where the generation is not `ours` any more.
fn learn(
    nf: &mut NfTables,
    ruleset: &Ruleset,
    ours: Generation,
) -> Result<Option<Vec<Snapshot>>, NfTablesError> {
    let structure: Result<Vec<_>, _> =
        ruleset.tables.iter().map(|table| nf.snapshot(table.family, &table.name)).collect();
    Ok((nf.generation()? == ours).then_some(structure?))
}

/// A thread that keeps a [`Keeper`]'s rules: repairs at news, and gives new links their chains. It ends when dropped; the
/// rules stay.
#[derive(Debug)]
pub struct Watch {
    stop: Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Watch {
    /// Begins. `tell` hears of repairs and failures; it is called on the watching threads.
    ///
    /// # Errors
    /// Where no thread can be started.
    pub fn start(
        keeper: Arc<Mutex<Keeper>>,
        mut monitor: Monitor,
        mut links: LinkNews,
        tell: impl Fn(Result<Condition, KeeperError>) + Send + Sync + 'static,
    ) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let tell = Arc::new(tell);
        let rules = {
            let (stop, tell, keeper) = (Arc::clone(&stop), Arc::clone(&tell), Arc::clone(&keeper));
            move || {
                while !stop.load(Ordering::Relaxed) {
                    let news = monitor.wait(Instant::now() + LOOK);
                    let since = matches!(news, Ok(Some(_))).then(Instant::now);
                    let by = match news {
                        Ok(Some(News::Commit(commit))) => Some(commit),
                        Ok(Some(News::Lost) | None) => None,
                        Err(error) => {
                            tell(Err(error.into()));
                            std::thread::sleep(LOOK);
                            None
                        }
                    };
                    match keeper.lock().unwrap_or_else(PoisonError::into_inner).look(since, by) {
                        Ok(Condition::Intact) => (),
                        other => tell(other),
                    }
                }
            }
        };
        let watch_links = {
            let stop = Arc::clone(&stop);
            move || {
                while !stop.load(Ordering::Relaxed) {
                    let seen = links.names().map_err(KeeperError::from).and_then(|names| {
                        keeper.lock().unwrap_or_else(PoisonError::into_inner).see_links(&names)
                    });
                    let waited = links.wait(Instant::now() + LOOK);
                    for error in [seen.err(), waited.err().map(KeeperError::from)].into_iter().flatten() {
                        tell(Err(error));
                    }
                }
            }
        };
        let thread = |name: &str, body: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new().name(name.into()).stack_size(256 << 10).spawn(body)
        };
        let threads =
            vec![thread("keep-rules", Box::new(rules))?, thread("keep-links", Box::new(watch_links))?];
        Ok(Self { stop, threads })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A panic of the thread was reported by the runtime.
            let _ = thread.join();
        }
    }
}
