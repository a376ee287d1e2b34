//! Random step programs with histories, equations, nested flows, starts, functions of a linear field or two states: none converges more slowly than is proved.
//!
//! Programs are interpreted in f64 on the graded system of [`odec_compiler::measure`], whose field is a polynomial, over more and more steps until their
//! slope is as steep as the proof says. A false proof is off by one, rounding by 10⁻⁴. `ODEC_SLOPES=5000` takes so many programs.

use crate::common::compile_text;
use odec_compiler::analysis::opaque_field::alone;
use odec_compiler::analysis::pair_facts::facts;
use odec_compiler::analysis::report::{Evolved, Found, order_of};
use odec_compiler::analysis::unequal::Sizes;
use odec_compiler::measure::Problem;
use odec_compiler::measure::graph::fields;
use odec_compiler::measure::problem::WIDTH;

use odec_compiler::scheme::flow::Flow;
use odec_compiler::scheme::per_use::SHARED;
use odec_compiler::scheme::run::Grid;
use odec_compiler::scheme::stage::Phase;
use odec_compiler::scheme::unroll::{Unrolled, unroll};
use odec_compiler::scheme::{Coeff, Combination, Moment, StageInstr, StageProgram};
use odec_graph::Exact;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Programs of an ordinary run.
const FEW: usize = 96;
/// Step counts, until a slope is decided.
const COUNTS: [usize; 8] = [8, 16, 32, 64, 128, 256, 512, 1024];
/// Later steps are like the last of so many.
const UNROLLED: usize = 12;
/// Errors below may be rounding, or what a tolerance leaves.
const FLOOR: f64 = 1e-10;
const MARGIN: f64 = 0.1;

/// A linear congruential generator (Knuth, MMIX).
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, n: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % n
    }
    pub fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }
    pub fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

/// Quarters and thirds between −2 and 2.
fn number(r: &mut Random) -> String {
    let (n, d) = (r.below(17) as i64 - 8, [4, 3][r.below(2)]);
    format!("{}/{d}", n.clamp(-2 * d, 2 * d))
}

/// Weights of rates, newest first: Adams' explicit methods, others whose sum is 1, and some that are not consistent.
fn weights(r: &mut Random) -> Vec<String> {
    let known: [&[&str]; 6] = [
        &["1"],
        &["3/2", "-1/2"],
        &["23/12", "-4/3", "5/12"],
        &["55/24", "-59/24", "37/24", "-3/8"],
        &["0", "1"],
        &["1", "1/4"],
    ];
    let written = |w: &[&str]| w.iter().map(|w| w.to_string()).collect();
    match r.below(12) {
        n @ 0..6 => written(known[n]),
        6 | 7 => written(known[1]),
        8 => written(known[2]),
        // Of order 2: w₁ + 2 w₂ = −1/2.
        9 => {
            let c = number(r);
            vec![format!("3/2 + {c}"), format!("-1/2 - 2*({c})"), c]
        }
        _ => {
            let (a, b) = (number(r), number(r));
            vec![format!("1 - {a} - ({b})"), a, b]
        }
    }
}

fn weighted(weights: &[String], rate: &str) -> String {
    let term = |(i, w): (usize, &String)| match i {
        0 => format!("({w})*{rate}"),
        _ => format!("({w})*{rate}[-{i}]"),
    };
    weights
        .iter()
        .enumerate()
        .map(term)
        .collect::<Vec<_>>()
        .join(" + ")
}

/// The right-hand side at a value.
fn rate(fields: usize, at: &str) -> String {
    match fields {
        1 => format!("F({at})"),
        _ => format!("(F({at}) + G({at}))"),
    }
}

