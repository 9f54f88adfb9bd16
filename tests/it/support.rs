//! Fixtures that several modules need.
