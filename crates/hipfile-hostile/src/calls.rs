//! Sequences of C calls with any numbers where the interface has numbers and ids: each is answered. Pointers that C is allowed
//! to be wrong about only at its own risk are right, or NULL.

use std::ffi::c_void;
use std::os::fd::AsRawFd;
use std::sync::OnceLock;

use hipfile_c::abi::*;
use hipfile_c::*;

use crate::Input;

const MEMORY: usize = 64 << 10;

/// What is there for all sequences: a file, and memory of the process's own.
struct World {
    file: std::fs::File,
    memory: usize,
}

fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(|| {
        for (name, value) in
            [("HIPFILE_DEVICE", "emulated"), ("HIPFILE_ALLOW_SYSTEM_MEMORY", "1"), ("HIP_EMU_MEMORY", "64M")]
        {
            // SAFETY: the process has one thread.
            unsafe { std::env::set_var(name, value) };
        }
        let path = crate::scratch("calls");
        let file = std::fs::File::options().create(true).truncate(true).read(true).write(true).open(&path);
        let file = file.expect("a file in /tmp");
        let _ = std::fs::remove_file(&path);
        file.set_len(MEMORY as u64).expect("a file of some length");
        let memory = Box::leak(vec![0_u8; MEMORY].into_boxed_slice());
        World { file, memory: memory.as_mut_ptr().expose_provenance() }
    })
}

impl Input<'_> {
    /// Small ones, large ones, and what lies at the borders.
    fn number(&mut self) -> i64 {
        const EDGES: [i64; 8] = [0, 1, -1, 4096, i64::MAX, i64::MIN, 0x7fff_f000, MEMORY as i64];
        match self.byte() {
            n @ 0..100 => i64::from(n),
            n @ 100..150 => EDGES[usize::from(n) % EDGES.len()],
            _ => {
                let bytes = std::array::from_fn(|_| self.byte());
                i64::from_le_bytes(bytes)
            }
        }
    }

    fn size(&mut self) -> usize {
        (self.number() as usize) % (2 * MEMORY)
    }

    /// One that was given out, or any number: an id is never dereferenced.
    fn id(&mut self, known: &[*mut c_void]) -> *mut c_void {
        let n = self.byte();
        match known.get(usize::from(n)) {
            Some(id) => *id,
            None => std::ptr::without_provenance_mut(self.number() as usize),
        }
    }

    /// In the memory, or far from any.
    fn memory(&mut self) -> *mut c_void {
        match self.byte() {
            0..200 => std::ptr::with_exposed_provenance_mut(world().memory + self.byte() as usize * 16),
            200..220 => std::ptr::null_mut(),
            _ => std::ptr::without_provenance_mut(self.byte() as usize),
        }
    }
}

/// A read or a write on the default stream, whose parameters may be others when the stream gets there.
fn asynchronous(input: &mut Input<'_>, files: &[*mut c_void]) {
    type Call = unsafe extern "C" fn(
        *mut c_void,
        *mut c_void,
        *mut usize,
        *mut i64,
        *mut i64,
        *mut isize,
        *mut c_void,
    ) -> hipFileError_t;
    let kind = input.byte();
    let (call, most): (Call, i64) = match kind & 1 {
        0 => (hipFileReadAsync, i64::MAX),
        // The file must not grow without end.
        _ => (hipFileWriteAsync, MEMORY as i64),
    };
    let (size, at) = (input.size() % (MEMORY / 2), input.number() % most);
    // They stay for the stream to read, which is asked to wait for nothing.
    let late = Box::leak(Box::new((size, at, input.number() % 1024, 0_isize)));
    let (file, memory) = (input.id(files), input.memory());
    let (size, at, offset, bytes) = (&raw mut late.0, &raw mut late.1, &raw mut late.2, &raw mut late.3);
    // One of them may be NULL.
    let null = |which: u8| kind >> 1 == which;
    let size = if null(1) { std::ptr::null_mut() } else { size };
    let at = if null(2) { std::ptr::null_mut() } else { at };
    let bytes = if null(3) { std::ptr::null_mut() } else { bytes };
    // SAFETY: what is not NULL stays, as does the memory, and the stream is the default one.
    let status = unsafe { call(file, memory, size, at, offset, bytes, std::ptr::null_mut()) };
    if status.err == hipFileSuccess && kind > 200 {
        // SAFETY: it was not NULL, or the call would have been refused.
        unsafe { size.write_volatile(input.size()) };
    }
}

