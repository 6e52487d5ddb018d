//! Every prototype of the headers against the Rust function of that name: result, parameters and their names, one by
//! one, from the source text of both. The dispatch table's order, too.
#![allow(clippy::unwrap_used, reason = "a test: what fails panics")]

mod support;

use std::collections::BTreeMap;

use hipfile_c::dispatch::{ENTRIES, TABLE, hipFileDispatchTable};
use support::header::{Prototype, prototypes, prototypes_of};

/// A Rust function in the form of a prototype.
fn rust_functions() -> BTreeMap<String, Prototype> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(support::crate_dir().join("src")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "rs") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        for item in text.split("#[unsafe(no_mangle)]").skip(1) {
            // Behind further attributes and the `pub`.
            let item = item.split_once("pub ").unwrap().1;
            let (unsafety, item) = item.split_once("extern \"C\" fn ").unwrap();
            assert!(["", "unsafe "].contains(&unsafety), "{}: {unsafety}", path.display());
            let (name, rest) = item.split_once('(').unwrap();
            let (arguments, rest) = rest.split_once(')').unwrap();
            let result = rest.split_once('{').unwrap().0.trim().trim_start_matches("->").trim();
            let parameters = arguments.split(',').map(str::trim).filter(|a| !a.is_empty()).map(|argument| {
                let (name, kind) = argument.split_once(':').unwrap();
                (kind.trim().to_owned(), name.to_owned())
            });
            let function = Prototype {
                name: name.to_owned(),
                result: result.to_owned(),
                parameters: parameters.collect(),
            };
            assert!(found.insert(name.to_owned(), function).is_none(), "{name} is defined twice");
        }
    }
    found
}

/// How Rust must write a type of C.
fn in_rust(c: &str) -> String {
    let pointee = |c: &str| match c.strip_prefix("const ") {
        Some(pointee) => format!("*const {}", in_rust(pointee)),
        None => format!("*mut {}", in_rust(c)),
    };
    match c {
        "void" => "c_void".to_owned(),
        "char" => "c_char".to_owned(),
        "int" => "c_int".to_owned(),
        "unsigned int" => "c_uint".to_owned(),
        "size_t" => "usize".to_owned(),
        "ssize_t" => "isize".to_owned(),
        "int64_t" => "i64".to_owned(),
        "bool" => "bool".to_owned(),
        "struct timespec" => "libc::timespec".to_owned(),
        name if name.starts_with("hipFile") && name.ends_with("_t") => name.to_owned(),
        "hoff_t" | "hipStream_t" => c.to_owned(),
        _ => match c.strip_suffix('*') {
            Some(c) => pointee(c),
            None => panic!("the type {c} is not known to this test"),
        },
    }
}

/// `targetPid` in C is `target_pid` or `_target_pid` in Rust.
fn plain(name: &str) -> String {
    name.replace('_', "").to_lowercase()
}

#[test]
fn every_prototype_has_its_function() {
    let mut rust = rust_functions();
    for c in prototypes() {
        let name = &c.name;
        let function = rust.remove(name).unwrap_or_else(|| panic!("{name} is not defined in Rust"));
        let result = if c.result == "void" { String::new() } else { in_rust(&c.result) };
        assert_eq!(function.result, result, "{name}: result");
        assert_eq!(function.parameters.len(), c.parameters.len(), "{name}: number of parameters");
        for (rust, c) in function.parameters.iter().zip(&c.parameters) {
            assert_eq!(rust.0, in_rust(&c.0), "{name}: type of {}", c.1);
            assert_eq!(plain(&rust.1), plain(&c.1), "{name}: name of {}", c.1);
        }
    }
    // No part of the interface for programs.
    assert!(rust.remove("rocprofiler_register_import_hipFile").is_some());
    assert!(rust.is_empty(), "in Rust but in no header: {:?}", rust.keys());
}

#[test]
fn the_headers_declare_as_many_functions_as_the_interface_has() {
    let count = |header| prototypes_of(header).len();
    assert_eq!((count("hipfile.h"), count("hipfile-stats.h")), (34, 5));
    assert!(prototypes_of("hipfile_ext.h").iter().all(|p| p.name.starts_with("hipFileExt")));
}

