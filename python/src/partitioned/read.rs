//! Somebody else's `__partitioned__` -> a grid.
//!
//! Comes in: an object with `__partitioned__`, or the dictionary. Goes out: a grid over the memory of what its `get` returns. What the numbers mean is checked by
//! `partgrid::partitioned`; here every value is looked at with its path, so that a fault can be found. Never here: trust in what another library's code does.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use partgrid::error::{Error, ErrorKind};
use partgrid::location::{Device, Location};
use partgrid::partitioned::{
    self, Checked, Claim, ClaimedPartition, FrameKeys, Part, entry_path, fault,
};
use pyo3::exceptions::{
    PyAttributeError, PyException, PyKeyboardInterrupt, PyMemoryError, PyRecursionError,
    PySystemExit,
};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyList, PyMapping, PyString, PyTuple};

use super::data::batch_of;
use super::handle::PyHandle;
use crate::argument::{Given, Seconds, optional, shown};
use crate::error::{Outcome, exception};
use crate::grid::PyGrid;
use crate::schema::PySchema;

/// Makes a grid of any object with `__partitioned__`, or of its dictionary.
///
/// The draft of 2022-01-27 and what real libraries do instead are understood: a method in the place of the property, also the first draft's `__partitioned_interface__`; a `location` that is a rank, an address or a name, with or without a
/// list; no `get`; a `get` that takes one handle only, or sequences only; data that is a frame or an array of any library (Arrow PyCapsules, pandas, numpy, DLPack). Every number is
/// checked, also against the data. Of an SPMD program (a dictionary with `locals`) the local partitions are opened, the others keep their outline and location.
///
/// Args:
///     data: The object or the dictionary.
///     names: The names of the columns; by default those of the data, and `column_0` and so on for arrays.
///     timeout: Seconds that `get` may take; without it as long as it takes.
///
/// Returns:
///     A grid over the memory of the data. Copied are: partitions that are streams of several batches, and arrays of rows (C order), whose columns do not lie in one piece.
///
/// Raises:
///     ProtocolError: The dictionary is wrong, its data is not what it says, or `get` failed or took too long; the text has the path, such as `partitions[(1, 0)].start`.
///     UnsupportedError: More than two dimensions.
///
/// Examples:
///     >>> import partgrid as pg, pyarrow as pa
///     >>> grid = pg.from_arrow(pa.table({"a": [1, 2, 3]}))
///     >>> pg.from_partitioned(grid.__partitioned__).shape
///     (3, 1)
#[pyfunction]
#[pyo3(signature = (data, *, names=None, timeout=None))]
pub(crate) fn from_partitioned(
    data: &Bound<'_, PyAny>,
    names: Option<Given<Vec<String>>>,
    timeout: Option<Given<Seconds>>,
) -> Outcome<PyGrid> {
    let names = optional(names, "names")?;
    let timeout = optional(timeout, "timeout")?.and_then(|timeout| timeout.limit);
    let (given, first_draft) = dictionary_of(data)?;
    let dictionary = Dictionary::try_new(&given, first_draft)?;
    let checked = partitioned::check(&dictionary.claim)?;
    let parts = dictionary.parts(&checked, timeout)?;
    // Ours has a key for what the draft does not carry.
    let schema = entry_of(&given, "schema")?;
    let schema = schema
        .as_ref()
        .and_then(|schema| schema.cast::<PySchema>().ok());
    let metadata = schema.map(|schema| schema.get().core().metadata().clone());
    let metadata = metadata.unwrap_or_default();
    let keys = FrameKeys {
        names: names.as_deref(),
        metadata,
        locals: dictionary.spmd.then_some(&dictionary.wanted),
    };
    let grid = partitioned::import(&checked, &parts, keys)?;
    Ok(PyGrid::new(grid))
}

/// How many causes of an error are looked at; a chain can be a ring.
const MAX_CAUSES: usize = 10_000;

