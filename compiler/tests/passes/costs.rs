//! Costs as they are printed, against what the program does on the reference device: multiply-adds of the kernels that are
//! launched, evaluations of fields by the launches at their sites, bytes of the arena that launches reach, bytes of keys and
//! values that decoding writes.

use crate::numbers::tokens;
use crate::source::built;
use crate::systems::options;
use odec_compiler::cost::drawn::{Draw, computed};
use odec_compiler::cost::operations::count_mean;
use odec_compiler::cost::{Cost, Operations, RowShare, cost, json, text};
use odec_compiler::model::Built;
use odec_compiler::passes::{Policy, build_manifest, run_graph_passes};
use odec_compiler::text::page::{Page, Screen};
use odec_library::shipped;
use odec_program::kernel::{Decay, LinearAttendPart, ScanForm};
use odec_program::manifest::{Manifest, Memory, Precision};
use odec_program::noise;
use odec_program::step_law::exceeding;
use odec_program::{Bindings, DType, EntryId, Io, Kernel, KernelSpec, Size, Slot};
use odec_runtime::device::Device;
use odec_runtime::device::memory::Words;
use odec_runtime::device::reference::ReferenceDevice;
use odec_runtime::{Artifact, Executor, Value};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

const CONTEXT: u64 = 12;

/// What was launched: multiply-adds of each launch, in order.
type Seen = Rc<RefCell<Vec<Operations>>>;

/// The reference device, counting.
struct Counting {
    inner: ReferenceDevice,
    specs: Vec<KernelSpec>,
    seen: Seen,
}

impl Counting {
    fn new(kernels: &[Kernel], seen: Seen) -> Counting {
        Counting {
            inner: ReferenceDevice::new(kernels),
            specs: kernels.iter().map(|k| k.spec.clone()).collect(),
            seen,
        }
    }
}

/// The multiply-adds of a launch: loops over what its kernel computes, one by one.
fn launched(spec: &KernelSpec, dims: &[u64]) -> Operations {
    let mut sum = Operations::default();
    let attended = |queries: std::ops::Range<u64>, keys: u64, causal: bool| -> u64 {
        let seen = queries.map(|q| (0..keys).filter(|k| !causal || *k <= q).count() as u64);
        seen.sum()
    };
    match spec {
        KernelSpec::Contract(_) => sum.contractions = dims[0] * dims[1] * dims[2],
        KernelSpec::Grouped(g) | KernelSpec::GroupedOuter(g) => {
            sum.contractions = dims[0] * g.of.copies * g.of.n * g.of.k;
        }
        KernelSpec::Attend(a) | KernelSpec::AttendBackward(a) => {
            let products = match spec {
                // scores and outputs
                KernelSpec::Attend(_) => 2,
                // scores again, gradients of weights, queries, keys and values
                _ => 5,
            };
            let pairs = attended(0..dims[1], dims[1], a.causal);
            sum.attention = products * a.heads * a.head * dims[0] * pairs;
        }
        KernelSpec::AttendCached(a) => {
            let (seq, past) = (dims[0], dims[1]);
            let pairs = attended(past..past + seq, past + seq, true);
            sum.attention = 2 * a.heads * a.head * pairs;
        }
        KernelSpec::LinearAttend(a) => {
            // faded, added to and read
            let reads = a.delta || a.part == LinearAttendPart::Results;
            let products = 1 + u64::from(a.decay != Decay::None) + u64::from(reads);
            sum.recurrences = products * a.heads * a.key * a.value * dims[0] * dims[1];
            // Each chunk joins what the others before it leave: an element of the matrix, or under the delta rule a row of it.
            if a.part == LinearAttendPart::Results {
                let others: u64 = (0..a.chunks).sum();
                let by = if a.delta { a.key } else { 1 };
                sum.recurrences += others * by * a.heads * a.key * a.value * dims[0];
            }
        }
        KernelSpec::Scan(k) if k.factors => {
            // the next state, and the derivative with respect to the factor
            let products = if k.form == ScanForm::Backward { 2 } else { 1 };
            sum.recurrences = products * k.cols * dims[0] * dims[1];
            if matches!(k.form, ScanForm::Whole | ScanForm::Backward) {
                let others: u64 = (0..k.chunks).sum();
                sum.recurrences += others * k.cols * dims[0];
            }
        }
        _ => {}
    }
    sum
}

