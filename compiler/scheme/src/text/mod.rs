//! The textual form of stage programs: what `Display` of a [`StageProgram`](super::StageProgram) writes and [`parse`] reads.
//!
//! A text holds one program or several. A program begins with its title; its lines are indented, and each says one thing. Empty lines
//! and what follows `//` mean nothing:
//!
//! ```text
//! scheme s(F), steps 1–4 — 2 evaluations
//!   learn per channel b = 1/2
//!   let c = 1 - b
//!   k1 = F(x)
//!   p1 = past f[-1]
//!   y1 = x + b*h*k1 + c*h*p1
//!   k2 = F(y1)
//!   keep f = k1
//!   return x + 1/2*h*k1 + 1/2*h*k2
//!   embedded
//!   return x + h*k1
//! ```
//!
//! - `x` is the state at the start of the step. A value is named by a letter, which says what it is, and a number: see [`KINDS`].
//!   Printed numbers count the values of a letter. Values are made before they are read; the equation of an unknown alone reads later ones.
//! - A term of a sum is a product whose last factor is a value. In coefficients, names are symbols: `h`, the time `t` at which the step
//!   begins, and those of `learn` and `let`. So a coefficient may be called `k1`.
//! - `k2 = F(y1) use 2 at t + 1/2*h`: with the second of its sets of parameters, at a time; each is said where it is known and not the
//!   only one.
//! - `normal(std: 1/2, like: y1, number: 2)` says what it stands for where that is not the state, and its number where that is another
//!   one than counting gives.
//! - `fields A, B` comes first where evaluations do not name all fields, or in another order.
//!
//! Exact numbers stay exact: `1/2 - sqrt(3)/6`. Spans, the names that the source has for values, and what fields and owners of
//! coefficients are, are not written: a field is its name.

mod instr;
mod parse;
mod print;
mod solver;
mod sum;

pub use parse::parse;

use super::stage::StageInstr;

/// Letters that values are named by, and what they are.
pub const KINDS: [(char, &str); 12] = [
    ('k', "an evaluation"),
    ('y', "a combination"),
    ('p', "a past value"),
    ('q', "a product"),
    ('v', "a projection"),
    ('u', "an exact flow"),
    ('z', "an iterate"),
    ('s', "a value without a gradient"),
    ('n', "random numbers"),
    ('e', "a solution"),
    ('w', "an unknown"),
    ('f', "a function of a linear field"),
];

/// The letter of what an instruction makes.
fn letter(instr: &StageInstr) -> char {
    match instr {
        StageInstr::Eval { .. } => 'k',
        StageInstr::Combine(_) => 'y',
        StageInstr::Past { .. } => 'p',
        StageInstr::Product(_) => 'q',
        StageInstr::Project { .. } => 'v',
        StageInstr::Flow { .. } => 'u',
        StageInstr::Mix { .. } => 'z',
        StageInstr::Stop(_) => 's',
        StageInstr::Normal { .. } => 'n',
        StageInstr::Solution { .. } => 'e',
        StageInstr::Unknown(_) => 'w',
        StageInstr::Phi { .. } => 'f',
    }
}

/// The letter of a value's name; `None`: this names no value that is made.
fn kind(name: &str) -> Option<char> {
    let letter = name.chars().next()?;
    let number = &name[letter.len_utf8()..];
    let known = KINDS.iter().any(|(l, _)| *l == letter);
    let counted = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
    (known && counted).then_some(letter)
}
