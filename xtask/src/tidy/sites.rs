//! Rules for system calls of the core: each is made at a site of the table `sys/site.rs`, so that tests can make it fail, or it
//! is named here with the reason why that would test nothing.

use std::collections::BTreeSet;

use super::File;
use super::source::{code, without_tests};

const CORE: &str = "crates/hipfile/src/";
const TABLE: &str = "crates/hipfile/src/sys/site.rs";

/// What stands before the name of a function that calls the system.
const PREFIXES: &[&str] = &[
    "rustix::io::",
    "rustix::fs::",
    "rustix::mm::",
    "rustix::net::",
    "rustix::event::",
    "rustix::process::",
    "rustix::thread::",
    "libc::",
    "std::fs::",
    "std::fs::File::",
    "std::fs::OpenOptions::",
    "sys::",
];

/// Names of such functions that stand alone or behind a value.
const BARE: &[&str] = &[
    "poll",
    "connect",
    "sendmsg",
    "recvmsg",
    "socket_with",
    "getrlimit",
    "bind_addr",
    "accept",
    "canonicalize",
    "metadata",
    "spawn",
    "set_nonblocking",
    "submit_and_wait",
    "register_buffers",
    "unregister_buffers",
    "populate",
];

/// Calls without a site: the file or `*`, the name, and why a refusal would test nothing.
const WITHOUT: &[(&str, &str, &str)] = &[
    ("sys.rs", "*", "the wrappers themselves; their callers are the sites"),
    ("sys/aio.rs", "*", "the wrappers themselves; their callers are the sites"),
    ("sys/mapping.rs", "*", "the wrappers themselves; their callers are the sites"),
    ("sys/site.rs", "*", "the table"),
    ("fuzz_hooks.rs", "*", "there for the fuzzer only"),
    ("*", "retry_on_intr", "calls nothing by itself"),
    ("*", "uninterrupted", "calls nothing by itself"),
    ("*", "asks_twice", "calls nothing by itself"),
    ("*", "at", "the site itself"),
    ("*", "moves", "the site itself"),
    ("*", "forks", "reads a counter"),
    ("*", "last_errno", "reads a variable"),
    ("*", "clear_errno", "writes a variable"),
    ("*", "clock", "a clock that exists cannot be refused"),
    ("*", "without_signals", "changes this thread's mask, which cannot be refused"),
    ("*", "out_of_the_way", "has its site inside"),
    ("*", "is_set_user_id", "reads the auxiliary vector"),
    ("*", "major", "computes"),
    ("*", "minor", "computes"),
    ("*", "geteuid", "cannot be refused"),
    (
        "block.rs",
        "madvise",
        "gives memory back; refused, the memory stays, which `trim` may not promise anyway",
    ),
    ("block.rs", "munmap", "of a mapping of our own, cannot be refused"),
    ("block.rs", "populate", "advice; the answer is not looked at"),
    ("block/memory.rs", "munmap", "of a mapping of our own, cannot be refused"),
    ("block/memory.rs", "madvise", "advice; the answer is not looked at"),
    ("block/memory.rs", "syscall", "mbind, a preference; the answer is not looked at"),
    ("block/memory.rs", "mmap", "its caller is the site"),
    ("block/memory.rs", "populate", "its own definition"),
    ("buffer.rs", "is_reached", "refused, it says no, and memory is staged as on any other GPU"),
    ("engine/bounce.rs", "fadvise", "advice; the answer is not looked at"),
    ("engine/bounce.rs", "start_writeback", "advice; the answer is not looked at"),
    ("engine/uring.rs", "unregister_buffers", "of a ring in use, cannot be refused"),
    ("file.rs", "fcntl_dupfd_cloexec", "in the closures that the sites of file.rs call"),
    ("monitor/server.rs", "socket_with", "part of the reaching whose callers are the sites"),
    ("monitor/server.rs", "connect", "part of the reaching whose callers are the sites"),
    ("monitor/server.rs", "set_nonblocking", "of a socket just made, cannot be refused"),
    ("monitor/server.rs", "shutdown", "the answer is not looked at: the thread also looks by itself"),
    ("monitor/server.rs", "sendmsg", "one that does not wait for its answer gets none"),
    (
        "monitor/target.rs",
        "*",
        "asks another process; only the tool and `Statistics` readers do, and say what failed",
    ),
    (
        "platform/container.rs",
        "io_uring_allowed",
        "asks for the report of `check`; each answer is one of its rows",
    ),
    (
        "platform/*",
        "*",
        "looks at the machine for `check`, by way of storage/roots.rs, whose calls have sites",
    ),
    ("pool.rs", "sigfillset", "computes"),
    ("pool.rs", "pthread_sigmask", "with sets of our own, cannot be refused"),
    ("private.rs", "readlink", "more of the identity, the first part of which is the site"),
    ("private.rs", "fcntl_getfl", "more of the identity, the first part of which is the site"),
    ("private.rs", "fcntl_getfd", "more of the identity, the first part of which is the site"),
    ("stats/region.rs", "getrlimit", "cannot be refused"),
    ("stats/region.rs", "munmap", "of a mapping of our own, cannot be refused"),
    ("storage/roots.rs", "metadata", "parts of the reading whose caller is the site"),
    ("storage/roots.rs", "new", "part of the reading whose caller is the site"),
    ("storage/roots.rs", "canonicalize", "of the root itself; without it nothing lies inside"),
    ("config.rs", "metadata", "before the file is opened, which is the site"),
    ("batch.rs", "read_link", "a name for people; without it the line says `a file`"),
    ("pool.rs", "spawn", "its own function, which has the site inside"),
    ("rangemap.rs", "accept", "a closure of that name"),
    ("storage/mod.rs", "statx", "of `StorageFacts::of_fd`, which tools call and which says what failed"),
    (
        "storage/block.rs",
        "canonicalize",
        "links of /sys; one that leads nowhere is unknown, as storage::tests have it",
    ),
    ("desk.rs", "*", "its `poll` collects events"),
    ("batch.rs", "poll", "collects events"),
    ("owned.rs", "poll", "collects events"),
    ("workers.rs", "spawn", "by pool.rs, which has the site"),
    ("monitor/server.rs", "spawn", "by pool.rs, which has the site"),
    ("block/janitor.rs", "spawn", "by pool.rs, which has the site"),
    ("watch.rs", "spawn", "by pool.rs, which has the site"),
    ("aside.rs", "spawn", "by pool.rs, which has the site"),
    ("lane.rs", "spawn", "by pool.rs, which has the site"),
    ("log.rs", "*", "tells listeners; calls no system"),
];

