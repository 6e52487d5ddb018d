//! `hipfile copy`: a file or an object through the memory of a GPU into another. The order of the steps is here; what each step does
//! is in the modules below. It does not preserve times, and it does not copy directories.

mod attributes;
mod destination;
mod object;
mod output;
mod pump;
mod seat;
mod sink;
mod source;
mod verify;

use std::path::PathBuf;
use std::time::Instant;

use hipfile::{Buffer, DeviceInfo, Driver};
use serde::Serialize;

use crate::failure::{Failure, note};
use crate::progress::Progress;
use crate::{Tool, device, standard, units};
use destination::Destination;
use sink::Sink;
use source::Source;

/// Smallest and largest chunk: a page, and what fits into a GPU twice without a thought.
const CHUNK: std::ops::RangeInclusive<u64> = 4 << 10..=1 << 30;

/// Copy a file through the memory of a GPU
///
/// The destination is replaced at once when the copy is complete and on stable storage; until then, and after any failure,
/// its old content stays. (Killed by SIGKILL, the copy leaves .DEST.hipfile-XXXXXXXX behind where the file system has no files
/// without a name.) It keeps its mode, owner and extended attributes; a new file gets the mode of the source, as with
/// cp. Holes stay holes. A destination that cannot be replaced (a device, a FIFO, a file with several hard links, a directory
/// that cannot be written) is written in place, and a line on standard error says so.
///
/// Either end may be an object, if this program was built with object stores: s3://, gs://, az://, http(s):// or file:// and its
/// name. Credentials come from the environment. An object appears, or is replaced, when the copy is complete.
#[derive(clap::Args)]
pub(crate) struct Copy {
    /// File, block device or object to read
    #[arg(value_name = "SOURCE")]
    source: PathBuf,

    /// File or object to write, or a directory (of objects: what ends with /) to write one of the source's name into
    #[arg(value_name = "DEST")]
    destination: PathBuf,

    /// Read both files again after the copy and compare their hashes (XXH3, 128 bits)
    #[arg(long)]
    verify: bool,

    /// GPU whose memory the data passes through, counted from 0
    #[arg(long, value_name = "N", default_value_t = 0)]
    gpu: u32,

    /// Bytes moved at a time, 4K to 1G; two such pieces are kept in the memory of the GPU
    #[arg(long, value_name = "SIZE", default_value = "16M", value_parser = chunk_size)]
    chunk: u64,

    /// Overwrite the destination instead of replacing it: needs no space for a second copy, but a failure leaves it incomplete
    #[arg(long)]
    in_place: bool,

    /// Write to a block device that is mounted or otherwise in use, or that holds a file system, a partition table or a part
    /// of a volume or an array
    #[arg(long)]
    force: bool,

    /// Print a summary as JSON on standard output
    #[arg(long)]
    json: bool,
}

fn chunk_size(text: &str) -> Result<u64, String> {
    let size = units::parse_size(text)?;
    if CHUNK.contains(&size) { Ok(size) } else { Err("the range is 4K to 1G".to_owned()) }
}

impl Tool for Copy {
    fn prints(&self) -> bool {
        self.json || self.verify
    }

    fn run(self) -> Result<(), Failure> {
        let source = Source::open(&self.source)?;
        let destination = Destination::find(&self.destination, &source)?;
        let (driver, device) = device::open(self.gpu)?;
        self.refuse_empty_promises(&destination, &driver, &device)?;
        // The device comes before the destination: whatever is missing there leaves no trace here.
        let buffers = self.buffers(&driver, &source)?;
        let mut output = destination.open(&source, self.in_place, self.force)?;

        let started = Instant::now();
        let mut progress = Progress::new(&source.label(), source.size);
        let input = source.register(&driver)?;
        let mut sink = Sink::new(&driver, &output)?;
        let copied = pump::run(&source, &input, &mut sink, buffers, &mut progress)
            .map_err(|failure| if sink.touched() { output.explain(failure) } else { failure })?;
        output.settle(copied.size).map_err(|failure| output.explain(failure))?;
        let piped = sink.piped();
        drop((input, sink));
        let seconds = started.elapsed().as_secs_f64();
        progress.finish();

        let verified = match self.verify {
            true => Some(verify::compare(&source, &output, copied.size)?),
            false => None,
        };
        output.publish()?;

        let summary = Summary {
            schema_version: 1,
            source: source.path.to_string_lossy().into_owned(),
            destination: output.path().to_string_lossy().into_owned(),
            bytes: copied.size,
            bytes_moved: copied.moved,
            seconds,
            gb_per_s: copied.moved as f64 / 1e9 / seconds.max(1e-9),
            engines: engines(&driver, piped),
            gpu: device.ordinal,
            device: device.name,
            runtime: device.runtime,
            runtime_version: device.runtime_version,
            emulated: device.emulated,
            emulation_note: device.emulation_note,
            in_place: output.in_place().map(str::to_owned),
            verified,
        };
        self.report(&summary)
    }
}

