//! `odec bench`: times the training step (entries `grad` and `update`) on random tokens, or single tokens that are read.

use crate::cli;
use crate::commands::{in_integers, integers};
use odec_driver::artifact;
use odec_driver::fail::{Done, Failure};
use odec_driver::quantized;
use odec_driver::terminal;
use odec_program::manifest::{Flow, Form, Manifest};
use odec_program::{Bindings, EntryId, Slot, names};
use odec_runtime::data::dataset::{Batch, Numbers, Unit};
use odec_runtime::device::reals::decimal;
use odec_runtime::executor::Executor;
use odec_runtime::executor::step_count;
use odec_runtime::outln;
use odec_runtime::profile::reading::{Reading, computing};
use odec_runtime::train::gradient::enqueue;
use odec_runtime::{Artifact, Reader, RunError, Texts};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::time::Instant;
use tempfile::TempDir;

pub fn run(args: &cli::Bench) -> Done {
    let timed = &args.timed;
    match args.tokens {
        Some(tokens) => {
            let m = &timed.model;
            let model = match args.weights {
                None => artifact::open(&m.model, &m.set, timed.device, m.trust)?,
                Some(q) => (quantized::open(&m.model, &m.set, timed.device, q)?, None),
            };
            ready(timed, model, |x| reading(args, x, tokens))
        }
        None => trainable(timed, |x| {
            let steps = training(timed, x, false)?;
            match timed.json {
                true => outln!("{}", steps.json()),
                false => steps.print(),
            }
            Ok(())
        }),
    }
}

/// Does something with a model that is trained.
pub fn trainable(args: &cli::Timed, then: impl FnOnce(&mut Executor) -> Done) -> Done {
    let m = &args.model;
    let model = artifact::trainable(&m.model, &m.set, args.device, m.trust, |_| Ok(()))?;
    ready(args, model, then)
}

/// Does something with the model on its device.
fn ready(
    args: &cli::Timed,
    (artifact, _guard): (Artifact, Option<TempDir>),
    then: impl FnOnce(&mut Executor) -> Done,
) -> Done {
    let device = artifact.device(args.device, None).map_err(Failure::input)?;
    let mut executor = Executor::new(&artifact, device).map_err(Failure::input)?;
    executor.initialise(0);
    then(&mut executor)
}

/// What was measured of training steps.
pub struct Steps {
    model: String,
    device: String,
    batch: u64,
    seq: u64,
    unit: Unit,
    /// Units of a step.
    count: u64,
    /// Milliseconds, sorted.
    times: Vec<f64>,
    planned: u64,
    arena: u64,
    peak: u64,
    loss: f64,
}

impl Steps {
    fn min(&self) -> f64 {
        self.times[0]
    }

    fn median(&self) -> f64 {
        self.times[self.times.len() / 2]
    }

    pub fn json(&self) -> Value {
        json!({
            "model": self.model, "device": self.device, "batch": self.batch, "seq": self.seq,
            "step_ms_min": self.min(), "step_ms_median": self.median(), "step_ms": self.times,
            "planned_bytes": self.planned, "arena_bytes": self.arena, "peak_resident_bytes": self.peak, "loss": self.loss,
        })
    }

    pub fn print(&self) {
        let (min, median) = (self.min(), self.median());
        outln!(
            "{} on {}, batch {}, context {}",
            self.model,
            self.device,
            self.batch,
            self.seq
        );
        outln!(
            "training step   {median:.1} ms median, {min:.1} ms best of {}",
            self.times.len()
        );
        outln!(
            "{}/s        {}",
            self.unit.name(),
            terminal::thousands((self.count as f64 / median * 1e3) as u64)
        );
        outln!(
            "memory          {} planned, {} resident at the peak",
            terminal::bytes(self.planned),
            terminal::bytes(self.peak)
        );
    }
}