#[test]
fn the_documentation_has_a_row_for_each_function() {
    let path = support::crate_dir().join("../../docs/abi.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let rows: Vec<Vec<_>> = text
        .lines()
        .filter(|line| line.starts_with("| `hipFile"))
        .map(|line| line.split('|').map(|cell| cell.trim().trim_matches('`')).collect())
        .collect();
    let documented: Vec<_> = rows.iter().map(|row| row[1].to_owned()).collect();
    let mut declared: Vec<_> = prototypes().into_iter().map(|prototype| prototype.name).collect();
    let mut sorted = documented.clone();
    declared.sort();
    sorted.sort();
    assert_eq!(sorted, declared);
    for row in &rows {
        let known =
            if row[1].starts_with("hipFileExt") { &["ours"][..] } else { &["same", "further", "not yet"] };
        assert!(known.contains(&row[2]), "{}: state {}", row[1], row[2]);
    }
}

/// The program that shows that each function is callable without a GPU runtime calls each.
#[test]
fn behaviour_51_no_function_is_left_out_without_a_runtime() {
    let path = support::crate_dir().join("tests/c/no_runtime.c");
    let program = std::fs::read_to_string(path).unwrap();
    for Prototype { name, .. } in prototypes() {
        assert!(program.contains(&format!("{name}(")), "no_runtime.c does not call {name}");
    }
}

/// `hipFileDriverSetMaxDirectIOSize` is `driver_set_max_direct_io_size` in the table.
#[test]
fn the_table_has_an_entry_for_each_function_and_nothing_else() {
    let mut entries: Vec<_> = ENTRIES.iter().map(|e| plain(e.trim_start_matches("pfn_hipfile_"))).collect();
    let mut names: Vec<_> =
        prototypes_of("hipfile.h").iter().map(|p| plain(p.name.trim_start_matches("hipFile"))).collect();
    entries.sort();
    names.sort();
    assert_eq!(entries, names);
}

#[test]
fn the_table_has_the_order_and_size_that_profilers_know() {
    let expected = "get_op_error_string handle_register handle_deregister buf_register buf_deregister read write \
        driver_open driver_close use_count driver_get_properties driver_set_poll_mode driver_set_max_direct_io_size \
        driver_set_max_cache_size driver_set_max_pinned_mem_size batch_io_set_up batch_io_submit \
        batch_io_get_status batch_io_cancel batch_io_destroy read_async write_async stream_register \
        stream_deregister get_version get_parameter_size_t get_parameter_bool get_parameter_string \
        set_parameter_size_t set_parameter_bool set_parameter_string get_stats_l1 get_stats_l2 get_stats_l3";
    let expected: Vec<_> = expected.split_whitespace().map(|name| format!("pfn_hipfile_{name}")).collect();
    assert_eq!(ENTRIES, expected);
    assert_eq!(TABLE.size, size_of::<hipFileDispatchTable>());
    assert_eq!(TABLE.size, size_of::<usize>() * (1 + 34));
    assert_eq!(std::mem::offset_of!(hipFileDispatchTable, pfn_hipfile_get_op_error_string), 8);
    assert_eq!(std::mem::offset_of!(hipFileDispatchTable, pfn_hipfile_get_stats_l3), TABLE.size - 8);
}

#[test]
fn a_call_goes_through_an_exchanged_entry() {
    extern "C" fn mine() -> i64 {
        4711
    }
    let place = TABLE.pfn_hipfile_use_count.as_ptr();
    let theirs = TABLE.pfn_hipfile_use_count.get();
    // SAFETY: the place holds a function of this type, and this process has no other thread in the library.
    unsafe { place.write(mine) };
    assert_eq!(hipfile_c::hipFileUseCount(), 4711);
    // SAFETY: as above.
    unsafe { place.write(theirs) };
    assert_eq!(hipfile_c::hipFileUseCount(), 0);
}
