//! Parameters and properties: staged while the driver is closed, applied when it opens, frozen while it is open, gone when
//! it closes; the functions that change a setting of an open driver.

use core::ffi::{CStr, c_char};

use hipfile::{Kind, SETTINGS, Setting, Unit};

use super::*;

/// A parameter of any of the three types.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Param {
    Number(hipFileSizeTConfigParameter_t),
    Bool(hipFileBoolConfigParameter_t),
    Text(hipFileStringConfigParameter_t),
}

#[derive(Clone, Debug, PartialEq)]
enum Is {
    Number(usize),
    Bool(bool),
    Text(String),
}

use Is::{Bool, Number, Text};

impl Param {
    fn set(self, value: &Is) -> hipFileOpError_t {
        code(match (self, value) {
            (Param::Number(param), Number(value)) => hipFileSetParameterSizeT(param, *value),
            (Param::Bool(param), Bool(value)) => hipFileSetParameterBool(param, *value),
            (Param::Text(param), Text(value)) => {
                let text = std::ffi::CString::new(value.as_str()).unwrap();
                // SAFETY: a string that ends with NUL.
                unsafe { hipFileSetParameterString(param, text.as_ptr()) }
            }
            _ => panic!("{self:?} does not take {value:?}"),
        })
    }

    fn get(self) -> Is {
        match self {
            Param::Number(param) => {
                let mut value = 0;
                // SAFETY: it points to a local variable.
                ok(unsafe { hipFileGetParameterSizeT(param, &raw mut value) });
                Number(value)
            }
            Param::Bool(param) => {
                let mut value = false;
                // SAFETY: it points to a local variable.
                ok(unsafe { hipFileGetParameterBool(param, &raw mut value) });
                Bool(value)
            }
            Param::Text(param) => {
                let mut text = [0x7f as c_char; 64];
                // SAFETY: there is room for as many bytes.
                ok(unsafe { hipFileGetParameterString(param, text.as_mut_ptr(), 64) });
                // SAFETY: it was filled with a string and its NUL.
                let text = unsafe { CStr::from_ptr(text.as_ptr()) };
                Text(text.to_str().unwrap().to_owned())
            }
        }
    }
}

/// A parameter, its default, another value, values out of range, and one that breaks the step.
type Row = (Param, Is, Is, Vec<Is>, Option<Is>);

/// Every parameter of the header.
fn table() -> Vec<Row> {
    let number = |param, default, other, bad: &[usize], step: Option<usize>| {
        let bad = bad.iter().map(|bad| Number(*bad)).collect();
        (Param::Number(param), Number(default), Number(other), bad, step.map(Number))
    };
    let switch = |param, default| (Param::Bool(param), Bool(default), Bool(!default), vec![], None);
    let text = |param, default: &str, other: &str, bad: &[&str]| {
        let bad = bad.iter().map(|bad| Text((*bad).into())).collect();
        (Param::Text(param), Text(default.into()), Text(other.into()), bad, None)
    };
    let huge = usize::MAX;
    let threads = std::thread::available_parallelism().unwrap().get().min(8);
    vec![
        number(hipFileParamProfileStats, 1, 3, &[4, huge], None),
        number(hipFileParamExecutionMaxIOQueueDepth, 4, 128, &[0, 129, huge], None),
        number(hipFileParamExecutionMaxIOThreads, threads, 64, &[0, 65, huge], None),
        number(hipFileParamExecutionMinIOThresholdSizeKB, 1024, 8192, &[huge], None),
        number(hipFileParamExecutionMaxRequestParallelism, 64, 2, &[0, 65, huge], None),
        number(hipFileParamPropertiesMaxDirectIOSizeKB, 2 << 20, 16384, &[0, 63, huge], Some(65)),
        number(hipFileParamPropertiesMaxDeviceCacheSizeKB, 65536, 131_072, &[huge], None),
        number(hipFileParamPropertiesPerBufferCacheSizeKB, 1024, 4096, &[0, 60, 65537, huge], Some(1026)),
        number(hipFileParamPropertiesMaxDevicePinnedMemSizeKB, 16 << 30, 33_554_432, &[huge], None),
        number(hipFileParamPropertiesIOBatchsize, 4096, 128, &[0, 4097, huge], None),
        number(hipFileParamPollthresholdSizeKB, 4, 64, &[huge], Some(6)),
        number(hipFileParamPropertiesBatchIOTimeoutMs, 0, 5000, &[huge], None),
        switch(hipFileParamPropertiesUsePollMode, false),
        switch(hipFileParamPropertiesAllowCompatMode, true),
        switch(hipFileParamForceCompatMode, false),
        switch(hipFileParamFsMiscApiCheckAggressive, false),
        switch(hipFileParamExecutionParallelIO, true),
        switch(hipFileParamProfileNvtx, false),
        switch(hipFileParamPropertiesAllowSystemMemory, false),
        switch(hipFileParamUsePcip2pdma, true),
        switch(hipFileParamPreferIOUring, false),
        switch(hipFileParamForceOdirectMode, false),
        switch(hipFileParamSkipTopologyDetection, false),
        switch(hipFileParamStreamMemopsBypass, false),
        text(hipFileParamLoggingLevel, "warn", "debug", &["loud", ""]),
        text(hipFileParamEnvLogfilePath, "", "/dev/null", &[]),
        text(hipFileParamLogDir, "", "/nonexistent", &[]),
    ]
}

