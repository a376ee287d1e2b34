//! Runs the entries of a program: slots to memory, inputs to outputs.
//!
//! Takes a verified [`Artifact`] and a [`Device`]; owns parameters, moments, constants and one
//! arena shared by all entries. Checks everything a caller gives (names, shapes, token ids, sizes), so
//! that launches need not. A run may be asked for ([`Executor::queue`]) and its outputs taken later; a device that works by itself goes from
//! one run to the next. Leaves inputs and outputs to `ports`, what a run is for to [`mod@crate::train`],
//! [`mod@crate::infer::evaluate`], [`mod@crate::infer::generate`] and [`mod@crate::infer::exec`].

pub mod init;
pub(crate) mod io_buffers;
mod kept;
pub(crate) mod nonfinite;
pub mod profile;
mod recent;
pub(crate) mod run_error;
pub mod step_count;

use crate::artifact::Artifact;
use crate::device::Device;
use crate::device::memory::{Buffer, POISON, WORD, Words};
use crate::device::reals::{Reals, RealsMut};
use crate::device::roof::Roof;
pub use crate::executor::io_buffers::{Outputs, Value};
use crate::executor::nonfinite::{finite, reached, tensor_name};
use crate::executor::profile::{Profile, TimedLaunch, Timing};
use crate::executor::run_error::no_entry;
pub use crate::executor::run_error::{RunError, find};
use io_buffers::{IoBuffers, Ticket};
use kept::KeptMemory;
use odec_program::manifest::{Manifest, Param};
use odec_program::{Bindings, Coeff, DType, Entry, EntryId, Operand, Piece, Slot, names};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry::{Occupied, Vacant};
use std::time::Instant;

/// The memories that outlive a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Params,
    /// The beginning of the arena: they outlive the run that makes them until an entry runs that does not read them.
    Grads,
    Sums,
    Moment1,
    Moment2,
    /// Running means of what is trained.
    Average,
}

impl State {
    const ALL: [State; 6] = [
        State::Params,
        State::Grads,
        State::Sums,
        State::Moment1,
        State::Moment2,
        State::Average,
    ];

    /// Its bytes: none of what the optimiser does not keep.
    pub fn bytes(self, m: &Manifest) -> u64 {
        match self {
            State::Params => m.program.param_bytes,
            State::Grads => m.program.gradient_bytes(),
            State::Sums => m.trained_slot_bytes(Slot::Sums),
            State::Moment1 => m.trained_slot_bytes(Slot::Moment1),
            State::Moment2 => m.trained_slot_bytes(Slot::Moment2),
            State::Average => m.trained_slot_bytes(Slot::Average),
        }
    }

    /// The parameters that it holds something of: all, those that are trained, or none.
    pub fn holds(self, m: &Manifest) -> impl Iterator<Item = &Param> {
        let end = self.bytes(m);
        m.params.iter().filter(move |p| p.offset < end)
    }
}

/// A memory that outlives a run, as this process has it. Of a device in step, that is what kernels see.
struct Memory {
    buffer: Buffer,
    /// This process wrote what kernels do not see yet.
    ahead: bool,
    /// Kernels may have written what this process does not see yet.
    behind: bool,
}

/// Runs that may be under way on a device that works by itself: enough to keep it busy, few enough that their inputs and outputs
/// are small beside the arena.
const AHEAD: usize = 4;

/// A program with its memory on a device.
pub struct Executor {
    artifact: Artifact,
    device: Box<dyn Device>,
    /// By [`State`]; that of gradients is the whole arena.
    memories: Vec<Memory>,
    consts: Buffer,
    prepared: Buffer,
    rounded: Buffer,
    /// This process wrote parameters that are not rounded yet.
    unrounded: bool,
    kept: KeptMemory,
    /// Of the entries that were run: logits of a whole batch are large.
    ports: BTreeMap<EntryId, IoBuffers>,
    poison: bool,
    check_nonfinite: bool,
    skip: bool,
    skipped: usize,
    multiply_adds: u64,
    profile: Option<Profile>,
}

