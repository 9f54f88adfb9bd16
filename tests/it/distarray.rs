//! The Distributed Array Protocol as plain data: export, maps, versions, and the judgement of the dictionaries of others.

mod export;
mod map;
mod moving;
mod redistribute;