/// Times training steps, and their launches where they are profiled.
pub fn training(args: &cli::Timed, executor: &mut Executor, profiled: bool) -> Done<Steps> {
    let manifest = executor.manifest().clone();
    let at = manifest.program.maxima.longest();
    let (batch, seq) = (at.batch, at.seq);
    let (micro, unit) = random(&manifest, at);
    let accumulate = manifest.train.as_ref().map_or(1, |t| t.accumulate);
    let n = micro.count(unit) * accumulate;
    let batches = vec![micro; accumulate as usize];

    let usual = step_count::usual(&manifest.depths);
    let mut times = Vec::new();
    let real = executor.real();
    let mut loss = 0.0;
    // As in training, a device that works by itself has the next step while the last is looked at.
    let mut under_way = VecDeque::new();
    let mut last = Instant::now();
    let steps = args.warmup + args.steps;
    for step in 0..steps + 1 {
        if profiled && step == args.warmup {
            executor.start_profile();
        }
        if step < steps {
            let gradient = enqueue(executor, &batches, &usual).map_err(Failure::input)?;
            let scalars = manifest.train.as_ref().map(|t| t.scalars(step + 1, 1.0));
            let scalars = scalars.unwrap_or_default();
            let scalars: Vec<_> = scalars
                .iter()
                .map(|(name, x)| (name.as_str(), *x))
                .collect();
            let update = executor.queue(EntryId::Update, Bindings::new(1, 1), &[], &scalars);
            under_way.push_back((step, gradient, update.map_err(Failure::input)?));
        }
        while under_way.len() > executor.ahead().min(1) || step == steps {
            let Some((asked, gradient, update)) = under_way.pop_front() else {
                break;
            };
            let found = gradient.found(executor).map_err(Failure::input)?;
            loss = decimal(found.loss, real);
            executor.take(update).map_err(Failure::input)?;
            if asked >= args.warmup {
                times.push(last.elapsed().as_secs_f64() * 1e3);
            }
            last = Instant::now();
        }
    }
    times.sort_by(f64::total_cmp);
    let program = &manifest.program;
    let arena = program.arena_bytes();
    let lasting = [Slot::Moment1, Slot::Moment2, Slot::Average].into_iter();
    let lasting = lasting.chain((accumulate > 1).then_some(Slot::Sums));
    let lasting: u64 = lasting.map(|slot| manifest.trained_slot_bytes(slot)).sum();
    let states = program.param_bytes + lasting;
    let planned = arena + states + program.rounded_bytes() + program.const_bytes;
    Ok(Steps {
        device: executor.device_name(),
        model: manifest.name,
        batch,
        seq,
        unit,
        count: n,
        times,
        planned,
        arena,
        peak: peak_resident_bytes(),
        loss,
    })
}

/// A fixed multiplicative sequence.
fn number(i: u64) -> u64 {
    i.wrapping_mul(2_654_435_761) >> 7
}

fn real(i: u64) -> f32 {
    (number(i) % 256) as f32 / 256.0 - 0.5
}