/// The name that the property of the last draft has, and the method of the first, of July 2021.
const PROPERTY: &str = "__partitioned__";
const METHOD: &str = "__partitioned_interface__";

/// The dictionary of an object, or the object itself if it is one; and whether it is of the first draft.
fn dictionary_of<'py>(data: &Bound<'py, PyAny>) -> Outcome<(Bound<'py, PyMapping>, bool)> {
    for name in [PROPERTY, METHOD] {
        let found = match data.getattr(name) {
            Ok(found) if found.is_callable() => theirs(&format!("{name}()"), found.call0())?,
            Ok(found) => found,
            Err(error) if error.is_instance_of::<PyAttributeError>(data.py()) => continue,
            Err(error) => return theirs(name, Err(error)),
        };
        let class = found.get_type().qualname()?;
        let wrong = |_| fault(name, format!("must be a dictionary, got {class}"));
        let dictionary = found.cast::<PyMapping>().map_err(wrong)?;
        return Ok((dictionary.clone(), name == METHOD));
    }
    let class = data.get_type().qualname()?;
    let wrong = |_| {
        let text = format!("an object with {PROPERTY} or its dictionary was expected, got {class}");
        Error::new(ErrorKind::Protocol, text)
    };
    Ok((data.cast::<PyMapping>().map_err(wrong)?.clone(), false))
}

/// What another library's code did; its exception becomes the cause of ours. Wishes to end the program pass.
fn theirs<T>(path: &str, done: PyResult<T>) -> Outcome<T> {
    done.map_err(|cause| {
        Python::attach(|py| {
            if cause.is_instance_of::<PyKeyboardInterrupt>(py)
                || cause.is_instance_of::<PySystemExit>(py)
            {
                return cause.into();
            }
            let ours = exception(py, &fault(path, format!("raised {cause}")));
            ours.set_cause(py, Some(cause));
            ours.into()
        })
    })
}

/// A dictionary as it was found; numbers are numbers, and all that must be there is there.
struct Dictionary<'py> {
    claim: Claim,
    /// One for each entry of the claim.
    handles: Vec<Bound<'py, PyAny>>,
    locations: Vec<Vec<Location>>,
    /// Whether each entry is to be opened here.
    wanted: Vec<bool>,
    /// Whether there are "locals".
    spmd: bool,
    get: Option<Bound<'py, PyAny>>,
}

impl<'py> Dictionary<'py> {
    fn try_new(dictionary: &Bound<'py, PyMapping>, first_draft: bool) -> Outcome<Self> {
        let shape = numbers("shape", &required(dictionary, "", "shape")?)?;
        let partition_tiling = match first_draft {
            true => Vec::new(),
            false => {
                let name = "partition_tiling";
                numbers(name, &required(dictionary, "", name)?)?
            }
        };
        let entries = required(dictionary, "", "partitions")?;
        let entries = mapping("partitions", &entries)?;
        let mut found = Self {
            claim: Claim {
                shape,
                partition_tiling,
                partitions: Vec::new(),
            },
            handles: Vec::new(),
            locations: Vec::new(),
            wanted: Vec::new(),
            spmd: false,
            get: None,
        };
        for item in theirs("partitions", entries.items())?.iter() {
            let (key, entry): (Bound<'py, PyAny>, Bound<'py, PyAny>) = item.extract()?;
            found.add(&key, &entry)?;
        }
        if first_draft {
            let Claim {
                shape, partitions, ..
            } = found.claim;
            found.claim = Claim::of_grid_shape(shape, partitions);
        }
        found.get = match entry_of(dictionary, "get")? {
            Some(get) if !get.is_callable() => {
                return Err(fault("get", format!("must be callable, got {}", shown(&get))).into());
            }
            get => get,
        };
        match entry_of(dictionary, "locals")? {
            Some(locals) => found.keep_local(&locals)?,
            None => found.wanted = vec![true; found.handles.len()],
        }
        Ok(found)
    }

