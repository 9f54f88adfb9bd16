//! Nested values as keys: bytes that are equal where the values are, and less where these are.
//!
//! Comes in: an expression whose types are settled; a plan that is optimized. Goes out: comparisons by `=`, `<`, `IN`, BETWEEN and their like, and keys of joins, of lists, structs and maps as comparisons of bytes ([`NestedKey`]).
//! The engine would take nulls inside for less than all values. Comparisons with what is outside a subquery become keys of joins first: the engine knows them by their columns. Joins of the engine say to the
//! scans below what values they look for as a least and a greatest one, and get these wrong where there are nulls inside; of some nested types they have none. Keys that are dictionaries of whole numbers are these
//! numbers, for which the engine would take them in one place and not in the next. Never here: ORDER BY (`nested_order`); keys of GROUP BY and DISTINCT, which the engine makes such bytes of by itself.

use std::sync::Arc;

use arrow::array::{Array, ArrayData, ArrayRef, BinaryArray, make_array};
use arrow::compute::SortOptions;
use arrow::datatypes::DataType;
use arrow::row::{RowConverter, SortField};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, JoinConstraint, Result};
use datafusion::logical_expr::expr::{Between, InList, InSubquery, ScalarFunction};
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Operator,
    ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Subquery, Volatility, cast,
};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};
use datafusion::scalar::ScalarValue;

use super::floats::one_form;

/// Rewrites one expression.
pub(super) fn by_keys(expression: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    match expression {
        Expr::BinaryExpr(pair)
            if is_comparison(pair.op)
                && !pair.left.contains_outer()
                && !pair.right.contains_outer() =>
        {
            let key = common_key([&*pair.left, &*pair.right], [schema, schema])?;
            let is_literal = |side: &Expr| matches!(side, Expr::Literal(..));
            // A literal of a dictionary is compared with statistics.
            let key = key.filter(|key| {
                let are_columns = !is_literal(&pair.left) && !is_literal(&pair.right);
                *key == Key::Bytes || are_columns && is_equality(pair.op)
            });
            let Some(key) = key else {
                return Ok(Transformed::no(Expr::BinaryExpr(pair)));
            };
            let (left, right) = (key.of(*pair.left), key.of(*pair.right));
            let pair = BinaryExpr::new(Box::new(left), pair.op, Box::new(right));
            Ok(Transformed::yes(Expr::BinaryExpr(pair)))
        }
        Expr::Between(range) => between(range, schema),
        Expr::InList(list) => in_list(list, schema),
        Expr::InSubquery(found) if !found.expr.contains_outer() => in_subquery(found, schema),
        other => Ok(Transformed::no(other)),
    }
}

/// Keys of joins, once the engine has found them.
#[derive(Debug)]
pub(in crate::query) struct KeysOfJoins;

impl OptimizerRule for KeysOfJoins {
    fn name(&self) -> &'static str {
        "keys_of_joins"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Join(mut join) = plan else {
            return Ok(Transformed::no(plan));
        };
        let schemas = [join.left.schema().as_ref(), join.right.schema().as_ref()];
        let mut is_changed = false;
        for (left, right) in &mut join.on {
            if let Some(key) = common_key([left, right], schemas)? {
                *left = key.of(std::mem::take(left));
                *right = key.of(std::mem::take(right));
                is_changed = true;
            }
        }
        if let Some(condition) = join.filter.take() {
            let both = join.left.schema().join(join.right.schema())?;
            let condition = condition.transform_up(|part| by_keys(part, &both))?;
            is_changed |= condition.transformed;
            join.filter = Some(condition.data);
        }
        if is_changed {
            // The engine looks for the columns of USING among the keys.
            join.join_constraint = JoinConstraint::On;
        }
        Ok(Transformed::new_transformed(
            LogicalPlan::Join(join),
            is_changed,
        ))
    }
}

/// What the engine compares in place of values.
#[derive(Debug, Clone, PartialEq)]
enum Key {
    /// Bytes that are equal where nested values are.
    Bytes,
    /// Whole numbers that a dictionary has, and those that values without a type are, which are all null.
    Numbers(DataType),
}

impl Key {
    fn of_type(data_type: &DataType) -> Option<Self> {
        match data_type {
            DataType::Dictionary(_, values) if values.is_integer() => {
                Some(Self::Numbers(values.as_ref().clone()))
            }
            DataType::Null => Some(Self::Numbers(DataType::Int64)),
            other => has_key(other).then_some(Self::Bytes),
        }
    }

