//! Memory of an emulated launch, with everything that a GPU would not tell: accesses outside of operands, unaligned ones,
//! reads of shared memory that nobody wrote, and races.
//!
//! Two accesses race when they are by different threads, at least one writes (something else than is there), and no
//! barrier stands between them: none can, for threads of different blocks.

use super::isa::{SHARED, Space};
use super::phases::Phases;
use odec_runtime::device::cuda::plan::Mapped;
use odec_runtime::device::memory::Words;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, VecDeque};

/// Who accesses: block and thread, and how many barriers of the block and of the warp they have passed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Who {
    pub block: u32,
    pub thread: u32,
    pub epoch: u32,
    pub warp_epoch: u32,
}

impl Who {
    pub fn ordered(self, other: Who) -> bool {
        let same = self.block == other.block;
        let warp = self.thread / 32 == other.thread / 32;
        same && (self.thread == other.thread
            || self.epoch != other.epoch
            || warp && self.warp_epoch != other.warp_epoch)
    }
}

/// The last writer of a word, and its last two readers of different threads.
#[derive(Clone, Copy, Default)]
struct Trace {
    writer: Option<Who>,
    readers: [Option<Who>; 2],
}

impl Trace {
    fn read(&mut self, who: Who) -> bool {
        if self.writer.is_some_and(|w| !w.ordered(who)) {
            return false;
        }
        if self.readers[0].is_none_or(|r| r.block == who.block && r.thread == who.thread) {
            self.readers[0] = Some(who);
        } else {
            self.readers[1] = Some(who);
        }
        true
    }

    fn write(&mut self, who: Who, changes: bool) -> bool {
        let meets = |other: Option<Who>| other.is_some_and(|o| !o.ordered(who));
        if changes && (meets(self.writer) || self.readers.into_iter().any(meets)) {
            return false;
        }
        self.writer = Some(who);
        true
    }
}

/// An operand at the address that it has in this process, and who has accessed its words.
struct Operand<'a> {
    base: u64,
    words: Words<'a>,
    traces: Traces,
    /// Of upper halves, which are seldom accessed alone: until one is, those of words are of both halves.
    upper: Option<Traces>,
}

/// A trace for each word. An operand may be the rest of a large buffer, of which a launch sees little: parts come to be when they are accessed.
#[derive(Clone)]
struct Traces(Vec<Option<Box<[Trace; PART]>>>);

/// Words of a part.
const PART: usize = 128;

impl Traces {
    fn new(words: usize) -> Traces {
        Traces(vec![None; words.div_ceil(PART)])
    }

    fn at(&mut self, n: usize) -> &mut Trace {
        let part = self.0[n / PART].get_or_insert_with(|| Box::new([Trace::default(); PART]));
        &mut part[n % PART]
    }
}

impl<'a> Operand<'a> {
    fn new(words: Words<'a>) -> Operand<'a> {
        Operand {
            base: words.as_ptr() as u64,
            words,
            traces: Traces::new(words.len()),
            upper: None,
        }
    }

    fn holds(&self, at: u64) -> bool {
        (self.base..self.base + 4 * self.words.len() as u64).contains(&at)
    }

    /// Notes an access to `bytes` (2 or 4) at an address, where it races with none before.
    fn note(&mut self, at: u64, bytes: u64, access: impl Fn(&mut Trace) -> bool) -> bool {
        if bytes < 4 && self.upper.is_none() {
            self.upper = Some(self.traces.clone());
        }
        let n = ((at - self.base) / 4) as usize;
        let (lower, upper) = (at.is_multiple_of(4), at % 4 + bytes > 2);
        let mut of_upper = || self.upper.as_mut().is_none_or(|t| access(t.at(n)));
        (!lower || access(self.traces.at(n))) && (!upper || of_upper())
    }
}

/// Operands and a block's shared memory.
pub struct Memory<'a> {
    operands: Vec<Operand<'a>>,
    shared: Vec<Option<u32>>,
    shared_traces: Vec<Trace>,
    /// Words that copies are on their way to: neither what was there nor what comes may be looked at.
    arriving: Vec<bool>,
    /// Copies of each thread that it has not waited for.
    copies: FxHashMap<u32, Copies>,
    tensor: Proxy,
    pub(crate) phases: Phases,
    /// The launch's tensor maps.
    pub maps: Vec<Mapped>,
}

