//! The relay between two links of a namespace of its own: packets take their time both ways, whole and in order, and
//! none passes when it has ended.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use sallyport_lab::host::Place;
use sallyport_lab::relay::{Delay, Relay};

#[path = "support/places.rs"]
mod support;

use support::{Ipv6, is_possible, place};

const HERE: &str = "192.0.2.1";
const THERE: &str = "192.0.2.2";

/// Two hosts, each on a link to a place between them that joins the two by nothing but a relay.
struct Path {
    here: Place,
    there: Place,
    between: Place,
}

impl Path {
    async fn lay() -> Self {
        let path = Self {
            here: place("here", Ipv6::Off).await,
            there: place("there", Ipv6::Off).await,
            between: place("between", Ipv6::Off).await,
        };
        for (end, link, address) in [(&path.here, "left", HERE), (&path.there, "right", THERE)] {
            end.links().add_veth("u0", link, path.between.namespace_ref()).await.expect("a pair");
            path.between.links().up(link).await.expect("up");
            let address = format!("{address}/24").parse().expect("valid");
            end.links().add_address("u0", address).await.expect("an address");
            end.links().up("u0").await.expect("up");
        }
        path
    }

    fn relay(&self, base: Duration, jitter: Duration) -> Relay {
        let delay = Delay { base, jitter };
        Relay::start(self.between.namespace_ref(), ["left", "right"], delay).expect("a relay")
    }

    /// Round trips of small datagrams, the first of which has to find the neighbour and is left out; each is sent when
    /// the one before is back. None for one that did not come back in time.
    fn round_trips(&self, count: usize, patience: Duration) -> Vec<Option<Duration>> {
        let server =
            self.there.namespace_ref().run(|| UdpSocket::bind((THERE, 7))).expect("inside").expect("bound");
        let client =
            self.here.namespace_ref().run(|| UdpSocket::bind((HERE, 0))).expect("inside").expect("bound");
        server.set_read_timeout(Some(Duration::from_millis(20))).expect("set");
        client.set_read_timeout(Some(patience)).expect("set");
        client.connect((THERE, 7)).expect("a route");
        let ended = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut datagram = [0; 8];
                while !ended.load(std::sync::atomic::Ordering::Relaxed) {
                    if let Ok((length, from)) = server.recv_from(&mut datagram) {
                        server.send_to(&datagram[..length], from).expect("sent");
                    }
                }
            });
            let trip = |number: usize| {
                let number = (number as u64).to_be_bytes();
                let start = Instant::now();
                client.send(&number).expect("sent");
                let mut answer = [0; 8];
                // An answer to an earlier one that was given up is none.
                while client.recv(&mut answer).ok()? == 8 && answer != number {}
                Some(start.elapsed())
            };
            let trips = (0..=count).map(trip).skip(1).collect();
            ended.store(true, std::sync::atomic::Ordering::Relaxed);
            trips
        })
    }
}

fn shortest(trips: &[Option<Duration>]) -> Duration {
    let trips: Vec<Duration> =
        trips.iter().copied().collect::<Option<_>>().expect("every datagram came back");
    trips.into_iter().min().expect("at least one")
}

#[tokio::test]
#[expect(clippy::print_stderr, reason = "the figures are of use")]
async fn a_round_trip_takes_twice_the_delay_and_no_packet_passes_without_the_relay() {
    if !is_possible() {
        return;
    }
    let path = Path::lay().await;
    let patience = Duration::from_secs(5);
    let prompt = {
        let _relay = path.relay(Duration::ZERO, Duration::ZERO);
        shortest(&path.round_trips(20, patience))
    };
    assert!(prompt < Duration::from_millis(5), "without a delay the relay is quick: {prompt:?}");
    for milliseconds in [10, 40] {
        let delay = Duration::from_millis(milliseconds);
        let _relay = path.relay(delay, Duration::ZERO);
        let rise = shortest(&path.round_trips(20, patience)).saturating_sub(prompt);
        eprintln!("{delay:?} each way: a round trip of {prompt:?} takes {rise:?} more");
        // Never less; a little more is the scheduler's, of a loaded machine too.
        assert!(rise + Duration::from_millis(1) >= delay * 2, "{rise:?} for twice {delay:?}");
        assert!(rise <= delay * 2 + Duration::from_millis(4), "{rise:?} for twice {delay:?}");
    }
    let trips = path.round_trips(2, Duration::from_millis(200));
    assert_eq!(trips, [None, None], "the relay has ended, and nothing joins the links");
}

#[tokio::test]
async fn jitter_spreads_the_round_trips_within_its_bound() {
    if !is_possible() {
        return;
    }
    let path = Path::lay().await;
    let (base, jitter) = (Duration::from_millis(5), Duration::from_millis(20));
    let _relay = path.relay(base, jitter);
    let trips = path.round_trips(40, Duration::from_secs(5));
    let mut trips: Vec<Duration> =
        trips.into_iter().collect::<Option<_>>().expect("every datagram came back");
    trips.sort();
    assert!(trips[0] >= base * 2, "{trips:?}");
    // The median of a sum of two evenly spread ones, with room for a loaded machine.
    assert!(trips[20] <= (base + jitter) * 2, "{trips:?}");
    assert!(trips[35] - trips[4] >= Duration::from_millis(8), "it does not vary: {trips:?}");
}

/// A stream whose bytes tell where they belong.
fn part(number: u32) -> Vec<u8> {
    let mut state = number.wrapping_mul(2_654_435_761) | 1;
    let words = (0..1 << 12).map(|_| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state
    });
    words.flat_map(u32::to_le_bytes).collect()
}

#[tokio::test]
#[expect(clippy::print_stderr, reason = "the figures are of use")]
async fn twenty_megabytes_each_way_arrive_intact_by_a_delayed_and_jittery_path() {
    if !is_possible() {
        return;
    }
    // Parts of 16 KiB.
    const PARTS: u32 = 20 * 64;
    let path = Path::lay().await;
    let _relay = path.relay(Duration::from_millis(5), Duration::from_millis(3));
    let listener =
        path.there.namespace_ref().run(|| TcpListener::bind((THERE, 80))).expect("inside").expect("bound");
    let start = Instant::now();
    let send = |mut stream: &TcpStream, first: u32| {
        for number in first..first + PARTS {
            stream.write_all(&part(number)).expect("sent");
        }
        stream.shutdown(Shutdown::Write).expect("ended");
    };
    let receive = |mut stream: &TcpStream, first: u32| {
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("set");
        for number in first..first + PARTS {
            let expected = part(number);
            let mut came = vec![0; expected.len()];
            stream.read_exact(&mut came).expect("the whole stream comes");
            assert!(came == expected, "part {number} came otherwise than it was sent");
        }
        assert_eq!(stream.read(&mut [0]).expect("read"), 0, "and nothing behind it");
    };
    let connect = || TcpStream::connect((THERE, 80));
    let (send, receive) = (&send, &receive);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (stream, _) = listener.accept().expect("somebody comes");
            std::thread::scope(|both| {
                both.spawn(|| send(&stream, PARTS));
                receive(&stream, 0);
            });
        });
        let stream = path.here.namespace_ref().run(connect).expect("inside").expect("connected");
        scope.spawn(|| {
            let stream = stream;
            std::thread::scope(|both| {
                both.spawn(|| send(&stream, 0));
                receive(&stream, PARTS);
            });
        });
    });
    eprintln!("20 MiB each way in {:?}", start.elapsed());
}
