//! odec deletes and replaces only what it made, known by what is inside; a run is on one text, from its first step to its
//! last.

#![cfg(all(feature = "mlir", unix))]

mod place;

use place::{Place, TINY};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

impl Place {
    fn at(&self, name: &str) -> std::path::PathBuf {
        self.path().join(name)
    }

    /// The names in a folder.
    fn list(&self, name: &str) -> Vec<String> {
        let entries = fs::read_dir(self.at(name)).expect(name);
        let names = entries.map(|e| e.expect("a file").file_name());
        let mut names: Vec<String> = names.map(|n| n.to_string_lossy().into()).collect();
        names.sort();
        names
    }

    fn make(&self, name: &str, text: &str) {
        fs::create_dir_all(self.at(name).parent().expect("a folder")).expect(name);
        self.write(name, text);
    }

    /// A source that does not compile, so that a refusal of anything else was before that.
    fn broken(&self) -> &'static str {
        self.write("broken.ode", &TINY.replace("rmsnorm", "no_such_layer"));
        "broken.ode"
    }
}

fn refused(place: &Place, args: &[&str], parts: &[&str]) {
    let (code, said) = place.bad(args);
    assert_eq!(code, 1, "{said}");
    for part in parts {
        assert!(said.contains(part), "{part:?} is not in\n{said}");
    }
}

#[test]
fn a_run_deletes_nothing_that_it_did_not_make() {
    let place = Place::new();
    let theirs = [
        "run/.ssh.old-2024/id",
        "run/.config.old-7/deep/file",
        "run/.x.new-17",
        "run/x.new-17",
        "run/.odec-notes/new",
    ];
    for name in theirs {
        place.make(name, "precious");
    }
    place.good(&["train", "tiny.ode", "--out", "run", "--steps", "1"]);
    refused(
        &place,
        &["train", "tiny.ode", "--out", "run"],
        &["holds a run already"],
    );
    place.good(&["train", "--resume", "run", "--steps", "2"]);
    for name in theirs {
        assert_eq!(place.read(name), "precious");
    }
}

#[test]
fn files_of_others_are_refused_before_any_work() {
    let place = Place::new();
    let broken = place.broken();
    for name in [
        "metrics.jsonl",
        "loss.svg",
        "checkpoint.safetensors",
        "tokenizer.json",
        "model.odex/manifest.json",
    ] {
        place.make(&format!("theirs/{name}"), "mine");
        let first = name.split('/').next().expect("a name");
        let there = format!("theirs/{first} exists");
        refused(
            &place,
            &["train", broken, "--out", "theirs"],
            &[&there, "choose another folder with --out"],
        );
        assert_eq!(place.read(&format!("theirs/{name}")), "mine");
        fs::remove_dir_all(place.at("theirs")).expect("removed");
    }
    // The folder that is taken where none is named.
    place.make("runs/tiny/loss.svg", "mine");
    refused(
        &place,
        &["train", "tiny.ode"],
        &["runs/tiny/loss.svg exists"],
    );
    assert_eq!(place.list("runs/tiny"), ["loss.svg"]);

    place.make("precious", "text");
    place.make("locked/notes", "");
    symlink("../precious", place.at("locked/.lock")).expect("a link");
    refused(
        &place,
        &["train", broken, "--out", "locked"],
        &["locked/.lock exists"],
    );
    assert_eq!(place.read("precious"), "text");
}

