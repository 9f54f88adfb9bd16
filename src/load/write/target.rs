//! Where files are written: a local folder, or a prefix of an object store.
//!
//! Comes in: names and contents. Goes out: files that are there whole or not at all. Locally all at once (`local.rs`). In a store: one upload, or parts that are put together at the
//! end; what a failed call has written is taken away again, and files that are replaced are there until all others are. Never here: what is in the files.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use object_store::path::{Path as ObjectPath, PathPart};
use object_store::{ObjectStoreExt, PutPayload, WriteMultipart};
use tokio::runtime::Handle;

use super::local::LocalOutput;
use crate::error::{Error, Result};
use crate::load::error::blocking;
use crate::load::options::LoadOptions;
use crate::load::source::{Remote, Target, data_files_below, target_of};

/// Larger files are sent in parts of this size.
const PART_BYTES: usize = 8 << 20;
/// Parts of one file that are under way.
const PARTS_AT_ONCE: usize = 4;

/// The files of one call.
pub(super) struct Output {
    files: Files,
    /// As messages name it.
    name: String,
    /// What is written, below the folder.
    paths: HashSet<String>,
}

enum Files {
    Local(Arc<Mutex<LocalOutput>>),
    Remote(RemoteFiles),
}

struct RemoteFiles {
    remote: Arc<Remote>,
    prefix: ObjectPath,
    /// Data files that were there before, when they are to be replaced.
    old: Vec<String>,
    /// What the names of files have that replace others: those are there until the end, whatever happens until then.
    mark: Option<String>,
    /// What must be taken away unless all is written.
    done: Vec<ObjectPath>,
    /// As messages name it.
    name: String,
    /// Takes the files away where the call itself is given up.
    runtime: Handle,
}

impl Output {
    /// Opens a folder or prefix. With data files in it, only to replace them.
    pub(super) async fn open(url: &str, overwrite: bool, options: &LoadOptions) -> Result<Self> {
        let target = target_of(url, options)?;
        let old = data_files_below(&target, url).await?;
        if !overwrite && let Some(first) = old.first() {
            return Err(Error::invalid_argument(format!(
                "the folder holds {} data files already, such as {first}",
                old.len()
            ))
            .with_file(url)
            .with_hint("overwrite=True (`--overwrite`) replaces them"));
        }
        let above = match &target {
            Target::Local(folder) => folder.to_string_lossy().into_owned(),
            Target::Remote { prefix, .. } => prefix.to_string(),
        };
        if let Some(other) = old.iter().find(|name| !is_own(name, &above)) {
            return Err(Error::invalid_argument(format!(
                "the folder holds a data file that is no part-….parquet in it or in its folders `name=value`, and will not be replaced: {other}"
            ))
            .with_file(url)
            .with_hint("choose another folder, or move the file"));
        }
        let files = match target {
            Target::Local(folder) => {
                let old = old.into_iter().map(PathBuf::from).collect();
                let opened = blocking(move || LocalOutput::open(&folder, old)).await?;
                Files::Local(Arc::new(Mutex::new(opened)))
            }
            Target::Remote { remote, prefix } => Files::Remote(RemoteFiles {
                remote,
                prefix,
                mark: if old.is_empty() { None } else { Some(mark()?) },
                old,
                done: Vec::new(),
                name: url.to_owned(),
                runtime: Handle::current(),
            }),
        };
        Ok(Self {
            files,
            name: url.to_owned(),
            paths: HashSet::new(),
        })
    }

    /// Writes one file; `path` is below the folder.
    pub(super) async fn write(&mut self, path: &str, content: Bytes) -> Result<()> {
        if !self.paths.insert(path.to_owned()) {
            let text = format!("two files would have the same name: {path}");
            return Err(Error::internal(text).with_file(&self.name));
        }
        match &mut self.files {
            Files::Local(files) => {
                let (files, path) = (Arc::clone(files), path.to_owned());
                blocking(move || {
                    let mut files = files.lock().unwrap_or_else(PoisonError::into_inner);
                    files.write(&path, &content)
                })
                .await
            }
            Files::Remote(files) => {
                let place = files.place(path)?;
                // Noted first: a failed upload may have left something.
                files.done.push(place.clone());
                upload(&files.remote, &place, content, &self.name).await
            }
        }
    }

    /// Makes all files visible, and takes away those that they replace.
    pub(super) async fn commit(self) -> Result<()> {
        match self.files {
            Files::Local(files) => blocking(move || alone(files)?.publish()).await,
            Files::Remote(mut files) => {
                files.done.clear();
                for name in std::mem::take(&mut files.old) {
                    files.remove(&name).await?;
                }
                Ok(())
            }
        }
    }