impl Device for Counting {
    fn name(&self) -> String {
        "counting".into()
    }
    fn launch(&mut self, kernel: usize, operands: &[Words], dims: &[u64], coeffs: &[f64]) {
        let spec = &self.specs[kernel];
        let counted = launched(spec, dims);
        let said = spec.signature().work;
        assert_eq!(said.contractions.at(dims), Some(counted.contractions));
        assert_eq!(said.attention.at(dims), Some(counted.attention));
        assert_eq!(said.recurrences.at(dims), Some(counted.recurrences));
        self.seen.borrow_mut().push(counted);
        self.inner.launch(kernel, operands, dims, coeffs);
    }
}

/// A library model made small, with another memory policy or precision where one is given.
fn small(name: &str, train: &str) -> (Manifest, Cost) {
    let (_, manifest, cost) = built_small(name, train);
    (manifest, cost)
}

fn built_small(name: &str, train: &str) -> (Built, Manifest, Cost) {
    let mut text = shipped::text(name).to_string();
    for (from, to) in [
        ("width: 256", "width: 16"),
        ("width: 128", "width: 16"),
        ("hidden: 704", "hidden: 20"),
        ("hidden: 352", "hidden: 20"),
        ("context: 256", "context: 12"),
        ("for 6 steps", "for 4 steps"),
        ("batch 8", "batch 2"),
        ("batch 4", "batch 2"),
        ("batch 64", "batch 2"),
        ("image: 28, patch: 7", "image: [12, 16], patch: 4"),
        ("width: 64", "width: 16"),
    ] {
        text = text.replace(from, to);
    }
    let at = text.find("  optimizer").expect("a train block");
    text.insert_str(at, train);
    let built = built(&text);
    assert_eq!(built.config.context, CONTEXT, "{name}");
    let manifest = build_manifest(&built, &text, options()).unwrap().manifest;
    let cost = cost(&built, &manifest.program, options()).unwrap();
    (built, manifest, cost)
}

/// A program that counts.
struct Counted {
    x: Executor,
    seen: Seen,
}

impl Counted {
    fn new(m: &Manifest) -> Counted {
        let seen = Seen::default();
        let device = Counting::new(&m.program.kernels, seen.clone());
        let artifact = Artifact::in_memory(m.clone()).unwrap();
        let mut x = Executor::new(&artifact, Box::new(device)).unwrap();
        x.initialise(3);
        Counted { x, seen }
    }

    /// What a run of the gradient does when this number of steps is drawn; launches behind other steps are passed over.
    fn drawn(&mut self, input: &str, number: i32, at: Bindings) -> Operations {
        self.seen.borrow_mut().clear();
        let (x, y) = (tokens(at, 256, 1), tokens(at, 256, 5));
        let (number, key) = ([number], [1]);
        let given = [
            (noise::KEY, &key[..]),
            ("tokens", &x[..]),
            ("targets", &y[..]),
            (input, &number[..]),
        ];
        let given = given.map(|(name, values)| (name, Value::I32(values)));
        self.x.run("grad", at, &given, &[]).unwrap();
        let seen = self.seen.borrow();
        seen.iter().fold(Operations::default(), |sum, o| sum + *o)
    }

