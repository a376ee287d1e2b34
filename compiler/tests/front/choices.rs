//! Tests of every optimiser and schedule, made of what it declares: arguments, defaults, mistakes.

use crate::common::{Cases, Outcome, compile_text, model};
use odec_compiler::model::chapters::choice_lines;
use odec_compiler::model::page::ArgumentLine;
use odec_program::bounds::Bounds;
use odec_program::choice::{Argument, Choice, Choices, Visitor};
use odec_program::manifest::{Keep, Train};
use odec_program::optimizers::OptimizerKind;
use odec_program::schedules::ScheduleKind;

/// What kind of argument each one is, by a value that it cannot have.
struct Wrong(Vec<(&'static str, &'static str)>);

impl Visitor for Wrong {
    fn number(&mut self, a: &Argument, _: Bounds, _: &mut f64) {
        self.0.push((a.name, "-1"));
    }
    fn pair(&mut self, a: &Argument, _: Bounds, _: &mut (f64, f64)) {
        self.0
            .extend(["0.5", "[0.5]", "(0.5, 2)"].map(|x| (a.name, x)));
    }
    fn steps(&mut self, a: &Argument, _: &mut u64) {
        self.0
            .extend(["150%", "-1", "401 steps", "often"].map(|x| (a.name, x)));
    }
    fn word(&mut self, a: &Argument, _: &'static [&'static str], _: &mut &'static str) {
        self.0.extend(["cubic", "1"].map(|x| (a.name, x)));
    }
}

/// What a test asks of an optimiser or a schedule.
struct Declared {
    entry: &'static str,
    name: &'static str,
    examples: Vec<&'static str>,
    lines: Vec<ArgumentLine>,
    wrong: Vec<(&'static str, &'static str)>,
}

fn declared() -> Vec<Declared> {
    fn of<C: Choices>(entry: &'static str) -> impl Iterator<Item = Declared> {
        C::all().into_iter().map(move |mut c| {
            let mut wrong = Wrong(Vec::new());
            c.get_mut().arguments(&mut wrong);
            Declared {
                entry,
                name: c.get().name(),
                examples: c.get().examples().iter().map(|e| e.text).collect(),
                lines: choice_lines(c.get_mut()),
                wrong: wrong.0,
            }
        })
    }
    of::<OptimizerKind>("optimizer")
        .chain(of::<ScheduleKind>("schedule"))
        .collect()
}

/// A model that is trained so.
fn outcome(entry: &str, text: &str) -> Outcome {
    let [mut optimizer, mut schedule] = ["adamw(lr: 1e-3)", "constant"];
    match entry {
        "optimizer" => optimizer = text,
        _ => schedule = text,
    }
    let train = format!(
        "train {{\n  data text(\"a.txt\", tokenizer: bytes)\n  batch 2;  steps 400\n  optimizer {optimizer}\n  schedule {schedule}\n}}\n"
    );
    compile_text(&(model("lie(att, ffn)", 2, "h = 1").replace("vocab: 11", "vocab: 256") + &train))
}

fn train(entry: &str, text: &str) -> Train {
    let outcome = outcome(entry, text);
    let built = outcome.checked().built.clone().expect("a model");
    built.train.expect("a train block")
}

fn said(entry: &str, text: &str) -> Vec<String> {
    let outcome = outcome(entry, text);
    assert!(outcome.checked.is_none(), "{text} is valid");
    outcome.messages.into_iter().map(|d| d.message).collect()
}

/// A choice with one more argument, in the place of that of the same name.
fn with(text: &str, name: &str, argument: &str) -> String {
    let (callee, given) = text.split_once('(').unwrap_or((text, ")"));
    let mut given: Vec<String> = match given.strip_suffix(')') {
        None | Some("") => Vec::new(),
        Some(given) => {
            // Commas of pairs stand in parentheses.
            let apart = given.replace(", 0.", "\u{1}0.");
            apart
                .split(", ")
                .map(|a| a.replace('\u{1}', ", 0."))
                .collect()
        }
    };
    given.retain(|a| !a.starts_with(&format!("{name}:")));
    given.push(argument.into());
    format!("{callee}({})", given.join(", "))
}

