//! Copy engines that are written in Python.
//!
//! Comes in: an object with `read`, `write` and `wait`. Goes out: an engine of the core, which calls it from any thread. What it raises is raised as it is. Never here: devices by name.

use std::fmt;
use std::sync::Arc;

use partgrid::device::{CopyEngine, DeviceBuffer, Event, register_copy_engine as register};
use partgrid::error::{Error, ErrorKind, Result};
use partgrid::location::Device;
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};

use crate::argument::{Given, shown};
use crate::error::Outcome;
use crate::runtime::{Shared, called};

/// The methods that an engine must have.
const METHODS: [&str; 3] = ["read", "write", "wait"];

/// Lets tiles be copied to and from devices of one type, by an object that uses the driver of the device. CUDA needs none: `to("kDLCUDA:0")` uses the driver that it finds.
///
/// `engine` has three methods, which are called from any thread. A handle is the integer that stands in the buffer pointers of Arrow C Device arrays and in DLPack tensors of that device: an
/// address, or an object of the driver (a `cl_mem` of OpenCL).
///
/// - `read(ordinal, handle, start, nbytes)` gives the bytes of a buffer from byte `start` on, as any object with the buffer protocol, when they are there.
/// - `write(ordinal, data)` copies `bytes` into a new buffer and gives `(handle, owner)`; the buffer may be freed when `owner` is dropped.
/// - `wait(ordinal, event)` returns when the work behind a `sync_event` is done: the address at which an event of the driver is (a `cl_event *` of OpenCL), as the producer of an array gave it.
///
/// Args:
///     device: The type of device, such as `"kDLOpenCL"`.
///     engine: The object, in place of one that the type had.
///
/// Raises:
///     InvalidArgumentError: There is no such type, it is read without an engine, or `engine` lacks a method.
///
/// Examples:
///     >>> import partgrid as pg, pyarrow as pa
///     >>> class Cards:
///     ...     # A device whose memory is a dict.
///     ...     buffers = {}
///     ...     def read(self, ordinal, handle, start, nbytes): return self.buffers[handle][start : start + nbytes]
///     ...     def write(self, ordinal, data):
///     ...         self.buffers[len(self.buffers) + 1] = data
///     ...         return len(self.buffers), None
///     ...     def wait(self, ordinal, event): pass
///     >>> pg.register_copy_engine("kDLExtDev", Cards())
///     >>> grid = pg.from_arrow(pa.table({"n": [1, 2, 3]})).to("kDLExtDev:0")
///     >>> grid.tile(0).location[0][2], grid.to("kDLCPU").to_arrow()["n"].to_pylist()
///     ('kDLExtDev:0', [1, 2, 3])
#[pyfunction]
pub(crate) fn register_copy_engine(
    device: Given<Device>,
    engine: &Bound<'_, PyAny>,
) -> Outcome<()> {
    let device = device.named("device")?;
    for method in METHODS {
        if !engine
            .getattr_opt(method)?
            .is_some_and(|found| found.is_callable())
        {
            let class = engine.get_type().qualname()?;
            return Err(Error::invalid_argument(format!(
                "engine must have the methods {}; {class} has no {method}",
                METHODS.join(", ")
            ))
            .into());
        }
    }
    let engine = Engine(Shared::new(engine.clone().unbind()));
    Ok(register(device, Arc::new(engine))?)
}

struct Engine(Shared);

impl fmt::Debug for Engine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Engine").finish_non_exhaustive()
    }
}

impl CopyEngine for Engine {
    fn wait(&self, ordinal: u32, event: Event) -> Result<()> {
        called(|py| {
            self.0.bind(py).call_method1("wait", (ordinal, event.0))?;
            Ok(())
        })
    }

    fn read(&self, ordinal: u32, handle: usize, start: usize, out: &mut [u8]) -> Result<()> {
        called(|py| {
            let arguments = (ordinal, handle, start, out.len());
            let bytes = self.0.bind(py).call_method1("read", arguments)?;
            let Ok(view) = PyMemoryView::from(&bytes) else {
                let text = format!("the engine's read must give bytes, got {}", shown(&bytes));
                return Err(Error::new(ErrorKind::InvalidData, text).into());
            };
            let view = PyBuffer::<u8>::get(&view.call_method1("cast", ("B",))?)?;
            if view.len_bytes() != out.len() {
                let text = format!(
                    "the engine's read must give {} bytes, got {}",
                    out.len(),
                    view.len_bytes()
                );
                return Err(Error::new(ErrorKind::InvalidData, text).into());
            }
            Ok(view.copy_to_slice(py, out)?)
        })
    }

    fn write(&self, ordinal: u32, bytes: &[u8]) -> Result<DeviceBuffer> {
        called(|py| {
            let made = self
                .0
                .bind(py)
                .call_method1("write", (ordinal, PyBytes::new(py, bytes)))?;
            let (handle, owner) = match made.extract::<(usize, Py<PyAny>)>() {
                Ok((handle, owner)) if handle != 0 => (handle, owner),
                _ => {
                    let text = format!(
                        "the engine's write must give a handle, an integer from 1 on, and who owns the buffer, got {}",
                        shown(&made)
                    );
                    return Err(Error::new(ErrorKind::InvalidData, text).into());
                }
            };
            Ok(DeviceBuffer::new(
                handle,
                bytes.len(),
                Box::new(Shared::new(owner)),
            ))
        })
    }
}
