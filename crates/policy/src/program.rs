//! The backend-neutral program that rules compile to: ordered sets of addresses, names and workloads, each with its
//! ports, its route and the rule that it comes from. The gate turns it into nftables, the Kubernetes backend into its
//! objects; [`crate::evaluate()`] says what it means.
//!
//! Where several rules hold one flow, the most specific target decides; then the route that binds most (exit nodes,
//! egress service, posture, uplink); then the order of the grants themselves, so that the order of a list never
//! matters.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use crate::ceiling::{Allowance, Ceiling, HostnameRules};
use crate::cidr::FamilySet;
use crate::containment::in_force;
use crate::evaluate::RuleRef;
use crate::flow::Far;
use crate::grant::{Grant, Target};
use crate::index::Index;
use crate::mistake::{Fault, Mistakes, Path};
use crate::name::{DnsName, NameBlock};
use crate::platform::{self, Platform};
use crate::port_map::PortMap;
use crate::ports::PortSet;
use crate::ranges::Ranges;
use crate::route::Route;
use crate::rule_set::{DnsEgress, RuleSet, Source};

/// What may pass, in both directions, on one machine.
#[derive(Clone, Debug)]
pub struct Program {
    pub(crate) egress: Table,
    pub(crate) ingress: Table,
    dns_egress: DnsEgress,
}

/// One direction.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    /// Everything passes but what no rule may open: an unrestricted ceiling.
    pub(crate) unrestricted: bool,
    /// The rules, best first.
    rules: Vec<(Grant, RuleRef)>,
    /// One group for each target, with the map from transports to rules.
    groups: Vec<(Target, PortMap)>,
    index: Index,
    /// What no rule may open here, IPv4 and IPv6.
    pub(crate) shut: [FamilySet; 2],
    platform: Platform,
}

/// Addresses that one rule opens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressGrant {
    /// Ascending ranges, both ends included, without what no rule may open.
    pub ranges: Vec<(IpAddr, IpAddr)>,
    /// The protocols and ports.
    pub ports: PortSet,
    /// The route.
    pub route: Route,
    /// The rule.
    pub rule: RuleRef,
}

/// Names that one rule opens on TCP 443.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameGrant {
    /// The names.
    pub names: NameBlock,
    /// The route.
    pub route: Route,
    /// The rule.
    pub rule: RuleRef,
}

/// Workloads that one rule opens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadGrant {
    /// A selector or a tenant scope.
    pub target: Target,
    /// The protocols and ports.
    pub ports: PortSet,
    /// The rule.
    pub rule: RuleRef,
}

/// What the gate's resolver asks upstream for a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolves {
    /// This name is forwarded.
    Forward,
    /// Answered here: no rule has anything to do with this name.
    AnswerHere,
}

/// Compiles what `rules` put in force under `ceiling`. Containment is not asked: [`crate::contains`] decides that.
///
/// # Errors
///
/// A cidr rule of which `platform` leaves nothing to open.
pub fn compile(ceiling: &Ceiling, rules: &RuleSet, platform: &Platform) -> Result<Program, Mistakes> {
    let mut mistakes = Mistakes::default();
    let mut table = |grants: Vec<&Grant>, source: Source, key: &str| {
        let table = Table::new(&grants, source, platform);
        for (i, grant) in grants.into_iter().enumerate() {
            if let Target::Cidr(block) = &grant.target
                && *platform != Platform::declared_only()
                && block.set().is_subset(table.shut_like(block.set()))
            {
                let owner =
                    block.set().first().and_then(|address| platform.owner(address).map(str::to_owned));
                let message = format!(
                    "{block} belongs to the platform ({}), so this can never match",
                    owner.unwrap_or_default()
                );
                mistakes.add(&Path::default().key(key).index(i).key("cidr"), Fault::MatchesNothing, message);
            }
        }
        table
    };
    let (egress, source) = in_force(&rules.egress, &ceiling.default_egress);
    let egress = table(egress.iter().map(|rule| &rule.0).collect(), source, "egress");
    let (ingress, source) = in_force(&rules.ingress, &ceiling.default_ingress);
    let ingress = table(ingress.iter().map(|rule| &rule.0).collect(), source, "ingress");
    mistakes.or(Some(Program { egress, ingress, dns_egress: rules.dns_egress }))
}

