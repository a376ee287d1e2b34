//! Tile registers (Intel AMX), by their numbers.
//!
//! Instructions name the registers themselves, so LLVM neither allocates nor spills them. Every function that uses them is
//! between [`Emitter::configure_tiles`] and [`Emitter::release_tiles`]. Leaves who holds what to [`crate::tiles`].

use super::{Elem, Emitter, Type, Val};
use odec_program::tile;

/// Registers of palette 1.
const REGISTERS: usize = 8;

impl Emitter {
    /// Makes every register 16 rows of 64 bytes; `memory` has room for the configuration, aligned to f32.
    pub fn configure_tiles(&mut self, memory: Val) {
        // Byte 0 is the palette; 16-bit row lengths begin at byte 16, 8-bit numbers of rows at 48 (LDTILECFG, SDM volume 2).
        let mut bytes = [0u8; tile::CONFIGURATION as usize];
        bytes[0] = 1;
        for i in 0..REGISTERS {
            bytes[16 + 2 * i] = tile::ROW_BYTES as u8;
            bytes[48 + i] = tile::ROWS as u8;
        }
        let words = bytes.chunks_exact(4);
        let words = words.map(|w| i32::from_le_bytes([w[0], w[1], w[2], w[3]]).to_string());
        let list: Vec<String> = words.collect();
        let ty = Type::vector(Elem::I32, list.len() as u64);
        let configuration = self.constant(format!("dense<[{}]>", list.join(", ")), ty);
        self.store(configuration, memory);
        self.stmt(format_args!(
            "llvm.call_intrinsic \"llvm.x86.ldtilecfg\"({memory}) : (!llvm.ptr) -> ()"
        ));
    }

    /// Forgets all registers, so that the system need not save them any more.
    pub fn release_tiles(&mut self) {
        self.stmt(format_args!(
            "llvm.call_intrinsic \"llvm.x86.tilerelease\"() : () -> ()"
        ));
    }

    fn register(&mut self, number: u64) -> Val {
        self.integer(number as i64, Type::scalar(Elem::I8))
    }

    /// Fills a register with zeros.
    pub fn zero_tile(&mut self, number: u64) {
        let tile = self.register(number);
        self.stmt(format_args!(
            "llvm.call_intrinsic \"llvm.x86.tilezero\"({tile}) : (i8) -> ()"
        ));
    }

    /// Loads a register; its rows begin `stride` bytes apart.
    pub fn load_tile(&mut self, number: u64, from: Val, stride: Val) {
        let tile = self.register(number);
        self.stmt(format_args!(
            "llvm.call_intrinsic \"llvm.x86.tileloadd64\"({tile}, {from}, {stride}) : (i8, !llvm.ptr, i64) -> ()"
        ));
    }

    /// Stores a register; its rows begin `stride` bytes apart.
    pub fn store_tile(&mut self, number: u64, to: Val, stride: Val) {
        let tile = self.register(number);
        self.stmt(format_args!(
            "llvm.call_intrinsic \"llvm.x86.tilestored64\"({tile}, {to}, {stride}) : (i8, !llvm.ptr, i64) -> ()"
        ));
    }

    /// Adds the products of a register of rows of A and one of pairs of rows of B to a register of sums, as
    /// [`odec_program::tile::sum`] adds a chunk.
    pub fn multiply_tiles(&mut self, sums: u64, a: u64, b: u64) {
        let [sums, a, b] = [sums, a, b].map(|n| self.register(n));
        self.stmt(format_args!(
            "llvm.call_intrinsic \"llvm.x86.tdpbf16ps\"({sums}, {a}, {b}) : (i8, i8, i8) -> ()"
        ));
    }
}
