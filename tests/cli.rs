//! The command line as a person uses it: every command on a tiny model, exit codes, and what errors look like.

mod place;

use place::{Place, TINY, text};
use std::path::Path;

#[test]
fn check_says_what_is_claimed_and_what_the_model_costs() {
    let place = Place::new();
    let said = place.good(&["check", "tiny.ode"]);
    // Panels of weights are as wide as the machine's vectors.
    let planned = |l: &&str| l.contains("KiB") && !l.contains("KV cache");
    let (memory, rest): (Vec<&str>, Vec<&str>) = said.lines().partition(planned);
    assert_eq!(memory.len(), 2, "{said}");
    insta::assert_snapshot!(rest.join("\n"));
    let json = place.good(&["check", "tiny.ode", "--json", "--set", "model.r=3"]);
    let value: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(value[0]["model"]["evaluations_per_step"], 8);
    assert_eq!(value[0]["claims"][0]["status"], "proved");
}

#[test]
fn analyze_says_what_is_true_of_schemes_and_flows() {
    let place = Place::new();
    let said = place.good(&["analyze", "tiny.ode"]);
    assert!(said.contains("iie — step program"), "{said}");
    assert!(said.contains("— evolve"), "{said}");
    let one = place.good(&["analyze", "tiny.ode", "lie"]);
    assert!(one.starts_with("lie — splitting, 2 evaluations"), "{one}");
    let json = place.good(&["analyze", "tiny.ode", "lie", "--json"]);
    let value: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(value[0]["order"], 1);
    assert!(
        place
            .good(&["analyze", "tiny.ode", "lie", "--latex"])
            .contains("\\begin{array}")
    );
    place.good(&[
        "analyze",
        "tiny.ode",
        "--svg",
        "pictures",
        "--lipschitz",
        "1/2",
    ]);
    let picture = place.read("pictures/iie.region.svg");
    assert!(picture.starts_with("<svg"), "{picture}");
    assert!(place.read("pictures/lie.tableau.svg").starts_with("<svg"));
    let picture = place.read("pictures/lie.convergence.svg");
    assert!(picture.contains("order 1, measured"), "{picture}");
    let (code, said) = place.bad(&["analyze", "tiny.ode", "--lipschitz=-1/0"]);
    assert_eq!(code, 1);
    assert!(said.contains("not a positive number"), "{said}");
    let (code, said) = place.bad(&["analyze", "tiny.ode", "nothing"]);
    assert_eq!(code, 1);
    assert!(said.contains("known schemes: lie, iie"), "{said}");
}

#[test]
fn every_stage_can_be_shown() {
    let place = Place::new();
    let begins = [
        ("ast", "(field att"),
        ("stages", "k2 = ffn(y1)"),
        ("graph", "%"),
        ("program", ""),
        ("mlir", "module"),
        ("params", "["),
    ];
    for (stage, sign) in begins {
        let shown = place.good(&["build", "tiny.ode", "--emit", stage]);
        assert!(shown.contains(sign), "{stage}: {sign:?} is not in\n{shown}");
        assert_eq!(
            shown,
            place.good(&["build", "tiny.ode", "--emit", stage]),
            "{stage} is deterministic"
        );
    }
    assert!(
        place
            .good(&["graph", "tiny.ode", "--format", "dot"])
            .starts_with("digraph")
    );
    place.good(&["graph", "tiny.ode", "--format", "svg", "-o", "g.svg"]);
    assert!(place.read("g.svg").starts_with("<svg"));
}

#[cfg(feature = "mlir")]
#[test]
fn from_a_file_to_text() {
    let place = Place::new();
    place.good(&["build", "tiny.ode", "-o", "tiny.odex"]);
    let said = place.good(&["train", "tiny.odex", "--out", "run"]);
    assert!(said.contains("held-out loss"), "{said}");
    assert!(place.read("run/loss.svg").starts_with("<svg"));
    let losses: Vec<f64> = place
        .read("run/metrics.jsonl")
        .lines()
        .filter_map(|l| serde_json::from_str::<serde_json::Value>(l).ok()?["loss"].as_f64())
        .collect();
    assert_eq!(losses.len(), 30);
    assert!(losses[29] < losses[0] - 1.0, "it learns: {losses:?}");

    let eval: serde_json::Value =
        serde_json::from_str(&place.good(&["eval", "run", "--json"])).expect("JSON");
    assert!(eval["loss"].as_f64().expect("a loss") < 4.5, "{eval}");
    let own = place.good(&["eval", "run", "--data", "corpus.txt"]);
    assert!(own.contains("8,799 predicted tokens"), "{own}");

    let words = [
        "generate", "run", "--prompt", "the ", "--tokens", "20", "--seed", "3",
    ];
    let made = place.good(&words);
    assert!(made.starts_with("the ") && made.len() > 10, "{made:?}");
    assert_eq!(made, place.good(&words), "the seed decides");
}

