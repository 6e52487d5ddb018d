//! `hostile TARGET SECONDS`: the inputs of `fuzz/corpus`, and then changed ones for so long. `hostile all SECONDS` does so with each
//! target, in a process of its own. It has no nightly toolchain's means: it does not see which way an input takes.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for terminals")]

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use hipfile_hostile::{TARGETS, target};

/// A process that is still there so long after its time hangs.
const GRACE: Duration = Duration::from_secs(120);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words[..] {
        ["all", seconds] => seconds.parse().map_err(|e| format!("{seconds}: {e}")).and_then(all),
        [name, seconds] => {
            seconds.parse().map_err(|e| format!("{seconds}: {e}")).and_then(|seconds| one(name, seconds))
        }
        _ => Err("hostile TARGET|all SECONDS".to_owned()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("hostile: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Each target in a process of its own, which may end in any way.
fn all(seconds: u64) -> Result<(), String> {
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    for (name, _) in TARGETS {
        // What the library says of wrong input is a lot.
        let said = std::env::temp_dir().join(format!("hipfile-hostile-{name}.log"));
        let log = std::fs::File::create(&said).map_err(|e| format!("{}: {e}", said.display()))?;
        let mut child = Command::new(&program)
            .args([name, seconds.to_string().as_str()])
            .stderr(log)
            .spawn()
            .map_err(|e| format!("{name}: {e}"))?;
        let end = Instant::now() + Duration::from_secs(seconds) + GRACE;
        let status = loop {
            match child.try_wait().map_err(|e| e.to_string())? {
                Some(status) => break status.to_string(),
                None if Instant::now() > end => {
                    let _ = (child.kill(), child.wait());
                    break "it hangs".to_owned();
                }
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        if status != "exit status: 0" {
            let (input, said) = (last(name), said.display());
            return Err(format!(
                "{name}: {status}; the input is in {}, what it said in {said}",
                input.display()
            ));
        }
        let _ = std::fs::remove_file(&said);
    }
    Ok(())
}

/// Where the input lies that a target has just been given.
fn last(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("hipfile-hostile-{name}.input"))
}

fn one(name: &str, seconds: u64) -> Result<(), String> {
    let run = target(name).ok_or_else(|| format!("there is no target {name}"))?;
    let end = Instant::now() + Duration::from_secs(seconds);
    let corpus = read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name))?;
    let seed =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(1, |d| d.as_nanos() as u64);
    let (mut chance, kept) = (Chance(seed | 1), last(name));
    let file = std::fs::File::create(&kept).map_err(|e| format!("{}: {e}", kept.display()))?;
    let mut count = 0_u64;
    let mut give = |input: &[u8]| {
        use std::os::unix::fs::FileExt as _;
        // Written before it is given: nobody comes back from an abort.
        let written = file.set_len(input.len() as u64).and_then(|()| file.write_all_at(input, 0));
        written.unwrap_or_else(|error| panic!("{}: {error}", kept.display()));
        run(input);
        count += 1;
    };
    corpus.iter().for_each(|input| give(input));
    while Instant::now() < end {
        give(&chance.changed(&corpus));
    }
    println!("{name}: {count} inputs, {} of them from the corpus; nothing was found", corpus.len());
    let _ = std::fs::remove_file(&kept);
    Ok(())
}

fn read(folder: &Path) -> Result<Vec<Vec<u8>>, String> {
    let wrong = |e: std::io::Error| format!("{}: {e}", folder.display());
    let files = std::fs::read_dir(folder).map_err(wrong)?.map(|file| std::fs::read(file?.path()));
    files.collect::<Result<Vec<_>, _>>().map_err(wrong)
}

/// Draws numbers, by xorshift.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % limit.max(1)
    }

    /// A place in so many bytes, and some bytes from there on.
    fn range(&mut self, len: usize) -> std::ops::Range<usize> {
        let from = self.below(len + 1);
        let most = if self.below(4) == 0 { len } else { 16 };
        from..(from + self.below(most + 1)).min(len)
    }

    /// One of the inputs, changed in some places.
    fn changed(&mut self, corpus: &[Vec<u8>]) -> Vec<u8> {
        const WORDS: [&[u8]; 12] = [
            b"",
            b"\0",
            b"\n",
            b" ",
            b"-1",
            b"18446744073709551615",
            b"4096",
            b"\xff\xff\xff\xff\xff\xff\xff\xff",
            b"\0\0\0\0\0\0\0\x80",
            b"\\040",
            b"../..",
            b"999999999999999999999999999999",
        ];
        let mut input = corpus.get(self.below(corpus.len())).cloned().unwrap_or_default();
        for _ in 0..=self.below(8) {
            let range = self.range(input.len());
            match self.below(7) {
                0 if !range.is_empty() => input[range.start] ^= 1 << self.below(8),
                1 if !range.is_empty() => input[range.start] = self.below(256) as u8,
                2 => drop(input.drain(range)),
                3 => {
                    let again = input[range.clone()].to_vec();
                    drop(input.splice(range.end..range.end, again));
                }
                4 => drop(input.splice(range, WORDS[self.below(WORDS.len())].iter().copied())),
                5 => {
                    let other = &corpus[self.below(corpus.len())];
                    let from = self.range(other.len());
                    drop(input.splice(range, other[from].iter().copied()));
                }
                _ => {
                    let fresh: Vec<u8> = (0..self.below(24)).map(|_| self.below(256) as u8).collect();
                    drop(input.splice(range, fresh));
                }
            }
        }
        input.truncate(4096);
        input
    }
}
