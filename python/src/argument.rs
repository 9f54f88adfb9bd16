//! What callers pass -> values, or errors that name the argument.
//!
//! Comes in: any Python object. Goes out: the value that a function wants, or an `InvalidArgumentError` that says which argument it is, what it must be, what came, and the
//! corrected text where it is known. Never here: what an argument means.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::path::PathBuf;
use std::time::Duration;

use partgrid::error::Error;
use partgrid::location::Device;
use partgrid::memory::parse_size;
use pyo3::inspect::PyStaticExpr;
use pyo3::prelude::*;
use pyo3::type_hint_union;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyDict, PyFrozenSet, PyInt, PySet, PyString, PyTypeMethods,
};
use pyo3_object_store::AnyObjectStore;

use crate::error::Raised;

/// How many letters of a wrong value an error shows.
const SHOWN: usize = 60;

/// A value that some Python objects stand for.
pub(crate) trait Argument: Sized {
    /// The type in stubs.
    const TYPE: PyStaticExpr;

    /// The value, or what it must be instead.
    fn read(value: &Bound<'_, PyAny>) -> Result<Self, Refusal>;
}

/// Why an object was refused, before the name of the argument is known.
pub(crate) struct Refusal {
    must: String,
    got: String,
    hint: Option<Hint>,
}

enum Hint {
    /// As it stands.
    Text(String),
    /// What should stand behind the name of the argument and `=`.
    Write(String),
}

impl Refusal {
    /// An argument that must `must`, such as "be a text", and is `value`.
    pub(crate) fn new(value: &Bound<'_, PyAny>, must: impl Into<String>) -> Self {
        Self {
            must: must.into(),
            got: shown(value),
            hint: None,
        }
    }

    pub(crate) fn hint(mut self, text: impl Into<String>) -> Self {
        self.hint = Some(Hint::Text(text.into()));
        self
    }

    /// With the corrected value as it would be written.
    pub(crate) fn write(mut self, value: impl Into<String>) -> Self {
        self.hint = Some(Hint::Write(value.into()));
        self
    }

    pub(crate) fn named(self, name: &str) -> Error {
        let error = Error::invalid_argument(format!("{name} must {}, got {}", self.must, self.got));
        match self.hint {
            Some(Hint::Text(text)) => error.with_hint(text),
            Some(Hint::Write(value)) => error.with_hint(format!("{name}={value}")),
            None => error,
        }
    }
}

/// The beginning of an object's repr, on one line.
pub(crate) fn shown(value: &Bound<'_, PyAny>) -> String {
    let class = || value.get_type().name().map(|name| format!("a {name}"));
    let text = value.repr().map(|text| text.to_string());
    let text = text.or_else(|_| class()).unwrap_or_default();
    let mut letters = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = letters.char_indices().nth(SHOWN) {
        letters.truncate(end);
        letters.push('…');
    }
    letters
}

/// An argument whose check waits until its name is known, since PyO3 does not tell it.
pub(crate) struct Given<T>(Result<T, Box<Refusal>>);

impl<'py, T: Argument> FromPyObject<'_, 'py> for Given<T> {
    type Error = PyErr;

    const INPUT_TYPE: PyStaticExpr = T::TYPE;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        Ok(Self(T::read(&object).map_err(Box::new)))
    }
}

impl<T> Given<T> {
    /// The value of the argument `name`.
    pub(crate) fn named(self, name: &str) -> Result<T, Error> {
        self.0.map_err(|refusal| refusal.named(name))
    }
}

/// An argument that is read where it is wanted, as it was passed until then.
pub(crate) struct Later<'py, T> {
    object: Bound<'py, PyAny>,
    kind: PhantomData<T>,
}

impl<'py, T: Argument> FromPyObject<'_, 'py> for Later<'py, T> {
    type Error = PyErr;

    const INPUT_TYPE: PyStaticExpr = T::TYPE;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        Ok(Self {
            object: object.to_owned(),
            kind: PhantomData,
        })
    }
}

impl<'py, T: Argument> Later<'py, T> {
    /// What was passed.
    pub(crate) fn object(&self) -> &Bound<'py, PyAny> {
        &self.object
    }

    /// The value of the argument `name`.
    pub(crate) fn named(&self, name: &str) -> Result<T, Error> {
        T::read(&self.object).map_err(|refusal| refusal.named(name))
    }
}

