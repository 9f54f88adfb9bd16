//! Sections of others as typed data, for importers.
//!
//! Comes in: untyped values. Goes out: [`SectionInfo`]s in which every rule holds, or the first fault with rank, dimension and key. Never here: data of buffers.

use crate::distarray::check::section::Seen;
use crate::distarray::check::{Finding, Log, Mode, Severity, across, section, see_all};
use crate::distarray::dimension::DimData;
use crate::distarray::distribution::Distribution;
use crate::distarray::index_set::Part;
use crate::distarray::map::Map;
use crate::distarray::value::Value;
use crate::distarray::version::Version;
use crate::error::{Error, ErrorKind, Result};

/// A section as it describes itself: what its buffer is, and which elements of the array it holds. Every rule holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SectionInfo {
    /// The version in whose words "dim_data" is.
    pub version: Version,
    /// One entry for each dimension. An empty dictionary has become a block.
    pub dim_data: Vec<DimData>,
    /// The format of one element (PEP 3118).
    pub format: String,
    /// The bytes of one element.
    pub item_bytes: usize,
    /// The extents of the local buffer, halo included.
    pub shape: Vec<u64>,
}

impl SectionInfo {
    /// What the section owns along each dimension: where in the local buffer it begins, and the global indices. The owned elements are the product.
    #[must_use]
    pub fn owned(&self) -> Vec<Part> {
        let dims = self.dim_data.iter();
        dims.map(|data| data.owned(self.version)).collect()
    }

    /// What the buffer holds along each dimension, halo included.
    #[must_use]
    pub fn held(&self) -> Vec<Vec<Part>> {
        let dims = self.dim_data.iter();
        dims.map(|data| data.held(self.version)).collect()
    }
}

impl Distribution {
    /// The distribution that all sections of an array describe, rank 0 first.
    ///
    /// # Errors
    /// `Protocol` for the first contradiction; none in what [`read_all`] gave.
    pub fn try_from_sections(sections: &[SectionInfo]) -> Result<Self> {
        let Some(first) = sections.first() else {
            return Err(Error::invalid_argument(
                "a distribution wants at least one section, got none",
            ));
        };
        let maps = (0..first.dim_data.len()).map(|dimension| {
            let mut ranks: Vec<DimData> = Vec::new();
            for data in sections
                .iter()
                .filter_map(|each| each.dim_data.get(dimension))
            {
                if data.proc_grid_rank == ranks.len() as u64 {
                    ranks.push(data.clone());
                }
            }
            Map::try_from_dim_data(&ranks, first.version)
                .map_err(|error| error.with_context("dimension", dimension.to_string()))
        });
        let distribution = Self::try_new(maps.collect::<Result<_>>()?)?;
        if distribution.num_ranks() != sections.len() {
            let text = format!(
                "there must be a section for each of the {} ranks, got {}",
                distribution.num_ranks(),
                sections.len()
            );
            return Err(Error::new(ErrorKind::Protocol, text));
        }
        Ok(distribution)
    }
}

/// Reads one section, alone.
///
/// # Errors
/// `Protocol` for the first error that [`super::validate_local`] finds.
pub fn read_local(section: &Value, mode: Mode) -> Result<SectionInfo> {
    let mut log = Log::new(mode);
    let seen = section::check(section, &mut log);
    refuse(&log.findings)?;
    info(seen)
}

/// Reads all sections of an array, rank 0 first.
///
/// # Errors
/// `Protocol` for the first error that [`super::validate_all`] finds.
pub fn read_all(sections: &[Value], mode: Mode) -> Result<Vec<SectionInfo>> {
    let mut log = Log::new(mode);
    let seen = see_all(sections, &mut log);
    across::check(&seen, &mut log);
    refuse(&log.findings)?;
    seen.into_iter().map(info).collect()
}

/// The first error as an error of ours.
fn refuse(findings: &[Finding]) -> Result<()> {
    let errors = || {
        let all = findings.iter();
        all.filter(|finding| finding.severity == Severity::Error)
    };
    let Some(first) = errors().next() else {
        return Ok(());
    };
    let mut error = Error::new(ErrorKind::Protocol, first.message.clone())
        .with_context("rule", first.rule.name());
    for (name, number) in [("rank", first.rank), ("dimension", first.dimension)] {
        if let Some(number) = number {
            error = error.with_context(name, number.to_string());
        }
    }
    if let Some(key) = first.key {
        error = error.with_context("key", key);
    }
    Err(match errors().count() - 1 {
        0 => error,
        others => error.with_hint(format!(
            "{others} more are wrong: partgrid.distarray.validate, or `partgrid distarray check` for JSON, lists them all"
        )),
    })
}

fn info(seen: Seen) -> Result<SectionInfo> {
    let dims = seen.dims.unwrap_or_default().into_iter();
    let dim_data: Option<Vec<DimData>> = dims.map(|dim| dim.data).collect();
    match (seen.version, seen.buffer, dim_data) {
        (Some(version), Some(buffer), Some(dim_data)) => Ok(SectionInfo {
            version,
            dim_data,
            format: buffer.format,
            item_bytes: buffer.item_bytes,
            shape: buffer.shape,
        }),
        _ => Err(Error::internal("a section without findings is whole")),
    }
}
