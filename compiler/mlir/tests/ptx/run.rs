//! Executes kernels: block after block, the warps of a block in turn up to each barrier, the threads of a warp in step.
//!
//! Threads of a warp that part at a branch run on separately, those further behind first, and join where they meet. A
//! shuffle, a vote or a barrier that not all threads of the warp reach together ends the test, as on a GPU nobody says what
//! would happen.

use super::isa::{Arg, Instr, Kernel, Op, Space, Ty};
use super::memory::{Memory, Who};

const LANES: usize = 32;
type Register = [u64; LANES];

/// Threads that stand at the same instruction.
#[derive(Clone, Copy)]
struct Group {
    at: usize,
    mask: u32,
}

struct Warp {
    number: u32,
    groups: Vec<Group>,
    registers: Vec<Register>,
    epoch: u32,
    waits: bool,
}

/// Runs a launch; `params` are the arguments' bits in order.
pub fn launch(kernel: &Kernel, blocks: u64, params: &[u64], memory: &mut Memory) {
    assert_eq!(kernel.params, params.len(), "arguments of {}", kernel.name);
    assert!(kernel.threads.is_multiple_of(LANES) && kernel.threads > 0);
    for block in 0..blocks as u32 {
        memory.begin(kernel.shared);
        let mut warps: Vec<Warp> = (0..(kernel.threads / LANES) as u32)
            .map(|number| Warp {
                number,
                groups: vec![Group {
                    at: 0,
                    mask: u32::MAX,
                }],
                registers: vec![[0xDEAD_BEEF_DEAD_BEEF; LANES]; kernel.registers],
                epoch: 0,
                waits: false,
            })
            .collect();
        let mut epoch = 0;
        while warps.iter().any(|w| !w.groups.is_empty()) {
            for w in &mut warps {
                w.run(kernel, params, memory, block, epoch);
            }
            let waiting = warps.iter().filter(|w| w.waits).count();
            assert!(
                waiting == 0 || waiting == warps.len(),
                "{}: {waiting} of {} warps wait at a barrier, the others have ended",
                kernel.name,
                warps.len()
            );
            epoch += 1;
            warps.iter_mut().for_each(|w| w.waits = false);
        }
        memory.end(&kernel.name);
    }
}

impl Warp {
    /// Up to the next barrier, or the end.
    fn run(
        &mut self,
        kernel: &Kernel,
        params: &[u64],
        memory: &mut Memory,
        block: u32,
        epoch: u32,
    ) {
        while let Some(n) = (0..self.groups.len()).min_by_key(|n| self.groups[*n].at) {
            let mut group = self.groups.swap_remove(n);
            let next = self.groups.iter().map(|g| g.at).min().unwrap_or(usize::MAX);
            while group.mask != 0 && group.at < next {
                let i = &kernel.code[group.at];
                group.at += 1;
                match i.op {
                    Op::Return => {
                        let ends = self.guarded(i, group.mask);
                        group.mask &= !ends;
                    }
                    Op::Branch(to) => {
                        let goes = self.guarded(i, group.mask);
                        let stays = Group {
                            at: group.at,
                            mask: group.mask & !goes,
                        };
                        group = Group { at: to, mask: goes };
                        if goes == 0 {
                            group = stays;
                        } else if stays.mask != 0 {
                            self.join(stays);
                            break;
                        }
                    }
                    Op::Barrier => {
                        self.together(i, group.mask, kernel);
                        self.groups.push(group);
                        self.waits = true;
                        return;
                    }
                    _ => {
                        let mask = self.guarded(i, group.mask);
                        let who = |lane: usize, me: &Warp| Who {
                            block,
                            thread: me.number * LANES as u32 + lane as u32,
                            epoch,
                            warp_epoch: me.epoch,
                        };
                        if let Err(what) = self.step(i, mask, params, memory, block, &who, kernel) {
                            panic!("{}, block {block}: `{}`: {what}", kernel.name, i.text);
                        }
                    }
                }
            }
            if group.mask != 0 {
                self.join(group);
            }
        }
    }

    fn join(&mut self, group: Group) {
        match self.groups.iter_mut().find(|g| g.at == group.at) {
            Some(g) => g.mask |= group.mask,
            None => self.groups.push(group),
        }
    }

    fn together(&self, i: &Instr, mask: u32, kernel: &Kernel) {
        assert!(
            mask == u32::MAX,
            "{}: `{}` is reached by threads {mask:#034b} alone",
            kernel.name,
            i.text
        );
    }

