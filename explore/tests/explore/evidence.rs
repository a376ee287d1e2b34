//! Statistics against published values and exact small cases; comparisons of models.

use odec_explore::executed::Executed;
use odec_explore::fit::{Point, fit};
use odec_explore::rank::{Against, Difference, LEVEL, Row, compare};
use odec_explore::student::{half_width, holm, moments, needed, of_mean, quantile, two_sided};

fn close(a: f64, b: f64) {
    assert!((a - b).abs() <= 1e-12 * b.abs().max(1e-3), "{a} is not {b}");
}

/// `2 * scipy.stats.t.sf(t, df)` and `scipy.stats.t.ppf(0.975, df)`, scipy 1.17.
#[test]
fn probabilities_are_those_of_scipy() {
    for (t, freedom, p) in [
        (2.0, 1.0, 0.2951672353008665),
        (4.303, 2.0, 0.0499925249852145),
        (2.5, 2.0, 0.12961172022151082),
        (3.0, 4.0, 0.03994196807171883),
        (0.7, 9.0, 0.501619039216145),
        (1.96, 1000.0, 0.050273184955748736),
        (12.0, 3.0, 0.0012450158007893362),
    ] {
        close(two_sided(t, freedom), p);
    }
    for (freedom, t) in [
        (1.0, 12.706204736174694),
        (2.0, 4.302652729749462),
        (3.0, 3.1824463052837078),
        (4.0, 2.7764451051977934),
        (9.0, 2.262157162798205),
        (29.0, 2.045229642132703),
    ] {
        close(quantile(0.05, freedom), t);
    }
}

/// With one degree of freedom t is a Cauchy variable, with two its distribution is algebraic.
#[test]
fn small_cases_have_closed_forms() {
    for t in [0.0, 0.3, 1.0, 7.5, 100.0] {
        let cauchy = 1.0 - 2.0 / std::f64::consts::PI * f64::atan(t);
        assert!((two_sided(t, 1.0) - cauchy).abs() < 1e-13, "{t}");
        let two = 1.0 - t / f64::sqrt(2.0 + t * t);
        assert!((two_sided(t, 2.0) - two).abs() < 1e-13, "{t}");
    }
    assert_eq!(two_sided(f64::INFINITY, 3.0), 0.0);
}

/// `scipy.stats.ttest_rel([2.27, 2.28, 2.30, 2.26], [2.31, 2.29, 2.33, 2.30])` with its confidence interval.
#[test]
fn paired_differences_are_tested_as_scipy_does() {
    let d = [2.27 - 2.31, 2.28 - 2.29, 2.30 - 2.33, 2.26 - 2.30];
    let (mean, deviation) = moments(&d).unwrap();
    let deviation = deviation.unwrap();
    let p = of_mean(mean, deviation, 4);
    assert!((p - 0.02398119979065598).abs() < 1e-12, "{p}");
    let half = half_width(deviation, 4);
    assert!((mean - half - -0.052503293632281824).abs() < 1e-12);
    assert!((mean + half - -0.007496706367718452).abs() < 1e-12);
}

/// The example of Holm's paper in words: the smallest is held against all, the next against one less.
#[test]
fn corrections_are_those_of_holm() {
    let found = holm(&[0.01, 0.04, 0.03, 0.005]);
    for (found, want) in found.iter().zip([0.03, 0.06, 0.06, 0.02]) {
        assert!((found - want).abs() < 1e-15, "{found} is not {want}");
    }
    assert_eq!(holm(&[0.9, 0.6]), [1.0, 1.0]);
    assert!(holm(&[]).is_empty());
}

#[test]
fn the_number_of_seeds_is_the_first_that_suffices() {
    let n = needed(0.1, 0.2, 0.05).unwrap();
    assert!(of_mean(0.1, 0.2, n) <= 0.05 && of_mean(0.1, 0.2, n - 1) > 0.05);
    assert_eq!(n, 18);
    assert_eq!(needed(0.0, 0.2, 0.05), None);
    assert_eq!(needed(1e-6, 1.0, 0.05), None);
    assert_eq!(needed(1.0, 0.0, 0.05), Some(2));
}

#[test]
fn one_number_has_no_deviation() {
    assert_eq!(moments(&[]), None);
    assert_eq!(moments(&[3.0]), Some((3.0, None)));
    assert_eq!(moments(&[1.0, 3.0]), Some((2.0, Some(f64::sqrt(2.0)))));
    assert_eq!(of_mean(0.0, 0.0, 2), 1.0);
}

fn row(model: usize, seeds: &[u64], values: &[f64], diverged: usize) -> Row {
    let known = moments(values);
    Row {
        model,
        rung: 0,
        seeds: seeds.to_vec(),
        values: values.to_vec(),
        diverged,
        mean: known.map(|(mean, _)| mean),
        half: None,
        against: Against::Itself,
        executed: Executed::default(),
    }
}

/// Compares all but the first with it.
fn against_first(rows: &mut [Row]) {
    let (first, others) = rows.split_first_mut().expect("rows");
    compare(std::slice::from_ref(first), others);
}

fn difference(r: &Row) -> &Difference {
    match &r.against {
        Against::Compared(d) => d,
        other => panic!("{other:?}"),
    }
}

