//! Builds kernel bodies from graph nodes.
//!
//! Takes the members of a row group, or a sum over rows with the maps that feed it; gives the kernel with the values
//! it reads and writes and its launch coefficients. Operands are numbered in the order in which the body first
//! reads them, so that equal computations make equal kernels wherever they stand. Leaves grouping to `fuse`.

use super::facts::{Domain, Facts, Role, kind, only, pointwise_access};
use odec_graph::op::{Kind, Read, Scalars};
use odec_graph::types::Elem;
use odec_graph::{Graph, TensorType, Value};
use odec_program::expr::{ColMap, ExprId, ReduceOp, RowMap};
use odec_program::kernel::{Columns, Rows, Store};
use odec_program::{Access, Body, Coeff, DType, Size};
use std::collections::BTreeMap;
use thiserror::Error;

/// A kernel and what it is launched on.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound<K> {
    pub spec: K,
    /// Values read, in operand order.
    pub inputs: Vec<Value>,
    /// Values written, in operand order.
    pub outputs: Vec<Value>,
    pub dims: Vec<Size>,
    pub coeffs: Vec<Coeff>,
}

/// An op whose rule does not fit its operands: a fault of the op.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("operand {operand} of `{op}`, {ty}, cannot be read over {rows} rows × {cols} columns")]
pub struct BodyError {
    pub op: &'static str,
    pub operand: usize,
    pub ty: String,
    pub rows: Size,
    pub cols: u64,
}

/// The element type of a value in memory.
pub fn dtype(ty: &TensorType, real: DType) -> DType {
    match ty.elem {
        Elem::Real => real,
        Elem::Bf16 => DType::Bf16,
        Elem::Index => DType::I32,
    }
}

struct Writer<'a> {
    facts: &'a Facts<'a>,
    graph: &'a Graph,
    domain: Domain,
    real: DType,
    body: Body,
    coeffs: Vec<Coeff>,
    inputs: Vec<Value>,
    made: BTreeMap<Value, ExprId>,
}

impl<'a> Writer<'a> {
    fn new(facts: &'a Facts<'a>, domain: Domain, real: DType) -> Writer<'a> {
        Writer {
            facts,
            graph: facts.graph(),
            domain,
            real,
            body: Body::default(),
            coeffs: vec![],
            inputs: vec![],
            made: BTreeMap::new(),
        }
    }

    fn load(&mut self, v: Value, access: Access) -> ExprId {
        let operand = self.inputs.iter().position(|x| *x == v).unwrap_or_else(|| {
            self.inputs.push(v);
            self.inputs.len() - 1
        });
        self.body.load(operand as u32, access)
    }

    /// A value as an expression: computed here, a launch argument, or read from memory.
    fn read(&mut self, n: u32, operand: usize) -> Result<ExprId, BodyError> {
        let node = self.graph.node(n);
        let v = node.operands[operand];
        if let Some(e) = self.made.get(&v) {
            return Ok(*e);
        }
        if *self.facts.role(v.node) == Role::Scalar
            && let Kind::Scalar(c) = kind(self.graph, v.node)
        {
            return Ok(Scalars {
                body: &mut self.body,
                coeffs: &mut self.coeffs,
            }
            .coeff(c));
        }
        let ty = self.graph.ty(v);
        let access = pointwise_access(ty, self.domain).ok_or_else(|| BodyError {
            op: node.op.name(),
            operand,
            ty: ty.to_string(),
            rows: self.domain.rows,
            cols: self.domain.cols,
        })?;
        Ok(self.load(v, access))
    }

    fn node(&mut self, n: u32) -> Result<(), BodyError> {
        let Kind::Rows { reads, rule } = kind(self.graph, n) else {
            return Ok(());
        };
        let mut args = Vec::new();
        for (i, read) in reads.iter().enumerate() {
            match read {
                Read::Pointwise => args.push(self.read(n, i)?),
                Read::Through(accesses) => {
                    let v = self.graph.node(n).operands[i];
                    args.extend(accesses.iter().map(|a| self.load(v, *a)));
                }
            }
        }
        let e = rule(
            &mut Scalars {
                body: &mut self.body,
                coeffs: &mut self.coeffs,
            },
            &args,
        );
        self.made.insert(only(n), e);
        Ok(())
    }

    fn operand_types(&self, outputs: &[Value]) -> Vec<DType> {
        let types = self.inputs.iter().chain(outputs).map(|v| self.graph.ty(*v));
        types.map(|t| dtype(t, self.real)).collect()
    }

    fn dims(&self) -> Vec<Size> {
        let by_position = self.body.nodes.iter().any(|e| {
            matches!(e, odec_program::expr::Expr::Load { access, .. } if access.row.by_position())
        });
        let rows = self.domain.rows;
        let seq = match rows {
            _ if !by_position => Size::ONE,
            // Of a grid.
            Size {
                batch: 1,
                seq: 0,
                source: 0,
                ..
            } => Size::fixed(rows.factor),
            Size { source: 1, .. } => Size::SOURCE,
            _ => Size::SEQ,
        };
        vec![rows, seq]
    }
}

