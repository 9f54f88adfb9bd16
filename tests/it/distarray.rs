//! The Distributed Array Protocol as plain data: export, maps, versions, and the judgement of the dictionaries of others.

mod export;
mod halo;
mod map;
mod moving;
mod redistribute;
