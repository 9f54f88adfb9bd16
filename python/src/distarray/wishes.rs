//! Arguments that say how an array shall lie.
//!
//! Comes in: what callers pass. Goes out: versions, cuts, indices, distributions. Never here: what they mean.

use std::sync::Arc;

use partgrid::distarray::{Distribution, Integers, Map, Value, Version};
use pyo3::inspect::PyStaticExpr;
use pyo3::prelude::*;
use pyo3::{PyTypeInfo, type_hint_identifier, type_hint_subscript, type_hint_union};

use super::distribution::PyDistribution;
use super::map::PyMap;
use super::value::indices_of;
use crate::argument::{Argument, Given, Refusal, items, optional, text, whole};
use crate::error::Outcome;

/// `"0.9.0"` or `"0.10.0"`.
pub(crate) struct PyVersion(String);

impl Argument for PyVersion {
    const TYPE: PyStaticExpr = String::TYPE;

    fn read(value: &Bound<'_, PyAny>) -> Result<Self, Refusal> {
        text(value)
            .map(Self)
            .ok_or_else(|| Refusal::new(value, "be \"0.10.0\" or \"0.9.0\""))
    }
}

/// The version that is meant: 0.10 unless another is named.
pub(super) fn version_of(version: Option<Given<PyVersion>>) -> Outcome<Version> {
    Ok(match optional(version, "version")? {
        Some(text) => Version::try_from_text(&text.0)?,
        None => Version::V0_10,
    })
}

/// A size, or cut points.
pub(crate) enum Cuts {
    Size(u64),
    All(Vec<u64>),
}

impl Argument for Cuts {
    const TYPE: PyStaticExpr = type_hint_union!(u64::INPUT_TYPE, Vec::<u64>::INPUT_TYPE);

    fn read(value: &Bound<'_, PyAny>) -> Result<Self, Refusal> {
        let must = "be a size or a list of cut points such as [0, 4, 10]";
        match items(value) {
            None => whole(value, 0, must).map(Self::Size),
            Some(cuts) => {
                let cuts = cuts.iter().map(|cut| whole(cut, 0, "hold whole numbers"));
                cuts.collect::<Result<_, _>>().map(Self::All)
            }
        }
    }
}

/// A width on the left and one on the right.
pub(crate) struct Widths(pub(super) [u64; 2]);

impl Argument for Widths {
    const TYPE: PyStaticExpr = <(u64, u64) as FromPyObject<'_, '_>>::INPUT_TYPE;

    fn read(value: &Bound<'_, PyAny>) -> Result<Self, Refusal> {
        let widths: Result<(u64, u64), _> = value.extract();
        let refused = |_| Refusal::new(value, "be two whole numbers, left and right");
        widths
            .map(|(left, right)| Self([left, right]))
            .map_err(refused)
    }
}

/// Integers of a list or an array.
pub(crate) struct Indices(pub(super) Vec<i64>);

impl Argument for Indices {
    const TYPE: PyStaticExpr = Vec::<i64>::INPUT_TYPE;

    fn read(value: &Bound<'_, PyAny>) -> Result<Self, Refusal> {
        indices(value).map(Self)
    }
}

/// Integers of each rank.
pub(crate) struct Lists(pub(super) Vec<Arc<[i64]>>);

impl Argument for Lists {
    const TYPE: PyStaticExpr = Vec::<Vec<i64>>::INPUT_TYPE;

    fn read(value: &Bound<'_, PyAny>) -> Result<Self, Refusal> {
        let lists = items(value)
            .ok_or_else(|| Refusal::new(value, "be a list with the indices of each rank"))?;
        let lists = lists.iter().map(|list| indices(list).map(Arc::from));
        lists.collect::<Result<_, _>>().map(Self)
    }
}

fn indices(value: &Bound<'_, PyAny>) -> Result<Vec<i64>, Refusal> {
    let refused = || Refusal::new(value, "be a list or an array of integers below 2^63");
    match indices_of(value) {
        Value::Buffer(facts) => match facts.integers {
            Integers::Read(all) if facts.shape.len() == 1 => Ok(all.to_vec()),
            _ => Err(refused()),
        },
        Value::List(values) | Value::Tuple(values) => {
            let integers = values.iter().map(|each| match each {
                Value::Int(value) | Value::Integral { value, .. } => i64::try_from(*value).ok(),
                _ => None,
            });
            integers.collect::<Option<_>>().ok_or_else(refused)
        }
        _ => value.extract().map_err(|_| refused()),
    }
}

/// One map, or one for each dimension.
pub(crate) struct Maps(pub(super) Vec<Map>);

impl Argument for Maps {
    const TYPE: PyStaticExpr = type_hint_subscript!(
        type_hint_identifier!("collections.abc", "Sequence"),
        PyMap::TYPE_HINT
    );

    fn read(value: &Bound<'_, PyAny>) -> Result<Self, Refusal> {
        let refused = || {
            let must = "be a list of maps, one for each dimension";
            Refusal::new(value, must)
                .hint("partgrid.distarray.block, cyclic and unstructured make them")
        };
        let maps = items(value).ok_or_else(refused)?;
        let maps = maps.iter().map(map_of).collect::<Option<_>>();
        maps.map(Self).ok_or_else(refused)
    }
}

fn map_of(value: &Bound<'_, PyAny>) -> Option<Map> {
    let map = value.cast::<PyMap>().ok()?;
    Some(map.get().core().clone())
}

/// A distribution, its maps, or the one map of one dimension.
pub(crate) enum Wanted {
    Made(Arc<Distribution>),
    Maps(Vec<Map>),
}

impl Wanted {
    pub(super) fn distribution(self) -> Outcome<Arc<Distribution>> {
        match self {
            Self::Made(distribution) => Ok(distribution),
            Self::Maps(maps) => Ok(Arc::new(Distribution::try_new(maps)?)),
        }
    }
}

impl Argument for Wanted {
    const TYPE: PyStaticExpr =
        type_hint_union!(PyDistribution::TYPE_HINT, PyMap::TYPE_HINT, Maps::TYPE);

    fn read(value: &Bound<'_, PyAny>) -> Result<Self, Refusal> {
        if let Ok(distribution) = value.cast::<PyDistribution>() {
            return Ok(Self::Made(Arc::clone(distribution.get().core())));
        }
        if let Some(map) = map_of(value) {
            return Ok(Self::Maps(vec![map]));
        }
        let refused = || {
            let must = "be a Distribution, a Map, or a list of maps";
            Refusal::new(value, must)
                .hint("partgrid.distarray.block, cyclic and unstructured make maps")
        };
        let maps = items(value).ok_or_else(refused)?;
        let maps = maps.iter().map(map_of).collect::<Option<_>>();
        maps.map(Self::Maps).ok_or_else(refused)
    }
}
