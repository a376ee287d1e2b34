//! Functions of learned numbers where training begins: one without a finite value or derivative there makes every gradient none.
//!
//! Takes the stage programs of an evolve; says the first root of a negative number or of 0, quotient by 0 or overflow.

use super::evolve::EvolveSpec;
use super::step_count::StepCount;
use crate::codes;
use crate::scheme::Coeff;
use crate::scheme::function::{Function, Symbol};
use crate::scheme::stage::{Phase, StageProgram};
use odec_grammar::diag::Diagnostic;

impl EvolveSpec {
    pub(super) fn functions_are_finite(&self, sink: &mut Vec<Diagnostic>) -> Option<()> {
        if matches!(self.depth, StepCount::Adaptive(_)) {
            return Some(());
        }
        for (at, number) in self.unrolled.phases() {
            let (Phase::Step(k), program) = (at, &self.unrolled.programs[number]) else {
                continue;
            };
            let functions = program.coefficients().flat_map(Coeff::functions);
            for f in functions {
                if !self.is_finite(program, k, f) {
                    sink.push(self.not_finite(program, k, f));
                    return None;
                }
            }
        }
        Some(())
    }

    /// Whether a function, those in it, and their derivatives by learned numbers have finite values, as far as these are known.
    fn is_finite(&self, program: &StageProgram, k: usize, f: &Symbol) -> bool {
        let Symbol::Function(function, of) = f else {
            return true;
        };
        let start = |name: &str| self.start(program, k, name);
        // The slope of a root is infinite at 0, where its argument moves with learned numbers. Each has a step of its own: powers of e with different
        // fractions have no sum with fractions as factors that is 0 (Lindemann and Weierstrass).
        let step = |name: &str| {
            let number = program.learned.iter().position(|l| l.name == name);
            number.map_or(0.0, |n| 1e-3 * (1.0 / (n + 1) as f64).exp())
        };
        let moved = |name: &str| Some(start(name)? + step(name));
        let steep = *function == Function::Sqrt
            && of.to_f64(&start) == Some(0.0)
            && of.to_f64(&moved).is_some_and(|x| x != 0.0);
        let value = of.to_f64(&start).map(|x| function.at(x));
        !steep
            && value.is_none_or(f64::is_finite)
            && of.functions().all(|f| self.is_finite(program, k, f))
    }

    /// What a name is in a step when training begins; `None`: that is not known.
    fn start(&self, program: &StageProgram, k: usize, name: &str) -> Option<f64> {
        let known = match name {
            "h" => self.h.get(k),
            "t" => self.t.get(k),
            _ => program
                .learned
                .iter()
                .find(|l| l.name == name)
                .map(|l| &l.init),
        };
        Some(known?.to_f64())
    }

    fn not_finite(&self, program: &StageProgram, k: usize, f: &Symbol) -> Diagnostic {
        let names = f.names();
        let mut learned = program.learned.iter();
        let span = learned.find(|l| names.contains(l.name.as_str()));
        let span = span.map_or(self.span, |l| l.span);
        let each = names
            .iter()
            .filter_map(|n| Some((n, self.start(program, k, n)?)));
        let each: Vec<String> = each.map(|(n, x)| format!("`{n}` is {x}")).collect();
        let message = format!("`{f}` has no finite value or derivative in step {k}");
        Diagnostic::error(codes::ARITHMETIC, span, message)
            .label(format!("when training begins, {}", each.join(" and ")))
            .help("begin with another number")
    }
}
