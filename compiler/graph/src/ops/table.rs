//! A constant table known at build time: rotary cosines and sines, sinusoidal positions, normal numbers.

use crate::op::{EvalError, Kind, TypeError, Vjp};
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{fail, operands};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::TensorType;
use odec_program::Dim;
use odec_program::manifest::{self, LongWaves, Places, Turns, Waves};

/// `[positions, columns]`, with the values of [`manifest::Table::values`].
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    pub table: manifest::Table,
}

type Written = Vec<(&'static str, String)>;

fn numbers<const N: usize>(named: [(&'static str, f64); N]) -> Written {
    named.map(|(name, x)| (name, x.to_string())).to_vec()
}

fn written_waves(waves: Waves) -> Written {
    match waves {
        Waves::Weights { base, scale, .. } => numbers([("base", base), ("scale", scale)]),
        Waves::Positions { base, .. } => numbers([("base", base)]),
    }
}

fn written_turns(base: f64, turns: Turns) -> Written {
    let columns = turns.columns.map(|n| ("columns", n.to_string()));
    let scaling = turns.scaling.map(|x| ("scaling", x.to_string()));
    let mut all = numbers([("base", base)]);
    all.extend(columns.into_iter().chain(scaling));
    if let Some(long) = turns.long {
        let LongWaves {
            context,
            slow,
            fast,
        } = long;
        all.extend(numbers([("context", context), ("slow", slow), ("fast", fast)]));
    }
    all.extend(turns.magnitude.map(|x| ("magnitude", x.to_string())));
    if turns.interleaved {
        all.push(("interleaved", "true".into()));
    }
    if let Some(Places { leading, sides }) = turns.grid {
        all.push(("sides", format!("{sides:?}")));
        all.push(("leading", leading.to_string()));
    }
    all
}

fn read_turns(given: &mut Attrs) -> Result<Turns, ParseError> {
    Ok(Turns {
        columns: given.optional("columns")?,
        scaling: given.optional("scaling")?,
        long: match given.optional("context")? {
            Some(context) => Some(LongWaves {
                context,
                slow: given.need("slow")?,
                fast: given.need("fast")?,
            }),
            None => None,
        },
        magnitude: given.optional("magnitude")?,
        interleaved: given.optional("interleaved")?.unwrap_or(false),
        grid: match given.optional("sides")? {
            Some(sides) => Some(Places {
                leading: given.need("leading")?,
                sides: two(given, sides)?,
            }),
            None => None,
        },
    })
}

/// Rows and columns of a grid.
fn two(given: &mut Attrs, sides: Vec<i32>) -> Result<[u64; 2], ParseError> {
    let sides: Vec<u64> = sides.iter().flat_map(|n| u64::try_from(*n)).collect();
    match sides[..] {
        [rows, columns] => Ok([rows, columns]),
        _ => given.refuse("sides", "`sides` are two whole numbers"),
    }
}

/// Features of weights have a scale, those of positions have none.
fn read_waves(given: &mut Attrs, columns: u64) -> Result<Waves, ParseError> {
    let base = given.need("base")?;
    let width = columns;
    Ok(match given.optional("scale")? {
        Some(scale) => Waves::Weights {
            n: columns / 2,
            base,
            scale,
        },
        None => Waves::Positions { width, base },
    })
}

impl Op for Table {
    const NAME: &'static str = "table";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        let (kind, mut more) = match self.table {
            manifest::Table::RotaryCos { base, turns, .. } => {
                ("rotary_cos", written_turns(base, turns))
            }
            manifest::Table::RotarySin { base, turns, .. } => {
                ("rotary_sin", written_turns(base, turns))
            }
            manifest::Table::Sinusoid { base, .. } => ("sinusoid", numbers([("base", base)])),
            manifest::Table::Grid {
                leading,
                sides,
                base,
                ..
            } => {
                let mut more = numbers([("base", base)]);
                more.push(("sides", format!("{sides:?}")));
                more.push(("leading", leading.to_string()));
                ("grid", more)
            }
            manifest::Table::Normal { std, stream, .. } => {
                let mut more = numbers([("std", std)]);
                more.push(("stream", stream.to_string()));
                ("normal", more)
            }
            manifest::Table::Time { t, waves } => {
                let mut more = numbers([("t", t)]);
                more.extend(written_waves(waves));
                ("time", more)
            }
            manifest::Table::Frequencies(waves) => ("frequencies", written_waves(waves)),
            manifest::Table::Phases(waves) => ("phases", written_waves(waves)),
            manifest::Table::Index { .. } => ("index", Vec::new()),
            manifest::Table::Buckets { .. } => ("buckets", Vec::new()),
        };
        more.insert(0, ("kind", kind.into()));
        more
    }

    fn from_attrs(given: &mut Attrs) -> Result<Self, ParseError> {
        let kinds = [
            "rotary_cos",
            "rotary_sin",
            "sinusoid",
            "grid",
            "normal",
            "time",
            "frequencies",
            "phases",
            "index",
            "buckets",
        ];
        let kind = given.choice("kind", &kinds.map(|k| (k, k)))?;
        let [positions, width] = given.matrix()?;
        let (head, base) = (width, "base");
        let table = match kind {
            "rotary_cos" => {
                let base = given.need(base)?;
                manifest::Table::RotaryCos {
                    positions,
                    head,
                    base,
                    turns: read_turns(given)?,
                }
            }
            "rotary_sin" => {
                let base = given.need(base)?;
                manifest::Table::RotarySin {
                    positions,
                    head,
                    base,
                    turns: read_turns(given)?,
                }
            }
            "sinusoid" => {
                let base = given.need(base)?;
                manifest::Table::Sinusoid {
                    positions,
                    width,
                    base,
                }
            }
            "grid" => {
                let sides = given.need("sides")?;
                manifest::Table::Grid {
                    sides: two(given, sides)?,
                    leading: given.need("leading")?,
                    width,
                    base: given.need(base)?,
                }
            }
            "normal" => manifest::Table::Normal {
                positions,
                width,
                std: given.need("std")?,
                stream: given.need("stream")?,
            },
            "frequencies" => manifest::Table::Frequencies(read_waves(given, width)?),
            "phases" => manifest::Table::Phases(read_waves(given, width)?),
            "index" => manifest::Table::Index { columns: width },
            "buckets" => manifest::Table::Buckets {
                distances: positions,
                buckets: width,
            },
            _ => manifest::Table::Time {
                t: given.need("t")?,
                waves: read_waves(given, width)?,
            },
        };
        Ok(Table { table })
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
        if let manifest::Table::RotaryCos { turns, .. } | manifest::Table::RotarySin { turns, .. } =
            self.table
        {
            let fits = |n: u64| n.is_multiple_of(2) && (2..=shape[1]).contains(&n);
            let positive = |x: f64| x > 0.0 && x.is_finite();
            let ordered = |l: LongWaves| {
                positive(l.context) && l.slow >= 0.0 && l.slow < l.fast && l.fast.is_finite()
            };
            let turned = turns.columns.unwrap_or(shape[1]);
            let on_grid = |p: Places| turned.is_multiple_of(4) && p.positions() == shape[0];
            if !turns.columns.is_none_or(fits)
                || !turns.grid.is_none_or(on_grid)
                || !turns.scaling.is_none_or(positive)
                || !turns.magnitude.is_none_or(positive)
                || !turns.long.is_none_or(ordered)
            {
                return fail(Self::NAME, format!("turns {turns:?} of {} columns", shape[1]));
            }
        }
        if let manifest::Table::Grid { width, .. } = self.table
            && !width.is_multiple_of(4)
        {
            let what = format!("{width} columns do not hold waves of two axes");
            return fail(Self::NAME, what);
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
            turns: Turns::default(),
        };
        let part = manifest::Table::RotaryCos {
            positions: 5,
            head: 6,
            base: 100.0,
            turns: Turns {
                columns: Some(4),
                scaling: Some(2.0),
                interleaved: true,
                ..Turns::default()
            },
        };
        let axes = manifest::Table::RotarySin {
            positions: 7,
            head: 8,
            base: 100.0,
            turns: Turns {
                grid: Some(Places {
                    leading: 1,
                    sides: [2, 3],
                }),
                ..Turns::default()
            },
        };
        let sinusoid = manifest::Table::Sinusoid {
            positions: 5,
            width: 7,
            base: 100.0,
        };
        let buckets = manifest::Table::Buckets {
            distances: 9,
            buckets: 5,
        };
        let grid = manifest::Table::Grid {
            leading: 1,
            sides: [2, 3],
            width: 8,
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
            waves: Waves::Weights {
                n: 3,
                base: 100.0,
                scale: 10.0,
            },
        };
        let index = manifest::Table::Index { columns: 3 };
        vec![
            Sample::new(Table { table: normal }, "normal", vec![]),
            Sample::new(Table { table: sine }, "sine", vec![]),
            Sample::new(Table { table: part }, "part of a head", vec![]),
            Sample::new(Table { table: axes }, "rows and columns", vec![]),
            Sample::new(Table { table: sinusoid }, "sinusoid", vec![]),
            Sample::new(Table { table: grid }, "grid", vec![]),
            Sample::new(Table { table: time }, "time", vec![]),
            Sample::new(Table { table: index }, "index", vec![]),
            Sample::new(Table { table: buckets }, "buckets", vec![]),
        ]
    }
}
