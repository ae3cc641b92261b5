//! `State`: the state of a key for one quota of any algorithm.

use super::{fixed_window::Window, sliding_log::Log, sliding_window::Slices};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// The instant of a token bucket or a leaky bucket.
    Instant(u64),
    Window(Window),
    Slices(Box<Slices>),
    Log(Box<Log>),
}

/// A state of another algorithm, which a change of quota left, is read as fresh.
impl State {
    pub const FRESH: Self = Self::Instant(0);

    /// The instant of a bucket; 0 for all other states.
    pub(crate) fn as_instant(&self) -> &u64 {
        self.instant()
    }

    pub(super) fn instant(&self) -> &u64 {
        match self {
            Self::Instant(instant) => instant,
            _ => &0,
        }
    }

    pub(super) fn instant_mut(&mut self) -> &mut u64 {
        if !matches!(self, Self::Instant(_)) {
            *self = Self::FRESH;
        }
        match self {
            Self::Instant(instant) => instant,
            _ => unreachable!("it was just made one"),
        }
    }

    pub(in crate::algorithm) fn window(&self) -> Window {
        match self {
            Self::Window(window) => *window,
            _ => Window::default(),
        }
    }

    pub(in crate::algorithm) fn slices(&self) -> &Slices {
        static FRESH: Slices = Slices::FRESH;
        match self {
            Self::Slices(slices) => slices,
            _ => &FRESH,
        }
    }

    pub(in crate::algorithm) fn slices_mut(&mut self) -> &mut Slices {
        if !matches!(self, Self::Slices(_)) {
            *self = Self::Slices(Box::new(Slices::FRESH));
        }
        match self {
            Self::Slices(slices) => slices,
            _ => unreachable!("it was just made one"),
        }
    }

    /// The number of entries that a log's memory holds; 0 for all other states, whose size is fixed.
    pub(crate) fn times_held(&self) -> usize {
        self.log().capacity()
    }

    pub(super) fn log(&self) -> &Log {
        static FRESH: Log = Log::FRESH;
        match self {
            Self::Log(log) => log,
            _ => &FRESH,
        }
    }

    pub(super) fn log_mut(&mut self) -> &mut Log {
        if !matches!(self, Self::Log(_)) {
            *self = Self::Log(Box::new(Log::FRESH));
        }
        match self {
            Self::Log(log) => log,
            _ => unreachable!("it was just made one"),
        }
    }
}

impl Default for State {
    fn default() -> Self {
        Self::FRESH
    }
}
