//! What the machine tells beside its steps, and what it asks the world.

use std::time::Duration;

use ipnet::IpNet;
use sallyport_tailnet::exit_node::short_name;

use super::{Machine, Proof, Snapshot, Work, judge};
use crate::address::{Family, PerFamily, Verdict};
use crate::check::Question;
use crate::dns::Resolvers;
use crate::env::{self, KillSwitch};
use crate::events::{Notice, Warning};
use crate::families::Need;
use crate::path::Path;
use crate::posture::Posture;
use crate::probe::Probe;

/// When the end of this node's own key is worth a warning.
const KEY_ENDS_SOON: Duration = Duration::from_secs(7 * 86_400);

impl Machine {
    /// tailscaled's proxy that the workload would use, when there is no TUN device.
    pub(super) fn proxy_path(&self) -> Option<Path> {
        let socks5 = self.config.socks5.map(Path::Socks5);
        socks5.or_else(|| self.config.http_proxy.map(Path::HttpProxy))
    }

    /// What is probed and asked, by the way that the workload will take.
    pub(super) fn questions(&self, work: &Work) -> (Option<Probe>, Question) {
        let status = self.snapshot.as_ref().map(|snapshot| &snapshot.status);
        let has_tun = status.is_some_and(|status| status.tun);
        let behind_exit = matches!(work, Work::Exit(_));
        let path = match self.proxy_path() {
            Some(proxy) if !has_tun => proxy,
            _ if behind_exit => Path::Tailnet(status.map(|s| s.tailscale_ips.clone()).unwrap_or_default()),
            _ => Path::Normal,
        };
        let resolvers = if behind_exit || self.config.resolvers_are_set || !path.carries_udp() {
            Resolvers::Listed(self.config.resolvers.clone())
        } else {
            Resolvers::System
        };
        let need =
            PerFamily::build(
                |family| {
                    if self.config.expected.names(family) { Need::Needed } else { Need::Welcome }
                },
            );
        let probe = behind_exit.then(|| Probe {
            targets: self.config.probe_targets.clone(),
            resolvers: resolvers.clone(),
            path: path.clone(),
        });
        (probe, Question { services: self.config.check_urls.clone(), resolvers, path, need })
    }

    pub(super) fn warn_of_the_configuration(&mut self) {
        if self.config.posture != Posture::None && self.config.kill_switch == KillSwitch::Auto {
            self.warn(
                Warning::KillSwitchNone,
                "there is no kill switch: when tailscaled ends, is stopped, logged out or loses its exit node, \
                 traffic leaves by the normal route"
                    .to_owned(),
            );
        }
        let mut idle = Vec::new();
        if !self.config.allow.is_empty() {
            idle.push(env::EGRESS_ALLOW);
        }
        if !self.config.ingress_ports.is_empty() {
            idle.push(env::INGRESS_PORTS);
        }
        if self.config.fail_open && self.config.exit_nodes.is_empty() {
            idle.push(env::EXIT_NODE_FAIL_OPEN);
        }
        if !idle.is_empty() {
            let message = format!("set, and without effect in a guard that runs once: {}", idle.join(", "));
            self.warn(Warning::NoEffect, message);
        }
    }

    pub(super) fn warn_of_the_daemon(&mut self, snapshot: &Snapshot) {
        if let super::Exposure::Exposed(why) = &snapshot.exposure
            && self.config.posture != Posture::None
        {
            self.warn(
                Warning::LocalapiExposed,
                format!("the worker can reach tailscaled's API and so clear the exit node: {why}"),
            );
        }
        if !snapshot.status.tun && !self.config.exit_nodes.is_empty() {
            self.warn(
                Warning::CheckedNotHeld,
                "tailscaled runs in userspace: it dials directly when it has no exit node, and so does every program \
                 that does not use its proxy; the posture is checked, not held"
                    .to_owned(),
            );
        }
        if let Some(left) = snapshot.key_expires_in.filter(|left| *left < KEY_ENDS_SOON) {
            let hours = left.as_secs() / 3600;
            self.warn(
                Warning::KeyExpires,
                format!("this node's own key ends in {hours} h; then traffic leaks"),
            );
        }
    }

