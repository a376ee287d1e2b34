//! Reads fixed-point solvers: `anderson(memory: 5, tol: 1e-3, max: 40) gradient implicit`, `broyden(…)`.
//!
//! Takes the syntax; gives a [`Solver`] with numbers in bounds. `implicit.rs` runs it.

use super::args::Args;
use super::run::{MAX_EVALUATIONS, StageTracer};
use super::scalar::{Scope, not_supported, out_of_range, unknown_option};
use crate::codes;
use odec_exact::Exact;
use odec_grammar::Span;
use odec_grammar::ast::{Expr, Method};
use odec_grammar::diag::Diagnostic;
use odec_solver::{Mixing, Rule};
use std::fmt;

/// Most iterations of a solve that ends at a tolerance: all of them are in the graph.
pub const MAX_ITERATIONS: u64 = 1000;
/// Most differences of earlier iterates.
pub const MAX_MEMORY: u64 = 8;
/// The default number of differences that `anderson` and `broyden` keep.
const MEMORY: usize = 5;

/// The ways to solve that this version knows, and those of the language that it does not.
const METHODS: [&str; 3] = ["fixed_point", "anderson", "broyden"];
const LATER: [&str; 2] = ["newton", "newton_krylov"];

/// A way to solve for fixed points.
#[derive(Clone, Debug, PartialEq)]
pub struct Solver {
    pub finds: odec_solver::Solver,
    pub gradient: Gradient,
}

/// How the gradient passes a solve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gradient {
    /// Through every iteration.
    Unroll,
    /// By the implicit function theorem: the cotangent solves a linear fixed point of its own (Bai, Kolter & Koltun 2019,
    /// NeurIPS, Theorem 1).
    Implicit,
    /// Through so many plain iterations from the solution (Geng et al. 2021, NeurIPS; Fung et al. 2022, AAAI, for one).
    Phantom(usize),
    /// Through the last so many iterations.
    Last(usize),
}

impl Solver {
    /// A number of plain iterations, all of which are differentiated.
    pub fn plain(iterations: usize) -> Solver {
        Solver {
            finds: odec_solver::Solver {
                mixing: None,
                iterations,
            },
            gradient: Gradient::Unroll,
        }
    }

    /// The most that its equation is evaluated.
    pub fn evaluations(&self) -> usize {
        self.finds.iterations
            + match self.gradient {
                Gradient::Unroll | Gradient::Last(_) => 0,
                Gradient::Implicit => 1,
                Gradient::Phantom(k) => k,
            }
    }

    pub fn mixing(&self) -> Option<&Mixing> {
        self.finds.mixing.as_ref()
    }
}

impl fmt::Display for Solver {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let n = self.finds.iterations;
        match self.mixing() {
            None => write!(f, "fixed_point(iterations: {n})")?,
            Some(m) if m.memory == 0 => write!(f, "fixed_point(tol: {}, max: {n})", m.tol)?,
            Some(m) => write!(
                f,
                "{}(memory: {}, tol: {}, max: {n})",
                m.rule.name(),
                m.memory,
                m.tol
            )?,
        }
        match self.gradient {
            Gradient::Unroll => Ok(()),
            Gradient::Implicit => f.write_str(" gradient implicit"),
            Gradient::Phantom(k) => write!(f, " gradient phantom({k})"),
            Gradient::Last(k) => write!(f, " gradient last({k})"),
        }
    }
}

