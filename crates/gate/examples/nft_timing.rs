//! Times what the kill switch asks of the kernel, in a namespace of its own: `cargo run --example nft_timing` as root.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a measuring program, run by hand")]

use std::time::{Duration, Instant};

use sallyport_gate::Namespace;
use sallyport_gate::kill_switch::{
    ExitNodeFamily as F, Gate, GatePolicy, Keeper, OwnNamespace, Passage, Tailnet, WorkloadEnd,
};
use sallyport_gate::nf_tables::NfTables;

const ROUNDS: usize = 300;

fn main() {
    let namespace = Namespace::builder("timing").create().unwrap();
    println!("{:<44} {:>6} {:>9} {:>9} {:>9}", "microseconds", "n", "p50", "p95", "max");
    for workloads in [1, 100, 1000] {
        let open = GatePolicy::exit_node(F::Allowed, F::Allowed).with_tailnet(Tailnet::All);
        let mut first = Vec::new();
        for _ in 0..ROUNDS.min(200) {
            let nf = NfTables::inside(&namespace).unwrap();
            let (keeper, took) =
                timed(|| Keeper::install(nf, Gate::Own(gate(workloads)), open.clone()).unwrap());
            drop(keeper);
            first.push(took);
        }
        report(&format!("install and learn, {workloads} workloads"), first);
        let nf = NfTables::inside(&namespace).unwrap();
        let mut keeper = Keeper::install(nf, Gate::Own(gate(workloads)), open.clone()).unwrap();
        let (mut cut, mut attach, mut shut, mut opened, mut look) = (vec![], vec![], vec![], vec![], vec![]);
        for _ in 0..ROUNDS {
            cut.push(timed(|| keeper.set_passage("gw0", Passage::Shut).unwrap()).1);
            attach.push(timed(|| keeper.set_passage("gw0", Passage::Open).unwrap()).1);
            shut.push(timed(|| keeper.set_policy(GatePolicy::bootstrap()).unwrap()).1);
            opened.push(timed(|| keeper.set_policy(open.clone()).unwrap()).1);
            look.push(timed(|| keeper.check().unwrap()).1);
        }
        report(&format!("cut one of {workloads} workloads (v4+v6)"), cut);
        report(&format!("attach one of {workloads} workloads (v4+v6)"), attach);
        report("shut the posture", shut);
        report("open the posture", opened);
        report("check that nothing was touched", look);
        keeper.release().unwrap();
    }
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let began = Instant::now();
    let done = work();
    (done, began.elapsed())
}

fn report(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let at = |part: usize| times[(times.len() - 1) * part / 100].as_micros();
    println!("{what:<44} {:>6} {:>9} {:>9} {:>9}", times.len(), at(50), at(95), at(100));
}

/// A gate of so many workloads.
fn gate(count: u16) -> OwnNamespace {
    let workloads = (0..count)
        .map(|at| WorkloadEnd {
            link: format!("gw{at}"),
            ipv4: Some(std::net::Ipv4Addr::from_bits(0x0a58_0000 + u32::from(at) * 4 + 2)),
            ipv6: Some(std::net::Ipv6Addr::new(0xfd88, at, 0, 0, 0, 0, 0, 2)),
            passage: Passage::Open,
        })
        .collect();
    OwnNamespace {
        owner: "timing".into(),
        tunnel: "tailscale0".into(),
        workload_prefix: "gw".into(),
        tailscaled_uid: None,
        resolver: None,
        dns_port: None,
        workloads,
    }
}
