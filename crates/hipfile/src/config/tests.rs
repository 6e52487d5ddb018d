//! What the settings make of what the environment says.

use super::*;

fn check(pairs: &[(&str, &str)]) -> (Config, Vec<String>) {
    Config::from_lookup(|name| pairs.iter().find(|(n, _)| *n == name).map(|(_, v)| OsString::from(v)))
}

#[test]
fn documented_defaults_are_the_real_ones() {
    let (real, warnings) = check(&[]);
    assert!(warnings.is_empty());
    for setting in SETTINGS {
        let documented = match setting.default {
            "unset" => String::new(),
            "the processors, at most 8" => {
                std::thread::available_parallelism().unwrap().get().min(8).to_string()
            }
            text => text.to_owned(),
        };
        let documented = setting.kind.parse(&documented).unwrap();
        setting.check(&documented).unwrap();
        assert_eq!(setting.get(&real), documented, "{}", setting.name);
    }
}

#[test]
fn names_are_those_of_the_variables_and_no_two_are_alike() {
    for (at, setting) in SETTINGS.iter().enumerate() {
        let short = setting.variable.strip_prefix("HIPFILE_").unwrap_or(setting.variable);
        assert_eq!(setting.name, short.to_ascii_lowercase());
        for other in &SETTINGS[..at] {
            assert_ne!(setting.name, other.name);
            assert!(setting.parameter.is_none() || setting.parameter != other.parameter, "{}", setting.name);
        }
    }
}

/// A value other than the default, as people write it.
fn another(setting: &Setting) -> String {
    match setting.kind {
        Kind::Bool => (setting.default == "false").to_string(),
        Kind::Number { unit: Unit::Bytes, .. } => "3M".into(),
        Kind::Number { .. } => "3".into(),
        Kind::Word(words) => words.iter().find(|word| **word != setting.default).unwrap().to_string(),
        Kind::Words(words) => words[0].into(),
        Kind::Path => "/some/where".into(),
    }
}

#[test]
fn every_setting_can_be_set_by_each_layer_and_sets_a_field_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hipfile.toml");
    let usual = check(&[]).0;
    for setting in SETTINGS {
        let text = another(setting);
        // Force and allow exclude each other, which is not the matter here; the rest must come out as it went in.
        let (config, warnings) = check(&[(setting.variable, &text)]);
        let loud = setting.name == "unsupported_file_systems";
        assert_eq!(warnings.len(), usize::from(loud), "{warnings:?}");
        assert_eq!(setting.get(&config), setting.kind.parse(&text).unwrap(), "{}", setting.name);
        assert_ne!(setting.get(&config), setting.get(&usual), "{}", setting.name);
        let others = SETTINGS.iter().filter(|other| other.get(&config) != other.get(&usual));
        let others: Vec<_> = others.map(|other| other.name).filter(|name| *name != setting.name).collect();
        let twin = match setting.name {
            "fallback" => vec![],
            "allow_compat_mode" => vec!["fallback"],
            _ => vec![],
        };
        assert_eq!(others, twin, "{}", setting.name);
        // The file says the same, and the environment goes before it.
        let quoted = match setting.kind {
            Kind::Bool => text.clone(),
            _ => format!("\"{text}\""),
        };
        std::fs::write(&path, format!("{} = {quoted}\n", setting.name)).unwrap();
        let file = ("HIPFILE_CONFIG", path.to_str().unwrap());
        assert_eq!(setting.get(&check(&[file]).0), setting.get(&config), "{}", setting.name);
        let default = if setting.default.starts_with("the ") { "1" } else { setting.default };
        let default = if default == "unset" { "/default" } else { default };
        let (both, _) = check(&[file, (setting.variable, default)]);
        assert_eq!(setting.get(&both), setting.kind.parse(default).unwrap(), "{}", setting.name);
        // A call goes before both.
        let value = setting.kind.parse(&text).unwrap();
        let called = Config::layers(
            |name| (name == setting.variable).then(|| OsString::from(default)),
            &[(setting, value.clone())],
        );
        assert_eq!(setting.get(&called.0), value, "{}", setting.name);
    }
}

#[test]
fn a_configuration_file_is_told_of_its_mistakes_by_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("c.toml");
    let text = "queue_depth = 9\nquue_depth = 3\nio_threads = 99\n\npool_size = \"lots\"\n[table]\npoll = maybe\n\
                block_size = 65537\nadaptive = 'all'\n";
    std::fs::write(&path, text).unwrap();
    let (config, warnings) = check(&[("HIPFILE_CONFIG", path.to_str().unwrap())]);
    assert_eq!((config.queue_depth, config.adaptive), (9, Adaptive::All), "what is right counts");
    assert_eq!((config.pool_len, config.block_len), (64 << 20, 1 << 20));
    let expected = [
        (2, "quue_depth", "no such setting"),
        (3, "io_threads", "99 is not from 1 to 64"),
        (5, "pool_size", "not a number of bytes"),
        (6, "[table]", "tables"),
        (7, "poll", "neither a string"),
        (8, "block_size", "no multiple of 4K"),
    ];
    assert_eq!(warnings.len(), expected.len(), "{warnings:#?}");
    for ((line, key, why), warning) in expected.into_iter().zip(&warnings) {
        assert!(warning.starts_with(&format!("{}:{line}: {key} ", path.display())), "{warning}");
        assert!(warning.contains(why), "{warning}");
    }
    for bad in [dir.path().join("none"), dir.path().to_owned()] {
        let (_, warnings) = check(&[("HIPFILE_CONFIG", bad.to_str().unwrap())]);
        assert!(matches!(&warnings[..], [one] if one.contains("HIPFILE_CONFIG")), "{warnings:?}");
    }
}

