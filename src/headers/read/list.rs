//! Lists of RFC 9651.

use std::borrow::Cow;

/// A list of more members is none that a rate limiter wrote.
const MOST_MEMBERS: usize = 64;

const MOST_INTEGER_DIGITS: usize = 15;
const MOST_DECIMAL_DIGITS: usize = 12;

/// A value without its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Bare<'a> {
    Integer(i64),
    String(Cow<'a, str>),
    Token(&'a str),
    /// As it is written, in base64.
    Bytes(&'a str),
    /// Of a type that no rate limit field has.
    Other,
}

/// A member of a list.
#[derive(Debug)]
pub(super) struct ListMember<'a> {
    pub(super) value: Bare<'a>,
    parameters: Vec<(&'a str, Bare<'a>)>,
}

impl<'a> ListMember<'a> {
    /// A parameter; of several with one name the last.
    pub(super) fn parameter(&self, name: &str) -> Option<&Bare<'a>> {
        let mut parameters = self.parameters.iter().rev();
        parameters
            .find(|(key, _)| *key == name)
            .map(|(_, value)| value)
    }

    /// A parameter that is a number: `Err` if it is there and is none, or negative.
    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, NoNumber> {
        match self.parameter(name) {
            None => Ok(None),
            Some(Bare::Integer(number)) => u64::try_from(*number).map(Some).map_err(|_| NoNumber),
            Some(_) => Err(NoNumber),
        }
    }
}

/// The parameter is not a number that counts something.
#[derive(Debug)]
pub(super) struct NoNumber;

/// The members of a list; `None` if the field is to be ignored.
pub(super) fn members(text: &str) -> Option<Vec<ListMember<'_>>> {
    let mut rest = Rest(text);
    let mut members = Vec::new();
    rest.skip(|byte| byte == b' ');
    while !rest.0.is_empty() {
        if members.len() == MOST_MEMBERS {
            return None;
        }
        members.push(rest.member()?);
        rest.skip(is_space);
        if rest.0.is_empty() {
            return Some(members);
        }
        rest.expect(b',')?;
        rest.skip(is_space);
        // A comma promises another member.
        rest.first()?;
    }
    Some(members)
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// The text that is yet to be read.
struct Rest<'a>(&'a str);

impl<'a> Rest<'a> {
    fn first(&self) -> Option<u8> {
        self.0.bytes().next()
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        self.0 = self.0.strip_prefix(char::from(byte))?;
        Some(())
    }

    /// Takes the bytes that are wanted, which are ASCII.
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
        let mut parameters = Vec::new();
        self.parameters(|key, value| parameters.push((key, value)))?;
        Some(ListMember { value, parameters })
    }

    /// Nothing of it is kept.
    fn inner_list(&mut self) -> Option<Bare<'a>> {
        self.expect(b'(')?;
        loop {
            self.skip(|byte| byte == b' ');
            if self.first()? == b')' {
                self.expect(b')')?;
                return Some(Bare::Other);
            }
            self.bare()?;
            self.parameters(|_, _| {})?;
            if !matches!(self.first()?, b' ' | b')') {
                return None;
            }
        }
    }

    fn parameters(&mut self, mut keep: impl FnMut(&'a str, Bare<'a>)) -> Option<()> {
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
                _ => Bare::Other,
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

    fn bare(&mut self) -> Option<Bare<'a>> {
        match self.first()? {
            b'-' | b'0'..=b'9' => self.number(),
            b'"' => self.string().map(Bare::String),
            b':' => self.bytes().map(Bare::Bytes),
            b'a'..=b'z' | b'A'..=b'Z' | b'*' => Some(Bare::Token(self.take(in_token))),
            b'?' => {
                self.expect(b'?')?;
                matches!(self.first()?, b'0' | b'1').then_some(())?;
                self.0 = &self.0[1..];
                Some(Bare::Other)
            }
            b'@' => {
                self.expect(b'@')?;
                matches!(self.number()?, Bare::Integer(_)).then_some(Bare::Other)
            }
            b'%' => self.display_string(),
            _ => None,
        }
    }

    fn number(&mut self) -> Option<Bare<'a>> {
        let negative = self.expect(b'-').is_some();
        let digits = self.take(|byte| byte.is_ascii_digit());
        if self.expect(b'.').is_some() {
            let fraction = self.take(|byte| byte.is_ascii_digit());
            let fits = (1..=MOST_DECIMAL_DIGITS).contains(&digits.len())
                && (1..=3).contains(&fraction.len());
            return fits.then_some(Bare::Other);
        }
        (1..=MOST_INTEGER_DIGITS)
            .contains(&digits.len())
            .then_some(())?;
        let number: i64 = digits.parse().ok()?;
        Some(Bare::Integer(if negative { -number } else { number }))
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

    /// Nothing of it is kept, so its escapes are not decoded.
    fn display_string(&mut self) -> Option<Bare<'a>> {
        self.expect(b'%')?;
        self.expect(b'"')?;
        self.skip(|byte| matches!(byte, b' '..=b'~') && byte != b'"');
        self.expect(b'"')?;
        Some(Bare::Other)
    }
}

fn in_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&byte)
}
