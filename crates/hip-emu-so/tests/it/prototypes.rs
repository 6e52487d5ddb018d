//! The headers' prototypes against the Rust functions behind them, argument by argument. The Rust side is compared
//! with HIP's own declarations by gpu-sys's referee.

use crate::cc::{code_of, header};

/// A function's name, and its result and parameters as C types without names, spaces around `*` removed.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Prototype {
    pub(crate) name: String,
    types: Vec<String>,
}

/// The prototypes that a header declares. Its code has no comments, and declares C++'s templates last.
pub(crate) fn of_header(code: &str) -> Vec<Prototype> {
    let code = code.split("template").next().unwrap();
    code.split(';').filter_map(declaration).collect()
}

fn declaration(text: &str) -> Option<Prototype> {
    // What stands before the first prototype belongs to extern "C".
    let text = text.rsplit('{').next()?.split_whitespace().collect::<Vec<_>>().join(" ");
    if text.starts_with("typedef") || !text.ends_with(')') {
        return None;
    }
    let (head, parameters) = text.split_once('(')?;
    let at = head.rfind(['*', ' '])? + 1;
    let (result, name) = (&head[..at], &head[at..]);
    let mut types = vec![spaceless(result)];
    let parameters = without_defaults(parameters.strip_suffix(')')?);
    types.extend(parameters.split(',').map(str::trim).filter(|text| *text != "void").map(without_name));
    Some(Prototype { name: name.to_owned(), types })
}

/// Takes ` HIP_EMU_DEFAULT(...)` away.
fn without_defaults(parameters: &str) -> String {
    let mut parts = parameters.split(" HIP_EMU_DEFAULT(");
    let mut kept = parts.next().unwrap_or("").to_owned();
    for part in parts {
        kept.push_str(part.split_once(')').map_or("", |(_, rest)| rest));
    }
    kept
}

fn without_name(parameter: &str) -> String {
    let at = parameter.rfind(['*', ' ']).map_or(0, |at| at + 1);
    spaceless(&parameter[..at])
}

fn spaceless(text: &str) -> String {
    text.trim().replace(" *", "*").replace("* ", "*")
}

/// The prototypes of the `export!` lists of a library's source, in C's types.
fn of_exports(source: &str) -> Vec<Prototype> {
    let listed = source.split("\nexport!").skip(1).flat_map(|list| list.split("fn ").skip(1));
    let prototype = |text: &str| {
        let text = text.split(';').next().unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
        let (name, rest) = text.split_once('(').unwrap();
        let (parameters, result) = rest.split_once(") -> ").unwrap();
        let mut types = vec![c_type(result)];
        let typed = parameters.split(',').filter_map(|parameter| parameter.split_once(": "));
        types.extend(typed.map(|(_, kind)| c_type(kind)));
        Prototype { name: name.to_owned(), types }
    };
    listed.map(prototype).collect()
}

/// Rust's type as C writes it.
fn c_type(rust: &str) -> String {
    let rust = rust.trim().trim_end_matches(',');
    if let Some(pointee) = rust.strip_prefix("*mut ") {
        return format!("{}*", c_type(pointee));
    }
    if let Some(pointee) = rust.strip_prefix("*const ") {
        let pointee = c_type(pointee);
        // The const of a pointer stands behind it, that of a value before it.
        return if pointee.ends_with('*') { format!("{pointee}const*") } else { format!("const {pointee}*") };
    }
    let c = match rust {
        "c_int" => "int",
        "c_uint" => "unsigned int",
        "c_char" => "char",
        "c_uchar" => "unsigned char",
        "c_void" => "void",
        "f32" => "float",
        "u32" => "uint32_t",
        "u64" => "uint64_t",
        "c_ulonglong" => "unsigned long long",
        "usize" => "size_t",
        "HipError" => "hipError_t",
        "MemcpyKind" => "hipMemcpyKind",
        "DevicePtr" => "hipDeviceptr_t",
        "DeviceOrdinal" => "hipDevice_t",
        "StreamPtr" => "hipStream_t",
        "EventPtr" => "hipEvent_t",
        "AllocationPtr" => "hipMemGenericAllocationHandle_t",
        "IpcMemHandle" => "hipIpcMemHandle_t",
        "MemAllocationProp" => "hipMemAllocationProp",
        "MemAccessDesc" => "hipMemAccessDesc",
        "MemGranularity" => "hipMemAllocationGranularity_flags",
        "ModulePtr" => "hipModule_t",
        "FunctionPtr" => "hipFunction_t",
        "GraphPtr" => "hipGraph_t",
        "HostFn" => "hipHostFn_t",
        "Uuid" => "hipUUID",
        "DeviceAttribute" => "hipDeviceAttribute_t",
        "DeviceProperties" => "hipDeviceProp_tR0600",
        "PointerAttribute" => "hipPointer_attribute",
        "PointerAttributes" => "hipPointerAttribute_t",
        "StreamCaptureMode" => "hipStreamCaptureMode",
        "StreamCaptureStatus" => "hipStreamCaptureStatus",
        "ProcAddressStatus" => "hipDriverProcAddressQueryResult",
        "RtcResult" => "hiprtcResult",
        "RtcProgramPtr" => "hiprtcProgram",
        other => panic!("no C type is known for {other}"),
    };
    c.to_owned()
}

#[track_caller]
fn compare(header_name: &str, source: &str) {
    let mut ours = of_exports(source);
    let mut theirs = of_header(&code_of(&header(header_name)));
    ours.sort();
    theirs.sort();
    assert!(!ours.is_empty());
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_eq!(ours, theirs);
    }
    assert_eq!(ours.len(), theirs.len());
}

#[test]
fn the_runtimes_prototypes_are_those_of_rust() {
    compare("hip_runtime_api.h", include_str!("../../src/lib.rs"));
}

#[test]
fn the_compilers_prototypes_are_those_of_rust() {
    compare("hiprtc.h", include_str!("../../../hip-emu-rtc-so/src/lib.rs"));
}

#[test]
fn a_prototype_is_read_as_it_is_written() {
    let code = "extern \"C\" { typedef int (*f)(void *); const char *name(hipError_t error);\nint g(void);\n\
                int h(void **a, const void *b, unsigned int c HIP_EMU_DEFAULT(3), int d);";
    let read: Vec<(String, String)> =
        of_header(code).into_iter().map(|found| (found.name, found.types.join("|"))).collect();
    let expected =
        [("name", "const char*|hipError_t"), ("g", "int"), ("h", "int|void**|const void*|unsigned int|int")];
    assert_eq!(read, expected.map(|(name, types)| (name.to_owned(), types.to_owned())));
    assert_eq!(c_type("*const *const c_char"), "const char*const*");
    assert_eq!(c_type("*mut *const c_char"), "const char**");
}
