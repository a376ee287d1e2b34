//! A constant table known at build time: rotary cosines and sines, sinusoidal positions, normal numbers.

use crate::interp::{EvalCx, Tensor};
use crate::op::{EvalError, Kind, Op, Sample, TypeError, Vjp, VjpCx};
use crate::ops::support::{fail, operands};
use crate::types::TensorType;
use odec_program::Dim;
use odec_program::manifest;

/// `[positions, columns]`, with the values of [`manifest::Table::values`].
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    pub table: manifest::Table,
}

impl Op for Table {
    const NAME: &'static str = "table";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        let kind = match self.table {
            manifest::Table::RotaryCos { .. } => "rotary_cos",
            manifest::Table::RotarySin { .. } => "rotary_sin",
            manifest::Table::Sinusoid { .. } => "sinusoid",
            manifest::Table::Normal { std, stream, .. } => {
                let std = std.to_string();
                return vec![
                    ("kind", "normal".into()),
                    ("std", std),
                    ("stream", stream.to_string()),
                ];
            }
            manifest::Table::Time { t, .. } => return vec![("time", t.to_string())],
            manifest::Table::Frequencies(_) => "frequencies",
            manifest::Table::Phases(_) => "phases",
        };
        let base = self.table.base().to_string();
        vec![("kind", kind.into()), ("base", base)]
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        operands::<0>(Self::NAME, ins)?;
        let (shape, base) = (self.table.shape(), self.table.base());
        let halves = matches!(
            self.table,
            manifest::Table::RotaryCos { .. } | manifest::Table::RotarySin { .. }
        );
        if halves && !shape[1].is_multiple_of(2) {
            return fail(
                Self::NAME,
                format!("{} columns have no two halves", shape[1]),
            );
        }
        if !(base > 0.0 && base.is_finite()) {
            return fail(Self::NAME, format!("base {base} is not a positive number"));
        }
        Ok(vec![TensorType::real(shape.map(Dim::Fixed))])
    }

    fn eval(&self, _: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        let shape = self.table.shape().to_vec();
        Ok(vec![Tensor::new(shape, self.table.values())])
    }

    fn vjp(&self, _: &mut VjpCx) -> Vjp {
        Vjp::Zero
    }

    fn kind(&self, _: &[TensorType]) -> Kind {
        Kind::Source
    }

    fn samples() -> Vec<Sample> {
        let sine = manifest::Table::RotarySin {
            positions: 5,
            head: 4,
            base: 100.0,
        };
        let sinusoid = manifest::Table::Sinusoid {
            positions: 5,
            width: 7,
            base: 100.0,
        };
        let normal = manifest::Table::Normal {
            positions: 5,
            width: 7,
            std: 0.5,
            stream: 3,
        };
        let time = manifest::Table::Time {
            t: 0.75,
            waves: manifest::Waves::Weights {
                n: 3,
                base: 100.0,
                scale: 10.0,
            },
        };
        vec![
            Sample::new(Table { table: normal }, "normal", vec![]),
            Sample::new(Table { table: sine }, "sine", vec![]),
            Sample::new(Table { table: sinusoid }, "sinusoid", vec![]),
            Sample::new(Table { table: time }, "time", vec![]),
        ]
    }
}
