//! Keys of benches: addresses, and texts of 36 bytes, made from a number.

use std::net::{IpAddr, Ipv4Addr};

/// A type of key, made from a number without an allocation.
pub trait BenchKey: Send + 'static {
    fn first() -> Self;
    fn set(&mut self, number: u32);
}

impl BenchKey for IpAddr {
    fn first() -> Self {
        address(0)
    }

    fn set(&mut self, number: u32) {
        *self = address(number);
    }
}

/// The address of the client with this number.
pub fn address(number: u32) -> IpAddr {
    Ipv4Addr::from(0x0A00_0000 + number).into()
}

/// 36 bytes, as long as a UUID.
impl BenchKey for String {
    fn first() -> Self {
        Self::with_capacity(128)
    }

    fn set(&mut self, number: u32) {
        write(self, b"6ba7b810-9dad-11d1-80b4-0000________", number);
    }
}

/// 100 bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LongText(pub String);

impl BenchKey for LongText {
    fn first() -> Self {
        Self(String::first())
    }

    fn set(&mut self, number: u32) {
        write(&mut self.0, &[b'k'; 100], number);
    }
}

/// `form`, the last eight digits replaced.
fn write<const N: usize>(text: &mut String, form: &[u8; N], number: u32) {
    let mut bytes = *form;
    let (_, digits) = bytes.split_at_mut(N - 8);
    for (place, digit) in digits.iter_mut().enumerate() {
        *digit = b"0123456789abcdef"[(number >> (28 - 4 * place)) as usize & 15];
    }
    text.clear();
    text.push_str(str::from_utf8(&bytes).expect("ASCII"));
}
