//! The page: runs in a table, their curves and fronts, their models.
//!
//! Takes what was found in folders; gives one HTML file that needs no other and no network. It reads without its script, which sorts the table and switches
//! curves. Everything that comes from files is escaped, and the page's policy (Content-Security-Policy) lets nothing run but the script below.

use crate::curves::{Against, Drawn, losses};
use crate::diff::settings;
use crate::facts::{Model, Models};
use crate::laws;
use crate::learned;
use crate::learned::{Coefficient, Value, learned, legend, paths};
use crate::pareto::{Cost, picture};
use crate::plot::class;
use crate::runs::{Found, Run, kinds};
use crate::table::{duration, loss, seen, steps};
use odec_compiler::analysis::report::Report;
use odec_compiler::analysis::summary::Summary;
use odec_compiler::analysis::{svg, text};
use odec_compiler::text::number::{bytes, flops, thousands};
use odec_explore::executed::Ended;
use odec_explore::fit::Fit;
use odec_explore::plan;
use odec_runtime::system::shown::markup;
use odec_runtime::train::metrics::Record;
use odec_source::escape::{escaped, escaped_lines};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// Most models whose sections are open when the page is.
const OPEN: usize = 2;
/// Most settings that differ and are shown.
const SETTINGS: usize = 40;

/// The page of what was found; `models` are those of its runs, in their order.
pub fn page(found: &Found, models: &Models) -> String {
    let kinds = kinds(&found.runs);
    let runs: Vec<Drawn> = (found.runs.iter().enumerate())
        .map(|(number, run)| Drawn {
            number,
            kind: kinds[number],
            run,
            model: models.get(number),
        })
        .collect();
    let flows: Vec<Vec<Report>> = models
        .each()
        .map(|(m, _)| m.as_ref().map_or(Vec::new(), Model::flows))
        .collect();
    let mut body = String::new();
    head(&runs, &mut body);
    ranked(found, &mut body);
    overview(&runs, models, &flows, &mut body);
    for (n, group) in groups(&runs).iter().enumerate() {
        compared(n, group, &mut body);
    }
    differing(&runs, &mut body);
    coefficients(&runs, &mut body);
    described(models, &flows, &runs, &mut body);
    refused(found, &mut body);
    let title = match found.runs.as_slice() {
        [one] => markup(&one.name),
        many => format!("{} runs", many.len()),
    };
    let policy = format!(
        "default-src 'none'; img-src data:; style-src 'sha256-{}'; script-src 'sha256-{}'",
        base64(&Sha256::digest(STYLE)),
        base64(&Sha256::digest(SCRIPT))
    );
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title} · odec</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n{body}\
         <footer>Made by odec {} from the folders of the runs. Pictures and numbers are those of <code>odec analyze</code>, <code>odec graph</code> and <code>odec check</code>.</footer>\n\
         </main>\n<script>{SCRIPT}</script>\n</body>\n</html>\n",
        env!("CARGO_PKG_VERSION")
    )
}

fn head(runs: &[Drawn], out: &mut String) {
    let title = match runs {
        [one] => markup(one.run.called()),
        runs => format!("{} runs", runs.len()),
    };
    let models: BTreeSet<&str> = runs.iter().map(|d| d.run.manifest.name.as_str()).collect();
    let models: Vec<String> = models.into_iter().map(|m| markup(&escaped(m))).collect();
    *out += &format!(
        "<h1>{title}</h1>\n<p class=\"soft\">{}</p>\n",
        models.join(", ")
    );
}

/// What a cell shows, and what it is sorted by.
type Cell<'a> = dyn Fn(&Drawn) -> (String, String) + 'a;

/// A column of the table of runs: its heading and its cells.
struct Column<'a> {
    name: &'static str,
    number: bool,
    cell: Box<Cell<'a>>,
}

