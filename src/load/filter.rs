//! Which rows are wanted.
//!
//! Comes in: conditions on columns. Goes out: which rows of a batch meet them, and whether a row group can hold such a row. Values are compared as Arrow compares them,
//! floats as `floats.rs` says; null meets no condition but `IsNull`. Never here: reading.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, Scalar};
use arrow::compute::kernels::cmp;
use arrow::compute::{
    CastOptions, and_kleene, cast_with_options, is_not_null, is_null, not, or_kleene,
    prep_null_mask_filter,
};
use arrow::datatypes::{DataType, Field, SchemaRef, TimeUnit};
use arrow::util::display::FormatOptions;
use parquet::arrow::arrow_reader::RowSelection;

use super::floats::canonical;
use super::footer::Footer;
use super::footer_statistics::{GroupStatistics, of_groups, of_pages};
use crate::error::{Error, Result};
use crate::grid::unknown_column;

/// How a column is compared.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilterOperator {
    /// Equal to the value.
    Equal,
    /// Not equal to it.
    NotEqual,
    /// Less than it.
    Less,
    /// Less than or equal to it.
    LessOrEqual,
    /// Greater than it.
    Greater,
    /// Greater than or equal to it.
    GreaterOrEqual,
    /// Equal to one of the values.
    In,
    /// Equal to none of them.
    NotIn,
    /// Null; takes no value.
    IsNull,
    /// Not null; takes no value.
    IsNotNull,
}

/// One condition on one column.
#[derive(Debug, Clone)]
pub struct FilterCondition {
    /// The name of the column.
    pub column: String,
    /// How it is compared.
    pub operator: FilterOperator,
    /// The values, which are cast to the type of the column: one, for `In` and `NotIn` any number, for `IsNull` and `IsNotNull` none.
    pub values: ArrayRef,
}

/// Conditions on the rows of a grid: the rows that meet all conditions of one group, or of another.
#[derive(Debug, Clone)]
pub(super) struct Filter {
    groups: Vec<Vec<Bound>>,
}

/// A condition on a known column, with values of its type.
#[derive(Debug, Clone)]
pub(super) struct Bound {
    column: usize,
    field: Arc<Field>,
    operator: FilterOperator,
    values: ArrayRef,
}

const STRICT: CastOptions<'static> = CastOptions {
    safe: false,
    format_options: FormatOptions::new(),
};

impl Filter {
    /// The conditions on the columns of `schema`.
    pub(super) fn try_new(groups: &[Vec<FilterCondition>], schema: &SchemaRef) -> Result<Self> {
        let bind = |condition: &FilterCondition| Bound::try_new(condition, schema);
        let groups = groups
            .iter()
            .map(|group| group.iter().map(bind).collect::<Result<Vec<Bound>>>());
        Ok(Self {
            groups: groups.collect::<Result<_>>()?,
        })
    }

    /// Which rows are wanted; `columns` has those that the filter looks at, by number.
    pub(super) fn mask(
        &self,
        columns: &HashMap<usize, ArrayRef>,
        num_rows: usize,
    ) -> Result<BooleanArray> {
        let mut any = BooleanArray::from(vec![false; num_rows]);
        for group in &self.groups {
            let mut all = BooleanArray::from(vec![true; num_rows]);
            for condition in group {
                let column = columns.get(&condition.column);
                let column = column.ok_or_else(|| Error::internal("a filter column is missing"))?;
                all = and_kleene(&all, &condition.mask(column)?)?;
            }
            any = or_kleene(&any, &all)?;
        }
        Ok(true_only(&any))
    }

    /// The groups of conditions.
    pub(super) fn groups(&self) -> &[Vec<Bound>] {
        &self.groups
    }

    /// The numbers of the columns that it looks at.
    pub(super) fn columns(&self) -> Vec<usize> {
        let conditions = self.groups.iter().flatten();
        let mut columns: Vec<usize> = conditions.map(|condition| condition.column).collect();
        columns.sort_unstable();
        columns.dedup();
        columns
    }

    /// The rows, among those of some row groups, of pages that can hold a row that is wanted; nothing where the page indexes exclude none.
    pub(super) fn kept_rows(
        &self,
        footer: &Footer,
        row_groups: &Range<usize>,
    ) -> Option<RowSelection> {
        let mut any: Option<RowSelection> = None;
        for group in &self.groups {
            let known = group
                .iter()
                .filter_map(|condition| condition.kept_rows(footer, row_groups.clone()));
            // A group of which no condition is known can be met anywhere.
            let all = known.reduce(|left, right| left.intersection(&right))?;
            any = Some(match any {
                None => all,
                Some(any) => any.union(&all),
            });
        }
        any.filter(|rows| rows.skipped_row_count() > 0)
    }

