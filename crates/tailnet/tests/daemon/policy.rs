//! The evaluation of policies beside the real thing: what the answer says, two daemons and a control server do.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use sallyport_tailnet::policy_file::{
    Coverage, Destination, Device, Host, Identity, Overall, Policy, Routes, Source, World, may_reach,
    may_use_exit,
};
use sallyport_tailnet::wire::status::BackendState::Running;
use sallyport_tailnet::{Client, Peers, PingKind, Prefs};
use serde_json::Value;

use crate::control::Control;
use crate::login::{log_in, named};
use crate::programs;
use crate::tailscaled::{PATIENCE, Tailscaled};

/// How long a connection may take that is to succeed; one that is refused is lost in silence. On loopback it takes a
/// few milliseconds.
const CONNECT: Duration = Duration::from_millis(1500);

/// The tailnet as the control server has it: all of it.
fn world(control: &Control) -> World {
    let words = |value: &Value| -> Vec<String> {
        let items = value.as_array().into_iter().flatten();
        items.map(|item| item.as_str().unwrap().to_owned()).collect()
    };
    let device = |node: &Value| Device {
        name: node["fqdn"].as_str().unwrap().trim_end_matches('.').to_owned(),
        identity: Identity::Tags(words(&node["tags"]).iter().map(|tag| tag.parse().unwrap()).collect()),
        addresses: words(&node["addresses"]).iter().map(|address| address.parse().unwrap()).collect(),
        routes: Routes::Exactly(
            words(&node["approved_routes"]).iter().map(|route| route.parse::<IpNet>().unwrap()).collect(),
        ),
    };
    World::of(control.nodes().iter().map(device).collect(), Coverage::All)
}

/// Says hello on a port of loopback, which is where a userspace daemon delivers what its packet filter lets in.
fn greeter() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let _ = stream.and_then(|mut stream| stream.write_all(b"hello"));
        }
    });
    port
}

/// Whether a greeting comes through the daemon's proxy from this address and port of the tailnet.
fn greeted(proxy: std::net::SocketAddr, address: IpAddr, port: u16) -> bool {
    let attempt = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect(proxy)?;
        stream.set_read_timeout(Some(CONNECT))?;
        stream.write_all(&[5, 1, 0])?;
        stream.read_exact(&mut [0; 2])?;
        let (kind, octets) = match address {
            IpAddr::V4(address) => (1, address.octets().to_vec()),
            IpAddr::V6(address) => (4, address.octets().to_vec()),
        };
        stream.write_all(&[&[5, 1, 0, kind][..], &octets, &port.to_be_bytes()].concat())?;
        let mut head = [0; 4];
        stream.read_exact(&mut head)?;
        let rest = if head[3] == 4 { 18 } else { 6 };
        stream.read_exact(&mut [0; 18][..rest])?;
        let mut greeting = [0; 5];
        stream.read_exact(&mut greeting)?;
        Ok(head[1] == 0 && &greeting == b"hello")
    };
    attempt().unwrap_or(false)
}

struct Tailnet {
    control: Control,
    worker: Tailscaled,
    exit: Tailscaled,
    ports: [u16; 2],
}

impl Tailnet {
    async fn raise() -> Option<Self> {
        let control = Control::start()?;
        let (worker, exit) = (Tailscaled::start().await?, Tailscaled::start().await?);
        let everywhere = vec!["0.0.0.0/0".parse().unwrap(), "::/0".parse().unwrap()];
        log_in(&worker, &control, control.key("tag:worker"), named("worker")).await;
        let offering = Prefs { advertise_routes: everywhere, ..named("exit-a") };
        log_in(&exit, &control, control.key("tag:exit"), offering).await;
        worker.until("running", |status| status.backend_state == Running).await;
        exit.until("running", |status| status.backend_state == Running).await;
        Some(Self { control, worker, exit, ports: [greeter(), greeter()] })
    }

