//! Plans in stages, with what the engine does not know of.
//!
//! Comes in: a plan that the engine has cut into stages. Goes out: the same plan without exchanges that nobody needs (`fewer.rs`, `few.rs`), in as few shares as members of one host have cores (`cores.rs`), with groups in the order of
//! the rows (`orders.rs`), joins that look up by number (`numbers.rs`), what is known of rows from elsewhere (`known.rs`) what the engine forgets of windows (`windows.rs`), functions with lambdas as the engine has them (`lambdas.rs`), and lists with long offsets as something else between processes (`lists.rs`). Limits that would arrive as others (`fetches.rs`) are refused. Never here: how each is done.

use std::sync::Arc;

use datafusion::error::Result;
use datafusion::physical_plan::ExecutionPlan;

use super::cores::on_their_cores;
use super::fetches;
use super::few::finished_once;
use super::fewer::{numbered, with_fewer_stages};
use super::known::knowing;
use super::lambdas::written_out;
use super::lists::as_views;
use super::numbers::by_number;
use super::orders::grouped_in_order;
use super::whole::Whole;
use super::windows::kept_whole;
use crate::cluster::Cluster;
use crate::cluster::placement::leaf::OfQuery;

impl Cluster {
    /// The plan as it is sent. The order matters: of a part that is left with one share more is known.
    ///
    /// # Errors
    /// As the engine says.
    pub(in crate::cluster) fn as_sent(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        query: &OfQuery,
        batch_rows: usize,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let whole = (!self.forbids_fetching).then_some(Whole { query, batch_rows });
        let plan = with_fewer_stages(plan, whole, batch_rows)?;
        let plan = match finished_once(&plan)? {
            Some(finished) => numbered(finished)?,
            None => plan,
        };
        let plan = on_their_cores(plan, &query.members, batch_rows)?;
        let plan = grouped_in_order(plan, batch_rows)?;
        let plan = by_number(plan, self.session.memory_limit_bytes())?;
        let plan = written_out(&kept_whole(&knowing(plan)?)?)?;
        fetches::check(&plan)?;
        as_views(&plan)
    }
}
