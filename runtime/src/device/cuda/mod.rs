//! NVIDIA GPUs: compiled kernels as PTX, launched one after the other on one stream, as graphs where they come again
//! ([`mod@graphs`]).
//!
//! Takes a program's kernels and the PTX of its artifact; gives a [`Device`]. What is launched, with which blocks, threads
//! and arguments, is decided here ([`mod@plan`]); a [`Driver`] only hands it on. There are two: CUDA's own,
//! and one that writes down what it is told ([`recording`]), for machines without a card.
//!
//! A card has memory of its own. What the executor holds of it is a mapping of the same size, whose pages cost nothing until the
//! process touches them, and which says by its addresses what is meant: [`regions`] knows what lies where on the card. What goes
//! between the two is copied, in order with the launches, and without waiting where the process's side is page-locked.
//!
//! Without a card, launches are checked against the recording driver, kernels on an emulated GPU (`compiler/mlir/tests/gpu/kernels.rs`); with
//! one, by `scripts/gpu.sh`.

mod card;
pub mod fit;
pub mod graphs;
pub mod plan;
pub mod recording;
pub mod regions;

use crate::device::memory::{Buffer, Words};
use crate::device::{Device, Mark};
use fit::Card;
use graphs::{Graphs, Origin, Planned};
use odec_program::gpu::{self, Shape};
use odec_program::kernel::Signature;
use odec_program::{Kernel, KernelSpec, Site, Target};
use odec_text::number;
use regions::Regions;
use std::collections::VecDeque;
use std::io::{self, Write};
use std::rc::Rc;
use std::time::Duration;

/// How a module begins that an assembler made.
pub const CUBIN: &[u8] = b"\x7fELF";
/// The environment variable that names such a module, which is loaded instead of an artifact's PTX.
pub const CUBIN_FILE: &str = "ODEC_CUBIN";
/// What to set to learn which launch failed.
const ONE_BY_ONE: &str = "ODEC_GRAPHS=off CUDA_LAUNCH_BLOCKING=1";

/// The interface to a GPU's driver. Launches, copies and events happen in the order in which they are enqueued.
pub trait Driver {
    /// Launches one after the other that are queued together.
    type Graph;
    /// A point in the queue.
    type Event;

    /// The card, in words.
    fn name(&self) -> String;
    /// Its compute capability.
    fn capability(&self) -> (i32, i32);
    /// Loads a module, PTX or what an assembler made of it; functions are numbered as `kernels` are. With each symbol, the dynamic shared
    /// memory its launches will ask for, in bytes. An error holds what the driver's compiler says.
    fn load(&mut self, code: &[u8], kernels: &[(&str, u64)]) -> Result<(), String>;
    /// Bytes that can still be reserved.
    fn free_memory(&self) -> Result<u64, String>;
    /// The address of zeroed memory of the card, which lives as long as the driver.
    fn allocate(&mut self, bytes: u64) -> Result<u64, String>;
    /// Memory of this process that the card copies from and to by itself.
    fn stage(&mut self, bytes: u64) -> io::Result<Buffer>;
    /// Queues a copy to an address of the card. What is copied stays as it is until an event after it was waited for.
    fn copy_in(&mut self, from: Words, to: u64) -> Result<(), String>;
    /// Queues a copy from an address of the card, which is done when an event after it was waited for.
    fn copy_out(&mut self, from: u64, to: Words) -> Result<(), String>;
    /// Queues the filling of so many words.
    fn fill(&mut self, address: u64, words: u64, with: u32) -> Result<(), String>;
    /// Queues a launch.
    fn launch(&mut self, launch: &Planned) -> Result<(), String>;
    /// Makes a graph of launches; queues nothing. With `early`, it uses programmatic dependent launch: each launch begins while the one before it ends, since
    /// kernels wait by themselves ([`gpu::awaits`]).
    fn instantiate(&mut self, launches: &[Planned], early: bool) -> Result<Self::Graph, String>;
    /// Gives node `n` of a graph other arguments; kernel and shape are the same.
    fn update(&mut self, graph: &mut Self::Graph, n: usize, to: &Planned) -> Result<(), String>;
    /// Queues a graph's launches.
    fn replay(&mut self, graph: &mut Self::Graph) -> Result<(), String>;
    /// Queues an event; records the time when it is reached if that will be needed.
    fn record(&mut self, timed: bool) -> Result<Self::Event, String>;
    /// The time between two timed events, when both are reached; nothing where nothing is computed.
    fn between(&mut self, from: &Self::Event, to: &Self::Event)
    -> Result<Option<Duration>, String>;
    /// Waits for an event.
    fn wait(&mut self, event: &Self::Event) -> Result<(), String>;
}

