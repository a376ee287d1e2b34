//! Methods designed: each search reaches the optimum that the literature knows, by certified values of exact coefficients.

use odec_exact::Exact;
use odec_numerics::design::runge_kutta::{Request, design};
use odec_numerics::design::{Design, Goal, Method, Refused, sdirk, splitting};
use odec_numerics::line::{Line, Step};
use odec_numerics::order::{Weights, prove};
use odec_numerics::stability::Stability;
use odec_numerics::words::Words;
use odec_numerics::{Tableau, Trees};

fn request(stages: usize, order: usize, goal: Goal) -> Request {
    Request {
        stages,
        order,
        goal,
        zeros: Vec::new(),
        loss: 1e-4,
    }
}

fn tableau(d: &Design) -> &Tableau {
    match &d.method {
        Method::Tableau(t) => t,
        Method::Flows(_) => panic!("a tableau"),
    }
}

/// A design that has the order that is asked, exactly.
fn found(request: &Request) -> Design {
    let d = design(request, &mut |_| {}).expect("a method");
    let t = tableau(&d);
    let mut weights = Weights::new(t).expect("fractions");
    let order = prove(&mut weights, &mut Trees::new(1), d.order, None).order;
    assert!(t.is_explicit() && t.stages() == request.stages);
    assert!(order == d.order && order >= request.order);
    d
}

/// A share of a level that the literature gives is certified.
fn reaches(stages: usize, order: usize, goal: Goal, known: f64) {
    let d = found(&request(stages, order, goal));
    let level = d.level.as_ref().expect("a certified level").float();
    let name = goal.name();
    assert!(level >= 0.999 * known, "{stages} {order} {name}: {level}");
    // Nothing is better than what is proved to be best.
    assert!(
        level <= known * (1.0 + 1e-6),
        "{stages} {order} {name}: {level}"
    );
}

/// Gottlieb, Shu & Tadmor 2001; Spiteri & Ruuth 2002, SIAM J. Numer. Anal. 40, 469: s for order 1, s − 1 for order 2, 1 and 2 for order 3.
#[test]
fn ssp_coefficients_are_those_of_the_literature() {
    reaches(2, 1, Goal::Ssp, 2.0);
    reaches(3, 1, Goal::Ssp, 3.0);
    reaches(2, 2, Goal::Ssp, 1.0);
    reaches(4, 2, Goal::Ssp, 3.0);
    reaches(3, 3, Goal::Ssp, 1.0);
    reaches(4, 3, Goal::Ssp, 2.0);
}

/// Kinnmark & Gray 1984, Math. Comput. Simul. 26, 181: s − 1 for order 2 and odd s; √((s − 1)² − 1) for order 3 with odd s and order 4 with
/// even s.
#[test]
fn imaginary_axes_are_those_of_the_literature() {
    reaches(3, 2, Goal::ImaginaryAxis, 2.0);
    reaches(3, 3, Goal::ImaginaryAxis, 3f64.sqrt());
    reaches(4, 4, Goal::ImaginaryAxis, 8f64.sqrt());
    // The best polynomial of order 3 has order 4.
    reaches(4, 3, Goal::ImaginaryAxis, 8f64.sqrt());
}

/// Chebyshev polynomials: 2s² (Hairer & Wanner 1996, IV.2). Order 2 with three stages: 6.2607 (Abdulle & Medovikov 2001).
#[test]
fn real_axes_are_those_of_the_literature() {
    reaches(2, 1, Goal::RealAxis, 8.0);
    reaches(3, 1, Goal::RealAxis, 18.0);
    reaches(3, 2, Goal::RealAxis, 6.260797);
}

/// Ralston 1962, Math. Comp. 16, 431: 2/3 with two stages, 1/2 and 3/4 with three.
#[test]
fn least_errors_are_ralstons() {
    let nodes = |stages: usize, goal: Goal| tableau(&found(&request(stages, stages, goal))).nodes();
    let q = Exact::ratio;
    assert_eq!(nodes(2, Goal::Error)[1], q(2, 3));
    assert_eq!(nodes(3, Goal::ErrorBound)[1..], [q(1, 2), q(3, 4)]);
    // The least norm is a little smaller than Ralston's.
    let least = found(&request(3, 3, Goal::Error)).error;
    assert!(least < 0.041_812 && least > 0.0415);
}

