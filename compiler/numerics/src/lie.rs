//! Modified equations of products of flows in commutators: the Baker–Campbell–Hausdorff formula in a Lyndon basis.
//!
//! The logarithm of a product of exponentials is a Lie polynomial. The brackets P of Lyndon words, `P = [P_u, P_v]` with v the longest
//! proper Lyndon suffix, are a basis, and P begins with its own word, followed by larger ones (Reutenauer 1993, Free Lie
//! Algebras, 5.1): coefficients at Lyndon words are enough. `[A, B]` is the commutator AB − BA of the fields as
//! derivatives, which is the field B'A − A'B (Hairer, Lubich & Wanner 2006, III.5).

use crate::modified::Modified;
use crate::trees::TreeId;
use num_bigint::BigInt;
use num_rational::BigRational;
use odec_exact::Exact;
use std::collections::BTreeMap;

/// Fields as derivatives, the first to act on the left.
pub type Word = Vec<usize>;

/// `[A, [A, B]]`.
#[derive(Clone, Debug, PartialEq)]
pub enum Bracket {
    Field(usize),
    Of(Box<(Bracket, Bracket)>),
}

impl Bracket {
    /// With names of the fields.
    pub fn shown(&self, name: &dyn Fn(usize) -> String) -> String {
        match self {
            Bracket::Field(f) => name(*f),
            Bracket::Of(parts) => {
                format!("[{}, {}]", parts.0.shown(name), parts.1.shown(name))
            }
        }
    }
}

/// Lyndon words of n letters out of so many, in their order (Duval 1988).
pub fn lyndon(letters: usize, n: usize) -> Vec<Word> {
    let mut found = Vec::new();
    let mut word: Word = vec![0];
    while letters > 0 && !word.is_empty() {
        if word.len() == n {
            found.push(word.clone());
        }
        // Repeated to n letters, without the largest ones at the end, the last one raised.
        word = word.iter().cycle().take(n).copied().collect();
        while word.last() == Some(&(letters - 1)) {
            word.pop();
        }
        if let Some(last) = word.last_mut() {
            *last += 1;
        }
    }
    found
}

fn is_lyndon(w: &[usize]) -> bool {
    (1..w.len()).all(|i| w < &w[i..])
}

/// The bracket of a Lyndon word, and its expansion.
fn bracket(w: &[usize]) -> (Bracket, BTreeMap<Word, i64>) {
    let Some(at) = (1..w.len()).find(|i| is_lyndon(&w[*i..])) else {
        return (Bracket::Field(w[0]), [(w.to_vec(), 1)].into());
    };
    let ((u, p), (v, q)) = (bracket(&w[..at]), bracket(&w[at..]));
    let mut expansion = BTreeMap::new();
    for (a, c) in &p {
        for (b, d) in &q {
            *expansion.entry([a.as_slice(), b].concat()).or_insert(0) += c * d;
            *expansion.entry([b.as_slice(), a].concat()).or_insert(0) -= c * d;
        }
    }
    (Bracket::Of(Box::new((u, v))), expansion)
}

/// The tree without branches of a word: the last field at the root.
fn tree(m: &Modified, w: &[usize]) -> Option<TreeId> {
    let single = |f: usize| m.trees().of_order(1).nth(f);
    let (first, rest) = w.split_first()?;
    let start = single(*first);
    rest.iter()
        .fold(start, |t, f| m.cuts().product(m.trees(), single(*f)?, t?))
}

/// The terms of an order that was reached, of a product of flows on [`crate::Trees::tall`].
pub fn terms(m: &mut Modified, order: usize) -> Option<Vec<(Bracket, Exact)>> {
    let mut found: Vec<(Bracket, Exact)> = Vec::new();
    let mut expansions: Vec<(BTreeMap<Word, i64>, Exact)> = Vec::new();
    for w in lyndon(m.trees().colours(), order) {
        let t = tree(m, &w)?;
        let mut c = m.coefficient(t);
        for (expansion, known) in &expansions {
            if let Some(n) = expansion.get(&w) {
                c = &c - &(known * &Exact::from(BigRational::from(BigInt::from(*n))));
            }
        }
        if !c.is_zero() {
            let (bracket, expansion) = bracket(&w);
            found.push((bracket, c.clone()));
            expansions.push((expansion, c));
        }
    }
    Some(found)
}