impl Executor {
    /// Reserves memory (pages that are never touched cost nothing), fills the constants, and leaves
    /// everything else zero.
    ///
    /// # Errors
    /// When the system has no memory left.
    pub fn new(artifact: &Artifact, mut device: Box<dyn Device>) -> Result<Executor, RunError> {
        let m = artifact.manifest();
        let p = &m.program;
        let mut consts = device.allocate(p.const_bytes)?;
        init::constants(&m.constants, consts.reals_mut(p.real));
        let words: Words = consts.words();
        device.copy_in(words, words);
        let mut memories = Vec::new();
        for state in State::ALL {
            let bytes = match state {
                State::Grads => p.arena_bytes(),
                other => other.bytes(m),
            };
            memories.push(Memory {
                buffer: device.allocate(bytes)?,
                ahead: false,
                behind: false,
            });
        }
        let mut x = Executor {
            memories,
            consts,
            prepared: device.allocate(p.prepared_bytes)?,
            rounded: device.allocate(p.rounded_bytes())?,
            unrounded: p.entries.contains_key(&EntryId::Round),
            kept: KeptMemory::default(),
            ports: BTreeMap::new(),
            poison: false,
            check_nonfinite: false,
            skip: true,
            skipped: 0,
            multiply_adds: 0,
            profile: None,
            artifact: artifact.clone(),
            device,
        };
        x.finish()?;
        Ok(x)
    }

    /// Waits for all enqueued work.
    fn finish(&mut self) -> Result<(), RunError> {
        let mark = self.device.mark();
        self.device.wait(mark).map_err(RunError::Device)
    }

    /// How many runs may be under way: none on a synchronous device.
    pub fn ahead(&self) -> usize {
        match self.device.in_step() {
            true => 0,
            false => AHEAD,
        }
    }

    pub fn manifest(&self) -> &Manifest {
        self.artifact.manifest()
    }

    /// The type of parameters and results.
    pub fn real(&self) -> DType {
        self.manifest().program.real
    }

    pub fn artifact(&self) -> &Artifact {
        &self.artifact
    }

    /// What the program runs on, in words.
    pub fn device_name(&self) -> String {
        self.device.name()
    }

    /// Whether to fill the arena and the outputs with signalling NaNs before each run: a value that is
    /// read before it is written then spoils the result instead of going unnoticed.
    pub fn set_poison(&mut self, poison: bool) {
        self.poison = poison;
    }

    /// Whether to look at everything that is written, and fail with [`RunError::NonFinite`] at the first launch
    /// that gives an infinity or a NaN. Slow; made for finding out, not for training.
    pub fn set_check_nonfinite(&mut self, check: bool) {
        self.check_nonfinite = check;
    }

    /// Whether to pass over instructions whose guard says that nothing reads their results; on unless a test wants to see that it
    /// changes nothing.
    pub fn set_skip(&mut self, skip: bool) {
        self.skip = skip;
    }

    /// How many instructions the latest run passed over.
    pub fn skipped(&self) -> usize {
        self.skipped
    }

    /// Multiply-adds of contractions, attention and recurrences along tokens in all launches so far, by the sizes that they were launched with. What a kernel
    /// leaves out by itself, of rows that no router chose, is counted; instructions that were passed over are not.
    pub fn multiply_adds(&self) -> u64 {
        self.multiply_adds
    }

    /// Starts measuring the time of each launch, from zero.
    pub fn start_profile(&mut self) {
        self.profile = Some(Profile::new());
        self.device.set_timed(true);
    }

    /// What was measured since [`Executor::start_profile`].
    pub fn profile(&self) -> Option<&Profile> {
        self.profile.as_ref()
    }

    /// What the device can do at most, measured now; `None` where nobody knows how.
    pub fn roof(&mut self) -> Option<Roof> {
        let real = self.real();
        self.device.roof(real)
    }

    /// Fills the parameters as the manifest says, for a seed.
    pub fn initialise(&mut self, seed: u64) {
        self.written(State::Params);
        let m = self.artifact.manifest();
        let memory = &mut self.memories[State::Params as usize];
        (memory.ahead, memory.behind) = (!self.device.in_step(), false);
        init::parameters(&m.params, seed, memory.buffer.reals_mut(m.program.real));
    }

    /// Lets running means begin at the parameters as they are. Nothing to do where none are kept.
    ///
    /// # Errors
    /// When the device fails.
    pub fn begin_averages(&mut self) -> Result<(), RunError> {
        let words = self.averages(State::Params)?;
        self.put(State::Average, &words);
        Ok(())
    }

    /// Exchanges parameters and their running means. Nothing to do where none are kept.
    ///
    /// # Errors
    /// When the device fails.
    pub fn exchange_averages(&mut self) -> Result<(), RunError> {
        let [params, means] = [
            self.averages(State::Params)?,
            self.averages(State::Average)?,
        ];
        self.put(State::Params, &means);
        self.put(State::Average, &params);
        Ok(())
    }

