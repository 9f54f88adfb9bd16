//! ext
