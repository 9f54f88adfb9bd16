//! The `partgrid` command.

fn main() {}