/// Compiles a ceiling as if everything that it allows were declared: what [`crate::diff()`] compares policies by.
#[must_use]
pub fn compile_ceiling(ceiling: &Ceiling, platform: &Platform) -> Program {
    let denied = ceiling.hostname_rules == HostnameRules::Denied;
    let table = |allowance: &Allowance| {
        let grants = allowance.entitlements().iter().map(|entitlement| &entitlement.0);
        let grants: Vec<&Grant> =
            grants.filter(|grant| !denied || !matches!(grant.target, Target::Names(_))).collect();
        let mut table = Table::new(&grants, Source::Declared, platform);
        table.unrestricted = matches!(allowance, Allowance::Unrestricted);
        table
    };
    Program {
        egress: table(&ceiling.allowed_egress),
        ingress: table(&ceiling.allowed_ingress),
        dns_egress: DnsEgress::Allow,
    }
}

impl Program {
    /// The addresses that may be reached, best rule first.
    #[must_use]
    pub fn addresses(&self) -> Vec<AddressGrant> {
        self.egress.addresses()
    }

    /// The addresses that may reach the workload's published ports, best rule first.
    #[must_use]
    pub fn sources(&self) -> Vec<AddressGrant> {
        self.ingress.addresses()
    }

    /// The names that hostname rules open, best rule first. A rule `any` opens every name besides.
    #[must_use]
    pub fn names(&self) -> Vec<NameGrant> {
        let names = self.egress.rules.iter().filter_map(|(grant, rule)| match &grant.target {
            Target::Names(block) => {
                Some(NameGrant { names: block.clone(), route: grant.route.clone(), rule: *rule })
            }
            Target::Any | Target::Cidr(_) | Target::Selector(_) | Target::Tenant(_) => None,
        });
        names.collect()
    }

    /// The workloads that may be reached, best rule first.
    #[must_use]
    pub fn workloads(&self) -> Vec<WorkloadGrant> {
        let workloads = self
            .egress
            .rules
            .iter()
            .filter(|(grant, _)| matches!(grant.target, Target::Selector(_) | Target::Tenant(_)));
        workloads
            .map(|(grant, rule)| WorkloadGrant {
                target: grant.target.clone(),
                ports: grant.ports.clone(),
                rule: *rule,
            })
            .collect()
    }

    /// Whether the resolver forwards a lookup of `name`: with `any` every name, with a hostname rule its names.
    #[must_use]
    pub fn resolves(&self, name: &DnsName) -> Resolves {
        let mut forward = self.egress.unrestricted;
        self.egress.index.visit(&Far::Name(name.clone()), |at| {
            forward |= self.egress.groups[at].0.contains(&Far::Name(name.clone()));
        });
        if forward && self.dns_egress == DnsEgress::Allow { Resolves::Forward } else { Resolves::AnswerHere }
    }

    /// Whether an answer with this address may be handed to the workload: it is public, or a cidr rule holds it.
    #[must_use]
    pub fn hands_out(&self, address: IpAddr) -> bool {
        let far = Far::Address(address);
        let mut explicit = false;
        self.egress.index.visit(&far, |at| {
            let target = &self.egress.groups[at].0;
            explicit |= matches!(target, Target::Cidr(_)) && target.contains(&far);
        });
        !self.egress.is_shut(address) && (platform::is_public(address) || explicit)
    }

    /// The ranges that no rule may open, ascending within each family.
    #[must_use]
    pub fn shut(&self) -> Vec<(IpAddr, IpAddr)> {
        self.egress.shut.iter().flat_map(FamilySet::ranges).collect()
    }

    /// Whose an address is, if no rule may open it here.
    #[must_use]
    pub fn owner(&self, address: IpAddr) -> Option<&str> {
        self.egress.platform.owner(address)
    }

