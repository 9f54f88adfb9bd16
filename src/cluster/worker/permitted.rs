//! What parts of plans may hold.
//!
//! Comes in: a part of a plan of another member. Goes out: nothing, or an error that names what it may not hold. Every operator is on a list, with inputs or without: what the planner of partgrid makes and can travel, or this
//! member makes of its own part. An operator that a later version of the engine adds is refused until it is looked at and put there. Never here: which tiles a scan may read (`tiles.rs`).

use std::sync::Arc;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::{DataFusionError, Result};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::buffer::BufferExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec,
};
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::placeholder_row::PlaceholderRowExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::union::{InterleaveExec, UnionExec};
use datafusion::physical_plan::unnest::UnnestExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion_distributed::{
    BroadcastExec, NetworkBroadcastExec, NetworkCoalesceExec, NetworkShuffleExec,
};

use crate::cluster::plan::border::BorderExec;
use crate::cluster::plan::known::KnownExec;
use crate::cluster::plan::lists::ListsExec;
use crate::cluster::plan::windows::WindowsExec;
use crate::error::{Error, ErrorKind};
use crate::query::{AsofJoinExec, GridScanExec, LookupExec};

/// # Errors
/// `PermissionDenied` for a part with an operator that is not on the lists below, which names it.
pub(in crate::cluster) fn check(plan: &Arc<dyn ExecutionPlan>) -> Result<()> {
    plan.apply(|node| {
        if gives_rows(node) || works_on_rows(node) || is_exchange(node) || is_own(node) {
            return Ok(TreeNodeRecursion::Continue);
        }
        let text = format!("a part of a plan may not do this: {}", node.name());
        let error = Error::new(ErrorKind::PermissionDenied, text);
        Err(DataFusionError::from(error))
    })?;
    Ok(())
}

/// Operators of the engine without inputs: no rows, one row, and rows that are in the plan itself. Scans of files are sources as well, and no such ones.
fn gives_rows(node: &Arc<dyn ExecutionPlan>) -> bool {
    if let Some(source) = node.downcast_ref::<DataSourceExec>() {
        return source.data_source().is::<MemorySourceConfig>();
    }
    node.is::<EmptyExec>() || node.is::<PlaceholderRowExec>()
}

/// Operators of the engine that make rows of rows. Not on the list: what writes (`DataSinkExec`), what calls functions that wait (`AsyncFuncExec`), what runs plans beside itself (`ScalarSubqueryExec`, `AnalyzeExec`), what
/// joins or sorts rows that do not end (`SymmetricHashJoinExec`, `PartialSortExec`), what a statement is led by (`RecursiveQueryExec`, which stays with the member that was asked), and what no plan of ours has.
fn works_on_rows(node: &Arc<dyn ExecutionPlan>) -> bool {
    node.is::<AggregateExec>()
        || node.is::<BoundedWindowAggExec>()
        || node.is::<BufferExec>()
        || node.is::<CoalescePartitionsExec>()
        || node.is::<CooperativeExec>()
        || node.is::<CrossJoinExec>()
        || node.is::<FilterExec>()
        || node.is::<GlobalLimitExec>()
        || node.is::<HashJoinExec>()
        || node.is::<InterleaveExec>()
        || node.is::<LocalLimitExec>()
        || node.is::<NestedLoopJoinExec>()
        || node.is::<ProjectionExec>()
        || node.is::<RepartitionExec>()
        || node.is::<SortExec>()
        || node.is::<SortMergeJoinExec>()
        || node.is::<SortPreservingMergeExec>()
        || node.is::<UnionExec>()
        || node.is::<UnnestExec>()
        || node.is::<WindowAggExec>()
}

/// What brings rows of other members, or hands them out to them.
fn is_exchange(node: &Arc<dyn ExecutionPlan>) -> bool {
    node.is::<BroadcastExec>()
        || node.is::<NetworkBroadcastExec>()
        || node.is::<NetworkCoalesceExec>()
        || node.is::<NetworkShuffleExec>()
}

