//! Whether the roots of a polynomial lie in the closed unit disc (the root condition, Hairer, Nørsett & Wanner, III.3.2).

use crate::descartes::odd_roots;
use crate::poly::Poly;
use odec_exact::Exact;

/// Whether all roots lie in the closed unit disc, those on the circle being simple, and how many those are.
pub(crate) fn root_condition(p: &Poly) -> Option<(bool, usize)> {
    if p.degree() == 0 {
        return Some((true, 0));
    }
    // Roots at 0 lie inside.
    let lowest = p.0.iter().position(|c| !c.is_zero())?;
    let p = Poly::new(p.0[lowest..].to_vec());
    let paired = p.gcd(&p.reversed())?;
    let rest = p.divided(&paired)?.0;
    // ζ = (1 + w)/(1 − w) takes the inside to the left half-plane.
    let n = rest.degree();
    let (plus, minus) = (
        Poly::new(vec![Exact::one(), Exact::one()]),
        Poly::new(vec![Exact::one(), Exact::int(-1)]),
    );
    let mut mapped = Poly::default();
    for (i, c) in rest.0.iter().enumerate() {
        let power =
            |p: &Poly, n: usize| (0..n).fold(Poly::constant(Exact::one()), |q, _| q.times(p));
        mapped = mapped.plus(&power(&plus, i).times(&power(&minus, n - i)).scaled(c));
    }
    let inside = mapped.degree() == n && mapped.is_hurwitz()?;
    let simple = paired.gcd(&paired.derivative())?.degree() == 0;
    let circle = paired.degree();
    Some((inside && simple && on_circle(&paired)?, circle))
}

/// Whether all roots of a polynomial whose roots come in pairs ζ, 1/ζ, and are simple, lie on the unit circle.
fn on_circle(p: &Poly) -> Option<bool> {
    let mut p = p.clone();
    for root in [1, -1] {
        if p.at(&Exact::int(root)).is_zero() {
            let factor = Poly::new(vec![Exact::int(-root), Exact::one()]);
            p = p.divided(&factor)?.0;
        }
    }
    let m = p.degree() / 2;
    if p.degree() % 2 == 1 {
        return Some(false);
    }
    // ζⁿ + ζ⁻ⁿ as a polynomial in x = ζ + 1/ζ.
    let x = Poly::new(vec![Exact::zero(), Exact::one()]);
    let mut powers = vec![Poly::constant(Exact::int(2)), x.clone()];
    while powers.len() <= m {
        let n = powers.len();
        powers.push(x.times(&powers[n - 1]).minus(&powers[n - 2]));
    }
    let mut folded = Poly::constant(p.coefficient(m));
    for (n, power) in powers.iter().enumerate().take(m + 1).skip(1) {
        folded = folded.plus(&power.scaled(&p.coefficient(m + n)));
    }
    let two = Exact::int(2);
    Some(odd_roots(&folded, &-&two, &two)?.len() == m)
}