    /// Whether the platform's resolver may be asked.
    #[must_use]
    pub fn dns_egress(&self) -> DnsEgress {
        self.dns_egress
    }
}

impl Table {
    fn new(grants: &[&Grant], source: Source, platform: &Platform) -> Self {
        let mut order: Vec<usize> = (0..grants.len()).collect();
        order.sort_by(|&a, &b| {
            let key = |i: usize| (grants[i].target.specificity(), &grants[i].route);
            key(a).cmp(&key(b)).then_with(|| grants[a].cmp(grants[b])).then(a.cmp(&b))
        });
        let rules: Vec<(Grant, RuleRef)> =
            order.into_iter().map(|index| (grants[index].clone(), RuleRef { index, source })).collect();
        let mut places: HashMap<&Target, usize> = HashMap::with_capacity(rules.len());
        let mut members: Vec<(&Target, Vec<(&PortSet, u32)>)> = Vec::new();
        for (rank, (grant, _)) in (0u32..).zip(&rules) {
            let at = *places.entry(&grant.target).or_insert_with(|| {
                members.push((&grant.target, Vec::new()));
                members.len() - 1
            });
            members[at].1.push((&grant.ports, rank));
        }
        let groups: Vec<(Target, PortMap)> =
            members.into_iter().map(|(target, rules)| (target.clone(), PortMap::of(rules))).collect();
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for range in platform.shut() {
            match range {
                (IpAddr::V4(a), IpAddr::V4(b)) => v4.push((a.to_bits(), b.to_bits())),
                (IpAddr::V6(a), IpAddr::V6(b)) => v6.push((a.to_bits(), b.to_bits())),
                (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => {}
            }
        }
        Self {
            unrestricted: false,
            index: Index::new(groups.iter().map(|(target, _)| target)),
            rules,
            groups,
            shut: [FamilySet::V4(Ranges::union_of(v4)), FamilySet::V6(Ranges::union_of(v6))],
            platform: platform.clone(),
        }
    }

    fn shut_like(&self, set: &FamilySet) -> &FamilySet {
        match set {
            FamilySet::V4(_) => &self.shut[0],
            FamilySet::V6(_) => &self.shut[1],
        }
    }

    pub(crate) fn is_shut(&self, address: IpAddr) -> bool {
        self.shut.iter().any(|set| set.contains(address))
    }

    /// Visits the map of every group that holds `far`. The one place that says what a table means.
    pub(crate) fn visit<'t>(&'t self, far: &Far, mut visit: impl FnMut(&'t PortMap)) {
        if let Far::Address(address) = far
            && self.is_shut(*address)
        {
            return;
        }
        self.index.visit(far, |at| {
            let (target, map) = &self.groups[at];
            if target.contains(far) {
                visit(map);
            }
        });
    }

    pub(crate) fn groups(&self) -> &[(Target, PortMap)] {
        &self.groups
    }

    pub(crate) fn rule(&self, rank: u32) -> &(Grant, RuleRef) {
        &self.rules[rank as usize]
    }

    pub(crate) fn opens_any(&self) -> bool {
        self.groups.iter().any(|(target, _)| *target == Target::Any)
    }

    fn addresses(&self) -> Vec<AddressGrant> {
        let open = |set: &FamilySet| set.minus(self.shut_like(set)).ranges();
        let mut memo: BTreeMap<&Target, Vec<(IpAddr, IpAddr)>> = BTreeMap::new();
        let mut grants = Vec::new();
        for (grant, rule) in &self.rules {
            let ranges = match &grant.target {
                Target::Cidr(block) => open(block.set()),
                Target::Any => memo
                    .entry(&grant.target)
                    .or_insert_with(|| platform::public().iter().flat_map(open).collect())
                    .clone(),
                Target::Names(_) | Target::Selector(_) | Target::Tenant(_) => continue,
            };
            grants.push(AddressGrant {
                ranges,
                ports: grant.ports.clone(),
                route: grant.route.clone(),
                rule: *rule,
            });
        }
        grants
    }
}
