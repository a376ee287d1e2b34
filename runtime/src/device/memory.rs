//! Aligned memory that kernels and safe code share.
//!
//! Takes sizes in bytes; gives page-aligned (so 64-byte aligned), zeroed [`Buffer`]s whose pages cost
//! nothing until they are touched, and views of them as [`Words`]. A word is a `Cell`, so operands of
//! one launch may overlap (an output that aliases an input, parameters updated in place) without any
//! `unsafe` in the devices that compute in Rust. Leaves offsets and their bounds to [`crate::artifact::check`].

#![allow(unsafe_code)]

use crate::device::reals::{Reals, RealsMut};
use memmap2::{MmapMut, MmapOptions};
use odec_program::DType;
use std::cell::Cell;
use std::io;

pub use odec_reference::Words;

/// Bytes in a word.
pub const WORD: u64 = 4;

/// The pattern of words that must not be read: a NaN as f32, in pairs as f64, and in halves as bf16.
pub const POISON: u32 = 0x7FF4_7FAD;

/// Zeroed memory, aligned to a page; or memory that a device hands out.
pub struct Buffer {
    memory: Memory,
    words: usize,
}

enum Memory {
    /// Never empty, because a mapping cannot be.
    Mapped(MmapMut),
    Foreign(Foreign),
}

/// Memory of a device, given back when it is dropped.
struct Foreign {
    pointer: *mut u8,
    free: Box<dyn Fn() + Send>,
}

// SAFETY: the memory belongs to the buffer alone, whose methods borrow it as a vector's would.
unsafe impl Send for Foreign {}
// SAFETY: shared views of it only read.
unsafe impl Sync for Foreign {}

impl Drop for Foreign {
    fn drop(&mut self) {
        (self.free)();
    }
}

impl Buffer {
    /// `bytes` zero bytes, rounded up to whole words.
    ///
    /// # Errors
    /// When the system has no address space left for them.
    pub fn zeroed(bytes: u64) -> io::Result<Buffer> {
        Buffer::mapped(bytes, MmapOptions::new())
    }

    /// The same for memory of which most is never touched: the system need not have it.
    ///
    /// # Errors
    /// As [`Buffer::zeroed`].
    pub fn unreserved(bytes: u64) -> io::Result<Buffer> {
        Buffer::mapped(bytes, MmapOptions::new().no_reserve_swap().clone())
    }

    fn mapped(bytes: u64, mut options: MmapOptions) -> io::Result<Buffer> {
        let words = usize::try_from(bytes.div_ceil(WORD)).map_err(io::Error::other)?;
        let len = words
            .checked_mul(WORD as usize)
            .ok_or_else(|| io::Error::other("size overflows"))?;
        let map = options.len(len.max(WORD as usize)).map_anon()?;
        // Large pages save address translation in the planned arena. Where they are not to be had,
        // everything works the same.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        let memory = Memory::Mapped(map);
        Ok(Buffer { memory, words })
    }

    /// Memory that a device hands out, until `free` is called.
    ///
    /// # Safety
    /// `bytes` bytes from `pointer` on, aligned to 64, can be read and written by this process whenever it has the buffer,
    /// and are used by nothing else until `free` returns.
    pub unsafe fn foreign(pointer: *mut u8, bytes: usize, free: Box<dyn Fn() + Send>) -> Buffer {
        Buffer {
            memory: Memory::Foreign(Foreign { pointer, free }),
            words: bytes / WORD as usize,
        }
    }

    fn pointer(&self) -> *const u8 {
        match &self.memory {
            Memory::Mapped(map) => map.as_ptr(),
            Memory::Foreign(f) => f.pointer,
        }
    }

    fn pointer_mut(&mut self) -> *mut u8 {
        match &mut self.memory {
            Memory::Mapped(map) => map.as_mut_ptr(),
            Memory::Foreign(f) => f.pointer,
        }
    }

    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.words as u64 * WORD
    }

    /// The memory as words that may be read and written through several views at once.
    pub fn words(&mut self) -> Words<'_> {
        // SAFETY: a mapping is aligned to a page and holds at least `words` words; every bit pattern is
        // a u32; the exclusive borrow lasts as long as the view.
        let words =
            unsafe { std::slice::from_raw_parts_mut(self.pointer_mut().cast::<u32>(), self.words) };
        Cell::from_mut(words).as_slice_of_cells()
    }

    /// The memory as elements of a program's real type.
    pub fn reals(&self, real: DType) -> Reals<'_> {
        match real {
            DType::F64 => Reals::F64(self.f64()),
            _ => Reals::F32(self.f32()),
        }
    }

    /// The same, to write.
    pub fn reals_mut(&mut self, real: DType) -> RealsMut<'_> {
        match real {
            DType::F64 => RealsMut::F64(self.f64_mut()),
            _ => RealsMut::F32(self.f32_mut()),
        }
    }

    fn f64(&self) -> &[f64] {
        // SAFETY: memory is aligned to 64 bytes and holds twice as many words at least; every bit pattern is an f64.
        unsafe { std::slice::from_raw_parts(self.pointer().cast::<f64>(), self.words / 2) }
    }

    fn f64_mut(&mut self) -> &mut [f64] {
        // SAFETY: as in `f64`, borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.pointer_mut().cast::<f64>(), self.words / 2) }
    }

    /// The memory as f32 elements.
    pub fn f32(&self) -> &[f32] {
        // SAFETY: as in `words`; every bit pattern is an f32.
        unsafe { std::slice::from_raw_parts(self.pointer().cast::<f32>(), self.words) }
    }

    /// The memory as f32 elements to write.
    pub fn f32_mut(&mut self) -> &mut [f32] {
        // SAFETY: as in `f32`, borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.pointer_mut().cast::<f32>(), self.words) }
    }

    /// The memory as i32 elements to write.
    pub fn i32_mut(&mut self) -> &mut [i32] {
        // SAFETY: as in `words`; every bit pattern is an i32.
        unsafe { std::slice::from_raw_parts_mut(self.pointer_mut().cast::<i32>(), self.words) }
    }
}

/// Types without padding, whose bytes are what files hold.
pub trait Plain: Copy {}
impl Plain for f32 {}
impl Plain for f64 {}

/// The bytes of elements, for writing them to a file.
#[cfg(target_endian = "little")]
pub fn bytes_of<T: Plain>(elements: &[T]) -> &[u8] {
    // SAFETY: there is no padding, and u8 has no alignment.
    unsafe { std::slice::from_raw_parts(elements.as_ptr().cast::<u8>(), size_of_val(elements)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_zeroed_and_shared() {
        let mut b = Buffer::zeroed(10).unwrap();
        assert_eq!(b.f32(), [0.0; 3]);
        assert_eq!(b.words().as_ptr() as usize % 64, 0);
        let (one, two) = {
            let w = b.words();
            (&w[1..], &w[..2])
        };
        one[0].set(1f32.to_bits());
        assert_eq!(two[1].get(), 1f32.to_bits());
        b.words().iter().for_each(|w| w.set(POISON));
        assert!(b.f32().iter().all(|x| x.is_nan()));
        assert_eq!(bytes_of(&[1f32]), 1f32.to_le_bytes());
        assert_eq!(b.reals(DType::F64).len(), 1);
    }

    #[test]
    fn an_empty_buffer_is_fine_and_an_absurd_one_an_error() {
        assert!(Buffer::zeroed(0).unwrap().f32().is_empty());
        assert!(Buffer::zeroed(u64::MAX).is_err());
    }
}
