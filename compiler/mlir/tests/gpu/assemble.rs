//! Every kernel of every model of the library, and all but row kernels of those in bf16, through NVIDIA's assembler: for sm_80 all, for sm_90a
//! all but row and column kernels, whose code differs by no more than the target's name.
//!
//! Kernels of the same instructions are assembled once, those that differ in constants alone compiled once. Of a kind of which there are
//! many, the longest are, of attention the longest of each shape of heads, and every fortieth of the others; on sm_90a fewer of those whose code
//! sm_80 has, too. All with `ODEC_ASSEMBLE_WHOLE` (`make assemble`).
//! It must assemble, keep its values in registers (no spills, no stack but what a division needs) and call nothing. What the assembler has said of a
//! text is kept below `target/`, and it is not asked again. Run by
//! `make test`, which fetches the assembler (`scripts/ptxas.sh`); without it the test fails.

use crate::harness::cache;
use crate::harness::models::{library, library_in_bf16, optimizers, planned, update_of};
use odec_program::expr::{Body, Expr, RowMap};
use odec_program::gpu::{self, tensor};
use odec_program::kernel::{Attend, Scores};
use odec_program::manifest::Manifest;
use odec_program::{DType, Kernel, KernelSpec, Target};
use odec_runtime::system::hash::sha256;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

fn assembler() -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.ptxas/ptxas");
    assert!(
        path.is_file(),
        "there is no {}; scripts/ptxas.sh fetches it",
        path.display()
    );
    path
}

/// Whether kernels of a kind are the same code for all GPUs, but for the target's name.
pub fn portable(spec: &KernelSpec) -> bool {
    matches!(spec, KernelSpec::Rows(_) | KernelSpec::Columns(_))
}

/// The distinct kernels of all models, planned for a target.
fn kernels(target: Target) -> Vec<Kernel> {
    let models = library(target);
    assert!(models.len() > 20, "{} models", models.len());
    let half = library_in_bf16(target);
    assert!(half.len() > 20, "{} models in bf16", half.len());
    let kernels = |(_, m): (String, Manifest)| m.program.kernels;
    // Row kernels in bf16 are those of f32 with a rounding.
    let half = half.into_iter().flat_map(kernels);
    let half = half.filter(|k| !matches!(k.spec, KernelSpec::Rows(_)));
    let first = target == Target::Sm80;
    let all = models.into_iter().flat_map(kernels).chain(half);
    let updates = optimizers().flat_map(|o| update_of(o, target).program.kernels);
    let all = all.chain(wide_heads()).chain(sampled()).chain(updates);
    let all = all.filter(|k| first || !portable(&k.spec));
    let distinct: BTreeMap<String, Kernel> = all.map(|k| (k.symbol.clone(), k)).collect();
    let mut of_form = BTreeMap::new();
    for kernel in distinct.into_values() {
        let text = odec_mlir::mlir_text(&kernel, target).unwrap_or_else(|e| panic!("{e}"));
        of_form.entry(form(&text, &kernel.symbol)).or_insert(kernel);
    }
    if std::env::var_os("ODEC_ASSEMBLE_WHOLE").is_some() {
        return of_form.into_values().collect();
    }
    let mut kinds: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (text, kernel) in of_form {
        let kind = (
            kernel.spec.kind(),
            units(&kernel.spec, target),
            heads(&kernel.spec),
            !first && as_for_sm_80(&text, &kernel),
        );
        kinds.entry(kind).or_default().push((text.len(), kernel));
    }
    let some = kinds
        .into_iter()
        .flat_map(|((_, _, heads, known), mut all)| {
            all.sort_by_key(|(length, _)| std::cmp::Reverse(*length));
            let longest = match (heads, known) {
                (Some(_), _) => LONGEST_OF_HEADS,
                (None, true) => LONGEST_AGAIN,
                (None, false) => LONGEST,
            };
            let rest = all.split_off(all.len().min(longest));
            all.into_iter().chain(rest.into_iter().step_by(40))
        });
    some.map(|(_, kernel)| kernel).collect()
}

