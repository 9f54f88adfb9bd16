//! What functions have in common that stand in place of one of the engine.
//!
//! Comes in: a function with the field `inner`, the engine's. Goes out: the part of its implementation that is that of the engine. Never here: what is other.

/// The methods of `WindowUDFImpl` but for its field, its values, and how it runs backwards.
macro_rules! window_as_inner {
    () => {
        fn name(&self) -> &str {
            self.inner.name()
        }

        fn aliases(&self) -> &[String] {
            self.inner.aliases()
        }

        fn signature(&self) -> &Signature {
            self.inner.signature()
        }

        fn expressions(&self, arguments: ExpressionArgs) -> Vec<Arc<dyn PhysicalExpr>> {
            self.inner.expressions(arguments)
        }

        fn documentation(&self) -> Option<&Documentation> {
            self.inner.documentation()
        }

        fn limit_effect(&self, arguments: &[Arc<dyn PhysicalExpr>]) -> LimitEffect {
            self.inner.inner().limit_effect(arguments)
        }
    };
}

/// The methods of `ScalarUDFImpl` about its names and types.
macro_rules! scalar_as_inner {
    () => {
        fn name(&self) -> &str {
            self.inner.name()
        }

        fn aliases(&self) -> &[String] {
            self.inner.aliases()
        }

        fn signature(&self) -> &Signature {
            self.inner.signature()
        }

        fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
            self.inner.coerce_types(types)
        }

        fn return_type(&self, types: &[DataType]) -> Result<DataType> {
            self.inner.return_type(types)
        }

        fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
            self.inner.return_field_from_args(arguments)
        }
    };
}

/// The methods of `AggregateUDFImpl` about its names and types.
macro_rules! aggregate_called_as_inner {
    () => {
        fn name(&self) -> &str {
            self.inner.name()
        }

        fn aliases(&self) -> &[String] {
            self.inner.aliases()
        }

        fn signature(&self) -> &Signature {
            self.inner.signature()
        }

        fn return_type(&self, types: &[DataType]) -> Result<DataType> {
            self.inner.inner().return_type(types)
        }

        fn documentation(&self) -> Option<&Documentation> {
            self.inner.inner().documentation()
        }
    };
}

/// The methods of `AggregateUDFImpl` but for frames that slide, and what the order of the rows is to it.
macro_rules! aggregate_as_inner {
    () => {
        $crate::query::functions::passed_on::aggregate_called_as_inner!();

        fn accumulator(&self, arguments: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
            self.inner.inner().accumulator(arguments)
        }

        fn state_fields(&self, arguments: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
            self.inner.inner().state_fields(arguments)
        }

        fn groups_accumulator_supported(&self, arguments: AccumulatorArgs<'_>) -> bool {
            self.inner.inner().groups_accumulator_supported(arguments)
        }

        fn create_groups_accumulator(
            &self,
            arguments: AccumulatorArgs<'_>,
        ) -> Result<Box<dyn GroupsAccumulator>> {
            self.inner.inner().create_groups_accumulator(arguments)
        }
    };
}

pub(in crate::query) use {
    aggregate_as_inner, aggregate_called_as_inner, scalar_as_inner, window_as_inner,
};
