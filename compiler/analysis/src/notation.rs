//! How reports write polynomials and ends of intervals.

use odec_exact::Exact;
use odec_numerics::poly::{Extent, Poly};
use odec_text::number::{sum, superscript};

/// `1 + z + 1/2 z² + 1/6 z³`; lines end before signs only.
pub fn polynomial(p: &Poly) -> String {
    let power = |(n, c)| match n {
        0 => (String::new(), c),
        1 => ("z".to_string(), c),
        _ => (format!("z{}", superscript(n)), c),
    };
    sum(p.0.iter().enumerate().map(power))
}

/// `-2.7852935634`, or that there is no end.
pub fn extent(e: &Option<Extent>, squared: bool, sign: &str) -> String {
    match e {
        None => "not decided".to_string(),
        Some(Extent::Zero) => "0".to_string(),
        Some(Extent::Infinite) => "unbounded".to_string(),
        Some(Extent::Until { hi, .. }) => match end(hi, squared) {
            x if x < 1e-6 => format!("{sign}{x:.4e}"),
            x => format!("{sign}{x:.10}"),
        },
    }
}

/// The end of an extent.
pub fn end(hi: &Exact, squared: bool) -> f64 {
    let x = hi.to_f64();
    if squared { x.sqrt() } else { x }
}