/// Why a GPU cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CudaError {
    #[error(
        "there is no NVIDIA driver on this machine (libcuda.so cannot be loaded); install one, or run on the processor with `--device cpu`"
    )]
    NoDriver,
    #[error("there is no GPU number {wanted}; this machine has {found}")]
    NoCard { wanted: u32, found: u32 },
    #[error("{card} has compute capability {major}.{minor}; odec generates code for 8.0 and above")]
    TooOld {
        card: String,
        major: i32,
        minor: i32,
    },
    #[error(
        "the artifact holds no code for {card}, compute capability {capability} (it has {built}); build it with `odec build FILE.ode --target {wanted}`"
    )]
    NoCode {
        card: String,
        capability: String,
        built: String,
        wanted: Target,
    },
    #[error(
        "the program needs {} of GPU memory and {card} has {} free; a smaller batch or `memory revolve(slots: n)` needs less",
        bytes(*needed),
        bytes(*free)
    )]
    Memory {
        card: String,
        needed: u64,
        free: u64,
    },
    #[error("a kernel of this program cannot run on a GPU: {0}")]
    Kernel(String),
    #[error("the code for it cannot be read: {0}")]
    Code(String),
    #[error("the NVIDIA driver refuses: {0}")]
    Driver(String),
}

/// Names of instructions, each made once: launches are many, messages few.
#[derive(Default)]
struct Sites(Vec<(String, Vec<Option<Rc<str>>>)>);

impl Sites {
    fn of(&mut self, entry: &str, instr: usize, site: &Site) -> Rc<str> {
        let known = self.0.iter().position(|(name, _)| name == entry);
        let known = known.unwrap_or_else(|| {
            self.0.push((entry.into(), vec![]));
            self.0.len() - 1
        });
        let names = &mut self.0[known].1;
        if names.len() <= instr {
            names.resize(instr + 1, None);
        }
        let named = || format!("{entry} {site}").into();
        names[instr].get_or_insert_with(named).clone()
    }
}

/// The events before and after a launch; nothing when it had no blocks.
type Around<E> = Option<(E, E)>;

/// Runs a program's kernels on a card.
pub struct CudaDevice<D: Driver> {
    /// Before the driver: graphs and events are given back to a context that is still there.
    graphs: Option<Graphs<D::Graph>>,
    /// The events of marks that were not waited for yet, in order.
    events: VecDeque<(Mark, D::Event)>,
    driver: D,
    target: Target,
    kernels: Vec<(KernelSpec, Signature, Rc<str>)>,
    /// What the launches belong to, for messages.
    site: Rc<str>,
    sites: Sites,
    /// The latest launch that the driver took.
    latest: Option<Planned>,
    /// Whether each launch is waited for, which tells which one failed,
    one_by_one: bool,
    /// and is named before it begins, which tells which one does not end.
    named: bool,
    regions: Regions,
    /// Launches that were not sent off, where they may become a graph.
    pending: Vec<Planned>,
    marks: u64,
    /// Where launches are measured: what was before and after each.
    timed: Option<Vec<Around<D::Event>>>,
    /// The first request that was refused.
    failed: Option<String>,
}

impl<D: Driver> CudaDevice<D> {
    /// Loads the kernels' code, which is for `target`; `needed` bytes will be allocated.
    ///
    /// # Errors
    /// When there is less memory, a kernel is none for GPUs, or the driver does not take the code.
    pub fn new(
        mut driver: D,
        target: Target,
        code: &(impl AsRef<[u8]> + ?Sized),
        kernels: &[Kernel],
        needed: u64,
    ) -> Result<CudaDevice<D>, CudaError> {
        if let Some(reason) = kernels.iter().find_map(|k| gpu::refusal(&k.spec)) {
            return Err(CudaError::Kernel(reason));
        }
        Card::of(&driver)?.room(needed)?;
        let symbols = kernels.iter().map(|k| {
            let shape = gpu::shape(&k.spec, &[1; 3], target);
            (k.symbol.as_str(), shape.map_or(0, Shape::dynamic))
        });
        let symbols: Vec<(&str, u64)> = symbols.collect();
        let loaded = driver.load(code.as_ref(), &symbols);
        loaded.map_err(CudaError::Driver)?;
        let signed = |k: &Kernel| {
            let signature = k.spec.checked_signature().map_err(CudaError::Kernel)?;
            Ok((k.spec.clone(), signature, k.symbol.as_str().into()))
        };
        Ok(CudaDevice {
            graphs: Some(Graphs::new(gpu::awaits(target))),
            events: VecDeque::new(),
            driver,
            target,
            kernels: kernels
                .iter()
                .map(signed)
                .collect::<Result<_, CudaError>>()?,
            site: "".into(),
            sites: Sites::default(),
            latest: None,
            one_by_one: false,
            named: false,
            regions: Regions::default(),
            pending: Vec::new(),
            marks: 0,
            timed: None,
            failed: None,
        })
    }

