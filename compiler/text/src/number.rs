//! Numbers in reports: exact where there is room, else the digits that fit and `…`. Amounts of memory, work and time in units that people read.

use odec_exact::Exact;

/// Stands for a blank at which no line ends.
pub const FAST: char = '\u{a0}';

/// Widest number that is written out in a sentence.
const WIDEST: usize = 26;
/// Most digits of one that is not.
const DIGITS: usize = 12;

/// A number, cut off where it is long.
pub fn number(x: &Exact) -> String {
    number_in(x, WIDEST)
}

/// A number in at most so many columns (8 at least): exact, or its first digits.
pub fn number_in(x: &Exact, widest: usize) -> String {
    let exact = rooted(&x.to_string());
    if exact.chars().count() <= widest {
        return exact;
    }
    let value = x.to_f64();
    let digits = widest
        .saturating_sub("-0.…".chars().count())
        .clamp(2, DIGITS);
    let small = value != 0.0 && value.abs() < 1e-3;
    if small || value.abs() >= 1e6 {
        // `1.23e-10` rounds, as that form does; a sign and an exponent of three characters take six columns.
        let digits = digits.saturating_sub(3).max(1);
        return format!("{value:.digits$e}");
    }
    let whole = value.abs().trunc().to_string().len() - 1;
    let digits = digits.saturating_sub(whole).max(1);
    let mut text = format!("{value:.15}");
    let point = text.find('.').expect("digits behind a point");
    text.truncate(point + 1 + digits);
    text + "…"
}

/// `1234567` as `1,234,567`.
pub fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// So many of something: `1 field`, `2,000 fields`, `2 launches`, `2 matrices`.
pub fn count(n: usize, noun: &str) -> String {
    let (stem, end) = match noun.strip_suffix("ix") {
        _ if n == 1 => (noun, ""),
        Some(stem) => (stem, "ices"),
        None if noun.ends_with("ch") => (noun, "es"),
        None => (noun, "s"),
    };
    format!("{} {stem}{end}", thousands(n as u64))
}

/// Bytes in the largest binary unit of which there is one at least: `12.3 MiB`.
pub fn bytes(n: u64) -> String {
    let mut x = n as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if x < 1024.0 {
            return if unit == "B" {
                format!("{n} B")
            } else {
                format!("{x:.1} {unit}")
            };
        }
        x /= 1024.0;
    }
    format!("{x:.1} TiB")
}

/// A count in thousands, millions, billions: `1.23 M`.
pub fn flops(n: f64) -> String {
    let mut x = n;
    for unit in ["", " k", " M", " G", " T"] {
        if x.abs() < 1000.0 {
            return if unit.is_empty() {
                format!("{x:.0}")
            } else {
                format!("{x:.2}{unit}")
            };
        }
        x /= 1000.0;
    }
    format!("{x:.2} P")
}

/// A time that something takes: `25 ms`, `3.4 s`, `12 s`, `3.4 min`, `5.6 h`, `7.8 d`.
pub fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 0.0995 => format!("{:.0} ms", 1e3 * s),
        s if s < 9.95 => format!("{s:.1} s"),
        s if s < 99.5 => format!("{s:.0} s"),
        s if s < 3597.0 => format!("{:.1} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.1} h", s / 3600.0),
        s => format!("{:.1} d", s / 86_400.0),
    }
}

/// Milliseconds that were measured, in digits that can be compared; the unit is not written: it may head a column.
pub fn milliseconds(ms: f64) -> String {
    let digits = match ms {
        100.0.. => 1,
        1.0.. => 2,
        _ => 3,
    };
    format!("{ms:.digits$}")
}

/// A time that runs down: minutes and seconds, or hours and minutes.
pub fn clock(seconds: f64) -> String {
    let s = seconds.clamp(0.0, 1e9).round() as u64;
    match s < 3600 {
        true => format!("{}:{:02}", s / 60, s % 60),
        false => format!("{} h {:02} min", s / 3600, s / 60 % 60),
    }
}

/// A number that is not exact, to five digits.
pub fn about(x: f64) -> String {
    let text = format!("{x:.4e}");
    let Some((_, Ok(exponent))) = text.split_once('e').map(|(d, e)| (d, e.parse::<i32>())) else {
        return text;
    };
    match exponent {
        -3..=4 => format!("{x:.*}", (4 - exponent) as usize),
        _ => text,
    }
}