    /// Takes away what was written. Best effort: the error that led here matters more.
    pub(super) async fn abort(self) {
        match self.files {
            Files::Local(files) => {
                drop(blocking(move || alone(files).map(LocalOutput::discard)).await);
            }
            Files::Remote(mut files) => {
                for place in std::mem::take(&mut files.done) {
                    drop(files.remove(place.as_ref()).await);
                }
            }
        }
    }
}

/// The files when no write is under way any more.
fn alone(files: Arc<Mutex<LocalOutput>>) -> Result<LocalOutput> {
    let files =
        Arc::into_inner(files).ok_or_else(|| Error::internal("a file is still being written"))?;
    Ok(files.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Whether a call like this one may have written a file, so that it may be taken away: it lies in the folder or in those of `key=value` below it.
fn is_own(name: &str, above: &str) -> bool {
    let (folders, last) = name.rsplit_once('/').unwrap_or(("", name));
    // A link leads to a folder of another name: how deep a file lies there is not known.
    let folders = folders.strip_prefix(above).unwrap_or_default();
    let mut folders = folders.split('/').filter(|folder| !folder.is_empty());
    last.starts_with("part-")
        && last.ends_with(".parquet")
        && folders.all(|folder| folder.contains('='))
}

/// Eight letters that no other call has.
fn mark() -> Result<String> {
    let mut bytes = [0; 4];
    getrandom::fill(&mut bytes).map_err(|error| {
        Error::internal("the system gives no random numbers").with_source(error)
    })?;
    Ok(format!("{:08x}", u32::from_le_bytes(bytes)))
}

impl RemoteFiles {
    /// The place of a file below the prefix.
    fn place(&self, path: &str) -> Result<ObjectPath> {
        let marked = match (&self.mark, path.strip_suffix(".parquet")) {
            (Some(mark), Some(stem)) => format!("{stem}-{mark}.parquet"),
            _ => path.to_owned(),
        };
        // Folders of values have the names that local ones have.
        let below = marked.split('/').map(PathPart::parse);
        let below: Vec<PathPart<'_>> =
            below
                .collect::<std::result::Result<_, _>>()
                .map_err(|error| {
                    let text = format!("a name that no file in a store may have: {path}");
                    Error::internal(text)
                        .with_file(&self.name)
                        .with_source(error)
                })?;
        Ok(self.prefix.parts().chain(below).collect())
    }

    async fn remove(&self, path: &str) -> Result<()> {
        let path = ObjectPath::parse(path)
            .map_err(|error| Error::internal("a written path is no path").with_source(error))?;
        let gone = self.remote.store.delete(&path).await;
        gone.map_err(|error| self.remote.error(error, &self.name))
    }
}

impl Drop for RemoteFiles {
    fn drop(&mut self) {
        let done = std::mem::take(&mut self.done);
        if done.is_empty() {
            return;
        }
        let remote = Arc::clone(&self.remote);
        self.runtime.spawn(async move {
            for place in done {
                // Best effort: nobody waits for it any more.
                drop(remote.store.delete(&place).await);
            }
        });
    }
}

async fn upload(
    remote: &Arc<Remote>,
    place: &ObjectPath,
    content: Bytes,
    name: &str,
) -> Result<()> {
    let failed = |error| remote.error(error, &format!("{name}: {place}"));
    if content.len() <= PART_BYTES {
        let put = remote.store.put(place, PutPayload::from(content)).await;
        return put.map(drop).map_err(failed);
    }
    let upload = remote.store.put_multipart(place).await.map_err(failed)?;
    let mut upload = WriteMultipart::new_with_chunk_size(upload, PART_BYTES);
    for start in (0..content.len()).step_by(PART_BYTES) {
        if let Err(error) = upload.wait_for_capacity(PARTS_AT_ONCE).await {
            // The parts that are there are of no use; what comes of this does not matter.
            drop(upload.abort().await);
            return Err(failed(error));
        }
        upload.put(content.slice(start..content.len().min(start + PART_BYTES)));
    }
    upload.finish().await.map(drop).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::is_own;

    #[test]
    fn files_of_other_sets_are_no_own_ones() {
        for (above, name, own) in [
            ("lake", "lake/part-00000.parquet", true),
            ("lake", "lake/a=1/b=x/part-00000-1f0c22d8.parquet", true),
            ("lake", "lake/other/part-00000.parquet", false),
            ("lake", "lake/data.parquet", false),
            ("", "part-00000.parquet", true),
            ("", "a=1/part-00000.parquet", true),
            ("", "other/part-00000.parquet", false),
            ("/data/lake", "/data/lake/other/part-0.parquet", false),
            ("/link", "/data/lake/part-0.parquet", true),
        ] {
            assert_eq!(is_own(name, above), own, "{name} below {above:?}");
        }
    }
}
