//! Parts of plans, and messages about tiles, that somebody has changed: read as something that makes sense, or refused.
//!
//! Comes in: good messages of members. Goes out: nothing. `PARTGRID_FUZZ_CASES` says how many are tried. Never here: who may send them (`tests/python/cluster/test_cluster_door.py`), what files tiles are made of (`load/lineage/told.rs`).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::compute::SortOptions;
use arrow::datatypes::DataType;
use datafusion::common::{JoinType, NullEquality, ScalarValue};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, CastExpr, Column, IsNotNullExpr, lit};
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use datafusion_proto::physical_plan::{DefaultPhysicalProtoConverter, PhysicalExtensionCodec};
use prost::Message;

use super::codec::Codec;
use super::codec::message::{
    Arrange, FORMAT, Over, OverTwo, ReadAhead, Scan, Step, Take, TakeRun, Write,
};
use super::codec::tiles::{TileCodec, id_bytes};
use super::members::Member;
use super::members::channel::Reach;
use super::plan::border::{Border, BorderExec};
use super::plan::known::{Class, Constant, KnownExec};
use super::plan::lists::ListsExec;
use super::tile::anywhere::Anywhere;
use super::{Cluster, ClusterOptions, scale};
use crate::catalog::Catalog;
use crate::client::ClientOptions;
use crate::counting::allocated_bytes;
use crate::error::{Error, ErrorKind};
use crate::flight::messages::GridPart;
use crate::grid::PartitionGrid;
use crate::harm::{Random, cases, harmed};
use crate::load::Arrangement;
use crate::query::{
    AsofJoinExec, GridScanExec, LookupExec, Nearest, Session, SessionOptions, kind_within,
};

/// What reading a message of so many bytes may ask for: a tile is told with two of them, and shares with none.
const MOST_PER_BYTE: usize = 4 * 1024;
const MOST_BESIDE: usize = 4 * 1024 * 1024;

/// How conditions are written and read.
const CONVERTER: DefaultPhysicalProtoConverter = DefaultPhysicalProtoConverter {};

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Runtime::new().unwrap()
}

/// Writes for three members, of which two are but names, and reads.
pub(super) fn codec_of(catalog: Catalog) -> Codec {
    let own = Member::here("grpc://127.0.0.1:9").unwrap();
    Codec(TileCodec {
        reach: Arc::new(Reach::new(
            ClientOptions::default(),
            runtime().handle().clone(),
        )),
        members: Some(Arc::new(scale::members(&own, 3))),
        forbids_fetching: false,
        anywhere: Arc::new(Anywhere::new(Some(catalog), Vec::new())),
        names_sources: false,
    })
}

pub(super) fn empty_catalog() -> Catalog {
    runtime()
        .block_on(Catalog::open("memory:///hostile"))
        .unwrap()
}

/// A grid that this process has.
fn own_grid() -> Arc<PartitionGrid> {
    let columns = ["g", "x"].map(|name| {
        let values: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
        (name, values)
    });
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let batches = [batch.clone(), batch];
    Arc::new(PartitionGrid::try_from_batches(batches[0].schema(), &batches).unwrap())
}

/// Conditions over `g` and `x`, with values of several types.
fn conditions() -> Vec<Arc<dyn PhysicalExpr>> {
    type Condition = Arc<dyn PhysicalExpr>;
    let column = |name: &str, place| Arc::new(Column::new(name, place)) as Condition;
    let is = |left: Condition, operator, right: Condition| {
        Arc::new(BinaryExpr::new(left, operator, right)) as Condition
    };
    let kind = DataType::Decimal128(20, 2);
    let exact: Condition = Arc::new(CastExpr::new(column("g", 0), kind, None));
    let some = is(column("x", 1), Operator::GtEq, lit(0_i64));
    let few = is(
        exact,
        Operator::Lt,
        lit(ScalarValue::Decimal128(Some(5_000), 20, 2)),
    );
    let known: Condition = Arc::new(IsNotNullExpr::new(column("g", 0)));
    vec![is(some, Operator::Or, few), known]
}

/// Scans of tiles of other members, of the catalog and of this process.
fn scans(codec: &Codec) -> Vec<Arc<dyn ExecutionPlan>> {
    let tiles = &codec.0;
    let members = tiles.members.as_ref().unwrap();
    let catalog = tiles.anywhere.catalog.as_ref().unwrap();
    let grids = [
        scale::grid(&tiles.reach, members, 6),
        scale::kept_grid(catalog, 5),
        own_grid(),
    ];
    let order = vec![(0, SortOptions::new(true, false))];
    let scans = grids.into_iter().enumerate().map(|(number, grid)| {
        let scan = GridScanExec::over(grid, vec![1, 0], &conditions()).unwrap();
        let scan = scan.with_limit((number > 0).then_some(7));
        let scan = scan.into_part(std::slice::from_ref(&order), number + 1, 8192);
        Arc::new(scan.unwrap()) as Arc<dyn ExecutionPlan>
    });
    scans.collect()
}

