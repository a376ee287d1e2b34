//! Exact numbers: the axioms of an ordered field, agreement with 400 binary places, printed forms.

use num_bigint::BigInt;
use odec_exact::{Exact, ExactError};
use proptest::prelude::*;
use std::cmp::Ordering;

fn q(n: i64, d: i64) -> Exact {
    Exact::ratio(n, d)
}
fn sqrt(n: i64) -> Exact {
    Exact::int(n).root(2).unwrap()
}
fn cube_root(n: i64) -> Exact {
    Exact::int(n).root(3).unwrap()
}
fn over(a: &Exact, b: &Exact) -> Exact {
    a * &b.recip().unwrap()
}

#[test]
fn prints_as_it_would_be_written() {
    let gauss = &q(1, 2) - &over(&sqrt(3), &q(6, 1));
    let u = (&q(2, 1) - &cube_root(2)).recip().unwrap();
    let mixed = &sqrt(2) * &cube_root(3);
    for (x, text) in [
        (Exact::zero(), "0"),
        (q(-1, 2), "-1/2"),
        (sqrt(12), "2*sqrt(3)"),
        (over(&sqrt(2), &q(-4, 1)), "-sqrt(2)/4"),
        (q(2, 3).root(2).unwrap(), "sqrt(6)/3"),
        (gauss.clone(), "1/2 - sqrt(3)/6"),
        (-&gauss, "-1/2 + sqrt(3)/6"),
        (u, "2/3 + root(2, 3)/3 + root(4, 3)/6"),
        (mixed, "root(72, 6)"),
    ] {
        assert_eq!(x.to_string(), text);
    }
}

/// A product of roots is printed as one root.
#[test]
fn roots_of_composite_degree_are_read_back() {
    let read = |text: &str| text.parse::<Exact>().expect(text);
    for (product, root) in [
        ("root(2, 3)*root(2, 5)", "root(256, 15)"),
        ("root(3, 5)/root(3, 12)", "root(2187, 60)"),
        ("root(2, 8)*root(1/5, 3)", "root(8/390625, 24)"),
        ("root(2, 3)*root(2, 5)/root(2, 7)", "root(2^41, 105)"),
    ] {
        assert_eq!(read(product), read(root), "{product}");
        assert_eq!(read(&read(product).to_string()), read(product), "{product}");
    }
    assert!(read("root(0 - 2, 15)").to_f64() < -1.0);
}

#[test]
fn what_is_no_number_is_refused_where_it_stands() {
    let long = "9".repeat(2000);
    let deep = format!("{}1{}", "(".repeat(99), ")".repeat(99));
    for (text, at, why) in [
        ("", 0, "expected a number"),
        ("1/", 2, "expected a number"),
        ("1/0", 3, "division by zero"),
        ("1 2", 2, "expected an operator or the end of the number"),
        ("sqrt(2", 6, "expected `)`"),
        ("sqrt(0 - 2)", 11, "an even root of a negative number"),
        ("root(2; 3)", 6, "expected `,`"),
        (
            "root(2, 1/2)",
            12,
            "the degree of a root is a whole number from 1 to 12",
        ),
        (
            "root(2, 13)",
            11,
            "the degree of a root is a whole number from 1 to 12",
        ),
        ("2^99", 4, "expected a whole power up to 64"),
        (
            "x",
            1,
            "expected a number: `x` is only allowed in the polynomial of a `root`",
        ),
        ("root(x^99, 1)", 9, "expected a whole power up to 64"),
        ("1e9999", 6, "this number is too large to be kept exact"),
        (&long, 2000, "this number is too large to be kept exact"),
        (&deep, 24, "expected fewer parentheses"),
        ("½", 0, "expected a number"),
    ] {
        let error = text.parse::<Exact>().expect_err(text);
        assert_eq!((error.at, &*error.to_string()), (at, why), "{text}");
    }
}

#[test]
fn powers_cancel() {
    assert_eq!(&sqrt(6) * &sqrt(6), q(6, 1));
    assert_eq!(&sqrt(2) * &sqrt(3), sqrt(6));
    assert_eq!(&sqrt(8) - &(&sqrt(2) * &q(2, 1)), Exact::zero());
    assert_eq!(sqrt(2).root(2).unwrap(), q(2, 1).root(4).unwrap());
    assert_eq!(q(-27, 8).root(3).unwrap(), q(-3, 2));
    assert_eq!(q(64, 729).root(6).unwrap(), q(2, 3));
    let golden = over(&(&q(1, 1) + &sqrt(5)), &q(2, 1));
    assert_eq!(&golden * &golden, &golden + &q(1, 1));
    assert_eq!(golden.recip().unwrap(), &golden - &q(1, 1));
}