/// Statements of a step, the last of which returns.
fn body(r: &mut Random, fields: usize) -> Vec<String> {
    let mut all = vec![format!("f = {}", rate(fields, "x"))];
    match r.below(7) {
        0 => all.push(format!("return x + h*({})", weighted(&weights(r), "f"))),
        // Two steps: x[n+1] = (1 − a) x[n] + a x[n−1] + …, of order 2 where the rates are right.
        1 => {
            let (a, newer, older) = [
                ("1", "2", "0"),
                ("1/2", "7/4", "-1/4"),
                ("-1/2", "5/4", "-3/4"),
                ("1/3", "5/3", "-1/3"),
                ("1/2", "3/2", "0"),
                ("1", "1", "1"),
            ][r.below(6)];
            all.push(format!(
                "return (1 - {a})*x + {a}*x[-1] + h*(({newer})*f + ({older})*f[-1])"
            ));
        }
        2 => {
            all.push(format!("p = x + h*({})", weighted(&weights(r), "f")));
            let (new, rest) = [
                ("1/2", "1/2*f"),
                ("5/12", "2/3*f - 1/12*f[-1]"),
                ("3/8", "19/24*f - 5/24*f[-1] + 1/24*f[-2]"),
                ("1", "0*f"),
            ][r.below(4)];
            all.push(format!(
                "return x + h*({new}*{} + {rest})",
                rate(fields, "p")
            ));
        }
        3 => {
            let b = r.pick(&["1/2", "-1/2", "1/4", "3/4"]);
            all.push("v = f".into());
            all.push(format!("v = {b}*v[-1] + (1 - {b})*f"));
            all.push(format!(
                "return x + h*{}",
                r.pick(&["v", "(2*v - v[-1])", "(v + f)/2"])
            ));
        }
        4 => {
            let m = r.pick(&["0", "1/2", "-1/2", "1/4"]);
            let e = match r.below(4) {
                0 => format!("x + h*{}", rate(fields, "z")),
                1 => format!("x + h/2*(f + {})", rate(fields, "z")),
                2 => format!("4/3*x - 1/3*x[-1] + 2/3*h*{}", rate(fields, "z")),
                _ => format!("x + h*(5/12*{} + 2/3*f - 1/12*f[-1])", rate(fields, "z")),
            };
            let from = r.pick(&["x", "0", "x + h*f"]);
            let by = "fixed_point(tol: 1e-14, max: 60)";
            all.push(format!(
                "solve z = {m}*z + (1 - {m})*({e}) from {from} by {by}"
            ));
            all.push(match r.below(3) {
                0 => format!("return x + h/2*(f + {})", rate(fields, "z")),
                _ => "return z".into(),
            });
        }
        5 => {
            let w = r.pick(&["1/2", "1", "1/3", "3/4"]);
            // The place of the second rate, of which w times is 1/2.
            let (b, c) = (
                number(r),
                r.pick(&["1/2/{w}", "1/2/{w}", "1"]).replace("{w}", w),
            );
            all.push(format!("y = x + h*(({c} - ({b}))*f + ({b})*f[-1])"));
            all.push(format!(
                "return x + h*((1 - {w})*f + {w}*{})",
                rate(fields, "y")
            ));
        }
        // Two steps and one: Richardson's extrapolation, and less.
        _ if fields == 1 => {
            let c = r.pick(&["1/2", "1/3", "1"]);
            all.push(format!("y = flow F({c}) F(1 - {c}) from x"));
            all.push("z = flow F(1) from x".into());
            let end = [
                "2*y - z".to_string(),
                format!(
                    "2*y - z + h/4*(f - {})",
                    r.pick(&["f[-1]", "2*f[-1] + f[-2]"])
                ),
                "y".into(),
                "1/2*(2*y - z) + 1/2*x + h*(3/4*f - 1/4*f[-1])".into(),
            ];
            all.push(format!("return {}", end[r.below(4)]));
        }
        _ => {
            let c = r.pick(&["1/2", "1/3", "1"]);
            all.push(format!("y = flow F({c}) G(1) F(1 - {c}) from x"));
            all.push("z = flow G(1) F(1) from x".into());
            let end = [
                "y",
                "1/2*y + 1/2*z",
                "y + h/4*(f - f[-1])",
                "2*y - z[-1] + z - y",
            ];
            all.push(format!("return {}", end[r.below(4)]));
        }
    }
    all
}

