//! `odec profile`: where the time of a training step goes.
//!
//! Measures as `odec bench` does, with the time of each launch; prints sums by field and by kind of kernel and the longest lines, beside
//! what the machine could do. The rows, the timeline and the trace are made by [`odec_runtime::profile`].

use super::bench;
use crate::cli::{self, By};
use odec_compiler::text::number::milliseconds;
use odec_compiler::text::table::{Cell, Table};
use odec_driver::fail::{Done, Failure};
use odec_driver::terminal;
use odec_program::site::Role;
use odec_runtime::device::roof::Roof;
use odec_runtime::profile::sums::Sum;
use odec_runtime::profile::{NamedProfile, timeline, trace};
use odec_runtime::system::output;
use odec_runtime::{Executor, Shown, outln};
use serde_json::json;

pub fn run(args: &cli::Profile) -> Done {
    for (file, ending) in [(&args.svg, "svg"), (&args.trace, "json")] {
        let checked = file.as_ref().map(|f| output::check_kind(f, &[ending], &[]));
        checked.transpose().map_err(Failure::input)?;
    }
    bench::trainable(&args.timed, |x| profile(args, x))
}

fn profile(args: &cli::Profile, x: &mut Executor) -> Done {
    let steps = bench::training(&args.timed, x, true)?;
    let roof = x.roof();
    let device = x.device_name();
    let Some(profile) = x.profile() else {
        return Ok(());
    };
    let told = NamedProfile::new(x.manifest(), profile, roof.as_ref());
    if args.timed.json {
        let mut out = steps.json();
        out["roof"] = json!(roof);
        out["all"] = json!(told.whole());
        out["fields"] = json!(told.fields());
        out["kinds"] = json!(told.kinds());
        out["launches"] = json!(told.lines());
        out["kernels"] = json!(told.kernels());
        outln!("{out}");
    } else {
        steps.print();
        print(args, &told);
    }
    if let Some(file) = &args.svg {
        let drawn = timeline::svg(&told, &device).ok_or_else(|| nothing("a timeline"))?;
        output::write_text(file, &drawn).map_err(Failure::input)?;
        said(args, &format!("timeline        {}", file.shown()));
    }
    if let Some(file) = &args.trace {
        let text = trace::text(&told, &device).ok_or_else(|| nothing("a trace"))?;
        output::write_text(file, &text).map_err(Failure::input)?;
        said(args, &format!("trace           {}", file.shown()));
    }
    Ok(())
}

fn nothing(what: &str) -> Failure {
    Failure::Input(format!(
        "there is nothing to make {what} of: this device computes nothing, so launches have no times; use another --device"
    ))
}

fn said(args: &cli::Profile, line: &str) {
    if !args.timed.json {
        outln!("{line}");
    }
}

fn print(args: &cli::Profile, told: &NamedProfile) {
    let whole = told.whole();
    if let Some(roof) = told.roof {
        outln!("roof            {}", in_words(roof));
    }
    match (whole.ms, whole.roof) {
        (None, _) => outln!("launches        {}", whole.launches),
        (Some(_), None) => outln!("launches        {} ms of a step", per_step(told, &whole)),
        (Some(_), Some(share)) => outln!(
            "launches        {} ms of a step, {} of the roof",
            per_step(told, &whole),
            percent(Some(share))
        ),
    }
    fields(told);
    kinds(told);
    match args.by {
        By::Origin => lines(told, args.lines),
        By::Kernel => kernels(told, args.lines),
    }
    if whole.ms.is_none() {
        outln!("no times: nothing was computed");
    }
}

/// Rates of the machine: `236 Gflop/s, 38 GB/s of 256 MiB, 210 GB/s of 1 MiB; measured now with 2 threads`.
fn in_words(roof: &Roof) -> String {
    let mut parts = vec![format!("{:.0} Gflop/s", roof.gflop_per_s)];
    let pairs = roof.pairs_gflop_per_s;
    parts.extend(pairs.map(|r| format!("{r:.0} Gflop/s in bf16")));
    for r in &roof.reading {
        let bytes = terminal::bytes(r.bytes);
        parts.push(format!("{:.0} GB/s of {bytes}", r.gbyte_per_s));
    }
    parts.join(", ")
}

