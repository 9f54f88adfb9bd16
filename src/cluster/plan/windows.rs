//! Windows, with what the engine does not write down of them.
//!
//! Comes in: a plan in stages. Goes out: the same plan with a node above each operator of windows whose functions skip nulls, or run backwards, since another window of the statement has the other order: the engine forgets
//! both when it writes a part of a plan down. A condition of an aggregate (`FILTER`) it forgets as well; none is left here (`query/plan/meaning/conditions.rs`) but those of few functions, which are refused. Never here: what windows mean.

use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{ReversedUDWF, WindowFunctionDefinition};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::window::{
    PlainAggregateWindowExpr, SlidingAggregateWindowExpr, StandardWindowExpr, WindowExpr,
};
use datafusion::physical_plan::execution_plan::ChildrenPropertiesMode;
use datafusion::physical_plan::windows::{
    BoundedWindowAggExec, WindowAggExec, WindowUDFExpr, create_window_expr, schema_add_window_field,
};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, ReplaceChildrenOptions,
};

use super::sent::each_sent;
use crate::cluster::codec::tiles::broken;
use crate::error::{Error, ErrorKind};
use crate::query::{over_one_input, windows_of};

/// The plan whose windows are the same on the other side; those that run where the statement was asked stay as they are.
///
/// # Errors
/// `Unsupported` for windows that cannot be written down.
pub(in crate::cluster) fn kept_whole(
    plan: &Arc<dyn ExecutionPlan>,
) -> Result<Arc<dyn ExecutionPlan>> {
    each_sent(plan, &of_node)
}

fn of_node(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let Some(windows) = windows_of(&plan) else {
        return Ok(plan);
    };
    let more: Vec<More> = windows.iter().map(more_of).collect::<Result<_>>()?;
    Ok(match more.iter().all(|more| *more == More::default()) {
        true => plan,
        false => Arc::new(WindowsExec::new(plan, more)),
    })
}

/// What the engine forgets of one window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::cluster) struct More {
    /// Whether its function skips nulls.
    pub(in crate::cluster) skips_nulls: bool,
    /// Whether its function runs backwards.
    pub(in crate::cluster) is_reversed: bool,
}

/// Reads what the engine tells nobody but those who debug it, at the end of what it tells.
fn more_of(window: &Arc<dyn WindowExpr>) -> Result<More> {
    let text = format!("{window:?}");
    let any = window.as_any();
    if any.is::<PlainAggregateWindowExpr>() || any.is::<SlidingAggregateWindowExpr>() {
        let plain = any.downcast_ref::<PlainAggregateWindowExpr>();
        let sliding = any.downcast_ref::<SlidingAggregateWindowExpr>();
        let function = plain.map(PlainAggregateWindowExpr::get_aggregate_expr);
        let function = function.or_else(|| sliding.map(|window| window.get_aggregate_expr()));
        return match text.ends_with("filter: None }") {
            true => Ok(More::default()),
            false => Err(conditional(
                function.map_or("it", |function| function.fun().name()),
            )),
        };
    }
    let function = any
        .downcast_ref::<StandardWindowExpr>()
        .and_then(|window| {
            let function = window.get_standard_func_expr().as_any();
            function.downcast_ref::<WindowUDFExpr>()
        })
        .ok_or_else(|| unknown(window.name()))?;
    let text = format!("{function:?}");
    let all = [false, true].into_iter().flat_map(|skips_nulls| {
        [false, true].map(|is_reversed| More {
            skips_nulls,
            is_reversed,
        })
    });
    let mut fitting = all.filter(|more| {
        let (reversed, nulls) = (more.is_reversed, more.skips_nulls);
        text.ends_with(&format!(
            "is_reversed: {reversed}, ignore_nulls: {nulls} }}"
        ))
    });
    fitting.next().ok_or_else(|| unknown(window.name()))
}

fn conditional(name: &str) -> datafusion::error::DataFusionError {
    let text = format!("several processes cannot run {name} with FILTER over a window");
    let error = Error::new(ErrorKind::Unsupported, text);
    let hint = format!(
        "write {name}(CASE WHEN … THEN x END) IGNORE NULLS OVER (…) if x is never null, or leave rows out in a subquery"
    );
    error.with_hint(hint).into()
}

fn unknown(name: &str) -> datafusion::error::DataFusionError {
    Error::internal(format!("a window that cannot be written down: {name}")).into()
}

/// An operator of windows, with what is forgotten of each of them.
#[derive(Debug)]
pub(in crate::cluster) struct WindowsExec {
    input: Arc<dyn ExecutionPlan>,
    more: Vec<More>,
    properties: Arc<PlanProperties>,
}

