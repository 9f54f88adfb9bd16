//! Actions of our own: uploads, loads, what goes on.
//!
//! Comes in: the name of an action and its body. Goes out: its result, or that it is none of ours. Never here: what they do.

use std::sync::Arc;

use arrow_flight::sql::Any;
use prost::Message;

use super::call::Call;
use super::flight::{any_of, protocol};
use super::jobs;
use super::service::Service;
use super::status;
use super::upload::{self, Construction};
use crate::error::Result;
use crate::flight::messages::{BeginUpload, JobName, JobProgress, Named, RunName, Upload};

/// The body of its result, if it has one; `None` for another action.
///
/// # Errors
/// What stands in the way.
pub(super) async fn done(
    service: &Arc<Service>,
    call: &Call,
    name: &str,
    body: &[u8],
) -> Result<Option<Option<Vec<u8>>>> {
    let uploads = &service.answers.uploads;
    Ok(Some(match name {
        "BeginUpload" => {
            let wanted: BeginUpload = ours(body)?;
            let begun = Construction::begin(service, &call.caller, wanted)?;
            let name = uploads.keep(&call.caller, Arc::new(begun))?;
            let upload = name.to_vec();
            Some(Upload { upload }.encode_to_vec())
        }
        "CommitUpload" => {
            let named: Upload = ours(body)?;
            let construction = upload::find(service, call, &named.upload)?;
            let committed = construction.commit(service, &call.caller).await?;
            uploads.remove(&call.caller, &named.upload)?;
            Some(committed.encode_to_vec())
        }
        "AbortUpload" => {
            let named: Upload = ours(body)?;
            uploads.remove(&call.caller, &named.upload)?;
            None
        }
        "Load" => {
            let begun = jobs::begin(service, &call.caller, ours(body)?)?;
            Some(JobName { job: begun.id }.encode_to_vec())
        }
        "JobProgress" => {
            let named: JobName = ours(body)?;
            let job = service.jobs.find(&call.caller, named.job)?;
            let message = job.error().map(|error| call.told(&error));
            let progress = JobProgress {
                message: message.unwrap_or_default(),
                ..job.progress()
            };
            Some(progress.encode_to_vec())
        }
        "CancelJob" => {
            let named: JobName = ours(body)?;
            service.jobs.cancel(&call.caller, named.job)?;
            None
        }
        "CancelRun" => {
            let named: RunName = ours(body)?;
            service.running.cancel(&call.caller, named.run)?;
            None
        }
        "Status" => Some(
            status::status(service, &call.caller)
                .to_string()
                .into_bytes(),
        ),
        _ => return Ok(None),
    }))
}

/// Our own request in a body.
fn ours<M: Named>(body: &[u8]) -> Result<M> {
    let any: Any = any_of(body)?;
    M::from_any(&any)?.ok_or_else(|| {
        protocol(format!(
            "the body must be a {}, it says that it is {:?}",
            M::NAME,
            any.type_url
        ))
    })
}
