//! What is wrong with an input: where, which rule it breaks, and the fix. All mistakes of an input together.

use std::fmt;

/// One step of a field path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// A field.
    Key(String),
    /// An item of a list, from 0.
    Index(usize),
}

/// Where in an input: `egress[2].ports[0].end_port`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path(pub Vec<Step>);

impl Path {
    /// The path of a field of this one.
    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        let mut steps = self.0.clone();
        steps.push(Step::Key(shortened(key)));
        Self(steps)
    }

    /// The path of an item of this one.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        let mut steps = self.0.clone();
        steps.push(Step::Index(index));
        Self(steps)
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, step) in self.0.iter().enumerate() {
            match step {
                Step::Key(key) if key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') => {
                    write!(f, "{}{key}", if i == 0 { "" } else { "." })?;
                }
                Step::Key(key) => write!(f, "[{key:?}]")?,
                Step::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

/// A position in a file, both from 1, columns in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident = $word:literal),* $(,)?) => {
        /// Which rule of the input language is broken. Each has a stable word.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Fault { $($(#[$doc])* $name),* }

        impl Fault {
            /// The stable word.
            #[must_use]
            pub fn word(self) -> &'static str {
                match self { $(Self::$name => $word),* }
            }
        }
    };
}

faults! {
    /// The text is no YAML, TOML or JSON, or not UTF-8.
    Syntax = "syntax",
    /// Over a documented limit.
    Limit = "limit",
    /// A key that nothing reads.
    UnknownKey = "unknown_key",
    /// A value of the wrong type.
    WrongType = "wrong_type",
    /// Something that must be said.
    Missing = "missing",
    /// A list that says nothing and could be read two ways.
    EmptyList = "empty_list",
    /// The same thing twice.
    Duplicate = "duplicate",
    /// No destination, or more than one.
    Destination = "one_destination",
    /// `any: false`.
    AnyFalse = "any_must_be_true",
    /// A prefix that is not canonical.
    Cidr = "invalid_cidr",
    /// An except outside what it is taken from.
    ExceptOutside = "except_outside",
    /// A name that is none.
    Name = "invalid_name",
    /// `*` outside a ceiling.
    EveryName = "every_name_in_ceilings_only",
    /// Excepts on names outside a ceiling.
    NameExcept = "name_except_in_ceilings_only",
    /// Ports of a hostname rule other than TCP 443.
    NamePorts = "name_ports",
    /// A port out of range.
    Port = "invalid_port",
    /// A reversed range of ports.
    PortRange = "reversed_port_range",
    /// A protocol that is not TCP, UDP or SCTP.
    Protocol = "unknown_protocol",
    /// A tenant scope that is unknown or not offered.
    Tenant = "tenant_scope",
    /// A label key or value.
    Label = "invalid_label",
    /// A selector without pod labels.
    NoPodLabels = "no_pod_labels",
    /// A route that is none, or on a kind that has none.
    Route = "invalid_route",
    /// A kind that ingress rules do not have.
    NotForIngress = "not_for_ingress",
    /// A word that is none of the possible ones.
    Word = "unknown_word",
    /// A rule or entitlement that can match nothing.
    MatchesNothing = "matches_nothing",
    /// Two statements that exclude each other.
    Contradiction = "contradiction",
    /// Default rules that the ceiling does not hold.
    DefaultOutside = "default_outside_ceiling",
}

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The field.
    pub path: Path,
    /// Which rule it breaks.
    pub fault: Fault,
    /// What is wrong and what to do, in lower case, without a full stop.
    pub message: String,
    /// Where in the file, when the input was one.
    pub place: Option<Place>,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = self.place {
            write!(f, "{}:{}: ", place.line, place.column)?;
        }
        if !self.path.0.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        write!(f, "{} [{}]", self.message, self.fault.word())
    }
}

/// How many mistakes are told one by one.
const TOLD: usize = 100;

/// All mistakes of an input, the first hundred one by one.
#[derive(Clone, Debug, Default, PartialEq, Eq, thiserror::Error)]
pub struct Mistakes {
    told: Vec<Mistake>,
    more: usize,
}

impl Mistakes {
    /// The mistakes that are told, in the order of the input's fields.
    #[must_use]
    pub fn told(&self) -> &[Mistake] {
        &self.told
    }

    /// How many more there are.
    #[must_use]
    pub fn more(&self) -> usize {
        self.more
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.told.is_empty()
    }

    pub(crate) fn add(&mut self, path: &Path, fault: Fault, message: impl Into<String>) {
        self.add_at(path, fault, message, None);
    }

    pub(crate) fn add_at(
        &mut self,
        path: &Path,
        fault: Fault,
        message: impl Into<String>,
        place: Option<Place>,
    ) {
        if self.told.len() == TOLD {
            self.more += 1;
        } else {
            self.told.push(Mistake { path: path.clone(), fault, message: message.into(), place });
        }
    }

    pub(crate) fn locate(&mut self, place: impl Fn(&Path) -> Option<Place>) {
        for mistake in self.told.iter_mut().filter(|mistake| mistake.place.is_none()) {
            mistake.place = place(&mistake.path);
        }
    }

    /// `value`, or all mistakes. A missing value without a mistake does not happen; it is refused all the same.
    pub(crate) fn or<T>(mut self, value: Option<T>) -> Result<T, Self> {
        match value {
            Some(value) if self.is_empty() => Ok(value),
            None if self.is_empty() => {
                self.add(&Path::default(), Fault::Missing, "nothing was said");
                Err(self)
            }
            _ => Err(self),
        }
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, mistake) in self.told.iter().enumerate() {
            write!(f, "{}{mistake}", if i == 0 { "" } else { "\n" })?;
        }
        if self.more > 0 {
            write!(f, "\nand {} more", self.more)?;
        }
        Ok(())
    }
}

/// A text as it may be quoted in a message: at most 60 characters.
pub(crate) fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(60).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}
