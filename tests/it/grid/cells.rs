//! Grids of cells in rows: what is united, and what is refused with which words.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Decimal128Array, DictionaryArray, Int64Array, NullArray, RecordBatch,
    StringArray,
};
use arrow::datatypes::{DataType, Decimal128Type, Field, Int32Type, Int64Type, Schema};
use partgrid::error::{Error, ErrorKind};
use partgrid::grid::{PartitionGrid, check_chosen};

#[test]
fn cells_become_tiles_over_the_same_memory() {
    let left = |start| cell(vec![("a", ints([start, start + 1]))]);
    let right = |start| cell(vec![("b", ints([start, start])), ("c", ints([0, start]))]);
    let cells = [vec![left(1), right(3)], vec![left(5), right(7)]];
    let grid = PartitionGrid::try_from_cells(&cells).unwrap();
    assert_eq!(
        (grid.rows().cuts(), grid.columns().cuts()),
        (&[0, 2, 4][..], &[0, 1, 3][..])
    );
    for (tile, cell) in grid.tiles().iter().zip(cells.iter().flatten()) {
        let opened = tile.open().unwrap();
        for (ours, theirs) in opened.columns().iter().zip(cell.columns()) {
            let address = |column: &ArrayRef| column.as_primitive::<Int64Type>().values().as_ptr();
            assert_eq!(address(ours), address(theirs));
        }
    }
}

#[test]
fn a_column_is_nullable_where_a_cell_is() {
    let cells = [false, true, false].map(|nullable| {
        let schema = Schema::new(vec![Field::new("a", DataType::Int64, nullable)]);
        vec![RecordBatch::try_new(Arc::new(schema), vec![ints([1, 2])]).unwrap()]
    });
    let grid = PartitionGrid::try_from_cells(&cells).unwrap();
    assert!(grid.schema().field(0).is_nullable());
}

#[test]
fn cells_without_a_type_take_that_of_the_others() {
    let nulls = || vec![cell(vec![("t", Arc::new(NullArray::new(2)))])];
    let texts = vec![cell(vec![(
        "t",
        Arc::new(StringArray::from(vec!["x", "y"])),
    )])];
    for cells in [[nulls(), texts.clone(), nulls()], [texts, nulls(), nulls()]] {
        let grid = PartitionGrid::try_from_cells(&cells).unwrap();
        assert_eq!(grid.schema().field(0).data_type(), &DataType::Utf8);
        assert_eq!(grid.open_row_band(2).unwrap().column(0).null_count(), 2);
    }
    let none = PartitionGrid::try_from_cells(&[nulls()]).unwrap();
    assert_eq!(none.schema().field(0).data_type(), &DataType::Null);
}

#[test]
fn decimals_take_the_width_that_holds_all() {
    let decimals = |value, precision, scale| {
        let array = Decimal128Array::from(vec![value; 2]);
        let array = array.with_precision_and_scale(precision, scale).unwrap();
        vec![cell(vec![("d", Arc::new(array))])]
    };
    let cells = [decimals(12_345, 5, 2), decimals(1, 4, 4)];
    let grid = PartitionGrid::try_from_cells(&cells).unwrap();
    assert_eq!(
        grid.schema().field(0).data_type(),
        &DataType::Decimal128(7, 4)
    );
    let values = [0, 1].map(|band| {
        let batch = grid.open_row_band(band).unwrap();
        batch.column(0).as_primitive::<Decimal128Type>().value(0)
    });
    assert_eq!(values, [1_234_500, 1]);
    let wide = PartitionGrid::try_from_cells(&[decimals(1, 38, 0), decimals(1, 38, 38)]);
    refused(
        &wide.unwrap_err(),
        "the cells of a column band must have the same columns: those above have `d` Decimal128(38, 0), this one has `d` Decimal128(38, 38) (column: d, position: (1, 0))",
    );
}

