//! Finding out who is alive.
//!
//! Comes in: where the addresses of members are written: a list, a file, the name of a service in DNS. Goes out: those of them that answer and are of this version. The engine's own question, which asks for the
//! version of a worker, is the ping; its answer says also who the member is. Never here: what members have.

use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use datafusion_distributed::{ChannelResolver, GetWorkerInfoRequest};
use futures::future::join_all;

use super::Member;
use super::channel::{Reach, Resolver};
use crate::cluster::worker::VERSION;
use crate::error::{Error, ErrorKind, Result};
use crate::location::{Device, Location};
use crate::share::Incarnation;

/// How long a member may take to say that it is there.
const PING: Duration = Duration::from_secs(2);

/// What is said of one that takes longer.
pub(super) const SILENT: &str = "it said nothing";

/// Whether a member was waited for in vain.
pub(in crate::cluster) fn is_silent(error: &Error) -> bool {
    error.message().contains(SILENT)
}

/// The port in examples.
const PORT: u16 = 8815;

/// How a list of nobody else is written.
const ALONE: &str = "alone";

/// Where the addresses of members are written. Each is looked at again and again: who is added joins, who is taken out leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Join {
    /// These: `HOST:PORT`, or the URIs of servers.
    List(Vec<String>),
    /// The lines of a file, without those that are empty or begin with `#`; nobody, as long as there is no such file.
    File(PathBuf),
    /// All addresses of a name in DNS (a headless service), at a port.
    Dns(String, u16),
}

impl FromStr for Join {
    type Err = Error;

    /// Reads `HOST:PORT,HOST:PORT`, `file:PATH` `dns:NAME:PORT`, or `alone`: a list of nobody else.
    fn from_str(text: &str) -> Result<Self> {
        if let Some(path) = text.strip_prefix("file:") {
            if path.trim().is_empty() {
                return Err(wrong(text));
            }
            return Ok(Self::File(PathBuf::from(path)));
        }
        if let Some(service) = text.strip_prefix("dns:") {
            let (name, port) = service.rsplit_once(':').ok_or_else(|| wrong(text))?;
            if name.trim().is_empty() {
                return Err(wrong(text));
            }
            let port: NonZeroU16 = port.parse().map_err(|_| wrong(text))?;
            return Ok(Self::Dns(name.to_owned(), port.get()));
        }
        if text == ALONE {
            return Ok(Self::List(Vec::new()));
        }
        let list: Vec<String> = text.split(',').map(|item| item.trim().to_owned()).collect();
        for item in &list {
            // Of one that is empty only the whole says where it is.
            let shown: &str = if item.is_empty() { text } else { item };
            uri_of(item, false).map_err(|_| wrong(shown))?;
        }
        Ok(Self::List(list))
    }
}

impl fmt::Display for Join {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::List(list) if list.is_empty() => formatter.write_str(ALONE),
            Self::List(list) => formatter.write_str(&list.join(",")),
            Self::File(path) => write!(formatter, "file:{}", path.display()),
            Self::Dns(name, port) => write!(formatter, "dns:{name}:{port}"),
        }
    }
}

fn wrong(text: &str) -> Error {
    let error = Error::invalid_argument(format!(
        "members must be written as HOST:PORT with commas, file:PATH or dns:NAME:PORT, got {text:?}"
    ));
    error.with_hint(remedy(text))
}

/// How such a text may have been meant.
fn remedy(text: &str) -> String {
    let name = text.trim();
    if name.starts_with("file:") {
        return "a file with the address of a member in each line is named after it, such as file:/etc/partgrid/members".to_owned();
    }
    let is_number = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let port = text.rsplit_once(':').map(|(_, port)| port);
    if port.is_some_and(|port| is_number(port) && port.parse::<NonZeroU16>().is_err()) {
        return format!("a port is a number from 1 to 65535, such as that of db1:{PORT}");
    }
    if name.is_empty() || name.contains([':', ',']) {
        return format!(
            "for instance db1:{PORT},db2:{PORT}, file:/etc/partgrid/members or dns:db.example:{PORT}; for a server that is to be alone, {ALONE}"
        );
    }
    match Path::new(name).exists() {
        true => format!("a file with the address of a member in each line is written file:{name}"),
        false => format!(
            "a member is written {name}:{PORT}; dns:{name}:{PORT} stands for all addresses that the name has in DNS"
        ),
    }
}

