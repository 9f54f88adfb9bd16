//! What nodes have in common that stand in for one of the engine, over the same inputs.
//!
//! Comes in: a node with the fields `metrics` and that of the engine, which is made anew over another one by `of_engine`. Goes out: the part of its `ExecutionPlan` that is that of the engine. Never here: what it does in another way.

/// The methods of `ExecutionPlan` about what is below, and about metrics.
macro_rules! stands_in {
    ($engine:ident) => {
        fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
            self.$engine.children()
        }

        fn apply_expressions(
            &self,
            visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
        ) -> Result<TreeNodeRecursion> {
            self.$engine.apply_expressions(visit)
        }

        fn input_distribution_requirements(&self) -> InputDistributionRequirements {
            self.$engine.input_distribution_requirements()
        }

        fn benefits_from_input_partitioning(&self) -> Vec<bool> {
            self.$engine.benefits_from_input_partitioning()
        }

        fn replace_children(
            self: Arc<Self>,
            children: Vec<Arc<dyn ExecutionPlan>>,
            options: ReplaceChildrenOptions,
        ) -> Result<Arc<dyn ExecutionPlan>> {
            let engine = Arc::clone(&self.$engine).replace_children(children, options)?;
            Ok(Arc::new(self.of_engine(engine)?))
        }

        fn with_new_children(
            self: Arc<Self>,
            children: Vec<Arc<dyn ExecutionPlan>>,
        ) -> Result<Arc<dyn ExecutionPlan>> {
            let recompute = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
            self.replace_children(children, recompute)
        }

        fn metrics(&self) -> Option<MetricsSet> {
            Some(self.metrics.clone_inner())
        }
    };
}

/// The methods of `ExecutionPlan` about the rows that go out.
macro_rules! promises_as {
    ($engine:ident) => {
        fn properties(&self) -> &Arc<PlanProperties> {
            self.$engine.properties()
        }

        fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
            self.$engine.child_stats_requests(partition)
        }

        fn statistics_from_inputs(
            &self,
            inputs: &[Arc<Statistics>],
            arguments: &StatisticsArgs,
        ) -> Result<Arc<Statistics>> {
            self.$engine.statistics_from_inputs(inputs, arguments)
        }
    };
}

pub(crate) use {promises_as, stands_in};
