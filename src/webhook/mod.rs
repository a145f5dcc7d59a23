//! Somebody else who is told: a signed POST, sent again where it may not have come through.
//!
//! A 2xx is done, whatever becomes of its body. Whatever may mend is tried again: no connection, no answer, 408, 425, 429 and 5xx. Every try has the same
//! `Idempotency-Key`, by which the other side knows that it is one request. Redirects are not followed.
//!
//! Not here: what it is told, and why (`remediate`, `alert`).

mod signature;

use std::io::Read;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::config::{Secret, Tls, Webhook, line, open_regular};
use crate::{clock, disk, tls};
use signature::{FIELD, signature};

/// The first pause; each further one is twice as long, up to the longest.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// Of the answer's body so much is shown, in bytes.
const MOST_SAID: usize = 1024;

/// So long it is listened to: its status says all, and a body need not end.
const LISTENED: Duration = Duration::from_millis(500);

/// A longer secret is none.
const MOST_SECRET: usize = 4096;

/// Why something that was tried came to nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failed {
    /// One word. Of a webhook: request, secret, connect, tls, timeout, protocol, status.
    pub word: &'static str,
    /// For people.
    pub detail: String,
}

impl Failed {
    /// For this reason.
    pub fn new(word: &'static str, detail: String) -> Failed {
        Failed { word, detail }
    }
}

/// Why a request was not taken, and what is known of that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Untaken {
    /// Of the last try.
    pub failed: Failed,
    /// It may have been taken all the same: in one try or another nobody has answered, or a 5xx, which may be a balancer's.
    pub may_be_known: bool,
    /// Sent again it would be refused again: a 4xx but 408, 425 and 429.
    pub is_for_good: bool,
}

/// Why one try came to nothing, and whether another one may not.
struct Trouble {
    untaken: Untaken,
    may_mend: bool,
}

/// Sends `notice`, whose id is `id`, until it is taken or refused or tried often enough; returns what was answered. Before each
/// further try `again` lets the pause pass that it is given, and says whom to ask by then, or why nobody is to be.
///
/// # Errors
/// It was refused, nobody answered, or nobody is to be asked any more.
pub async fn call<F>(
    webhook: &Webhook,
    id: &str,
    notice: Bytes,
    again: impl Fn(Duration) -> F,
) -> Result<String, Untaken>
where
    F: Future<Output = Result<Webhook, String>>,
{
    let (mut webhook, mut tried, mut may_be_known) = (webhook.clone(), 0, false);
    loop {
        let Trouble { untaken, may_mend } = match attempt(&webhook, id, notice.clone()).await {
            Ok(said) => return Ok(said),
            Err(trouble) => trouble,
        };
        may_be_known |= untaken.may_be_known;
        let Failed { word, detail } = untaken.failed;
        let tries = || if tried == 0 { String::new() } else { format!(", after {} tries", tried + 1) };
        let fail = |detail| Untaken { failed: Failed::new(word, detail), may_be_known, ..untaken };
        if !may_mend || tried >= webhook.retries {
            return Err(fail(format!("{detail}{}", tries())));
        }
        let asked = again(pause(tried, fastrand::f64())).await;
        webhook = asked.map_err(|why| fail(format!("{detail}{}; not tried again: {why}", tries())))?;
        tried += 1;
    }
}

async fn attempt(webhook: &Webhook, id: &str, notice: Bytes) -> Result<String, Trouble> {
    let secret = secret(&webhook.secret).await.map_err(|why| Trouble::stays("secret", why))?;
    let late = || format!("no answer within {}", humantime::format_duration(webhook.timeout));
    let once = timeout(webhook.timeout, once(webhook, &secret, id, notice)).await;
    let (answer, _line) = once.unwrap_or_else(|_| Err(Trouble::unheard("timeout", late())))?;
    judged(answer).await
}

/// Between half of its length and all of it, so that many who failed together do not come back together.
fn pause(tried: u32, chance: f64) -> Duration {
    let whole = PAUSES.0.saturating_mul(1 << tried.min(16)).min(PAUSES.1);
    whole.mul_f64(0.5 + chance / 2.0)
}

