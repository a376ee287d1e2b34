//! Compiled code with tile instructions, on processors that do not have them.
//!
//! An instruction that a processor does not know ends in the signal SIGILL. The handler here reads it ([`decode`]), does it to
//! the thread's registers in software ([`file`]), and goes on behind it; everything else runs as it is. What the processor
//! would refuse is kept for [`fault`], and the instruction does nothing. Where there are tile registers nothing is
//! trapped.

#![allow(unsafe_code)]

pub mod decode;
pub mod file;
pub mod products;

use decode::{Base, Op, Place};
use file::{BYTES, Fault, Tiles};
use odec_program::Target;
use std::cell::UnsafeCell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// How this machine runs contractions in pairs.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// Whose programs they are of.
    pub of: Target,
    /// What to compile for: the same, or, without the processor's instructions, the same contractions with those and vectors that it has.
    pub target: Target,
    /// Whether tile instructions, or dot products, are emulated.
    pub emulated: bool,
}

/// For dot products and for tile registers.
pub fn machines() -> Vec<Machine> {
    dots().into_iter().chain(machine()).collect()
}

/// For dot products: as the processor computes them, or, where it lacks them, as compiled code does.
fn dots() -> Option<Machine> {
    let of = Target::Avx512Bf16;
    let can = [of, Target::Avx512, Target::Avx2].map(|t| (t, t.supported()));
    let found = can.iter().find(|(_, supported)| supported.is_ok());
    let Some((target, _)) = found else {
        eprintln!("skipped for {of}: this processor has no AVX2");
        return None;
    };
    Some(Machine {
        of,
        target: *target,
        emulated: *target != of,
    })
}

/// Sets this process up for tile registers; `None` where there is nothing to run tests on.
fn machine() -> Option<Machine> {
    static MACHINE: OnceLock<Option<Machine>> = OnceLock::new();
    *MACHINE.get_or_init(|| {
        if Target::Amx.supported().is_ok() && odec_runtime::device::ffi::permit_tiles().is_ok() {
            return Some(Machine {
                of: Target::Amx,
                target: Target::Amx,
                emulated: false,
            });
        }
        let target = match (Target::Avx512.supported(), Target::Avx2.supported()) {
            (Ok(()), _) => Target::Amx,
            (_, Ok(())) => {
                eprintln!("no AVX-512 here: contractions in pairs are compiled for cpu:avx2");
                Target::Avx2
            }
            (_, Err(feature)) => {
                eprintln!("skipped: this processor lacks {feature}");
                return None;
            }
        };
        install();
        Some(Machine {
            of: Target::Amx,
            target,
            emulated: true,
        })
    })
}

/// The first instruction that the processor would have refused, since the process began.
pub fn fault() -> Option<Fault> {
    let number = FAULT.load(Ordering::SeqCst);
    Fault::ALL.into_iter().find(|f| *f as u8 == number)
}

/// How many products of tiles were emulated.
pub fn products() -> u64 {
    PRODUCTS.load(Ordering::SeqCst)
}

static FAULT: AtomicU8 = AtomicU8::new(0);
static PRODUCTS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Needs neither a beginning nor an end, so a handler may look at it.
    static TILES: UnsafeCell<Tiles> = const { UnsafeCell::new(Tiles::new()) };
}

fn install() {
    // SAFETY: the handler has the signature that `SA_SIGINFO` asks for; an all-zero `sigaction` is one.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(
            libc::sigaction(libc::SIGILL, &action, std::ptr::null_mut()),
            0
        );
    }
}

/// Numbers in machine code → places in the context.
const REGISTERS: [libc::c_int; 16] = [
    libc::REG_RAX,
    libc::REG_RCX,
    libc::REG_RDX,
    libc::REG_RBX,
    libc::REG_RSP,
    libc::REG_RBP,
    libc::REG_RSI,
    libc::REG_RDI,
    libc::REG_R8,
    libc::REG_R9,
    libc::REG_R10,
    libc::REG_R11,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
];

/// Does the instruction that was trapped. Neither allocates nor locks, nor calls what might.
extern "C" fn handler(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the system gives the context of the thread that was stopped; nobody else has it.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let code = registers[libc::REG_RIP as usize] as *const u8;
    // SAFETY: an instruction was fetched here; `decode` looks no further than at its own bytes, of which the first five
    // are part of any that it might be.
    let Some((op, length)) = decode::decode(|i| unsafe { *code.add(i) }) else {
        // SAFETY: the instruction traps again, and then ends the process as it would have.
        unsafe { libc::signal(libc::SIGILL, libc::SIG_DFL) };
        return;
    };
    registers[libc::REG_RIP as usize] += length as i64;
    let next = registers[libc::REG_RIP as usize];
    let register = |n: u8| registers[REGISTERS[n as usize] as usize];
    let start = |p: Place| {
        let base = match p.base {
            Base::None => 0,
            Base::Register(n) => register(n),
            Base::Next => next,
        };
        base.wrapping_add(p.displacement.into())
    };
    let index = |p: Place| p.index.map_or(0, register) << p.scale;
    // SAFETY: the thread is in this handler, and in no other code that looks at its registers.
    let tiles = TILES.with(|t| unsafe { &mut *t.get() });
    let done = match op {
        Op::Configure(p) => {
            let from = start(p).wrapping_add(index(p)) as *const [u8; 64];
            // SAFETY: what the instruction reads, it reads.
            tiles.configure(unsafe { from.read_unaligned() })
        }
        Op::Configuration(p) => {
            let to = start(p).wrapping_add(index(p)) as *mut [u8; 64];
            // SAFETY: what the instruction writes, it writes.
            unsafe { to.write_unaligned(tiles.configuration()) };
            Ok(())
        }
        Op::Release => {
            *tiles = Tiles::new();
            Ok(())
        }
        Op::Zero(tile) => tiles.zero(tile),
        Op::Load(tile, p) => tiles.size(tile).and_then(|(rows, bytes)| {
            tiles.zero(tile)?;
            for row in 0..rows {
                let from = start(p).wrapping_add(index(p).wrapping_mul(row as i64)) as *const u8;
                let to = tiles.row_mut(tile, row);
                // SAFETY: what the instruction reads, it reads; a row has room for all that one has.
                unsafe { std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), bytes.min(BYTES)) };
            }
            Ok(())
        }),
        Op::Store(tile, p) => tiles.size(tile).map(|(rows, bytes)| {
            for row in 0..rows {
                let to = start(p).wrapping_add(index(p).wrapping_mul(row as i64)) as *mut u8;
                let from = tiles.row(tile, row);
                // SAFETY: what the instruction writes, it writes.
                unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, bytes.min(BYTES)) };
            }
        }),
        Op::Multiply { sums, a, b } => {
            PRODUCTS.fetch_add(1, Ordering::Relaxed);
            tiles.multiply(sums, a, b)
        }
    };
    if let Err(fault) = done {
        let _ = FAULT.compare_exchange(0, fault as u8, Ordering::SeqCst, Ordering::SeqCst);
    }
}
