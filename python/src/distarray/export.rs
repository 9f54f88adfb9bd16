//! `Grid.distarray`: columns of a grid -> a distributed array.
//!
//! Comes in: a grid, and what the caller wishes. Goes out: the array of the core, in another distribution where one is wished. Never here: which value is copied, and why.

use std::sync::Arc;

use partgrid::distarray::{self, Columns, Distribution, ExportOptions, Halo, Parts};
use partgrid::error::Error;
use partgrid::grid::{ElementType, PartitionGrid};
use pyo3::inspect::PyStaticExpr;
use pyo3::prelude::*;
use pyo3::type_hint_union;

use super::array::PyDistArray;
use super::plan::PyPlan;
use super::wishes::{PyVersion, Wanted, version_of};
use crate::argument::{Argument, Given, Refusal, items, optional, text, texts, whole};
use crate::error::Outcome;
use crate::numpy::fill_value;

/// What `Grid.distarray` was asked for.
pub(crate) struct Export<'a, 'py> {
    pub(crate) columns: Given<Names>,
    pub(crate) version: Option<Given<PyVersion>>,
    pub(crate) distribution: Option<Given<Lying>>,
    pub(crate) copy: Option<Given<bool>>,
    pub(crate) fill_null: Option<&'a Bound<'py, PyAny>>,
    pub(crate) cast: Option<Given<String>>,
    pub(crate) padding: Option<Given<Padding>>,
}

/// The columns as an array.
pub(crate) fn export(
    py: Python<'_>,
    grid: &PartitionGrid,
    wishes: Export<'_, '_>,
) -> Outcome<PyDistArray> {
    let columns = wishes.columns.named("columns")?;
    let cast = optional(wishes.cast, "cast")?;
    let distribution = optional(wishes.distribution, "distribution")?;
    let padding = optional(wishes.padding, "padding")?;
    let copy = optional(wishes.copy, "copy")?;
    let element = cast
        .map(|name| ElementType::try_from_name(&name))
        .transpose();
    let element = element.map_err(|error| error.with_hint("cast=\"int64\", for instance"))?;
    one_wish(distribution.as_ref(), padding.as_ref())?;
    let to_move = matches!(distribution, Some(Lying::As(_))) || padding.is_some();
    let options = ExportOptions {
        version: version_of(wishes.version)?,
        parts: match distribution {
            Some(Lying::Ranks) => Parts::Ranks,
            _ => Parts::Tiles,
        },
        element,
        fill: fill_value(wishes.fill_null)?,
        // What moves is copied then.
        copy: match to_move {
            true => None,
            false => copy,
        },
    };
    let made = py.detach(|| distarray::export(grid, columns.core(), &options))?;
    let to = match (distribution, padding) {
        (Some(Lying::As(to)), _) => Some(to.distribution()?),
        (_, Some(padding)) => Some(Arc::new(padding.around(&made.distribution, &options)?)),
        _ => None,
    };
    let is_spread = grid.locals().is_some();
    let rank = grid.ranks().filter(|_| options.parts == Parts::Ranks);
    let rank = rank.map(|ranks| ranks.rank());
    match to {
        None => PyDistArray::of_columns(py, made, rank),
        // It lies so already.
        Some(to) if *to == made.distribution => {
            let options = ExportOptions { copy, ..options };
            let made = match copy {
                None => made,
                Some(_) => py.detach(|| distarray::export(grid, columns.core(), &options))?,
            };
            PyDistArray::of_columns(py, made, rank)
        }
        Some(_) if is_spread => Err(Error::unsupported(
            "distribution and padding of a grid of several processes want messages between them",
        )
        .with_hint("grid.distarray(..., distribution=\"rank\").redistribute(to).execute(comm)")
        .into()),
        Some(_) if copy == Some(false) => Err(Error::unsupported(
            "copy must not be False: the elements go to other places",
        )
        .with_hint("leave distribution and padding out: then each tile is a section")
        .into()),
        Some(to) => {
            let array = Py::new(py, PyDistArray::of_columns(py, made, rank)?)?;
            PyPlan::try_new(array, to)?.execute_here(py)
        }
    }
}

/// Refuses two wishes for one place.
fn one_wish(distribution: Option<&Lying>, padding: Option<&Padding>) -> Outcome<()> {
    match (distribution, padding) {
        (Some(Lying::As(_)), Some(_)) => {
            let text = "padding must be left out when distribution is given";
            let error = Error::invalid_argument(text);
            Err(error
                .with_hint("partgrid.distarray.block(cuts, padding=1) has it")
                .into())
        }
        _ => Ok(()),
    }
}

/// One name, or several.
pub(crate) enum Names {
    One(String),
    Several(Vec<String>),
}

impl Names {
    fn core(&self) -> Columns<'_> {
        match self {
            Self::One(name) => Columns::One(name),
            Self::Several(names) => Columns::Several(names),
        }
    }
}

impl Argument for Names {
    const TYPE: PyStaticExpr = type_hint_union!(String::TYPE, Vec::<String>::TYPE);

    fn read(value: &Bound<'_, PyAny>) -> Result<Self, Refusal> {
        if let Some(name) = text(value) {
            return Ok(Self::One(name));
        }
        let refused = || Refusal::new(value, "be the name of a column, or a list of names");
        texts(value).map(Self::Several).ok_or_else(refused)
    }
}

/// How the array shall lie.
pub(crate) enum Lying {
    /// One section for each rank.
    Ranks,
    /// Any distribution.
    As(Wanted),
}

impl Argument for Lying {
    const TYPE: PyStaticExpr = type_hint_union!(String::TYPE, Wanted::TYPE);

    fn read(value: &Bound<'_, PyAny>) -> Result<Self, Refusal> {
        match text(value).as_deref() {
            Some("rank") => Ok(Self::Ranks),
            Some(_) => Err(Refusal::new(
                value,
                "be \"rank\", a Distribution, a Map, or a list of maps",
            )),
            None => Wanted::read(value).map(Self::As),
        }
    }
}

/// Widths of communication padding: one for all dimensions, or one for each.
pub(crate) enum Padding {
    All(u64),
    Each(Vec<u64>),
}

impl Argument for Padding {
    const TYPE: PyStaticExpr = type_hint_union!(u64::INPUT_TYPE, Vec::<u64>::INPUT_TYPE);

    fn read(value: &Bound<'_, PyAny>) -> Result<Self, Refusal> {
        let must = "be a width, or a width for each dimension";
        match items(value) {
            None => whole(value, 0, must).map(Self::All),
            Some(widths) => {
                let widths = widths
                    .iter()
                    .map(|width| whole(width, 0, "hold whole numbers"));
                widths.collect::<Result<_, _>>().map(Self::Each)
            }
        }
    }
}

impl Padding {
    /// The distribution with padding.
    fn around(&self, lying: &Distribution, options: &ExportOptions) -> Outcome<Distribution> {
        let widths = match self {
            Self::All(width) => vec![*width; lying.maps().len()],
            Self::Each(widths) => widths.clone(),
        };
        let halos: Vec<Halo> = widths
            .into_iter()
            .map(|width| Halo {
                width,
                ..Halo::default()
            })
            .collect();
        Ok(lying.try_with_halos(&halos, options.version)?)
    }
}