#[cfg(feature = "mlir")]
#[test]
fn compiled_training_gives_the_bits_of_the_reference_device() {
    let place = Place::new();
    let train = |out, device| {
        place.good(&[
            "train",
            "tiny.ode",
            "--out",
            out,
            "--set",
            "train.steps=6",
            "--device",
            device,
        ]);
        place.tensors(out)
    };
    let compiled = train("compiled", "cpu");
    assert!(
        compiled.len() > 30,
        "parameters and moments: {}",
        compiled.len()
    );
    assert!(compiled == train("again", "cpu"), "two runs");
    assert!(compiled == train("reference", "reference"), "two devices");
}

/// Every command on an f64 model; a continued run is the uninterrupted one in every bit.
#[cfg(feature = "mlir")]
#[test]
fn a_model_in_f64() {
    let place = Place::new();
    let wide = TINY.replace("clip 1.0;", "clip 1.0;  precision f64;");
    place.write("wide.ode", &wide);
    place.good(&["build", "wide.ode", "-o", "wide.odex"]);
    place.good(&["train", "wide.odex", "--out", "run", "--steps", "3"]);
    place.good(&["train", "--resume", "run", "--steps", "5"]);
    place.good(&["train", "wide.odex", "--out", "whole", "--steps", "5"]);
    let (run, whole) = (place.tensors("run"), place.tensors("whole"));
    assert!(run == whole);
    let (_, embedding) = run
        .iter()
        .find(|(name, _)| name == "embed.token.weight")
        .expect("it is there");
    assert_eq!(embedding.len(), 256 * 16 * 8);
    assert!(
        place
            .good(&["eval", "run", "--windows", "2"])
            .contains("perplexity")
    );
    let words = |device| {
        let args = [
            "generate", "run", "--prompt", "the", "--tokens", "5", "--device", device,
        ];
        place.good(&args)
    };
    assert_eq!(words("cpu"), words("reference"));
    place.good(&["export", "run", "-o", "params.safetensors"]);
    place.good(&[
        "train",
        "tiny.ode",
        "--init",
        "params.safetensors",
        "--out",
        "narrow",
        "--steps",
        "1",
    ]);
    place.good(&["bench", "wide.odex", "--steps", "1", "--warmup", "0"]);
    let (code, said) = place.bad(&["build", "wide.ode", "--target", "sm_80", "-o", "gpu.odex"]);
    assert_eq!(code, 1);
    assert!(
        said.contains("`precision f64` is not supported on sm_80"),
        "{said}"
    );
    assert!(said.contains("wide.ode:"), "{said}");
}

#[test]
fn mistakes_are_located_and_have_exit_codes() {
    let place = Place::new();
    let wrong = TINY
        .replace("heads: 2", "heads: 3")
        .replace("rmsnorm |> swiglu", "rmsnrm |> swiglu");
    place.write("wrong.ode", &wrong);
    let (code, said) = place.bad(&["check", "wrong.ode"]);
    assert_eq!(code, 1);
    insta::assert_snapshot!(said);

    let (code, said) = place.bad(&["check", "nowhere.ode"]);
    assert!(code == 1 && said.contains("nowhere.ode"), "{code} {said}");
    let (code, said) = place.bad(&[
        "train",
        "tiny.ode",
        "--data",
        "nowhere.txt",
        "--device",
        "reference",
    ]);
    assert!(code == 1 && said.contains("nowhere.txt"), "{code} {said}");
    let (code, said) = place.bad(&["check", "tiny.ode", "--set", "model.widht=8"]);
    assert!(code == 1 && said.contains("model.width"), "{code} {said}");
    let (code, said) = place.bad(&["eval", "corpus.txt"]);
    assert!(code == 1 && said.contains("corpus.txt"), "{code} {said}");
    let (code, _) = place.bad(&["check"]);
    assert_eq!(code, 2, "usage");
    let (code, said) = place.bad(&["bench", "tiny.ode", "--steps", "-1"]);
    assert!(
        code == 2 && said.contains("invalid value '-1' for '--steps"),
        "{code} {said}"
    );
    place.write("bytes.ode", "");
    std::fs::write(place.path().join("bytes.ode"), [0x66, 0xff, 0xfe]).expect("written");
    let (code, said) = place.bad(&["check", "bytes.ode"]);
    assert!(code == 1 && said.contains("byte 1"), "{code} {said}");
}

