//! Ids of reservations: receipts that a client keeps and cannot change.

use std::{
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
};

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use prost::Message as _;
use ring::{
    hmac,
    rand::{SecureRandom as _, SystemRandom},
};

use super::committed_ids::ReservationId;
use crate::{
    decide::ReservedUnits, decide_and_serve_errors::ServeError,
    protobuf_messages::RateLimitRequest, secret_file,
};

/// The bytes of a seal.
const SEAL: usize = 32;

/// The use of the key, so that no seal of another use of the same secret fits.
const CONTEXT: &[u8] = b"tower-ratelimit reservation 1";

/// The receipt of a reservation.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Receipt {
    /// The number of the process, random.
    #[prost(fixed64, tag = "1")]
    process: u64,
    /// The number of the reservation in its process.
    #[prost(uint64, tag = "2")]
    number: u64,
    /// Milliseconds since 1970.
    #[prost(uint64, tag = "3")]
    reserved_at: u64,
    #[prost(message, repeated, tag = "4")]
    pub(super) units: Vec<ReservedUnits>,
}

impl Receipt {
    pub(super) const fn id(&self) -> ReservationId {
        ReservationId {
            reserved_at: self.reserved_at,
            process: self.process,
            number: self.number,
        }
    }
}

/// The key that seals reservations, by HMAC-SHA-256. Instances that share it, and their counts, accept the
/// reservations of each other.
#[derive(Debug)]
pub struct ReservationKey {
    seal: hmac::Key,
    process: u64,
    reservations: AtomicU64,
}

impl ReservationKey {
    /// A random key. Only this process accepts its reservations.
    ///
    /// # Errors
    ///
    /// When the system has no random numbers.
    pub fn random() -> Result<Self, ServeError> {
        let secret: [u8; 32] = random()?;
        Self::of_secret(&secret)
    }

    /// The key with the secret in a file, of at least 32 characters.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, the secret is short, or the system has no random numbers.
    pub fn read(file: &Path) -> Result<Self, ServeError> {
        let fault = |text| ServeError(format!("--reservation-key-file: {text}"));
        let secret = secret_file::read(file, "key").map_err(fault)?;
        Self::of_secret(secret.as_bytes())
    }

    fn of_secret(secret: &[u8]) -> Result<Self, ServeError> {
        Ok(Self {
            seal: hmac::Key::new(hmac::HMAC_SHA256, secret),
            process: u64::from_le_bytes(random()?),
            reservations: AtomicU64::new(0),
        })
    }

    /// The id of a new reservation.
    pub(super) fn seal(
        &self,
        request: &RateLimitRequest,
        reserved_at: u64,
        units: Vec<ReservedUnits>,
    ) -> String {
        let receipt = Receipt {
            process: self.process,
            number: self.reservations.fetch_add(1, Ordering::Relaxed),
            reserved_at,
            units,
        };
        let receipt = receipt.encode_to_vec();
        let seal = hmac::sign(&self.seal, &sealed(&receipt, request));
        BASE64_URL_SAFE_NO_PAD.encode([seal.as_ref(), &receipt].concat())
    }

    /// The receipt in an id, if it was sealed with this key for these descriptors.
    pub(super) fn open(&self, request: &RateLimitRequest, id: &str) -> Option<Receipt> {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(id).ok()?;
        let (seal, receipt) = bytes.split_at_checked(SEAL)?;
        hmac::verify(&self.seal, &sealed(receipt, request), seal).ok()?;
        Receipt::decode(receipt).ok()
    }
}

fn random<const N: usize>() -> Result<[u8; N], ServeError> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| ServeError("the system has no random numbers".to_owned()))?;
    Ok(bytes)
}

/// The text under a seal: the receipt, and the request that it belongs to.
fn sealed(receipt: &[u8], request: &RateLimitRequest) -> Vec<u8> {
    let length = (receipt.len() as u64).to_le_bytes();
    [CONTEXT, &length, receipt, &request.encode_to_vec()].concat()
}
