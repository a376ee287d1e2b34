//! Nested square roots: the axioms of an ordered field, towers that meet, agreement with 600 binary places.

use num_bigint::BigInt;
use odec_exact::{Exact, ExactError, Field};
use proptest::prelude::*;
use std::cmp::Ordering;

fn q(n: i64, d: i64) -> Exact {
    Exact::ratio(n, d)
}
fn sqrt(x: &Exact) -> Exact {
    x.root(2).unwrap()
}
/// `√(a + b√c)`.
fn nested(a: i64, b: i64, c: i64) -> Exact {
    sqrt(&(&q(a, 1) + &(&q(b, 1) * &sqrt(&q(c, 1)))))
}

#[test]
fn prints_as_it_would_be_written() {
    let third = &q(1, 3) * &nested(15, 2, 30);
    let deep = sqrt(&(&q(1, 1) + &nested(2, 1, 2)));
    for (x, text) in [
        (nested(15, 2, 30), "sqrt(15 + 2*sqrt(30))"),
        (nested(525, -70, 30), "sqrt(525 - 70*sqrt(30))"),
        (nested(60, 8, 30), "2*sqrt(15 + 2*sqrt(30))"),
        (&q(1, 2) - &third, "1/2 - sqrt(15 + 2*sqrt(30))/3"),
        (
            &sqrt(&q(3, 1)) * &nested(2, 1, 2),
            "sqrt(3)*sqrt(2 + sqrt(2))",
        ),
        (deep, "sqrt(1 + sqrt(2 + sqrt(2)))"),
        // As in tables of Gauss's quadrature: √(3/7 + 2/7·√(6/5)).
        (
            sqrt(&(&q(3, 7) + &(&q(2, 7) * &sqrt(&q(6, 5))))),
            "sqrt(525 + 70*sqrt(30))/35",
        ),
    ] {
        assert_eq!(x.to_string(), text);
    }
}

#[test]
fn towers_that_meet() {
    // √(2+√2)·√(2−√2) = √2, √(2+√2) + √(2−√2) = √(4+2√2).
    let (a, b) = (nested(2, 1, 2), nested(2, -1, 2));
    assert_eq!(&a * &b, sqrt(&q(2, 1)));
    assert_eq!(&a + &b, nested(4, 2, 2));
    assert_eq!(&b + &a, &a + &b);
    assert_eq!((&a + &b).to_string(), (&b + &a).to_string());
    // The sines of a regular 17-gon's construction: √(34+2√17)·√(34−2√17) = 8√17.
    let (c, d) = (nested(34, 2, 17), nested(34, -2, 17));
    assert_eq!(&c * &d, &q(8, 1) * &sqrt(&q(17, 1)));
    // Multiples by roots of what lies below: √(4+2√2) = 2^(1/4)·√(2+2√2).
    let root = sqrt(&sqrt(&q(2, 1)));
    assert_eq!(nested(4, 2, 2), &root * &nested(2, 2, 2));
    // cos(π/16) by three square roots, and its minimal polynomial's value (Chebyshev: 2·cos 2θ = (2 cos θ)² − 2).
    let cosine = sqrt(&(&q(2, 1) + &sqrt(&(&q(2, 1) + &sqrt(&q(2, 1))))));
    assert_eq!(&(&cosine * &cosine) - &q(2, 1), nested(2, 1, 2));
    let conjugate = sqrt(&(&q(2, 1) - &nested(2, 1, 2)));
    assert_eq!(&cosine * &conjugate, nested(2, -1, 2));
    let double = (std::f64::consts::PI / 16.0).cos() * 2.0;
    assert!((cosine.to_f64() - double).abs() < 1e-15);
    // Shanks (1974): √5 + √(22 + 2√5) = √(11 + 2√29) + √(16 − 2√29 + 2√(55 − 10√29)).
    let inner = &(&q(16, 1) - &(&q(2, 1) * &sqrt(&q(29, 1)))) + &(&q(2, 1) * &nested(55, -10, 29));
    let left = &sqrt(&q(5, 1)) + &nested(22, 2, 5);
    let right = &nested(11, 2, 29) + &sqrt(&inner);
    assert_eq!(left, right);
    assert_eq!((&left - &right).sign(), Ordering::Equal);
}

