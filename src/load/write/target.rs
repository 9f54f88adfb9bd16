//! Where files are written: a local folder, or a prefix of an object store.
//!
//! Comes in: names and contents. Goes out: files that are there whole or not at all. Locally: a temporary name in the same folder, flushed to the disk, renamed when all
//! files are written, the folder flushed. In a store: one upload, or parts that are put together at the end; what a failed call has written is taken away again. Never
//! here: what is in the files.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use object_store::path::Path as ObjectPath;
use object_store::{ObjectStoreExt, PutPayload, WriteMultipart};
use tempfile::NamedTempFile;

use crate::error::{Error, Result};
use crate::load::error::{blocking, from_io};
use crate::load::options::LoadOptions;
use crate::load::source::{Remote, Target, data_files_below, target_of};

/// Larger files are sent in parts of this size.
const PART_BYTES: usize = 8 << 20;
/// Parts of one file that are under way.
const PARTS_AT_ONCE: usize = 4;
/// Before the user's mask.
const FILE_MODE: u32 = 0o666;

/// The files of one call.
pub(super) struct Output {
    target: Target,
    /// As messages name it.
    name: String,
    /// Data files that were there before, when they are to be replaced.
    old: Vec<String>,
    done: Vec<Written>,
}

enum Written {
    /// Not renamed yet.
    Local(NamedTempFile, PathBuf),
    Remote(ObjectPath),
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
        // Only what a call like this one has written may be taken away.
        let is_own = |name: &&String| {
            let last = name.rsplit('/').next().unwrap_or_default();
            last.starts_with("part-") && last.ends_with(".parquet")
        };
        if let Some(other) = old.iter().find(|name| !is_own(name)) {
            return Err(Error::invalid_argument(format!(
                "the folder holds a data file that is no part-….parquet and will not be replaced: {other}"
            ))
            .with_file(url)
            .with_hint("choose another folder, or move the file"));
        }
        Ok(Self {
            target,
            name: url.to_owned(),
            old,
            done: Vec::new(),
        })
    }

    /// Writes one file; `path` is below the folder.
    pub(super) async fn write(&mut self, path: &str, content: Bytes) -> Result<()> {
        let written = match &self.target {
            Target::Local(folder) => {
                let place = folder.join(path);
                blocking(move || write_local(&place, &content)).await?
            }
            Target::Remote { remote, prefix } => {
                let parts = prefix.parts().map(|part| part.as_ref().to_owned());
                let below = path.split('/').map(str::to_owned);
                let place: ObjectPath = parts.chain(below).collect();
                // Noted first: a failed upload may have left something.
                self.done.push(Written::Remote(place.clone()));
                return upload(remote, &place, content, &self.name).await;
            }
        };
        self.done.push(written);
        Ok(())
    }

    /// Makes all files visible, and takes away those that they replace.
    pub(super) async fn commit(mut self) -> Result<()> {
        let mut names = Vec::new();
        let mut temporary = Vec::new();
        for written in std::mem::take(&mut self.done) {
            match written {
                Written::Local(file, place) => {
                    names.push(place.to_string_lossy().into_owned());
                    temporary.push((file, place));
                }
                Written::Remote(place) => names.push(place.to_string()),
            }
        }
        blocking(move || publish(temporary)).await?;
        let old = std::mem::take(&mut self.old);
        let replaced = old.into_iter().filter(|name| !names.contains(name));
        for name in replaced {
            self.remove(&name).await?;
        }
        Ok(())
    }

    /// Takes away what was written. Best effort: the error that led here matters more.
    pub(super) async fn abort(mut self) {
        for written in std::mem::take(&mut self.done) {
            if let Written::Remote(place) = written {
                drop(self.remove(place.as_ref()).await);
            }
        }
    }

    async fn remove(&self, name: &str) -> Result<()> {
        match &self.target {
            Target::Local(_) => {
                let name = name.to_owned();
                blocking(move || fs::remove_file(&name).map_err(|error| from_io(error, &name)))
                    .await
            }
            Target::Remote { remote, .. } => {
                let path = ObjectPath::parse(name).map_err(|error| {
                    Error::internal("a written path is no path").with_source(error)
                })?;
                let gone = remote.store.delete(&path).await;
                gone.map_err(|error| remote.error(error, &self.name))
            }
        }
    }
}

fn write_local(place: &Path, content: &[u8]) -> Result<Written> {
    let name = place.to_string_lossy();
    let failed = |error| from_io(error, &name);
    let folder = place.parent().unwrap_or(place);
    fs::create_dir_all(folder).map_err(failed)?;
    let mut file = tempfile::Builder::new()
        .prefix(".partgrid-")
        .suffix(".tmp")
        .permissions(fs::Permissions::from_mode(FILE_MODE))
        .tempfile_in(folder)
        .map_err(failed)?;
    file.write_all(content).map_err(failed)?;
    file.as_file().sync_all().map_err(failed)?;
    Ok(Written::Local(file, place.to_owned()))
}

/// Renames all files, then flushes their folders. When one cannot be renamed, those before it that took no other file's place are taken away again.
fn publish(files: Vec<(NamedTempFile, PathBuf)>) -> Result<()> {
    let mut folders = Vec::new();
    let mut new = Vec::new();
    for (file, place) in files {
        let name = place.to_string_lossy().into_owned();
        let replaces = place.exists();
        if let Err(error) = file.persist(&place) {
            for written in &new {
                // Best effort: the error that led here matters more.
                drop(fs::remove_file(written));
            }
            return Err(from_io(error.error, &name));
        }
        if !replaces {
            new.push(place.clone());
        }
        let folder = place.parent().unwrap_or(&place).to_owned();
        if !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    for folder in folders {
        let name = folder.to_string_lossy().into_owned();
        let flushed = File::open(&folder).and_then(|folder| folder.sync_all());
        flushed.map_err(|error| from_io(error, &name))?;
    }
    Ok(())
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