/// How many kernels of a kind on the same units are all looked at: the longest. Of the others every fortieth is.
const LONGEST: usize = 12;
/// The same, of attention with heads of one shape ([`heads`]).
const LONGEST_OF_HEADS: usize = 1;
/// The same, where sm_80 has the same code: an assembler gives it registers anew.
const LONGEST_AGAIN: usize = 4;

/// What decides how many registers attention needs: the width of heads and of their values, and how many heads share a key. The kernel with
/// the most is not among the longest: gradients of two heads to a key, of width 32, take 253 registers on sm_80.
fn heads(spec: &KernelSpec) -> Option<(u64, Option<u64>, u64)> {
    match spec {
        KernelSpec::Attend(a) | KernelSpec::AttendBackward(a) | KernelSpec::AttendCached(a) => {
            Some((a.head, a.value, a.heads / a.kv_heads))
        }
        _ => None,
    }
}

/// Whether the form of a kernel for sm_90a is that for sm_80, but for the wait for the launch before. Some kernels sm_80 has not.
fn as_for_sm_80(of_sm_90a: &str, kernel: &Kernel) -> bool {
    let Ok(text) = odec_mlir::mlir_text(kernel, Target::Sm80) else {
        return false;
    };
    let other = form(&text, &kernel.symbol);
    let waits = |line: &&str| !line.contains("griddepcontrol");
    let [this, other] = [of_sm_90a, &other].map(|text| text.lines().filter(waits));
    this.eq(other)
}

/// A kernel's text without its name and without numbers: kernels that differ in constants alone agree.
fn form(text: &str, symbol: &str) -> String {
    let text = text.replace(symbol, "");
    text.replace(|c: char| c.is_ascii_digit(), "")
}

/// Attention with the most registers: wide heads that share keys and see a window, other scores and wider values; of some tokens, and to keys of others. No model of the library has such.
fn wide_heads() -> Vec<Kernel> {
    let spec = |inputs, head| Attend {
        dtype: DType::F32,
        inputs,
        heads: 4,
        kv_heads: 2,
        head,
        causal: true,
        room: None,
        window: Some(100),
        scale: 0.125,
        rounds: false,
        value: None,
        scores: Default::default(),
        order: Default::default(),
        partial: false,
        others: false,
    };
    let scores = Scores {
        softcap: Some(50.0),
        alibi: true,
        sinks: true,
        distances: None,
    };
    let mut all: Vec<Attend> = [(DType::F32, 128), (DType::Bf16, 128), (DType::Bf16, 96)]
        .into_iter()
        .map(|(inputs, head)| spec(inputs, head))
        .collect();
    let shaped = |spec: &Attend| Attend {
        scores,
        ..spec.clone()
    };
    all.extend([shaped(&all[0]), shaped(&all[1])]);
    // With a table, for which there are no tensor cores.
    let biased = |spec: &Attend, causal| Attend {
        causal,
        window: None,
        scores: Scores {
            distances: Some(128),
            ..scores
        },
        ..spec.clone()
    };
    all.extend([biased(&all[0], false), biased(&all[1], true)]);
    all.push(Attend {
        value: Some(256),
        ..all[0].clone()
    });
    // Of the tokens that take part alone, for which there are no tensor cores.
    let some = |spec: &Attend| Attend {
        window: None,
        scores: Scores {
            alibi: false,
            ..scores
        },
        partial: true,
        ..spec.clone()
    };
    all.extend([some(&all[0]), some(&spec(DType::Bf16, 64))]);
    let others = |spec: Attend| Attend {
        causal: false,
        window: None,
        others: true,
        ..spec
    };
    let shared = |head| others(spec(DType::Bf16, head));
    all.extend([some(&all[0]), all[0].clone()].map(others));
    all.extend([64, 128].map(shared));
    all.extend([64, 128].map(|head| Attend {
        kv_heads: 4,
        ..shared(head)
    }));
    all.into_iter()
        .flat_map(|spec| {
            let mut back = spec.clone();
            back.scores.sinks = false;
            let kept = spec.causal.then(|| KernelSpec::AttendCached(spec.clone()));
            let whole = [KernelSpec::Attend(spec), KernelSpec::AttendBackward(back)];
            whole.into_iter().chain(kept)
        })
        .map(|spec| Kernel {
            symbol: spec.symbol(),
            spec,
        })
        .collect()
}