/// Squares, written out.
#[test]
fn what_can_be_taken_apart_is() {
    let root = |n: i64| sqrt(&q(n, 1));
    // √(112 + 70√2 + (46 + 34√2)√5) = 5 + 4√2 + (3 + √2)√5.
    let inside = &(&q(112, 1) + &(&q(70, 1) * &root(2)))
        + &(&(&q(46, 1) + &(&q(34, 1) * &root(2))) * &root(5));
    let found = &(&q(5, 1) + &(&q(4, 1) * &root(2))) + &(&(&q(3, 1) + &root(2)) * &root(5));
    assert_eq!(sqrt(&inside), found);
    assert_eq!(sqrt(&inside).to_string(), found.to_string());
    // In a field with a nested root: (1 + √3·√(2+√2))².
    let x = &q(1, 1) + &(&root(3) * &nested(2, 1, 2));
    assert_eq!(sqrt(&(&x * &x)), x);
    assert_eq!(sqrt(&(&x * &x)).to_string(), x.to_string());
}

#[test]
fn refusals() {
    let four = [2i64, 3, 5, 7].map(|n| nested(1, 1, n));
    let all: Exact = four.iter().cloned().sum();
    assert!(all.clone().checked().is_ok());
    let fifth = nested(1, 1, 11);
    assert_eq!((&all + &fifth).checked(), Err(ExactError::TooManyNested));
    assert_eq!(
        sqrt(&q(2, 1)).root(2).unwrap().root(2).unwrap().root(2),
        Err(ExactError::Degree)
    );
    let numbers: Vec<Exact> = four.iter().cloned().chain([fifth]).collect();
    assert!(Field::of(numbers.iter(), 1000).is_err());
    assert_eq!(Field::of(four.iter(), 1000).map(|f| f.dimension()), Ok(256));
    assert!(Field::of(four.iter(), 255).is_err());
    assert_eq!(
        (&q(1, 1) - &nested(2, 1, 2)).root(2),
        Err(ExactError::NotReal)
    );
    assert_eq!(nested(2, 1, 2).root(3), Err(ExactError::Nested));
    // 17 roots deep.
    let mut x = sqrt(&q(2, 1));
    let refused = (0..17).find_map(|_| {
        let next = (&q(2, 1) + &x).root(2);
        next.map(|next| x = next).err()
    });
    assert_eq!(refused, Some(ExactError::TooManyNested));
}

/// Of squares of 200 digits, and twice such squares.
#[test]
fn roots_of_large_squares() {
    let digits = "314159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211706798";
    let n = Exact::decimal(digits).unwrap();
    assert_eq!(sqrt(&(&n * &n)), n);
    assert_eq!(sqrt(&(&(&n * &n) * &q(2, 1))), &n * &sqrt(&q(2, 1)));
    let nested = nested(2, 1, 2);
    assert_eq!(sqrt(&(&(&n * &n) * &(&nested * &nested))), &n * &nested);
    // One more is no square, and has no small factors.
    assert_eq!(
        (&(&n * &n) + &q(1, 1)).root(2).err(),
        Some(ExactError::PrimeFactor)
    );
}

/// Numbers that are nearly 0 are told from 0.
#[test]
fn signs_of_tiny_numbers() {
    let power = (0..5).fold(&nested(2, 1, 2) - &q(1, 1), |p, _| &p * &p);
    assert_eq!(power.sign(), Ordering::Greater);
    let expected = ((2.0 + 2f64.sqrt()).sqrt() - 1.0).powi(32);
    assert!((power.to_f64() / expected - 1.0).abs() < 1e-13);
    let decimal = Exact::decimal("1.8477590650225735122563663787935").unwrap();
    let gap = &nested(2, 1, 2) - &decimal;
    assert!(gap.to_f64() > 0.0 && gap.to_f64() < 1e-30, "{gap}");
}

