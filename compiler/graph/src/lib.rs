//! The tensor graph: ops, types, builder, verifier, autodiff, f64 interpreter and printers.
//!
//! Takes calls to the [`graph::Builder`] (from `odec-compiler`'s model stage); gives typed graphs, their gradients
//! and their meaning. Leaves schemes and fields to `odec-compiler`, code to its passes and `odec-mlir`.
//!
//! # Invariants
//!
//! - Graphs are never edited: a pass reads one and builds the next through [`Builder`], which infers types. Node
//!   numbers are a topological order.
//! - What nodes have alike (types, sites, coefficients) is shared (`shared.rs`): a pass copies numbers of operands, and infers the types of
//!   a copy only where those of its operands change.
//! - Every node carries its `Site` and the span it came from. The verifier runs after each pass in debug builds.
//! - An op is one file and one line of `ops!`; its trait has no default methods, so a missing rule does not compile.
//! - Coefficients of schemes are exact until an instruction is emitted. Only 0 and ±1 are structural.
//! - Fixed points are unrolled, mixing and stopping tests included (`solve.rs`): rows see no other rows but through the
//!   fields. A `Solution` marks where autodiff solves for a cotangent instead of going through iterations; no pass
//!   after autodiff knows of it.
//! - What only the unchosen side of a `select` reads need not be computed. `region_begin` stands where values go into such a
//!   region, so that the same holds of derivatives.
//!
//! ```
//! use odec_graph::{Builder, Tensor, TensorType, gradient, nn, ops, run};
//! use odec_program::{Bindings, manifest::Init};
//! use std::collections::BTreeMap;
//!
//! // y = Σ silu(x wᵀ) over tokens, and its derivative by w
//! let mut b = Builder::new();
//! let x = b.push1(ops::Input { name: "x".into(), ty: TensorType::state(2) }, &[])?;
//! let w = ops::Parameter { path: "w".into(), shape: vec![1, 2], init: Init::Normal { std: 0.02 } };
//! let w = b.push1(w, &[])?;
//! let y = nn::linear(&mut b, x, w)?;
//! let y = nn::silu(&mut b, y)?;
//! let y = b.push1(ops::SumRows, &[y])?;
//! let (graph, d) = gradient(b.finish(), y, &[w])?;
//! let mut b = Builder::extend(graph);
//! b.output("d", d[0].expect("y depends on w"));
//!
//! let feeds = BTreeMap::from([
//!     ("x".to_string(), Tensor::new(vec![1, 1, 2], vec![1.0, 2.0])),
//!     ("w".to_string(), Tensor::new(vec![1, 2], vec![0.0, 0.0])),
//! ]);
//! let results = run(&b.finish(), &feeds, Bindings::new(1, 1))?;
//! assert_eq!(results["d"].data, [0.5, 1.0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod autodiff;
mod broyden;
pub mod diagram;
pub mod dot;
pub mod fold;
mod formula;
pub mod graph;
pub mod interp;
pub mod nn;
pub mod op;
pub mod ops;
pub mod print;
pub mod replay;
mod shared;
pub mod solve;
pub mod svg;
pub mod tensor;
pub mod text;
pub mod types;
pub mod value;
pub mod verify;

pub use autodiff::{DiffError, gradient};
pub use graph::{Pass, Site, Solution};
pub use interp::{RunError, run};
pub use odec_exact as exact;
pub use odec_exact::{Exact, ExactError};
pub use op::{InferTypes, Kind, TypeError, TypeResult};
pub use ops::{Builder, Graph, Node, Op, OpKind};
pub use shared::Shared;
pub use tensor::Tensor;
pub use types::{Elem, TensorType};
pub use value::Value;
pub use verify::{VerifyError, verify};
