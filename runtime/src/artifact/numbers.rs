//! Checks the numbers of a manifest outside of its program: model, train block, numbers of steps, initial values and tables.
//!
//! Takes a manifest; refuses numbers that cannot be used, before anything is divided by one or allocated from one.
//! [`crate::artifact::check`] checks the program.

use crate::artifact::check::{Invalid, invalid};
use odec_program::bounds::Bounds;
use odec_program::choice::{Argument, Choice, Visitor};
use odec_program::manifest::{
    Flow, Form, Images, Init, Manifest, Masked, Memory, Pairs, StepCount, Table, Times, Train,
    Tune, Vectors, Waves,
};
use odec_program::{Dim, EntryId};

/// Token kinds, so that their numbers are exact in f32.
pub const MOST_TOKENS: u64 = 1 << 24;
/// Steps of a run, and sequences of a batch.
const MOST_STEPS: u64 = 1 << 40;
const MOST_SEQUENCES: u64 = 1 << 20;
/// Most rows before those of an input.
const MOST_LEADING: u64 = 3 + odec_program::manifest::MOST_REGISTERS;
/// Numbers of an image.
const MOST_OF_AN_IMAGE: u64 = 1 << 28;
/// Steps of an evolve.
const MOST_DEPTH: u64 = 1 << 20;
/// Numbers of a table, which is made in memory before it is rounded.
const MOST_OF_A_TABLE: u64 = 1 << 28;

/// Checks all of them.
///
/// # Errors
/// The first that is out of bounds.
pub fn check(m: &Manifest) -> Result<(), Invalid> {
    let vocab = m.model.vocab;
    within("model: vocabulary", vocab, 1, MOST_TOKENS)?;
    if let Some(tokens) = m.model.tokens {
        within("model: kinds of tokens", tokens, 1, MOST_TOKENS)?;
    }
    for (label, kinds) in &m.model.also {
        within(&format!("model: output {label}"), *kinds, 1, MOST_TOKENS)?;
    }
    within("model: context", m.model.context, 1, 1 << 40)?;
    within("model: width", m.model.width, 1, 1 << 40)?;
    for d in &m.depths {
        depth(d)?;
    }
    for p in &m.params {
        match p.init {
            Init::Constant(x) => finite(&p.path, "start", x)?,
            Init::Normal { std } => finite(&p.path, "deviation", std)?,
            Init::Zeros | Init::Ones => {}
        }
    }
    for (i, c) in m.constants.iter().enumerate() {
        table(&format!("constant {i}"), &c.table)?;
    }
    m.train.as_ref().map_or(Ok(()), |t| train(t, m))
}

fn depth(d: &StepCount) -> Result<(), Invalid> {
    let place = "depths";
    within(&format!("{place}: steps"), d.max(), 1, MOST_DEPTH)?;
    match d {
        StepCount::Adaptive { until, .. } => positive(place, "time to reach", *until),
        StepCount::Random { mean, max, .. } => within(&format!("{place}: mean"), *mean, 1, *max),
        StepCount::Halting { .. } => Ok(()),
    }
}

fn table(place: &str, t: &Table) -> Result<(), Invalid> {
    let [rows, cols] = t.shape();
    // A time may stand alone, and so may a column; sines have cosines beside them.
    let least = match t {
        Table::Time { .. } | Table::Index { .. } | Table::Buckets { .. } => 1,
        _ => 2,
    };
    if rows == 0 || cols < least || rows.saturating_mul(cols) > MOST_OF_A_TABLE {
        return invalid(place, format!("a table of {rows} × {cols} numbers"));
    }
    positive(place, "base of its angles", t.base())?;
    match *t {
        Table::Normal { std, .. } => finite(place, "deviation", std),
        Table::Time { t, waves } => {
            finite(place, "time", t)?;
            scale(place, waves)
        }
        Table::Frequencies(waves) | Table::Phases(waves) => scale(place, waves),
        Table::RotaryCos { turns, .. } | Table::RotarySin { turns, .. } => {
            let places = turns.grid.map_or(rows, |places| places.positions());
            if places != rows {
                return invalid(
                    place,
                    format!("{places} places of a grid for {rows} positions"),
                );
            }
            let scaling = turns.scaling.unwrap_or(1.0);
            positive(place, "scaling of its positions", scaling)
        }
        Table::Buckets { distances, buckets } if buckets > distances => {
            let what = format!("{buckets} buckets of {distances} distances");
            invalid(place, what)
        }
        Table::Sinusoid { .. }
        | Table::Grid { .. }
        | Table::Index { .. }
        | Table::Buckets { .. } => Ok(()),
    }
}

