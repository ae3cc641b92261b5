//! The exported functions, which the page calls by name.
//!
//! Texts pass through one buffer. A function that writes a text there returns its length in bytes,
//! and the page reads it before the next call.
#![allow(
    unsafe_code,
    reason = "`no_mangle` is unsafe: two functions of one name would be one. These are all there are"
)]

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU8, Ordering::Relaxed},
};

use tower_ratelimit::clock::Timestamp;

use crate::Lane;

/// The length of the buffer in bytes. Every response fits.
pub const TEXT_LEN: usize = 16_384;

// Atomics, because a mutable static would be unsafe otherwise. In WebAssembly without threads they
// are plain bytes.
static TEXT: [AtomicU8; TEXT_LEN] = [const { AtomicU8::new(0) }; TEXT_LEN];

static LANES: [Mutex<Option<Lane>>; 2] = [const { Mutex::new(None) }; 2];

/// The address of the buffer.
#[unsafe(no_mangle)]
pub extern "C" fn text_ptr() -> *const AtomicU8 {
    TEXT.as_ptr()
}

/// The length of the buffer.
#[unsafe(no_mangle)]
pub extern "C" fn text_len() -> u32 {
    TEXT_LEN as u32
}

/// Replaces the lane at `place`, 0 or 1, by one with the quota in the first `len` bytes of the
/// buffer, and writes the quota as JSON. If the quota is invalid, the lane stays, the buffer has
/// the fault, and the length is negative.
#[unsafe(no_mangle)]
pub extern "C" fn lane(place: u32, len: u32) -> i32 {
    let bytes: Vec<u8> = TEXT
        .iter()
        .take(len as usize)
        .map(|byte| byte.load(Relaxed))
        .collect();
    match Lane::new(&String::from_utf8_lossy(&bytes)) {
        Ok(lane) => {
            let told = lane.quota();
            with_lane(place, |place| *place = Some(lane));
            write(&told) as i32
        }
        Err(error) => -(write(&error.to_string()) as i32),
    }
}

/// Sends a request of a client, at a time in microseconds since 1970; writes the result as JSON. 0
/// without a lane.
#[unsafe(no_mangle)]
pub extern "C" fn decide(place: u32, now: f64, client: u32, cost: u32) -> u32 {
    let answer = with_lane(place, |lane| {
        Some(lane.as_mut()?.decide(time(now), client, cost.into()))
    });
    answer.flatten().map_or(0, |answer| write(&answer))
}

/// Reads the state of a client, at a time in microseconds since 1970; writes it as JSON. 0 without
/// a lane.
#[unsafe(no_mangle)]
pub extern "C" fn peek(place: u32, now: f64, client: u32) -> u32 {
    let state = with_lane(place, |lane| Some(lane.as_ref()?.peek(time(now), client)));
    state.flatten().map_or(0, |state| write(&state))
}

/// Writes the crate's version.
#[unsafe(no_mangle)]
pub extern "C" fn version() -> u32 {
    write(env!("CARGO_PKG_VERSION"))
}

fn with_lane<T>(place: u32, then: impl FnOnce(&mut Option<Lane>) -> T) -> Option<T> {
    let lane = LANES.get(place as usize)?;
    Some(then(
        &mut lane.lock().unwrap_or_else(PoisonError::into_inner),
    ))
}

/// The page's numbers are floating-point; up to the year 2255 they are whole microseconds.
fn time(now: f64) -> Timestamp {
    Timestamp::from_micros(now as u64)
}

fn write(text: &str) -> u32 {
    assert!(text.len() <= TEXT_LEN, "a text of {} bytes", text.len());
    for (place, byte) in TEXT.iter().zip(text.bytes()) {
        place.store(byte, Relaxed);
    }
    text.len() as u32
}
