//! Groups by columns of small tables, whose keys are coded before these are joined: of `GROUP BY item.category, item.brand, store.name`, with sales of many rows, groups are made of two numbers.
//!
//! Comes in: a plan that is about to run. Goes out: the same plan, in which rows of such tables have a code for all their keys together (`encode.rs`), which passes the joins in their place; groups are made of codes, and have their keys again in the end (`decode.rs`). The engine takes each text of each row anew, to hash it and to compare it. Never here: groups of one table; first steps that stand before joins (`plan/early_groups/`).

use std::sync::Arc;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::MemoryLimit;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{Partitioning, PhysicalExpr};
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::ChildrenPropertiesMode;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::scalar_subquery::ScalarSubqueryExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{ExecutionPlan, InputOrderMode, ReplaceChildrenOptions};

use self::decode::{KeyDecodeExec, Source};
use self::path::{Coded, Key, Tables, columns_of, is_text, may_be_coded, repeated};

mod decode;
mod dictionary;
mod encode;
mod path;

/// With fewer rows whatever is done is done soon.
const LEAST_ROWS: usize = 50_000;

/// The plan whose groups are made of codes where that is cheaper.
///
/// # Errors
/// As the engine says.
pub(in crate::query) fn coded(
    plan: Arc<dyn ExecutionPlan>,
    context: &TaskContext,
) -> Result<Arc<dyn ExecutionPlan>> {
    let mut has_groups = false;
    plan.apply(|node| {
        has_groups |= node.downcast_ref::<AggregateExec>().is_some_and(takes);
        Ok(match has_groups {
            true => TreeNodeRecursion::Stop,
            false => TreeNodeRecursion::Continue,
        })
    })?;
    match has_groups {
        true => {
            let limit = match context.memory_pool().memory_limit() {
                MemoryLimit::Finite(bytes) => bytes,
                MemoryLimit::Infinite | MemoryLimit::Unknown => usize::MAX,
            };
            below(plan, true, limit)
        }
        false => Ok(plan),
    }
}

/// The same for an operator of the plan; `is_free` says that nobody above asks which partition has which of its rows, but that equal keys are in one.
fn below(
    node: Arc<dyn ExecutionPlan>,
    is_free: bool,
    limit: usize,
) -> Result<Arc<dyn ExecutionPlan>> {
    let given: Vec<_> = node.children().into_iter().map(Arc::clone).collect();
    let deals_out = node.is::<RepartitionExec>()
        || node.is::<CoalescePartitionsExec>()
        || node.is::<SortPreservingMergeExec>()
        || node.is::<UnionExec>()
        || node.is::<ScalarSubqueryExec>();
    let is_free_below = deals_out || is_free && given.len() == 1;
    let children = given.iter().map(Arc::clone);
    let children = children.map(|child| below(child, is_free_below, limit));
    let children = children.collect::<Result<Vec<_>>>()?;
    let mut same = given.iter().zip(&children);
    let node = match same.all(|(given, child)| Arc::ptr_eq(given, child)) {
        true => node,
        false => over(&node, children)?,
    };
    let Some(aggregate) = node.downcast_ref::<AggregateExec>() else {
        return Ok(node);
    };
    let coded = match aggregate.mode() {
        AggregateMode::Partial | AggregateMode::Single | AggregateMode::SinglePartitioned => {
            first_step(aggregate, limit)?
        }
        AggregateMode::Final | AggregateMode::FinalPartitioned if is_free => last_step(aggregate)?,
        _ => None,
    };
    Ok(coded.unwrap_or(node))
}

fn over(
    node: &Arc<dyn ExecutionPlan>,
    inputs: Vec<Arc<dyn ExecutionPlan>>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let recompute = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    Arc::clone(node).replace_children(inputs, recompute)
}

/// Whether groups may be made of codes: in no order, and of all rows.
fn is_plain(aggregate: &AggregateExec) -> bool {
    aggregate.group_expr().is_single()
        && *aggregate.input_order_mode() == InputOrderMode::Linear
        && aggregate.limit_options().is_none()
}

/// Whether keys of an aggregate over rows may be coded.
fn takes(aggregate: &AggregateExec) -> bool {
    let mode = aggregate.mode();
    let is_first = matches!(
        mode,
        AggregateMode::Partial | AggregateMode::Single | AggregateMode::SinglePartitioned
    );
    let schema = aggregate.input().schema();
    let mut keys = aggregate.group_expr().expr().iter();
    is_first
        && is_plain(aggregate)
        && keys.any(|(key, _)| key.data_type(&schema).is_ok_and(|kind| is_text(&kind)))
}

/// The keys of an aggregate that are columns which it looks at for nothing else.
fn keys_of(aggregate: &AggregateExec) -> Vec<Key> {
    let schema = aggregate.input().schema();
    let keys = aggregate.group_expr().expr();
    let column_of = |key: &Arc<dyn PhysicalExpr>| key.downcast_ref::<Column>().map(Column::index);
    let columns = keys.iter().filter_map(|(key, _)| column_of(key));
    let others = keys.iter().map(|(key, _)| key);
    let others = others.filter(|key| column_of(key).is_none()).cloned();
    let values = aggregate.aggr_expr().iter();
    let values = values.flat_map(|function| {
        let orders = function.order_bys().iter().map(|by| Arc::clone(&by.expr));
        function.expressions().into_iter().chain(orders)
    });
    let filters = aggregate.filter_expr().iter().flatten().cloned();
    let read = others.chain(values).chain(filters);
    let mut read: Vec<usize> = read.flat_map(|value| columns_of(&value)).collect();
    read.extend(repeated(columns));
    let keys = keys.iter().enumerate().filter_map(|(number, (key, _))| {
        let column = column_of(key).filter(|column| !read.contains(column))?;
        let kind = schema.fields().get(column)?.data_type();
        may_be_coded(kind).then_some(Key { column, number })
    });
    keys.collect()
}