    fn of(&self, value: Expr) -> Expr {
        match self {
            Self::Bytes => key_of(value),
            Self::Numbers(data_type) => cast(value, data_type.clone()),
        }
    }
}

/// Whether there is a [`NestedKey`] of a type.
pub(in crate::query) fn has_key(data_type: &DataType) -> bool {
    data_type.is_nested() && RowConverter::supports_fields(&[field(data_type)])
}

/// The call of [`NestedKey`].
pub(super) fn key_of(value: Expr) -> Expr {
    let function = Arc::new(ScalarUDF::from(NestedKey::new()));
    Expr::ScalarFunction(ScalarFunction::new_udf(function, vec![value]))
}

fn field(data_type: &DataType) -> SortField {
    SortField::new_with_options(data_type.clone(), SortOptions::new(false, false))
}

/// The key of values that are compared, if they have one type.
fn common_key(sides: [&Expr; 2], schemas: [&DFSchema; 2]) -> Result<Option<Key>> {
    let [left, right] = sides;
    let data_type = left.get_type(schemas[0])?;
    let Some(key) = Key::of_type(&data_type) else {
        return Ok(None);
    };
    let other = right.get_type(schemas[1])?;
    Ok(data_type.equals_datatype(&other).then_some(key))
}

fn is_comparison(operator: Operator) -> bool {
    let is_less = matches!(
        operator,
        Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq
    );
    is_less || is_equality(operator)
}

fn is_equality(operator: Operator) -> bool {
    matches!(
        operator,
        Operator::Eq | Operator::NotEq | Operator::IsDistinctFrom | Operator::IsNotDistinctFrom
    )
}

/// `list BETWEEN [1, 2] AND [3]`.
fn between(range: Between, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let with = |end: &Expr| common_key([&*range.expr, end], [schema, schema]);
    let keys = [with(&range.low)?, with(&range.high)?];
    if keys != [Some(Key::Bytes), Some(Key::Bytes)] {
        return Ok(Transformed::no(Expr::Between(range)));
    }
    let key = |part: Box<Expr>| Box::new(Key::Bytes.of(*part));
    let (low, high) = (key(range.low), key(range.high));
    let range = Between::new(key(range.expr), range.negated, low, high);
    Ok(Transformed::yes(Expr::Between(range)))
}

/// `list IN ([1, 2], …)`.
fn in_list(list: InList, schema: &DFSchema) -> Result<Transformed<Expr>> {
    for value in &list.list {
        let key = common_key([&*list.expr, value], [schema, schema])?;
        if key != Some(Key::Bytes) {
            return Ok(Transformed::no(Expr::InList(list)));
        }
    }
    let values = list.list.into_iter().map(|value| Key::Bytes.of(value));
    let value = Box::new(Key::Bytes.of(*list.expr));
    let list = InList::new(value, values.collect(), list.negated);
    Ok(Transformed::yes(Expr::InList(list)))
}

/// `list IN (SELECT …)`.
fn in_subquery(found: InSubquery, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let columns = found.subquery.subquery.schema();
    let column = match columns.columns().as_slice() {
        [column] => column.clone(),
        _ => return Ok(Transformed::no(Expr::InSubquery(found))),
    };
    let inner = Expr::Column(column.clone());
    let Some(key) = common_key([&*found.expr, &inner], [schema, columns])? else {
        return Ok(Transformed::no(Expr::InSubquery(found)));
    };
    let plan = Arc::unwrap_or_clone(found.subquery.subquery);
    let inner = key.of(inner).alias_qualified(column.relation, column.name);
    let plan = LogicalPlanBuilder::from(plan).project([inner])?.build()?;
    let subquery = Subquery {
        subquery: Arc::new(plan),
        ..found.subquery
    };
    let value = Box::new(key.of(*found.expr));
    let found = InSubquery::new(value, subquery, found.negated);
    Ok(Transformed::yes(Expr::InSubquery(found)))
}

/// A nested value as bytes, which are equal for two values of one type if these are, and less if they are: null is null, nulls inside are equal to each other and greater than all values, 0.0 and -0.0 are equal, and so are all NaN.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(in crate::query) struct NestedKey {
    signature: Signature,
}

impl NestedKey {
    pub(in crate::query) fn new() -> Self {
        Self {
            signature: Signature::any(1, Volatility::Immutable),
        }
    }
}