/// A message, and the node that it says; a grid of this process is found as long as that is there.
struct Said {
    bytes: Vec<u8>,
    node: Arc<dyn ExecutionPlan>,
}

impl Said {
    fn inputs(&self) -> Vec<Arc<dyn ExecutionPlan>> {
        let inputs = self.node.children().into_iter();
        inputs.map(Arc::clone).collect()
    }

    fn is_scan(&self) -> bool {
        self.node.is::<GridScanExec>()
    }
}

/// One message of each kind.
fn all_said(codec: &Codec) -> Vec<Said> {
    let scans = scans(codec);
    let [one, other, _] = scans.as_slice() else {
        panic!("there are three scans");
    };
    let (left, right) = (Arc::clone(one), Arc::clone(other));
    let key = || Arc::new(Column::new("x", 0)) as Arc<dyn PhysicalExpr>;
    let join = HashJoinExec::try_new(
        left,
        right,
        vec![(key(), key())],
        None,
        &JoinType::Inner,
        None,
        PartitionMode::CollectLeft,
        NullEquality::NullEqualsNothing,
        false,
    );
    let join: Arc<dyn ExecutionPlan> = Arc::new(join.unwrap());
    let classes = [
        Constant::No,
        Constant::InEachPartition,
        Constant::Everywhere,
    ];
    let parts: Vec<Arc<dyn PhysicalExpr>> = vec![key(), Arc::new(Column::new("x", 2))];
    let classes = classes.map(|constant| Class {
        parts: parts.clone(),
        constant,
    });
    let known = KnownExec::try_new(Arc::clone(&join), classes.to_vec());
    let border = Border {
        column: 0,
        spans: vec![Some((-5, 7)), None, Some((i128::MIN, i128::MAX))],
        firsts: Some(vec![0, 8, 9]),
    };
    let bordered = BorderExec::new(Arc::clone(one), Arc::clone(other), Arc::new(border));
    let nearest = Nearest::of(Operator::LtEq, vec![(0, 0)], (0, 0), true).unwrap();
    let asof = AsofJoinExec::try_new(Arc::clone(one), Arc::clone(other), nearest);
    let nodes: [Arc<dyn ExecutionPlan>; 5] = [
        Arc::new(asof.unwrap()),
        Arc::new(LookupExec::new(join, true)),
        Arc::new(known.unwrap()),
        Arc::new(bordered),
        Arc::new(ListsExec::new(Arc::clone(one), true)),
    ];
    let nodes = scans.iter().map(Arc::clone).chain(nodes);
    let said = nodes.map(|node| Said {
        bytes: written(codec, &node),
        node,
    });
    said.collect()
}

pub(super) fn written(codec: &Codec, node: &Arc<dyn ExecutionPlan>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let node = Arc::clone(node);
    codec.try_encode(node, &mut bytes, &CONVERTER).unwrap();
    bytes
}

pub(super) fn read(
    codec: &Codec,
    bytes: &[u8],
    inputs: &[Arc<dyn ExecutionPlan>],
) -> Result<Arc<dyn ExecutionPlan>> {
    codec.try_decode(bytes, inputs, &TaskContext::default(), &CONVERTER)
}

/// A scan as it was written, with something else in it.
fn changed(said: &Said, change: impl FnOnce(&mut Scan)) -> Vec<u8> {
    let mut scan = Scan::decode(said.bytes.as_slice()).unwrap();
    change(&mut scan);
    scan.encode_to_vec()
}

/// The text with which a message is refused, for what it is: data that is wrong.
fn refused(codec: &Codec, bytes: &[u8], inputs: &[Arc<dyn ExecutionPlan>]) -> String {
    let (found, asked) = allocated_bytes(|| read(codec, bytes, inputs));
    assert!(asked < MOST_BESIDE + MOST_PER_BYTE * bytes.len(), "{asked}");
    let error = Error::from(found.unwrap_err());
    assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
    error.to_string()
}

#[test]
fn what_is_written_is_read_and_written_again() {
    let codec = codec_of(empty_catalog());
    for said in all_said(&codec) {
        let node = read(&codec, &said.bytes, &said.inputs()).unwrap();
        let again = written(&codec, &node);
        if !said.is_scan() {
            assert_eq!(again, said.bytes);
            continue;
        }
        let again = Scan::decode(again.as_slice()).unwrap();
        let expected = changed(&said, |scan| {
            // The grid of the tiles that came is another one, and tiles of this process are of that now.
            scan.grid.clone_from(&again.grid);
            let of = |scan: &Scan| scan.tiles.clone().unwrap().sources;
            if of(&*scan).len() == 1 {
                scan.tiles.as_mut().unwrap().sources = of(&again);
            }
        });
        assert_eq!(again.encode_to_vec(), expected);
    }
}