#[test]
fn the_table_has_every_parameter_of_the_header_and_its_documented_default() {
    start();
    assert_eq!(table().len(), SETTINGS.iter().filter(|setting| setting.parameter.is_some()).count());
    let as_written = |setting: &Setting, value: &Is| match (value, setting.kind) {
        (Number(kib), Kind::Number { unit: Unit::Bytes, .. }) => {
            let units = [("T", 1_usize << 30), ("G", 1 << 20), ("M", 1 << 10), ("K", 1)];
            let (unit, size) = units.into_iter().find(|(_, size)| kib.is_multiple_of(*size)).unwrap();
            format!("{}{unit}", kib / size)
        }
        (Number(number), _) => number.to_string(),
        (Bool(is), _) => is.to_string(),
        (Text(text), _) if text.is_empty() => "unset".into(),
        (Text(text), _) => text.clone(),
    };
    let values = |c_name| LAYOUTS.iter().find(|layout| layout.c_name == c_name).unwrap().values;
    let all =
        ["hipFileSizeTConfigParameter_t", "hipFileBoolConfigParameter_t", "hipFileStringConfigParameter_t"]
            .map(values);
    for (param, default, ..) in table() {
        let (values, number) = match param {
            Param::Number(param) => (all[0], param.0),
            Param::Bool(param) => (all[1], param.0),
            Param::Text(param) => (all[2], param.0),
        };
        let name = values.iter().find(|(_, known)| *known == i64::from(number)).unwrap().0;
        let setting = SETTINGS.iter().find(|setting| setting.parameter == Some(name)).unwrap();
        if !setting.default.starts_with("the processors") {
            assert_eq!(as_written(setting, &default), setting.default, "{name}");
        }
        assert_eq!(param.get(), default, "{name}");
    }
    assert_eq!(hipFileUseCount(), 0);
}

