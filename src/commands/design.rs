//! `odec design`: searches the best method by one criterion, and writes it with exact coefficients and proved claims.

use crate::cli::{self, Most};
use console::Term;
use odec_compiler::design::runge_kutta::{self, Request};
use odec_compiler::design::{
    Design, Goal, Refused, called, picture, registers, sdirk, splitting, text, value,
};
use odec_compiler::text::number::about;
use odec_compiler::text::page::Page;
use odec_compiler::text::table::{Cell, Table};
use odec_driver::fail::{Done, Failure};
use odec_driver::source;
use odec_driver::terminal;
use odec_grammar::{Sources, parse, render};
use odec_runtime::system::output;
use odec_runtime::{Shown, out, outln};
use std::path::Path;

/// What a scheme is called that goes to no file.
const NAME: &str = "designed";
const NO_PICTURE: &str = "this design has no picture";

pub fn run(args: &cli::Design) -> Done {
    let name = match &args.output {
        Some(path) => kept(path, args.overwrite)?,
        None => NAME.to_string(),
    };
    if let Some(path) = &args.svg {
        output::check_kind(path, &["svg"], &[]).map_err(Failure::input)?;
        if args.splitting || args.diagonal || args.low_storage.is_some() {
            return Err(Failure::input(format!(
                "{NO_PICTURE}: leave out --svg, or design the tableau of an explicit method"
            )));
        }
    }
    let design = searched(args)?;
    let text = text(&name, &command(args), &design);
    let shown = args.output.as_ref().map_or(NAME.into(), |p| p.shown());
    source::written(&shown, &text)?.checked()?;
    // All that is written is known before the first file is.
    let drawn = match &args.svg {
        None => None,
        Some(path) => {
            let drawn = picture(&name, &design).ok_or_else(|| {
                Failure::input(format!(
                    "{NO_PICTURE}: the conditions determine the value of the goal"
                ))
            })?;
            Some((path, drawn))
        }
    };
    let mut page = Page::new(terminal::screen());
    report(&mut page, &name, &design);
    out!("{}", page.finish());
    outln!();
    match &args.output {
        None => out!("{text}"),
        Some(path) => {
            output::write_text(path, &text).map_err(Failure::input)?;
            outln!("{shown}: every claim proved");
        }
    }
    match drawn {
        None => Ok(()),
        Some((path, drawn)) => output::write_text(path, &drawn).map_err(Failure::input),
    }
}

/// The name of the scheme that a file is to hold.
fn kept(path: &Path, overwrite: bool) -> Done<String> {
    let shown = path.shown();
    if !source::is_source(path) {
        return Err(Failure::Input(format!(
            "{shown} is not a .ode file; name one, such as best.ode"
        )));
    }
    if path.is_file() && !overwrite {
        return Err(Failure::Input(format!(
            "{shown} exists; replace it with --overwrite"
        )));
    }
    output::check(path).map_err(Failure::input)?;
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let name = name.replace('-', "_");
    let (_, messages) = parse(0, &format!("scheme {name} {{ tableau {{ | 1 }} }}\n"));
    if let Some(first) = messages.first() {
        let mut sources = Sources::default();
        sources.add(shown.clone(), "");
        let why = render(first, &sources, false);
        let why = why.lines().next().unwrap_or_default();
        return Err(Failure::Input(format!(
            "a scheme cannot be called `{name}` ({why}); use letters, digits and _, and no word of the language"
        )));
    }
    Ok(name)
}

fn goal(args: &cli::Design) -> Goal {
    match (args.maximize, args.minimize) {
        (Some(Most::Ssp), _) => Goal::Ssp,
        (Some(Most::RealAxis), _) => Goal::RealAxis,
        (Some(Most::ImaginaryAxis), _) => Goal::ImaginaryAxis,
        (Some(Most::Area), _) => Goal::Area,
        (None, Some(cli::Least::ErrorBound)) => Goal::ErrorBound,
        (None, _) => Goal::Error,
    }
}

