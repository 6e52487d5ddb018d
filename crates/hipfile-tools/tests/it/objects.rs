//! Objects as ends of a copy; and what a build says that has none.

#[cfg(not(feature = "objects"))]
#[test]
fn without_the_feature_a_url_says_how_to_get_it() {
    let lab = crate::support::Lab::new();
    lab.write("file", b"content");
    for [source, destination] in [["s3://bucket/key", "copy"], ["file", "https://host/key"]] {
        lab.fails(&[source, destination], &["://", "built without object stores", "--features objects"]);
        assert!(!lab.path("copy").exists());
    }
    // No URL, but the name of a file.
    lab.mkdir("s3:");
    lab.copies(&["file", "./s3://key"]);
    assert_eq!(lab.read("s3:/key"), b"content");
}

#[cfg(feature = "objects")]
mod with {
    use std::os::unix::ffi::OsStrExt as _;
    use std::process::Command;

    use rustix::fs::Mode;
    use test_support::moto::Moto;

    use crate::support::{Lab, pattern, run};

    fn copy(lab: &Lab, moto: &Moto, arguments: &[&str]) -> Command {
        let mut command = lab.copy(arguments);
        command.env("AWS_ENDPOINT_URL", format!("http://{}", moto.at)).env("AWS_ALLOW_HTTP", "true");
        command.env("AWS_ACCESS_KEY_ID", "key").env("AWS_SECRET_ACCESS_KEY", "secret");
        command
    }

    #[test]
    fn a_file_goes_to_s3_and_comes_back() {
        let Some(moto) = Moto::start() else { return };
        let lab = Lab::new();
        let content = pattern(20_000_003, 1);
        lab.write("source", &content);
        let there = run(&mut copy(
            &lab,
            &moto,
            &["source", "s3://bucket/a/key", "--chunk", "4M", "--verify", "--json"],
        ));
        assert_eq!(there.code, Some(0), "{}", there.stderr);
        let said = there.json();
        assert_eq!(said["bytes"], 20_000_003);
        assert_eq!(said["destination"], "s3://bucket/a/key");
        let by =
            said["engines"].as_array().unwrap().iter().find(|share| share["direction"] == "write").unwrap();
        assert_eq!((&by["engine"], &by["bytes"]), (&"userspace".into(), &20_000_003.into()));
        assert!(said["verified"].as_str().is_some_and(|hash| hash.starts_with("xxh128:")), "{said}");
        let back = run(&mut copy(&lab, &moto, &["s3://bucket/a/key", "back", "--verify"]));
        assert_eq!(back.code, Some(0), "{}", back.stderr);
        assert!(lab.read("back") == content);
        let umask = rustix::process::umask(Mode::empty());
        rustix::process::umask(umask);
        assert_eq!(lab.mode("back"), 0o666 & !umask.as_raw_mode());
        // The same bucket without credentials, as any server knows it.
        let plain = format!("http://{}/bucket/a/key", moto.at);
        lab.copies(&[&plain, "plain"]);
        assert!(lab.read("plain") == content);
        // From object to object, and into a folder of them.
        let folder = run(&mut copy(&lab, &moto, &["s3://bucket/a/key", "s3://bucket/b/"]));
        assert_eq!(folder.code, Some(0), "{}", folder.stderr);
        assert!(moto.ask("GET /bucket?list-type=2").contains("<Key>b/key</Key>"));
    }

    #[test]
    fn names_are_the_same_as_keys_and_as_files() {
        let Some(moto) = Moto::start() else { return };
        let lab = Lab::new();
        lab.mkdir("folder");
        for (name, key) in [
            ("a b", "a b"),
            ("per%20cent", "per%20cent"),
            ("what?#", "what?#"),
            (" ends ", " ends "),
            ("gr\u{f6}\u{df}e-\u{65e5}\u{672c}", "gr\u{f6}\u{df}e-\u{65e5}\u{672c}"),
            ("a+b&c=d;e", "a+b&amp;c=d;e"),
        ] {
            lab.write(name, name.as_bytes());
            let there = run(&mut copy(&lab, &moto, &[name, "s3://bucket/folder/", "--json"]));
            assert_eq!(there.code, Some(0), "{name}: {}", there.stderr);
            let url = there.json()["destination"].as_str().unwrap().to_owned();
            let listed = moto.ask("GET /bucket?list-type=2&prefix=folder/");
            assert!(listed.contains(&format!("<Key>folder/{key}</Key>")), "{name}: {url}, {listed}");
            let back = run(&mut copy(&lab, &moto, &[&url, "folder"]));
            assert_eq!(back.code, Some(0), "{name}: {}", back.stderr);
            assert_eq!(lab.read(&format!("folder/{name}")), name.as_bytes());
        }
        // No store has such keys.
        lab.write("tab\tbed", b"x");
        run(&mut copy(&lab, &moto, &["tab\tbed", "s3://bucket/folder/"])).failed_with(&["illegal character"]);
        let odd = std::ffi::OsStr::from_bytes(b"no\xfftext");
        std::fs::write(lab.path(".").join(odd), b"x").unwrap();
        let mut command = copy(&lab, &moto, &[]);
        run(command.arg(odd).arg("s3://bucket/folder/")).failed_with(&["not UTF-8"]);
        // What would be no name of a file keeps its escapes.
        run(&mut copy(&lab, &moto, &["a b", "s3://bucket/x%2Fy"]));
        let back = run(&mut copy(&lab, &moto, &["s3://bucket/x%2Fy", "folder"]));
        assert_eq!(back.code, Some(0), "{}", back.stderr);
        assert_eq!(lab.read("folder/x%2Fy"), b"a b");
    }

    #[test]
    fn holes_and_nothing_at_all_arrive_as_they_are() {
        let Some(moto) = Moto::start() else { return };
        let lab = Lab::new();
        lab.write_sparse("sparse", 30_000_000, &[(12_000_000, b"island")]);
        lab.write("empty", b"");
        for name in ["sparse", "empty"] {
            let url = format!("s3://bucket/{name}");
            for arguments in [[name, &url], [&url, "back"]] {
                let done = run(&mut copy(&lab, &moto, &arguments));
                assert_eq!(done.code, Some(0), "{}", done.stderr);
            }
            assert!(lab.read("back") == lab.read(name), "{name}");
        }
    }

    #[test]
    fn failures_name_the_object_and_leave_nothing() {
        let Some(moto) = Moto::start() else { return };
        let lab = Lab::new();
        lab.write("source", &pattern(10_000_000, 2));
        for (arguments, words) in [
            (["s3://bucket/none", "back"], ["s3://bucket/none", "there is no such object"]),
            (["source", "s3://none/key"], ["s3://none/key", "no such object"]),
            (["source", "s3://bucket"], ["s3://bucket", "names no object"]),
        ] {
            let failed = run(&mut copy(&lab, &moto, &arguments));
            failed.failed_with(&words);
            assert!(!lab.path("back").exists());
        }
        run(&mut copy(&lab, &moto, &["source", "s3://bucket/key", "--in-place"]))
            .failed_with(&["--in-place"]);
        assert!(!moto.ask("GET /bucket?list-type=2").contains("<Key>"));
    }

    #[test]
    fn a_local_file_has_a_url_too() {
        let lab = Lab::new();
        let content = pattern(3_000_000, 3);
        lab.write("source", &content);
        let url = |name: &str| format!("file://{}", lab.path(name).display());
        lab.copies(&[&url("source"), &url("copy"), "--verify"]);
        assert!(lab.read("copy") == content);
    }
}
