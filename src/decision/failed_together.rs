//! The receipt of each limit of an operation on several limits, also if one of them failed.

#[cfg(feature = "redis")]
use std::{error::Error, fmt};

use super::{Decision, Receipt};
#[cfg(feature = "redis")]
use crate::error::LimiterErrorKind;
use crate::{error::LimiterError, small_list::SmallList};

/// The source of an error of several limits: the error of the first that failed, and the receipts of those that
/// answered.
#[cfg(feature = "redis")]
#[derive(Debug)]
struct FailedTogether {
    first: LimiterError,
    receipts: Box<[Option<Receipt>]>,
}

#[cfg(feature = "redis")]
impl fmt::Display for FailedTogether {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first.source() {
            Some(source) => write!(f, "{source}"),
            None => write!(f, "{}", self.first),
        }
    }
}

#[cfg(feature = "redis")]
impl Error for FailedTogether {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.first.source()?.source()
    }
}

/// The decisions of several limits; if one of them failed, its error with the receipts of the others.
#[cfg(feature = "redis")]
pub(crate) fn all_or_first_error(
    answers: Vec<Result<Decision, LimiterError>>,
) -> Result<Vec<Decision>, LimiterError> {
    if answers.iter().all(Result::is_ok) {
        return answers.into_iter().collect();
    }
    let receipt =
        |answer: &Result<Decision, LimiterError>| answer.as_ref().ok().map(Decision::receipt);
    let receipts = answers.iter().map(receipt).collect();
    answers
        .into_iter()
        .collect::<Result<_, _>>()
        .map_err(|first| match first.kind() {
            LimiterErrorKind::Unavailable => {
                LimiterError::unavailable(FailedTogether { first, receipts })
            }
            LimiterErrorKind::Unsupported => first,
        })
}

/// The receipts of several limits. That of one limit, the usual case, needs no allocation.
type ReceiptsOfEach = SmallList<Option<Receipt>, 1>;

/// The receipt of each of `count` limits, from the answer to an operation on all of them; `None` for one that failed.
pub(crate) fn receipts_of_each(
    answer: &Result<Decision, LimiterError>,
    count: usize,
) -> ReceiptsOfEach {
    let error = match answer {
        Ok(decision) => return decision.receipt().each().cloned().map(Some).collect(),
        Err(error) => error,
    };
    let beside = receipts_beside(error).filter(|receipts| receipts.len() == count);
    (0..count)
        .map(|at| beside.and_then(|receipts| receipts[at].clone()))
        .collect()
}

#[cfg(feature = "redis")]
fn receipts_beside(error: &LimiterError) -> Option<&[Option<Receipt>]> {
    let failed: &FailedTogether = error.source()?.downcast_ref()?;
    Some(&failed.receipts)
}

/// Without Redis no limit fails while another one answers.
#[cfg(not(feature = "redis"))]
const fn receipts_beside(_: &LimiterError) -> Option<&[Option<Receipt>]> {
    None
}
