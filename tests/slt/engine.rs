//! partgrid as an engine of sqllogictest.
//!
//! Comes in: SQL text. Goes out: rows as text, by the rule that `sql/answers.py` follows for DuckDB; for EXPLAIN, the physical plan. Never here: which files and
//! cuttings are run.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{Array, RecordBatch};
use arrow::datatypes::DataType;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use async_trait::async_trait;
use partgrid::error::Error;
use partgrid::query::Session;
use sqllogictest::{AsyncDB, DBOutput, DefaultColumnType};

/// partgrid as sqllogictest sees it.
pub(crate) struct Engine {
    pub(crate) session: Arc<Session>,
    /// How many statements and queries were asked.
    pub(crate) count: Arc<AtomicUsize>,
}

#[async_trait]
impl AsyncDB for Engine {
    type Error = Error;
    type ColumnType = DefaultColumnType;

    async fn run(&mut self, sql: &str) -> Result<DBOutput<DefaultColumnType>, Error> {
        self.count.fetch_add(1, Ordering::Relaxed);
        if let Some(plan) = explained(&self.session, sql).await? {
            return Ok(plan);
        }
        let query = self.session.sql(sql).await?;
        let types = query
            .schema()
            .fields()
            .iter()
            .map(|field| type_of(field.data_type()))
            .collect();
        let mut rows = Vec::new();
        for batch in query.collect().await? {
            rows.extend((0..batch.num_rows()).map(|row| texts(&batch, row)));
        }
        Ok(DBOutput::Rows { types, rows })
    }

    async fn shutdown(&mut self) {}
}

/// For `EXPLAIN SELECT …`: the physical plan, one operator in each row.
async fn explained(
    session: &Session,
    sql: &str,
) -> Result<Option<DBOutput<DefaultColumnType>>, Error> {
    if !sql.starts_with("EXPLAIN ") {
        return Ok(None);
    }
    let batches = session.sql(sql).await?.collect().await?;
    let found = batches
        .iter()
        .flat_map(|batch| (0..batch.num_rows()).map(|row| texts(batch, row)));
    let physical = found
        .filter(|row| row[0] == "physical_plan")
        .map(|mut row| row.remove(1));
    let plan: String = physical.collect();
    Ok(Some(DBOutput::Rows {
        types: vec![DefaultColumnType::Text],
        rows: plan
            .lines()
            .map(|line| vec![line.trim().to_owned()])
            .collect(),
    }))
}

fn type_of(data_type: &DataType) -> DefaultColumnType {
    if data_type.is_integer() {
        DefaultColumnType::Integer
    } else if data_type.is_floating() || data_type.is_decimal() {
        DefaultColumnType::FloatingPoint
    } else {
        DefaultColumnType::Text
    }
}

/// One row as `sql/answers.py` writes it: NULL, (empty), numbers that may have a fraction with three digits after the point.
fn texts(batch: &RecordBatch, row: usize) -> Vec<String> {
    let options = FormatOptions::default().with_null("NULL");
    let text = |column: &Arc<dyn Array>| {
        if column.is_null(row) {
            return "NULL".to_owned();
        }
        let text = ArrayFormatter::try_new(column, &options)
            .unwrap()
            .value(row)
            .to_string();
        match type_of(column.data_type()) {
            DefaultColumnType::FloatingPoint => with_three_digits(text.parse().unwrap()),
            _ if text.is_empty() => "(empty)".to_owned(),
            _ => text,
        }
    };
    batch.columns().iter().map(text).collect()
}

fn with_three_digits(value: f64) -> String {
    let text = format!("{value:.3}");
    if text == "-0.000" {
        "0.000".to_owned()
    } else {
        text
    }
}
