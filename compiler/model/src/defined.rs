//! Functions of learned numbers where training begins: one that has no finite value there makes every gradient none.
//!
//! Takes the stage programs of an evolve; says the first root of a negative number, quotient by 0 or overflow.

use super::evolve::EvolveSpec;
use super::step_count::StepCount;
use crate::codes;
use crate::scheme::Coeff;
use crate::scheme::function::Symbol;
use crate::scheme::stage::{Phase, Program};
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
                let value =
                    Coeff::of_symbol(f.clone()).to_f64(&|name| self.start(program, k, name));
                if value.is_some_and(|v| !v.is_finite()) {
                    sink.push(self.not_finite(program, k, f));
                    return None;
                }
            }
        }
        Some(())
    }

    /// What a name is in a step when training begins; `None`: that is not known.
    fn start(&self, program: &Program, k: usize, name: &str) -> Option<f64> {
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

    fn not_finite(&self, program: &Program, k: usize, f: &Symbol) -> Diagnostic {
        let names = f.names();
        let mut learned = program.learned.iter();
        let span = learned.find(|l| names.contains(l.name.as_str()));
        let span = span.map_or(self.span, |l| l.span);
        let each = names
            .iter()
            .filter_map(|n| Some((n, self.start(program, k, n)?)));
        let each: Vec<String> = each.map(|(n, x)| format!("`{n}` is {x}")).collect();
        let message = format!("`{f}` has no finite value in step {k}");
        Diagnostic::error(codes::ARITHMETIC, span, message)
            .label(format!("when training begins, {}", each.join(" and ")))
            .help("begin with another number")
    }
}
