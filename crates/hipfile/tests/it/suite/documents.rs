//! Documents that are made from the code stay equal to it.

#[test]
fn the_environment_page_lists_every_setting() {
    let mut page = String::from(
        "# Environment variables\n\n\
         This page is made from the settings table in `crates/hipfile/src/config.rs`; a test holds them equal\n\
         (`HIPFILE_UPDATE_DOCS=1 cargo nextest run -p hipfile documents` writes it anew).\n\n\
         Variables are read when a driver opens and are frozen until it closes. Booleans are true/false, 1/0,\n\
         yes/no, on/off in any case. A value that cannot be understood gives one line on standard error that names\n\
         the variable, and the default stays. A set-user-ID program ignores them all.\n\n\
         | variable | values | default | what it does |\n|---|---|---|---|\n",
    );
    for s in hipfile::SETTINGS {
        page += &format!("| `{}` | {} | {} | {} |\n", s.variable, s.values, s.default, s.text);
    }
    page += "\nThe emulated GPU has variables of its own, `HIP_EMU_*`: see [devices.md](devices.md).\n";
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/environment.md");
    if std::env::var_os("HIPFILE_UPDATE_DOCS").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap_or_default(), page, "docs/environment.md is out of step");
}
