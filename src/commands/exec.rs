//! `odec exec`: runs one entry on tensors from a safetensors file, compiled, or interpreted in f64 from the graph.

use crate::cli::{self, EntryName};
use odec_driver::artifact;
use odec_driver::fail::{Done, Failure};
use odec_driver::source;
use odec_graph::interp::{self, Tensor};
use odec_graph::{Elem, Graph, OpKind, TensorType};
use odec_program::{Bindings, Dim, EntryId, names};
use odec_runtime::infer::exec;
use odec_runtime::system::{input, output};
use odec_runtime::{Executor, Shown};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

pub fn run(args: &cli::Exec) -> Done {
    output::check_kind(&args.outputs, &["safetensors"], &[&args.inputs]).map_err(Failure::input)?;
    if args.interpret {
        return interpret(args);
    }
    let entry = match args.entry {
        EntryName::Forward => EntryId::Forward,
        EntryName::Loss => EntryId::Loss,
        EntryName::Grad => EntryId::Grad,
    };
    let mut known = None;
    let (artifact, _guard) = artifact::open_part(
        &args.model.model,
        &args.model.set,
        args.device,
        args.model.trust,
        |manifest| {
            known = Some(exec::inputs(manifest));
            let program = &mut manifest.program;
            if program.entries.contains_key(&entry) {
                program.keep(&[entry, EntryId::Round]);
            }
        },
    )?;
    let known = known.unwrap_or_else(|| exec::inputs(artifact.manifest()));
    let device = artifact.device(args.device, None).map_err(Failure::input)?;
    let mut executor = Executor::new(&artifact, device).map_err(Failure::input)?;
    exec::exec(&mut executor, entry, &known, &args.inputs, &args.outputs).map_err(Failure::input)
}

/// Runs the graph itself, in f64. Inputs may be f32 or f64; outputs are f64.
fn interpret(args: &cli::Exec) -> Done {
    let file = &args.model.model;
    if !source::is_source(file) {
        return Err(Failure::Input(format!(
            "{}: --interpret needs the .ode file",
            file.shown()
        )));
    }
    let built = source::parsed(file, &args.model.set)?.built()?;
    let graph = match args.entry {
        EntryName::Forward => &built.forward,
        EntryName::Loss => &built.loss,
        EntryName::Grad => &built.grad,
    };
    let bytes =
        input::read(&args.inputs, input::most::TENSORS).map_err(|e| wrong(&args.inputs, e))?;
    let given = SafeTensors::deserialize(&bytes).map_err(|e| wrong(&args.inputs, e))?;
    let loss = built.train.as_ref().map(|t| t.loss);
    let mut feeds = BTreeMap::new();
    let (mut bindings, mut source) = (None, 0);
    for (name, view) in given.iter() {
        let data = numbers(&view).ok_or_else(|| {
            wrong(
                &args.inputs,
                format!("`{name}` is {:?}; give f32, f64, i32 or i64", view.dtype()),
            )
        })?;
        let mut shape: Vec<u64> = view.shape().iter().map(|n| *n as u64).collect();
        if name == names::PATCHES || name == names::VECTORS {
            let &[batch, rows, _] = shape.as_slice() else {
                return Err(wrong(
                    &args.inputs,
                    format!("`{name}` must be [batch, sequence, numbers of one]"),
                ));
            };
            bindings = Some(Bindings::new(batch, rows));
        } else if name == names::TIME {
            let Some(of_rows) = of_images(&shape) else {
                return Err(wrong(&args.inputs, format!("`{name}` must be [batch]")));
            };
            shape = of_rows;
        } else if is_of_targets(name) && numbers_are_compared(&built.loss, name) {
            // As they are.
        } else if is_of_targets(name) && is_of_rows(&built.loss, name) {
            let Some(of_rows) = of_images(&shape) else {
                return Err(wrong(&args.inputs, format!("`{name}` must be [batch]")));
            };
            shape = of_rows;
        } else if [names::TOKENS, names::TARGETS].contains(&name) || is_source(&built.loss, name) {
            let &[batch, seq] = shape.as_slice() else {
                return Err(wrong(
                    &args.inputs,
                    format!("`{name}` must be [batch, sequence]"),
                ));
            };
            match is_source(&built.loss, name) {
                true => source = seq,
                false => bindings = Some(Bindings::new(batch, seq)),
            }
            shape.push(1);
        }
        let whole: Vec<i32> = data.iter().map(|n| *n as i32).collect();
        let loss = loss.filter(|_| args.entry != EntryName::Forward);
        exec::sensible(&args.inputs, name, &whole, loss, &built.depths).map_err(Failure::input)?;
        feeds.insert(name.to_string(), Tensor::new(shape, data));
    }
    let bindings = bindings.ok_or_else(|| {
        wrong(
            &args.inputs,
            "`tokens` is missing; it is [batch, sequence] (of images, `patches`; of vectors, `vectors`)",
        )
    })?;
    let results =
        interp::run(graph, &feeds, bindings.beside(source)).map_err(|e| wrong(&args.inputs, e))?;
    let raw: Vec<(String, Vec<usize>, Vec<u8>)> = results
        .into_iter()
        .map(|(name, t)| {
            let shape = t.shape.iter().map(|n| *n as usize).collect();
            (
                name,
                shape,
                t.data.iter().flat_map(|x| x.to_le_bytes()).collect(),
            )
        })
        .collect();
    let views: Result<Vec<_>, _> = raw
        .iter()
        .map(|(name, shape, bytes)| {
            TensorView::new(Dtype::F64, shape.clone(), bytes).map(|v| (name.clone(), v))
        })
        .collect();
    let out = safetensors::serialize(views.map_err(Failure::internal)?, None)
        .map_err(Failure::internal)?;
    let written = output::write(&args.outputs, |file| file.write_all(&out));
    written.map_err(Failure::input)
}

