//! A list that stores up to two values without an allocation.

/// A list of values; up to two need no allocation.
#[derive(Debug)]
pub(super) struct SmallList<T> {
    short: [T; 2],
    len: usize,
    /// All values, if they do not fit into `short`.
    long: Vec<T>,
}

impl<T: Default> SmallList<T> {
    #[inline]
    pub(super) fn new() -> Self {
        Self {
            short: [T::default(), T::default()],
            len: 0,
            long: Vec::new(),
        }
    }

    #[inline]
    pub(super) fn push(&mut self, value: T) {
        match self.len {
            0 | 1 => self.short[self.len] = value,
            _ => self.push_long(value),
        }
        self.len += 1;
    }

    #[cold]
    #[inline(never)]
    fn push_long(&mut self, value: T) {
        if self.len == 2 {
            self.long = self.short.iter_mut().map(std::mem::take).collect();
        }
        self.long.push(value);
    }
}

impl<T> SmallList<T> {
    #[inline]
    pub(super) fn as_slice(&self) -> &[T] {
        match self.len {
            0..=2 => &self.short[..self.len],
            _ => &self.long,
        }
    }

    #[inline]
    pub(super) fn as_mut_slice(&mut self) -> &mut [T] {
        match self.len {
            0..=2 => &mut self.short[..self.len],
            _ => &mut self.long,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::SmallList;

    #[test]
    fn values_stay_in_order_wherever_they_are() {
        for many in 0..6_usize {
            let mut few = SmallList::new();
            (0..many).for_each(|value| few.push(value));
            assert!(few.as_slice().iter().copied().eq(0..many));
            few.as_mut_slice().iter_mut().for_each(|value| *value += 1);
            assert!(few.as_slice().iter().copied().eq(1..=many));
        }
    }
}