#[test]
fn each_parameter_is_staged_applied_frozen_and_cleared() {
    start();
    for (param, default, other, bad, step) in table() {
        assert_eq!(param.get(), default, "{param:?}");
        for bad in bad {
            assert_eq!(param.set(&bad), hipFileDriverUnsupportedLimit, "{param:?} {bad:?}");
        }
        if let Some(step) = step {
            assert_eq!(param.set(&step), hipFileInvalidValue, "{param:?}");
        }
        assert_eq!(param.get(), default, "{param:?}: what is refused changes nothing");
        assert_eq!(param.set(&other), hipFileSuccess, "{param:?}");
        assert_eq!(param.get(), other, "{param:?}: staged");
        assert_eq!(hipFileUseCount(), 0);

        ok(hipFileDriverOpen());
        assert_eq!(param.get(), other, "{param:?}: applied");
        assert_eq!(param.set(&default), hipFileDriverAlreadyOpen, "{param:?}");
        assert_eq!(param.get(), other, "{param:?}: frozen");
        ok(hipFileDriverOpen());
        ok(hipFileDriverClose());
        assert_eq!(param.get(), other, "{param:?}: not the last close");
        ok(hipFileDriverClose());
        assert_eq!(param.get(), default, "{param:?}: cleared");

        // The last of several values counts, and an implicit opening applies it too.
        assert_eq!(param.set(&default), hipFileSuccess);
        assert_eq!(param.set(&other), hipFileSuccess);
        let (_file, _) = registered_file(b"x");
        assert_eq!(hipFileUseCount(), 1);
        assert_eq!(param.get(), other, "{param:?}: applied");
        ok(hipFileDriverClose());
        assert_eq!(param.get(), default, "{param:?}");
    }
}

#[test]
fn a_call_goes_before_the_environment_and_the_file() {
    start();
    let path = std::env::temp_dir().join(format!("hipfile-params-{}.toml", std::process::id()));
    std::fs::write(&path, "queue_depth = 9\nio_threads = 5\nrequest_parallelism = 3\n").unwrap();
    for (name, value) in [
        ("HIPFILE_CONFIG", path.to_str().unwrap()),
        ("HIPFILE_QUEUE_DEPTH", "7"),
        ("HIPFILE_IO_THREADS", "6"),
    ] {
        // SAFETY: no other thread of the test reads the environment.
        unsafe { std::env::set_var(name, value) };
    }
    let [depth, threads, parallel] = [
        hipFileParamExecutionMaxIOQueueDepth,
        hipFileParamExecutionMaxIOThreads,
        hipFileParamExecutionMaxRequestParallelism,
    ]
    .map(Param::Number);
    assert_eq!(depth.set(&Number(8)), hipFileSuccess);
    for _ in 0..2 {
        assert_eq!([depth, threads, parallel].map(Param::get), [8, 6, 3].map(Number));
        if hipFileUseCount() == 0 {
            ok(hipFileDriverOpen());
        }
    }
    ok(hipFileDriverClose());
    assert_eq!(depth.get(), Number(7));
    std::fs::remove_file(path).unwrap();
}