    /// What a memory holds where running means have something.
    fn averages(&mut self, of: State) -> Result<Vec<u32>, RunError> {
        let n = (State::Average.bytes(self.manifest()) / WORD) as usize;
        if n > 0 {
            self.fetch(&[of])?;
        }
        let words: Words = self.memories[of as usize].buffer.words();
        Ok(words[..n].iter().map(Cell::get).collect())
    }

    /// Notes that this process writes a memory.
    fn written(&mut self, state: State) {
        let rounds = self.has_entry(EntryId::Round);
        self.unrounded |= rounds && state == State::Params;
    }

    /// Writes the first words of a memory that was fetched.
    fn put(&mut self, state: State, words: &[u32]) {
        self.written(state);
        let memory = &mut self.memories[state as usize];
        memory.ahead |= !words.is_empty() && !self.device.in_step();
        let into: Words = memory.buffer.words();
        into.iter().zip(words).for_each(|(to, x)| to.set(*x));
    }

    /// Brings memories to this process, after all runs so far: only then may it look at them. Nothing to do for a device in step.
    ///
    /// # Errors
    /// When the device fails.
    pub fn fetch(&mut self, states: &[State]) -> Result<(), RunError> {
        let mut asked = false;
        for state in states {
            let n = (state.bytes(self.artifact.manifest()) / WORD) as usize;
            let memory = &mut self.memories[*state as usize];
            if memory.behind {
                let words: Words = memory.buffer.words();
                self.device.copy_out(&words[..n], &words[..n]);
                (memory.behind, asked) = (false, true);
            }
        }
        match asked {
            true => self.finish(),
            false => Ok(()),
        }
    }

