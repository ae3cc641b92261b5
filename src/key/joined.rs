/// Bytes one after another: on the stack, and on the heap if there are more than `N`.
pub(super) struct Joined<const N: usize> {
    short: [u8; N],
    len: usize,
    /// All of them, if they do not fit into `short`.
    long: Vec<u8>,
}

impl<const N: usize> Joined<N> {
    pub(super) const fn new() -> Self {
        Self {
            short: [0; N],
            len: 0,
            long: Vec::new(),
        }
    }

    #[inline]
    pub(super) fn push(&mut self, bytes: &[u8]) {
        if self.long.is_empty() {
            let end = self.len + bytes.len();
            if let Some(room) = self.short.get_mut(self.len..end) {
                room.copy_from_slice(bytes);
                self.len = end;
                return;
            }
            self.long.extend_from_slice(&self.short[..self.len]);
        }
        self.long.extend_from_slice(bytes);
    }

    #[inline]
    pub(super) fn as_bytes(&self) -> &[u8] {
        if self.long.is_empty() {
            &self.short[..self.len]
        } else {
            &self.long
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Joined;

    #[test]
    fn bytes_stay_in_order_wherever_they_are() {
        let pieces = [b"ab".as_slice(), b"", b"cde", b"f", b"ghijk"];
        for many in 0..=pieces.len() {
            let mut joined = Joined::<6>::new();
            pieces[..many].iter().for_each(|piece| joined.push(piece));
            assert_eq!(joined.as_bytes(), pieces[..many].concat());
        }
        let mut joined = Joined::<6>::new();
        joined.push(b"longer than six");
        assert_eq!(joined.as_bytes(), b"longer than six");
    }
}