impl ScalarUDFImpl for NestedKey {
    fn name(&self) -> &'static str {
        "nested_key"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Binary)
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match arguments.args.as_slice() {
            [ColumnarValue::Array(array)] => {
                let keys: ArrayRef = Arc::new(keys_of(array)?);
                Ok(ColumnarValue::Array(keys))
            }
            [ColumnarValue::Scalar(scalar)] => {
                let keys = keys_of(&scalar.to_array()?)?;
                let key = ScalarValue::try_from_array(&keys, 0)?;
                Ok(ColumnarValue::Scalar(key))
            }
            others => {
                datafusion::common::internal_err!("the key of {} values", others.len())
            }
        }
    }
}

pub(in crate::query) fn keys_of(array: &ArrayRef) -> Result<BinaryArray> {
    let settled = settled_within(array)?;
    let converter = RowConverter::new(vec![field(settled.data_type())])?;
    let nulls = array.logical_nulls();
    let (offsets, values, _) = converter
        .convert_columns(&[settled])?
        .try_into_binary()?
        .into_parts();
    Ok(BinaryArray::try_new(offsets, values, nulls)?)
}

/// The array, the floats inside of which have one zero and one NaN; the same where there are none.
pub(in crate::query) fn settled_within(array: &ArrayRef) -> Result<ArrayRef> {
    match has_floats(array.data_type()) {
        true => Ok(make_array(settled(array.to_data())?)),
        false => Ok(Arc::clone(array)),
    }
}

fn settled(data: ArrayData) -> Result<ArrayData> {
    if data.data_type().is_floating() {
        return Ok(one_form(&make_array(data))?.to_data());
    }
    if !has_floats(data.data_type()) {
        return Ok(data);
    }
    let children: Result<Vec<ArrayData>> = data.child_data().iter().cloned().map(settled).collect();
    Ok(data.into_builder().child_data(children?).build()?)
}

fn has_floats(data_type: &DataType) -> bool {
    match data_type {
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::ListView(field)
        | DataType::LargeListView(field)
        | DataType::FixedSizeList(field, _)
        | DataType::Map(field, _)
        | DataType::RunEndEncoded(_, field) => has_floats(field.data_type()),
        DataType::Struct(fields) => fields.iter().any(|field| has_floats(field.data_type())),
        DataType::Union(fields, _) => fields
            .iter()
            .any(|(_, field)| has_floats(field.data_type())),
        DataType::Dictionary(_, values) => has_floats(values),
        other => other.is_floating(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Float64Array, ListArray, StructArray};
    use arrow::datatypes::{Field, Float64Type, Int32Type};

    fn keys(array: ArrayRef) -> Vec<Option<Vec<u8>>> {
        let keys = keys_of(&array).unwrap();
        keys.iter().map(|key| key.map(<[u8]>::to_vec)).collect()
    }

    #[test]
    fn keys_are_equal_where_values_are_and_less_where_these_are() {
        let lists = ListArray::from_iter_primitive::<Int32Type, _, _>([
            Some(vec![Some(1), None]),
            Some(vec![Some(1)]),
            None,
            Some(vec![]),
            Some(vec![Some(1), None]),
            Some(vec![None]),
        ]);
        let keys = keys(Arc::new(lists));
        assert_eq!(keys[0], keys[4]);
        assert_eq!(keys[2], None);
        assert!(keys[3] < keys[1] && keys[1] < keys[0] && keys[0] < keys[5]);
        let mut different = vec![&keys[0], &keys[1], &keys[2], &keys[3], &keys[5]];
        different.sort();
        different.dedup();
        assert_eq!(different.len(), 5);
    }

    #[test]
    fn zeros_and_nan_inside_are_one() {
        let floats = |values: [f64; 2]| values.map(Some).to_vec();
        let lists = ListArray::from_iter_primitive::<Float64Type, _, _>([
            Some(floats([0.0, f64::NAN])),
            Some(floats([-0.0, -f64::NAN])),
            Some(floats([1.0, -1.0])),
        ]);
        // A part of an array, whose nulls and places begin elsewhere.
        let part = Arc::new(lists.slice(1, 2)) as ArrayRef;
        let all = keys(Arc::new(lists));
        assert_eq!(all[0], all[1]);
        assert_ne!(all[1], all[2]);
        assert_eq!(keys(part), all[1..]);

        let field = Arc::new(Field::new("x", DataType::Float64, true));
        let numbers = Arc::new(Float64Array::from(vec![-0.0, 0.0])) as ArrayRef;
        let structs = StructArray::from(vec![(field, numbers)]);
        let all = keys(Arc::new(structs));
        assert_eq!(all[0], all[1]);
    }
}
