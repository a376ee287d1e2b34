//! The number field spanned by given numbers, with its elements as vectors: other crates compute in it.

use super::finite::Modulo;
use super::radical::{Radical, Unit};
use super::tower::{Tower, in_one_tower, together};
use super::{Exact, ExactError};
use num_integer::Integer;
use num_rational::{BigRational, Ratio};
use num_traits::ToPrimitive;

/// A field with a basis of products of roots; the first element of the basis is 1.
pub struct Field {
    tower: Tower,
    units: Vec<Unit>,
}

impl Field {
    /// The products of the roots that occur in some numbers; an error where they are more than `most`, or where it is not
    /// decided whether they depend on each other.
    pub fn of<'e>(
        numbers: impl Iterator<Item = &'e Exact> + Clone,
        most: usize,
    ) -> Result<Field, ExactError> {
        let mut tower = Tower::default();
        let mut generators: Vec<Radical> = Vec::new();
        let mut note = |units: &mut dyn Iterator<Item = Unit>| {
            for unit in units {
                if !unit.radical.is_one() && !generators.contains(&unit.radical) {
                    generators.push(unit.radical);
                }
            }
        };
        for x in in_one_tower(numbers)? {
            note(&mut x.terms().map(|(u, _)| u));
            if !x.tower.is_empty() {
                tower = x.tower;
            }
        }
        for g in tower.generators() {
            note(&mut g.terms.iter().map(|(u, _)| u.clone()));
        }
        let subsets = 1u32 << tower.generators().len();
        let powers = tower.degree() as u32;
        let mut radicals = vec![Radical::one()];
        let mut at = 0;
        while at < radicals.len() {
            for g in &generators {
                let (_, product) = radicals[at].times(g);
                if !radicals.contains(&product) {
                    radicals.push(product);
                }
            }
            if radicals.len() * (subsets * powers) as usize > most {
                return Err(ExactError::TooLarge);
            }
            at += 1;
        }
        let with = |(nested, power)| {
            let unit = move |radical: &Radical| Unit {
                nested,
                power,
                radical: radical.clone(),
            };
            radicals.iter().map(unit)
        };
        let others = (0..subsets).flat_map(|set| (0..powers).map(move |k| (set, k)));
        Ok(Field {
            units: others.flat_map(with).collect(),
            tower,
        })
    }

    /// Elements of the basis.
    pub fn dimension(&self) -> usize {
        self.units.len()
    }

    /// How large each element of the basis is at most; `None`: there are nested roots. All conjugates are no larger, because powers of
    /// the same radicals are rational, and because a bound of a polynomial's root holds of all its roots.
    pub fn sizes(&self) -> Option<Vec<f64>> {
        let bound = self.tower.root().map_or(1.0, |g| g.bound());
        let size = |u: &Unit| {
            let power =
                |(p, e): (u64, Ratio<i64>)| (p as f64).powf(*e.numer() as f64 / *e.denom() as f64);
            let radical = u.radical.powers().map(power).product::<f64>();
            radical * bound.powi(u.power as i32) * (1.0 + 1e-9)
        };
        let plain = self.tower.generators().is_empty();
        plain.then(|| self.units.iter().map(size).collect())
    }

    /// What the basis is modulo a prime below 2³¹, products going to products; `None`: the prime does not serve, or there are nested
    /// roots. With `p ≡ 3 mod 4` the squares are a group of odd order, in which each has one N-th root for every N prime to that
    /// order. A polynomial's root becomes one of its roots there, if it has any.
    pub fn modulo(&self, p: u64) -> Option<Vec<u64>> {
        if !self.tower.generators().is_empty() || p % 4 != 3 {
            return None;
        }
        let root = match self.tower.root() {
            None => 1,
            Some(g) => Modulo(&p.into()).root(&g.polynomial)?.to_u64()?,
        };
        let order = (p as i64 - 1) / 2;
        let power = |x: u64, n: i64| {
            let (mut power, mut square, mut n) = (1, x % p, n);
            while n > 0 {
                if n % 2 == 1 {
                    power = power * square % p;
                }
                square = square * square % p;
                n /= 2;
            }
            power
        };
        let image = |u: &Unit| {
            let start = power(root, u.power.into());
            u.radical.powers().try_fold(start, |product, (q, e)| {
                let inverse = e.denom().extended_gcd(&order);
                if inverse.gcd != 1 || power(q, order) != 1 {
                    return None;
                }
                let n = (inverse.x.rem_euclid(order) * e.numer()).rem_euclid(order);
                Some(product * power(q, n) % p)
            })
        };
        self.units.iter().map(image).collect()
    }

    /// A number of this field over the basis, without zeros.
    pub fn coordinates(&self, x: &Exact) -> Vec<(usize, BigRational)> {
        self.places(&together(x, &self.tower.all()).0)
    }

    fn places(&self, x: &Exact) -> Vec<(usize, BigRational)> {
        let place = |(u, c): (Unit, &BigRational)| {
            let place = self.units.iter().position(|unit| *unit == u)?;
            Some((place, c.clone()))
        };
        x.terms().filter_map(place).collect()
    }

    /// The product of two elements of the basis.
    pub fn product(&self, i: usize, j: usize) -> Vec<(usize, BigRational)> {
        let unit = |i: usize| {
            let one = BigRational::from_integer(1.into());
            Exact::of_terms(&self.tower, [(self.units[i].clone(), one)].into_iter())
        };
        self.places(&unit(i).times(&unit(j)))
    }

    /// The number with these coordinates.
    pub fn number(&self, coordinates: impl Iterator<Item = (usize, BigRational)>) -> Exact {
        let terms = coordinates.map(|(i, c)| (self.units[i].clone(), c));
        Exact::of_terms(&self.tower, terms).settled()
    }
}
