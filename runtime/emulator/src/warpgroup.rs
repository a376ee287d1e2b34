//! Products of a warpgroup, `wgmma.mma_async` (PTX ISA, 9.7.15): m64nNk16 with bf16 factors in shared memory and f32 sums.
//!
//! Each warp computes its own 16 rows where it begins the product; until it has waited, sums may not be touched and factors
//! not be written. Found are also: sums that ordinary instructions wrote with no `wgmma.fence` after them, products that nobody waits
//! for, and warps of a warpgroup that do not begin the same products. Where elements lie is told by descriptors
//! (9.7.15.5.1, and the canonical layouts in the comments of CUTLASS's `mma_traits_sm90_gmma.hpp`).

use super::isa::{Arg, Instruction, Op};
use super::memory::{Memory, Who};
use super::tensor::{add, half, left};
use std::collections::VecDeque;

type Register = [u64; 32];

/// What a warp has begun.
#[derive(Default)]
pub struct Products {
    /// Registers that ordinary instructions wrote since the last fence.
    written: Vec<bool>,
    open: Vec<Product>,
    closed: VecDeque<Vec<Product>>,
}

struct Product {
    sums: Vec<u32>,
    /// Of the left factor.
    others: Vec<u32>,
    words: Vec<u64>,
}

impl Products {
    pub fn new(registers: usize) -> Products {
        Products {
            written: vec![true; registers],
            ..Products::default()
        }
    }

    fn all(&self) -> impl Iterator<Item = &Product> {
        self.closed.iter().flatten().chain(&self.open)
    }

    /// What an ordinary instruction touches; an error for sums that are being computed, and their left factors.
    pub fn touched(&mut self, i: &Instruction) -> Result<(), String> {
        i.to.iter().for_each(|r| self.written[*r as usize] = true);
        if self.open.is_empty() && self.closed.is_empty() {
            return Ok(());
        }
        let touched: Vec<u32> = i.to.iter().copied().chain(i.reads()).collect();
        let mut used = self.all().flat_map(|p| p.sums.iter().chain(&p.others));
        match used.any(|r| touched.contains(r)) {
            true => Err("sums or factors are touched before they are waited for".into()),
            false => Ok(()),
        }
    }

    pub fn fence(&mut self) {
        self.written.fill(false);
    }

    pub fn close(&mut self) {
        let group = std::mem::take(&mut self.open);
        self.closed.push_back(group);
    }

    /// The groups but the last `left` are done.
    pub fn wait(&mut self, left: usize, memory: &mut Memory, who: Who) -> Result<(), String> {
        let done = self.closed.len().saturating_sub(left);
        let mut words = self.closed.drain(..done).flatten().flat_map(|p| p.words);
        words.try_for_each(|at| memory.let_go(at, who))
    }

    /// A warp ends.
    pub fn end(&self) -> Result<(), String> {
        match self.all().next() {
            Some(_) => Err("products that nobody waited for".into()),
            None => Ok(()),
        }
    }