async fn secret(secret: &Secret) -> Result<Vec<u8>, String> {
    let path = match secret {
        Secret::Text(text) => return Ok(text.clone().into_bytes()),
        Secret::File(path) => path.clone(),
    };
    let shown = path.display().to_string();
    let read = disk::read(&path.clone(), move || read_secret(&path)).await;
    let read = read.unwrap_or_else(|unread| Err(format!("cannot be read: {unread}")));
    read.map_err(|why| format!("`secret_file` {shown} {why}"))
}

/// The secret that the file at `path` holds, without the end of its line.
///
/// # Errors
/// What is wrong with it: it may be a pipe, a device, or far too much.
pub fn read_secret(path: &Path) -> Result<Vec<u8>, String> {
    let unread = |error: std::io::Error| format!("cannot be read: {error}");
    let Some(file) = open_regular(path).map_err(unread)? else {
        return Err("cannot be read: it is not a regular file".to_owned());
    };
    let mut bytes = Vec::new();
    // Of the end of its line two bytes, and one more, which would be too much.
    file.take(MOST_SECRET as u64 + 3).read_to_end(&mut bytes).map_err(unread)?;
    match line(&bytes) {
        [] => Err("is empty".to_owned()),
        secret if secret.len() > MOST_SECRET => Err(format!("has more than {MOST_SECRET} bytes")),
        secret => Ok(secret.to_vec()),
    }
}

/// A connection, which ends when nobody needs it.
struct Line(AbortHandle);

impl Drop for Line {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn once(
    webhook: &Webhook,
    secret: &[u8],
    id: &str,
    notice: Bytes,
) -> Result<(Response<Incoming>, Line), Trouble> {
    let request = request(&webhook.url, secret, id, notice).map_err(|why| Trouble::stays("request", why))?;
    let host = webhook.url.host().unwrap_or_default();
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let is_tls = webhook.url.scheme_str() == Some("https");
    let port = webhook.url.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
    let connected = match host.parse::<IpAddr>() {
        Ok(address) => TcpStream::connect((address, port)).await,
        Err(_) => TcpStream::connect((host, port)).await,
    };
    let stream = connected.map_err(|error| Trouble::mends("connect", error.to_string()))?;
    if !is_tls {
        return exchange(stream, request).await;
    }
    let setup = |error: tls::TlsError| Trouble::stays("tls", error.to_string());
    let trust = tls::client(&Tls::default(), &tls::Material { authorities: None, client: None }).map_err(setup)?;
    let name = tls::server_name(host).map_err(setup)?;
    let secured = TlsConnector::from(Arc::clone(&trust)).connect(name, stream).await;
    exchange(secured.map_err(|error| Trouble::mends("tls", error.to_string()))?, request).await
}

fn request(url: &Uri, secret: &[u8], id: &str, notice: Bytes) -> Result<Request<Full<Bytes>>, String> {
    let seconds = clock::wall().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs();
    let signed = signature(secret, seconds, &notice);
    let mut request = Request::new(Full::new(notice));
    *request.method_mut() = Method::POST;
    let path = url.path_and_query().map_or("/", |path| path.as_str());
    // A path that is not written is the root (RFC 9112 section 3.2.1).
    let path = if path.starts_with('?') { format!("/{path}") } else { path.to_owned() };
    *request.uri_mut() = path.parse().map_err(|error| format!("{path}: {error}"))?;
    let field = |text: &str| HeaderValue::from_str(text).map_err(|error| error.to_string());
    let host = url.authority().map_or("", |authority| authority.as_str());
    let headers = request.headers_mut();
    headers.insert(HOST, field(host)?);
    headers.insert(USER_AGENT, HeaderValue::from_static(concat!("pulsegate/", env!("CARGO_PKG_VERSION"))));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert("idempotency-key", field(id)?);
    headers.insert(FIELD, field(&signed)?);
    Ok(request)
}

async fn exchange<S>(stream: S, request: Request<Full<Bytes>>) -> Result<(Response<Incoming>, Line), Trouble>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let broken = |error: hyper::Error| Trouble::unheard("protocol", error.to_string());
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    let line = Line(tokio::spawn(connection).abort_handle());
    Ok((sender.send_request(request).await.map_err(broken)?, line))
}

