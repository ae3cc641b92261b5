//! A whole number of JSON, in any spelling: `1000`, `1000.0` and `1e3` are one.

/// A number that is being read. It survives a split at any byte.
#[derive(Debug)]
pub(super) struct JsonNumber {
    /// The digits so far, without the zeros at their end.
    digits: u64,
    /// The zeros behind them.
    zeros: u16,
    /// The digits behind the point.
    decimals: u16,
    exponent: u16,
    part: Part,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Whole,
    Decimals,
    Exponent {
        is_negative: bool,
    },
    /// No number, or one that is too large.
    Unreadable,
}

impl JsonNumber {
    pub(super) const fn new() -> Self {
        Self {
            digits: 0,
            zeros: 0,
            decimals: 0,
            exponent: 0,
            part: Part::Whole,
        }
    }

    /// Reads a byte. Returns whether it belongs to the number.
    pub(super) fn read(&mut self, byte: u8) -> bool {
        let read = match (byte, self.part) {
            (b'0'..=b'9', Part::Unreadable) => Some(()),
            (b'0'..=b'9', Part::Exponent { .. }) => self.push_exponent(byte - b'0'),
            (b'0'..=b'9', _) => self.push(byte - b'0'),
            (b'.', Part::Whole) => self.begin(Part::Decimals),
            (b'e' | b'E', Part::Whole | Part::Decimals) => {
                self.begin(Part::Exponent { is_negative: false })
            }
            (b'-', Part::Exponent { .. }) => self.begin(Part::Exponent { is_negative: true }),
            (b'+', Part::Exponent { .. }) => Some(()),
            (b'.' | b'e' | b'E' | b'+' | b'-', _) => None,
            _ => return false,
        };
        if read.is_none() {
            self.part = Part::Unreadable;
        }
        true
    }

    const fn begin(&mut self, part: Part) -> Option<()> {
        self.part = part;
        Some(())
    }

    fn push_exponent(&mut self, digit: u8) -> Option<()> {
        let exponent = self.exponent.checked_mul(10)?;
        self.exponent = exponent.checked_add(u16::from(digit))?;
        Some(())
    }

    fn push(&mut self, digit: u8) -> Option<()> {
        let is_decimal = self.part == Part::Decimals;
        self.decimals = self.decimals.checked_add(u16::from(is_decimal))?;
        if digit == 0 {
            self.zeros = self.zeros.checked_add(1)?;
            return Some(());
        }
        if self.digits > 0 {
            let scale = 10_u64.checked_pow(u32::from(self.zeros) + 1)?;
            self.digits = self.digits.checked_mul(scale)?;
        }
        self.digits = self.digits.checked_add(u64::from(digit))?;
        self.zeros = 0;
        Some(())
    }

    /// The number; `None` if it is not whole, or too large.
    pub(super) fn value(&self) -> Option<u64> {
        let exponent = match self.part {
            Part::Unreadable => return None,
            _ if self.digits == 0 => return Some(0),
            Part::Exponent { is_negative: true } => -i32::from(self.exponent),
            _ => i32::from(self.exponent),
        };
        // The last digit is no 0, so that a negative power leaves a fraction.
        let power = i32::from(self.zeros) - i32::from(self.decimals) + exponent;
        let scale = 10_u64.checked_pow(u32::try_from(power).ok()?)?;
        self.digits.checked_mul(scale)
    }
}

#[cfg(test)]
mod tests {
    use super::JsonNumber;

    fn of(text: &str) -> Option<u64> {
        let mut number = JsonNumber::new();
        assert!(text.bytes().all(|byte| number.read(byte)), "{text}");
        number.value()
    }

    #[test]
    fn whole_numbers_have_one_value_in_every_spelling() {
        for text in [
            "1000",
            "1000.0",
            "1e3",
            "1E+3",
            "10000e-1",
            "0.001e6",
            "1000.000e0",
        ] {
            assert_eq!(of(text), Some(1_000), "{text}");
        }
        for text in ["0", "0.0", "0e9999", "0.000e-7"] {
            assert_eq!(of(text), Some(0), "{text}");
        }
        assert_eq!(of("102030"), Some(102_030));
        assert_eq!(of("1.5e1"), Some(15));
        assert_eq!(of("18446744073709551615"), Some(u64::MAX));
        assert_eq!(of("1844674407370955161.5e1"), Some(u64::MAX));
    }

    #[test]
    fn fractions_and_numbers_that_are_too_large_have_none() {
        for text in [
            "1.5",
            "1e-1",
            "1000.0001",
            "18446744073709551616",
            "1e20",
            "2e19",
            "1e99999999999999",
            "1.2.3",
            "1-2",
            "1e3e4",
        ] {
            assert_eq!(of(text), None, "{text}");
        }
    }
}
