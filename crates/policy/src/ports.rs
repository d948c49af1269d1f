//! What a rule says about protocols and ports: everything, or a canonical list of port spans.

use std::fmt;

use crate::flow::Transport;

/// A protocol with ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// TCP, IP protocol 6.
    Tcp,
    /// UDP, IP protocol 17.
    Udp,
    /// SCTP, IP protocol 132.
    Sctp,
}

impl Protocol {
    /// The protocol's name, in lower case.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        }
    }

    /// The protocol of that name, in any case.
    #[must_use]
    pub fn named(word: &str) -> Option<Self> {
        [Self::Tcp, Self::Udp, Self::Sctp]
            .into_iter()
            .find(|protocol| protocol.word().eq_ignore_ascii_case(word))
    }
}

/// A run of ports of one protocol, both ends included, never port 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortSpan {
    protocol: Protocol,
    first: u16,
    last: u16,
}

impl PortSpan {
    /// The ports from `first` to `last`. `None` for port 0 and for a reversed range.
    #[must_use]
    pub fn new(protocol: Protocol, first: u16, last: u16) -> Option<Self> {
        (first != 0 && first <= last).then_some(Self { protocol, first, last })
    }

    /// The protocol.
    #[must_use]
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// The least port.
    #[must_use]
    pub fn first(&self) -> u16 {
        self.first
    }

    /// The greatest port.
    #[must_use]
    pub fn last(&self) -> u16 {
        self.last
    }

    /// The transport of the span's least port.
    pub(crate) fn least(&self) -> Transport {
        Transport::Port(self.protocol, self.first)
    }

    fn contains(&self, protocol: Protocol, port: u16) -> bool {
        self.protocol == protocol && self.first <= port && port <= self.last
    }
}

impl fmt::Display for PortSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.protocol.word(), self.first)?;
        if self.first == self.last { Ok(()) } else { write!(f, "-{}", self.last) }
    }
}

/// The protocols and ports of a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PortSet {
    /// Every port of every protocol, protocols without ports included: a rule that lists no ports.
    Everything,
    /// The listed ports: sorted, merged where they overlap or touch, at least one.
    Listed(Box<[PortSpan]>),
}

impl PortSet {
    /// The listed spans, merged to their canonical form. `None` when the list is empty.
    #[must_use]
    pub fn listed(mut spans: Vec<PortSpan>) -> Option<Self> {
        spans.sort_unstable();
        let mut merged: Vec<PortSpan> = Vec::with_capacity(spans.len());
        for span in spans {
            match merged.last_mut() {
                Some(open) if open.protocol == span.protocol && span.first <= open.last.saturating_add(1) => {
                    open.last = open.last.max(span.last);
                }
                _ => merged.push(span),
            }
        }
        (!merged.is_empty()).then(|| Self::Listed(merged.into()))
    }

    /// TCP 443 alone: what a hostname rule reaches.
    #[must_use]
    pub fn https() -> Self {
        Self::Listed(Box::new([PortSpan { protocol: Protocol::Tcp, first: 443, last: 443 }]))
    }

    /// Whether `transport` is one of these.
    #[must_use]
    pub fn contains(&self, transport: Transport) -> bool {
        match (self, transport) {
            (Self::Everything, _) => true,
            (Self::Listed(spans), Transport::Port(protocol, port)) => {
                spans.iter().any(|span| span.contains(protocol, port))
            }
            (Self::Listed(_), Transport::Other(_)) => false,
        }
    }

    /// Whether everything here is in `other`.
    #[must_use]
    pub fn is_subset(&self, other: &Self) -> bool {
        let (Self::Listed(mine), Self::Listed(theirs)) = (self, other) else {
            return *other == Self::Everything;
        };
        mine.iter().all(|span| theirs.iter().any(|wide| covers(wide, span)))
    }

    /// Something here that is not in `other`.
    #[must_use]
    pub fn outside(&self, other: &Self) -> Option<Transport> {
        let Self::Listed(theirs) = other else { return None };
        let Self::Listed(mine) = self else {
            // Of everything, what no list of ports can hold.
            return Some(Transport::ICMP);
        };
        // Lists are merged, so a span that no one span covers has a port outside: its first, or the one after the
        // span that covers its first.
        mine.iter().filter(|span| !theirs.iter().any(|wide| covers(wide, span))).find_map(|span| {
            let first_covered = theirs.iter().find(|wide| wide.contains(span.protocol, span.first));
            let port = first_covered.map_or(Some(span.first), |wide| wide.last.checked_add(1))?;
            Some(Transport::Port(span.protocol, port))
        })
    }

    /// What is in both, if anything is.
    #[must_use]
    pub fn and(&self, other: &Self) -> Option<Self> {
        let (mine, theirs) = match (self, other) {
            (Self::Everything, set) | (set, Self::Everything) => return Some(set.clone()),
            (Self::Listed(mine), Self::Listed(theirs)) => (mine, theirs),
        };
        let pairs = mine.iter().flat_map(|a| theirs.iter().map(move |b| (a, b)));
        let both = pairs.filter(|(a, b)| a.protocol == b.protocol);
        Self::listed(
            both.filter_map(|(a, b)| PortSpan::new(a.protocol, a.first.max(b.first), a.last.min(b.last)))
                .collect(),
        )
    }

    /// One member: the least listed port, or TCP 443 of everything.
    pub(crate) fn sample(&self) -> Transport {
        match self {
            Self::Everything => Transport::Port(Protocol::Tcp, 443),
            Self::Listed(spans) => spans[0].least(),
        }
    }

    /// The listed spans; none for everything.
    #[must_use]
    pub fn spans(&self) -> &[PortSpan] {
        match self {
            Self::Everything => &[],
            Self::Listed(spans) => spans,
        }
    }
}

fn covers(wide: &PortSpan, span: &PortSpan) -> bool {
    wide.protocol == span.protocol && wide.first <= span.first && span.last <= wide.last
}

impl fmt::Display for PortSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everything => f.write_str("every port and protocol"),
            Self::Listed(spans) => {
                for (i, span) in spans.iter().enumerate() {
                    write!(f, "{}{span}", if i == 0 { "" } else { ", " })?;
                }
                Ok(())
            }
        }
    }
}
