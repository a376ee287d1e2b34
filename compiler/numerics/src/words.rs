//! Order conditions of compositions of exact flows, word by word, decided modulo primes.
//!
//! A product of flows `exp(c₁hA) exp(c₂hB) …` has order p when each word of n ≤ p operators stands in it with 1/n!. With w(n) that
//! coefficient times n!, the flow of A over c makes `Σₖ C(n, k) cᵏ w(n − k)` of it, the sum over the A's that the word begins with: sums
//! of products alone. Let the coefficients generate a field of degree d over the rationals, D be the common denominator of the fractions
//! and W that of the weights of results. Then `W Dⁿ (w(n) − 1)` is an algebraic integer; where it is 0 modulo a prime p (a homomorphism
//! onto the integers mod p), p divides its norm. The sums of absolute values bound all its conjugates by some B; so it is 0 if it is 0
//! modulo primes whose product is above Bᵈ, and not 0 if it is not 0 modulo one.

use crate::linear_step::{LinearStep, NoTableau, Step};
use crate::modular::Prime;
use crate::order::Expansion;
use crate::ring::{Int, LARGE, Ring};
use crate::series::Series;
use crate::trees::{TreeId, Trees};
use num_bigint::BigInt;
use num_integer::{Integer, binomial};
use num_rational::BigRational;
use num_traits::{One, Signed, ToPrimitive, pow};
use odec_exact::{Exact, Field};
use std::collections::BTreeMap;

/// Most primes that one order may take, and numbers that are looked through for them.
const MAX_PRIMES: u64 = 4096;
const MAX_CANDIDATES: usize = 1 << 20;

/// A number: whole multiples of elements of the basis over a denominator.
struct Coordinates {
    whole: Vec<(usize, BigInt)>,
    under: BigInt,
}

impl Coordinates {
    fn new(field: &Field, x: &Exact) -> Coordinates {
        let all = field.coordinates(x);
        let under = all.iter().fold(BigInt::one(), |d, (_, c)| d.lcm(c.denom()));
        let whole = |(i, c): (usize, BigRational)| (i, c.numer() * (&under / c.denom()));
        Coordinates {
            whole: all.into_iter().map(whole).collect(),
            under,
        }
    }
}

/// The expansion of a product of flows, or of a combination of such products.
pub struct Words {
    line: LinearStep,
    field: Field,
    /// Where conjugates are known to be as large as the numbers: [`Field::sizes`].
    sizes: Vec<f64>,
    /// The numbers among the fractions and weights, each once, over the basis of the field.
    distinct: Vec<Coordinates>,
    /// Of each flow its fraction, of each combination its weights, by their places there.
    coordinates: Vec<Vec<usize>>,
    /// Common denominator of the fractions, and the product of those of each combination.
    fractions: BigInt,
    weights: BigInt,
    ring: Ring,
    violated: BTreeMap<usize, Option<TreeId>>,
    products: u64,
}

impl Words {
    /// `None`: the line is no product of flows, or its coefficients have nested or too many roots.
    pub fn new(line: &LinearStep) -> Result<Option<Words>, NoTableau> {
        if !line.is_product_of_flows() {
            return Ok(None);
        }
        // Refused alike.
        Series::new(line)?;
        let Ok(field) = Field::of(coefficients(line), LARGE) else {
            return Ok(None);
        };
        let ring = Ring::up_to(coefficients(line), LARGE);
        let (Some(sizes), Some(ring)) = (field.sizes(), ring) else {
            return Ok(None);
        };
        let mut numbers: Vec<&Exact> = Vec::new();
        let mut coordinates = Vec::new();
        for step in &line.steps {
            let own: Vec<&Exact> = match step {
                Step::Flow { fraction, .. } => vec![fraction],
                Step::Combine(terms) => terms.iter().map(|(_, c)| c).collect(),
                Step::Eval { .. } | Step::Phi { .. } | Step::Past(_) => Vec::new(),
            };
            let mut places = Vec::new();
            for x in own {
                let known = numbers.iter().position(|other| *other == x);
                places.push(known.unwrap_or(numbers.len()));
                if known.is_none() {
                    numbers.push(x);
                }
            }
            coordinates.push(places);
        }
        let distinct = numbers.into_iter().map(|x| Coordinates::new(&field, x));
        let distinct: Vec<Coordinates> = distinct.collect();
        let (mut fractions, mut weights) = (BigInt::one(), BigInt::one());
        for (step, numbers) in line.steps.iter().zip(&coordinates) {
            let under = |x: &usize| &distinct[*x].under;
            let own = (numbers.iter()).fold(BigInt::one(), |d, x| d.lcm(under(x)));
            match step {
                Step::Flow { .. } => fractions = fractions.lcm(&own),
                _ => weights *= own,
            }
        }
        Ok(Some(Words {
            coordinates,
            distinct,
            weights,
            fractions,
            sizes,
            field,
            line: line.clone(),
            ring,
            violated: BTreeMap::new(),
            products: 0,
        }))
    }