impl Copy {
    /// What cannot be kept is refused before anything is written.
    fn refuse_empty_promises(
        &self,
        destination: &Destination,
        driver: &Driver,
        device: &DeviceInfo,
    ) -> Result<(), Failure> {
        if driver.config().engines.iter().flatten().any(|engine| engine == "null") {
            return Err(Failure::new(
                "engine null",
                "it moves no bytes, so it cannot copy (HIPFILE_ENGINES names it)",
            ));
        }
        if let Some(note_of_device) = &device.emulation_note {
            if self.verify {
                let why = format_args!("not possible on {} ({note_of_device})", device.name);
                return Err(Failure::new("--verify", why));
            }
            note(format_args!(
                "{}: {note_of_device}: the destination will not hold the source's bytes",
                device.name
            ));
        }
        if self.verify && !destination.can_be_read_back() {
            return Err(Failure::new(
                "--verify",
                format_args!("{} cannot be read back", self.destination.display()),
            ));
        }
        Ok(())
    }

    /// Two buffers, so that reading and writing overlap; one, if it takes the whole file.
    fn buffers(&self, driver: &Driver, source: &Source) -> Result<Vec<Buffer>, Failure> {
        let whole = source.size.next_multiple_of(*CHUNK.start()).max(*CHUNK.start());
        let (count, len) = if whole <= self.chunk { (1, whole) } else { (2, self.chunk) };
        let len = usize::try_from(len).map_err(|error| Failure::new("--chunk", error))?;
        (0..count)
            .map(|_| Buffer::alloc(driver, self.gpu, len))
            .collect::<hipfile::Result<_>>()
            .map_err(|error| Failure::new(format_args!("{len} bytes of memory of GPU {}", self.gpu), error))
    }

    fn report(&self, summary: &Summary) -> Result<(), Failure> {
        let text = if self.json {
            serde_json::to_string(summary).map_err(|error| Failure::new("--json", error))?
        } else if let Some(hash) = &summary.verified {
            format!("verified: {hash}")
        } else {
            return Ok(());
        };
        standard::out(&(text + "\n"))
    }
}

/// What `--json` prints. Fields are only ever added; a change of meaning raises `schema_version`.
#[derive(Serialize)]
struct Summary {
    schema_version: u32,
    /// As given. Names that are not UTF-8 are shown with replacement characters.
    source: String,
    /// The file that was written, links resolved.
    destination: String,
    /// The size of the copy.
    bytes: u64,
    /// The part of it that was moved: all but the holes.
    bytes_moved: u64,
    /// From the first read to the end of the last sync; without the verification.
    seconds: f64,
    /// Moved bytes per second, in units of 10^9.
    gb_per_s: f64,
    engines: Vec<EngineShare>,
    gpu: u32,
    device: String,
    runtime: &'static str,
    runtime_version: String,
    emulated: bool,
    /// What makes this emulation no measure of the truth, such as a timed link.
    emulation_note: Option<String>,
    /// Why the destination was not replaced, or null if it was.
    in_place: Option<String>,
    /// The hash that both files have, or null if it was not asked for.
    verified: Option<String>,
}

/// What one engine carried in one direction.
#[derive(Serialize)]
struct EngineShare {
    direction: &'static str,
    engine: &'static str,
    operations: u64,
    bytes: u64,
    errors: u64,
}

/// The driver served this copy only, so its counters are the copy's. `piped` went past them.
fn engines(driver: &Driver, piped: Option<u64>) -> Vec<EngineShare> {
    let stats = driver.stats();
    let read = stats.read.iter().map(|engine| ("read", engine));
    let write = stats.write.iter().map(|engine| ("write", engine));
    let pipe = piped.map(|bytes| EngineShare {
        direction: "write",
        engine: "pipe",
        operations: 0,
        bytes,
        errors: 0,
    });
    read.chain(write)
        .filter(|(_, engine)| engine.operations > 0 || engine.bytes > 0)
        .map(|(direction, engine)| EngineShare {
            direction,
            engine: engine.engine,
            operations: engine.operations,
            bytes: engine.bytes,
            errors: engine.errors,
        })
        .chain(pipe)
        .collect()
}