/// Nested square roots that are sums of roots of rational numbers are found; roots of other degrees are refused.
#[test]
fn nested_roots() {
    for (inside, found) in [
        (&q(2, 1) + &sqrt(3), "sqrt(2)/2 + sqrt(6)/2"),
        (&q(2, 1) - &sqrt(3), "-sqrt(2)/2 + sqrt(6)/2"),
        (&q(5, 1) + &(&sqrt(6) * &q(2, 1)), "sqrt(2) + sqrt(3)"),
        (&sqrt(8) + &sqrt(6), "root(8, 4)/2 + root(72, 4)/2"),
        (
            &(&q(10, 1) + &(&sqrt(6) * &q(2, 1))) + &(&(&sqrt(10) + &sqrt(15)) * &q(2, 1)),
            "sqrt(2) + sqrt(3) + sqrt(5)",
        ),
    ] {
        match inside.root(2) {
            Ok(root) => {
                assert_eq!(&root * &root, inside);
                assert_eq!(root.sign(), Ordering::Greater);
                assert_eq!(root.to_string(), found);
            }
            Err(why) => panic!("sqrt({inside}): {why}"),
        }
    }
    let nested = &q(2, 1) + &sqrt(2);
    assert_eq!(nested.root(3), Err(ExactError::Nested));
    let cubic = &q(2, 1) + &cube_root(2);
    assert_eq!(cubic.root(2), Err(ExactError::Nested));
}

#[test]
fn refusals() {
    assert_eq!(q(-2, 1).root(2), Err(ExactError::NotReal));
    assert_eq!((&q(1, 1) - &sqrt(2)).root(2), Err(ExactError::NotReal));
    assert_eq!(q(2, 1).root(0), Err(ExactError::Degree));
    assert_eq!(q(2, 1).root(13), Err(ExactError::Degree));
    assert_eq!(sqrt(2).root(8), Err(ExactError::Degree));
    assert_eq!(sqrt(2).root(12), Exact::int(2).root(24));
    let prime = Exact::int(1_000_000_007);
    assert_eq!(prime.root(2), Err(ExactError::PrimeFactor));
    assert_eq!((&prime * &prime).root(2), Ok(prime));
    assert_eq!(Exact::zero().recip(), Err(ExactError::DivisionByZero));
    let primes = [2, 3, 5, 7, 11];
    let wide: Exact = primes.into_iter().map(sqrt).sum();
    assert_eq!(wide.recip(), Err(ExactError::TooLarge));
    let product = primes.into_iter().try_fold(Exact::one(), |p, n| {
        (&p * &(&Exact::one() + &sqrt(n))).checked()
    });
    assert_eq!(product.map(|p| p.weight()), Ok(32));
    assert_eq!(Exact::decimal("1e9999"), Err(ExactError::TooLarge));
}

#[test]
fn decimals() {
    assert_eq!(Exact::decimal("0.1"), Ok(q(1, 10)));
    assert_eq!(Exact::decimal("1e-3"), Ok(q(1, 1000)));
    assert_eq!(Exact::decimal("2.5e2"), Ok(q(250, 1)));
    let huge = Exact::decimal("1e999999999999");
    assert_eq!(huge, Err(ExactError::TooLarge));
    let huge = Exact::decimal("1e99999999999999999999");
    assert_eq!(huge, Err(ExactError::TooLarge));
}

/// Near-cancellation: √10⁶ terms that agree to many digits are told apart.
#[test]
fn signs_of_tiny_numbers() {
    let a = &sqrt(2) + &sqrt(3);
    let decimal = Exact::decimal("3.14626436994197234232913506571557").unwrap();
    let above = Exact::decimal("3.14626436994197234232913506571558").unwrap();
    assert!(decimal < a && a < above);
    let gap = (&a - &decimal).to_f64();
    assert!(gap > 0.0 && gap < 1e-32, "{gap}");
    let power = (0..6).fold(&sqrt(2) - &Exact::one(), |p, _| &p * &p);
    let expected = (2f64.sqrt() - 1.0).powi(64);
    assert!((power.to_f64() / expected - 1.0).abs() < 1e-13);
}

