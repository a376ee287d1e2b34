//! Real roots of polynomials: canonical forms, identities, towers that meet, refusals, and agreement with 600 binary places.

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{ToPrimitive, Zero};
use odec_exact::{Exact, ExactError, Field};
use proptest::prelude::*;
use std::cmp::Ordering;

fn q(n: i64, d: i64) -> Exact {
    Exact::ratio(n, d)
}
fn rational(text: &str) -> BigRational {
    let (n, d) = text.split_once('/').unwrap_or((text, "1"));
    let n = Exact::decimal(n.trim_start_matches('-')).unwrap();
    let n = n.as_rational().unwrap() / BigRational::from_integer(d.parse().unwrap());
    if text.starts_with('-') { -n } else { n }
}
/// The coefficients from the highest one down, as they are written.
fn try_root(coefficients: &str, near: &str) -> Result<Exact, ExactError> {
    let mut all: Vec<BigRational> = coefficients.split_whitespace().map(rational).collect();
    all.reverse();
    let all: Vec<Exact> = all.into_iter().map(Exact::from).collect();
    Exact::root_of(&all, &rational(near).into())
}
fn root(coefficients: &str, near: &str) -> Exact {
    try_root(coefficients, near).unwrap()
}
fn value(coefficients: &[i64], x: &Exact) -> Exact {
    let highest_first = coefficients.iter();
    highest_first.fold(Exact::zero(), |sum, c| &(&sum * x) + &q(*c, 1))
}
fn sqrt(n: i64) -> Exact {
    q(n, 1).root(2).unwrap()
}

#[test]
fn roots_that_are_radicals() {
    let nested = |a, b, c| (&q(a, 1) + &(&q(b, 1) * &sqrt(c))).root(2).unwrap();
    let cube = |n: i64| q(n, 1).root(3).unwrap();
    for (polynomial, near, expected) in [
        ("1 0 -2", "1.4", sqrt(2)),
        ("1 0 -2", "-1.4", -&sqrt(2)),
        ("2 -3 1", "0.4", q(1, 2)),
        ("3 -4", "7", q(4, 3)),
        ("1 0 0 -2", "1", cube(2)),
        ("-1/3 0 0 2/3", "1", cube(2)),
        ("1 0 0 2", "1", -&cube(2)),
        // (x − 1)³ = 2, and (x² − 2)(x³ − 2)(x − 1)².
        ("1 -3 3 -3", "2", &cube(2) + &q(1, 1)),
        ("1 -2 -1 2 2 2 -8 4", "1.27", cube(2)),
        ("1 -2 -1 2 2 2 -8 4", "1.41", sqrt(2)),
        ("1 -2 -1 2 2 2 -8 4", "1", q(1, 1)),
        // 2^(1/3) + 2^(2/3) is a root of x³ − 6x − 6.
        ("1 0 -6 -6", "2.8", &cube(2) + &cube(4)),
        ("1 0 0 0 0 -7", "1", q(7, 1).root(5).unwrap()),
        (
            "1 0 0 0 0 0 0 0 0 0 0 0 -5",
            "-1",
            -&q(5, 1).root(12).unwrap(),
        ),
        // √2 + √3, √(2 + √2), the node of Gauss's quadrature with four points, √(15 + 2√30)/√35.
        ("1 0 -10 0 1", "3.1", &sqrt(2) + &sqrt(3)),
        ("1 0 -4 0 2", "1.8", nested(2, 1, 2)),
        ("1 0 -4 0 2", "-0.8", -&nested(2, -1, 2)),
        (
            "35 0 -30 0 3",
            "0.86",
            &nested(15, 2, 30) * &sqrt(35).recip().unwrap(),
        ),
        // (x² − 2x − 1 − √2·x) times its conjugate.
        (
            "1 -4 0 4 1",
            "4",
            &(&(&q(2, 1) + &sqrt(2)) + &nested(10, 4, 2)) * &q(1, 2),
        ),
    ] {
        let found = root(polynomial, near);
        assert_eq!(found, expected, "{polynomial} near {near}");
        assert!((&found - &expected).is_zero());
    }
}

