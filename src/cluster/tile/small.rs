//! Columns of small tiles of other members, kept.
//!
//! Comes in: columns that were fetched, handles. Goes out: those columns, for statements that read the same tile again: a small table is then read where rows are joined with it (`whole.rs`). A handle names
//! one tile of one life of a process, whose rows never change, so that nothing that is kept can be stale; what nobody reads for a while goes, and with a member what was its own. Never here: fetching.

use std::time::Duration;

use arrow::array::{Array, ArrayRef};
use moka::sync::Cache;

use crate::cluster::members::Members;
use crate::share::{Handle, Incarnation};

/// The largest tile whose columns are kept, and the largest table that is read whole by all.
pub(in crate::cluster) const SMALL_BYTES: u64 = 4 * 1024 * 1024;

/// All that is kept, at most.
const KEPT_BYTES: u64 = 16 * SMALL_BYTES;

/// What a column costs beside its values.
const KEPT_ANYWAY: usize = 1024;

/// What nobody has read for so long goes.
const UNREAD: Duration = Duration::from_secs(600);

/// A column of a tile.
#[derive(PartialEq, Eq, Hash)]
struct Place {
    grid: u128,
    incarnation: Incarnation,
    position: Vec<usize>,
    column: usize,
}

impl Place {
    fn new(handle: &Handle, column: usize) -> Self {
        Self {
            grid: handle.grid.bits(),
            incarnation: handle.incarnation,
            position: handle.position.clone(),
            column,
        }
    }
}

/// Columns of small tiles, at most a few tens of megabytes.
pub(in crate::cluster) struct SmallTiles(Cache<Place, ArrayRef>);

impl SmallTiles {
    pub(in crate::cluster) fn new() -> Self {
        // Columns of a mapped tile are parts of one piece of memory.
        let bytes = |_: &Place, column: &ArrayRef| {
            let own = column.to_data().get_slice_memory_size();
            let bytes = own.unwrap_or(usize::MAX).saturating_add(KEPT_ANYWAY);
            u32::try_from(bytes).unwrap_or(u32::MAX)
        };
        let kept = Cache::builder()
            .weigher(bytes)
            .max_capacity(KEPT_BYTES)
            .time_to_idle(UNREAD);
        Self(kept.build())
    }

    pub(in crate::cluster) fn get(&self, handle: &Handle, column: usize) -> Option<ArrayRef> {
        self.0.get(&Place::new(handle, column))
    }

    pub(in crate::cluster) fn keep(&self, handle: &Handle, column: usize, values: ArrayRef) {
        self.0.insert(Place::new(handle, column), values);
    }

    /// Lets go of one, whose owner was none any more when it was kept.
    pub(in crate::cluster) fn let_go(&self, handle: &Handle, column: usize) {
        self.0.invalidate(&Place::new(handle, column));
    }

    /// Lets go of those of tiles whose owners are no members any more.
    pub(in crate::cluster) fn keep_only(&self, members: &Members) {
        for (place, _) in &self.0 {
            if members.number_of(place.incarnation).is_none() {
                self.0.invalidate(&*place);
            }
        }
    }

    /// Whether any of the first columns of a tile is kept.
    pub(in crate::cluster) fn has_any(&self, handle: &Handle, num_columns: usize) -> bool {
        let mut columns = 0..num_columns;
        columns.any(|column| self.0.contains_key(&Place::new(handle, column)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::Int64Array;
    use tokio::runtime::Handle as Runtime;

    use super::*;
    use crate::client::ClientOptions;
    use crate::cluster::members::Member;
    use crate::cluster::members::channel::Reach;
    use crate::cluster::scale;
    use crate::cluster::tile::MemberTile;
    use crate::cluster::tile::outline::{Access, Outline};
    use crate::grid::TileData;
    use crate::location::Locality;

    #[tokio::test]
    async fn a_tile_of_which_columns_are_kept_is_read_as_if_it_were_here_and_is_listed_where_it_is()
    {
        let reach = Arc::new(Reach::new(ClientOptions::default(), Runtime::current()));
        let own = Member::here("grpc://127.0.0.1:1").unwrap();
        let members = scale::members(&own, 2);
        let grid = scale::grid_at(&reach, &members, &[1]);
        let other = members.iter().nth(1).unwrap();
        let outline = Outline {
            handle: Handle {
                grid: grid.id(),
                position: vec![0, 0],
                incarnation: other.incarnation(),
                owner: other.location().clone(),
            },
            uri: other.uri().into(),
            was: Arc::default(),
            table: Arc::default(),
            schema: Arc::clone(grid.schema()),
            num_rows: 2,
            memory_bytes: 16,
            access: Access::default(),
        };
        let tile = MemberTile::new(outline, Arc::clone(&reach));
        let near = || (tile.locality(), tile.home());
        assert_eq!(near(), (Locality::Process, Locality::Process));
        let values = Arc::new(Int64Array::from(vec![1, 2]));
        reach.small.keep(tile.handle(), 0, values);
        assert_eq!(near(), (Locality::Memory, Locality::Process));
    }
}
