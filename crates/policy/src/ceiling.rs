//! What a policy allows to be declared, and what applies to a workload that declares nothing.

use crate::grant::{EgressRule, Entitlement, Grant, IngressRule, Target};
use crate::index::Index;
use crate::mistake::{Fault, Mistakes, Path};
use crate::parse::{Checker, Direction, Edge, Role};
use crate::raw::{RawAllowance, RawCeiling, RawRule};
use crate::route::Posture;

/// What may be declared in one direction.
#[derive(Clone, Debug)]
pub enum Allowance {
    /// Anything.
    Unrestricted,
    /// Nothing.
    None,
    /// What one of these holds; at least one.
    List(Box<Entitlements>),
}

/// A list of entitlements and its index.
#[derive(Clone, Debug)]
pub struct Entitlements {
    list: Vec<Entitlement>,
    index: Index,
}

impl Entitlements {
    pub(crate) fn new(list: Vec<Entitlement>) -> Self {
        let index = Index::new(list.iter().map(|entitlement| &entitlement.target));
        Self { list, index }
    }

    /// The list, as it was written.
    #[must_use]
    pub fn as_slice(&self) -> &[Entitlement] {
        &self.list
    }

    /// The place of an entitlement that holds the whole rule.
    pub(crate) fn cover(&self, rule: &Grant) -> Option<usize> {
        self.index.cover(&self.list, rule)
    }
}

impl PartialEq for Allowance {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::List(mine), Self::List(theirs)) => mine.list == theirs.list,
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }
}

impl Allowance {
    /// A list, or `None` of it when it is empty.
    #[must_use]
    pub fn list(entitlements: Vec<Entitlement>) -> Self {
        if entitlements.is_empty() {
            Self::None
        } else {
            Self::List(Box::new(Entitlements::new(entitlements)))
        }
    }

    /// The entitlements; none for the two words.
    #[must_use]
    pub fn entitlements(&self) -> &[Entitlement] {
        match self {
            Self::Unrestricted | Self::None => &[],
            Self::List(entitlements) => entitlements.as_slice(),
        }
    }
}

/// Whether hostname rules may be declared at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostnameRules {
    /// As the entitlements say.
    #[default]
    AsEntitled,
    /// Never: `deny_https_hostname_rules`.
    Denied,
}

/// A policy's network part.
#[derive(Clone, Debug, PartialEq)]
pub struct Ceiling {
    pub(crate) allowed_egress: Allowance,
    pub(crate) default_egress: Vec<EgressRule>,
    pub(crate) hostname_rules: HostnameRules,
    pub(crate) allowed_ingress: Allowance,
    pub(crate) default_ingress: Vec<IngressRule>,
    pub(crate) minimum_posture: Posture,
}

impl Ceiling {
    /// No policy: anything may be declared, and the default is nothing.
    #[must_use]
    pub fn unrestricted() -> Self {
        Self {
            allowed_egress: Allowance::Unrestricted,
            default_egress: Vec::new(),
            hostname_rules: HostnameRules::AsEntitled,
            allowed_ingress: Allowance::Unrestricted,
            default_ingress: Vec::new(),
            minimum_posture: Posture::None,
        }
    }

    /// A ceiling on egress alone: these entitlements, nothing when there are none; ingress is unrestricted.
    #[must_use]
    pub fn from_entitlements(list: Vec<Entitlement>) -> Self {
        Self { allowed_egress: Allowance::list(list), ..Self::unrestricted() }
    }

    /// Reads what was said.
    ///
    /// # Errors
    ///
    /// All mistakes together.
    pub fn from_raw(raw: &RawCeiling, edge: Edge) -> Result<Self, Mistakes> {
        let root = Path::default();
        let mut checker = Checker::new(edge);
        let allowed_egress =
            allowance(&mut checker, &raw.allowed_egress, &root.key("allowed_egress"), Direction::Egress);
        let allowed_ingress =
            allowance(&mut checker, &raw.allowed_ingress, &root.key("allowed_ingress"), Direction::Ingress);
        let denied = raw.deny_https_hostname_rules == Some(true);
        let hostname_rules = if denied { HostnameRules::Denied } else { HostnameRules::AsEntitled };
        if let (RawAllowance::List(raw), true) = (&raw.allowed_egress, denied) {
            for (i, _) in raw.iter().enumerate().filter(|(_, rule)| rule.name.is_some()) {
                let message =
                    "deny_https_hostname_rules refuses every dns_name, so this can never take effect";
                checker.mistakes.add(&root.key("allowed_egress").index(i), Fault::MatchesNothing, message);
            }
        }
        let default_egress = defaults(
            &mut checker,
            &raw.default_egress,
            &root.key("default_egress"),
            Direction::Egress,
            allowed_egress.as_ref(),
        );
        let default_ingress = defaults(
            &mut checker,
            &raw.default_ingress,
            &root.key("default_ingress"),
            Direction::Ingress,
            allowed_ingress.as_ref(),
        );
        let minimum_posture = raw.minimum_posture.as_deref().map_or(Some(Posture::None), |word| {
            checker.word(
                word,
                &root.key("minimum_posture"),
                "none, preferred, required, pinned",
                Posture::named,
            )
        });
        let ceiling = allowed_egress.zip(allowed_ingress).zip(minimum_posture);
        checker.mistakes.or(ceiling.map(|((allowed_egress, allowed_ingress), minimum_posture)| Self {
            allowed_egress,
            default_egress: default_egress.into_iter().map(EgressRule).collect(),
            hostname_rules,
            allowed_ingress,
            default_ingress: default_ingress.into_iter().map(IngressRule).collect(),
            minimum_posture,
        }))
    }

