//! Methods on an equation with a known solution, on the reference device.

use crate::systems::options;
use odec_compiler::measure::{
    Curve, Entry, INPUT, MeasureError, OUTPUT, Planned, Problem, Stepper, measure, of_text,
};
use odec_graph::Exact;
use odec_library::shipped;
use odec_runtime::device::reference::ReferenceDevice;
use odec_runtime::infer::integrate::integrate;
use odec_runtime::{Artifact, Executor};
use std::collections::BTreeSet;

fn run(p: &Planned) -> Result<Vec<f64>, MeasureError> {
    let artifact = Artifact::in_memory(p.manifest.clone()).expect("the manifest is consistent");
    let device = ReferenceDevice::new(&artifact.manifest().program.kernels);
    let mut x = Executor::new(&artifact, Box::new(device)).unwrap();
    let params = p.matrices.iter().map(|m| (m.path.as_str(), &m.values[..]));
    let params: Vec<(&str, &[f64])> = params.collect();
    Ok(integrate(&mut x, &params, &p.problem.start(), (INPUT, OUTPUT), p.runs).unwrap())
}

fn measured(e: &Entry, problem: Problem) -> Curve {
    measure(e, problem, options(), &mut run).unwrap_or_else(|why| panic!("{}: {why}", e.name))
}

/// One of each kind, on both systems.
#[test]
fn methods_have_the_order_that_is_proved() {
    let names = [
        "rk4",
        "gauss4",
        "ab3",
        "abm4",
        "butcher_hybrid5",
        "strang",
        "suzuki4",
        "imex_euler",
        "parallel",
        "dormand_prince6",
        "etdrk4",
        "hochbruck_ostermann4",
    ];
    for name in names {
        let e = &named(name);
        let proved = e.proved.unwrap() as f64;
        let order = measured(e, e.graded().unwrap()).order.unwrap();
        assert!(
            (order - proved).abs() < 0.1,
            "{name}: {order} measured, {proved} proved"
        );
        let general = measured(e, Problem::General).order.unwrap();
        assert!(
            general > proved - 0.1,
            "{name}: {general} measured, {proved} proved"
        );
    }
}

/// Coefficients and times of evaluations are arguments of launches, so that methods share kernels: each would be compiled for each step size otherwise.
#[test]
fn step_sizes_share_kernels() {
    for name in ["rk4", "abm4", "dormand_prince6"] {
        let e = named(name);
        for problem in [Problem::General, e.graded().unwrap()] {
            let kernels = |steps| {
                let planned = Stepper::new(&e.flow).plan(problem, steps, (93, 50), options());
                let program = planned.unwrap().manifest.program;
                let symbols = program.kernels.into_iter().map(|k| k.symbol);
                symbols.collect::<BTreeSet<_>>()
            };
            assert_eq!(kernels(8), kernels(12), "{name}");
        }
    }
}

/// A scheme of the library.
fn named(name: &str) -> Entry {
    let all = of_text(name, shipped::text(name), shipped::library());
    let mut all = all.unwrap().into_iter();
    all.find(|e| e.name == name).unwrap()
}

/// A method that solves its equation by iteration evaluates iterates at the end of the step, whose time is exact where their states are not: orders
/// are those of the states all the same.
#[test]
fn methods_of_few_iterations_have_the_order_that_is_proved() {
    let multistep = |beta: &str, alpha: &str, by: &str, n: usize| {
        format!(
            "scheme own(F) {{ multistep {{ alpha {alpha}; beta {beta} }}{by}  solve by fixed_point(iterations: {n}) }}"
        )
    };
    let solved = |at: &str| {
        format!(
            "scheme own(F) {{ step x {{ f = F(x)
             solve y = x + h/2*f + h/2*F(y{at}) from x by fixed_point(iterations: 1)  return y }} }}"
        )
    };
    let schemes = [
        (1, multistep("1", "1 -1", "", 1)),
        (2, multistep("1/2 1/2", "1 -1", "", 1)),
        (
            2,
            multistep("5/12 8/12 -1/12", "1 -1", "  start by kutta3", 1),
        ),
        (
            3,
            multistep("5/12 8/12 -1/12", "1 -1", "  start by kutta3", 2),
        ),
        (
            2,
            multistep("9/24 19/24 -5/24 1/24", "1 -1", "  start by rk4", 1),
        ),
        (2, multistep("2/3", "1 -4/3 1/3", "  start by heun", 1)),
        (1, solved("")),
        (1, solved(", at: 1")),
    ];
    for (proved, text) in schemes {
        let e = &of_text("own.ode", &text, shipped::library()).unwrap()[0];
        assert_eq!(e.proved, Some(proved), "{text}");
        for problem in [e.graded().unwrap(), Problem::General] {
            let curve = measured(e, problem);
            let found = curve.order.unwrap_or_else(|| panic!("{curve:?} {text}"));
            let off = (found - proved as f64).abs();
            assert!(off < 0.1, "{found} measured on {problem:?}: {text}");
        }
    }
}

/// Ruth's third method on positions and momenta: there is no system of two such fields, and its order is proved all the same.
#[test]
fn what_is_not_measured_is_proved() {
    let text = "scheme own(A, B, P) { start { p = P(x) } step x {
        p1 = p[-1] + h*7/24*B(x);  y = x + h*2/3*A(p1)
        p2 = p1 + h*3/4*B(y);  z = y - h*2/3*A(p2)
        p = p2 - h/24*B(z);  return z + h*A(p) } }";
    let e = &of_text("own.ode", text, shipped::library()).unwrap()[0];
    assert_eq!((e.proved, e.graded()), (Some(3), None));
    let why = e.unmeasured().unwrap();
    assert!(why.contains("x' = A(p)"), "{why}");
}

