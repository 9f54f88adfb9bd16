//! Files that are read again while a server runs.
//!
//! Comes in: the word to read them (SIGHUP). Goes out: tokens, certificates and those who vouch for members as the files have them now; or what was in use, where a start would have refused them. Never here: when it is time for that.

use std::sync::{Arc, PoisonError};

#[cfg(feature = "distributed")]
use super::begin::check_shown;
use super::options::TokenSource;
use super::service::Service;
use crate::error::Result;
use crate::serve::door::auth::Tokens;

impl Service {
    /// Reads the tokens, and lets in those who have one of them from now on.
    ///
    /// # Errors
    /// As [`TokenSource::read`]; those of before stay in use.
    pub(super) fn read_tokens(&self) -> Result<()> {
        if let Some(tokens) = self.tokens_of_now()? {
            self.let_in(tokens);
        }
        Ok(())
    }

    /// The tokens as they are where they come from; `None` where everybody may come in.
    fn tokens_of_now(&self) -> Result<Option<Arc<Tokens>>> {
        let read = self.token_source.as_ref().map(TokenSource::read);
        Ok(read.transpose()?.map(Arc::new))
    }

    fn let_in(&self, tokens: Arc<Tokens>) {
        self.tokens.store(Some(tokens));
        // What a name may see can have changed.
        self.seeing
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }

    /// Reads tokens, certificates, the token that it shows other members and those who vouch for them again. What cannot be read, or would be refused at a start, leaves that of before in use.
    ///
    /// # Errors
    /// The first that stands in the way; the others are read all the same, and the log has what is wrong with them.
    pub(super) fn reload(&self) -> Result<()> {
        let mut read = vec![self.read_tokens_again()];
        read.extend(self.tls.as_ref().map(|tls| tls.renew()));
        #[cfg(feature = "distributed")]
        read.extend(self.cluster.get().map(|cluster| cluster.read_ca_again()));
        let mut errors = read.into_iter().filter_map(Result::err);
        let first = errors.next();
        for error in errors {
            tracing::warn!(%error, "what cannot be used stays as it was");
        }
        first.map_or(Ok(()), Err)
    }

    /// Reads the tokens of callers and the one that members are shown. They must go together: where they do not, both stay as they were.
    #[cfg(feature = "distributed")]
    fn read_tokens_again(&self) -> Result<()> {
        let Some(cluster) = self.cluster.get() else {
            return self.read_tokens();
        };
        let client = cluster.client_options();
        let tokens = self.tokens_of_now();
        let shown = client.token_of_now();
        let shown = shown.map_err(|error| error.with_context("setting", "cluster.token"));
        // What cannot be read stays as it is, and must go with what can.
        let tokens_then = match &tokens {
            Ok(Some(tokens)) => Some(Arc::clone(tokens)),
            Ok(None) | Err(_) => self.tokens.load_full(),
        };
        let shown_then = match &shown {
            Ok(Some(shown)) => shown.clone(),
            Ok(None) | Err(_) => client.bearer()?,
        };
        if let Some(tokens) = tokens_then {
            check_shown(shown_then.now().as_ref(), &tokens)?;
        }
        if let Ok(Some(shown)) = &shown {
            client.show(shown);
        }
        if let Some(tokens) = tokens? {
            self.let_in(tokens);
        }
        shown.map(drop)
    }

    #[cfg(not(feature = "distributed"))]
    fn read_tokens_again(&self) -> Result<()> {
        self.read_tokens()
    }
}
