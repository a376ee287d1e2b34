//! Methods designed: each search reaches the optimum that the literature knows, by certified values of exact coefficients.

use odec_exact::Exact;
use odec_numerics::design::runge_kutta::{Request, design, error_of};
use odec_numerics::design::{Design, Goal, Method, Refused, registers, sdirk, splitting};
use odec_numerics::linear_step::{LinearStep, Step};
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
        other => panic!("{other:?}"),
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
    // Kraaijevanger 1991, BIT 31, 482; Spiteri & Ruuth 2002.
    reaches(5, 4, Goal::Ssp, 1.508_180_05);
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

/// Heun's: weights that are 0 determine the nodes 1/3 and 2/3.
#[test]
fn zeros_may_determine_nodes() {
    let asked = Request {
        zeros: vec![(2, 0), (3, 1)],
        ..request(3, 3, Goal::Error)
    };
    let d = found(&asked);
    let q = Exact::ratio;
    assert_eq!(tableau(&d).b, [q(1, 4), q(0, 1), q(3, 4)]);
    assert_eq!(tableau(&d).nodes(), [q(0, 1), q(1, 3), q(2, 3)]);
}

/// A method of two registers: its tableau, proved to be of the order within what is said.
fn two(stages: usize, order: usize, goal: Goal) -> (Design, Tableau) {
    let d = registers::design(&request(stages, order, goal), &mut |_| {}).expect("a method");
    let Method::Registers { a, b } = &d.method else {
        panic!("{:?}", d.method)
    };
    assert!(a.len() == stages - 1 && b.len() == stages);
    // The stages and the step by the recurrence, as it is computed.
    let (mut y, mut q) = (vec![Exact::zero(); stages], vec![Exact::zero(); stages]);
    let mut rows = Vec::new();
    for i in 0..stages {
        rows.push(y.clone());
        for (j, q) in q.iter_mut().enumerate() {
            let before = if i > 0 {
                &*q * &a[i - 1]
            } else {
                Exact::zero()
            };
            *q = if i == j { Exact::one() } else { before };
        }
        for (y, q) in y.iter_mut().zip(&q) {
            *y = &*y + &(q * &b[i]);
        }
    }
    let t = Tableau::single(rows, y);
    let mut weights = Weights::new(&t).expect("fractions");
    let proof = prove(&mut weights, &mut Trees::new(1), order, d.within.as_ref());
    assert_eq!(proof.order, order);
    (d, t)
}

/// Williamson 1980, J. Comput. Phys. 35, 48: exact fractions of order 3 with three stages. Carpenter & Kennedy 1994, NASA TM-109112: five stages of order 4.
#[test]
fn two_registers_are_williamsons_and_carpenters_and_kennedys() {
    let (d, _) = two(3, 3, Goal::Error);
    assert_eq!(d.within, None);
    // No worse than Williamson's method with the nodes 1/3 and 3/4, whose error is 0.04398.
    assert!(d.error < 0.0425, "{}", d.error);

    let small = Exact::ratio(1, 10_i64.pow(18));
    let nearly = |d: &Design| {
        d.within
            .as_ref()
            .is_some_and(|w| (w - &small).is_negative())
    };
    let axis = |goal: Goal, least: f64, most: f64| {
        let (d, t) = two(5, 4, goal);
        let level = goal.certified(&t).expect("a level").float();
        assert!(nearly(&d) && level > least && level < most, "{level}");
    };
    // What the best stability polynomials have (Kinnmark & Gray 1984; van der Houwen 1977).
    axis(
        Goal::ImaginaryAxis,
        0.999 * 12f64.sqrt(),
        12f64.sqrt() + 1e-6,
    );
    axis(Goal::RealAxis, 6.05, 6.07);
    let (d, _) = two(5, 4, Goal::Error);
    assert!(nearly(&d) && d.error < 0.003_36, "{}", d.error);
    let (_, t) = two(4, 3, Goal::RealAxis);
    assert!(Goal::RealAxis.certified(&t).unwrap().float() > 6.02);

    let refused = registers::design(&request(4, 4, Goal::Error), &mut |_| {}).expect_err("none");
    assert!(matches!(refused, Refused::Impossible { .. }));
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
    let line = LinearStep {
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
    // Three stages: γ is a root of γ³ − 3γ² + 3/2 γ − 1/6 (Alexander 1977), of γ³ − 3/2 γ² + γ/2 − 1/24 (Crouzeix 1975).
    let three = |damped: bool, order: usize, gamma: f64| {
        let d = sdirk::design(3, order, damped, 1e-4).expect("a method");
        let t = tableau(&d).clone();
        let stable = Stability::new(&t).unwrap();
        let is = if damped {
            stable.l_stable
        } else {
            stable.a_stable
        };
        let mut weights = Weights::new(&t).expect("one root");
        let proved = prove(&mut weights, &mut Trees::new(1), d.order, None).order;
        assert!(is == Some(true) && proved == d.order && d.order == order);
        let near = |i: usize| (t.a[i][i].to_f64() - gamma).abs() < 1e-12;
        assert!(near(0) && near(1) && near(2), "{}", t.a[0][0]);
        (t, d.error)
    };
    let (t, least) = three(true, 3, 0.435_866_521_508_459);
    // Alexander's own method has the nodes (1 + γ)/2 and 1, and no smaller error.
    let gamma = &t.a[0][0];
    let of = |square: i64, linear: i64, whole: i64| {
        let square = &(gamma * gamma) * &Exact::int(square);
        &(&square + &(gamma * &Exact::int(linear))) + &Exact::int(whole)
    };
    let quarter = Exact::ratio(1, 4);
    let b = vec![
        &of(-6, 16, -1) * &quarter,
        &of(6, -20, 5) * &quarter,
        gamma.clone(),
    ];
    let middle = &(&Exact::one() - gamma) * &Exact::ratio(1, 2);
    let zero = Exact::zero;
    let rows = vec![
        vec![gamma.clone(), zero(), zero()],
        vec![middle, gamma.clone(), zero()],
        b.clone(),
    ];
    let alexander = error_of(&Tableau::single(rows, b), 3).expect("a norm");
    assert!(
        least < alexander && alexander < 2.0 * least,
        "{least} {alexander}"
    );
    three(false, 4, 1.068_579_021_301_628_8);
    assert_eq!(sdirk::design(3, 2, true, 1e-4).unwrap().order, 3);
    for (stages, order, damped) in [
        (3, 4, true),
        (3, 5, false),
        (2, 3, true),
        (3, 1, false),
        (4, 3, true),
    ] {
        let refused = sdirk::design(stages, order, damped, 1e-4).expect_err("no method");
        assert!(matches!(refused, Refused::Impossible { .. }));
    }
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
