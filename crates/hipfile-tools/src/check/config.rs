//! The list of `check --config`: every setting, what it is here and what it takes. The settings and their words are the
//! library's.

use std::fmt::Write as _;

use hipfile::{Config, SETTINGS, Setting};
use serde::Serialize;

/// A setting.
#[derive(Serialize)]
pub(super) struct Row {
    name: &'static str,
    variable: &'static str,
    parameter: Option<&'static str>,
    /// In bytes where it is a number of bytes.
    value: String,
    /// Whether it is not the default, and what has said so: `environment` or `file`.
    changed: bool,
    from: Option<&'static str>,
    values: String,
    default: &'static str,
    live: bool,
    effect: bool,
    text: &'static str,
}

/// All of them.
#[derive(Serialize)]
pub(super) struct Settings {
    schema_version: u32,
    settings: Vec<Row>,
}

/// Every setting as it is in `config`.
pub(super) fn settings(config: &Config) -> Settings {
    let usual = Config::default();
    let row = |setting: &'static Setting| {
        let changed = setting.get(config) != setting.get(&usual);
        let from = if setting.is_in_environment() { "environment" } else { "file" };
        Row {
            name: setting.name,
            variable: setting.variable,
            parameter: setting.parameter,
            value: setting.get(config).to_string(),
            changed,
            from: changed.then_some(from),
            values: setting.kind.values(),
            default: setting.default,
            live: setting.live,
            effect: setting.effect,
            text: setting.text,
        }
    };
    Settings { schema_version: 1, settings: SETTINGS.iter().map(row).collect() }
}

/// For people: a line for each setting, with a star where it is not the default, and then where it comes from.
pub(super) fn text(settings: &Settings) -> String {
    let mut text = String::new();
    for row in &settings.settings {
        let star = if row.changed { '*' } else { ' ' };
        let value = if row.value.is_empty() { "-" } else { &row.value };
        let effect = if row.effect { "" } else { "; no effect" };
        let from = row.from.map_or_else(String::new, |from| format!("; from the {from}"));
        let (name, variable, values, default) = (row.name, row.variable, &row.values, row.default);
        let _ = writeln!(
            text,
            "{star} {name:25} {value:20} {variable}: {values} (default: {default}{from}){effect}"
        );
    }
    text
}
