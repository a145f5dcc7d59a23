//! The running proxy, asked by its admin API: where it is, the token, one request and its answer.
//!
//! Not here: what is asked for (`reload`, `member`, `explain`).

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use clap::ValueEnum;
use http::response::Parts;
use http::uri::Authority;
use http::{HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;
use tokio::sync::OnceCell;
use tokio::time::timeout;

use super::output;
use crate::admin::KNOWN_BY;
use crate::config::Problem;

/// Port of the admin listener where none is given.
const PORT: u16 = 9900;
/// Environment variable with the token.
const TOKEN: &str = "PULSEGATE_TOKEN";
/// For the connection.
const CONNECT: Duration = Duration::from_secs(5);
/// For the answer: a reload may wait for names and disks.
const ANSWER: Duration = Duration::from_secs(60);
/// An answer is not read beyond this.
const MAX_ANSWER: usize = 256 << 20;
/// A token is not read beyond this.
const MAX_TOKEN: u64 = 64 << 10;

/// Which proxy, and how to speak to it.
#[derive(Debug, Clone, clap::Args)]
pub struct Operator {
    /// The admin listener of the running proxy: HOST:PORT, http://HOST:PORT, or HOST for its port 9900
    #[arg(long, env = "PULSEGATE_ADMIN", default_value = "127.0.0.1:9900", value_name = "ADDR", value_parser = authority)]
    admin: Authority,
    /// A file that holds the admin token; else $PULSEGATE_TOKEN is the token
    ///
    /// The token itself cannot be an argument: whoever is on this machine can read those.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// What that file holds. It may be a pipe, which says it once.
    #[arg(skip)]
    token: OnceCell<String>,
    /// Lines for people, or what the API answers
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// How the answer is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// As the API has it.
    Json,
}

/// Why there is no good answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// No token can be had.
    #[error("the token in {place} {cause}")]
    Token {
        /// Where it was looked for.
        place: String,
        /// What is wrong with it.
        cause: String,
    },
    /// Nobody there.
    #[error(
        "no answer from {admin}: {cause}; is the proxy running, and is that its `admin` address? Another one goes with --admin"
    )]
    Nobody {
        /// Where.
        admin: Authority,
        /// What the system says.
        cause: String,
    },
    /// Somebody else there.
    #[error(
        "{admin} does not answer as the admin API does ({cause}); is it another listener? Another address goes with --admin"
    )]
    Stranger {
        /// Where.
        admin: Authority,
        /// What came.
        cause: String,
    },
    /// It will not.
    #[error("{}", refusal(.0))]
    Refused(Refusal),
    /// What was waited for has not come.
    #[error("{words}")]
    Late {
        /// How it stands.
        words: String,
        /// The same as the API has it.
        body: String,
    },
    /// The runtime cannot be had, or nobody reads the output.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// An answer of the API.
#[derive(Debug)]
pub struct Answer<T> {
    /// As it came.
    pub body: String,
    /// What is read of it.
    pub said: T,
}

/// What the API says when it will not (RFC 9457).
#[derive(Debug, Clone, Deserialize)]
pub struct Refusal {
    status: u16,
    #[serde(default)]
    detail: String,
    #[serde(default)]
    problems: Vec<Problem>,
    /// All of it.
    #[serde(skip)]
    body: String,
    /// Where the token came from that was sent, if one was.
    #[serde(skip)]
    token_from: Option<String>,
}

impl Refusal {
    /// Whether the member or pool is not such that it could be done.
    pub fn is_conflict(&self) -> bool {
        self.status == 409
    }
}

