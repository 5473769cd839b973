//! Building blocks that several machines share. None of them does I/O. Each is bounded, or its documentation names the
//! bound.
//!
//! | type | what it holds | users |
//! |---|---|---|
//! | [`Timers`] | keys, each with the time at which it is due | every machine with more than a few timers |
//! | [`ExpiringSet`] | a bounded set of keys, each valid until a time of its own | duplicate suppression, hold-down |
//! | [`RateLimiter`] | per key: a burst, then one per interval | everything that a flood could make expensive |
//! | [`RecentIds`] | the ids that were inserted last | duplicate suppression on a hot path |

mod caught;
mod expiring_set;
mod rate_limiter;
mod recent_ids;
mod timers;

pub(crate) use caught::caught;
pub use expiring_set::ExpiringSet;
pub use rate_limiter::RateLimiter;
pub use recent_ids::RecentIds;
pub use timers::Timers;
