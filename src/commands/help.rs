//! `odec help`: of odec, of a command, of a layer or another part of a model, of a scheme of the library or a word of the language, or of all of them as the pages `docs/layers.md` and `docs/parts.md`;
//! with `--file` of the layers and fields of a user's file.
//!
//! What is said of a part is what its file in `compiler/model/src/`, `program/src/` or `schemes/layers/` declares; the costs of a layer are counted on its graph.

use crate::cli::{self, Cli};
use crate::commands::words;
use clap::error::ErrorKind;
use clap::{Command, CommandFactory};
use odec_compiler::cost::operations;
use odec_compiler::model::CompileError;
use odec_compiler::model::alone::{Alone, Around, SHOWN};
use odec_compiler::model::chapters::{Chapter, chapters};
use odec_compiler::model::layers::Group;
use odec_compiler::model::page::{self, ArgumentLine, Own, Page};
use odec_compiler::scheme::vocabulary::WHEN;
use odec_driver::fail::{Done, Failure};
use odec_driver::library::LIBRARY;
use odec_driver::source;
use odec_driver::terminal::{count, thousands};
use odec_program::Bindings;
use odec_runtime::{Shown, out, outln};
use std::path::Path;

/// What names all layers, and all other parts.
const LAYERS: &str = "layers";
const PARTS: &str = "parts";

pub fn run(args: &cli::Help) -> Done {
    let mut command = Cli::command();
    if let Some(file) = &args.file {
        return of_file(file, args.what.as_deref());
    }
    let Some(what) = &args.what else {
        return show(&mut command, &[]);
    };
    if command.find_subcommand(what).is_some() {
        return of_command(&mut command, what);
    }
    if what == LAYERS {
        return reference();
    }
    if what == PARTS {
        return parts();
    }
    if what == WHEN {
        out!("{}", of_when());
        return Ok(());
    }
    let pages = pages_of(what)?;
    let mut pages: Vec<String> = pages.iter().map(text).collect();
    if pages.is_empty() {
        pages.extend(words::scheme(what));
    }
    // `exp` is a layer and a function of numbers.
    pages.extend(words::word(what, pages.is_empty()));
    if pages.is_empty() {
        return unknown(&mut command, what);
    }
    out!("{}", pages.join("\n"));
    Ok(())
}

/// What chooses among values, and is no layer.
fn of_when() -> String {
    format!(
        "{WHEN}(flag, a, b), in the body of a layer\n\n  \
         a where the layer is given the flag or the optional number, else b. Without b: what stands before it.\n\n\
         Example:\n  layer mine(heads, rope: flag) = linear |> {WHEN}(rope, rotary(heads: heads))\n"
    )
}

/// A layer or a field of a file, or the list of all of them.
fn of_file(path: &Path, what: Option<&str>) -> Done {
    let mut parsed = source::parsed(path, &[])?;
    let (name, text) = (
        parsed.sources.name(parsed.main).to_string(),
        parsed.sources.text(parsed.main).to_string(),
    );
    parsed.sound()?;
    let known = page::own(&parsed.file);
    let Some(what) = what else {
        let width = known.iter().map(|o| o.name.chars().count()).max();
        let width = width.unwrap_or(0);
        for Own {
            name,
            kind,
            summary,
        } in &known
        {
            let line = format!("{name:width$}  {kind}  {summary}");
            outln!("{}", line.trim_end());
        }
        return Ok(());
    };
    let around = Around {
        path: &name,
        text: &text,
    };
    let mut folder = source::folder(&name);
    let found = page::own_page(what, &parsed.file, around, LIBRARY, &mut folder);
    let wrong = |e: CompileError| {
        let said = match &e {
            CompileError::Source(messages) => messages.first().map(|d| d.message.clone()),
            CompileError::Internal(_) => None,
        };
        let said = said.unwrap_or_else(|| e.to_string());
        Failure::Input(format!("{}: the example of `{what}`: {said}", path.shown()))
    };
    let Some(page) = found.map_err(wrong)? else {
        let near = odec_grammar::nearest(what, known.iter().map(|o| o.name.as_str()));
        let near = near.map(|n| format!("; did you mean `{n}`?"));
        let near = near.unwrap_or_default();
        let message = format!("{} has no layer and no field `{what}`{near}", path.shown());
        return Err(Failure::Input(message));
    };
    out!("{}", self::text(&page));
    Ok(())
}

/// The pages of all that has this name: `tokens` are an input and a data source.
fn pages_of(name: &str) -> Result<Vec<Page>, Failure> {
    let layer = page::page(name, LIBRARY).map_err(Failure::internal)?;
    let parts = chapters().into_iter().flat_map(|c| c.pages);
    let parts = parts.filter(|p| p.name == name);
    Ok(layer.into_iter().chain(parts).collect())
}