    /// Begins a product; gives the warp's sums. `args` are the left factor or its descriptor, the right one's, and whether to
    /// add to the sums.
    pub fn begin(
        &mut self,
        i: &Instruction,
        args: &[Register],
        sums: &[Register],
        memory: &mut Memory,
        who: Who,
    ) -> Result<Vec<Register>, String> {
        let Op::Product {
            columns,
            left: in_memory,
            right: turned,
        } = i.op
        else {
            unreachable!("{}", i.text)
        };
        let (factor_a, rest) = args.split_at(args.len() - 2);
        let others: Vec<u32> = match in_memory {
            Some(_) => vec![],
            None => i.args[..4].iter().filter_map(register).collect(),
        };
        if sums.len() != columns / 2 {
            return Err(format!("{} sums", sums.len()));
        }
        if i.to
            .iter()
            .chain(&others)
            .any(|r| self.written[*r as usize])
        {
            return Err("sums or factors were written, and no wgmma.fence followed".into());
        }
        let overlaps = |p: &Product| p.sums.iter().any(|r| i.to.contains(r));
        if self.all().any(|p| overlaps(p) && p.sums != i.to) {
            return Err("sums are part of another shape's that is being computed".into());
        }
        let same = |r: &Register| r.iter().all(|x| *x == r[0]);
        let named = if in_memory.is_some() { args } else { rest };
        if !named.iter().all(same) {
            return Err("threads of a warp name different matrices".into());
        }
        let [b, adds] = [rest[0][0], rest[1][0]];
        let a = in_memory.map_or(0, |_| factor_a[0][0]);
        memory.began(who.thread / 32, (i.text.clone(), a, b));
        let first = u64::from(who.thread / 32 % 4 * 16);
        let mut words = vec![];
        let mut factor = |bits: u64, outer: std::ops::Range<u64>, turned: bool| {
            let from = Descriptor::decode(bits)?;
            let row = |outer: u64| -> Result<[f64; 16], String> {
                let mut row = [0.0; 16];
                for (inner, x) in row.iter_mut().enumerate() {
                    let at = from.address(outer, inner as u64, turned);
                    let word = memory.hold(at & !3, who)?;
                    words.push(at & !3);
                    *x = half(word.into(), (at / 2 % 2) as usize);
                }
                Ok(row)
            };
            outer.map(row).collect::<Result<Vec<_>, String>>()
        };
        let above = match in_memory {
            Some(turned) => factor(a, first..first + 16, turned)?,
            None => (0..16)
                .map(|row| std::array::from_fn(|col| left(factor_a, row, col)))
                .collect(),
        };
        let right = factor(b, 0..columns as u64, turned)?;
        let mut out = sums.to_vec();
        for (r, line) in above.iter().enumerate() {
            for (c, column) in right.iter().enumerate() {
                let (register, lane) = place(r, c);
                let before = sums[register][lane];
                let mut sum = match adds != 0 {
                    true => f32::from_bits(before as u32),
                    false => 0.0,
                };
                for part in [0, 8] {
                    let products = std::array::from_fn(|i| line[part + i] * column[part + i]);
                    sum = add(sum, products);
                }
                out[register][lane] = sum.to_bits().into();
            }
        }
        let sums = i.to.clone();
        self.open.push(Product {
            sums,
            others,
            words,
        });
        Ok(out)
    }
}

fn register(arg: &Arg) -> Option<u32> {
    match arg {
        Arg::Reg(r) => Some(*r),
        _ => None,
    }
}

/// The register and lane that hold an element of a warp's 16 rows: with g = lane / 4 and t = lane mod 4, register 4j + n has row g, for n
/// of 2 and 3 row g + 8, and column 8j + 2t + n mod 2.
fn place(row: usize, column: usize) -> (usize, usize) {
    let register = column / 8 * 4 + row / 8 * 2 + column % 2;
    (register, row % 8 * 4 + column % 8 / 2)
}

/// Where a matrix lies in shared memory.
#[derive(Debug)]
struct Descriptor {
    start: u64,
    leading: u64,
    stride: u64,
    /// 16-byte pieces of a panel's row: 1, 2, 4 or 8.
    pieces: u64,
}

impl Descriptor {
    fn decode(bits: u64) -> Result<Descriptor, String> {
        let field = |from: u32| (bits >> from & 0x3FFF) << 4;
        let used = 0x3FFF | 0x3FFF << 16 | 0x3FFF << 32 | 7 << 49 | 3 << 62;
        if bits & !used != 0 {
            return Err(format!("reserved bits of descriptor {bits:#018x}"));
        }
        let d = Descriptor {
            start: field(0),
            leading: field(16),
            stride: field(32),
            pieces: [1, 8, 4, 2][(bits >> 62) as usize],
        };
        // The first row begins a pattern: other places would have to be told as a base offset.
        let within = d.start & (d.pieces - 1) << 7;
        match (bits >> 49 & 7, within) {
            (0, 0) => Ok(d),
            _ => Err(format!("a matrix at {:#x}, within a pattern", d.start)),
        }
    }

    /// The address of an element, `outer` along m or n. Rows of panels go along the inner index, or, if `turned`, across it.
    fn address(&self, outer: u64, inner: u64, turned: bool) -> u64 {
        let wide = 8 * self.pieces;
        let eights = |n: u64| n % 8 * 16 * self.pieces + n / 8 * self.stride;
        let at = match (turned, self.pieces) {
            (false, 1) => {
                outer % 8 * 16 + outer / 8 * self.stride + inner / 8 * self.leading + inner % 8 * 2
            }
            (false, _) => eights(outer) + inner * 2,
            (true, 1) => {
                outer % 8 * 2 + outer / 8 * self.stride + inner % 8 * 16 + inner / 8 * self.leading
            }
            (true, _) => outer % wide * 2 + outer / wide * self.leading + eights(inner),
        };
        let at = self.start + at;
        // Bits 7 to 9 of an address are added to bits 4 to 6, as many as there are pieces.
        at ^ (at >> 7 & (self.pieces - 1)) << 4
    }
}