/// Kernels that no model of the library has.
fn sampled() -> impl Iterator<Item = Kernel> {
    let samples = KernelSpec::samples().into_iter().map(|s| s.spec);
    let rare = samples.filter(|k| {
        use KernelSpec::{Delay, LinearAttend, Scan};
        matches!(k, LinearAttend(_) | Scan(_) | Delay(_))
    });
    let runs = rare.filter(|k| gpu::refusal(k).is_none());
    runs.map(|spec| Kernel {
        symbol: spec.symbol(),
        spec,
    })
}

/// Where reports of an assembler are kept: one that says another version of itself has a folder of its own.
fn reports_of(ptxas: &Path) -> PathBuf {
    let said = Command::new(ptxas).arg("--version").output().unwrap();
    assert!(said.status.success(), "{said:?}");
    let version = sha256(&said.stdout);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ptxas");
    let folder = folder.join(version);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// What `ptxas -v` says about a module, or has said before of the same text.
fn report(ptxas: &Path, kept: &Path, text: &[u8], target: Target) -> Result<String, String> {
    let kept = kept.join(format!("{target}-{}", sha256(text)));
    if let Ok(said) = std::fs::read_to_string(&kept) {
        return Ok(said);
    }
    let said = assemble(ptxas, text, target)?;
    // Whole or not at all: a run that is killed leaves no half of a report.
    let folder = kept.parent().unwrap();
    let file = tempfile::NamedTempFile::new_in(folder).map_err(|e| e.to_string())?;
    std::fs::write(&file, &said).map_err(|e| e.to_string())?;
    file.persist(&kept).map_err(|e| e.to_string())?;
    Ok(said)
}

/// What `ptxas -v` says about a module.
fn assemble(ptxas: &Path, text: &[u8], target: Target) -> Result<String, String> {
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    let source = folder.path().join("kernel.ptx");
    std::fs::write(&source, text).map_err(|e| e.to_string())?;
    let done = Command::new(ptxas)
        .arg("-v")
        .arg(format!("-arch={target}"))
        .arg(&source)
        .arg("-o")
        .arg(folder.path().join("kernel.cubin"))
        .output()
        .map_err(|e| e.to_string())?;
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    match done.status.success() {
        true => Ok(said),
        false => Err(said),
    }
}

/// What the assembler has to do with a kernel's module: its instructions and directives in turn, without names and numbers of
/// registers. Kernels that differ in constants alone agree.
fn work_of(text: &str, symbol: &str) -> String {
    let text = text.replace(symbol, "");
    let words = |line: &str| -> Option<String> {
        let line = line.trim();
        let named = [".target", ".visible", ".entry", ".func", "//"];
        if named.iter().any(|word| line.starts_with(word)) {
            return None;
        }
        // Shared memory, bounds of threads, declarations of registers.
        if line.starts_with('.') {
            return Some(line.to_string());
        }
        let mut words = line.split_whitespace();
        let first = words.next()?;
        let predicated = first.starts_with('@');
        let opcode = if predicated { words.next()? } else { first };
        Some(format!("{predicated} {opcode}"))
    };
    text.lines()
        .filter_map(words)
        .collect::<Vec<_>>()
        .join("\n")
}

fn numbers(line: &str) -> Vec<u64> {
    let words = line.split(|c: char| !c.is_ascii_digit());
    words.filter_map(|w| w.parse().ok()).collect()
}

/// Registers of a thread and bytes of shared memory, least and most, of kernels of a kind; for `docs/gpu.md`.
#[derive(Debug, Default)]
struct Used {
    kernels: u64,
    registers: Option<(u64, u64)>,
    shared: Option<(u64, u64)>,
}

impl Used {
    fn add(&mut self, said: &str) {
        let line = said.lines().find(|l| l.contains("Used ")).unwrap_or("");
        let of = |what: &str| {
            let part = line.split(", ").find(|p| p.contains(what));
            // `ptxas info : Used 32 registers`
            part.and_then(|p| numbers(p).last().copied()).unwrap_or(0)
        };
        let wider = |range: Option<(u64, u64)>, x: u64| {
            let (least, most) = range.unwrap_or((x, x));
            Some((least.min(x), most.max(x)))
        };
        self.kernels += 1;
        self.registers = wider(self.registers, of("registers"));
        self.shared = wider(self.shared, of("bytes smem"));
    }
}

/// What is wrong with a kernel of this report.
fn complaint(said: &str, kernel: &Kernel, target: Target) -> Option<String> {
    let line = |what: &str| said.lines().find(|l| l.contains(what)).map(str::to_string);
    let Some(stack) = line("bytes stack frame") else {
        return Some(format!("no report: {said}"));
    };
    if numbers(&stack).iter().any(|n| *n > may_spill(&kernel.spec)) {
        return Some(stack);
    }
    // Of `wgmma` whose sums are touched in between (C7514), which is then made to wait.
    if let Some(warning) = line("warning").or_else(|| line("serialized")) {
        return Some(warning);
    }
    let used = line("Used ")?;
    let shared = used.split(", ").find(|p| p.ends_with("bytes smem"));
    let shared = shared.map_or(0, |p| numbers(p)[0]);
    let dims = vec![1; 3];
    // What a launch asks for is not in the report.
    let planned = gpu::shape(&kernel.spec, &dims, target);
    let planned = planned.map_or(0, |s| s.shared - s.dynamic());
    // Small columns of its matrix, which belong to one thread each, are kept in registers.
    let in_registers = matches!(kernel.spec, KernelSpec::LinearAttend(_)) && shared == 0;
    (shared != planned && !in_registers)
        .then(|| format!("{shared} bytes of shared memory, planned {planned}"))
}

/// The most bytes of stack and of spills. Gradients of attention of heads of 48 columns hardly fit into registers; convolutions by depth, which keep where all
/// places of a window are, do not.
fn may_spill(spec: &KernelSpec) -> u64 {
    match spec {
        KernelSpec::AttendBackward(a) if a.head == 48 => 8,
        KernelSpec::Rows(r) if reads_windows(&r.body) => 592,
        KernelSpec::Columns(c) if reads_windows(&c.body) => 592,
        _ => 0,
    }
}

fn reads_windows(body: &Body) -> bool {
    let reads = |node: &Expr| match node {
        Expr::Load { access, .. } => matches!(access.row, RowMap::Window(..)),
        _ => false,
    };
    body.nodes.iter().any(reads)
}

/// What a kernel multiplies with.
fn units(spec: &KernelSpec, target: Target) -> &'static str {
    let tensor = match spec {
        KernelSpec::Contract(c) if tensor::warpgroup::runs(c, target) => return WARPGROUPS,
        KernelSpec::Attend(a) | KernelSpec::AttendBackward(a) | KernelSpec::AttendCached(a)
            if tensor::warpgroup::attends(a, target) =>
        {
            return WARPGROUPS;
        }
        KernelSpec::Contract(c) => tensor::contract::runs(c),
        KernelSpec::Attend(a) | KernelSpec::AttendBackward(a) | KernelSpec::AttendCached(a) => {
            tensor::attend::runs(a)
        }
        _ => false,
    };
    if tensor { WARPS } else { "" }
}