    /// Which row groups of a file can hold a row that is wanted; `folder` gives the value of a column that the folder names make, as an array of one.
    pub(super) fn kept(
        &self,
        footer: &Footer,
        folder: impl Fn(usize) -> Option<ArrayRef>,
    ) -> Result<Vec<bool>> {
        let num_groups = footer.row_groups.len();
        let mut any = vec![false; num_groups];
        for group in &self.groups {
            let mut all = vec![true; num_groups];
            for condition in group {
                let known = match folder(condition.column) {
                    Some(value) => {
                        let meets = true_only(&condition.mask(&value)?);
                        vec![meets.true_count() > 0; num_groups]
                    }
                    None => condition.kept(footer),
                };
                all.iter_mut()
                    .zip(known)
                    .for_each(|(all, known)| *all &= known);
            }
            any.iter_mut().zip(all).for_each(|(any, all)| *any |= all);
        }
        Ok(any)
    }
}

impl Bound {
    fn try_new(condition: &FilterCondition, schema: &SchemaRef) -> Result<Self> {
        use FilterOperator::{In, IsNotNull, IsNull, NotIn};
        let name = &condition.column;
        let names = || schema.fields().iter().map(|field| field.name().as_str());
        let column = schema
            .index_of(name)
            .map_err(|_| unknown_column(name, names()))?;
        let field = Arc::new(schema.field(column).clone());
        let count = condition.values.len();
        let fits = match condition.operator {
            In | NotIn => true,
            IsNull | IsNotNull => count == 0,
            _ => count == 1,
        };
        let wrong = |text: String| Error::invalid_argument(text).with_column(name);
        if !fits {
            let operator = condition.operator;
            return Err(wrong(format!(
                "the filter {operator:?} cannot take {count} values"
            )));
        }
        if condition.values.logical_null_count() > 0 {
            let text = "a filter value must not be null";
            return Err(wrong(text.to_owned()).with_hint("use `is null` or `is not null`"));
        }
        let values = if count == 0 {
            arrow::array::new_empty_array(field.data_type())
        } else {
            let cast = cast_with_options(&condition.values, field.data_type(), &STRICT);
            let cast = cast.map_err(|error| {
                let text = format!("a filter value is no {}: {error}", field.data_type());
                wrong(text).with_source(error)
            })?;
            if !is_same(&condition.values, &cast) {
                let text = format!(
                    "a filter value would change as a value of the column, which is {}",
                    field.data_type()
                );
                let hint = "give a value that the type of the column holds exactly";
                return Err(wrong(text).with_hint(hint));
            }
            cast
        };
        Ok(Self {
            column,
            field,
            operator: condition.operator,
            values: canonical(&values),
        })
    }

    fn value(&self, place: usize) -> Scalar<ArrayRef> {
        Scalar::new(self.values.slice(place, 1))
    }

    /// Which rows meet it; null where the column is.
    fn mask(&self, column: &ArrayRef) -> Result<BooleanArray> {
        use FilterOperator as Is;
        let column = canonical(column);
        let column: &dyn Array = column.as_ref();
        let value = || self.value(0);
        Ok(match self.operator {
            Is::IsNull => is_null(column)?,
            Is::IsNotNull => is_not_null(column)?,
            Is::Equal => cmp::eq(&column, &value())?,
            Is::NotEqual => cmp::neq(&column, &value())?,
            Is::Less => cmp::lt(&column, &value())?,
            Is::LessOrEqual => cmp::lt_eq(&column, &value())?,
            Is::Greater => cmp::gt(&column, &value())?,
            Is::GreaterOrEqual => cmp::gt_eq(&column, &value())?,
            Is::In => self.one_of(column)?,
            Is::NotIn => not(&self.one_of(column)?)?,
        })
    }

    fn one_of(&self, column: &dyn Array) -> Result<BooleanArray> {
        let nothing = BooleanArray::new(vec![false; column.len()].into(), column.nulls().cloned());
        (0..self.values.len()).try_fold(nothing, |any, place| {
            Ok(or_kleene(&any, &cmp::eq(&column, &self.value(place))?)?)
        })
    }

    /// The name of the column.
    pub(super) fn name(&self) -> &str {
        self.field.name()
    }

    pub(super) fn values(&self) -> &ArrayRef {
        &self.values
    }

    /// Whether it wants one of its values.
    pub(super) fn is_equality(&self) -> bool {
        matches!(self.operator, FilterOperator::Equal | FilterOperator::In)
    }

    /// Which row groups can hold a row that meets it, by the statistics of the footer; all where these say nothing.
    fn kept(&self, footer: &Footer) -> Vec<bool> {
        let groups = footer.parquet().row_groups();
        let known = of_groups(footer, &self.field, groups);
        let kept = known.and_then(|known| self.kept_by(&known, &footer.row_groups));
        kept.unwrap_or_else(|| vec![true; footer.row_groups.len()])
    }

