//! Every launch of every model of the library as the driver of a GPU would be told, without a card.

use crate::harness::models::{in_bf16, library, planned};
use odec_program::gpu::tensor::map::TensorMap;
use odec_program::gpu::{DYNAMIC_LIMIT, MAX_BLOCKS, SHARED_LIMIT, WARP, shape, tensor};
use odec_program::kernel::Layout;
use odec_program::manifest::{Manifest, named};
use odec_program::{Bindings, Coeff, DType, Entry, EntryId, Instr, Io, KernelSpec, Piece, Target};
use odec_runtime::artifact::check::{io_bytes, memory_bytes};
use odec_runtime::device::cuda::plan::Mapped;
use odec_runtime::device::cuda::recording::{Recorded, Recording};
use odec_runtime::device::cuda::{CudaDevice, CudaError};
use odec_runtime::{Artifact, Executor, Value};
use std::collections::BTreeMap;

/// Text with a head for each kernel, as far as the recording driver looks.
fn code(m: &Manifest) -> String {
    let entries = m
        .program
        .kernels
        .iter()
        .map(|k| format!(".entry {}(\n", k.symbol));
    entries.collect()
}

/// Runs an entry on the recording driver, with inputs of zero, and all scalars the same.
fn run(x: &mut Executor, name: &str, entry: &Entry, at: Bindings, scalar: f64) {
    let elements = |io: &Io| io.shape.iter().map(|d| d.at(at)).product::<u64>() as usize;
    let most = entry.inputs.iter().map(elements).max().unwrap_or(0);
    let (tokens, numbers) = (vec![0; most], vec![0.0; most]);
    let given = entry.inputs.iter().map(|io| match io.dtype {
        DType::I32 => (io.name.as_str(), Value::I32(&tokens[..elements(io)])),
        _ => (io.name.as_str(), Value::F32(&numbers[..elements(io)])),
    });
    let inputs: Vec<(&str, Value)> = given.collect();
    let scalars = [
        named::LR,
        named::BIAS1,
        named::BIAS2,
        named::KEEP,
        named::SHARE,
    ]
    .map(|n| (n, scalar));
    x.run(name, at, &inputs, &scalars)
        .unwrap_or_else(|e| panic!("{name}: {e}"));
}

/// A program on a card that only writes down what it is told.
fn recorded(m: &Manifest, target: Target) -> (Executor, Recording) {
    let artifact = Artifact::in_memory(m.clone()).unwrap();
    let recording = Recording::with(u64::MAX);
    let device =
        CudaDevice::new(recording.clone(), target, &code(m), &m.program.kernels, 0).unwrap();
    let x = Executor::new(&artifact, Box::new(device)).unwrap();
    (x, recording)
}

