//! `odec help`: of odec, of a command, of a layer, an optimiser or a schedule; of all layers as the page `docs/layers.md`, of the others as
//! `docs/optimizers.md`.
//!
//! What is said of a layer is what its file in `compiler/model/src/layers/` declares; its costs are counted on its graph. Optimisers and
//! schedules declare theirs in `program/src/optimizers/` and `program/src/schedules/`.

use crate::cli::{self, Cli};
use clap::error::ErrorKind;
use clap::{Command, CommandFactory};
use odec_compiler::cost::operations;
use odec_compiler::model::alone::SHOWN;
use odec_compiler::model::layers::{self, DEFINITIONS};
use odec_compiler::model::page::{ArgumentLine, Page, choice_lines};
use odec_compiler::model::settings;
use odec_driver::fail::{Done, Failure};
use odec_driver::terminal::thousands;
use odec_program::Bindings;
use odec_program::choice::{About, Choice, Choices, Example};
use odec_program::optimizers::{Optimizer, OptimizerKind};
use odec_program::schedules::ScheduleKind;
use odec_runtime::{out, outln};

/// What names all layers, and all optimisers and schedules.
const LAYERS: &str = "layers";
const OPTIMIZERS: &str = "optimizers";

pub fn run(args: &cli::Help) -> Done {
    let mut command = Cli::command();
    let Some(what) = &args.what else {
        return show(&mut command, &[]);
    };
    if command.find_subcommand(what).is_some() {
        return show(&mut command, &[what]);
    }
    if what == LAYERS {
        return reference();
    }
    if what == OPTIMIZERS {
        out!("{}", optimizers());
        return Ok(());
    }
    // A layer and a schedule may have one name.
    let mut pages = Vec::new();
    if let Some(definition) = layers::find(what) {
        pages.push(text(&definition.page().map_err(Failure::internal)?));
    }
    let chosen = choices().into_iter().filter(|c| c.name == what.as_str());
    pages.extend(chosen.map(|c| c.text()));
    if pages.is_empty() {
        unknown(&mut command, what);
    }
    out!("{}", pages.join("\n"));
    Ok(())
}

/// What clap says of `odec COMMAND --help`.
fn show(command: &mut Command, of: &[&str]) -> Done {
    let arguments = ["odec"].iter().chain(of).chain(&["--help"]);
    match command.try_get_matches_from_mut(arguments) {
        Err(help) => help.exit(),
        Ok(_) => Err(Failure::internal("`--help` is an argument like any other")),
    }
}

/// Says that there is nothing of this name, and ends.
fn unknown(command: &mut Command, what: &str) -> ! {
    let commands = command.get_subcommands().filter(|c| !c.is_hide_set());
    let names: Vec<String> = commands.map(|c| c.get_name().to_string()).collect();
    let known = names.iter().map(String::as_str);
    let known = known
        .chain(DEFINITIONS.iter().map(|d| d.name))
        .chain(choices().iter().map(|c| c.name))
        .chain([LAYERS, OPTIMIZERS])
        .collect::<Vec<_>>();
    let near = odec_grammar::nearest(what, known.iter().copied())
        .map(|n| format!("; did you mean `{n}`?"));
    let near = near.unwrap_or_default();
    let message = format!(
        "there is no command, layer, optimiser or schedule `{what}`{near}\n\nCommands are listed by `odec help`, layers by `odec help {LAYERS}`, \
         optimisers and schedules by `odec help {OPTIMIZERS}`."
    );
    command.error(ErrorKind::InvalidSubcommand, message).exit()
}

/// A page as text.
fn text(page: &Page) -> String {
    let about = &page.about;
    let mut out = format!(
        "{}\n\n  {}\n\n  {}\n",
        page.name, about.summary, about.formula
    );
    out += &uses(&page.arguments, &page.examples);
    if !page.parameters.is_empty() {
        out += &format!(
            "\nParameters of the first example, width {}:\n",
            SHOWN.width
        );
        let width = page.parameters.iter().map(|p| p.path.len()).max();
        let width = width.unwrap_or(0);
        for p in &page.parameters {
            let (path, shape, start) = (&p.path, &p.shape, &p.start);
            out += &format!("  {path:width$}  {shape:?}, start: {start}\n");
        }
    }
    out += &format!("\n{}\n{}", costs(page), ending(about));
    out
}

