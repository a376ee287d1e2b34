//! `odec generate`: generates texts from a run, of which it prints one token by token and several when they are done, or draws images
//! or sequences of vectors.

use crate::cli;
use crate::commands::sampling_errors;
use crate::commands::{in_integers, trained};
use odec_compiler::simulate::scatter::{self, Panel};
use odec_driver::fail::{Done, Failure};
use odec_driver::method::explicit;
use odec_driver::quantized;
use odec_driver::terminal;
use odec_program::manifest::Vectors;
use odec_runtime::infer::flow::{self, Drawn};
use odec_runtime::infer::generate::{GenerateError, can_generate};
use odec_runtime::system::progress::Work;
use odec_runtime::system::{output, stdio};
use odec_runtime::{
    Asked, Executor, Sampling, Show, Shown, Tokenizer, dataset_of, errln, generate,
    generate_several, outln, tokenizer_of,
};
use serde_json::json;
use std::io::{ErrorKind, Write};
use std::path::Path;

pub fn run(args: &cli::Generate) -> Done {
    if let Some(q) = args.weights {
        quantized::fits_device(args.on.device, q)?;
    }
    let mut executor = trained(&args.run, args.on.device, args.on.trust, args.no_ema)?;
    // What is missing depends on what the model does.
    let draws = flow::drawn(&executor).is_ok();
    match (&args.output, &args.scheme, args.steps) {
        (Some(output), Some(scheme), Some(steps)) if draws => {
            return draw(args, &mut executor, (output, scheme, steps));
        }
        (Some(output), ..) if draws && !args.errors.is_empty() => {
            return sampling_errors::run(args, &mut executor, output);
        }
        _ if draws && args.prompt.is_empty() => cli::misused("generate", lacking(args)),
        _ => {}
    }
    let useless = args.of_drawing();
    if !useless.is_empty() {
        return Err(drawn_by_none(args, &executor, &useless.join(", ")));
    }
    can_generate(&executor).map_err(Failure::input)?;
    if args.prompt.is_empty() {
        let message = "give a text to continue with --prompt TEXT".to_string();
        cli::misused("generate", message);
    }
    if let Some(q) = args.weights {
        executor = quantized::executor(&mut executor, q, args.on.device)?;
        errln!("note: {}", in_integers(&executor)?);
    }
    let saved = tokenizer_of(&args.run).map_err(Failure::input)?;
    let tokenizer = match (&args.tokenizer, saved) {
        (Some(path), _) => Tokenizer::open(path).map_err(Failure::input)?,
        (None, Some(saved)) => saved,
        (None, None) => {
            return Err(Failure::Input(format!(
                "{} was trained on token files; name their tokenizer with --tokenizer tokenizer.json",
                args.run.shown()
            )));
        }
    };
    let sampling = Sampling {
        tokens: args.tokens,
        temperature: args.temperature,
        top_k: args.top_k,
        seed: args.seed,
        past_end: args.past_end,
    };
    let of_prompt = |prompt| {
        let seeds = (0..args.samples).map(|n| args.seed.wrapping_add(n));
        seeds.map(move |seed| Asked { prompt, seed })
    };
    let asked: Vec<Asked> = args.prompt.iter().flat_map(|p| of_prompt(p)).collect();
    match &asked[..] {
        [one] if !args.json => stream(&mut executor, &tokenizer, one.prompt, &sampling),
        all => several(args.json, &mut executor, &tokenizer, all, &sampling),
    }
}

/// What is missing of what a model needs to draw.
fn lacking(args: &cli::Generate) -> String {
    let all = [
        ("--output FILE", args.output.is_some()),
        ("--scheme SCHEME", args.scheme.is_some()),
        ("--steps N", args.steps.is_some()),
    ];
    // A comparison has its own schemes and steps.
    let needed = match args.errors.is_empty() {
        true => &all[..],
        false => &all[..1],
    };
    let missing = needed.iter().filter(|(_, given)| !given);
    let missing: Vec<&str> = missing.map(|(name, _)| *name).collect();
    format!(
        "this model draws images or vectors; give {} too",
        missing.join(", ")
    )
}