/// The value of the argument `name`, if it was given.
pub(crate) fn optional<T>(given: Option<Given<T>>, name: &str) -> Result<Option<T>, Error> {
    given.map(|given| given.named(name)).transpose()
}

/// Readers of arguments with a default, for `from_py_with`: PyO3 takes the default as a value of the plain type.
macro_rules! with_default {
    ($($name:ident: $type:ty),+ $(,)?) => {
        $(pub(crate) fn $name(value: &Bound<'_, PyAny>) -> PyResult<$type> {
            let read = <$type as Argument>::read(value);
            read.map_err(|refusal| Raised::from(refusal.named(stringify!($name))).into())
        })+
    };
}

with_default!(
    hive_partitioning: bool,
    lazy: bool,
    file_per_tile: bool,
    overwrite: bool,
    analyze: bool,
    volatile: bool,
    insecure: bool,
    column_band: usize,
    rows: usize,
);

pub(crate) fn schema_evolution<'a>(value: &'a Bound<'_, PyAny>) -> PyResult<&'a str> {
    let refused = |_| Refusal::new(value, "be \"strict\", \"union\" or \"widen\"");
    let text = value.extract::<&str>().map_err(refused);
    text.map_err(|refusal| Raised::from(refusal.named("schema_evolution")).into())
}

/// `None` is `"none"`.
pub(crate) fn compression<'a>(value: &'a Bound<'_, PyAny>) -> PyResult<&'a str> {
    if value.is_none() {
        return Ok("none");
    }
    let refused = |_| Refusal::new(value, "be the name of a codec, such as \"zstd\", or None");
    let text = value.extract::<&str>().map_err(refused);
    text.map_err(|refusal| Raised::from(refusal.named("compression")).into())
}

/// The parts of a list, tuple, array or another object with a length and an order; none of texts, mappings and sets.
pub(crate) fn items<'py>(value: &Bound<'py, PyAny>) -> Option<Vec<Bound<'py, PyAny>>> {
    let other = value.is_instance_of::<PyString>()
        || value.is_instance_of::<PyBytes>()
        || value.is_instance_of::<PyByteArray>()
        || value.is_instance_of::<PyDict>()
        || value.is_instance_of::<PySet>()
        || value.is_instance_of::<PyFrozenSet>();
    if other || value.len().is_err() {
        return None;
    }
    value.try_iter().ok()?.collect::<PyResult<_>>().ok()
}

/// The text of a `str`.
pub(crate) fn text(value: &Bound<'_, PyAny>) -> Option<String> {
    value.extract::<String>().ok()
}

/// Texts, if all parts are some.
pub(crate) fn texts(value: &Bound<'_, PyAny>) -> Option<Vec<String>> {
    items(value)?.iter().map(text).collect()
}

impl Argument for String {
    const TYPE: PyStaticExpr = <String as FromPyObject<'_, '_>>::INPUT_TYPE;

    fn read(value: &Bound<'_, PyAny>) -> Result<Self, Refusal> {
        text(value).ok_or_else(|| Refusal::new(value, "be a text"))
    }
}

impl Argument for bool {
    const TYPE: PyStaticExpr = <bool as FromPyObject<'_, '_>>::INPUT_TYPE;

    fn read(value: &Bound<'_, PyAny>) -> Result<Self, Refusal> {
        let read = value.extract();
        read.map_err(|_| Refusal::new(value, "be True or False"))
    }
}

/// Two whole numbers, as DLPack has versions and devices.
macro_rules! pair {
    ($($part:ty),+) => {
        $(impl Argument for ($part, $part) {
            const TYPE: PyStaticExpr = <Self as FromPyObject<'_, '_>>::INPUT_TYPE;

            fn read(value: &Bound<'_, PyAny>) -> Result<Self, Refusal> {
                let refused = || Refusal::new(value, "be two whole numbers").write("(1, 0)");
                let parts = items(value).ok_or_else(refused)?;
                let parts = parts.iter().map(|part| part.extract().ok());
                match parts.collect::<Option<Vec<$part>>>().as_deref() {
                    Some([first, second]) => Ok((*first, *second)),
                    _ => Err(refused()),
                }
            }
        })+
    };
}

