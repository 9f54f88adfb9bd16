//! The file of tokens, as it grows.
//!
//! Comes in: a file, an entry. Goes out: the file with the entry at its end, or as it was; one that is new is for its owner alone. Never here: what an entry says, and what it opens (`auth.rs`).

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::Path;

use tempfile::Builder;

use super::auth::Tokens;
use crate::error::{Error, ErrorKind, Result};

/// The mode of a file that is new.
const MODE: u32 = 0o600;

/// Adds the entry of a token, as [`new_token`](super::new_token) gives it, to a file of tokens, which is made if it is not there. Whoever reads it meanwhile or after a crash finds the file of before, or all of the new one. Its owner and mode
/// stay; one that is new is for its owner alone.
///
/// # Errors
/// `InvalidData` for a file that is none of tokens, `InvalidArgument` where a token has the name, and for what is no ordinary file; `NotFound`, `PermissionDenied` or `Storage` where it cannot be read or written. The file is as it was then, unless the disk failed after it was put in its place: the name is taken then, and nobody has its token.
pub fn add_token(path: &Path, name: &str, entry: &str) -> Result<()> {
    let added = add(path, name, entry);
    added.map_err(|error| error.with_file(path.display().to_string()))
}

fn add(path: &Path, name: &str, entry: &str) -> Result<()> {
    // A link stays one: the file that it leads to is replaced.
    let target = match fs::canonicalize(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if path.is_symlink() {
                let text = "the file of tokens is a link that leads to nothing";
                return Err(Error::not_found(text)
                    .with_hint("make the file that it is to lead to, or name that file"));
            }
            path.to_owned()
        }
        found => found.map_err(|error| failed(&error))?,
    };
    // It would be replaced, a device as well, and of a pipe nothing would ever come.
    if fs::metadata(&target).is_ok_and(|there| !there.is_file()) {
        let text = "a file of tokens must be an ordinary file; this is a folder, a device, a pipe or a socket";
        return Err(Error::invalid_argument(text)
            .with_hint("without --add-to the entry is written to standard error"));
    }
    let folder = target.parent().filter(|folder| *folder != Path::new(""));
    let folder = folder.unwrap_or(Path::new("."));
    let lock = File::open(folder).map_err(|error| failed(&error))?;
    // One at a time: of two at once one would leave out what the other adds. A file system without locks has none.
    drop(lock.lock());
    let before = match fs::read_to_string(&target) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        read => read.map_err(|error| failed(&error))?,
    };
    let after = with_entry(before, name, entry)?;
    let written = replace(&target, folder, &after).and_then(|()| lock.sync_all());
    written.map_err(|error| failed(&error))
}

/// The text of a file with an entry at its end.
fn with_entry(mut text: String, name: &str, entry: &str) -> Result<String> {
    if Tokens::parse(&text)?.has(name) {
        let text = format!("the file has a token of the name `{name}` already");
        return Err(Error::invalid_argument(text).with_hint(
            "choose another name, or take its entry out first: what it opened is closed once servers have read the file again, at SIGHUP",
        ));
    }
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(entry);
    // What no server could read is not written.
    Tokens::parse(&text)?;
    Ok(text)
}

/// Puts a text in the place of a file, with its owner and mode.
fn replace(target: &Path, folder: &Path, text: &str) -> io::Result<()> {
    let mut builder = Builder::new();
    builder.prefix(".partgrid-").suffix(".tmp");
    builder.permissions(Permissions::from_mode(MODE));
    let mut made = builder.tempfile_in(folder)?;
    made.write_all(text.as_bytes())?;
    let file = made.as_file();
    if let Ok(before) = fs::metadata(target) {
        let now = file.metadata()?;
        if (before.uid(), before.gid()) != (now.uid(), now.gid()) {
            fchown(file, Some(before.uid()), Some(before.gid()))?;
        }
        file.set_permissions(before.permissions())?;
    }
    file.sync_all()?;
    made.persist(target).map_err(|error| error.error)?;
    Ok(())
}

fn failed(error: &io::Error) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::NotFound => ErrorKind::NotFound,
        io::ErrorKind::PermissionDenied => ErrorKind::PermissionDenied,
        _ => ErrorKind::Storage { retryable: false },
    };
    Error::new(
        kind,
        format!("the token could not be added to the file: {error}"),
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;
    use std::time::SystemTime;

    use super::super::auth::{Presented, Scope, new_token};
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    fn made(path: &Path, name: &str) -> Result<String> {
        let (token, entry) = new_token(name, Scope::Read, &[], None)?;
        add_token(path, name, &entry)?;
        Ok(token)
    }

    #[test]
    fn a_token_is_added_to_a_file_that_is_for_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens.toml");
        let first = made(&path, "first").unwrap();
        assert_eq!(mode(&path), 0o600);
        // As somebody wrote it, without a line end, for a group; by a link.
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, format!("# ours\n{}", text.trim_end())).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let link = folder.path().join("link");
        symlink("tokens.toml", &link).unwrap();
        let second = made(&link, "second").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(mode(&path), 0o640);
        assert!(fs::read_to_string(&path).unwrap().starts_with("# ours\n"));
        let tokens = Tokens::read(&path).unwrap();
        for (token, name) in [(first, "first"), (second, "second")] {
            match tokens.look_up(&token, SystemTime::now()) {
                Presented::Good(caller) => assert_eq!(&**caller.name(), name),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_file_to_which_nothing_can_be_added_stays_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens.toml");
        made(&path, "first").unwrap();
        let before = fs::read_to_string(&path).unwrap();
        let error = made(&path, "first").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert_eq!(error.context("file"), path.to_str());
        assert_eq!(fs::read_to_string(&path).unwrap(), before);
        // What a usage error left there.
        let torn = format!("{before}error: a value is required\n");
        fs::write(&path, &torn).unwrap();
        let error = made(&path, "other").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        assert!(error.message().contains("in line"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), torn);
        let socket = folder.path().join("socket");
        let _listening = UnixListener::bind(&socket).unwrap();
        for path in [folder.path(), &socket, Path::new("/dev/null")] {
            let error = made(path, "first").unwrap_err();
            assert!(error.message().contains("ordinary file"), "{error}");
            assert!(!fs::metadata(path).unwrap().is_file());
        }
        let nowhere = made(&folder.path().join("no/tokens.toml"), "first").unwrap_err();
        assert_eq!(nowhere.kind(), ErrorKind::NotFound);
    }
}
