//! The codec of requests: rejects a request with too many descriptors before it takes memory.

use hyper::body::Buf as _;
use prost::Message;
use tonic::{
    Status,
    codec::{Codec, DecodeBuf, Decoder},
};
use tonic_prost::ProstCodec;

use crate::protobuf_messages::{MAX_DESCRIPTORS, MAX_ENTRIES};

/// Decodes requests whose field 2 has descriptors, and encodes responses.
#[derive(Debug)]
pub(crate) struct RequestCodec<Request, Response>(ProstCodec<Response, Request>);

impl<Request, Response> Default for RequestCodec<Request, Response> {
    fn default() -> Self {
        Self(ProstCodec::default())
    }
}

/// Decodes requests.
#[derive(Debug)]
pub(crate) struct RequestDecoder<D>(D);

impl<Request, Response> Codec for RequestCodec<Request, Response>
where
    Request: Message + Default + Send + 'static,
    Response: Message + Send + 'static,
{
    type Encode = Response;
    type Decode = Request;
    type Encoder = <ProstCodec<Response, Request> as Codec>::Encoder;
    type Decoder = RequestDecoder<<ProstCodec<Response, Request> as Codec>::Decoder>;

    fn encoder(&mut self) -> Self::Encoder {
        self.0.encoder()
    }

    fn decoder(&mut self) -> Self::Decoder {
        RequestDecoder(self.0.decoder())
    }
}

impl<D: Decoder<Error = Status>> Decoder for RequestDecoder<D> {
    type Item = D::Item;
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<D::Item>, Status> {
        // All of the message is in one piece.
        if !fits(message.chunk()) {
            let text = format!(
                "a request has at most {MAX_DESCRIPTORS} descriptors of at most {MAX_ENTRIES} entries"
            );
            return Err(Status::invalid_argument(text));
        }
        self.0.decode(message)
    }
}

/// Whether the numbers of descriptors and entries are within their limits. Two bytes encode one, which takes many
/// times as much memory.
fn fits(message: &[u8]) -> bool {
    let mut descriptors = fields(message)
        .filter(|(tag, _)| *tag == 2)
        .map(|(_, descriptor)| descriptor);
    let has_few = |descriptor| {
        let entries = fields(descriptor).filter(|(tag, _)| *tag == 1);
        entries.take(MAX_ENTRIES + 1).count() <= MAX_ENTRIES
    };
    descriptors.by_ref().take(MAX_DESCRIPTORS).all(has_few) && descriptors.next().is_none()
}

/// The fields of a message that have a length, and their numbers, up to the first invalid one.
pub(crate) fn fields(mut message: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    std::iter::from_fn(move || {
        loop {
            let key = varint(&mut message)?;
            let length = match key & 7 {
                0 => {
                    varint(&mut message)?;
                    continue;
                }
                1 => 8,
                2 => usize::try_from(varint(&mut message)?).ok()?,
                // The ends of a group: its fields are read as if there was no group.
                3 | 4 => 0,
                5 => 4,
                _ => return None,
            };
            let (field, rest) = message.split_at_checked(length)?;
            message = rest;
            if key & 7 == 2 {
                return Some((key >> 3, field));
            }
        }
    })
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for at in 0..10 {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protobuf_messages::{
        Entry, RateLimitDescriptor, RateLimitOverride, RateLimitRequest,
    };

    fn request(descriptors: usize, entries: usize) -> Vec<u8> {
        let entry = Entry {
            key: "key".repeat(100),
            value: String::new(),
        };
        let limit = RateLimitOverride {
            requests_per_unit: 300,
            unit: 1,
            unit_multiplier: Some(2),
        };
        let descriptor = RateLimitDescriptor {
            entries: vec![entry; entries],
            limit: Some(limit),
            hits_addend: Some(1_000),
            is_negative_hits: true,
        };
        let request = RateLimitRequest {
            domain: "domain".to_owned(),
            descriptors: vec![descriptor; descriptors],
            hits_addend: 7,
        };
        request.encode_to_vec()
    }

    #[test]
    fn descriptors_and_entries_are_counted_before_they_are_read() {
        assert!(fits(&request(0, 0)));
        assert!(fits(&request(MAX_DESCRIPTORS, MAX_ENTRIES)));
        assert!(!fits(&request(MAX_DESCRIPTORS + 1, 0)));
        assert!(!fits(&request(1, MAX_ENTRIES + 1)));
    }

    /// Unknown fields do not hide those after them.
    #[test]
    fn unknown_fields_are_passed_over() {
        let many = [0x12, 0].repeat(MAX_DESCRIPTORS + 1);
        for before in [
            &[][..],
            &[0x7b, 0x7c],
            &[0x79, 1, 2, 3, 4, 5, 6, 7, 8],
            &[0x7d, 1, 2, 3, 4],
            &[0x78, 0xff, 1],
            &[0x7a, 3, 1, 2, 3],
        ] {
            assert!(!fits(&[before, &many].concat()), "{before:?}");
            assert!(fits(&[before, &many[2..]].concat()), "{before:?}");
        }
        for nonsense in [&[0x12][..], &[0x12, 9], &[0x7e], &[0xff; 20]] {
            assert!(
                fits(nonsense),
                "the decoder reports the fault: {nonsense:?}"
            );
        }
    }
}