#[test]
fn categories_with_an_order_and_without_are_not_of_one_type() {
    let categories: DictionaryArray<Int32Type> = vec!["b", "a"].into_iter().collect();
    let cells = [true, false].map(|ordered| {
        let field = Field::new("c", categories.data_type().clone(), true);
        let schema = Schema::new(vec![field.with_dict_is_ordered(ordered)]);
        let column: ArrayRef = Arc::new(categories.clone());
        vec![RecordBatch::try_new(Arc::new(schema), vec![column]).unwrap()]
    });
    let error = PartitionGrid::try_from_cells(&cells).unwrap_err();
    refused(
        &error,
        "the cells of a column band must have the same columns: those above have `c` Dictionary(Int32, Utf8) ordered, this one has `c` Dictionary(Int32, Utf8) (column: c, position: (1, 0))",
    );
    let ordered = [cells[0].clone(), cells[0].clone()];
    let grid = PartitionGrid::try_from_cells(&ordered).unwrap();
    assert_eq!(grid.schema().field(0).dict_is_ordered(), Some(true));
}

#[test]
fn what_does_not_fit_is_refused_with_its_position() {
    let one = |name| cell(vec![(name, ints([1, 2]))]);
    let short = cell(vec![("b", Arc::new(Int64Array::from(vec![1])))]);
    let text = cell(vec![("a", Arc::new(StringArray::from(vec!["x", "y"])))]);
    let two = cell(vec![("a", ints([1, 2])), ("b", ints([1, 2]))]);
    for (cells, message) in [
        (vec![], "a grid is made of at least one cell, got none"),
        (
            vec![vec![]],
            "a grid is made of at least one cell, got none",
        ),
        (
            vec![vec![one("a"), one("b")], vec![one("a")]],
            "a row of cells must have as many cells as the first, 2, got 1 (position: (1, 1))",
        ),
        (
            vec![vec![one("a"), short]],
            "the cells of a row band must have the same number of rows: the first has 2, this one has 1 (position: (0, 1))",
        ),
        (
            vec![vec![one("a")], vec![two]],
            "the cells of a column band must have the same columns: those above have 1, this one has 2 (position: (1, 0))",
        ),
        (
            vec![vec![one("a")], vec![one("x")]],
            "the cells of a column band must have the same columns: those above have `a` Int64, this one has `x` Int64 (column: a, position: (1, 0))",
        ),
        (
            vec![vec![one("a")], vec![text]],
            "the cells of a column band must have the same columns: those above have `a` Int64, this one has `a` Utf8 (column: a, position: (1, 0))",
        ),
        (
            vec![vec![one("a"), one("a")]],
            "column names of a grid must be distinct, this one repeats (column: a)",
        ),
    ] {
        refused(&PartitionGrid::try_from_cells(&cells).unwrap_err(), message);
    }
}

#[test]
fn chosen_columns_exist_and_are_named_once() {
    let schema = Schema::new(vec![Field::new("carrier", DataType::Utf8, true)]);
    let check = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        check_chosen(&schema, "index", &names)
    };
    check(&["carrier"]).unwrap();
    refused(
        &check(&[]).unwrap_err(),
        "index must name at least one column, got none",
    );
    refused(
        &check(&["carrier", "carrier"]).unwrap_err(),
        "index must name each column once (column: carrier)",
    );
    let unknown = check(&["carier"]).unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::NotFound);
    assert!(
        unknown.to_string().contains("did you mean `carrier`?"),
        "{unknown}"
    );
}

fn ints(values: [i64; 2]) -> ArrayRef {
    Arc::new(Int64Array::from(values.to_vec()))
}

fn cell(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    let fields = columns
        .iter()
        .map(|(name, column)| Field::new(*name, column.data_type().clone(), true));
    let schema = Schema::new(fields.collect::<Vec<_>>());
    let columns = columns.into_iter().map(|(_, column)| column).collect();
    RecordBatch::try_new(Arc::new(schema), columns).unwrap()
}

fn refused(error: &Error, text: &str) {
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    let shown = error.to_string();
    assert_eq!(shown.lines().next(), Some(text));
}
