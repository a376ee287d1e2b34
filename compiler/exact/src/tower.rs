//! Towers of extensions: the root of a polynomial and the nested square roots that a number is made of.
//!
//! The field at the bottom holds all roots of rational numbers that [`Radical`]s stand for. Beside them is at most one root of a
//! polynomial (`polynomial_root.rs`), whose powers are independent of everything else. Each generator is the square
//! root of a number of the field below it that has no square root there, so the products of generators are linearly
//! independent over the bottom: a number is 0 only if nothing stands before any of them. Where numbers of
//! different towers meet, the towers are joined: a generator that already lies in what the others span is expressed
//! by them. Takes that decision from `denest.rs`.

use super::conjugate;
use super::polynomial_root::PolynomialRoot;
use super::radical::Unit;
use super::{Exact, ExactError, denest};
use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{One, Zero};
use std::borrow::Cow;
use std::cell::RefCell;
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// Most nested roots of one number that do not depend on each other: degree 16 over the numbers without any.
pub const MAX_NESTED: usize = 4;

/// Joined towers that a thread remembers.
const REMEMBERED: usize = 32;

/// A nested root.
#[derive(Debug)]
pub struct Generator {
    /// What it is the square root of, in a tower of its own: this is how generators are told apart.
    radicand: Exact,
    /// The same in this tower, where only lower generators occur.
    pub terms: Vec<(Unit, BigRational)>,
    /// How deep square roots are nested in the radicand.
    depth: u32,
}

/// Nested roots by rising depth, then by falling radicands.
#[derive(Clone, Debug, Default)]
pub struct Tower(Option<Arc<Levels>>);

#[derive(Debug, Default)]
struct Levels {
    root: Option<Arc<PolynomialRoot>>,
    generators: Vec<Generator>,
    /// Why there is no tower: numbers that meet have too many generators, or ones of which it is not known whether they depend
    /// on each other. A number with a fault is no result, equals nothing, and what is computed from it has the fault.
    fault: Option<ExactError>,
}

/// The places of the bits that are set.
pub fn bits_of(set: u32) -> impl Iterator<Item = usize> {
    (0..32).filter(move |i| set >> i & 1 == 1)
}

impl PartialEq for Tower {
    fn eq(&self, other: &Tower) -> bool {
        match (&self.0, &other.0) {
            (None, None) => true,
            (Some(a), Some(b)) if Arc::ptr_eq(a, b) => true,
            _ => {
                let (a, b) = (self.generators(), other.generators());
                a.len() == b.len()
                    && self.root() == other.root()
                    && self.fault() == other.fault()
                    && a.iter().zip(b).all(|(a, b)| a.terms == b.terms)
            }
        }
    }
}

