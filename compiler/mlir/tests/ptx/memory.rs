//! Memory of an emulated launch, with everything that a GPU would not tell: accesses outside of operands, unaligned ones,
//! reads of shared memory that nobody wrote, and races.
//!
//! Two accesses race when they are by different threads, at least one writes (something else than is there), and no
//! barrier stands between them: none can, for threads of different blocks.

use super::parse::SHARED;
use odec_runtime::memory::Words;
use std::collections::HashMap;

/// Who accesses: block and thread, and how many barriers of the block and of the warp they have passed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Who {
    pub block: u32,
    pub thread: u32,
    pub epoch: u32,
    pub warp_epoch: u32,
}

impl Who {
    fn ordered(self, other: Who) -> bool {
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

/// Operands at the addresses they have in this process, and a block's shared memory.
pub struct Memory<'a> {
    operands: Vec<(u64, Words<'a>)>,
    traces: HashMap<u64, Trace>,
    shared: Vec<Option<u32>>,
    shared_traces: Vec<Trace>,
}

impl<'a> Memory<'a> {
    pub fn new(operands: &[Words<'a>]) -> Memory<'a> {
        Memory {
            operands: operands.iter().map(|w| (w.as_ptr() as u64, *w)).collect(),
            traces: HashMap::new(),
            shared: vec![],
            shared_traces: vec![],
        }
    }

    /// Forgets shared memory: another block begins.
    pub fn begin(&mut self, shared: u64) {
        self.shared = vec![None; shared.div_ceil(4) as usize];
        self.shared_traces = vec![Trace::default(); self.shared.len()];
    }

    fn global(&self, at: u64) -> Result<&'a std::cell::Cell<u32>, String> {
        let inside =
            |(base, words): &(u64, Words<'a>)| (*base..base + 4 * words.len() as u64).contains(&at);
        let (base, words) = self
            .operands
            .iter()
            .find(|o| inside(o))
            .ok_or_else(|| format!("address {at:#x} is outside of all operands"))?;
        Ok(&words[((at - base) / 4) as usize])
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
            if !self.shared_traces[n].read(who) {
                return Err(format!(
                    "thread {} reads shared word {n} while another writes it",
                    who.thread
                ));
            }
            return word.ok_or_else(|| format!("shared word {n} is read before it is written"));
        }
        let cell = self.global(at)?;
        for half in (at..at + bytes).step_by(2) {
            if !self.traces.entry(half).or_default().read(who) {
                return Err(format!(
                    "{who:?} reads {at:#x} while another thread writes it"
                ));
            }
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
            let word = self
                .shared
                .get_mut(n)
                .ok_or_else(|| format!("shared address {at:#x}"))?;
            if bytes != 4 {
                return Err("half of a shared word".into());
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
        let cell = self.global(at)?;
        let value = match bytes {
            4 => value,
            _ => {
                let shift = at % 4 * 8;
                cell.get() & !(0xFFFF << shift) | (value & 0xFFFF) << shift
            }
        };
        for half in (at..at + bytes).step_by(2) {
            if !self
                .traces
                .entry(half)
                .or_default()
                .write(who, cell.get() != value)
            {
                return Err(format!(
                    "{who:?} writes {at:#x} while another thread uses it"
                ));
            }
        }
        cell.set(value);
        Ok(())
    }
}
