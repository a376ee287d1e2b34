//! Assigns offsets to parameters and constant tables.
//!
//! Takes the parameters and tables of a model; gives their offsets. Of those that are trained, matrices, which decay, come first in path
//! order, then vectors and scalars; so do those of each group, behind one another, those first that the optimiser keeps more beside. Each of
//! these areas is padded to whole rows of [`ROW`] elements, so that the optimiser runs over flat rows. What is not trained comes last. Numbers in paths are compared as numbers: `step.2` stands before `step.10`.

use odec_graph::ops::Parameter;
use odec_program::DType;
pub use odec_program::manifest::ROW;
use odec_program::manifest::{Constant, Init, Param, Table, Train, Tune, added, group_of};
use odec_program::optimizers::{Group, Way};
use std::collections::BTreeMap;
use thiserror::Error;

/// Parameters begin at multiples of this many bytes.
pub const ALIGN: u64 = 64;

/// Too many parameters to count.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the parameters do not fit into memory: `{path}` would end beyond 16 TiB")]
pub struct TooManyParams {
    pub path: String,
}

/// Parameters that are updated alike: whole rows, from byte to byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Area {
    pub start: u64,
    pub end: u64,
    /// As [`Train::group_of`] counts.
    pub group: usize,
    pub decays: bool,
}

/// The parameter table with the sizes of its areas.
#[derive(Clone, Debug, PartialEq)]
pub struct ParamTable {
    /// The type of their elements.
    pub real: DType,
    pub params: Vec<Param>,
    /// Where each stands in the list.
    by_path: BTreeMap<String, usize>,
    /// What is trained, area after area.
    pub areas: Vec<Area>,
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
        train: Option<&Train>,
    ) -> Result<ParamTable, TooManyParams> {
        let Some(t) = train else {
            return ParamTable::of(parameters, real, Tune::All, &[], |_| 0);
        };
        let kept = |group| t.optimizer_of(group).states().len();
        let parameters: Vec<&Parameter> = parameters.into_iter().collect();
        let beside = parameters.iter().flat_map(|p| beside(p, t));
        let beside: Vec<Parameter> = beside.collect();
        let all = parameters.into_iter().chain(&beside);
        ParamTable::of(all, real, t.tune, &t.groups, kept)
    }

    /// `kept`: how much is kept beside the parameters of a group.
    fn of<'a>(
        parameters: impl IntoIterator<Item = &'a Parameter>,
        real: DType,
        tune: Tune,
        groups: &[Group],
        kept: impl Fn(usize) -> usize,
    ) -> Result<ParamTable, TooManyParams> {
        let mut table = ParamTable {
            real,
            params: vec![],
            by_path: BTreeMap::new(),
            areas: vec![],
            trained: 0,
            bytes: 0,
        };
        let by_path: BTreeMap<Vec<Part>, &Parameter> = parameters
            .into_iter()
            .map(|p| (parts(&p.path), p))
            .collect();
        let decays = |p: &Parameter, group: usize| {
            let all = group > 0 && groups[group - 1].vectors_decay;
            all || p.decays()
        };
        let mut order: Vec<usize> = (0..=groups.len()).collect();
        order.sort_by_key(|group| std::cmp::Reverse(kept(*group)));
        let areas = |group: usize| [true, false].map(|decays| (true, group, decays));
        let areas = order.into_iter().flat_map(areas);
        for area in areas.chain([true, false].map(|decays| (false, 0, decays))) {
            let (trained, group, decayed) = area;
            let of_area = |p: &&&Parameter| match tune.trains(&p.path) {
                true => {
                    let group = group_of(groups, &p.path, &p.shape);
                    area == (true, group, decays(p, group))
                }
                false => area == (false, 0, p.decays()),
            };
            let start = table.bytes;
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
                    decay: trained && decayed,
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
            if table.bytes > start && trained {
                table.areas.push(Area {
                    start,
                    end: table.bytes,
                    group,
                    decays: decayed,
                });
            }
        }
        Ok(table)
    }

    pub fn find(&self, path: &str) -> Option<&Param> {
        self.by_path.get(path).map(|i| &self.params[*i])
    }
}