impl Operator {
    /// How answers are to be printed.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Sends one request without a body; the answer, where it is a good one. Whoever does not answer as the admin API does is
    /// sent neither that nor the token: it may be an application, which has a meaning of its own for both.
    ///
    /// # Errors
    /// There is no good answer.
    pub async fn ask<T: DeserializeOwned>(&self, method: Method, path: &str) -> Result<Answer<T>, AskError> {
        let nobody = |cause: String| AskError::Nobody { admin: self.admin.clone(), cause };
        let stranger = |cause: String| AskError::Stranger { admin: self.admin.clone(), cause };
        let greeting = self.request(Method::GET, "/livez", None)?;
        let token = self.token().await?;
        let token_from = token.as_ref().map(|token| token.place.clone());
        let request = self.request(method, path, token)?;
        let address = (unbracketed(self.admin.host()), self.admin.port_u16().unwrap_or(PORT));
        let dialled = timeout(CONNECT, TcpStream::connect(address)).await;
        let stream = dialled.map_err(|_| nobody("no connection in time".to_owned()))?;
        let stream = stream.map_err(|error| nobody(error.to_string()))?;
        let exchange = async {
            let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|e| e.to_string())?;
            tokio::spawn(connection);
            let (head, _) = exchanged(&mut sender, greeting).await?;
            if !head.headers.contains_key(KNOWN_BY) {
                return Err(format!("{} to `GET /livez`, without `{KNOWN_BY}`", head.status));
            }
            exchanged(&mut sender, request).await
        };
        let answered = timeout(ANSWER, exchange).await.map_err(|_| nobody("no answer in time".to_owned()))?;
        let (head, body) = answered.map_err(stranger)?;
        let kind = head.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        match (head.status.is_success(), kind) {
            (true, "application/json") => match self.read(&body) {
                Ok(said) => Ok(Answer { body, said }),
                Err(error) => Err(stranger(format!("{}, and {error}", head.status))),
            },
            (false, "application/problem+json") => match self.read::<Refusal>(&body) {
                Ok(refusal) => Err(AskError::Refused(Refusal { body, token_from, ..refusal })),
                Err(error) => Err(stranger(format!("{}, and {error}", head.status))),
            },
            _ => Err(stranger(format!("{} of type `{kind}`", head.status))),
        }
    }

    /// What an answer says. For people its texts are made fit to stand in a line: members had a part in some of them.
    fn read<T: DeserializeOwned>(&self, body: &str) -> serde_json::Result<T> {
        match self.format {
            Format::Text => serde_json::from_value(output::fit(serde_json::from_str(body)?)),
            Format::Json => serde_json::from_str(body),
        }
    }

    fn request(&self, method: Method, path: &str, token: Option<Token>) -> Result<Request<Empty<Bytes>>, AskError> {
        let mut request = Request::new(Empty::new());
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().map_err(|error| io::Error::other(format!("{path}: {error}")))?;
        let host = HeaderValue::from_str(self.admin.as_str()).map_err(io::Error::other)?;
        request.headers_mut().insert(header::HOST, host);
        if let Some(token) = token {
            request.headers_mut().insert(header::AUTHORIZATION, token.field);
        }
        Ok(request)
    }

    async fn token(&self) -> Result<Option<Token>, AskError> {
        let (place, token) = match &self.token_file {
            Some(path) => {
                let place = path.display().to_string();
                match self.token.get_or_try_init(|| text_of(path.clone())).await {
                    Ok(text) => (place, text.clone()),
                    Err(cause) => return Err(AskError::Token { place, cause: format!("cannot be read: {cause}") }),
                }
            }
            None => match std::env::var(TOKEN) {
                Ok(token) if !token.trim().is_empty() => (format!("${TOKEN}"), token),
                _ => return Ok(None),
            },
        };
        let wrong = |cause: &str| AskError::Token { place: place.clone(), cause: cause.to_owned() };
        if token.trim().is_empty() {
            return Err(wrong("is empty"));
        }
        let mut field = HeaderValue::from_str(&format!("Bearer {}", token.trim()))
            .map_err(|_| wrong("holds a character that cannot be sent"))?;
        field.set_sensitive(true);
        Ok(Some(Token { place, field }))
    }
}

/// The token that is sent.
struct Token {
    /// Where it was found.
    place: String,
    /// As `Authorization` has it.
    field: HeaderValue,
}

async fn exchanged(
    sender: &mut SendRequest<Empty<Bytes>>,
    request: Request<Empty<Bytes>>,
) -> Result<(Parts, String), String> {
    sender.ready().await.map_err(|error| error.to_string())?;
    let (head, body) = sender.send_request(request).await.map_err(|error| error.to_string())?.into_parts();
    let body = Limited::new(body, MAX_ANSWER).collect().await.map_err(|error| error.to_string())?;
    Ok((head, String::from_utf8_lossy(&body.to_bytes()).into_owned()))
}

/// What a file with a token holds. It may be a pipe, whose other end may keep us waiting, or a device without an end.
async fn text_of(path: PathBuf) -> Result<String, String> {
    let reading = tokio::task::spawn_blocking(move || {
        let mut text = String::new();
        File::open(path)?.take(MAX_TOKEN).read_to_string(&mut text).map(|_| text)
    });
    let Ok(read) = timeout(ANSWER, reading).await else {
        return Err(format!("nothing came in {} s", ANSWER.as_secs()));
    };
    read.map_err(|error| error.to_string())?.map_err(|error: io::Error| error.to_string())
}