impl WindowsExec {
    /// The operator as it was, of one that was written down.
    ///
    /// # Errors
    /// When it is no operator of so many windows, or its windows are not of this kind.
    pub(in crate::cluster) fn try_read(
        windows: &Arc<dyn ExecutionPlan>,
        more: Vec<More>,
    ) -> Result<Self> {
        let all = windows.downcast_ref::<WindowAggExec>();
        let bounded = windows.downcast_ref::<BoundedWindowAggExec>();
        let remembered: Arc<dyn ExecutionPlan> = match (all, bounded) {
            (Some(node), _) => {
                let written = remembered(node.window_expr(), node.input(), &more)?;
                let may_spread = !node.partition_keys().is_empty();
                let input = Arc::clone(node.input());
                Arc::new(WindowAggExec::try_new(written, input, may_spread)?)
            }
            (None, Some(node)) => {
                let written = remembered(node.window_expr(), node.input(), &more)?;
                let may_spread = !node.partition_keys().is_empty();
                let (input, mode) = (Arc::clone(node.input()), node.input_order_mode.clone());
                Arc::new(BoundedWindowAggExec::try_new(
                    written, input, mode, may_spread,
                )?)
            }
            (None, None) => return Err(broken("more of windows, but no windows").into()),
        };
        Ok(Self::new(remembered, more))
    }

    fn new(input: Arc<dyn ExecutionPlan>, more: Vec<More>) -> Self {
        let properties = Arc::clone(input.properties());
        Self {
            input,
            more,
            properties,
        }
    }

    #[expect(clippy::unnecessary_wraps, reason = "as of all nodes over one input")]
    fn over(&self, input: Arc<dyn ExecutionPlan>) -> Result<Self> {
        Ok(Self::new(input, self.more.clone()))
    }

    /// What is forgotten of each window.
    pub(in crate::cluster) fn more(&self) -> &[More] {
        &self.more
    }
}

fn remembered(
    windows: &[Arc<dyn WindowExpr>],
    input: &Arc<dyn ExecutionPlan>,
    more: &[More],
) -> Result<Vec<Arc<dyn WindowExpr>>> {
    if windows.len() != more.len() {
        return Err(broken("the number of windows").into());
    }
    let pairs = windows.iter().zip(more);
    let remembered = pairs.map(|(window, more)| match *more == More::default() {
        true => Ok(Arc::clone(window)),
        false => one(window, input, *more),
    });
    remembered.collect()
}

/// A window with what was forgotten of it. One that runs backwards is made of the one that does not.
fn one(
    window: &Arc<dyn WindowExpr>,
    input: &Arc<dyn ExecutionPlan>,
    more: More,
) -> Result<Arc<dyn WindowExpr>> {
    let standard = window.as_any().downcast_ref::<StandardWindowExpr>();
    let function = standard.and_then(|standard| {
        let function = standard.get_standard_func_expr().as_any();
        function.downcast_ref::<WindowUDFExpr>()
    });
    let function = function.ok_or_else(|| broken("more of a window that has no more"))?;
    let frame = window.get_window_frame();
    let (udwf, order, frame) = match more.is_reversed {
        false => (
            Arc::clone(function.fun()),
            window.order_by().to_vec(),
            Arc::clone(frame),
        ),
        true => {
            let ReversedUDWF::Reversed(other) = function.fun().reverse_expr() else {
                return Err(broken("a window that has no other way").into());
            };
            let order = window.order_by().iter();
            let order = order.map(|by| by.reverse()).collect();
            (other, order, Arc::new(frame.reverse()))
        }
    };
    let udwf = WindowFunctionDefinition::WindowUDF(udwf);
    let schema = schema_add_window_field(function.args(), &input.schema(), &udwf, window.name())?;
    let made = create_window_expr(
        &udwf,
        window.name().to_owned(),
        function.args(),
        window.partition_by(),
        &order,
        frame,
        schema,
        more.skips_nulls,
        false,
        None,
    )?;
    if !more.is_reversed {
        return Ok(made);
    }
    let reversed = made.get_reverse_expr();
    reversed.ok_or_else(|| broken("a window that has no other way").into())
}

impl DisplayAs for WindowsExec {
    fn fmt_as(&self, _: DisplayFormatType, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |is_so: fn(&More) -> bool| self.more.iter().filter(|more| is_so(more)).count();
        let reversed = count(|more| more.is_reversed);
        let skipping = count(|more| more.skips_nulls);
        write!(
            formatter,
            "WindowsExec: backwards={reversed}, ignore_nulls={skipping}"
        )
    }
}

impl ExecutionPlan for WindowsExec {
    fn name(&self) -> &'static str {
        "WindowsExec"
    }

    over_one_input!();

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        self.input.execute(partition, context)
    }
}

#[cfg(test)]
mod tests {
    use arrow::compute::SortOptions;
    use arrow::datatypes::{DataType, Field, Schema};
    use datafusion::functions_aggregate::sum::sum_udaf;
    use datafusion::functions_window::lead_lag::lag_udwf;
    use datafusion::functions_window::nth_value::last_value_udwf;
    use datafusion::logical_expr::WindowFrame;
    use datafusion::physical_expr::PhysicalSortExpr;
    use datafusion::physical_expr::expressions::{Column, is_null};
    use datafusion::physical_plan::empty::EmptyExec;