fn overview(runs: &[Drawn], models: &Models, flows: &[Vec<Report>], out: &mut String) {
    fn column<'a>(
        name: &'static str,
        number: bool,
        cell: impl Fn(&Drawn) -> (String, String) + 'a,
    ) -> Column<'a> {
        let cell = Box::new(cell);
        Column { name, number, cell }
    }
    fn known(x: Option<f64>, shown: impl Fn(f64) -> String) -> (String, String) {
        match x.filter(|x| x.is_finite()) {
            Some(x) => (shown(x), x.to_string()),
            None => ("–".into(), String::new()),
        }
    }
    let orders: BTreeMap<usize, usize> = (models.each().zip(flows))
        .filter_map(|((_, runs), flows)| Some((runs, order(flows)?)))
        .flat_map(|(runs, order)| runs.into_iter().map(move |r| (r, order)))
        .collect();
    // What runs read has a unit in the heading where it is the same for all.
    let units: BTreeSet<&'static str> = runs.iter().map(|d| d.run.per_step().1).collect();
    let counted = match units.iter().next() {
        Some(unit) if units.len() == 1 => unit,
        _ => "seen",
    };
    let columns = [
        column("run", false, |d| {
            let swatch = format!("<span class=\"swatch {}\"></span>", class(d.kind));
            let called = markup(d.run.called());
            (format!("{swatch}{called}{}", notes(d.run)), called)
        }),
        column("scheme", false, |d| {
            let scheme = markup(&d.run.scheme());
            (format!("<code>{scheme}</code>"), scheme)
        }),
        column("proved order", true, move |d| {
            known(orders.get(&d.number).map(|p| *p as f64), |p| p.to_string())
        }),
        column("held-out loss", true, |d| {
            let judged = d.run.judged();
            let (shown, value) = known(judged.as_ref().map(|j| j.loss), loss);
            let of = judged.map_or(String::new(), |j| note(&format!("of {}", j.of)));
            (format!("{shown}{of}"), value)
        }),
        column("training loss", true, |d| known(last(d.run), loss)),
        column("steps", true, |d| (steps(d.run), d.run.done().to_string())),
        column(counted, true, |d| {
            let read = d.run.done() * d.run.per_step().0;
            let shown = match counted {
                "seen" => seen(d.run),
                _ => flops(read as f64),
            };
            (shown, read.to_string())
        }),
        column("training FLOPs", true, |d| {
            let most = d
                .model
                .is_some_and(|m| m.is_at_most(&d.run.progress.data.form));
            known(Cost::Flops.of(d), |x| {
                format!("{}{}", if most { "≤ " } else { "" }, flops(x))
            })
        }),
        column("executed", true, |d| {
            let is = d.run.executed().map(|[gradient, _]| gradient as f64);
            let (shown, value) = known(is, flops);
            let said = is
                .zip(Cost::Flops.of(d))
                .map(|(is, predicted)| match is == predicted {
                    true => "as predicted".to_string(),
                    false => format!("{:.3} of predicted", is / predicted),
                });
            (
                format!("{shown}{}", said.map_or(String::new(), |s| note(&s))),
                value,
            )
        }),
        column("parameters", true, |d| {
            known(Cost::Parameters.of(d), |n| thousands(n as u64))
        }),
        column("memory", true, |d| {
            known(Cost::Memory.of(d), |n| bytes(n as u64))
        }),
        column("time", true, |d| known(Some(d.run.seconds()), duration)),
        column("FLOP/s", true, |d| {
            let executed = d.run.executed().map(|both| both.iter().sum::<u64>() as f64);
            let rate = executed.or_else(|| Cost::Flops.of(d));
            let rate = rate.map(|n| n / d.run.seconds());
            known(rate, flops)
        }),
    ];
    *out += "<div class=\"scroll\"><table class=\"runs sortable\">\n<thead><tr>";
    for c in &columns {
        let (kind, class) = if c.number {
            ("number", "")
        } else {
            ("word", " class=\"word\"")
        };
        let _ = write!(
            out,
            "<th scope=\"col\" data-kind=\"{kind}\"{class}>{}</th>",
            c.name
        );
    }
    *out += "</tr></thead>\n<tbody>\n";
    let best = best(runs);
    for d in runs {
        *out += "<tr>";
        for (n, c) in columns.iter().enumerate() {
            let (shown, value) = (c.cell)(d);
            let class = match (n, c.number) {
                (0, _) => " class=\"word first\"",
                (_, false) => " class=\"word\"",
                _ if c.name == "held-out loss" && best.contains(&d.number) => " class=\"best\"",
                _ => "",
            };
            let _ = write!(
                out,
                "<td{class} data-label=\"{}\" data-v=\"{value}\"><div>{shown}</div></td>",
                c.name
            );
        }
        *out += "</tr>\n";
    }
    *out += "</tbody>\n</table></div>\n";
    *out += "<p class=\"soft\">Order: of the steps as they are computed, the least of all flows. FLOPs: matrix products and attention, forward and backward, with what is computed again. Executed: of the kernels that were launched for gradients; FLOP/s: with the optimiser's, over the whole time. Memory: planned, of parameters, gradients, what the optimiser keeps, and working memory. \
             Held-out loss: of trials of an exploration on all held-out data after the last step, which is what its ranking compares; of other runs the last evaluation while they were trained, of as many as stand below it. \
             Training loss: the mean of the last twentieth of the steps.</p>\n";
}