    /// The rows, among those of some row groups, of the pages that can hold a row that meets it; nothing where no page index says anything.
    fn kept_rows(&self, footer: &Footer, row_groups: Range<usize>) -> Option<RowSelection> {
        let mut ranges = Vec::new();
        let mut first = 0;
        for row_group in row_groups {
            let (known, rows) = of_pages(footer, &self.field, row_group)?;
            let kept = self.kept_by(&known, &rows)?;
            for (rows, kept) in rows.into_iter().zip(kept) {
                let rows = usize::try_from(rows).ok()?;
                if kept {
                    ranges.push(first..first + rows);
                }
                first += rows;
            }
        }
        Some(RowSelection::from_consecutive_ranges(
            ranges.into_iter(),
            first,
        ))
    }

    /// Which of some row groups or pages can hold a row that meets it, given the rows of each.
    fn kept_by(&self, known: &GroupStatistics, rows: &[u64]) -> Option<Vec<bool>> {
        use FilterOperator as Is;
        if matches!(self.operator, Is::IsNull | Is::IsNotNull) {
            let meets = |(nulls, rows): (Option<u64>, &u64)| match (nulls, self.operator) {
                (Some(nulls), Is::IsNull) => nulls > 0,
                (Some(nulls), _) => nulls < *rows,
                (None, _) => true,
            };
            return Some(known.null_counts.iter().zip(rows).map(meets).collect());
        }
        let (least, greatest) = known.bounds.as_ref()?;
        let (least, greatest) = (canonical(least), canonical(greatest));
        let least: &dyn Array = least.as_ref();
        let greatest: &dyn Array = greatest.as_ref();
        let spans = |place: usize| {
            let value = self.value(place);
            and_kleene(
                &cmp::lt_eq(&least, &value).ok()?,
                &cmp::gt_eq(&greatest, &value).ok()?,
            )
            .ok()
        };
        let kept = match self.operator {
            Is::Equal => spans(0)?,
            Is::Less => cmp::lt(&least, &self.value(0)).ok()?,
            Is::LessOrEqual => cmp::lt_eq(&least, &self.value(0)).ok()?,
            Is::Greater => cmp::gt(&greatest, &self.value(0)).ok()?,
            Is::GreaterOrEqual => cmp::gt_eq(&greatest, &self.value(0)).ok()?,
            Is::In => (0..self.values.len())
                .try_fold(BooleanArray::from(vec![false; rows.len()]), |any, place| {
                    or_kleene(&any, &spans(place)?).ok()
                })?,
            _ => return None,
        };
        // Unknown means that it can.
        let kept: Vec<bool> = kept.iter().map(|kept| kept.unwrap_or(true)).collect();
        (kept.len() == rows.len()).then_some(kept)
    }
}

/// Whether values are the same after a cast to the type of a column. Floats may be rounded to a narrower float, as SQL does.
fn is_same(given: &ArrayRef, cast: &ArrayRef) -> bool {
    let is_text = |data_type: &DataType| {
        matches!(
            data_type,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
        )
    };
    let (from, to) = (given.data_type(), cast.data_type());
    let value_of = match to {
        DataType::Dictionary(_, value) => value.as_ref(),
        other => other,
    };
    if from == to || (from.is_floating() && to.is_floating()) || is_text(from) && is_text(value_of)
    {
        return true;
    }
    if is_text(value_of) {
        return false;
    }
    if !is_text(from) {
        let back = cast_with_options(cast, from, &STRICT);
        return back.is_ok_and(|back| back.as_ref() == given.as_ref());
    }
    // A text is compared at the finest type of its kind.
    let finest = match to {
        decimal if decimal.is_decimal() => DataType::Decimal256(76, 38),
        DataType::Date32 | DataType::Date64 => DataType::Timestamp(TimeUnit::Nanosecond, None),
        DataType::Timestamp(_, zone) => DataType::Timestamp(TimeUnit::Nanosecond, zone.clone()),
        DataType::Time32(_) | DataType::Time64(_) => DataType::Time64(TimeUnit::Nanosecond),
        _ => return true,
    };
    // Nanoseconds cannot hold all years; texts of the others have microseconds at most.
    let coarser = match &finest {
        DataType::Timestamp(_, zone) => DataType::Timestamp(TimeUnit::Microsecond, zone.clone()),
        other => other.clone(),
    };
    [finest, coarser]
        .iter()
        .find_map(|fine| {
            let given = cast_with_options(given, fine, &STRICT).ok()?;
            let again = cast_with_options(cast, fine, &STRICT).ok()?;
            Some(given.as_ref() == again.as_ref())
        }) // A decimal beyond all digits that a column can have.
        .unwrap_or(to.is_decimal())
}

/// Null counts as false.
fn true_only(mask: &BooleanArray) -> BooleanArray {
    if mask.null_count() == 0 {
        return mask.clone();
    }
    prep_null_mask_filter(mask)
}
