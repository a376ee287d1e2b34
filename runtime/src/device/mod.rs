//! What a device is: something that launches one kernel.
//!
//! A program means the same on every device. The CPU device ([`crate::device::cpu`]) and GPUs ([`crate::device::cuda`]) run compiled code, the
//! reference device ([`crate::device::reference`]) interprets the specs. Leaves the order of launches and the
//! memory to [`crate::executor`].
//!
//! A new device implements [`Device`]: it works in step with the process, or has memory of its own and copies to and from it.

pub mod cpu;
pub mod cuda;
pub mod ffi;
pub mod loops;
pub mod memory;
pub mod reals;
pub mod reference;
pub mod roof;

use crate::device::memory::{Buffer, Words};
use crate::device::roof::Roof;
use odec_program::{DType, Site};
use std::io;
use std::time::{Duration, Instant};

/// All work that was enqueued up to some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(pub u64);

/// A thread's part of a launch: from the beginning of the first of its tiles to the end of the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy {
    pub thread: usize,
    pub from: Instant,
    pub to: Instant,
}

/// Launches the kernels of one program, whose specs it was made with.
///
/// A device is *in step* when a launch is done, and what it wrote is there for this process, when [`Device::launch`] returns. Any
/// other works through what it is asked for, in that order, while this process goes on, and has memory of its own: what
/// [`Device::allocate`] gives is then this process's copy of it, which changes by [`Device::copy_out`] alone. Devices in step
/// need none of the methods that have a body here.
pub trait Device {
    /// How the device is called in messages.
    fn name(&self) -> String;

    /// Zeroed memory that this device's kernels see, and this process sees or has a copy of.
    ///
    /// # Errors
    /// When there is none left.
    fn allocate(&mut self, bytes: u64) -> io::Result<Buffer> {
        Buffer::zeroed(bytes)
    }

    /// Whether the device is in step.
    fn in_step(&self) -> bool {
        true
    }

    /// Memory of this process that is copied from and to without holding it up.
    ///
    /// # Errors
    /// When there is none left.
    fn stage(&mut self, bytes: u64) -> io::Result<Buffer> {
        Buffer::zeroed(bytes)
    }

    /// Kernels that are launched from now on see at `to`, a part of what [`Device::allocate`] gave, what `from` holds, which
    /// must stay as it is until a later mark was waited for.
    fn copy_in(&mut self, _from: Words, _to: Words) {}

    /// Puts what kernels launched before have written at `from`, a part of what [`Device::allocate`] gave, into `to`: it is there when a
    /// later mark was waited for.
    fn copy_out(&mut self, _from: Words, _to: Words) {}

    /// Fills a part of what [`Device::allocate`] gave with a word.
    fn fill(&mut self, words: Words, with: u32) {
        odec_reference::fill(words, with);
    }

    /// Submits what was enqueued so far, and gives a mark of it.
    fn mark(&mut self) -> Mark {
        Mark(0)
    }

    /// Waits for the work enqueued before a mark, and for nothing else.
    ///
    /// # Errors
    /// Why something failed, in words.
    fn wait(&mut self, _mark: Mark) -> Result<(), String> {
        Ok(())
    }

    /// Measures launches from now on ([`Device::times`]), or no longer. Who launches on a device in step can measure by itself.
    fn set_timed(&mut self, _timed: bool) {}

    /// How long each launch since the last call has taken, in their order, when all are done; `None` of one that took no time that anybody
    /// could measure.
    ///
    /// # Errors
    /// Why something failed, in words.
    fn times(&mut self) -> Result<Vec<Option<Duration>>, String> {
        Ok(vec![])
    }

    /// When the latest launch kept which threads busy, where launches are measured and shared out by this process.
    fn busy(&mut self) -> Vec<Busy> {
        vec![]
    }

    /// What the device can do at most, computing in `real`, measured now; `None` where nobody knows how.
    fn roof(&mut self, _real: DType) -> Option<Roof> {
        None
    }

    /// Says which instruction of an entry, of which equation, the launches from now on belong to, for messages.
    fn set_site(&mut self, _entry: &str, _instr: usize, _site: &Site) {}

    /// Runs all tiles of kernel number `kernel`.
    ///
    /// `operands`, `dims` and `coeffs` are in the order the kernel's spec documents. Each operand starts
    /// where the instruction says and reaches to the end of its slot.
    ///
    /// # Panics
    /// When an operand is shorter than the spec's reach; validated programs never get there.
    fn launch(&mut self, kernel: usize, operands: &[Words], dims: &[u64], coeffs: &[f64]);
}

/// How many words operands have, for [`odec_program::kernel::Signature::check`].
pub(crate) fn lengths<'a>(operands: &'a [Words]) -> impl ExactSizeIterator<Item = u64> + 'a {
    operands.iter().map(|words| words.len() as u64)
}