/// The mean training loss of the last twentieth of the steps.
fn last(r: &Run) -> Option<f64> {
    r.curve().stretches(20).last().map(|s| s.mean)
}

fn note(said: &str) -> String {
    format!("<span class=\"note\">{}</span>", markup(said))
}

/// What is to be known of a run beside its numbers.
fn notes(r: &Run) -> String {
    let mut notes: Vec<String> = Vec::new();
    match r.label {
        // It says what is set.
        Some(_) => notes.push(r.name.clone()),
        None => {
            let set = r.manifest.settings.iter();
            notes.extend(set.map(|s| escaped(s)));
            if r.progress.seed != 0 {
                notes.push(format!("seed {}", r.progress.seed));
            }
        }
    }
    if !r.is_complete() {
        notes.push("not complete".into());
    }
    notes.extend(r.records.iter().filter_map(|record| match record {
        Record::Warning(w) => Some(format!(
            "warned at step {}: {}",
            w.step,
            escaped(&w.warning)
        )),
        Record::Step(_) | Record::HeldOut(_) | Record::Movement(_) => None,
    }));
    notes.iter().map(|n| note(n)).collect()
}

/// The runs with the least held-out loss among those that they can be compared with, where there are others.
fn best(runs: &[Drawn]) -> BTreeSet<usize> {
    let groups = groups(runs);
    let best = groups.iter().filter(|g| g.len() > 1).filter_map(|group| {
        let known = group
            .iter()
            .filter_map(|d| Some((d.number, d.run.judged()?.loss)))
            .filter(|(_, loss)| loss.is_finite());
        known
            .min_by(|a, b| a.1.total_cmp(&b.1))
            .map(|(number, _)| number)
    });
    best.collect()
}

/// Runs whose losses can be compared, in the order of their first ones.
fn groups<'a>(runs: &[Drawn<'a>]) -> Vec<Vec<Drawn<'a>>> {
    let mut groups: Vec<(String, Vec<Drawn>)> = Vec::new();
    for d in runs {
        let key = d.run.data_key();
        let drawn = Drawn {
            number: d.number,
            kind: d.kind,
            run: d.run,
            model: d.model,
        };
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, group)) => group.push(drawn),
            None => groups.push((key, vec![drawn])),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