/// Runs `command` to its end, prints what it has to say, and ends with the code that says how it went.
pub fn run<F>(operator: &Operator, command: F) -> ExitCode
where
    F: Future<Output = Result<String, AskError>>,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let said = runtime.map_err(AskError::Io).and_then(|runtime| {
        let said = runtime.block_on(command);
        runtime.shutdown_background();
        said
    });
    match said {
        Ok(text) => output::end(&printed(&text, operator.format), ExitCode::SUCCESS),
        Err(error) => {
            match (&error, operator.format) {
                (AskError::Refused(Refusal { body, .. }) | AskError::Late { body, .. }, Format::Json) => {
                    // Its failure is said below, whatever can be written.
                    drop(output::print(&printed(body, operator.format)));
                }
                (AskError::Refused(refusal), Format::Text) => refusal.problems.iter().for_each(output::tell),
                _ => {}
            }
            super::fail(&error)
        }
    }
}

/// Of the API's words those for people are fit for a terminal already (`read`), and what is made of them is so once more.
fn printed(text: &str, format: Format) -> String {
    let text = text.trim_end();
    match format {
        Format::Text => format!("{}\n", output::lines(text)),
        Format::Json => format!("{}\n", output::json(text)),
    }
}

/// `text` as one segment of a path.
pub fn segment(text: &str) -> String {
    let mut segment = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b':' => segment.push(byte as char),
            _ => drop(write!(segment, "%{byte:02X}")),
        }
    }
    segment
}

fn refusal(refusal: &Refusal) -> String {
    match (StatusCode::from_u16(refusal.status), &refusal.token_from) {
        (Ok(StatusCode::UNAUTHORIZED), Some(place)) => format!("the token in {place} is not the proxy's"),
        (Ok(StatusCode::UNAUTHORIZED), None) => {
            format!("the proxy wants its token, and none was given: --token-file FILE or ${TOKEN} is the place for it")
        }
        (Ok(status), _) if refusal.detail.is_empty() => format!("the proxy answers {status}, and does not say why"),
        _ => refusal.detail.clone(),
    }
}

/// What is given, always with its port: what is said of it later must name it whole.
fn authority(text: &str) -> Result<Authority, String> {
    if text.starts_with("https://") {
        return Err("the admin listener speaks plain HTTP; write HOST:PORT or http://HOST:PORT".to_owned());
    }
    let bare = text.strip_prefix("http://").unwrap_or(text);
    let bare = bare.strip_suffix('/').unwrap_or(bare);
    let wrong = || "write HOST:PORT or http://HOST:PORT, such as 127.0.0.1:9900".to_owned();
    if !bare.is_empty() && bare.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("`{bare}` is no host; if it is the port write 127.0.0.1:{bare}"));
    }
    let authority: Authority = bare.parse().map_err(|_| wrong())?;
    if authority.host().is_empty() || bare.contains('@') || bare.ends_with(':') {
        return Err(wrong());
    }
    match authority.port() {
        Some(_) if authority.port_u16().is_some() => Ok(authority),
        Some(_) => Err(wrong()),
        None => format!("{bare}:{PORT}").parse().map_err(|_| wrong()),
    }
}

fn unbracketed(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_given_bare_or_as_a_url() {
        let rows = [
            ("127.0.0.1:9900", Some("127.0.0.1:9900")),
            ("http://localhost:1/", Some("localhost:1")),
            ("[::1]:9900", Some("[::1]:9900")),
            ("proxy", Some("proxy:9900")),
            ("http://localhost", Some("localhost:9900")),
            ("[::1]", Some("[::1]:9900")),
            ("10.0.0.1", Some("10.0.0.1:9900")),
            ("27901", None),
            ("http://27901/", None),
            ("proxy:", None),
            ("proxy:70000", None),
            ("https://proxy:9900", None),
            ("http://proxy:9900/api", None),
            ("user@proxy:1", None),
            ("127.0.0.1:99009", None),
            ("localhost:65536", None),
            ("localhost:65535", Some("localhost:65535")),
            ("127.0.0.1:", None),
            ("[::1]:", None),
            ("http://127.0.0.1:/", None),
            ("", None),
        ];
        for (text, expected) in rows {
            assert_eq!(authority(text).ok().as_ref().map(Authority::as_str), expected, "{text}");
        }
    }

    #[test]
    fn whatever_a_member_is_called_is_one_segment() {
        assert_eq!(segment("127.0.0.1:80"), "127.0.0.1:80");
        assert_eq!(segment("[::1]:80"), "%5B::1%5D:80");
        assert_eq!(segment("a/b?c d"), "a%2Fb%3Fc%20d");
    }
}
