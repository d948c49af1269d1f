//! After a login nothing of the key is left in this process: its whole memory is searched.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::time::Instant;

use sallyport_tailnet::{Prefs, StartOptions};
use secrecy::SecretString;
use tokio::time::{Duration, sleep};

use crate::tailscaled::{PATIENCE, Tailscaled};

/// The key, veiled, so that neither this program nor its search holds it in the open.
const VEILED: &[u8] = b"~yaoskm'k\x7f~b'iky~kx~'9=8>?:<1234";
const VEIL: u8 = 0x0a;

#[tokio::test]
async fn nothing_of_the_key_is_left_in_memory_once_it_is_sent() {
    let Some(daemon) = Tailscaled::start().await else { return };
    // Control first: a key that is there is found.
    let key = unveiled();
    assert!(copies() > 0, "the search is blind");
    let options = StartOptions {
        // A body of some size, in which a growing buffer would have left pieces behind.
        update_prefs: Some(Prefs { hostname: "x".repeat(3000), ..Prefs::fresh() }),
        auth_key: Some(key),
    };
    daemon.client().start(&options).await.unwrap();
    drop(options);
    let start = Instant::now();
    // The connection's task ends, and wipes its buffer, at the runtime's next turn.
    loop {
        sleep(Duration::from_millis(10)).await;
        let left = copies();
        if left == 0 {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "{left} copies are left");
    }
}

fn unveiled() -> SecretString {
    let mut key = String::with_capacity(VEILED.len());
    key.extend(VEILED.iter().map(|byte| char::from(byte ^ VEIL)));
    SecretString::from(key)
}

/// How often the key is in this process's writable memory.
fn copies() -> usize {
    let memory = File::open("/proc/self/mem").unwrap();
    let mut count = 0;
    let mut page = vec![0; 1 << 20];
    for line in BufReader::new(File::open("/proc/self/maps").unwrap()).lines() {
        let line = line.unwrap();
        let mut words = line.split_whitespace();
        let (Some(range), Some(rights)) = (words.next(), words.next()) else { continue };
        if !rights.starts_with("rw") || line.ends_with("[vvar]") {
            continue;
        }
        let (start, end) = range.split_once('-').unwrap();
        let parse = |text| u64::from_str_radix(text, 16).unwrap();
        let (mut at, end) = (parse(start), parse(end));
        while at < end {
            let wanted = usize::try_from(end - at).unwrap().min(page.len());
            let Ok(read) = memory.read_at(&mut page[..wanted], at) else { break };
            if read == 0 {
                break;
            }
            let found = page[..read].windows(VEILED.len()).filter(|window| is_key(window)).count();
            count += found;
            // What was read must not be found again as a copy of its own.
            page[..read].fill(0);
            // Step back so that a key across two reads is seen.
            at += if read == wanted && read > VEILED.len() && at + (read as u64) < end {
                (read - VEILED.len()) as u64
            } else {
                read as u64
            };
        }
    }
    count
}

fn is_key(window: &[u8]) -> bool {
    window.iter().zip(VEILED).all(|(byte, veiled)| byte ^ VEIL == *veiled)
}
