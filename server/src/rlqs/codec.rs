//! The codec of reports: rejects a message with too many buckets or pairs before it takes memory.

use hyper::body::Buf as _;
use tonic::{
    Status,
    codec::{Codec, DecodeBuf, Decoder},
};
use tonic_prost::ProstCodec;

use super::messages::{RateLimitQuotaResponse, RateLimitQuotaUsageReports};
use crate::rls::fields;

/// The most buckets and pairs of a message, together: twice those of a stream with one pair each.
const MAX_FIELDS: usize = 200_000;

type Inner = ProstCodec<RateLimitQuotaResponse, RateLimitQuotaUsageReports>;

/// Decodes reports, and encodes responses.
#[derive(Debug, Default)]
pub(super) struct ReportCodec(Inner);

/// Decodes reports.
#[derive(Debug)]
pub(super) struct ReportDecoder(<Inner as Codec>::Decoder);

impl Codec for ReportCodec {
    type Encode = RateLimitQuotaResponse;
    type Decode = RateLimitQuotaUsageReports;
    type Encoder = <Inner as Codec>::Encoder;
    type Decoder = ReportDecoder;

    fn encoder(&mut self) -> Self::Encoder {
        self.0.encoder()
    }

    fn decoder(&mut self) -> ReportDecoder {
        ReportDecoder(self.0.decoder())
    }
}

impl Decoder for ReportDecoder {
    type Item = RateLimitQuotaUsageReports;
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<Self::Item>, Status> {
        // All of the message is in one piece.
        if !fits(message.chunk()) {
            let text = format!("a message has at most {MAX_FIELDS} buckets and pairs");
            return Err(Status::resource_exhausted(text));
        }
        self.0.decode(message)
    }
}

fn fits(message: &[u8]) -> bool {
    let with = |number| move |(field, bytes): (u64, _)| (field == number).then_some(bytes);
    let mut left = MAX_FIELDS;
    for usage in fields(message).filter_map(with(2)) {
        let pairs = fields(usage).filter_map(with(1)).flat_map(fields);
        let taken = 1 + pairs.take(left + 1).count();
        if taken > left {
            return false;
        }
        left -= taken;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_and_pairs_are_counted_before_they_are_read() {
        let buckets = |number: usize| [0x12, 0].repeat(number);
        assert!(fits(&buckets(MAX_FIELDS)));
        assert!(!fits(&buckets(MAX_FIELDS + 1)));
        // One bucket whose id has empty pairs.
        let pairs = [0x0a, 0].repeat(MAX_FIELDS / 2);
        let within = |field: u8, bytes: &[u8]| {
            let mut message = vec![field];
            prost::encode_length_delimiter(bytes.len(), &mut message).expect("room");
            message.extend(bytes);
            message
        };
        let bucket = within(0x12, &within(0x0a, &pairs));
        assert!(fits(&bucket));
        assert!(!fits(&bucket.repeat(2)));
    }
}
