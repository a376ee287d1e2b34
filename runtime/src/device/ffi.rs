//! Unsafe code of devices: calls of compiled kernels, and the system call that permits tile registers. `system/os.rs` has the other
//! system calls.

#![allow(unsafe_code)]

use crate::device::lengths;
use crate::device::memory::Words;
use libloading::Library;
use odec_program::kernel::Signature;
use odec_program::{Kernel, KernelSpec};
use std::ffi::c_void;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::PathBuf;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
use std::sync::OnceLock;

/// The ABI of compiled kernels, as `odec_program::kernel` documents it.
type Entry = unsafe extern "C" fn(
    operands: *const *mut c_void,
    dims: *const i64,
    coeffs: *const f64,
    tile_begin: i64,
    tile_end: i64,
    scratch: *mut c_void,
);

/// The kernels of one loaded object file, in the program's order.
pub struct Kernels {
    kernels: Vec<(Entry, KernelSpec, Signature)>,
    /// Keeps the code mapped as long as the entries point into it.
    _library: Library,
    /// After the library: the loader takes a second file of the same path for the first.
    _file: CodeFile,
}

impl Kernels {
    /// Loads a shared object and finds the program's kernels in it.
    ///
    /// # Errors
    /// When the system cannot load it, a symbol is missing, or a spec is not well formed.
    pub fn load(code: &[u8], kernels: &[Kernel]) -> Result<Kernels, LoadError> {
        let failed = |reason: String| LoadError::Open { reason };
        let file = CodeFile::of(code).map_err(|e| failed(e.to_string()))?;
        // SAFETY: the file is what this user's compiler wrote, which has no initialisers and depends on nothing: the artifact's
        // signature was checked, or the code was just compiled. Else the user said to trust it.
        let library = unsafe { Library::new(&file.path) }.map_err(|e| failed(e.to_string()))?;
        let mut found = Vec::new();
        for k in kernels {
            // SAFETY: the name carries the hash of the spec, and the compiler emits this signature only.
            let entry = *unsafe { library.get::<Entry>(k.symbol.as_bytes()) }.map_err(|_| {
                LoadError::Symbol {
                    symbol: k.symbol.clone(),
                }
            })?;
            let signature = k.spec.checked_signature().map_err(|what| LoadError::Spec {
                symbol: k.symbol.clone(),
                what,
            })?;
            found.push((entry, k.spec.clone(), signature));
        }
        Ok(Kernels {
            kernels: found,
            _library: library,
            _file: file,
        })
    }

    /// Scalar operations of a launch, to decide whether other threads are worth waking.
    pub fn operations(&self, kernel: usize, dims: &[u64]) -> u64 {
        self.kernels[kernel].2.work.operations(dims)
    }
}

/// Why compiled kernels cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("the compiled kernels cannot be loaded: {reason}")]
    Open { reason: String },
    #[error(
        "the object file has no kernel `{symbol}`: artifact and object do not belong together; build the artifact again"
    )]
    Symbol { symbol: String },
    #[error("kernel `{symbol}` is not valid: {what}")]
    Spec { symbol: String, what: String },
}

/// One launch whose operands were checked against the kernel's reach: its tiles may run.
pub struct Launch<'a> {
    entry: Entry,
    operands: &'a [*mut c_void],
    dims: &'a [i64],
    coeffs: &'a [f64],
    tiles: u64,
    scratch_bytes: u64,
}

// SAFETY: tiles write disjoint elements (the ABI's promise), so they may run on several threads; the
// pointers stay valid because the words they come from are borrowed for `'a`.
unsafe impl Sync for Launch<'_> {}

/// Room for the arguments of a launch, reused from one to the next.
#[derive(Default)]
pub struct Arguments {
    operands: Vec<*mut c_void>,
    dims: Vec<i64>,
}

// SAFETY: the pointers are only scratch between two launches, and are never read before being overwritten.
unsafe impl Send for Arguments {}

