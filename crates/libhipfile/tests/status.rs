//! The table of codes: total in both directions, equal to the header's list, with a text for any number.
#![allow(clippy::unwrap_used, reason = "a test: what fails panics")]

mod support;

use std::collections::BTreeSet;
use std::ffi::CStr;

use hipfile::ErrorKind;
use hipfile_c::abi::*;
use hipfile_c::{hipFileGetOpErrorString, status};

fn text(number: i32) -> &'static str {
    let text = hipFileGetOpErrorString(hipFileOpError_t(number));
    assert!(!text.is_null(), "{number}");
    // SAFETY: not NULL, and the function returns static strings.
    unsafe { CStr::from_ptr(text) }.to_str().unwrap()
}

/// Name and number of each code, from the header.
fn codes() -> Vec<(String, hipFileOpError_t)> {
    let names = support::header::enumerations().remove("hipFileOpError_t").unwrap();
    let layout = LAYOUTS.iter().find(|layout| layout.c_name == "hipFileOpError_t").unwrap();
    let number = |name: &str| layout.values.iter().find(|(known, _)| *known == name).unwrap().1 as i32;
    names.into_iter().map(|name| (name.clone(), hipFileOpError_t(number(&name)))).collect()
}

#[test]
fn behaviour_96_each_kind_has_the_code_of_its_name_in_the_header_and_back() {
    for kind in ErrorKind::ALL {
        let code = status::from_kind(*kind);
        if *kind == ErrorKind::Io {
            assert_eq!(code, hipFileInternalError, "an errno has no code");
            continue;
        }
        let name = format!("hipFile{}", kind.name());
        let (_, expected) = codes().into_iter().find(|(known, _)| *known == name).unwrap();
        assert_eq!(code, expected, "{name}");
        assert_eq!(status::to_kind(code), Some(*kind), "{name}");
    }
}

#[test]
fn each_code_of_the_header_has_a_kind() {
    let mut kinds = 0;
    for (name, code) in codes() {
        match status::to_kind(code) {
            Some(kind) => {
                assert_eq!(name, format!("hipFile{}", kind.name()));
                kinds += 1;
            }
            None => assert!([hipFileSuccess, hipFileIOMaxError].contains(&code), "{name} has no kind"),
        }
    }
    // All but `Io`, which is no code of the header.
    assert_eq!(kinds, ErrorKind::ALL.len() - 1);
    assert_eq!(kinds, 36);
    for number in [5000, 5021, 5032, 5040, 1, -5001, i32::MIN, i32::MAX] {
        assert_eq!(status::to_kind(hipFileOpError_t(number)), None);
    }
}

#[test]
fn behaviour_87_each_code_has_a_text_of_its_own_and_any_number_has_one() {
    let unknown = text(1);
    let texts: BTreeSet<_> = codes().iter().map(|(_, code)| text(code.0)).collect();
    assert_eq!(texts.len(), codes().len(), "two codes share a text");
    assert!(!texts.contains(unknown));
    let known: BTreeSet<_> = codes().iter().map(|(_, code)| code.0).collect();
    for number in (-6000..=6000).chain([i32::MIN, i32::MIN + 1, i32::MAX]) {
        let expected = known.contains(&number.saturating_abs());
        assert_eq!(text(number) != unknown, expected, "{number}: {}", text(number));
        // The result of a read or write may be passed as it is.
        assert_eq!(text(number), text(number.saturating_neg()), "{number}");
        assert!(!text(number).is_empty());
    }
}

#[test]
fn the_texts_say_nothing_of_the_last_error() {
    text(hipFileInternalError.0);
    assert_eq!(hipfile_c::hipFileUseCount(), 0, "asking for a text opened the driver");
}
