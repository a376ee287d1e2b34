//! Multistep methods on unequal steps: known formulas, orders on random grids, growth of perturbations.

use odec_exact::Exact;
use odec_numerics::multistep::Multistep;
use odec_numerics::variable::{Family, bdf2_is_stable, growth, points};
use proptest::prelude::*;

fn q(n: i64, d: i64) -> Exact {
    Exact::ratio(n, d)
}

fn row(entries: &[(i64, i64)]) -> Vec<Exact> {
    entries.iter().map(|(n, d)| q(*n, *d)).collect()
}

fn method(alpha: &[(i64, i64)], beta: &[(i64, i64)]) -> Multistep {
    let (alpha, beta) = (row(alpha), row(beta));
    Multistep { alpha, beta }
}

/// Methods with their orders on any grid.
fn known() -> Vec<(Multistep, Family, usize)> {
    let quadrature = |from, newest| Family::Quadrature { from, newest };
    vec![
        (
            method(&[(1, 1), (-1, 1), (0, 1)], &[(0, 1), (3, 2), (-1, 2)]),
            quadrature(1, 1),
            2,
        ),
        (
            method(
                &[(1, 1), (-1, 1), (0, 1), (0, 1), (0, 1)],
                &[(0, 1), (55, 24), (-59, 24), (37, 24), (-9, 24)],
            ),
            quadrature(1, 1),
            4,
        ),
        (
            method(&[(1, 1), (-1, 1), (0, 1)], &[(5, 12), (2, 3), (-1, 12)]),
            quadrature(1, 0),
            3,
        ),
        (
            method(&[(1, 1), (0, 1), (-1, 1)], &[(0, 1), (2, 1), (0, 1)]),
            quadrature(2, 1),
            2,
        ),
        (
            method(&[(1, 1), (0, 1), (-1, 1)], &[(1, 3), (4, 3), (1, 3)]),
            quadrature(2, 0),
            3,
        ),
        // Not divided by α₀.
        (
            method(&[(3, 2), (-2, 1), (1, 2)], &[(1, 1), (0, 1), (0, 1)]),
            Family::Differentiation { at: 0 },
            2,
        ),
        (
            method(
                &[(1, 1), (-18, 11), (9, 11), (-2, 11)],
                &[(6, 11), (0, 1), (0, 1), (0, 1)],
            ),
            Family::Differentiation { at: 0 },
            3,
        ),
    ]
}

#[test]
fn families_are_recognised() {
    for (m, family, _) in known() {
        assert_eq!(m.family(), Some(family));
    }
    // Hamming's corrector, and Adams–Bashforth with another weight: nothing says what they are on other grids.
    let hamming = method(
        &[(1, 1), (-9, 8), (0, 1), (1, 8)],
        &[(3, 8), (6, 8), (-3, 8), (0, 1)],
    );
    let bent = method(&[(1, 1), (-1, 1), (0, 1)], &[(0, 1), (5, 4), (-1, 4)]);
    assert_eq!((hamming.family(), bent.family()), (None, None));
}

/// With ω = h/h₁: Adams–Bashforth (1 + ω/2, −ω/2), BDF (Hairer, Nørsett & Wanner 1993, III.5).
#[test]
fn two_steps() {
    let w = q(3, 5);
    let grid = points(&[q(3, 1), q(5, 1)]).unwrap();
    let adams = Family::Quadrature { from: 1, newest: 1 }.on(&grid).unwrap();
    let half = &w * &q(1, 2);
    assert_eq!(
        adams.beta,
        [Exact::zero(), &Exact::one() + &half, -&half].to_vec()
    );
    let bdf = Family::Differentiation { at: 0 }.on(&grid).unwrap();
    let one = Exact::one();
    let sum = &one + &w;
    let over = (&one + &(&w + &w)).recip().unwrap();
    assert_eq!(bdf.alpha[1], -&(&(&sum * &sum) * &over));
    assert_eq!(bdf.alpha[2], &(&w * &w) * &over);
    assert_eq!(bdf.beta[0], &sum * &over);
    // A step forth and the same one back: two points coincide.
    let back = points(&[q(1, 1), q(-1, 1)]).unwrap();
    assert_eq!(Family::Differentiation { at: 0 }.on(&back), None);
}

/// BDF2 with one ratio has the roots 1 and ω²/(1 + 2ω).
#[test]
fn perturbations_grow_beyond_the_bound() {
    let after = |ratio: Exact, steps: usize| {
        let grid = points(&[ratio, Exact::one()]).unwrap();
        let rows = Family::Differentiation { at: 0 }.on(&grid).unwrap();
        growth(&vec![rows.alpha; steps])
    };
    let (stable, unstable) = (q(12, 5), q(5, 2));
    assert!(bdf2_is_stable(&stable) && !bdf2_is_stable(&unstable));
    assert!(after(stable.clone(), 400) < 2.0 * after(stable, 200));
    assert!(after(unstable.clone(), 400) > 100.0 * after(unstable, 200));
    // Adams methods and equal steps: nothing grows.
    let adams = [Exact::one(), Exact::int(-1), Exact::zero()].to_vec();
    assert_eq!(growth(&vec![adams; 20]), 1.0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Σ αᵢ tᵢ^n = n Σ βᵢ tᵢ^(n−1) up to the order, whatever the steps are.
    #[test]
    fn orders_hold_on_every_grid(sizes in prop::collection::vec((1i64..20, 1i64..20), 4)) {
        let sizes: Vec<Exact> = sizes.iter().map(|(n, d)| q(*n, *d)).collect();
        for (m, family, order) in known() {
            let grid = points(&sizes[..m.alpha.len() - 1]).unwrap();
            let rows = family.on(&grid).unwrap();
            let power = |t: &Exact, n: usize| (0..n).fold(Exact::one(), |p, _| &p * t);
            let sum = |row: &[Exact], n: usize| -> Exact {
                row.iter().zip(&grid).map(|(c, t)| c * &power(t, n)).sum()
            };
            prop_assert!(sum(&rows.alpha, 0).is_zero());
            for n in 1..=order {
                prop_assert_eq!(sum(&rows.alpha, n), &Exact::int(n as i64) * &sum(&rows.beta, n - 1));
            }
        }
    }
}