/// What an update keeps beside a parameter, if it is trained.
fn beside(p: &Parameter, train: &Train) -> Vec<Parameter> {
    let optimizer = train.optimizer_of(train.group_of(&p.path, &p.shape));
    let Way::Wholes(whole) = optimizer.way() else {
        return Vec::new();
    };
    if !train.tune.trains(&p.path) {
        return Vec::new();
    }
    let [count, rows, cols] = matrices(&p.path, &p.shape);
    let each = whole.beside([rows, cols]).into_iter();
    let each = each.map(|(end, numbers)| Parameter {
        path: format!("{}{end}", p.path),
        shape: vec![count.saturating_mul(numbers)],
        init: Init::Zeros,
    });
    each.collect()
}

/// The matrices that a parameter is, as [`added::matrices`] says; a vector is one of one row.
pub fn matrices(path: &str, shape: &[u64]) -> [u64; 3] {
    added::matrices(path, shape).unwrap_or([1, 1, shape.iter().product()])
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
    use odec_program::optimizers::Sgd;

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
        let t = ParamTable::new(&all, DType::F32, None).unwrap();
        assert_eq!(
            placed(&t),
            [
                ("step.2.w", 0, true),
                ("step.10.w", 64, true),
                ("step.2.gain", 4096, false)
            ]
        );
        let area = |start, decays| Area {
            start,
            end: start + 4096,
            group: 0,
            decays,
        };
        assert_eq!(t.areas, [area(0, true), area(4096, false)]);
        assert_eq!((t.trained, t.bytes), (8192, 8192));
    }

    #[test]
    fn what_is_not_trained_comes_last() {
        let all = [
            parameter("w", &[2, 3]),
            parameter("w.lora.a", &[1, 3]),
            parameter("gain", &[3]),
            parameter("w.lora.b", &[2, 1]),
        ];
        let t = ParamTable::of(&all, DType::F64, Tune::Lora { rank: 1 }, &[], |_| 2).unwrap();
        assert_eq!(
            placed(&t),
            [
                ("w.lora.a", 0, true),
                ("w.lora.b", 64, true),
                ("w", 8192, false),
                ("gain", 8256, false),
            ]
        );
        assert_eq!((t.areas.len(), t.trained, t.bytes), (1, 8192, 8320));
    }

    #[test]
    fn groups_that_keep_more_lie_first() {
        let all = [
            parameter("step.0.w", &[2, 3]),
            parameter("step.0.gain", &[5]),
            parameter("step.1.w", &[2, 3]),
            parameter("step.1.gain", &[5]),
        ];
        let group = |of: &str, vectors_decay| Group {
            of: vec![of.into()],
            optimizer: Sgd::default().into(),
            vectors_decay,
        };
        // The last group that names a parameter has it.
        let groups = [group("gain", true), group("step.1", false)];
        let t = ParamTable::of(&all, DType::F32, Tune::All, &groups, |g| [1, 0, 2][g]).unwrap();
        assert_eq!(
            placed(&t),
            [
                ("step.1.w", 0, true),
                ("step.1.gain", 4096, false),
                ("step.0.w", 8192, true),
                ("step.0.gain", 12288, true),
            ]
        );
        let of: Vec<_> = t.areas.iter().map(|a| (a.end, a.group, a.decays)).collect();
        let want = [
            (4096, 2, true),
            (8192, 2, false),
            (12288, 0, true),
            (16384, 1, true),
        ];
        assert_eq!(of, want);
    }

    #[test]
    fn too_large_is_an_error() {
        let all = [parameter("w", &[u64::MAX, 3])];
        assert_eq!(
            ParamTable::new(&all, DType::F32, None),
            Err(TooManyParams { path: "w".into() })
        );
    }
}
