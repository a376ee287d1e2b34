//! Training on a card: nothing waits that need not, and everything is as on a device in step.
//!
//! The card here does what it is told as late as it may: when an event is waited for, and not before. What the process does too
//! early, reading results or filling a buffer again, shows in the results; so does memory that was never copied, as the card has
//! its own. Kernels are those of the reference device.

#![allow(unsafe_code)]

use crate::source::built;
use odec_compiler::passes::{Options, build_manifest};
use odec_program::manifest::Manifest;
use odec_program::{Bindings, Kernel, Target};
use odec_runtime::device::Device;
use odec_runtime::device::cuda::graphs::Planned;
use odec_runtime::device::cuda::recording::{DriverCalls, Recording};
use odec_runtime::device::cuda::{self, CudaDevice, Driver};
use odec_runtime::device::memory::{Buffer, Words};
use odec_runtime::device::reference::ReferenceDevice;
use odec_runtime::profile::{NamedProfile, timeline, trace};
use odec_runtime::system::owned::{CHECKPOINT, METRICS};
use odec_runtime::train::metrics::{self, Record};
use odec_runtime::{Artifact, ArtifactError, Executor, Run, Settings, Show, TrainError, Value};
use std::cell::Cell;
use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// A request that was not carried out yet.
enum Asked {
    In(Source, u64),
    Out(u64, &'static [Cell<u32>]),
    Fill(u64, u64, u32),
    Launch(usize, Vec<u64>),
}

enum Source {
    /// Page-locked, read when the copy's turn comes.
    Stage(&'static [Cell<u32>]),
    /// Read before the call returns.
    Copied(Vec<u32>),
}

/// A card that is late.
struct Late {
    kernels: Vec<Kernel>,
    compute: ReferenceDevice,
    /// Its memory, from an address on.
    memory: Vec<(u64, Vec<Cell<u32>>)>,
    stages: Vec<&'static [Cell<u32>]>,
    asked: VecDeque<Asked>,
    done: u64,
}

impl Late {
    fn device(kernels: &[Kernel]) -> Box<dyn Device> {
        let late = Late {
            kernels: kernels.to_vec(),
            compute: ReferenceDevice::new(kernels),
            memory: vec![],
            stages: vec![],
            asked: VecDeque::new(),
            done: 0,
        };
        Box::new(CudaDevice::new(late, Target::Sm80, &code(kernels), kernels, 0).unwrap())
    }

    /// The part of a stage that a view is of.
    fn stage_of(&self, words: Words) -> Option<&'static [Cell<u32>]> {
        let at = words.as_ptr() as usize;
        self.stages.iter().find_map(|stage| {
            let start = at.checked_sub(stage.as_ptr() as usize)? / 4;
            stage.get(start..start + words.len())
        })
    }

    fn ask(&mut self, asked: Asked) -> Result<(), String> {
        self.asked.push_back(asked);
        Ok(())
    }

    fn until(&mut self, event: u64) {
        while self.done < event {
            let Some(asked) = self.asked.pop_front() else {
                panic!("an event of nothing")
            };
            self.done += 1;
            self.carry_out(asked);
        }
    }

    fn carry_out(&mut self, asked: Asked) {
        let memory = &self.memory;
        let place = |address: u64| -> Words {
            let after = memory.partition_point(|(start, _)| *start <= address);
            let (start, words) = &memory[after - 1];
            &words[(address - start) as usize / 4..]
        };
        match asked {
            Asked::In(Source::Stage(from), to) => {
                (place(to).iter().zip(from)).for_each(|(to, from)| to.set(from.get()));
            }
            Asked::In(Source::Copied(from), to) => {
                (place(to).iter().zip(&from)).for_each(|(to, from)| to.set(*from));
            }
            Asked::Out(from, to) => {
                (to.iter().zip(place(from))).for_each(|(to, from)| to.set(from.get()));
            }
            Asked::Fill(at, words, with) => {
                place(at)[..words as usize].iter().for_each(|w| w.set(with));
            }
            Asked::Launch(kernel, arguments) => {
                let signature = self.kernels[kernel].spec.signature();
                let (operands, rest) = arguments.split_at(signature.operands.len());
                let (dims, coeffs) = rest.split_at(signature.dims.len());
                let operands: Vec<Words> = operands.iter().map(|o| place(*o)).collect();
                let coeffs: Vec<f64> = coeffs.iter().map(|c| f64::from_bits(*c)).collect();
                self.compute.launch(kernel, &operands, dims, &coeffs);
            }
        }
    }
}

impl Driver for Late {
    type Graph = Vec<Planned>;
    type Event = u64;

