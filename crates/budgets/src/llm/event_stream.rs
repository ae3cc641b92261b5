//! The splitter of server-sent events. It passes on the data of each event, and collects nothing.

use memchr::memchr2;

const PREFIX: &[u8] = b"data:";

/// The bytes of a byte order mark. No line of a stream begins with one of them otherwise.
pub(super) const MARK: [u8; 3] = *b"\xef\xbb\xbf";

pub(super) enum EventPart<'a> {
    /// A part of the event's data.
    Data(&'a [u8]),
    End,
}

/// A splitter. It survives a split at any byte.
#[derive(Debug)]
pub(super) struct EventSplitter {
    state: State,
    /// Whether the last byte was a carriage return, which a line feed may follow.
    after_return: bool,
    /// Whether nothing was read yet but a byte order mark, which is no part of the first line.
    is_at_start: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The first bytes of a line, as far as they are [`PREFIX`].
    Start(u8),
    /// After the colon, where one space belongs to the syntax.
    Space,
    Data,
    /// A line that is no data.
    Other,
}

impl EventSplitter {
    pub(super) const fn new() -> Self {
        Self {
            state: State::Start(0),
            after_return: false,
            is_at_start: true,
        }
    }

    pub(super) fn read(&mut self, mut bytes: &[u8], pass: &mut impl FnMut(EventPart<'_>)) {
        if self.is_at_start {
            let is_mark = |byte: &u8| MARK.contains(byte);
            bytes = &bytes[bytes.iter().take_while(|byte| is_mark(byte)).count()..];
            self.is_at_start = bytes.is_empty();
        }
        while let Some(&byte) = bytes.first() {
            let follows_return = std::mem::take(&mut self.after_return);
            if follows_return && byte == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            bytes = match self.state {
                State::Start(read) => self.begin_line(bytes, read, pass),
                State::Space => {
                    self.state = State::Data;
                    bytes.strip_prefix(b" ").unwrap_or(bytes)
                }
                State::Data | State::Other => self.read_line(bytes, pass),
            };
        }
    }

    fn begin_line<'b>(
        &mut self,
        bytes: &'b [u8],
        read: u8,
        pass: &mut impl FnMut(EventPart<'_>),
    ) -> &'b [u8] {
        let byte = bytes[0];
        if byte == b'\n' || byte == b'\r' {
            // An empty line ends the event; a line with a part of the prefix does not.
            if read == 0 {
                pass(EventPart::End);
            }
            self.end_line(byte);
            return &bytes[1..];
        }
        if byte != PREFIX[usize::from(read)] {
            self.state = State::Other;
            return bytes;
        }
        self.state = if usize::from(read) + 1 == PREFIX.len() {
            State::Space
        } else {
            State::Start(read + 1)
        };
        &bytes[1..]
    }

    fn read_line<'b>(&mut self, bytes: &'b [u8], pass: &mut impl FnMut(EventPart<'_>)) -> &'b [u8] {
        let end = memchr2(b'\n', b'\r', bytes);
        let line = end.map_or(bytes, |end| &bytes[..end]);
        let is_data = self.state == State::Data;
        if is_data {
            pass(EventPart::Data(line));
        }
        let Some(end) = end else {
            return &[];
        };
        if is_data {
            // Lines of one event are joined by it.
            pass(EventPart::Data(b"\n"));
        }
        self.end_line(bytes[end]);
        &bytes[end + 1..]
    }

    const fn end_line(&mut self, byte: u8) {
        self.state = State::Start(0);
        self.after_return = byte == b'\r';
    }
}