#[test]
fn artifacts_replace_artifacts_and_nothing_else() {
    let place = Place::new();
    let broken = place.broken();
    place.make("ext/manifest.json", "{\"manifest_version\": 3}");
    place.make("ext/app.js", "code");
    let build = |out: &str, why: &str| {
        refused(
            &place,
            &["build", broken, "-o", out],
            &[why, "so it is not replaced", "-o"],
        );
    };
    build("ext", "it has another manifest.json");
    build("corpus.txt", "it is not a folder");
    fs::create_dir(place.at("empty")).expect("a folder");
    build("empty", "it has no manifest.json");
    place.good(&["build", "tiny.ode", "-o", "m.odex"]);
    place.good(&["build", "tiny.ode", "-o", "m.odex"]);
    place.make("m.odex/notes.txt", "mine");
    build("m.odex", "it also holds notes.txt");
    assert_eq!(place.read("m.odex/notes.txt"), "mine");
    assert_eq!(place.list("ext"), ["app.js", "manifest.json"]);
    fs::remove_file(place.at("m.odex/notes.txt")).expect("removed");
    // Damage does not make it another's, and a link stays one.
    place.write("m.odex/kernels.so", "damaged");
    symlink("m.odex", place.at("link")).expect("a link");
    place.good(&["build", "tiny.ode", "-o", "link"]);
    place.good(&["train", "m.odex", "--out", "run", "--steps", "1"]);
    assert!(
        place
            .list(".")
            .iter()
            .all(|name| !name.starts_with(".odec"))
    );
}

#[test]
fn outputs_go_over_no_file_of_a_run_or_an_artifact() {
    let place = Place::new();
    place.good(&["build", "tiny.ode"]);
    place.good(&["train", "tiny.odex", "--out", "run", "--steps", "1"]);
    let state = place.tensors("run");
    symlink("run/checkpoint.safetensors", place.at("link")).expect("a link");
    fs::hard_link(place.at("run/checkpoint.safetensors"), place.at("same")).expect("a name");
    for out in [
        "run/checkpoint.safetensors",
        "run/../run/loss.svg",
        "link",
        "same",
    ] {
        refused(
            &place,
            &["export", "run", "-o", out],
            &["is a file of the run in"],
        );
    }
    refused(
        &place,
        &["export", "run", "-o", "tiny.odex/a"],
        &["is in the artifact"],
    );
    refused(
        &place,
        &["graph", "tiny.ode", "-o", "run/metrics.jsonl"],
        &["is a file of the run in"],
    );
    place.good(&["export", "run", "-o", "run/exported.safetensors"]);
    assert!(place.tensors("run") == state);
    place.good(&["train", "--resume", "run", "--steps", "2"]);
}

/// `new/../kept` is no place before `new` is made, and another one's place behind it.
#[test]
fn a_place_behind_a_missing_folder_is_none() {
    let place = Place::new();
    fs::create_dir(place.at("kept")).expect("a folder");
    place.write("kept/thesis.txt", "mine");
    place.write("kept/loss.svg", "mine");
    let broken = place.broken();
    for args in [
        ["build", broken, "-o", "new/../kept"],
        ["train", broken, "--out", "new/../kept"],
        ["train", broken, "--out", "a/b/../../kept"],
        ["analyze", broken, "--svg", "new/../kept"],
    ] {
        refused(&place, &args, &["by `..`", "there is none"]);
    }
    assert!(!place.at("new").exists() && !place.at("a").exists());
    assert_eq!(place.list("kept"), ["loss.svg", "thesis.txt"]);
}

/// An exploration goes on from its files.
#[test]
fn files_of_an_exploration_are_not_replaced() {
    let place = Place::new();
    fs::create_dir_all(place.at("ex/results")).expect("a folder");
    place.write("ex/exploration.json", "{}");
    place.write("ex/results/a.json", "{}");
    for file in [
        "ex/exploration.json",
        "ex/ranking.json",
        "ex/results/b.json",
    ] {
        let graph = ["graph", "tiny.ode", "-o", file];
        refused(&place, &graph, &["is a file of the exploration in", "ex"]);
    }
    place.good(&["graph", "tiny.ode", "-o", "ex/graph.svg"]);
}

