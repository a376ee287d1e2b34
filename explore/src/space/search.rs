//! How a space is searched: which points are drawn, which models are trained to their end, and for how long new ones are begun.

use super::{Halving, MOST, Reader, Samples, Search};
use odec_compiler::codes;
use odec_compiler::scheme::scalar::{Scope, exact, name_of, unknown_option, whole};
use odec_grammar::ast::{Arg, Call, Entry, Expr, ExprKind};
use odec_grammar::{Diagnostic, Span};

/// What a search is called with: two numbers, both by name.
struct Arguments {
    of: &'static str,
    names: [&'static str; 2],
    bounds: [(u64, u64); 2],
    example: &'static str,
}

const RANDOM: Arguments = Arguments {
    of: "random",
    names: ["samples", "seed"],
    bounds: [(1, MOST as u64), (0, i64::MAX as u64)],
    example: "random(samples: 8, seed: 0)",
};

const HALVING: Arguments = Arguments {
    of: "halving",
    names: ["factor", "rungs"],
    bounds: [(2, 100), (2, 16)],
    example: "halving(factor: 3, rungs: 3)",
};

impl Reader<'_> {
    /// `search random(samples: 8, seed: 0), halving(factor: 3, rungs: 3)`.
    pub(super) fn search(&mut self, e: &Entry, search: &mut Search) {
        for value in &e.values {
            let call = match &value.kind {
                ExprKind::Call(call) => name_of(&call.callee).map(|f| (f, Some(&**call))),
                _ => name_of(value).map(|f| (f, None)),
            };
            let Some((word, call)) = call else {
                let d = Diagnostic::error(codes::UNKNOWN_OPTION, value.span, "this is no search");
                self.sink
                    .push(d.help("write `random(samples: 8, seed: 0)`"));
                continue;
            };
            match word.name.as_str() {
                "random" if search.samples.is_some() => self.repeated(value.span, "random"),
                "random" => {
                    let numbers = self.numbers(&RANDOM, call, value.span);
                    search.samples = numbers.map(|[number, seed]| Samples { number, seed });
                }
                "halving" if search.halving.is_some() => self.repeated(value.span, "halving"),
                "halving" => {
                    let numbers = self.numbers(&HALVING, call, value.span);
                    search.halving = numbers.map(|[factor, rungs]| Halving {
                        factor,
                        rungs,
                        span: value.span,
                    });
                }
                _ => self
                    .sink
                    .push(unknown_option("a search", &word, &[RANDOM.of, HALVING.of])),
            }
        }
    }

    fn numbers(&mut self, known: &Arguments, call: Option<&Call>, span: Span) -> Option<[u64; 2]> {
        let args = call.map_or(&[][..], |c| &c.args[..]);
        let named = |a: &Arg, name: &str| a.label.as_ref().is_some_and(|l| l.name == name);
        let Arguments {
            of,
            names,
            bounds,
            example,
        } = known;
        if let Some(a) = args
            .iter()
            .find(|a| !names.iter().any(|name| named(a, name)))
        {
            let at = a.label.as_ref().map_or(a.value.span, |l| l.span);
            let message = format!("`{of}` has no such argument");
            let d = Diagnostic::error(codes::UNKNOWN_ARGUMENT, at, message);
            let [first, second] = names;
            self.sink
                .push(d.help(format!("it has `{first}` and `{second}`")));
            return None;
        }
        let mut found = [0; 2];
        for ((slot, name), (least, most)) in found.iter_mut().zip(names).zip(bounds) {
            let given: Vec<&Arg> = args.iter().filter(|a| named(a, name)).collect();
            let value = match given[..] {
                [one] => whole(&one.value, &Scope::new(), *least, *most),
                [] => {
                    let message = format!("`{of}` needs `{name}`");
                    let d = Diagnostic::error(codes::MISSING_ARGUMENT, span, message);
                    Err(d.help(format!("write `{example}`")))
                }
                [_, again, ..] => {
                    let message = format!("`{name}` is given twice");
                    Err(Diagnostic::error(
                        codes::REPEATED_ARGUMENT,
                        again.value.span,
                        message,
                    ))
                }
            };
            *slot = value.map_err(|d| self.sink.push(d)).ok()?;
        }
        Some(found)
    }

    /// `budget 2 h`, in seconds.
    pub(super) fn budget(&mut self, e: &Entry) -> Option<f64> {
        let unit = |text: &str| match text {
            "h" => Some(3600.0),
            "min" => Some(60.0),
            "s" => Some(1.0),
            _ => None,
        };
        let found = match &e.values[..] {
            [
                Expr {
                    kind: ExprKind::Quantity(text, of),
                    span,
                },
            ] => unit(of).map(|unit| {
                let kind = ExprKind::Number(text.clone());
                exact(&Expr { kind, span: *span }, &Scope::new()).map(|x| unit * x.to_f64())
            }),
            _ => None,
        };
        match found {
            Some(Ok(seconds)) if seconds > 0.0 => Some(seconds),
            Some(Err(d)) => {
                self.sink.push(d);
                None
            }
            _ => {
                let message = "a budget is a time above 0";
                let d = Diagnostic::error(codes::INVALID_VALUE, e.span, message);
                self.sink
                    .push(d.help("such as `budget 2 h`, `90 min` or `30 s`"));
                None
            }
        }
    }
}