const WARPGROUPS: &str = ", warpgroups";
const WARPS: &str = ", tensor cores";

/// The same, as the instructions say.
fn instructions(text: &str) -> &'static str {
    match (
        text.contains("wgmma.mma_async"),
        text.contains(" mma.sync") || text.contains("\tmma.sync"),
    ) {
        (true, false) => WARPGROUPS,
        (false, true) => WARPS,
        (false, false) => "",
        (true, true) => "both",
    }
}

fn check(target: Target) {
    let ptxas = assembler();
    let kept = reports_of(&ptxas);
    let kernels = kernels(target);
    let objects = odec_mlir::compile(&kernels, target, cache().as_ref());
    let objects = objects.unwrap_or_else(|e| panic!("{e}"));
    let left = Mutex::new(kernels.iter().zip(&objects).collect::<Vec<_>>());
    let wrong = Mutex::new(Vec::new());
    let table = Mutex::new(BTreeMap::<String, Used>::new());
    let reports = Mutex::new(BTreeMap::<String, Result<String, String>>::new());
    let work = || {
        while let Some((kernel, object)) = { left.lock().unwrap().pop() } {
            let text = String::from_utf8_lossy(&object.bytes);
            let work = work_of(&text, &kernel.symbol);
            let known = { reports.lock().unwrap().get(&work).cloned() };
            let report = known.unwrap_or_else(|| {
                let report = report(&ptxas, &kept, &object.bytes, target);
                reports.lock().unwrap().insert(work, report.clone());
                report
            });
            let found = match report {
                Ok(said) => {
                    let units = units(&kernel.spec, target);
                    let kind = format!("{}{units}", kernel.spec.kind());
                    table.lock().unwrap().entry(kind).or_default().add(&said);
                    let found = instructions(&text);
                    let other = (found != units).then(|| format!("runs on {found:?}"));
                    let fed = tensor::map::count(&kernel.spec, target) > 0;
                    let boxes = text.contains("cp.async.bulk.tensor");
                    let unfed = (fed != boxes).then(|| format!("fed by maps: {boxes}"));
                    complaint(&said, kernel, target).or(other).or(unfed)
                }
                Err(said) => Some(said),
            };
            wrong
                .lock()
                .unwrap()
                .extend(found.map(|w| format!("{}: {w}", kernel.symbol)));
        }
    };
    std::thread::scope(|s| {
        s.spawn(work);
        work();
    });
    for (kind, used) in table.into_inner().unwrap() {
        eprintln!("{target}: {kind}: {used:?}");
    }
    let wrong = wrong.into_inner().unwrap();
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        kernels.len(),
        wrong.join("\n")
    );
    let assembled = reports.into_inner().unwrap().len();
    eprintln!("{target}: {} kernels, {assembled} assembled", kernels.len());
}

