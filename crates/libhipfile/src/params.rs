//! The header's group "Parameters": C's numbers for the core's settings. What a setting takes and does is the core's
//! business; when it may be set is decided in `global`.

use core::ffi::{CStr, c_char, c_int};

use hipfile::{Invalid, Kind, SETTINGS, Setting, Unit, Value};

use crate::abi::*;
use crate::dispatch::forward;
use crate::global;
use crate::guard::{self, Failure};

/// See `include/hipfile.h`.
///
/// # Safety
/// `value` is NULL or points to a `size_t` that may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipFileGetParameterSizeT(
    param: hipFileSizeTConfigParameter_t,
    value: *mut usize,
) -> hipFileError_t {
    forward!(pfn_hipfile_get_parameter_size_t(param, value))
}

/// See `include/hipfile.h`.
///
/// # Safety
/// `value` is NULL or points to a `bool` that may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipFileGetParameterBool(
    param: hipFileBoolConfigParameter_t,
    value: *mut bool,
) -> hipFileError_t {
    forward!(pfn_hipfile_get_parameter_bool(param, value))
}

/// See `include/hipfile.h`.
///
/// # Safety
/// `desc_str` is NULL or has room for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipFileGetParameterString(
    param: hipFileStringConfigParameter_t,
    desc_str: *mut c_char,
    len: c_int,
) -> hipFileError_t {
    forward!(pfn_hipfile_get_parameter_string(param, desc_str, len))
}

/// See `include/hipfile.h`.
#[unsafe(no_mangle)]
pub extern "C" fn hipFileSetParameterSizeT(
    param: hipFileSizeTConfigParameter_t,
    value: usize,
) -> hipFileError_t {
    forward!(pfn_hipfile_set_parameter_size_t(param, value))
}

/// See `include/hipfile.h`.
#[unsafe(no_mangle)]
pub extern "C" fn hipFileSetParameterBool(
    param: hipFileBoolConfigParameter_t,
    value: bool,
) -> hipFileError_t {
    forward!(pfn_hipfile_set_parameter_bool(param, value))
}

/// See `include/hipfile.h`.
///
/// # Safety
/// `desc_str` is NULL or a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipFileSetParameterString(
    param: hipFileStringConfigParameter_t,
    desc_str: *const c_char,
) -> hipFileError_t {
    forward!(pfn_hipfile_set_parameter_string(param, desc_str))
}

/// A value for a setting, by a call.
pub(crate) type Call = (&'static Setting, Value);

/// The core's numbers of bytes are KiB in C.
const KIB: u64 = 1024;

impl From<Invalid> for Failure {
    fn from(why: Invalid) -> Failure {
        let text = why.to_string();
        Failure::new(
            match why {
                Invalid::Frozen(_) => hipFileDriverAlreadyOpen,
                Invalid::Range(_) => hipFileDriverUnsupportedLimit,
                Invalid::Kind(_) | Invalid::Step(_) => hipFileInvalidValue,
            },
            text,
        )
    }
}

fn invalid(text: impl Into<std::borrow::Cow<'static, str>>) -> Failure {
    Failure::new(hipFileInvalidValue, text)
}

/// The setting behind a number of the C interface.
fn setting(values: &[(&str, i64)], number: c_int) -> Result<&'static Setting, Failure> {
    let unknown = || invalid(format!("there is no parameter {number}"));
    let (name, _) = values.iter().find(|(_, known)| *known == i64::from(number)).ok_or_else(unknown)?;
    SETTINGS.iter().find(|setting| setting.parameter == Some(name)).ok_or_else(unknown)
}

/// What one of C stands for.
fn scale(setting: &Setting) -> u64 {
    match setting.kind {
        Kind::Number { unit: Unit::Bytes, .. } => KIB,
        _ => 1,
    }
}

/// The setting with this name and a number of C's for it.
///
/// # Errors
/// The number does not fit.
pub(crate) fn number(setting: &'static Setting, value: usize) -> Result<Call, Failure> {
    match (value as u64).checked_mul(scale(setting)) {
        Some(number) => Ok((setting, Value::Number(number))),
        None => Err(Invalid::Range(format!("{value} KiB are more than can be")).into()),
    }
}

/// A number of a setting as C knows it.
pub(crate) fn number_of(setting: &Setting, config: &hipfile::Config) -> u64 {
    match setting.get(config) {
        Value::Number(number) => number / scale(setting),
        _ => 0,
    }
}

fn get(setting: &Setting) -> Value {
    global::staged(setting).unwrap_or_else(|| setting.get(&global::settings()))
}

