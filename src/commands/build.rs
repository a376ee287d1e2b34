//! `odec build`: compiles a model to an artifact, or shows a stage of its compilation.

use crate::cli::{self, Emit};
use odec_compiler::passes::assemble::EntryMemory;
use odec_compiler::passes::revolve::replays;
use odec_driver::artifact;
use odec_driver::fail::{Done, Failure};
use odec_driver::source;
use odec_driver::terminal;
use odec_program::manifest::{Memory, Precision};
use odec_runtime::{Shown, out, outln};
use serde_json::{Value, json};
use std::time::Instant;

pub fn run(args: &cli::Build) -> Done {
    // A machine without a target is said before anything else.
    artifact::target(&args.target, Precision::default())?;
    let Some(emit) = args.emit else {
        let start = Instant::now();
        let out = args
            .output
            .clone()
            .unwrap_or_else(|| artifact::default_artifact(&args.source.file));
        odec_runtime::artifact::may_build(&out).map_err(Failure::input)?;
        let (artifact, built, assembled) =
            artifact::build(&args.source.file, &args.source.set, &args.target, &out)?;
        let target = &artifact.manifest().objects[0].target;
        let program = &artifact.manifest().program;
        if args.json {
            let entry = |m: &EntryMemory| {
                let launches = program.entries[&m.entry].instrs.len();
                json!({ "name": m.entry, "launches": launches, "arena_bytes": m.arena, "unshared_bytes": m.unshared })
            };
            outln!(
                "{}",
                json!({
                    "artifact": out.display().to_string(), "sha256": artifact.identity(), "target": target,
                    "seconds": start.elapsed().as_secs_f64(), "kernels": program.kernels.len(),
                    "parameters": built.summary.parameters, "parameter_bytes": program.param_bytes,
                    "entries": assembled.memory.iter().map(entry).collect::<Vec<_>>(),
                })
            );
            return Ok(());
        }
        outln!("{} in {:.1} s", out.shown(), start.elapsed().as_secs_f64());
        outln!("  target        {target}");
        outln!("  kernels       {} distinct", program.kernels.len());
        outln!(
            "  parameters    {} ({})",
            terminal::thousands(built.summary.parameters),
            terminal::bytes(program.param_bytes)
        );
        if program.generation_bytes() > 0 {
            outln!(
                "  KV cache      {} for a context of {}",
                terminal::bytes(program.generation_bytes()),
                terminal::count(built.config.context as usize, "token")
            );
        }
        if let Some(Memory::Revolve { slots }) = built.train.as_ref().map(|t| t.memory) {
            let steps = built.summary.steps;
            outln!(
                "  memory        {slots} of {} kept, {} computed again for the gradient",
                terminal::count(steps as usize, "state"),
                terminal::count(replays(steps, slots) as usize, "step")
            );
        }
        for m in &assembled.memory {
            let launches = program.entries[&m.entry].instrs.len();
            outln!(
                "  {:<12}  {}, arena {} (unshared {})",
                m.entry,
                terminal::count(launches, "launch"),
                terminal::bytes(m.arena),
                terminal::bytes(m.unshared)
            );
        }
        return Ok(());
    };
    let mut parsed = source::parsed(&args.source.file, &args.source.set)?;
    let text = match emit {
        Emit::Ast => odec_grammar::dump(&parsed.file),
        Emit::Stages => parsed.checked()?.stages(),
        Emit::Graph => odec_graph::print::text(&parsed.built()?.grad),
        Emit::Params => {
            let built = parsed.built()?;
            let params = built
                .params
                .iter()
                .map(|p| json!({ "path": p.path, "shape": p.shape }));
            format!("{:#}\n", Value::Array(params.collect()))
        }
        Emit::Program | Emit::Mlir | Emit::Ptx => {
            let mut built = parsed.built()?;
            let target = artifact::target(&args.target, built.precision())?;
            parsed.resolve_memory(&mut built, target)?;
            let assembled = artifact::assembled(&built, parsed.sources.text(parsed.main), target)?;
            match emit {
                Emit::Mlir => mlir(&assembled.manifest.program.kernels, target)?,
                Emit::Ptx => ptx(&assembled.manifest.program.kernels, target)?,
                _ => odec_compiler::passes::print::program(&assembled.manifest, &assembled.memory),
            }
        }
    };
    out!("{text}");
    Ok(())
}

fn ptx(kernels: &[odec_program::Kernel], target: odec_program::Target) -> Done<String> {
    if !target.is_gpu() {
        return Err(Failure::Input(format!(
            "{target} is no GPU; name one: --target sm_80 or --target sm_90a"
        )));
    }
    let code = artifact::object_code(kernels, target)?;
    String::from_utf8(code.bytes).map_err(Failure::internal)
}

#[cfg(feature = "mlir")]
fn mlir(kernels: &[odec_program::Kernel], target: odec_program::Target) -> Done<String> {
    let texts: Result<Vec<String>, _> = kernels
        .iter()
        .map(|k| odec_mlir::mlir_text(k, target))
        .collect();
    Ok(texts.map_err(Failure::internal)?.join("\n"))
}

#[cfg(not(feature = "mlir"))]
fn mlir(_: &[odec_program::Kernel], _: odec_program::Target) -> Done<String> {
    Err(Failure::input(
        "this odec was built without code generation (feature `mlir`)",
    ))
}
