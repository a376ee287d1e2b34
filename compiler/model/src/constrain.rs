//! `constrain spectral(max: 1.0)`: bounds the spectral norm of every matrix in fields.
//!
//! With it a linear map is Lipschitz continuous with that constant (Miyato et al. 2018, arXiv:1802.05957, section 2.1). The bound is kept by
//! the optimiser step, so what is evaluated, exported and read on with is the matrix itself. Takes the words of a train block; gives the
//! bound, and the vector of power iteration that each matrix has beside it. Leaves the iteration to `passes/spectral.rs`.

use super::args::{Args, Bounds, real, report};
use super::evolve::{EvolveSpec, Sharing};
use super::layers::LayerParam;
use super::part::expect;
use super::spec::Spec;
use crate::codes;
use odec_grammar::Span;
use odec_grammar::ast::Expr;
use odec_grammar::diag::Diagnostic;
use odec_program::manifest::{Init, Tune, added};

/// Reads `spectral(max: 1.0)`.
pub fn read(e: &Expr, sink: &mut Vec<Diagnostic>) -> Option<f64> {
    let example = "constrain spectral(max: 1.0)";
    let mut args: Args = expect(e, "spectral", &[], example, sink)?;
    let before = sink.len();
    let max = args.required("max", sink);
    let max = max.and_then(|e| report(real(e, Bounds::Positive), sink));
    args.finish(&[], sink);
    max.filter(|_| sink.len() == before)
}

/// What a parameter has beside it: the end of its path, shape and start. Experts have a vector each, one after the other.
pub fn vector(max: Option<f64>, p: &LayerParam) -> Option<(String, Vec<u64>, Init)> {
    let (Some(_), Some([count, rows, _])) = (max, added::matrices(&p.path, &p.shape)) else {
        return None;
    };
    if added::is_depthwise(&p.path, &p.shape) {
        return None;
    }
    let path = format!("{}{}", p.path, added::SPECTRAL);
    Some((path, vec![count * rows], Init::Normal { std: 1.0 }))
}

/// Reports matrices that are computed from parameters and are not parameters.
pub fn fits(spec: &Spec, span: Span, sink: &mut Vec<Diagnostic>) {
    if spec.tune != Tune::All {
        let message =
            "`constrain` bounds trained matrices, and `tune lora` trains only low-rank factors";
        let d = Diagnostic::error(codes::INCOMPATIBLE, span, message);
        sink.push(d.help("write `tune all`, or leave `constrain` out"));
    }
    let timed = spec.evolves.iter().find(|e| {
        let mut all = e.policies.iter().flatten();
        all.any(|s| matches!(s, Sharing::TimeDependent(_)))
    });
    if let Some(e) = timed {
        let message = "`constrain` bounds matrices that are parameters, and weights of time are computed from other parameters";
        let d = Diagnostic::error(codes::INCOMPATIBLE, span, message);
        sink.push(
            d.also(e.span, "weights of time here")
                .help("write `weights per step` or `shared`"),
        );
    }
    let layers = spec.evolves.iter().flat_map(EvolveSpec::all_layers);
    let mut params = layers.flat_map(|l| l.params());
    if !params.any(|p| added::matrices(&p.path, &p.shape).is_some()) {
        let message = "no field of this model has a matrix";
        let d = Diagnostic::error(codes::NO_EFFECT, span, message);
        sink.push(d.label("nothing would be constrained"));
    }
}
