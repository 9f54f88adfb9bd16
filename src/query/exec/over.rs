//! What nodes have in common that hand the rows of their one input on.
//!
//! Comes in: a node with the fields `input` and `properties`, which is made anew over another input by `over`. Goes out: the part of its `ExecutionPlan` that is the same for all. Never here: what a node is for.

/// The methods of `ExecutionPlan` but for its name and what it runs.
macro_rules! over_one_input {
    () => {
        fn properties(&self) -> &Arc<PlanProperties> {
            &self.properties
        }

        fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
            vec![&self.input]
        }

        fn apply_expressions(
            &self,
            _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
        ) -> Result<TreeNodeRecursion> {
            Ok(TreeNodeRecursion::Continue)
        }

        fn maintains_input_order(&self) -> Vec<bool> {
            vec![true]
        }

        fn benefits_from_input_partitioning(&self) -> Vec<bool> {
            vec![false]
        }

        fn replace_children(
            self: Arc<Self>,
            mut children: Vec<Arc<dyn ExecutionPlan>>,
            _: ReplaceChildrenOptions,
        ) -> Result<Arc<dyn ExecutionPlan>> {
            let input = children.pop().unwrap_or_else(|| Arc::clone(&self.input));
            Ok(Arc::new(self.over(input)?))
        }

        fn with_new_children(
            self: Arc<Self>,
            children: Vec<Arc<dyn ExecutionPlan>>,
        ) -> Result<Arc<dyn ExecutionPlan>> {
            let recompute = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
            self.replace_children(children, recompute)
        }
    };
}

/// What `ExecutionPlan` says of rows that are those of the one input.
macro_rules! known_as_input {
    () => {
        fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
            vec![ChildStats::At(partition)]
        }

        fn statistics_from_inputs(
            &self,
            inputs: &[Arc<Statistics>],
            _: &StatisticsArgs,
        ) -> Result<Arc<Statistics>> {
            let input = inputs.first().map(Arc::clone);
            Ok(input.unwrap_or_else(|| Arc::new(Statistics::new_unknown(&self.schema()))))
        }
    };
}

pub(crate) use {known_as_input, over_one_input};