/// Elements of a field of degree 16 over the rationals: √2, √3, √(2+√2), √(5+√3).
fn number() -> impl Strategy<Value = Exact> {
    let term = (-4i64..5, 1i64..4, 0u8..16);
    prop::collection::vec(term, 0..4).prop_map(|terms| {
        let roots = [
            sqrt(&q(2, 1)),
            sqrt(&q(3, 1)),
            nested(2, 1, 2),
            nested(5, 1, 3),
        ];
        let one = |(n, d, set): (i64, i64, u8)| {
            let chosen = (0..4).filter(|i| set >> i & 1 == 1);
            chosen.fold(q(n, d), |x, i| &x * &roots[i])
        };
        terms.into_iter().map(one).sum()
    })
}

/// √(a + b√c) with its value in 600 binary places; different ones often depend on each other.
const PLACES: u64 = 600;
fn root() -> impl Strategy<Value = (Exact, BigInt)> {
    let parts = (1i64..8, -3i64..4, prop::sample::select(vec![2i64, 3, 5, 6]));
    let positive = |(a, b, c): &(i64, i64, i64)| *b >= 0 || a * a > b * b * c;
    parts
        .prop_filter("a real root", positive)
        .prop_map(|(a, b, c)| {
            let inner = (BigInt::from(c) << (2 * PLACES)).sqrt();
            let inside = (BigInt::from(a) << PLACES) + b * inner;
            (nested(a, b, c), (inside << PLACES).sqrt())
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn what_is_printed_is_read_back(a in number()) {
        prop_assert_eq!(a.to_string().parse::<Exact>(), Ok(a));
    }

    #[test]
    fn an_ordered_field(a in number(), b in number(), c in number()) {
        prop_assert_eq!(&a + &b, &b + &a);
        prop_assert_eq!(&a * &b, &b * &a);
        prop_assert_eq!(&(&a + &b) + &c, &a + &(&b + &c));
        prop_assert_eq!(&(&a * &b) * &c, &a * &(&b * &c));
        prop_assert_eq!(&a * &(&b + &c), &(&a * &b) + &(&a * &c));
        prop_assert_eq!(&a - &a, Exact::zero());
        match a.recip() {
            Ok(inverse) => prop_assert_eq!(&a * &inverse, Exact::one()),
            Err(why) => prop_assert!(why == ExactError::TooLarge || a.is_zero()),
        }
        prop_assert_eq!(a == b, a.cmp(&b) == Ordering::Equal);
        prop_assert_eq!(a < b, &a + &c < &b + &c);
        prop_assert_eq!((&a * &b).sign() as i8, a.sign() as i8 * b.sign() as i8);
        if (a.to_f64() - b.to_f64()).abs() > 1e-12 {
            prop_assert_eq!(a < b, a.to_f64() < b.to_f64());
        }
    }

    #[test]
    fn square_roots(a in number()) {
        let size = if a.is_negative() { -&a } else { a.clone() };
        if let Ok(root) = (&a * &a).root(2) {
            prop_assert_eq!(&root, &size);
        }
        if let Ok(root) = size.root(2) {
            prop_assert_eq!(&root * &root, size);
            prop_assert!(!root.is_negative());
        }
    }

    /// Sums and products of nested roots that may depend on each other, against 600 binary places.
    #[test]
    fn high_precision(a in root(), b in root(), c in root(), n in -6i64..7) {
        let x = &(&(&a.0 * &b.0) + &(&q(n, 1) * &c.0)) - &q(n, 2);
        let half = (BigInt::from(n) << PLACES) / 2;
        let places: BigInt = ((&a.1 * &b.1) >> PLACES) + n * &c.1 - half;
        if let Ok(x) = x.checked() {
            prop_assert_eq!(x.is_zero(), places.bits() < PLACES / 2, "{}", x);
            let rounded = num_rational::BigRational::new(places, BigInt::from(1) << PLACES);
            if !x.is_zero() {
                prop_assert_eq!(Some(x.to_f64()), num_traits::ToPrimitive::to_f64(&rounded));
            }
        }
    }
}
