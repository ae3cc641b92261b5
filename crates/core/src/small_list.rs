//! A list that stays on the stack while it is short.

use std::mem;

/// A list of values: on the stack, and on the heap if there are more than `N`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SmallList<T, const N: usize> {
    /// The first `len` of `values`.
    Short {
        values: [T; N],
        len: usize,
    },
    Long(Vec<T>),
}

impl<T: Default, const N: usize> Default for SmallList<T, N> {
    #[inline]
    fn default() -> Self {
        Self::Short {
            values: std::array::from_fn(|_| T::default()),
            len: 0,
        }
    }
}

impl<T: Default, const N: usize> SmallList<T, N> {
    /// A list of `len` default values.
    #[inline]
    pub fn defaults(len: usize) -> Self {
        if len > N {
            return Self::Long((0..len).map(|_| T::default()).collect());
        }
        let values = std::array::from_fn(|_| T::default());
        Self::Short { values, len }
    }

    #[inline]
    pub fn with_room(number: usize) -> Self {
        if number > N {
            return Self::Long(Vec::with_capacity(number));
        }
        Self::default()
    }
}

impl<T: Default, const N: usize> FromIterator<T> for SmallList<T, N> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        let mut list = Self::default();
        values.into_iter().for_each(|value| list.push(value));
        list
    }
}

impl<T> SmallList<T, 1> {
    /// The values, which need no default.
    pub fn of_exact(mut values: impl ExactSizeIterator<Item = T>) -> Self {
        match (values.len(), values.next()) {
            (1, Some(only)) => Self::Short {
                values: [only],
                len: 1,
            },
            (_, first) => Self::Long(first.into_iter().chain(values).collect()),
        }
    }
}

impl<T: Copy, const N: usize> SmallList<T, N> {
    /// The values, which need no default.
    pub fn collected(mut values: impl Iterator<Item = T>) -> Self {
        let Some(first) = values.next() else {
            return Self::Long(Vec::new());
        };
        let mut list = Self::filled(1, first);
        values.for_each(|value| list.push(value));
        list
    }

    /// A list of `len` equal values.
    #[inline]
    pub fn filled(len: usize, value: T) -> Self {
        if len > N {
            return Self::Long(vec![value; len]);
        }
        Self::Short {
            values: [value; N],
            len,
        }
    }

    #[inline]
    pub fn extend_from_slice(&mut self, more: &[T]) {
        if let Self::Short { values, len } = self {
            let end = *len + more.len();
            if let Some(room) = values.get_mut(*len..end) {
                room.copy_from_slice(more);
                *len = end;
                return;
            }
            *self = Self::Long(values[..*len].to_vec());
        }
        if let Self::Long(all) = self {
            all.extend_from_slice(more);
        }
    }
}

impl<T, const N: usize> AsRef<[T]> for SmallList<T, N> {
    fn as_ref(&self) -> &[T] {
        self.as_slice()
    }
}

impl<T, const N: usize> SmallList<T, N> {
    #[inline]
    pub fn push(&mut self, value: T) {
        match self {
            Self::Short { values, len } if *len < N => {
                values[*len] = value;
                *len += 1;
            }
            _ => self.push_long(value),
        }
    }

    #[cold]
    #[inline(never)]
    fn push_long(&mut self, value: T) {
        let mut all = match mem::replace(self, Self::Long(Vec::new())) {
            Self::Short { values, .. } => {
                let mut all = Vec::with_capacity((2 * N).max(4));
                all.extend(values);
                all
            }
            Self::Long(all) => all,
        };
        all.push(value);
        *self = Self::Long(all);
    }

    #[inline]
    pub fn as_slice(&self) -> &[T] {
        match self {
            Self::Short { values, len } => &values[..*len],
            Self::Long(all) => all,
        }
    }

    #[inline]
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        match self {
            Self::Short { values, len } => &mut values[..*len],
            Self::Long(all) => all,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::SmallList;

    #[test]
    fn values_stay_in_order_wherever_they_are() {
        for many in 0..6_usize {
            let mut few: SmallList<_, 2> = (0..many).collect();
            assert!(few.as_slice().iter().copied().eq(0..many));
            few.as_mut_slice().iter_mut().for_each(|value| *value += 1);
            assert!(few.as_slice().iter().copied().eq(1..=many));
            assert_eq!(matches!(few, SmallList::Long(_)), many > 2);
            let mut pushed = SmallList::<_, 2>::with_room(many);
            (0..many).for_each(|value| pushed.push(value));
            assert!(pushed.as_slice().iter().copied().eq(0..many));
            let mut filled = SmallList::<_, 2>::filled(many, 7);
            assert_eq!(filled.as_slice(), vec![7; many]);
            assert_eq!(filled.as_mut_slice().len(), many);
            let pieces = [[7].as_slice(), &[], &[8, 9, 10], &[11], &[12, 13]];
            let longer_first = [[1, 2, 3, 4, 5].as_slice(), &[6], &[]];
            for pieces in [&pieces[..many.min(5)], &longer_first[..many.min(3)]] {
                let mut extended = SmallList::<_, 4>::default();
                for piece in pieces {
                    extended.extend_from_slice(piece);
                }
                let whole = pieces.concat();
                assert_eq!(extended.as_slice(), whole);
                assert_eq!(matches!(extended, SmallList::Long(_)), whole.len() > 4);
            }
        }
    }
}
