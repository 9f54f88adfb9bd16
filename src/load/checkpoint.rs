//! Finished tiles in a folder, so that the same load can go on after its process ended.
//!
//! Comes in: the folder, finished tiles. Goes out: those that an earlier load left there and that are still what this load would read. A tile's file is named after
//! everything that decides what is in it: the source file with its stamp, the rows, columns, types, filters. So no list of tiles has to be kept, a file appears in one step
//! (rename), and a changed source file has no tile. Never here: reading of sources.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::hash::Hasher;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use arrow::array::RecordBatch;
use arrow::buffer::{Buffer, MutableBuffer};
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use rustix::fs::OFlags;
use twox_hash::XxHash64;

use super::bands::Band;
use super::filter::FilterCondition;
use super::layout::{Plan, ReadTask};
use super::spill::write_failed;
use crate::error::{Error, ErrorKind, Result};
use crate::share::ipc;

/// Another layout of these files must have another number.
const LAYOUT: u32 = 1;

/// The name under which a file's footer holds what decides its content.
const KEY: &str = "partgrid.tile";

const LOCK_NAME: &str = ".partgrid-lock";
/// Holds the size of the tiles, where the user has not given their rows.
const TILE_BYTES_NAME: &str = ".partgrid-tile-bytes";
const ENDING: &str = "tile";

/// The last bytes of a file: the checksum of all before.
const CHECKSUM_BYTES: usize = size_of::<u64>();

/// The folder of one load.
#[derive(Debug)]
pub(super) struct Checkpoint {
    folder: PathBuf,
    /// Held as long as the load runs; the system frees it when the process ends, however it does.
    _lock: File,
    /// What decides the content of all tiles alike.
    wishes: String,
}

/// What one tile's file is called and must say.
#[derive(Debug)]
pub(super) struct TileKey {
    text: String,
    name: String,
}

/// The size of automatic tiles for a load with this folder: that of the tiles in it, so that these fit under a larger memory limit too, or a smaller one that is allowed now.
pub(super) fn tile_bytes(folder: &Path, allowed: u64) -> Result<u64> {
    let failed = |error| write_failed(error, folder, "resume");
    fs::create_dir_all(folder).map_err(failed)?;
    let is_tile = |name: &Path| name.extension().is_some_and(|ending| ending == ENDING);
    let names = fs::read_dir(folder).map_err(failed)?.flatten();
    let has_tiles = names.map(|entry| entry.path()).any(|name| is_tile(&name));
    let place = folder.join(TILE_BYTES_NAME);
    let known = fs::read_to_string(&place).ok();
    let known = known.and_then(|text| text.trim().parse::<u64>().ok());
    let chosen = known.filter(|_| has_tiles).unwrap_or(allowed).min(allowed);
    if known != Some(chosen) {
        let written = writable(&place);
        let written = written.and_then(|mut file| file.write_all(chosen.to_string().as_bytes()));
        written.map_err(failed)?;
    }
    Ok(chosen)
}

/// A file of the folder, empty, to be written. A link in its place is an error: what it leads to is not ours.
fn writable(path: &Path) -> io::Result<File> {
    let no_links = i32::try_from(OFlags::NOFOLLOW.bits()).map_err(io::Error::other)?;
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    options.custom_flags(no_links).open(path)
}

impl Checkpoint {
    /// Takes the folder, which is made if it is not there.
    pub(super) fn open(folder: &Path, filters: &[Vec<FilterCondition>]) -> Result<Self> {
        let failed = |error| write_failed(error, folder, "resume");
        fs::create_dir_all(folder).map_err(failed)?;
        let lock = writable(&folder.join(LOCK_NAME)).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let text = "another load is using the folder";
                let error = Error::invalid_argument(text).with_file(folder.to_string_lossy());
                return Err(error.with_hint("wait for it, or give each load a folder of its own"));
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        Ok(Self {
            folder: folder.to_owned(),
            _lock: lock,
            wishes: format!(
                "layout {LAYOUT} of partgrid {}\nfilters {}",
                env!("CARGO_PKG_VERSION"),
                filters_as_text(filters)?
            ),
        })
    }