    fn add(&mut self, key: &Bound<'py, PyAny>, entry: &Bound<'py, PyAny>) -> Outcome<()> {
        let key_path = format!("partitions[{}]", shown(key));
        if !key.is_instance_of::<PyTuple>() {
            let text = format!("the key must be a tuple of integers, got {}", shown(key));
            return Err(fault(&key_path, text).into());
        }
        let position = numbers(&key_path, key)?;
        let path = entry_path(&position);
        let entry = mapping(&path, entry)?;
        let part = |name: &str| required(&entry, &path, name);
        self.claim.partitions.push(ClaimedPartition {
            start: numbers(&format!("{path}.start"), &part("start")?)?,
            shape: numbers(&format!("{path}.shape"), &part("shape")?)?,
            position,
        });
        self.handles.push(part("data")?);
        let path = format!("{path}.location");
        self.locations.push(locations(&path, &part("location")?)?);
        Ok(())
    }

    /// Only the entries at these positions are here.
    fn keep_local(&mut self, locals: &Bound<'py, PyAny>) -> Outcome<()> {
        self.spmd = true;
        self.wanted = vec![false; self.handles.len()];
        let entries = self.claim.partitions.iter().map(|entry| &entry.position);
        let places: HashMap<&Vec<u64>, usize> = entries.zip(0..).collect();
        for (number, position) in elements("locals", locals)?.iter().enumerate() {
            let path = format!("locals[{number}]");
            let place = places.get(&numbers(&path, position)?);
            match place.and_then(|place| self.wanted.get_mut(*place)) {
                Some(wanted) => *wanted = true,
                None => {
                    let text = format!("must be a position of partitions, got {}", shown(position));
                    return Err(fault(&path, text).into());
                }
            }
        }
        Ok(())
    }

    fn path(&self, number: usize) -> String {
        let entry = self.claim.partitions.get(number);
        let position = entry.map(|entry| entry.position.as_slice());
        format!("{}.data", entry_path(position.unwrap_or_default()))
    }

    /// Opens what is wanted, and turns it into batches.
    fn parts(&self, checked: &Checked, timeout: Option<Duration>) -> Outcome<Vec<Part>> {
        let numbers = 0..self.handles.len();
        let wanted: Vec<usize> = numbers
            .filter(|number| self.wanted.get(*number) == Some(&true))
            .collect();
        let mut opened = self.opened(&wanted, timeout)?.into_iter();
        let mut parts = Vec::with_capacity(self.handles.len());
        for (number, locations) in self.locations.iter().enumerate() {
            if self.wanted.get(number) != Some(&true) {
                parts.push(Part::Elsewhere(locations.clone()));
                continue;
            }
            let Some(object) = opened.next() else {
                return Err(Error::internal("an opened partition is missing").into());
            };
            let position = checked.positions.get(number).cloned().unwrap_or_default();
            let columns = checked.geometry.axes().get(1);
            let interval = columns.and_then(|axis| axis.interval(*position.get(1)?));
            let first = interval.map_or(0, |interval| interval.start);
            parts.push(Part::Here(batch_of(&self.path(number), &object, first)?));
        }
        Ok(parts)
    }

    /// The data objects of some entries, in order.
    fn opened(
        &self,
        wanted: &[usize],
        timeout: Option<Duration>,
    ) -> Outcome<Vec<Bound<'py, PyAny>>> {
        let handles = wanted.iter().filter_map(|number| self.handles.get(*number));
        let handles: Vec<Bound<'py, PyAny>> = handles.cloned().collect();
        for (handle, number) in handles.iter().zip(wanted) {
            if handle.is_none() {
                let text = "is None, although the partition should be here";
                return Err(fault(&self.path(*number), text).into());
            }
        }
        // Handles of ours are tiles, whatever `get` would make of them.
        let ours = handles
            .iter()
            .all(|handle| handle.is_instance_of::<PyHandle>());
        let Some(get) = self.get.as_ref().filter(|_| !ours) else {
            return Ok(handles);
        };
        let list = PyList::new(get.py(), &handles)?.into_any();
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        // A list first: whoever moves data moves all of it at once then.
        let of_list = call("get", get, &list, deadline);
        let late = deadline.is_some_and(|deadline| Instant::now() > deadline);
        match of_list {
            Ok(answer) => {
                if let Some(answers) = list_of(&answer, handles.len()) {
                    return Ok(answers);
                }
            }
            Err(error) => {
                let error = PyErr::from(error);
                // A wish to end, an error of a `get` that knows lists, and time that is up are no reason to ask again.
                if late || !takes_one_only(get.py(), &error) {
                    return Err(error.into());
                }
            }
        }
        let each = handles.iter().zip(wanted).map(|(handle, number)| {
            let path = format!("get({})", self.path(*number));
            call(&path, get, handle, deadline)
        });
        each.collect()
    }
}