/// The curves and fronts of runs that can be compared.
fn compared(n: usize, group: &[Drawn], out: &mut String) {
    let Some(first) = group.first() else { return };
    let files = markup(&escaped(&first.run.progress.data.files.join(", ")));
    let names: BTreeSet<&str> = (group.iter())
        .map(|d| d.run.manifest.name.as_str())
        .collect();
    let names = names.into_iter().collect::<Vec<_>>().join(", ");
    let _ = writeln!(
        out,
        "<section>\n<h2>Losses of {} on {files}</h2>",
        markup(&escaped(&names))
    );
    *out += "<ul class=\"legend\">";
    // Runs of an exploration are called by hashes: their schemes and settings tell more.
    let told = |d: &Drawn| {
        let set = d.run.manifest.settings.iter().map(|s| escaped(s));
        let told: Vec<String> = [d.run.scheme()].into_iter().chain(set).collect();
        told.join(", ")
    };
    let differ = group.iter().any(|d| told(d) != told(first));
    let kinds: BTreeSet<usize> = group.iter().map(|d| d.kind).collect();
    for kind in kinds {
        let own: Vec<&Drawn> = group.iter().filter(|d| d.kind == kind).collect();
        let (class, several) = (class(kind), own.len() > 1);
        let (name, more) = match &own[0].run.trial {
            Some(t) if several => (t.model.clone(), format!("{} seeds", own.len())),
            Some(_) => (own[0].run.called().to_string(), String::new()),
            None => {
                let names: Vec<&str> = own.iter().map(|d| d.run.called()).collect();
                let more = if differ { told(own[0]) } else { String::new() };
                (names.join(", "), more)
            }
        };
        let more = match more.is_empty() {
            true => more,
            false => format!(" <span class=\"soft\">{}</span>", markup(&more)),
        };
        let name = markup(&name);
        let _ = write!(
            out,
            "<li class=\"{class}\" data-kind=\"{kind}\"><span class=\"swatch {class}\"></span>{name}{more}</li>"
        );
    }
    *out += "</ul>\n<div class=\"all\">\n";
    for against in Against::ALL {
        let key = against.key();
        if let Some(picture) = losses(group, against, &format!("g{n}-{key}")) {
            let name = match against {
                Against::Steps => "steps",
                Against::Seen => first.run.per_step().1,
                Against::Flops => "training FLOPs",
                Against::Time => "time",
            };
            let _ = writeln!(
                out,
                "<figure class=\"losses\" data-name=\"{name}\">\n{picture}</figure>"
            );
        }
    }
    let held_out: BTreeSet<(u64, &str)> = (group.iter())
        .filter_map(|d| d.run.evaluations().last())
        .map(|h| (h.of.number(), h.of.unit().name()))
        .collect();
    let sizes: Vec<String> = held_out
        .iter()
        .map(|(n, unit)| format!("{} {unit}", thousands(*n)))
        .collect();
    let of = match sizes.as_slice() {
        [] => "Nothing is held out: the lines are means of training losses.".into(),
        [size] => format!(
            "Thick lines with dots are held-out losses, of {size}; thin ones are means of training losses."
        ),
        sizes => format!(
            "Thick lines with dots are held-out losses, of {} in different runs; thin ones are means of training losses.",
            sizes.join(" or ")
        ),
    };
    let _ = writeln!(
        out,
        "</div>\n<p class=\"soft\">{of} The first tenth of a curve may lie above the picture.</p>"
    );
    let fronts = Cost::ALL
        .iter()
        .filter_map(|cost| picture(group, *cost, &format!("p{n}-{}", cost.key())));
    let fronts: Vec<String> = fronts.collect();
    if !fronts.is_empty() {
        *out += "<h3>What no other run beats in loss and cost</h3>\n<div class=\"pair\">\n";
        for f in fronts {
            let _ = writeln!(out, "<figure>\n{f}</figure>");
        }
        *out += "</div>\n";
    }
    *out += "</section>\n";
}

/// The rankings of explorations.
fn ranked(found: &Found, out: &mut String) {
    for (n, e) in found.explorations.iter().enumerate() {
        let name = markup(&e.name);
        let _ = writeln!(
            out,
            "<section>\n<h2>Ranking of <code>{name}</code></h2>\n<div class=\"ranking scroll\">{}</div>\n\
             <p class=\"soft\">Differences are to the model that others are compared with, paired by seed; ± is the half of the 95 % interval. \
             What is said of one holds at 95 % by Student's t test, with Holm's correction for their number. Intervals are over seeds: they say nothing about other data.</p>",
            image(&e.ranking, &format!("the ranking of {}", e.name))
        );
        took(&e.executed, out);
        followed(&e.fits, n, out);
        *out += "</section>\n";
    }
}

