//! Small helpers for texts and intervals.

pub mod intervals;
pub mod texts;
