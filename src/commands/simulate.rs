//! `odec simulate`: the paths of points that the fields of a model move, as facts, pictures and numbers.

use crate::cli::{self, Start};
use odec_compiler::analysis::svg;
use odec_compiler::model::Built;
use odec_compiler::simulate::clusters;
use odec_compiler::simulate::{self, MOST_POINTS, Paths, picture};
use odec_compiler::text::page::Page;
use odec_driver::fail::{Done, Failure};
use odec_driver::source;
use odec_driver::terminal;
use odec_runtime::data::points;
use odec_runtime::executor::init;
use odec_runtime::parameters::values;
use odec_runtime::system::{files, output};
use odec_runtime::{Shown, out, outln};
use safetensors::tensor::{Dtype, TensorView};
use serde_json::json;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

/// Coordinates of random points in a cube are from −2 to 2 (Tong et al. 2025, appendix C.8).
const HALF: f64 = 2.0;

pub fn run(args: &cli::Simulate) -> Done {
    if let Some(folder) = &args.svg {
        output::check_folder(folder).map_err(Failure::input)?;
    }
    if let Some(path) = &args.output {
        output::check_kind(path, &["safetensors"], &[]).map_err(Failure::input)?;
    }
    if !(0.0..1.0).contains(&args.within) {
        let given = args.within;
        return Err(Failure::Input(format!(
            "--within {given}: a share from 0 to 1 is expected, such as 0.05"
        )));
    }
    let mut parsed = source::parsed(&args.source.file, &args.source.set)?;
    let checked = parsed.checked()?;
    let Some(built) = checked.built else {
        let file = args.source.file.shown();
        return Err(Failure::Input(format!(
            "{file}: there is no model to move points"
        )));
    };
    if let Err(why) = &built.passed {
        source::report(std::slice::from_ref(why), &parsed.sources)?;
    }
    let start = start(args, &built)?;
    let parameters = parameters(args, &built)?;
    let paths = simulate::paths(&built, &start, &parameters).map_err(|e| match e {
        simulate::Failure::NotFinite { .. } => Failure::Input(e.to_string()),
        simulate::Failure::Run(_) => Failure::internal(e),
    })?;
    let found = Found {
        counts: clusters::counts(&paths, args.within),
        spread: paths.spread(),
        flows: checked.evolved.iter().map(|e| e.title.clone()).collect(),
    };
    match args.json {
        true => facts_as_json(args, &built, &paths, &found),
        false => facts(args, &built, &paths, &found),
    }
    if let Some(path) = &args.output {
        write(path, &built, &paths, &parameters)?;
    }
    if let Some(folder) = &args.svg {
        draw(folder, &built, &paths, &found)?;
    }
    Ok(())
}

/// What is said of paths.
struct Found {
    counts: Vec<usize>,
    spread: Vec<f64>,
    flows: Vec<String>,
}

/// Where points begin.
fn start(args: &cli::Simulate, built: &Built) -> Done<Vec<f64>> {
    let numbers = simulate::numbers(built);
    let most = built.config.context.min(MOST_POINTS);
    if let Some(path) = &args.points {
        return points::read(path, numbers, most).map_err(Failure::input);
    }
    let count = args.count.unwrap_or(most);
    if !(1..=most).contains(&count) {
        return Err(Failure::Input(format!(
            "--count {count}: this model takes 1 to {most} points (`context` of its input, at most {MOST_POINTS})"
        )));
    }
    Ok(match args.start {
        Start::Cube => points::in_cube(count, numbers, HALF, args.seed),
        Start::Sphere => points::on_sphere(count, numbers, args.seed),
    })
}

/// The values of all parameters: of a file, or as they start.
fn parameters(args: &cli::Simulate, built: &Built) -> Done<BTreeMap<String, Vec<f64>>> {
    if let Some(path) = &args.parameters {
        let wanted = built.params.iter();
        let wanted = wanted.map(|p| (p.path.as_str(), &p.shape[..]));
        return values::read(path, wanted).map_err(Failure::input);
    }
    let drawn = built.params.iter().map(|p| {
        let elements = p.shape.iter().product::<u64>() as usize;
        let values = init::values(&p.path, &p.init, args.seed);
        (p.path.clone(), values.take(elements).collect())
    });
    Ok(drawn.collect())
}