/// `sqrt(15)/10` as `√15/10`, `2*root(2, 3)` as `2·∛2`, `sqrt(2 + sqrt(2))` as `√(2 + √2)`; roots of polynomials as they are written.
fn rooted(text: &str) -> String {
    let mut text = text.replace('*', "·");
    // Inner roots first: the last one has no other inside.
    let mut end = text.len();
    while let Some(at) = text[..end].rfind("sqrt(").max(text[..end].rfind("root(")) {
        end = at;
        let mut depth = 0;
        let closes = |c: char| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            c == ')' && depth == 0
        };
        let Some(close) = text[at..].find(closes) else {
            break;
        };
        let inside = &text[at + 5..at + close];
        let (of, degree) = inside.split_once(", ").unwrap_or((inside, "2"));
        if of.contains('x') {
            continue;
        }
        let sign = match degree {
            "2" => "√".to_string(),
            "3" => "∛".to_string(),
            "4" => "∜".to_string(),
            _ => raised(degree) + "√",
        };
        let plain = of.chars().all(|c| c.is_ascii_digit());
        let root = match plain {
            true => format!("{sign}{of}"),
            false => format!("{sign}({of})"),
        };
        text.replace_range(at..=at + close, &root);
    }
    text
}

fn raised(digits: &str) -> String {
    mapped(digits, "⁰¹²³⁴⁵⁶⁷⁸⁹")
}

fn mapped(digits: &str, to: &str) -> String {
    let digit = |c: char| to.chars().nth(c.to_digit(10)? as usize);
    digits.chars().filter_map(digit).collect()
}

/// `¹²`.
pub fn superscript(n: usize) -> String {
    raised(&n.to_string())
}

/// `₁₂`.
pub fn subscript(n: usize) -> String {
    mapped(&n.to_string(), "₀₁₂₃₄₅₆₇₈₉")
}

/// A sum of products: the name of each, empty for 1, and its coefficient; lines end before signs only.
pub fn sum<'c>(terms: impl Iterator<Item = (String, &'c Exact)>) -> String {
    let mut text = String::new();
    for (name, c) in terms.filter(|(_, c)| !c.is_zero()) {
        let minus = c.is_negative();
        let magnitude = if minus { -c } else { c.clone() };
        let (plus, less) = (format!(" +{FAST}"), format!(" -{FAST}"));
        text += match (text.is_empty(), minus) {
            (true, false) => "",
            (true, true) => "-",
            (false, false) => &plus,
            (false, true) => &less,
        };
        let shown = match magnitude.is_sum() {
            true => format!("({})", number(&magnitude).replace(' ', &FAST.to_string())),
            false => number(&magnitude),
        };
        text += &match (name.is_empty(), magnitude.is_one()) {
            (true, _) => shown,
            (false, true) => name,
            (false, false) => format!("{shown}{FAST}{name}"),
        };
    }
    if text.is_empty() { "0".into() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(count(1, "matrix"), "1 matrix");
        assert_eq!(count(2, "matrix"), "2 matrices");
        assert_eq!(count(2, "launch"), "2 launches");
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(1_234_567), "1,234,567");
        assert_eq!(flops(999.0), "999");
        assert_eq!(flops(1_234_000.0), "1.23 M");
        let shown = |s: &str, widest| number_in(&Exact::decimal(s).expect("a number"), widest);
        assert_eq!(shown("0.25", 8), "1/4");
        assert_eq!(shown("0.123456789123456789", 10), "0.123456…");
        assert_eq!(shown("-0.123456789123456789", 8), "-0.1234…");
        assert_eq!(shown("-0.000000123456789123456789", 10), "-1.235e-7");
        let root = Exact::int(3).root(2).expect("a root");
        assert_eq!(number(&(&Exact::ratio(1, 2) - &root)), "1/2 - √3");
        let root = Exact::int(2).root(3).expect("a root");
        assert_eq!(number(&(&Exact::int(2) * &root)), "2·∛2");
        assert_eq!(about(0.014505), "0.014505");
        assert_eq!(about(3.991e-6), "3.9910e-6");
    }

    #[test]
    fn memory_reads_well() {
        let shown = [0, 1023, 1536, 121 << 10, 577 << 20, 1 << 50].map(bytes);
        let want = [
            "0 B",
            "1023 B",
            "1.5 KiB",
            "121.0 KiB",
            "577.0 MiB",
            "1024.0 TiB",
        ];
        assert_eq!(shown, want);
    }

    #[test]
    fn times_read_well() {
        let shown = [
            0.0, 0.0251, 0.0996, 9.96, 99.0, 100.0, 3596.0, 3600.0, 172_800.0,
        ];
        let want = [
            "0 ms", "25 ms", "0.1 s", "10 s", "99 s", "1.7 min", "59.9 min", "1.0 h", "2.0 d",
        ];
        assert_eq!(shown.map(duration), want);
        let shown = [0.1234, 12.345, 196.04].map(milliseconds);
        assert_eq!(shown, ["0.123", "12.35", "196.0"]);
        let shown = [-1.0, 59.6, 3599.0, 3660.0].map(clock);
        assert_eq!(shown, ["0:00", "1:00", "59:59", "1 h 01 min"]);
    }
}
