//! The CPU device: compiled kernels, tiles spread over threads.
//!
//! Takes an object file and the program's kernels; gives a [`Device`]. Results never depend on the
//! number of threads, because a tile's result never depends on which thread runs it or what ran
//! before. All threads keep the processor's default rounding and subnormal handling, as the reference
//! device does. Leaves choosing and verifying the object file to [`crate::artifact`].

use crate::device::ffi::{Arguments, Kernels, LoadError, permit_tiles};
use crate::device::memory::{Buffer, Words};
use crate::device::roof::Roof;
use crate::device::{Busy, Device};
use crate::system::input::{self, most};
use crate::system::pool::Pool;
use crate::system::shown::Shown;
use odec_program::{DType, Kernel, Target};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Below this many scalar operations a launch takes less time than sharing it.
const WORTH_SHARING: u64 = 60_000;

/// Runs compiled kernels.
pub struct CpuDevice {
    code: Kernels,
    arguments: Arguments,
    pool: Pool,
    /// One per thread, so never contended.
    scratch: Vec<Mutex<Buffer>>,
    /// Where launches are measured, by thread: when it was busy with the latest.
    busy: Option<Vec<Mutex<Option<Busy>>>>,
    target: String,
}

/// Why a device cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum CpuError {
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(
        "the operating system does not permit the tile registers that {target} needs (arch_prctl, ARCH_REQ_XCOMP_PERM: {source}); \
         build for cpu:avx512"
    )]
    Tiles {
        target: Target,
        source: std::io::Error,
    },
    #[error("cannot start {threads} threads: {source}; set ODEC_THREADS to fewer")]
    Threads {
        threads: usize,
        source: std::io::Error,
    },
    #[error("cannot reserve {bytes} bytes of scratch memory: {source}")]
    Memory { bytes: u64, source: std::io::Error },
}

impl CpuDevice {
    /// Loads an object file built for `target`, to run on `threads` threads (the caller included).
    ///
    /// # Errors
    /// As [`CpuDevice::load`], or when it cannot be read.
    pub fn open(
        object: &Path,
        target: &str,
        kernels: &[Kernel],
        scratch_bytes: u64,
        threads: usize,
    ) -> Result<CpuDevice, CpuError> {
        let code = input::read(object, most::CODE).map_err(|e| LoadError::Open {
            reason: format!("{}: {e}", object.shown()),
        })?;
        CpuDevice::load(&code, target, kernels, scratch_bytes, threads)
    }

    /// The same, of a shared object in memory.
    ///
    /// # Errors
    /// When it cannot be loaded, the system has no threads or memory left, or keeps tile registers to itself.
    pub fn load(
        code: &[u8],
        target: &str,
        kernels: &[Kernel],
        scratch_bytes: u64,
        threads: usize,
    ) -> Result<CpuDevice, CpuError> {
        if target == Target::Amx.name() {
            permit_tiles().map_err(|source| CpuError::Tiles {
                target: Target::Amx,
                source,
            })?;
        }
        let code = Kernels::load(code, kernels)?;
        let pool = Pool::new(threads).map_err(|source| CpuError::Threads { threads, source })?;
        let scratch = (0..pool.threads()).map(|_| Buffer::zeroed(scratch_bytes).map(Mutex::new));
        let scratch = scratch
            .collect::<Result<_, _>>()
            .map_err(|source| CpuError::Memory {
                bytes: scratch_bytes,
                source,
            })?;
        Ok(CpuDevice {
            code,
            arguments: Arguments::default(),
            pool,
            scratch,
            busy: None,
            target: target.to_string(),
        })
    }
}

impl Device for CpuDevice {
    fn name(&self) -> String {
        let threads = self.pool.threads();
        format!(
            "{}, {threads} thread{}",
            self.target,
            if threads == 1 { "" } else { "s" }
        )
    }

    fn launch(&mut self, kernel: usize, operands: &[Words], dims: &[u64], coeffs: &[f64]) {
        let alone = self.code.operations(kernel, dims) < WORTH_SHARING;
        let launch = self
            .code
            .prepare(kernel, &mut self.arguments, operands, dims, coeffs);
        let (scratch, busy) = (&self.scratch, &self.busy);
        self.pool.run(launch.tiles(), alone, &|thread, begin, end| {
            let mut scratch = scratch[thread]
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let from = busy.is_some().then(Instant::now);
            launch.run(begin, end, scratch.words());
            if let (Some(busy), Some(from)) = (busy, from) {
                let mut busy = busy[thread].lock().unwrap_or_else(PoisonError::into_inner);
                let to = Instant::now();
                let from = busy.map_or(from, |b| b.from);
                *busy = Some(Busy { thread, from, to });
            }
        });
    }

    fn set_timed(&mut self, timed: bool) {
        let threads = 0..self.pool.threads();
        self.busy = timed.then(|| threads.map(|_| Mutex::new(None)).collect());
    }

    fn busy(&mut self) -> Vec<Busy> {
        let all = self.busy.iter_mut().flatten();
        let latest = all.map(|b| b.get_mut().unwrap_or_else(PoisonError::into_inner).take());
        latest.flatten().collect()
    }

    fn roof(&mut self, real: DType) -> Option<Roof> {
        let target = self.target.parse().ok()?;
        Roof::measure(&mut self.pool, target, real)
    }
}
