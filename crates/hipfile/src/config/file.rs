//! The configuration file's text: the part of TOML that settings need, one `name = value` a line. It knows no setting.

/// A line that sets something, or one that cannot be understood.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// Counted from 1.
    pub(super) number: usize,
    /// What is before the equals sign, or the whole line if there is none.
    pub(super) key: String,
    pub(super) value: Result<String, &'static str>,
}

/// The lines that mean something.
pub(super) fn lines(text: &str) -> Vec<Line> {
    let mut found = Vec::new();
    for (index, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let number = index + 1;
        let (key, value) = match line.split_once('=') {
            _ if line.starts_with('[') => (line, Err("tables have no meaning here")),
            Some((key, value)) => (key.trim(), value_of(value.trim())),
            None => (line, Err("there is no equals sign")),
        };
        found.push(Line { number, key: unquoted(key).to_owned(), value });
    }
    found
}

fn unquoted(key: &str) -> &str {
    let inner = |quote: char| key.strip_prefix(quote)?.strip_suffix(quote);
    inner('"').or_else(|| inner('\'')).unwrap_or(key)
}

/// A string, number or boolean, as the text that the environment would have.
fn value_of(text: &str) -> Result<String, &'static str> {
    let (value, rest) = match text.chars().next() {
        None => return Err("there is no value"),
        Some('"') if text.starts_with("\"\"\"") => {
            return Err("strings of several lines have no meaning here");
        }
        Some('\'') if text.starts_with("'''") => return Err("strings of several lines have no meaning here"),
        Some('"') => basic_string(&text[1..])?,
        Some('\'') => {
            let (value, rest) = text[1..].split_once('\'').ok_or("the string does not end")?;
            (value.to_owned(), rest)
        }
        Some('[' | '{') => return Err("arrays and tables have no meaning here"),
        Some(_) => {
            let end = text.find([' ', '\t', '#']).unwrap_or(text.len());
            (number_or_boolean(&text[..end])?, &text[end..])
        }
    };
    match rest.trim_start() {
        rest if rest.is_empty() || rest.starts_with('#') => Ok(value),
        _ => Err("something follows the value"),
    }
}

fn number_or_boolean(text: &str) -> Result<String, &'static str> {
    if text == "true" || text == "false" {
        return Ok(text.to_owned());
    }
    let digits = text.strip_prefix('+').unwrap_or(text);
    let grouped = digits.split('_').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()));
    match grouped {
        true => Ok(digits.replace('_', "")),
        false => {
            Err("it is neither a string in quotes, nor a number that is not negative, nor true or false")
        }
    }
}

/// What is before the closing quote, with escapes resolved, and what is after it.
fn basic_string(text: &str) -> Result<(String, &str), &'static str> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => return Ok((value, &text[at + 1..])),
            '\\' => value.push(match chars.next() {
                Some((_, '"')) => '"',
                Some((_, '\\')) => '\\',
                Some((_, 't')) => '\t',
                Some((_, 'n')) => '\n',
                Some((_, 'r')) => '\r',
                _ => return Err("the string has an escape that is not known here"),
            }),
            char => value.push(char),
        }
    }
    Err("the string does not end")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_toml_says_in_one_line_is_understood() {
        let text =
            "\u{feff}# comment\n\na = 1_000 # one\n b=\"x # \\\"y\\\\\"\r\n\"c\" = 'C:\\d'\nd = true\ne = +7";
        let found: Vec<_> = lines(text).into_iter().map(|l| (l.number, l.key, l.value.unwrap())).collect();
        let expected =
            [(3, "a", "1000"), (4, "b", "x # \"y\\"), (5, "c", "C:\\d"), (6, "d", "true"), (7, "e", "7")];
        assert_eq!(found, expected.map(|(n, k, v)| (n, k.to_owned(), v.to_owned())));
    }

    #[test]
    fn everything_else_is_an_error_of_its_line() {
        for line in [
            "a",
            "[a]",
            "a =",
            "a = 'x",
            "a = \"x",
            "a = \"x\" y",
            "a = x",
            "a = -1",
            "a = 1.5",
            "a = 1__0",
            "a = [1]",
            "a = {}",
            "a = \"\"\"x\"\"\"",
            "a = '''x'''",
            "a = \"\\q\"",
            "a = 0x10",
            "a = TRUE",
            "a = \"x\\",
        ] {
            let text = format!("\n{line}\n");
            let found = lines(&text);
            assert!(matches!(&found[..], [Line { number: 2, value: Err(_), .. }]), "{line}: {found:?}");
        }
    }
}
