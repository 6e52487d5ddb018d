//! The values of settings: how they are written, which are legal, and how they get into fields. It knows no setting.

use std::fmt::{self, Write as _};
use std::path::PathBuf;
use std::time::Duration;

/// The value of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Yes or no.
    Bool(bool),
    /// A whole number, in the setting's [`Unit`].
    Number(u64),
    /// Anything else.
    Text(String),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Bool(value) => write!(f, "{value}"),
            Value::Number(value) => write!(f, "{value}"),
            Value::Text(value) => f.write_str(value),
        }
    }
}

/// What a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Things.
    Count,
    /// Bytes; written with K, M or G (powers of 1024) if wanted.
    Bytes,
    /// Seconds; 0 stands for never.
    Seconds,
    /// Milliseconds; 0 stands for never.
    Milliseconds,
}

/// What values a setting takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A boolean.
    Bool,
    /// A number from `min` to `max` that is a multiple of `step`.
    Number {
        /// What it counts.
        unit: Unit,
        /// The smallest.
        min: u64,
        /// The largest.
        max: u64,
        /// What it must be a multiple of.
        step: u64,
    },
    /// One of these words.
    Word(&'static [&'static str]),
    /// Some of these words, separated by commas.
    Words(&'static [&'static str]),
    /// A path; nothing stands for none.
    Path,
}

/// Why a value is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Invalid {
    /// It is not of the setting's kind.
    Kind(String),
    /// It lies outside the range, or is none of the words.
    Range(String),
    /// It is no multiple of the step.
    Step(String),
    /// The setting cannot be changed while the driver is open.
    Frozen(String),
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Invalid::Kind(why) | Invalid::Range(why) | Invalid::Step(why) | Invalid::Frozen(why) => {
                f.write_str(why)
            }
        }
    }
}

/// A number of bytes as people write it.
fn short(bytes: u64) -> String {
    match bytes {
        0 => "0".to_owned(),
        b if b.is_multiple_of(1 << 40) => format!("{}T", b >> 40),
        b if b.is_multiple_of(1 << 30) => format!("{}G", b >> 30),
        b if b.is_multiple_of(1 << 20) => format!("{}M", b >> 20),
        b if b.is_multiple_of(1 << 10) => format!("{}K", b >> 10),
        b => b.to_string(),
    }
}

impl Kind {
    /// The legal values in words.
    pub fn values(&self) -> String {
        match *self {
            Kind::Bool => "a boolean".to_owned(),
            Kind::Number { unit: Unit::Count, min, max, .. } => format!("{min} to {max}"),
            Kind::Number { unit: Unit::Seconds, .. } => "seconds; 0 for never".to_owned(),
            Kind::Number { unit: Unit::Milliseconds, .. } => "milliseconds; 0 for never".to_owned(),
            Kind::Number { unit: Unit::Bytes, min, max, step } => {
                let mut text = "bytes, K, M or G".to_owned();
                if min > 0 {
                    let _ = write!(text, "; {} to {}", short(min), short(max));
                }
                if step > 1 {
                    let _ = write!(text, ", a multiple of {}", short(step));
                }
                text
            }
            Kind::Word(words) => words.join(", "),
            Kind::Words(words) => format!("of {}, separated by commas", words.join(", ")),
            Kind::Path => "a path".to_owned(),
        }
    }

    /// Reads a value as people write it. The range is not looked at.
    pub(super) fn parse(&self, text: &str) -> Result<Value, Invalid> {
        match self {
            Kind::Bool => boolean(text).map(Value::Bool),
            Kind::Number { unit: Unit::Bytes, .. } => size(text).map(Value::Number),
            Kind::Number { .. } => match text.parse() {
                Ok(number) => Ok(Value::Number(number)),
                Err(_) => Err(Invalid::Kind("it is not a whole number".into())),
            },
            Kind::Word(_) | Kind::Words(_) | Kind::Path => Ok(Value::Text(text.to_owned())),
        }
    }