/// Arguments and examples, as text.
fn uses(arguments: &[ArgumentLine], examples: &[Example]) -> String {
    let mut out = String::new();
    if !arguments.is_empty() {
        out += "\nArguments:\n";
        let width = arguments.iter().map(|a| a.name.chars().count()).max();
        let width = width.unwrap_or(0);
        for a in arguments {
            out += &format!("  {:width$}  {} [{}]\n", a.name, a.form, a.default);
            out += &format!("  {:width$}  {}\n", "", a.meaning);
        }
    }
    out += "\nExamples:\n";
    for e in examples {
        out += &format!("  {}\n      {}\n", e.text, e.meaning);
    }
    out
}

/// Notes and source.
fn ending(about: &About) -> String {
    let notes = about.notes.iter().map(|n| format!("\n{n}\n"));
    let mut out: String = notes.collect();
    if !about.source.is_empty() {
        out += &format!("\nSource: {}\n", about.source);
    }
    out
}

/// What the first example costs.
fn costs(page: &Page) -> String {
    let alone = &page.alone;
    let elements = alone.params.iter().map(|p| p.shape.iter().product::<u64>());
    let parameters = elements.sum::<u64>();
    let text = Bindings::new(1, SHOWN.context);
    let flops = operations::count(&alone.graph, text, |_| true).flops() / SHOWN.context;
    let mut parts = vec![format!("{} columns", thousands(alone.columns))];
    if parameters > 0 {
        parts.push(format!("{} parameters", thousands(parameters)));
    }
    if flops > 0 {
        let (flops, context) = (thousands(flops), thousands(SHOWN.context));
        parts.push(format!(
            "{flops} operations per token of a text of {context}"
        ));
    }
    if alone.reads.later_tokens {
        parts.push("no reading on token by token".into());
    } else if alone.reads.kept > 0 {
        let kept = thousands(alone.reads.kept);
        parts.push(format!(
            "{kept} numbers kept per token while text is generated"
        ));
    }
    format!("The first example has {}.", parts.join(", "))
}

/// All layers as one page.
fn reference() -> Done {
    out!("{HEAD}");
    for d in DEFINITIONS {
        let summary = d.about.summary;
        outln!("| [`{0}`](#{0}) | {summary} |", d.name);
    }
    for d in DEFINITIONS {
        let page = d.page().map_err(Failure::internal)?;
        outln!("\n{}", markdown(&page).trim_end());
    }
    Ok(())
}

const HEAD: &str = "# Layers

Written by `odec help layers > docs/layers.md`, from what each layer declares (`compiler/model/src/layers/`); a test compares. `odec help attention` prints one of them.

A field is a pipeline of layers, joined by `|>`: `field att = rmsnorm |> attention(heads: 8, causal, rope)`. In arguments, `width` is the width of the model's states, `context` its
context and `vocab` its vocabulary. Weights are stored [out, in]. Parameters are called by their part (`q.weight`); where layers of one role occur several times in a field, they are
numbered: `q.2.weight`.

| layer | |
|---|---|
";

fn markdown(page: &Page) -> String {
    let about = &page.about;
    let name = &page.name;
    let mut out = format!(
        "## {name}\n\n{}\n\n    {}\n\n",
        about.summary, about.formula
    );
    out += &table(&page.arguments, &page.examples);
    if !page.parameters.is_empty() {
        let title = format!("parameters of the first example, width {}", SHOWN.width);
        out += &format!("\n| {title} | shape | start |\n|---|---|---|\n");
        for p in &page.parameters {
            out += &format!("| `{}` | {:?} | {} |\n", p.path, p.shape, p.start);
        }
    }
    out += &format!("\n{}\n{}", costs(page), sentence(about));
    out
}

/// Arguments and examples, as Markdown.
fn table(arguments: &[ArgumentLine], examples: &[Example]) -> String {
    let mut out = String::new();
    if !arguments.is_empty() {
        out += "| argument | what may be given | default | meaning |\n|---|---|---|---|\n";
        arguments.iter().for_each(|a| out += &row(a));
        out += "\n";
    }
    for e in examples {
        out += &format!("- `{}`: {}\n", e.text, e.meaning);
    }
    out
}