#[test]
fn wrong_arguments_of_parameter_calls() {
    start();
    for state in 0..2 {
        // What is wrong with the arguments is told before that the driver is open.
        for number in [-1, 12, 99, c_int::MAX, c_int::MIN] {
            let mut value = 77_usize;
            let mut is = true;
            let mut text = [0x7f as c_char; 8];
            // SAFETY: it points to a local variable.
            let got =
                unsafe { hipFileGetParameterSizeT(hipFileSizeTConfigParameter_t(number), &raw mut value) };
            assert_eq!(code(got), hipFileInvalidValue);
            // SAFETY: as above.
            let got = unsafe { hipFileGetParameterBool(hipFileBoolConfigParameter_t(number), &raw mut is) };
            assert_eq!(code(got), hipFileInvalidValue);
            let param = hipFileStringConfigParameter_t(number);
            // SAFETY: there is room for as many bytes.
            let got = unsafe { hipFileGetParameterString(param, text.as_mut_ptr(), 8) };
            assert_eq!(code(got), hipFileInvalidValue);
            assert_eq!((value, is, text), (77, true, [0x7f; 8]));
            let answer = hipFileSetParameterSizeT(hipFileSizeTConfigParameter_t(number), 1);
            assert_eq!(code(answer), hipFileInvalidValue);
            let answer = hipFileSetParameterBool(hipFileBoolConfigParameter_t(number), true);
            assert_eq!(code(answer), hipFileInvalidValue);
            // SAFETY: a string that ends with NUL.
            let answer = unsafe { hipFileSetParameterString(param, c"x".as_ptr()) };
            assert_eq!(code(answer), hipFileInvalidValue);
        }
        let null = core::ptr::null_mut;
        // SAFETY: NULL is allowed.
        let answer = unsafe { hipFileGetParameterSizeT(hipFileParamProfileStats, null()) };
        assert_eq!(code(answer), hipFileInvalidValue);
        // SAFETY: as above.
        let answer = unsafe { hipFileGetParameterBool(hipFileParamForceCompatMode, core::ptr::null_mut()) };
        assert_eq!(code(answer), hipFileInvalidValue);
        // SAFETY: as above.
        let answer =
            unsafe { hipFileGetParameterString(hipFileParamLoggingLevel, core::ptr::null_mut(), 64) };
        assert_eq!(code(answer), hipFileInvalidValue);
        // SAFETY: as above.
        let answer = unsafe { hipFileSetParameterString(hipFileParamLoggingLevel, core::ptr::null()) };
        assert_eq!(code(answer), hipFileInvalidValue);
        // Room for "warn" and its NUL, and one byte less.
        for (room, fits) in [(5, true), (4, false), (0, false), (-1, false)] {
            let mut text = [0x7f as c_char; 8];
            // SAFETY: there is room for more bytes than that.
            let answer =
                unsafe { hipFileGetParameterString(hipFileParamLoggingLevel, text.as_mut_ptr(), room) };
            let expected = if fits { hipFileSuccess } else { hipFileInvalidValue };
            assert_eq!(code(answer), expected, "{room}");
            assert_eq!(text[0] == 0x7f, !fits, "{room}");
            assert_eq!(text[5..], [0x7f; 3]);
        }
        assert_eq!(hipFileUseCount(), state);
        if state == 0 {
            ok(hipFileDriverOpen());
        }
    }
    ok(hipFileDriverClose());
    // SAFETY: a string that ends with NUL.
    let answer = unsafe { hipFileSetParameterString(hipFileParamLogDir, c"\xff".as_ptr()) };
    assert_eq!(code(answer), hipFileInvalidValue, "not UTF-8");
}

fn properties() -> hipFileDriverProps_t {
    let mut props = core::mem::MaybeUninit::<hipFileDriverProps_t>::zeroed();
    // SAFETY: there is room for them.
    ok(unsafe { hipFileDriverGetProperties(props.as_mut_ptr()) });
    // SAFETY: all zeroes are properties, and these were filled.
    unsafe { props.assume_init() }
}

#[test]
fn properties_follow_the_settings_in_every_state_and_open_nothing() {
    start();
    // SAFETY: NULL is allowed.
    let answer = unsafe { hipFileDriverGetProperties(core::ptr::null_mut()) };
    assert_eq!(code(answer), hipFileInvalidValue);
    let props = properties();
    assert_eq!(props.nvfs.max_direct_io_size, 2 << 20);
    assert_eq!(props.nvfs.poll_thresh_size, 4);
    assert_eq!((props.max_device_cache_size, props.per_buffer_cache_size), (65536, 1024));
    assert_eq!(props.max_device_pinned_mem_size, 16 << 30);
    assert_eq!((props.max_batch_io_count, props.max_batch_io_timeout_msecs), (4096, 0));
    assert_eq!(props.nvfs.driver_control_flags, 1 << hipFileAllowCompatMode.0);
    let features = (1 << hipFileBatchIOSupported.0) | (1 << hipFileStreamsSupported.0);
    assert_eq!(props.feature_flags & !(1 << hipFileParallelIOSupported.0), features);
    assert_eq!(hipFileUseCount(), 0);

    for (param, value) in [
        (Param::Number(hipFileParamPropertiesIOBatchsize), Number(128)),
        (Param::Number(hipFileParamPropertiesBatchIOTimeoutMs), Number(250)),
        (Param::Number(hipFileParamPropertiesPerBufferCacheSizeKB), Number(256)),
        (Param::Bool(hipFileParamPropertiesAllowCompatMode), Bool(false)),
        (Param::Bool(hipFileParamPropertiesUsePollMode), Bool(true)),
        (Param::Bool(hipFileParamExecutionParallelIO), Bool(false)),
    ] {
        assert_eq!(param.set(&value), hipFileSuccess);
    }
    for count in 0..2 {
        let props = properties();
        assert_eq!((props.max_batch_io_count, props.max_batch_io_timeout_msecs), (128, 250));
        assert_eq!(props.per_buffer_cache_size, 256);
        assert_eq!(props.nvfs.driver_control_flags, 1 << hipFileUsePollMode.0);
        assert_eq!(props.feature_flags, features);
        assert_eq!(hipFileUseCount(), count);
        if count == 0 {
            ok(hipFileDriverOpen());
        }
    }
    ok(hipFileDriverClose());
    assert_eq!(properties().max_batch_io_count, 4096);
}