#[test]
fn nodes_of_others_are_refused_before_anything_is_written() {
    let codec = codec_of(empty_catalog());
    let schema = Arc::clone(own_grid().schema());
    let mut buffer = b"before".to_vec();
    let foreign = Arc::new(EmptyExec::new(schema));
    let error = codec.try_encode(foreign, &mut buffer, &CONVERTER);
    let error = error.unwrap_err();
    assert!(
        matches!(error, DataFusionError::NotImplemented(_)),
        "{error}"
    );
    assert_eq!(buffer, b"before");
    // So is a scan of tiles of others where there is no query.
    let mut scans = scans(&codec);
    let outside = Codec(TileCodec {
        members: None,
        reach: Arc::clone(&codec.0.reach),
        anywhere: Arc::clone(&codec.0.anywhere),
        ..codec.0
    });
    let scan = scans.swap_remove(0);
    assert!(outside.try_encode(scan, &mut buffer, &CONVERTER).is_err());
    assert_eq!(buffer, b"before");
}

#[test]
fn other_formats_are_refused() {
    let codec = codec_of(empty_catalog());
    for said in all_said(&codec) {
        for format in [0, FORMAT + 1, u32::MAX] {
            let bytes = match said.inputs().len() {
                0 => changed(&said, |scan| scan.format = format),
                1 => {
                    let over = Over::decode(said.bytes.as_slice()).unwrap();
                    Over { format, ..over }.encode_to_vec()
                }
                _ => {
                    let over = OverTwo::decode(said.bytes.as_slice()).unwrap();
                    OverTwo { format, ..over }.encode_to_vec()
                }
            };
            let text = refused(&codec, &bytes, &said.inputs());
            assert!(text.contains(&format!("format {format}, ")), "{text}");
        }
    }
}