#[test]
fn nothing_is_begun_in_an_exploration() {
    let place = Place::new();
    place.good(&["train", "tiny.ode", "--out", "run", "--steps", "1"]);
    fs::create_dir_all(place.at("ex/trials")).expect("a folder");
    place.write("ex/exploration.json", "{}");
    let broken = place.broken();
    for args in [
        ["train", broken, "--out", "ex"],
        ["train", broken, "--out", "ex/trials"],
        ["train", broken, "--out", "ex/a/b"],
        ["average", "run", "--out", "ex/trials/mean"],
    ] {
        refused(&place, &args, &["is in the exploration", "ex"]);
    }
    let explore = "explore {\n seed in 0..2\n match flops by train.steps within 5%\n}\n";
    place.write("e.ode", &format!("{TINY}\n{explore}"));
    let inner = ["explore", "e.ode", "--out", "ex/trials"];
    refused(&place, &inner, &["is in the exploration", "ex"]);
    assert_eq!(place.list("ex/trials"), [""; 0]);
}

/// What a rule has kept stays the run's when its checkpoint is gone.
#[test]
fn kept_parameters_are_not_trained_over() {
    let place = Place::new();
    let keep = "seed 0\n  keep checkpoints(last: 2, every: 1)";
    place.write("keep.ode", &TINY.replace("seed 0", keep));
    place.good(&["train", "keep.ode", "--out", "run", "--steps", "2"]);
    fs::remove_file(place.at("run/checkpoint.safetensors")).expect("removed");
    let broken = place.broken();
    let why = ["what an earlier run has kept, run/kept", "--out"];
    refused(&place, &["train", broken, "--out", "run"], &why);
    assert_eq!(place.list("run/kept"), ["1.safetensors", "2.safetensors"]);
}

#[test]
fn nothing_is_begun_in_an_artifact() {
    let place = Place::new();
    place.good(&["build", "tiny.ode"]);
    place.good(&["train", "tiny.odex", "--out", "run", "--steps", "1"]);
    let held = place.list("tiny.odex");
    let broken = place.broken();
    for args in [
        ["train", broken, "--out", "tiny.odex"],
        ["train", broken, "--out", "tiny.odex/a/b"],
        ["build", broken, "-o", "tiny.odex/a.odex"],
        ["average", "run", "--out", "tiny.odex/a"],
        ["analyze", broken, "--svg", "tiny.odex"],
        ["simulate", broken, "--svg", "tiny.odex/a"],
    ] {
        refused(&place, &args, &["in the artifact", "tiny.odex"]);
    }
    refused(&place, &["new", "tiny.odex/a"], &["is in the artifact"]);
    let events = ["--metrics", "tensorboard", "-o", "tiny.odex"];
    refused(
        &place,
        &[&["export", "run"][..], &events].concat(),
        &["is in the artifact"],
    );
    assert_eq!(place.list("tiny.odex"), held);
}

#[test]
fn the_artifact_of_a_run_is_replaced_by_the_same_alone() {
    let place = Place::new();
    place.good(&["train", "tiny.ode", "--out", "run", "--steps", "1"]);
    place.write("other.ode", &TINY.replace("seed 0", "seed 1"));
    let build = |from| ["build", from, "-o", "run/model.odex"];
    let other = ["belongs to the run in", "another artifact"];
    refused(&place, &build("other.ode"), &other);
    place.write("run/model.odex/kernels.so", "damaged");
    refused(&place, &["eval", "run"], &["is damaged"]);
    place.good(&build("tiny.ode"));
    place.good(&["train", "--resume", "run", "--steps", "2"]);
    let lock = fs::File::open(place.at("run/.lock")).expect("a lock");
    lock.lock().expect("locked");
    let broken = place.broken();
    refused(&place, &build(broken), &["where a process trains"]);
}

