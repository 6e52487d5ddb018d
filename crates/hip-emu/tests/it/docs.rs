//! The documentation names every option.

use hip_emu::options::VARIABLES;

#[test]
fn every_option_is_documented_where_people_look() {
    for (name, text) in [
        ("lib.rs", include_str!("../../src/lib.rs")),
        ("docs/devices.md", include_str!("../../../../docs/devices.md")),
    ] {
        for variable in VARIABLES {
            let default = if variable.default.is_empty() { " " } else { &format!(" {} ", variable.default) };
            let row = format!("| `{}` |{default}| {} |", variable.name, variable.meaning);
            assert!(text.contains(&row), "{name} lacks the row\n{row}");
        }
    }
}
