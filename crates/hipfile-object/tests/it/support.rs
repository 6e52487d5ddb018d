//! What the tests share: bytes, a driver on the emulated GPU, and a server for HTTP/1.1 in a few lines.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hipfile::{Buffer, Config, DeviceChoice, Driver};
use hipfile_object::{Object, Options};

pub(crate) fn driver() -> Driver {
    let mut config = Config::default();
    config.device = DeviceChoice::Emulated;
    Driver::open(config).unwrap()
}

/// Impatient ones, so that failures are quick.
pub(crate) fn options() -> Options {
    Options { first_wait: Duration::from_millis(5), ..Options::default() }
}

/// Bytes that repeat nowhere near.
pub(crate) fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2) | 1;
    let mut bytes = vec![0; len];
    for chunk in bytes.chunks_mut(8) {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        let value = state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes();
        chunk.copy_from_slice(&value[..chunk.len()]);
    }
    bytes
}

/// Reads all of an object through GPU memory, so much at a time.
pub(crate) fn through_gpu(driver: &Driver, object: &Object, step: usize) -> Vec<u8> {
    let file = object.register(driver).unwrap();
    let mut buffer = Buffer::alloc(driver, 0, step).unwrap();
    let mut all = Vec::new();
    loop {
        let read = file.read_at(&mut buffer, 0..step, all.len() as u64).unwrap();
        if read == 0 {
            return all;
        }
        let at = all.len();
        all.resize(at + read, 0);
        buffer.download(0, &mut all[at..]).unwrap();
    }
}

/// Writes bytes through GPU memory, so much at a time.
pub(crate) fn from_gpu(driver: &Driver, object: &Object, bytes: &[u8], step: usize) {
    let file = object.register(driver).unwrap();
    let mut buffer = Buffer::alloc(driver, 0, step).unwrap();
    for (index, chunk) in bytes.chunks(step).enumerate() {
        buffer.upload(0, chunk).unwrap();
        let written = file.write_at(&buffer, 0..chunk.len(), (index * step) as u64);
        assert_eq!(written.map_err(|e| format!("{e} {:?}", object.last_error())), Ok(chunk.len()));
    }
}

/// A request as it came.
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    /// Names in lower case.
    pub(crate) headers: HashMap<String, String>,
    /// As it came, for those who pass it on.
    pub(crate) head: Vec<u8>,
    pub(crate) body: Vec<u8>,
}

/// Reads the head of a request; what follows is still in the reader.
pub(crate) fn read_head(from: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if from.read_until(b'\n', &mut head).ok()? == 0 {
            return None;
        }
    }
    let text = String::from_utf8_lossy(&head).into_owned();
    let mut lines = text.lines();
    let mut words = lines.next()?.split(' ').map(str::to_owned);
    let (method, path) = (words.next()?, words.next()?);
    let header = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_ascii_lowercase(), value.trim().to_owned()))
    };
    Some(Request { method, path, headers: lines.filter_map(header).collect(), head, body: Vec::new() })
}

pub(crate) fn read_body(from: &mut BufReader<TcpStream>, request: &mut Request) -> Option<()> {
    let len = request.headers.get("content-length").map_or(0, |len| len.parse().unwrap());
    request.body = vec![0; len];
    from.read_exact(&mut request.body).ok()
}

/// A plain server for files in memory that knows ranges, If-Match and PUT.
#[derive(Default)]
pub(crate) struct Files {
    pub(crate) files: Mutex<HashMap<String, Vec<u8>>>,
    /// What the ETag of each is made of.
    pub(crate) version: AtomicUsize,
    pub(crate) ranges: AtomicUsize,
    /// Whether it leaves the range aside and sends everything.
    pub(crate) ignores_ranges: bool,
}

impl Files {
    pub(crate) fn serve(self) -> (Arc<Files>, SocketAddr) {
        let files = Arc::new(self);
        let served = Arc::clone(&files);
        let at = listen(move |stream| {
            let mut from = BufReader::new(stream);
            while let Some(mut request) = read_head(&mut from) {
                if read_body(&mut from, &mut request).is_none()
                    || from.get_ref().write_all(&served.answer(request)).is_err()
                {
                    return;
                }
            }
        });
        (files, at)
    }

    fn answer(&self, request: Request) -> Vec<u8> {
        let answer = |status: &str, more: &str, body: &[u8], len: usize| {
            let head = format!("HTTP/1.1 {status}\r\nContent-Length: {len}\r\n{more}\r\n");
            [head.as_bytes(), body].concat()
        };
        let mut files = self.files.lock().unwrap();
        if request.method == "PUT" {
            files.insert(request.path, request.body);
            return answer("201 Created", "", b"", 0);
        }
        let Some(file) = files.get(&request.path) else {
            return answer("404 Not Found", "", b"", 0);
        };
        let etag = format!("\"{}\"", self.version.load(Ordering::Relaxed));
        if request.headers.get("if-match").is_some_and(|wanted| *wanted != etag) {
            return answer("412 Precondition Failed", "", b"", 0);
        }
        let more = format!("ETag: {etag}\r\nAccept-Ranges: bytes\r\n");
        if request.method == "HEAD" {
            return answer("200 OK", &more, b"", file.len());
        }
        match request.headers.get("range").filter(|_| !self.ignores_ranges) {
            Some(range) => {
                self.ranges.fetch_add(1, Ordering::Relaxed);
                let (start, end) = range.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
                let (start, end): (usize, usize) = (start.parse().unwrap(), end.parse().unwrap());
                let end = (end + 1).min(file.len());
                let more = format!("{more}Content-Range: bytes {start}-{}/{}\r\n", end - 1, file.len());
                answer("206 Partial Content", &more, &file[start..end], end - start)
            }
            None => answer("200 OK", &more, file, file.len()),
        }
    }
}

/// A thread that listens, and one for each connection.
pub(crate) fn listen(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let serve = Arc::new(serve);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let serve = Arc::clone(&serve);
            std::thread::spawn(move || serve(stream));
        }
    });
    at
}