/// The help of `odec COMMAND --help`, by clap.
fn show(command: &mut Command, of: &[&str]) -> Done {
    let arguments = ["odec"].iter().chain(of).chain(&["--help"]);
    match command.try_get_matches_from_mut(arguments) {
        Err(help) => help.exit(),
        Ok(_) => Err(Failure::internal("`--help` is an argument like any other")),
    }
}

/// The help of a command, and where its name is a word of the language too, as `train` is, the page of that.
fn of_command(command: &mut Command, what: &str) -> Done {
    let word = words::word(what, false);
    match command.try_get_matches_from_mut(["odec", what, "--help"]) {
        Err(help) => help.print().map_err(Failure::internal)?,
        Ok(_) => return Err(Failure::internal("`--help` is an argument like any other")),
    }
    if let Some(word) = word {
        out!("\n{word}");
    }
    Ok(())
}

/// Says that there is nothing of this name, and ends.
fn unknown(command: &mut Command, what: &str) -> Done {
    let commands = command.get_subcommands().filter(|c| !c.is_hide_set());
    let names: Vec<String> = commands.map(|c| c.get_name().to_string()).collect();
    let chapters = chapters();
    let parts = chapters.iter().flat_map(|c| &c.pages);
    let known = names.iter().map(String::as_str);
    let words = words::all();
    let known = known
        .chain(LIBRARY.iter().map(|scheme| scheme.name))
        .chain(words.iter().map(String::as_str))
        .chain(page::names(LIBRARY).map(|name| -> &str { name }))
        .chain(parts.map(|p| p.name.as_str()))
        .chain([LAYERS, PARTS]);
    let near = odec_grammar::nearest(what, known).map(|n| format!("; did you mean `{n}`?"));
    let near = near.unwrap_or_default();
    let message = format!(
        "there is no command, no layer, no scheme, no word of the language and no other part of a model called `{what}`{near}\n\nCommands are listed by `odec help`, layers by `odec help {LAYERS}`, \
         other parts by `odec help {PARTS}`, schemes by `odec schemes`; words are in docs/reference.md."
    );
    command.error(ErrorKind::InvalidSubcommand, message).exit()
}

/// A page as text.
fn text(page: &Page) -> String {
    let title = match &page.alone {
        Some(_) => page.name.clone(),
        None => format!("{}, {}", page.name, page.kind),
    };
    let mut out = format!("{title}\n");
    for said in [&page.summary, &page.formula] {
        if !said.is_empty() {
            out += &format!("\n  {said}\n");
        }
    }
    if !page.arguments.is_empty() {
        out += "\nArguments:\n";
        let width = page.arguments.iter().map(|a| a.name.chars().count()).max();
        let width = width.unwrap_or(0);
        for a in &page.arguments {
            out += &format!("  {:width$}  {} [{}]\n", a.name, a.form, a.default);
            if !a.meaning.is_empty() {
                out += &format!("  {:width$}  {}\n", "", a.meaning);
            }
        }
    }
    if !page.examples.is_empty() {
        out += "\nExamples:\n";
    }
    for e in &page.examples {
        out += &format!("  {}\n      {}\n", e.text, e.meaning);
    }
    if !page.parameters.is_empty() {
        let shown = page.alone.as_ref().map_or(SHOWN, |a| a.sizes).width;
        let of = match page.examples.is_empty() {
            true => "Parameters",
            false => "Parameters of the first example",
        };
        out += &format!("\n{of}, width {shown}:\n");
        let width = page.parameters.iter().map(|p| p.path.len()).max();
        let width = width.unwrap_or(0);
        for p in &page.parameters {
            let (path, shape, start) = (&p.path, &p.shape, &p.start);
            out += &format!("  {path:width$}  {shape:?}, start: {start}\n");
        }
    }
    out += &costs(page);
    page.notes.iter().for_each(|n| out += &format!("\n{n}\n"));
    if let Some(file) = &page.file {
        out += &format!("\nWritten in the language: {file}\n");
    }
    if !page.source.is_empty() {
        out += &format!("\nSource: {}\n", page.source);
    }
    out
}

/// What the first example of a layer costs.
fn costs(page: &Page) -> String {
    let it = match page.examples.is_empty() {
        true => "It",
        false => "The first example",
    };
    let parts = page.alone.as_ref().map(|alone| costs_of(alone).join(", "));
    parts.map_or_else(String::new, |parts| format!("\n{it} has {parts}.\n"))
}