/// Whether the error of a call with a list may mean that only single handles are taken. Wishes to end the program never do, nor a full stack, however deep it lies.
fn takes_one_only(py: Python<'_>, error: &PyErr) -> bool {
    let ends = |error: &PyErr| {
        !error.is_instance_of::<PyException>(py)
            || error.is_instance_of::<PyRecursionError>(py)
            || error.is_instance_of::<PyMemoryError>(py)
    };
    let causes = std::iter::successors(Some(error.clone_ref(py)), |error| error.cause(py));
    !causes.take(MAX_CAUSES).any(|error| ends(&error))
}

/// The elements of a list or tuple of the right length, none of them `None`.
fn list_of<'py>(answer: &Bound<'py, PyAny>, length: usize) -> Option<Vec<Bound<'py, PyAny>>> {
    if !answer.is_instance_of::<PyList>() && !answer.is_instance_of::<PyTuple>() {
        return None;
    }
    let answers: Vec<Bound<'py, PyAny>> = answer.try_iter().ok()?.collect::<PyResult<_>>().ok()?;
    let whole = answers.len() == length && answers.iter().all(|answer| !answer.is_none());
    whole.then_some(answers)
}

/// Calls another library's code; with a deadline on a thread of its own, which goes on alone when time is up.
fn call<'py>(
    path: &str,
    callable: &Bound<'py, PyAny>,
    argument: &Bound<'py, PyAny>,
    deadline: Option<Instant>,
) -> Outcome<Bound<'py, PyAny>> {
    let py = callable.py();
    let Some(deadline) = deadline else {
        return theirs(path, callable.call1((argument,)));
    };
    let helpers = py.import("partgrid._calls")?;
    let left = deadline.saturating_duration_since(Instant::now());
    let within = helpers.getattr("call_within")?;
    match within.call1((callable, argument, left.as_secs_f64())) {
        Err(error) if error.is_instance(py, &helpers.getattr("Late")?) => {
            let error = fault(path, "took longer than timeout");
            Err(error.with_hint("raise timeout").into())
        }
        done => theirs(path, done),
    }
}

/// The value under a key that must be there.
fn required<'py>(
    dictionary: &Bound<'py, PyMapping>,
    path: &str,
    name: &str,
) -> Outcome<Bound<'py, PyAny>> {
    match entry_of(dictionary, name)? {
        Some(value) => Ok(value),
        None if path.is_empty() => Err(fault(name, "is missing").into()),
        None => Err(fault(&format!("{path}.{name}"), "is missing").into()),
    }
}

fn entry_of<'py>(
    dictionary: &Bound<'py, PyMapping>,
    name: &str,
) -> Outcome<Option<Bound<'py, PyAny>>> {
    if !theirs(name, dictionary.contains(name))? {
        return Ok(None);
    }
    theirs(name, dictionary.get_item(name)).map(Some)
}

fn mapping<'py>(path: &str, value: &Bound<'py, PyAny>) -> Outcome<Bound<'py, PyMapping>> {
    match value.cast::<PyMapping>() {
        Ok(mapping) => Ok(mapping.clone()),
        Err(_) => Err(fault(path, format!("must be a dictionary, got {}", shown(value))).into()),
    }
}

