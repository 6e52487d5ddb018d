//! What the settings make of what the environment says.

use super::*;

fn check(pairs: &[(&str, &str)]) -> (Config, Vec<String>) {
    Config::from_lookup(|name| pairs.iter().find(|(n, _)| *n == name).map(|(_, v)| OsString::from(v)))
}

#[test]
fn documented_defaults_are_the_real_ones() {
    let (from_nothing, warnings) = check(&[]);
    assert!(warnings.is_empty());
    for setting in SETTINGS {
        if matches!(setting.default, "unset" | "all but null" | "the processors, at most 8") {
            continue;
        }
        let (config, warnings) = check(&[(setting.variable, setting.default)]);
        assert!(warnings.is_empty(), "{warnings:?}");
        assert_eq!(format!("{config:?}"), format!("{from_nothing:?}"), "{}", setting.variable);
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
    for (text, value) in [("4096", 4096), ("64k", 65536), ("2M", 2 << 20), ("1G", 1 << 30), ("0", 0)] {
        assert_eq!(size(text), Ok(value), "{text}");
    }
    for text in ["", "M", "-1", "1.5M", "0x10", "99999999999999999999", "18446744073709551615G", "1MM"] {
        assert!(size(text).is_err(), "{text}");
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
                matches!(&warnings[..], [one] if one.contains(variable) && one.contains(value)),
                "{warnings:?}"
            );
        }
        assert!(check(&[(variable, "1M")]).1.is_empty());
    }
    // Not asked for, so nobody is told.
    let (config, warnings) = check(&[("HIPFILE_BLOCK_SIZE", "64M")]);
    assert_eq!((config.stream_len, config.pool_len, warnings.len()), (64 << 20, 64 << 20, 0));
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
