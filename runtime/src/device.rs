//! What a device is: something that launches one kernel.
//!
//! A program means the same on every device. The CPU device ([`crate::cpu`]) and GPUs ([`crate::cuda`]) run compiled code, the
//! reference device ([`crate::reference`]) interprets the specs. Leaves the order of launches and the
//! memory to [`crate::executor`].

use crate::memory::{Buffer, Words};
use odec_program::KernelSpec;
use std::io;

/// Launches the kernels of one program, whose specs it was made with.
pub trait Device {
    /// How the device is called in messages.
    fn name(&self) -> String;

    /// Zeroed memory that this device's kernels and this process both see.
    ///
    /// # Errors
    /// When there is none left.
    fn allocate(&self, bytes: u64) -> io::Result<Buffer> {
        Buffer::zeroed(bytes)
    }

    /// Waits for all launches: only then may memory be looked at. Devices that launch nothing in the background have
    /// nothing to wait for.
    ///
    /// # Errors
    /// Why a launch failed, in words.
    fn finish(&mut self) -> Result<(), String> {
        Ok(())
    }

    /// Whether what a launch has written is there when the next one is asked for: only then is a guard known in time.
    fn in_step(&self) -> bool {
        true
    }

    /// Runs all tiles of kernel number `kernel`, at once or in the background ([`Device::finish`]).
    ///
    /// `operands`, `dims` and `coeffs` are in the order the kernel's spec documents. Each operand starts
    /// where the instruction says and reaches to the end of its slot.
    ///
    /// # Panics
    /// When an operand is shorter than the spec's reach; validated programs never get there.
    fn launch(&mut self, kernel: usize, operands: &[Words], dims: &[u64], coeffs: &[f64]);
}

/// An estimate of a launch's work in scalar operations, to decide whether other threads are worth waking.
pub fn work(spec: &KernelSpec, dims: &[u64]) -> u64 {
    let rows = dims.first().copied().unwrap_or(0);
    let second = dims.get(1).copied().unwrap_or(1);
    match spec {
        KernelSpec::Rows(k) => rows
            .saturating_mul(k.cols)
            .saturating_mul(k.body.nodes.len() as u64),
        KernelSpec::Columns(k) => rows
            .saturating_mul(k.cols)
            .saturating_mul(k.body.nodes.len() as u64),
        KernelSpec::Gather(g) | KernelSpec::ScatterAdd(g) => rows.saturating_mul(g.cols),
        KernelSpec::PositionSum(g) => rows.saturating_mul(second).saturating_mul(g.cols),
        KernelSpec::Pack(_) => rows.saturating_mul(second),
        KernelSpec::Contract(_) => rows
            .saturating_mul(second)
            .saturating_mul(dims.get(2).copied().unwrap_or(1)),
        KernelSpec::AttendCached(a) => rows
            .saturating_mul(a.heads * a.head)
            .saturating_mul(rows.saturating_add(second)),
        KernelSpec::Attend(a) | KernelSpec::AttendBackward(a) => rows
            .saturating_mul(a.heads * a.head)
            .saturating_mul(second)
            .saturating_mul(second),
    }
}
