//! Runs planned methods: as compiled code, or on the reference device where odec was built without code generation.
//!
//! Takes schemes; gives their curves of errors. All kernels of several methods are compiled at once, and methods share most of them: coefficients
//! are launch arguments. Leaves the equation, step counts and slopes to `odec_compiler::measure`.

use crate::artifact;
use crate::fail::{Done, Failure};
use odec_compiler::measure::{Curve, Entry, INPUT, MeasureError, OUTPUT, Planned, measure};
use odec_compiler::passes::Options;
use odec_compiler::passes::fuse::Fusion;
use odec_program::manifest::Precision;
use odec_program::{DType, Target};
use odec_runtime::device::Device;
use odec_runtime::infer::integrate::integrate;
use odec_runtime::{Artifact, Executor};

impl From<MeasureError> for Failure {
    fn from(e: MeasureError) -> Failure {
        Failure::Input(e.to_string())
    }
}

/// Whether curves are those of compiled code.
pub const COMPILED: bool = cfg!(feature = "mlir");

/// One launch for each operation: methods then differ in the lengths of their sums alone.
fn options(target: Target) -> Options {
    Options {
        fusion: Fusion::Off,
        ..Options::of(target, DType::F64)
    }
}

/// What was measured of a method.
#[derive(Clone, Debug)]
pub struct Curves {
    /// On the system on which errors have no terms after the first.
    pub graded: Curve,
    pub general: Curve,
}

/// Measures methods whose order is proved.
///
/// # Errors
/// When kernels do not compile or run.
pub fn curves(entries: &[Entry]) -> Done<Vec<Option<Curves>>> {
    let target = artifact::target("cpu", Precision::F64)?;
    let options = options(target);
    let mut code = Code::new(target)?;
    let proved = entries.iter().filter(|e| e.graded().is_some());
    let first = proved.map(|e| match e.first(options) {
        Err(MeasureError::Scheme(_)) => Ok(None),
        planned => Ok(Some(planned?)),
    });
    let first: Vec<Option<Planned>> = first.collect::<Done<_>>()?;
    let mut planned = first.iter().flatten().peekable();
    // Nothing may be measurable, and then there is nothing to compile.
    if planned.peek().is_some() {
        code.compile(planned)?;
    }
    let all = entries.iter().map(|e| {
        let Some(graded) = e.graded() else {
            return Ok(None);
        };
        let mut on = |problem| measure(e, problem, options, &mut |p: &Planned| code.run(p));
        Ok(Some(Curves {
            graded: on(graded)?,
            general: on(e.general())?,
        }))
    });
    all.collect()
}

#[cfg(feature = "mlir")]
struct Code {
    target: Target,
    folder: tempfile::TempDir,
    /// Symbols of each object so far.
    objects: Vec<std::collections::BTreeSet<String>>,
}

#[cfg(feature = "mlir")]
impl Code {
    fn new(target: Target) -> Done<Code> {
        Ok(Code {
            target,
            folder: tempfile::tempdir().map_err(Failure::input)?,
            objects: Vec::new(),
        })
    }

    fn file(&self, n: usize) -> std::path::PathBuf {
        self.folder.path().join(format!("kernels{n}.so"))
    }

    /// Compiles the kernels of programs into one more object; gives its number.
    fn compile<'p>(&mut self, programs: impl Iterator<Item = &'p Planned>) -> Done<usize> {
        let mut kernels = std::collections::BTreeMap::new();
        for k in programs.flat_map(|p| &p.manifest.program.kernels) {
            kernels.entry(k.symbol.clone()).or_insert_with(|| k.clone());
        }
        let list: Vec<odec_program::Kernel> = kernels.values().cloned().collect();
        let object = artifact::object_code(&list, self.target)?;
        let n = self.objects.len();
        std::fs::write(self.file(n), object.bytes).map_err(Failure::input)?;
        self.objects.push(kernels.into_keys().collect());
        Ok(n)
    }

    fn device(&mut self, p: &Planned) -> Done<Box<dyn Device>> {
        let kernels = &p.manifest.program.kernels;
        let has =
            |o: &std::collections::BTreeSet<String>| kernels.iter().all(|k| o.contains(&k.symbol));
        let known = self.objects.iter().position(has);
        let n = known.map_or_else(|| self.compile([p].into_iter()), Ok)?;
        let scratch = odec_runtime::artifact::check::scratch_bytes(&p.manifest.program);
        let (file, target) = (self.file(n), self.target.name());
        let device = odec_runtime::device::cpu::CpuDevice::open(&file, target, kernels, scratch, 1);
        Ok(Box::new(device.map_err(Failure::internal)?))
    }
}

#[cfg(not(feature = "mlir"))]
struct Code;

#[cfg(not(feature = "mlir"))]
impl Code {
    fn new(_: Target) -> Done<Code> {
        Ok(Code)
    }

    fn compile<'p>(&mut self, _: impl Iterator<Item = &'p Planned>) -> Done<usize> {
        Ok(0)
    }

    fn device(&mut self, p: &Planned) -> Done<Box<dyn Device>> {
        let kernels = &p.manifest.program.kernels;
        let device = odec_runtime::device::reference::ReferenceDevice::new(kernels);
        Ok(Box::new(device))
    }
}

impl Code {
    /// The state at the end.
    fn run(&mut self, p: &Planned) -> Done<Vec<f64>> {
        let device = self.device(p)?;
        let artifact = Artifact::in_memory(p.manifest.clone()).map_err(Failure::internal)?;
        let mut x = Executor::new(&artifact, device).map_err(Failure::input)?;
        let params: Vec<(&str, &[f64])> = p
            .matrices
            .iter()
            .map(|m| (m.path.as_str(), &m.values[..]))
            .collect();
        let start = p.problem.start();
        integrate(&mut x, &params, &start, (INPUT, OUTPUT), p.runs).map_err(Failure::internal)
    }
}