/// Why options that say how to draw are refused.
fn drawn_by_none(args: &cli::Generate, x: &Executor, useless: &str) -> Failure {
    let run = args.run.shown();
    let instead = match can_generate(x) {
        Ok(()) => "; it continues texts: give one with --prompt TEXT",
        Err(_) => "",
    };
    Failure::Input(format!(
        "{run} was not trained with `loss velocity`, so it draws nothing: leave out {useless}{instead}"
    ))
}

/// Prints a text as it grows.
fn stream(x: &mut Executor, tokenizer: &Tokenizer, given: &str, sampling: &Sampling) -> Done {
    // The prompt is printed when the model has taken it, not before a refusal.
    let mut prompt = Some(given);
    let mut emit = |text: &str| match stdio::show(&format!("{}{text}", prompt.take().unwrap_or("")))
    {
        true => Ok(()),
        false => Err(ErrorKind::BrokenPipe.into()),
    };
    match generate(x, tokenizer, given, sampling, &mut emit) {
        // Without a reader there is nothing left to do.
        Err(GenerateError::Write(_)) => Ok(()),
        Err(e) => Err(Failure::input(e)),
        Ok(()) => {
            stdio::show(&format!("{}\n", prompt.unwrap_or("")));
            Ok(())
        }
    }
}

/// Prints texts when all are done, each under a line that says which it is.
fn several(
    as_json: bool,
    x: &mut Executor,
    tokenizer: &Tokenizer,
    asked: &[Asked],
    sampling: &Sampling,
) -> Done {
    let mut texts: Vec<String> = vec![String::new(); asked.len()];
    let mut emit = |n: usize, piece: &str| {
        texts[n].push_str(piece);
        Ok(())
    };
    let ended = generate_several(x, tokenizer, asked, sampling, &mut emit);
    let ended = ended.map_err(Failure::input)?;
    let all = asked.iter().zip(&texts).zip(ended);
    for (n, ((Asked { prompt, seed }, text), ended)) in all.enumerate() {
        match as_json {
            true => outln!(
                "{}",
                json!({ "prompt": prompt, "seed": seed, "text": text, "ended": ended })
            ),
            false => outln!(
                "--- text {} of {}, seed {seed} ---\n{prompt}{text}",
                n + 1,
                asked.len()
            ),
        }
    }
    Ok(())
}

/// Draws into a file: noise that a scheme moves with the velocity of a model, in so many steps.
fn draw(args: &cli::Generate, x: &mut Executor, to: (&Path, &str, u64)) -> Done {
    let (path, scheme, steps) = to;
    let (of, _) = flow::drawn(x).map_err(Failure::input)?;
    let rows = flow::rows(x, args.class).map_err(Failure::input)?;
    flow::can_guide(x, args.guidance()).map_err(Failure::input)?;
    let explicit = explicit(scheme)?;
    let format = Format::of(path, &of)?;
    output::check_beside(path, &["png", "npz", "svg"], &args.run).map_err(Failure::input)?;
    // Whether the other run tells such samples apart is known before any is drawn.
    let mut classifier = match &args.classifier {
        None => None,
        Some(run) => {
            let mut opened = trained(run, args.on.device, args.on.trust, false)?;
            flow::classified(&mut opened, &of, &[]).map_err(Failure::input)?;
            Some(opened)
        }
    };
    let asked = asked(args, &rows, steps);
    let show = match args.json {
        true => Show::Warnings,
        false => Show::Auto,
    };
    let mut work = Work::new(show, "drawing", asked.classes.len() as u64);
    let samples = flow::sample(x, &explicit.method, &asked, &mut |done| work.at(done));
    work.finish();
    let samples = samples.map_err(Failure::input)?;
    let bytes = match (&of, format) {
        (Drawn::Images(images), _) => flow::grid(images, &samples, args.count()),
        (Drawn::Vectors(v), Format::Arrays) => flow::archive(v, &samples, &asked.classes),
        (Drawn::Vectors(v), Format::Picture) => {
            let panels = panels(args, v, (&samples, &asked.classes));
            let title = format!(
                "{} by {} in {}",
                x.manifest().name,
                explicit.name,
                terminal::count(steps as usize, "step")
            );
            Ok(scatter::picture(&panels, v.width as usize, &title).into_bytes())
        }
    };
    let bytes = bytes.map_err(Failure::input)?;
    output::write(path, |file| file.write_all(&bytes)).map_err(Failure::input)?;
    let recognised = match &mut classifier {
        None => None,
        Some(run) => Some(recognised(run, (&of, &samples), &asked.classes)?),
    };
    let (per_step, n) = (explicit.evaluations(), samples.len());
    if args.json {
        let facts = json!({
            "output": path.shown(), "scheme": explicit.name, "order": explicit.order, "steps": steps,
            "evaluations_per_step": per_step, "evaluations": per_step * steps, of.many(): n, "classes": asked.classes,
            "guidance": args.guidance(), "recognised": recognised,
        });
        outln!("{facts}");
        return Ok(());
    }
    let order = match explicit.order {
        Some(order) => format!("order {order}, proved"),
        None => "no order is proved".to_string(),
    };
    outln!("{n} {} in {}", of.many(), path.shown());
    let twice = match args.guidance() {
        1.0 => String::new(),
        w => format!(", each with and without the class: guidance {w}"),
    };
    outln!(
        "{} ({order}): {} of {}, {} of the velocity for each {}{twice}",
        explicit.name,
        terminal::count(steps as usize, "step"),
        terminal::count(per_step as usize, "evaluation"),
        terminal::count((per_step * steps) as usize, "evaluation"),
        of.one()
    );
    if let Some(share) = recognised {
        outln!(
            "{:.1} % are recognised as the class asked for",
            100.0 * share
        );
    }
    Ok(())
}