/// Each entry is run three times, so that a graph is made of its launches and replayed: all are what a card is told without
/// one.
#[test]
fn every_launch_is_one_that_a_card_takes() {
    let mut launches = 0;
    for (name, m) in library(Target::Sm80) {
        let (mut x, recording) = recorded(&m, Target::Sm80);
        // Where each slot is, as the first launch says.
        let mut slots = BTreeMap::new();
        for (entry_name, entry) in &m.program.entries {
            let whole = entry.maxima.longest();
            let few = Bindings::new(1, 3).beside(whole.source.min(2));
            let mut sizes = vec![whole, few];
            if *entry_name == EntryId::Decode {
                sizes = vec![whole, Bindings::new(1, 1).after(whole.seq - 1)];
            }
            if *entry_name == EntryId::Extend {
                let most = Bindings::new(entry.maxima.batch, 1);
                sizes = vec![most, most.after(whole.seq - 1)];
            }
            for (n, at) in (0..3).flat_map(|n| sizes.iter().map(move |at| (n, *at))) {
                recording.launches.borrow_mut().clear();
                let scalar = f64::from(n) + 0.5;
                run(&mut x, entry_name.as_str(), entry, at, scalar);
                // All texts begin, whatever `past` says, and windows keep nothing before them.
                let at = match (*entry_name, entry.maxima.kept) {
                    (EntryId::Extend, Some(_)) => at.dropping(at.past),
                    _ => at,
                };
                let told = recording.launches.borrow();
                assert_eq!(told.len(), entry.instrs.len(), "{name}, {entry_name}");
                for (l, i) in told.iter().zip(&entry.instrs) {
                    let spec = &m.program.kernels[l.function].spec;
                    assert_eq!(l.function, i.kernel as usize);
                    let dims: Vec<u64> = i.dims.iter().map(|d| d.at(at).unwrap()).collect();
                    let (operands, count) = (i.operands.len(), l.arguments.len());
                    assert_eq!(count, operands + dims.len() + i.coeffs.len());
                    let (addresses, rest) = l.arguments.split_at(operands);
                    assert_eq!(rest[..dims.len()], dims);
                    let coeffs = i.coeffs.iter().map(|c| match c {
                        Coeff::Value(x) => *x,
                        Coeff::Inverse(s) => 1.0 / s.at(at).unwrap() as f64,
                        Coeff::Named(_) => scalar,
                    });
                    let coeffs: Vec<u64> = coeffs.map(f64::to_bits).collect();
                    assert_eq!(rest[dims.len()..], coeffs);
                    for (o, address) in i.operands.iter().zip(addresses) {
                        let start = Piece::ALL.start(o, at).unwrap();
                        let slot = slots.entry(format!("{entry_name} {:?}", o.slot));
                        assert_eq!(*slot.or_insert(address - start), address - start);
                    }
                    assert_eq!(Some(l.shape), shape(spec, &dims, Target::Sm80));
                    assert!((1..=MAX_BLOCKS).contains(&l.shape.blocks));
                    assert!(l.shape.threads <= 1024 && l.shape.threads.is_multiple_of(WARP));
                    assert!(l.shape.shared <= SHARED_LIMIT, "{name}: {}", spec.symbol());
                    launches += 1;
                }
            }
        }
    }
    assert!(launches > 10_000, "{launches}");
}

/// Steps with their own learning rates, and tokens after more and more others: a graph for each entry, made once.
#[test]
fn one_graph_for_all_steps_and_one_for_all_tokens() {
    let m = planned("prenorm", &[("for 6 steps", "for 2 steps")], Target::Sm90a);
    let (mut x, recording) = recorded(&m, Target::Sm90a);
    let entries = &m.program.entries;
    let at = entries["grad"].maxima.longest();
    for step in 0..10 {
        run(&mut x, "grad", &entries["grad"], at, 0.0);
        let one = Bindings::new(1, 1);
        run(
            &mut x,
            "update",
            &entries["update"],
            one,
            1.0 + f64::from(step),
        );
    }
    let training = recording.made.get();
    assert_eq!((training.graphs, training.replays), (2, 18));
    // Nothing of a gradient changes from step to step; of an update, no more nodes than there are with scalars.
    let named = |i: &Instr| i.coeffs.iter().any(|c| matches!(c, Coeff::Named(_)));
    let told = entries["update"].instrs.iter().filter(|i| named(i)).count() as u64;
    assert_eq!(training.updates, 8 * told);
    for past in 0..10 {
        let at = Bindings::new(1, 1).after(past);
        run(&mut x, "decode", &entries["decode"], at, 0.0);
    }
    let all = recording.made.get();
    assert_eq!((all.graphs, all.replays), (3, 27));
    // Where keys and values go, how many there are, and the angles of this position.
    let updates = all.updates - training.updates;
    let nodes = entries["decode"].instrs.len() as u64;
    assert!(
        updates > 0 && updates < 8 * nodes / 2,
        "{updates} of {nodes} nodes"
    );
}