    /// What each launch of a run did, with its site.
    fn run(&mut self, entry: &str, at: Bindings) -> Vec<(String, Operations)> {
        self.seen.borrow_mut().clear();
        let vocab = self.x.manifest().model.vocab.min(256);
        let inputs = self.x.manifest().program.entries[entry].inputs.clone();
        let count = |io: &Io| Size::of(&io.shape).unwrap().at(at).unwrap() as usize;
        let (t, numbers) = (
            tokens(at, vocab, 1),
            vec![0.5; 16 * (at.batch * at.seq) as usize],
        );
        let given = inputs.iter().map(|io| match io.dtype {
            DType::I32 => (io.name.as_str(), Value::I32(&t[..count(io)])),
            _ => (io.name.as_str(), Value::F32(&numbers[..count(io)])),
        });
        let given: Vec<_> = given.collect();
        self.x.run(entry, at, &given, &[]).unwrap();
        let program = &self.x.manifest().program;
        let instrs = &program.entries[entry].instrs;
        let seen = self.seen.borrow();
        assert_eq!(instrs.len(), seen.len());
        let sites = instrs.iter().map(|i| program.site(i).to_string());
        sites.zip(seen.iter().copied()).collect()
    }
}

fn sum(launches: &[(String, Operations)], wanted: impl Fn(&str) -> bool) -> Operations {
    let chosen = launches.iter().filter(|(site, _)| wanted(site));
    chosen.fold(Operations::default(), |sum, (_, o)| sum + *o)
}

/// Evaluations by field: the distinct `[evolve.]step.k.eval.i.field` at which kernels ran.
fn evaluations(launches: &[(String, Operations)]) -> BTreeMap<String, u64> {
    let mut found: Vec<(String, String)> = Vec::new();
    for (site, _) in launches {
        let Some((before, after)) = site.split_once("eval.") else {
            continue;
        };
        let (number, path) = after.split_once('.').expect("a field");
        let field = path.split('.').next().expect("a name");
        let key = (format!("{before}{number}"), field.to_string());
        if !found.contains(&key) {
            found.push(key);
        }
    }
    let mut by_field = BTreeMap::new();
    for (_, field) in found {
        *by_field.entry(field).or_insert(0) += 1;
    }
    by_field
}

/// Bytes of the arena up to the last one that a launch reaches, in whole cache lines.
fn high_water(m: &Manifest, entry: &str) -> u64 {
    let e = &m.program.entries[entry];
    let mut high = 0;
    for i in &e.instrs {
        let spec = &m.program.kernels[i.kernel as usize].spec;
        let dims: Vec<u64> = i
            .dims
            .iter()
            .map(|d| d.at(e.maxima.longest()).unwrap())
            .collect();
        let signature = spec.signature();
        for (o, access) in i.operands.iter().zip(&signature.operands) {
            if o.slot == Slot::Arena {
                high = high.max(o.offset + 4 * access.words(&dims).unwrap());
            }
        }
    }
    high.next_multiple_of(64)
}

/// Bytes by which the places of new keys and values move on with each token.
fn kept_per_token(m: &Manifest) -> u64 {
    let operands = m.program.entries[&EntryId::Decode]
        .instrs
        .iter()
        .flat_map(|i| &i.operands);
    let kept = operands.filter(|o| o.slot == Slot::Cache && o.stride > 0);
    let places: BTreeMap<u64, u64> = kept.map(|o| (o.offset, o.stride)).collect();
    places.values().sum()
}

/// Of so many sequences.
fn times(n: u64, o: Operations) -> Operations {
    Operations {
        contractions: n * o.contractions,
        attention: n * o.attention,
        recurrences: n * o.recurrences,
    }
}