/// What is said of a line of the file, counted from 1.
fn wrong_line(path: &Path, number: usize, line: &str) -> Error {
    let text = format!(
        "a line of the list of members must be one HOST:PORT or the URI of a server, such as db1:{PORT} or grpc+tls://db1:{PORT}, got {line:?}"
    );
    let error = Error::invalid_argument(text).with_context("file", path.display().to_string());
    error.with_context("line", number.to_string())
}

/// The addresses in the lines of a file, without those that are empty or begin with `#`.
///
/// # Errors
/// `InvalidArgument` with file and line for what is no address.
fn listed(path: &Path, text: &str, is_tls: bool) -> Result<Vec<String>> {
    let lines = (1..).zip(text.lines().map(str::trim));
    let written = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let uris = written
        .map(|(number, line)| uri_of(line, is_tls).map_err(|_| wrong_line(path, number, line)));
    uris.collect()
}

/// The URI of a member, as it or its address is written.
fn uri_of(written: &str, is_tls: bool) -> Result<String> {
    let scheme = if is_tls { "grpc+tls" } else { "grpc" };
    let (scheme, address) = match written.split_once("://") {
        Some((scheme @ ("grpc" | "grpc+tls"), address)) => (scheme, address.trim_end_matches('/')),
        Some(_) => return Err(wrong(written)),
        None => (scheme, written),
    };
    let is_host = |host: &str| !host.is_empty() && !host.contains([',', '/', '@', '#', ' ', '\t']);
    let parts = address.rsplit_once(':');
    match parts.is_some_and(|(host, port)| is_host(host) && port.parse::<NonZeroU16>().is_ok()) {
        true => Ok(format!("{scheme}://{address}")),
        false => Err(wrong(written)),
    }
}

impl Join {
    /// The URIs that are written there at this moment.
    ///
    /// # Errors
    /// `Storage` when the file cannot be read or the name not looked up, `InvalidArgument` for what is no address.
    pub(in crate::cluster) async fn uris(&self, is_tls: bool) -> Result<Vec<String>> {
        let failed = |what: &str, error: &std::io::Error| {
            let text = format!("{what}: {error}");
            Error::new(ErrorKind::Storage { retryable: true }, text)
        };
        let written = match self {
            Self::List(list) => list.clone(),
            Self::File(path) => match tokio::fs::read_to_string(path).await {
                Ok(text) => return listed(path, &text, is_tls),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
                Err(error) => {
                    let what = "the list of members cannot be read";
                    return Err(
                        failed(what, &error).with_context("file", path.display().to_string())
                    );
                }
            },
            Self::Dns(name, port) => {
                let found = tokio::net::lookup_host((name.as_str(), *port)).await;
                let what = format!("the members at {name} cannot be looked up");
                let found = found.map_err(|error| failed(&what, &error))?;
                found.map(|address| address.to_string()).collect()
            }
        };
        written.iter().map(|item| uri_of(item, is_tls)).collect()
    }

    /// That its file is not there: nobody is named then, and that is no error of a look.
    pub(in crate::cluster) async fn absent(&self) -> Option<Error> {
        let Self::File(path) = self else {
            return None;
        };
        let is_there = tokio::fs::try_exists(path).await;
        let error = Error::not_found("the list of members is not there")
            .with_file(path.display().to_string());
        let hint = "write the address of a member in each line of it, that of this one among them";
        matches!(is_there, Ok(false)).then(|| error.with_hint(hint))
    }

    /// The same after a look that saw these: a file is gone, or empty, while it is written anew.
    ///
    /// # Errors
    /// `Storage` when nobody is named any more.
    pub(in crate::cluster) fn still(
        &self,
        uris: Vec<String>,
        last: Option<&[String]>,
    ) -> Result<Vec<String>> {
        if !uris.is_empty() || last.is_none_or(<[String]>::is_empty) {
            return Ok(uris);
        }
        let text = "the list of members is gone, or names nobody any more";
        let error = Error::new(ErrorKind::Storage { retryable: true }, text);
        let hint = "for a member that is to be alone, write its own address alone";
        Err(error.with_context("list", self.to_string()).with_hint(hint))
    }
}

