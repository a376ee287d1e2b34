//! Executes kernels: block after block, the warps of a block in turn up to each barrier, the threads of a warp in step.
//!
//! Threads of a warp that part at a branch run on separately, those further behind first, and join where they meet. At a
//! shuffle, a vote or a barrier they wait for the others of the warp, as on cards from sm_70 on (PTX ISA, 9.7.13.1, 9.7.9.6). If not
//! all of them get there the test ends, as on a GPU nobody says what would happen.

use super::isa::{Arg, Instruction, Kernel, Op, Space};
use super::memory::{self, Memory, Who};
use super::scalar::{self, compute};
use super::warpgroup::Products;

const LANES: usize = 32;
type Register = [u64; LANES];

/// Threads that stand at the same instruction.
#[derive(Clone, Copy)]
struct Group {
    at: usize,
    mask: u32,
    /// For the others of the warp.
    waits: bool,
}

impl Group {
    fn new(at: usize, mask: u32) -> Group {
        Group {
            at,
            mask,
            waits: false,
        }
    }
}

struct Warp<'r> {
    number: u32,
    /// How many blocks the launch has.
    blocks: u32,
    groups: Vec<Group>,
    registers: &'r mut Vec<Register>,
    epoch: u32,
    waits: bool,
    /// Whether it was told that a phase is not over yet.
    stalls: bool,
    products: Products,
    /// Threads that have waited for the launch ahead; all, of a kernel that never does.
    awaited: u32,
}

