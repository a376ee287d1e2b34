//! Types of tensors: what they hold and how they are shaped.

use odec_program::{Access, Bindings, Dim, Size};
use std::fmt;
use std::sync::Arc;

/// How a tensor lies in a wider one on row × column views.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fit {
    /// The same shape.
    Full,
    /// `[.., 1]` in `[.., C]`: a number per row.
    PerRow,
    /// `[C]` in `[.., C]`: a number per column.
    PerColumn,
    /// `[]`.
    Scalar,
}

impl Fit {
    /// How a kernel over the wider tensor, `cols` columns wide, reads the narrower one.
    pub const fn access(self, cols: u64) -> Access {
        match self {
            Fit::Full => Access::full(cols),
            Fit::PerRow => Access::PER_ROW,
            Fit::PerColumn => Access::PER_COL,
            Fit::Scalar => Access::SCALAR,
        }
    }
}

/// What a tensor holds. The precision of reals is chosen by a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Elem {
    Real,
    /// Reals that have been rounded to bf16, and are kept so. Every op reads them as reals.
    Bf16,
    /// Whole numbers used as indices: tokens, targets.
    Index,
}

/// Element kind and shape. Activations are [B, S, width], per-token numbers [B, S, 1], matrices
/// `[out, in]`, gains `[width]`, scalars `[]`. The last dimension is always fixed (or absent).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TensorType {
    pub elem: Elem,
    /// Shared by the types that are made of this one.
    pub shape: Arc<[Dim]>,
}

impl TensorType {
    pub fn real(shape: impl Into<Arc<[Dim]>>) -> TensorType {
        TensorType {
            elem: Elem::Real,
            shape: shape.into(),
        }
    }
    pub fn index(shape: impl Into<Arc<[Dim]>>) -> TensorType {
        TensorType {
            elem: Elem::Index,
            shape: shape.into(),
        }
    }
    pub fn scalar() -> TensorType {
        TensorType::real([])
    }
    /// [B, S, width].
    pub fn state(width: u64) -> TensorType {
        TensorType::real([Dim::Batch, Dim::Seq, Dim::Fixed(width)])
    }
    /// Whether it has rows of columns for each token: [B, tokens, width], the tokens S, of a source T, or, of a grid, so many.
    pub fn is_state(&self) -> bool {
        matches!(
            self.shape[..],
            [
                Dim::Batch,
                Dim::Seq | Dim::Source | Dim::Fixed(_),
                Dim::Fixed(_)
            ]
        )
    }
    /// The tokens of a state.
    pub fn tokens(&self) -> Dim {
        match self.shape[..] {
            [_, tokens, _] => tokens,
            _ => Dim::Seq,
        }
    }
    /// The type as ops read it: bf16 are reals.
    pub fn widened(&self) -> TensorType {
        let elem = match self.elem {
            Elem::Bf16 => Elem::Real,
            elem => elem,
        };
        let shape = self.shape.clone();
        TensorType { elem, shape }
    }
    pub fn rank(&self) -> usize {
        self.shape.len()
    }
    /// The last dimension (1 for scalars): the columns of the row × column view.
    pub fn cols(&self) -> u64 {
        match self.shape.last() {
            Some(Dim::Fixed(n)) => *n,
            _ => 1,
        }
    }
    /// All dimensions but the last: the rows of the row × column view.
    pub fn rows(&self) -> Size {
        let n = self.shape.len().saturating_sub(1);
        Size::of(&self.shape[..n]).expect("checked when the type was made")
    }
    pub fn size(&self) -> Size {
        Size::of(&self.shape).expect("checked when the type was made")
    }
    /// The shape for one run.
    pub fn concrete(&self, b: Bindings) -> Vec<u64> {
        self.shape.iter().map(|d| d.at(b)).collect()
    }
    /// How this shape broadcasts into `full`; `None`: it does not. What the tensors hold does not matter.
    pub fn fit(&self, full: &TensorType) -> Option<Fit> {
        match self.shape[..] {
            _ if self.shape == full.shape => Some(Fit::Full),
            [] => Some(Fit::Scalar),
            _ if self.is_per_row_of(full) => Some(Fit::PerRow),
            [Dim::Fixed(n)] if n == full.cols() && full.rank() > 1 => Some(Fit::PerColumn),
            _ => None,
        }
    }
    /// Whether this is the shape of a number per row of `full`.
    fn is_per_row_of(&self, full: &TensorType) -> bool {
        match (&self.shape[..], &full.shape[..]) {
            ([rows @ .., Dim::Fixed(1)], [all @ .., _]) => rows == all,
            (own, all) => own.is_empty() && all.is_empty(),
        }
    }
    /// Why this is no type: an empty dimension, a symbolic last one, too many elements.
    pub fn check(&self) -> Result<(), String> {
        match self.shape.last() {
            _ if self.shape.contains(&Dim::Fixed(0)) => {
                Err(format!("{self} has an empty dimension"))
            }
            Some(Dim::Batch | Dim::Seq | Dim::Source) => {
                Err(format!("{self}: the last dimension must be fixed"))
            }
            _ if Size::of(&self.shape).is_none() => Err(format!("{self} has too many elements")),
            _ => Ok(()),
        }
    }
    /// The same shape with `cols` columns.
    pub fn with_cols(&self, cols: u64) -> TensorType {
        let mut shape = self.shape.clone();
        match shape.last() {
            Some(last) if *last != Dim::Fixed(cols) => {
                *Arc::make_mut(&mut shape).last_mut().expect("it has one") = Dim::Fixed(cols);
            }
            _ => {}
        }
        TensorType { shape, ..*self }
    }
    /// The same shape with one column: a number per row.
    pub fn per_row(&self) -> TensorType {
        self.with_cols(1)
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let dims: Vec<String> = self.shape.iter().map(|d| d.to_string()).collect();
        let elem = match self.elem {
            Elem::Real => "",
            Elem::Bf16 => "bf16",
            Elem::Index => "index",
        };
        write!(f, "{elem}[{}]", dims.join(", "))
    }
}