/// A field sees the time that `at:` says and not that of its argument; beside values of earlier steps too.
#[test]
fn a_wrong_time_is_measured() {
    let one_step = |at: &str| {
        format!("scheme own(F) {{ order 2  step x {{ return x + h*F(x + h/2*F(x){at}) }} }}")
    };
    let history = |at: &str| {
        format!(
            "scheme own(F) {{ order 3  step x {{ f = F(x)  u = x[-1] + h/8*(9*f + 3*f[-1])
             return x + h*(F(u{at}) + 1/24*(f - 2*f[-1] + f[-2])) }}  start by kutta3 }}"
        )
    };
    let two_fields = |at: &str| {
        format!(
            "scheme own(F, G) {{ order 2  step x {{ y = x + h/2*(F(x) + G(x))
             return x + h*(F(y{at}) + G(y)) }} }}"
        )
    };
    let times = ["", ", at: 1/2", ", at: 0"];
    let schemes = [
        (2, times.map(one_step)),
        (3, times.map(history)),
        (2, times.map(two_fields)),
    ];
    for (proved, texts) in schemes {
        for (text, order) in texts.iter().zip([proved, proved, 1]) {
            let all = of_text("own.ode", text, shipped::library()).unwrap();
            let e = &all[0];
            assert_eq!(e.proved, Some(proved), "{text}");
            for problem in [e.graded().unwrap(), Problem::General] {
                let curve = measured(e, problem);
                let found = curve.order.unwrap_or_else(|| panic!("{curve:?} {text}"));
                let off = (found - order as f64).abs();
                // With a wrong time errors have terms of two orders, on the graded system too.
                assert!(off < 0.2, "{found} measured on {problem:?}: {text}");
            }
        }
    }
}

/// A grid of `steps` steps until about 1: the same few sizes again and again, drawn from a seed, none more than 5/3 of another.
fn grid(seed: u64, steps: usize) -> Vec<Exact> {
    let mut state = seed;
    let mut drawn = || {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        12 + (state >> 33) as i64 % 9
    };
    let sizes: Vec<i64> = (0..5).map(|_| drawn()).collect();
    (0..steps)
        .map(|k| Exact::ratio(sizes[k % 5], 16 * steps as i64))
        .collect()
}

/// The slope of the error between two grids of one kind.
fn slope(e: &Entry, seed: u64, steps: usize) -> f64 {
    let error = |steps: usize| {
        let sizes = grid(seed, steps);
        let end: f64 = sizes.iter().map(Exact::to_f64).sum();
        let planned = Stepper::new(&e.flow)
            .plan_on(Problem::General, &sizes, options())
            .unwrap();
        Problem::General.error(&run(&planned).unwrap(), end)
    };
    (error(steps) / error(2 * steps)).log2()
}

/// Methods with the coefficients of the grid have their order on it; others have the one that is proved, which is lower.
#[test]
fn orders_on_unequal_steps_are_measured() {
    let mine = of_text(
        "mine.ode",
        "scheme mine(F) { order 2  step x { f = F(x)  return x + h*(3/2*f - 1/2*f[-1]) }  start by heun }\n\
         scheme pece(F) { order 3  step x { f = F(x)  p = x + h/12*(23*f - 16*f[-1] + 5*f[-2])\n\
         return x + h/12*(5*F(p) + 8*f - f[-1]) }  start by kutta3 }",
        shipped::library(),
    );
    let mine = mine.unwrap();
    let fitted = [
        ("ab2", 2),
        ("ab3", 3),
        ("ab4", 4),
        ("am3", 3),
        ("bdf2", 2),
        ("bdf3", 3),
        ("nystrom2", 2),
    ];
    let fixed = [("mine", 1), ("pece", 1), ("rk4", 4)];
    for (i, (name, order)) in fitted.into_iter().chain(fixed).enumerate() {
        let own = mine.iter().find(|e| e.name == name);
        let e = &own.cloned().unwrap_or_else(|| named(name));
        for seed in [3, 40 + i as u64] {
            let steps = [160, 60, 40][order.min(3) - 1];
            let proved = e.proved_on(&grid(seed, steps));
            assert_eq!(proved, Some(order), "{name} on grid {seed}");
            let measured = slope(e, seed, steps);
            assert!(
                measured > order as f64 - 0.25,
                "{name} on grid {seed}: {measured} measured, {order} proved"
            );
            if e.proved != proved {
                assert!(
                    measured < order as f64 + 0.5,
                    "{name} on grid {seed}: {measured}"
                );
            }
        }
    }
}

/// Evaluations of a late step: what earlier steps evaluated is kept, and histories that grow are counted too.
#[test]
fn evaluations_are_those_of_a_late_step() {
    let known = [
        ("ab2", 1),
        ("ab4", 1),
        ("bdf2", 3),
        ("abm4", 2),
        ("milne_pece4", 2),
        ("hamming5", 2),
        ("dlcl", 2),
        ("encoder", 3),
        ("rk4", 4),
        ("bogacki_shampine", 3),
        ("dormand_prince", 6),
    ];
    for (name, n) in known {
        assert_eq!(named(name).evaluations, n, "{name}");
    }
}