#[test]
fn the_live_settings_change_an_open_driver_and_are_gone_with_it() {
    start();
    let read = || {
        let props = properties();
        let nvfs = props.nvfs;
        (
            (nvfs.driver_control_flags & 1 << hipFileUsePollMode.0 != 0, nvfs.poll_thresh_size),
            nvfs.max_direct_io_size,
            props.max_device_cache_size,
            props.max_device_pinned_mem_size,
        )
    };
    let usual = read();
    let change = || {
        ok(hipFileDriverSetPollMode(true, 64));
        ok(hipFileDriverSetMaxDirectIOSize(16384));
        ok(hipFileDriverSetMaxCacheSize(131_072));
        // What fastsafetensors asks for: 64 GiB.
        ok(hipFileDriverSetMaxPinnedMemSize(64 << 20));
    };
    let changed = ((true, 64), 16384, 131_072, 64 << 20);
    // While it is open, and gone when it closes.
    ok(hipFileDriverOpen());
    change();
    assert_eq!(read(), changed);
    assert_eq!(Param::Number(hipFileParamPropertiesMaxDirectIOSizeKB).get(), Number(16384));
    ok(hipFileDriverClose());
    assert_eq!(read(), usual);
    // While it is closed, for the next opening.
    change();
    assert_eq!((read(), hipFileUseCount()), (changed, 0));
    ok(hipFileDriverOpen());
    assert_eq!(read(), changed);
    // What is refused changes nothing.
    for answer in [
        hipFileDriverSetPollMode(false, 6),
        hipFileDriverSetMaxDirectIOSize(100),
        hipFileDriverSetMaxCacheSize(65537),
        hipFileDriverSetMaxPinnedMemSize(65537),
    ] {
        assert_eq!(code(answer), hipFileInvalidValue, "it breaks the step");
    }
    for answer in [
        hipFileDriverSetPollMode(false, usize::MAX),
        hipFileDriverSetMaxDirectIOSize(0),
        hipFileDriverSetMaxDirectIOSize(usize::MAX),
        hipFileDriverSetMaxCacheSize(usize::MAX),
        hipFileDriverSetMaxPinnedMemSize(usize::MAX),
        // Less than a Block, and than two.
        hipFileDriverSetMaxCacheSize(960),
        hipFileDriverSetMaxPinnedMemSize(1984),
    ] {
        assert_eq!(code(answer), hipFileDriverUnsupportedLimit);
    }
    assert_eq!(read(), changed);
    ok(hipFileDriverClose());
    assert_eq!(read(), usual);
}

fn pool() -> hipFileExtPoolInfo_t {
    let size = size_of::<hipFileExtPoolInfo_t>();
    let mut info = hipFileExtPoolInfo_t { size, held_bytes: 0, most_bytes: 0, block_size: 0 };
    // SAFETY: it points to a local variable with its size in it.
    ok(unsafe { hipFileExtPoolGetInfo(&raw mut info) });
    info
}

