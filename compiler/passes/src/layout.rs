//! Assigns offsets to parameters and constant tables.
//!
//! Takes the parameters and tables of a model; gives their offsets. Of those that are trained, matrices, which decay, come first in path
//! order, then vectors and scalars; each of the two areas is padded to whole rows of [`ROW`] elements, so that the optimiser
//! runs over flat rows. What is not trained comes last. Numbers in paths are compared as numbers: `step.2` stands before `step.10`.

use odec_graph::ops::Parameter;
use odec_program::DType;
use odec_program::manifest::{Constant, Param, Table, Tune};
use std::collections::BTreeMap;
use thiserror::Error;

/// Elements of a row of the optimiser's view of all parameters.
pub const ROW: u64 = 1024;

const ALIGN: u64 = 64;

/// Too many parameters to count.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the parameters do not fit into memory: `{path}` would end beyond 16 TiB")]
pub struct TooManyParams {
    pub path: String,
}

/// The parameter table with the sizes of its areas.
#[derive(Clone, Debug, PartialEq)]
pub struct ParamTable {
    /// The type of their elements.
    pub real: DType,
    pub params: Vec<Param>,
    /// Where each stands in the list.
    by_path: BTreeMap<String, usize>,
    /// Bytes of the area that decays: whole rows.
    pub decayed: u64,
    /// Bytes of all that is trained: whole rows.
    pub trained: u64,
    /// Bytes of all.
    pub bytes: u64,
}

impl ParamTable {
    /// Lays out parameters of elements `real`; equal paths are one parameter.
    ///
    /// # Errors
    /// When sizes overflow.
    pub fn new<'a>(
        parameters: impl IntoIterator<Item = &'a Parameter>,
        real: DType,
        tune: Tune,
    ) -> Result<ParamTable, TooManyParams> {
        let mut table = ParamTable {
            real,
            params: vec![],
            by_path: BTreeMap::new(),
            decayed: 0,
            trained: 0,
            bytes: 0,
        };
        let by_path: BTreeMap<Vec<Part>, &Parameter> = parameters
            .into_iter()
            .map(|p| (parts(&p.path), p))
            .collect();
        let areas = [(true, true), (true, false), (false, true), (false, false)];
        for (trained, decays) in areas {
            let of_area = |p: &&&Parameter| (tune.trains(&p.path), p.decays()) == (trained, decays);
            for p in by_path.values().filter(of_area) {
                let fail = || TooManyParams {
                    path: p.path.clone(),
                };
                let bytes = p
                    .shape
                    .iter()
                    .try_fold(real.bytes(), |n, d| n.checked_mul(*d))
                    .ok_or_else(fail)?;
                let at = table.params.len();
                table.by_path.insert(p.path.clone(), at);
                table.params.push(Param {
                    path: p.path.clone(),
                    shape: p.shape.clone(),
                    offset: table.bytes,
                    init: p.init.clone(),
                    decay: trained && decays,
                });
                let end = table
                    .bytes
                    .checked_add(bytes)
                    .and_then(|n| n.checked_next_multiple_of(ALIGN));
                table.bytes = end.filter(|n| *n <= 1 << 44).ok_or_else(fail)?;
            }
            if trained {
                table.bytes = table.bytes.next_multiple_of(ROW * real.bytes());
                table.trained = table.bytes;
            }
            if trained && decays {
                table.decayed = table.bytes;
            }
        }
        Ok(table)
    }

    pub fn find(&self, path: &str) -> Option<&Param> {
        self.by_path.get(path).map(|i| &self.params[*i])
    }
}

/// A part of a path: numbers sort as numbers, before names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Number(u64),
    Name(String),
}

fn parts(path: &str) -> Vec<Part> {
    path.split('.')
        .map(|p| {
            p.parse()
                .map_or_else(|_| Part::Name(p.into()), Part::Number)
        })
        .collect()
}

/// Constant tables with their offsets, each once, and the bytes of all.
pub fn constants<'a>(
    tables: impl IntoIterator<Item = &'a Table>,
    real: DType,
) -> (Vec<Constant>, u64) {
    let mut out: Vec<Constant> = Vec::new();
    let mut bytes = 0u64;
    for t in tables {
        if out.iter().any(|c| c.table == *t) {
            continue;
        }
        out.push(Constant {
            offset: bytes,
            table: t.clone(),
        });
        let size = t
            .shape()
            .iter()
            .fold(real.bytes(), |n, d| n.saturating_mul(*d));
        bytes = bytes
            .saturating_add(size)
            .checked_next_multiple_of(ALIGN)
            .unwrap_or(u64::MAX);
    }
    (out, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use odec_program::manifest::Init;

    fn parameter(path: &str, shape: &[u64]) -> Parameter {
        Parameter {
            path: path.into(),
            shape: shape.to_vec(),
            init: Init::Zeros,
        }
    }

    fn placed(t: &ParamTable) -> Vec<(&str, u64, bool)> {
        let params = t.params.iter();
        params
            .map(|p| (p.path.as_str(), p.offset, p.decay))
            .collect()
    }

    #[test]
    fn matrices_first_in_path_order_both_areas_padded() {
        let all = [
            parameter("step.10.w", &[2, 3]),
            parameter("step.2.gain", &[5]),
            parameter("step.2.w", &[2, 3]),
            parameter("step.2.w", &[2, 3]),
        ];
        let t = ParamTable::new(&all, DType::F32, Tune::All).unwrap();
        assert_eq!(
            placed(&t),
            [
                ("step.2.w", 0, true),
                ("step.10.w", 64, true),
                ("step.2.gain", 4096, false)
            ]
        );
        assert_eq!((t.decayed, t.trained, t.bytes), (4096, 8192, 8192));
    }

    #[test]
    fn what_is_not_trained_comes_last() {
        let all = [
            parameter("w", &[2, 3]),
            parameter("w.lora.a", &[1, 3]),
            parameter("gain", &[3]),
            parameter("w.lora.b", &[2, 1]),
        ];
        let t = ParamTable::new(&all, DType::F64, Tune::Lora { rank: 1 }).unwrap();
        assert_eq!(
            placed(&t),
            [
                ("w.lora.a", 0, true),
                ("w.lora.b", 64, true),
                ("w", 8192, false),
                ("gain", 8256, false),
            ]
        );
        assert_eq!((t.decayed, t.trained, t.bytes), (8192, 8192, 8320));
    }

    #[test]
    fn too_large_is_an_error() {
        let all = [parameter("w", &[u64::MAX, 3])];
        assert_eq!(
            ParamTable::new(&all, DType::F32, Tune::All),
            Err(TooManyParams { path: "w".into() })
        );
    }
}