    pub(super) fn warn_of_accepted_routes(&mut self) {
        if !self.config.accept_routes {
            return;
        }
        let Some(snapshot) = &self.snapshot else { return };
        let suffix = &snapshot.status.magic_dns_suffix;
        let past: Vec<_> = snapshot
            .status
            .peers
            .values()
            .flat_map(|peer| peer.primary_routes.iter().map(move |route| (peer, route)))
            .filter(|(_, route)| is_public(route))
            .map(|(peer, route)| format!("{route} by {}", short_name(peer, suffix)))
            .collect();
        if !past.is_empty() {
            let message = format!("accepted routes go past the exit node: {}", past.join(", "));
            self.warn(Warning::PublicRouteAccepted, message);
        }
    }

    pub(super) fn tell_of_services(&mut self, proof: &Proof) {
        for (family, learned) in proof.learned.iter().flat_map(PerFamily::iter) {
            let Some(learned) = learned else { continue };
            // A family that nothing is expected of and that does not come through is told of once, elsewhere.
            if learned.seen.is_some() || self.config.expected.names(family) {
                for miss in &learned.misses {
                    self.tell(Notice::ServiceMissed {
                        family,
                        service: miss.service.clone(),
                        message: miss.message.clone(),
                    });
                }
            }
            let Some(sighting) = &learned.seen else { continue };
            let expected = match self.config.expected.judge(family, Some(sighting.address)) {
                Verdict::NotAsked => None,
                Verdict::Expected => Some(true),
                Verdict::Foreign | Verdict::NotLearned => Some(false),
            };
            self.tell(Notice::Address {
                family,
                address: sighting.address,
                service: sighting.service.clone(),
                expected,
            });
        }
    }

    pub(super) fn tell_of_families(&mut self, work: &Work, proof: &Proof) {
        let told = Family::BOTH.into_iter().any(|family| judge::seen(proof, family).is_some());
        if !told {
            let misses = proof.learned.iter().flat_map(PerFamily::iter).filter_map(|(_, l)| l.as_ref());
            let misses: Vec<_> = misses
                .flat_map(|learned| &learned.misses)
                .map(|miss| format!("{}: {}", miss.service, miss.message))
                .collect();
            let message = format!("no service told the public address: {}", misses.join("; "));
            self.warn(Warning::AddressNotLearned, message);
        }
        let Work::Exit(candidate) = work else { return };
        let name = &candidate.name;
        let families = judge::families_through(proof);
        self.tell(Notice::Through { families: families.clone() });
        for (family, word) in [(Family::Ipv4, Warning::NoIpv4), (Family::Ipv6, Warning::NoIpv6)] {
            if !families.contains(&family) {
                let message = format!("{name} has no {family}: nothing came back through it by {family}");
                self.warn(word, message);
            } else if !self.config.expected.is_empty() && !self.config.expected.names(family) {
                let address = judge::seen(proof, family).map(|ip| format!(" as {ip}")).unwrap_or_default();
                let message = format!(
                    "{family} goes through {name}{address}, no {family} address is expected, and there is no kill \
                     switch to shut it"
                );
                self.warn(Warning::FamilyUnverified, message);
            }
        }
    }
}

/// Whether a route leads to addresses of the Internet. The default routes are the exit node's own.
fn is_public(route: &IpNet) -> bool {
    if route.prefix_len() == 0 {
        return false;
    }
    match route {
        IpNet::V4(v4) => {
            let address = v4.network();
            let is_cgnat = address.octets()[0] == 100 && address.octets()[1] & 0xc0 == 64;
            !(address.is_private()
                || address.is_loopback()
                || address.is_link_local()
                || address.is_multicast()
                || is_cgnat)
        }
        IpNet::V6(v6) => v6.network().segments()[0] & 0xe000 == 0x2000,
    }
}
