#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;
use crate::link::Links;
use crate::route::Route;
use crate::{privilege, sysctl};

#[test]
fn a_namespace_is_another_one_and_gone_with_its_last_holder() {
    if privilege::missing() {
        return;
    }
    let ours = NetnsId::of_this_thread().unwrap();
    let namespace = Namespace::builder("test").create().unwrap();
    assert_ne!(namespace.id(), ours);
    assert_eq!(namespace.run(NetnsId::of_this_thread).unwrap(), Some(namespace.id()));
    assert_eq!(NetnsId::of_this_thread().unwrap(), ours, "the caller's thread has stayed at home");
}

#[test]
fn its_mounts_and_host_name_are_seen_inside_only() {
    if privilege::missing() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (source, target) = (dir.path().join("source"), dir.path().join("target"));
    std::fs::write(&source, "inside").unwrap();
    std::fs::write(&target, "outside").unwrap();
    let bind =
        || mount(Some(&source), &target, None::<&str>, MsFlags::MS_BIND, None::<&str>).map_err(Into::into);
    let namespace = Namespace::builder("test").hostname("inner").mounts(bind).create().unwrap();
    let seen =
        namespace.run(|| (std::fs::read_to_string(&target).unwrap(), nix::unistd::gethostname().unwrap()));
    assert_eq!(seen.unwrap(), ("inside".to_string(), "inner".into()));
    assert_eq!(std::fs::read_to_string(&target).unwrap(), "outside");
    assert_ne!(nix::unistd::gethostname().unwrap(), "inner");
}

#[test]
fn another_process_gets_in_by_the_descriptors_of_the_holder() {
    if privilege::missing() {
        return;
    }
    let namespace = Namespace::builder("test").create().unwrap();
    let path = format!("/proc/{}/fd/{}", std::process::id(), namespace.raw_fds().0);
    let opened = Namespace::open("again", path.as_ref(), None, None).unwrap();
    assert_eq!(opened.id(), namespace.id());
}

#[tokio::test]
async fn packets_cross_a_veth_pair_between_two_residents_in_both_families() {
    if privilege::missing() {
        return;
    }
    let [left, right] = ["left", "right"].map(|label| Arc::new(Namespace::builder(label).create().unwrap()));
    for namespace in [&left, &right] {
        sysctl::write(namespace, &[("net.ipv6.conf.default.accept_dad", "0")]).unwrap();
    }
    let (at_left, at_right) = (Resident::start(Arc::clone(&left)).unwrap(), Resident::start(right).unwrap());
    let (links_left, links_right) = (Links::of(&at_left).await.unwrap(), Links::of(&at_right).await.unwrap());
    links_left.add_veth("near", "far", at_right.namespace()).await.unwrap();
    for (links, name, addresses) in [
        (&links_left, "near", ["192.0.2.1/32", "2001:db8::1/128"]),
        (&links_right, "far", ["192.0.2.2/32", "2001:db8::2/128"]),
    ] {
        for address in addresses {
            links.add_address(name, address.parse().unwrap()).await.unwrap();
        }
        links.up(name).await.unwrap();
    }
    for (links, name, targets) in [
        (&links_left, "near", ["192.0.2.2/32", "2001:db8::2/128"]),
        (&links_right, "far", ["192.0.2.1/32", "2001:db8::1/128"]),
    ] {
        for target in targets {
            links.add_route(&Route::on_link(target.parse().unwrap(), name)).await.unwrap();
        }
    }
    for address in ["192.0.2.2:0", "[2001:db8::2]:0"] {
        let listener = at_right.run(move || tokio::net::TcpListener::bind(address)).await.unwrap().unwrap();
        let target = listener.local_addr().unwrap();
        let connect = at_left.run(move || tokio::net::TcpStream::connect(target));
        let deadline = std::time::Duration::from_secs(10);
        tokio::time::timeout(deadline, connect).await.unwrap().unwrap().unwrap();
    }
    links_left.delete("near").await.unwrap();
    links_left.delete("near").await.expect("a link that is gone already is no error");
    assert_eq!(links_right.names().await.unwrap(), ["lo"], "the other end went with it");
    assert!(links_left.up("near").await.unwrap_err().is_missing());
}
