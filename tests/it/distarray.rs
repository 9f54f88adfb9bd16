//! The Distributed Array Protocol as plain data: export, maps, versions, and the judgement of the dictionaries of others.

mod export;
mod halo;
mod map;
mod moving;
mod owners;
mod picture;
mod plot;
mod redistribute;

#[cfg(feature = "cli")]
mod cases;
#[cfg(feature = "cli")]
mod check;
#[cfg(feature = "cli")]
mod golden;
#[cfg(feature = "cli")]
mod hostile;
#[cfg(feature = "cli")]
mod notation;
#[cfg(feature = "cli")]
mod printed;
#[cfg(feature = "cli")]
mod rank_cases;
