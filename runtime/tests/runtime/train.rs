//! Training, resuming, evaluating, generating.

use crate::support;
use odec_program::manifest::{Manifest, Param};
use odec_program::optimizers::AdamW;
use odec_program::rng::Stream;
use odec_runtime::parameters::checkpoint::Checkpoint;
use odec_runtime::system::owned::{CHART, CHECKPOINT, METRICS, MODEL};
use odec_runtime::train::metrics::{self, Record};
use odec_runtime::{
    Artifact, DeviceChoice, End, Executor, Run, Sampling, Settings, Show, State, Tokenizer,
    TrainError, evaluate, generate, open_run, resume, train,
};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

struct Place {
    dir: TempDir,
    artifact: Artifact,
}

fn place_for(m: Manifest, bytes: usize) -> Place {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("corpus.txt"), support::corpus(bytes)).unwrap();
    Place {
        dir,
        artifact: Artifact::in_memory(m).unwrap(),
    }
}

fn place() -> Place {
    place_for(support::manifest(), 3000)
}

impl Place {
    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
    fn settings(&self) -> Settings {
        Settings {
            data: vec![self.at("corpus.txt")],
            device: DeviceChoice::Reference,
            show: Show::Nothing,
            evaluations: 4,
            held_out_windows: 8,
            ..Settings::default()
        }
    }
}

fn checkpoint_bytes(run: &Path) -> Vec<u8> {
    // The tensors without the header, whose seconds differ.
    let bytes = fs::read(run.join(CHECKPOINT)).unwrap();
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    bytes[8 + header..].to_vec()
}

fn losses(run: &Path) -> Vec<(u64, String)> {
    let text = fs::read_to_string(run.join(METRICS)).unwrap();
    let loss = |r: Record| match r {
        Record::Step(s) => (s.step, format!("{} {} {}", s.loss, s.lr, s.grad_norm)),
        Record::HeldOut(h) => (h.step, format!("held out {}", h.held_out_loss)),
        Record::Warning(w) => (w.step, w.warning),
        Record::Movement(m) => (m.step, format!("{:?}", m.update_to_weight)),
    };
    metrics::parse(&text).into_iter().map(loss).collect()
}

/// The first step of a run and the first one behind each evaluation say how far they moved each parameter.
#[test]
fn steps_say_how_far_they_moved_the_parameters() {
    let p = place();
    let out = p.at("run");
    let mut run = Run::start(&p.artifact, &out, &p.settings()).unwrap();
    let values = |run: &mut Run| -> Vec<(String, Vec<f64>)> {
        let x = run.executor_mut();
        x.fetch(&[State::Params]).unwrap();
        let of = |p: &Param| (p.path.clone(), x.of(State::Params, p).iter().collect());
        x.manifest().trained().map(of).collect()
    };
    let norm = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>().sqrt();
    let mut said = 0;
    for step in 1..=4 {
        if step == 3 {
            run.look(4, 1).unwrap();
        }
        let old = values(&mut run);
        run.step().unwrap();
        let new = values(&mut run);
        let text = fs::read_to_string(out.join(METRICS)).unwrap();
        let found = metrics::parse(&text).into_iter().find_map(|r| match r {
            Record::Movement(m) if m.step == step => Some(m),
            _ => None,
        });
        assert_eq!(found.is_some(), [1, 3].contains(&step), "step {step}");
        let Some(found) = found else { continue };
        said += 1;
        for ((path, old), (_, new)) in old.iter().zip(&new) {
            let size = norm(&mut old.iter().copied());
            let moved = norm(&mut old.iter().zip(new).map(|(a, b)| a - b));
            match found.update_to_weight.get(path) {
                Some(ratio) => assert!((ratio - moved / size).abs() <= 1e-4 * ratio, "{path}"),
                None => assert_eq!(size, 0.0, "{path}"),
            }
        }
    }
    assert_eq!(said, 2);
}