/// Contractions by warpgroups: the tiles, and shared memory beyond what kernels get without asking, for which each is loaded
/// with the permission.
#[test]
fn warpgroups_ask_for_their_shared_memory() {
    let m = planned(
        "prenorm",
        &in_bf16(&[("for 6 steps", "for 2 steps")]),
        Target::Sm90a,
    );
    let (mut x, recording) = recorded(&m, Target::Sm90a);
    let entry = &m.program.entries["grad"];
    run(&mut x, "grad", entry, entry.maxima.longest(), 0.0);
    // Parameters are rounded first.
    let rounds = m.program.entries["round"].instrs.len();
    recording.launches.borrow_mut().drain(..rounds);
    let (told, permitted) = (recording.launches.borrow(), recording.dynamic.borrow());
    let mut widths = BTreeMap::new();
    for (l, i) in told.iter().zip(&entry.instrs) {
        let spec = &m.program.kernels[l.function].spec;
        assert_eq!(l.shape.dynamic(), permitted[l.function]);
        let KernelSpec::Contract(c) = spec else {
            // Five tiles of 64 rows, heads of 64 columns, and behind them four mbarriers; backward, six tiles, and behind them two
            // numbers for each of 64 rows, twice, and an mbarrier.
            let forward = matches!(spec, KernelSpec::Attend(_));
            let backward = matches!(spec, KernelSpec::AttendBackward(_));
            let tile = 64 * 64 * 2;
            let bytes = 6 * tile + 2 * 2 * 64 * 4 + 16;
            assert_eq!(l.shape.shared == 5 * tile + 4 * 8, forward);
            assert_eq!(l.shape.shared == bytes, backward);
            assert_eq!(l.shape.dynamic(), if backward { bytes } else { 0 });
            continue;
        };
        assert!(
            tensor::warpgroup::runs(c, Target::Sm90a),
            "{}",
            spec.symbol()
        );
        let dims: Vec<u64> = i
            .dims
            .iter()
            .map(|d| d.at(entry.maxima.longest()).unwrap())
            .collect();
        // 128 rows, and as many columns as the blocking says, tiles 64 deep of two bytes; two blocks share 227 KiB, but one has all for the widest.
        let width = u64::from(c.blocking.nr);
        let (tiles, blocks) = match width {
            64 => (4, 2),
            128 => (3, 2),
            _ => (4, 1),
        };
        let bytes = tiles * ((128 + width) * 64 * 2 + 1024);
        assert!(SHARED_LIMIT < bytes && blocks * bytes <= DYNAMIC_LIMIT);
        // Gradients of weights of few tiles are summed in parts.
        let parts = u64::from(c.parts.0);
        assert_eq!(parts > 1, c.a_transposed, "{}", spec.symbol());
        let blocks = dims[0].div_ceil(128) * dims[1].div_ceil(width) * parts;
        assert_eq!((l.shape.blocks, l.shape.threads), (blocks, 256));
        assert_eq!((l.shape.shared, l.shape.dynamic()), (bytes, bytes));
        *widths.entry(width).or_insert(0) += 1;
    }
    assert!(widths[&128] > 10 && widths[&256] > 3, "{widths:?}");
}

/// A map as CUDA's driver documents what it takes (`cuTensorMapEncodeTiled`), of what an operand is.
fn assert_map(l: &Recorded, n: usize, operand: usize, extents: &[u64], tile: &[u64]) {
    let mut below = 2;
    for (stride, extent) in l.maps[n].map.strides.iter().zip(extents) {
        // One row after the other.
        below *= extent;
        assert_eq!(*stride, below);
    }
    assert_box(l, n, operand, extents, tile);
}

/// The same, whatever its strides are: drivers take panels that lie side by side, though the header asks for strides that grow.
fn assert_box(l: &Recorded, n: usize, operand: usize, extents: &[u64], tile: &[u64]) {
    let Mapped { address, map } = &l.maps[n];
    assert_eq!(*address, l.arguments[operand]);
    assert!(address.is_multiple_of(16));
    assert_eq!((&map.extents[..], &map.tile[..]), (extents, tile));
    assert_eq!(map.strides.len() + 1, extents.len());
    let driver_takes = |s: &u64| s.is_multiple_of(16) && *s < 1 << 40;
    assert!(map.strides.iter().all(driver_takes));
    assert!(extents.iter().all(|x| (1..=1 << 31).contains(x)));
    assert!(tile.iter().all(|x| (1..=256).contains(x)) && tile[0] * 2 == 128);
}