    /// The egress that may be declared.
    #[must_use]
    pub fn allowed_egress(&self) -> &Allowance {
        &self.allowed_egress
    }

    /// The egress of a workload that declares none.
    #[must_use]
    pub fn default_egress(&self) -> &[EgressRule] {
        &self.default_egress
    }

    /// Whether hostname rules may be declared.
    #[must_use]
    pub fn hostname_rules(&self) -> HostnameRules {
        self.hostname_rules
    }

    /// The ingress that may be declared.
    #[must_use]
    pub fn allowed_ingress(&self) -> &Allowance {
        &self.allowed_ingress
    }

    /// The ingress of a workload that declares none.
    #[must_use]
    pub fn default_ingress(&self) -> &[IngressRule] {
        &self.default_ingress
    }

    /// The weakest posture that may be declared.
    #[must_use]
    pub fn minimum_posture(&self) -> Posture {
        self.minimum_posture
    }
}

fn allowance(
    checker: &mut Checker,
    raw: &RawAllowance,
    at: &Path,
    direction: Direction,
) -> Option<Allowance> {
    let words =
        "the word unrestricted (anything may be declared) or none (nothing may), or a list that is not empty";
    match raw {
        RawAllowance::Absent if checker.edge == Edge::Wire => Some(Allowance::Unrestricted),
        // Ingress reaches published ports only; nothing said is nothing allowed.
        RawAllowance::Absent if direction == Direction::Ingress => Some(Allowance::None),
        RawAllowance::Absent => {
            checker.mistakes.add(at, Fault::Missing, format!("say {words}"));
            None
        }
        RawAllowance::Word(word) => checker.word(word, at, words, |word| match word {
            "unrestricted" => Some(Allowance::Unrestricted),
            "none" => Some(Allowance::None),
            _ => None,
        }),
        RawAllowance::List(list) if list.is_empty() && checker.edge == Edge::Wire => {
            Some(Allowance::Unrestricted)
        }
        RawAllowance::List(list) if list.is_empty() => {
            checker.mistakes.add(
                at,
                Fault::EmptyList,
                format!("an empty list could be read both ways; say {words}"),
            );
            None
        }
        RawAllowance::List(list) => {
            let grants = checker.rules(list, at, Role::Entitled, direction);
            (!grants.is_empty()).then(|| Allowance::list(grants.into_iter().map(Entitlement).collect()))
        }
    }
}

fn defaults(
    checker: &mut Checker,
    raw: &[RawRule],
    at: &Path,
    direction: Direction,
    allowed: Option<&Allowance>,
) -> Vec<Grant> {
    let grants = checker.rules(raw, at, Role::Default, direction);
    // Grants and what was said go side by side only when every rule was sound.
    if grants.len() != raw.len() {
        return grants;
    }
    for (i, grant) in grants.iter().enumerate() {
        if matches!(grant.target, Target::Names(_)) {
            checker.mistakes.add(
                &at.index(i),
                Fault::DefaultOutside,
                "default rules may not hold a dns_name",
            );
            continue;
        }
        let inside = match allowed {
            None | Some(Allowance::Unrestricted) => true,
            Some(Allowance::None) => false,
            Some(Allowance::List(entitlements)) => entitlements.cover(grant).is_some(),
        };
        if !inside {
            let message = "a default outside the ceiling would refuse every workload that declares nothing; allow it or leave it out";
            checker.mistakes.add(&at.index(i), Fault::DefaultOutside, message);
        }
    }
    grants
}