/// Pairs, p and interval of `scipy.stats.ttest_rel`; two comparisons double the smaller p.
#[test]
fn differences_are_paired_by_seed_and_corrected() {
    let first = [2.31, 2.29, 2.33, 2.30];
    let mut rows = [
        row(0, &[0, 1, 2, 3], &first, 0),
        // The same seeds in another order, and one that has no partner.
        row(1, &[3, 2, 1, 0, 9], &[2.26, 2.30, 2.28, 2.27, 7.0], 0),
        row(2, &[0, 1, 2, 3], &[2.30, 2.31, 2.32, 2.30], 0),
    ];
    against_first(&mut rows);
    assert_eq!(rows[0].against, Against::Itself);
    let better = difference(&rows[1]);
    assert_eq!(better.seeds, 4);
    assert!((better.mean + 0.03).abs() < 1e-12);
    assert!((better.p - 0.02398119979065598).abs() < 1e-12);
    assert!((better.corrected - 2.0 * better.p).abs() < 1e-15);
    assert!(better.holds && better.needed.is_none());
    let other = difference(&rows[2]);
    assert!(!other.holds && other.corrected == other.p);
    assert!(
        other.mean.abs() < 1e-12 && other.needed.is_none(),
        "{other:?}"
    );
}

#[test]
fn what_is_missing_is_said() {
    let mut rows = [
        row(0, &[0, 1], &[2.0, 2.1], 0),
        row(1, &[0], &[1.0], 0),
        row(2, &[5], &[1.0], 0),
        row(3, &[0], &[1.0], 1),
    ];
    against_first(&mut rows);
    let why = |r: &Row| match r.against {
        Against::NotCompared(why) => why,
        _ => panic!("{r:?}"),
    };
    assert_eq!(why(&rows[1]), "one seed says nothing about chance");
    assert_eq!(why(&rows[2]), "no seed in common");
    assert_eq!(why(&rows[3]), "it diverged");
}

#[test]
fn how_many_seeds_might_show_a_difference_is_estimated() {
    let mut rows = [
        row(0, &[0, 1, 2], &[2.0, 2.0, 2.0], 0),
        row(1, &[0, 1, 2], &[1.9, 2.05, 1.95], 0),
    ];
    against_first(&mut rows);
    let d = difference(&rows[1]);
    assert!(!d.holds);
    let n = d.needed.expect("a number");
    assert!(of_mean(d.mean, d.deviation, n) <= LEVEL);
    assert!(of_mean(d.mean, d.deviation, n - 1) > LEVEL);
}

fn points(of: &[(f64, f64)]) -> Vec<Point> {
    let each = of.iter().enumerate();
    each.map(|(model, (flops, loss))| Point {
        model,
        flops: *flops,
        loss: *loss,
    })
    .collect()
}

/// `scipy.stats.linregress` of logarithms with `scipy.stats.t`, and `scipy.optimize.least_squares` for the law with a constant, with the covariance of its Jacobian; scipy 1.17.
#[test]
fn laws_are_those_of_scipy() {
    let sizes = [
        (1e9, 3.91),
        (3e9, 3.42),
        (1e10, 2.98),
        (3e10, 2.71),
        (1e11, 2.49),
        (4e11, 2.31),
    ];
    let near = |x: f64, want: f64, within: f64| {
        assert!((x / want - 1.0).abs() < within, "{x} is not {want}");
    };
    let three = fit("m".into(), points(&sizes[..3])).expect("sizes");
    let law = three.law.expect("a law");
    assert_eq!((law.c, three.with_constant, &three.why), (0.0, None, &None));
    near(law.a, 44.94250320578608, 1e-9);
    near(law.b, 0.11790351337345369, 1e-9);
    near(law.b_half_width, 0.027405410519393127, 1e-9);
    // In whatever order they come.
    let mut all = points(&sizes);
    all.reverse();
    let six = fit("m".into(), all).expect("sizes");
    near(
        six.law.expect("a law").b_half_width,
        0.019399893157025592,
        1e-9,
    );
    let law = six.with_constant.expect("a law with a constant");
    near(law.a, 540.1870554130422, 1e-4);
    near(law.b, 0.26998418862388324, 1e-6);
    near(law.c, 1.9105080035850006, 1e-6);
    near(law.b_half_width, 0.03136499077771496, 1e-4);
}

/// Two sizes are no law, one is nothing to tell of; points of a law without a constant have none.
#[test]
fn too_few_sizes_are_told_and_no_constant_is_made_up() {
    let at = |flops: &[f64]| -> Vec<Point> {
        let law = |c: &f64| (*c, 20.0 * c.powf(-0.1));
        points(&flops.iter().map(law).collect::<Vec<_>>())
    };
    assert_eq!(fit("m".into(), at(&[1e9, 1.005e9])), None);
    for flops in [&[1e9, 2e9][..], &[1e9, 1.001e9, 2e9]] {
        let two = fit("m".into(), at(flops)).expect("sizes");
        assert_eq!((two.law, two.with_constant), (None, None));
        let why = two.why.expect("why");
        assert!(
            why.starts_with("2 sizes: ") && why.contains("needs 3"),
            "{why}"
        );
    }
    let five = fit("m".into(), at(&[1e9, 2e9, 5e9, 1e10, 3e10])).expect("sizes");
    let law = five.law.expect("a law");
    close(law.b, 0.1);
    assert!(
        law.b_half_width < 1e-9 && five.with_constant.is_none(),
        "{five:?}"
    );
}