    /// What really happens: for each address of the exit node and each port a greeting, then pings, then whether it
    /// is offered as an exit node. All at once, since what is refused is waited for in vain.
    async fn happens(&self) -> Vec<(String, bool)> {
        let exit = self.exit.client().status(Peers::Omit).await.unwrap();
        let proxy = self.worker.proxy;
        let mut attempts = Vec::new();
        for address in exit.tailscale_ips.iter().copied() {
            for port in self.ports {
                let attempt = tokio::task::spawn_blocking(move || greeted(proxy, address, port));
                attempts.push((format!("tcp {address}:{port}"), attempt));
            }
            let client = self.worker.client();
            let ping = async move {
                let ping = client.ping(address, PingKind::Icmp, CONNECT).await;
                ping.is_ok_and(|result| result.answered().is_ok())
            };
            attempts.push((format!("ping {address}"), tokio::spawn(ping)));
        }
        let mut seen = Vec::new();
        for (what, attempt) in attempts {
            seen.push((what, attempt.await.unwrap()));
        }
        seen.push(("exit".to_owned(), offered(&self.worker.client(), &exit.tailscale_ips).await));
        seen
    }

    /// What the evaluation says to the same questions.
    fn answers(&self, policy: &Policy) -> Vec<(String, bool)> {
        let world = world(&self.control);
        let device = |name: &str| world.device(name).unwrap().clone();
        let (worker, exit) = (Source::device(&device("worker")), device("exit-a"));
        let yes = |overall: Overall| match overall {
            Overall::Allowed => true,
            Overall::Refused => false,
            Overall::Indeterminate => panic!("nothing is left open in a whole world"),
        };
        let ask = |destination: Destination| yes(may_reach(policy, &world, &worker, &destination).overall());
        let mut said = Vec::new();
        for address in exit.addresses {
            let bracketed = if address.is_ipv6() { format!("[{address}]") } else { address.to_string() };
            for port in self.ports {
                said.push((
                    format!("tcp {address}:{port}"),
                    ask(format!("{bracketed}:{port}").parse().unwrap()),
                ));
            }
            said.push((format!("ping {address}"), ask(format!("{address}/icmp").parse().unwrap())));
        }
        let host: Host = "exit-a".parse().unwrap();
        said.push(("exit".to_owned(), yes(may_use_exit(policy, &world, &worker, &host).overall())));
        said
    }
}

async fn offered(client: &Client, addresses: &[IpAddr]) -> bool {
    let status = client.status(Peers::Include).await.unwrap();
    status.peers.values().any(|peer| peer.tailscale_ips == addresses && peer.exit_node_option)
}