#[test]
fn fmt_formats_in_place_and_checks() {
    let place = Place::new();
    // Formatted, but for the empty line at its beginning.
    assert_eq!(place.good(&["fmt", "tiny.ode"]), "tiny.ode\n");
    assert_eq!(place.read("tiny.ode"), TINY.trim_start());
    place.write("ugly.ode", "field a=b // kept");
    let (code, errors) = place.bad(&["fmt", "--check", "tiny.ode", "ugly.ode"]);
    assert!(
        code == 1 && errors.contains("1 file is not formatted"),
        "{errors}"
    );
    assert_eq!(place.good(&["fmt", "tiny.ode", "ugly.ode"]), "ugly.ode\n");
    assert_eq!(place.read("ugly.ode"), "field a = b  // kept\n");
    place.good(&["fmt", "--check", "ugly.ode"]);
    place.write("bad.ode", "field a=");
    assert_eq!(place.bad(&["fmt", "bad.ode"]).0, 1);
    assert_eq!(place.read("bad.ode"), "field a=");
}

#[test]
fn new_writes_a_file_that_checks() {
    let place = Place::new();
    assert_eq!(place.good(&["new", "my-idea"]), "my-idea.ode\n");
    let comment = "// Your own text, from about 100 KB on: no command makes it.";
    assert!(place.read("my-idea.ode").contains(comment));
    place.good(&["fmt", "--check", "my-idea.ode"]);
    let said = place.good(&["check", "my-idea.ode"]);
    assert!(said.contains("my_idea — model, 4 steps"), "{said}");
    place.write("my-idea.ode", "mine");
    let (code, said) = place.bad(&["new", "my-idea.ode"]);
    assert!(
        code == 1 && said.contains("exists and is not changed"),
        "{said}"
    );
    assert_eq!(place.read("my-idea.ode"), "mine");
    let (code, said) = place.bad(&["new", "scheme"]);
    assert!(code == 1 && said.contains("cannot be called"), "{said}");
    let (code, said) = place.bad(&["new", "no/such/folder/x"]);
    assert!(code == 1 && said.contains("no/such/folder/x.ode"), "{said}");
}

#[test]
fn files_that_import_each_other_and_files_without_end_are_refused() {
    let place = Place::new();
    place.write("a.ode", "use \"b.ode\"\nfield a = rmsnorm\n");
    place.write("b.ode", "use \"./a.ode\"\nfield b = rmsnorm\n");
    let (code, said) = place.bad(&["check", "a.ode"]);
    assert_eq!(code, 1);
    insta::assert_snapshot!(said);
    let (code, said) = place.bad(&["check", "/dev/zero"]);
    assert!(code == 1 && said.contains("it is a device"), "{said}");
    place.write("long.ode", &" ".repeat((1 << 20) + 1));
    let (code, said) = place.bad(&["check", "long.ode"]);
    assert!(code == 1 && said.contains("1,048,576 bytes"), "{said}");
}

/// What the README shows is what odec does.
#[test]
fn the_readme_is_true() {
    let place = Place::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |name: &str| std::fs::read_to_string(root.join(name)).expect(name);
    let readme = read("README.md");
    let example = readme.split("```ode\n").nth(1).expect("an example");
    let example = example.split("```").next().expect("its end");
    place.write("corrected.ode", example);
    place.good(&["fmt", "--check", "corrected.ode"]);
    let stages = place.good(&["build", "corrected.ode", "--emit", "stages"]);
    assert!(
        stages.contains("return x + 1/2*h*k1 + 1/2*h*k3"),
        "{stages}"
    );

    let model = root.join("schemes/models/iiet.ode");
    let model = model.to_str().expect("a path in UTF-8");
    place.good(&["graph", model, "--format", "svg", "-o", "iiet.svg"]);
    assert_eq!(
        place.read("iiet.svg"),
        read("docs/iiet.svg"),
        "docs/iiet.svg is out of date"
    );
}