fn check(name: &str, train: &str) -> Cost {
    let (m, c) = small(name, train);
    let mut x = Counted::new(&m);
    let batch = c.batch;
    let at = Bindings::new(batch, CONTEXT);
    assert_eq!(m.program.maxima.longest(), at, "{name}");
    let forward = x.run("forward", at);
    assert_eq!(
        sum(&forward, |_| true),
        times(batch, c.forward),
        "{name}: forward"
    );

    // Evaluations of fields, of each evolve's sum.
    let mut printed: BTreeMap<String, u64> = BTreeMap::new();
    for (field, n) in c.evolves.iter().flat_map(|e| &e.fields) {
        *printed.entry(field.clone()).or_default() += n;
    }
    assert_eq!(evaluations(&forward), printed, "{name}: evaluations");
    assert_eq!(printed.values().sum::<u64>(), c.evaluations(), "{name}");

    let grad = x.run("grad", at);
    let own = c.chosen().unwrap();
    let again = |site: &str| site.contains("replay.");
    let backward = |site: &str| site.ends_with("backward");
    assert_eq!(
        sum(&grad, again),
        times(batch, own.again),
        "{name}: computed again"
    );
    assert_eq!(
        sum(&grad, backward),
        times(batch, c.backward),
        "{name}: backward"
    );
    assert_eq!(sum(&grad, |_| true), own.training, "{name}: training");
    assert_eq!(
        own.activations,
        Some(high_water(&m, "grad")),
        "{name}: arena"
    );
    assert_eq!(
        m.program.entries.contains_key(&EntryId::Decode),
        c.decode.is_some(),
        "{name}"
    );
    if let Some(d) = c.decode {
        x.run("prepare", Bindings::new(1, CONTEXT));
        let read = sum(&x.run("decode", Bindings::new(1, CONTEXT)), |_| true);
        assert_eq!(read, c.forward, "{name}: prefill");
        let one = |past| Bindings::new(1, 1).after(past);
        assert_eq!(sum(&x.run("decode", one(0)), |_| true), d.first, "{name}");
        let last = sum(&x.run("decode", one(CONTEXT - 1)), |_| true);
        assert_eq!(last, d.last, "{name}: the last token");
        assert_eq!(
            d.bytes_per_token,
            kept_per_token(&m),
            "{name}: keys and values"
        );
        // Each kept matrix is 12 rows of 16 columns, whole cache lines.
        assert_eq!(c.cache_bytes, d.bytes_per_token * CONTEXT, "{name}");
    }
    c
}

/// Every kind of system: what is printed is what is done.
#[test]
fn costs_are_what_the_program_does() {
    for name in [
        "prenorm",
        "macaron",
        "rk4_layer",
        "iiet",
        "pcformer_layer",
        "parallel_layer",
        "encoder_masked",
        "ab2_layer",
        "gpt",
        "mixtral",
        "vit",
    ] {
        check(name, "");
    }
}

/// With every number of steps that can be drawn, what is said to be computed is what is launched; and the means are those over the law.
#[test]
fn costs_of_drawn_numbers_of_steps_are_what_the_program_does() {
    const MOST: u64 = 12;
    for train in ["", "  memory revolve(slots: 3)\n"] {
        let (built, m, c) = built_small("recurrent_depth", train);
        let (mut x, at) = (Counted::new(&m), Bindings::new(c.batch, CONTEXT));
        let policy = Policy {
            precision: Precision::F32,
            memory: c.own,
            weights: None,
            copied: false,
        };
        let graph = run_graph_passes(&built.grad, policy).unwrap();
        let counted = |draw| {
            let computed = computed(&graph, &[draw]);
            count_mean(&graph, at, |_| true, |_| RowShare::ALL, &computed)
        };
        let each: Vec<Operations> = (1..=MOST)
            .map(|n| {
                let all = counted(Draw::of("core", n));
                let run = x.drawn("core.steps", n as i32, at);
                assert_eq!(all, run, "{n} steps: {train}");
                all
            })
            .collect();
        assert!(each[0].flops() < each[MOST as usize - 1].flops());
        let own = c.chosen().unwrap();
        let most = c.forward + c.backward + own.again;
        // Of the most steps that are computed, only the last four are differentiated.
        assert!(each[MOST as usize - 1].flops() < c.batch * most.flops());
        let above = exceeding(4, MOST - 1);
        let chance = |n: usize| above[n - 1] - above.get(n).copied().unwrap_or(0.0);
        let mean: f64 = (1..=MOST as usize)
            .map(|n| chance(n) * each[n - 1].flops() as f64)
            .sum();
        let off = own.training.flops() as f64 - mean;
        assert!(off.abs() <= 4.0, "{train}: {mean} {:?}", own.training);
        let drawn = c.drawn.unwrap();
        assert!(drawn.forward.flops() < c.forward.flops());
        assert!(drawn.backward.flops() < c.backward.flops());
        assert!(!c.at_most());
    }
}