/// Runs a launch with so many bytes of shared memory a block; `params` are the arguments' bits in order.
pub fn launch(kernel: &Kernel, blocks: u64, shared: u64, params: &[u64], memory: &mut Memory) {
    assert_eq!(kernel.params, params.len(), "arguments of {}", kernel.name);
    assert_eq!(kernel.maps, memory.maps.len(), "maps of {}", kernel.name);
    assert!(kernel.threads.is_multiple_of(LANES) && kernel.threads > 0);
    let awaits = kernel.code.iter().any(|i| i.op == Op::AwaitLaunch);
    let mut registers = vec![vec![]; kernel.threads / LANES];
    for block in 0..blocks as u32 {
        memory.begin(shared + kernel.dynamic.unwrap_or(0));
        let mut warps: Vec<Warp> = (0..)
            .zip(&mut registers)
            .map(|(number, registers)| {
                registers.clear();
                registers.resize(kernel.registers, [0xDEAD_BEEF_DEAD_BEEF; LANES]);
                Warp {
                    number,
                    blocks: blocks as u32,
                    groups: vec![Group::new(0, u32::MAX)],
                    registers,
                    epoch: 0,
                    waits: false,
                    stalls: false,
                    products: Products::new(kernel.registers),
                    awaited: if awaits { 0 } else { u32::MAX },
                }
            })
            .collect();
        let mut epoch = 0;
        while warps.iter().any(|w| !w.groups.is_empty()) {
            // Up to a barrier or the end, each; who is told to wait is asked again when something has happened.
            loop {
                let before = memory.happened();
                for w in warps.iter_mut().filter(|w| !w.waits) {
                    w.stalls = false;
                    w.run(kernel, params, memory, block, epoch);
                }
                if !warps.iter().any(|w| w.stalls) {
                    break;
                }
                let name = &kernel.name;
                let goes_on = memory.happened() != before;
                assert!(goes_on, "{name}: a phase that never ends is waited for");
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

impl Warp<'_> {
    /// Up to the next barrier, or the end.
    fn run(
        &mut self,
        kernel: &Kernel,
        params: &[u64],
        memory: &mut Memory,
        block: u32,
        epoch: u32,
    ) {
        while let Some(n) = self.behind() {
            let mut group = self.groups.swap_remove(n);
            let next = self.behind().map_or(usize::MAX, |n| self.groups[n].at);
            let met = |group: Group, all: &[Group]| all.iter().any(|g| g.at == group.at);
            while group.mask != 0 && group.at < next && !met(group, &self.groups) {
                let i = &kernel.code[group.at];
                if i.op.is_of_warps() && group.mask != u32::MAX && !self.groups.is_empty() {
                    group.waits = true;
                    break;
                }
                group.at += 1;
                match i.op {
                    Op::Return => {
                        let ends = self.guarded(i, group.mask);
                        group.mask &= !ends;
                        let left = self.products.end();
                        left.unwrap_or_else(|what| panic!("{}: {what}", kernel.name));
                    }
                    Op::Branch(to) => {
                        let goes = self.guarded(i, group.mask);
                        let stays = Group::new(group.at, group.mask & !goes);
                        group = Group::new(to, goes);
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
                        if self.stalls {
                            self.join(group);
                            return;
                        }
                    }
                }
            }
            if group.mask != 0 {
                self.join(group);
            }
        }
        if let Some(group) = self.groups.first() {
            self.together(&kernel.code[group.at], group.mask, kernel);
        }
    }

    /// The threads that are furthest behind, of those that can go on.
    fn behind(&self) -> Option<usize> {
        let ready = (0..self.groups.len()).filter(|n| !self.groups[*n].waits);
        ready.min_by_key(|n| self.groups[*n].at)
    }

    fn join(&mut self, group: Group) {
        match self.groups.iter_mut().find(|g| g.at == group.at) {
            Some(g) => *g = Group::new(g.at, g.mask | group.mask),
            None => self.groups.push(group),
        }
    }

    fn together(&self, i: &Instruction, mask: u32, kernel: &Kernel) {
        assert!(
            mask == u32::MAX,
            "{}: `{}` is reached by threads {mask:#034b} alone",
            kernel.name,
            i.text
        );
    }

    fn guarded(&self, i: &Instruction, mask: u32) -> u32 {
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
            Arg::Nctaid => self.blocks.into(),
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn step(
        &mut self,
        i: &Instruction,
        mask: u32,
        params: &[u64],
        memory: &mut Memory,
        block: u32,
        who: &dyn Fn(usize, &Warp) -> Who,
        kernel: &Kernel,
    ) -> Result<(), String> {
        let bytes = u64::from(i.ty.bits() / 8);
        if !matches!(i.op, Op::Product { .. }) {
            self.products.touched(i)?;
        }
        let early = mask & !self.awaited != 0;
        // Until the launch ahead is waited for, memory is its own.
        if early && (i.op.touches_memory() || i.op == Op::PermitLaunch) {
            return Err("comes before griddepcontrol.wait".into());
        }
        match i.op {
            Op::AwaitLaunch => self.awaited |= mask,
            Op::PermitLaunch => {}
            Op::Publish => lanes(mask).for_each(|l| memory.publish(who(l, self).thread)),
            Op::FenceProducts | Op::CloseProducts | Op::AwaitProducts | Op::Product { .. } => {
                self.together(i, mask, kernel);
                let args: Vec<Register> = i.args.iter().map(|a| self.values(*a, block)).collect();
                let who = who(0, self);
                match i.op {
                    Op::FenceProducts => self.products.fence(),
                    Op::CloseProducts => self.products.close(),
                    Op::AwaitProducts => self.products.wait(args[0][0] as usize, memory, who)?,
                    _ => {
                        let sums: Vec<Register> =
                            i.to.iter().map(|r| self.registers[*r as usize]).collect();
                        let sums = self.products.begin(i, &args, &sums, memory, who)?;
                        for (to, values) in i.to.iter().zip(sums) {
                            self.registers[*to as usize] = values;
                        }
                    }
                }
            }
            Op::Prepare | Op::Expect => {
                for l in lanes(mask) {
                    let at = self.value(i.args[0], l, block);
                    let at = at.wrapping_add(i.offset as u64);
                    let (n, who) = (self.value(i.args[1], l, block), who(l, self));
                    match i.op {
                        Op::Prepare => memory.prepare(at, n, who)?,
                        _ => memory.expect(at, n, who)?,
                    }
                }
            }
            Op::Over => {
                for l in lanes(mask) {
                    let at = self.value(i.args[0], l, block);
                    let at = at.wrapping_add(i.offset as u64);
                    let over = memory.over(at, self.value(i.args[1], l, block), who(l, self))?;
                    self.registers[i.to[0] as usize][l] = over.into();
                    self.stalls |= !over;
                }
            }
            Op::CopyBox => {
                for l in lanes(mask) {
                    let all: Vec<u64> = i.args.iter().map(|a| self.value(*a, l, block)).collect();
                    let to = all[0].wrapping_add(i.offset as u64);
                    let from: Vec<i64> = all[3..].iter().map(|x| (*x as i32).into()).collect();
                    memory.copy_box(to, all[1], all[2], &from, who(l, self))?;
                }
            }
            Op::Prefetch => {
                for l in lanes(mask) {
                    let at = self.value(i.args[0], l, block);
                    memory.prefetch(at.wrapping_add(i.offset as u64))?;
                }
            }
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
            Op::ToGeneric(space) | Op::FromGeneric(space) => {
                for l in lanes(mask) {
                    let at = self.value(i.args[0], l, block);
                    let at = match i.op {
                        Op::ToGeneric(_) => memory::to_generic(at, space)?,
                        _ => memory::from_generic(at, space)?,
                    };
                    self.registers[i.to[0] as usize][l] = at;
                }
            }
            _ => {
                let none = [0; LANES];
                let arg = |n: usize| i.args.get(n).map_or(none, |a| self.values(*a, block));
                let (a, b, c) = (arg(0), arg(1), arg(2));
                let all = scalar::lanes(i.op, i.ty, [&a, &b, &c]);
                let to = &mut self.registers[i.to[0] as usize];
                match all {
                    Some(all) if mask == u32::MAX => *to = all,
                    Some(all) => lanes(mask).for_each(|l| to[l] = all[l]),
                    None => {
                        lanes(mask).for_each(|l| to[l] = compute(i.op, i.ty, a[l], b[l], c[l]));
                    }
                }
            }
        }
        Ok(())
    }

    fn values(&self, arg: Arg, block: u32) -> Register {
        match arg {
            Arg::Reg(r) => self.registers[r as usize],
            _ => std::array::from_fn(|l| self.value(arg, l, block)),
        }
    }
}

fn lanes(mut mask: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let next = (mask != 0).then(|| mask.trailing_zeros() as usize)?;
        mask &= mask - 1;
        Some(next)
    })
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;
    use odec_runtime::device::memory::Buffer;

    /// Three turns: all vote at the head of a loop, then lane 0 counts its turns behind the jump back, where a compiler may put it.
    const KERNEL: &str = r"
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(
    .param .u64 k_param_0
)
.reqntid 32, 1, 1
{
    mov.u32 %r1, %tid.x;
    mov.b32 %r2, 0;
    setp.eq.s32 %p1, %r1, 0;
    setp.ge.s32 %p2, %r1, 0;
LOOP:
    vote.sync.ballot.b32 %r3, %p2, -1;
    add.s32 %r2, %r2, 1;
    setp.lt.s32 %p3, %r2, 3;
    @%p1 bra ALONE;
BACK:
    @%p3 bra LOOP;
    bra END;
ALONE:
    add.s32 %r4, %r2, 0;
    bra BACK;
END:
    ld.param.u64 %rd1, [k_param_0];
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd1, %rd1, %rd2;
    st.global.b32 [%rd1], %r3;
    ret;
}
";

    fn launched(text: &str) -> Result<Vec<u32>, String> {
        let kernel = parse::module(text).remove(0);
        let launched = std::panic::catch_unwind(move || {
            let mut buffer = Buffer::zeroed(4 * 32).unwrap();
            let out = buffer.words();
            let mut memory = Memory::new(&[out]);
            launch(&kernel, 1, 0, &[out.as_ptr() as u64], &mut memory);
            out.iter().map(|w| w.get()).collect()
        });
        launched.map_err(|e| e.downcast_ref::<String>().expect("a message").clone())
    }

    #[test]
    fn threads_that_parted_meet_at_a_vote() {
        assert_eq!(launched(KERNEL), Ok(vec![u32::MAX; 32]));
    }

    #[test]
    fn memory_touched_before_the_launch_ahead_is_waited_for_is_found() {
        let wait = "griddepcontrol.wait";
        let first = KERNEL.replace("mov.b32 %r2, 0;", &format!("{wait};\n    mov.b32 %r2, 0;"));
        assert_eq!(launched(&first), Ok(vec![u32::MAX; 32]));
        let last = KERNEL.replace("    ret;", &format!("    {wait};\n    ret;"));
        let said = launched(&last).expect_err("a store before the wait");
        assert!(said.contains("st.global") && said.contains(wait), "{said}");
        // By one way alone it is waited for.
        let after = "setp.ge.s32 %p2, %r1, 0;";
        let once = KERNEL.replace(after, &format!("{after}\n    @%p1 {wait};"));
        let said = launched(&once).expect_err("a store of threads that did not wait");
        assert!(said.contains(wait), "{said}");
    }

    #[test]
    fn threads_that_never_meet_are_found() {
        let apart = "mov.b32 %r2, 0;";
        let earlier = KERNEL.replace("@%p1 bra ALONE;", "@%p1 bra END;");
        let otherwise = KERNEL.replace(
            apart,
            &format!("{apart}\n    setp.eq.s32 %p1, %r1, 0;\n    @%p1 bra END;"),
        );
        for text in [earlier, otherwise] {
            assert_ne!(text, KERNEL);
            let said = launched(&text).expect_err("a vote of some");
            assert!(said.contains("alone"), "{said}");
        }
    }
}
