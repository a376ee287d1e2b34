//! `odec report`: a page about runs.

use crate::cli;
use crate::commands::runs::folders;
use crate::commands::trained;
use odec_driver::fail::{Done, Failure};
use odec_driver::terminal;
use odec_report::facts::Models;
use odec_report::runs::Run;
use odec_report::samples::Samples;
use odec_report::{page, runs};
use odec_runtime::infer::generate::{can_ask, can_generate};
use odec_runtime::system::output;
use odec_runtime::system::progress::{Show, Work};
use odec_runtime::{
    Asked, DeviceChoice, Sampling, Shown, errln, generate_several, outln, tokenizer_of,
};

pub fn run(args: &cli::Report) -> Done {
    output::check_kind(&args.output, &["html", "htm"], &[]).map_err(Failure::input)?;
    let prompt = args.prompt.as_deref();
    if let Some(prompt) = prompt {
        can_ask(&[asked(args, prompt)], &sampling(args)).map_err(Failure::input)?;
    }
    folders(&args.folders)?;
    let found = runs::find(&args.folders);
    for r in &found.refused {
        errln!("note: {}: {}", r.folder.shown(), r.why);
    }
    if found.runs.is_empty() {
        return Err(Failure::input("there is no run to report"));
    }
    let mut work = Work::new(Show::Auto, "runs", found.runs.len() as u64);
    let models = Models::of(&found.runs, &mut |n| work.at(n as u64));
    work.finish();
    let samples = prompt
        .map(|p| continued(args, p, &found.runs))
        .transpose()?;
    let page = page::page(&found, &models, samples.as_ref());
    output::write_text(&args.output, &page).map_err(Failure::input)?;
    outln!(
        "{} in {} ({} KiB)",
        terminal::count(found.runs.len(), "run"),
        args.output.shown(),
        page.len().div_ceil(1024)
    );
    Ok(())
}

fn sampling(args: &cli::Report) -> Sampling {
    Sampling {
        tokens: args.tokens,
        temperature: args.temperature,
        seed: args.seed,
        ..Sampling::default()
    }
}

fn asked<'p>(args: &cli::Report, prompt: &'p str) -> Asked<'p> {
    let seed = args.seed;
    Asked { prompt, seed }
}

/// How each run continues a text. A run that cannot says why on the page; the others are shown.
fn continued(args: &cli::Report, prompt: &str, runs: &[Run]) -> Done<Samples> {
    let mut work = Work::new(Show::Auto, "samples", runs.len() as u64);
    let mut texts = Vec::with_capacity(runs.len());
    for (n, run) in runs.iter().enumerate() {
        texts.push(match continuation(run, prompt, args) {
            Ok(text) => Ok(text),
            Err(Failure::Input(why)) => Err(why),
            Err(other) => return Err(other),
        });
        work.at(n as u64 + 1);
    }
    work.finish();
    Ok(Samples {
        prompt: prompt.to_string(),
        temperature: args.temperature,
        seed: args.seed,
        texts,
    })
}

fn continuation(run: &Run, prompt: &str, args: &cli::Report) -> Done<String> {
    let mut executor = trained(&run.folder, DeviceChoice::Cpu, args.trust, false)?;
    can_generate(&executor).map_err(Failure::input)?;
    let tokenizer = tokenizer_of(&run.folder).map_err(Failure::input)?;
    let tokenizer = tokenizer.ok_or_else(|| {
        Failure::input("it was trained on token files; `odec generate` takes their tokenizer")
    })?;
    let mut text = String::new();
    let mut emit = |_: usize, piece: &str| {
        text.push_str(piece);
        Ok(())
    };
    let asked = [asked(args, prompt)];
    generate_several(
        &mut executor,
        &tokenizer,
        &asked,
        &sampling(args),
        &mut emit,
    )
    .map_err(Failure::input)?;
    Ok(text)
}