/// Numbers with 400 binary places, for comparison.
const PLACES: u64 = 400;

#[derive(Clone, Debug)]
enum Tree {
    Ratio(i64, i64),
    Root(i64, i64, u32),
    Op(char, Box<Tree>, Box<Tree>),
}

impl Tree {
    fn exact(&self) -> Result<Exact, ExactError> {
        match self {
            Tree::Ratio(n, d) => Ok(q(*n, *d)),
            Tree::Root(n, d, degree) => q(*n, *d).root(*degree),
            Tree::Op(op, a, b) => {
                let (a, b) = (a.exact()?, b.exact()?);
                match op {
                    '+' => &a + &b,
                    '-' => &a - &b,
                    '*' => &a * &b,
                    _ => &a * &b.recip()?,
                }
                .checked()
            }
        }
    }

    fn places(&self) -> Option<BigInt> {
        Some(match self {
            Tree::Ratio(n, d) => (BigInt::from(*n) << PLACES) / d,
            Tree::Root(n, d, degree) => {
                let shift = PLACES * u64::from(*degree);
                ((BigInt::from(*n) << shift) / d).nth_root(*degree)
            }
            Tree::Op(op, a, b) => {
                let (a, b) = (a.places()?, b.places()?);
                match op {
                    '+' => a + b,
                    '-' => a - b,
                    '*' => (a * b) >> PLACES,
                    _ if b.bits() < PLACES / 2 => return None,
                    _ => (a << PLACES) / b,
                }
            }
        })
    }
}

fn tree() -> impl Strategy<Value = Tree> {
    let roots = prop::sample::select(vec![2, 3, 6, 8, 12]);
    let leaf = prop_oneof![
        (-9i64..10, 1i64..6).prop_map(|(n, d)| Tree::Ratio(n, d)),
        (roots, 1i64..4, 2u32..4).prop_map(|(n, d, k)| Tree::Root(n, d, k)),
    ];
    leaf.prop_recursive(3, 12, 2, |inner| {
        let op = prop::sample::select(vec!['+', '-', '*', '/']);
        (op, inner.clone(), inner).prop_map(|(op, a, b)| Tree::Op(op, a.into(), b.into()))
    })
}

/// Numbers of the field of √2, √3 and ∛2, which has degree 12.
fn number() -> impl Strategy<Value = Exact> {
    prop::collection::vec((-5i64..6, 1i64..5, 0u8..2, 0u8..2, 0u8..3), 0..4).prop_map(|terms| {
        let power = |x: Exact, n: u8| (0..n).fold(Exact::one(), |p, _| &p * &x);
        let term = |(n, d, a, b, c): (i64, i64, u8, u8, u8)| {
            let radical = &power(sqrt(2), a) * &power(sqrt(3), b);
            &(&q(n, d) * &radical) * &power(cube_root(2), c)
        };
        terms.into_iter().map(term).sum()
    })
}

proptest! {
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
        prop_assert_eq!(&a * &Exact::one(), a.clone());
        match a.recip() {
            Ok(inverse) => prop_assert_eq!(&a * &inverse, Exact::one()),
            Err(why) => prop_assert!(a.is_zero() && why == ExactError::DivisionByZero),
        }
        prop_assert_eq!(a == b, a.cmp(&b) == Ordering::Equal);
        prop_assert_eq!(a < b, &a + &c < &b + &c);
        prop_assert_eq!((&a * &b).sign() as i8, a.sign() as i8 * b.sign() as i8);
    }

    #[test]
    fn square_roots_of_squares(a in number()) {
        if let Ok(root) = (&a * &a).root(2) {
            prop_assert_eq!(root, if a.is_negative() { -&a } else { a });
        }
    }

    /// Equal to 400 binary places, and 0 exactly where those places are.
    #[test]
    fn high_precision(t in tree()) {
        if let (Ok(x), Some(places)) = (t.exact(), t.places()) {
            prop_assert_eq!(x.is_zero(), places.bits() < PLACES / 4);
            if !x.is_zero() {
                let sign = BigInt::from(x.sign() as i8);
                prop_assert_eq!(BigInt::from(places.sign() == num_bigint::Sign::Plus) * 2 - 1, sign);
                let rounded = num_rational::BigRational::new(places, BigInt::from(1) << PLACES);
                prop_assert_eq!(Some(x.to_f64()), num_traits::ToPrimitive::to_f64(&rounded));
            }
        }
    }
}
