//! Where memory of the engine comes from.
//!
//! Comes in: wishes for memory, of all Rust code in this module. Goes out: memory of tiles that are gone, before fresh pages of the system. One arena for each core keeps
//! what is reused together. What nobody has used for ten seconds is given back to the system: a query that comes again finds the memory that it had. Large pages are as the system gives them: asked for always, a query that
//! needs a few kilobytes in each of many buffers had megabytes cleared for it.
//! jemalloc is safe to fork while other threads allocate. Never here: Python objects, memory of other libraries.

use std::ffi::{CStr, c_char};
use std::ptr::null_mut;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Read by jemalloc before its first allocation; `_RJEM_MALLOC_CONF` in the environment stands above it.
#[expect(
    unsafe_code,
    reason = "jemalloc looks for its settings under this name"
)]
// SAFETY: no other library defines a symbol with the prefix `_rjem_`, and this is the type that jemalloc declares for it.
#[unsafe(export_name = "_rjem_malloc_conf")]
static SETTINGS: Option<&'static c_char> = Some(first(
    c"oversize_threshold:0,percpu_arena:phycpu,dirty_decay_ms:10000,muzzy_decay_ms:0",
));

#[expect(unsafe_code, reason = "jemalloc wants a pointer to the first byte")]
const fn first(text: &'static CStr) -> &'static c_char {
    // SAFETY: a C string has at least its final zero byte, and this one lives forever.
    unsafe { &*text.as_ptr() }
}

/// Lets a thread of the allocator give unused memory back while nobody allocates. Called where our other threads start; a forked child starts its own.
#[expect(
    unsafe_code,
    reason = "settings of jemalloc change through its C interface"
)]
pub(crate) fn give_back_when_idle() {
    let mut wanted = true;
    // SAFETY: the name ends with a zero byte, and the setting is read from one `bool` that lives until the call returns. Where no thread can be started it returns an error,
    // and the next allocations give memory back.
    unsafe {
        tikv_jemalloc_sys::mallctl(
            c"background_thread".as_ptr(),
            null_mut(),
            null_mut(),
            (&raw mut wanted).cast(),
            size_of::<bool>(),
        );
    }
}