/// Exponential integrators of a linear field L and another one: a stage at a part of the step, functions of several arguments, rates of earlier steps.
fn exponential(r: &mut Random) -> String {
    let c = r.pick(&["1/2", "1", "1/3", "2/3"]);
    let over_c = match c {
        "1" => "1",
        "1/2" => "2",
        "1/3" => "3",
        _ => "3/2",
    };
    let stage = [
        format!("exp({c}*h*L)(x) + {c}*h*phi1({c}*h*L)(k)"),
        format!("exp({c}*h*L)(x + {c}*h*k)"),
        format!("exp({c}*h*L)(x) + {c}*h*k"),
    ];
    let stage = &stage[r.below(3)];
    let w = number(r);
    let end = match r.below(7) {
        0 => "h*phi1(h*L)(k)".to_string(),
        1 => format!("h*phi1(h*L)(k) + h*{over_c}*phi2(h*L)(F(a) - k)"),
        2 => format!("h*(1 - {over_c}/2)*phi1(h*L)(k) + h*{over_c}/2*phi1(h*L)(F(a))"),
        3 => format!("h*phi1(h*L)((1 - ({w}))*k + ({w})*F(a))"),
        4 => "h*phi1(h*L)(k) + h*phi2(h*L)(k - k[-1])".to_string(),
        5 => "h*exp(h*L)(3/2*k) - h*exp(2*h*L)(1/2*k[-1])".to_string(),
        // Three stages, the last at the end of the step.
        _ => {
            let last = "exp(h*L)(x) + h*phi1(h*L)(2*F(b) - k)";
            let weights = r.pick(&[
                "phi1(h*L)(k) + phi2(h*L)(4*F(b) - 3*k - F(z)) + phi3(h*L)(4*k - 8*F(b) + 4*F(z))",
                "phi1(h*L)(1/6*k + 2/3*F(b) + 1/6*F(z))",
                "phi1(h*L)(k) + phi2(h*L)(F(z) - k)",
            ]);
            return format!(
                "scheme s(L, F) {{ step x {{\n  k = F(x)\n  b = exp(h/2*L)(x) + h/2*phi1(h/2*L)(k)\n  z = {last}\n  return exp(h*L)(x) + h*({weights})\n}} }}"
            );
        }
    };
    let stage = match end.contains("F(a)") {
        true => format!("\n  a = {stage}"),
        false => String::new(),
    };
    let start = match end.contains("[-1]") && r.once_in(2) {
        true => "start { k = F(x) }",
        false => "",
    };
    format!(
        "scheme s(L, F) {{ step x {{\n  k = F(x){stage}\n  return exp(h*L)(x) + {end}\n}} {start} }}"
    )
}

/// A step program that is drawn.
pub fn scheme(r: &mut Random) -> String {
    if r.once_in(8) {
        return exponential(r);
    }
    let fields = if r.once_in(4) { 2 } else { 1 };
    let body = body(r, fields);
    let reads = body.iter().any(|s| s.contains("[-"));
    let start = match (reads, fields) {
        (false, _) => "",
        (true, 1) => r.pick(&[
            "",
            "start by euler",
            "start by heun",
            "start by heun",
            "start by kutta3",
            "start by rk4",
        ]),
        _ => "",
    };
    let start = match body
        .iter()
        .any(|s| s.contains(" f[-1]") || s.contains("*f[-1]"))
    {
        true if start.is_empty() && r.once_in(2) => {
            format!("start {{ f = {} }}", rate(fields, "x"))
        }
        _ => start.to_string(),
    };
    let params = if fields == 1 { "F" } else { "F, G" };
    format!(
        "scheme s({params}) {{ step x {{\n  {}\n}} {start} }}",
        body.join("\n  ")
    )
}

type State = Vec<f64>;

fn sum(terms: &[(f64, &State)], n: usize) -> State {
    let mut sum = vec![0.0; n];
    for (c, v) in terms {
        sum.iter_mut().zip(v.iter()).for_each(|(s, x)| *s += c * x);
    }
    sum
}

/// Rows of a matrix without their zeros.
type Sparse = Vec<Vec<(usize, f64)>>;

/// The fields of a problem, by name.
struct System {
    /// Factors of products, and exponents.
    shared: [Sparse; 4],
    /// What a field takes of the state itself, of products, of exponentials.
    fields: BTreeMap<String, [Sparse; 3]>,
}

/// Terms of the functions of a linear field: on graded systems its matrix is nilpotent.
const TERMS: u32 = WIDTH as u32;

fn factorial(n: u32) -> f64 {
    (1..=n).map(f64::from).product()
}

fn times(m: &Sparse, x: &State) -> State {
    let row = |r: &Vec<(usize, f64)>| r.iter().map(|(j, c)| c * x[*j]).sum();
    m.iter().map(row).collect()
}