#[test]
fn behaviour_39_the_limit_of_pinned_memory_shrinks_the_cache_and_no_read_fails_for_it() {
    start();
    // What goes direct needs no staging memory.
    ok(hipFileSetParameterBool(hipFileParamForceCompatMode, true));
    ok(hipFileDriverOpen());
    // The two calls of fastsafetensors, as it makes them.
    ok(hipFileDriverSetMaxDirectIOSize(16 << 10));
    ok(hipFileDriverSetMaxPinnedMemSize(64 << 20));
    let (_file, handle) = registered_file(&[7; 3 << 20]);
    let device = Device::new(4 << 20, 0);
    assert_eq!(read(handle, device.start, 3 << 20, 0, 0).0, 3 << 20);
    let usual = pool();
    assert_eq!(usual.most_bytes, 64 << 20);
    assert!(usual.held_bytes > 0);
    // Smaller than what there is: half may be for streams, the rest is left.
    ok(hipFileDriverSetMaxPinnedMemSize(4 << 10));
    assert_eq!(pool().most_bytes, 2 << 20);
    assert_eq!(read(handle, device.start, 3 << 20, 0, 0).0, 3 << 20);
    ok(hipFileDriverSetMaxCacheSize(1 << 10));
    assert_eq!(pool().most_bytes, 1 << 20);
    assert_eq!(read(handle, device.start, 3 << 20, 0, 0).0, 3 << 20);
    // Less than what must be there: refused, and nothing has changed.
    assert_eq!(code(hipFileDriverSetMaxPinnedMemSize(1 << 10)), hipFileDriverUnsupportedLimit);
    assert_eq!(pool().most_bytes, 1 << 20);
    assert_eq!(read(handle, device.start, 3 << 20, 0, 0).0, 3 << 20);
    ok(hipFileDriverClose());
}

#[test]
fn parameters_change_what_calls_do() {
    start();
    let device = Device::new(4096, 0);
    let mut host = [0_u8; 4096];
    let host_memory = host.as_mut_ptr().cast();

    // The most entries of a batch.
    let set_up = |capacity| {
        let mut batch = core::ptr::null_mut();
        // SAFETY: it points to a local variable.
        code(unsafe { hipFileBatchIOSetUp(&raw mut batch, capacity) })
    };
    assert_eq!(set_up(129), hipFileSuccess);
    ok(hipFileSetParameterSizeT(hipFileParamPropertiesIOBatchsize, 128));
    assert_eq!((set_up(128), set_up(129)), (hipFileSuccess, hipFileInvalidValue));

    // Host memory as a buffer.
    let (_file, handle) = registered_file(&[9; 4096]);
    assert_eq!(read(handle, host_memory, 4096, 0, 0).0, -5013);
    ok(hipFileDriverClose());
    ok(hipFileSetParameterBool(hipFileParamPropertiesAllowSystemMemory, true));
    let (_file, handle) = registered_file(&[9; 4096]);
    assert_eq!(read(handle, host_memory, 4096, 0, 0).0, 4096);
    assert_eq!(host, [9; 4096]);
    ok(hipFileDriverClose());

    // Staging: a ragged read cannot do without.
    let (_file, handle) = registered_file(&[9; 4096]);
    assert_eq!(read(handle, device.start, 100, 1, 0).0, 100);
    ok(hipFileDriverClose());
    ok(hipFileSetParameterBool(hipFileParamPropertiesAllowCompatMode, false));
    let (_file, handle) = registered_file(&[9; 4096]);
    assert_eq!(read(handle, device.start, 100, 1, 0).0, -5008);
    ok(hipFileDriverClose());

    // The size of a Block.
    ok(hipFileSetParameterSizeT(hipFileParamPropertiesPerBufferCacheSizeKB, 256));
    ok(hipFileSetParameterSizeT(hipFileParamPropertiesMaxDeviceCacheSizeKB, 512));
    let (_file, handle) = registered_file(&[9; 4096]);
    assert_eq!(read(handle, device.start, 100, 1, 0).0, 100);
    assert_eq!((pool().block_size, pool().most_bytes), (256 << 10, 512 << 10));
    assert!(pool().held_bytes <= 512 << 10);
    ok(hipFileDriverClose());
}
