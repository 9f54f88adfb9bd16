//! Copies of storages.
//!
//! Comes in: a storage in memory of the host. Goes out: another one with the same values, laid out by the same parameters. Never here: memory of devices.

#![expect(
    unsafe_code,
    reason = "reads and writes elements through the addresses that two plans give"
)]

use std::sync::Arc;

use super::memory::Host;
use super::plan::Plan;
use super::{Fill, Storage};
use crate::error::{Error, ErrorKind, Result};
use crate::location::Device;

impl Storage {
    /// The same values in memory that nobody else has.
    ///
    /// # Errors
    /// `ResourcesExhausted` when there is no memory; `NotLocal` when the values are in that of a device.
    pub fn try_copy(&self) -> Result<Arc<Self>> {
        if self.device() != Device::CPU {
            return Err(Error::new(
                ErrorKind::NotLocal,
                format!(
                    "only memory of the host is copied here, this is on {}",
                    self.device()
                ),
            ));
        }
        let parameters = self.plan.parameters();
        let plan = Plan::try_new(self.plan.shape(), self.plan.item_bytes(), &parameters)?;
        let copy = Self::try_new(plan, self.item.clone(), Fill::Undefined, &Host)?;
        if !self.plan.shape().contains(&0) {
            self.copy_elements(&copy);
        }
        Ok(copy)
    }

    /// Runs of neighbours along one dimension are copied at once.
    fn copy_elements(&self, target: &Self) {
        let item_bytes = self.plan.item_bytes();
        let (ours, theirs) = (self.plan.strides(), target.plan.strides());
        let is_run = |dimension: &usize| {
            ours.get(*dimension) == Some(&item_bytes) && theirs.get(*dimension) == Some(&item_bytes)
        };
        let run = (0..ours.len()).find(is_run);
        let extent = |dimension: usize| self.plan.shape().get(dimension).copied().unwrap_or(1);
        let run_bytes = run.map_or(1, extent) * item_bytes;
        let mut index = vec![0; ours.len()];
        loop {
            let at = |strides: &[usize]| -> usize {
                index
                    .iter()
                    .zip(strides)
                    .map(|(at, stride)| at * stride)
                    .sum()
            };
            let (from, to) = (
                self.as_ptr().wrapping_add(at(ours)),
                target.as_ptr().wrapping_add(at(theirs)),
            );
            // SAFETY: `index` is an element of both storages, and the run from there on is within their shape; the target is new, so the two do not overlap.
            unsafe { std::ptr::copy_nonoverlapping(from, to, run_bytes) };
            // The next element along the dimensions that are no run.
            let mut is_done = true;
            for (dimension, at) in index.iter_mut().enumerate().rev() {
                if Some(dimension) == run {
                    continue;
                }
                *at += 1;
                if *at < extent(dimension) {
                    is_done = false;
                    break;
                }
                *at = 0;
            }
            if is_done {
                return;
            }
        }
    }
}