    /// What the file of a tile is called; nothing for a source file without a stamp, of which nobody can say whether it is still the same.
    pub(super) fn key(&self, plan: &Plan, task: &ReadTask, band: &Band) -> Option<TileKey> {
        let file = plan.files.get(task.file)?;
        let fields = plan.columns.schema.fields().get(band.columns.clone())?;
        let all = plan.columns.schema.fields().iter();
        // A filter may look at columns of other bands and at columns that the grid does not have.
        let read: Vec<String> = all.map(|field| field.to_string()).collect();
        let columns: Vec<String> = fields.iter().map(ToString::to_string).collect();
        let of_file = format!(
            "{}\nfile {:?}\nread {}\ncolumns {} dense {}",
            self.wishes,
            file.name,
            if plan.filter.is_some() {
                read.join(", ")
            } else {
                String::new()
            },
            columns.join(", "),
            band.dense
        );
        let text = format!(
            "{of_file}\nstamp {} size {} row groups {:?} from row {} rows {}",
            file.stamp.as_ref()?,
            file.size_bytes,
            task.row_groups,
            task.skip_rows,
            task.num_rows
        );
        let name = format!("{:016x}-{:016x}.{ENDING}", hash(&of_file), hash(&text));
        Some(TileKey { text, name })
    }

    /// Leaves a finished tile in the folder.
    pub(super) fn save(&self, key: &TileKey, batch: &RecordBatch) -> Result<()> {
        let failed = |error| write_failed(error, &self.folder, "resume");
        // The lock keeps others from writing under the same name.
        let unfinished = self.folder.join(format!(".{}", key.name));
        let file = writable(&unfinished).map_err(failed)?;
        let mut sink = Summed {
            sink: BufWriter::new(file),
            sum: XxHash64::with_seed(0),
        };
        ipc::write(batch, &[(KEY, &key.text)], &mut sink).map_err(|error| match error {
            ArrowError::IoError(_, error) => failed(error),
            other => Error::from(other),
        })?;
        sink.finish().map_err(failed)?;
        fs::rename(&unfinished, self.folder.join(&key.name)).map_err(failed)
    }

    /// How large the file of a tile is, if there is one.
    pub(super) fn size_bytes(&self, key: &TileKey) -> Option<u64> {
        let metadata = fs::metadata(self.folder.join(&key.name)).ok()?;
        Some(metadata.len())
    }

    /// The tile, if it is there and whole.
    pub(super) fn load(&self, key: &TileKey) -> Result<Option<RecordBatch>> {
        let path = self.folder.join(&key.name);
        let bytes = match read_whole(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                let kind = ErrorKind::Storage { retryable: true };
                let text = format!("a tile of an earlier load could not be read: {error}");
                return Err(Error::new(kind, text)
                    .with_file(path.to_string_lossy())
                    .with_source(error));
            }
        };
        // A file that is torn or that another version wrote is read anew from its source.
        Ok(checked(&bytes).and_then(|file| {
            let (batch, metadata) = ipc::read(&file).ok()?;
            (metadata.get(KEY) == Some(&key.text)).then_some(batch)
        }))
    }

    /// Takes away what is left of source files that have changed since: tiles of the same files and wishes as `used`, but not among them.
    pub(super) fn tidy(&self, used: &[TileKey]) -> Result<()> {
        let failed = |error| write_failed(error, &self.folder, "resume");
        let of_file = |name: &str| name.split('-').next().unwrap_or_default().to_owned();
        let files: std::collections::HashSet<String> =
            used.iter().map(|key| of_file(&key.name)).collect();
        let names: std::collections::HashSet<&str> =
            used.iter().map(|key| key.name.as_str()).collect();
        for entry in fs::read_dir(&self.folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let plain = name.trim_start_matches('.');
            let is_tile = Path::new(plain)
                .extension()
                .is_some_and(|end| end == ENDING);
            if is_tile && files.contains(&of_file(plain)) && !names.contains(name.as_str()) {
                fs::remove_file(entry.path()).map_err(failed)?;
            }
        }
        Ok(())
    }
}