#[test]
fn behaviour_95_booleans_take_every_usual_word() {
    for (word, value) in
        [("1", true), ("TRUE", true), ("Yes", true), ("on", true), ("0", false), ("off", false)]
    {
        let (config, warnings) = check(&[("HIPFILE_ALLOW_SYSTEM_MEMORY", word)]);
        assert!(warnings.is_empty());
        assert_eq!(config.allow_system_memory, value, "{word}");
    }
    let (config, warnings) = check(&[("HIPFILE_ALLOW_SYSTEM_MEMORY", "maybe")]);
    assert!(!config.allow_system_memory);
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].contains("HIPFILE_ALLOW_SYSTEM_MEMORY") && warnings[0].contains("maybe"));
}

#[test]
fn sizes() {
    for (text, value) in
        [("4096", 4096), ("64k", 65536), ("2M", 2 << 20), ("1G", 1 << 30), ("2t", 2 << 40), ("0", 0)]
    {
        assert_eq!(value::size(text), Ok(value), "{text}");
    }
    for text in ["", "M", "-1", "1.5M", "0x10", "99999999999999999999", "18446744073709551615G", "1MM"] {
        assert!(value::size(text).is_err(), "{text}");
    }
}

#[test]
fn less_than_a_block_is_raised_to_one_and_said() {
    for variable in ["HIPFILE_STREAM_MEMORY", "HIPFILE_POOL_SIZE"] {
        for value in ["0", "1", "1023K"] {
            let (config, warnings) = check(&[(variable, value)]);
            let lens = [config.stream_len, config.pool_len];
            assert!(lens.contains(&(1 << 20)), "{variable}={value}: {lens:?}");
            assert!(
                matches!(&warnings[..], [one] if one.contains(variable) && one.contains("less than one Block")),
                "{warnings:?}"
            );
        }
        assert!(check(&[(variable, "1M")]).1.is_empty());
    }
    // Not asked for, so nobody is told.
    let (config, warnings) = check(&[("HIPFILE_BLOCK_SIZE", "64M")]);
    assert_eq!((config.stream_len, config.pool_len, warnings.len()), (128 << 20, 64 << 20, 0));
}

#[test]
fn a_pool_holds_at_least_one_block() {
    let (config, _) = check(&[("HIPFILE_BLOCK_SIZE", "4M"), ("HIPFILE_POOL_SIZE", "1M")]);
    assert_eq!(config.pool_len, 4 << 20);
    let (config, warnings) = check(&[("HIPFILE_BLOCK_SIZE", "1000")]);
    assert_eq!((config.block_len, warnings.len()), (1 << 20, 1));
}

#[test]
fn forced_and_forbidden_compatibility_mode_allows_staging() {
    let (config, warnings) =
        check(&[("HIPFILE_FORCE_COMPAT_MODE", "true"), ("HIPFILE_ALLOW_COMPAT_MODE", "false")]);
    assert_eq!((config.fallback, warnings.len()), (Fallback::Allow, 1));
    let (config, _) = check(&[("HIPFILE_ALLOW_COMPAT_MODE", "false")]);
    assert_eq!(config.fallback, Fallback::Forbid);
}

#[test]
fn unknown_engines_are_named() {
    let (config, warnings) = check(&[("HIPFILE_ENGINES", "bounce,warp")]);
    assert!(config.engines.is_none());
    assert!(warnings[0].contains("warp"));
}

#[test]
fn large_writes_into_memory_are_shared_where_there_are_threads_enough() {
    for (io_threads, processors, shared) in [
        (8, 16, 16),
        (8, 8, 8),
        (8, 6, 6),
        (4, 4, 4),
        (3, 3, 1),
        (2, 2, 1),
        (1, 64, 1),
        (2, 64, 4),
        (64, 256, 64),
    ] {
        assert_eq!(mapped_threads(io_threads, processors), shared, "{io_threads} of {processors}");
    }
    let threads = |pairs: &[(&str, &str)]| {
        let config = check(pairs).0;
        (config.threads_per_mapped_write(), config.helpers())
    };
    let (set, few) = (("HIPFILE_MAPPED_THREADS", "9"), ("HIPFILE_IO_THREADS", "2"));
    assert_eq!(threads(&[set, few]), (9, 8), "what is set is done");
    assert_eq!(threads(&[set, few, ("HIPFILE_REQUEST_PARALLELISM", "3")]), (3, 2));
    assert_eq!(threads(&[set, few, ("HIPFILE_PARALLEL_IO", "false")]), (1, 1));
    assert_eq!(threads(&[few, ("HIPFILE_MAPPED_THREADS", "1")]), (1, 1));
}