#[test]
fn examples_are_what_they_say() {
    for d in declared() {
        assert!(!d.examples.is_empty(), "{}", d.name);
        for text in &d.examples {
            let train = train(d.entry, text);
            let name = match d.entry {
                "optimizer" => train.optimizer.name(),
                _ => train.schedule.name(),
            };
            assert_eq!(name, d.name, "{text}");
        }
    }
}

#[test]
fn defaults_are_what_is_meant_where_nothing_is_said() {
    let mut tried = 0;
    for d in declared() {
        for text in &d.examples {
            for a in d.lines.iter().filter(|a| a.default != "needed") {
                if text.contains(&format!("{}:", a.name)) {
                    continue;
                }
                let more = with(text, &a.name, &format!("{}: {}", a.name, a.default));
                assert_eq!(train(d.entry, text), train(d.entry, &more), "{more}");
                tried += 1;
            }
        }
    }
    assert!(tried >= 8, "{tried}");
}

#[test]
fn mistakes_in_arguments_are_named() {
    for d in declared() {
        let text = d.examples[0];
        let unknown = said(d.entry, &with(text, "nonsense", "nonsense: 1"));
        assert_eq!(
            unknown,
            [format!("`{}` has no argument `nonsense`", d.name)]
        );
        let needed = d.lines.iter().filter(|a| a.default == "needed");
        let needed = needed.map(|a| format!("`{}` needs `{}`", d.name, a.name));
        let needed: Vec<String> = needed.collect();
        if !needed.is_empty() {
            assert_eq!(said(d.entry, d.name), needed);
        }
        for (name, value) in &d.wrong {
            let text = with(text, name, &format!("{name}: {value}"));
            assert_eq!(said(d.entry, &text).len(), 1, "{text}");
        }
        for a in &d.lines {
            let all = [&a.form, &a.default, &a.meaning];
            assert!(all.iter().all(|text| !text.is_empty()), "{a:?}");
        }
    }
}

#[test]
fn names_that_are_not_there_are_answered() {
    let mut cases = Cases::default();
    for (entry, text) in [
        ("optimizer", "adam(lr: 1e-3)"),
        ("optimizer", "adagrad(lr: 1e-3)"),
        ("optimizer", "muon(lr: 1e-3)"),
        ("optimizer", "1e-3"),
        ("optimizer", "sgd(lr: 0.1, momentun: 0.9)"),
        ("optimizer", "sgd(0.1)"),
        ("optimizer", "adamw(lr: 1e-3, fused: yes)"),
        ("optimizer", "lion(lr: 1e-4, betas: 0.9)"),
        ("schedule", "cosin(warmup: 5%)"),
        ("schedule", "wsd(warmup: 5%)"),
        ("schedule", "wsd(decay: 5%, shape: squrt)"),
        ("schedule", "5%"),
        ("schedule", "constant(warmup: 5%)"),
        ("schedule", "inverse_sqrt"),
    ] {
        cases.add(text, outcome(entry, text).rendered());
    }
    insta::assert_snapshot!(cases);
}

/// Which parameters of earlier steps stay is said in whole numbers.
#[test]
fn what_is_kept_is_a_number_of_checkpoints_and_a_distance() {
    let keep = |text: &str| format!("constant\n  keep {text}");
    let told = train("schedule", &keep("checkpoints(last: 5, every: 100)"));
    let said_so = Keep {
        last: 5,
        every: 100,
    };
    assert_eq!(told.keep, Some(said_so));
    assert_eq!(train("schedule", "constant").keep, None);
    for (text, part) in [
        ("5", "`checkpoints` is expected here"),
        ("checkpoints(last: 5)", "`checkpoints` needs `every`"),
        ("checkpoints(last: 0, every: 100)", "0 is out of range"),
        (
            "checkpoints(last: 5, every: 1/2)",
            "1/2 is not a whole number",
        ),
        ("checkpoints(last: 5, every: 100, first: 1)", "`first`"),
    ] {
        let said = said("schedule", &keep(text)).join("\n");
        assert!(said.contains(part), "{text}: {said}");
    }
}
