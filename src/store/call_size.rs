//! The size of a call, and its weight: an estimate of the store's work for it.

/// Weight of a call with one subject of one row.
pub(crate) const CALL: u32 = 8;

/// Weight of each further subject, with one row.
const SUBJECT: u32 = 4;

/// Numbers of subjects and rows in one call.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CallSize {
    pub(crate) subjects: usize,
    /// Total rows, summed over all subjects.
    pub(crate) rows: usize,
}

impl CallSize {
    /// A call with one subject and one row.
    pub(crate) const ONE: Self = Self {
        subjects: 1,
        rows: 1,
    };

    pub(crate) fn weight(self) -> u32 {
        let Self { subjects, rows } = self;
        let more = |count: usize, less: usize| {
            u32::try_from(count.saturating_sub(less)).unwrap_or(u32::MAX)
        };
        let further = more(subjects, 1).saturating_mul(SUBJECT);
        more(rows, subjects)
            .saturating_add(further)
            .saturating_add(CALL)
    }
}
