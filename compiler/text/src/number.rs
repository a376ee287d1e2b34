//! Numbers in reports: exact where there is room, else the digits that fit and `…`.

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

/// Bytes in the largest binary unit that keeps three digits: `12.3 MiB`.
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
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(1_234_567), "1,234,567");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
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
}
