//! The list of `check --config`: every setting, what it is here and what it takes. The settings and their words are the
//! library's.

use std::fmt::Write as _;

use hipfile::{Config, SETTINGS};
use serde::Serialize;

/// A setting.
#[derive(Serialize)]
pub(super) struct Row {
    name: &'static str,
    variable: &'static str,
    parameter: Option<&'static str>,
    /// In bytes where it is a number of bytes.
    value: String,
    changed: bool,
    values: String,
    default: &'static str,
    live: bool,
    effect: bool,
    text: &'static str,
}

/// Every setting as it is in `config`.
pub(super) fn rows(config: &Config) -> Vec<Row> {
    let usual = Config::default();
    SETTINGS
        .iter()
        .map(|setting| Row {
            name: setting.name,
            variable: setting.variable,
            parameter: setting.parameter,
            value: setting.get(config).to_string(),
            changed: setting.get(config) != setting.get(&usual),
            values: setting.kind.values(),
            default: setting.default,
            live: setting.live,
            effect: setting.effect,
            text: setting.text,
        })
        .collect()
}

/// For people: a line for each setting, with a star where it is not the default.
pub(super) fn text(rows: &[Row]) -> String {
    let mut text = String::new();
    for row in rows {
        let star = if row.changed { '*' } else { ' ' };
        let value = if row.value.is_empty() { "-" } else { &row.value };
        let effect = if row.effect { "" } else { "; no effect" };
        let (name, variable, values, default) = (row.name, row.variable, &row.values, row.default);
        let _ =
            writeln!(text, "{star} {name:25} {value:20} {variable}: {values} (default: {default}){effect}");
    }
    text
}