impl System {
    /// Fields by name, and whether functions of them are applied.
    fn new(problem: Problem, names: &BTreeMap<String, bool>) -> System {
        let linear: Vec<bool> = names.values().copied().collect();
        let all = problem.matrices_of(&linear);
        let sparse = |path: &str| -> Sparse {
            let m = all.iter().find(|m| m.path == path).expect("a matrix");
            let row = |r: &[f64]| {
                let entries = r.iter().copied().enumerate();
                entries.filter(|(_, x)| *x != 0.0).collect()
            };
            m.values.chunks(m.cols()).map(row).collect()
        };
        let field = |(j, name): (usize, &String)| {
            let parts = ["linear", "product", "exponential"];
            let of = parts.map(|m| sparse(&format!("field.{j}.{m}")));
            (name.clone(), of)
        };
        System {
            shared: ["a", "b", "c", "d"].map(sparse),
            fields: names.keys().enumerate().map(field).collect(),
        }
    }

    fn at(&self, name: &str, x: &State) -> State {
        let [a, b, c, d] = self.shared.each_ref().map(|m| times(m, x));
        let products = (0..a.len()).map(|k| a[k] * b[k] * c[k]).collect();
        let powers = d.into_iter().map(f64::exp).collect();
        let [linear, product, exponential] = &self.fields[name];
        let parts = [
            times(linear, x),
            times(product, &products),
            times(exponential, &powers),
        ];
        sum(&parts.each_ref().map(|p| (1.0, p)), x.len())
    }

    /// `φₖ(over·L)` of a linear field, applied to a value.
    fn function(&self, name: &str, (index, over): (u32, f64), x: &State) -> State {
        let [linear, ..] = &self.fields[name];
        let (mut made, mut power) = (vec![0.0; x.len()], x.clone());
        for n in 0..TERMS {
            made = sum(
                &[(1.0, &made), (1.0 / factorial(index + n), &power)],
                x.len(),
            );
            power = sum(&[(over, &times(linear, &power))], x.len());
        }
        made
    }
}

/// A program with the coefficients of one step size.
struct Ready<'p> {
    program: &'p StageProgram,
    /// Of each combination, and of the result.
    sums: Vec<Vec<(usize, f64)>>,
    /// What the linear field of each function is multiplied by.
    overs: Vec<f64>,
}

