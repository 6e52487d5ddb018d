//! Opening, closing, forking, and many threads.

use hipfile::{Buffer, ErrorKind, File};

use crate::support::{Storage, driver, driver_with};

#[test]
fn a_closed_driver_forgets_and_serves_again() {
    let (driver, storage) = (driver(), Storage::here());
    std::fs::write(storage.path("f"), b"x").unwrap();
    let file = File::register(&driver, std::fs::File::open(storage.path("f")).unwrap()).unwrap();
    let mut buffer = Buffer::alloc(&driver, 0, 64).unwrap();
    driver.close();
    assert_eq!(file.read_at(&mut buffer, 0..1, 0).unwrap_err().kind(), ErrorKind::HandleNotRegistered);
    let file = File::register(&driver, std::fs::File::open(storage.path("f")).unwrap()).unwrap();
    assert_eq!(file.read_at(&mut buffer, 0..1, 0).unwrap(), 1, "the memory is unregistered now, and works");
}

#[test]
fn behaviour_44_fresh_threads_read_memory_made_elsewhere() {
    let (driver, storage) = (driver(), Storage::here());
    std::fs::write(storage.path("f"), vec![5; 40_960]).unwrap();
    let file = File::register(&driver, std::fs::File::open(storage.path("f")).unwrap()).unwrap();
    let buffer = Buffer::alloc(&driver, 0, 32 * 1280).unwrap();
    std::thread::scope(|scope| {
        for n in 0..32usize {
            let (driver, file, ptr) = (&driver, &file, buffer.ptr());
            scope.spawn(move || {
                // SAFETY: the threads read into ranges of their own, inside the buffer.
                let got = unsafe { driver.read(file.id(), ptr, 1280, n as i64 * 1280, n as i64 * 1280) };
                assert_eq!(got.unwrap(), 1280);
            });
        }
    });
    let mut bytes = vec![0; buffer.len()];
    buffer.download(0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|b| *b == 5));
}

#[test]
fn a_pool_of_one_block_serves_64_threads() {
    let storage = Storage::here();
    let driver = driver_with(&["bounce"], |c| c.pool_len = c.block_len);
    std::fs::write(storage.path("f"), vec![5; 300_000]).unwrap();
    let file = File::register(&driver, std::fs::File::open(storage.path("f")).unwrap()).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..64 {
            let (driver, file) = (&driver, &file);
            scope.spawn(move || {
                let mut buffer = Buffer::alloc(driver, 0, 300_000).unwrap();
                assert_eq!(file.read_at(&mut buffer, 0..300_000, 0).unwrap(), 300_000);
            });
        }
    });
    let stats = driver.stats();
    assert_eq!((stats.read[0].operations, stats.read[0].bytes), (64, 64 * 300_000));
}

#[test]
fn a_forked_child_gets_answers_and_the_parent_is_unharmed() {
    let (driver, storage) = (driver(), Storage::here());
    std::fs::write(storage.path("f"), b"parent").unwrap();
    let file = File::register(&driver, std::fs::File::open(storage.path("f")).unwrap()).unwrap();
    let mut buffer = Buffer::alloc(&driver, 0, 64).unwrap();
    assert_eq!(file.read_at(&mut buffer, 0..6, 0).unwrap(), 6);
    // SAFETY: the child calls only the library, which promises to take no lock, and _exit.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let read = file.read_at(&mut buffer, 0..6, 0).is_err_and(|e| e.os_error() == Some(libc::EINVAL));
        let register = driver.register_file(0).is_err_and(|e| e.kind() == ErrorKind::DriverClosing);
        let end =
            driver.deregister_file(file.id()).is_err_and(|e| e.kind() == ErrorKind::HandleNotRegistered);
        driver.close();
        let code = i32::from(!(read && register && end && driver.in_forked_child()));
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    // SAFETY: `status` is writable.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child's checks failed or it died");
    assert_eq!(file.read_at(&mut buffer, 0..6, 0).unwrap(), 6);
}

#[test]
fn use_and_close_race_without_harm() {
    let (driver, storage) = (driver(), Storage::here());
    std::fs::write(storage.path("f"), vec![1; 100_000]).unwrap();
    let buffer = Buffer::alloc(&driver, 0, 600_000).unwrap();
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..6)
            .map(|n| {
                let (driver, storage, ptr) = (&driver, &storage, buffer.ptr());
                scope.spawn(move || {
                    for _ in 0..100 {
                        let file = std::fs::File::open(storage.path("f")).unwrap();
                        let Ok(file) = File::register(driver, file) else {
                            continue;
                        };
                        // SAFETY: the buffer outlives the scope, and each thread has a range of its own.
                        match unsafe { driver.read(file.id(), ptr, 100_000, 0, n * 100_000) } {
                            Ok(n) => assert_eq!(n, 100_000),
                            Err(error) => assert_eq!(error.kind(), ErrorKind::HandleNotRegistered, "{error}"),
                        }
                    }
                })
            })
            .collect();
        while !readers.iter().all(|r| r.is_finished()) {
            driver.close();
            std::thread::yield_now();
        }
    });
}