fn filters_as_text(filters: &[Vec<FilterCondition>]) -> Result<String> {
    let options = FormatOptions::new();
    let mut text = String::new();
    for group in filters {
        text.push_str("any of: ");
        for condition in group {
            let values = ArrayFormatter::try_new(&condition.values, &options)?;
            let places = 0..condition.values.len();
            let values: Vec<String> = places.map(|at| values.value(at).to_string()).collect();
            text.push_str(&format!(
                "{:?} {:?} {} {values:?}; ",
                condition.column,
                condition.operator,
                condition.values.data_type()
            ));
        }
    }
    Ok(text)
}

fn hash(text: &str) -> u64 {
    XxHash64::oneshot(0, text.as_bytes())
}

/// A file in memory that is aligned as Arrow wants it. A file with a name is not mapped: whoever cuts it short would end the process.
fn read_whole(path: &Path) -> io::Result<Buffer> {
    let mut file = File::open(path)?;
    let length = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
    let mut bytes = MutableBuffer::from_len_zeroed(length);
    io::Read::read_exact(&mut file, bytes.as_slice_mut())?;
    Ok(bytes.into())
}

/// The file without its checksum, if that is right.
fn checked(bytes: &Buffer) -> Option<Buffer> {
    let (content, sum) = bytes.split_last_chunk::<CHECKSUM_BYTES>()?;
    let is_whole = XxHash64::oneshot(0, content) == u64::from_le_bytes(*sum);
    is_whole.then(|| bytes.slice_with_length(0, content.len()))
}

/// Sums up what is written.
struct Summed<W: Write> {
    sink: W,
    sum: XxHash64,
}

impl<W: Write> Summed<W> {
    fn finish(mut self) -> io::Result<()> {
        self.sink.write_all(&self.sum.finish().to_le_bytes())?;
        self.sink.flush()
    }
}

impl<W: Write> Write for Summed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.sink.write(bytes)?;
        self.sum.write(bytes.get(..count).unwrap_or_default());
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array};

    use super::*;

    #[test]
    fn a_tile_with_a_turned_byte_or_without_its_end_is_not_taken() {
        let folder = tempfile::tempdir().unwrap();
        let checkpoint = Checkpoint::open(folder.path(), &[]).unwrap();
        let column: ArrayRef = Arc::new(Int64Array::from_iter(0..100));
        let batch = RecordBatch::try_from_iter([("a", column)]).unwrap();
        let key = TileKey {
            text: "what is in it".to_owned(),
            name: "a-b.tile".to_owned(),
        };
        assert!(checkpoint.load(&key).unwrap().is_none());
        checkpoint.save(&key, &batch).unwrap();
        assert_eq!(checkpoint.load(&key).unwrap(), Some(batch));
        let path = folder.path().join(&key.name);
        let good = fs::read(&path).unwrap();
        for place in 0..good.len() {
            let mut bytes = good.clone();
            bytes[place] ^= 4;
            fs::write(&path, &bytes).unwrap();
            assert!(checkpoint.load(&key).unwrap().is_none(), "byte {place}");
            fs::write(&path, &good[..place]).unwrap();
            assert!(checkpoint.load(&key).unwrap().is_none(), "{place} bytes");
        }
        fs::write(&path, &good).unwrap();
        let other = TileKey {
            text: "something else under the same name".to_owned(),
            name: key.name,
        };
        assert!(checkpoint.load(&other).unwrap().is_none());
    }

    #[test]
    fn a_folder_serves_one_load_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let first = Checkpoint::open(folder.path(), &[]).unwrap();
        let error = Checkpoint::open(folder.path(), &[]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        drop(first);
        Checkpoint::open(folder.path(), &[]).unwrap();
    }
}