/// What tensor cores see of shared memory: stores of threads only after a fence of those threads.
#[derive(Default)]
struct Proxy {
    /// Counts stores and fences.
    clock: u64,
    /// When each word was written, and each thread passed its last fence.
    written: Vec<u64>,
    fenced: FxHashMap<u32, u64>,
    /// How many unfinished products read a word.
    held: Vec<u32>,
    /// The products that each warp began.
    begun: BTreeMap<u32, Vec<Begun>>,
}

/// The space that a generic address points into, by its window.
fn space_of(generic: u64) -> Space {
    let windows = [Space::Param, Space::Shared];
    let inside = |space: &Space| generic & space.window() != 0;
    windows.into_iter().find(inside).unwrap_or(Space::Global)
}

/// The generic address of an address of a space.
pub fn to_generic(at: u64, space: Space) -> Result<u64, String> {
    match space_of(at) {
        Space::Global => Ok(at + space.window()),
        other => Err(format!(
            "{at:#x} is a generic address already, of {other:?}"
        )),
    }
}

/// The address in a space of a generic address that points into it.
pub fn from_generic(at: u64, space: Space) -> Result<u64, String> {
    match space_of(at) {
        other if other == space => Ok(at - space.window()),
        other => Err(format!("{at:#x} points into {other:?}, not into {space:?}")),
    }
}

/// An instruction and the descriptors of its factors.
pub type Begun = (String, u64, u64);

/// Copies as words of shared memory with what they will hold: those since the last group ended, and groups.
#[derive(Default)]
struct Copies {
    open: Vec<(usize, u32)>,
    closed: VecDeque<Vec<(usize, u32)>>,
}

