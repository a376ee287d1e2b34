//! Instructions of a warpgroup, four warps from a multiple of four on (`sm_90a`): `wgmma.mma_async`, which multiplies matrices of
//! shared memory, and the fence between it and ordinary stores.
//!
//! Takes places in the block's shared memory as numbers of two-byte elements, and a thread's sums: of C, 64 × n in f32, warp
//! w has rows 16w to 16w + 15, as fragments of 16 × 8 side by side (PTX ISA, 9.7.15). LLVM has no operations for these, so they are
//! text; its register allocation is ptxas's, and it sees operands and results. Leaves tiles to the kernels.

use super::{Elem, Emitter, Type, Val, list, types};

/// A factor of a product, as tensor cores find it: 64 (of B, n) rows or columns, 16 of the inner index, in panels of 128 bytes
/// a row ([`odec_program::gpu::tensor::warpgroup`]).
#[derive(Clone, Copy)]
pub struct Paneled {
    /// The descriptor of its first element.
    pub descriptor: Val,
    /// Whether rows in memory go across the inner index, not along it.
    pub turned: bool,
}

/// A left factor: in shared memory, or in registers, of each warp its 16 rows as a fragment of `mma` ([`Emitter::multiply`]).
#[derive(Clone, Copy)]
pub enum Left {
    Shared(Paneled),
    Registers([Val; 4]),
}

/// What products are added to.
#[derive(Clone, Copy)]
pub enum Accumulators<'a> {
    /// A thread's part of C.
    Of(&'a [Val]),
    /// Nothing: so many numbers begin with the first product. They need not be set to zero first, which an assembler would take for a use
    /// of registers while other products are under way.
    New(usize),
}

/// The layout of shared memory in bits 62 and 63 of a descriptor: panels of 128 bytes, exclusive or within.
const SWIZZLE_128: i64 = 1 << 62;

impl Emitter {
    /// Describes a matrix that begins at an element of shared memory, for tensor cores: `leading` bytes from panel to panel, `stride`
    /// bytes from eight rows to the next eight.
    pub fn describe(&mut self, element: Val, leading: u64, stride: u64) -> Val {
        self.describe_behind(element, 0, leading, stride)
    }

    /// The same of a matrix that begins so many elements behind another place, a multiple of eight.
    pub fn describe_behind(&mut self, from: Val, elements: u64, leading: u64, stride: u64) -> Val {
        let address = self.shared_address(from);
        // All three in units of 16 bytes, 14 bits each: shared memory is smaller than 2¹⁸ bytes.
        let four = self.int(4);
        let start = self.shift_right(address, four);
        // Added to the start, not to the address: then a place is shifted once for all matrices behind it, and only the lower half of a
        // descriptor is computed.
        let start = self.convert(start, Elem::I32);
        let lower = (elements as i64 * 2 + ((leading as i64) << 16)) >> 4;
        let lower = self.integer(lower, start.ty);
        let lower = self.add(start, lower);
        let lower = self.op(
            "arith.extui",
            format_args!("{lower} : i32 to i64"),
            Type::I64,
        );
        let fixed = self.int(SWIZZLE_128 | (stride as i64 >> 4) << 32);
        self.or(lower, fixed)
    }

    /// Lets tensor cores see what this thread has written to shared memory; a barrier must follow.
    pub fn publish(&mut self) {
        self.stmt(format_args!(
            "nvvm.fence.proxy {{kind = #nvvm.proxy_kind<async.shared>, space = #nvvm.shared_space<cta>}}"
        ));
    }

    /// Begins to add products of 64 × n to a warpgroup's sums, one after the other; the result may not be looked at before
    /// [`Self::await_products`], nor may the factors change. All threads of the warpgroup must get here.
    pub fn begin_products(&mut self, products: &[(Left, Paneled)], sums: Accumulators) -> Vec<Val> {
        let (count, inputs) = match sums {
            Accumulators::Of(sums) => (sums.len(), sums.len()),
            Accumulators::New(count) => (count, 0),
        };
        let columns = 2 * count;
        let mut text = String::from("wgmma.fence.sync.aligned;");
        let all: Vec<String> = (0..count).map(|n| format!("${n}")).collect();
        let all = all.join(", ");
        // Operands are numbered: results, the same as arguments, and then these.
        let adds = count + inputs;
        let always = self.integer(-1, Type::I1);
        let (mut others, mut places) = (vec![always], String::from("b"));
        if inputs == 0 {
            others.push(self.integer(0, Type::I1));
            places += ",b";
        }
        for (n, (left, right)) in products.iter().enumerate() {
            // The first product of new sums is not added to anything.
            let adds = adds + usize::from(inputs == 0 && n == 0);
            let first = count + inputs + others.len();
            let (a, turned) = match left {
                Left::Shared(a) => {
                    others.push(a.descriptor);
                    places += ",l";
                    (format!("${first}"), format!("{}, ", u8::from(a.turned)))
                }
                Left::Registers(a) => {
                    others.extend(a);
                    places += ",r,r,r,r";
                    let [x, y, z, w] = [0, 1, 2, 3].map(|n| first + n);
                    (format!("{{${x}, ${y}, ${z}, ${w}}}"), String::new())
                }
            };
            let b = count + inputs + others.len();
            others.push(right.descriptor);
            places += ",l";
            text += &format!(
                "\\0A\\09wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.bf16.bf16 {{{all}}}, {a}, ${b}, ${adds}, 1, 1, {turned}{};",
                u8::from(right.turned),
            );
        }
        text += "\\0A\\09wgmma.commit_group.sync.aligned;";
        self.on_sums(&text, sums, &others, &places)
    }

    /// Waits for all that the warpgroup has begun. All of its threads must get here.
    pub fn await_products(&mut self, sums: &[Val]) -> Vec<Val> {
        self.await_products_but(0, sums)
    }

    /// Waits for all but the last `left` beginnings, of which none has these sums.
    pub fn await_products_but(&mut self, left: u64, sums: &[Val]) -> Vec<Val> {
        let text = format!("wgmma.wait_group.sync.aligned {left};");
        self.on_sums(&text, Accumulators::Of(sums), &[], "")
    }

    /// Instructions that change the sums where they are, or make them.
    fn on_sums(
        &mut self,
        text: &str,
        sums: Accumulators,
        others: &[Val],
        places: &str,
    ) -> Vec<Val> {
        let (count, sums) = match sums {
            Accumulators::Of(sums) => (sums.len(), sums),
            Accumulators::New(count) => (count, &[][..]),
        };
        let floats = vec!["f32"; count].join(", ");
        let of = format!("!llvm.struct<({floats})>");
        // New ones are not where other operands are.
        let result = if sums.is_empty() { "=&f" } else { "=f" };
        let same = (0..sums.len()).map(|n| n.to_string());
        let mut constraints: Vec<String> = vec![result.to_string(); count];
        constraints.extend(same);
        if !places.is_empty() {
            constraints.push(places.into());
        }
        let constraints = constraints.join(",");
        let args: Vec<Val> = sums.iter().chain(others).copied().collect();
        let (args, kinds) = (list(&args), types(&args));
        let all = self.op(
            "llvm.inline_asm",
            format_args!("has_side_effects \"{text}\", \"{constraints},~{{memory}}\" {args} : ({kinds}) -> {of}"),
            Type::PTR,
        );
        (0..count)
            .map(|i| {
                self.op(
                    "llvm.extractvalue",
                    format_args!("{all}[{i}] : {of}"),
                    Type::scalar(Elem::F32),
                )
            })
            .collect()
    }
}