/// A time without what the rounding of its sum adds.
fn time(t: f64) -> String {
    let rounded = format!("{t:.12e}").parse().unwrap_or(t);
    rounded.to_string()
}

fn facts(args: &cli::Simulate, built: &Built, paths: &Paths, found: &Found) {
    let end = paths.times.last().copied().unwrap_or(0.0);
    let steps = terminal::count(paths.times.len() - 1, "step");
    let mut page = Page::new(terminal::screen());
    page.title(
        &built.name,
        &format!("{}, {steps}", terminal::count(paths.points, "point")),
    );
    page.fact("flow", &found.flows.join(", then "));
    page.fact("time", &format!("0 to {}", time(end)));
    let counts = &found.counts;
    let least = counts.iter().min().copied().unwrap_or(0);
    let first = counts.iter().zip(&paths.times).find(|(n, _)| **n == least);
    let reached = first.map_or(0.0, |(_, t)| *t);
    let within = args.within;
    page.fact(
        "clusters",
        &format!(
            "{} at first, {} at the end; fewest {least}, from time {reached:.4} (within {within} of the diameter)",
            counts[0],
            counts[counts.len() - 1]
        ),
    );
    let spread = &found.spread;
    let largest = spread.iter().copied().fold(0.0, f64::max);
    page.fact(
        "spread",
        &format!(
            "{} at first, {} at the end, at most {}",
            shown(spread[0]),
            shown(spread[spread.len() - 1]),
            shown(largest)
        ),
    );
    out!("{}", page.finish());
}

/// Four digits behind the point, or as a power of ten where these say little.
fn shown(x: f64) -> String {
    match x == 0.0 || (1e-2..1e4).contains(&x) {
        true => format!("{x:.4}"),
        false => format!("{x:.3e}"),
    }
}

fn facts_as_json(args: &cli::Simulate, built: &Built, paths: &Paths, found: &Found) {
    outln!(
        "{}",
        json!({
            "name": built.name, "flows": found.flows, "points": paths.points, "width": paths.width,
            "steps": paths.times.len() - 1, "seed": args.seed, "within": args.within,
            "times": paths.times, "clusters": found.counts, "spread": found.spread,
        })
    );
}

/// The paths and the parameters that made them.
fn write(
    path: &Path,
    built: &Built,
    paths: &Paths,
    parameters: &BTreeMap<String, Vec<f64>>,
) -> Done {
    let size = |n: &u64| *n as usize;
    let states = paths.states.concat();
    let shape = vec![paths.times.len(), paths.points, paths.width];
    let mut all = vec![
        ("times", vec![paths.times.len()], &paths.times),
        ("states", shape, &states),
    ];
    for p in &built.params {
        if let Some(values) = parameters.get(&p.path) {
            all.push((&p.path, p.shape.iter().map(size).collect(), values));
        }
    }
    let bytes: Vec<Vec<u8>> = all
        .iter()
        .map(|(.., values)| values.iter().flat_map(|x| x.to_le_bytes()).collect())
        .collect();
    let views = all.iter().zip(&bytes).map(|((name, shape, _), bytes)| {
        TensorView::new(Dtype::F64, shape.clone(), bytes).map(|view| (*name, view))
    });
    let views: Result<Vec<_>, _> = views.collect();
    let made = safetensors::serialize(views.map_err(Failure::internal)?, None);
    let made = made.map_err(Failure::internal)?;
    output::write(path, |file| file.write_all(&made)).map_err(Failure::input)
}

fn draw(folder: &Path, built: &Built, paths: &Paths, found: &Found) -> Done {
    let failed = |e: std::io::Error| Failure::Input(format!("{}: {e}", folder.shown()));
    files::create_folder(folder).map_err(failed)?;
    let title = format!("{}: {}", built.name, found.flows.join(", then "));
    let pictures = [
        ("paths", picture::paths(paths, &title)),
        (
            "clusters",
            picture::clusters(paths, &found.counts, &found.spread, &title),
        ),
    ];
    for (kind, picture) in pictures {
        let path = folder.join(format!("{}.{kind}.svg", svg::stem(&built.name)));
        output::write_text(&path, &picture).map_err(Failure::input)?;
    }
    Ok(())
}
