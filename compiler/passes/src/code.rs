//! Instructions over virtual buffers: what lowering gives and memory planning takes.
//!
//! A [`Code`] is a straight-line list of launches whose arguments are numbered buffers. Buffers with a fixed home
//! (parameters, gradients, inputs, outputs, tables) already know where they live; the others are given arena offsets
//! by `plan`. Leaves deciding what to launch to `lower` and `update`.

use odec_program::kernel::KernelSpec;
use odec_program::{Bindings, Coeff, DType, Operand, Pieces, Size};

/// Index of a buffer in its [`Code`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferId(pub u32);

/// Where a buffer lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Home {
    /// Somewhere in the entry's arena: `plan` decides.
    Arena,
    /// At a place that outlives the entry, or that its caller gives.
    Fixed(Operand),
}

/// A named stretch of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// What it holds, for messages and listings.
    pub name: String,
    pub dtype: DType,
    /// Number of elements.
    pub size: Size,
    /// Elements beyond that, whatever the sizes of batch and sequence: room for rounding up.
    pub more: u64,
    pub home: Home,
}

impl Buffer {
    /// Bytes at the given sizes of batch and sequence; `None` on overflow.
    pub fn bytes(&self, at: Bindings) -> Option<u64> {
        let elements = self.size.at(at)?.checked_add(self.more)?;
        elements.checked_mul(self.dtype.bytes())
    }
}

/// What a launch does with one of its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Read,
    Write,
    /// Accumulates onto what is there.
    Update,
}

impl Mode {
    pub fn reads(self) -> bool {
        self != Mode::Write
    }
    pub fn writes(self) -> bool {
        self != Mode::Read
    }
}

/// What a kernel does with operand `i` of `count`.
pub fn mode(spec: &KernelSpec, i: usize, count: usize) -> Mode {
    let last = i + 1 == count;
    let write_if = |w: bool| if w { Mode::Write } else { Mode::Read };
    let update_if = |accumulate: bool| match (last, accumulate) {
        (false, _) => Mode::Read,
        (true, false) => Mode::Write,
        (true, true) => Mode::Update,
    };
    match spec {
        KernelSpec::Rows(k) => write_if(k.stores.iter().any(|s| s.operand as usize == i)),
        KernelSpec::Columns(k) => update_if(k.accumulate),
        KernelSpec::Contract(k) => update_if(k.accumulate),
        KernelSpec::ScatterAdd(_) => update_if(true),
        KernelSpec::Pack(_) | KernelSpec::Gather(_) | KernelSpec::PositionSum(_) => {
            update_if(false)
        }
        KernelSpec::Attend(_) => write_if(i >= 3),
        KernelSpec::AttendBackward(_) => write_if(i >= 6),
        KernelSpec::AttendCached(_) => update_if(false),
    }
}

/// One launch over virtual buffers.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    pub spec: KernelSpec,
    /// In the kernel's operand order.
    pub args: Vec<BufferId>,
    pub dims: Vec<Size>,
    pub coeffs: Vec<Coeff>,
    pub site: String,
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
    /// What happens to argument `i`.
    pub fn mode(&self, i: usize) -> Mode {
        mode(&self.spec, i, self.args.len())
    }

    /// The guard and the arguments, with what happens to them.
    pub fn uses(&self) -> impl Iterator<Item = (BufferId, Mode)> + '_ {
        let guard = self.guard.iter().map(|b| (*b, Mode::Read));
        let args = self.args.iter().enumerate();
        guard.chain(args.map(|(i, b)| (*b, self.mode(i))))
    }
}

/// A straight-line program over virtual buffers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Code {
    pub buffers: Vec<Buffer>,
    pub launches: Vec<Launch>,
    /// Launches that take the rows in pieces, in order and apart.
    pub stretches: Vec<Stretch>,
}

/// Launches that take the rows in pieces.
#[derive(Clone, Debug, PartialEq)]
pub struct Stretch {
    pub pieces: Pieces,
    /// Bytes that each argument of each launch moves on by, for every row before the piece; 0 for what every piece uses
    /// from its beginning.
    pub moves: Vec<Vec<u64>>,
}

impl Stretch {
    /// Its launches.
    pub fn range(&self) -> std::ops::Range<usize> {
        let first = self.pieces.first as usize;
        first..first + self.pieces.count as usize
    }
}

impl Code {
    /// Adds a buffer.
    pub fn buffer(
        &mut self,
        name: impl Into<String>,
        dtype: DType,
        size: Size,
        home: Home,
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

    /// Bytes that an argument of a launch moves on by for every row before the piece.
    pub fn moves(&self, launch: usize, arg: usize) -> u64 {
        let stretch = self.stretches.iter().find(|s| s.range().contains(&launch));
        stretch.map_or(0, |s| s.moves[launch - s.range().start][arg])
    }
}
