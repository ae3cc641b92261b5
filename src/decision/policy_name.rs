//! Names of policies: static ones, and those that a set of policies owns.

use std::{
    borrow::Cow,
    fmt,
    hash::{Hash, Hasher},
    num::NonZeroU8,
    ops::Index,
    sync::Arc,
};

use crate::clock::Timestamp;

/// The names of all policies of a set, or of several limits that decided together. A decision shares
/// them by one reference count, in one word.
pub(super) type Names = Arc<NameSet>;

#[derive(Debug)]
pub(super) struct NameSet {
    /// One name for each policy, in their order; empty if there are shares. Each can also be cloned
    /// alone, as a metric's label.
    names: Box<[Arc<str>]>,
    /// The shares of several limits that decided together, each with names of its own.
    shares: Box<[Share]>,
}

impl NameSet {
    pub(super) fn new(names: impl IntoIterator<Item = Arc<str>>) -> Names {
        Arc::new(Self {
            names: names.into_iter().collect(),
            shares: Box::default(),
        })
    }

    pub(super) fn joint(shares: Vec<Share>) -> Names {
        Arc::new(Self {
            names: Box::default(),
            shares: shares.into(),
        })
    }

    /// The shares of several limits; empty if one limit decided.
    pub(super) const fn shares(&self) -> &[Share] {
        &self.shares
    }

    #[inline]
    pub(super) fn owns_any(&self) -> bool {
        !self.names.is_empty() || self.shares.iter().any(|share| share.names.is_some())
    }

    /// The set that owns the name of the quota at `place`, and the name's index in that set; `None`
    /// for a static name.
    #[inline]
    pub(super) fn find(self: &Arc<Self>, place: usize) -> Option<(&Names, usize)> {
        if self.shares.is_empty() {
            return Some((self, place));
        }
        find_in(&self.shares, place)
    }
}

impl Index<usize> for NameSet {
    type Output = Arc<str>;

    fn index(&self, place: usize) -> &Arc<str> {
        &self.names[place]
    }
}

/// A limit's share in a joint decision: its quotas and its charge.
#[derive(Debug, Clone)]
pub(super) struct Share {
    /// The identity of the limit; 0 if unknown.
    pub(super) limit: u64,
    pub(super) quotas: usize,
    /// The names of the limit's quotas, in their order; `None` if all are static.
    pub(super) names: Option<Names>,
    pub(super) charged: u64,
    pub(super) charged_at: Timestamp,
    pub(super) tier: u16,
    pub(super) degraded: bool,
    pub(super) lease: Option<NonZeroU8>,
}

/// The set that owns the name of the quota at `place` in all shares, and the name's index in it.
fn find_in(shares: &[Share], place: usize) -> Option<(&Names, usize)> {
    let mut before = 0;
    let share = shares.iter().find(|share| {
        before += share.quotas;
        place < before
    })?;
    let names = share.names.as_ref()?;
    Some((names, place + share.quotas - before))
}

/// A policy's name. A static name has no reference count.
#[derive(Clone)]
pub(super) struct Name {
    /// The static name; empty if the name is owned. Two fields are copied in fewer instructions than
    /// an enum, since nearly all names are static.
    pub(super) fixed: &'static str,
    /// The owning set, and the index in it.
    owned: Option<(Names, usize)>,
}

impl Name {
    pub(super) fn alone(name: Cow<'static, str>) -> Self {
        match name {
            Cow::Borrowed(name) => Self::fixed(name),
            Cow::Owned(name) => Self::owned(NameSet::new([Arc::from(name)]), 0),
        }
    }

    pub(super) fn of_set(names: Vec<Cow<'static, str>>) -> Vec<Self> {
        let of_static = |name: &Cow<'static, str>| match name {
            Cow::Borrowed(name) => Some(Self::fixed(name)),
            Cow::Owned(_) => None,
        };
        if let Some(names) = names.iter().map(of_static).collect() {
            return names;
        }
        let count = names.len();
        let names = NameSet::new(names.into_iter().map(Arc::from));
        (0..count)
            .map(|place| Self::owned(Arc::clone(&names), place))
            .collect()
    }

    pub(super) const fn fixed(fixed: &'static str) -> Self {
        Self { fixed, owned: None }
    }

    pub(super) const fn owned(names: Names, place: usize) -> Self {
        Self {
            fixed: "",
            owned: Some((names, place)),
        }
    }

    pub(super) fn as_str(&self) -> &str {
        match &self.owned {
            None => self.fixed,
            Some((names, place)) => &names[*place],
        }
    }

    /// The owning set and the index in it; `None` for a static name.
    #[inline]
    pub(super) const fn in_set(&self) -> Option<(&Names, usize)> {
        match &self.owned {
            None => None,
            Some((names, place)) => Some((names, *place)),
        }
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Name {}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

/// A name that outlives its decision. An owned one costs a reference count.
#[derive(Clone)]
pub(crate) enum Label {
    Static(&'static str),
    Owned(Arc<str>),
}

impl Label {
    pub(super) fn new(fixed: &'static str, owned: Option<(&Names, usize)>) -> Self {
        owned.map_or(Self::Static(fixed), |(names, place)| {
            Self::Owned(Arc::clone(&names[place]))
        })
    }

    pub(crate) fn as_str(&self) -> &str {
        match self {
            Self::Static(name) => name,
            Self::Owned(name) => name,
        }
    }
}

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

impl PartialEq for Label {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Label {}