#[test]
fn coefficients_that_are_to_be_0_are() {
    let asked = Request {
        zeros: vec![(2, 0), (4, 1)],
        ..request(4, 3, Goal::Error)
    };
    let d = found(&asked);
    let t = tableau(&d);
    assert!(t.a[2][0].is_zero() && t.b[1].is_zero());
}

/// The flows of a symmetric splitting whose order is proved.
fn flows(stages: usize, order: usize, loss: f64) -> (Vec<(usize, Exact)>, f64) {
    let d = splitting::design(stages, order, loss, &mut |_| {}).expect("a splitting");
    let Method::Flows(flows) = d.method else {
        panic!("flows")
    };
    assert!(flows.len() == 2 * stages + 1 && flows.iter().eq(flows.iter().rev()));
    let step = |(n, (field, part)): (usize, &(usize, Exact))| Step::Flow {
        field: *field,
        at: n,
        fraction: part.clone(),
    };
    let line = Line {
        fields: vec!["A".into(), "B".into()],
        steps: flows.iter().enumerate().map(step).collect(),
        result: flows.len(),
        embedded: None,
    };
    let mut words = Words::new(&line).expect("flows").expect("few roots");
    let proved = prove(&mut words, &mut Trees::tall(2), order + 1, None).order;
    assert_eq!(proved, order);
    (flows, d.error)
}

/// McLachlan 1995, SIAM J. Sci. Comput. 16, 151: a ≈ 0.1931833275 with two stages; with five of order 4 no worse than his, by the same norm.
#[test]
fn splittings_are_mclachlans_or_better() {
    let (two, _) = flows(2, 2, 1e-6);
    assert!((two[0].1.to_f64() - 0.193_183_327_503_783_6).abs() < 1e-3);
    let (_, strang) = flows(1, 2, 1e-6);
    assert!(strang > 0.09);

    let root = Exact::int(19).root(2).unwrap();
    let number = |whole: i64, roots: i64, under: i64| {
        &(&Exact::int(whole) + &(&root * &Exact::int(roots))) * &Exact::ratio(1, under)
    };
    let (a1, b1) = (number(14, -1, 108), number(146, 5, 540));
    let (a2, b2) = (number(-23, -20, 270), number(-2, 10, 135));
    let m = Exact::ratio(1, 5);
    let half = [a1.clone(), &a1 + &b1, &b1 + &a2, &a2 + &b2, &b2 + &m];
    let middle = &m + &m;
    let all = half.iter().chain([&middle]).chain(half.iter().rev());
    let known: Vec<(usize, Exact)> = all.enumerate().map(|(n, c)| (n % 2, c.clone())).collect();
    let (_, five) = flows(5, 4, 1e-4);
    assert!(five <= splitting::error(&known, 4));
    let (_, four) = flows(4, 4, 1e-4);
    assert!(five < four);
}

/// Alexander 1977: γ = 1 − √2/2; Crouzeix 1975, Nørsett 1974: γ = 1/2 + √3/6.
#[test]
fn diagonally_implicit_methods_are_those_of_the_literature() {
    let d = sdirk::design(2, 2, true, 1e-4).expect("a method");
    let t = tableau(&d);
    let root = |n: i64| Exact::int(n).root(2).unwrap();
    assert_eq!(t.a[0][0], &Exact::one() - &(&root(2) * &Exact::ratio(1, 2)));
    assert_eq!(Stability::new(t).unwrap().l_stable, Some(true));
    let d = sdirk::design(2, 3, false, 1e-4).expect("a method");
    let gamma = &Exact::ratio(1, 2) + &(&root(3) * &Exact::ratio(1, 6));
    assert_eq!(tableau(&d).a[1][1], gamma);
    assert_eq!(Stability::new(tableau(&d)).unwrap().a_stable, Some(true));
}

#[test]
fn what_cannot_be_is_refused() {
    let refused = |stages, order, goal| {
        let e = design(&request(stages, order, goal), &mut |_| {}).expect_err("no method");
        match e {
            Refused::Impossible { what, .. } => what,
            Refused::NotFound => "not found".into(),
        }
    };
    assert!(refused(5, 5, Goal::Error).contains("takes 6"));
    assert!(refused(2, 3, Goal::Ssp).contains("takes 3"));
    assert!(refused(9, 5, Goal::Ssp).contains("strong stability"));
    assert!(refused(4, 4, Goal::Ssp).contains("strong stability"));
    assert!(refused(7, 5, Goal::Error).contains("above 4"));
    assert!(refused(40, 2, Goal::RealAxis).contains("more than 8"));
    assert!(refused(0, 1, Goal::Error).contains("begin with 1"));
}
