//! The output of lowering and the input of memory planning: launches over virtual buffers.
//!
//! A [`LaunchList`] is a straight-line list of launches whose arguments are numbered buffers. Buffers with a fixed place (parameters,
//! gradients, inputs, outputs, tables) know it already; `plan` gives the others their offsets in the arena. `lower` and `update` decide
//! what to launch.

pub use super::spec::Spec;
use odec_graph::Shared;
use odec_program::kernel::Mode;
use odec_program::{Bindings, Coeff, DType, Operand, Pieces, Site, Size};
use std::fmt;

/// Index of a buffer in its [`LaunchList`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferId(pub u32);

/// Where a buffer lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Somewhere in the entry's arena: `plan` decides.
    Arena,
    /// At a place that outlives the entry, or that its caller gives.
    Fixed(Operand),
}

/// What a buffer is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Name {
    Text(String),
    /// A value of a graph, or what is made of it: op, place in the model, node. The words are put together where they are read, as few are.
    Value {
        op: &'static str,
        site: Shared<Site>,
        node: u32,
        made: Option<&'static str>,
    },
}

impl<S: Into<String>> From<S> for Name {
    fn from(text: S) -> Name {
        Name::Text(text.into())
    }
}

/// `matmul step.0.att.q %7, packed`.
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Name::Text(text) => f.write_str(text),
            Name::Value {
                op,
                site,
                node,
                made,
            } => {
                f.write_str(op)?;
                if **site != Site::default() {
                    write!(f, " {site}")?;
                }
                write!(f, " %{node}")?;
                made.map_or(Ok(()), |made| write!(f, ", {made}"))
            }
        }
    }
}

/// A named stretch of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// What it holds, for messages and listings.
    pub name: Name,
    pub dtype: DType,
    /// Number of elements.
    pub size: Size,
    /// Elements beyond that, whatever the sizes of batch and sequence: room for rounding up.
    pub more: u64,
    pub home: Placement,
}

impl Buffer {
    /// Bytes at the given sizes of batch and sequence; `None` on overflow.
    pub fn bytes(&self, at: Bindings) -> Option<u64> {
        let elements = self.size.at(at)?.checked_add(self.more)?;
        elements.checked_mul(self.dtype.bytes())
    }
}

/// One launch over virtual buffers.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    pub spec: Spec,
    /// In the kernel's operand order.
    pub args: Vec<BufferId>,
    pub dims: Vec<Size>,
    pub coeffs: Vec<Coeff>,
    pub site: Shared<Site>,
    /// A number: where it is not positive, nothing that is read needs this launch.
    pub guard: Option<BufferId>,
    /// What it holds, where that is all it does.
    pub held: Option<Held>,
}

/// A launch that leaves values as they are where a flag is not positive: made in their place, it has nothing to do then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    pub flag: BufferId,
    /// Each result, and what it is where the flag is not positive.
    pub pairs: Vec<(BufferId, BufferId)>,
}

impl Launch {
    /// The guard and the arguments, with what happens to them.
    pub fn uses(&self) -> impl Iterator<Item = (BufferId, Mode)> + '_ {
        let guard = self.guard.iter().map(|b| (*b, Mode::Read));
        let operands = &self.spec.signature().operands;
        debug_assert_eq!(operands.len(), self.args.len(), "{}", self.site);
        let modes = operands.iter().map(|o| o.mode);
        guard.chain(self.args.iter().copied().zip(modes))
    }
}

/// A straight-line program over virtual buffers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LaunchList {
    pub buffers: Vec<Buffer>,
    pub launches: Vec<Launch>,
    /// Launches that take the rows in pieces, in order and apart.
    pub chunks: Vec<Chunk>,
}

/// Launches that take the rows in pieces.
#[derive(Clone, Debug, PartialEq)]
pub struct Chunk {
    pub pieces: Pieces,
    /// Bytes that each argument of each launch moves on by, for every row before the piece; 0 for what every piece uses
    /// from its beginning.
    pub moves: Vec<Vec<u64>>,
}

impl Chunk {
    /// Its launches.
    pub fn range(&self) -> std::ops::Range<usize> {
        let first = self.pieces.first as usize;
        first..first + self.pieces.count as usize
    }
}

impl LaunchList {
    /// Adds a buffer.
    pub fn buffer(
        &mut self,
        name: impl Into<Name>,
        dtype: DType,
        size: Size,
        home: Placement,
    ) -> BufferId {
        self.buffers.push(Buffer {
            name: name.into(),
            dtype,
            size,
            more: 0,
            home,
        });
        BufferId(self.buffers.len() as u32 - 1)
    }

    pub fn get(&self, b: BufferId) -> &Buffer {
        &self.buffers[b.0 as usize]
    }

    /// Panics, where debug assertions are on, if an argument is of another type than its kernel's operand.
    pub fn assert_types(&self) {
        if !cfg!(debug_assertions) {
            return;
        }
        for l in &self.launches {
            for (b, operand) in l.args.iter().zip(&l.spec.signature().operands) {
                let (buffer, name) = (self.get(*b), operand.name);
                assert_eq!(
                    buffer.dtype, operand.dtype,
                    "`{}` as {name} at {}",
                    buffer.name, l.site
                );
            }
        }
    }

    /// Bytes that an argument of a launch moves on by for every row before the piece.
    pub fn moves(&self, launch: usize, arg: usize) -> u64 {
        let begun = self.chunks.partition_point(|s| s.range().start <= launch);
        let chunk = begun.checked_sub(1).map(|n| &self.chunks[n]);
        let chunk = chunk.filter(|s| s.range().contains(&launch));
        chunk.map_or(0, |s| s.moves[launch - s.range().start][arg])
    }
}
