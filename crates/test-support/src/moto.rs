//! An S3 server of other people's for tests: moto's, from the Python package index. It serves one bucket on this machine.
#![allow(clippy::unwrap_used, reason = "a server that cannot be reached fails the test")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

/// The server, in a process of its own, which ends with this.
#[derive(Debug)]
pub struct Moto {
    child: Child,
    /// Where it listens.
    pub at: SocketAddr,
}

impl Moto {
    /// Starts it, with an empty bucket named bucket; where there is none, says that it is skipped.
    ///
    /// # Panics
    /// It does not start.
    pub fn start() -> Option<Moto> {
        let Some(python) = crate::variable("HIPFILE_TEST_MOTO") else {
            #[expect(clippy::print_stderr, reason = "where skips are looked for")]
            let () = eprintln!("SKIP: an S3 server: HIPFILE_TEST_MOTO names no Python that has moto");
            return None;
        };
        const PROGRAM: &str = "import sys\n\
            from moto.server import ThreadedMotoServer\n\
            server = ThreadedMotoServer(ip_address='127.0.0.1', port=0, verbose=False)\n\
            server.start()\n\
            print('%s:%s' % server.get_host_and_port(), flush=True)\n\
            sys.stdin.read()";
        let mut command = Command::new(python);
        command.args(["-c", PROGRAM]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let moto = Moto { child, at: line.trim().parse().unwrap() };
        let answer = moto.ask("PUT /bucket");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        Some(moto)
    }

    /// What it answers to a request such as `GET /bucket`, all of it.
    ///
    /// # Panics
    /// It is not there.
    pub fn ask(&self, what: &str) -> String {
        let mut stream = TcpStream::connect(self.at).unwrap();
        let request =
            format!("{what} HTTP/1.1\r\nHost: {}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", self.at);
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