#[test]
fn numbers_beyond_what_there_is_are_refused() {
    type Change = (&'static str, fn(&mut Scan));
    let changes: [Change; 12] = [
        ("the number of shares", |scan| scan.num_shares = 0),
        ("the number of shares", |scan| scan.num_shares = 4097),
        ("the number of a column", |scan| scan.columns = vec![0, 2]),
        ("no tiles", |scan| scan.tiles = None),
        ("the columns of its column bands", |scan| {
            scan.tiles.as_mut().unwrap().band_columns = vec![1];
        }),
        ("fewer tiles than places", |scan| {
            // Room is made for none of them.
            let tiles = scan.tiles.as_mut().unwrap();
            tiles.band_rows = vec![1; 1 << 16];
            tiles.runs.clear();
        }),
        ("more tiles than places", |scan| {
            let runs = &mut scan.tiles.as_mut().unwrap().runs;
            let more = runs.clone();
            runs.extend(more);
        }),
        ("more bytes than there can be", |scan| {
            scan.tiles.as_mut().unwrap().runs[0].tile_bytes[0] = u64::MAX;
        }),
        ("where a tile comes from", |scan| {
            scan.tiles.as_mut().unwrap().runs[0].from = 3;
        }),
        ("a condition", |scan| scan.conditions = vec![vec![0xFF]]),
        ("the numbers of its bands", |scan| scan.row_bands.push(1)),
        ("the numbers of its bands", |scan| scan.column_bands[1] = 2),
    ];
    let codec = codec_of(empty_catalog());
    let said = all_said(&codec);
    for (expected, change) in changes {
        for said in said.iter().filter(|said| said.is_scan()) {
            let text = refused(&codec, &changed(said, change), &[]);
            assert!(text.contains(expected), "{text}, not {expected}");
        }
    }
    let [scan, ..] = said.as_slice() else {
        panic!("there are scans");
    };
    let text = refused(
        &codec,
        &changed(scan, |scan| scan.tiles.as_mut().unwrap().sources.clear()),
        &[],
    );
    assert!(text.contains("the place of a source"), "{text}");
}

/// Reads it; whether it was taken.
fn is_taken(case: u64, codec: &Codec, bytes: &[u8], said: &Said) -> bool {
    let reading = || read(codec, bytes, &said.inputs());
    let (found, asked) = allocated_bytes(|| catch_unwind(AssertUnwindSafe(reading)));
    let most = MOST_BESIDE + MOST_PER_BYTE * bytes.len();
    assert!(asked < most, "case {case}: {asked} of {}", bytes.len());
    match found.unwrap_or_else(|_| panic!("case {case}: a panic got out")) {
        Ok(node) => {
            assert!(node.output_partitioning().partition_count() <= 4096);
            true
        }
        Err(error) => {
            let kind = kind_within(&error);
            assert_ne!(kind, ErrorKind::Internal, "case {case}: {error}");
            false
        }
    }
}

#[test]
fn changed_parts_of_plans_are_read_or_refused() {
    let codec = codec_of(empty_catalog());
    let said = all_said(&codec);
    let (cases, mut taken) = (cases(20_000), 0);
    for case in 0..cases {
        let mut random = Random::of(case);
        let (good, other) = (random.one(&said), random.place(said.len()));
        let bytes = harmed(&mut random, &good.bytes, &said[other].bytes);
        taken += u64::from(is_taken(case, &codec, &bytes, good));
    }
    assert!(taken > cases / 1000 && taken < cases, "{taken}");
}

/// Conditions are messages within the message: changed there, they come through to the engine.
#[test]
fn changed_conditions_are_read_or_refused() {
    let codec = codec_of(empty_catalog());
    let said = all_said(&codec);
    let scans: Vec<&Said> = said.iter().filter(|said| said.is_scan()).collect();
    let (cases, mut taken) = (cases(20_000), 0);
    for case in 0..cases {
        let mut random = Random::of(case);
        let good = *random.one(&scans);
        let bytes = changed(good, |scan| {
            let at = random.place(scan.conditions.len());
            let (one, other) = (scan.conditions[at].clone(), scan.conditions[0].clone());
            scan.conditions[at] = harmed(&mut random, &one, &other);
        });
        taken += u64::from(is_taken(case, &codec, &bytes, good));
    }
    assert!(taken > cases / 1000 && taken < cases, "{taken}");
}

/// What a member is asked to do with tiles, which of several, and the bytes that say it. The files of the tiles are not there.
fn requests(cluster: &Cluster, catalog: &Catalog) -> Vec<(usize, Vec<u8>)> {
    let members = cluster.members();
    let codec = cluster.tile_codec(Some(&members));
    let grid = scale::kept_grid(catalog, 3);
    let tiles = || Some(codec.written(&grid, &[0, 1, 2], &[0]).unwrap());
    let (format, id) = (FORMAT, id_bytes(7));
    let write = Write {
        format,
        tiles: tiles(),
        grid: id.clone(),
        row_bands: vec![0, 1, 2],
    };
    let part = GridPart {
        name: "sales".to_owned(),
        of: 3,
        replicas: 2,
        generation: 1,
        id: id.clone(),
        deal: id.clone(),
        data: id.clone(),
        ..GridPart::default()
    };
    let take = Take {
        format,
        part: Some(part),
        runs: vec![TakeRun {
            number: 1,
            tiles: tiles(),
        }],
    };
    let read_ahead = ReadAhead {
        format,
        tiles: tiles(),
    };
    let mut all = vec![
        (0, write.encode_to_vec()),
        (1, take.encode_to_vec()),
        (2, read_ahead.encode_to_vec()),
    ];
    for step in [Step::Keys, Step::Scatter, Step::Gather] {
        let arrange = Arrange {
            format,
            step: step as i32,
            wanted: Some(Arrangement::default()),
            tiles: tiles(),
            numbers: vec![0, 1, 2],
            grid: id.clone(),
            most_keys: 100,
            band_columns: vec![2],
        };
        all.push((3, arrange.encode_to_vec()));
    }
    all
}

#[test]
fn changed_requests_of_members_are_done_or_refused() {
    let runtime = runtime();
    let _inside = runtime.enter();
    let catalog = empty_catalog_on(&runtime);
    let session = Session::try_new(&SessionOptions::default()).unwrap();
    let options = ClusterOptions {
        catalog: Some(catalog.clone()),
        ..ClusterOptions::default()
    };
    let cluster = Cluster::start(&session, "grpc://127.0.0.1:9", options).unwrap();
    let requests = requests(&cluster, &catalog);
    let done = |what: usize, bytes: &[u8]| {
        runtime.block_on(async {
            match what {
                0 => Box::pin(cluster.write_part(bytes)).await,
                1 => Box::pin(cluster.take(bytes)).await,
                2 => Box::pin(cluster.read_part(bytes)).await,
                _ => Box::pin(cluster.arrange_part(bytes)).await,
            }
        })
    };
    // Each is a call that looks for files.
    for case in 0..cases(2_000).min(50_000) {
        let mut random = Random::of(case);
        let (what, good) = random.one(&requests);
        let other = random.place(requests.len());
        let bytes = harmed(&mut random, good, &requests[other].1);
        let found = catch_unwind(AssertUnwindSafe(|| done(*what, &bytes)));
        if let Err(error) = found.unwrap_or_else(|_| panic!("case {case}: a panic got out")) {
            assert_ne!(error.kind(), ErrorKind::Internal, "case {case}: {error}");
        }
    }
}

fn empty_catalog_on(runtime: &tokio::runtime::Runtime) -> Catalog {
    runtime.block_on(Catalog::open("memory:///asked")).unwrap()
}