#[test]
fn outputs_go_over_no_source_and_nothing_that_is_read() {
    let place = Place::new();
    place.write("in.st", "numbers");
    place.write("notes.txt", "mine");
    let tokenize = ["tokenize", "corpus.txt", "--tokenizer", "bytes", "-o"];
    let exec = [
        "exec",
        "tiny.ode",
        "--entry",
        "grad",
        "--inputs",
        "in.st",
        "--outputs",
    ];
    let other = "so it is not replaced";
    for (command, out, why) in [
        (&["methods", "rk4", "--svg"][..], "tiny.ode", other),
        (
            &["design", "--stages", "2", "--order", "2", "--svg"],
            "tiny.ode",
            other,
        ),
        (
            &["graph", "tiny.ode", "--format", "svg", "-o"],
            "notes.txt",
            "not end in .svg,",
        ),
        (
            &["report", "runs", "-o"],
            "corpus.txt",
            "not end in .html or .htm,",
        ),
        (
            &["profile", "tiny.ode", "--trace"],
            "notes.txt",
            "not end in .json,",
        ),
        (&tokenize, "tiny.ode", "not end in .bin,"),
        (&tokenize, "corpus.txt", "is read by this command"),
        (&exec, "in.st", "is read by this command"),
        (&exec, "notes.txt", "not end in .safetensors,"),
    ] {
        refused(&place, &[command, &[out]].concat(), &[why]);
    }
    assert_eq!(place.read("notes.txt"), "mine");
    assert_eq!(place.read("in.st"), "numbers");
    assert_eq!(place.read("tiny.ode"), TINY);
    assert!(!place.read("corpus.txt").contains('\0'));
}

#[test]
fn token_files_beyond_the_vocabulary_leave_no_run() {
    let place = Place::new();
    let source = TINY.replace("text(\"corpus.txt\", tokenizer: bytes", "tokens(\"t.bin\"");
    assert!(source.contains("tokens("), "{source}");
    place.write("t.ode", &source);
    let mut tokens = [7_u16; 4000];
    tokens[3999] = 999;
    let bytes: Vec<u8> = tokens.iter().flat_map(|t| t.to_le_bytes()).collect();
    fs::write(place.at("t.bin"), bytes).expect("written");
    let train = ["train", "t.ode", "--out", "run", "--steps", "1"];
    let said = ["t.bin: token 999, at byte 7998", "the model's vocabulary"];
    refused(&place, &train, &said);
    assert!(!place.at("run").exists());
}

