//! Keys and values of fewer tokens than the state has: `attend(q, conv2d(kernel: 3, stride: 2) |> linear, …, heads: 4)`.
//!
//! Such a value stands where attention reads keys and values and nowhere else, for its rows are those of another grid. What follows its convolution
//! sees one token at a time.

use super::conv2d::STRIDE;
use super::network::Network;
use super::pipeline::{Input, LayerReader, pipeline};
use super::{Conv2d, Layer, LayerKind};
use crate::codes;
use crate::scheme::args::Args;
use odec_grammar::ast::Expr;
use odec_grammar::diag::Diagnostic;

/// Whether a part says how far its squares are apart.
fn strides(e: &Expr) -> bool {
    let named = |args: &Args| args.callee.name == Conv2d::NAME && args.has(STRIDE.name);
    Args::of(e).as_ref().is_some_and(named)
}

/// Rows and columns of the grid that a value's tokens stand on, where it is not the state's.
pub(super) fn grid_of(network: &Network) -> Option<[u32; 2]> {
    let of = |n: &Network| match n {
        Network::Layer(LayerKind::Conv2d(conv)) if conv.window.stride > 1 => {
            Some(conv.window.windows)
        }
        _ => None,
    };
    match network {
        Network::Pipe(parts) => parts.iter().find_map(of),
        one => of(one),
    }
}

impl LayerReader<'_> {
    /// Keys or values, if they are made by a convolution that says its stride. `Some(None)`: something is wrong, and that has been said.
    pub(super) fn perhaps_fewer(
        &mut self,
        e: &Expr,
        input: Input,
    ) -> Option<Option<(Network, u64)>> {
        let mut parts = Vec::new();
        pipeline(e, &mut parts);
        let conv = parts.iter().position(|p| strides(p))?;
        Some(self.fewer(&parts, conv, input))
    }

    fn fewer(&mut self, parts: &[&Expr], conv: usize, input: Input) -> Option<(Network, u64)> {
        let (mut layers, mut at, mut out) = (Vec::new(), input, 0);
        for (number, part) in parts.iter().enumerate() {
            self.of_field.fewer = number == conv;
            let read = self.layer(part, at);
            self.of_field.fewer = false;
            let (layer, next) = read?;
            let reads = layer.reads();
            if number > conv && (reads.all_tokens || reads.later_tokens || reads.kept > 0) {
                let message = "what follows a stride is read one token at a time";
                let d = Diagnostic::error(codes::INCOMPATIBLE, part.span, message);
                return self.fail(d.label("this reads other tokens"));
            }
            if number > conv && reads.rotary.iter().any(|a| a.turns.grid.is_some()) {
                let message = "what follows a stride stands on another grid than the state";
                let d = Diagnostic::error(codes::INCOMPATIBLE, part.span, message);
                return self.fail(d.label("this turns by rows and columns of the state's grid"));
            }
            layers.push(layer);
            // Values with names have the state's tokens.
            at = match number >= conv {
                true => Input {
                    before: Some(next),
                    named: &[],
                },
                false => at.behind(next),
            };
            out = next;
        }
        Some((Network::Pipe(layers), out))
    }
}