/// The γ of Alexander's method is a root of 6x³ − 18x² + 9x − 1.
#[test]
fn roots_of_a_cubic() {
    let all = ["0.159", "0.436", "2.405"].map(|near| root("1 -3 3/2 -1/6", near));
    for x in &all {
        assert!(value(&[6, -18, 9, -1], x).is_zero());
        assert!(!x.is_zero() && x.as_rational().is_none());
    }
    let [a, b, c] = &all;
    assert_eq!(&(a + b) + c, q(3, 1));
    assert_eq!(&(c + b) + a, q(3, 1));
    assert_eq!(&(a * b) * c, q(1, 6));
    assert_eq!(&(&(a * b) + &(a * c)) + &(b * c), q(3, 2));
    // (a − b)(b − c)(a − c) = −√D, D = 3/2 for the monic polynomial.
    let differences = &(&(a - b) * &(b - c)) * &(a - c);
    assert_eq!(&differences * &differences, q(3, 2));
    assert_eq!(differences, -&(&sqrt(6) * &q(1, 2)));
    assert!(a < b && b < c && *a > q(0, 1));
    assert_eq!(b.to_f64(), 0.435_866_521_508_459);
    assert_eq!(&b.recip().unwrap() * b, Exact::one());
    // By another polynomial with a root in the same field: 1/b.
    let inverse = root("1 -9 18 -6", "2.3");
    assert_eq!(&inverse * b, Exact::one());
    assert_eq!(b * &inverse, Exact::one());
    assert_eq!(inverse, b.recip().unwrap());
    assert_eq!((b + &sqrt(2)).to_string(), (&sqrt(2) + b).to_string());
}

/// 2 cos(2π/9) and its conjugates: the field has them all.
#[test]
fn a_cyclic_cubic() {
    let x = root("1 0 -3 1", "0.347");
    let y = root("1 0 -3 1", "1.53");
    assert_eq!(y, &(&q(2, 1) - &(&x * &x)) - &x);
    let z = &(&x * &x) - &q(2, 1);
    assert_eq!(z, root("1 0 -3 1", "-1.88"));
    assert_eq!(x.to_string(), "root(x^3 - 3*x + 1, 0.35)");
    assert_eq!(
        (&(&q(1, 2) - &x) * &x).to_string(),
        "root(x^3 - 3*x + 1, 0.35)/2 - root(x^3 - 3*x + 1, 0.35)^2"
    );
}

/// Beside square roots, nested ones and cube roots: basis, products, order.
#[test]
fn fields_with_other_roots() {
    let x = root("1 0 -1 -1", "1.32");
    let nested = (&q(2, 1) + &sqrt(2)).root(2).unwrap();
    let cube = q(2, 1).root(3).unwrap();
    let sum = &(&x + &nested) + &cube;
    let inverse = (&x + &nested).recip().unwrap();
    assert_eq!(&inverse * &(&x + &nested), Exact::one());
    let back = &(&sum - &cube) - &nested;
    assert_eq!(back, x);
    assert_eq!(back.to_string(), "root(x^3 - x - 1, 1.32)");
    assert_eq!(
        &(&x * &nested) * &(&x * &nested),
        &(&x * &x) * &(&q(2, 1) + &sqrt(2))
    );
    let numbers = [sum.clone(), x.clone()];
    // √2 and the nested root, 2^(1/3), powers of x.
    let field = Field::of(numbers.iter(), 36).unwrap();
    assert_eq!(field.dimension(), 36);
    assert!(field.sizes().is_none());
    for x in &numbers {
        assert_eq!(field.number(field.coordinates(x).into_iter()), *x);
    }
    assert!(Field::of(numbers.iter(), 35).is_err());
}

/// What a field is modulo a prime keeps sums and products, and says 0 of what is 0.
#[test]
fn modulo_primes() {
    let x = root("1 -3 3/2 -1/6", "0.436");
    let y = root("1 -3 3/2 -1/6", "2.405");
    let numbers = [x.clone(), y.clone()];
    let field = Field::of(numbers.iter(), 24).unwrap();
    let n = field.dimension();
    assert_eq!(n, 6);
    let sizes = field.sizes().unwrap();
    // The largest of all conjugates of the generator is 6·2.405.
    assert!(
        sizes
            .iter()
            .zip(0..)
            .all(|(size, i)| *size >= 14.43f64.powi(i / 2))
    );
    let mut served = 0;
    for p in (1u64 << 30..1 << 31).rev().step_by(4).take(2000) {
        let prime = (3..1 << 16).step_by(2).all(|d| p % d != 0);
        let Some(basis) = field.modulo(p).filter(|_| prime) else {
            continue;
        };
        served += 1;
        for i in 0..n {
            for j in 0..n {
                let whole = |c: &BigRational| {
                    let p = BigInt::from(p);
                    let rest = ((c.to_integer() % &p) + &p) % &p;
                    rest.to_u64().unwrap()
                };
                let term = |sum, (k, c): (usize, BigRational)| (sum + whole(&c) * basis[k]) % p;
                let product = field.product(i, j).into_iter().fold(0, term);
                assert_eq!(product, basis[i] * basis[j] % p);
            }
        }
    }
    assert!(served > 3, "{served}");
}