/// What the models of an exploration took beside what was predicted.
fn took(all: &[Ended], out: &mut String) {
    let known: Vec<_> = all.iter().filter(|m| m.executed.flops.is_some()).collect();
    if known.is_empty() {
        return;
    }
    let timed = known.iter().any(|m| m.executed.predicted_seconds.is_some());
    let mut heads = vec!["predicted FLOPs", "executed", "ratio"];
    heads.extend(timed.then_some("predicted time"));
    heads.push("time of steps");
    heads.extend(timed.then_some("ratio"));
    *out += "<h3>Predicted and executed</h3>\n<div class=\"scroll\"><table>\n<thead><tr><th class=\"word\" scope=\"col\">model</th>";
    for head in heads {
        let _ = write!(out, "<th scope=\"col\">{head}</th>");
    }
    *out += "</tr></thead>\n<tbody>\n";
    let shown = |x: Option<f64>, how: &dyn Fn(f64) -> String| x.map_or("–".to_string(), how);
    let ratio = |x: f64| match x == 1.0 {
        true => "1".to_string(),
        false => format!("{x:.3}"),
    };
    for m in known {
        let (label, e) = (markup(&escaped(&m.label)), &m.executed);
        let mut cells = vec![
            shown(e.predicted_flops, &flops),
            shown(e.flops, &flops),
            shown(e.flops_ratio(), &ratio),
        ];
        cells.extend(timed.then(|| shown(e.predicted_seconds, &plan::duration)));
        cells.push(shown(e.seconds, &plan::duration));
        cells.extend(timed.then(|| shown(e.seconds_ratio(), &ratio)));
        let cells: String = cells.iter().map(|c| format!("<td>{c}</td>")).collect();
        let _ = writeln!(out, "<tr><td class=\"word\">{}</td>{cells}</tr>", label);
    }
    *out += "</tbody>\n</table></div>\n<p class=\"soft\">Means over seeds. Executed: operations of the kernels that were launched for gradients. They are fewer than predicted where steps are decided while the model runs, \
             or rows are shorter than a context, and more for routed steps, whose kernels leave out rows that they were launched for. Times are without evaluations and checkpoints.</p>\n";
}

/// The laws that losses of an exploration follow.
fn followed(fits: &[Fit], n: usize, out: &mut String) {
    if fits.is_empty() {
        return;
    }
    *out += "<h3>Loss against training FLOPs</h3>\n";
    if let Some(picture) = laws::picture(fits, &format!("l{n}")) {
        let _ = writeln!(out, "<figure>\n{picture}</figure>");
    }
    laws::table(fits, out);
    *out += "<p class=\"soft\">Models that differ in sizes alone have one colour. A point is the mean over the seeds of one that was trained to its end. Laws by least squares in logarithms \
             (Kaplan et al. 2020; with a constant Hoffmann et al. 2022). Intervals are by Student's t over sizes: they say nothing about sizes beyond.</p>\n";
}

/// The settings that are not the same in all runs.
fn differing(runs: &[Drawn], out: &mut String) {
    let all: Vec<BTreeMap<String, String>> = runs.iter().map(|d| settings(d.run)).collect();
    let names: BTreeSet<&String> = all.iter().flat_map(BTreeMap::keys).collect();
    let same = |name: &String| all.windows(2).all(|w| w[0].get(name) == w[1].get(name));
    let names: Vec<&String> = names
        .into_iter()
        .filter(|n| !same(n))
        .take(SETTINGS)
        .collect();
    if names.is_empty() {
        return;
    }
    *out += "<section>\n<h2>Settings that differ</h2>\n<div class=\"scroll\"><table>\n<thead><tr><th class=\"word\" scope=\"col\">run</th>";
    for name in &names {
        let _ = write!(out, "<th scope=\"col\">{}</th>", markup(name));
    }
    *out += "</tr></thead>\n<tbody>\n";
    for (d, settings) in runs.iter().zip(&all) {
        let _ = write!(
            out,
            "<tr><td class=\"word\">{}</td>",
            markup(d.run.called())
        );
        for name in &names {
            let value = settings.get(*name).map_or("–".into(), |v| markup(v));
            let _ = write!(out, "<td>{value}</td>");
        }
        *out += "</tr>\n";
    }
    *out += "</tbody>\n</table></div>\n</section>\n";
}