/// Operators of partgrid that travel (`codec/mod.rs`).
fn is_own(node: &Arc<dyn ExecutionPlan>) -> bool {
    node.is::<GridScanExec>()
        || node.is::<AsofJoinExec>()
        || node.is::<LookupExec>()
        || node.is::<KnownExec>()
        || node.is::<BorderExec>()
        || node.is::<WindowsExec>()
        || node.is::<ListsExec>()
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
    use datafusion::catalog::TableProvider;
    use datafusion::datasource::MemTable;
    use datafusion::datasource::listing::PartitionedFile;
    use datafusion::datasource::physical_plan::{ArrowSource, FileScanConfigBuilder};
    use datafusion::execution::SessionStateBuilder;
    use datafusion::execution::object_store::ObjectStoreUrl;
    use datafusion::logical_expr::dml::InsertOp;
    use datafusion::physical_plan::analyze::AnalyzeExec;
    use datafusion::physical_plan::memory::LazyMemoryExec;
    use datafusion::prelude::SessionConfig;
    use datafusion_distributed::{DistributedExt, MaybeEncoded};

    use super::*;
    use crate::cluster::codec::Codec;
    use crate::cluster::{Cluster, ClusterOptions, worker};
    use crate::query::{Session, SessionOptions, kind_within};

    fn schema() -> SchemaRef {
        Arc::new(Schema::new(vec![Field::new("x", DataType::Int64, true)]))
    }

    /// A plan below an operator that may be anywhere.
    fn below(plan: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        Arc::new(CoalescePartitionsExec::new(plan))
    }

    fn nothing() -> Arc<dyn ExecutionPlan> {
        Arc::new(EmptyExec::new(schema()))
    }

    fn files() -> Arc<dyn ExecutionPlan> {
        let source = ArrowSource::new_file_source(schema());
        let files =
            FileScanConfigBuilder::new(ObjectStoreUrl::local_filesystem(), Arc::new(source));
        let files = files.with_file(PartitionedFile::new("etc/passwd", 100));
        DataSourceExec::from_data_source(files.build())
    }

    /// It has an input, and nothing in its name says what it does.
    fn analyzed() -> Arc<dyn ExecutionPlan> {
        Arc::new(AnalyzeExec::builder(false, false, nothing(), schema()).build())
    }

    #[tokio::test]
    async fn parts_that_read_files_or_write_are_refused_wherever_that_stands() {
        let table = MemTable::try_new(schema(), vec![Vec::new()]).unwrap();
        let state = SessionStateBuilder::new().build();
        let writes = table.insert_into(&state, nothing(), InsertOp::Append);
        let writes = writes.await.unwrap();
        let makes = LazyMemoryExec::try_new(schema(), Vec::new()).unwrap();
        let refused: [Arc<dyn ExecutionPlan>; 3] = [files(), writes, Arc::new(makes)];
        for plan in refused {
            for plan in [Arc::clone(&plan), below(plan)] {
                let error = check(&plan).unwrap_err();
                assert_eq!(kind_within(&error), ErrorKind::PermissionDenied, "{error}");
            }
        }
    }

    #[test]
    fn operators_with_inputs_are_refused_by_name_unless_they_are_on_the_list() {
        for plan in [analyzed(), below(analyzed())] {
            let error = check(&plan).unwrap_err();
            assert_eq!(kind_within(&error), ErrorKind::PermissionDenied, "{error}");
            assert!(error.to_string().contains("AnalyzeExec"), "{error}");
        }
    }

    #[test]
    fn rows_of_the_plan_itself_are_let_through() {
        let values = MemorySourceConfig::try_new_exec(&[Vec::new()], schema(), None).unwrap();
        check(&below(values)).unwrap();
        check(&below(nothing())).unwrap();
    }

    #[tokio::test]
    async fn what_runs_parts_refuses_those_that_were_sent_with_what_they_may_not_hold() {
        let session = Session::try_new(&SessionOptions::default()).unwrap();
        let options = ClusterOptions::default();
        let cluster = Cluster::start(&session, "grpc://127.0.0.1:9", options).unwrap();
        let codec = Codec(cluster.tile_codec(None));
        let config = SessionConfig::new().with_distributed_user_codec(codec);
        let state = SessionStateBuilder::new().with_config(config).build();
        let sent = |plan: Arc<dyn ExecutionPlan>| {
            let bytes = MaybeEncoded::Decoded(plan).encode(&state.task_ctx());
            MaybeEncoded::Encoded(bytes.unwrap())
        };
        let members = cluster.members();
        let run = async |number: usize, plan: MaybeEncoded<Arc<dyn ExecutionPlan>>| {
            Box::pin(worker::set(&cluster.worker, members.own(), number, plan)).await
        };
        run(1, sent(below(nothing()))).await.unwrap();
        let refused = [(files(), "DataSourceExec"), (analyzed(), "AnalyzeExec")];
        let mut number = 1;
        for (plan, name) in refused {
            // As it came from elsewhere, and as a process hands it to itself.
            for plan in [sent(below(Arc::clone(&plan))), MaybeEncoded::Decoded(plan)] {
                number += 1;
                let error = run(number, plan).await.unwrap_err();
                assert_eq!(kind_within(&error), ErrorKind::PermissionDenied, "{error}");
                let expected = format!("a part of a plan may not do this: {name}");
                assert!(error.to_string().contains(&expected), "{error}");
            }
        }
    }
}
