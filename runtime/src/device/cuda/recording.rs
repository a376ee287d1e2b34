//! A driver without a GPU: it records launches and runs nothing.

use super::graphs::Planned;
use super::plan::Mapped;
use super::{CUBIN, Driver};
use crate::device::memory::{Buffer, Words};
use odec_program::gpu::Shape;
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::time::Duration;

/// Where the memory of a card that is not there begins, and what its parts are aligned to, as a card's are.
const NOWHERE: u64 = 1 << 40;
const ALIGNED: u64 = 256;

/// A launch as the driver was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    pub function: usize,
    pub shape: Shape,
    pub arguments: Vec<u64>,
    pub maps: Vec<Mapped>,
}

/// How often graphs were made, told other arguments, and replayed; and what else a card was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriverCalls {
    pub graphs: u64,
    pub updates: u64,
    pub replays: u64,
    /// Copies to the card, and from it.
    pub copies_in: u64,
    pub copies_out: u64,
    /// Memories of this process that copies need not wait for.
    pub stages: u64,
    pub events: u64,
    /// Waits for events,
    pub waits: u64,
    /// and those of them behind which no launch was queued: the card has nothing to do until this process goes on.
    pub stalls: u64,
}

impl From<&Planned> for Recorded {
    fn from(p: &Planned) -> Recorded {
        Recorded {
            function: p.function,
            shape: p.launch.shape,
            arguments: p.launch.arguments.clone(),
            maps: p.launch.maps.clone(),
        }
    }
}

/// Writes down launches; copies share what was written.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    pub launches: Rc<RefCell<Vec<Recorded>>>,
    pub made: Rc<Cell<DriverCalls>>,
    /// Dynamic shared memory that kernels were loaded with.
    pub dynamic: Rc<RefCell<Vec<u64>>>,
    /// Launches so far, kept or not.
    pub launched: Rc<Cell<u64>>,
    /// Bytes of the card's memory that were given out.
    pub given: Rc<Cell<u64>>,
    /// Whether launches are looked at and not kept.
    pub forgets: bool,
    /// How long it says that each launch took; nothing, where nothing is computed.
    pub launch_time: Option<Duration>,
    /// What [`Driver::free_memory`] says.
    pub memory: u64,
    /// What [`Driver::capability`] says.
    pub capability: (i32, i32),
    /// Launches after which every one is refused, and every wait fails.
    pub breaks_after: Option<u64>,
    /// Launches that no node of a graph may become.
    pub refuses: Option<fn(&Planned) -> bool>,
}

impl Recording {
    /// A card of the newest kind that there is code for, with so much memory.
    pub fn with(memory: u64) -> Recording {
        Recording {
            memory,
            capability: (9, 0),
            ..Recording::default()
        }
    }

    /// Fails when the card is broken.
    fn whole(&self) -> Result<(), String> {
        match self.breaks_after.is_some_and(|n| self.launched.get() >= n) {
            true => Err("the card is broken".into()),
            false => Ok(()),
        }
    }

    fn count(&self, with: impl FnOnce(&mut DriverCalls)) {
        let mut made = self.made.get();
        with(&mut made);
        self.made.set(made);
    }

    fn launched(&self, launches: &[Recorded]) {
        self.launched
            .set(self.launched.get() + launches.len() as u64);
        if !self.forgets {
            self.launches.borrow_mut().extend_from_slice(launches);
        }
    }
}

impl Driver for Recording {
    /// Its nodes as they are.
    type Graph = Vec<Recorded>;
    /// How many launches were before it.
    type Event = u64;

    fn name(&self) -> String {
        "a card that is not there".into()
    }
    fn capability(&self) -> (i32, i32) {
        self.capability
    }
    fn load(&mut self, code: &[u8], kernels: &[(&str, u64)]) -> Result<(), String> {
        self.dynamic.replace(kernels.iter().map(|k| k.1).collect());
        // What an assembler made is not looked into.
        if code.starts_with(CUBIN) {
            return Ok(());
        }
        let ptx = String::from_utf8_lossy(code);
        let lacks = |k: &&(&str, u64)| !ptx.contains(&format!(".entry {}(", k.0));
        match kernels.iter().find(lacks) {
            Some(k) => Err(format!("the code has no kernel {}", k.0)),
            None => Ok(()),
        }
    }
    fn free_memory(&self) -> Result<u64, String> {
        Ok(self.memory)
    }
    /// Addresses that are nowhere.
    fn allocate(&mut self, bytes: u64) -> Result<u64, String> {
        let given = self.given.get();
        let address = NOWHERE + given;
        self.given
            .set(given + bytes.next_multiple_of(ALIGNED).max(ALIGNED));
        Ok(address)
    }
    fn stage(&mut self, bytes: u64) -> io::Result<Buffer> {
        self.count(|made| made.stages += 1);
        Buffer::unreserved(bytes)
    }
    fn copy_in(&mut self, _: Words, _: u64) -> Result<(), String> {
        self.count(|made| made.copies_in += 1);
        Ok(())
    }
    fn copy_out(&mut self, _: u64, _: Words) -> Result<(), String> {
        self.count(|made| made.copies_out += 1);
        Ok(())
    }
    fn fill(&mut self, _: u64, _: u64, _: u32) -> Result<(), String> {
        Ok(())
    }
    fn launch(&mut self, launch: &Planned) -> Result<(), String> {
        self.whole()?;
        self.launched(&[launch.into()]);
        Ok(())
    }
    fn instantiate(&mut self, launches: &[Planned], _early: bool) -> Result<Vec<Recorded>, String> {
        self.count(|made| made.graphs += 1);
        Ok(launches.iter().map(Recorded::from).collect())
    }
    fn update(&mut self, graph: &mut Vec<Recorded>, n: usize, to: &Planned) -> Result<(), String> {
        if self.refuses.is_some_and(|refuses| refuses(to)) {
            return Err("it is refused".into());
        }
        self.count(|made| made.updates += 1);
        graph[n] = to.into();
        Ok(())
    }
    fn replay(&mut self, graph: &mut Vec<Recorded>) -> Result<(), String> {
        self.count(|made| made.replays += 1);
        self.launched(graph);
        Ok(())
    }
    fn record(&mut self, _timed: bool) -> Result<u64, String> {
        self.count(|made| made.events += 1);
        Ok(self.launched.get())
    }
    fn between(&mut self, from: &u64, to: &u64) -> Result<Option<Duration>, String> {
        Ok(self.launch_time.map(|t| t * (to - from) as u32))
    }
    fn wait(&mut self, event: &u64) -> Result<(), String> {
        self.whole()?;
        let idle = *event == self.launched.get();
        self.count(|made| {
            made.waits += 1;
            made.stalls += u64::from(idle);
        });
        Ok(())
    }
}
