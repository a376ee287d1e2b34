//! `odec generate RUN --errors SCHEMES`: how far samples of few steps are from those of many, for each scheme.

use crate::cli;
use crate::commands::generate::asked;
use odec_compiler::measure::picture::{self, Line, Titles};
use odec_compiler::measure::{Curve, Point};
use odec_compiler::text::table::{Cell, Table};
use odec_driver::fail::{Done, Failure};
use odec_driver::method::{Explicit, explicit};
use odec_runtime::infer::flow::{self, Drawn};
use odec_runtime::system::output;
use odec_runtime::system::progress::Work;
use odec_runtime::{Executor, Show, Shown, outln};
use serde_json::json;
use std::io::Write;
use std::path::Path;

/// What all are compared with: the classical method, in so many steps.
const REFERENCE: (&str, u64) = ("rk4", 256);
/// Steps that a scheme is tried with, as long as a sample takes no more evaluations than [`MOST`].
const STEPS: [u64; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];
const MOST: u64 = 256;

pub fn run(args: &cli::Generate, x: &mut Executor, to: &Path) -> Done {
    let all: Vec<Explicit> = args
        .errors
        .iter()
        .map(|name| explicit(name))
        .collect::<Done<_>>()?;
    if all.len() > picture::COLOURS.len() {
        return Err(Failure::Input(format!(
            "--errors draws at most {} schemes, not {}; name some of them",
            picture::COLOURS.len(),
            all.len()
        )));
    }
    let reference = explicit(REFERENCE.0)?;
    let (of, _) = flow::drawn(x).map_err(Failure::input)?;
    let rows = flow::rows(x, args.class).map_err(Failure::input)?;
    flow::can_guide(x, args.guidance()).map_err(Failure::input)?;
    output::check_beside(to, &["svg"], &args.run).map_err(Failure::input)?;
    let tried = |of: &Explicit| {
        let each = of.evaluations();
        STEPS.into_iter().filter(move |n| n * each <= MOST)
    };
    let samples = asked(args, &rows, 1).classes.len() as u64;
    let evaluations: u64 = (all
        .iter()
        .flat_map(|of| tried(of).map(|n| n * of.evaluations())))
    .chain([REFERENCE.1 * reference.evaluations()])
    .sum();
    let show = match args.json {
        true => Show::Warnings,
        false => Show::Auto,
    };
    let mut work = Work::new(show, "drawing", evaluations * samples);
    let mut done = 0;
    let mut draw = |of: &Explicit, steps: u64| {
        let each = steps * of.evaluations();
        let made = flow::sample(x, &of.method, &asked(args, &rows, steps), &mut |n| {
            work.at(done + n * each);
        });
        done += samples * each;
        made.map_err(Failure::input)
    };
    let exact = draw(&reference, REFERENCE.1)?;
    let mut curves = Vec::new();
    for of in &all {
        let mut points = Vec::new();
        for steps in tried(of) {
            let error = flow::distance(&draw(of, steps)?, &exact);
            // The logarithm of nothing is not drawn: a scheme that is the reference itself.
            if error > 0.0 {
                points.push(Point {
                    steps: steps as usize,
                    h: 1.0 / steps as f64,
                    evaluations: (steps * of.evaluations()) as usize,
                    error,
                });
            }
        }
        curves.push(Curve {
            points,
            order: None,
            why: None,
        });
    }
    work.finish();
    let lines = all.iter().zip(&curves).map(|(of, curve)| Line {
        name: &of.name,
        proved: of.order,
        curve,
    });
    let titles = Titles {
        title: "Samples and evaluations",
        subject: &format!("{samples} {} of {}", of.many(), x.manifest().name),
        error: &format!("distance from {} steps of {}", REFERENCE.1, REFERENCE.0),
    };
    let drawn = picture::svg(titles, &lines.collect::<Vec<_>>());
    output::write(to, |file| file.write_all(drawn.as_bytes())).map_err(Failure::input)?;
    if args.json {
        let point =
            |p: &Point| json!({"steps": p.steps, "evaluations": p.evaluations, "error": p.error});
        let scheme = |(of, curve): (&Explicit, &Curve)| {
            let points: Vec<_> = curve.points.iter().map(point).collect();
            json!({"scheme": of.name, "order": of.order, "points": points})
        };
        let schemes: Vec<_> = all.iter().zip(&curves).map(scheme).collect();
        let reference = json!({"scheme": REFERENCE.0, "steps": REFERENCE.1});
        outln!(
            "{}",
            json!({"output": to.shown(), of.many(): samples, "guidance": args.guidance(), "reference": reference, "schemes": schemes})
        );
        return Ok(());
    }
    let mut table = Table::new(1);
    let head = ["scheme", "order", "steps", "evaluations", "error"];
    table.row(head.map(Cell::right).to_vec());
    for (of, curve) in all.iter().zip(&curves) {
        for p in &curve.points {
            let order = of.order.map_or("–".to_string(), |n| n.to_string());
            let (steps, evaluations) = (p.steps.to_string(), p.evaluations.to_string());
            let error = format!("{:.2e}", p.error);
            table.row(
                [of.name.clone(), order, steps, evaluations, error]
                    .map(Cell::right)
                    .to_vec(),
            );
        }
    }
    for line in table.parts(120).concat() {
        outln!("{line}");
    }
    outln!(
        "root of the mean square of differences of numbers{} from {} steps of {}, {samples} {}; drawn in {}",
        match of {
            Drawn::Images(_) => " (0 to 1)",
            Drawn::Vectors(_) => "",
        },
        REFERENCE.1,
        REFERENCE.0,
        of.many(),
        to.shown()
    );
    Ok(())
}