/// A batch of any numbers: the work does not depend on them.
fn random(manifest: &Manifest, at: Bindings) -> (Batch, Unit) {
    let (batch, seq) = (at.batch, at.seq);
    let kinds = manifest.model.kinds(names::TOKENS);
    let token = |i: u64| (number(i) % kinds) as i32;
    match manifest.train.as_ref().map(|t| &t.data.form) {
        Some(Form::Pairs(p)) => {
            let from = |first: u64, each: u64| (first..first + batch * each).map(token).collect();
            let sources = p.sources.iter().zip(2..);
            let sources = sources.map(|(of, n)| (of.input.clone(), from(n, at.source)));
            let sizes = (batch, seq, at.source);
            let (tokens, targets) = (from(0, seq), from(1, seq));
            let micro = Batch::of_pairs(sizes, sources.collect(), tokens, targets, p.padding);
            (micro, Unit::Tokens)
        }
        Some(Form::Sentences(s)) => {
            let n = batch * seq;
            let (tokens, targets) = ((0..n).map(token), (1..n + 1).map(token));
            let mut micro = Batch::of_tokens(batch, seq, tokens.collect(), targets.collect());
            let classes = (0..batch).map(|i| (number(i) % 2) as i32).collect();
            micro
                .inputs
                .push((s.targets().into(), Numbers::I32(classes)));
            (micro, Unit::Tokens)
        }
        Some(Form::Labelled(l)) => {
            let tokens = (0..batch * seq).map(token).collect();
            let classes = (0..batch).map(|i| (number(i) % l.classes) as i32);
            let micro = Batch::of_labelled(seq, tokens, classes.collect());
            (micro, Unit::Sequences)
        }
        None | Some(Form::Text { .. } | Form::Tokens) => {
            let n = batch * seq;
            let (tokens, targets) = ((0..n).map(token), (1..n + 1).map(token));
            let micro = Batch::of_tokens(batch, seq, tokens.collect(), targets.collect());
            (micro, Unit::Tokens)
        }
        Some(Form::Vectors(v)) => {
            let vectors: Vec<f32> = (0..batch * seq * v.width).map(real).collect();
            if let Some(flow) = v.flow {
                let micro = flowing((names::VECTORS, seq), vectors, batch, (flow, v.classes()));
                return (micro, Unit::Sequences);
            }
            // Whether events happen, where that is what they are.
            let target = |i: u64| (number(i) % 2) as f32;
            let targets = v.targets.iter().map(|t| {
                let rows = if t.whole { 1 } else { seq };
                let class = |i: u64| (number(i) % t.columns) as i32;
                let numbers = match t.classes {
                    true => Numbers::I32((0..batch).map(class).collect()),
                    false => Numbers::F32((0..batch * rows * t.columns).map(target).collect()),
                };
                (t.input(), numbers)
            });
            let micro = Batch::of_vectors(batch, seq, vectors, targets);
            (micro, Unit::Sequences)
        }
        Some(Form::Images(i)) => {
            let n = batch * seq * i.patch * i.patch * i.channels;
            let patches: Vec<f32> = (0..n).map(real).collect();
            let micro = match i.flow {
                None => {
                    let classes = (0..batch).map(token).collect();
                    Batch::of_images(seq, patches, classes)
                }
                Some(flow) => flowing((names::PATCHES, seq), patches, batch, (flow, i.classes)),
            };
            (micro, Unit::Images)
        }
    }
}

