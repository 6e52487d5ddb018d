//! Documents that are made from the code stay equal to it.

#[test]
fn the_environment_page_lists_every_setting() {
    let mut page = String::from(
        "# Settings\n\n\
         This page is made from the settings table in `crates/hipfile/src/config/settings.rs`; a test holds them equal\n\
         (`HIPFILE_UPDATE_DOCS=1 cargo nextest run -p hipfile documents` writes it anew).\n\n\
         A setting has its default, unless the configuration file sets it, unless the environment sets it, unless a call\n\
         does. All are read when a driver opens and are frozen until it closes, but for those marked *live*. Booleans are\n\
         true/false, 1/0, yes/no, on/off in any case. A value that cannot be understood gives one line on standard error that\n\
         names the variable, or the file, line and name, and is otherwise ignored; so does a variable whose name is a setting's but for a letter or\n\
         two. A set-user-ID program has the defaults.\n\n\
         The configuration file is the one that `HIPFILE_CONFIG` names: TOML without tables, one `name = value` a line, the\n\
         names being those of the variables without `HIPFILE_`, in small letters. Sizes with K, M or G are strings.\n\n\
         ```toml\nqueue_depth = 8\npool_size = \"128M\"   # quotes for the M\nallow_compat_mode = false\n```\n\n\
         | variable | values | default | what it does |\n|---|---|---|---|\n",
    );
    for s in hipfile::SETTINGS {
        let live = if s.live { " *Live.*" } else { "" };
        let idle = if s.effect { "" } else { " *No effect in this version.*" };
        page +=
            &format!("| `{}` | {} | {} | {}{live}{idle} |\n", s.variable, s.kind.values(), s.default, s.text);
    }
    page += "\nThe emulated GPU has variables of its own, `HIP_EMU_*`: see [devices.md](devices.md).\n\n\
             ## Parameters of the C interface\n\n\
             `hipFileGetParameter*` and `hipFileSetParameter*` know these; a number of bytes is in KiB there.\n\n\
             | parameter | variable |\n|---|---|\n";
    for s in hipfile::SETTINGS {
        if let Some(parameter) = s.parameter {
            page += &format!("| `{parameter}` | `{}` |\n", s.variable);
        }
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/environment.md");
    if std::env::var_os("HIPFILE_UPDATE_DOCS").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap_or_default(), page, "docs/environment.md is out of step");
}
