//! What becomes of grids that statements and uploads name.
//!
//! Comes in: names and grids. Goes out: the same grids, in the catalog where there is one, or why they cannot be there. Never here: which session names them.

use std::fmt;
use std::sync::{Arc, Weak};

use futures::future::BoxFuture;

use super::service::Service;
use super::shared;
use crate::error::{Error, ErrorKind, Result};
use crate::grid::PartitionGrid;
use crate::query::Keeper;
use crate::serve::watch::health;

/// Sees that grids that clients name have room, and keeps them in the catalog, if there is one.
pub(super) struct Keeps(pub(super) Weak<Service>);

impl fmt::Debug for Keeps {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Keeps")
    }
}

impl Keeps {
    fn service(&self) -> Result<Arc<Service>> {
        let stopped = || Error::new(ErrorKind::Cancelled, "the server has stopped");
        self.0.upgrade().ok_or_else(stopped)
    }
}

impl Keeper for Keeps {
    fn check<'a>(&'a self, name: &'a str, is_kept: bool) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let service = self.service()?;
            health::check_whole(&service, name)?;
            match is_kept {
                true => health::check_durable(&service).await,
                false => Ok(()),
            }
        })
    }

    fn write<'a>(
        &'a self,
        name: &'a str,
        grid: Arc<PartitionGrid>,
    ) -> BoxFuture<'a, Result<Arc<PartitionGrid>>> {
        Box::pin(async move {
            let service = self.service()?;
            service.check_room(name, &grid)?;
            health::check_whole(&service, name)?;
            match &service.catalog {
                Some(catalog) => catalog.write_all(&grid).await,
                None => Ok(grid),
            }
        })
    }

    fn keeps(&self, grid: &PartitionGrid) -> bool {
        self.service().is_ok_and(|service| service.is_kept(grid))
    }

    fn keep<'a>(
        &'a self,
        name: &'a str,
        grid: &'a Arc<PartitionGrid>,
    ) -> BoxFuture<'a, Result<Arc<PartitionGrid>>> {
        Box::pin(async move {
            let service = self.service()?;
            service.check_room(name, grid)?;
            match &service.catalog {
                Some(catalog) => catalog.keep(name, grid).await,
                None => Ok(Arc::clone(grid)),
            }
        })
    }

    fn forget<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let service = self.service()?;
            if let Some(catalog) = &service.catalog {
                catalog.drop_grid(name).await?;
            }
            Ok(())
        })
    }

    fn announce(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            // Of a server that has stopped nobody asks anything.
            if let Ok(service) = self.service() {
                shared::tell(&service).await;
            }
        })
    }
}