/// Points that are said to move so: as many rows of random numbers as a batch has, their times and labels.
fn flowing(
    input: (&'static str, u64),
    points: Vec<f32>,
    batch: u64,
    (flow, classes): (Flow, u64),
) -> Batch {
    let times = (0..batch).map(real).collect();
    let labels = flow
        .labelled
        .then(|| (0..batch * classes).map(real).collect());
    Batch::of_flows(input, points.clone(), times, labels, points)
}

/// Times single tokens, each read after those before it: of one text, or one of each of several.
fn reading(bench: &cli::Bench, x: &mut Executor, tokens: u64) -> Done {
    let (args, batch) = (&bench.timed, bench.batch);
    let weights = match bench.weights {
        None => None,
        Some(_) => Some((integers(x)?.of, in_integers(x)?)),
    };
    if !x.has_entry(EntryId::Decode) {
        return Err(Failure::Input(
            "this model reads later tokens, so it cannot run token by token".into(),
        ));
    }
    let most = Texts::most(x) as u64;
    if batch > 1 && batch > most {
        return Err(Failure::Input(match most {
            0 => "this program reads one text at a time; leave out --batch".into(),
            most => format!(
                "--batch {batch} is more than the {most} texts that this program reads together"
            ),
        }));
    }
    let (name, device) = (x.manifest().name.clone(), x.device_name());
    let count = args.warmup + tokens.max(1);
    let mut times = timed(x, count, batch).map_err(Failure::input)?;
    times.drain(..args.warmup as usize);
    let context = x.manifest().model.context;
    // Of a run in the middle of those that are timed: a text that has filled the context goes on with the half of it.
    let middle = (args.warmup + times.len() as u64 / 2).min(context - 1);
    let lengths = vec![middle; batch as usize];
    let roof = x.roof();
    let (program, signatures) = (&x.manifest().program, x.artifact().signatures());
    let read = Reading::of(program, signatures, &lengths);
    let read = read.map_or(0, Reading::bytes);
    times.sort_by(f64::total_cmp);
    let (min, median) = (times[0], times[times.len() / 2]);
    let rate = roof.as_ref().map(|roof| roof.reading(read as f64));
    // Milliseconds and 10⁹ bytes per second.
    let share = rate.map(|rate| read as f64 / 1e6 / rate / median);
    let least = roof.and_then(|roof| computing(program, signatures, &lengths, &roof));
    let computed = least.map(|seconds| seconds * 1e3 / median);
    if args.json {
        let out = json!({
            "model": name, "device": device, "batch": batch, "tokens": times.len(), "token_ms_min": min, "token_ms_median": median,
            "weights": weights.map(|(of, _)| of.to_string()), "read_bytes": read, "reading_gbyte_per_s": rate, "reading_share": share, "computing_share": computed,
        });
        outln!("{out}");
        return Ok(());
    }
    let (of, each) = match batch {
        1 => ("token by token".to_string(), "token           "),
        n => (format!("{n} texts token by token"), "token of each   "),
    };
    outln!("{name} on {device}, {of}");
    outln!(
        "{each}{median:.3} ms median, {min:.3} ms best of {}",
        times.len()
    );
    outln!(
        "tokens/s        {}",
        terminal::thousands((batch as f64 / median * 1e3) as u64)
    );
    if let Some((_, text)) = weights {
        outln!("weights         {text}");
    }
    let read = terminal::bytes(read);
    match rate.zip(share) {
        Some((rate, share)) => outln!(
            "read            {read} for a token of each text, at {:.0} % of the {rate:.0} GB/s that this machine reads",
            100.0 * share
        ),
        None => outln!("read            {read} for a token of each text"),
    }
    if let Some(share) = computed {
        outln!(
            "computed        at {:.0} % of the rate at which this machine multiplies and adds",
            100.0 * share
        );
    }
    Ok(())
}

/// Milliseconds of each of so many runs, which read a token of each text.
fn timed(x: &mut Executor, count: u64, batch: u64) -> Result<Vec<f64>, RunError> {
    let vocab = x.manifest().model.vocab;
    let token = |n: u64| ((n.wrapping_mul(2_654_435_761) >> 7) % vocab) as i32;
    let mut times = Vec::new();
    let mut time = |read: &mut dyn FnMut(u64) -> Result<(), RunError>| {
        for n in 0..count {
            let start = Instant::now();
            read(n)?;
            times.push(start.elapsed().as_secs_f64() * 1e3);
        }
        Ok::<(), RunError>(())
    };
    match batch {
        1 => {
            let mut reader = Reader::new(x)?;
            time(&mut |n| reader.read(&[token(n)]).map(|_| ()))?;
        }
        _ => {
            let mut reader = Texts::new(x, batch as usize)?;
            time(&mut |n| {
                let tokens: Vec<i32> = (0..batch).map(|text| token(n * batch + text)).collect();
                let each: Vec<&[i32]> = tokens.chunks(1).collect();
                reader.read(&each).map(|_| ())
            })?;
        }
    }
    Ok(times)
}

/// The process's largest resident set so far, from `/proc/self/status`; 0 where there is none.
fn peak_resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    let kib = line
        .and_then(|l| l.split_whitespace().next())
        .and_then(|n| n.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}