fn one(input: &mut Input<'_>, files: &mut Vec<*mut c_void>, batches: &mut Vec<*mut c_void>) {
    let world = world();
    match input.byte() % 22 {
        0 => _ = hipFileDriverOpen(),
        1 => _ = hipFileDriverClose(),
        2 => {
            let mut handle = std::ptr::null_mut();
            let fd = if input.byte() < 200 { world.file.as_raw_fd() } else { -7 };
            let mut descr = hipFileDescr_t {
                r#type: hipFileFileHandleType_t(i32::from(input.byte() % 5)),
                handle: hipFileDescr_handle { fd },
                fs_ops: std::ptr::null(),
            };
            // SAFETY: both live during the call.
            let status = unsafe { hipFileHandleRegister(&raw mut handle, &raw mut descr) };
            if status.err == hipFileSuccess {
                files.push(handle);
            }
        }
        3 => hipFileHandleDeregister(input.id(files)),
        // SAFETY: the memory stays.
        4 => _ = unsafe { hipFileBufRegister(input.memory(), input.size(), input.number() as i32) },
        5 => _ = hipFileBufDeregister(input.memory()),
        6 => {
            let (file, to) = (input.id(files), input.memory());
            // SAFETY: ranges that leave the memory are refused or are nobody's.
            unsafe {
                hipFileRead(file, to, input.size().min(MEMORY / 2), input.number(), input.number() % 1024)
            };
        }
        7 => {
            let (file, from) = (input.id(files), input.memory());
            let at = input.number() % (MEMORY as i64);
            // SAFETY: as above.
            unsafe { hipFileWrite(file, from, input.size().min(MEMORY / 2), at, input.number() % 1024) };
        }
        8 => {
            let mut batch = std::ptr::null_mut();
            // SAFETY: it lives during the call.
            let status = unsafe { hipFileBatchIOSetUp(&raw mut batch, input.number() as u32 % 5000) };
            if status.err == hipFileSuccess {
                batches.push(batch);
            }
        }
        9 => {
            let count = usize::from(input.byte() % 9);
            let mut params: Vec<hipFileIOParams_t> = (0..count)
                .map(|_| {
                    // SAFETY: plain numbers and pointers, for which all zeroes is a value.
                    let mut param: hipFileIOParams_t = unsafe { std::mem::zeroed() };
                    param.mode = hipFileBatchMode_t(i32::from(input.byte() % 3));
                    param.fh = input.id(files);
                    param.opcode = hipFileOpcode_t(i32::from(input.byte() % 3));
                    // SAFETY: the union has this one member.
                    let batch = unsafe { &mut param.u.batch };
                    batch.devPtr_base = input.memory();
                    batch.file_offset = input.number() % (MEMORY as i64);
                    batch.devPtr_offset = input.number() % 1024;
                    batch.size = input.size() % 4096;
                    param
                })
                .collect();
            let batch = input.id(batches);
            let said = if input.byte() < 230 { count as u32 } else { 0 };
            // SAFETY: so many entries are there, and the memory stays.
            let _ = unsafe { hipFileBatchIOSubmit(batch, said, params.as_mut_ptr(), input.number() as u32) };
        }
        10 => {
            let mut count = u32::from(input.byte() % 16);
            // SAFETY: plain numbers and pointers.
            let mut events: [hipFileIOEvents_t; 16] = unsafe { std::mem::zeroed() };
            let mut time = libc::timespec { tv_sec: 0, tv_nsec: input.number() % 1_000_000 };
            let least = u32::from(input.byte() % 4);
            let batch = input.id(batches);
            // SAFETY: room for so many events.
            let _ = unsafe {
                hipFileBatchIOGetStatus(batch, least, &raw mut count, events.as_mut_ptr(), &raw mut time)
            };
        }
        11 => _ = hipFileBatchIOCancel(input.id(batches)),
        12 => hipFileBatchIODestroy(input.id(batches)),
        13 => asynchronous(input, files),
        // SAFETY: the default stream.
        14 => _ = unsafe { hipFileStreamRegister(std::ptr::null_mut(), input.number() as u32) },
        15 => _ = hipFileStreamDeregister(std::ptr::null_mut()),
        16 => {
            let mut value = 0;
            let param = hipFileSizeTConfigParameter_t(input.number() as i32);
            // SAFETY: it lives during the call.
            let _ = unsafe { hipFileGetParameterSizeT(param, &raw mut value) };
            let _ = hipFileSetParameterSizeT(param, input.number() as usize);
        }
        17 => {
            _ = hipFileSetParameterBool(
                hipFileBoolConfigParameter_t(input.number() as i32),
                input.byte() & 1 == 1,
            )
        }
        18 => {
            let mut text = [0; 64];
            let len = i32::from(input.byte() % 65);
            let param = hipFileStringConfigParameter_t(input.number() as i32);
            // SAFETY: room for so many.
            let _ = unsafe { hipFileGetParameterString(param, text.as_mut_ptr(), len) };
        }
        19 => {
            let mut text: Vec<u8> = (0..input.byte() % 32).map(|_| input.byte().max(1)).collect();
            text.push(0);
            // The log's folder and file are not for a fuzzer to choose.
            // SAFETY: the text ends with a zero.
            let _ =
                unsafe { hipFileSetParameterString(hipFileStringConfigParameter_t(0), text.as_ptr().cast()) };
        }
        20 => {
            let text = hipFileGetOpErrorString(hipFileOpError_t(input.number() as i32));
            // SAFETY: a static text.
            assert!(!unsafe { std::ffi::CStr::from_ptr(text) }.is_empty());
        }
        _ => assert!(hipFileUseCount() >= 0),
    }
}

pub(crate) fn run(bytes: &[u8]) {
    world();
    let (mut files, mut batches) = (Vec::new(), Vec::new());
    let mut input = Input(bytes);
    for _ in 0..64 {
        if input.0.is_empty() {
            break;
        }
        one(&mut input, &mut files, &mut batches);
    }
    // Everything in flight ends before its memory is used for the next sequence.
    for batch in batches {
        hipFileBatchIODestroy(batch);
    }
    while hipFileUseCount() > 0 {
        let _ = hipFileDriverClose();
    }
}