/// Notes and source, the latter as a sentence.
fn sentence(about: &About) -> String {
    let end = ending(about);
    match about.source.is_empty() {
        true => end,
        false => format!("{}.\n", end.trim_end()),
    }
}

/// An optimiser or a schedule.
struct Chosen {
    name: &'static str,
    about: About,
    examples: &'static [Example],
    arguments: Vec<ArgumentLine>,
    /// What an optimiser keeps.
    kept: Option<String>,
}

impl Chosen {
    fn of<C: Choices>(chosen: &mut C, kept: Option<String>) -> Chosen {
        let c = chosen.get_mut();
        Chosen {
            name: c.name(),
            about: c.about(),
            examples: c.examples(),
            arguments: choice_lines(c),
            kept,
        }
    }

    fn text(&self) -> String {
        let About {
            summary, formula, ..
        } = self.about;
        let uses = uses(&self.arguments, self.examples);
        let mut out = format!("{}\n\n  {summary}\n\n  {formula}\n{uses}", self.name);
        if let Some(kept) = &self.kept {
            out += &format!("\n{kept}\n");
        }
        out + &ending(&self.about)
    }

    fn markdown(&self) -> String {
        let About {
            summary, formula, ..
        } = self.about;
        let name = self.name;
        let table = table(&self.arguments, self.examples);
        let mut out = format!("### {name}\n\n{summary}\n\n    {formula}\n\n{table}");
        if let Some(kept) = &self.kept {
            out += &format!("\n{kept}\n");
        }
        out + &sentence(&self.about)
    }
}

/// What an optimiser keeps, as its last example says it.
fn kept(o: &dyn Optimizer) -> Option<String> {
    let last = settings::example(o.examples().last()?.text)?;
    Some(match last.states() {
        [] => "Nothing is kept beside a parameter.".into(),
        states => format!("Kept beside each parameter: {}.", states.join("; ")),
    })
}

fn choices() -> Vec<Chosen> {
    let optimizers = OptimizerKind::all().into_iter().map(|mut o| {
        let kept = kept(o.get());
        Chosen::of(&mut o, kept)
    });
    let schedules = ScheduleKind::all().into_iter();
    let schedules = schedules.map(|mut s| Chosen::of(&mut s, None));
    optimizers.chain(schedules).collect()
}

/// All optimisers and schedules as one page.
fn optimizers() -> String {
    let (optimizers, schedules): (Vec<_>, Vec<_>) =
        choices().into_iter().partition(|c| c.kept.is_some());
    let list = |of: &[Chosen]| -> String {
        let line = |c: &Chosen| format!("| [`{0}`](#{0}) | {1} |\n", c.name, c.about.summary);
        let pages = of.iter().map(|c| format!("\n{}", c.markdown()));
        let lines = of.iter().map(line);
        ["| | |\n|---|---|\n".into()]
            .into_iter()
            .chain(lines)
            .chain(pages)
            .collect()
    };
    format!(
        "{OF_OPTIMIZERS}{}{OF_SCHEDULES}{}",
        list(&optimizers),
        list(&schedules)
    )
}

const OF_OPTIMIZERS: &str = "# Optimisers and schedules

Written by `odec help optimizers > docs/optimizers.md`, from what each of them declares (`program/src/optimizers/`, `program/src/schedules/`); a test compares. `odec help sgd` prints
one of them.

```train
optimizer adamw(lr: 3e-4, weight_decay: 0.1)
schedule  cosine(warmup: 5%, floor: 10%)
```

## Optimisers

In formulas p is a number of a parameter, g its gradient, clipped where `clip` says so, α the rate of the step, t the number of the step from 1. Vectors and scalars do not decay: λ is 0 for them.
What is kept starts at 0, and is in the checkpoint under the parameter's path behind `moment1.` and `moment2.`, in this order. A step whose gradient is not finite changes nothing.

";

const OF_SCHEDULES: &str = "
## Schedules

A schedule gives the factor that the optimiser's `lr` is multiplied by at step t, counted from 1. Behind the warm-up u goes from 0 to 1 over the steps that are left.
With `--time-limit` what counts is the larger of the steps made and the share of the time that has passed.

";

fn row(a: &ArgumentLine) -> String {
    let [name, form, default, meaning] = [&a.name, &a.form, &a.default, &a.meaning];
    format!("| `{name}` | {form} | {default} | {meaning} |\n")
}