/// What the driver would not take is said before it is asked.
#[test]
fn maps_that_no_driver_takes_are_refused() {
    let map = |extents: [u64; 2], stride| TensorMap {
        operand: 0,
        extents: extents.into(),
        strides: vec![stride],
        tile: vec![64, 64],
    };
    let said = |map: TensorMap, address| map.refusal(address).unwrap_or_default();
    assert_eq!(said(map([8, 1], 16), 1 << 40), "");
    assert!(said(map([8, 1], 16), (1 << 40) + 8).contains("address"));
    assert!(said(map([12, 1], 24), 0).contains("24 bytes"));
    assert!(said(map([8, 1], 1 << 40), 0).contains("stride"));
    assert_eq!(said(map([8, 1 << 31], 16), 0), "");
    assert!(said(map([8, (1 << 31) + 1], 16), 0).contains("elements"));
    assert!(said(map([8, 0], 16), 0).contains("0 elements"));
}

/// The maps of all launches, and how many there are.
fn assert_maps(m: &Manifest, told: &[Recorded]) -> usize {
    for l in told {
        let spec = &m.program.kernels[l.function].spec;
        let dims = |from: usize, n: usize| l.arguments[from..from + n].to_vec();
        let mut count = 0;
        match spec {
            KernelSpec::Contract(c) => {
                let dims = dims(c.out() + 1, 3);
                let (m, n, k) = (dims[0], dims[1], dims[2]);
                let wide = c.blocking.nr.into();
                // Columns and rows of what lies in memory, rows of a box, and its panels, where rows go across the inner index.
                let a = match c.a_transposed {
                    true => (m, k, 64, Some(2)),
                    false => (k, m, 128, None),
                };
                let b = match c.layout {
                    Layout::Columns => (k, n, wide, None),
                    _ => (n, k, 64, Some(wide / 64)),
                };
                let factors = [(c.a, a), (c.b, b)].repeat(c.factors() / 2);
                for (operand, (of, (cols, rows, tall, panels))) in factors.into_iter().enumerate() {
                    if of != DType::Bf16 || !cols.is_multiple_of(8) {
                        continue;
                    }
                    match panels.filter(|_| cols.is_multiple_of(64)) {
                        Some(panels) => {
                            let extents = [64, rows, cols / 64];
                            assert_eq!(l.maps[count].map.strides, [2 * cols, 128]);
                            assert_box(l, count, operand, &extents, &[64, tall, panels]);
                        }
                        None => assert_map(l, count, operand, &[cols, rows], &[64, tall]),
                    }
                    count += 1;
                }
            }
            KernelSpec::Attend(a) | KernelSpec::AttendCached(a) => {
                let whole = matches!(spec, KernelSpec::Attend(_));
                let dims = dims(if whole { 5 } else { 4 }, 2);
                let (batch, [queries, keys]) = match whole {
                    true => (dims[0], [dims[1]; 2]),
                    false => (1, [dims[0], dims[0] + dims[1]]),
                };
                let of = [(a.heads, queries), (a.kv_heads, keys), (a.kv_heads, keys)];
                for (heads, rows) in of {
                    let extents = [a.head, heads, rows, batch];
                    assert_map(l, count, count, &extents, &[64, 1, 64, 1]);
                    count += 1;
                }
            }
            KernelSpec::AttendBackward(a) => {
                let dims = dims(9, 2);
                let bounded = a.window.is_some() || a.heads > a.kv_heads;
                let tall = if a.head > 64 && bounded { 32 } else { 64 };
                let (queries, keys) = (a.heads, a.kv_heads);
                for (operand, heads) in [(0, queries), (1, keys), (2, keys), (5, queries)] {
                    let extents = [a.head, heads, dims[1], dims[0]];
                    assert_map(l, count, operand, &extents, &[64, 1, tall, 1]);
                    count += 1;
                }
            }
            _ => {}
        }
        assert_eq!(l.maps.len(), count, "{}", spec.symbol());
    }
    told.iter().map(|l| l.maps.len()).sum()
}

