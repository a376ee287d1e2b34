//! `tune lora(rank: 8)`: low-rank adaptation (Hu et al. 2021, "LoRA", arXiv:2106.09685, section 4.1).
//! ```text
//! W' = W + B A       B [out, r] starts at 0, A [r, in] with deviation 1/√in
//! ```
//! Every matrix of the fields of all evolves gets factors, and they are all that is trained: embeddings, logits, gains, biases, learned
//! coefficients and step sizes stay as they were loaded. Matrices that steps share share their factors. Weights of time are
//! adapted as they are at a step, `W(t) + Bₖ Aₖ` in step k (Tong et al. 2025, "Neural ODE Transformers", ICLR, section 5, where the
//! weights at the steps' times are what is tuned). The sum is made once per step, or once where all steps share it, and not once per
//! evaluation: a scheme evaluates its fields several times, and what is exported or read on with is the matrix that was trained with. A
//! scale α/r is left out: it is 1 (the paper's α = r).
//!
//! The weight of a convolution, [out, in, kernel], is adapted as a matrix of `out` rows.
//!
//! Takes the words of a train block; gives [`Tune`], the factors' shapes and starts, and their nodes. Leaves their paths' ends to
//! `odec_program`, memory to `passes/layout.rs`.

use super::args::Args;
use super::evolve::{EvolveSpec, Sharing};
use super::graph_builder::GraphBuilder;
use super::layers::{LayerParam, MAX_WIDTH};
use super::spec::Spec;
use super::step_count::StepCount;
use crate::codes;
use crate::scheme::scalar::{Scope, name_of};
use odec_grammar::Span;
use odec_grammar::ast::Expr;
use odec_grammar::diag::Diagnostic;
use odec_graph::ops::matmul::Layout;
use odec_graph::ops::{MatMul, Reshape};
use odec_graph::{Builder, Exact, TypeError, Value, nn};
use odec_program::manifest::{Init, Tune, added};

/// Reads `all`, or `lora(rank: 8)`.
pub fn read(e: &Expr, sink: &mut Vec<Diagnostic>) -> Option<Tune> {
    if name_of(e).is_some_and(|n| n.name == "all") {
        return Some(Tune::All);
    }
    let Some(mut args) = Args::of(e).filter(|a| a.callee.name == "lora") else {
        let message = "this is not a way of tuning";
        sink.push(
            Diagnostic::error(codes::UNKNOWN_OPTION, e.span, message)
                .label("`all` or `lora(rank: 8)` is expected"),
        );
        return None;
    };
    let before = sink.len();
    let rank = args.size("rank", &Scope::new(), MAX_WIDTH, sink);
    args.finish(&[], sink);
    let rank = rank.filter(|_| sink.len() == before)?;
    Some(Tune::Lora { rank })
}

/// The factors of a parameter: ends of their paths, shapes and starts. A matrix with a side shorter than the rank has factors of
/// that side's rank. The matrices of experts are adapted as one below the other, so they share A and have a part of B each.
pub fn factors(tune: Tune, p: &LayerParam) -> Vec<(String, Vec<u64>, Init)> {
    let matrices = added::matrices(&p.path, &p.shape);
    let (Tune::Lora { rank }, Some([count, rows, cols])) = (tune, matrices) else {
        return Vec::new();
    };
    let rows = count * rows;
    let rank = rank.min(rows).min(cols);
    let std = 1.0 / (cols as f64).sqrt();
    let path = |end: &str| format!("{}{end}", p.path);
    vec![
        (path(added::LORA_A), vec![rank, cols], Init::Normal { std }),
        (path(added::LORA_B), vec![rows, rank], Init::Zeros),
    ]
}

/// Says where factors would have nothing to be added to, or no step to belong to.
pub fn fits(spec: &Spec, (tune, span): (Tune, Span), sink: &mut Vec<Diagnostic>) {
    if tune == Tune::All {
        return;
    }
    let timed = |e: &&EvolveSpec| {
        let mut all = e.policies.iter().flatten();
        matches!(e.depth, StepCount::Adaptive(_))
            && all.any(|s| matches!(s, Sharing::TimeDependent(_)))
    };
    if let Some(e) = spec.evolves.iter().find(timed) {
        let message = "LoRA of weights of time has factors for each step, and here the number of steps is found while the model runs";
        let d = Diagnostic::error(codes::INCOMPATIBLE, span, message);
        sink.push(d.also(e.span, "adaptive steps").help(
            "write `for 12 steps`, which keeps the weights of time as they are, or `tune all`",
        ));
        return;
    }
    let layers = spec.evolves.iter().flat_map(EvolveSpec::all_layers);
    let mut params = layers.flat_map(|l| l.params());
    if !params.any(|p| !factors(tune, &p).is_empty()) {
        let message = "no field of this model has a matrix to adapt";
        sink.push(
            Diagnostic::error(codes::NO_EFFECT, span, message)
                .label("nothing would be trained")
                .help("write `tune all`"),
        );
    }
}

impl GraphBuilder<'_> {
    /// What a matrix becomes by the factors of this path; itself, where it has none.
    pub(super) fn adapted(
        &mut self,
        b: &mut Builder,
        weight: Value,
        path: &str,
    ) -> Result<Value, TypeError> {
        let paths = [added::LORA_B, added::LORA_A].map(|end| format!("{path}{end}"));
        if !paths.iter().all(|p| self.params.has(p)) {
            return Ok(weight);
        }
        let [up, down] = [self.param(b, &paths[0])?, self.param(b, &paths[1])?];
        b.part("lora", |b| {
            let update = b.push1(MatMul::new(Layout::Nn), &[up, down])?;
            let to = b.ty(weight).shape.clone();
            let update = match b.ty(update) == b.ty(weight) {
                true => update,
                false => b.push1(Reshape::of(to), &[update])?,
            };
            nn::combine(b, &[(Exact::one(), weight), (Exact::one(), update)])
        })
    }
}