fn scale(place: &str, w: Waves) -> Result<(), Invalid> {
    match w {
        Waves::Weights { scale, .. } => finite(place, "scale", scale),
        Waves::Positions { .. } => Ok(()),
    }
}

fn train(t: &Train, m: &Manifest) -> Result<(), Invalid> {
    let vocab = m.model.vocab;
    let place = |what: &str| format!("train: {what}");
    within(&place("batch"), t.batch, 1, MOST_SEQUENCES)?;
    within(&place("accumulate"), t.accumulate, 1, t.batch)?;
    if !t.batch.is_multiple_of(t.accumulate) {
        let what = format!("{} sequences in {} micro-batches", t.batch, t.accumulate);
        return invalid(place("accumulate"), what);
    }
    if let Some(tokens) = t.tokens {
        within(&place("tokens"), tokens, t.accumulate, MOST_SEQUENCES)?;
        if !t.data.form.is_padded() {
            let what = "these are no texts whose batches may be of tokens";
            return invalid(place("tokens"), what);
        }
    }
    within(&place("steps"), t.steps, 0, MOST_STEPS)?;
    if let Some(keep) = t.keep {
        within(&place("kept"), keep.last, 1, MOST_SEQUENCES)?;
        within(&place("kept steps"), keep.every, 1, MOST_STEPS)?;
    }
    let held = u64::from(t.data.held_out_percent);
    within(&place("held out"), held, 0, 99)?;
    arguments("optimizer", &mut *t.optimizer.clone())?;
    for group in &t.groups {
        arguments("optimizer of a group", &mut *group.optimizer.clone())?;
    }
    arguments("schedule", &mut *t.schedule.clone())?;
    for (what, limit) in [("clip", t.clip), ("spectral", t.spectral)] {
        limit.map_or(Ok(()), |x| positive("train", what, x))?;
    }
    for (what, n) in [("evaluations", t.evaluations), ("patience", t.patience)] {
        n.map_or(Ok(()), |n| within(&place(what), n, 1, MOST_STEPS))?;
    }
    if let Some(x) = t.ema.filter(|x| !Bounds::BelowOne.holds(*x)) {
        return invalid(
            place("ema"),
            format!("it is {x}, not {}", Bounds::BelowOne.text()),
        );
    }
    if let Memory::Revolve { slots } = t.memory {
        within(&place("slots"), slots, 1, MOST_DEPTH)?;
    }
    if let Tune::Lora { rank } = t.tune {
        within(&place("rank"), rank, 1, 1 << 40)?;
    }
    if t.precision.real() != m.program.real {
        let what = format!(
            "{} in a program of {:?}",
            t.precision.name(),
            m.program.real
        );
        return invalid(place("precision"), what);
    }
    match &t.data.form {
        Form::Images(i) => images(i, m)?,
        Form::Vectors(v) => vectors(v, m)?,
        Form::Pairs(p) => {
            let least = Pairs::SPECIAL + 1;
            within(
                &place("vocabulary of pairs"),
                m.model.vocab,
                least,
                MOST_TOKENS,
            )?;
            let last = m.model.vocab - Pairs::SPECIAL;
            let tokens = [("begin", p.begin), ("end", p.end), ("padding", p.padding)];
            for ((what, token), is) in tokens.into_iter().zip(last..) {
                within(&place(what), token, is, is)?;
            }
            // Each of them reads all sources, and may be there alone.
            let entries = [EntryId::Forward, EntryId::Grad, EntryId::Loss];
            let entry = entries.iter().find_map(|e| m.program.entries.get(e));
            let read = |name: &str| {
                let inputs = entry.map_or(&[][..], |e| &e.inputs);
                let named = inputs.iter().find(|io| io.name == name);
                named.is_some_and(|io| io.shape.contains(&Dim::Source))
            };
            let mut names: Vec<&str> = p.sources.iter().map(|of| &of.input[..]).collect();
            names.sort_unstable();
            names.dedup();
            if names.is_empty() || names.len() < p.sources.len() || !names.iter().all(|n| read(n)) {
                let what = format!("{} are no inputs of encoders", names.join(", "));
                return invalid(place("sources"), what);
            }
        }
        Form::Labelled(l) => {
            let kinds = m.model.tokens.unwrap_or(0);
            let last = (kinds.checked_sub(Pairs::SPECIAL)).filter(|texts| *texts > 0);
            let Some(last) = last else {
                let what = format!("{kinds} kinds of tokens leave none for texts");
                return invalid(place("vocabulary of texts"), what);
            };
            let tokens = [("begin", l.begin), ("end", l.end), ("padding", l.padding)];
            for ((what, token), is) in tokens.into_iter().zip(last..) {
                within(&place(what), token, is, is)?;
            }
            within(&place("classes"), l.classes, vocab, vocab)?;
            let named = l.names.len() as u64;
            if named > 0 && named != vocab {
                return invalid(place("names"), format!("{named} names of {vocab} classes"));
            }
        }
        Form::Sentences(s) => {
            within(&place("separator"), s.end, 0, m.model.vocab - 1)?;
            if m.model.also.get(&s.output) != Some(&2) {
                let what = format!("the output `{}` says no one of two classes", s.output);
                return invalid(place("sentences"), what);
            }
        }
        Form::Text { .. } | Form::Tokens => {}
    }
    if let Some(label) = t
        .also
        .keys()
        .find(|label| !m.model.also.contains_key(*label))
    {
        return invalid(place("loss"), format!("no output is called `{label}`"));
    }
    if let Some(Masked { rate, .. }) = t.loss.masks() {
        share(&place("rate of hidden tokens"), rate)?;
    }
    for (what, token) in t.loss.special() {
        within(&place(what), token, 0, m.model.vocab - 1)?;
    }
    Ok(())
}

