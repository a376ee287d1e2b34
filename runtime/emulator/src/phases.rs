//! The copying unit of Hopper (PTX ISA, 9.7.8.24) and mbarriers (9.7.12.15), with the checks that a card would not make.
//!
//! A box leaves when it is asked for, as late as it may: its words are there when somebody is told that their phase is over. Until then
//! nobody may touch them, and then only who was told, or has passed a barrier since somebody was. Found are also: mbarriers that the
//! unit may not see yet, bytes that are not those that a phase waits for, phases that nobody ends, and maps that
//! `cuTensorMapEncodeTiled` refuses (CUDA driver API, "Tensor Map Object Management").

use super::isa::{MAP_BYTES, MAPS, SHARED, Space};
use super::memory::{Memory, Who, from_generic};
use odec_runtime::device::cuda::plan::Mapped;
use rustc_hash::FxHashMap;

/// An mbarrier's address and the number of one of its phases.
type Phase = (u64, u64);

/// The mbarriers of a block, and what came by them.
#[derive(Default)]
pub struct Phases {
    all: FxHashMap<u64, Mbarrier>,
    words: Vec<Word>,
    /// Who was told that a phase is over.
    told: FxHashMap<Phase, Vec<Who>>,
    /// The phase that each thread was last found to know to be over. It never forgets that, and words of a box are asked for one after the other.
    known: Vec<Option<Phase>>,
}

/// What a word of shared memory holds.
#[derive(Clone, Copy)]
enum Word {
    /// What a thread wrote, or nothing.
    Plain,
    /// What came in a phase.
    Came(Phase),
    Mbarrier,
}

struct Mbarrier {
    made: Who,
    /// When it was.
    at: u64,
    count: u64,
    /// Arrivals that the phase still needs, bytes that it waits for, and bytes that were asked for.
    pending: u64,
    expected: u64,
    asked: u64,
    /// Phases that are over.
    phase: u64,
    copies: Vec<(usize, u32)>,
}

impl Phases {
    pub fn new(words: usize) -> Phases {
        Phases {
            words: vec![Word::Plain; words],
            ..Phases::default()
        }
    }

    /// An error where a word came in a phase of which the thread does not know that it is over.
    pub fn seen(&mut self, word: usize, who: Who) -> Result<(), String> {
        let phase = match self.words[word] {
            Word::Plain => return Ok(()),
            Word::Came(phase) => phase,
            Word::Mbarrier => return Err(format!("shared word {word} is an mbarrier's")),
        };
        let thread = who.thread as usize;
        if self.known.len() <= thread {
            self.known.resize(thread + 1, None);
        }
        if self.known[thread] == Some(phase) {
            return Ok(());
        }
        let told = self.told.get(&phase).into_iter().flatten();
        match told.into_iter().any(|w| w.ordered(who)) {
            true => {
                self.known[thread] = Some(phase);
                Ok(())
            }
            false => Err(format!(
                "shared word {word} is used by thread {}, which was not told that its phase is over",
                who.thread
            )),
        }
    }

    /// A thread writes a word.
    pub fn forget(&mut self, word: usize) {
        self.words[word] = Word::Plain;
    }

    fn find(&mut self, at: u64, who: Who) -> Result<&mut Mbarrier, String> {
        let found = self.all.get_mut(&at);
        let found = found.ok_or_else(|| format!("no mbarrier at {at:#x}"))?;
        match found.made.ordered(who) {
            true => Ok(found),
            false => Err("an mbarrier that another thread makes, and no barrier since".into()),
        }
    }
}