/// The command that finds the same again.
fn command(args: &cli::Design) -> String {
    let mut said = format!(
        "odec design --stages {} --order {}",
        args.stages, args.order
    );
    if args.splitting {
        said += " --splitting";
    } else if args.diagonal {
        said += " --diagonal";
        said += if args.l_stable { " --l-stable" } else { "" };
    } else {
        if args.low_storage.is_some() {
            said += " --low-storage 2n";
        }
        let goal = goal(args);
        let way = match goal.is_error() {
            true => "minimize",
            false => "maximize",
        };
        said += &format!(" --{way} {}", goal.name());
        said.extend(args.zero.iter().map(|z| format!(" --zero {z}")));
    }
    if args.loss != cli::LOSS {
        said += &format!(" --loss {}", args.loss);
    }
    said
}

fn searched(args: &cli::Design) -> Done<Design> {
    let (stages, order, loss) = (args.stages, args.order, args.loss);
    if !(0.0..0.5).contains(&loss) {
        return Err(Failure::Input(format!(
            "--loss {loss}: expected a number from 0 to 0.5, such as 1e-4"
        )));
    }
    let request = Request {
        stages,
        order,
        goal: goal(args),
        zeros: args
            .zero
            .iter()
            .map(|z| zero(z, args.stages))
            .collect::<Done<_>>()?,
        loss: args.loss,
    };
    let term = Term::stderr();
    let mut lines = 0;
    let mut tell = |what: &str| {
        if term.is_term() {
            _ = term.clear_last_lines(lines);
            _ = term.write_line(&format!("searching: {what}"));
            lines = 1;
        }
    };
    let found = match (args.splitting, args.diagonal, args.low_storage) {
        (true, ..) => splitting::design(stages, order, loss, &mut tell),
        (_, true, _) => sdirk::design(stages, order, args.l_stable, loss),
        (.., Some(cli::LowStorage::TwoRegisters)) => registers::design(&request, &mut tell),
        _ => runge_kutta::design(&request, &mut tell),
    };
    _ = term.clear_last_lines(lines);
    found.map_err(|e| match e {
        Refused::Impossible { what, help } => Failure::Input(format!("{what}\nhelp: {help}")),
        Refused::NotFound => Failure::Input(
            "the search found no such method\nhelp: give fewer --zero, or another goal".into(),
        ),
    })
}

/// `a42` or `b3` as row and column from 0; the weights are the row after the last stage.
fn zero(text: &str, stages: usize) -> Done<(usize, usize)> {
    let digit = |c: char| c.to_digit(10).map(|d| d as usize);
    let place = match text.chars().collect::<Vec<_>>()[..] {
        ['b', j] => digit(j).map(|j| (stages + 1, j)),
        ['a', i, j] => digit(i)
            .zip(digit(j))
            .filter(|(i, j)| j < i && *i <= stages),
        _ => None,
    };
    let place = place.filter(|(_, j)| (1..=stages).contains(j));
    let place = place.map(|(i, j)| (i - 1, j - 1));
    place.ok_or_else(|| {
        Failure::Input(format!(
            "--zero {text}: not a coefficient of an explicit method of {stages} stages\nhelp: give one below the diagonal, such as a31, or a weight, such as b2"
        ))
    })
}

fn report(page: &mut Page, name: &str, d: &Design) {
    page.title(name, &format!("order {}", d.order));
    page.blank();
    page.fact(d.goal.name(), &value(d));
    if d.goal != Goal::Error {
        page.fact("principal error", &about(d.error));
    }
    if d.traded.is_empty() {
        return;
    }
    page.section(&format!(
        "The least principal error found for each {}",
        called(d.against)
    ));
    let mut table = Table::new(1);
    for t in &d.traded {
        table.row(vec![
            Cell::right(about(t.level)),
            Cell::right(about(t.error)),
        ]);
    }
    page.table(&table);
}