impl Tower {
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }
    pub fn generators(&self) -> &[Generator] {
        self.0.as_ref().map_or(&[], |l| &l.generators)
    }
    /// Why numbers of this tower are no results.
    pub fn fault(&self) -> Option<ExactError> {
        self.0.as_ref()?.fault
    }

    /// The root of a polynomial at the bottom.
    pub fn root(&self) -> Option<&Arc<PolynomialRoot>> {
        self.0.as_ref()?.root.as_ref()
    }
    /// How many powers of that root are independent.
    pub fn degree(&self) -> usize {
        self.root().map_or(1, |r| r.degree())
    }

    fn of(root: Option<Arc<PolynomialRoot>>, generators: Vec<Generator>) -> Tower {
        match generators.len() {
            0 if root.is_none() => Tower::default(),
            0..=MAX_NESTED => Tower(Some(Arc::new(Levels {
                root,
                generators,
                fault: None,
            }))),
            _ => Tower::faulty(ExactError::TooManyNested),
        }
    }
    fn faulty(why: ExactError) -> Tower {
        Tower(Some(Arc::new(Levels {
            root: None,
            generators: Vec::new(),
            fault: Some(why),
        })))
    }

    fn copied(&self) -> Vec<Generator> {
        let copy = |g: &Generator| Generator {
            radicand: g.radicand.clone(),
            terms: g.terms.clone(),
            depth: g.depth,
        };
        self.generators().iter().map(copy).collect()
    }

    /// Some generators and those that occur in their radicands.
    pub fn needed(&self, used: u32) -> u32 {
        let mut needed = used;
        for (i, g) in self.generators().iter().enumerate().rev() {
            if needed >> i & 1 == 1 {
                needed |= g.terms.iter().fold(0, |all, (u, _)| all | u.nested);
            }
        }
        needed
    }

    /// What a generator is the square root of.
    pub fn radicand(&self, place: usize) -> Exact {
        Exact::of_terms(self, self.generators()[place].terms.iter().cloned())
    }

    pub fn generator(&self, place: usize) -> Exact {
        Exact::of_terms(self, [(nested(place), BigRational::one())].into_iter())
    }

    /// The sum of all generators and of the polynomial's root.
    pub fn all(&self) -> Exact {
        let units = (0..self.generators().len()).map(nested);
        let units = units.chain(self.root().map(|_| first_power()));
        Exact::of_terms(self, units.map(|u| (u, BigRational::one())))
    }

    /// A multiple of a unit with any power of the polynomial's root below twice its degree, over the units.
    fn reduced(&self, unit: Unit, c: BigRational) -> Vec<(Unit, BigRational)> {
        let Some(root) = self.root() else {
            return vec![(unit, c)];
        };
        let powers = root.power(unit.power as usize).into_iter().enumerate();
        let one = |(power, by): (usize, BigInt)| {
            let power = power as u32;
            let unit = Unit {
                power,
                ..unit.clone()
            };
            (unit, &c * BigRational::from_integer(by))
        };
        powers.filter(|(_, by)| !by.is_zero()).map(one).collect()
    }

    pub fn write(&self, f: &mut fmt::Formatter, unit: &Unit) -> fmt::Result {
        let mut times = "";
        if !unit.radical.is_one() {
            write!(f, "{}", unit.radical)?;
            times = "*";
        }
        for i in bits_of(unit.nested) {
            write!(f, "{times}sqrt({})", self.generators()[i].radicand)?;
            times = "*";
        }
        match (self.root(), unit.power) {
            (Some(root), 1) => write!(f, "{times}{root}"),
            (Some(root), power @ 2..) => write!(f, "{times}{root}^{power}"),
            _ => Ok(()),
        }
    }
}

fn nested(place: usize) -> Unit {
    Unit {
        nested: 1 << place,
        ..Unit::default()
    }
}

fn first_power() -> Unit {
    Unit {
        power: 1,
        ..Unit::default()
    }
}

impl Exact {
    /// A sum in a tower.
    pub(super) fn of_terms(
        tower: &Tower,
        terms: impl Iterator<Item = (Unit, BigRational)>,
    ) -> Exact {
        let mut sum = Exact::zero().moved(tower);
        for (unit, c) in terms {
            sum.add_unit(unit, c);
        }
        sum
    }

    pub(super) fn of_polynomial(root: Arc<PolynomialRoot>) -> Exact {
        let tower = Tower::of(Some(root), Vec::new());
        Exact::of_terms(&tower, [(first_power(), BigRational::one())].into_iter())
    }

    /// Whether the root of a polynomial occurs in it.
    pub(super) fn has_generator(&self) -> bool {
        self.roots.keys().any(|u| u.power > 0)
    }

    /// Without its tower, where nothing of it occurs.
    pub(super) fn settled(mut self) -> Exact {
        let above = |u: &Unit| u.nested != 0 || u.power != 0;
        if self.tower.fault().is_none() && !self.roots.keys().any(above) {
            self.tower = Tower::default();
        }
        self
    }

    /// The product of two numbers of one tower, or one of a tower and one of none.
    pub(super) fn times(&self, other: &Exact) -> Exact {
        let tower = match self.tower.is_empty() {
            true => &other.tower,
            false => &self.tower,
        };
        let mut product = Exact::zero().moved(tower);
        for (r, a) in self.terms() {
            for (s, b) in other.terms() {
                let (whole, radical) = r.radical.times(&s.radical);
                let c = if whole.is_one() { a * b } else { a * b * whole };
                let unit = Unit {
                    nested: r.nested ^ s.nested,
                    power: r.power + s.power,
                    radical,
                };
                match r.nested & s.nested {
                    0 if (unit.power as usize) < tower.degree() => product.add_unit(unit, c),
                    // Squares of generators are the numbers below their roots.
                    squares => {
                        let one = Exact::of_terms(tower, tower.reduced(unit, c).into_iter());
                        let times = |x: Exact, i: usize| x.times(&tower.radicand(i));
                        let whole = bits_of(squares).fold(one, times);
                        for (unit, c) in whole.terms() {
                            product.add_unit(unit, c.clone());
                        }
                    }
                }
            }
        }
        product
    }

    /// The highest generator that occurs.
    pub(super) fn top(&self) -> Option<usize> {
        bits_of(self.used()).last()
    }
    fn used(&self) -> u32 {
        self.roots.keys().fold(0, |all, u| all | u.nested)
    }