impl Memory<'_> {
    pub fn prepare(&mut self, at: u64, count: u64, who: Who) -> Result<(), String> {
        if !at.is_multiple_of(8) || count == 0 {
            return Err(format!("an mbarrier at {at:#x} for {count}"));
        }
        for n in 0..2 {
            self.store(true, at + 4 * n, 4, 0, who)?;
            let word = at.wrapping_sub(SHARED) / 4 + n;
            self.phases.words[word as usize] = Word::Mbarrier;
        }
        let made = Mbarrier {
            made: who,
            at: self.happens(),
            count,
            pending: count,
            expected: 0,
            asked: 0,
            phase: 0,
            copies: vec![],
        };
        self.phases.all.insert(at, made);
        Ok(())
    }

    /// A thread arrives, and says how many more bytes the phase waits for.
    pub fn expect(&mut self, at: u64, bytes: u64, who: Who) -> Result<(), String> {
        self.happens();
        let m = self.phases.find(at, who)?;
        m.pending = (m.pending.checked_sub(1)).ok_or("more arrivals than the phase needs")?;
        m.expected += bytes;
        match m.expected < 1 << 20 {
            true => Ok(()),
            false => Err(format!("{} bytes in a phase", m.expected)),
        }
    }

    /// Whether the phase of this parity is over, for a thread.
    pub fn over(&mut self, at: u64, parity: u64, who: Who) -> Result<bool, String> {
        if parity > 1 {
            return Err(format!("parity {parity}"));
        }
        let m = self.phases.find(at, who)?;
        if m.phase % 2 == parity {
            if m.asked > m.expected {
                return Err(format!(
                    "{} bytes come in a phase that waits for {}",
                    m.asked, m.expected
                ));
            }
            if m.pending > 0 || m.asked < m.expected {
                return Ok(false);
            }
            let phase = (at, m.phase);
            m.phase += 1;
            (m.pending, m.expected, m.asked) = (m.count, 0, 0);
            for (word, value) in std::mem::take(&mut m.copies) {
                self.arrives(word, value)?;
                self.phases.words[word] = Word::Came(phase);
            }
        }
        let over = self.phases.all[&at].phase;
        if let Some(last) = over.checked_sub(1) {
            let told = self.phases.told.entry((at, last)).or_default();
            told.push(who);
        }
        Ok(true)
    }

    /// Begins to copy the box of a map that begins at `from`, the innermost coordinate first.
    pub fn copy_box(
        &mut self,
        to: u64,
        mbarrier: u64,
        map: u64,
        from: &[i64],
        who: Who,
    ) -> Result<(), String> {
        // The copying unit takes a generic address, which a parameter's is not.
        let map = from_generic(map, Space::Param)?;
        let number = map.wrapping_sub(MAPS) / MAP_BYTES;
        let mapped = self.maps.get(number as usize).cloned();
        let mapped = mapped.filter(|_| map.is_multiple_of(MAP_BYTES));
        let mapped = mapped.ok_or_else(|| format!("no tensor map at {map:#x}"))?;
        legal(&mapped)?;
        let Mapped { address, map } = mapped;
        if from.len() != map.extents.len() {
            return Err(format!("{} coordinates", from.len()));
        }
        if !to.is_multiple_of(128) {
            return Err(format!("a box to {to:#x}"));
        }
        let m = self.phases.find(mbarrier, who)?;
        let (maker, made) = (m.made.thread, m.at);
        if self.fenced(maker) <= made {
            return Err("an mbarrier, and no fence.proxy.async since it was made".into());
        }
        let elements: u64 = map.tile.iter().product();
        self.phases.find(mbarrier, who)?.asked += 2 * elements;
        let mut copies = Vec::with_capacity(elements as usize / 2);
        for pair in (0..elements).step_by(2) {
            let mut value = 0;
            for half in 0..2 {
                let (mut rest, mut at, mut inside) = (pair + half, address, true);
                for (d, size) in map.tile.iter().enumerate() {
                    let x = from[d] + (rest % size) as i64;
                    rest /= size;
                    inside &= (0..map.extents[d] as i64).contains(&x);
                    let stride = if d == 0 { 2 } else { map.strides[d - 1] };
                    at = at.wrapping_add((x as u64).wrapping_mul(stride));
                }
                if inside {
                    value |= self.load(false, at, 2, who)? << (16 * half);
                }
            }
            // Bits 7 to 9 of an address are added to bits 4 to 6.
            let place = to + 2 * pair;
            let place = place ^ (place >> 7 & 7) << 4;
            copies.push((self.departs(place, who, true)?, value));
        }
        self.phases.find(mbarrier, who)?.copies.extend(copies);
        Ok(())
    }
}