    /// The degree of the field of its coefficients.
    pub fn dimension(&self) -> usize {
        self.field.dimension()
    }

    /// Products modulo primes so far.
    pub fn products(&self) -> u64 {
        self.products
    }

    /// Numbers that are taken modulo each prime.
    pub fn numbers(&self) -> usize {
        self.distinct.len()
    }

    /// Binary digits that the norm of `Dⁿ (w − 1)` has at most.
    fn digits(&self, order: usize) -> Option<u64> {
        let size = |x: &usize| -> f64 {
            let x = &self.distinct[*x];
            let float = |n: &BigInt| n.abs().to_f64().unwrap_or(f64::INFINITY);
            let term = |(i, c): &(usize, BigInt)| float(c) * self.sizes[*i];
            x.whole.iter().map(term).sum::<f64>() / float(&x.under) * (1.0 + 1e-9)
        };
        let mut bounds = vec![start(order, 0.0, 1.0)];
        for (step, numbers) in self.line.steps.iter().zip(&self.coordinates) {
            let next = match step {
                Step::Flow { at, .. } => {
                    let (c, at) = (numbers.iter().map(size).sum::<f64>(), &bounds[*at]);
                    let term = |n: usize, k: usize| {
                        binomial(n as u64, k as u64) as f64 * c.powi(k as i32) * at[n - k]
                    };
                    (0..=order)
                        .map(|n| (0..=n).map(|k| term(n, k)).sum())
                        .collect()
                }
                Step::Combine(terms) => {
                    let terms: Vec<(usize, f64)> = terms
                        .iter()
                        .zip(numbers)
                        .map(|((v, _), c)| (*v, size(c)))
                        .collect();
                    let sum = |n: usize| terms.iter().map(|(v, c)| c * bounds[*v][n]).sum();
                    (0..=order).map(sum).collect()
                }
                Step::Eval { .. } | Step::Phi { .. } | Step::Past(_) => return None,
            };
            bounds.push(next);
        }
        let bound: f64 = bounds[self.line.result][order] * (1.0 + 1e-9) + 1.0;
        let denominators = self.fractions.bits() * order as u64 + self.weights.bits();
        let own = bound.is_finite().then(|| bound.log2().ceil() as u64 + 1)?;
        Some((denominators + own) * self.field.dimension() as u64)
    }

    /// The first word of an order whose w is not 1 modulo a prime; `None`: the prime does not serve.
    fn look(&mut self, trees: &Trees, order: usize, p: Prime) -> Option<Option<TreeId>> {
        let basis = p.is_prime().then(|| self.field.modulo(p.0)).flatten()?;
        let residue = |x: &Coordinates| {
            let term = |sum, (i, c): &(usize, BigInt)| (sum + p.of(c) * basis[*i]) % p.0;
            let whole: u64 = x.whole.iter().fold(0, term);
            Some(whole * p.inverse(p.of(&x.under))? % p.0)
        };
        let residues: Option<Vec<u64>> = self.distinct.iter().map(residue).collect();
        let residues = residues?;
        let choose: Vec<Vec<u64>> = (0..=order as u64)
            .map(|n| (0..=n).map(|k| binomial(n, k) % p.0).collect())
            .collect();
        let last = trees.of_order(order).next_back()?;
        // Of the empty word, then by tree.
        let words = last.0 as usize + 2;
        let mut values = vec![start(words - 1, 0, 1)];
        // C(n, k) cᵏ by n and k, of each number that was needed.
        let mut known: Vec<Option<Vec<Vec<u64>>>> = vec![None; residues.len()];
        for (step, numbers) in self.line.steps.iter().zip(&self.coordinates) {
            let next = match step {
                Step::Flow { field, at, .. } => {
                    let (c, at) = (residues[numbers[0]], &values[*at]);
                    let powers = |row: &Vec<u64>| -> Vec<u64> {
                        let mut power = 1;
                        let next = |by: &u64| {
                            let term = by * power % p.0;
                            power = power * c % p.0;
                            term
                        };
                        row.iter().map(next).collect()
                    };
                    let factors = known[numbers[0]]
                        .get_or_insert_with(|| choose.iter().map(powers).collect());
                    let mut next = at.clone();
                    for t in 0..words - 1 {
                        let tree = TreeId(t as u32);
                        let (mut rest, mut sum, n) = (Some(tree), 0, trees.order(tree));
                        let mut k = 0;
                        while let Some(word) = rest.filter(|w| trees.colour(*w) == *field) {
                            rest = trees.parts(word).map(|(_, right)| right);
                            k += 1;
                            let own = at[rest.map_or(0, |w| w.0 as usize + 1)];
                            sum += factors[n][k] * own % p.0;
                        }
                        next[t + 1] = (next[t + 1] + sum) % p.0;
                        self.products += k as u64;
                    }
                    next
                }
                Step::Combine(terms) => {
                    let mut next = vec![0; words];
                    for ((v, _), c) in terms.iter().zip(numbers) {
                        for (next, own) in next.iter_mut().zip(&values[*v]) {
                            *next = (*next + residues[*c] * own) % p.0;
                        }
                    }
                    next
                }
                Step::Eval { .. } | Step::Phi { .. } | Step::Past(_) => return None,
            };
            values.push(next);
        }
        let result = &values[self.line.result];
        Some(
            trees
                .of_order(order)
                .find(|t| result[t.0 as usize + 1] != 1),
        )
    }