pair!(i32, u32);

impl Argument for Device {
    const TYPE: PyStaticExpr = <String as FromPyObject<'_, '_>>::INPUT_TYPE;

    fn read(value: &Bound<'_, PyAny>) -> Result<Self, Refusal> {
        let text: Option<String> = value.extract().ok();
        let device = text.as_deref().and_then(|text| text.parse().ok());
        device.ok_or_else(|| {
            let refusal = Refusal::new(value, "be a device such as 'kDLCPU' or 'kDLCUDA:0'");
            match text
                .as_deref()
                .map(|text| text.split_once(':').unwrap_or((text, "0")))
            {
                Some(("cpu", _)) => refusal.write("'kDLCPU'"),
                Some(("cuda" | "gpu", ordinal)) => refusal.write(format!("'kDLCUDA:{ordinal}'")),
                _ => refusal,
            }
        })
    }
}

/// A path of this machine, on which `~` at the beginning is the folder of the user.
impl Argument for PathBuf {
    const TYPE: PyStaticExpr = <PathBuf as FromPyObject<'_, '_>>::INPUT_TYPE;

    fn read(value: &Bound<'_, PyAny>) -> Result<Self, Refusal> {
        let read = value.extract().map(of_user);
        read.map_err(|_| Refusal::new(value, "be a path"))
    }
}

/// A path with `~` at its beginning as the folder of the user, as shells write it out.
pub(crate) fn of_user(path: PathBuf) -> PathBuf {
    match (path.strip_prefix("~"), std::env::home_dir()) {
        (Ok(below), Some(home)) => home.join(below),
        _ => path,
    }
}

/// A dict, whose keys and values are read where it is known what they are.
impl Argument for Py<PyDict> {
    const TYPE: PyStaticExpr = <Py<PyDict> as FromPyObject<'_, '_>>::INPUT_TYPE;

    fn read(value: &Bound<'_, PyAny>) -> Result<Self, Refusal> {
        match value.cast::<PyDict>() {
            Ok(dict) => Ok(dict.clone().unbind()),
            Err(_) => Err(Refusal::new(value, "be a dict")),
        }
    }
}

/// A list of names.
impl Argument for Vec<String> {
    const TYPE: PyStaticExpr = <Vec<String> as FromPyObject<'_, '_>>::INPUT_TYPE;

    fn read(value: &Bound<'_, PyAny>) -> Result<Self, Refusal> {
        texts(value).ok_or_else(|| {
            let refusal = Refusal::new(value, "be a list of names");
            match text(value) {
                Some(name) => refusal.write(format!("[{name:?}]")),
                None => refusal,
            }
        })
    }
}

/// A count of something.
pub(crate) struct Count(pub(crate) u64);

impl Argument for Count {
    const TYPE: PyStaticExpr = <u64 as FromPyObject<'_, '_>>::INPUT_TYPE;

    /// Zero is for the core to refuse.
    fn read(value: &Bound<'_, PyAny>) -> Result<Self, Refusal> {
        whole(value, 1, "be a whole number").map(Self)
    }
}

/// A number that counts from 0.
impl Argument for usize {
    const TYPE: PyStaticExpr = <usize as FromPyObject<'_, '_>>::INPUT_TYPE;

    fn read(value: &Bound<'_, PyAny>) -> Result<Self, Refusal> {
        let number = whole(value, 0, "be a whole number")?;
        usize::try_from(number).map_err(|_| Refusal::new(value, "fit a machine word"))
    }
}

/// A whole number that is not negative; an error says that it must be at least `least`, or what it must be at all. Truth values are no numbers.
pub(crate) fn whole(value: &Bound<'_, PyAny>, least: u64, must: &str) -> Result<u64, Refusal> {
    if value.is_instance_of::<PyBool>() {
        return Err(Refusal::new(value, must));
    }
    match value.extract::<i64>() {
        Ok(number) => {
            u64::try_from(number).map_err(|_| Refusal::new(value, format!("be at least {least}")))
        }
        Err(_) if !value.is_instance_of::<PyInt>() => Err(Refusal::new(value, must)),
        Err(_) if value.lt(0).unwrap_or(false) => {
            Err(Refusal::new(value, format!("be at least {least}")))
        }
        Err(_) => Err(Refusal::new(value, format!("be at most {}", i64::MAX))),
    }
}

