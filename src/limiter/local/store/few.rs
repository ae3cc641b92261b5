//! A few values, which nearly always fit where they are.

/// Values one after another: no more than two need no allocation.
#[derive(Debug)]
pub(super) struct Few<T> {
    short: [T; 2],
    len: usize,
    /// All of them, if they do not fit into `short`.
    long: Vec<T>,
}

impl<T> Few<T> {
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

impl<T: Default> FromIterator<T> for Few<T> {
    #[inline]
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        let mut few = Self {
            short: [T::default(), T::default()],
            len: 0,
            long: Vec::new(),
        };
        for value in values {
            match few.len {
                0 | 1 => few.short[few.len] = value,
                len => {
                    if len == 2 {
                        few.long = few.short.iter_mut().map(std::mem::take).collect();
                    }
                    few.long.push(value);
                }
            }
            few.len += 1;
        }
        few
    }
}

#[cfg(test)]
mod tests {
    use super::Few;

    #[test]
    fn values_stay_in_order_wherever_they_are() {
        for many in 0..6 {
            let mut few: Few<usize> = (0..many).collect();
            assert!(few.as_slice().iter().copied().eq(0..many));
            few.as_mut_slice().iter_mut().for_each(|value| *value += 1);
            assert!(few.as_slice().iter().copied().eq(1..=many));
        }
    }
}