impl Kernels {
    /// Prepares a launch of kernel number `kernel`. The indices that a gather reads were checked by the
    /// executor when they came in.
    ///
    /// # Panics
    /// When an operand is shorter than the kernel's reach, or an argument is missing.
    pub fn prepare<'a>(
        &self,
        kernel: usize,
        room: &'a mut Arguments,
        operands: &'a [Words<'a>],
        dims: &[u64],
        coeffs: &'a [f64],
    ) -> Launch<'a> {
        let (entry, spec, signature) = &self.kernels[kernel];
        if let Err(what) = signature.check(lengths(operands), dims, coeffs) {
            panic!("kernel {}: {what}", spec.symbol());
        }
        room.operands.clear();
        room.operands
            .extend(operands.iter().map(|o| o.as_ptr() as *mut c_void));
        room.dims.clear();
        room.dims.extend(dims.iter().map(|d| *d as i64));
        Launch {
            entry: *entry,
            operands: &room.operands,
            dims: &room.dims,
            coeffs,
            tiles: spec.tiles(dims),
            scratch_bytes: signature.scratch_bytes(dims),
        }
    }
}

impl Launch<'_> {
    pub fn tiles(&self) -> u64 {
        self.tiles
    }

    /// Runs tiles `begin..end`.
    ///
    /// # Panics
    /// When there are no such tiles, or the scratch memory is too small.
    pub fn run(&self, begin: u64, end: u64, scratch: Words<'_>) {
        assert!(
            begin <= end && end <= self.tiles,
            "tiles {begin}..{end} of {}",
            self.tiles
        );
        assert!(
            self.scratch_bytes <= scratch.len() as u64 * 4,
            "scratch memory"
        );
        // SAFETY: `prepare` checked that each operand covers what the kernel may touch; they are cells,
        // so writing through shared views is allowed; scratch is exclusive to the thread and aligned.
        unsafe {
            (self.entry)(
                self.operands.as_ptr(),
                self.dims.as_ptr(),
                self.coeffs.as_ptr(),
                begin as i64,
                end as i64,
                scratch.as_ptr() as *mut c_void,
            );
        }
    }
}

/// Asks the system, once, to let this process use tile registers (Intel AMX): their 8 KiB would make every thread's saved
/// state larger, so Linux saves them for those alone that ask. The permission is for all threads, and lasts.
///
/// # Errors
/// The system's reason: not known (before Linux 5.16), not supported, or a signal stack too small for the registers.
pub fn permit_tiles() -> std::io::Result<()> {
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    {
        /// `ARCH_REQ_XCOMP_PERM` and the number of `XTILEDATA` (Linux, `Documentation/arch/x86/xstate.rst`).
        const ASK: (libc::c_int, libc::c_ulong) = (0x1023, 18);
        static REFUSED: OnceLock<Option<i32>> = OnceLock::new();
        let refused = REFUSED.get_or_init(|| {
            // SAFETY: the call takes two numbers, and changes nothing but which instructions the process may use.
            let answer = unsafe { libc::syscall(libc::SYS_arch_prctl, ASK.0, ASK.1) };
            (answer != 0).then(|| std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
        });
        match refused {
            None => Ok(()),
            Some(number) => Err(std::io::Error::from_raw_os_error(*number)),
        }
    }
    #[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
    Err(std::io::ErrorKind::Unsupported.into())
}

/// Code in memory, under a path that the system's loader takes; there as long as the value.
struct CodeFile {
    _file: File,
    path: PathBuf,
}

impl CodeFile {
    /// A file without a name that no other process can reach, so what is loaded is what was given.
    ///
    /// # Errors
    /// When the system has no memory for it.
    fn of(code: &[u8]) -> io::Result<CodeFile> {
        let mut file = anonymous()?;
        file.write_all(code)?;
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        Ok(CodeFile {
            _file: file,
            path: path.into(),
        })
    }
}

fn anonymous() -> io::Result<File> {
    // SAFETY: the name is a C string. What comes back is a descriptor that nobody else has, or an error.
    unsafe {
        match libc::memfd_create(c"odec-kernels".as_ptr(), libc::MFD_CLOEXEC) {
            -1 => Err(io::Error::last_os_error()),
            new => Ok(File::from_raw_fd(new)),
        }
    }
}