pub(crate) extern "C" fn get_size_t(
    param: hipFileSizeTConfigParameter_t,
    value: *mut usize,
) -> hipFileError_t {
    guard::status(c"hipFileGetParameterSizeT", || {
        let setting = setting(hipFileSizeTConfigParameter_t::LAYOUT.values, param.0)?;
        if value.is_null() {
            return Err(invalid("value is NULL"));
        }
        let Value::Number(number) = get(setting) else {
            unreachable!("a test holds the kinds of settings and parameters together");
        };
        // SAFETY: `value` is not NULL, so it points to a number that may be written to.
        unsafe { value.write((number / scale(setting)) as usize) };
        Ok(())
    })
}

pub(crate) extern "C" fn get_bool(param: hipFileBoolConfigParameter_t, value: *mut bool) -> hipFileError_t {
    guard::status(c"hipFileGetParameterBool", || {
        let setting = setting(hipFileBoolConfigParameter_t::LAYOUT.values, param.0)?;
        if value.is_null() {
            return Err(invalid("value is NULL"));
        }
        let Value::Bool(is) = get(setting) else {
            unreachable!("a test holds the kinds of settings and parameters together");
        };
        // SAFETY: `value` is not NULL, so it points to a bool that may be written to.
        unsafe { value.write(is) };
        Ok(())
    })
}

pub(crate) extern "C" fn get_string(
    param: hipFileStringConfigParameter_t,
    desc_str: *mut c_char,
    len: c_int,
) -> hipFileError_t {
    guard::status(c"hipFileGetParameterString", || {
        let setting = setting(hipFileStringConfigParameter_t::LAYOUT.values, param.0)?;
        if desc_str.is_null() {
            return Err(invalid("desc_str is NULL"));
        }
        let text = get(setting).to_string();
        let room = usize::try_from(len).unwrap_or(0);
        if text.len() >= room {
            return Err(invalid(format!("{} bytes do not fit into {len}", text.len() + 1)));
        }
        // SAFETY: the caller gives room for `len` bytes, and the text with its NUL has no more.
        unsafe { desc_str.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), text.len()) };
        // SAFETY: as above: this is at most the last of the `len` bytes.
        let end = unsafe { desc_str.add(text.len()) };
        // SAFETY: as above.
        unsafe { end.write(0) };
        Ok(())
    })
}

pub(crate) extern "C" fn set_size_t(param: hipFileSizeTConfigParameter_t, value: usize) -> hipFileError_t {
    guard::status(c"hipFileSetParameterSizeT", || {
        let setting = setting(hipFileSizeTConfigParameter_t::LAYOUT.values, param.0)?;
        global::stage(|| number(setting, value))
    })
}

pub(crate) extern "C" fn set_bool(param: hipFileBoolConfigParameter_t, value: bool) -> hipFileError_t {
    guard::status(c"hipFileSetParameterBool", || {
        let setting = setting(hipFileBoolConfigParameter_t::LAYOUT.values, param.0)?;
        global::stage(|| Ok((setting, Value::Bool(value))))
    })
}

pub(crate) extern "C" fn set_string(
    param: hipFileStringConfigParameter_t,
    desc_str: *const c_char,
) -> hipFileError_t {
    guard::status(c"hipFileSetParameterString", || {
        let setting = setting(hipFileStringConfigParameter_t::LAYOUT.values, param.0)?;
        if desc_str.is_null() {
            return Err(invalid("desc_str is NULL"));
        }
        // SAFETY: the caller gives a NUL-terminated string.
        let text = unsafe { CStr::from_ptr(desc_str) };
        let text = text.to_str().map_err(|_| invalid("desc_str is not UTF-8"))?;
        global::stage(|| Ok((setting, Value::Text(text.to_owned()))))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_parameter_of_the_header_is_a_setting_of_its_kind_and_the_other_way_round() {
        type Fits = (&'static [(&'static str, i64)], fn(&Kind) -> bool);
        let fits: [Fits; 3] = [
            (hipFileSizeTConfigParameter_t::LAYOUT.values, |kind| matches!(kind, Kind::Number { .. })),
            (hipFileBoolConfigParameter_t::LAYOUT.values, |kind| matches!(kind, Kind::Bool)),
            (hipFileStringConfigParameter_t::LAYOUT.values, |kind| {
                matches!(kind, Kind::Word(_) | Kind::Path)
            }),
        ];
        let mut names = Vec::new();
        for (values, fits) in fits {
            for (name, number) in values {
                let found = setting(values, *number as c_int).unwrap();
                assert_eq!(found.parameter, Some(*name));
                assert!(fits(&found.kind), "{name}");
                names.push(*name);
            }
        }
        for setting in SETTINGS {
            assert!(setting.parameter.is_none_or(|name| names.contains(&name)), "{}", setting.name);
        }
    }
}
