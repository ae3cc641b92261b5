//! Lists of RFC 9651, Structured Field Values.

use std::borrow::Cow;

/// The most members of a list; no rate limiter writes as many.
const MOST_MEMBERS: usize = 64;

const MOST_INTEGER_DIGITS: usize = 15;
const MOST_DECIMAL_DIGITS: usize = 12;

/// A value without its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum BareItem<'a> {
    Integer(i64),
    String(Cow<'a, str>),
    Token(&'a str),
    /// Base64, not decoded.
    Bytes(&'a str),
    /// A value whose type no rate limit field uses.
    Other,
}

/// A member of a list, with the parameters of rate limit fields.
#[derive(Debug)]
pub(super) struct ListMember<'a> {
    pub(super) value: BareItem<'a>,
    parameters: Vec<(&'a str, BareItem<'a>)>,
}

impl<'a> ListMember<'a> {
    /// A parameter; of several with one name the last.
    pub(super) fn parameter(&self, name: &str) -> Option<&BareItem<'a>> {
        let mut latest = self.parameters.iter().rev();
        latest.find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    /// A parameter that is a number, if the member has it; `None` if it is negative or no number.
    pub(super) fn number(&self, name: &str) -> Option<Option<u64>> {
        match self.parameter(name) {
            None => Some(None),
            Some(BareItem::Integer(number)) => u64::try_from(*number).ok().map(Some),
            Some(_) => None,
        }
    }
}

/// Calls `each` with every member of a list. Returns `None` if the field is malformed: discard all
/// members then.
pub(super) fn members<'a>(text: &'a str, mut each: impl FnMut(&ListMember<'a>)) -> Option<()> {
    let mut rest = Rest(text);
    rest.skip(|byte| byte == b' ');
    for _ in 0..MOST_MEMBERS {
        if rest.0.is_empty() {
            break;
        }
        each(&rest.member()?);
        rest.skip(is_space);
        if rest.0.is_empty() {
            break;
        }
        rest.expect(b',')?;
        rest.skip(is_space);
        // A member must follow a comma.
        rest.first()?;
    }
    rest.0.is_empty().then_some(())
}

/// The members of a list as `item` reads them; none if the field is malformed.
pub(super) fn items<'a, T>(text: &'a str, item: impl Fn(&ListMember<'a>) -> Option<T>) -> Vec<T> {
    let mut items = Vec::new();
    let read = members(text, |member| items.extend(item(member)));
    read.map(|()| items).unwrap_or_default()
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// The text that is still to be parsed.
struct Rest<'a>(&'a str);

impl<'a> Rest<'a> {
    fn first(&self) -> Option<u8> {
        self.0.bytes().next()
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        self.0 = self.0.strip_prefix(char::from(byte))?;
        Some(())
    }

    /// Takes bytes as long as `wanted` is true; they must be ASCII.
    fn take(&mut self, wanted: impl Fn(u8) -> bool) -> &'a str {
        let end = self.0.bytes().position(|byte| !wanted(byte));
        let (taken, rest) = self.0.split_at(end.unwrap_or(self.0.len()));
        self.0 = rest;
        taken
    }

    fn skip(&mut self, unwanted: impl Fn(u8) -> bool) {
        self.take(unwanted);
    }

    fn member(&mut self) -> Option<ListMember<'a>> {
        let value = match self.first()? {
            b'(' => self.inner_list()?,
            _ => self.bare()?,
        };
        let mut member = ListMember {
            value,
            parameters: Vec::new(),
        };
        self.parameters(|key, value| member.parameters.push((key, value)))?;
        Some(member)
    }

    /// Parses an inner list, and discards it.
    fn inner_list(&mut self) -> Option<BareItem<'a>> {
        self.expect(b'(')?;
        loop {
            self.skip(|byte| byte == b' ');
            if self.first()? == b')' {
                self.expect(b')')?;
                return Some(BareItem::Other);
            }
            self.bare()?;
            self.parameters(|_, _| {})?;
            if !matches!(self.first()?, b' ' | b')') {
                return None;
            }
        }
    }

    fn parameters(&mut self, mut keep: impl FnMut(&'a str, BareItem<'a>)) -> Option<()> {
        while self.first() == Some(b';') {
            self.expect(b';')?;
            self.skip(|byte| byte == b' ');
            let key = self.key()?;
            let value = match self.first() {
                Some(b'=') => {
                    self.expect(b'=')?;
                    self.bare()?
                }
                // A parameter without a value is true.
                _ => BareItem::Other,
            };
            keep(key, value);
        }
        Some(())
    }

    fn key(&mut self) -> Option<&'a str> {
        matches!(self.first()?, b'a'..=b'z' | b'*').then_some(())?;
        let in_key = |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.' | b'*');
        Some(self.take(in_key))
    }

    fn bare(&mut self) -> Option<BareItem<'a>> {
        match self.first()? {
            b'-' | b'0'..=b'9' => self.number(),
            b'"' => self.string().map(BareItem::String),
            b':' => self.bytes().map(BareItem::Bytes),
            b'a'..=b'z' | b'A'..=b'Z' | b'*' => Some(BareItem::Token(self.take(in_token))),
            b'?' => {
                self.expect(b'?')?;
                matches!(self.first()?, b'0' | b'1').then_some(())?;
                self.0 = &self.0[1..];
                Some(BareItem::Other)
            }
            b'@' => {
                self.expect(b'@')?;
                matches!(self.number()?, BareItem::Integer(_)).then_some(BareItem::Other)
            }
            b'%' => self.display_string(),
            _ => None,
        }
    }

    fn number(&mut self) -> Option<BareItem<'a>> {
        let negative = self.expect(b'-').is_some();
        let digits = self.take(|byte| byte.is_ascii_digit());
        if self.expect(b'.').is_some() {
            let fraction = self.take(|byte| byte.is_ascii_digit());
            let fits = (1..=MOST_DECIMAL_DIGITS).contains(&digits.len())
                && (1..=3).contains(&fraction.len());
            return fits.then_some(BareItem::Other);
        }
        (1..=MOST_INTEGER_DIGITS)
            .contains(&digits.len())
            .then_some(())?;
        // Fits: the number of digits is limited.
        let digits = digits.bytes().map(|digit| i64::from(digit - b'0'));
        let number = digits.fold(0, |number, digit| number * 10 + digit);
        Some(BareItem::Integer(if negative { -number } else { number }))
    }

    fn string(&mut self) -> Option<Cow<'a, str>> {
        self.expect(b'"')?;
        let mut text = Cow::Borrowed("");
        loop {
            let plain = self.take(|byte| matches!(byte, b' '..=b'~') && !b"\"\\".contains(&byte));
            match &mut text {
                Cow::Borrowed("") => text = Cow::Borrowed(plain),
                text => text.to_mut().push_str(plain),
            }
            if self.expect(b'"').is_some() {
                return Some(text);
            }
            self.expect(b'\\')?;
            let escaped = self.first().filter(|byte| b"\"\\".contains(byte))?;
            self.expect(escaped)?;
            text.to_mut().push(char::from(escaped));
        }
    }

    fn bytes(&mut self) -> Option<&'a str> {
        self.expect(b':')?;
        let text = self.take(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte));
        self.expect(b':')?;
        Some(text)
    }

    /// Parses a display string, and discards it. Its escapes are not decoded.
    fn display_string(&mut self) -> Option<BareItem<'a>> {
        self.expect(b'%')?;
        self.expect(b'"')?;
        self.skip(|byte| matches!(byte, b' '..=b'~') && byte != b'"');
        self.expect(b'"')?;
        Some(BareItem::Other)
    }
}

fn in_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&byte)
}