/// What a member says of itself.
pub(in crate::cluster) fn introduction(own: &Member) -> String {
    let location = own.location();
    let (host, process) = (location.host(), location.process());
    let memory_bytes = own.memory_bytes();
    format!(
        "{VERSION} {} {host} {process} {memory_bytes} {} {}",
        own.incarnation(),
        own.cores(),
        own.name()
    )
}

fn introduced(uri: &str, said: &str) -> Result<Member> {
    // The last one is a URI, whatever is in it.
    let mut words = said.splitn(7, ' ');
    let version = words.next().unwrap_or_default();
    if version != VERSION {
        let text = format!("a member must be of version {VERSION}, this one is of {version:?}");
        return Err(Error::unsupported(text).with_context("member", uri));
    }
    let unknown = || {
        let text = "a member says of itself what no member says";
        Error::new(ErrorKind::Protocol, text).with_context("member", uri)
    };
    let mut word = || words.next().ok_or_else(unknown);
    let incarnation = u128::from_str_radix(word()?, 16).map_err(|_| unknown())?;
    let host: IpAddr = word()?.parse().map_err(|_| unknown())?;
    let process = word()?.parse().map_err(|_| unknown())?;
    let memory_bytes = word()?.parse().map_err(|_| unknown())?;
    let cores = word()?.parse().map_err(|_| unknown())?;
    let name = word()?;
    if name.is_empty() {
        return Err(unknown());
    }
    let location = Location::new(host, process, Device::CPU);
    let member = Member::try_new(uri, Incarnation::from_bits(incarnation), location)?;
    let member = member.with_memory_bytes(memory_bytes).with_cores(cores);
    Ok(member.with_name(name))
}

/// The member at a URI, if it says within a time that it is there.
pub(in crate::cluster) async fn ping(
    reach: &Arc<Reach>,
    uri: &str,
    within: Duration,
) -> Result<Member> {
    // Its life is not known yet, its URL is.
    let unknown = Member::try_new(uri, Incarnation::from_bits(0), Location::here())?;
    let url = unknown.url();
    let asking = async {
        let resolver = Resolver::of_part(Arc::clone(reach));
        let mut channel = resolver.get_worker_client_for_url(url).await?;
        Ok::<_, Error>(channel.get_worker_info(GetWorkerInfoRequest {}).await?)
    };
    let answer = tokio::time::timeout(within, asking).await;
    let why = || format!("{SILENT} for {} seconds", within.as_secs());
    let info = answer.map_err(|_| super::channel::lost(url, &why()))?;
    introduced(uri, &info?.version)
}