#[test]
fn refusals() {
    for (polynomial, near, why) in [
        ("1 0 1", "0", ExactError::NoRealRoot),
        ("7", "0", ExactError::ConstantPolynomial),
        ("0", "0", ExactError::ConstantPolynomial),
        ("1 0 -2", "0", ExactError::Ambiguous),
        ("1 0 -2", "0.3", ExactError::Ambiguous),
        // Roots 1 and 1.001, and a number between them.
        ("1000 -2001 1001", "1.0004", ExactError::Ambiguous),
        (
            "1 0 0 0 0 0 0 0 0 0 0 0 0 -2",
            "1",
            ExactError::LargePolynomial,
        ),
        ("1e100 0 0 -1", "1", ExactError::LargePolynomial),
        // A large prime under the square root.
        (
            "1 0 -10000000000000000000000000000000033",
            "1e17",
            ExactError::PrimeFactor,
        ),
        // Degree 6 of 1 + √2·2^(1/3)…, a quartic with a pure resolvent.
        ("1 0 -6 -4 12 -24 -4", "2.7", ExactError::Undecided),
    ] {
        assert_eq!(try_root(polynomial, near), Err(why), "{polynomial}");
    }
    let irrational = [q(1, 1), sqrt(2), q(1, 1)];
    assert_eq!(
        Exact::root_of(&irrational, &q(0, 1)),
        Err(ExactError::NotRational)
    );
    assert_eq!(
        Exact::root_of(&[q(-2, 1), q(0, 1), q(1, 1)], &sqrt(2)),
        Err(ExactError::NotRational)
    );
    let x = root("1 0 -3 1", "0.347");
    assert_eq!(x.root(2), Err(ExactError::RootOfGenerator));
    assert_eq!((&x + &sqrt(2)).root(3), Err(ExactError::RootOfGenerator));
    let other = root("1 0 -4 1", "0.25");
    assert_eq!((&x + &other).checked(), Err(ExactError::TwoPolynomials));
    assert_eq!((&other * &x).checked(), Err(ExactError::TwoPolynomials));
    assert!(x != other);
    assert!(Exact::are_comparable([&x, &other].into_iter()).is_err());
    assert!(Field::of([&x, &other].into_iter(), 1000).is_err());
    let huge = (0..12).fold(x, |x, _| &x * &x);
    assert_eq!(huge.checked(), Err(ExactError::TooLarge));
}

/// Degrees 4, 5 and 7 whose roots are not in radicals, or not in real ones.
#[test]
fn higher_degrees() {
    // Radau IIA with five stages: c are the roots of a quartic and 1.
    let c = root("126 -224 126 -24 1", "0.86");
    assert!(value(&[126, -224, 126, -24, 1], &c).is_zero());
    assert_eq!(c.to_f64(), 0.860_240_135_656_219_5);
    for (polynomial, near) in [
        ("1 0 0 0 -1 -1", "1.17"),
        ("1 0 0 -14 0 0 0 2", "0.5"),
        ("1 0 -5 0 4 1", "0.7"),
    ] {
        match try_root(polynomial, near) {
            Ok(x) => {
                let coefficients: Vec<i64> =
                    polynomial.split(' ').map(|c| c.parse().unwrap()).collect();
                assert!(value(&coefficients, &x).is_zero());
                assert!(!value(&coefficients[1..], &x).is_zero());
                assert_eq!(&x.recip().unwrap() * &x, Exact::one());
            }
            Err(why) => panic!("{polynomial}: {why}"),
        }
    }
}

/// Two numbers that agree in 60 decimals are told apart, and a root is told from its decimal.
#[test]
fn signs_of_tiny_numbers() {
    let x = root("1 0 -3 1", "0.347");
    let decimal =
        Exact::decimal("0.347296355333860697703433253538629592000751354368138774472").unwrap();
    let gap = &x - &decimal;
    assert!(
        !gap.is_zero() && gap.to_f64().abs() < 1e-55,
        "{}",
        gap.to_f64()
    );
    let power = (0..5).fold(x.clone(), |p, _| &p * &p);
    assert_eq!(power.sign(), Ordering::Greater);
    assert!((power.to_f64() / x.to_f64().powi(32) - 1.0).abs() < 1e-13);
    let power = (0..3).fold(&x - &q(1, 3), |p, _| &p * &p);
    assert_eq!((-&power).sign(), Ordering::Less);
}

const PLACES: u64 = 600;

