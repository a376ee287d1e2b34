//! Every launch of every model of the library as the driver of a GPU would be told, without a card.

mod harness;

use harness::models::{in_bf16, library, planned};
use odec_program::gpu::{DYNAMIC_LIMIT, MAX_BLOCKS, SHARED_LIMIT, WARP, shape, tensor};
use odec_program::manifest::{Manifest, named};
use odec_program::{Bindings, Coeff, DECODE, DType, Entry, Instr, KernelSpec, Piece, Target};
use odec_runtime::cuda::recording::Recording;
use odec_runtime::cuda::{CudaDevice, CudaError};
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

/// Runs an entry on the recording driver, with tokens of zero, and all scalars the same.
fn run(x: &mut Executor, name: &str, entry: &Entry, at: Bindings, scalar: f64) {
    let ids = |io: &odec_program::Io| -> Vec<i32> {
        let elements: u64 = io.shape.iter().map(|d| d.at(at)).product();
        vec![0; elements as usize]
    };
    let given: Vec<(&str, Vec<i32>)> = entry
        .inputs
        .iter()
        .map(|io| (io.name.as_str(), ids(io)))
        .collect();
    assert!(entry.inputs.iter().all(|io| io.dtype == DType::I32));
    let inputs: Vec<(&str, Value)> = given.iter().map(|(n, v)| (*n, Value::I32(v))).collect();
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
            let whole = entry.maxima;
            let mut sizes = vec![whole, Bindings::new(1, 3)];
            if entry_name == DECODE {
                sizes = vec![whole, Bindings::new(1, 1).after(whole.seq - 1)];
            }
            for (n, at) in (0..3).flat_map(|n| sizes.iter().map(move |at| (n, *at))) {
                recording.launches.borrow_mut().clear();
                let scalar = f64::from(n) + 0.5;
                run(&mut x, entry_name, entry, at, scalar);
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
    let at = entries["grad"].maxima;
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
        run(&mut x, DECODE, &entries[DECODE], at, 0.0);
    }
    let all = recording.made.get();
    assert_eq!((all.graphs, all.replays), (3, 27));
    // Where keys and values go, how many there are, and the angles of this position.
    let updates = all.updates - training.updates;
    let nodes = entries[DECODE].instrs.len() as u64;
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
    run(&mut x, "grad", entry, entry.maxima, 0.0);
    let (told, permitted) = (recording.launches.borrow(), recording.dynamic.borrow());
    let mut widths = BTreeMap::new();
    for (l, i) in told.iter().zip(&entry.instrs) {
        let spec = &m.program.kernels[l.function].spec;
        assert_eq!(l.shape.dynamic(), permitted[l.function]);
        let KernelSpec::Contract(c) = spec else {
            // Five tiles of 64 rows, heads of 64 columns.
            let forward = matches!(spec, KernelSpec::Attend(_));
            assert_eq!(l.shape.shared == 5 * 64 * 64 * 2, forward);
            assert!(l.shape.dynamic() == 0 && l.shape.shared <= SHARED_LIMIT);
            continue;
        };
        assert!(
            tensor::warpgroup::runs(c, Target::Sm90a),
            "{}",
            spec.symbol()
        );
        let dims: Vec<u64> = i.dims.iter().map(|d| d.at(entry.maxima).unwrap()).collect();
        // 128 rows, and 64 columns of few, tiles 64 deep of two bytes; two blocks share 227 KiB.
        let few = c.a_transposed || dims[1] <= 64;
        let (width, tiles) = if few { (64, 4) } else { (128, 3) };
        let bytes = tiles * (128 + width) * 64 * 2;
        assert!(SHARED_LIMIT < bytes && 2 * bytes <= DYNAMIC_LIMIT);
        let blocks = dims[0].div_ceil(128) * dims[1].div_ceil(width);
        assert_eq!((l.shape.blocks, l.shape.threads), (blocks, 256));
        assert_eq!((l.shape.shared, l.shape.dynamic()), (bytes, bytes));
        *widths.entry(width).or_insert(0) += 1;
    }
    assert!(widths[&64] > 10 && widths[&128] > 10, "{widths:?}");
}

#[test]
fn too_little_memory_is_said_before_anything_is_reserved() {
    let (_, m) = library(Target::Sm80).swap_remove(0);
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
    let (_, m) = library(Target::Portable).swap_remove(0);
    let recording = Recording::with(u64::MAX);
    let error = CudaDevice::new(recording, Target::Sm80, &code(&m), &m.program.kernels, 0)
        .map(drop)
        .unwrap_err();
    assert!(error.to_string().contains("packing"), "{error}");
}
