//! An array in another distribution, in memory of its own.
//!
//! Comes in: an array whose sections are all in this process, and a distribution of the same global shape. Goes out: the array as it lies there, elements in C order, halos filled by the
//! ranks that own them. Never here: which element goes where (`redistribute/`).

use std::borrow::Cow;

use arrow::buffer::Buffer;

use crate::distarray::distribution::Distribution;
use crate::distarray::export::{Copied, DistArray, Reason, Section};
use crate::distarray::redistribute::{Layout, Plan, Source};
use crate::error::{Error, ErrorKind, Result};
use crate::grid::Numbers;

impl DistArray {
    /// The array in another distribution. Everything is copied; what lies in several allocations, once more.
    ///
    /// # Errors
    /// As of [`Plan::try_new`]; `NotLocal` when a section is in another process; `ResourcesExhausted` when memory is lacking; `Unsupported` when the version has no form for it.
    pub fn redistributed(&self, to: &Distribution) -> Result<Self> {
        let plan = Plan::try_new(&self.distribution, to)?;
        let held: Vec<Cow<'_, Numbers>> = self
            .sections
            .iter()
            .map(Section::in_one_piece)
            .collect::<Result<_>>()?;
        let sources: Vec<Source> = held
            .iter()
            .map(|each| source(each))
            .collect::<Result<_>>()?;
        let buffers = plan.execute(&sources)?;
        let mut copies = self.copies.clone();
        let sections = buffers.into_iter().enumerate().map(|(rank, bytes)| {
            let shape = to.local_shape(rank).unwrap_or_default();
            let shape = shape.iter().map(|len| usize::try_from(*len).unwrap_or(0));
            let bytes = Buffer::from_vec(bytes);
            let numbers = Numbers::try_in_c_order(bytes, self.element, shape.collect())?;
            Copied::add(&mut copies, Reason::Moved, numbers.num_bytes() as u64);
            Ok(Section {
                rank,
                version: self.version,
                dim_data: to.dim_data(rank, self.version)?,
                numbers: Some(numbers),
                is_copy: true,
            })
        });
        let sections = sections.collect::<Result<_>>()?;
        Ok(Self {
            distribution: to.clone(),
            sections,
            copies,
            ..self.clone()
        })
    }
}

impl Section {
    /// The elements in one allocation.
    fn in_one_piece(&self) -> Result<Cow<'_, Numbers>> {
        let numbers = self.numbers.as_ref().ok_or_else(|| {
            Error::new(ErrorKind::NotLocal, "the section is in another process")
                .with_context("rank", self.rank.to_string())
        })?;
        Ok(match numbers.span() {
            Some(_) => Cow::Borrowed(numbers),
            None => Cow::Owned(numbers.copied()),
        })
    }
}

fn source(numbers: &Numbers) -> Result<Source<'_>> {
    let missing = || Error::internal("numbers in one allocation have bytes");
    let strides = numbers.strides().iter();
    let strides = strides.map(|stride| isize::try_from(*stride).unwrap_or(isize::MAX));
    let (shape, item_bytes) = (numbers.shape().to_vec(), numbers.element().item_bytes());
    Ok(Source {
        bytes: numbers.span().ok_or_else(missing)?,
        layout: Layout::try_new(shape, strides.collect(), 0, item_bytes)?,
    })
}
