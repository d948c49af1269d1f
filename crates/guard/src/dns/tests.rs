//! Resolvers that answer, cut short, lie about whom they answer, and stay silent.

use std::net::Ipv4Addr;

use hickory_proto::op::{MessageType, OpCode};
use hickory_proto::rr::Record;
use hickory_proto::rr::rdata::{A, CNAME};
use tokio::net::{TcpListener, TcpStream};

use super::*;

/// What a resolver says to every question.
#[derive(Clone, Copy)]
enum Says {
    Address,
    Alias,
    NoSuchName,
    Failure,
    Truncated,
    ForAnother,
    Nothing,
}

fn reply(query: &[u8], says: Says) -> Vec<Vec<u8>> {
    let asked = Message::from_vec(query).expect("a question");
    let mut reply = Message::new(asked.metadata.id, MessageType::Response, OpCode::Query);
    reply.add_queries(asked.queries.clone());
    let name = asked.queries[0].name().clone();
    let address = |name: Name| Record::from_rdata(name, 5, RData::A(A(Ipv4Addr::new(203, 0, 113, 9))));
    let mut before = None;
    match says {
        Says::Nothing => return Vec::new(),
        Says::Address => {
            reply.add_answer(address(name));
        }
        Says::Alias => {
            let target = Name::from_ascii("real.lab.example.").expect("a name");
            reply.add_answer(Record::from_rdata(name, 5, RData::CNAME(CNAME(target.clone()))));
            reply.add_answer(address(target));
        }
        Says::NoSuchName => reply.metadata.response_code = ResponseCode::NXDomain,
        Says::Failure => reply.metadata.response_code = ResponseCode::ServFail,
        Says::Truncated => reply.metadata.truncation = true,
        Says::ForAnother => {
            let mut forged = reply.clone();
            forged.metadata.id = asked.metadata.id.wrapping_add(1);
            forged.add_answer(Record::from_rdata(name.clone(), 5, RData::A(A(Ipv4Addr::new(192, 0, 2, 66)))));
            before = Some(forged.to_vec().expect("a message"));
            reply.add_answer(address(name));
        }
    }
    before.into_iter().chain([reply.to_vec().expect("a message")]).collect()
}

/// A resolver on one port of the loopback, by UDP and TCP.
async fn resolver(by_udp: Says, by_tcp: Says) -> SocketAddr {
    let udp = UdpSocket::bind("127.0.0.1:0").await.expect("a port of the loopback");
    let address = udp.local_addr().expect("its address");
    let tcp = TcpListener::bind(address).await.expect("the same port");
    tokio::spawn(async move {
        let mut query = [0; 1500];
        loop {
            let (length, from) = udp.recv_from(&mut query).await.expect("a question");
            for message in reply(&query[..length], by_udp) {
                udp.send_to(&message, from).await.expect("sent");
            }
        }
    });
    tokio::spawn(async move {
        loop {
            let (stream, _) = tcp.accept().await.expect("a client");
            tokio::spawn(answer_by_tcp(stream, by_tcp));
        }
    });
    address
}

async fn answer_by_tcp(mut stream: TcpStream, says: Says) {
    let length = stream.read_u16().await.expect("a length");
    let mut query = vec![0; usize::from(length)];
    stream.read_exact(&mut query).await.expect("a question");
    for message in reply(&query, says) {
        let length = u16::try_from(message.len()).expect("short");
        stream.write_all(&[&length.to_be_bytes()[..], &message].concat()).await.expect("sent");
    }
}

async fn ask_for(resolvers: &[SocketAddr]) -> Result<Vec<IpAddr>, LookupError> {
    let host = Host::Name("echo.lab.example".into());
    let resolvers = Resolvers::Listed(resolvers.to_vec());
    look_up(&host, Family::Ipv4, &Path::Normal, &resolvers).await
}

fn shown(addresses: Result<Vec<IpAddr>, LookupError>) -> Vec<String> {
    addresses.expect("addresses").iter().map(ToString::to_string).collect()
}

#[tokio::test]
async fn a_name_is_looked_up_and_an_alias_followed() {
    for says in [Says::Address, Says::Alias] {
        let resolver = resolver(says, Says::Nothing).await;
        assert_eq!(shown(ask_for(&[resolver]).await), ["203.0.113.9"]);
    }
}

#[tokio::test]
async fn a_name_that_does_not_exist_is_an_answer_and_no_reason_to_ask_another() {
    let (first, second) =
        (resolver(Says::NoSuchName, Says::Nothing).await, resolver(Says::Address, Says::Nothing).await);
    let error = ask_for(&[first, second]).await.expect_err("no such name");
    assert!(matches!(error, LookupError::NoAddress { .. }), "{error}");
}

#[tokio::test]
async fn a_resolver_that_fails_or_is_not_there_gives_way_to_the_next() {
    let good = resolver(Says::Address, Says::Nothing).await;
    let failing = resolver(Says::Failure, Says::Nothing).await;
    let closed = UdpSocket::bind("127.0.0.1:0").await.expect("a port").local_addr().expect("its address");
    for bad in [failing, closed] {
        assert_eq!(shown(ask_for(&[bad, good]).await), ["203.0.113.9"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_resolver_is_not_waited_for_longer_than_its_share() {
    let silent = resolver(Says::Nothing, Says::Nothing).await;
    let start = tokio::time::Instant::now();
    let error = ask_for(&[silent]).await.expect_err("silence");
    assert!(error.to_string().contains("no resolver answered"), "{error}");
    assert!(start.elapsed() < PATIENCE + RESEND, "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_truncated_answer_is_asked_for_again_over_tcp() {
    let resolver = resolver(Says::Truncated, Says::Address).await;
    assert_eq!(shown(ask_for(&[resolver]).await), ["203.0.113.9"]);
}

#[tokio::test]
async fn an_answer_to_somebody_elses_question_is_not_taken() {
    let resolver = resolver(Says::ForAnother, Says::Nothing).await;
    assert_eq!(shown(ask_for(&[resolver]).await), ["203.0.113.9"]);
}

#[tokio::test]
async fn an_address_needs_no_look_up_and_has_one_family() {
    let host = Host::Address("203.0.113.9".parse().expect("an address"));
    let none = Resolvers::Listed(Vec::new());
    let found = look_up(&host, Family::Ipv4, &Path::Normal, &none).await;
    assert_eq!(shown(found), ["203.0.113.9"]);
    let other = look_up(&host, Family::Ipv6, &Path::Normal, &none).await;
    assert!(matches!(other, Err(LookupError::NoAddress { .. })), "{other:?}");
}

#[tokio::test]
async fn behind_a_proxy_only_tcp_is_used() {
    // The proxy takes every connection itself and answers as the resolver would.
    let proxy = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = proxy.local_addr().expect("its address");
    tokio::spawn(async move {
        let (mut stream, _) = proxy.accept().await.expect("a client");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.expect("a byte"));
        }
        assert!(head.starts_with(b"CONNECT 203.0.113.53:53 "), "{}", String::from_utf8_lossy(&head));
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.expect("sent");
        answer_by_tcp(stream, Says::Address).await;
    });
    let host = Host::Name("echo.lab.example".into());
    let resolvers = Resolvers::Listed(vec!["203.0.113.53:53".parse().expect("an address")]);
    let found = look_up(&host, Family::Ipv4, &Path::HttpProxy(address), &resolvers).await;
    assert_eq!(shown(found), ["203.0.113.9"]);
}