/// Whether an input is what an output is compared with.
fn is_of_targets(name: &str) -> bool {
    name.rsplit('.').next() == Some(names::TARGETS)
}

/// Whether targets are real numbers.
fn numbers_are_compared(graph: &Graph, name: &str) -> bool {
    type_of(graph, name).is_some_and(|ty| ty.elem == Elem::Real)
}

/// Whether there is one target for each row of the batch.
fn is_of_rows(graph: &Graph, name: &str) -> bool {
    type_of(graph, name).is_some_and(|ty| ty.tokens() == Dim::Fixed(1))
}

/// Whether an input is what an encoder reads.
fn is_source(graph: &Graph, name: &str) -> bool {
    type_of(graph, name).is_some_and(|ty| ty.tokens() == Dim::Source)
}

/// What an input of this name must be.
fn type_of<'g>(graph: &'g Graph, name: &str) -> Option<&'g TensorType> {
    graph.nodes().find_map(|(_, n)| match &n.op {
        OpKind::Input(i) if i.name == name => Some(&i.ty),
        _ => None,
    })
}

/// The shape of one number for each row, given with or without columns of one.
fn of_images(shape: &[u64]) -> Option<Vec<u64>> {
    match shape {
        &[batch] | &[batch, 1] | &[batch, 1, 1] => Some(vec![batch, 1, 1]),
        _ => None,
    }
}

fn wrong(path: &Path, why: impl std::fmt::Display) -> Failure {
    Failure::Input(format!("{}: {why}", path.shown()))
}

/// The elements of a tensor as f64.
fn numbers(view: &TensorView) -> Option<Vec<f64>> {
    let bytes = view.data();
    Some(match view.dtype() {
        Dtype::F32 => bytes
            .as_chunks()
            .0
            .iter()
            .map(|b| f32::from_le_bytes(*b) as f64)
            .collect(),
        Dtype::F64 => bytes
            .as_chunks()
            .0
            .iter()
            .map(|b| f64::from_le_bytes(*b))
            .collect(),
        Dtype::I32 => bytes
            .as_chunks()
            .0
            .iter()
            .map(|b| i32::from_le_bytes(*b) as f64)
            .collect(),
        Dtype::I64 => bytes
            .as_chunks()
            .0
            .iter()
            .map(|b| i64::from_le_bytes(*b) as f64)
            .collect(),
        _ => return None,
    })
}