#[tokio::test]
async fn what_the_evaluation_says_is_what_two_daemons_do() {
    let Some(tailnet) = Tailnet::raise().await else { return };
    let [a, b] = tailnet.ports;
    let own = tailnet.worker.client().status(Peers::Omit).await.unwrap().tailscale_ips[0];
    let acl = |src: &str, dst: &str| {
        format!(r#""acls": [{{"action": "accept", "src": ["{src}"], "dst": ["{dst}"]}}]"#)
    };
    let mut distinct = BTreeSet::new();
    for rules in [
        acl("tag:worker", &format!("tag:exit:{a}")),
        format!(r#""grants": [{{"src": ["tag:worker"], "dst": ["tag:exit"], "ip": ["tcp:{b}"]}}]"#),
        acl("*", "*:*"),
        acl("tag:worker", "autogroup:internet:*"),
        format!(r#""acls": [{{"action": "accept", "src": ["*"], "proto": "udp", "dst": ["*:{a}"]}}]"#),
        acl(&own.to_string(), &format!("tag:exit:{a},{b}")),
        acl("tag:exit", "*:*"),
        r#""grants": [{"src": ["*"], "dst": ["autogroup:internet", "*"], "ip": ["*"], "via": ["tag:worker"]}]"#.to_owned(),
        r#""acls": []"#.to_owned(),
        r#""grants": [{"src": ["autogroup:tagged"], "dst": ["autogroup:internet", "autogroup:tagged"], "ip": ["*"]}]"#
            .to_owned(),
    ] {
        let text = format!(
            "{{ \"tagOwners\": {{ \"tag:worker\": [], \"tag:exit\": [] }}, // a comment\n \
             \"autoApprovers\": {{ \"exitNode\": [\"tag:exit\"] }}, {rules}, }}"
        );
        tailnet.control.set_policy(&text);
        let said = tailnet.answers(&Policy::parse(&text).unwrap());
        // The news of a policy takes a moment to arrive.
        let start = Instant::now();
        let mut seen = tailnet.happens().await;
        while seen != said {
            assert!(start.elapsed() < PATIENCE, "{rules}\nhappens: {seen:#?}\nsaid: {said:#?}");
            seen = tailnet.happens().await;
        }
        distinct.insert(said.into_iter().map(|(_, yes)| yes).collect::<Vec<_>>());
    }
    assert!(distinct.len() >= 7, "the policies have to differ in what they do: {distinct:?}");
}

#[test]
fn every_word_in_every_place_is_taken_or_refused_as_the_control_server_does() {
    let Some(labctl) = programs::labctl() else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("policy.hujson");
    let words = [
        "*",
        "tag:worker",
        "tag:none",
        "tag:",
        "tag:1",
        "group:eng",
        "group:none",
        "group:",
        "alice@x.com",
        "name@",
        "autogroup:internet",
        "autogroup:member",
        "autogroup:tagged",
        "autogroup:self",
        "autogroup:danger-all",
        "autogroup:admin",
        "db",
        "none",
        "",
        "100.64.0.1",
        "10.1.2.3/16",
        "10.0.0.0/33",
        "fd7a:115c:a1e0::1",
        "fe80::1%eth0",
        "0.0.0.0/0",
        "::/0",
    ];
    let services =
        ["*", "443", "0", "65536", "80-90", "90-80", "80,443", "80,", "tcp:443", "tcp", "*:443", ":443", ""];
    let mut rules: Vec<String> = Vec::new();
    for word in words {
        rules.push(format!(r#""acls": [{{"action": "accept", "src": ["{word}"], "dst": ["*:*"]}}]"#));
        rules.push(format!(r#""acls": [{{"action": "accept", "src": ["*"], "dst": ["{word}:443"]}}]"#));
        rules.push(format!(r#""grants": [{{"src": ["{word}"], "dst": ["*"], "ip": ["*"]}}]"#));
        rules.push(format!(r#""grants": [{{"src": ["*"], "dst": ["{word}"], "ip": ["*"]}}]"#));
        rules.push(format!(r#""grants": [{{"src": ["*"], "dst": ["*"], "ip": ["*"], "via": ["{word}"]}}]"#));
        rules.push(format!(r#""autoApprovers": {{"exitNode": ["{word}"]}}"#));
        rules.push(format!(r#""autoApprovers": {{"routes": {{"{word}": ["tag:worker"]}}}}"#));
    }
    for service in services {
        rules.push(format!(r#""acls": [{{"action": "accept", "src": ["*"], "dst": ["*:{service}"]}}]"#));
        rules.push(format!(r#""grants": [{{"src": ["*"], "dst": ["*"], "ip": ["{service}"]}}]"#));
        rules.push(format!(
            r#""acls": [{{"action": "accept", "proto": "{service}", "src": ["*"], "dst": ["*:*"]}}]"#
        ));
    }
    // What others take: older control servers all addresses in `acls`, Tailscale's own parser a starred protocol.
    let known = [r#""dst": ["0.0.0.0/0:443"]"#, r#""dst": ["::/0:443"]"#, r#""ip": ["*:443"]"#];
    let mut differ = Vec::new();
    for rules in rules.iter().filter(|rules| !known.iter().any(|known| rules.contains(known))) {
        let text = format!(
            r#"{{ "tagOwners": {{"tag:worker": []}}, "groups": {{"group:eng": ["alice@x.com"]}},
                  "hosts": {{"db": "100.64.0.5"}}, {rules} }}"#
        );
        std::fs::write(&path, &text).unwrap();
        let theirs = Command::new(&labctl).arg("check-policy").arg(&path).output().unwrap();
        let ours = Policy::parse(&text);
        if theirs.status.success() != ours.is_ok() {
            differ.push(format!("{rules}: {} / {ours:?}", String::from_utf8_lossy(&theirs.stderr)));
        }
    }
    assert!(rules.len() > 200);
    assert!(differ.is_empty(), "{} differ:\n{}", differ.len(), differ.join("\n"));
}
