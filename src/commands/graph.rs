//! `odec graph`: the tensor graph as text, DOT or a picture.

use crate::cli::{self, GraphFormat, GraphStage};
use odec_driver::fail::{Done, Failure};
use odec_driver::source;
use odec_runtime::out;
use odec_runtime::system::output;

pub fn run(args: &cli::Graph) -> Done {
    if let Some(path) = &args.output {
        output::check(path).map_err(Failure::input)?;
    }
    let built = source::parsed(&args.source.file, &args.source.set)?.built()?;
    let graph = match args.stage {
        GraphStage::Model => &built.forward,
        GraphStage::Train => &built.grad,
    };
    let text = match args.format {
        GraphFormat::Text => odec_graph::print::text(graph),
        GraphFormat::Dot => odec_graph::dot::dot(graph),
        GraphFormat::Svg => odec_graph::svg::svg(graph, &built.name, &built.weights),
    };
    match &args.output {
        None => out!("{text}"),
        Some(path) => output::write_text(path, &text).map_err(Failure::input)?,
    }
    Ok(())
}