/// One kernel for a row group that writes the values in `stored`.
pub fn rows(
    facts: &Facts,
    nodes: &[u32],
    domain: Domain,
    stored: Vec<Value>,
    real: DType,
) -> Result<Bound<Rows>, BodyError> {
    let graph = facts.graph();
    let mut w = Writer::new(facts, domain, real);
    for n in nodes {
        w.node(*n)?;
    }
    let first = w.inputs.len();
    let stores = stored
        .iter()
        .enumerate()
        .map(|(i, v)| {
            let cols = graph.ty(*v).cols();
            let access = if cols == 1 {
                Access::PER_ROW
            } else {
                Access::full(cols)
            };
            Store {
                operand: (first + i) as u32,
                access,
                value: w.made[v],
            }
        })
        .collect();
    let spec = Rows {
        dtype: real,
        cols: domain.cols,
        operands: w.operand_types(&stored),
        uniforms: w.coeffs.len() as u32,
        stores,
        body: Body::default(),
    };
    let dims = w.dims();
    Ok(Bound {
        spec: Rows {
            body: w.body,
            ..spec
        },
        inputs: w.inputs,
        outputs: stored,
        dims,
        coeffs: w.coeffs,
    })
}

/// The kernel of a sum over rows; `nodes` ends with the sum, the maps before it are computed inside.
pub fn columns(
    facts: &Facts,
    nodes: &[u32],
    accumulate: bool,
    real: DType,
) -> Result<Bound<Columns>, BodyError> {
    let (sum, maps) = nodes.split_last().expect("a sum over rows has a node");
    let graph = facts.graph();
    let ty = graph.ty(graph.node(*sum).operands[0]);
    let mut w = Writer::new(
        facts,
        Domain {
            rows: ty.rows(),
            cols: ty.cols(),
        },
        real,
    );
    for n in maps {
        w.node(*n)?;
    }
    let value = w.read(*sum, 0)?;
    let out = vec![only(*sum)];
    let spec = Columns {
        dtype: real,
        cols: w.domain.cols,
        operands: w.operand_types(&out),
        uniforms: w.coeffs.len() as u32,
        body: Body::default(),
        value,
        accumulate,
        parts: 1,
    };
    let dims = w.dims();
    Ok(Bound {
        spec: Columns {
            body: w.body,
            ..spec
        },
        inputs: w.inputs,
        outputs: out,
        dims,
        coeffs: w.coeffs,
    })
}

/// A kernel that fills a tensor with a launch argument.
pub fn fill(ty: &TensorType, value: Coeff, real: DType) -> (Rows, Vec<Size>, Vec<Coeff>) {
    let (mut body, mut coeffs) = (Body::default(), Vec::new());
    let value = Scalars {
        body: &mut body,
        coeffs: &mut coeffs,
    }
    .coeff(value);
    let store = Store {
        operand: 0,
        access: store_access(ty.cols()),
        value,
    };
    let operands = vec![real];
    let spec = Rows {
        dtype: real,
        cols: ty.cols(),
        operands,
        uniforms: coeffs.len() as u32,
        body,
        stores: vec![store],
    };
    (spec, vec![ty.rows(), Size::ONE], coeffs)
}

/// A kernel that copies a tensor.
pub fn copy(ty: &TensorType, real: DType) -> (Rows, Vec<Size>) {
    let mut body = Body::default();
    let access = store_access(ty.cols());
    let value = body.load(0, access);
    let store = Store {
        operand: 1,
        access,
        value,
    };
    let spec = Rows {
        dtype: real,
        cols: ty.cols(),
        operands: vec![dtype(ty, real); 2],
        uniforms: 0,
        body,
        stores: vec![store],
    };
    (spec, vec![ty.rows(), Size::ONE])
}

/// A kernel that adds up the `parts` of rows of `cols` numbers that lie side by side, one after the other, onto what is there if it
/// `accumulates`. Operands: the parts, the sums.
pub fn sum_of_parts(cols: u64, parts: u64, accumulates: bool, real: DType) -> Rows {
    let mut body = Body::default();
    let wide = cols * parts;
    let part = |n: u64| Access {
        row: RowMap::Row,
        col: ColMap::Turn {
            cols: wide,
            by: n * cols,
        },
        stride: wide,
    };
    let before = accumulates.then(|| body.load(1, Access::full(cols)));
    let mut sum = before;
    for n in 0..parts {
        let x = body.load(0, part(n));
        sum = Some(match sum {
            Some(sum) => body.add(sum, x),
            None => x,
        });
    }
    let store = Store {
        operand: 1,
        access: Access::full(cols),
        value: sum.expect("there are parts"),
    };
    Rows {
        dtype: real,
        cols,
        operands: vec![real; 2],
        uniforms: 0,
        body,
        stores: vec![store],
    }
}

/// A kernel that adds up rows of `cols` numbers, onto what is there if it `accumulates`. Operands: the rows, the sums.
pub fn sum_of_rows(cols: u64, accumulates: bool, real: DType) -> Columns {
    let mut body = Body::default();
    let value = body.load(0, Access::full(cols));
    Columns {
        dtype: real,
        cols,
        operands: vec![real; 2],
        uniforms: 0,
        body,
        value,
        accumulate: accumulates,
        parts: 1,
    }
}

/// A kernel that adds up the products of two rows of `cols` numbers of type `of`. Operands: the two, a number for each row.
pub fn products_of_rows(cols: u64, of: DType, real: DType) -> Rows {
    let mut body = Body::default();
    let [x, y] = [0, 1].map(|n| body.load(n, Access::full(cols)));
    let product = body.mul(x, y);
    let store = Store {
        operand: 2,
        access: store_access(1),
        value: body.reduce(ReduceOp::Sum, product),
    };
    Rows {
        dtype: real,
        cols,
        operands: vec![of, of, real],
        uniforms: 0,
        body,
        stores: vec![store],
    }
}

/// Row by row, an element each or one per row.
pub fn store_access(cols: u64) -> Access {
    match cols {
        1 => Access {
            col: ColMap::Zero,
            ..Access::full(1)
        },
        n => Access::full(n),
    }
}
