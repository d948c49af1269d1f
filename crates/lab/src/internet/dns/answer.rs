//! What the lab's DNS server answers: a function from a message and a zone to a message. No sockets here.

use std::net::{Ipv4Addr, Ipv6Addr};

use hickory_proto::op::{Edns, Message, MessageType, OpCode, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, CNAME};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};

use super::zone::{DEFAULT_TTL, Zone};
use super::{Mode, Outcome, Transport};

/// The largest answer over UDP that we send to whoever allows it (DNS flag day 2020).
const LARGEST_DATAGRAM: u16 = 1232;

/// The shortest thing that can be answered: a header.
const HEADER: usize = 12;

/// What was asked, what is answered.
#[derive(Debug)]
pub(super) struct Reply {
    /// The question's name in presentation format; empty where there was none.
    pub(super) name: String,
    /// The question's type; empty where there was none.
    pub(super) kind: String,
    /// What became of it.
    pub(super) outcome: Outcome,
    /// The answer, unless there is to be none.
    pub(super) message: Option<Vec<u8>>,
}

/// Answers a message. `None` for what is no question at all: too short, or an answer itself.
pub(super) fn answer(message: &[u8], zone: &Zone, mode: &Mode, transport: Transport) -> Option<Reply> {
    if message.len() < HEADER || message[2] & 0x80 != 0 {
        return None;
    }
    let id = u16::from_be_bytes([message[0], message[1]]);
    let Ok(question) = Message::from_vec(message) else {
        let reply = Message::error_msg(id, OpCode::Query, ResponseCode::FormErr);
        return Some(Reply::of(None, Outcome::Malformed, mode, &reply));
    };
    let [query] = question.queries.as_slice() else {
        let reply = Message::error_msg(id, question.metadata.op_code, ResponseCode::FormErr);
        return Some(Reply::of(None, Outcome::Malformed, mode, &reply));
    };
    let mut reply = Message::response(id, question.metadata.op_code);
    reply.metadata.recursion_desired = question.metadata.recursion_desired;
    reply.metadata.recursion_available = true;
    reply.metadata.checking_disabled = question.metadata.checking_disabled;
    reply.add_query(query.clone());
    if question.edns.is_some() {
        let mut edns = Edns::new();
        edns.set_max_payload(LARGEST_DATAGRAM);
        reply.set_edns(edns);
    }
    let asked = Some((query.name(), query.query_type()));
    debug_assert_eq!(question.metadata.message_type, MessageType::Query);
    let (code, outcome) = if question.metadata.op_code != OpCode::Query {
        (ResponseCode::NotImp, Outcome::Refused)
    } else if query.query_class() != DNSClass::IN {
        (ResponseCode::Refused, Outcome::Refused)
    } else {
        fill(&mut reply, query.name(), query.query_type(), zone, mode)
    };
    reply.metadata.response_code = code;
    if transport == Transport::Udp {
        let room = question.max_payload().min(LARGEST_DATAGRAM);
        if reply.to_vec().is_ok_and(|bytes| bytes.len() > usize::from(room)) {
            reply = reply.truncate();
        }
    }
    Some(Reply::of(asked, outcome, mode, &reply))
}

/// Adds the answer's records.
fn fill(
    reply: &mut Message,
    name: &Name,
    kind: RecordType,
    zone: &Zone,
    mode: &Mode,
) -> (ResponseCode, Outcome) {
    let Some(found) = zone.find(&name.to_ascii()) else {
        return (ResponseCode::NXDomain, Outcome::NoSuchName);
    };
    // The question's own spelling comes back, as resolvers that shuffle its case expect.
    let mut owner = name.clone();
    for (_, target, ttl) in &found.aliases {
        let Ok(target) = Name::from_ascii(target) else { return (ResponseCode::ServFail, Outcome::Refused) };
        reply.add_answer(Record::from_rdata(owner, *ttl, RData::CNAME(CNAME(target.clone()))));
        owner = target;
    }
    let Some(records) = found.records else { return (ResponseCode::NXDomain, Outcome::NoSuchName) };
    let ttl = records.ttl.unwrap_or(DEFAULT_TTL);
    let (lie4, lie6) = match mode {
        Mode::Lying { v4, v6 } => (Some(*v4), Some(*v6)),
        Mode::Honest | Mode::Silent => (None, None),
    };
    let before = reply.answers.len();
    if matches!(kind, RecordType::A | RecordType::ANY) {
        for address in told(&records.v4, lie4) {
            reply.add_answer(Record::from_rdata(owner.clone(), ttl, RData::A(A(address))));
        }
    }
    if matches!(kind, RecordType::AAAA | RecordType::ANY) {
        for address in told6(&records.v6, lie6) {
            reply.add_answer(Record::from_rdata(owner.clone(), ttl, RData::AAAA(AAAA(address))));
        }
    }
    let outcome = match (reply.answers.len() > before, lie4.is_some()) {
        (false, _) => Outcome::NoData,
        (true, false) => Outcome::Answered,
        (true, true) => Outcome::Lied,
    };
    (ResponseCode::NoError, outcome)
}

/// The addresses, or the lie where there would be any.
fn told(addresses: &[Ipv4Addr], lie: Option<Ipv4Addr>) -> Vec<Ipv4Addr> {
    match lie {
        Some(lie) if !addresses.is_empty() => vec![lie],
        _ => addresses.to_vec(),
    }
}

fn told6(addresses: &[Ipv6Addr], lie: Option<Ipv6Addr>) -> Vec<Ipv6Addr> {
    match lie {
        Some(lie) if !addresses.is_empty() => vec![lie],
        _ => addresses.to_vec(),
    }
}

impl Reply {
    fn of(asked: Option<(&Name, RecordType)>, outcome: Outcome, mode: &Mode, message: &Message) -> Self {
        let (name, kind) = asked.map(|(name, kind)| (name.to_ascii(), kind.to_string())).unwrap_or_default();
        match mode {
            Mode::Silent => Self { name, kind, outcome: Outcome::Silence, message: None },
            // What cannot be encoded is not answered; nothing that we make is such.
            Mode::Honest | Mode::Lying { .. } => Self { name, kind, outcome, message: message.to_vec().ok() },
        }
    }
}

#[cfg(test)]
mod tests;
