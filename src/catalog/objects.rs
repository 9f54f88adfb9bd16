//! A catalog in an object store.
//!
//! Comes in: paths, bytes. Goes out: objects; what must be new is put only if there is none (conditional put), so that several processes may write. Never here: what the bytes are.

use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use bytes::Bytes;
use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions};

use super::store::{Listed, Store};
use crate::error::{Error, ErrorKind, Result};
use crate::load::store_at;

#[derive(Debug)]
pub(super) struct Objects {
    store: Arc<dyn ObjectStore>,
    root: Path,
    url: String,
}

impl Objects {
    /// The catalog under a URL; credentials come from the environment, as for loads.
    pub(super) fn open(url: &str) -> Result<Self> {
        let (store, root) = store_at(url)?;
        Ok(Self {
            store,
            root,
            url: url.trim_end_matches('/').to_owned(),
        })
    }

    /// Names of tables are encoded already ([`super::Catalog`]), and must stay as they are.
    fn path(&self, path: &str) -> Result<Path> {
        let place = format!("{}/{path}", self.root);
        Path::parse(&place).map_err(|error| {
            Error::invalid_argument("this is no path of an object")
                .with_file(&place)
                .with_source(error)
        })
    }

    fn failed(&self, what: &str, error: object_store::Error, path: &str) -> Error {
        use object_store::Error as StoreError;
        let kind = match &error {
            StoreError::NotFound { .. } => ErrorKind::NotFound,
            StoreError::PermissionDenied { .. } | StoreError::Unauthenticated { .. } => {
                ErrorKind::PermissionDenied
            }
            StoreError::NotSupported { .. } | StoreError::NotImplemented { .. } => {
                ErrorKind::Unsupported
            }
            _ => ErrorKind::Storage { retryable: true },
        };
        Error::new(kind, what)
            .with_file(format!("{}/{path}", self.url))
            .with_context("cause", error.to_string())
            .with_source(error)
    }
}

#[async_trait]
impl Store for Objects {
    fn place(&self) -> String {
        self.url.clone()
    }

    fn is_ours_alone(&self) -> bool {
        false
    }

    async fn put_new(&self, path: &str, bytes: Bytes) -> Result<bool> {
        let options = PutOptions::from(PutMode::Create);
        let place = self.path(path)?;
        match self.store.put_opts(&place, bytes.into(), options).await {
            Ok(_) => Ok(true),
            Err(object_store::Error::AlreadyExists { .. }) => Ok(false),
            Err(error) => Err(self.failed("the catalog cannot write", error, path)),
        }
    }

    async fn read(&self, path: &str) -> Result<Bytes> {
        let place = self.path(path)?;
        let read = async { self.store.get(&place).await?.bytes().await };
        read.await
            .map_err(|error| self.failed("the catalog cannot read", error, path))
    }

    async fn list(&self, folder: &str) -> Result<Vec<Listed>> {
        let below = self.path(folder)?;
        let listed = self.store.list(Some(&below)).try_collect::<Vec<_>>().await;
        let listed =
            listed.map_err(|error| self.failed("the catalog cannot be listed", error, folder))?;
        let within = listed.into_iter().filter_map(|object| {
            let parts = object.location.prefix_match(&self.root)?;
            let parts: Vec<String> = parts.map(|part| part.as_ref().to_owned()).collect();
            Some(Listed {
                path: parts.join("/"),
                bytes: object.size,
                written: object.last_modified.into(),
            })
        });
        Ok(within.collect())
    }

    async fn now(&self, path: &str) -> Result<SystemTime> {
        let place = self.path(path)?;
        let asked = async {
            self.store.put(&place, Bytes::new().into()).await?;
            Ok(self.store.head(&place).await?.last_modified.into())
        };
        asked
            .await
            .map_err(|error| self.failed("the catalog cannot be asked for the time", error, path))
    }

    async fn remove(&self, path: &str) -> Result<()> {
        match self.store.delete(&self.path(path)?).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.failed("the catalog cannot remove", error, path)),
        }
    }
}