    /// Whether a value is legal.
    pub(super) fn check(&self, value: &Value) -> Result<(), Invalid> {
        match (self, value) {
            (Kind::Bool, Value::Bool(_)) | (Kind::Path, Value::Text(_)) => Ok(()),
            (&Kind::Number { unit, min, max, step }, &Value::Number(number)) => {
                let show = |n| if unit == Unit::Bytes { short(n) } else { n.to_string() };
                if !(min..=max).contains(&number) {
                    let why = format!("{} is not from {} to {}", show(number), show(min), show(max));
                    return Err(Invalid::Range(why));
                }
                if !number.is_multiple_of(step) {
                    return Err(Invalid::Step(format!("{} is no multiple of {}", show(number), show(step))));
                }
                Ok(())
            }
            (Kind::Word(words), Value::Text(text)) => known(words, text),
            (Kind::Words(words), Value::Text(text)) => {
                text.split(',').try_for_each(|word| known(words, word.trim()))
            }
            _ => Err(Invalid::Kind(format!("it must be {}", self.values()))),
        }
    }
}

fn known(words: &[&str], text: &str) -> Result<(), Invalid> {
    match words.iter().any(|word| word.eq_ignore_ascii_case(text)) {
        true => Ok(()),
        false => Err(Invalid::Range(format!("{text:?} is none of {}", words.join(", ")))),
    }
}

fn boolean(value: &str) -> Result<bool, Invalid> {
    let is = |words: [&str; 4]| words.iter().any(|word| word.eq_ignore_ascii_case(value));
    match (is(["true", "1", "yes", "on"]), is(["false", "0", "no", "off"])) {
        (true, _) => Ok(true),
        (_, true) => Ok(false),
        _ => Err(Invalid::Kind("it is not a boolean (true/false, 1/0, yes/no, on/off)".into())),
    }
}

/// A number of bytes: digits, then K, M or G (powers of 1024), in either case.
pub(super) fn size(value: &str) -> Result<u64, Invalid> {
    let (digits, shift) = match value.as_bytes().last() {
        Some(b'k' | b'K') => (&value[..value.len() - 1], 10),
        Some(b'm' | b'M') => (&value[..value.len() - 1], 20),
        Some(b'g' | b'G') => (&value[..value.len() - 1], 30),
        Some(b't' | b'T') => (&value[..value.len() - 1], 40),
        _ => (value, 0),
    };
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(Invalid::Kind("it is not a number of bytes".into()));
    }
    let large = || Invalid::Range("the number is too large".into());
    let number: u64 = digits.parse().map_err(|_| large())?;
    number.checked_mul(1 << shift).ok_or_else(large)
}

/// A field of the configuration that a setting fills. Values come checked.
pub(super) trait Field {
    fn value(&self) -> Value;
    fn put(&mut self, value: &Value);
}

impl Field for bool {
    fn value(&self) -> Value {
        Value::Bool(*self)
    }

    fn put(&mut self, value: &Value) {
        if let Value::Bool(value) = value {
            *self = *value;
        }
    }
}

impl Field for usize {
    fn value(&self) -> Value {
        Value::Number(*self as u64)
    }

    fn put(&mut self, value: &Value) {
        if let Value::Number(value) = value {
            *self = usize::try_from(*value).unwrap_or(usize::MAX);
        }
    }
}

/// In seconds.
impl Field for Option<Duration> {
    fn value(&self) -> Value {
        Value::Number(self.map_or(0, |time| time.as_secs()))
    }

    fn put(&mut self, value: &Value) {
        if let Value::Number(seconds) = value {
            *self = (*seconds > 0).then(|| Duration::from_secs(*seconds));
        }
    }
}

impl Field for Option<PathBuf> {
    fn value(&self) -> Value {
        Value::Text(self.as_ref().map(|path| path.to_string_lossy().into_owned()).unwrap_or_default())
    }

    fn put(&mut self, value: &Value) {
        if let Value::Text(path) = value {
            *self = (!path.is_empty()).then(|| PathBuf::from(path));
        }
    }
}

/// The words of enumerations.
macro_rules! words {
    ($($type:ident: $($word:literal = $variant:ident),*;)*) => {$(
        impl $type {
            pub(super) const WORDS: &[&str] = &[$($word),*];

            /// The word that sets it.
            pub fn word(self) -> &'static str {
                match self { $($type::$variant => $word,)* }
            }
        }

        impl $crate::config::value::Field for $type {
            fn value(&self) -> $crate::config::Value {
                $crate::config::Value::Text(self.word().to_owned())
            }

            fn put(&mut self, value: &$crate::config::Value) {
                if let $crate::config::Value::Text(text) = value {
                    $(if text.eq_ignore_ascii_case($word) { *self = $type::$variant; })*
                }
            }
        }
    )*};
}
pub(super) use words;