fn vectors(v: &Vectors, m: &Manifest) -> Result<(), Invalid> {
    let place = "train: vectors";
    for (what, n) in [("positions", v.positions), ("width", v.width)] {
        within(&format!("{place}: {what}"), n, 1, MOST_OF_AN_IMAGE)?;
    }
    if let Some(flow) = v.flow {
        times(place, flow)?;
        within(
            &format!("{place}: numbers"),
            v.numbers(),
            1,
            MOST_OF_AN_IMAGE,
        )?;
        if v.width != m.model.vocab {
            let what = format!(
                "{} numbers of a vector in a model of {}",
                v.width, m.model.vocab
            );
            return invalid(place, what);
        }
        let told = v.targets.iter().filter(|t| t.classes).count();
        if told != usize::from(flow.labelled) || told != v.targets.len() {
            return invalid(
                place,
                format!("{told} classes of {} targets", v.targets.len()),
            );
        }
    }
    for t in &v.targets {
        within(&format!("{place}: columns"), t.columns, 1, MOST_OF_AN_IMAGE)?;
        if v.flow.is_some() {
            continue;
        }
        let kinds = match t.output.is_empty() {
            true => Some(m.model.vocab),
            false => m.model.also.get(&t.output).copied(),
        };
        if kinds != Some(t.columns) {
            let what = format!("{} numbers of the output `{}`", t.columns, t.output);
            return invalid(place, what);
        }
    }
    within(
        &format!("{place}: leading rows"),
        v.leading,
        0,
        MOST_LEADING,
    )?;
    let rows = v.positions + v.leading;
    if rows != m.model.context {
        let what = format!("{rows} rows in a model of {}", m.model.context);
        return invalid(place, what);
    }
    finite(place, "mean", v.mean)?;
    positive(place, "deviation", v.std)
}

