//! Variables that nobody reads, since their names are written a little wrong. It judges no values.

use std::ffi::OsString;

use super::{FILE_VARIABLE, SETTINGS};

const PREFIX: &str = "HIPFILE_";
/// So many letters may be wrong, missing or too many.
const FEW: usize = 2;

/// One line for each of these names that is a setting's but for a few letters.
pub(super) fn warnings(names: impl Iterator<Item = OsString>) -> Vec<String> {
    let mut warnings: Vec<_> = names
        .filter_map(|name| {
            let name = name.into_string().ok()?;
            let meant = meant_by(&name)?;
            Some(format!("{name} is ignored: there is no such setting; is {meant} meant?"))
        })
        .collect();
    warnings.sort_unstable();
    warnings
}

fn meant_by(name: &str) -> Option<&'static str> {
    if !name.get(..PREFIX.len())?.eq_ignore_ascii_case(PREFIX) {
        return None;
    }
    let ours = |variable: &&str| variable.starts_with(PREFIX);
    let known = || SETTINGS.iter().map(|setting| setting.variable).chain([FILE_VARIABLE]).filter(ours);
    if known().any(|variable| variable == name) {
        return None;
    }
    let rest = |name: &str| name[PREFIX.len()..].replace('_', "").to_ascii_uppercase();
    let wrong = rest(name);
    let near = known().map(|variable| (distance(&wrong, &rest(variable)), variable));
    let (few, meant) = near.min_by_key(|(distance, _)| *distance)?;
    // Of a short name two letters are half.
    (few <= FEW.min(wrong.len() / 4)).then_some(meant)
}

/// How many letters are to be changed, added or left out (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<_> = b.chars().collect();
    let mut row: Vec<_> = (0..=b.len()).collect();
    for (at, a) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = at + 1;
        for (to, b) in b.iter().enumerate() {
            let changed = diagonal + usize::from(a != *b);
            diagonal = row[to + 1];
            row[to + 1] = changed.min(diagonal + 1).min(row[to] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_nearly_a_setting_is_told_and_nothing_else() {
        for (name, meant) in [
            ("HIPFILE_PAGECACHE", "HIPFILE_PAGE_CACHE"),
            ("HIPFILE_FALBACK", "HIPFILE_FALLBACK"),
            ("HIPFILE_fallback", "HIPFILE_FALLBACK"),
            ("HIPFILE_QUEUE_DEPHT", "HIPFILE_QUEUE_DEPTH"),
            ("hipfile_config", "HIPFILE_CONFIG"),
        ] {
            assert_eq!(meant_by(name), Some(meant), "{name}");
        }
        let fine = [
            "PATH",
            "HIPFILE",
            "HIPFILE_",
            "HIPFILE_TEST_OPS",
            "HIPFILE_LIBRARY",
            "HIPFILE_é",
            "MY_HIPFILE_FALBACK",
        ];
        for name in SETTINGS.iter().map(|setting| setting.variable).chain(fine) {
            assert_eq!(meant_by(name), None, "{name}");
        }
        let told = warnings(["HIPFILE_FALBACK", "HOME"].into_iter().map(OsString::from));
        assert_eq!(
            told,
            ["HIPFILE_FALBACK is ignored: there is no such setting; is HIPFILE_FALLBACK meant?"]
        );
    }
}