/// The coefficients that runs have learned.
fn coefficients(runs: &[Drawn], out: &mut String) {
    let found: Vec<(&Drawn, Result<Vec<Coefficient>, String>)> = runs
        .iter()
        .map(|d| (d, learned(d.run)))
        .filter(|(_, found)| found.as_ref().map_or(true, |all| !all.is_empty()))
        .collect();
    if found.is_empty() {
        return;
    }
    *out += "<section>\n<h2>Learned coefficients</h2>\n<p class=\"soft\">After the last checkpoint, with what each began with. Of one for each column of the state: the mean, the least and the largest.</p>\n";
    for (d, found) in found {
        let _ = writeln!(out, "<h3>{}</h3>", markup(d.run.called()));
        match found {
            Err(why) => _ = writeln!(out, "<p>{}</p>", markup(&why)),
            Ok(all) => {
                table_of(&all, out);
                trained(d, &all, out);
            }
        }
    }
    *out += "</section>\n";
}

/// Coefficients while a run was trained, where its metrics say them.
fn trained(d: &Drawn, last: &[Coefficient], out: &mut String) {
    let logged = |r: &Record| matches!(r, Record::Movement(m) if !m.coefficients.is_empty());
    if !d.run.records.iter().any(logged) {
        return;
    }
    let paths = paths(d.run, last);
    let Some(picture) = learned::picture(&paths, &format!("k{}", d.number)) else {
        return;
    };
    *out += "<ul class=\"legend\">";
    for (class, name) in legend(&paths) {
        let name = markup(&escaped(&name));
        let _ = write!(
            out,
            "<li class=\"{class}\"><span class=\"swatch {class}\"></span><code>{name}</code></li>"
        );
    }
    let _ = writeln!(out, "</ul>\n<figure>\n{picture}</figure>");
}

fn table_of(all: &[Coefficient], out: &mut String) {
    let steps: BTreeSet<Option<u64>> = all.iter().flat_map(|c| c.values.keys().copied()).collect();
    *out += "<div class=\"scroll\"><table>\n<thead><tr><th class=\"word\" scope=\"col\">coefficient</th>";
    for step in &steps {
        let name = step.map_or("all steps".into(), |n| format!("step {n}"));
        let _ = write!(out, "<th scope=\"col\">{name}</th>");
    }
    *out += "</tr></thead>\n<tbody>\n";
    for c in all {
        let _ = write!(
            out,
            "<tr><td class=\"word\"><code>{}</code></td>",
            markup(&escaped(&c.name))
        );
        for step in &steps {
            let Some((from, now)) = c.values.get(step) else {
                *out += "<td></td>";
                continue;
            };
            let now = match now {
                Value::One(x) => format!("{x:.4}"),
                Value::Columns { mean, low, high } => format!("{mean:.4} ({low:.3} … {high:.3})"),
            };
            let from = from.map_or(String::new(), |x| {
                format!("<span class=\"note\">from {x:.4}</span>")
            });
            let _ = write!(out, "<td>{now}{from}</td>");
        }
        *out += "</tr>\n";
    }
    *out += "</tbody>\n</table></div>\n";
}

/// The least order of flows; `None` where one has none that is proved.
fn order(flows: &[Report]) -> Option<usize> {
    let orders = flows.iter().map(|r| Summary::new(r).order);
    orders.collect::<Option<Vec<_>>>()?.into_iter().min()
}

/// Each model: its source, what is proved of its flows, and its graph.
fn described(models: &Models, flows: &[Vec<Report>], runs: &[Drawn], out: &mut String) {
    *out += "<section>\n<h2>Models</h2>\n";
    let several = flows.len();
    for ((model, of), flows) in models.each().zip(flows) {
        let Some(first) = of.first().map(|n| runs[*n].run) else {
            continue;
        };
        let names: Vec<String> = of.iter().map(|n| markup(runs[*n].run.called())).collect();
        let open = if several <= OPEN { " open" } else { "" };
        let scheme = markup(&first.scheme());
        let model_name = markup(&escaped(&first.manifest.name));
        let _ = writeln!(
            out,
            "<details{open}>\n<summary>{model_name}: <code>{scheme}</code> <span class=\"soft\">{}</span></summary>",
            names.join(", ")
        );
        match model {
            Err(why) => _ = writeln!(out, "<p>{}</p>", markup(&escaped(why))),
            Ok(model) => {
                flows.iter().for_each(|r| flow(r, out));
                let _ = writeln!(
                    out,
                    "<h3>Graph</h3>\n<div class=\"pictures\">{}</div>",
                    image(&model.graph(), "the graph of the model")
                );
            }
        }
        let _ = writeln!(
            out,
            "<details>\n<summary>Source</summary>\n<pre>{}</pre>",
            code(&first.manifest.source)
        );
        for i in &first.manifest.imports {
            let _ = writeln!(
                out,
                "<p><code>{}</code></p>\n<pre>{}</pre>",
                markup(&escaped(&i.path)),
                code(&i.text)
            );
        }
        *out += "</details>\n</details>\n";
    }
    *out += "</section>\n";
}