/// The law of times of a flow.
fn times(place: &str, flow: Flow) -> Result<(), Invalid> {
    if let Times::LogitNormal { mean, std } = flow.times {
        finite(place, "mean of times", mean)?;
        positive(place, "deviation of times", std)?;
    }
    Ok(())
}

fn images(i: &Images, m: &Manifest) -> Result<(), Invalid> {
    let place = "train: images";
    for (what, n) in [
        ("height", i.height),
        ("width", i.width),
        ("channels", i.channels),
        ("patch", i.patch),
    ] {
        within(&format!("{place}: {what}"), n, 1, MOST_OF_AN_IMAGE)?;
    }
    let sides = [i.width, i.channels].into_iter();
    let numbers = sides.fold(i.height, u64::saturating_mul);
    within(&format!("{place}: numbers"), numbers, 1, MOST_OF_AN_IMAGE)?;
    if !i.height.is_multiple_of(i.patch) || !i.width.is_multiple_of(i.patch) {
        let what = format!("{} × {} in patches of {}", i.height, i.width, i.patch);
        return invalid(place, what);
    }
    within(
        &format!("{place}: leading rows"),
        i.leading,
        0,
        MOST_LEADING,
    )?;
    within(
        &format!("{place}: crop"),
        i.crop,
        0,
        i.height.min(i.width) - 1,
    )?;
    let (columns, what) = match i.flow {
        None => (i.classes, "classes"),
        Some(flow) => {
            times(place, flow)?;
            (i.patch * i.patch * i.channels, "numbers of a patch")
        }
    };
    if columns != m.model.vocab {
        let what = format!("{columns} {what} in a model of {}", m.model.vocab);
        return invalid(place, what);
    }
    finite(place, "mean", i.mean)?;
    positive(place, "deviation", i.std)
}

/// What a train block chose for an entry.
fn arguments(entry: &str, chosen: &mut (impl Choice + ?Sized)) -> Result<(), Invalid> {
    let mut check = Check {
        place: format!("train: {entry}"),
        result: Ok(()),
    };
    chosen.arguments(&mut check);
    check.result
}

/// The first argument that is out of bounds.
struct Check {
    place: String,
    result: Result<(), Invalid>,
}

impl Check {
    fn must(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if self.result.is_ok() && !holds {
            self.result = invalid(self.place.as_str(), what());
        }
    }
}

impl Visitor for Check {
    fn number(&mut self, a: &Argument, bounds: Bounds, x: &mut f64) {
        let what = || format!("its {} is {x}, not {}", a.name, bounds.text());
        self.must(bounds.holds(*x), what);
    }
    fn word(&mut self, _: &Argument, _: &'static [&'static str], _: &mut &'static str) {}
    fn pair(&mut self, a: &Argument, bounds: Bounds, (x, y): &mut (f64, f64)) {
        self.number(a, bounds, x);
        self.number(a, bounds, y);
    }
    fn steps(&mut self, a: &Argument, n: &mut u64) {
        self.must(*n <= MOST_STEPS, || format!("its {} is {n}", a.name));
    }
}

fn within(place: &str, n: u64, least: u64, most: u64) -> Result<(), Invalid> {
    match (least..=most).contains(&n) {
        true => Ok(()),
        false => invalid(place, format!("{n} is not in {least}..={most}")),
    }
}

fn finite(place: &str, what: &str, x: f64) -> Result<(), Invalid> {
    match x.is_finite() {
        true => Ok(()),
        false => invalid(place, format!("its {what} is {x}")),
    }
}

fn positive(place: &str, what: &str, x: f64) -> Result<(), Invalid> {
    match x > 0.0 && x.is_finite() {
        true => Ok(()),
        false => invalid(place, format!("its {what} is {x}, not a positive number")),
    }
}

fn share(place: &str, x: f64) -> Result<(), Invalid> {
    match (0.0..=1.0).contains(&x) {
        true => Ok(()),
        false => invalid(place, format!("{x} is not in 0..=1")),
    }
}