/// An aggregate over rows, by codes; none where nothing is coded.
fn first_step(aggregate: &AggregateExec, limit: usize) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if !takes(aggregate) {
        return Ok(None);
    }
    let Some(tables) = Tables::below(aggregate.input(), LEAST_ROWS, limit) else {
        return Ok(None);
    };
    let mut found = Vec::new();
    let input = tables.coded(aggregate.input(), &keys_of(aggregate), &mut found)?;
    if found.is_empty() {
        return Ok(None);
    }
    let keys = aggregate.group_expr().expr();
    let (mut by, mut sources) = (Vec::new(), Vec::with_capacity(keys.len()));
    let schema = input.schema();
    for (number, (key, name)) in keys.iter().enumerate() {
        let of_table = |coded: &&Coded| coded.keys.contains(&number);
        let Some(coded) = found.iter().find(of_table) else {
            sources.push(Source::Column(by.len()));
            by.push((Arc::clone(key), name.clone()));
            continue;
        };
        let code: Arc<dyn PhysicalExpr> =
            Arc::new(Column::new(schema.field(coded.column).name(), coded.column));
        let known = by.iter().position(|(known, _)| known.eq(&code));
        if known.is_none() {
            by.push((code, name.clone()));
        }
        sources.push(Source::Code {
            column: known.unwrap_or(by.len() - 1),
            key: coded
                .keys
                .iter()
                .position(|key| *key == number)
                .unwrap_or_default(),
            dictionary: Arc::clone(&coded.dictionary),
        });
    }
    let values = aggregate.schema().fields().len() - keys.len();
    sources.extend((by.len()..by.len() + values).map(Source::Column));
    let groups = AggregateExec::try_new(
        *aggregate.mode(),
        PhysicalGroupBy::new_single(by),
        aggregate.aggr_expr().to_vec(),
        aggregate.filter_expr().to_vec(),
        input,
        schema,
    )?;
    let properties = Arc::clone(aggregate.properties());
    let decode = KeyDecodeExec::new(Arc::new(groups), sources.into(), properties);
    Ok(Some(Arc::new(decode)))
}

/// An aggregate over states of coded groups, by codes, too; none where there are no such ones.
fn last_step(aggregate: &AggregateExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let keys = aggregate.group_expr().expr().iter().enumerate();
    let mut columns = keys.map(|(place, (key, _))| (place, key.downcast_ref::<Column>()));
    if !is_plain(aggregate)
        || !columns.all(|(place, key)| key.is_some_and(|key| key.index() == place))
    {
        return Ok(None);
    }
    let num_keys = aggregate.group_expr().expr().len();
    let exchange = aggregate.input().downcast_ref::<RepartitionExec>();
    let all = aggregate.input().downcast_ref::<CoalescePartitionsExec>();
    let input = match (exchange, all) {
        (Some(exchange), _) if is_by_all(exchange, num_keys) => exchange.input(),
        (None, Some(all)) => all.input(),
        (None, None) => aggregate.input(),
        _ => return Ok(None),
    };
    let Some(decode) = input.downcast_ref::<KeyDecodeExec>() else {
        return Ok(None);
    };
    let Some(first) = decode.input().downcast_ref::<AggregateExec>() else {
        return Ok(None);
    };
    let by = first.group_expr().as_final();
    let groups: Arc<dyn ExecutionPlan> = match exchange {
        Some(exchange) => {
            let keys = by.expr().iter().map(|(key, _)| Arc::clone(key)).collect();
            let partitions = exchange.partitioning().partition_count();
            let by = Partitioning::Hash(keys, partitions);
            Arc::new(RepartitionExec::try_new(Arc::clone(decode.input()), by)?)
        }
        None if all.is_some() => over(aggregate.input(), vec![Arc::clone(decode.input())])?,
        None => Arc::clone(decode.input()),
    };
    let num_codes = by.expr().len();
    let last = AggregateExec::try_new(
        *aggregate.mode(),
        by,
        aggregate.aggr_expr().to_vec(),
        aggregate.filter_expr().to_vec(),
        groups,
        first.input_schema(),
    )?;
    let keys = decode.sources().iter().take(num_keys).cloned();
    let values = aggregate.schema().fields().len() - num_keys;
    let values = (num_codes..num_codes + values).map(Source::Column);
    let sources = keys.chain(values).collect();
    let properties = Arc::clone(aggregate.properties());
    let decode = KeyDecodeExec::new(Arc::new(last), sources, properties);
    Ok(Some(Arc::new(decode)))
}

/// Whether rows are dealt out by their first so many columns, all of them and no others.
fn is_by_all(exchange: &RepartitionExec, num_keys: usize) -> bool {
    let Partitioning::Hash(by, _) = exchange.partitioning() else {
        return false;
    };
    let mut places: Vec<usize> = by.iter().flat_map(columns_of).collect();
    places.sort_unstable();
    !exchange.preserve_order()
        && by.iter().all(|by| by.is::<Column>())
        && places.into_iter().eq(0..num_keys)
}