    use super::*;
    use crate::cluster::hostile::{codec_of, empty_catalog, read, written};

    fn schema() -> Arc<Schema> {
        let field = |name: &str| Field::new(name, DataType::Int64, true);
        Arc::new(Schema::new(vec![field("k"), field("x")]))
    }

    fn window(
        function: &WindowFunctionDefinition,
        skips_nulls: bool,
        filter: Option<Arc<dyn PhysicalExpr>>,
    ) -> Arc<dyn WindowExpr> {
        let column = |name: &str, place| Arc::new(Column::new(name, place)) as _;
        let arguments: [Arc<dyn PhysicalExpr>; 1] = [column("x", 1)];
        let schema = schema_add_window_field(&arguments, &schema(), function, "w").unwrap();
        let order = PhysicalSortExpr::new(column("x", 1), SortOptions::default());
        let frame = Arc::new(WindowFrame::new(Some(false)));
        let keys = [column("k", 0)];
        create_window_expr(
            function,
            "w".to_owned(),
            &arguments,
            &keys,
            &[order],
            frame,
            schema,
            skips_nulls,
            false,
            filter,
        )
        .unwrap()
    }

    fn over(windows: Vec<Arc<dyn WindowExpr>>) -> Arc<dyn ExecutionPlan> {
        let input = Arc::new(EmptyExec::new(schema()));
        Arc::new(WindowAggExec::try_new(windows, input, true).unwrap())
    }

    #[test]
    fn windows_that_run_backwards_and_skip_nulls_arrive_as_they_were() {
        let lag = WindowFunctionDefinition::WindowUDF(lag_udwf());
        let last = WindowFunctionDefinition::WindowUDF(last_value_udwf());
        let sum = WindowFunctionDefinition::AggregateUDF(sum_udaf());
        let plain = window(&lag, false, None);
        let backwards = plain.get_reverse_expr().unwrap();
        let skipping = window(&last, true, None);
        let both = window(&lag, true, None).get_reverse_expr().unwrap();
        let windows = vec![plain, backwards, skipping, both, window(&sum, false, None)];
        let plan = of_node(over(windows.clone())).unwrap();
        let sent = plan.downcast_ref::<WindowsExec>().unwrap();
        let more = |skips_nulls, is_reversed| More {
            skips_nulls,
            is_reversed,
        };
        let expected = [
            more(false, false),
            more(false, true),
            more(true, false),
            more(true, true),
            more(false, false),
        ];
        assert_eq!(sent.more(), expected);

        // As the engine reads them: nothing is reversed, and no nulls are skipped.
        let forgotten = windows.iter().map(|window| {
            let standard = window.as_any().downcast_ref::<StandardWindowExpr>();
            let Some(standard) = standard else {
                return Arc::clone(window);
            };
            let function = standard.get_standard_func_expr().as_any();
            let function = function.downcast_ref::<WindowUDFExpr>().unwrap();
            let definition = WindowFunctionDefinition::WindowUDF(Arc::clone(function.fun()));
            let schema =
                schema_add_window_field(function.args(), &schema(), &definition, "w").unwrap();
            create_window_expr(
                &definition,
                "w".to_owned(),
                function.args(),
                window.partition_by(),
                window.order_by(),
                Arc::clone(window.get_window_frame()),
                schema,
                false,
                false,
                None,
            )
            .unwrap()
        });
        let codec = codec_of(empty_catalog());
        let bytes = written(&codec, &plan);
        let arrived = read(&codec, &bytes, &[over(forgotten.collect())]).unwrap();
        let arrived = arrived.downcast_ref::<WindowsExec>().unwrap();
        let texts = |plan: &Arc<dyn ExecutionPlan>| -> Vec<String> {
            let windows = windows_of(plan).unwrap().iter();
            windows.map(|window| format!("{window:?}")).collect()
        };
        assert_eq!(texts(&arrived.input), texts(&over(windows)));

        // More than there are windows, and more of no windows.
        assert!(read(&codec, &bytes, &[over(vec![window(&lag, false, None)])]).is_err());
        let input: Arc<dyn ExecutionPlan> = Arc::new(EmptyExec::new(schema()));
        assert!(read(&codec, &bytes, &[input]).is_err());
    }

    #[test]
    fn plain_windows_are_left_and_conditions_refused() {
        let lag = WindowFunctionDefinition::WindowUDF(lag_udwf());
        let plan = over(vec![window(&lag, false, None)]);
        assert!(of_node(Arc::clone(&plan)).unwrap().is::<WindowAggExec>());
        let sum = WindowFunctionDefinition::AggregateUDF(sum_udaf());
        let condition = is_null(Arc::new(Column::new("x", 1))).unwrap();
        let plan = over(vec![window(&sum, false, Some(condition))]);
        let error = of_node(Arc::clone(&plan)).unwrap_err().to_string();
        assert!(error.contains("cannot run sum with FILTER"), "{error}");
        // Where it was asked it runs as it is.
        assert!(kept_whole(&plan).unwrap().is::<WindowAggExec>());
    }
}
