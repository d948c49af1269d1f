//! Kubernetes labels, and what a selector or a tenant scope says about a workload.

use std::collections::BTreeMap;
use std::fmt;

use crate::flow::{Relation, Workload};

/// Labels, sorted by key.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Labels(Box<[(Box<str>, Box<str>)]>);

/// Why a text is not a label key or value, as Kubernetes has them (`pkg/util/validation`).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LabelError {
    /// The name part of a key.
    #[error(
        "a label key is 1 to 63 letters, digits, - _ . with a letter or digit at both ends, after an optional prefix/"
    )]
    Key,
    /// The prefix of a key.
    #[error("the prefix of a label key is a lower-case DNS name of at most 253 bytes")]
    Prefix,
    /// A value.
    #[error(
        "a label value is empty, or at most 63 letters, digits, - _ . with a letter or digit at both ends"
    )]
    Value,
}

impl Labels {
    /// Labels with keys and values of Kubernetes' syntax.
    ///
    /// # Errors
    ///
    /// The first key or value that does not have it.
    pub fn new(map: &BTreeMap<String, String>) -> Result<Self, (String, LabelError)> {
        for (key, value) in map {
            check(key, value).map_err(|error| (key.clone(), error))?;
        }
        Ok(Self(map.iter().map(|(key, value)| (key.as_str().into(), value.as_str().into())).collect()))
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The pairs, by key.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }

    /// The value of a key.
    #[must_use]
    pub fn value(&self, key: &str) -> Option<&str> {
        let at = self.0.binary_search_by(|(k, _)| (**k).cmp(key)).ok()?;
        Some(&self.0[at].1)
    }

    /// Whether every pair here is in `other` too.
    #[must_use]
    pub fn is_subset(&self, other: &Self) -> bool {
        let mut rest = other.0.iter();
        self.0.iter().all(|pair| rest.find(|theirs| theirs.0 >= pair.0).is_some_and(|theirs| theirs == pair))
    }

    /// Both sets of pairs. `None` when they give one key two values.
    #[must_use]
    pub fn and(&self, other: &Self) -> Option<Self> {
        let clash = self.iter().any(|(key, value)| other.value(key).is_some_and(|theirs| theirs != value));
        let both: BTreeMap<_, _> = self.0.iter().chain(other.0.iter()).cloned().collect();
        (!clash).then(|| Self(both.into_iter().collect()))
    }

    /// The pairs as a map.
    #[must_use]
    pub fn to_map(&self) -> BTreeMap<String, String> {
        self.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    }
}

/// Checks one pair's syntax.
pub(crate) fn check(key: &str, value: &str) -> Result<(), LabelError> {
    let word = |text: &str| {
        let bytes = text.as_bytes();
        let ends = bytes
            .first()
            .zip(bytes.last())
            .is_some_and(|(a, b)| a.is_ascii_alphanumeric() && b.is_ascii_alphanumeric());
        ends && bytes.len() <= 63 && bytes.iter().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b))
    };
    let name = match key.split_once('/') {
        Some((prefix, name)) => {
            let label = |label: &str| {
                let ends = !label.starts_with('-') && !label.ends_with('-') && !label.is_empty();
                ends && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            };
            if prefix.len() > 253 || !prefix.split('.').all(label) {
                return Err(LabelError::Prefix);
            }
            name
        }
        None => key,
    };
    if !word(name) {
        return Err(LabelError::Key);
    }
    if value.is_empty() || word(value) { Ok(()) } else { Err(LabelError::Value) }
}

impl fmt::Display for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        for (i, (key, value)) in self.iter().enumerate() {
            write!(f, "{}{key}={value}", if i == 0 { "" } else { "," })?;
        }
        f.write_str("}")
    }
}

/// Which namespaces a selector looks into.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Namespace {
    /// The sandbox's own namespace, whatever its labels.
    Own,
    /// Every namespace that carries all these labels; at least one.
    Labelled(Labels),
}

/// The workloads that carry every listed label, in the namespaces given.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Selector {
    pod: Labels,
    namespace: Namespace,
}

impl Selector {
    /// A selector. `None` without a pod label, or with `Labelled` and no label: there is no form for "every
    /// namespace".
    #[must_use]
    pub fn new(pod: Labels, namespace: Namespace) -> Option<Self> {
        let said = match &namespace {
            Namespace::Own => true,
            Namespace::Labelled(labels) => !labels.is_empty(),
        };
        (said && !pod.is_empty()).then_some(Self { pod, namespace })
    }

    /// The pod labels.
    #[must_use]
    pub fn pod(&self) -> &Labels {
        &self.pod
    }

    /// The namespaces.
    #[must_use]
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Whether `workload` is selected.
    #[must_use]
    pub fn matches(&self, workload: &Workload) -> bool {
        self.pod.is_subset(&workload.labels)
            && match &self.namespace {
                Namespace::Own => workload.relations.contains(&Relation::OwnNamespace),
                Namespace::Labelled(labels) => labels.is_subset(&workload.namespace_labels),
            }
    }

    /// Whether everything that `other` selects is selected here, too.
    #[must_use]
    pub fn holds(&self, other: &Selector) -> bool {
        self.pod.is_subset(&other.pod)
            && match (&self.namespace, &other.namespace) {
                (Namespace::Own, Namespace::Own) => true,
                (Namespace::Labelled(mine), Namespace::Labelled(theirs)) => mine.is_subset(theirs),
                (Namespace::Own, Namespace::Labelled(_)) | (Namespace::Labelled(_), Namespace::Own) => false,
            }
    }

    /// The workload that carries exactly what the selector asks for. Whatever selects it selects everything that this
    /// selector does.
    pub(crate) fn least(&self) -> Workload {
        let mut workload = Workload { labels: self.pod.clone(), ..Workload::default() };
        match &self.namespace {
            Namespace::Own => {
                workload.relations.insert(Relation::OwnNamespace);
            }
            Namespace::Labelled(labels) => workload.namespace_labels = labels.clone(),
        }
        workload
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pods {}", self.pod)?;
        match &self.namespace {
            Namespace::Own => f.write_str(" in its own namespace"),
            Namespace::Labelled(labels) => write!(f, " in namespaces {labels}"),
        }
    }
}

/// Other sandboxes by their owner. A user may belong to several organisations, so neither scope holds the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TenantScope {
    /// Sandboxes of the same user, in whatever organisation.
    SameUser,
    /// Sandboxes of the same organisation, of whatever user.
    SameOrg,
}

impl TenantScope {
    /// The scope's word in files.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::SameUser => "same_user",
            Self::SameOrg => "same_org",
        }
    }

    /// The relation that makes a workload one of these.
    pub(crate) fn relation(self) -> Relation {
        match self {
            Self::SameUser => Relation::SameUser,
            Self::SameOrg => Relation::SameOrg,
        }
    }

    /// The workload that is in this scope and has nothing else.
    pub(crate) fn least(self) -> Workload {
        Workload { relations: [self.relation()].into(), ..Workload::default() }
    }
}