/// What the driver says of a map of two-byte elements with the swizzle of 128 bytes, not interleaved.
fn legal(Mapped { address, map }: &Mapped) -> Result<(), String> {
    let rank = map.extents.len();
    let lists = (map.strides.len() + 1, map.tile.len()) == (rank, rank) && (1..=5).contains(&rank);
    let wrong = [
        (!lists, "rank"),
        (!address.is_multiple_of(16), "address"),
        (
            map.extents.iter().any(|x| !(1..=1 << 32).contains(x)),
            "extent",
        ),
        (
            (map.strides.iter()).any(|s| !s.is_multiple_of(16) || *s >= 1 << 40),
            "stride",
        ),
        (
            // Rows have room for their elements. The header also asks for strides that grow with the dimension, which drivers do not: panels lie side by side.
            (map.strides.first().zip(map.extents.first())).is_some_and(|(s, x)| *s < 2 * x),
            "stride",
        ),
        (map.tile.iter().any(|x| !(1..=256).contains(x)), "box"),
        (
            map.tile
                .first()
                .is_none_or(|x| 2 * x > 128 || !(2 * x).is_multiple_of(16)),
            "inner box",
        ),
    ];
    match wrong.iter().find(|w| w.0) {
        Some((_, what)) => Err(format!("a tensor map of another {what}: {map:?}")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{memory::to_generic, parse, run};
    use super::*;
    use odec_program::gpu::tensor::map::TensorMap;
    use odec_runtime::device::memory::Buffer;

    /// A box of 64 × 8 elements; thread t writes word t of the row at `ROW`.
    const KERNEL: &str = r"
.version 8.0
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 k_shared[];
.visible .entry k(
    .param .u64 k_param_0,
    .param .align 64 .b8 k_param_1[128]
)
.reqntid 32, 1, 1
{
    mov.u32 %r1, %tid.x;
    mov.u64 %rd1, k_shared;
    add.s64 %rd2, %rd1, 1024;
    setp.eq.s32 %p1, %r1, 0;
    @%p1 mbarrier.init.shared.b64 [%rd2], 1;
    fence.proxy.async.shared::cta;
    bar.sync 0;
    mov.u64 %rd3, k_param_1;
    cvta.param.u64 %rd3, %rd3;
    mov.b32 %r2, 0;
    mov.b32 %r4, 8;
    mov.b32 %r5, -1;
    @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%rd2], 1024;
    @%p1 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%rd1], [%rd3, {%r4, %r5}], [%rd2];
    {
    .reg .pred P1;
    LAB_WAIT:
    mbarrier.try_wait.parity.shared.b64 P1, [%rd2], %r2, 100;
    @P1 bra.uni DONE;
    bra.uni LAB_WAIT;
    DONE:
    }
    mul.wide.u32 %rd4, %r1, 4;
    add.s64 %rd5, %rd1, %rd4;
    ld.shared.b32 %r3, [%rd5+ROW];
    ld.param.u64 %rd6, [k_param_0];
    add.s64 %rd6, %rd6, %rd4;
    st.global.b32 [%rd6], %r3;
    ret;
}
";
    const ROWS: u64 = 5;
    const COLS: u64 = 40;
    const EXPECT: &str = "    @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%rd2], 1024;\n";
    const FENCE: &str = "    fence.proxy.async.shared::cta;\n";
    const WAIT: (&str, &str) = ("    {\n    .reg", "    DONE:\n    }\n");

    fn map() -> TensorMap {
        TensorMap {
            operand: 1,
            extents: vec![COLS, ROWS],
            strides: vec![2 * COLS],
            tile: vec![64, 8],
        }
    }

    /// What the threads get of a matrix whose elements are numbered from 1, or what is found wrong.
    fn launched(text: &str, map: TensorMap, off: u64) -> Result<Vec<u32>, String> {
        let kernel = parse::module(text).remove(0);
        let launched = std::panic::catch_unwind(move || {
            let mut buffers = [4 * 32, 2 * ROWS * COLS].map(|n| Buffer::zeroed(n).unwrap());
            let [out, matrix] = buffers.each_mut().map(|b| b.words());
            for (n, word) in matrix.iter().enumerate() {
                word.set((2 * n as u32 + 2) << 16 | (2 * n as u32 + 1));
            }
            let mut memory = Memory::new(&[out, matrix]);
            let address = matrix.as_ptr() as u64 + off;
            memory.maps = vec![Mapped { address, map }];
            run::launch(&kernel, 1, 2048, &[out.as_ptr() as u64], &mut memory);
            out[..32].iter().map(|w| w.get()).collect()
        });
        launched.map_err(|e| e.downcast_ref::<String>().expect("a message").clone())
    }

    fn refused(text: String, why: &str) {
        assert_ne!(text, KERNEL);
        let said = launched(&text.replace("ROW", "0"), map(), 0).expect_err(why);
        assert!(said.contains(why), "{said}");
    }

    #[test]
    fn boxes_are_swizzled_and_zero_beyond_the_matrix() {
        for row in 0..8 {
            let text = KERNEL.replace("ROW", &(128 * row).to_string());
            let want = (0..32u64).map(|t| {
                // Columns from 8 on, rows from −1 on; piece c of row r lies at c xor r.
                let (c, r) = (8 + 8 * ((t / 4) ^ row) + 2 * (t % 4), row as i64 - 1);
                let inside = c < COLS && (0..ROWS as i64).contains(&r);
                let n = (r.max(0) as u64 * COLS + c) as u32;
                if inside { (n + 2) << 16 | (n + 1) } else { 0 }
            });
            assert_eq!(launched(&text, map(), 0), Ok(want.collect()), "{row}");
        }
    }

    #[test]
    fn mbarriers_that_are_not_ready() {
        refused(KERNEL.replace(FENCE, ""), "no fence.proxy.async since");
        refused(KERNEL.replace("    bar.sync 0;\n", ""), "no barrier since");
        let init = "    @%p1 mbarrier.init.shared.b64 [%rd2], 1;\n";
        refused(KERNEL.replace(init, ""), "no mbarrier");
        refused(
            KERNEL.replace("%rd1, 1024;", "%rd1, 1028;"),
            "an mbarrier at",
        );
        let store = format!("{EXPECT}    st.shared.b32 [%rd2], %r2;\n");
        refused(KERNEL.replace(EXPECT, &store), "is an mbarrier's");
    }

    #[test]
    fn addresses_of_other_spaces() {
        let cvta = "    cvta.param.u64 %rd3, %rd3;\n";
        refused(
            KERNEL.replace(cvta, ""),
            "points into Global, not into Param",
        );
        refused(
            KERNEL.replace(cvta, &cvta.repeat(2)),
            "is a generic address already",
        );
        let other = cvta.replace(".param", ".to.global").repeat(2);
        let after = KERNEL.replace(cvta, &format!("{cvta}{other}"));
        refused(after, "points into Param, not into Global");
    }

    #[test]
    fn other_bytes_than_are_waited_for() {
        refused(
            KERNEL.replace("], 1024;", "], 1008;"),
            "that waits for 1008",
        );
        refused(KERNEL.replace("], 1024;", "], 1040;"), "never ends");
        refused(
            KERNEL.replace("], 1024;", "], 1048576;"),
            "bytes in a phase",
        );
        refused(KERNEL.replace(EXPECT, ""), "that waits for 0");
        refused(KERNEL.replace(EXPECT, &EXPECT.repeat(2)), "more arrivals");
        // For a second arrival.
        refused(KERNEL.replace("[%rd2], 1;", "[%rd2], 2;"), "never ends");
    }

    #[test]
    fn words_that_are_not_there_yet() {
        let (from, to) = (KERNEL.find(WAIT.0).unwrap(), KERNEL.find(WAIT.1).unwrap());
        let (before, after) = (&KERNEL[..from], &KERNEL[to + WAIT.1.len()..]);
        let why = "before its copy is waited for";
        refused(format!("{before}{after}"), why);
        // The phase before the first has the other parity.
        refused(KERNEL.replace("%r2, 0;", "%r2, 1;"), why);
        refused(format!("{before}    ret;\n}}\n"), "nobody waited for");
        // One thread is told, and no barrier follows; then one does.
        let wait = &KERNEL[from..to + WAIT.1.len()];
        let one =
            |then: &str| format!("{before}    @!%p1 bra past;\n{wait}    past:\n{then}{after}");
        refused(one(""), "was not told");
        let text = one("    bar.sync 0;\n").replace("ROW", "0");
        launched(&text, map(), 0).unwrap();
    }

    #[test]
    fn places_that_are_still_in_use() {
        let (copy, _) = KERNEL.split_once("    {\n").unwrap();
        let copy = &copy[copy.find("    @%p1 cp.").unwrap()..];
        refused(
            KERNEL.replace(copy, &copy.repeat(2)),
            "a copy to shared word",
        );
        let store = |then: &str| format!("    @%p1 st.shared.b32 [%rd1], %r2;\n{then}{EXPECT}");
        refused(
            KERNEL.replace(EXPECT, &store("")),
            "whose writer passed no fence",
        );
        let text = KERNEL.replace(EXPECT, &store(FENCE)).replace("ROW", "0");
        launched(&text, map(), 0).unwrap();
        // Read by another thread, and no barrier since.
        let read = store("").replace(
            EXPECT,
            &format!("{FENCE}    bar.sync 0;\n    ld.shared.b32 %r3, [%rd1];\n{EXPECT}"),
        );
        refused(KERNEL.replace(EXPECT, &read), "which another uses");
    }

    #[test]
    fn places_that_a_product_reads() {
        let who = |epoch| Who {
            epoch,
            ..Who::default()
        };
        let mut matrix = Buffer::zeroed(2 * ROWS * COLS).unwrap();
        let words = matrix.words();
        let mut memory = Memory::new(&[words]);
        memory.begin(2048);
        let address = words.as_ptr() as u64;
        memory.maps = vec![Mapped {
            address,
            map: map(),
        }];
        memory.prepare(SHARED + 1024, 1, who(0)).unwrap();
        memory.store(true, SHARED, 4, 7, who(0)).unwrap();
        memory.publish(0);
        memory.hold(SHARED, who(1)).unwrap();
        let map_at = to_generic(MAPS, Space::Param).unwrap();
        let copy =
            |memory: &mut Memory| memory.copy_box(SHARED, SHARED + 1024, map_at, &[0, 0], who(2));
        assert!(copy(&mut memory).unwrap_err().contains("may read it"));
        memory.let_go(SHARED, who(1)).unwrap();
        memory.publish(0);
        copy(&mut memory).unwrap();
    }

    #[test]
    fn maps_that_the_driver_refuses() {
        let text = KERNEL.replace("ROW", "0");
        let wrong = |change: &dyn Fn(&mut TensorMap), off, why: &str| {
            let mut map = map();
            change(&mut map);
            let said = launched(&text, map, off).expect_err(why);
            assert!(said.contains(&format!("another {why}")), "{said}");
        };
        wrong(&|_| (), 8, "address");
        wrong(&|m| m.strides[0] = 88, 0, "stride");
        wrong(&|m| m.strides[0] = 64, 0, "stride");
        wrong(&|m| m.strides[0] = 1 << 40, 0, "stride");
        wrong(&|m| m.extents[1] = 0, 0, "extent");
        wrong(&|m| m.tile[0] = 128, 0, "inner box");
        wrong(&|m| m.tile[0] = 60, 0, "inner box");
        wrong(&|m| m.tile[1] = 257, 0, "box");
        wrong(&|m| m.strides.clear(), 0, "rank");
    }
}
