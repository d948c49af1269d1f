//! From transports to the rule that decides them: spans that do not overlap, each with the best of its rules.

use std::collections::BTreeSet;

use crate::flow::Transport;
use crate::ports::{PortSet, PortSpan, Protocol};

/// The best rule of each transport. Ranks order rules; the least is the best.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct PortMap {
    /// The best of the rules that list no ports.
    pub(crate) everything: Option<u32>,
    /// Where a rule that lists ports is the best: ascending, not overlapping.
    spans: Vec<(PortSpan, u32)>,
}

impl PortMap {
    /// The map of some rules.
    pub(crate) fn of<'a>(rules: impl IntoIterator<Item = (&'a PortSet, u32)>) -> Self {
        let mut everything = None;
        let mut listed: Vec<(PortSpan, u32)> = Vec::new();
        for (ports, rank) in rules {
            match ports {
                PortSet::Everything => everything = Some(everything.map_or(rank, |best: u32| best.min(rank))),
                PortSet::Listed(spans) => listed.extend(spans.iter().map(|span| (*span, rank))),
            }
        }
        Self { everything, spans: paint(listed, everything) }
    }

    /// The map of both.
    pub(crate) fn merged<'a>(maps: impl IntoIterator<Item = &'a PortMap>) -> Self {
        let (mut everything, mut listed) = (None, Vec::new());
        for map in maps {
            everything = match (everything, map.everything) {
                (Some(a), Some(b)) => Some(std::cmp::min::<u32>(a, b)),
                (a, b) => a.or(b),
            };
            listed.extend(map.spans.iter().copied());
        }
        Self { everything, spans: paint(listed, everything) }
    }

    /// The best rule for one transport.
    pub(crate) fn best(&self, transport: Transport) -> Option<u32> {
        let Transport::Port(protocol, port) = transport else { return self.everything };
        let after =
            self.spans.partition_point(|(span, _)| (span.protocol(), span.first()) <= (protocol, port));
        let span = after.checked_sub(1).map(|at| self.spans[at]);
        span.filter(|(span, _)| span.protocol() == protocol && port <= span.last())
            .map(|(_, rank)| rank)
            .or(self.everything)
    }

    /// Whether nothing is decided.
    pub(crate) fn is_empty(&self) -> bool {
        self.everything.is_none() && self.spans.is_empty()
    }

    /// One transport out of every class that these maps tell apart, with the class itself: spans of ports, and all
    /// that is no listed port.
    pub(crate) fn classes(maps: &[&PortMap]) -> Vec<Class> {
        let mut classes = Vec::new();
        for protocol in [Protocol::Tcp, Protocol::Udp, Protocol::Sctp] {
            let mut edges = BTreeSet::from([1u32]);
            for (span, _) in
                maps.iter().flat_map(|map| &map.spans).filter(|(span, _)| span.protocol() == protocol)
            {
                edges.insert(span.first().into());
                edges.insert(u32::from(span.last()) + 1);
            }
            edges.insert(u32::from(u16::MAX) + 1);
            let edges: Vec<u32> = edges.into_iter().collect();
            for pair in edges.windows(2) {
                let ends = u16::try_from(pair[0]).ok().zip(u16::try_from(pair[1] - 1).ok());
                classes.extend(
                    ends.and_then(|(first, last)| PortSpan::new(protocol, first, last)).map(Class::Span),
                );
            }
        }
        classes.push(Class::Portless);
        classes
    }
}

/// A class of transports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// These ports.
    Span(PortSpan),
    /// Port 0 and every protocol without ports: what only a rule that lists no ports reaches.
    Portless,
}

impl Class {
    pub(crate) fn sample(self) -> Transport {
        match self {
            Self::Span(span) => span.least(),
            Self::Portless => Transport::ICMP,
        }
    }
}

/// Overlapping spans to disjoint ones, each with its least rank; spans that `floor` beats are left out.
fn paint(mut spans: Vec<(PortSpan, u32)>, floor: Option<u32>) -> Vec<(PortSpan, u32)> {
    spans.retain(|(_, rank)| floor.is_none_or(|floor| *rank < floor));
    spans.sort_unstable();
    let disjoint = spans
        .windows(2)
        .all(|pair| pair[0].0.protocol() != pair[1].0.protocol() || pair[0].0.last() < pair[1].0.first());
    if disjoint {
        return spans;
    }
    let mut painted: Vec<(PortSpan, u32)> = Vec::new();
    for protocol in [Protocol::Tcp, Protocol::Udp, Protocol::Sctp] {
        let mine: Vec<_> = spans.iter().filter(|(span, _)| span.protocol() == protocol).collect();
        let mut edges: Vec<(u32, bool, u32)> = Vec::with_capacity(2 * mine.len());
        for (span, rank) in mine {
            edges.push((span.first().into(), true, *rank));
            edges.push((u32::from(span.last()) + 1, false, *rank));
        }
        edges.sort_unstable();
        // Each rank once for each span that is open with it.
        let mut open: std::collections::BTreeMap<u32, u32> = std::collections::BTreeMap::new();
        let mut from = 0u32;
        for (edge, opens, rank) in edges {
            if let (Some((&best, _)), true) = (open.first_key_value(), from < edge) {
                let ends = u16::try_from(from).ok().zip(u16::try_from(edge - 1).ok());
                let span = ends.and_then(|(first, last)| PortSpan::new(protocol, first, last));
                match (painted.last_mut(), span) {
                    (Some((last, rank)), Some(span))
                        if *rank == best
                            && last.protocol() == protocol
                            && last.last().checked_add(1) == Some(span.first()) =>
                    {
                        *last = PortSpan::new(protocol, last.first(), span.last()).unwrap_or(span);
                    }
                    (_, Some(span)) => painted.push((span, best)),
                    (_, None) => {}
                }
            }
            from = edge;
            if opens {
                *open.entry(rank).or_default() += 1;
            } else if let Some(count) = open.get_mut(&rank) {
                *count -= 1;
                if *count == 0 {
                    open.remove(&rank);
                }
            }
        }
    }
    painted
}
