//! The field that some numbers span, as vectors over its units: what other crates compute in.

use super::radical::{Radical, Unit};
use super::tower::{Tower, in_one_tower, together};
use super::{Exact, ExactError};
use num_rational::BigRational;

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
        let mut radicals = vec![Radical::one()];
        let mut at = 0;
        while at < radicals.len() {
            for g in &generators {
                let (_, product) = radicals[at].times(g);
                if !radicals.contains(&product) {
                    radicals.push(product);
                }
            }
            if radicals.len() * subsets as usize > most {
                return Err(ExactError::TooLarge);
            }
            at += 1;
        }
        let with = |nested| {
            let unit = move |radical: &Radical| Unit {
                nested,
                radical: radical.clone(),
            };
            radicals.iter().map(unit)
        };
        Ok(Field {
            units: (0..subsets).flat_map(with).collect(),
            tower,
        })
    }

    /// Elements of the basis.
    pub fn dimension(&self) -> usize {
        self.units.len()
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
