//! Where a catalog lies.
//!
//! Comes in: paths within the catalog, bytes. Goes out: bytes. What was put is there after a crash. Never here: what the bytes are.

use std::fmt::Debug;
use std::time::SystemTime;

use async_trait::async_trait;
use bytes::Bytes;

use crate::error::Result;

/// A file of a catalog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) path: String,
    pub(super) bytes: u64,
    /// When it was written, by the clock of the place.
    pub(super) written: SystemTime,
}

/// A place for files that are written once.
#[async_trait]
pub(super) trait Store: Debug + Send + Sync {
    /// Where it is, for messages.
    fn place(&self) -> String;

    /// Whether nobody else writes while this process does.
    fn is_ours_alone(&self) -> bool;

    /// Lets go of the place; what is written later is an error.
    fn close(&self) {}

    /// Writes a file durably, all or nothing; `false` when there is one already.
    async fn put_new(&self, path: &str, bytes: Bytes) -> Result<bool>;

    /// The bytes of a file.
    async fn read(&self, path: &str) -> Result<Bytes>;

    /// The files below a folder; none when there is no such folder.
    async fn list(&self, folder: &str) -> Result<Vec<Listed>>;

    /// What the clock of the place says, which writes a file of this name to know it: the clocks of those who write differ.
    async fn now(&self, path: &str) -> Result<SystemTime>;

    /// Removes what others began to write before a moment and left.
    async fn remove_torn(&self, before: SystemTime) -> Result<()> {
        let _ = before;
        Ok(())
    }

    /// Removes a file; nothing when it is gone.
    async fn remove(&self, path: &str) -> Result<()>;

    /// Removes a folder with nothing in it, of a place that has folders and nobody else writes to.
    async fn remove_folder(&self, path: &str) -> Result<()> {
        let _ = path;
        Ok(())
    }
}