    /// Whether repeated launches become graphs; tests turn this off to compare.
    pub fn set_graphs(&mut self, graphs: bool) {
        self.graphs = graphs.then(|| Graphs::new(gpu::awaits(self.target)));
    }

    /// Repeated launches become graphs without programmatic dependent launch.
    pub fn set_serial_graphs(&mut self) {
        self.graphs = Some(Graphs::new(false));
    }

    /// Whether each launch is waited for before the next one, outside of graphs: a failure then names its launch.
    pub fn set_one_by_one(&mut self, one_by_one: bool) {
        self.one_by_one = one_by_one;
        self.set_graphs(!one_by_one);
    }

    /// Launches outside of graphs.
    fn launch_now(&mut self, launch: &Planned) -> Result<(), String> {
        if self.named {
            // Nobody may be there to read it.
            let _ = writeln!(io::stderr(), "begins {launch}");
        }
        graphs::one(&mut self.driver, launch)?;
        if self.one_by_one {
            let event = self.driver.record(false)?;
            let named = |why: String| format!("{why}; it ran {launch}");
            self.driver.wait(&event).map_err(named)?;
        }
        Ok(())
    }

    /// Asks the driver for something, after the launches so far; for nothing more once it has refused.
    fn enqueue(&mut self, f: impl FnOnce(&mut D, &Regions) -> Result<(), String>) {
        let pending = std::mem::take(&mut self.pending);
        if self.failed.is_some() {
            return;
        }
        let sent = match &mut self.graphs {
            Some(graphs) if !pending.is_empty() => {
                self.latest = pending.last().cloned();
                graphs.run(&mut self.driver, pending)
            }
            _ => Ok(()),
        };
        let done = sent.and_then(|()| f(&mut self.driver, &self.regions));
        self.failed = done.err();
    }
}

impl<D: Driver> Device for CudaDevice<D> {
    fn name(&self) -> String {
        self.driver.name()
    }

    fn allocate(&mut self, bytes: u64) -> io::Result<Buffer> {
        let mut copy = Buffer::unreserved(bytes)?;
        let address = self.driver.allocate(bytes).map_err(io::Error::other)?;
        self.regions.add(copy.words(), address);
        Ok(copy)
    }

    fn in_step(&self) -> bool {
        false
    }

    fn stage(&mut self, bytes: u64) -> io::Result<Buffer> {
        self.driver.stage(bytes)
    }

    fn copy_in(&mut self, from: Words, to: Words) {
        if !from.is_empty() {
            self.enqueue(|driver, regions| driver.copy_in(from, regions.place(to)?.address));
        }
    }

    fn copy_out(&mut self, from: Words, to: Words) {
        if !to.is_empty() {
            self.enqueue(|driver, regions| driver.copy_out(regions.place(from)?.address, to));
        }
    }

    fn fill(&mut self, words: Words, with: u32) {
        if !words.is_empty() {
            self.enqueue(|driver, regions| {
                let place = regions.place(words)?;
                driver.fill(place.address, place.words, with)
            });
        }
    }

    fn mark(&mut self) -> Mark {
        self.marks += 1;
        let mark = Mark(self.marks);
        let mut event = None;
        self.enqueue(|driver, _| {
            event = Some(driver.record(false)?);
            Ok(())
        });
        self.events.extend(event.map(|e| (mark, e)));
        mark
    }

    fn wait(&mut self, mark: Mark) -> Result<(), String> {
        if let Some(refused) = self.failed.take() {
            return Err(refused);
        }
        let earlier = self.events.partition_point(|(m, _)| *m <= mark);
        match self.events.drain(..earlier).next_back() {
            Some((m, event)) if m == mark => self.driver.wait(&event).map_err(|why| {
                // What failed is something before this: the card says so when it is asked.
                let latest = self.latest.as_ref().map(Planned::to_string);
                let latest = latest.unwrap_or_else(|| "no launch".into());
                format!("{why}; the latest was {latest}; {ONE_BY_ONE} names the one that failed")
            }),
            // It was waited for before.
            _ => Ok(()),
        }
    }

    fn set_timed(&mut self, timed: bool) {
        self.enqueue(|_, _| Ok(()));
        self.timed = timed.then(Vec::new);
    }

    fn times(&mut self) -> Result<Vec<Option<Duration>>, String> {
        let all = self.timed.as_mut().map(std::mem::take);
        let all = all.unwrap_or_default().into_iter();
        let time = |around: Around<D::Event>| match around {
            Some((from, to)) => self.driver.between(&from, &to),
            None => Ok(None),
        };
        all.map(time).collect()
    }