impl<'a> Memory<'a> {
    pub fn new(operands: &[Words<'a>]) -> Memory<'a> {
        Memory {
            operands: operands.iter().map(|w| Operand::new(w)).collect(),
            shared: vec![],
            shared_traces: vec![],
            arriving: vec![],
            copies: FxHashMap::default(),
            tensor: Proxy::default(),
            phases: Phases::default(),
            maps: vec![],
        }
    }

    /// Forgets shared memory: another block begins.
    pub fn begin(&mut self, shared: u64) {
        fn filled<T: Clone>(v: &mut Vec<T>, words: usize, with: T) {
            v.clear();
            v.resize(words, with);
        }
        let words = shared.div_ceil(4) as usize;
        filled(&mut self.shared, words, None);
        filled(&mut self.shared_traces, words, Trace::default());
        filled(&mut self.arriving, words, false);
        self.copies.clear();
        let mut tensor = std::mem::take(&mut self.tensor);
        filled(&mut tensor.written, words, 0);
        filled(&mut tensor.held, words, 0);
        self.tensor = Proxy {
            written: tensor.written,
            held: tensor.held,
            ..Proxy::default()
        };
        self.phases = Phases::new(words);
    }

    /// Counts what changes shared memory or what is waited for.
    pub fn happened(&self) -> u64 {
        self.tensor.clock
    }

    /// The same, one more.
    pub(crate) fn happens(&mut self) -> u64 {
        self.tensor.clock += 1;
        self.tensor.clock
    }

    /// When a thread passed its last fence.
    pub(crate) fn fenced(&self, thread: u32) -> u64 {
        self.tensor.fenced.get(&thread).copied().unwrap_or(0)
    }

    /// A word of shared memory is on its way: from now on it may change at any time.
    pub(crate) fn departs(&mut self, at: u64, who: Who, by_unit: bool) -> Result<usize, String> {
        let word = (at.wrapping_sub(SHARED) / 4) as usize;
        if word >= self.shared.len() || self.arriving[word] {
            return Err(format!("a copy to shared word {word}"));
        }
        self.phases.seen(word, who)?;
        if by_unit {
            // What a thread wrote there may be written after what the unit writes.
            let writer = self.shared_traces[word].writer;
            let published =
                writer.is_none_or(|w| self.fenced(w.thread) > self.tensor.written[word]);
            if !published {
                return Err(format!(
                    "a copy to shared word {word}, whose writer passed no fence.proxy.async"
                ));
            }
        }
        self.overwrite(word)?;
        if !self.shared_traces[word].write(who, true) {
            return Err(format!("a copy to shared word {word}, which another uses"));
        }
        self.arriving[word] = true;
        Ok(word)
    }

    /// What the copying unit has brought is there.
    pub(crate) fn arrives(&mut self, word: usize, value: u32) -> Result<(), String> {
        self.arriving[word] = false;
        self.shared[word] = Some(value);
        self.shared_traces[word].writer = None;
        self.overwrite(word)
    }

    /// A block ends: nothing may still be on its way.
    pub fn end(&self, kernel: &str) {
        let left = self.arriving.iter().filter(|a| **a).count();
        assert_eq!(left, 0, "{kernel}: words that nobody waited for");
        for (warp, begun) in &self.tensor.begun {
            let first = self.tensor.begun.get(&(warp / 4 * 4));
            assert_eq!(first, Some(begun), "{kernel}: products of a warpgroup");
        }
    }

    /// A warp begins a product.
    pub fn began(&mut self, warp: u32, what: Begun) {
        self.tensor.begun.entry(warp).or_default().push(what);
    }

    /// Lets tensor cores see what a thread has written.
    pub fn publish(&mut self, thread: u32) {
        let now = self.happens();
        self.tensor.fenced.insert(thread, now);
    }

    /// A word of shared memory for a product that begins, which may read it until [`Self::let_go`].
    pub fn hold(&mut self, at: u64, who: Who) -> Result<u32, String> {
        let value = self.load(true, at, 4, who)?;
        let n = (at.wrapping_sub(SHARED) / 4) as usize;
        if let Some(Who { thread, .. }) = self.shared_traces[n].writer
            && self.fenced(thread) <= self.tensor.written[n]
        {
            return Err(format!(
                "shared word {n} was written by thread {thread}, which passed no fence.proxy.async since"
            ));
        }
        self.tensor.held[n] += 1;
        Ok(value)
    }

    pub fn let_go(&mut self, at: u64, who: Who) -> Result<(), String> {
        let n = (at.wrapping_sub(SHARED) / 4) as usize;
        self.tensor.held[n] -= 1;
        match self.shared_traces[n].read(who) {
            true => Ok(()),
            false => Err(format!(
                "shared word {n} is written while a product reads it"
            )),
        }
    }

    /// A word is written; an error where a product may still read it.
    fn overwrite(&mut self, word: usize) -> Result<(), String> {
        self.tensor.written[word] = self.happens();
        match self.tensor.held[word] {
            0 => Ok(()),
            _ => Err(format!(
                "shared word {word} is written while a product may read it"
            )),
        }
    }

    /// Begins to copy `bytes` to 16 bytes of shared memory, zeros behind them.
    pub fn copy_ahead(&mut self, to: u64, from: u64, bytes: u64, who: Who) -> Result<(), String> {
        for n in 0..4 {
            let value = match 4 * n < bytes {
                true => self.load(false, from + 4 * n, 4, who)?,
                false => 0,
            };
            let word = self.departs(to + 4 * n, who, false)?;
            let copies = self.copies.entry(who.thread).or_default();
            copies.open.push((word, value));
        }
        Ok(())
    }

    pub fn close_copies(&mut self, thread: u32) {
        let copies = self.copies.entry(thread).or_default();
        let group = std::mem::take(&mut copies.open);
        copies.closed.push_back(group);
    }

    /// The thread's groups but the last `left` have arrived; to others they are as written now.
    pub fn await_copies(&mut self, left: usize, who: Who) -> Result<(), String> {
        let copies = self.copies.entry(who.thread).or_default();
        let done = copies.closed.len().saturating_sub(left);
        let arrived: Vec<_> = copies.closed.drain(..done).flatten().collect();
        for (word, value) in arrived {
            self.arriving[word] = false;
            self.shared[word] = Some(value);
            self.overwrite(word)?;
            if !self.shared_traces[word].write(who, true) {
                return Err(format!("shared word {word} is used while it arrives"));
            }
        }
        Ok(())
    }

    /// The number of the operand that has this address, and the word there.
    fn global(&self, at: u64) -> Result<(usize, &'a std::cell::Cell<u32>), String> {
        let operand = self.operands.iter().position(|o| o.holds(at));
        let n = operand.ok_or_else(|| format!("address {at:#x} is outside of all operands"))?;
        let Operand { base, words, .. } = &self.operands[n];
        Ok((n, &words[((at - base) / 4) as usize]))
    }

    /// Asks for the line of an operand's address to be in a cache.
    pub fn prefetch(&self, at: u64) -> Result<(), String> {
        self.global(at).map(|_| ())
    }

    /// Loads `bytes` (2 or 4) at an address.
    pub fn load(&mut self, shared: bool, at: u64, bytes: u64, who: Who) -> Result<u32, String> {
        if shared {
            let n = (at.wrapping_sub(SHARED) / 4) as usize;
            let word = *self
                .shared
                .get(n)
                .ok_or_else(|| format!("shared address {at:#x}"))?;
            if bytes != 4 {
                return Err("half of a shared word".into());
            }
            if self.arriving[n] {
                return Err(format!(
                    "shared word {n} is read before its copy is waited for"
                ));
            }
            self.phases.seen(n, who)?;
            if !self.shared_traces[n].read(who) {
                return Err(format!(
                    "thread {} reads shared word {n} while another writes it",
                    who.thread
                ));
            }
            return word.ok_or_else(|| format!("shared word {n} is read before it is written"));
        }
        let (operand, cell) = self.global(at)?;
        if !self.operands[operand].note(at, bytes, |t| t.read(who)) {
            return Err(format!(
                "{who:?} reads {at:#x} while another thread writes it"
            ));
        }
        Ok(match bytes {
            4 => cell.get(),
            _ => cell.get() >> (at % 4 * 8) & 0xFFFF,
        })
    }

    /// Stores `bytes` (2 or 4).
    pub fn store(
        &mut self,
        shared: bool,
        at: u64,
        bytes: u64,
        value: u32,
        who: Who,
    ) -> Result<(), String> {
        if shared {
            let n = (at.wrapping_sub(SHARED) / 4) as usize;
            if n >= self.shared.len() {
                return Err(format!("shared address {at:#x}"));
            }
            if bytes != 4 {
                return Err("half of a shared word".into());
            }
            self.phases.seen(n, who)?;
            self.phases.forget(n);
            self.overwrite(n)?;
            let word = &mut self.shared[n];
            if self.arriving[n] {
                return Err(format!("shared word {n} is written while a copy arrives"));
            }
            if !self.shared_traces[n].write(who, *word != Some(value)) {
                return Err(format!(
                    "thread {} writes shared word {n} while another uses it",
                    who.thread
                ));
            }
            *word = Some(value);
            return Ok(());
        }
        let (operand, cell) = self.global(at)?;
        let value = match bytes {
            4 => value,
            _ => {
                let shift = at % 4 * 8;
                cell.get() & !(0xFFFF << shift) | (value & 0xFFFF) << shift
            }
        };
        let changes = cell.get() != value;
        if !self.operands[operand].note(at, bytes, |t| t.write(who, changes)) {
            return Err(format!(
                "{who:?} writes {at:#x} while another thread uses it"
            ));
        }
        cell.set(value);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use odec_runtime::device::memory::Buffer;

    fn who(thread: u32, epoch: u32) -> Who {
        Who {
            thread,
            epoch,
            ..Who::default()
        }
    }

    /// Shared memory to which thread 0 copies 16 bytes of its own.
    fn copying(memory: &mut Memory) -> Result<(), String> {
        memory.begin(64);
        memory.copy_ahead(SHARED, 0, 0, who(0, 0))
    }

    /// Halves of a word are two places; a whole word is both of them.
    #[test]
    fn accesses_to_operands_race_by_halves_of_words() {
        let mut buffer = Buffer::zeroed(4 * 300).unwrap();
        let words = buffer.words();
        let at = |word: u64| words.as_ptr() as u64 + 4 * word;
        let mut memory = Memory::new(&[words]);
        let mut store = |at, bytes, value, thread| {
            memory
                .store(false, at, bytes, value, who(thread, 0))
                .is_ok()
        };
        assert!(store(at(1), 2, 7, 0) && store(at(1) + 2, 2, 8, 40));
        assert!(!store(at(1), 2, 9, 40) && !store(at(1) + 2, 2, 9, 0));
        assert!(!store(at(1), 4, 9, 0), "the upper half is another's");
        assert!(store(at(299), 4, 7, 0) && !store(at(299) + 2, 2, 9, 40));
        assert_eq!(words[1].get(), 8 << 16 | 7);
        assert!(memory.load(false, at(1), 4, who(0, 0)).is_err());
        assert_eq!(memory.load(false, at(1), 2, who(0, 0)), Ok(7));
        assert!(memory.load(false, at(300), 4, who(0, 0)).is_err());
    }

    /// The same of a word that is stored as a whole before any half is.
    #[test]
    fn a_word_stored_as_a_whole_is_both_halves() {
        let mut buffer = Buffer::zeroed(4).unwrap();
        let words = buffer.words();
        let at = words.as_ptr() as u64;
        let mut memory = Memory::new(&[words]);
        memory.store(false, at, 4, 7, who(0, 0)).unwrap();
        for half in [at, at + 2] {
            assert!(memory.store(false, half, 2, 9, who(40, 0)).is_err());
            assert!(memory.load(false, half, 2, who(40, 0)).is_err());
        }
    }

    #[test]
    fn copies_are_seen_after_a_wait_and_a_barrier() {
        let mut memory = Memory::new(&[]);
        copying(&mut memory).unwrap();
        memory.close_copies(0);
        assert!(
            memory.load(true, SHARED, 4, who(0, 0)).is_err(),
            "not waited for"
        );
        memory.await_copies(1, who(0, 0)).unwrap();
        assert!(
            memory.load(true, SHARED, 4, who(0, 0)).is_err(),
            "may still be out"
        );
        assert!(
            memory.store(true, SHARED, 4, 1, who(0, 0)).is_err(),
            "would be lost"
        );
        memory.await_copies(0, who(0, 0)).unwrap();
        assert_eq!(memory.load(true, SHARED, 4, who(0, 0)), Ok(0));
        assert!(
            memory.load(true, SHARED, 4, who(40, 0)).is_err(),
            "no barrier"
        );
        assert_eq!(memory.load(true, SHARED, 4, who(40, 1)), Ok(0));
        memory.end("copies");
    }

    #[test]
    fn copies_do_not_take_what_others_still_read() {
        let mut memory = Memory::new(&[]);
        memory.begin(64);
        memory.store(true, SHARED, 4, 7, who(3, 0)).unwrap();
        memory.load(true, SHARED, 4, who(40, 1)).unwrap();
        let copy = |memory: &mut Memory, epoch| memory.copy_ahead(SHARED, 0, 0, who(0, epoch));
        assert!(copy(&mut memory, 1).is_err());
        copy(&mut memory, 2).unwrap();
    }

    #[test]
    fn factors_of_a_product_stay_as_they_are_until_it_is_done() {
        let mut memory = Memory::new(&[]);
        memory.begin(64);
        memory.store(true, SHARED, 4, 7, who(0, 0)).unwrap();
        memory.publish(0);
        assert_eq!(memory.hold(SHARED, who(40, 1)), Ok(7));
        let store = |memory: &mut Memory, epoch| memory.store(true, SHARED, 4, 8, who(0, epoch));
        assert!(store(&mut memory, 2).is_err(), "may still be read");
        let copy = |memory: &mut Memory| memory.copy_ahead(SHARED, 0, 0, who(0, 2));
        assert!(copy(&mut memory).is_err(), "may still be read");
        memory.let_go(SHARED, who(40, 2)).unwrap();
        assert!(store(&mut memory, 2).is_err(), "no barrier since");
        store(&mut memory, 3).unwrap();
    }

    #[test]
    fn tensor_cores_see_what_was_published() {
        let mut memory = Memory::new(&[]);
        memory.begin(64);
        memory.publish(0);
        memory.store(true, SHARED, 4, 7, who(0, 0)).unwrap();
        assert!(memory.hold(SHARED, who(40, 1)).is_err(), "a fence before");
        memory.publish(1);
        assert!(memory.hold(SHARED, who(40, 1)).is_err(), "another's");
        copying(&mut memory).unwrap();
        memory.close_copies(0);
        memory.publish(0);
        memory.await_copies(0, who(0, 0)).unwrap();
        assert!(
            memory.hold(SHARED, who(40, 1)).is_err(),
            "before it arrived"
        );
        memory.publish(0);
        assert!(memory.hold(SHARED, who(40, 0)).is_err(), "no barrier");
        assert_eq!(memory.hold(SHARED, who(40, 1)), Ok(0));
    }
}