/// Code for GPUs is built and hashed anywhere; where there is none, both ways of running it say what is missing.
#[cfg(feature = "mlir")]
#[test]
fn artifacts_for_gpus_say_what_they_need() {
    let place = Place::new();
    place.good(&["build", "tiny.ode", "--target", "sm_80", "-o", "gpu.odex"]);
    let ptx = place.read("gpu.odex/kernels.ptx");
    assert!(ptx.contains(".target sm_80") && !ptx.contains(".extern"));
    assert_eq!(
        ptx,
        place.good(&["build", "tiny.ode", "--target", "sm_80", "--emit", "ptx"])
    );
    let (code, said) = place.bad(&["train", "gpu.odex", "--out", "run"]);
    assert_eq!(code, 1);
    assert!(said.contains("GPUs only (sm_80)"), "{said}");
    let (code, said) = place.bad(&["build", "tiny.ode", "--emit", "ptx"]);
    assert_eq!(code, 1);
    assert!(said.contains("--target sm_80"), "{said}");
    // A machine without a driver says so; one with a card would go on.
    let out = place.odec(&["train", "gpu.odex", "--device", "cuda:0", "--out", "run"]);
    let said = place::text(&out.stderr);
    assert!(out.status.success() || said.contains("cuda:0: "), "{said}");
}

/// Colours on a terminal, unless it or `NO_COLOR` says no; none in pipes and files.
#[cfg(target_os = "linux")]
#[test]
fn colours_are_for_terminals() {
    let place = Place::new();
    place.write("bad.ode", &TINY.replace("rmsnorm", "rmsnrom"));
    let odec = env!("CARGO_BIN_EXE_odec");
    let said = |command: &mut std::process::Command| {
        let out = command.env_remove("NO_COLOR").env("TERM", "xterm").output();
        let out = out.expect("it starts");
        let said = place::text(&out.stdout) + &place::text(&out.stderr);
        assert!(said.contains("rmsnrom"), "{said}");
        said
    };
    assert!(!said(&mut place.command(&["check", "bad.ode"])).contains('\u{1b}'));
    // `script` runs a command on a terminal of its own.
    let on_a_terminal = |before: &str| {
        let line = format!("{before} '{odec}' check bad.ode");
        let script = std::process::Command::new("script");
        said(&mut place.through(script, &["-qec", &line, "/dev/null"]))
    };
    assert!(
        on_a_terminal("env").contains("\u{1b}["),
        "a terminal has colours"
    );
    for plain in ["env NO_COLOR=1", "env TERM=dumb"] {
        let said = on_a_terminal(plain);
        assert!(!said.contains('\u{1b}'), "{plain}: {said:?}");
    }
    assert!(
        on_a_terminal("env NO_COLOR=").contains("\u{1b}["),
        "an empty NO_COLOR says nothing"
    );
}