fn costs_of(alone: &Alone) -> Vec<String> {
    let elements = alone.params.iter().map(|p| p.shape.iter().product::<u64>());
    let parameters = elements.sum::<u64>();
    let context = alone.sizes.context;
    let text = Bindings::new(1, context);
    let flops = operations::count(&alone.graph, text, |_| true).flops() / context;
    let mut parts = vec![count(alone.columns as usize, "column")];
    if parameters > 0 {
        parts.push(count(parameters as usize, "parameter"));
    }
    if flops > 0 {
        let (flops, context) = (count(flops as usize, "operation"), thousands(context));
        parts.push(format!("{flops} per token of a text of {context}"));
    }
    if alone.reads.later_tokens {
        parts.push("cannot run token by token".into());
    } else if alone.reads.kept > 0 {
        let kept = count(alone.reads.kept as usize, "number");
        parts.push(format!("{kept} kept per token while text is generated"));
    }
    if alone.reads.carried > 0 {
        let carried = count(alone.reads.carried as usize, "number");
        parts.push(format!(
            "{carried} kept while text is generated, however long it is"
        ));
    }
    parts
}

/// All layers as one page.
fn reference() -> Done {
    out!("{HEAD}");
    let pages = page::names(LIBRARY).map(|name| page::page(name, LIBRARY));
    let pages: Vec<Option<Page>> = pages.collect::<Result<_, _>>().map_err(Failure::internal)?;
    let pages = || pages.iter().flatten();
    for (group, head) in [
        (Group::Layers, ""),
        (Group::Elements, ELEMENTS_HEAD),
        (Group::Columns, COLUMNS_HEAD),
    ] {
        out!("{head}");
        for page in pages().filter(|page| page.group == group) {
            outln!("| [`{0}`](#{0}) | {1} |", page.name, page.summary);
        }
    }
    for page in pages() {
        outln!("\n{}", markdown(page, "##").trim_end());
    }
    Ok(())
}

/// All other parts as one page.
fn parts() -> Done {
    out!("{PARTS_HEAD}");
    for Chapter {
        title,
        about,
        pages,
    } in chapters()
    {
        outln!("\n## {title}\n\n{about}");
        for page in &pages {
            outln!("\n{}", markdown(page, "###").trim_end());
        }
    }
    Ok(())
}

const PARTS_HEAD: &str = "# Inputs, outputs, data, losses, optimisers

Written by `odec help parts > docs/parts.md`, from what each part declares (`compiler/model/src/inputs/`, `embeddings/`, `positions/`, `outputs/`, `sources/`, `losses/`, `program/src/optimizers/`, `schedules/`); a test compares.
`odec help tokens` prints those of one name.

A model is an input, an embedding, evolves, an output; its train block names a data source, a [loss](guide/losses.md), an optimiser and a schedule. What fields are made of: [layers](layers.md).
";

const HEAD: &str = "# Layers

Written by `odec help layers > docs/layers.md`, from what each layer declares (in Rust: `compiler/model/src/layers/`, in the language: `schemes/layers/`); a test compares. `odec help attention` prints one of them.

A field is a pipeline of layers, joined by `|>`: `field att = rmsnorm |> attention(heads: 8, causal, rope)`. In arguments, `width` is the width of the model's states, `context` its
context and `vocab` its vocabulary. Weights are stored [out, in]. Parameters are called by their part (`q.weight`); where layers of one role occur several times in a field, they are
numbered: `q.2.weight`.

| layer | |
|---|---|
";

const ELEMENTS_HEAD: &str = "
### Functions

A function has no parameters. It is applied to what stands before it, or to what it is given: `linear |> exp` is `exp(linear)`. With `hidden`, `gelu` and `relu` are the MLPs `gelu_mlp` and `relu_mlp`.

| element by element | |
|---|---|
";

const COLUMNS_HEAD: &str = "
With `heads: n`, each of n heads by itself. `concat`, `columns` and `broadcast` put columns side by side, take some of them, and repeat one.

| over the columns of a token | |
|---|---|
";

fn markdown(page: &Page, level: &str) -> String {
    let name = &page.name;
    let mut out = format!(
        "{level} {name}\n\n{}\n\n    {}\n\n",
        page.summary, page.formula
    );
    if !page.arguments.is_empty() {
        out += "| argument | what may be given | default | meaning |\n|---|---|---|---|\n";
        page.arguments.iter().for_each(|a| out += &row(a));
        out += "\n";
    }
    for e in &page.examples {
        out += &format!("- `{}`: {}\n", e.text, e.meaning);
    }
    if !page.parameters.is_empty() {
        let title = format!("parameters of the first example, width {}", SHOWN.width);
        out += &format!("\n| {title} | shape | start |\n|---|---|---|\n");
        for p in &page.parameters {
            out += &format!("| `{}` | {:?} | {} |\n", p.path, p.shape, p.start);
        }
    }
    out += &costs(page);
    page.notes.iter().for_each(|n| out += &format!("\n{n}\n"));
    if let Some(file) = &page.file {
        out += &format!("\nWritten in the language: [{file}](../{file}).\n");
    }
    if !page.source.is_empty() {
        out += &format!("\nSource: {}.\n", page.source);
    }
    out
}

fn row(a: &ArgumentLine) -> String {
    let [name, form, default, meaning] = [&a.name, &a.form, &a.default, &a.meaning];
    format!("| `{name}` | {form} | {default} | {meaning} |\n")
}
