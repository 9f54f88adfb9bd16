//! Functions with lambdas as the engine has them, for other processes.
//!
//! Comes in: an expression. Goes out: the same with functions of the engine in place of ours. What the lambda names is put into it, and its parameters have places that no column has, so that they stay what they are wherever columns move. Never here: which expressions are sent.

use std::sync::Arc;

use arrow::datatypes::{FieldRef, Schema};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, internal_err};
use datafusion::physical_expr::expressions::{Column, LambdaExpr, LambdaVariable};
use datafusion::physical_expr::{HigherOrderFunctionExpr, PhysicalExpr, ScalarFunctionExpr};

use super::function::WithLambda;

/// From here on places are those of parameters: no batch has so many columns.
const FIRST_PLACE: usize = 1 << 24;

/// An expression with the engine's functions in place of ours.
pub(crate) fn with_lambdas(
    expression: &Arc<dyn PhysicalExpr>,
    schema: &Schema,
) -> Result<Transformed<Arc<dyn PhysicalExpr>>> {
    engines(expression, schema, FIRST_PLACE)
}

/// The same within lambdas whose parameters take the places before `first`.
fn engines(
    expression: &Arc<dyn PhysicalExpr>,
    schema: &Schema,
    first: usize,
) -> Result<Transformed<Arc<dyn PhysicalExpr>>> {
    Arc::clone(expression).transform_up(|part| {
        let Some(call) = part.downcast_ref::<ScalarFunctionExpr>() else {
            return Ok(Transformed::no(part));
        };
        match call.fun().inner().downcast_ref::<WithLambda>() {
            Some(ours) => Ok(Transformed::yes(ours.engines(call, schema, first)?)),
            None => Ok(Transformed::no(part)),
        }
    })
}

/// Whether a function of ours is left somewhere.
pub(crate) fn has_lambda(expression: &Arc<dyn PhysicalExpr>) -> Result<bool> {
    expression.exists(|part| {
        let call = part.downcast_ref::<ScalarFunctionExpr>();
        Ok(call.is_some_and(|call| call.fun().inner().is::<WithLambda>()))
    })
}

impl WithLambda {
    fn engines(
        &self,
        call: &ScalarFunctionExpr,
        schema: &Schema,
        first: usize,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        let fields = call.args().iter().map(|part| part.return_field(schema));
        let settled = self.settled(&fields.collect::<Result<Vec<_>>>()?)?;
        let (values, named) = self.split(call.args())?;
        let params = settled.params.iter().enumerate().map(|(number, field)| {
            Arc::new(
                field
                    .as_ref()
                    .clone()
                    .with_name(format!("x{}", first + number)),
            )
        });
        let params: Vec<FieldRef> = params.collect();
        // Those of lambdas within come behind these.
        let body = engines(&settled.body, &settled.schema, first + params.len())?.data;
        let body = body.transform_down(|part| {
            let Some(column) = part.downcast_ref::<Column>() else {
                return Ok(Transformed::no(part));
            };
            let used = column.index().checked_sub(named.len());
            let number = used.and_then(|used| self.used.get(used));
            let given: Arc<dyn PhysicalExpr> = match (named.get(column.index()), number) {
                (Some(named), _) => Arc::clone(named),
                (None, Some(number)) => {
                    let Some(field) = params.get(*number) else {
                        return internal_err!("{} of {number} parameters", self.name);
                    };
                    Arc::new(LambdaVariable::new(first + number, Arc::clone(field)))
                }
                (None, None) => return internal_err!("{} of {column}", self.name),
            };
            Ok(Transformed::new(given, true, TreeNodeRecursion::Jump))
        })?;
        let names = params.iter().map(|field| field.name().clone()).collect();
        let lambda = LambdaExpr::try_new(names, body.data)?;
        let mut arguments = values.to_vec();
        arguments.insert(self.place.min(arguments.len()), Arc::new(lambda));
        Ok(Arc::new(HigherOrderFunctionExpr::try_new_with_schema(
            Arc::clone(&self.function),
            arguments,
            schema,
            Arc::new(call.config_options().clone()),
        )?))
    }
}