#[test]
fn a_run_learns_and_leaves_everything_in_its_folder() {
    let p = place();
    let run = p.at("run");
    let summary = train(&p.artifact, &run, &p.settings()).unwrap();
    assert_eq!((summary.steps, summary.end), (40, End::Complete));
    let first: f32 = losses(&run)[0]
        .1
        .split(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    assert!((first - 256f32.ln()).abs() < 0.1, "{first}");
    let held_out = summary.held_out.unwrap();
    assert!(held_out.loss < 1.5, "{held_out:?}");
    assert_eq!(
        losses(&run)
            .iter()
            .filter(|l| l.1.starts_with("held"))
            .count(),
        4
    );
    for file in [MODEL, CHECKPOINT, METRICS, CHART] {
        assert!(run.join(file).exists(), "{file}");
    }
    assert!(matches!(
        train(&p.artifact, &run, &p.settings()),
        Err(TrainError::Occupied { .. })
    ));

    // A trained model evaluates and talks, from its folder alone.
    let mut x = open_run(&run, DeviceChoice::Reference, None).unwrap();
    let data = |files: &[PathBuf]| odec_runtime::dataset_of(&run, files, Show::Nothing).unwrap();
    let mut heard = 0;
    let all = evaluate(&mut x, &*data(&[]), None, &mut |n| heard = n).unwrap();
    assert_eq!((all.of.number(), heard), (299, 299));
    assert_eq!(data(&[]).held_out_rows(1), 299);
    assert!(
        (all.loss - held_out.loss).abs() < 0.2 && all.perplexity() < 5.0,
        "{all:?}"
    );
    assert_eq!(
        evaluate(&mut x, &*data(&[p.at("corpus.txt")]), None, &mut |_| {})
            .unwrap()
            .of
            .number(),
        2999
    );

    let mut say = |s: Sampling| {
        let mut text = String::new();
        generate(
            &mut x,
            &Tokenizer::bytes(),
            "over the laz",
            &s,
            &mut |piece| {
                text.push_str(piece);
                Ok(())
            },
        )
        .unwrap();
        text
    };
    let greedy = say(Sampling {
        tokens: 2,
        temperature: 0.0,
        ..Sampling::default()
    });
    assert_eq!(greedy, "y ");
    let s = Sampling {
        tokens: 30,
        temperature: 1.0,
        top_k: Some(5),
        past_end: false,
        seed: 3,
    };
    assert_eq!(say(s), say(s));
    assert_ne!(say(s), say(Sampling { seed: 4, ..s }));
    assert_eq!(say(s).len(), 30);
}

#[test]
fn a_resumed_run_gives_the_bits_of_an_uninterrupted_one() {
    let p = place();
    let (whole, parts) = (p.at("whole"), p.at("parts"));
    let s = Settings {
        steps: Some(20),
        ..p.settings()
    };
    train(&p.artifact, &whole, &s).unwrap();

    let mut run = Run::start(&p.artifact, &parts, &s).unwrap();
    for _ in 0..7 {
        run.step().unwrap();
    }
    run.save().unwrap();
    // Two steps more that are lost, as if the process had been killed.
    run.step().unwrap();
    run.step().unwrap();
    drop(run);
    // Steps and text are remembered by the run.
    let again = Settings {
        steps: None,
        data: vec![],
        ..s
    };
    assert_eq!(resume(&parts, &again).unwrap().steps, 20);

    assert_eq!(checkpoint_bytes(&whole), checkpoint_bytes(&parts));
    let steps = |run: &Path| {
        losses(run)
            .into_iter()
            // No evaluation was asked for in the first seven steps, and nothing is said behind it.
            .filter(|l| !l.1.starts_with("held") && !l.1.starts_with('{'))
            .collect::<Vec<_>>()
    };
    assert_eq!(steps(&whole), steps(&parts));
    // A finished run has nothing left to do, and says so without harm.
    let idle = resume(&parts, &again).unwrap();
    assert_eq!((idle.steps, idle.loss), (20, None));
    assert_eq!(checkpoint_bytes(&whole), checkpoint_bytes(&parts));
}

#[test]
fn a_run_can_be_resumed_for_more_steps() {
    let p = place();
    let run = p.at("run");
    train(
        &p.artifact,
        &run,
        &Settings {
            steps: Some(3),
            ..p.settings()
        },
    )
    .unwrap();
    assert_eq!(
        resume(
            &run,
            &Settings {
                steps: Some(5),
                ..p.settings()
            }
        )
        .unwrap()
        .steps,
        5
    );
}

#[test]
fn seeds_make_runs_differ_and_nothing_else_does() {
    let p = place();
    let go = |name: &str, seed| {
        train(
            &p.artifact,
            &p.at(name),
            &Settings {
                steps: Some(2),
                seed,
                ..p.settings()
            },
        )
        .unwrap();
        checkpoint_bytes(&p.at(name))
    };
    let a = go("a", None);
    assert_eq!(a, go("b", Some(7)));
    assert_ne!(a, go("c", Some(8)));
}

/// Pauses change no number: the schedule is that of all steps, and so are evaluations.
#[test]
fn a_run_that_pauses_is_the_run_that_does_not() {
    let p = place();
    let (whole, parts) = (p.at("whole"), p.at("parts"));
    let s = p.settings();
    train(&p.artifact, &whole, &s).unwrap();
    let until = |step| Settings {
        pause: Some(step),
        ..p.settings()
    };
    let first = train(&p.artifact, &parts, &until(7)).unwrap();
    assert_eq!((first.steps, first.end), (7, End::Paused));
    // Asked for what is done already, it does nothing.
    let again = resume(&parts, &until(7)).unwrap();
    assert_eq!((again.steps, again.end, again.loss), (7, End::Paused, None));
    let second = resume(&parts, &until(23)).unwrap();
    assert_eq!((second.steps, second.end), (23, End::Paused));
    let last = resume(&parts, &until(1000)).unwrap();
    assert_eq!((last.steps, last.end), (40, End::Complete));
    assert_eq!(checkpoint_bytes(&whole), checkpoint_bytes(&parts));
    assert_eq!(losses(&whole), losses(&parts));
}

#[test]
fn a_time_limit_ends_the_run_with_an_annealed_rate() {
    let p = place();
    let run = p.at("run");
    let s = Settings {
        steps: Some(1_000_000),
        time_limit: Some(1.0),
        ..p.settings()
    };
    let summary = train(&p.artifact, &run, &s).unwrap();
    assert!(
        summary.end == End::TimeLimit && summary.steps > 3 && summary.seconds >= 1.0,
        "{summary:?}"
    );
    let text = fs::read_to_string(run.join(METRICS)).unwrap();
    let rates: Vec<f64> = metrics::parse(&text)
        .into_iter()
        .filter_map(|r| {
            if let Record::Step(s) = r {
                Some(s.lr)
            } else {
                None
            }
        })
        .collect();
    // From near the peak of 0.05 to near its floor of a tenth, whatever the machine's speed.
    let (top, last) = (
        rates.iter().copied().fold(0.0, f64::max),
        rates[rates.len() - 1],
    );
    assert!(top > 0.02 && last < 0.6 * top, "{rates:?}");
    // Its time is used up.
    let again = resume(&run, &p.settings()).unwrap();
    assert_eq!(again.steps, summary.steps);
}

/// With a checkpoint after every step, nearly all of the time goes into saving: the limit is reached by a checkpoint.
#[test]
fn a_time_limit_that_saving_reaches_is_kept_in_the_checkpoint() {
    let p = place();
    let run = p.at("run");
    let s = Settings {
        steps: Some(1_000_000),
        time_limit: Some(0.2),
        checkpoint_seconds: 0.0,
        ..p.settings()
    };
    let summary = train(&p.artifact, &run, &s).unwrap();
    assert!(summary.end == End::TimeLimit, "{summary:?}");
    let again = resume(&run, &p.settings()).unwrap();
    assert_eq!(again.steps, summary.steps);
    assert_eq!(again.held_out, summary.held_out);
}

#[test]
fn numbers_that_are_not_finite_stop_the_run_with_the_step_named() {
    let mut m = support::manifest();
    let lr = 1e30;
    m.train.as_mut().unwrap().optimizer = AdamW {
        lr,
        ..AdamW::default()
    }
    .into();
    let p = place_for(m, 3000);
    let failed = train(&p.artifact, &p.at("run"), &p.settings()).unwrap_err();
    let TrainError::NonFinite { step, saved, .. } = failed else {
        panic!("{failed}")
    };
    assert!(step > 1 && saved == 0, "{failed}");
    assert!(
        failed.to_string().contains(&format!("at step {step}")),
        "{failed}"
    );
    let said = failed.to_string();
    assert!(said.contains("is the first tensor that is not"), "{said}");
    let checkpoint = "checkpoint.safetensors (step 0)";
    assert!(said.contains(checkpoint), "{said}");
    // The checkpoint from before is still good.
    assert!(open_run(&p.at("run"), DeviceChoice::Reference, None).is_ok());
}

#[test]
fn what_is_not_finite_is_never_saved() {
    let p = place();
    let mut run = Run::start(&p.artifact, &p.at("run"), &p.settings()).unwrap();
    run.step().unwrap();
    run.save().unwrap();
    let good = fs::read(p.at("run").join(CHECKPOINT)).unwrap();
    run.executor_mut().state_mut(State::Moment2).f32()[support::WIDTH as usize] = f32::INFINITY;
    let said = run.save().unwrap_err().to_string();
    let what = "the second moment of embed.weight is not finite at step 1";
    assert!(said.contains(what), "{said}");
    assert_eq!(fs::read(p.at("run").join(CHECKPOINT)).unwrap(), good);
}

/// Gradients that are all finite, but whose squares are not.
#[test]
fn a_norm_that_overflows_names_the_largest_gradient() {
    let p = place();
    let mut run = Run::start(&p.artifact, &p.at("run"), &p.settings()).unwrap();
    // Logits stay moderate, and the gradient of `embed.weight` is about as large as `output.weight`.
    let params = run.executor_mut().state_mut(State::Params).f32();
    let half = params.len() / 2;
    params[..half].fill(0.0);
    params[half..].iter_mut().for_each(|x| *x *= 1e30);
    let said = run.step().unwrap_err().to_string();
    let place = "its squares overflow, the largest";
    assert!(
        said.contains(place) && said.contains("of embed.weight"),
        "{said}"
    );
}

#[test]
fn damaged_and_foreign_checkpoints_are_refused_with_the_reason() {
    let p = place();
    let run = p.at("run");
    let s = p.settings();
    let short = Settings {
        steps: Some(2),
        ..s.clone()
    };
    train(&p.artifact, &run, &short).unwrap();
    let only = p.at("only");
    fs::create_dir(&only).unwrap();
    fs::copy(run.join(CHECKPOINT), only.join(CHECKPOINT)).unwrap();
    let file = only.join(CHECKPOINT);
    // Half of the damage goes to the header, a small part of the file.
    let whole = fs::read(&file).unwrap();
    let header = 8 + u64::from_le_bytes(whole[..8].try_into().unwrap());
    let random = Stream::new(9, "flips");
    let open = |what: &str| assert!(Checkpoint::open(&file).is_err(), "{what} goes unnoticed");
    support::damage(&only, &random, 150, &mut |what| open(what));
    for n in 1000..1150 {
        let bit = random.below(n, header * 8) as usize;
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        fs::write(&file, bytes).unwrap();
        open(&format!("bit {bit} of the header"));
    }

    // The same shapes, but another program.
    let mut m = support::manifest();
    m.train.as_mut().unwrap().seed += 1;
    let other = p.at("other");
    train(&Artifact::in_memory(m).unwrap(), &other, &short).unwrap();
    fs::copy(run.join(CHECKPOINT), other.join(CHECKPOINT)).unwrap();
    let said = resume(&other, &s).unwrap_err().to_string();
    assert!(said.contains("belongs to another model than"), "{said}");
    let said = open_run(&other, DeviceChoice::Reference, None).map(drop);
    assert!(said.is_err());
}

#[test]
fn one_process_at_a_time_trains_in_a_folder() {
    let p = place();
    let run = Run::start(&p.artifact, &p.at("run"), &p.settings()).unwrap();
    assert!(matches!(
        resume(&p.at("run"), &p.settings()),
        Err(TrainError::Busy { .. })
    ));
    drop(run);
    let mut s = p.settings();
    s.steps = Some(1);
    assert_eq!(resume(&p.at("run"), &s).unwrap().steps, 1);
}

/// A process whose folder was deleted, and a new run begun there, writes no more into it.
#[test]
fn a_run_begun_anew_is_not_overwritten_by_the_old_process() {
    let p = place();
    let mut old = Run::start(&p.artifact, &p.at("run"), &p.settings()).unwrap();
    old.step().unwrap();
    fs::remove_dir_all(p.at("run")).unwrap();
    let said = old.save().unwrap_err().to_string();
    assert!(said.contains("the run stops at step 1:"), "{said}");
    assert!(said.contains("moved, deleted or restarted"), "{said}");
    assert!(!p.at("run").exists());
    let s = Settings {
        seed: Some(5),
        ..p.settings()
    };
    let _new = Run::start(&p.artifact, &p.at("run"), &s).unwrap();
    let checkpoint = checkpoint_bytes(&p.at("run"));
    assert!(matches!(old.save(), Err(TrainError::Lost { .. })));
    assert!(checkpoint_bytes(&p.at("run")) == checkpoint);
}

/// A text that is cut short under a run is an error that says where, and the run goes on when the text is back.
#[test]
fn a_text_that_is_cut_short_stops_the_run() {
    let p = place();
    let mut run = Run::start(&p.artifact, &p.at("run"), &p.settings()).unwrap();
    run.step().unwrap();
    run.save().unwrap();
    let text = fs::read(p.at("corpus.txt")).unwrap();
    let file = fs::OpenOptions::new()
        .write(true)
        .open(p.at("corpus.txt"))
        .unwrap();
    file.set_len(7).unwrap();
    let said = run.step().unwrap_err().to_string();
    for part in [
        "the run stops at step 1:",
        "corpus.txt has changed while it was read: it has 7 bytes now and had 3000",
        "The checkpoint of step 1 is untouched",
        "odec train --resume",
    ] {
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
    drop(run);
    let s = Settings {
        data: vec![],
        steps: Some(2),
        ..p.settings()
    };
    let said = resume(&p.at("run"), &s).unwrap_err().to_string();
    assert!(said.contains("has 7 bytes now and had 3000"), "{said}");
    fs::write(p.at("corpus.txt"), text).unwrap();
    assert_eq!(resume(&p.at("run"), &s).unwrap().steps, 2);
}

#[test]
fn what_cannot_be_trained_is_refused_in_words() {
    let p = place();
    let mut errors = vec![];
    let mut fail = |r: Result<odec_runtime::Summary, TrainError>| {
        errors.push(
            r.unwrap_err()
                .to_string()
                .replace(&p.dir.path().display().to_string(), "DIR"),
        );
    };
    let s = p.settings();
    fail(train(
        &p.artifact,
        &p.at("a"),
        &Settings {
            data: vec![p.at("none.txt")],
            ..s.clone()
        },
    ));
    fail(train(
        &p.artifact,
        &p.at("a"),
        &Settings {
            time_limit: Some(0.0),
            ..s.clone()
        },
    ));
    fs::write(p.at("vectors.npz"), "PK".repeat(500)).unwrap();
    fail(train(
        &p.artifact,
        &p.at("b"),
        &Settings {
            data: vec![p.at("vectors.npz")],
            ..s.clone()
        },
    ));
    fs::write(p.at("short.txt"), "abc").unwrap();
    fail(train(
        &p.artifact,
        &p.at("b"),
        &Settings {
            data: vec![p.at("short.txt")],
            ..s.clone()
        },
    ));
    fail(train(
        &p.artifact,
        &p.at("c"),
        &Settings {
            device: DeviceChoice::Cpu,
            ..s.clone()
        },
    ));
    fail(resume(&p.at("nowhere"), &s));
    let mut m = support::manifest();
    m.train.as_mut().unwrap().batch = 5;
    fail(train(
        &Artifact::in_memory(m.clone()).unwrap(),
        &p.at("d"),
        &s,
    ));
    m.train = None;
    fail(train(&Artifact::in_memory(m).unwrap(), &p.at("d"), &s));
    // A run whose checkpoint was damaged.
    let run = p.at("run");
    train(
        &p.artifact,
        &run,
        &Settings {
            steps: Some(1),
            ..s.clone()
        },
    )
    .unwrap();
    let bytes = fs::read(run.join(CHECKPOINT)).unwrap();
    fs::write(run.join(CHECKPOINT), &bytes[..bytes.len() - 1]).unwrap();
    fail(resume(&run, &s));
    insta::assert_snapshot!(errors.join("\n"));
}

#[test]
fn generation_refuses_what_makes_no_sense() {
    let p = place();
    let mut x = Executor::new(
        &p.artifact,
        p.artifact.device(DeviceChoice::Reference, None).unwrap(),
    )
    .unwrap();
    let mut fail = |prompt: &str, s: Sampling| {
        generate(&mut x, &Tokenizer::bytes(), prompt, &s, &mut |_| Ok(()))
            .unwrap_err()
            .to_string()
    };
    let s = Sampling::default();
    let list = [
        fail("", s),
        fail(
            "a",
            Sampling {
                temperature: -1.0,
                ..s
            },
        ),
        fail(
            "a",
            Sampling {
                temperature: f64::NAN,
                ..s
            },
        ),
        fail(
            "a",
            Sampling {
                top_k: Some(0),
                ..s
            },
        ),
    ];
    insta::assert_snapshot!(list.join("\n"));
    x.state_mut(State::Params).f32().fill(f32::NAN);
    let e = generate(&mut x, &Tokenizer::bytes(), "a", &s, &mut |_| Ok(())).unwrap_err();
    assert!(e.to_string().contains("diverged"), "{e}");
}

#[test]
fn a_failing_writer_ends_generation() {
    let p = place();
    let mut x = Executor::new(
        &p.artifact,
        p.artifact.device(DeviceChoice::Reference, None).unwrap(),
    )
    .unwrap();
    let broken = generate(
        &mut x,
        &Tokenizer::bytes(),
        "a",
        &Sampling::default(),
        &mut |_| Err(std::io::Error::other("closed")),
    );
    assert!(broken.unwrap_err().to_string().contains("closed"));
}