/// Matrices that are made of parameters and a time are made once for a micro-batch, and before a text is read.
#[test]
fn costs_of_what_is_made_of_parameters_are_those_of_a_micro_batch() {
    let (_, m, c) = built_small("diffeqformer", "");
    let mut x = Counted::new(&m);
    let grad = x.run("grad", Bindings::new(c.batch, CONTEXT));
    let all = sum(&grad, |_| true);
    assert!(c.batch > 1);
    assert_eq!(all, c.training());
    let of_one = sum(&x.run("grad", Bindings::new(1, CONTEXT)), |_| true);
    assert!(all.flops() < c.batch * of_one.flops());
    let close = c.batch * (c.forward + c.backward).flops();
    assert!(
        close.abs_diff(all.flops()) <= 8 * c.batch,
        "{close} {all:?}"
    );
    x.run("prepare", Bindings::new(1, CONTEXT));
    let read = sum(&x.run("decode", Bindings::new(1, CONTEXT)), |_| true);
    assert_eq!(read, c.prefill);
}

/// Images are counted whole, and the text says so.
#[test]
fn costs_of_images_are_those_of_whole_images() {
    let c = check("vit", "");
    // 12 patches of 16 numbers to 16 columns; four steps of q, k, v, o, up and down; 10 classes of the mean.
    let (w, n) = (16, CONTEXT);
    let steps = 4 * (4 * w * w + 2 * 4 * w * w) * n;
    assert_eq!(c.forward.contractions, n * 16 * w + steps + 10 * w);
    assert_eq!(c.forward.attention, 4 * 2 * w * n * n);
    assert_eq!(c.per_unit(c.forward), c.forward.flops() as f64);
    assert_eq!(c.per_token(c.forward), c.forward.flops() as f64 / 12.0);
    let mut page = Page::new(Screen::of(90, false));
    text::write(&mut page, &c);
    let said = page.finish();
    for wanted in [
        "FLOP per image of 12 patches",
        "Memory, 2 images of 12 patches",
        "FLOP per image, training",
    ] {
        assert!(said.contains(wanted), "{said}");
    }
    assert!(!said.contains("token"), "{said}");
    assert_eq!(json::json(&c)["of"], "patches");
}

#[test]
fn costs_in_bf16_and_with_recomputation() {
    let stored = check("rk4_layer", "");
    for (train, slots) in [
        ("  precision bf16\n", None),
        ("  memory revolve(slots: 2)\n", Some(2)),
        ("  memory revolve(slots: 3)\n  precision bf16\n", Some(3)),
    ] {
        let c = check("rk4_layer", train);
        assert_eq!(
            (c.forward, c.backward),
            (stored.forward, stored.backward),
            "{train}"
        );
        let Some(slots) = slots else { continue };
        let own = c.chosen().unwrap();
        assert_eq!(own.memory, Memory::Revolve { slots });
        // All steps are alike: the forward pass outside of them has the logits alone.
        let logits = Operations {
            contractions: CONTEXT * 16 * 256,
            ..Operations::default()
        };
        let steps = c.evolves[0].steps;
        let one = |n: u64| (c.forward.contractions - logits.contractions) / steps * n;
        // The result of a step is not computed where the step is reversed next: its last matrix is left out.
        let last = (steps - 1) * CONTEXT * 20 * 16;
        assert_eq!(own.again.contractions, one(own.replayed) - last, "{train}");
        // The policy that is not the model's own is planned as if it were.
        let Some(twin) = stored.policies.iter().find(|p| p.memory == own.memory) else {
            continue;
        };
        assert_eq!(twin.again, own.again);
        assert_eq!(twin.activations, own.activations);
    }
    check("macaron", "  memory revolve(slots: 2)\n");
}