/// What samples are written as.
#[derive(Clone, Copy)]
enum Format {
    /// Arrays of NumPy, of vectors.
    Arrays,
    /// PNG of images, SVG of vectors.
    Picture,
}

impl Format {
    /// What the name of a file asks for.
    fn of(path: &Path, drawn: &Drawn) -> Done<Format> {
        let ending = path.extension().and_then(|e| e.to_str());
        match (drawn, ending) {
            (Drawn::Images(_), _) | (_, Some("svg")) => Ok(Format::Picture),
            (_, Some("npz")) => Ok(Format::Arrays),
            _ => Err(Failure::Input(format!(
                "{}: this model draws sequences of vectors; name a file ….npz for their numbers, or ….svg for a picture of them",
                path.shown()
            ))),
        }
    }
}

/// Samples, and as many that are held out before them, where the run's data are at hand.
fn panels(
    args: &cli::Generate,
    of: &Vectors,
    (samples, classes): (&[Vec<f64>], &[Option<u64>]),
) -> Vec<Panel> {
    let drawn = Panel {
        title: format!("{} drawn", samples.len()),
        samples: samples.to_vec(),
        classes: classes.to_vec(),
    };
    let data = dataset_of(&args.run, &[], Show::Warnings).map_err(|e| e.to_string());
    let held_out = data.and_then(|data| {
        let held_out = flow::held_out(&*data, of, samples.len());
        held_out.map_err(|e| e.to_string())
    });
    match held_out {
        Ok((samples, classes)) => {
            let title = format!("{} of the data, held out", samples.len());
            let data = Panel {
                title,
                samples,
                classes,
            };
            vec![data, drawn]
        }
        Err(why) => {
            errln!("note: the picture has none of the run's data: {why}");
            vec![drawn]
        }
    }
}

/// So many samples of each class.
pub fn asked(args: &cli::Generate, rows: &[Option<u64>], steps: u64) -> flow::Sampling {
    let repeated = |class: &Option<u64>| std::iter::repeat_n(*class, args.count() as usize);
    flow::Sampling {
        classes: rows.iter().flat_map(repeated).collect(),
        steps,
        seed: args.seed,
        guidance: args.guidance(),
    }
}

/// The share of samples that another run takes for their classes.
fn recognised(
    classifier: &mut Executor,
    (of, samples): (&Drawn, &[Vec<f64>]),
    classes: &[Option<u64>],
) -> Done<f64> {
    let told = flow::classified(classifier, of, samples).map_err(Failure::input)?;
    let pairs = told.iter().zip(classes);
    let right = |(told, asked): &(&Option<usize>, &Option<u64>)| {
        told.is_some() && told.map(|n| n as u64) == **asked
    };
    Ok(pairs.filter(right).count() as f64 / classes.len().max(1) as f64)
}