    fn set_site(&mut self, entry: &str, instr: usize, site: &Site) {
        self.site = self.sites.of(entry, instr, site);
    }

    fn launch(&mut self, kernel: usize, operands: &[Words], dims: &[u64], coeffs: &[f64]) {
        if self.failed.is_some() {
            return;
        }
        let (spec, signature, symbol) = &self.kernels[kernel];
        let places: Result<Vec<_>, String> =
            operands.iter().map(|w| self.regions.place(w)).collect();
        let planned = places
            .and_then(|places| plan::plan(spec, signature, self.target, &places, dims, coeffs));
        let origin = Origin {
            kernel: symbol.clone(),
            site: self.site.clone(),
            dims: operands.len()..operands.len() + dims.len(),
        };
        let planned = match planned {
            Ok(launch) => Ok(launch.map(|launch| Planned {
                function: kernel,
                launch,
                origin,
            })),
            Err(why) => Err(format!("{why}, at {}", self.site)),
        };
        if self.timed.is_some() {
            // Outside of graphs, whose launches nobody can stand between.
            let launched = planned.and_then(|launch| {
                let Some(launch) = launch else {
                    return Ok(None);
                };
                let from = self.driver.record(true)?;
                self.launch_now(&launch)?;
                Ok(Some((from, self.driver.record(true)?)))
            });
            match (launched, &mut self.timed) {
                (Ok(around), Some(timed)) => timed.push(around),
                (Ok(_), None) => {}
                (Err(refused), _) => self.failed = Some(refused),
            }
            return;
        }
        let done = planned.and_then(|launch| match (launch, &self.graphs) {
            (None, _) => Ok(()),
            (Some(launch), Some(_)) => {
                self.pending.push(launch);
                Ok(())
            }
            (Some(launch), None) => {
                let done = self.launch_now(&launch);
                self.latest = Some(launch);
                done
            }
        });
        self.failed = done.err();
    }
}

/// Bytes for people, and exactly.
fn bytes(n: u64) -> String {
    format!("{} ({n} bytes)", number::bytes(n))
}

/// What a card of this machine is.
///
/// # Errors
/// When there is no such card.
pub fn card(number: u32) -> Result<Card, CudaError> {
    Card::of(&card::Cuda::open(number)?)
}

/// A program's kernels on a card; `built` are the targets there is code for, `code` gives the code for one of them.
///
/// # Errors
/// When there is no code for it, too little memory, or the driver refuses.
pub fn on<D: Driver, C: AsRef<[u8]>>(
    driver: D,
    kernels: &[Kernel],
    needed: u64,
    built: &[Target],
    code: impl Fn(Target) -> io::Result<C>,
) -> Result<CudaDevice<D>, CudaError> {
    let card = Card::of(&driver)?;
    let best = card.code(built)?;
    card.room(needed)?;
    let code = code(best).map_err(|e| CudaError::Code(e.to_string()))?;
    CudaDevice::new(driver, best, &code, kernels, needed)
}

/// No card, but with so much memory: every launch is planned and checked as for one, and nothing is computed.
///
/// # Errors
/// As [`on`].
pub fn dry(
    memory: u64,
    kernels: &[Kernel],
    needed: u64,
    built: &[Target],
    code: impl Fn(Target) -> io::Result<Vec<u8>>,
) -> Result<Box<dyn Device>, CudaError> {
    let driver = recording::Recording {
        forgets: true,
        ..recording::Recording::with(memory)
    };
    Ok(Box::new(on(driver, kernels, needed, built, code)?))
}

/// A card of this machine, ready to run a program.
///
/// # Errors
/// When there is no such card, or as [`on`].
pub fn open(
    card: u32,
    kernels: &[Kernel],
    needed: u64,
    built: &[Target],
    code: impl Fn(Target) -> io::Result<Vec<u8>>,
) -> Result<Box<dyn Device>, CudaError> {
    let mut device = on(card::Cuda::open(card)?, kernels, needed, built, code)?;
    // For telling whose fault something is, on a card.
    let is = |name: &str, value: &str| std::env::var_os(name).is_some_and(|v| v == value);
    let graphs = !is("ODEC_GRAPHS", "off");
    match !graphs && is("CUDA_LAUNCH_BLOCKING", "1") {
        true => device.set_one_by_one(true),
        false => device.set_graphs(graphs),
    }
    if graphs && is("ODEC_PDL", "off") {
        device.set_serial_graphs();
    }
    device.named = std::env::var_os("ODEC_LAUNCH_LOG").is_some();
    Ok(Box::new(device))
}