/// Hand counts for a pre-norm decoder: 2·(4 w² + 3 w·hidden) per layer and token, logits, and attention's triangle.
#[test]
fn costs_of_prenorm_in_closed_form() {
    let (_, c) = small("prenorm", "");
    let (layers, w, hidden, vocab, s) = (c.evolves[0].steps, 16, 20, 256, CONTEXT);
    let contractions = s * (layers * (4 * w * w + 3 * w * hidden) + w * vocab);
    let pairs = s * (s + 1) / 2;
    assert_eq!(
        c.forward,
        Operations {
            contractions,
            attention: layers * 2 * w * pairs,
            recurrences: 0,
        }
    );
    // Each product has two gradients.
    assert_eq!(
        c.backward,
        Operations {
            contractions: 2 * contractions,
            attention: layers * 5 * w * pairs,
            recurrences: 0,
        }
    );
    let d = c.decode.unwrap();
    assert_eq!(d.bytes_per_token, layers * 2 * w * 4);
    assert_eq!(d.last.attention, layers * 2 * w * s);
    assert_eq!((c.evaluations(), c.depth()), (2 * layers, 2 * layers));
    let shown = json::json(&c);
    let flops = 2.0 * (contractions + layers * 2 * w * pairs) as f64 / s as f64;
    assert_eq!(shown["flops_per_token"]["forward"], flops);
    assert_eq!(c.parameters.embedding, vocab * w);
}

/// What can run at the same time: both halves of a parallel splitting, not the steps of one.
#[test]
fn chains_are_as_long_as_they_must_be() {
    let depth = |name: &str| {
        let c = small(name, "").1;
        let w = c.evolves[0].each[0].1.clone();
        (w.depth, w.evaluations)
    };
    assert_eq!(depth("prenorm"), (2, 2));
    assert_eq!(depth("macaron"), (3, 3));
    // Two Heun steps side by side.
    assert_eq!(depth("parallel_layer"), (2, 4));
    // Two fields in four stages, one after the other in each.
    assert_eq!(depth("rk4_layer"), (8, 8));
    assert_eq!(depth("pcformer_layer"), (6, 6));
}

/// Linear attention takes as long as a text is long, and keeps as much of a long text as of a short one.
#[test]
fn costs_of_linear_attention_grow_with_the_text() {
    recurrent_costs("", 1);
    // The delta rule walks over its matrices once for what they miss of the values, and once to be read.
    recurrent_costs(", delta: linear(2) |> sigmoid", 2);
}

/// What chunks leave, and what is joined of it, is counted as it is launched.
#[test]
fn costs_of_chunks_are_counted() {
    for (mixer, more) in [
        ("scan(linear |> sigmoid, linear, chunks: CHUNKS)", true),
        ("cumsum(chunks: CHUNKS)", false),
        ("gla(heads: 2, chunks: CHUNKS)", true),
        ("gated_delta_net(heads: 2, chunks: CHUNKS)", true),
    ] {
        let of = |chunks| counted(&mixer.replace("CHUNKS", chunks), CONTEXT).1;
        let [whole, in_chunks] = ["1", "5"].map(of);
        for (whole, in_chunks) in [
            (whole.forward, in_chunks.forward),
            (whole.backward, in_chunks.backward),
        ] {
            assert_eq!(in_chunks.recurrences > whole.recurrences, more, "{mixer}");
            assert_eq!(in_chunks.contractions, whole.contractions, "{mixer}");
        }
        assert_eq!(
            whole.decode.map(|d| d.last),
            in_chunks.decode.map(|d| d.last)
        );
    }
}

