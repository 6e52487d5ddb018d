//! Objects on a plain HTTP server that knows ranges, and on one that does not.

use std::sync::atomic::Ordering;

use hipfile::Buffer;
use hipfile_object::Objects;
use rustix::io::Errno;

use crate::proxy::Proxy;
use crate::support::{Files, bytes, driver, from_gpu, options, through_gpu};

#[test]
fn ranges_are_read_ahead_of_whoever_reads_in_order() {
    let (driver, content) = (driver(), bytes(20_000_003, 1));
    let (files, at) = Files::default().serve();
    files.files.lock().unwrap().insert("/a/b%20c".into(), content.clone());
    let mut options = options();
    options.part_len = 1 << 20;
    let objects = Objects::new(options).unwrap();
    let object = objects.open(&format!("http://{at}/a/b%20c")).unwrap();
    assert!(through_gpu(&driver, &object, 3_000_000) == content);
    let asked = files.ranges.load(Ordering::Relaxed);
    assert!(asked <= 40, "{asked} ranges of 1 MiB for 20 MB");
    // Small reads in order ask for no more than large ones.
    let object = objects.open(object.url()).unwrap();
    assert!(through_gpu(&driver, &object, 50_000) == content);
    let small = files.ranges.load(Ordering::Relaxed) - asked;
    assert!(small <= 40, "{small} ranges of 1 MiB for 20 MB in 400 reads");
    // Reads here and there ask for just their bytes.
    let file = objects.open(object.url()).unwrap().register(&driver).unwrap();
    let mut buffer = Buffer::alloc(&driver, 0, 4096).unwrap();
    let before = files.ranges.load(Ordering::Relaxed);
    for at in [7_000_000, 3, 19_000_000, 12_345] {
        assert_eq!(file.read_at(&mut buffer, 0..4096, at).unwrap(), 4096);
    }
    assert_eq!(files.ranges.load(Ordering::Relaxed) - before, 4);
}

#[test]
fn one_put_writes_what_fits_into_one() {
    let (driver, content) = (driver(), bytes(10_000_000, 2));
    let (files, at) = Files::default().serve();
    let objects = Objects::new(options()).unwrap();
    let object = objects.create(&format!("http://{at}/new"), Some(content.len() as u64)).unwrap();
    from_gpu(&driver, &object, &content, 1 << 20);
    object.finish().unwrap();
    assert!(files.files.lock().unwrap()["/new"] == content);
    // Without the size it is more than a part, which such a server does not know.
    let object = objects.create(&format!("http://{at}/long"), None).unwrap();
    let file = object.register(&driver).unwrap();
    let buffer = Buffer::alloc(&driver, 0, 9 << 20).unwrap();
    let written = file.write_at(&buffer, 0..9 << 20, 0);
    assert!(written.is_ok_and(|written| written < 9 << 20), "the part that fits");
    let error = file.write_at(&buffer, 0..1 << 20, 9 << 20).unwrap_err();
    assert_eq!(error.os_error(), Some(Errno::FBIG.raw_os_error()));
    let said = object.last_error().unwrap().to_string();
    assert!(said.contains("plain HTTP server takes an object in one piece"), "{said}");
    drop(object);
    assert!(!files.files.lock().unwrap().contains_key("/long"));
}

#[test]
fn a_server_without_ranges_is_refused_by_name() {
    let driver = driver();
    let (files, at) = Files { ignores_ranges: true, ..Files::default() }.serve();
    files.files.lock().unwrap().insert("/file".into(), bytes(100_000, 3));
    let object = Objects::new(options()).unwrap().open(&format!("http://{at}/file")).unwrap();
    let file = object.register(&driver).unwrap();
    let mut buffer = Buffer::alloc(&driver, 0, 4096).unwrap();
    let error = file.read_at(&mut buffer, 0..4096, 4096).unwrap_err();
    assert_eq!(error.os_error(), Some(Errno::OPNOTSUPP.raw_os_error()), "{:?}", object.last_error());
}

#[test]
fn lost_requests_are_made_again_and_a_dead_server_is_an_error() {
    let (driver, content) = (driver(), bytes(30_000_000, 4));
    let (files, server) = Files::default().serve();
    let (proxy, at) = Proxy::before(server);
    files.files.lock().unwrap().insert("/file".into(), content.clone());
    let mut options = options();
    options.part_len = 256 << 10;
    let objects = Objects::new(options.clone()).unwrap();
    let object = objects.open(&format!("http://{at}/file")).unwrap();
    assert!(through_gpu(&driver, &object, 1 << 20) == content);
    assert!(proxy.lost.load(Ordering::Relaxed) >= 3);
    options.retries = 1;
    let objects = Objects::new(options).unwrap();
    // Nobody listens there: the port of a listener that is gone.
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = objects.open(&format!("http://{gone}/file")).unwrap_err();
    assert_eq!(error.errno(), Errno::IO.raw_os_error(), "{error}");
}

#[test]
fn on_a_thread_of_another_runtime_it_works_too() {
    let (driver, content) = (driver(), bytes(3_000_000, 5));
    let (files, at) = Files::default().serve();
    files.files.lock().unwrap().insert("/file".into(), content.clone());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let objects = Objects::new(options()).unwrap();
        let object = objects.open(&format!("http://{at}/file")).unwrap();
        drop(objects);
        assert!(through_gpu(&driver, &object, 1 << 20) == content);
    });
}
