//! What is changed in logical plans of several processes alone.
//!
//! Comes in: an optimised logical plan. Goes out: one that several processes can run without bringing all rows together: subqueries of one row (`single`) and elsewhere (`values_below`), NOT IN (`not_in`), semi joins
//! below groups (`semi_reduce`). Never here: physical plans of clusters, which are the business of `cluster`.

pub(in crate::query) mod not_in;
pub(in crate::query) mod semi_reduce;
pub(in crate::query) mod single;
pub(in crate::query) mod values_below;