/// What an answer says of the request.
async fn judged(answer: Response<Incoming>) -> Result<String, Trouble> {
    let status = answer.status();
    let body = beginning(answer.into_body()).await;
    let shown = if body.is_empty() { status.to_string() } else { format!("{status}: {body}") };
    let may_mend = status.is_server_error()
        || matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS);
    match status.is_success() {
        true => Ok(shown),
        false => Err(Trouble {
            untaken: Untaken {
                failed: Failed::new("status", shown),
                may_be_known: status.is_server_error(),
                is_for_good: status.is_client_error() && !may_mend,
            },
            may_mend,
        }),
    }
}

/// What the answer begins with; how it ends, and whether, does not matter.
async fn beginning(mut body: Incoming) -> String {
    let mut bytes = Vec::new();
    let listen = async {
        while let Some(Ok(frame)) = body.frame().await {
            bytes.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
            if bytes.len() >= MOST_SAID {
                bytes.truncate(MOST_SAID);
                break;
            }
        }
    };
    let _ = timeout(LISTENED, listen).await;
    String::from_utf8_lossy(&bytes).trim().to_owned()
}

impl Trouble {
    /// Nobody has it.
    fn mends(word: &'static str, detail: String) -> Trouble {
        Trouble { may_mend: true, ..Trouble::stays(word, detail) }
    }

    /// Nobody has it.
    fn stays(word: &'static str, detail: String) -> Trouble {
        let untaken = Untaken { failed: Failed::new(word, detail), may_be_known: false, is_for_good: false };
        Trouble { untaken, may_mend: false }
    }

    /// Somebody may have it.
    fn unheard(word: &'static str, detail: String) -> Trouble {
        let Trouble { untaken, may_mend } = Trouble::mends(word, detail);
        Trouble { untaken: Untaken { may_be_known: true, ..untaken }, may_mend }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_limit_and_are_never_the_same() {
        let seconds = |tried, chance| pause(tried, chance).as_secs_f64();
        assert_eq!([seconds(0, 0.0), seconds(0, 1.0), seconds(1, 1.0), seconds(3, 0.5)], [0.5, 1.0, 2.0, 6.0]);
        assert_eq!([seconds(5, 1.0), seconds(99, 1.0)], [30.0, 30.0]);
    }

    /// Asks somebody who says `answer` and then nothing, and returns how that went and how often he was asked.
    async fn asked(answer: &'static str) -> (Result<String, Failed>, usize) {
        let (result, times) = asked_again(vec![answer], |webhook| Ok(webhook.clone())).await;
        (result.map_err(|untaken| untaken.failed), times)
    }

    /// The same of somebody who says these one after the other, and hangs up for one that is empty; `again` decides on
    /// further tries.
    async fn asked_again(
        answers: Vec<&'static str>,
        again: impl Fn(&Webhook) -> Result<Webhook, String>,
    ) -> (Result<String, Untaken>, usize) {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
        let webhook = Webhook {
            url,
            secret: Secret::Text("open sesame".to_owned()),
            timeout: Duration::from_secs(60),
            retries: 1,
        };
        let times = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let counted = times.clone();
        let server = tokio::spawn(async move {
            let mut kept = Vec::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let turn = counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                let mut some = [0; 4096];
                let _ = stream.read(&mut some).await;
                let answer = answers[turn.min(answers.len() - 1)];
                let _ = stream.write_all(answer.as_bytes()).await;
                kept.extend(Some(stream).filter(|_| !answer.is_empty()));
            }
        });
        let result = call(&webhook, "id", Bytes::from_static(b"{}"), |_| std::future::ready(again(&webhook))).await;
        server.abort();
        (result, times.load(std::sync::atomic::Ordering::Relaxed))
    }