    fn guarded(&self, i: &Instr, mask: u32) -> u32 {
        let Some((register, negated)) = i.guard else {
            return mask;
        };
        let holds = lanes(mask).filter(|l| (self.registers[register as usize][*l] != 0) != negated);
        holds.fold(0, |m, l| m | 1 << l)
    }

    fn value(&self, arg: Arg, lane: usize, block: u32) -> u64 {
        match arg {
            Arg::Reg(r) => self.registers[r as usize][lane],
            Arg::Imm(x) => x,
            Arg::Tid => u64::from(self.number) * LANES as u64 + lane as u64,
            Arg::Ctaid => block.into(),
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn step(
        &mut self,
        i: &Instr,
        mask: u32,
        params: &[u64],
        memory: &mut Memory,
        block: u32,
        who: &dyn Fn(usize, &Warp) -> Who,
        kernel: &Kernel,
    ) -> Result<(), String> {
        let bytes = u64::from(i.ty.bits() / 8);
        match i.op {
            Op::Param(n) => {
                for l in lanes(mask) {
                    self.registers[i.to[0] as usize][l] = params[n];
                }
            }
            Op::Load(space) | Op::Store(space) => {
                let (shared, width) = (
                    space == Space::Shared,
                    i.to.len().max(i.args.len() - 1) as u64,
                );
                if bytes < 2 {
                    return Err("an access of a byte".into());
                }
                for l in lanes(mask) {
                    let at = self
                        .value(i.args[0], l, block)
                        .wrapping_add(i.offset as u64);
                    if !at.is_multiple_of(bytes * width) {
                        return Err(format!("address {at:#x} is not aligned"));
                    }
                    let who = who(l, self);
                    for n in 0..width {
                        let at = at + n * bytes;
                        if let Op::Load(_) = i.op {
                            let mut x = u64::from(memory.load(shared, at, bytes.min(4), who)?);
                            if bytes == 8 {
                                x |= u64::from(memory.load(shared, at + 4, 4, who)?) << 32;
                            }
                            self.registers[i.to[n as usize] as usize][l] = x;
                        } else {
                            let x = self.value(i.args[1 + n as usize], l, block);
                            memory.store(shared, at, bytes.min(4), x as u32, who)?;
                            if bytes == 8 {
                                memory.store(shared, at + 4, 4, (x >> 32) as u32, who)?;
                            }
                        }
                    }
                }
            }
            Op::CopyAhead => {
                for l in lanes(mask) {
                    let address = |n: usize, add: i64| {
                        self.value(i.args[n], l, block).wrapping_add(add as u64)
                    };
                    let (to, from) = (address(0, i.offset), address(1, i.from_offset));
                    let bytes = self.value(i.args[2], l, block) as u32;
                    let aligned = to.is_multiple_of(16) && from.is_multiple_of(16);
                    if !aligned || !bytes.is_multiple_of(4) || bytes > 16 {
                        return Err(format!("{bytes} bytes from {from:#x} to {to:#x}"));
                    }
                    memory.copy_ahead(to, from, bytes.into(), who(l, self))?;
                }
            }
            Op::CloseCopies => lanes(mask).for_each(|l| memory.close_copies(who(l, self).thread)),
            Op::AwaitCopies => {
                for l in lanes(mask) {
                    let left = self.value(i.args[0], l, block);
                    memory.await_copies(left as usize, who(l, self))?;
                }
            }
            Op::LoadMatrices(turned) => {
                self.together(i, mask, kernel);
                let rows = self.values(i.args[0], block);
                let rows = rows.map(|at| at.wrapping_add(i.offset as u64));
                let all = super::tensor::matrices(rows, turned, |lane, at| {
                    memory.load(true, at, 4, who(lane, self))
                })?;
                for (to, values) in i.to.iter().zip(all) {
                    self.registers[*to as usize] = values;
                }
            }
            Op::Multiply => {
                self.together(i, mask, kernel);
                let all: Vec<Register> = i.args.iter().map(|a| self.values(*a, block)).collect();
                let out = super::tensor::multiply(&all[..4], &all[4..6], &all[6..]);
                for (to, values) in i.to.iter().zip(out) {
                    self.registers[*to as usize] = values;
                }
            }
            Op::Unpack => {
                let half = i.ty.bits() / 2;
                for l in lanes(mask) {
                    let x = self.value(i.args[0], l, block);
                    self.registers[i.to[0] as usize][l] = x & ((1 << half) - 1);
                    self.registers[i.to[1] as usize][l] = x >> half;
                }
            }
            Op::WarpBarrier => {
                self.together(i, mask, kernel);
                self.epoch += 1;
            }
            Op::FromDistance | Op::FromLane => {
                self.together(i, mask, kernel);
                let from = self.values(i.args[0], block);
                let lane = self.values(i.args[1], block);
                for (l, other) in lane.into_iter().enumerate() {
                    let source = match i.op {
                        Op::FromDistance => l ^ other as usize,
                        _ => other as usize,
                    };
                    if source >= LANES {
                        return Err(format!("lane {source}"));
                    }
                    self.registers[i.to[0] as usize][l] = from[source];
                }
            }
            Op::Ballot => {
                self.together(i, mask, kernel);
                let holds = self.values(i.args[0], block);
                let bits = (0..LANES).fold(0u64, |b, l| b | u64::from(holds[l] != 0) << l);
                self.registers[i.to[0] as usize] = [bits; LANES];
            }
            _ => {
                for l in lanes(mask) {
                    let arg = |n: usize| i.args.get(n).map_or(0, |a| self.value(*a, l, block));
                    let x = compute(i.op, i.ty, arg(0), arg(1), arg(2));
                    self.registers[i.to[0] as usize][l] = x;
                }
            }
        }
        Ok(())
    }

    fn values(&self, arg: Arg, block: u32) -> Register {
        std::array::from_fn(|l| self.value(arg, l, block))
    }
}

fn lanes(mask: u32) -> impl Iterator<Item = usize> {
    (0..LANES).filter(move |l| mask >> l & 1 == 1)
}

/// A value as an integer of its type, extended as the type says.
fn integer(x: u64, ty: Ty) -> i128 {
    match (ty, ty.bits()) {
        (Ty::S(_), 16) => i128::from(x as i16),
        (Ty::S(_), 32) => i128::from(x as i32),
        (Ty::S(_), _) => i128::from(x as i64),
        (_, 1) => i128::from(x & 1),
        (_, 8) => i128::from(x as u8),
        (_, 16) => i128::from(x as u16),
        (_, 32) => i128::from(x as u32),
        (_, _) => i128::from(x),
    }
}

fn cut(x: i128, bits: u32) -> u64 {
    match bits {
        64 => x as u64,
        n => x as u64 & ((1 << n) - 1),
    }
}

fn compute(op: Op, ty: Ty, a: u64, b: u64, c: u64) -> u64 {
    match (op, ty) {
        (Op::Pair, _) => {
            let half = |x: u64| u64::from(odec_program::bf16::of_f32(f(x)));
            half(a) << 16 | half(b)
        }
        (Op::Mov | Op::Select | Op::Pack, _) | (Op::And | Op::Or | Op::Xor | Op::Not, _) => {
            bits(op, ty, a, b, c)
        }
        (Op::Compare(how), Ty::F(32)) => float_compare(how, f(a).into(), f(b).into()),
        (Op::Compare(how), Ty::F(64)) => float_compare(how, f64::from_bits(a), f64::from_bits(b)),
        (Op::Convert(from, how), _) => convert(from, ty, how, a),
        (Op::Exp2, _) => {
            // As far from right as it may be.
            let off = 1.0
                - if a & 0x7FFF_FFFF == 0 {
                    0.0
                } else {
                    2f64.powi(-22)
                };
            ((f64::from(f(a)).exp2() * off) as f32).to_bits().into()
        }
        (_, Ty::F(32)) => {
            let (a, b, c) = (f(a), f(b), f(c));
            let x = match op {
                Op::Add => a + b,
                Op::Sub => a - b,
                Op::Mul => a * b,
                Op::Fma => a.mul_add(b, c),
                Op::Div => a / b,
                Op::Sqrt => a.sqrt(),
                Op::Reciprocal => 1.0 / a,
                Op::Neg => -a,
                Op::Abs => a.abs(),
                // the other one, where one is NaN; −0 is below +0
                Op::Min | Op::Max => {
                    let ordered = if a.total_cmp(&b).is_le() {
                        (a, b)
                    } else {
                        (b, a)
                    };
                    match (a.is_nan(), b.is_nan(), op) {
                        (true, ..) => b,
                        (_, true, _) => a,
                        (.., Op::Min) => ordered.0,
                        _ => ordered.1,
                    }
                }
                _ => panic!("{op:?} on f32"),
            };
            x.to_bits().into()
        }
        (_, Ty::F(_)) => panic!("{op:?} on {ty:?}"),
        _ => whole(op, ty, a, b, c),
    }
}

fn f(x: u64) -> f32 {
    f32::from_bits(x as u32)
}

fn bits(op: Op, ty: Ty, a: u64, b: u64, c: u64) -> u64 {
    let x = match op {
        Op::Mov => a,
        Op::Select => {
            if c & 1 == 1 {
                a
            } else {
                b
            }
        }
        Op::Pack => (a & ((1 << (ty.bits() / 2)) - 1)) | b << (ty.bits() / 2),
        Op::And => a & b,
        Op::Or => a | b,
        Op::Xor => a ^ b,
        Op::Not => !a,
        _ => unreachable!(),
    };
    cut(x.into(), ty.bits())
}

fn whole(op: Op, ty: Ty, a: u64, b: u64, c: u64) -> u64 {
    let n = ty.bits();
    let (x, y) = (integer(a, ty), integer(b, ty));
    let out = match op {
        Op::Add => x + y,
        Op::Sub => x - y,
        Op::Mul => x * y,
        Op::MulWide => return cut(x * y, 2 * n),
        Op::MulHigh => (x * y) >> n,
        Op::Mad => x * y + integer(c, ty),
        Op::MadWide => return cut(x * y + i128::from(c), 2 * n),
        Op::Div => x / y,
        Op::Rem => x % y,
        Op::Min => x.min(y),
        Op::Max => x.max(y),
        Op::Neg => -x,
        Op::Abs => x.abs(),
        Op::ShiftLeft => x << (b as u32).min(64),
        Op::ShiftRight => x >> (b as u32).min(64),
        Op::Field => {
            assert!(
                matches!(ty, Ty::U(_)) && b + c <= u64::from(n),
                "a field beyond its register"
            );
            x >> b & ((1 << c) - 1)
        }
        Op::Permute => {
            let both = cut(x, 32) | cut(y, 32) << 32;
            let byte = |n: u32| {
                let pick = c >> (4 * n) & 0xF;
                assert!(pick < 8, "bytes of signs");
                (both >> (8 * pick) & 0xFF) << (8 * n)
            };
            i128::from((0..4).map(byte).sum::<u64>())
        }
        Op::Popc => i128::from(cut(x, n).count_ones()),
        Op::Clz => i128::from(cut(x, n).leading_zeros() - (64 - n)),
        Op::Brev => i128::from(cut(x, n).reverse_bits() >> (64 - n)),
        Op::Compare(how) => {
            return u64::from(match how {
                "eq" => x == y,
                "ne" => x != y,
                "lt" => x < y,
                "le" => x <= y,
                "gt" => x > y,
                "ge" => x >= y,
                _ => panic!("{how} on {ty:?}"),
            });
        }
        _ => panic!("{op:?} on {ty:?}"),
    };
    cut(out, n)
}

fn float_compare(how: &str, a: f64, b: f64) -> u64 {
    let unordered = a.is_nan() || b.is_nan();
    u64::from(match how {
        "eq" => a == b,
        "ne" => !unordered && a != b,
        "lt" => a < b,
        "le" => a <= b,
        "gt" => a > b,
        "ge" => a >= b,
        "equ" => unordered || a == b,
        "neu" => a != b,
        "ltu" => unordered || a < b,
        "leu" => unordered || a <= b,
        "gtu" => unordered || a > b,
        "geu" => unordered || a >= b,
        "num" => !unordered,
        "nan" => unordered,
        _ => panic!("{how} on floats"),
    })
}

fn convert(from: Ty, to: Ty, how: &str, a: u64) -> u64 {
    match (from, to, how) {
        (Ty::F(32), Ty::F(32), "rni") => f(a).round_ties_even().to_bits().into(),
        (Ty::F(64), Ty::F(32), "rn") => (f64::from_bits(a) as f32).to_bits().into(),
        (Ty::F(32), Ty::S(32), "rzi") => f(a) as i32 as u32 as u64,
        (Ty::S(_) | Ty::U(_), Ty::F(32), "rn") => (integer(a, from) as f32).to_bits().into(),
        (Ty::S(_) | Ty::U(_), Ty::S(_) | Ty::U(_), "") => cut(integer(a, from), to.bits()),
        _ => panic!("cvt {how} from {from:?} to {to:?}"),
    }
}