/// A model of one mixer: its plan and its costs, which are those of its launches.
fn counted(mixer: &str, context: u64) -> (Manifest, Cost) {
    let (manifest, cost) = planned(mixer, context);
    let mut x = Counted::new(&manifest);
    let at = Bindings::new(cost.batch, context);
    let forward = sum(&x.run("forward", at), |_| true);
    assert_eq!(forward, times(cost.batch, cost.forward), "{mixer}");
    let backward = sum(&x.run("grad", at), |site| site.ends_with("backward"));
    assert_eq!(backward, times(cost.batch, cost.backward), "{mixer}");
    (manifest, cost)
}

fn planned(mixer: &str, context: u64) -> (Manifest, Cost) {
    let text = format!(
        "field mix = rmsnorm |> {mixer}\n\
         model m {{\n  input tokens(vocab: 256, context: {context})\n  embed learned(width: 16)\n  \
         evolve euler(mix) for 2 steps\n  output logits\n}}\n"
    );
    let built = built(&text);
    let manifest = build_manifest(&built, &text, options()).unwrap().manifest;
    let cost = cost(&built, &manifest.program, options()).unwrap();
    (manifest, cost)
}

/// Linear attention with these arguments, which walks over its matrices so many times.
fn recurrent_costs(arguments: &str, walks: u64) {
    let mixer = format!(
        "linear_attention(linear(8), linear(8), linear, heads: 2, decay: linear(8) |> sigmoid{arguments})"
    );
    let short = counted(&mixer, CONTEXT).1;

    // A matrix of 4 × 8 for each of two heads: faded, added to, read.
    let (tokens, elements) = (2 * CONTEXT, 2 * 4 * 8);
    assert_eq!(short.forward.recurrences, walks * tokens * 3 * elements);
    // The same for the gradients of queries, keys and values; two for each column of the keys for that of the decay.
    let each = 3 * 3 * elements + 2 * 8;
    assert_eq!(short.backward.recurrences, walks * tokens * each);

    let long = planned(&mixer, 2 * CONTEXT).1;
    assert_eq!(long.forward, times(2, short.forward));
    assert_eq!(long.backward, times(2, short.backward));
    let [short, long] = [short, long].map(|c| c.decode.unwrap());
    assert_eq!((short.first, short.bytes_per_token), (long.last, 0));
    assert_eq!(
        [short, long].map(|d| d.carried_bytes),
        [walks * 4 * 2 * elements; 2]
    );
}

/// What recurrences and short convolutions keep of a text does not grow with it: of a convolution, as many rows as it reaches back.
#[test]
fn what_recurrences_keep_does_not_grow_with_the_text() {
    let decode = |mix: &str, context: u64| {
        let decode = planned(mix, context).1.decode.unwrap();
        (decode.bytes_per_token, decode.carried_bytes)
    };
    let (steps, bytes, width) = (2, 4, 16);
    for (mix, kept) in [
        ("conv(kernel: 4, causal, dilation: 2)", 6 * width),
        ("conv(kernel: 3, causal, depthwise)", 2 * width),
        ("concat(id, shift(by: 5)) |> linear", 5 * width),
        ("selective_scan(hidden: 8)", 3 * 8 + 8),
        // Three convolutions, and two matrices of 8 × 8 for each of two heads.
        ("gated_delta_net(heads: 2)", 3 * 3 * width + 2 * 2 * 64),
    ] {
        for context in [CONTEXT, 2 * CONTEXT] {
            let wanted = (0, steps * bytes * kept);
            assert_eq!(decode(mix, context), wanted, "{mix}");
        }
    }
}
