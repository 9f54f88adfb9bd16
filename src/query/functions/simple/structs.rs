//! Fields of structs.
//!
//! Comes in: structs. Goes out: the names of their fields, and structs of the fields of several. Never here: one field, which the engine gets.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, ListArray, StringViewArray, StructArray, new_null_array,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, FieldRef, Fields};
use datafusion::common::{internal_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::scalar_doc_sections::DOC_SECTION_STRUCT;

use super::{Function, Takes, texts};

pub(super) const ALL: &[Function] = &[
    Function {
        name: "struct_keys",
        aliases: &[],
        section: DOC_SECTION_STRUCT,
        about: "The names of the fields of a struct, in a list.",
        takes: &[("struct", Takes::Struct)],
        least: 1,
        repeats: false,
        returned: texts,
        made: names,
    },
    Function {
        name: "struct_concat",
        aliases: &[],
        section: DOC_SECTION_STRUCT,
        about: "A struct of the fields of several, which must have different names. struct_insert(struct, name := value) writes it shorter.",
        takes: &[("struct", Takes::Struct), ("other", Takes::Struct)],
        least: 1,
        repeats: true,
        returned: |types| Ok(DataType::Struct(joined(types)?)),
        made: |arrays| merged(arrays, joined),
    },
    Function {
        name: "struct_merge",
        aliases: &[],
        section: DOC_SECTION_STRUCT,
        about: "A struct of the fields of several; of one name the last one counts. struct_update(struct, name := value) writes it shorter.",
        takes: &[("struct", Takes::Struct), ("other", Takes::Struct)],
        least: 1,
        repeats: true,
        returned: |types| Ok(DataType::Struct(latest(types)?)),
        made: |arrays| merged(arrays, latest),
    },
];

/// The fields of structs, each with the number of the struct that it is of and its place there.
type Sources = Vec<(FieldRef, usize, usize)>;

fn fields(types: &[DataType]) -> Sources {
    let of = |(number, kind): (usize, &DataType)| match kind {
        DataType::Struct(fields) => {
            let fields = fields.iter().enumerate();
            fields
                .map(|(place, field)| {
                    // A struct that is null has nulls in all of its fields.
                    let field = Arc::new(field.as_ref().clone().with_nullable(true));
                    (field, number, place)
                })
                .collect()
        }
        _ => Vec::new(),
    };
    types.iter().enumerate().flat_map(of).collect()
}

fn of_different_names(types: &[DataType]) -> Result<Sources> {
    let all = fields(types);
    for (place, (field, ..)) in all.iter().enumerate() {
        let before = all.iter().take(place);
        if before
            .into_iter()
            .any(|(other, ..)| other.name() == field.name())
        {
            return plan_err!(
                "struct_concat and struct_insert take fields of different names, two are {:?}; struct_update and struct_merge take the last one",
                field.name()
            );
        }
    }
    Ok(all)
}

fn of_last_values(types: &[DataType]) -> Sources {
    let mut all = Sources::new();
    for source in fields(types) {
        match all
            .iter_mut()
            .find(|(known, ..)| known.name() == source.0.name())
        {
            Some(known) => *known = source,
            None => all.push(source),
        }
    }
    all
}

fn joined(types: &[DataType]) -> Result<Fields> {
    let sources = of_different_names(types)?;
    Ok(sources.into_iter().map(|(field, ..)| field).collect())
}

fn latest(types: &[DataType]) -> Result<Fields> {
    let sources = of_last_values(types);
    Ok(sources.into_iter().map(|(field, ..)| field).collect())
}

fn merged(arrays: &[ArrayRef], wanted: fn(&[DataType]) -> Result<Fields>) -> Result<ArrayRef> {
    let rows = arrays.first().map_or(0, Array::len);
    let types: Vec<DataType> = arrays
        .iter()
        .map(|array| array.data_type().clone())
        .collect();
    let wanted = wanted(&types)?;
    let sources = of_last_values(&types);
    let mut columns = Vec::with_capacity(wanted.len());
    for (field, (_, number, place)) in wanted.iter().zip(&sources) {
        let Some(structs) = arrays.get(*number).and_then(|array| array.as_struct_opt()) else {
            return internal_err!("fields of no struct");
        };
        columns.push(match structs.columns().get(*place) {
            Some(column) if structs.null_count() == 0 => Arc::clone(column),
            Some(column) => within(column, structs)?,
            None => new_null_array(field.data_type(), rows),
        });
    }
    Ok(Arc::new(StructArray::try_new_with_length(
        wanted, columns, None, rows,
    )?))
}

/// A field, null where the struct is.
fn within(column: &ArrayRef, structs: &StructArray) -> Result<ArrayRef> {
    let Some(nulls) = structs.nulls() else {
        return Ok(Arc::clone(column));
    };
    let is_null = arrow::array::BooleanArray::new(!nulls.inner(), None);
    Ok(arrow::compute::nullif(column, &is_null)?)
}

fn names(arrays: &[ArrayRef]) -> Result<ArrayRef> {
    let [structs] = arrays else {
        return internal_err!("names of several structs");
    };
    let fields: &[FieldRef] = match structs.data_type() {
        DataType::Struct(fields) => fields,
        _ => &[],
    };
    let names = fields.iter().map(|field| Some(field.name().as_str()));
    let of_all = (0..structs.len()).filter(|row| structs.is_valid(*row));
    let values: StringViewArray = of_all.flat_map(|_| names.clone()).collect();
    let lengths = (0..structs.len()).map(|row| match structs.is_valid(row) {
        true => fields.len(),
        false => 0,
    });
    let nulls = structs.logical_nulls();
    let offsets = OffsetBuffer::from_lengths(lengths);
    let field = Arc::new(Field::new_list_field(DataType::Utf8View, true));
    Ok(Arc::new(ListArray::try_new(
        field,
        offsets,
        Arc::new(values),
        nulls,
    )?))
}