    /// A memory that outlives runs, laid out by the manifest's parameter table.
    ///
    /// # Panics
    /// When an asynchronous device has changed it and [`Executor::fetch`] was not called since.
    pub fn state(&self, state: State) -> Reals<'_> {
        let memory = &self.memories[state as usize];
        assert!(!memory.behind, "{state:?} was not fetched");
        let n = (state.bytes(self.manifest()) / self.real().bytes()) as usize;
        memory.buffer.reals(self.real()).part(0..n)
    }

    /// The same, to write.
    ///
    /// # Panics
    /// As [`Executor::state`].
    pub fn state_mut(&mut self, state: State) -> RealsMut<'_> {
        self.written(state);
        let real = self.real();
        let memory = &mut self.memories[state as usize];
        assert!(!memory.behind, "{state:?} was not fetched");
        memory.ahead = !self.device.in_step();
        memory.buffer.reals_mut(real)
    }

    /// What a memory laid out by the parameter table holds of a parameter; nothing of one that it holds nothing of
    /// ([`State::holds`]).
    pub fn of(&self, state: State, p: &Param) -> Reals<'_> {
        let range = match p.offset < state.bytes(self.manifest()) {
            true => init::range(p, self.real()),
            false => 0..0,
        };
        self.state(state).part(range)
    }

    /// The first parameter, or moment of one, that holds an infinity or a NaN, in words.
    ///
    /// # Errors
    /// When the device fails.
    pub fn not_finite(&mut self) -> Result<Option<String>, RunError> {
        self.fetch(&[
            State::Params,
            State::Moment1,
            State::Moment2,
            State::Average,
        ])?;
        let memories = [
            (State::Params, "parameter"),
            (State::Moment1, "first moment of"),
            (State::Moment2, "second moment of"),
            (State::Average, "running mean of"),
        ];
        let manifest = self.artifact.manifest();
        Ok(memories.into_iter().find_map(|(state, what)| {
            let broken = |p: &&Param| !self.of(state, p).iter().all(f64::is_finite);
            let found = state.holds(manifest).find(broken)?;
            Some(format!("{what} {}", found.path))
        }))
    }

    /// The parameter for which a memory holds the number of largest magnitude, and that number.
    ///
    /// # Errors
    /// When the device fails.
    pub fn largest(&mut self, state: State) -> Result<Option<(&str, f64)>, RunError> {
        self.fetch(&[state])?;
        let params = state.holds(self.artifact.manifest());
        let size = |p: &Param| {
            let values = self.of(state, p).iter();
            values.fold(0.0, |max: f64, x| max.max(x.abs()))
        };
        let sized = params.map(|p| (p.path.as_str(), size(p)));
        Ok(sized.max_by(|a, b| a.1.total_cmp(&b.1)))
    }

    /// Whether the program has an entry.
    pub fn has_entry(&self, entry: EntryId) -> bool {
        self.manifest().program.entries.contains_key(&entry)
    }

    /// Whether an entry reads such an input.
    pub fn has_input(&self, entry: EntryId, name: &str) -> bool {
        let entry = self.manifest().program.entries.get(&entry);
        entry.is_some_and(|e| reads(e, name))
    }

    /// Whether an entry is told where the tokens of several texts stand in them.
    pub fn reads_places(&self, entry: EntryId) -> bool {
        let named = [names::PLACES, names::RECENT_PLACES];
        named.iter().any(|name| self.has_input(entry, name))
    }

    /// The most tokens of a text that an entry reads in one run; none, where there is no such entry.
    pub fn piece(&self, entry: EntryId) -> usize {
        let entry = self.manifest().program.entries.get(&entry);
        entry.map_or(0, |e| e.maxima.piece()) as usize
    }

    /// Lets sequences of entry `extend` go on from others: what is kept of the first `tokens` tokens of sequence n becomes that of sequence
    /// `parents[n]`.
    ///
    /// # Errors
    /// When the device fails.
    ///
    /// # Panics
    /// When there is no such sequence.
    pub fn go_on(&mut self, parents: &[usize], tokens: u64) -> Result<(), RunError> {
        let moved = |n: &usize| parents[*n] != *n;
        let moved: Vec<usize> = (0..parents.len()).filter(moved).collect();
        if moved.is_empty() {
            return Ok(());
        }
        let sources: Vec<usize> = moved.iter().map(|n| parents[*n]).collect();
        self.hand_on([EntryId::Extend; 2], [&sources, &moved], tokens)
    }

    /// Lets a sequence of entry `extend` go on from the text that entry `decode` has read, of so many tokens.
    ///
    /// # Errors
    /// When the device fails, or has no memory left.
    ///
    /// # Panics
    /// When there is no such sequence.
    pub fn go_on_from_text(&mut self, sequence: usize, tokens: u64) -> Result<(), RunError> {
        let entries = [EntryId::Decode, EntryId::Extend];
        self.hand_on(entries, [&[0], &[sequence]], tokens)
    }

    /// Copies what an entry keeps of the first tokens of some sequences to others, of its own or of another entry.
    fn hand_on(
        &mut self,
        [from, to]: [EntryId; 2],
        [sources, sequences]: [&[usize]; 2],
        tokens: u64,
    ) -> Result<(), RunError> {
        let program = &self.artifact.manifest().program;
        let kept = |entry| program.entries.get(&entry).map_or(&[][..], |e| &e.kept);
        for (read, written) in kept(from).iter().zip(kept(to)) {
            let mut of = kept::Of {
                device: &mut *self.device,
                program,
                entry: from,
            };
            let texts = self.kept.read(&mut of, read, sources, tokens)?;
            of.entry = to;
            self.kept.write(&mut of, written, sequences, &texts)?;
        }
        self.kept.drop_alike([from, to], [sources, sequences]);
        Ok(())
    }

    /// Runs an entry, which may be given by name, and returns its outputs. `named` are the scalars its instructions ask for by name;
    /// more may be given.
    ///
    /// # Errors
    /// When the entry does not exist, or anything given does not fit it.
    pub fn run(
        &mut self,
        entry: impl AsRef<str>,
        at: Bindings,
        inputs: &[(&str, Value)],
        named: &[(&str, f64)],
    ) -> Result<Outputs<'_>, RunError> {
        let ticket = self.queue(entry, at, inputs, named)?;
        self.take(ticket)
    }

    /// The outputs of an enqueued run, when it is done. Of a device in step, it is the latest run of its entry.
    ///
    /// # Errors
    /// When the device has failed, or the run has not come to its end.
    pub fn take(&mut self, ticket: Ticket) -> Result<Outputs<'_>, RunError> {
        self.device.wait(ticket.mark).map_err(RunError::Device)?;
        let manifest = self.artifact.manifest();
        let known = manifest.program.entries.get_key_value(&ticket.entry);
        let (Some((name, e)), Some(ports)) = (known, self.ports.get_mut(&ticket.entry)) else {
            return Err(no_entry(manifest, ticket.entry.as_str()));
        };
        Outputs::new(
            manifest,
            (name.as_str(), e),
            ticket.at,
            ports.taken(ticket.stage),
        )
    }

    /// Asks for a run of an entry, as [`Executor::run`], without waiting for it. Where a device is in step, its outputs last until the
    /// next run of the entry.
    ///
    /// # Errors
    /// As [`Executor::run`].
    pub fn queue(
        &mut self,
        entry: impl AsRef<str>,
        at: Bindings,
        inputs: &[(&str, Value)],
        named: &[(&str, f64)],
    ) -> Result<Ticket, RunError> {
        if std::mem::take(&mut self.unrounded) {
            let rounded = self.run(EntryId::Round, Bindings::new(1, 1), &[], &[]);
            if let Err(failed) = rounded.map(drop) {
                self.unrounded = true;
                return Err(failed);
            }
        }
        let manifest = self.artifact.manifest();
        let program = &manifest.program;
        let (id, e) = find(manifest, entry.as_ref())?;
        let entry = id.as_str();
        if !e.maxima.hold(at) {
            return Err(RunError::Size {
                batch: at.batch,
                seq: at.past.saturating_add(at.seq),
                beside: match at.source {
                    0 => String::new(),
                    n => format!(" beside a source of {n}"),
                },
                maxima: e.maxima,
            });
        }
        if id == EntryId::Extend && at.seq != 1 {
            return Err(RunError::OneOfEach { seq: at.seq });
        }
        let mut given = inputs.to_vec();
        let (mut at, mut recent_places) = (at, vec![]);
        if let Some(recent) = e.maxima.kept {
            let of = kept::Of {
                device: &mut *self.device,
                program,
                entry: id,
            };
            (at, recent_places) = recent::make_room(&mut self.kept, of, recent, at, inputs)?;
            // Of texts of which nothing but recent tokens is read.
            given.retain(|(name, _)| *name != names::PLACES || reads(e, name));
        }
        if reads(e, names::RECENT_PLACES) {
            given.insert(0, (names::RECENT_PLACES, Value::I32(&recent_places)));
        }
        let device = &mut *self.device;
        let ports = match self.ports.entry(id) {
            Occupied(ports) => ports.into_mut(),
            Vacant(none) => none.insert(IoBuffers::new(e, device)?),
        };
        let in_step = device.in_step();
        let mut stage = match in_step {
            true => None,
            false => Some(ports.stage(e, at, device)?),
        };
        let place = &mut ports.place;
        let into = stage.as_mut().map_or(&mut place.inputs, |s| &mut s.inputs);
        io_buffers::fill_all(manifest, (entry, e), at, &given, into)?;
        let scalar = |name: &str| {
            let found = named.iter().find(|(n, _)| *n == name).map(|(_, x)| *x);
            found.ok_or_else(|| RunError::MissingScalar {
                entry: entry.into(),
                name: name.into(),
            })
        };
        let input_words: Vec<Words> = words_of(&mut place.inputs);
        let output_words: Vec<Words> = words_of(&mut place.outputs);
        if let Some(stage) = &mut stage {
            let pairs = e.inputs.iter().zip(&mut stage.inputs).zip(&input_words);
            for ((io, from), to) in pairs {
                let n = io_buffers::words(io, at);
                device.copy_in(&from.words()[..n], &to[..n]);
            }
        }
        let states = self.memories.iter_mut().map(|m| -> Words {
            let words: Words = m.buffer.words();
            if std::mem::take(&mut m.ahead) {
                device.copy_in(words, words);
            }
            m.behind = !in_step;
            words
        });
        let states: Vec<Words> = states.collect();
        let arena = states[State::Grads as usize];
        let gradients = &arena[..(State::Grads.bytes(manifest) / WORD) as usize];
        if self.poison {
            let kept = match id {
                EntryId::Accumulate | EntryId::Update => gradients.len(),
                _ => 0,
            };
            device.fill(&arena[kept..], POISON);
            output_words.iter().for_each(|w| device.fill(w, POISON));
        }
        let (consts, prepared) = (self.consts.words(), self.prepared.words());
        let rounded = self.rounded.words();
        let (cache, kept_from) = self.kept.of(&mut kept::Of {
            device: &mut *device,
            program,
            entry: id,
        })?;
        let (mut operands, mut dims, mut coeffs) = (Vec::new(), Vec::new(), Vec::new());
        let place = |o: &Operand, piece: Piece| {
            let words = match o.slot {
                Slot::Arena => arena,
                Slot::Params => states[State::Params as usize],
                Slot::Grads => gradients,
                Slot::Sums => states[State::Sums as usize],
                Slot::Moment1 => states[State::Moment1 as usize],
                Slot::Moment2 => states[State::Moment2 as usize],
                Slot::Average => states[State::Average as usize],
                Slot::Consts => consts,
                Slot::Prepared => prepared,
                Slot::Rounded => rounded,
                Slot::Cache => cache,
                Slot::Input(n) => input_words[n as usize],
                Slot::Output(n) => output_words[n as usize],
            };
            let start = piece.start(o, at).unwrap_or(0);
            let start = match o.slot {
                Slot::Cache => start.saturating_sub(kept_from),
                _ => start,
            };
            &words[(start / WORD) as usize..]
        };
        let mut launched: Vec<TimedLaunch> = Vec::new();
        let skips = self.skip && in_step;
        self.skipped = 0;
        let mut multiply_adds: u64 = 0;
        for (number, piece) in e.launches(at) {
            let i = &e.instrs[number];
            if skips
                && i.guard
                    .is_some_and(|o| !positive(place(&o, Piece::ALL), program.real))
            {
                self.skipped += 1;
                continue;
            }
            operands.clear();
            operands.extend(i.operands.iter().map(|o| place(o, piece)));
            dims.clear();
            dims.extend(i.dims.iter().map(|d| piece.dim(*d, at).unwrap_or(0)));
            coeffs.clear();
            for c in &i.coeffs {
                coeffs.push(match c {
                    Coeff::Value(x) => *x,
                    Coeff::Inverse(s) => 1.0 / s.at(at).unwrap_or(1) as f64,
                    Coeff::Named(n) => scalar(n)?,
                });
            }
            let work = &self.artifact.signatures()[i.kernel as usize].work;
            multiply_adds = multiply_adds.saturating_add(work.multiply_adds(&dims));
            let start = self.profile.is_some().then(Instant::now);
            device.set_site(entry, number, program.site(i));
            device.launch(i.kernel as usize, &operands, &dims, &coeffs);
            if let Some(start) = start {
                // Of a device that works by itself, the time comes later.
                let time = start.elapsed();
                launched.push(TimedLaunch {
                    instr: number,
                    kernel: i.kernel,
                    dims: dims.clone(),
                    timing: in_step.then(|| Timing {
                        start,
                        time,
                        busy: device.busy(),
                    }),
                });
            }
            if self.check_nonfinite {
                let touched = &self.artifact.signatures()[i.kernel as usize].operands;
                let pairs = operands.iter().zip(touched).enumerate();
                let written: Vec<_> = pairs.filter(|(_, (_, o))| o.mode.writes()).collect();
                for (_, (words, t)) in &written {
                    let words = &words[..reached(words, t, &dims)];
                    device.copy_out(words, words);
                }
                let mark = device.mark();
                device.wait(mark).map_err(RunError::Device)?;
                let broken = written.iter().find(|(_, (w, t))| !finite(w, t, &dims));
                if let Some((n, _)) = broken {
                    return Err(RunError::NonFinite {
                        site: program.site(i).to_string(),
                        tensor: tensor_name(manifest, e, i, *n),
                    });
                }
            }
        }
        self.multiply_adds = self.multiply_adds.saturating_add(multiply_adds);
        if let Some(profile) = &mut self.profile {
            let measured = device.times().map_err(RunError::Device)?;
            profile.add(id, launched, self.artifact.signatures(), &measured);
        }
        if let Some(stage) = &mut stage {
            let pairs = e.outputs.iter().zip(&mut stage.outputs).zip(&output_words);
            for ((io, to), from) in pairs {
                let n = io_buffers::words(io, at);
                device.copy_out(&from[..n], &to.words()[..n]);
            }
        }
        Ok(Ticket {
            entry: id,
            at,
            stage,
            mark: device.mark(),
        })
    }
}

/// Whether it reads such an input.
fn reads(e: &Entry, name: &str) -> bool {
    e.inputs.iter().any(|io| io.name == name)
}

fn words_of(buffers: &mut [Buffer]) -> Vec<Words<'_>> {
    buffers.iter_mut().map(|b| -> Words { b.words() }).collect()
}

/// Whether the number at a place is greater than zero.
fn positive(words: Words, real: DType) -> bool {
    match real {
        DType::F64 => {
            let (low, high) = (words[0].get(), words[1].get());
            f64::from_bits(u64::from(low) | u64::from(high) << 32) > 0.0
        }
        _ => f32::from_bits(words[0].get()) > 0.0,
    }
}