    #[tokio::test]
    async fn what_one_try_may_have_brought_is_not_forgotten_for_what_the_last_one_did() {
        const BUSY: &str = "HTTP/1.1 429 Busy\r\nContent-Length: 0\r\n\r\n";
        const GONE: &str = "HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n";
        const BROKEN: &str = "HTTP/1.1 502 Broken\r\nContent-Length: 0\r\n\r\n";
        const ELSEWHERE: &str = "HTTP/1.1 307 Elsewhere\r\nContent-Length: 0\r\n\r\n";
        let rows: [(&[&'static str], bool, bool, usize); 7] = [
            (&[BUSY], false, false, 2),
            (&["", BUSY], true, false, 2),
            (&[BROKEN, BUSY], true, false, 2),
            (&[BUSY, BROKEN], true, false, 2),
            (&["", GONE], true, true, 2),
            (&[GONE], false, true, 1),
            (&[ELSEWHERE], false, false, 1),
        ];
        for (answers, may_be_known, is_for_good, tries) in rows {
            let (result, times) = asked_again(answers.to_vec(), |webhook| Ok(webhook.clone())).await;
            let untaken = result.unwrap_err();
            let known = (untaken.may_be_known, untaken.is_for_good, times);
            assert_eq!(known, (may_be_known, is_for_good, tries), "{answers:?}: {untaken:?}");
        }
    }

    #[test]
    fn a_url_without_a_path_asks_for_the_root() {
        for (url, target) in [("http://a.test", "/"), ("http://a.test?x=1", "/?x=1"), ("http://a.test/b?c", "/b?c")] {
            let request = request(&url.parse().unwrap(), b"s", "id", Bytes::new()).unwrap();
            assert_eq!(request.uri().to_string(), target, "{url}");
        }
    }

    #[tokio::test]
    async fn an_answer_whose_body_does_not_end_is_an_answer() {
        let half = "HTTP/1.1 202 Accepted\r\nContent-Length: 100\r\n\r\non its way";
        assert_eq!(asked(half).await, (Ok("202 Accepted: on its way".to_owned()), 1));
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n";
        assert_eq!(asked(chunked).await, (Ok("200 OK: ok".to_owned()), 1));
        let refused = "HTTP/1.1 403 Forbidden\r\nContent-Length: 100\r\n\r\nno";
        assert_eq!(asked(refused).await, (Err(Failed::new("status", "403 Forbidden: no".to_owned())), 1));
    }

    #[tokio::test]
    async fn before_each_further_try_it_is_asked_whether_and_whom() {
        let busy = || vec!["HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"];
        let failed = |(result, times): (Result<String, Untaken>, usize)| {
            let Failed { word, detail } = result.unwrap_err().failed;
            (format!("{word}: {detail}"), times)
        };
        let over = asked_again(busy(), |_| Err("it is over".to_owned())).await;
        assert_eq!(failed(over), ("status: 503 Service Unavailable; not tried again: it is over".to_owned(), 1));
        let fewer = asked_again(busy(), |webhook| Ok(Webhook { retries: 0, ..webhook.clone() })).await;
        assert_eq!(failed(fewer), ("status: 503 Service Unavailable, after 2 tries".to_owned(), 2));
        let other = |webhook: &Webhook| {
            let secret = Secret::File("/no/such/secret".into());
            Ok(Webhook { secret, ..webhook.clone() })
        };
        let (result, times) = asked_again(busy(), other).await;
        assert_eq!((result.map_err(|untaken| untaken.failed.word), times), (Err("secret"), 1));
    }

    #[tokio::test]
    async fn a_secret_in_a_file_ends_before_the_end_of_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        let (most, more) = ("x".repeat(MOST_SECRET), "x".repeat(MOST_SECRET + 1));
        let rows = [
            ("s3cret\n", Ok(&b"s3cret"[..])),
            ("s3cret\r\n", Ok(b"s3cret")),
            ("s3cret\r", Ok(b"s3cret\r")),
            ("s3 \n\n", Ok(b"s3 \n")),
            ("\n", Err("is empty")),
            ("\r\n", Err("is empty")),
            (&format!("{most}\r\n"), Ok(most.as_bytes())),
            (&more, Err("has more than 4096 bytes")),
        ];
        for (held, expected) in rows {
            std::fs::write(&path, held).unwrap();
            match (secret(&Secret::File(path.clone())).await, expected) {
                (Ok(read), Ok(expected)) => assert_eq!(read, expected),
                (Err(error), Err(expected)) => assert!(error.contains(expected), "{error}"),
                (read, _) => panic!("{held:?}: {read:?}"),
            }
        }
        let gone = secret(&Secret::File(folder.path().join("gone"))).await.unwrap_err();
        assert!(gone.contains("cannot be read"), "{gone}");
        for odd in ["/dev/zero", "/dev"] {
            let refused = secret(&Secret::File(odd.into())).await.unwrap_err();
            assert!(refused.contains("not a regular file"), "{odd}: {refused}");
        }
    }
}
