//! Operators over memory of ours: `storage + 1` is what numpy makes of `numpy.asarray(storage) + 1`.
//!
//! Comes in: an object that numpy takes, and another operand. Goes out: what numpy makes of both. Never here: arithmetic.

use pyo3::prelude::*;

/// What a function of Python's module `operator` makes of two operands.
pub(crate) fn of_two<'py>(
    name: &str,
    left: &Bound<'py, PyAny>,
    right: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let operator = left.py().import("operator")?;
    operator.call_method1(name, (left, right))
}

/// The same in place: what comes of it is in the memory of `left` afterwards, also where the other operand has made something else.
pub(crate) fn in_place<'py>(
    name: &str,
    left: &Bound<'py, PyAny>,
    right: &Bound<'py, PyAny>,
) -> PyResult<()> {
    let made = of_two(name, left, right)?;
    match made.is(left) {
        true => Ok(()),
        false => left.set_item(left.py().Ellipsis(), made),
    }
}

/// The operators of a class. `$view` shows an object to numpy without copying, and is told what for.
macro_rules! as_numpy_does {
    ($class:ty, $view:path) => {
        as_numpy_does! { $class, $view,
            __add__ __radd__ __iadd__ "add",
            __sub__ __rsub__ __isub__ "sub",
            __mul__ __rmul__ __imul__ "mul",
            __truediv__ __rtruediv__ __itruediv__ "truediv",
            __floordiv__ __rfloordiv__ __ifloordiv__ "floordiv",
            __mod__ __rmod__ __imod__ "mod",
            __matmul__ __rmatmul__ __imatmul__ "matmul",
            __lshift__ __rlshift__ __ilshift__ "lshift",
            __rshift__ __rrshift__ __irshift__ "rshift",
            __and__ __rand__ __iand__ "and",
            __or__ __ror__ __ior__ "or",
            __xor__ __rxor__ __ixor__ "xor",
        }
    };
    ($class:ty, $view:path, $($plain:ident $turned:ident $within:ident $name:literal,)*) => {
        #[pymethods]
        impl $class {
            $(
                fn $plain<'py>(
                    slf: &Bound<'py, Self>,
                    other: &Bound<'py, PyAny>,
                ) -> PyResult<Bound<'py, PyAny>> {
                    let name = concat!("__", $name, "__");
                    $crate::operators::of_two(name, &$view(slf, "arithmetic")?, other)
                }

                fn $turned<'py>(
                    slf: &Bound<'py, Self>,
                    other: &Bound<'py, PyAny>,
                ) -> PyResult<Bound<'py, PyAny>> {
                    let name = concat!("__", $name, "__");
                    $crate::operators::of_two(name, other, &$view(slf, "arithmetic")?)
                }

                fn $within(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>) -> PyResult<()> {
                    let name = concat!("__i", $name, "__");
                    $crate::operators::in_place(name, &$view(slf, "arithmetic")?, other)
                }
            )*

            fn __pow__<'py>(
                slf: &Bound<'py, Self>,
                other: &Bound<'py, PyAny>,
                modulo: Option<Bound<'py, PyAny>>,
            ) -> PyResult<Bound<'py, PyAny>> {
                $view(slf, "arithmetic")?.pow(other, modulo)
            }

            fn __rpow__<'py>(
                slf: &Bound<'py, Self>,
                other: &Bound<'py, PyAny>,
                modulo: Option<Bound<'py, PyAny>>,
            ) -> PyResult<Bound<'py, PyAny>> {
                other.pow($view(slf, "arithmetic")?, modulo)
            }

            fn __ipow__(
                slf: &Bound<'_, Self>,
                other: &Bound<'_, PyAny>,
                modulo: Option<Bound<'_, PyAny>>,
            ) -> PyResult<()> {
                // Python never gives one here.
                drop(modulo);
                $crate::operators::in_place("__ipow__", &$view(slf, "arithmetic")?, other)
            }

            fn __divmod__<'py>(
                slf: &Bound<'py, Self>,
                other: &Bound<'py, PyAny>,
            ) -> PyResult<Bound<'py, PyAny>> {
                $view(slf, "arithmetic")?.divmod(other)
            }

            fn __rdivmod__<'py>(
                slf: &Bound<'py, Self>,
                other: &Bound<'py, PyAny>,
            ) -> PyResult<Bound<'py, PyAny>> {
                other.divmod($view(slf, "arithmetic")?)
            }

            fn __pos__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
                $view(slf, "arithmetic")?.pos()
            }

            fn __neg__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
                $view(slf, "arithmetic")?.neg()
            }

            fn __abs__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
                $view(slf, "arithmetic")?.abs()
            }

            fn __invert__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
                $view(slf, "arithmetic")?.bitnot()
            }

            /// Compared element by element, as numpy does.
            fn __richcmp__<'py>(
                slf: &Bound<'py, Self>,
                other: &Bound<'py, PyAny>,
                operator: pyo3::basic::CompareOp,
            ) -> PyResult<Bound<'py, PyAny>> {
                $view(slf, "comparing")?.rich_compare(other, operator)
            }

            /// That of the object, not of its elements.
            fn __hash__(slf: &Bound<'_, Self>) -> usize {
                // Objects lie at multiples of 16.
                slf.as_ptr().addr() >> 4
            }

            fn __bool__(slf: &Bound<'_, Self>) -> PyResult<bool> {
                $view(slf, "the truth value of an array")?.is_truthy()
            }

            fn __int__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
                $view(slf, "the number in an array")?.call_method0("__int__")
            }

            fn __float__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
                $view(slf, "the number in an array")?.call_method0("__float__")
            }

            fn __complex__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
                $view(slf, "the number in an array")?.call_method0("__complex__")
            }
        }
    };
}
pub(crate) use as_numpy_does;