/// Milliseconds of a step, the mean over all.
fn per_step(told: &NamedProfile, sum: &Sum) -> String {
    let steps = f64::from(told.profile.steps.max(1));
    sum.ms.map_or("-".into(), |ms| milliseconds(ms / steps))
}

fn percent(share: Option<f64>) -> String {
    share.map_or("-".into(), |s| format!("{:.1}%", 100.0 * s))
}

fn rate(x: Option<f64>) -> String {
    x.map_or("-".into(), |x| format!("{x:.1}"))
}

/// What every table ends with: launches and milliseconds of a step, and what they are in proportion to.
const RATES: [&str; 6] = ["launches", "ms", "share", "Gflop/s", "GB/s", "of roof"];

fn rates(told: &NamedProfile, sum: &Sum) -> [Cell; 6] {
    let steps = u64::from(told.profile.steps.max(1));
    [
        (sum.launches / steps).to_string(),
        per_step(told, sum),
        percent(sum.share),
        rate(sum.gflop_per_s),
        rate(sum.gbyte_per_s),
        percent(sum.roof),
    ]
    .map(Cell::right)
}

fn table(first: &[&str], last: &[&str]) -> Table {
    let mut table = Table::new(1);
    let first = first.iter().map(|name| Cell::left(*name));
    table.row(
        first
            .chain(last.iter().map(|name| Cell::right(*name)))
            .collect(),
    );
    table
}

fn show(table: &Table) {
    outln!("");
    for line in table.parts(usize::MAX).concat() {
        outln!("{}", line.trim_end());
    }
}

/// Fields by what was done for them.
fn fields(told: &NamedProfile) {
    let all = told.fields();
    let roles = Role::ALL.into_iter();
    let roles: Vec<Role> = roles
        .filter(|r| all.iter().any(|f| f.roles[r].is_some()))
        .collect();
    let steps = f64::from(told.profile.steps.max(1));
    let names = roles.iter().map(|r| r.name()).chain(RATES);
    let mut table = table(&["field"], &names.collect::<Vec<_>>());
    for f in &all {
        let of_role = |r: &Role| match f.roles[r] {
            Some(ms) => Cell::right(milliseconds(ms / steps)),
            None => Cell::Empty,
        };
        let cells = [Cell::left(&f.field)].into_iter();
        let cells = cells.chain(roles.iter().map(of_role));
        table.row(cells.chain(rates(told, &f.sum)).collect());
    }
    show(&table);
}

fn kinds(told: &NamedProfile) {
    let mut table = table(&["kernel"], &RATES);
    for k in told.kinds() {
        let cells = [Cell::left(k.kind)].into_iter();
        table.row(cells.chain(rates(told, &k.sum)).collect());
    }
    show(&table);
}

/// The first rows, and how many there are beside them.
fn first<T>(mut rows: Vec<T>, most: usize) -> (Vec<T>, usize) {
    let rest = match most {
        0 => 0,
        most => rows.len().saturating_sub(most),
    };
    rows.truncate(rows.len() - rest);
    (rows, rest)
}

fn lines(told: &NamedProfile, most: usize) {
    let (rows, rest) = first(told.lines(), most);
    let mut table = table(&["launch", "kernel"], &RATES);
    for l in rows {
        let cells = [Cell::left(l.name), Cell::left(l.kind)].into_iter();
        table.row(cells.chain(rates(told, &l.sum)).collect());
    }
    show(&table);
    more(rest);
}

fn kernels(told: &NamedProfile, most: usize) {
    let (rows, rest) = first(told.kernels(), most);
    let names: Vec<&str> = RATES.into_iter().chain(["dims of the first"]).collect();
    let mut table = table(&["kernel", "entry"], &names);
    for k in rows {
        let dims: Vec<String> = k.dims.iter().map(u64::to_string).collect();
        let cells = [Cell::left(k.kernel), Cell::left(k.entry)].into_iter();
        let cells = cells.chain(rates(told, &k.sum));
        table.row(cells.chain([Cell::right(dims.join("×"))]).collect());
    }
    show(&table);
    more(rest);
}

fn more(rest: usize) {
    if rest > 0 {
        outln!(
            "{} more: --lines 0 prints all",
            terminal::thousands(rest as u64)
        );
    }
}