/// What is proved of a flow, and its pictures.
fn flow(r: &Report, out: &mut String) {
    let summary = Summary::new(r);
    let _ = writeln!(out, "<h3><code>{}</code></h3>", markup(&escaped(&r.name)));
    let mut said = vec![match (&r.order, summary.order) {
        (Err(why), _) => format!("No order is proved: {}.", why.why),
        (Ok(found), Some(p)) => match &found.limit {
            Some(limit) => format!("Order {p}, limited by {}.", text::brief(limit)),
            None => format!("Order {p}."),
        },
        (Ok(_), None) => "Not consistent: order 0.".into(),
    }];
    if !summary.proved.is_empty() {
        said.push(format!("Proved: {}.", summary.proved.join(", ")));
    }
    let _ = writeln!(out, "<p>{}</p>", markup(&escaped(&said.join(" "))));
    let pictures = svg::pictures(r)
        .into_iter()
        .filter(|(kind, _)| ["tableau", "region"].contains(kind));
    let pictures: String = pictures
        .map(|(kind, p)| image(&p, &format!("{kind} of {}", r.name)))
        .collect();
    if !pictures.is_empty() {
        let _ = writeln!(out, "<div class=\"pictures\">{pictures}</div>");
    }
    let _ = writeln!(
        out,
        "<details class=\"more\">\n<summary>Analysis</summary>\n<pre>{}</pre>\n</details>",
        code(&text::text(r))
    );
}

fn refused(found: &Found, out: &mut String) {
    if found.refused.is_empty() {
        return;
    }
    *out += "<section>\n<h2>Not read</h2>\n<ul>\n";
    for r in &found.refused {
        let _ = writeln!(
            out,
            "<li><code>{}</code>: {}</li>",
            markup(&r.folder),
            markup(&escaped(&r.why))
        );
    }
    *out += "</ul>\n</section>\n";
}

fn code(source: &str) -> String {
    markup(&escaped_lines(source.trim_end()))
}

/// A picture of its own, so that its styles and names meet no others.
fn image(svg: &str, said: &str) -> String {
    let mut url = String::with_capacity(svg.len() * 5 / 4);
    for c in svg.chars() {
        match c {
            '%' | '#' | '<' | '>' | '"' | '&' | '\n' | '\'' | '?' | '\\' => {
                _ = write!(url, "%{:02X}", c as u32)
            }
            c if c.is_control() => {}
            c => url.push(c),
        }
    }
    format!(
        "<img alt=\"{}\" src=\"data:image/svg+xml;charset=utf-8,{url}\">",
        markup(&escaped(said))
    )
}

/// RFC 4648.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for three in bytes.chunks(3) {
        let byte = |n: usize| u32::from(three.get(n).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            out.push(match digit <= three.len() {
                true => DIGITS[(bits >> (18 - 6 * digit) & 63) as usize] as char,
                false => '=',
            });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_written_in_base_64() {
        let written = ["", "f", "fo", "foo", "foob"].map(|s| base64(s.as_bytes()));
        assert_eq!(written, ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg=="]);
    }

    #[test]
    fn pictures_end_no_attribute() {
        let url = image("<svg title=\"a&b\">\n#%'</svg>", "\"><script>");
        assert_eq!(
            url,
            "<img alt=\"&quot;&gt;&lt;script&gt;\" src=\"data:image/svg+xml;charset=utf-8,\
             %3Csvg title=%22a%26b%22%3E%0A%23%25%27%3C/svg%3E\">"
        );
    }
}
