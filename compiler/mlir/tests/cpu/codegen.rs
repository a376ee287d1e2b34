//! Kernels are compiled in a child process, whatever becomes of it.

use crate::harness::models::planned;
use odec_mlir::codegen::{compile_within, on_threads};
use odec_mlir::{CodegenError, compile, compile_in_child, serve};
use odec_program::kernel::Sample;
use odec_program::{Kernel, KernelSpec, Target};
use std::collections::BTreeSet;
use std::io;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

#[test]
fn a_child_that_dies_is_an_error_naming_the_kernel_in_work() {
    let mut shell = Command::new("sh");
    shell.args([
        "-c",
        "echo odec-codegen begin a >&2; echo odec-codegen begin b >&2; echo odec-codegen end a >&2;
        echo LLVM ERROR: no >&2; kill -ABRT $$",
    ]);
    let error = compile_in_child(shell, &[], Target::Avx2)
        .unwrap_err()
        .to_string();
    assert!(error.contains("compiling b: LLVM ERROR: no"), "{error}");
}

/// The child is in an endless sleep and never reads: whatever it does, it is one error that names the kernel.
#[test]
fn a_child_that_is_never_done_is_an_error_naming_the_kernel_in_work() {
    let many = vec![pack(8); 10_000];
    let after = |millis| {
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo odec-codegen begin a >&2; exec sleep 1000000"]);
        let stuck = compile_within(Duration::from_millis(millis), shell, &many, Target::Avx2);
        stuck.unwrap_err().to_string()
    };
    // A busy machine may take long to start a shell.
    let mut patience = [100, 1000, 10_000, 100_000].into_iter();
    let named = patience.find(|millis| after(*millis).contains("while compiling a"));
    assert!(named.is_some());
}

/// Threads whose stacks are larger than any address space cannot be made.
#[test]
fn threads_that_cannot_be_made_are_not_needed() {
    let ran = AtomicUsize::new(0);
    let work = || _ = ran.fetch_add(1, Ordering::Relaxed);
    on_threads(4, Some(1 << 60), &work);
    assert_eq!(ran.load(Ordering::Relaxed), 1);
    on_threads(4, None, &work);
    assert_eq!(ran.load(Ordering::Relaxed), 5);
}

#[test]
fn kernels_that_make_no_sense_are_refused_before_a_child_is_started() {
    let asked = compile_in_child(Command::new("/no/such"), &[pack(0)], Target::Avx2);
    let error = asked.unwrap_err();
    assert!(matches!(error, CodegenError::Spec { .. }), "{error}");
}

#[test]
fn answers_that_make_no_sense_are_errors() {
    for say in [
        "",
        "printf x",
        "echo '{}'",
        "echo '{\"Objects\":[[\"k\",9]]}'",
        "echo '{\"Objects\":[[\"k\",0]]}'",
    ] {
        let mut shell = Command::new("sh");
        shell.args(["-c", say]);
        assert!(compile_in_child(shell, &[], Target::Avx2).is_err(), "{say}");
    }
    assert!(matches!(
        compile_in_child(Command::new("/no/such"), &[], Target::Avx2),
        Err(CodegenError::Spawn(_))
    ));
}

/// Kernels that multiply nothing in pairs are the same text for all targets of AVX-512, and the same machine code: tests compile and run them for one. Where
/// AVX512-BF16 is, its instruction rounds to bf16. Kernels of every kind, samples and those of two models; machine code of one.
#[test]
fn code_without_pairs_is_the_same() {
    let of = [Target::Avx512, Target::Avx512Bf16, Target::Amx];
    let text = |kernel: &Kernel, target| odec_mlir::mlir_text(kernel, target);
    let kernels = of.map(|target| {
        let of_model = |name| planned(name, &[], target).program.kernels;
        [of_model("prenorm"), of_model("mixtral")].concat()
    });
    assert!(kernels.iter().all(|k| *k == kernels[0]));
    let [kernels, ..] = kernels;
    let code = |target| {
        let shortest = |k: &&Kernel| text(k, target).unwrap().len();
        let one = kernels.iter().min_by_key(shortest).unwrap();
        let compiled = compile(std::slice::from_ref(one), target, None).unwrap();
        compiled.into_iter().map(|o| o.bytes).collect::<Vec<_>>()
    };
    assert!(of.iter().all(|target| code(*target) == code(of[0])));
    let samples = KernelSpec::samples()
        .into_iter()
        .map(|Sample { spec, .. }| Kernel {
            symbol: spec.symbol(),
            spec,
        });
    let mut kinds = BTreeSet::new();
    for kernel in samples.chain(kernels.iter().cloned()) {
        // Samples are not cut into vectors of a processor.
        if let Ok(first) = text(&kernel, of[0]) {
            kinds.insert(kernel.spec.kind());
            // The instruction for pairs, where there is one.
            let in_pairs = first.contains("@dot_pairs");
            for target in of.into_iter().filter(|_| !in_pairs) {
                let other = text(&kernel, target).unwrap();
                let rounds = target == Target::Avx512Bf16 && other.contains("cvtneps2bf16");
                assert!(rounds || other == first, "{target}: {}", kernel.symbol);
            }
        }
    }
    assert_eq!(kinds, KernelSpec::KINDS.iter().copied().collect());
}

fn pack(nr: u32) -> Kernel {
    let n = odec_program::kernel::Extent::Static(5);
    let spec = odec_program::KernelSpec::Pack(odec_program::kernel::Pack {
        dtype: odec_program::DType::F32,
        from: odec_program::DType::F32,
        n,
        k: n,
        nr,
        transposed: true,
        order: Default::default(),
        quantized: None,
    });
    Kernel {
        symbol: spec.symbol(),
        spec,
    }
}

/// What the child's side writes comes back through a shell that writes it again.
#[test]
fn a_child_answers_as_this_process_does() {
    let folder = tempfile::tempdir().unwrap();
    let ask = |kernels: Vec<Kernel>| {
        let request = serde_json::json!({ "target": Target::Avx2, "kernels": kernels });
        let (mut answer, mut log) = (Vec::new(), Vec::new());
        serve(request.to_string().as_bytes(), &mut answer, &mut log, None).unwrap();
        let log = String::from_utf8(log).unwrap();
        let said = |what: &str| {
            let mut symbols: Vec<&str> = log.lines().filter_map(|l| l.strip_prefix(what)).collect();
            symbols.sort();
            symbols
        };
        let ended = said("odec-codegen end ");
        assert_eq!(said("odec-codegen begin "), ended);
        assert_eq!(log.lines().count(), 2 * ended.len(), "{log}");
        std::fs::write(folder.path().join("answer"), answer).unwrap();
        let mut shell = Command::new("cat");
        shell.arg(folder.path().join("answer"));
        compile_in_child(shell, &[], Target::Avx2)
    };
    let kernels = vec![pack(8), pack(16), pack(24)];
    let here = compile(&kernels, Target::Avx2, None).unwrap();
    assert_eq!(
        here.iter().map(|o| &o.symbol).collect::<Vec<_>>(),
        kernels.iter().map(|k| &k.symbol).collect::<Vec<_>>()
    );
    assert_eq!(ask(kernels).unwrap(), here);
    assert_eq!(ask(vec![]).unwrap(), vec![]);
    let bad = ask(vec![pack(8), pack(3)]).unwrap_err();
    assert_eq!(bad.symbol(), Some(pack(3).symbol.as_str()));
    assert!(bad.to_string().contains("whole vectors"), "{bad}");
    assert!(serve(&b"nonsense"[..], &mut Vec::new(), io::sink(), None).is_err());
}