    fn name(&self) -> String {
        "a late card".into()
    }
    fn capability(&self) -> (i32, i32) {
        (8, 0)
    }
    fn load(&mut self, _: &[u8], _: &[(&str, u64)]) -> Result<(), String> {
        Ok(())
    }
    fn free_memory(&self) -> Result<u64, String> {
        Ok(u64::MAX)
    }
    fn allocate(&mut self, bytes: u64) -> Result<u64, String> {
        let next = |(start, words): &(u64, Vec<Cell<u32>>)| {
            (start + 4 * words.len() as u64 + 256).next_multiple_of(256)
        };
        let start = self.memory.last().map_or(1 << 40, next);
        let words = vec![Cell::new(0); bytes.div_ceil(4) as usize];
        self.memory.push((start, words));
        Ok(start)
    }
    fn stage(&mut self, bytes: u64) -> io::Result<Buffer> {
        let words = vec![Cell::new(0); bytes.div_ceil(4) as usize];
        // Alignment of f64 is that of the allocator's blocks.
        let stage: &'static [Cell<u32>] = words.leak();
        self.stages.push(stage);
        let pointer = stage.as_ptr().cast_mut().cast::<u8>();
        // SAFETY: it lives for ever, and the card looks at it only where the process may not.
        Ok(unsafe { Buffer::foreign(pointer, 4 * stage.len(), Box::new(|| ())) })
    }
    fn copy_in(&mut self, from: Words, to: u64) -> Result<(), String> {
        let source = match self.stage_of(from) {
            Some(stage) => Source::Stage(stage),
            None => Source::Copied(from.iter().map(Cell::get).collect()),
        };
        self.ask(Asked::In(source, to))
    }
    fn copy_out(&mut self, from: u64, to: Words) -> Result<(), String> {
        if let Some(stage) = self.stage_of(to) {
            return self.ask(Asked::Out(from, stage));
        }
        // Memory that is not page-locked is filled before the call returns.
        let now = self.record(false)?;
        self.until(now);
        let (start, words) = (self.memory.iter().rev())
            .find(|(start, _)| *start <= from)
            .unwrap();
        let words = &words[(from - start) as usize / 4..];
        (to.iter().zip(words)).for_each(|(to, from)| to.set(from.get()));
        Ok(())
    }
    fn fill(&mut self, address: u64, words: u64, with: u32) -> Result<(), String> {
        self.ask(Asked::Fill(address, words, with))
    }
    fn launch(&mut self, p: &Planned) -> Result<(), String> {
        self.ask(Asked::Launch(p.function, p.launch.arguments.clone()))
    }
    fn instantiate(&mut self, launches: &[Planned], _: bool) -> Result<Vec<Planned>, String> {
        Ok(launches.to_vec())
    }
    fn update(&mut self, graph: &mut Vec<Planned>, n: usize, to: &Planned) -> Result<(), String> {
        graph[n] = to.clone();
        Ok(())
    }
    fn replay(&mut self, graph: &mut Vec<Planned>) -> Result<(), String> {
        for p in graph {
            self.launch(p)?;
        }
        Ok(())
    }
    fn between(&mut self, _: &u64, _: &u64) -> Result<Option<Duration>, String> {
        Ok(None)
    }
    fn record(&mut self, _timed: bool) -> Result<u64, String> {
        Ok(self.done + self.asked.len() as u64)
    }
    fn wait(&mut self, event: &u64) -> Result<(), String> {
        self.until(*event);
        Ok(())
    }
}

/// Text with a head for each kernel.
pub fn code(kernels: &[Kernel]) -> String {
    let head = |k: &Kernel| format!(".entry {}(\n", k.symbol);
    kernels.iter().map(head).collect()
}

/// A small model planned for a card; `train` goes into its train block.
fn small(train: &str) -> Manifest {
    let text = format!(
        "field att = rmsnorm |> attention(heads: 2, causal, rope)\n\
         field ffn = rmsnorm |> swiglu(hidden: 20)\n\
         model small {{\n  input tokens(vocab: 256, context: 12)\n  embed learned(width: 12)\n  \
         evolve lie(att, ffn) for 2 steps\n  output rmsnorm |> logits(tied)\n}}\n\
         train {{ data text(\"none.txt\", tokenizer: bytes);  steps 12;  schedule cosine(warmup: 2, floor: 10%)\n{train} }}\n"
    );
    let built = built(&text);
    let options = Options::of(Target::Sm80, built.real());
    build_manifest(&built, &text, options).unwrap().manifest
}

struct Place {
    dir: TempDir,
    artifact: Artifact,
}

impl Place {
    fn of(train: &str) -> Place {
        let dir = tempfile::tempdir().unwrap();
        let text = "the quick brown fox jumps over the lazy dog. ";
        fs::write(dir.path().join("corpus.txt"), text.repeat(40)).unwrap();
        let artifact = Artifact::in_memory(small(train)).unwrap();
        Place { dir, artifact }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn settings(&self) -> Settings {
        Settings {
            data: vec![self.at("corpus.txt")],
            show: Show::Nothing,
            evaluations: 3,
            held_out_windows: 2,
            ..Settings::default()
        }
    }

    fn train(&self, name: &str, s: &Settings, on: Maker) -> Result<(), TrainError> {
        Run::start_on(&self.artifact, &self.at(name), s, |a| made(on, a))?.finish(s)?;
        Ok(())
    }
}

type Maker<'a> = &'a dyn Fn(&[Kernel]) -> Box<dyn Device>;

fn made(on: Maker, a: &Artifact) -> Result<Box<dyn Device>, ArtifactError> {
    Ok(on(&a.manifest().program.kernels))
}

pub fn late(kernels: &[Kernel]) -> Box<dyn Device> {
    Late::device(kernels)
}

fn in_step(kernels: &[Kernel]) -> Box<dyn Device> {
    Box::new(ReferenceDevice::new(kernels))
}

/// What a run leaves, but for times: the checkpoint's tensors, and what the lines of its metrics say.
fn left(run: &Path) -> (Vec<u8>, Vec<String>) {
    let bytes = fs::read(run.join(CHECKPOINT)).unwrap();
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let text = fs::read_to_string(run.join(METRICS)).unwrap();
    let line = |r: Record| match r {
        Record::Step(s) => format!("{} {} {} {}", s.step, s.loss, s.lr, s.grad_norm),
        Record::HeldOut(h) => format!("{} held out {}", h.step, h.held_out_loss),
        Record::Warning(w) => format!("{} {}", w.step, w.warning),
        Record::Movement(m) => format!("{} {:?} {:?}", m.step, m.update_to_weight, m.coefficients),
    };
    let lines = metrics::parse(&text).into_iter().map(line).collect();
    (bytes[8 + header..].to_vec(), lines)
}

const ONE: &str = "optimizer adamw(lr: 1e-2);  batch 2;  clip 1.0";
/// More micro-batches than may be under way.
const SIX: &str = "optimizer adamw(lr: 1e-2);  batch 6;  accumulate 6;  clip 1.0";

#[test]
fn a_late_card_gives_the_bits_and_metrics_of_a_device_in_step() {
    for train in [ONE, SIX] {
        let p = Place::of(train);
        let s = p.settings();
        p.train("card", &s, &late).unwrap();
        p.train("here", &s, &in_step).unwrap();
        let (card, here) = (left(&p.at("card")), left(&p.at("here")));
        assert_eq!(card.1, here.1, "{train}");
        // Steps, evaluations, and how far three steps moved the parameters.
        assert_eq!(here.1.len(), 12 + 3 + 3);
        assert!(card.0 == here.0, "{train}");
    }
}

#[test]
fn a_run_on_a_card_goes_on_where_it_was_left() {
    let p = Place::of(ONE);
    let s = p.settings();
    p.train("whole", &s, &late).unwrap();
    let mut run = Run::start_on(&p.artifact, &p.at("parts"), &s, |a| made(&late, a)).unwrap();
    for _ in 0..3 {
        run.step().unwrap();
    }
    run.save().unwrap();
    // What is done and under way after that is lost.
    run.step().unwrap();
    run.enqueue().unwrap();
    drop(run);
    let mut run = Run::resume_on(&p.at("parts"), &s, |a| made(&late, a)).unwrap();
    assert_eq!(run.progress().step, 3);
    run.finish(&s).unwrap();
    let (parts, whole) = (left(&p.at("parts")), left(&p.at("whole")));
    let steps = |lines: &[String]| -> Vec<String> {
        let steps = lines.iter().filter(|l| !l.contains("held out"));
        steps.cloned().collect()
    };
    assert_eq!(steps(&parts.1), steps(&whole.1));
    assert!(parts.0 == whole.0);
}

/// The step behind a bad one is under way when that is seen: it does not count, and is not kept.
#[test]
fn what_is_not_finite_stops_a_run_at_the_same_step_with_the_same_words() {
    for train in [ONE, SIX] {
        let p = Place::of(&train.replace("lr: 1e-2", "lr: 1e30"));
        let s = p.settings();
        let said = |name: &str, on: Maker| {
            let e = p.train(name, &s, on).unwrap_err();
            assert!(matches!(e, TrainError::NonFinite { saved: 0, .. }), "{e}");
            e.to_string()
                .replace(&p.at(name).display().to_string(), "RUN")
        };
        let (card, here) = (said("card", &late), said("here", &in_step));
        assert_eq!(card, here);
        assert!(card.contains("is the first tensor that is not"), "{card}");
        let good = Run::resume_on(&p.at("card"), &s, |a| made(&late, a)).unwrap();
        assert_eq!(good.progress().step, 0);
    }
}

/// What `steps` steps ask of a card, with one look at held-out text at the end.
fn requests(train: &str, steps: u64) -> DriverCalls {
    let p = Place::of(train);
    let recording = Recording {
        forgets: true,
        ..Recording::with(u64::MAX)
    };
    let s = Settings {
        steps: Some(steps),
        evaluations: 1,
        ..p.settings()
    };
    let on = |kernels: &[Kernel]| -> Box<dyn Device> {
        Box::new(
            CudaDevice::new(recording.clone(), Target::Sm80, &code(kernels), kernels, 0).unwrap(),
        )
    };
    p.train("run", &s, &on).unwrap();
    recording.made.get()
}

#[test]
fn a_step_copies_its_batch_and_its_loss_and_never_leaves_the_card_idle() {
    // A wait for loss and norm; of six batches for the first two, as so many may not be under way, and with them for all before.
    for (train, batches, waits) in [(ONE, 1, 2), (SIX, 6, 2)] {
        let (short, long) = (requests(train, 8), requests(train, 20));
        let each = |count: fn(&DriverCalls) -> u64| (count(&long) - count(&short)) as f64 / 12.0;
        // Tokens and targets of a batch; its loss; and the norm.
        assert_eq!(each(|m| m.copies_in), f64::from(2 * batches));
        assert_eq!(each(|m| m.copies_out), f64::from(batches + 1));
        // All of them for events behind which the card has work.
        assert_eq!(each(|m| m.waits), f64::from(waits));
        assert_eq!(each(|m| m.stalls), 0.0);
        // Buffers go round.
        assert_eq!(each(|m| m.stages), 0.0);
    }
}

/// Events around every launch, none of them in a graph; rates are those of the time that the card says.
#[test]
fn a_profile_has_the_cards_own_times() {
    let m = small(ONE);
    let tokens = vec![1; 24];
    let io = [
        ("tokens", Value::I32(&tokens)),
        ("targets", Value::I32(&tokens)),
    ];
    for launch_time in [None, Some(Duration::from_micros(5))] {
        let recording = Recording {
            launch_time,
            ..Recording::with(u64::MAX)
        };
        let kernels = &m.program.kernels;
        let device =
            CudaDevice::new(recording.clone(), Target::Sm80, &code(kernels), kernels, 0).unwrap();
        let artifact = Artifact::in_memory(m.clone()).unwrap();
        let mut x = Executor::new(&artifact, Box::new(device)).unwrap();
        x.run("grad", Bindings::new(2, 12), &io, &[]).unwrap();
        let before = recording.made.get();
        x.start_profile();
        for _ in 0..3 {
            x.run("grad", Bindings::new(2, 12), &io, &[]).unwrap();
        }
        let made = recording.made.get();
        let launches = 3 * m.program.entries["grad"].instrs.len() as u64;
        assert_eq!((made.replays, made.graphs), (before.replays, before.graphs));
        assert_eq!(made.events - before.events, 2 * launches + 3);
        let profile = x.profile().unwrap();
        let told = NamedProfile::new(x.manifest(), profile, None);
        let rows = told.kernels();
        assert_eq!(rows.iter().map(|r| r.sum.launches).sum::<u64>(), launches);
        assert!(
            rows.iter()
                .all(|r| r.sum.ms.is_some() == launch_time.is_some())
        );
        let Some(time) = launch_time else {
            assert!(timeline::svg(&told, "dry").is_none());
            assert!(trace::text(&told, "dry").is_none());
            continue;
        };
        assert_eq!(profile.total(), time * launches as u32);
        for r in &rows {
            let close = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-9;
            let sum = &r.sum;
            let seconds = time.as_secs_f64() * sum.launches as f64;
            assert!(close(sum.ms.unwrap(), 1e3 * seconds));
            let share = sum.launches as f64 / launches as f64;
            assert!(close(sum.share.unwrap(), share));
            let multiplies = ["contract", "attend"]
                .iter()
                .any(|k| r.kernel.starts_with(k));
            assert_eq!(sum.gflop_per_s.is_some(), multiplies, "{}", r.kernel);
            assert!(sum.gbyte_per_s.unwrap() > 0.0 && sum.roof.is_none());
        }
    }
}

/// Before anything is loaded or reserved.
#[test]
fn what_cannot_run_on_a_card_is_said_first() {
    let m = small(ONE);
    let needed = odec_runtime::artifact::check::memory_bytes(&m);
    let kernels = &m.program.kernels;
    let said = |recording: Recording, built: &[Target]| {
        let loaded = Cell::new(false);
        let ptx = |_| {
            loaded.set(true);
            Ok(code(kernels))
        };
        let device = cuda::on(recording, kernels, needed, built, ptx);
        (device.map(drop).map_err(|e| e.to_string()), loaded.get())
    };
    let both = [Target::Sm80, Target::Sm90a];
    assert_eq!(said(Recording::with(needed), &both), (Ok(()), true));
    let old = Recording {
        capability: (7, 0),
        ..Recording::with(needed)
    };
    for (recording, built, what) in [
        (
            Recording::with(needed - 1),
            &both[..],
            format!("({needed} bytes)"),
        ),
        (old.clone(), &both[..], "compute capability 7.0".into()),
        (
            Recording {
                capability: (8, 9),
                ..old
            },
            &both[1..],
            "--target sm_80".into(),
        ),
    ] {
        let (refused, loaded) = said(recording, built);
        let refused = refused.unwrap_err();
        assert!(refused.contains(&what) && !loaded, "{refused}");
    }
}