/// Those who are there, and the URIs of the others with why they are not.
pub(in crate::cluster) async fn alive(
    reach: &Arc<Reach>,
    uris: &[String],
) -> (Vec<Member>, Vec<(String, Error)>) {
    let answers = join_all(uris.iter().map(|uri| ping(reach, uri, PING))).await;
    let (mut there, mut away) = (Vec::new(), Vec::new());
    for (uri, answer) in uris.iter().zip(answers) {
        match answer {
            Ok(member) => there.push(member),
            Err(error) => away.push((uri.clone(), error)),
        }
    }
    (there, away)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::ClientOptions;

    #[test]
    fn lists_files_and_names_are_told_apart() {
        let list = "a:1, grpc+tls://b:2".parse::<Join>().unwrap();
        assert_eq!(
            list,
            Join::List(vec!["a:1".into(), "grpc+tls://b:2".into()])
        );
        let dns = "dns:partgrid.default.svc:32010".parse::<Join>().unwrap();
        assert_eq!(dns, Join::Dns("partgrid.default.svc".into(), 32010));
        assert_eq!(dns.to_string(), "dns:partgrid.default.svc:32010");
        assert_eq!(
            "file:/a b".parse::<Join>().unwrap(),
            Join::File("/a b".into())
        );
        assert_eq!("alone".parse::<Join>().unwrap(), Join::List(Vec::new()));
        let wrong = [
            "a", "", " ", "dns:a", "dns:a:b", "dns::1", "dns:a:0", "a:1,b", "a:1,,b:2", "a:99999",
            "a:0", ":1", "grpc://a", "file:", "file: ",
        ];
        let others = [
            "http://a:1",
            "grpc://a:1/b",
            "grpc://a@b:1",
            "a b:1",
            "a:1 # first",
        ];
        for text in wrong.into_iter().chain(others) {
            assert!(text.parse::<Join>().is_err(), "{text}");
        }
        let hint = |text: &str| {
            let error = text.parse::<Join>().unwrap_err();
            error.hint().map(str::to_owned).unwrap_or_default()
        };
        assert!(hint("members.example").contains("dns:members.example:8815"));
        assert!(hint("Cargo.toml").contains("file:Cargo.toml"));
        for (text, remedy) in [
            ("127.0.0.1:99999", "from 1 to 65535"),
            ("grpc://a:0", "from 1 to 65535"),
            ("dns:a:65536", "from 1 to 65535"),
            ("file:", "file:/etc/partgrid/members"),
            ("a:1,,b:2", "db1:8815,db2:8815"),
            ("", "db1:8815,db2:8815"),
        ] {
            assert!(hint(text).contains(remedy), "{text}");
        }
        let error = "a:1,,b:2".parse::<Join>().unwrap_err();
        assert!(error.message().ends_with("got \"a:1,,b:2\""), "{error}");
    }

    #[test]
    fn a_line_of_a_file_that_is_no_address_is_told_by_its_number() {
        let path = Path::new("/run/members");
        let text = "# all\n\n a:1 \ngrpc+tls://b:2/\n";
        let uris = listed(path, text, false).unwrap();
        assert_eq!(uris, ["grpc://a:1", "grpc+tls://b:2"]);
        // As after `--join`.
        assert!(listed(path, "a:1,b:2,c:3\n", false).is_err());
        let error = listed(path, &format!("{text}c\nd\n"), false).unwrap_err();
        let said = error.to_string();
        assert!(
            said.ends_with("got \"c\" (file: /run/members, line: 5)"),
            "{said}"
        );
    }

    #[test]
    fn a_list_that_names_nobody_any_more_is_none() {
        let join = Join::File("/run/members".into());
        let (one, none) = (vec!["grpc://a:1".to_owned()], Vec::<String>::new());
        assert_eq!(join.still(none.clone(), None).unwrap(), none);
        assert_eq!(join.still(none.clone(), Some(&none)).unwrap(), none);
        assert_eq!(join.still(one.clone(), Some(&one)).unwrap(), one);
        assert_eq!(join.still(one.clone(), Some(&none)).unwrap(), one);
        let error = join.still(none, Some(&one)).unwrap_err();
        assert!(error.to_string().contains("file:/run/members"), "{error}");
    }

    #[tokio::test]
    async fn who_is_listed_where_the_token_would_go_in_clear_text_is_away_with_a_remedy() {
        let options = ClientOptions::default().with_token("secret");
        let reach = Arc::new(Reach::new(options, tokio::runtime::Handle::current()));
        let (there, away) = alive(&reach, &["grpc://192.0.2.1:7001".to_owned()]).await;
        assert!(there.is_empty());
        let [(_, error)] = away.as_slice() else {
            panic!("{away:?}");
        };
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.hint().unwrap().contains("cluster.ca"), "{error}");
    }

    #[test]
    fn a_member_is_known_by_what_it_says() {
        let own = Member::here("grpc://127.0.0.1:1").unwrap();
        let own = own.with_memory_bytes(1 << 30);
        let same = introduced(own.uri(), &introduction(&own)).unwrap();
        assert_eq!(own, same);
        // By whichever address it was asked.
        let other = introduced("grpc://localhost:7", &introduction(&own)).unwrap();
        assert_eq!(other.uri(), "grpc://localhost:7");
        assert_eq!(other.name(), own.uri());
        let nameless = introduction(&own).replace(own.uri(), "");
        assert!(introduced(own.uri(), &nameless).is_err());
        assert!(introduced("grpc://127.0.0.1:1", "0.0.0 1 127.0.0.1 1").is_err());
        assert!(introduced("grpc://127.0.0.1:1", VERSION).is_err());
        let strange = introduction(&own).replace(&own.cores().to_string(), "many");
        assert!(introduced(own.uri(), &strange).is_err());
    }
}
