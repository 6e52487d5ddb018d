//! Objects on an S3 server: moto's, from the Python package index. `HIPFILE_TEST_MOTO` is the Python that has it; `cargo xtask
//! ci objects` makes one. `HIPFILE_TEST_OBJECT_MIB` is how large the large object is.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Instant;

use hipfile::{Buffer, File};
use hipfile_object::{Objects, Options};
use test_support::moto::Moto;

use crate::proxy::{Completing, Proxy};
use crate::support::{bytes, driver, from_gpu, options, through_gpu};

fn objects(at: SocketAddr, change: impl FnOnce(&mut Options)) -> Objects {
    let mut options = options();
    options.settings = [
        ("aws_endpoint", format!("http://{at}")),
        ("aws_allow_http", "true".into()),
        ("aws_access_key_id", "key".into()),
        ("aws_secret_access_key", "secret".into()),
        ("aws_region", "us-east-1".into()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .to_vec();
    change(&mut options);
    Objects::new(options).unwrap()
}

#[test]
fn an_object_of_several_parts_comes_back_as_it_went() {
    let Some(moto) = Moto::start() else { return };
    let (driver, objects) = (driver(), objects(moto.at, |o| o.part_len = 5 << 20));
    let content = bytes((12 << 20) + 12_345, 1);
    let object = objects.create("s3://bucket/folder/a b+c.bin", None).unwrap();
    from_gpu(&driver, &object, &content, 3_000_000);
    assert!(objects.open(object.url()).is_err_and(|e| e.errno() == 2), "before it is finished");
    object.finish().unwrap();
    let read = objects.open(object.url()).unwrap();
    assert_eq!(read.size(), content.len() as u64);
    assert!(through_gpu(&driver, &read, 4 << 20) == content);
    // Somewhere in it, beyond its end, and the wrong way round.
    let file = read.register(&driver).unwrap();
    assert_eq!(objects.of_file(file.id()).unwrap().url(), read.url());
    let mut buffer = Buffer::alloc(&driver, 0, 2 << 20).unwrap();
    let at = 5_000_001_usize;
    assert_eq!(file.read_at(&mut buffer, 17..1_000_000, at as u64).unwrap(), 1_000_000 - 17);
    let mut part = vec![0; 1_000_000 - 17];
    buffer.download(17, &mut part).unwrap();
    assert!(part == content[at..at + part.len()]);
    assert_eq!(file.read_at(&mut buffer, 0..100, content.len() as u64).unwrap(), 0);
    assert_eq!(file.write_at(&buffer, 0..100, 0).unwrap_err().os_error(), Some(9));
    assert_eq!(file.info().unwrap().file_system.as_deref(), Some("objects"));
}

#[test]
fn small_and_empty_objects_are_one_put() {
    let Some(moto) = Moto::start() else { return };
    let (driver, objects) = (driver(), objects(moto.at, |_| ()));
    for len in [0, 1, 4096, 1_000_000] {
        let content = bytes(len, 2);
        let object = objects.create("s3://bucket/small", Some(len as u64)).unwrap();
        from_gpu(&driver, &object, &content, 1 << 20);
        object.finish().unwrap();
        assert_eq!(object.finish().unwrap_err().errno(), 9);
        assert!(
            through_gpu(&driver, &objects.open("s3://bucket/small").unwrap(), 300_000) == content,
            "{len}"
        );
    }
}

#[test]
fn what_is_given_up_leaves_no_object_and_no_parts() {
    let Some(moto) = Moto::start() else { return };
    let (driver, objects) = (driver(), objects(moto.at, |o| o.part_len = 5 << 20));
    let object = objects.create("s3://bucket/given-up", None).unwrap();
    from_gpu(&driver, &object, &bytes(11 << 20, 3), 1 << 20);
    assert!(moto.ask("GET /bucket?uploads").contains("<Key>given-up</Key>"));
    drop(object);
    assert!(!moto.ask("GET /bucket?uploads").contains("given-up"));
    assert_eq!(objects.open("s3://bucket/given-up").unwrap_err().errno(), 2);
}

#[test]
fn an_object_replaced_meanwhile_is_not_mixed_with_the_old_one() {
    let Some(moto) = Moto::start() else { return };
    let (driver, objects) = (driver(), objects(moto.at, |_| ()));
    let put = |seed| {
        let object = objects.create("s3://bucket/replaced", None).unwrap();
        from_gpu(&driver, &object, &bytes(3 << 20, seed), 1 << 20);
        object.finish().unwrap();
    };
    put(4);
    let old = objects.open("s3://bucket/replaced").unwrap();
    let file = old.register(&driver).unwrap();
    let mut buffer = Buffer::alloc(&driver, 0, 1 << 20).unwrap();
    assert_eq!(file.read_at(&mut buffer, 0..1 << 20, 0).unwrap(), 1 << 20);
    put(5);
    let error = file.read_at(&mut buffer, 0..1 << 20, 2 << 20).unwrap_err();
    assert_eq!(error.os_error(), Some(rustix::io::Errno::STALE.raw_os_error()));
    let said = old.last_error().unwrap().to_string();
    assert!(said.starts_with("s3://bucket/replaced: it was replaced while it was read"), "{said}");
}

#[test]
fn what_is_missing_is_named() {
    let Some(moto) = Moto::start() else { return };
    let objects = objects(moto.at, |_| ());
    for url in ["s3://bucket/no-such-key", "s3://no-such-bucket/key"] {
        let error = objects.open(url).unwrap_err();
        assert!(error.to_string().starts_with(&format!("{url}: there is no such object")), "{error}");
        assert_eq!(error.errno(), 2);
    }
    let object = objects.create("s3://no-such-bucket/key", None).unwrap();
    assert_eq!(object.finish().unwrap_err().errno(), 2);
}

/// 1 GiB with `cargo xtask deep`, less in CI, through a proxy that loses every twentieth request.
#[test]
fn a_large_object_survives_a_network_that_loses_requests() {
    let Some(moto) = Moto::start() else { return };
    let mib: usize = std::env::var("HIPFILE_TEST_OBJECT_MIB").map_or(64, |mib| mib.parse().unwrap());
    eprintln!("an object of {mib} MiB; 1024 in cargo xtask deep");
    let (proxy, at) = Proxy::before(moto.at);
    // Small requests, so that many are lost.
    let (driver, objects) = (driver(), objects(at, |o| o.part_len = 5 << 20));
    let content = bytes(mib << 20, 6);
    let begun = Instant::now();
    let object = objects.create("s3://bucket/large", Some(content.len() as u64)).unwrap();
    from_gpu(&driver, &object, &content, 16 << 20);
    object.finish().unwrap();
    let written = begun.elapsed();
    // The server reads all of the object for each range, so of a large one they are larger.
    let objects = self::objects(at, |o| o.part_len = (mib / 128).max(1) << 20);
    let back = through_gpu(&driver, &objects.open("s3://bucket/large").unwrap(), 16 << 20);
    let (requests, lost) = (proxy.requests.load(Ordering::Relaxed), proxy.lost.load(Ordering::Relaxed));
    eprintln!("written in {written:?}, all in {:?}, {lost} of {requests} requests lost", begun.elapsed());
    assert_eq!(hash(&back), hash(&content));
    assert!(lost >= requests / 21 && lost > 0, "{lost} of {requests}");
}

/// Putting parts together is not safe to ask for twice: a server that has done it may know of no parts any more.
#[test]
fn an_upload_whose_last_answer_is_lost_is_finished() {
    let Some(moto) = Moto::start() else { return };
    let (proxy, at) = Proxy::before(moto.at);
    let (driver, objects) = (driver(), objects(at, |o| o.part_len = 5 << 20));
    let write = |seed: u64, len: usize, completing: Completing| {
        *proxy.completing.lock().unwrap() = completing;
        let (object, content) = (objects.create("s3://bucket/key", None).unwrap(), bytes(len, seed));
        from_gpu(&driver, &object, &content, 3 << 20);
        (object.finish(), content)
    };
    let is =
        |content: &[u8]| through_gpu(&driver, &objects.open("s3://bucket/key").unwrap(), 4 << 20) == content;
    let len = 11 << 20;
    // Where there is none yet, and where there is an older one of the same length.
    for seed in [1, 2] {
        let (finished, content) = write(seed, len, Completing::Forgotten);
        finished.unwrap();
        assert!(is(&content), "{seed}");
    }
    // What was never put together is an error, whatever older object there is.
    for len in [len, len + 1] {
        let error = write(3, len, Completing::Unknown).0.unwrap_err();
        assert_eq!(error.errno(), 2, "{error}");
        assert!(is(&bytes(11 << 20, 2)), "the old one is left");
    }
}

fn hash(bytes: &[u8]) -> (usize, u64) {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    (bytes.len(), bytes.iter().fold(0xcbf2_9ce4_8422_2325, step))
}

#[test]
fn several_threads_read_one_object() {
    let Some(moto) = Moto::start() else { return };
    let (driver, objects) = (driver(), objects(moto.at, |o| o.part_len = 1 << 20));
    let content = bytes(9_000_000, 7);
    let object = objects.create("s3://bucket/shared", None);
    // Parts of 1 MiB are too small for S3, so this one is a single PUT.
    drop(object);
    let single = self::objects(moto.at, |o| o.part_len = 16 << 20);
    let object = single.create("s3://bucket/shared", None).unwrap();
    from_gpu(&driver, &object, &content, 1 << 20);
    object.finish().unwrap();
    let file: File = objects.open("s3://bucket/shared").unwrap().register(&driver).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (driver, file, content) = (&driver, &file, &content);
            scope.spawn(move || {
                let mut buffer = Buffer::alloc(driver, 0, 400_000).unwrap();
                let mut part = vec![0; 400_000];
                for step in 0..10 {
                    let at = (step * 4 + thread) * 200_003;
                    let due = content.len().saturating_sub(at).min(400_000);
                    assert_eq!(file.read_at(&mut buffer, 0..400_000, at as u64).unwrap(), due);
                    buffer.download(0, &mut part).unwrap();
                    assert!(part[..due] == content[at..at + due], "thread {thread}, step {step}");
                }
            });
        }
    });
}
