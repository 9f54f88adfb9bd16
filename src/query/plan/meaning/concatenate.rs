//! Texts that `||` puts together, within the memory limit.
//!
//! Comes in: an expression of a logical plan whose types are settled. Goes out: the same with a function in place of `||`, which says beforehand how many bytes it will make, and refuses
//! more than the session may use: each of a few short words can double a text. Never here: lists, whose `||` is a function already (`functions/growing.rs`).

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::kernels::concat_elements::concat_elements_dyn;
use arrow::datatypes::{
    ArrowNativeType, ByteArrayType, DataType, Field, FieldRef, GenericBinaryType, GenericStringType,
};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, Operator, ReturnFieldArgs, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::error::{Error, ErrorKind};
use crate::query::functions::growing::note_made;
use crate::query::running::bounds::size;

/// What offsets of 32 bits reach.
const MOST_OF_SHORT_OFFSETS: usize = 0x7fff_ffff;

/// The expression, with the function in place of `||`.
pub(super) fn bounded(
    expression: Expr,
    schema: &DFSchema,
    limit: usize,
) -> Result<Transformed<Expr>> {
    let Expr::BinaryExpr(BinaryExpr {
        left,
        op: Operator::StringConcat,
        right,
    }) = expression
    else {
        return Ok(Transformed::no(expression));
    };
    let (one, other) = (type_of(&left, schema)?, type_of(&right, schema)?);
    if one != other || !is_known(&one) {
        let same = BinaryExpr::new(left, Operator::StringConcat, right);
        return Ok(Transformed::no(Expr::BinaryExpr(same)));
    }
    let function = Arc::new(ScalarUDF::from(Concatenate::new(one, limit)));
    let call = ScalarFunction::new_udf(function, vec![*left, *right]);
    Ok(Transformed::yes(Expr::ScalarFunction(call)))
}

/// Long chains would ask for the types of all their parts again and again.
fn type_of(expression: &Expr, schema: &DFSchema) -> Result<DataType> {
    if let Expr::ScalarFunction(call) = expression
        && let Some(function) = call.func.inner().downcast_ref::<Concatenate>()
    {
        return Ok(function.data_type.clone());
    }
    expression.get_type(schema)
}

fn is_known(data_type: &DataType) -> bool {
    use DataType::{Binary, BinaryView, LargeBinary, LargeUtf8, Utf8, Utf8View};
    matches!(
        data_type,
        Utf8 | LargeUtf8 | Utf8View | Binary | LargeBinary | BinaryView
    )
}

/// Two texts, or two runs of bytes, of one type.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(in crate::query) struct Concatenate {
    data_type: DataType,
    limit: usize,
    signature: Signature,
}

impl ScalarUDFImpl for Concatenate {
    fn name(&self) -> &'static str {
        "concatenate"
    }

    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        Ok(written(arguments)?.schema_name().to_string())
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.data_type.clone())
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let nullable = arguments.arg_fields.iter().any(|field| field.is_nullable());
        let field = Field::new(self.name(), self.data_type.clone(), nullable);
        Ok(Arc::new(field))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let literal = |value: &ColumnarValue| matches!(value, ColumnarValue::Scalar(_));
        let is_literal = arguments.args.iter().all(literal);
        let num_rows = if is_literal { 1 } else { arguments.number_rows };
        let [left, right] = arguments.args.as_slice() else {
            return datafusion::common::internal_err!("|| of {}", arguments.args.len());
        };
        // A literal is as long in every row: it is looked at before it is repeated.
        let wanted = bytes(left, num_rows)?.saturating_add(bytes(right, num_rows)?);
        note_made(wanted as u64);
        self.check(wanted, &left.data_type())?;
        let (left, right) = (left.to_array(num_rows)?, right.to_array(num_rows)?);
        let joined = concat_elements_dyn(left.as_ref(), right.as_ref())?;
        Ok(match is_literal {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&joined, 0)?),
            false => ColumnarValue::Array(joined),
        })
    }
}

impl Concatenate {
    /// That of two values of a type; where it stands beside the call, it does not matter here.
    pub(in crate::query) fn new(data_type: DataType, limit: usize) -> Self {
        let types = vec![data_type.clone(); 2];
        Self {
            signature: Signature::exact(types, Volatility::Immutable),
            data_type,
            limit,
        }
    }

    fn check(&self, wanted: usize, data_type: &DataType) -> Result<()> {
        let (most, of) = match data_type {
            DataType::Utf8 | DataType::Binary if self.limit > MOST_OF_SHORT_OFFSETS => {
                (MOST_OF_SHORT_OFFSETS, "a column of this type holds")
            }
            _ => (self.limit, "the memory limit of the session is"),
        };
        if wanted <= most {
            return Ok(());
        }
        let text = format!("|| would need {}, {of} {}", size(wanted), size(most));
        Err(Error::new(ErrorKind::ResourcesExhausted, text).into())
    }
}

/// Bytes of the texts of an argument.
fn bytes(argument: &ColumnarValue, num_rows: usize) -> Result<usize> {
    Ok(match argument {
        ColumnarValue::Array(array) => bytes_of(array),
        ColumnarValue::Scalar(scalar) => bytes_of(&scalar.to_array()?).saturating_mul(num_rows),
    })
}

fn bytes_of(array: &ArrayRef) -> usize {
    fn of_offsets<T: ByteArrayType>(array: &ArrayRef) -> usize {
        let offsets = array.as_bytes::<T>().value_offsets();
        let ends = offsets.first().zip(offsets.last());
        ends.map_or(0, |(first, last)| last.as_usize() - first.as_usize())
    }
    // The length is in the lowest four bytes of a view.
    let of_views = |views: &[u128]| {
        let lengths = views.iter().map(|view| (*view & 0xffff_ffff) as usize);
        lengths.sum()
    };
    match array.data_type() {
        DataType::Utf8 => of_offsets::<GenericStringType<i32>>(array),
        DataType::LargeUtf8 => of_offsets::<GenericStringType<i64>>(array),
        DataType::Binary => of_offsets::<GenericBinaryType<i32>>(array),
        DataType::LargeBinary => of_offsets::<GenericBinaryType<i64>>(array),
        DataType::Utf8View => of_views(array.as_string_view().views()),
        DataType::BinaryView => of_views(array.as_binary_view().views()),
        _ => 0,
    }
}

/// The call as the user wrote it.
fn written(arguments: &[Expr]) -> Result<Expr> {
    let [left, right] = arguments else {
        return datafusion::common::internal_err!("|| of {}", arguments.len());
    };
    let (left, right) = (Box::new(left.clone()), Box::new(right.clone()));
    let whole = Expr::BinaryExpr(BinaryExpr::new(left, Operator::StringConcat, right));
    let rewritten = whole.transform_up(|part| match part {
        Expr::ScalarFunction(call) if call.func.inner().is::<Concatenate>() => {
            let [left, right]: [Expr; 2] = match call.args.try_into() {
                Ok(both) => both,
                Err(other) => {
                    let other: Vec<Expr> = other;
                    return datafusion::common::internal_err!("|| of {}", other.len());
                }
            };
            let (left, right) = (Box::new(left), Box::new(right));
            let binary = BinaryExpr::new(left, Operator::StringConcat, right);
            Ok(Transformed::yes(Expr::BinaryExpr(binary)))
        }
        other => Ok(Transformed::no(other)),
    });
    rewritten.data()
}
