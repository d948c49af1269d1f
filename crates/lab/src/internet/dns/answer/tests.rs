use std::net::IpAddr;

use hickory_proto::op::Query;
use proptest::prelude::*;

use super::*;
use crate::internet::dns::zone::Records;
use crate::internet::table::{ECHO, LIE};

fn ask(name: &str, kind: RecordType) -> Message {
    let mut question = Message::new(4711, MessageType::Query, OpCode::Query);
    question.metadata.recursion_desired = true;
    question.add_query(Query::query(Name::from_ascii(name).expect("a name"), kind));
    question
}

fn told_by(mode: &Mode, question: &Message, zone: &Zone) -> (Message, Outcome) {
    let bytes = question.to_vec().expect("encodes");
    let reply = answer(&bytes, zone, mode, Transport::Udp).expect("a question is answered");
    (Message::from_vec(&reply.message.expect("not silent")).expect("decodes"), reply.outcome)
}

fn addresses(message: &Message) -> Vec<IpAddr> {
    let address = |record: &Record| match &record.data {
        RData::A(a) => Some(IpAddr::V4(a.0)),
        RData::AAAA(aaaa) => Some(IpAddr::V6(aaaa.0)),
        _ => None,
    };
    message.answers.iter().filter_map(address).collect()
}

const LYING: Mode = Mode::Lying { v4: LIE.v4, v6: LIE.v6 };

#[test]
fn an_honest_server_answers_each_family_and_keeps_the_questions_spelling() {
    let zone = Zone::lab();
    let (reply, outcome) = told_by(&Mode::Honest, &ask("EcHo.lab.example.", RecordType::A), &zone);
    assert_eq!((addresses(&reply), outcome), (vec![IpAddr::V4(ECHO.v4)], Outcome::Answered));
    assert_eq!(reply.metadata.id, 4711);
    assert!(reply.metadata.recursion_available && reply.metadata.recursion_desired);
    assert_eq!(reply.queries[0].name().to_ascii(), "EcHo.lab.example.");
    let (reply, _) = told_by(&Mode::Honest, &ask("echo.lab.example.", RecordType::AAAA), &zone);
    assert_eq!(addresses(&reply), [IpAddr::V6(ECHO.v6)]);
}

#[test]
fn a_name_of_one_family_has_no_data_in_the_other() {
    let (reply, outcome) = told_by(&Mode::Honest, &ask("echo4.lab.example.", RecordType::AAAA), &Zone::lab());
    assert_eq!((reply.metadata.response_code, outcome), (ResponseCode::NoError, Outcome::NoData));
    assert!(reply.answers.is_empty());
}

#[test]
fn every_other_name_does_not_exist() {
    for name in ["www.example.com.", "lab.example.", ".", "x.echo.lab.example."] {
        let (reply, outcome) = told_by(&Mode::Honest, &ask(name, RecordType::A), &Zone::lab());
        assert_eq!(
            (reply.metadata.response_code, outcome),
            (ResponseCode::NXDomain, Outcome::NoSuchName),
            "{name}"
        );
    }
}

#[test]
fn a_liar_changes_addresses_and_nothing_else() {
    let zone = Zone::lab();
    let (reply, outcome) = told_by(&LYING, &ask("echo.lab.example.", RecordType::A), &zone);
    assert_eq!((addresses(&reply), outcome), (vec![IpAddr::V4(LIE.v4)], Outcome::Lied));
    let (reply, outcome) = told_by(&LYING, &ask("echo4.lab.example.", RecordType::AAAA), &zone);
    assert_eq!((addresses(&reply), outcome), (vec![], Outcome::NoData));
    let (_, outcome) = told_by(&LYING, &ask("nowhere.example.", RecordType::A), &zone);
    assert_eq!(outcome, Outcome::NoSuchName);
}

#[test]
fn a_silent_server_knows_what_was_asked_and_says_nothing() {
    let question = ask("echo.lab.example.", RecordType::A).to_vec().expect("encodes");
    let reply = answer(&question, &Zone::lab(), &Mode::Silent, Transport::Udp).expect("a question");
    assert_eq!((reply.name.as_str(), reply.kind.as_str()), ("echo.lab.example.", "A"));
    assert_eq!((reply.outcome, reply.message), (Outcome::Silence, None));
}

#[test]
fn an_alias_comes_with_its_targets_addresses() {
    let mut zone = Zone::lab();
    let alias = Records { alias: Some("echo.lab.example".into()), ..Records::default() };
    zone.define("www.lab.example", alias);
    let (reply, _) = told_by(&Mode::Honest, &ask("www.lab.example.", RecordType::A), &zone);
    assert_eq!(reply.answers.len(), 2);
    assert_eq!(reply.answers[0].record_type(), RecordType::CNAME);
    assert_eq!(addresses(&reply), [IpAddr::V4(ECHO.v4)]);
}

#[test]
fn an_answer_too_large_for_its_datagram_is_cut_and_whole_over_tcp() {
    let mut zone = Zone::default();
    let many = (0..100).map(|host| IpAddr::from([198, 18, 0, host])).collect();
    zone.define("many.lab.example", many);
    let question = ask("many.lab.example.", RecordType::A);
    let (reply, _) = told_by(&Mode::Honest, &question, &zone);
    assert!(reply.metadata.truncation && reply.answers.is_empty());
    let bytes = question.to_vec().expect("encodes");
    let reply = answer(&bytes, &zone, &Mode::Honest, Transport::Tcp).expect("a question");
    let whole = Message::from_vec(&reply.message.expect("not silent")).expect("decodes");
    assert_eq!(whole.answers.len(), 100);
}

#[test]
fn a_broken_question_gets_a_format_error_and_an_answer_gets_nothing() {
    let mut broken = ask("echo.lab.example.", RecordType::A).to_vec().expect("encodes");
    broken.truncate(broken.len() - 3);
    let reply = answer(&broken, &Zone::lab(), &Mode::Honest, Transport::Udp).expect("has a header");
    assert_eq!(reply.outcome, Outcome::Malformed);
    let message = Message::from_vec(&reply.message.expect("not silent")).expect("decodes");
    assert_eq!((message.metadata.id, message.metadata.response_code), (4711, ResponseCode::FormErr));
    let mut response = broken.clone();
    response[2] |= 0x80;
    assert!(answer(&response, &Zone::lab(), &Mode::Honest, Transport::Udp).is_none());
    assert!(answer(&broken[..11], &Zone::lab(), &Mode::Honest, Transport::Udp).is_none());
}

proptest! {
    #[test]
    fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        for mode in [Mode::Honest, LYING, Mode::Silent] {
            let _ = answer(&bytes, &Zone::lab(), &mode, Transport::Udp);
            let _ = answer(&bytes, &Zone::lab(), &mode, Transport::Tcp);
        }
    }

    #[test]
    fn a_question_with_flipped_bytes_never_panics(
        flips in proptest::collection::vec((0..35_usize, any::<u8>()), 0..8),
    ) {
        let mut bytes = ask("echo.lab.example.", RecordType::A).to_vec().expect("encodes");
        for (at, value) in flips {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
        let _ = answer(&bytes, &Zone::lab(), &Mode::Honest, Transport::Udp);
    }
}
