//! Transposes squares of vector registers by shuffles.
//!
//! Takes n vectors of n lanes (n = lanes of the target); gives the n columns. First the 128-bit lanes
//! are transposed inside (unpacks), then the lanes as wholes: n·log₂ n shuffles that are one
//! instruction each.

use crate::emit::{Elem, Emitter, Val};

/// `out[c]` lane r = `rows[r]` lane c.
pub fn square(e: &mut Emitter, rows: &[Val]) -> Vec<Val> {
    let n = rows.len();
    // elements of a 128-bit lane, and lanes of a vector
    let part = if e.elem == Elem::F64 { 2 } else { 4 };
    let parts = n / part;
    // inside[g][j]: in lane b, column b·part + j of the rows g·part …
    let inside: Vec<Vec<Val>> = rows
        .chunks(part)
        .map(|group| in_lanes(e, group, parts))
        .collect();
    let mut out = rows.to_vec();
    for j in 0..part {
        let column: Vec<Val> = inside.iter().map(|group| group[j]).collect();
        for (b, v) in across_lanes(e, &column, part).into_iter().enumerate() {
            out[b * part + j] = v;
        }
    }
    out
}

/// Picks the elements `pattern` of the 128-bit lanes of `a` (0 …) and `b` (`part` …), in every lane.
fn unpack(e: &mut Emitter, a: Val, b: Val, parts: usize, pattern: &[usize]) -> Val {
    let part = pattern.len();
    let from = |lane: usize, x: usize| {
        if x < part {
            lane * part + x
        } else {
            (parts + lane) * part + x - part
        }
    };
    let pick: Vec<u32> = (0..parts)
        .flat_map(|l| pattern.iter().map(move |&x| from(l, x) as u32))
        .collect();
    e.shuffle(a, b, &pick)
}

fn in_lanes(e: &mut Emitter, rows: &[Val], parts: usize) -> Vec<Val> {
    if let &[a, b] = rows {
        return vec![
            unpack(e, a, b, parts, &[0, 2]),
            unpack(e, a, b, parts, &[1, 3]),
        ];
    }
    let [a, b, c, d] = *rows else {
        unreachable!("a 128-bit lane has two or four elements")
    };
    let (ab_low, ab_high) = (
        unpack(e, a, b, parts, &[0, 4, 1, 5]),
        unpack(e, a, b, parts, &[2, 6, 3, 7]),
    );
    let (cd_low, cd_high) = (
        unpack(e, c, d, parts, &[0, 4, 1, 5]),
        unpack(e, c, d, parts, &[2, 6, 3, 7]),
    );
    vec![
        unpack(e, ab_low, cd_low, parts, &[0, 1, 4, 5]),
        unpack(e, ab_low, cd_low, parts, &[2, 3, 6, 7]),
        unpack(e, ab_high, cd_high, parts, &[0, 1, 4, 5]),
        unpack(e, ab_high, cd_high, parts, &[2, 3, 6, 7]),
    ]
}

/// Picks whole 128-bit lanes of `a` and `b`.
fn lanes(e: &mut Emitter, a: Val, b: Val, part: usize, pick: &[usize]) -> Val {
    let pick: Vec<u32> = pick
        .iter()
        .flat_map(|&l| (0..part).map(move |j| (l * part + j) as u32))
        .collect();
    e.shuffle(a, b, &pick)
}

/// Transposes a square of 128-bit lanes.
fn across_lanes(e: &mut Emitter, v: &[Val], part: usize) -> Vec<Val> {
    match *v {
        [a] => vec![a],
        [a, b] => vec![lanes(e, a, b, part, &[0, 2]), lanes(e, a, b, part, &[1, 3])],
        [a, b, c, d] => {
            let (ab_even, ab_odd) = (
                lanes(e, a, b, part, &[0, 2, 4, 6]),
                lanes(e, a, b, part, &[1, 3, 5, 7]),
            );
            let (cd_even, cd_odd) = (
                lanes(e, c, d, part, &[0, 2, 4, 6]),
                lanes(e, c, d, part, &[1, 3, 5, 7]),
            );
            vec![
                lanes(e, ab_even, cd_even, part, &[0, 2, 4, 6]),
                lanes(e, ab_odd, cd_odd, part, &[0, 2, 4, 6]),
                lanes(e, ab_even, cd_even, part, &[1, 3, 5, 7]),
                lanes(e, ab_odd, cd_odd, part, &[1, 3, 5, 7]),
            ]
        }
        _ => unreachable!("a vector has one, two or four 128-bit lanes"),
    }
}