#[test]
fn a_run_is_no_place_for_a_mean_and_a_missing_text_no_data() {
    let place = Place::new();
    place.good(&["train", "tiny.ode", "--out", "run", "--steps", "1"]);
    let (_, said) = place.bad(&["average", "run", "--out", "run"]);
    assert!(
        said.contains("run holds a run already") && !said.contains("--resume"),
        "{said}"
    );
    let (_, said) = place.bad(&["tokenize", "nosuch", "--tokenizer", "bytes", "-o", "t.bin"]);
    assert!(
        said.contains("cannot read nosuch") && !said.contains("--data"),
        "{said}"
    );
    // JSON has the name, tables what can be shown of it.
    fs::rename(place.at("run"), place.at("two\nlines")).expect("renamed");
    let said = place.good(&["runs", ".", "--json"]);
    assert!(said.contains(r#""folder":"./two\nlines""#), "{said}");
}

#[test]
fn values_of_options_that_make_no_sense_are_errors_of_usage() {
    let place = Place::new();
    for args in [
        ["generate", "run", "--temperature", "nan"],
        ["build", "tiny.ode", "--target", "cpu:foo"],
        ["train", "tiny.ode", "--checkpoint-every", "-1"],
        ["train", "tiny.ode", "--time-limit", "0"],
        ["bench", "tiny.ode", "--tokens", "0"],
    ] {
        let (code, said) = place.bad(&args);
        assert_eq!(code, 2, "{said}");
        assert!(said.contains(args[2]), "{said}");
    }
}

#[test]
fn what_a_run_is_made_of_is_not_set_when_it_goes_on() {
    let place = Place::new();
    for set in [["--set", "train.lr=1"], ["--map", "names.json"]] {
        let (code, said) = place.bad(&["train", "--resume", "run", set[0], set[1]]);
        assert_eq!(code, 2, "{said}");
        assert!(said.contains("cannot be used with"), "{said}");
    }
}

#[test]
fn a_run_is_resumed_on_its_own_text_only() {
    let place = Place::new();
    place.good(&["train", "tiny.ode", "--out", "run", "--steps", "2"]);
    let text = place.read("corpus.txt");
    // The same text with another time is the same text.
    place.write("corpus.txt", &text);
    place.good(&["train", "--resume", "run", "--steps", "3"]);
    place.write("corpus.txt", &text.replace("fox", "cat"));
    let resume = ["train", "--resume", "run", "--steps", "4"];
    let changed = ["the data of this run have changed", "corpus.txt", "--data"];
    refused(&place, &resume, &changed);
    refused(&place, &["eval", "run"], &changed);
    place.write("corpus.txt", &text[1..]);
    refused(&place, &resume, &["8799 bytes now and had 8800"]);
    // What is named is accepted, and is from then on what the run is on.
    place.good(&[&resume[..], &["--data", "corpus.txt"]].concat());
    place.good(&["train", "--resume", "run", "--steps", "5"]);
}

#[test]
fn damaged_parameters_are_not_started_from() {
    let place = Place::new();
    place.good(&["train", "tiny.ode", "--out", "run", "--steps", "1"]);
    let file = place.at("run/checkpoint.safetensors");
    let mut bytes = fs::read(&file).expect("a checkpoint");
    let last = bytes.len() - 5;
    bytes[last] ^= 64;
    fs::write(&file, bytes).expect("written");
    let damaged = ["run/checkpoint.safetensors is damaged", "SHA-256"];
    refused(
        &place,
        &["train", "tiny.ode", "--init", "run", "--out", "b"],
        &damaged,
    );
    place.write(
        "from.ode",
        &TINY.replace("seed 0", "seed 0\n  from \"run\""),
    );
    refused(&place, &["train", "from.ode", "--out", "b"], &damaged);
    assert!(!Path::new(&place.at("b")).exists());
}

#[test]
fn fmt_replaces_files_where_they_are() {
    let place = Place::new();
    place.write("a.ode", "field a=b");
    let (file, link) = (place.at("a.ode"), place.at("b.ode"));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).expect("permissions");
    symlink(&file, &link).expect("a link");
    let (code, said) = place.bad(&["fmt", "--check", "b.ode"]);
    assert!(
        code == 1 && said.contains("1 file is not formatted"),
        "{said}"
    );
    assert_eq!(place.read("a.ode"), "field a=b");
    place.good(&["fmt", "b.ode"]);
    assert_eq!(place.read("a.ode"), "field a = b\n");
    let mode = fs::metadata(&file).expect("the file").permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    assert!(fs::symlink_metadata(&link).expect("the link").is_symlink());
    place.good(&["fmt", "--check", "b.ode"]);
}

#[test]
fn fmt_leaves_broken_and_read_only_files() {
    let place = Place::new();
    place.write("a.ode", "field a=");
    assert_eq!(place.bad(&["fmt", "a.ode"]).0, 1);
    assert_eq!(place.read("a.ode"), "field a=");
    place.write("a.ode", "field a=b");
    let read_only = fs::Permissions::from_mode(0o440);
    fs::set_permissions(place.at("a.ode"), read_only).expect("permissions");
    let (code, said) = place.bad(&["fmt", "a.ode"]);
    assert!(
        code == 1 && said.contains("the file is read-only"),
        "{said}"
    );
    assert_eq!(place.read("a.ode"), "field a=b");
}

/// What a run needs and does not have is said before anything is written.
#[test]
fn data_that_no_step_can_be_made_of_leave_no_folder() {
    let place = Place::new();
    place.write("short.txt", "ab\n");
    let train = ["train", "tiny.ode", "--out", "run", "--steps", "1"];
    let short = [&train[..], &["--data", "short.txt"]].concat();
    refused(
        &place,
        &short,
        &["the training part of short.txt has 3 tokens"],
    );
    assert!(!place.at("run").exists());
    place.good(&train);
}