/// A tuple of integers of at least 0; also a list, and integers of other libraries.
fn numbers(path: &str, value: &Bound<'_, PyAny>) -> Outcome<Vec<u64>> {
    let wrong = || {
        fault(
            path,
            format!(
                "must be a tuple of integers of at least 0, got {}",
                shown(value)
            ),
        )
    };
    let elements = elements(path, value).map_err(|_| wrong())?;
    let number = |element: &Bound<'_, PyAny>| {
        if element.is_instance_of::<PyBool>() {
            return None;
        }
        element
            .call_method0("__index__")
            .ok()?
            .extract::<u64>()
            .ok()
    };
    let numbers: Option<Vec<u64>> = elements.iter().map(number).collect();
    Ok(numbers.ok_or_else(wrong)?)
}

/// The elements of a sequence that is neither text nor dictionary.
fn elements<'py>(path: &str, value: &Bound<'py, PyAny>) -> Outcome<Vec<Bound<'py, PyAny>>> {
    let other = value.is_instance_of::<PyString>()
        || value.is_instance_of::<PyBytes>()
        || value.is_instance_of::<PyDict>()
        || value.hasattr("__next__")?;
    let iterated = value.try_iter();
    let elements: PyResult<Vec<_>> = iterated.and_then(Iterator::collect);
    match elements {
        Ok(elements) if !other => Ok(elements),
        _ => Err(fault(path, format!("must be a list, got {}", shown(value))).into()),
    }
}

/// Where a partition is: a list, or one location alone. Ranks, addresses without a process and names say nothing that a grid can keep.
fn locations(path: &str, value: &Bound<'_, PyAny>) -> Outcome<Vec<Location>> {
    let alone = match value.cast::<PyTuple>() {
        // `(IP, PID)` alone, and not a tuple of two locations.
        Ok(tuple) => {
            let kind = |place: usize| tuple.get_item(place).ok();
            let is_text = kind(0).is_some_and(|first| first.is_instance_of::<PyString>());
            let is_number = kind(1).is_some_and(|second| index(&second).is_some());
            is_text && is_number
        }
        Err(_) => value.is_instance_of::<PyString>() || index(value).is_some(),
    };
    if alone {
        return Ok(location(path, value)?.into_iter().collect());
    }
    let mut found = Vec::new();
    for (number, each) in elements(path, value)?.iter().enumerate() {
        found.extend(location(&format!("{path}[{number}]"), each)?);
    }
    Ok(found)
}

/// One location; nothing for a rank, an address or a name alone.
fn location(path: &str, value: &Bound<'_, PyAny>) -> Outcome<Option<Location>> {
    if value.is_instance_of::<PyString>() || index(value).is_some() {
        return Ok(None);
    }
    let wrong = || {
        fault(
            path,
            format!(
                "must be (IP, PID) or (IP, PID, device), a rank, an address or a name, got {}",
                shown(value)
            ),
        )
    };
    let tuple = value.cast::<PyTuple>().map_err(|_| wrong())?;
    if !(2..=3).contains(&tuple.len()) {
        return Err(wrong().into());
    }
    let host: String = tuple.get_item(0)?.extract().map_err(|_| wrong())?;
    let process = index(&tuple.get_item(1)?).ok_or_else(wrong)?;
    let device = match tuple.len() {
        2 => Device::CPU,
        _ => {
            let text: String = tuple.get_item(2)?.extract().map_err(|_| wrong())?;
            let device = text.parse();
            device.map_err(|error: Error| fault(&format!("{path}[2]"), error.message()))?
        }
    };
    let host = host.parse::<IpAddr>().ok();
    Ok(host.map(|host| Location::new(host, process, device)))
}

fn index(value: &Bound<'_, PyAny>) -> Option<u64> {
    if value.is_instance_of::<PyBool>() {
        return None;
    }
    value.call_method0("__index__").ok()?.extract().ok()
}