impl StageTracer<'_> {
    /// A way to solve, with its numbers.
    pub(super) fn solver(&mut self, method: &Method, scope: &Scope) -> Option<Solver> {
        let before = self.messages();
        let finds = self.finds(&method.call, scope);
        let most = finds.as_ref().map(|f| f.iterations);
        let gradient = match &method.gradient {
            None => Some(Gradient::Unroll),
            Some(g) => self.gradient(g, scope, most),
        };
        (self.messages() == before).then_some(Solver {
            finds: finds?,
            gradient: gradient?,
        })
    }

    fn finds(&mut self, call: &Expr, scope: &Scope) -> Option<odec_solver::Solver> {
        let Some(mut args) = Args::of(call) else {
            let message = "this is not a solver";
            let d = Diagnostic::error(codes::UNKNOWN_OPTION, call.span, message);
            return self.fail(d.help("write `fixed_point(iterations: 3)` after `by`"));
        };
        let name = args.callee.clone();
        if LATER.contains(&name.name.as_str()) {
            let d = not_supported(name.span, &format!("`{}`", name.name));
            return self.fail(d.help(
                "it needs products with the Jacobian, which this version does not have; write `broyden(memory: 5, tol: 1e-3, max: 40)`, which approximates the inverse from iterates",
            ));
        }
        if !METHODS.contains(&name.name.as_str()) {
            return self.fail(unknown_option("a solver", &name, &METHODS));
        }
        let before = self.messages();
        let rules = [Rule::Anderson, Rule::Broyden];
        let rule = rules.into_iter().find(|r| r.name() == name.name);
        let mixes = rule.is_some();
        let sink = self.sink();
        let memory = match mixes {
            true => args.labelled("memory", sink),
            false => None,
        };
        let plain = match mixes {
            true => None,
            false => args.labelled("iterations", sink),
        };
        // Without a tolerance a plain iteration says how many.
        let to_tolerance = mixes || args.has("tol") || args.has("max");
        let (tol, max) = match to_tolerance && plain.is_none() {
            true => (args.required("tol", sink), args.required("max", sink)),
            false => (None, None),
        };
        if !to_tolerance && plain.is_none() {
            args.required("iterations", sink);
        }
        args.finish(&[], sink);
        if let Some(n) = plain {
            let n = self.whole(n, scope, 0, MAX_EVALUATIONS as u64);
            let finds = Solver::plain(n? as usize).finds;
            return (self.messages() == before).then_some(finds);
        }
        let most = max.and_then(|e| self.whole(e, scope, 1, MAX_ITERATIONS));
        let memory = match memory {
            _ if !mixes => Some(0),
            None => Some(MEMORY),
            Some(e) => self.memory(e, scope, most, max.map(|e| e.span)),
        };
        let tol = tol.and_then(|e| self.tolerance(e, scope));
        (self.messages() == before).then_some(odec_solver::Solver {
            mixing: Some(Mixing {
                tol: tol?,
                memory: memory?,
                rule: rule.unwrap_or_default(),
            }),
            iterations: most? as usize,
        })
    }

    fn memory(
        &mut self,
        e: &Expr,
        scope: &Scope,
        most: Option<u64>,
        max: Option<Span>,
    ) -> Option<usize> {
        let memory = self.whole(e, scope, 1, MAX_MEMORY)?;
        if let (Some(most), Some(span)) = (most, max)
            && memory > most
        {
            let message = format!("a memory of {memory} for {most} iterations");
            let d = Diagnostic::error(codes::OUT_OF_RANGE, e.span, message)
                .label("this is more than the number of iterations");
            return self.fail(d.also(span, "the number of iterations"));
        }
        Some(memory as usize)
    }

    fn tolerance(&mut self, e: &Expr, scope: &Scope) -> Option<Exact> {
        let tol = self.constant(e, scope)?;
        if tol > Exact::zero() && tol < Exact::one() && (&tol * &tol).checked().is_ok() {
            return Some(tol);
        }
        let d = out_of_range(&tol, e).label("a number between 0 and 1 is expected");
        self.fail(d.help(
            "a token is solved when the norm of its residual, divided by the norm of its state, is below this: `tol: 1e-3`",
        ))
    }

    fn gradient(&mut self, g: &Expr, scope: &Scope, most: Option<usize>) -> Option<Gradient> {
        let known = ["unroll", "implicit", "phantom", "last"];
        let expected = "`unroll`, `implicit`, `phantom(k)` or `last(k)` is expected";
        let Some(mut args) = Args::of(g) else {
            let d = Diagnostic::error(codes::UNKNOWN_OPTION, g.span, "this is not a gradient");
            return self.fail(d.label(expected));
        };
        let name = args.callee.clone();
        if name.name == "backsolve" {
            let d = not_supported(g.span, "`gradient backsolve`");
            return self.fail(d.help("write `gradient implicit`: it stores no iterates either"));
        }
        if !known.contains(&name.name.as_str()) {
            return self.fail(unknown_option("a gradient", &name, &known).label(expected));
        }
        let counted = ["phantom", "last"].contains(&name.name.as_str());
        let count = match counted {
            true => args.positional(),
            false => None,
        };
        let before = self.messages();
        args.finish(&[], self.sink());
        if self.messages() > before {
            return None;
        }
        if !counted {
            return Some(match name.name.as_str() {
                "unroll" => Gradient::Unroll,
                _ => Gradient::Implicit,
            });
        }
        let Some(count) = count else {
            let message = format!("`{}` needs a number of iterations", name.name);
            let d = Diagnostic::error(codes::MISSING_ARGUMENT, g.span, message);
            return self.fail(d.help(format!("write `gradient {}(1)`", name.name)));
        };
        match name.name.as_str() {
            "phantom" => {
                let k = self.whole(count, scope, 1, MAX_ITERATIONS)?;
                Some(Gradient::Phantom(k as usize))
            }
            _ => {
                let k = self.whole(count, scope, 1, most? as u64)?;
                Some(Gradient::Last(k as usize))
            }
        }
    }
}
