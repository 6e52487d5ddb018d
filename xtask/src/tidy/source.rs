//! Rust source as the rules see it: the code with comments and literals blanked out, line by line as in the file. It
//! is a scanner, not a parser.

/// Replaces the text of comments, strings and characters by blanks. Line breaks stay where they are.
pub(super) fn code(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = match bytes[at] {
            b'/' if bytes.get(at + 1) == Some(&b'/') => line_end(bytes, at),
            b'/' if bytes.get(at + 1) == Some(&b'*') => comment_end(bytes, at),
            b'"' => string_end(bytes, at),
            b'r' if !follows_word(bytes, at) => raw_string_end(bytes, at).unwrap_or(at),
            b'\'' => char_end(bytes, at).unwrap_or(at),
            _ => at,
        };
        for byte in &mut out[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end.max(at + 1);
    }
    // Whole literals and comments were replaced by blanks, byte for byte, so this is UTF-8 as before.
    String::from_utf8(out).unwrap_or_default()
}

/// The code without the module of unit tests that ends a file.
pub(super) fn without_tests(code: &str) -> &str {
    let mut from = 0;
    while let Some(found) = code[from..].find("#[cfg(test)]") {
        let at = from + found;
        let rest = code[at + "#[cfg(test)]".len()..].trim_start();
        let opens = rest.find(['{', ';']).is_some_and(|end| rest[end..].starts_with('{'));
        if rest.starts_with("mod ") && opens {
            return &code[..at];
        }
        from = at + 1;
    }
    code
}

/// Whether `word` occurs as a whole word.
pub(super) fn has_word(code: &str, word: &str) -> bool {
    lines_with_word(code, word).next().is_some()
}

/// The numbers of the lines in which `word` occurs as a whole word.
pub(super) fn lines_with_word<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.lines().enumerate().filter(move |(_, line)| in_line(line, word)).map(|(index, _)| index + 1)
}

fn in_line(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// `r` that ends a longer word, as in `br"..."` (which is a raw string) or `var"` (which is none).
fn follows_word(bytes: &[u8], at: usize) -> bool {
    let word = |i: usize| bytes[i].is_ascii_alphanumeric() || bytes[i] == b'_';
    match at {
        0 => false,
        1 => word(0) && !b"bc".contains(&bytes[0]),
        _ => word(at - 1) && (!b"bc".contains(&bytes[at - 1]) || word(at - 2)),
    }
}

fn line_end(bytes: &[u8], at: usize) -> usize {
    bytes[at..].iter().position(|b| *b == b'\n').map_or(bytes.len(), |n| at + n)
}

fn comment_end(bytes: &[u8], at: usize) -> usize {
    let mut depth = 0;
    let mut i = at;
    while i < bytes.len() {
        match bytes.get(i..i + 2) {
            Some(b"/*") => (depth, i) = (depth + 1, i + 2),
            Some(b"*/") => (depth, i) = (depth - 1, i + 2),
            _ => i += 1,
        }
        if depth == 0 {
            return i;
        }
    }
    bytes.len()
}

fn string_end(bytes: &[u8], at: usize) -> usize {
    let mut i = at + 1;
    while i < bytes.len() {
        match bytes[i] {
            b'\\' => i += 2,
            b'"' => return i + 1,
            _ => i += 1,
        }
    }
    bytes.len()
}

fn raw_string_end(bytes: &[u8], at: usize) -> Option<usize> {
    let hashes = bytes[at + 1..].iter().take_while(|b| **b == b'#').count();
    let open = at + 1 + hashes;
    if bytes.get(open) != Some(&b'"') {
        return None;
    }
    let close = [b"\"".as_slice(), &b"#".repeat(hashes)].concat();
    let length = bytes[open + 1..].windows(close.len()).position(|window| window == close)?;
    Some(open + 1 + length + close.len())
}

/// The end of a character literal; None for a lifetime.
fn char_end(bytes: &[u8], at: usize) -> Option<usize> {
    if bytes.get(at + 1) == Some(&b'\\') {
        let close = bytes.get(at + 3..)?.iter().position(|b| *b == b'\'')?;
        return Some(at + 3 + close + 1);
    }
    let character = std::str::from_utf8(bytes.get(at + 1..(at + 5).min(bytes.len()))?);
    let length = match character {
        Ok(text) => text.chars().next()?.len_utf8(),
        Err(e) if e.valid_up_to() > 0 => {
            std::str::from_utf8(&bytes[at + 1..at + 1 + e.valid_up_to()]).ok()?.chars().next()?.len_utf8()
        }
        Err(_) => return None,
    };
    (bytes.get(at + 1 + length) == Some(&b'\'')).then_some(at + length + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked_and_code_stays() {
        for (text, left) in [
            ("a // unsafe\nb", "a          \nb"),
            ("a /* x /* y */ z */ b", "a                   b"),
            (r#"f("un\"safe", 'x', '\'', 'é')"#, "f(          ,    ,     ,     )"),
            (r##"f(r#"a"b"#, br"c", c"d")"##, "f(        , b    , c   )"),
            ("fn f<'a>(x: &'a str) {}", "fn f<'a>(x: &'a str) {}"),
            ("r + var", "r + var"),
            ("'\\u{1F600}' x", "            x"),
            ("\"open", "     "),
        ] {
            assert_eq!(code(text), left, "{text}");
        }
    }

    #[test]
    fn words_are_whole() {
        assert!(has_word("unsafe { f() }", "unsafe"));
        assert!(has_word("#[unsafe(no_mangle)]", "unsafe"));
        assert!(!has_word("deny(unsafe_code)", "unsafe"));
        assert!(!has_word("my_unsafe", "unsafe"));
        assert_eq!(lines_with_word("a\nunsafe\nb\nunsafe", "unsafe").collect::<Vec<_>>(), [2, 4]);
    }

    #[test]
    fn the_test_module_at_the_end_is_cut_off() {
        assert_eq!(without_tests("a\n#[cfg(test)]\nmod tests {\nb\n}"), "a\n");
        assert_eq!(without_tests("a\n#[cfg(test)]\nmod tests;\nb"), "a\n#[cfg(test)]\nmod tests;\nb");
        assert_eq!(without_tests("#[cfg(test)]\nuse x;\nb"), "#[cfg(test)]\nuse x;\nb");
    }
}