/// How many members are to have something; zero is for the core to refuse.
pub(crate) fn replicas(value: &Bound<'_, PyAny>) -> PyResult<usize> {
    let read = whole(value, 1, "be a whole number");
    let number = read.map_err(|refusal| Raised::from(refusal.named("replicas")))?;
    Ok(usize::try_from(number).unwrap_or(usize::MAX))
}

/// Bytes, or a text such as `512MB`.
pub(crate) struct Size(pub(crate) u64);

impl Argument for Size {
    const TYPE: PyStaticExpr = type_hint_union!(Count::TYPE, String::TYPE);

    fn read(value: &Bound<'_, PyAny>) -> Result<Self, Refusal> {
        let must = "be bytes as a whole number, or a text such as \"512MB\"";
        let Some(size) = text(value) else {
            return whole(value, 1, must).map(Self);
        };
        parse_size(&size)
            .map(|bytes| Self(bytes as u64))
            .map_err(|error| {
                // The part between what it is about and what came.
                let said = error.message().strip_prefix("a size must ");
                let said = said.and_then(|said| said.split_once(", got "));
                Refusal::new(value, said.map_or(must, |(must, _)| must))
            })
    }
}

/// A time limit.
pub(crate) struct Seconds {
    /// As it was given.
    pub(crate) number: f64,
    /// `None` for infinity.
    pub(crate) limit: Option<Duration>,
}

impl Argument for Seconds {
    const TYPE: PyStaticExpr = <f64 as FromPyObject<'_, '_>>::INPUT_TYPE;

    fn read(value: &Bound<'_, PyAny>) -> Result<Self, Refusal> {
        let refused = || Refusal::new(value, "be seconds from now");
        if value.is_instance_of::<PyBool>() {
            return Err(refused());
        }
        let number: f64 = value.extract().map_err(|_| refused())?;
        let limit = if number == f64::INFINITY {
            None
        } else {
            Some(Duration::try_from_secs_f64(number).map_err(|_| refused())?)
        };
        Ok(Self { number, limit })
    }
}

/// Settings of a store.
pub(crate) type Settings = HashMap<String, String>;

impl Argument for Settings {
    const TYPE: PyStaticExpr = <Settings as FromPyObject<'_, '_>>::INPUT_TYPE;

    /// Values may be secret: errors show their types only.
    fn read(value: &Bound<'_, PyAny>) -> Result<Self, Refusal> {
        let refused = |got: &Bound<'_, PyAny>, of: String| Refusal {
            must: "be a dict of texts".to_owned(),
            got: match got.get_type().name() {
                Ok(class) => format!("a value of type {class}{of}"),
                Err(_) => String::new(),
            },
            hint: None,
        };
        let Ok(pairs) = value.cast::<PyDict>() else {
            return Err(refused(value, String::new()));
        };
        let mut settings = HashMap::new();
        for (key, setting) in pairs {
            let Some(key) = text(&key) else {
                return Err(refused(&key, " as a key".to_owned()));
            };
            let Some(setting) = text(&setting) else {
                let refusal = refused(&setting, format!(" for {key:?}"));
                return Err(
                    refusal.hint("write numbers and truth values as texts: \"30\", \"true\"")
                );
            };
            settings.insert(key, setting);
        }
        Ok(settings)
    }
}

impl Argument for AnyObjectStore {
    const TYPE: PyStaticExpr = <AnyObjectStore as FromPyObject<'_, '_>>::INPUT_TYPE;

    fn read(value: &Bound<'_, PyAny>) -> Result<Self, Refusal> {
        value.extract().map_err(|_| {
            let refusal = Refusal::new(value, "be a store built with obstore");
            match text(value) {
                Some(_) => refusal.hint(
                    "a URL goes before the other arguments, its settings into storage_options",
                ),
                None => refusal,
            }
        })
    }
}
