//! Settings of DataFusion for data that is in memory already.
//!
//! Comes in: its defaults. Goes out: what fits tiles better; `docs/performance.md` says what each of them gave. Never here: settings of users.

use datafusion::prelude::SessionConfig;

/// Rows of a batch: few enough for caches, enough that what is done once for each batch does not count.
const BATCH_ROWS: usize = 32 * 1024;

/// The longest build side that one thread builds for all. Both sides of a longer one are dealt out by hash, which copies every row of the other side, and its dynamic
/// filter is a hash and a look-up for each row.
const MOST_BUILT_ROWS: usize = 4_000_000;

/// The same in bytes, where they are known.
const MOST_BUILT_BYTES: usize = 256 * 1024 * 1024;

/// The settings with what fits tiles.
pub(in crate::query) fn for_tiles(config: SessionConfig) -> SessionConfig {
    let mut config = config.with_batch_size(BATCH_ROWS);
    let optimizer = &mut config.options_mut().optimizer;
    optimizer.hash_join_single_partition_threshold_rows = MOST_BUILT_ROWS;
    optimizer.hash_join_single_partition_threshold = MOST_BUILT_BYTES;
    // That of min and max says what no row can better any more, but leaves out an aggregate that has seen only nulls so far: a scan that obeys it would lose that one's rows.
    optimizer.enable_aggregate_dynamic_filter_pushdown = false;
    // Shares of a sorted grid are cut by value: what is grouped by more than that value needs no other cut.
    optimizer.subset_repartition_threshold = 1;
    config
}