    /// `a` and `b` of `a + b·n`, where n is a generator and none above it occurs.
    pub(super) fn split(&self, place: usize) -> (Exact, Exact) {
        let (mut a, mut b) = (Vec::new(), Vec::new());
        for (mut unit, c) in self.terms() {
            let part = match unit.nested >> place & 1 {
                1 => &mut b,
                _ => &mut a,
            };
            unit.nested &= !(1 << place);
            part.push((unit, c.clone()));
        }
        let number = |terms: Vec<_>| Exact::of_terms(&self.tower, terms.into_iter());
        (number(a), number(b))
    }

    fn depth(&self) -> u32 {
        let depths = bits_of(self.used()).map(|i| self.tower.generators()[i].depth);
        depths.max().unwrap_or(0)
    }

    /// In the tower of what it needs.
    pub(super) fn trimmed(&self) -> Exact {
        if self.tower.fault().is_some() {
            return self.clone();
        }
        let all = self.tower.generators();
        let needed = self.tower.needed(self.used());
        let root = self.tower.root().filter(|_| self.has_generator());
        if needed.count_ones() as usize == all.len() && root == self.tower.root() {
            return self.clone();
        }
        let moved = |unit: &Unit| Unit {
            nested: bits_of(needed)
                .enumerate()
                .fold(0, |set, (to, from)| set | (unit.nested >> from & 1) << to),
            power: unit.power,
            radical: unit.radical.clone(),
        };
        let generators = bits_of(needed).map(|i| Generator {
            radicand: all[i].radicand.clone(),
            terms: all[i]
                .terms
                .iter()
                .map(|(u, c)| (moved(u), c.clone()))
                .collect(),
            depth: all[i].depth,
        });
        let tower = Tower::of(root.cloned(), generators.collect());
        Exact::of_terms(&tower, self.terms().map(|(u, c)| (moved(&u), c.clone())))
    }

    /// Its square root, as a new generator of its tower; it is positive, no root of a polynomial occurs in it, and it has no square
    /// root there. Square factors
    /// of its content stand before the root, so what is below has whole coefficients.
    pub(super) fn adjoined_root(&self) -> Result<Exact, ExactError> {
        let (outside, inside) = self.trimmed().without_squares();
        let inside = inside.checked()?;
        let mut generators = inside.tower.copied();
        let place = generators.len();
        generators.push(Generator {
            terms: inside.terms().map(|(u, c)| (u, c.clone())).collect(),
            depth: inside.depth() + 1,
            radicand: inside,
        });
        let tower = Tower::of(None, generators);
        match tower.fault() {
            Some(why) => Err(why),
            None => tower.generator(place).scaled(&outside).checked(),
        }
    }
}

/// Two towers as one: where the generators of each lie in it.
struct Joined {
    from: (Tower, Tower),
    tower: Tower,
    images: [Images; 2],
}

/// What the root of a polynomial and the generators of one tower are in another one.
#[derive(Default)]
struct Images {
    root: Option<Exact>,
    generators: Vec<Exact>,
}

thread_local! {
    static JOINED: RefCell<Vec<Arc<Joined>>> = const { RefCell::new(Vec::new()) };
}

/// Both numbers in one tower.
pub fn together<'x>(a: &'x Exact, b: &'x Exact) -> (Cow<'x, Exact>, Cow<'x, Exact>) {
    if a.tower == b.tower || b.tower.is_empty() {
        return (Cow::Borrowed(a), Cow::Borrowed(b));
    }
    if a.tower.is_empty() {
        return (Cow::Owned(a.clone().moved(&b.tower)), Cow::Borrowed(b));
    }
    let (a, b) = (a.trimmed(), b.trimmed());
    let joined = joined(&a.tower, &b.tower);
    if joined.tower.fault().is_some() {
        let none = Exact::zero().moved(&joined.tower);
        return (Cow::Owned(none.clone()), Cow::Owned(none));
    }
    let a = lifted(&joined.tower, a.terms(), &joined.images[0]);
    let b = lifted(&joined.tower, b.terms(), &joined.images[1]);
    (Cow::Owned(a), Cow::Owned(b))
}

