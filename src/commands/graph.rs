//! `odec graph`: the tensor graph as text, DOT or a picture.

use crate::cli::{self, GraphFormat, GraphStage};
use odec_driver::fail::{Done, Failure};
use odec_driver::source;
use odec_runtime::system::output;
use odec_runtime::{Shown, out};
use std::path::Path;

pub fn run(args: &cli::Graph) -> Done {
    if let Some(path) = &args.output {
        output::check(path).map_err(Failure::input)?;
    }
    let format = match (args.format, &args.output) {
        (Some(format), _) => format,
        (None, Some(path)) => by_ending(path)?,
        (None, None) => GraphFormat::Text,
    };
    if let Some(path) = &args.output {
        let endings: &[&str] = match format {
            GraphFormat::Text => &["txt", "odeg"],
            GraphFormat::Dot => &["dot"],
            GraphFormat::Svg => &["svg"],
        };
        output::check_kind(path, endings, &[]).map_err(Failure::input)?;
    }
    let built = source::parsed(&args.source.file, &args.source.set)?.built()?;
    let graph = match args.stage {
        GraphStage::Model => &built.forward,
        GraphStage::Train => &built.grad,
    };
    let text = match format {
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

/// What a file is to hold, by the end of its name.
fn by_ending(path: &Path) -> Done<GraphFormat> {
    match path.extension().and_then(|e| e.to_str()) {
        Some("svg") => Ok(GraphFormat::Svg),
        Some("dot") => Ok(GraphFormat::Dot),
        Some("txt" | "odeg") => Ok(GraphFormat::Text),
        _ => Err(Failure::Input(format!(
            "{}: its ending says no format; files end in .svg, .dot, .txt or .odeg, or say --format",
            path.shown()
        ))),
    }
}