impl<'p> Ready<'p> {
    fn new(program: &'p StageProgram, h: &Exact) -> Ready<'p> {
        let of = |c: &Coeff| {
            let value = c.at(&|s| (s == "h").then(|| h.clone()));
            value.expect("nothing is learned").to_f64()
        };
        let sum = |c: &Combination| c.terms().map(|(v, c)| (v.0 as usize, of(c))).collect();
        let instrs = program.instrs.iter().map(|i| match i {
            StageInstr::Combine(c) => sum(c),
            _ => Vec::new(),
        });
        let sums = instrs.chain([sum(&program.result)]).collect();
        let overs = program.instrs.iter().map(|i| match i {
            StageInstr::Phi { over, .. } => of(over),
            _ => 0.0,
        });
        Ready {
            program,
            sums,
            overs: overs.collect(),
        }
    }

    /// The state after a step, and what it keeps.
    fn step(
        &self,
        x: &State,
        past: &[BTreeMap<String, State>],
        s: &System,
    ) -> (State, BTreeMap<String, State>) {
        let mut values = vec![x.clone()];
        let add = |values: &[State], terms: &[(usize, f64)]| {
            let terms: Vec<(f64, &State)> = terms.iter().map(|(v, c)| (*c, &values[*v])).collect();
            sum(&terms, x.len())
        };
        for (i, instr) in self.program.instrs.iter().enumerate() {
            let made = match instr {
                StageInstr::Combine(_) => add(&values, &self.sums[i]),
                StageInstr::Eval { field, at, .. } => {
                    s.at(&self.program.fields[*field].name, &values[at[0].0 as usize])
                }
                StageInstr::Phi {
                    field, index, at, ..
                } => s.function(
                    &self.program.fields[*field].name,
                    (*index, self.overs[i]),
                    &values[at.0 as usize],
                ),
                StageInstr::Past {
                    name,
                    when: Moment::Ago(n),
                } => past[past.len() - n][name].clone(),
                StageInstr::Mix { seen, mixing, .. } if mixing.memory == 0 => {
                    let [z, f] = seen[0][0].map(|v| &values[v.0 as usize]);
                    let off: f64 = z.iter().zip(f).map(|(z, f)| (z - f).powi(2)).sum();
                    let size: f64 = f.iter().map(|f| f * f).sum();
                    let solved = off <= mixing.tol.to_f64().powi(2) * (size + 1e-20);
                    if solved { z.clone() } else { f.clone() }
                }
                other => panic!("{other:?}"),
            };
            values.push(made);
        }
        let kept = self.program.keeps.iter();
        let kept = kept.map(|(n, v)| (n.clone(), values[v.0 as usize].clone()));
        (
            add(&values, &self.sums[self.program.instrs.len()]),
            kept.collect(),
        )
    }
}

/// Sizes of steps that come again and again.
type Pattern = [i64];
const EQUAL: &Pattern = &[1];
const UNEQUAL: &Pattern = &[3, 2];

/// Sizes of so many steps, which are 1 together.
fn sizes(pattern: &Pattern, steps: usize) -> Vec<Exact> {
    let whole: i64 = pattern.iter().cycle().take(steps).sum();
    let each = pattern.iter().cycle().take(steps);
    each.map(|size| Exact::ratio(*size, whole)).collect()
}

/// The error at time 1 after so many steps.
fn error(all: &Unrolled, problem: Problem, pattern: &Pattern, steps: usize) -> f64 {
    let period = pattern.len();
    let system = System::new(problem, &fields(all));
    let first = sizes(pattern, steps);
    let ready = |h: &Exact| all.programs.iter().map(|p| Ready::new(p, h)).collect();
    let ready: Vec<Vec<Ready>> = first[..period].iter().map(ready).collect();
    let mut x = problem.start().to_vec();
    let mut past = Vec::new();
    let start = all.start.iter().map(|_| Phase::Start);
    for at in start.chain((0..steps).map(Phase::Step)) {
        let (number, k) = match at {
            Phase::Start => (all.start, 0),
            Phase::Step(k) if k < UNROLLED => (Some(all.steps[k]), k),
            Phase::Step(k) => (Some(all.steps[UNROLLED - period + k % period]), k),
        };
        let program = &ready[k % period][number.expect("a program")];
        let (next, kept) = program.step(&x, &past, &system);
        x = next;
        past.push(kept);
    }
    problem.error(&x, 1.0)
}

/// What a program measures, against an order.
#[derive(Debug, PartialEq)]
enum Measured {
    /// Its slope is that, or steeper.
    Reached(f64),
    /// It is not, however many steps are taken.
    Slower(f64),
    /// Errors are too small to tell.
    Small,
}

fn measured(flow: &Rc<Flow>, order: usize) -> Measured {
    measured_on(Problem::Graded(order + 1), EQUAL, flow, order)
}

fn measured_on(problem: Problem, pattern: &Pattern, flow: &Rc<Flow>, order: usize) -> Measured {
    let flows = [(flow.clone(), "s".to_string())];
    let mut sink = Vec::new();
    let period = pattern.len();
    let given = match period {
        1 => Vec::new(),
        _ => sizes(pattern, UNROLLED),
    };
    let grid = Grid {
        sizes: &given,
        learned: false,
    };
    let all = unroll(
        &flows,
        (UNROLLED, grid),
        false,
        &SHARED,
        flow.span,
        &mut sink,
    );
    let all = all.unwrap_or_else(|| panic!("{sink:?}"));
    let (before, last) = all.steps[UNROLLED - 2 * period..].split_at(period);
    assert_eq!(before, last, "later steps are alike");
    let mut before: Option<f64> = None;
    let mut slope = f64::NEG_INFINITY;
    for steps in COUNTS {
        let error = error(&all, problem, pattern, steps);
        if error < FLOOR {
            return Measured::Small;
        }
        if let Some(before) = before {
            slope = (before / error).log2();
            if slope >= order as f64 - MARGIN {
                return Measured::Reached(slope);
            }
        }
        before = Some(error);
    }
    Measured::Slower(slope)
}

/// The scheme of a text on fields of which nothing is known.
pub fn flow(text: &str) -> Rc<Flow> {
    let outcome = compile_text(text);
    let i = &outcome.checked().instances[0];
    let start = i.start_by.clone();
    Rc::new(alone(&i.scheme, start, i.settings.clone(), i.listed))
}

/// The order as it is computed.
fn proved(flow: &Rc<Flow>) -> Option<Found> {
    proved_on(flow, Sizes::Equal)
}

fn proved_on(flow: &Rc<Flow>, sizes: Sizes) -> Option<Found> {
    let evolved = Evolved {
        title: "s".into(),
        flow: flow.clone(),
        step: 0,
        per_use: SHARED.clone(),
        timed: false,
        at_end: false,
        h: Exact::one(),
        sizes,
    };
    order_of(&evolved).ok()
}

/// What was once proved of these is seen to be false.
#[test]
fn a_false_order_is_seen() {
    let slower = |text: &str, order| match measured(&flow(text), order) {
        Measured::Slower(slope) => slope,
        other => panic!("{other:?}: {text}"),
    };
    let leap = slower("scheme s(F) { step x { return x[-1] + 2*h*F(x) } }", 2);
    assert!(leap.abs() < 0.1, "{leap}");
    let adams = slower(
        "scheme s(F) { step x { f = F(x);  return x + h*(3/2*f - 1/2*f[-1]) } }",
        2,
    );
    assert!((adams - 1.0).abs() < 0.1, "{adams}");
    let away =
        "k = F(x);  l = F(x + h/2*k);  m = F(x + h/2*l);  s = x + h/6*(k + 2*l + 2*m + F(x + h*m))";
    let by = "fixed_point(tol: 1e-14, max: 61)";
    let away = format!(
        "scheme s(F) {{ step x {{ {away}  solve z = 2*x + 2*h*k - z from s by {by}  return z }} }}"
    );
    let away = slower(&away, 4);
    assert!((away - 1.0).abs() < 0.1, "{away}");
}

#[test]
fn random_programs_converge_as_is_proved() {
    let cases = std::env::var("ODEC_SLOPES")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(FEW);
    let mut random = Random(1);
    let (mut decided, mut positive, mut close, mut small) = (0, 0, 0, 0);
    let (mut wrong, mut texts) = (Vec::new(), BTreeSet::new());
    while texts.len() < cases {
        let text = scheme(&mut random);
        if !texts.insert(text.clone()) {
            continue;
        }
        let flow = flow(&text);
        let Some(found) = proved(&flow) else {
            continue;
        };
        decided += 1;
        // Nothing is measured of an order that says nothing.
        if found.order == 0 {
            continue;
        }
        positive += 1;
        match measured(&flow, found.order) {
            Measured::Reached(slope) => close += usize::from(slope < found.order as f64 + 0.5),
            Measured::Small => small += 1,
            Measured::Slower(slope) => wrong.push(format!(
                "{} proved, {slope:.2} measured\n{text}",
                found.order
            )),
        }
    }
    println!(
        "{cases} programs, {decided} with an order, {positive} above 0, {close} as steep, {small} too accurate"
    );
    assert!(
        wrong.is_empty(),
        "{} of {cases}:\n{}",
        wrong.len(),
        wrong.join("\n\n")
    );
    assert!(
        decided * 3 > cases * 2,
        "{decided} of {cases} have an order"
    );
    assert!(
        close * 5 > positive * 4,
        "{close} of {positive} are as steep as is proved, and no more"
    );
    assert!(
        small * 20 <= positive,
        "{small} of {positive} cannot be told"
    );
}

/// A method for x'' = F(x) with the velocity as a second state, V the first one: kicks and drifts, Nyström methods, positions alone.
fn pair(r: &mut Random) -> String {
    let a = r.pick(&["0", "1/2", "1/2", "1", "1/3", "3/4", "-1/4"]);
    let b = r.pick(&["0", "1/2", "1/2", "1", "2/3", "5/4"]);
    let c = number(r);
    let (start, body) = match r.below(6) {
        0 => (
            "v = V(x)",
            format!("y = x + {a}*h*v[-1]\n v = v[-1] + h*F(y)\n return y + (1 - {a})*h*v"),
        ),
        1 => (
            "v = V(x)",
            format!("u = v[-1] + {a}*h*F(x)\n y = x + h*u\n v = u + (1 - {a})*h*F(y)\n return y"),
        ),
        2 => (
            "v = V(x)",
            format!(
                "y = x + h*v[-1] + {a}*h*h*F(x)\n v = v[-1] + h*((1 - {b})*F(x) + {b}*F(y))\n return y"
            ),
        ),
        // Three drifts and two kicks, in all fractions.
        3 => (
            "v = V(x)",
            format!(
                "y = x + {a}*h*v[-1]\n u = v[-1] + {b}*h*F(y)\n z = y + ({c})*h*u\n v = u + (1 - {b})*h*F(z)\n return z + (1 - {a} - ({c}))*h*v"
            ),
        ),
        // Nyström's form: stages and weights of both states.
        4 => (
            "v = V(x)",
            format!(
                "k = F(x)\n l = F(x + 2/3*h*v[-1] + ({c})*h*h*k)\n y = x + h*v[-1] + h*h*({a}*k + (1/2 - {a})*l)\n v = v[-1] + h*((1 - 3/4)*k + 3/4*l)\n return y"
            ),
        ),
        // Positions alone, the one before the first from what `start` gives.
        _ => (
            "y = x\n v = V(x)\n f = F(x)",
            format!(
                "w = y[-1] - h*v[-1] + {a}*h*h*f[-1]\n y = x\n v = 0*x\n f = 0*x\n return 2*x - w + h*h*F(x)"
            ),
        ),
    };
    format!("scheme s(F, V) {{ start {{ {start} }} step x {{\n {body}\n}} }}")
}

/// Programs of an ordinary run, and how many times fewer than of the others there are.
const FEW_PAIRS: usize = 24;
const PAIRS: usize = 10;

#[test]
fn random_pairs_converge_as_is_proved() {
    let asked = std::env::var("ODEC_SLOPES").ok();
    let asked = asked.and_then(|n| n.parse::<usize>().ok());
    let cases = asked.map_or(FEW_PAIRS, |n| n / PAIRS);
    let mut random = Random(1);
    let (mut positive, mut close, mut small, mut drawn) = (0, 0, 0, 0);
    let (mut wrong, mut texts) = (Vec::new(), BTreeSet::new());
    while texts.len() < cases && drawn < 40 * cases {
        drawn += 1;
        let text = pair(&mut random);
        if !texts.insert(text.clone()) {
            continue;
        }
        let flow = flow(&text);
        let Some(order) = facts(&flow).and_then(|f| f.state).filter(|p| *p > 0) else {
            continue;
        };
        positive += 1;
        match measured_on(Problem::Second { force: 0 }, EQUAL, &flow, order) {
            Measured::Reached(slope) => close += usize::from(slope < order as f64 + 0.5),
            Measured::Small => small += 1,
            Measured::Slower(slope) => {
                wrong.push(format!("{order} proved, {slope:.2} measured\n{text}"));
            }
        }
    }
    println!(
        "{} pairs, {positive} above order 0, {close} as steep, {small} too accurate",
        texts.len()
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert!(positive * 2 > texts.len() && close * 2 > positive && small * 20 <= positive);
}

/// Programs of an ordinary run that look back, on steps of two sizes, and how many times fewer than of the others there are.
const FEW_UNEQUAL: usize = 48;
const UNEQUALS: usize = 4;

#[test]
fn random_programs_converge_on_unequal_steps_as_is_proved() {
    let asked = std::env::var("ODEC_SLOPES").ok();
    let asked = asked.and_then(|n| n.parse::<usize>().ok());
    let cases = asked.map_or(FEW_UNEQUAL, |n| n / UNEQUALS);
    let mut random = Random(2);
    let (mut decided, mut positive, mut lower, mut close, mut small) = (0, 0, 0, 0, 0);
    let (mut wrong, mut texts) = (Vec::new(), BTreeSet::new());
    while texts.len() < cases {
        let text = scheme(&mut random);
        if !text.contains("[-") || !texts.insert(text.clone()) {
            continue;
        }
        let flow = flow(&text);
        let Some(found) = proved_on(&flow, Sizes::Known(sizes(UNEQUAL, UNROLLED))) else {
            continue;
        };
        decided += 1;
        lower += usize::from(proved(&flow).is_some_and(|equal| equal.order > found.order));
        if found.order == 0 {
            continue;
        }
        positive += 1;
        let problem = Problem::Graded(found.order + 1);
        match measured_on(problem, UNEQUAL, &flow, found.order) {
            Measured::Reached(slope) => close += usize::from(slope < found.order as f64 + 0.5),
            Measured::Small => small += 1,
            Measured::Slower(slope) => wrong.push(format!(
                "{} proved, {slope:.2} measured\n{text}",
                found.order
            )),
        }
    }
    println!(
        "{cases} programs on unequal steps, {decided} with an order, {lower} lower than on equal ones, {positive} above 0, {close} as steep, {small} too accurate"
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert!(decided * 2 > cases && lower > 0 && close * 5 > positive * 4);
}