/// A card that is too small: what is needed and there, and what would help, before code is generated or text is read.
#[cfg(feature = "mlir")]
#[test]
fn too_small_a_card_is_refused_before_any_work() {
    let place = Place::new();
    let mut large = TINY.to_string();
    for (small, many) in [
        ("context: 16", "context: 2048"),
        ("width: 16", "width: 512"),
        ("for 2 steps", "for 9 steps"),
        ("batch 4", "batch 64"),
    ] {
        assert!(large.contains(small));
        large = large.replace(small, many);
    }
    place.write("large.ode", &large);
    let (code, said) = place.bad(&[
        "train",
        "large.ode",
        "--device",
        "cuda:dry:1GiB",
        "--data",
        "none.txt",
    ]);
    assert_eq!(code, 1);
    for part in [
        "cuda:0: ",
        " of GPU memory",
        "has 1.0 GiB (1073741824 bytes) free",
        "would need with `memory revolve(slots: ",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let (_, said) = place.bad(&["train", "tiny.ode", "--device", "cuda:dry:lots"]);
    assert!(said.contains("cuda:dry:24GiB"), "{said}");
}

/// On a processor every bit is the reference device's; for a card without one, every launch is planned and nothing computed.
#[test]
fn compare_runs_every_entry_beside_the_reference_device() {
    let place = Place::new();
    let said = place.good(&["compare", "tiny.ode", "--steps", "1"]);
    assert!(!said.contains("differ"), "{said}");
    // Numbers of steps are drawn, up to the largest.
    let drawn = "random(log_normal_poisson(mean: 1), max: 2) steps { weights shared }";
    let steps = "2 steps { h = 1;  weights per step }";
    place.write("drawn.ode", &TINY.replace(steps, drawn));
    let of_drawn = place.good(&["compare", "drawn.ode", "--steps", "1"]);
    assert!(!of_drawn.contains("differ"), "{of_drawn}");
    for what in [
        "logits of",
        "gradient 1 of embed.token.weight",
        "gradient 1 of step.1.ffn.gate.weight",
        "parameters 1",
        "pieces against the whole",
    ] {
        let line = said.lines().find(|l| l.starts_with(what));
        assert!(line.is_some_and(|l| l.ends_with("every bit")), "{said}");
    }
    place.good(&["build", "tiny.ode", "--target", "sm_80", "-o", "card.odex"]);
    let json = place.good(&["compare", "card.odex", "--device", "cuda:dry", "--json"]);
    let value: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(
        (&value["computed"], &value["good"]),
        (&false.into(), &true.into())
    );
    let timed = [
        "bench",
        "card.odex",
        "--device",
        "cuda:dry",
        "--json",
        "--tokens",
        "3",
    ];
    let value: serde_json::Value = serde_json::from_str(&place.good(&timed)).expect("JSON");
    assert_eq!(value["tokens"], 3);
    let profiled = [
        "profile",
        "card.odex",
        "--device",
        "cuda:dry",
        "--steps",
        "2",
    ];
    let said = place.good(&profiled);
    assert!(said.ends_with("no times: nothing was computed\n"), "{said}");
    let json = place.good(&[&profiled[..], &["--json"]].concat());
    let value: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let kernels = value["kernels"].as_array().expect("a list");
    assert!(
        kernels
            .iter()
            .all(|k| k["ms"].is_null() && k["launches"].as_u64() >= Some(2))
    );
    let (code, said) = place.bad(&["compare", "card.odex"]);
    assert_eq!(code, 1);
    assert!(said.contains("holds code for GPUs only"), "{said}");
}

/// One by one, from the same operands: on a processor every bit is the reference device's, and a card without one takes them all.
#[test]
fn compare_runs_every_launch_beside_the_reference_device() {
    let place = Place::new();
    let said = place.good(&["compare", "tiny.ode", "--launches", "--dump", "first"]);
    assert!(
        said.ends_with(" launches, every bit: as on the reference device\n"),
        "{said}"
    );
    assert!(!place.path().join("first").exists());
    place.good(&["build", "tiny.ode", "--target", "sm_90a", "-o", "card.odex"]);
    let args = [
        "compare",
        "card.odex",
        "--launches",
        "--device",
        "cuda:dry",
        "--json",
    ];
    let value: serde_json::Value = serde_json::from_str(&place.good(&args)).expect("JSON");
    assert_eq!(
        (&value["computed"], &value["failed"]),
        (&false.into(), &0.into())
    );
    assert!(value["launches"].as_u64() > Some(100), "{value}");
    let (code, said) = place.bad(&["compare", "tiny.ode", "--launches", "--dump", "tiny.ode"]);
    assert_eq!(code, 1);
    assert!(
        said.contains("tiny.ode exists; name a new folder"),
        "{said}"
    );
    // Instead of its code, what an assembler made of it; here, no such thing.
    let mut command =
        place.command(&["compare", "card.odex", "--launches", "--device", "cuda:dry"]);
    let out = command
        .env("ODEC_CUBIN", "none.cubin")
        .output()
        .expect("odec starts");
    assert!(!out.status.success());
    assert!(
        text(&out.stderr).contains("the code for it cannot be read"),
        "{}",
        text(&out.stderr)
    );
    place.write("some.cubin", "\x7fELF");
    let out = command
        .env("ODEC_CUBIN", "some.cubin")
        .output()
        .expect("odec starts");
    assert!(out.status.success(), "{}", text(&out.stderr));
}

/// The end of a pipe that nobody reads: every write to it fails.
#[cfg(unix)]
fn closed() -> std::io::PipeWriter {
    std::io::pipe().expect("a pipe").1
}

/// A device that is always full.
#[cfg(target_os = "linux")]
fn full() -> std::fs::File {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
    full.expect("a device")
}

/// A reader who goes away is no failure; output that is lost otherwise is said. Nothing panics.
#[cfg(target_os = "linux")]
#[test]
fn lost_output_ends_no_command() {
    let place = Place::new();
    let mut commands: Vec<Vec<&str>> = vec![
        vec!["check", "tiny.ode"],
        vec!["check", "tiny.ode", "--json"],
        vec!["check", "tiny.ode", "--paths"],
        vec!["analyze", "tiny.ode"],
        vec!["analyze", "tiny.ode", "--json"],
        vec!["build", "tiny.ode", "--emit", "stages"],
        vec!["build", "tiny.ode", "--emit", "program"],
        vec!["graph", "tiny.ode"],
        vec!["fmt", "--check", "tiny.ode"],
        vec!["completions", "bash"],
        vec![
            "tokenize",
            "corpus.txt",
            "--tokenizer",
            "bytes",
            "-o",
            "t.bin",
        ],
        vec!["methods", "rk2_gated"],
    ];
    if cfg!(feature = "mlir") {
        place.good(&["train", "tiny.ode", "--out", "run", "--steps", "1"]);
        commands.extend([
            vec!["profile", "tiny.ode", "--steps", "1"],
            vec!["bench", "tiny.ode", "--steps", "1", "--json"],
            vec!["compare", "tiny.ode", "--steps", "1"],
            vec!["eval", "run", "--windows", "1"],
            vec!["generate", "run", "--prompt", "the", "--tokens", "3"],
            vec!["export", "run", "-o", "run.safetensors"],
            vec!["train", "--resume", "run", "--steps", "2", "--json"],
        ]);
    }
    for args in &commands {
        let (code, said) = place.printing_to(full(), args);
        // `fmt --check` has something to say of its own.
        let own = args[0] == "fmt";
        assert_eq!(code, Some(1), "{args:?}: {said}");
        let lost = "error: standard output: No space left on device";
        assert!(own || said.contains(lost), "{args:?}: {said}");
        let (code, said) = place.printing_to(closed(), args);
        assert_eq!(code, Some(i32::from(own)), "{args:?}: {said}");
        assert!(
            !said.contains("panicked") && (own || !said.contains("error")),
            "{args:?}: {said}"
        );
    }
    assert_eq!(place.printing_to(closed(), &["new", "lost"]).0, Some(0));
    assert!(place.read("lost.ode").contains("model lost"));
}

/// Training does not depend on who looks on.
#[cfg(all(feature = "mlir", target_os = "linux"))]
#[test]
fn lost_messages_end_no_training() {
    use std::process::Stdio;
    let place = Place::new();
    let train = |run, stderr: Stdio| {
        let mut c = place.command(&["train", "tiny.ode", "--out", run]);
        let out = c.stderr(stderr).output().expect("odec starts");
        assert!(out.status.success(), "{run}: {:?}", out.status);
        assert!(place::text(&out.stdout).contains("held-out loss"));
        place.tensors(run)
    };
    let seen = train("seen", Stdio::piped());
    assert!(train("full", full().into()) == seen);
    assert!(train("closed", closed().into()) == seen);
    // Messages about a file are lost; the answer stays.
    place.write("bad.ode", "field a =");
    let mut c = place.command(&["check", "bad.ode"]);
    assert_eq!(
        c.stderr(full()).status().expect("odec starts").code(),
        Some(1)
    );
}

/// What a command finds is there whatever becomes of pictures, and schemes of which nothing is proved are listed.
#[cfg(feature = "mlir")]
#[test]
fn schemes_of_which_nothing_can_be_measured() {
    let place = Place::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let gated = root.join("schemes/transformer/rk2_gated.ode");
    let gated = gated.to_str().expect("a path in UTF-8");
    let said = place.good(&["analyze", gated, "--svg", "pictures"]);
    assert!(said.starts_with("rk2_gated — step program"), "{said}");
    for args in [&["methods", "rk2_gated"][..], &["methods", "--file", gated]] {
        let said = place.good(args);
        let mut rows = said.lines();
        let row = rows.find(|l| l.starts_with("| rk2_gated |"));
        assert!(row.is_some_and(|l| l.ends_with("| – | – |")), "{said}");
        let why = "- rk2_gated: no order is proved: it multiplies states";
        assert_eq!(rows.last(), Some(why), "{said}");
    }
    // A step that launches nothing.
    place.write("idle.ode", "scheme idle(F) {\n  step x { return x }\n}\n");
    place.good(&["methods", "--file", "idle.ode"]);
    place.write("taken", "");
    let out = place.odec(&["analyze", gated, "--svg", "taken"]);
    assert_eq!(out.status.code(), Some(1));
    assert!(
        place::text(&out.stdout).starts_with("rk2_gated"),
        "the words come first"
    );
    assert!(place::text(&out.stderr).contains("taken: "));
}

/// Files that training needs and that are not there: said, and no mistake.
#[test]
fn check_says_which_files_are_missing() {
    let place = Place::new();
    let out = place.odec(&["check", "tiny.ode"]);
    assert_eq!(place::text(&out.stderr), "", "all is there");
    let elsewhere = TINY.replace("tokenizer: bytes", "tokenizer: \"none.json\"");
    place.write(
        "elsewhere.ode",
        &elsewhere.replace("corpus.txt", "none.txt"),
    );
    let out = place.odec(&["check", "elsewhere.ode"]);
    assert!(out.status.success());
    insta::assert_snapshot!(place::text(&out.stderr));
    std::fs::create_dir(place.path().join("corpus")).unwrap();
    place.write("folder.ode", &TINY.replace("corpus.txt", "corpus"));
    let out = place.odec(&["check", "folder.ode"]);
    assert!(out.status.success());
    let said = place::text(&out.stderr);
    assert!(said.contains("corpus is a folder, not a file"), "{said}");
}

#[test]
fn check_lists_what_can_be_set() {
    let place = Place::new();
    let said = place.good(&["check", "tiny.ode", "--paths", "--set", "model.width=32"]);
    insta::assert_snapshot!(said);
}

/// The file that a person named is in the message, and no code is generated before it.
#[test]
fn a_model_without_a_train_block_is_refused_by_its_name() {
    let place = Place::new();
    let model = TINY.split("train {").next().expect("a model");
    place.write("model.ode", model);
    for command in ["train", "bench", "profile"] {
        let (code, said) = place.bad(&[command, "model.ode", "--device", "reference"]);
        assert_eq!(code, 1);
        assert!(
            said.starts_with("error: model.ode has no train block; add one"),
            "{said}"
        );
    }
}
/// The row before those of the input is none of them.
#[test]
fn check_counts_a_class_token_apart() {
    let place = Place::new();
    let model = |embed: &str| {
        format!(
            "field f = rmsnorm |> attention(heads: 2)\nmodel m {{\n  input patches(image: 8, patch: 2)\n  embed {embed}\n  \
             evolve euler(f) for 1 step\n  output classes(3, of: mean)\n}}\n\
             train {{ data images(\"a.npz\", classes: 3);  loss cross_entropy;  optimizer adamw(lr: 1e-3);  batch 4;  steps 2 }}\n"
        )
    };
    place.write("plain.ode", &model("linear(width: 4)"));
    place.write("token.ode", &model("linear(width: 4), class_token"));
    let train = |file: &str| {
        let said = place.good(&["check", file]);
        let line = said.lines().find(|l| l.contains("steps of"));
        line.expect("what is trained").trim().to_string()
    };
    assert!(train("plain.ode").contains("4 images of 16 patches, f32"));
    assert!(train("token.ode").contains("4 images of 16 patches and a row before them, f32"));
}

/// What a graph is written as follows from the name of the file.
#[test]
fn a_graph_is_written_as_its_file_is_called() {
    let place = Place::new();
    for (file, begins) in [
        ("g.svg", "<svg"),
        ("g.dot", "digraph"),
        ("g.txt", "%"),
        ("g.odeg", "%"),
    ] {
        place.good(&["graph", "tiny.ode", "-o", file]);
        assert!(place.read(file).starts_with(begins), "{file}");
    }
    place.good(&["graph", "tiny.ode", "--format", "dot", "-o", "other.txt"]);
    assert!(place.read("other.txt").starts_with("digraph"));
    for file in ["g.png", "graph"] {
        let (code, said) = place.bad(&["graph", "tiny.ode", "-o", file]);
        assert!(
            code == 1 && said.contains(".svg, .dot, .txt or .odeg"),
            "{said}"
        );
        assert!(!place.path().join(file).exists());
    }
}
