//! Every launch of every model of the library as the driver of a GPU would be told, without a card.

mod harness;

use harness::models::library;
use odec_program::gpu::{MAX_BLOCKS, SHARED_LIMIT, WARP, shape};
use odec_program::manifest::{Manifest, named};
use odec_program::{Bindings, DECODE, DType, Entry, Target};
use odec_runtime::cuda::recording::Recording;
use odec_runtime::cuda::{CudaDevice, CudaError};
use odec_runtime::{Artifact, Executor, Value};

/// Text with a head for each kernel, as far as the recording driver looks.
fn code(m: &Manifest) -> String {
    let entries = m
        .program
        .kernels
        .iter()
        .map(|k| format!(".entry {}(\n", k.symbol));
    entries.collect()
}

/// Runs an entry on the recording driver, with tokens of zero.
fn run(x: &mut Executor, name: &str, entry: &Entry, at: Bindings) {
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
    .map(|n| (n, 1.0));
    x.run(name, at, &inputs, &scalars)
        .unwrap_or_else(|e| panic!("{name}: {e}"));
}

#[test]
fn every_launch_is_one_that_a_card_takes() {
    let mut launches = 0;
    for (name, m) in library(Target::Sm80) {
        let artifact = Artifact::in_memory(m.clone()).unwrap();
        let recording = Recording {
            memory: u64::MAX,
            ..Recording::default()
        };
        let device = CudaDevice::new(recording.clone(), &code(&m), &m.program.kernels, 0).unwrap();
        let mut x = Executor::new(&artifact, Box::new(device)).unwrap();
        for (entry_name, entry) in &m.program.entries {
            let whole = entry.maxima;
            let mut sizes = vec![whole, Bindings::new(1, 3)];
            if entry_name == DECODE {
                sizes = vec![whole, Bindings::new(1, 1).after(whole.seq - 1)];
            }
            for at in sizes {
                recording.launches.borrow_mut().clear();
                run(&mut x, entry_name, entry, at);
                let told = recording.launches.borrow();
                assert_eq!(told.len(), entry.instrs.len(), "{name}, {entry_name}");
                for (l, i) in told.iter().zip(&entry.instrs) {
                    let spec = &m.program.kernels[l.function].spec;
                    assert_eq!(l.function, i.kernel as usize);
                    let dims: Vec<u64> = i.dims.iter().map(|d| d.at(at).unwrap()).collect();
                    let (operands, count) = (i.operands.len(), l.arguments.len());
                    assert_eq!(count, operands + dims.len() + i.coeffs.len());
                    assert_eq!(l.arguments[operands..operands + dims.len()], dims);
                    assert_eq!(Some(l.shape), shape(spec, &dims));
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

#[test]
fn too_little_memory_is_said_before_anything_is_reserved() {
    let (_, m) = library(Target::Sm80).swap_remove(0);
    let recording = Recording {
        memory: 1000,
        ..Recording::default()
    };
    let error = CudaDevice::new(recording, &code(&m), &m.program.kernels, 5000)
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
    let recording = Recording {
        memory: u64::MAX,
        ..Recording::default()
    };
    let error = CudaDevice::new(recording, &code(&m), &m.program.kernels, 0)
        .map(drop)
        .unwrap_err();
    assert!(error.to_string().contains("packing"), "{error}");
}