/// What comes by tensor maps, and how they are described, of launches and of a graph's nodes: those of a token follow the
/// keys that are kept.
#[test]
fn maps_are_those_of_the_launch() {
    let texts = in_bf16(&[("for 6 steps", "for 2 steps")]);
    let m = planned("prenorm", &texts, Target::Sm90a);
    let (mut x, recording) = recorded(&m, Target::Sm90a);
    let entries = &m.program.entries;
    for at in [entries["grad"].maxima.longest(), Bindings::new(1, 3)] {
        for _ in 0..3 {
            recording.launches.borrow_mut().clear();
            run(&mut x, "grad", &entries["grad"], at, 0.0);
            let maps = assert_maps(&m, &recording.launches.borrow());
            assert!(maps > 40, "{maps}");
        }
    }
    for past in 0..4 {
        recording.launches.borrow_mut().clear();
        let at = Bindings::new(1, 1).after(past);
        run(&mut x, "decode", &entries["decode"], at, 0.0);
        assert!(assert_maps(&m, &recording.launches.borrow()) > 10);
    }
    // Of each sequence the first run was launched one by one.
    let made = recording.made.get();
    assert_eq!((made.graphs, made.replays), (3, 7));
    // Elsewhere threads bring everything.
    let m = planned("prenorm", &texts, Target::Sm80);
    let (mut x, recording) = recorded(&m, Target::Sm80);
    let entry = &m.program.entries["grad"];
    run(&mut x, "grad", entry, entry.maxima.longest(), 0.0);
    assert!(
        recording
            .launches
            .borrow()
            .iter()
            .all(|l| l.maps.is_empty())
    );
}

/// Of a training run's memory, logits that only `forward` has are no part.
#[test]
fn outputs_of_an_entry_are_reserved_when_it_is_first_run() {
    let m = planned("prenorm", &[], Target::Sm90a);
    let (mut x, recording) = recorded(&m, Target::Sm90a);
    let entries = &m.program.entries;
    let logits = io_bytes(
        &entries["forward"].outputs[0],
        entries["forward"].maxima.longest(),
    );
    let logits = logits.expect("it fits");
    let mut reserved_by = |entry: &str| {
        let before = recording.given.get();
        run(&mut x, entry, &entries[entry], Bindings::new(1, 3), 0.0);
        recording.given.get() - before
    };
    let (training, predicting) = (reserved_by("grad"), reserved_by("forward"));
    assert!(
        training < logits && predicting >= logits,
        "{training}, {predicting}, {logits}"
    );
    assert_eq!(reserved_by("forward"), 0);
    // What is given out is what is said to be needed, but for rounding.
    let (given, needed) = (recording.given.get(), memory_bytes(&m));
    assert!(given <= needed + (64 << 10), "{given}, {needed}");
}

#[test]
fn too_little_memory_is_said_before_anything_is_reserved() {
    let m = planned("prenorm", &[], Target::Sm80);
    let recording = Recording::with(1000);
    let error = CudaDevice::new(recording, Target::Sm80, &code(&m), &m.program.kernels, 5000)
        .map(drop)
        .unwrap_err();
    assert!(matches!(
        error,
        CudaError::Memory {
            needed: 5000,
            free: 1000,
            ..
        }
    ));
    let said = error.to_string();
    assert!(
        said.contains("5000 bytes") && said.contains("1000"),
        "{said}"
    );
}

#[test]
fn a_plan_for_a_processor_is_refused() {
    let m = planned("prenorm", &[], Target::Portable);
    let recording = Recording::with(u64::MAX);
    let error = CudaDevice::new(recording, Target::Sm80, &code(&m), &m.program.kernels, 0)
        .map(drop)
        .unwrap_err();
    assert!(error.to_string().contains("packing"), "{error}");
}
