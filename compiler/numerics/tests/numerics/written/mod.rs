//! Methods written as text: what several tests of this folder read.

use odec_exact::Exact;
use odec_numerics::Tableau;

pub fn q(n: i64, d: i64) -> Exact {
    Exact::ratio(n, d)
}

pub fn row(text: &str) -> Vec<Exact> {
    let number = |t: &str| match t.split_once('/') {
        Some((n, d)) => q(n.parse().unwrap(), d.parse().unwrap()),
        None => q(t.parse().unwrap(), 1),
    };
    text.split_whitespace().map(number).collect()
}

/// Rows of A, filled up with zeros, then b.
pub fn tableau(rows: &[&str]) -> Tableau {
    let (b, a) = rows.split_last().unwrap();
    let b = row(b);
    let filled = |r: &&str| {
        let mut r = row(r);
        r.resize(b.len(), Exact::zero());
        r
    };
    Tableau::single(a.iter().map(filled).collect(), b)
}

pub fn rk4() -> Tableau {
    tableau(&["", "1/2", "0 1/2", "0 0 1", "1/6 1/3 1/3 1/6"])
}

/// An explicit method whose SSP coefficient solves no small equation.
pub fn five_stages() -> Tableau {
    tableau(&[
        "",
        "1",
        "1/2 1/3",
        "1/3 1/4 2/3",
        "1/3 1/4 1/3 1/2",
        "1/5 1/5 1/5 1/7 1/8",
    ])
}
