//! The process's environment block, written in place. The one unsafe spot of this crate.

use std::ffi::{CStr, c_char};

unsafe extern "C" {
    /// The environment of this process: pointers to `NAME=value`, the last one null.
    static environ: *const *mut c_char;
}

/// Zeroes the value of every entry with this name. The name stays, with an empty value.
///
/// Justification: the kernel placed these bytes at the top of the stack and shows them in `/proc/<pid>/environ` for
/// the life of the process; removing the variable from the list only forgets the pointer.
pub(super) fn blank(name: &str) {
    // SAFETY: `environ` is null or a null-terminated array of valid C strings. The guard calls this as its first act,
    // while it has one thread, so nobody changes the array or reads the strings meanwhile; `std::env` itself keeps no
    // pointers into them. The strings lie in writable memory: the initial stack, or what `setenv` allocated.
    unsafe {
        let mut entry = environ;
        while !entry.is_null() && !(*entry).is_null() {
            let text = CStr::from_ptr(*entry).to_bytes();
            let value_length =
                text.strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"=")).map(<[u8]>::len);
            if let Some(length) = value_length {
                let value = (*entry).add(name.len() + 1);
                for offset in 0..length {
                    value.add(offset).write_volatile(0);
                }
            }
            entry = entry.add(1);
        }
    }
}
