//! WebSocket frames: finds their boundaries (RFC 6455, 5.2).

/// The opcode of a close frame.
const CLOSE: u8 = 8;

/// The frames of one direction. Payloads are skipped.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Frames {
    next: Next,
    /// The remaining bytes of the mask and the payload, after the header.
    left: u64,
    is_close: bool,
    has_closed: bool,
}

/// The part of a frame that the next byte belongs to.
#[derive(Debug, Clone, Copy, Default)]
enum Next {
    #[default]
    Opcode,
    Length,
    /// The remaining bytes of a longer length, and whether a mask follows.
    LongLength {
        bytes: u8,
        is_masked: bool,
    },
    Payload,
}

/// The length of a mask.
const MASK: u64 = 4;

impl Frames {
    /// Whether a frame may begin now.
    pub(super) const fn is_between(&self) -> bool {
        matches!(self.next, Next::Opcode)
    }

    /// Whether a whole close frame has passed; no other frame may follow.
    pub(super) const fn has_closed(&self) -> bool {
        self.has_closed
    }

    /// Reads all bytes.
    pub(super) fn read_all(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            bytes = &bytes[self.read_frame(bytes)..];
        }
    }

    /// Reads at most to the end of the frame. Returns the number of its bytes.
    pub(super) fn read_frame(&mut self, bytes: &[u8]) -> usize {
        let mut read = 0;
        while read < bytes.len() {
            if let Next::Payload = self.next {
                let rest = (bytes.len() - read) as u64;
                let length = rest.min(self.left);
                self.left -= length;
                read += length as usize;
            } else {
                self.read_header(bytes[read]);
                read += 1;
            }
            if matches!(self.next, Next::Payload) && self.left == 0 {
                self.next = Next::Opcode;
                self.has_closed |= self.is_close;
                return read;
            }
        }
        read
    }

    fn read_header(&mut self, byte: u8) {
        self.next = match self.next {
            Next::Opcode => {
                self.is_close = byte & 0x0f == CLOSE;
                Next::Length
            }
            Next::Length => {
                let is_masked = byte & 0x80 != 0;
                let long = |bytes| Next::LongLength { bytes, is_masked };
                self.left = 0;
                match byte & 0x7f {
                    126 => long(2),
                    127 => long(8),
                    length => self.payload(length.into(), is_masked),
                }
            }
            Next::LongLength { bytes, is_masked } => {
                self.left = self.left << 8 | u64::from(byte);
                match bytes {
                    1 => self.payload(self.left, is_masked),
                    _ => Next::LongLength {
                        bytes: bytes - 1,
                        is_masked,
                    },
                }
            }
            Next::Payload => Next::Payload,
        };
    }

    fn payload(&mut self, length: u64, is_masked: bool) -> Next {
        let mask = if is_masked { MASK } else { 0 };
        self.left = length.saturating_add(mask);
        Next::Payload
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame with a payload of zeros. Its length is encoded in this many bytes after the first.
    fn frame(opcode: u8, length: usize, bytes: usize, is_masked: bool) -> Vec<u8> {
        let mask = u8::from(is_masked) << 7;
        let mut frame = vec![0x80 | opcode];
        match bytes {
            0 => frame.push(mask | length as u8),
            2 => frame.push(mask | 126),
            _ => frame.push(mask | 127),
        }
        frame.extend(&(length as u64).to_be_bytes()[8 - bytes..]);
        frame.resize(frame.len() + length + usize::from(is_masked) * 4, 0);
        frame
    }

    /// Frames with all kinds of headers.
    fn kinds() -> impl Iterator<Item = Vec<u8>> {
        let lengths = [
            (0, 0),
            (1, 0),
            (125, 0),
            (126, 2),
            (300, 2),
            (5, 8),
            (300, 8),
        ];
        let kinds = lengths.into_iter();
        kinds
            .flat_map(|(length, bytes)| [true, false].map(|masked| frame(1, length, bytes, masked)))
    }

    #[test]
    fn frame_ends_at_the_same_byte_however_it_is_cut() {
        for frame in kinds() {
            let both = [&frame[..], &self::frame(CLOSE, 2, 0, true)].concat();
            for cut in 0..=frame.len() {
                let mut frames = Frames::default();
                assert!(frames.is_between());
                let first = frames.read_frame(&both[..cut]);
                assert_eq!(first, cut);
                assert_eq!(frames.is_between(), cut == 0 || cut == frame.len(), "{cut}");
                if cut < frame.len() {
                    assert_eq!(
                        first + frames.read_frame(&both[cut..]),
                        frame.len(),
                        "{cut}"
                    );
                }
                assert!(frames.is_between() && !frames.has_closed());
                frames.read_all(&both[frame.len()..]);
                assert!(frames.is_between() && frames.has_closed());
            }
        }
    }

    #[test]
    fn frames_that_come_byte_by_byte_end_where_they_do_in_one() {
        let all: Vec<u8> = kinds().flatten().collect();
        let mut ends = 0;
        let mut frames = Frames::default();
        for byte in &all {
            assert_eq!(frames.read_frame(&[*byte]), 1);
            ends += usize::from(frames.is_between());
        }
        assert_eq!(ends, kinds().count());
        let mut frames = Frames::default();
        frames.read_all(&all);
        assert!(frames.is_between());
    }

    #[test]
    fn close_counts_when_it_is_whole() {
        let close = frame(CLOSE, 2, 0, true);
        let mut frames = Frames::default();
        frames.read_all(&close[..close.len() - 1]);
        assert!(!frames.has_closed());
        frames.read_all(&close[close.len() - 1..]);
        assert!(frames.has_closed());
    }

    #[test]
    fn length_that_no_frame_may_have_does_not_wrap() {
        let mut frames = Frames::default();
        frames.read_all(&[0x82, 0xff]);
        frames.read_all(&[0xff; 8]);
        frames.read_all(&[0; 1000]);
        assert!(!frames.is_between());
    }
}