/// A root of the cubic x³ − 3x + 1 in 600 binary places, by bisection.
fn places(lo: i64) -> BigInt {
    let sign = |x: &BigInt| {
        let cube: BigInt = x * x * x;
        let value = cube - ((x * 3u32) << (2 * PLACES)) + (BigInt::from(1) << (3 * PLACES));
        value > BigInt::zero()
    };
    let (mut lo, mut hi) = (BigInt::from(lo) << PLACES, BigInt::from(lo + 1) << PLACES);
    let left = sign(&lo);
    while &hi - &lo > BigInt::from(1) {
        let middle: BigInt = (&lo + &hi) >> 1;
        if sign(&middle) == left {
            lo = middle
        } else {
            hi = middle
        }
    }
    lo
}

/// Elements of ℚ(x, √2, √(2+√2)), x³ − 3x + 1 = 0, and their values in 600 places.
fn number() -> impl Strategy<Value = (Exact, BigInt)> {
    let term = (-4i64..5, 1i64..4, 0usize..3, 0u8..4, 0usize..3);
    prop::collection::vec(term, 0..4).prop_map(|terms| {
        let conjugates = [
            root("1 0 -3 1", "-1.88"),
            root("1 0 -3 1", "0.347"),
            root("1 0 -3 1", "1.53"),
        ];
        let values = [places(-2), places(0), places(1)];
        let square = (BigInt::from(2) << (2 * PLACES)).sqrt();
        let nested = (((BigInt::from(2) << PLACES) + &square) << PLACES).sqrt();
        let roots = [
            (sqrt(2), square),
            ((&q(2, 1) + &sqrt(2)).root(2).unwrap(), nested),
        ];
        let one = |(n, d, power, set, which): (i64, i64, usize, u8, usize)| {
            let mut x = (q(n, d), (BigInt::from(n) << PLACES) / d);
            for _ in 0..power {
                x = (&x.0 * &conjugates[which], (x.1 * &values[which]) >> PLACES);
            }
            for (_, r) in roots.iter().enumerate().filter(|(i, _)| set >> i & 1 == 1) {
                x = (&x.0 * &r.0, (x.1 * &r.1) >> PLACES);
            }
            x
        };
        let all: Vec<(Exact, BigInt)> = terms.into_iter().map(one).collect();
        let places = all.iter().map(|x| x.1.clone()).sum();
        (all.into_iter().map(|x| x.0).sum(), places)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn what_is_printed_is_read_back((a, _) in number()) {
        prop_assert_eq!(a.to_string().parse::<Exact>(), Ok(a));
    }

    #[test]
    fn an_ordered_field((a, places) in number(), (b, _) in number(), (c, _) in number()) {
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
        // Against high precision: zero, sign and the nearest double.
        prop_assert_eq!(a.is_zero(), places.bits() < PLACES / 2, "{}", a);
        if !a.is_zero() {
            prop_assert_eq!(a.is_negative(), places < BigInt::zero());
            let rounded = BigRational::new(places, BigInt::from(1) << PLACES);
            prop_assert_eq!(Some(a.to_f64()), rounded.to_f64());
        }
    }

    /// Of products of small polynomials: each root found near itself, and 0 of the polynomial.
    #[test]
    fn random_polynomials(parts in prop::collection::vec(prop::collection::vec(-5i64..6, 2..5), 1..4)) {
        let mut product = vec![1i64];
        for part in &parts {
            let mut next = vec![0; product.len() + part.len() - 1];
            for (i, a) in product.iter().enumerate() {
                for (j, b) in part.iter().enumerate() {
                    next[i + j] += a * b;
                }
            }
            product = next;
        }
        let ascending: Vec<Exact> = product.iter().map(|c| q(*c, 1)).collect();
        let Ok(roots) = Exact::real_roots(&ascending) else {
            prop_assert!(product[1..].iter().all(|c| *c == 0));
            return Ok(());
        };
        let highest_first: Vec<i64> = product.iter().rev().copied().collect();
        for near in roots {
            match Exact::root_of(&ascending, &Exact::float(near).unwrap()) {
                Ok(x) => {
                    prop_assert!(value(&highest_first, &x).is_zero(), "{:?} near {}: {}", product, near, x);
                    prop_assert!((x.to_f64() - near).abs() <= 1e-12 * near.abs().max(1.0));
                }
                Err(why) => prop_assert!(
                    matches!(why, ExactError::Undecided | ExactError::PrimeFactor | ExactError::Nested | ExactError::TooLarge),
                    "{:?} near {}: {}", product, near, why
                ),
            }
        }
    }
}