pub(super) fn check(files: &[File], problems: &mut BTreeSet<String>) {
    let Some(table) = files.iter().find(|file| file.path == TABLE) else {
        problems.insert(format!("{TABLE} is missing"));
        return;
    };
    let rows: Vec<(&str, &str)> = table.text.lines().filter_map(row).collect();
    let mut used = BTreeSet::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        let Some(name) = file.path.strip_prefix(CORE) else { continue };
        if name.ends_with("tests.rs") || file.path == TABLE {
            continue;
        }
        let code = code(&file.text);
        let lines: Vec<&str> = without_tests(&code).lines().collect();
        for (at, line) in lines.iter().enumerate() {
            for site in names_after(line, "Site::").filter(|site| site.starts_with(char::is_uppercase)) {
                used.insert((site.to_owned(), name.to_owned()));
                if !rows.contains(&(site, name)) {
                    problems.insert(format!(
                        "{}:{}: Site::{site} has no row in {TABLE} for this file",
                        file.path,
                        at + 1
                    ));
                }
            }
            let near = &lines[at.saturating_sub(4)..(at + 4).min(lines.len())];
            if near.iter().any(|line| line.contains("Site::")) {
                continue;
            }
            for call in calls(line).filter(|call| !is_excused(name, call)) {
                problems.insert(format!(
                    "{}:{}: {call} calls the system at no site: a row of {TABLE}, or a reason in xtask/src/tidy/sites.rs",
                    file.path,
                    at + 1
                ));
            }
        }
    }
    for (site, name) in rows {
        if !used.contains(&(site.to_owned(), name.to_owned())) {
            problems.insert(format!("{TABLE}: {site} is not used in {name}"));
        }
    }
}

/// `Name in "file", Outcome: "what";`
fn row(line: &str) -> Option<(&str, &str)> {
    let (name, rest) = line.strip_prefix("    ")?.split_once(" in \"")?;
    let (file, _) = rest.split_once("\", ")?;
    name.chars().all(char::is_alphanumeric).then_some((name, file))
}

fn names_after<'a>(line: &'a str, prefix: &'a str) -> impl Iterator<Item = &'a str> + 'a {
    line.match_indices(prefix).filter_map(move |(at, _)| {
        let before = line[..at].chars().next_back();
        let whole = !before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':');
        whole.then(|| word(&line[at + prefix.len()..]))
    })
}

fn word(text: &str) -> &str {
    &text[..text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len())]
}

/// The names of functions in a line that are called and may call the system.
fn calls(line: &str) -> impl Iterator<Item = &str> {
    let with_path = PREFIXES.iter().flat_map(move |prefix| {
        names_after(line, prefix).filter(move |name| {
            let called = format!("{prefix}{name}(");
            name.starts_with(char::is_lowercase) && line.contains(&called)
        })
    });
    let bare = BARE.iter().copied().filter(move |name| {
        line.match_indices(name).any(|(at, _)| {
            let before = line[..at].chars().next_back();
            let definition = line[..at].trim_end().ends_with("fn");
            let whole = !before.is_some_and(|c| c.is_alphanumeric() || c == '_');
            whole && !definition && line[at + name.len()..].starts_with('(')
        })
    });
    with_path.chain(bare)
}

fn is_excused(file: &str, call: &str) -> bool {
    WITHOUT.iter().any(|(place, name, _)| {
        let here = *place == "*"
            || *place == file
            || place.strip_suffix('*').is_some_and(|dir| file.starts_with(dir));
        here && (*name == "*" || *name == call)
    })
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{file, problems};
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let table = "//! T.\n    FileReopen in \"file.rs\", Heals: \"x\";\n";
        let files = [file(TABLE, table), file("crates/hipfile/src/file.rs", text)];
        problems(|p| check(&files, p))
    }

    #[test]
    fn a_call_of_the_system_has_a_site_with_a_row() {
        assert_eq!(found("//! A.\nat(Site::FileReopen, || rustix::fs::open(p));\n"), Vec::<String>::new());
        let far = format!("//! A.\nat(Site::FileReopen, f);{}rustix::fs::open(p);\n", "\n".repeat(9));
        assert!(found(&far).len() == 1 && found(&far)[0].contains("file.rs:11: open"), "{:?}", found(&far));
        let other = found("//! A.\nat(Site::FileReopen, f);\nat(Site::Other, f);\n");
        assert!(other.len() == 1 && other[0].contains("Site::Other has no row"), "{other:?}");
    }

    #[test]
    fn a_row_without_its_site_is_told() {
        let unused = found("//! A.\n");
        assert!(unused.len() == 1 && unused[0].contains("FileReopen is not used"), "{unused:?}");
    }
}
