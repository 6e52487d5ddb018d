//! A proxy that loses one request in twenty: before it reaches the server, on the way back, or in the middle of the answer.

use std::io::{BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::support::{Request, listen, read_body, read_head};

const ONE_IN: usize = 20;

/// What it did.
#[derive(Default)]
pub(crate) struct Proxy {
    pub(crate) requests: AtomicUsize,
    pub(crate) lost: AtomicUsize,
    pub(crate) completing: Mutex<Completing>,
}

/// What becomes of the request that puts parts together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Completing {
    #[default]
    AsOthers,
    /// The server does it, and the answer is lost.
    Forgotten,
    /// The server is said to know no such upload, as some say of what they have done.
    Unknown,
}

#[derive(Clone, Copy, PartialEq)]
enum Loss {
    None,
    /// The server never sees it.
    There,
    /// The server has done it, and nobody learns of it. Not of what may not be done twice.
    Back,
    /// Half of the answer comes.
    Half,
}

impl Proxy {
    /// In front of that server.
    pub(crate) fn before(server: SocketAddr) -> (Arc<Proxy>, SocketAddr) {
        let proxy = Arc::new(Proxy::default());
        let served = Arc::clone(&proxy);
        let at = listen(move |stream| _ = served.one(server, stream));
        (proxy, at)
    }

    fn loss(&self, request: &Request) -> Loss {
        let number = self.requests.fetch_add(1, Ordering::Relaxed) + 1;
        if !number.is_multiple_of(ONE_IN) {
            return Loss::None;
        }
        let lost = self.lost.fetch_add(1, Ordering::Relaxed);
        match (lost % 3, request.method.as_str()) {
            (1, "GET" | "HEAD" | "PUT") => Loss::Back,
            (2, "GET") => Loss::Half,
            _ => Loss::There,
        }
    }

    /// One request a connection: what the answer is, its end tells.
    fn one(&self, server: SocketAddr, client: TcpStream) -> Option<()> {
        let mut from = BufReader::new(client);
        let mut request = read_head(&mut from)?;
        let mut loss = self.loss(&request);
        if request.method == "POST" && request.path.contains("uploadId=") {
            let mut completing = self.completing.lock().unwrap();
            match *completing {
                Completing::AsOthers => {}
                Completing::Forgotten => {
                    *completing = Completing::Unknown;
                    loss = Loss::Back;
                }
                Completing::Unknown => {
                    read_body(&mut from, &mut request)?;
                    let body = "<Error><Code>NoSuchUpload</Code></Error>";
                    let head = format!("HTTP/1.1 404 Not Found\r\nContent-Length: {}\r\n\r\n", body.len());
                    from.get_mut().write_all((head + body).as_bytes()).ok()?;
                    return from.get_ref().shutdown(Shutdown::Both).ok();
                }
            }
        }
        if loss == Loss::There {
            return from.get_ref().shutdown(Shutdown::Both).ok();
        }
        read_body(&mut from, &mut request)?;
        let mut upstream = TcpStream::connect(server).ok()?;
        let head = String::from_utf8_lossy(&request.head).into_owned();
        let (line, headers) = head.split_once("\r\n")?;
        let head = format!("{line}\r\nConnection: close\r\n{headers}");
        upstream.write_all(head.as_bytes()).ok()?;
        upstream.write_all(&request.body).ok()?;
        let mut answer = Vec::new();
        // Some servers keep the connection open whatever they are told.
        read_answer(&mut upstream, &mut answer, request.method == "HEAD")?;
        let len = match loss {
            Loss::Back => 0,
            Loss::Half => answer.len() / 2,
            _ => answer.len(),
        };
        let mut client = from.into_inner();
        client.write_all(&answer[..len]).ok()?;
        client.shutdown(Shutdown::Both).ok()
    }
}

/// All of an answer, by its own word or to the end of the connection.
fn read_answer(from: &mut TcpStream, answer: &mut Vec<u8>, is_head: bool) -> Option<()> {
    let mut piece = vec![0; 256 << 10];
    let mut whole = None;
    while whole.is_none_or(|whole| answer.len() < whole) {
        let read = from.read(&mut piece).ok()?;
        if read == 0 {
            break;
        }
        answer.extend_from_slice(&piece[..read]);
        if whole.is_none()
            && let Some(head) = answer.windows(4).position(|four| four == b"\r\n\r\n")
        {
            let text = String::from_utf8_lossy(&answer[..head]).to_ascii_lowercase();
            let len = text.lines().find_map(|line| line.strip_prefix("content-length:"));
            whole = match (is_head, len) {
                (true, _) => Some(head + 4),
                (false, Some(len)) => Some(head + 4 + len.trim().parse::<usize>().ok()?),
                (false, None) => None,
            };
        }
    }
    Some(())
}