#[cfg(test)]
mod tests {
    use super::super::{parse, run};
    use super::*;
    use odec_runtime::device::memory::Buffer;

    /// 64 × 8 sums of sixteen ones by one warpgroup; thread t writes its first.
    const KERNEL: &str = r"
.version 8.0
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 k_shared[];
.visible .entry k(
    .param .u64 k_param_0
)
.reqntid 128, 1, 1
{
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd1, %r1, 32;
    mov.u64 %rd2, k_shared;
    add.s64 %rd1, %rd2, %rd1;
    mov.b32 %r2, 1065369472;
    st.shared.v4.b32 [%rd1], {%r2, %r2, %r2, %r2};
    st.shared.v4.b32 [%rd1+16], {%r2, %r2, %r2, %r2};
    fence.proxy.async.shared::cta;
    bar.sync 0;
    shr.u32 %r3, %r1, 5;
    cvt.u64.u32 %rd6, %r3;
    shr.u64 %rd3, %rd2, 4;
    add.s64 %rd3, %rd3, 68720001024;
    add.s64 %rd4, %rd3, 128;
    mov.b32 %f1, 0f00000000;
    mov.b32 %f2, %f1;
    mov.b32 %f3, %f1;
    mov.b32 %f4, %f1;
    mov.pred %p1, -1;
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1, %f2, %f3, %f4}, %rd3, %rd4, %p1, 1, 1, 0, 0;
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    ld.param.u64 %rd5, [k_param_0];
    mul.wide.u32 %rd7, %r1, 4;
    add.s64 %rd5, %rd5, %rd7;
    st.global.f32 [%rd5], %f1;
    ret;
}
";

    /// What thread 0 gets when the kernel is changed so, or what is found wrong.
    fn changed(from: &str, to: &str) -> Result<f32, String> {
        assert!(KERNEL.contains(from), "{from}");
        launched(&KERNEL.replace(from, to))
    }

    fn launched(text: &str) -> Result<f32, String> {
        let kernel = parse::module(text).remove(0);
        let launched = std::panic::catch_unwind(move || {
            let mut out = Buffer::zeroed(4 * 128).unwrap();
            let words = out.words();
            let mut memory = Memory::new(&[words]);
            run::launch(&kernel, 1, 4096, &[words.as_ptr() as u64], &mut memory);
            f32::from_bits(words[0].get())
        });
        launched.map_err(|e| e.downcast_ref::<String>().expect("a message").clone())
    }

    fn refused(from: &str, to: &str, why: &str) {
        let said = changed(from, to).expect_err(why);
        assert!(said.contains(why), "{said}");
    }

    #[test]
    fn sums_of_ones() {
        assert_eq!(changed("", ""), Ok(16.0));
        assert_eq!(changed("0f00000000", "0f40000000"), Ok(18.0));
        // C is not read.
        assert_eq!(changed("%p1, -1", "%p1, 0"), Ok(16.0));
    }

    #[test]
    fn stores_that_tensor_cores_may_not_see() {
        let fence = "fence.proxy.async.shared::cta;\n";
        refused(fence, "\n", "passed no fence");
        // Before the last store.
        let early = format!("{fence}st.shared.b32 [%rd1+4], %r1;\n");
        refused(fence, &early, "passed no fence");
        refused("    bar.sync 0;\n", "", "shared word");
    }

    #[test]
    fn sums_that_are_not_there_yet() {
        let (commit, wait) = (
            "wgmma.commit_group.sync.aligned;\n",
            "wgmma.wait_group.sync.aligned 0;\n",
        );
        let why = "before they are waited for";
        refused(wait, "\n", why);
        refused(wait, "wgmma.wait_group.sync.aligned 1;\n", why);
        refused(commit, "\n", why);
        refused(wait, &format!("mov.b32 %f4, %f2;\n{wait}"), why);
        refused(wait, "ret;\n", "nobody waited for");
    }

    /// The left factor in registers.
    const REGISTERS: (&str, &str) = (
        "%rd3, %rd4, %p1, 1, 1, 0, 0",
        "{%r2, %r2, %r5, %r2}, %rd4, %p1, 1, 1, 0",
    );

    #[test]
    fn left_factors_in_registers() {
        let run = |change: &dyn Fn(String) -> String| {
            let before = "wgmma.fence.sync.aligned;\n";
            let text = KERNEL.replace(before, &format!("mov.b32 %r5, %r2;\n{before}"));
            launched(&change(text.replace(REGISTERS.0, REGISTERS.1)))
        };
        assert_eq!(run(&|s| s), Ok(16.0));
        // The last eight columns of the upper rows.
        assert_eq!(
            run(&|s| s.replace("mov.b32 %r5, %r2", "mov.b32 %r5, 0")),
            Ok(8.0)
        );
        let wait = "wgmma.wait_group";
        let early = run(&|s| s.replace(wait, &format!("mov.b32 %r5, 0;\n{wait}")));
        assert!(
            early
                .expect_err("early")
                .contains("before they are waited for")
        );
        let late = run(&|s| s.replace("    wgmma.mma", "mov.b32 %r5, %r2;\nwgmma.mma"));
        assert!(late.expect_err("late").contains("no wgmma.fence"));
    }

    #[test]
    fn sums_that_were_written_with_no_fence_since() {
        let fence = "wgmma.fence.sync.aligned;\n";
        refused(fence, "\n", "no wgmma.fence");
        refused(
            fence,
            &format!("{fence}mov.b32 %f2, %f1;\n"),
            "no wgmma.fence",
        );
    }

    #[test]
    fn factors_that_are_written_too_early() {
        let wait = "wgmma.wait_group.sync.aligned 0;\n";
        let store = "st.shared.b32 [%rd1], %r1;\n";
        refused(
            wait,
            &format!("{store}{wait}"),
            "while a product may read it",
        );
        // Another warp's product may not be done.
        refused(wait, &format!("{wait}{store}"), "while another uses it");
        assert_eq!(
            changed(wait, &format!("{wait}bar.sync 0;\n{store}")),
            Ok(16.0)
        );
    }

    #[test]
    fn warps_that_multiply_something_else() {
        let describe = "add.s64 %rd4, %rd3, 128;";
        refused(
            describe,
            "add.s64 %rd4, %rd3, %rd6;",
            "products of a warpgroup",
        );
        refused(describe, "add.s64 %rd4, %rd3, %rd1;", "different matrices");
    }

    #[test]
    fn descriptors_are_read_as_documented() {
        // The canonical layouts of the PTX ISA, 9.7.15.5.1, in bytes from the start: 16-byte pieces in rows of 128 bytes, exclusive
        // or with the row; then core matrices of 8 × 16 bytes.
        let start = 5120;
        let at = |d: &Descriptor, outer, inner, turned| d.address(outer, inner, turned) - start;
        let bits = |mode: u64| (start >> 4) | (512 << 16) | (64 << 32) | mode << 62;
        let d = Descriptor::decode(bits(1)).unwrap();
        assert_eq!(
            (d.start, d.leading, d.stride, d.pieces),
            (start, 8192, 1024, 8)
        );
        let piece = |row: u64, piece: u64| row * 128 + (piece ^ (row % 8)) * 16;
        for outer in 0..128 {
            for inner in 0..16 {
                let along = piece(outer, inner / 8) + inner % 8 * 2;
                assert_eq!(at(&d, outer, inner, false), along);
                let across = outer / 64 * 8192 + piece(inner, outer % 64 / 8) + outer % 8 * 2;
                assert_eq!(at(&d, outer, inner, true), across);
            }
        }
        // The third instruction of a tile begins 64 bytes into its first row.
        let third = Descriptor::decode(bits(1) + 4).unwrap();
        assert_eq!(at(&third, 3, 8, false), 3 * 128 + (5 ^ 3) * 16);
        let plain = Descriptor::decode(bits(0)).unwrap();
        assert_eq!(at(&plain, 9, 10, false), 1024 + 16 + 8192 + 4);
        assert_eq!(at(&plain, 9, 10, true), 1024 + 2 + 8192 + 2 * 16);
        for wrong in [bits(1) + 8, bits(1) | 1 << 49, bits(1) | 1 << 15] {
            Descriptor::decode(wrong).unwrap_err();
        }
    }
}