/// What [`portable`] says, of the kernels of a model.
#[test]
fn row_kernels_are_the_same_code_for_all_gpus() {
    let mut some = planned("prenorm", &[], Target::Sm80).program.kernels;
    some.retain(|k| portable(&k.spec));
    assert!(some.len() > 5, "{} kernels", some.len());
    let code = |target| -> Vec<String> {
        let objects = odec_mlir::compile(&some, target, None).unwrap();
        let lines = |text: &str| -> String {
            let own = text
                .lines()
                .filter(|l| !l.starts_with(".target") && !l.starts_with(".version"))
                // The wait for the launch before, which is for Hopper alone.
                .filter(|l| !l.trim_start().starts_with("griddepcontrol"));
            own.collect::<Vec<_>>().join("\n")
        };
        let text = |bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes).into_owned();
            assert_eq!(text.contains("griddepcontrol.wait"), gpu::awaits(target));
            lines(&text)
        };
        objects.iter().map(|o| text(&o.bytes)).collect()
    };
    assert_eq!(code(Target::Sm80), code(Target::Sm90a));
}

#[test]
#[ignore = "needs ptxas; `make test` fetches it and runs this"]
fn every_kernel_assembles_for_sm_80() {
    check(Target::Sm80);
}

#[test]
#[ignore = "needs ptxas; `make test` fetches it and runs this"]
fn every_kernel_assembles_for_sm_90a() {
    check(Target::Sm90a);
}