    fn decided(&mut self, trees: &Trees, order: usize) -> Option<Option<TreeId>> {
        let digits = self.digits(order)?;
        if digits / 30 >= MAX_PRIMES {
            return None;
        }
        // Each prime has 31 binary digits, so a product of m of them has more than 30 m.
        let mut seen = 0;
        for p in Prime::candidates().take(MAX_CANDIDATES) {
            if seen * 30 > digits {
                return Some(None);
            }
            match self.look(trees, order, p) {
                Some(Some(violated)) => return Some(Some(violated)),
                Some(None) => seen += 1,
                None => {}
            }
        }
        None
    }
}

/// The values of the empty word and of all others.
fn start<T: Clone>(others: usize, zero: T, one: T) -> Vec<T> {
    let mut all = vec![zero; others + 1];
    all[0] = one;
    all
}

fn coefficients(line: &LinearStep) -> impl Iterator<Item = &Exact> + Clone {
    line.steps.iter().flat_map(|s| match s {
        Step::Combine(terms) => terms.iter().map(|(_, c)| c).collect(),
        Step::Flow { fraction, .. } => vec![fraction],
        Step::Eval { .. } | Step::Phi { .. } | Step::Past(_) => Vec::new(),
    })
}

impl Expansion for Words {
    /// In whole numbers, from the words that this one ends with.
    fn coefficient(&mut self, trees: &Trees, t: TreeId) -> Exact {
        let ring = &self.ring;
        let mut word = vec![trees.colour(t)];
        let mut rest = t;
        while let Some((_, right)) = trees.parts(rest) {
            word.push(trees.colour(right));
            rest = right;
        }
        word.reverse();
        let n = word.len();
        // Dᵐ w of the last m operators, D the denominator of all coefficients, and how often combinations multiplied by it.
        let mut values: Vec<(Vec<Int>, usize)> = vec![(start(n, ring.zero(), ring.one()), 0)];
        let power = |n: usize| pow(ring.denominator().clone(), n);
        for step in &self.line.steps {
            let mut next = vec![ring.zero(); n + 1];
            let mut more = 0;
            match step {
                Step::Flow {
                    field,
                    at,
                    fraction,
                } => {
                    let c = ring.scaled(fraction);
                    let (at, times) = &values[*at];
                    more = *times;
                    let mut powers = vec![ring.one()];
                    for k in 0..n {
                        powers.push(ring.product(&powers[k], &c));
                    }
                    for m in 0..=n {
                        let first = word[..m].iter().rev().take_while(|f| *f == field).count();
                        for k in 0..=first {
                            let by = BigInt::from(binomial(m as u64, k as u64));
                            let own: Int = at[m - k].iter().map(|x| x * &by).collect();
                            ring.add_product(&mut next[m], &powers[k], &own);
                        }
                    }
                }
                Step::Combine(terms) => {
                    let most = terms.iter().map(|(v, _)| values[*v].1).max().unwrap_or(0);
                    for (v, c) in terms {
                        let (own, times) = &values[*v];
                        let by = power(most - times);
                        let c: Int = ring.scaled(c).iter().map(|x| x * &by).collect();
                        for (next, own) in next.iter_mut().zip(own) {
                            ring.add_product(next, &c, own);
                        }
                    }
                    more = most + 1;
                }
                Step::Eval { .. } | Step::Phi { .. } | Step::Past(_) => {}
            }
            values.push((next, more));
        }
        let factorial: BigInt = (1..=n).map(BigInt::from).product();
        let (result, times) = &values[self.line.result];
        ring.exact(&result[n], &(power(n + times) * factorial))
    }

    fn violated(&mut self, trees: &Trees, order: usize) -> Option<Option<TreeId>> {
        if let Some(known) = self.violated.get(&order) {
            return Some(*known);
        }
        let found = self.decided(trees, order)?;
        self.violated.insert(order, found);
        Some(found)
    }
}