/// All numbers in one tower, so that they can be compared.
pub(super) fn in_one_tower<'e>(
    numbers: impl Iterator<Item = &'e Exact> + Clone,
) -> Result<Vec<Exact>, ExactError> {
    let mut all = Exact::zero();
    for x in numbers.clone() {
        all = together(&all, x).0.tower.all();
        if let Some(why) = all.tower.fault() {
            return Err(why);
        }
    }
    let same = |x: &Exact| together(x, &all).0.into_owned();
    Ok(numbers.map(same).collect())
}

/// A sum in another tower, in which its generators have these images.
fn lifted<'c>(
    tower: &Tower,
    terms: impl Iterator<Item = (Unit, &'c BigRational)>,
    images: &Images,
) -> Exact {
    let mut sum = Exact::zero().moved(tower);
    for (unit, c) in terms {
        let bare = (Unit::from(unit.radical), c.clone());
        let bare = Exact::of_terms(tower, [bare].into_iter());
        let times = |x: Exact, image: &Exact| x.times(&image.clone().moved(tower));
        let powers = (0..unit.power).filter_map(|_| images.root.as_ref());
        let nested = bits_of(unit.nested).map(|i| &images.generators[i]);
        let product = powers.chain(nested).fold(bare, times);
        for (unit, c) in product.terms() {
            sum.add_unit(unit, c.clone());
        }
    }
    sum
}

impl Exact {
    /// In a tower that only has more generators above its own.
    pub(super) fn moved(mut self, tower: &Tower) -> Exact {
        self.tower = tower.clone();
        self
    }
}

fn joined(a: &Tower, b: &Tower) -> Arc<Joined> {
    let same = |j: &&Arc<Joined>| j.from.0 == *a && j.from.1 == *b;
    if let Some(found) = JOINED.with_borrow(|known| known.iter().find(same).cloned()) {
        return found;
    }
    let new = Arc::new(join(a, b));
    JOINED.with_borrow_mut(|known| {
        if known.len() == REMEMBERED {
            known.remove(0);
        }
        known.push(new.clone());
    });
    new
}

fn join(a: &Tower, b: &Tower) -> Joined {
    let (tower, images) = match merged(a, b) {
        Ok(found) => found,
        Err(why) => (Tower::faulty(why), Default::default()),
    };
    Joined {
        from: (a.clone(), b.clone()),
        tower,
        images,
    }
}

fn merged(a: &Tower, b: &Tower) -> Result<(Tower, [Images; 2]), ExactError> {
    if let Some(why) = a.fault().or(b.fault()) {
        return Err(why);
    }
    let sides = [a, b];
    let (root, mut images) = match (a.root(), b.root()) {
        (Some(a), Some(b)) => conjugate::common(a, b)?,
        (a, b) => (a.or(b).cloned(), [None, None]),
    };
    let own = |side: usize| sides[side].root().cloned().map(Exact::of_polynomial);
    let mut images = [0, 1].map(|side| Images {
        root: images[side].take().or_else(|| own(side)),
        generators: Vec::new(),
    });
    // Whether all generators so far are those of one side, which do not depend on each other.
    let mut own = [true, true];
    let mut tower = Tower::of(root, Vec::new());
    loop {
        let next = [0, 1].map(|s: usize| sides[s].generators().get(images[s].generators.len()));
        let from = match next {
            [None, None] => return Ok((tower, images)),
            [Some(_), None] => [true, false],
            [None, Some(_)] => [false, true],
            [Some(x), Some(y)] => match (x.depth.cmp(&y.depth)).then(y.radicand.cmp(&x.radicand)) {
                Ordering::Less => [true, false],
                Ordering::Greater => [false, true],
                Ordering::Equal => [true, true],
            },
        };
        let side = usize::from(!from[0]);
        let Some(g) = next[side] else {
            return Ok((tower, images));
        };
        let terms = g.terms.iter().map(|(u, c)| (u.clone(), c));
        let radicand = lifted(&tower, terms, &images[side]);
        let levels = tower.generators().len();
        let root = match from == [true, true] || own[side] {
            true => None,
            false => denest::root_in(&radicand, &tower, levels)?,
        };
        let image = match root {
            Some(root) => root,
            None => {
                let mut generators = tower.copied();
                generators.push(Generator {
                    radicand: g.radicand.clone(),
                    terms: radicand.terms().map(|(u, c)| (u, c.clone())).collect(),
                    depth: g.depth,
                });
                tower = Tower::of(tower.root().cloned(), generators);
                if let Some(why) = tower.fault() {
                    return Err(why);
                }
                tower.generator(levels)
            }
        };
        for s in 0..2 {
            match from[s] {
                true => images[s].generators.push(image.clone()),
                false => own[s] = false,
            }
        }
    }
}
