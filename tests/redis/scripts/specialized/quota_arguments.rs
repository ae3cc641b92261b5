//! The specialized scripts: quotas as their arguments, and as those of the general one.

use super::super::{LONE_QUOTA, SEVERAL_QUOTAS, words};

#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Bucket,
    /// Two; the second has twice the capacity and a third of the time of a unit.
    Buckets,
    FixedWindow,
    SlidingWindow,
    /// As many slices.
    SeveralSlices(u64),
    /// A window, and a bucket of the same capacity, seven times as fast.
    BucketAnd(Window, Order),
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Window {
    Fixed,
    Sliding,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Order {
    BucketFirst,
    WindowFirst,
}

/// A quota: of a bucket the nanoseconds of a unit, of a window the microseconds of the period, or of the
/// slice if it has several.
#[derive(Debug, Clone, Copy)]
pub(super) struct Numbers {
    pub(super) time: u64,
    pub(super) capacity: u64,
    pub(super) extra: u64,
    /// By how much the most that can count is more than the capacity.
    pub(super) more: u64,
}

impl Kind {
    pub(super) const ALL: [Self; 9] = [
        Self::Bucket,
        Self::Buckets,
        Self::FixedWindow,
        Self::SlidingWindow,
        Self::SeveralSlices(3),
        Self::BucketAnd(Window::Fixed, Order::BucketFirst),
        Self::BucketAnd(Window::Fixed, Order::WindowFirst),
        Self::BucketAnd(Window::Sliding, Order::BucketFirst),
        Self::BucketAnd(Window::Sliding, Order::WindowFirst),
    ];

    pub(super) fn script(self) -> &'static str {
        match self {
            Self::Bucket | Self::FixedWindow | Self::SlidingWindow => LONE_QUOTA,
            Self::Buckets | Self::SeveralSlices(_) | Self::BucketAnd(..) => SEVERAL_QUOTAS,
        }
    }

    /// How many quotas there are.
    pub(super) fn width(self) -> usize {
        match self {
            Self::Buckets | Self::BucketAnd(..) => 2,
            _ => 1,
        }
    }

    pub(super) fn lone(self, numbers: Numbers) -> Vec<String> {
        let Numbers {
            time,
            capacity,
            more,
            ..
        } = numbers;
        let most = capacity + more;
        words(&match self {
            Self::Bucket => format!("t {time} {} {}", time * capacity, time * most),
            Self::Buckets => {
                let third = time.div_ceil(3);
                let first = Self::Bucket.lone(numbers).join(" ");
                let second = [third, 2 * third * capacity, third * (2 * capacity + more)];
                let [one, full, most] = second;
                format!("2 {first} 1 t {one} {full} {most} 1")
            }
            Self::FixedWindow => format!("f {time} {capacity} {most}"),
            Self::SlidingWindow => format!("s {time} {capacity} {most}"),
            Self::SeveralSlices(slices) => {
                format!("1 s {time} {capacity} {most} {}", slices + 1)
            }
            Self::BucketAnd(window, order) => {
                let bucket = Self::Bucket.lone(numbers.of_bucket()).join(" ");
                let counts = match window {
                    Window::Fixed => 1,
                    Window::Sliding => 2,
                };
                let window = window.alone().lone(numbers).join(" ");
                match order {
                    Order::BucketFirst => format!("2 {bucket} 1 {window} {counts}"),
                    Order::WindowFirst => format!("2 {window} {counts} {bucket} 1"),
                }
            }
        })
    }

    pub(super) fn general(self, numbers: Numbers) -> Vec<String> {
        let Numbers {
            time,
            capacity,
            extra,
            more,
        } = numbers;
        let most = capacity + more;
        let parts = |nanos: u64| format!("{} {}", nanos / 1_000, nanos % 1_000);
        let unit = parts(time * 1_000 / capacity.max(1));
        let most_u = if more > 0 {
            most.to_string()
        } else {
            "_".to_owned()
        };
        words(&match self {
            Self::Bucket => {
                let most = if more > 0 {
                    parts(time * most)
                } else {
                    "_ _".to_owned()
                };
                format!("_ _ 1 t 1 {capacity} 0 {} 0 _ {most}", parts(time))
            }
            Self::Buckets => {
                let third = time.div_ceil(3);
                let slot = |time: u64, capacity: u64| {
                    let most = if more > 0 {
                        parts(time * (capacity + more))
                    } else {
                        "_ _".to_owned()
                    };
                    format!("t 1 {capacity} 0 {} 0 _ {most}", parts(time))
                };
                format!(
                    "_ _ 2 {} {}",
                    slot(time, capacity),
                    slot(third, 2 * capacity)
                )
            }
            Self::FixedWindow => {
                format!("_ _ 1 f 1 {capacity} {extra} {unit} {time} 0 {most_u} _")
            }
            Self::SlidingWindow => {
                format!("_ _ 1 s 1 {capacity} {extra} {unit} {time} 1 {most_u} _")
            }
            Self::SeveralSlices(slices) => {
                let unit = parts(slices * time * 1_000 / capacity.max(1));
                format!("_ _ 1 s 1 {capacity} {extra} {unit} {time} {slices} {most_u} _")
            }
            Self::BucketAnd(window, order) => {
                let bucket = Self::Bucket.general(numbers.of_bucket());
                let window = window.alone().general(numbers);
                let (first, second) = match order {
                    Order::BucketFirst => (bucket, window),
                    Order::WindowFirst => (window, bucket),
                };
                let plan = [words("_ _ 2"), first[3..].to_vec(), second[3..].to_vec()];
                return plan.concat();
            }
        })
    }
}

impl Window {
    fn alone(self) -> Kind {
        match self {
            Self::Fixed => Kind::FixedWindow,
            Self::Sliding => Kind::SlidingWindow,
        }
    }
}

impl Numbers {
    /// The bucket beside a window of these numbers.
    fn of_bucket(self) -> Self {
        Self {
            time: self.time * 1_000 / 7 + 1_000,
            more: self.more.min(9),
            ..self
        }
    }
}
