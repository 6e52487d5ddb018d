//! Numbers of bytes as people write and read them. Powers of 1024 for sizes; rates are the caller's, in powers of 1000.

/// Reads `4096`, `64K`, `16M`, `16MiB`, `1g`: a whole number with an optional binary suffix.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    let shift = match suffix.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        _ => {
            return Err(format!("unknown suffix `{suffix}`; K, M and G are known, powers of 1024"));
        }
    };
    let number: u64 =
        number.parse().map_err(|_| "a whole number of bytes is needed, such as 16M".to_owned())?;
    number.checked_mul(1 << shift).ok_or_else(|| "more than 64 bits can hold".to_owned())
}

/// `1.5 GiB`, `512 B`: at most four significant characters and the unit.
pub(crate) fn show_size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("64K", 65536),
            ("16m", 16 << 20),
            ("16MiB", 16 << 20),
            ("1G", 1 << 30),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "K", "-1", "1.5M", "16X", "16 M", "99999999999G", "18446744073709551616"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_shown() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            ((1 << 20) - 1, "1.0 MiB"),
            (5 << 30, "5.0 GiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(show_size(bytes), text);
        }
    }
}
