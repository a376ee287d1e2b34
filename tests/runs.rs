//! Runs that are killed, stopped, refused by the disk, or diverge: nothing is lost, and what is resumed continues bit
//! for bit.

#![cfg(all(feature = "mlir", unix))]

mod place;

use place::{Place, TINY, text};
use std::collections::BTreeSet;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What a line of metrics about a step has, and no other.
const STEP: &str = "\"loss\":";

/// A number from the environment.
fn setting(name: &str, default: u64) -> u64 {
    let value = std::env::var(name).ok();
    value.map_or(default, |v| v.parse().expect("a number"))
}

/// SplitMix64 (Steele, Lea, Flood 2014).
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % n
    }
}

fn spawn(c: &mut Command) -> Child {
    c.stdout(Stdio::null()).stderr(Stdio::piped());
    c.spawn().expect("odec starts")
}

fn stderr(child: Child) -> (Option<i32>, String) {
    let out = child.wait_with_output().expect("it ends");
    (out.status.code(), text(&out.stderr))
}

impl Place {
    fn exists(&self, name: &str) -> bool {
        self.path().join(name).exists()
    }

    /// The metrics of a run without what depends on the clock.
    fn metrics(&self, run: &str) -> Vec<serde_json::Value> {
        let lines = self.read(&format!("{run}/metrics.jsonl"));
        let timeless = |line: &str| {
            let mut v: serde_json::Value = serde_json::from_str(line).expect("JSON");
            let fields = v.as_object_mut().expect("an object");
            fields.retain(|key, _| {
                !["seconds", "tokens_per_s", "flop_per_s"].contains(&key.as_str())
            });
            v
        };
        lines.lines().map(timeless).collect()
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path().join(name)).expect(name)
    }

    /// Waits until a run has written so many steps.
    fn wait_for_steps(&self, run: &str, steps: usize, child: &mut Child) {
        let metrics = self.path().join(run).join("metrics.jsonl");
        let start = Instant::now();
        let done = |text: String| text.lines().filter(|l| l.contains(STEP)).count();
        while std::fs::read_to_string(&metrics).map_or(0, done) < steps {
            let ended = child.try_wait().expect("a state");
            assert!(ended.is_none(), "it ended: {ended:?}");
            assert!(start.elapsed() < Duration::from_secs(600), "no steps");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// SIGKILL at random times: while starting, stepping, evaluating, writing. `ODEC_KILLS` sets how often, `ODEC_KILL_SEED`
/// when.
#[test]
fn killed_runs_continue_bit_for_bit() {
    let place = Place::new();
    let wanted = setting("ODEC_KILLS", 25);
    let mut random = Random(setting("ODEC_KILL_SEED", 1));
    place.good(&["build", "tiny.ode", "--set", "train.steps=60"]);
    place.good(&["train", "tiny.odex", "--out", "whole"]);
    let (tensors, metrics) = (place.tensors("whole"), place.metrics("whole"));
    // What is said of the first step and behind each evaluation, of which the last is behind the last step.
    assert_eq!(metrics.len(), 60 + 10 + 10, "steps, evaluations, movements");

    let (mut kills, mut runs, mut fresh) = (0, 0, 0);
    while kills < wanted {
        let run = format!("run{runs}");
        loop {
            let started = place.exists(&format!("{run}/checkpoint.safetensors"));
            fresh += u64::from(!started && kills > 0);
            let mut args = vec!["train", "--checkpoint-every", "0"];
            args.extend(match started {
                true => vec!["--resume", &run],
                false => vec!["tiny.odex", "--out", &run],
            });
            let mut child = spawn(&mut place.command(&args));
            if kills < wanted {
                std::thread::sleep(Duration::from_micros(random.below(150_000)));
                if child.try_wait().expect("a state").is_none() {
                    child.kill().expect("killed");
                    kills += 1;
                }
            }
            match stderr(child) {
                (Some(0), _) => break,
                (None, _) => {}
                (code, said) => panic!("{code:?} after {kills} kills: {said}"),
            }
        }
        assert!(place.tensors(&run) == tensors, "{run}: other parameters");
        assert_eq!(place.metrics(&run), metrics, "{run}");
        let left: Vec<String> = std::fs::read_dir(place.path().join(&run))
            .expect("a folder")
            .map(|e| e.expect("a file").file_name().to_string_lossy().into())
            .filter(|name: &String| name.starts_with(".odec-"))
            .collect();
        assert!(left.is_empty(), "half-written files are left: {left:?}");
        runs += 1;
    }
    println!("{kills} kills ({fresh} before the first checkpoint), {runs} runs: all bit for bit");
}

/// The first signal ends the run after the step it is at.
#[test]
fn signals_write_a_checkpoint_and_say_so() {
    let place = Place::new();
    let odec = env!("CARGO_BIN_EXE_odec");
    for (signal, code, run) in [("INT", 130, "a"), ("TERM", 143, "b"), ("HUP", 129, "c")] {
        // The tests themselves may run under `nohup`.
        let default = format!("--default-signal={signal}");
        let args = [
            &default,
            odec,
            "train",
            "tiny.ode",
            "--out",
            run,
            "--steps",
            "1000000000",
        ];
        let mut first = spawn(&mut place.through(Command::new("env"), &args));
        let stop = |mut child: Child, steps| {
            place.wait_for_steps(run, steps, &mut child);
            let id = child.id().to_string();
            let mut kill = Command::new("sh");
            kill.args(["-c", &format!("kill -{signal} {id}")]);
            assert!(kill.status().expect("sh").success());
            stderr(child)
        };
        place.wait_for_steps(run, 3, &mut first);
        // One process at a time.
        let (_, busy) = place.bad(&["train", "--resume", run]);
        assert!(busy.contains("another process is training in"), "{busy}");
        let (ended, said) = stop(first, 3);
        assert_eq!(ended, Some(code), "{said}");
        let lines = place.metrics(run);
        let steps = lines.iter().filter(|v| v["loss"].is_number()).count();
        let line =
            format!("step {steps} is saved in {run}; continue with `odec train --resume {run}`");
        assert!(said.contains(&line), "{line:?} is not in\n{said}");
        let args = [&default, odec, "train", "--resume", run];
        let second = spawn(&mut place.through(Command::new("env"), &args));
        let (ended, said) = stop(second, steps + 3);
        assert_eq!(ended, Some(code), "{said}");
        assert!(
            said.contains(&format!(": {steps} to 1,000,000,000 steps")),
            "{said}"
        );
        place.good(&["eval", run, "--windows", "2"]);
    }
}

/// What was started to outlive its terminal does.
#[test]
fn nohup_is_heeded() {
    let place = Place::new();
    let odec = env!("CARGO_BIN_EXE_odec");
    let args = [
        odec,
        "train",
        "tiny.ode",
        "--out",
        "run",
        "--steps",
        "1000000000",
    ];
    let mut child = spawn(&mut place.through(Command::new("nohup"), &args));
    let id = child.id();
    let kill = |signal: &str| {
        let line = format!("kill -{signal} {id}");
        let done = Command::new("sh").args(["-c", &line]).status();
        assert!(done.expect("sh").success());
    };
    place.wait_for_steps("run", 3, &mut child);
    kill("HUP");
    let lines = place.read("run/metrics.jsonl");
    let steps = lines.lines().filter(|l| l.contains(STEP)).count();
    place.wait_for_steps("run", steps + 50, &mut child);
    kill("TERM");
    assert_eq!(stderr(child).0, Some(143));
}

/// Files that may not grow, as on a full disk: the write itself fails.
#[test]
fn a_full_disk_stops_the_run_and_spares_the_last_checkpoint() {
    let place = Place::new();
    // A checkpoint that is larger than kernels and manifest: 7 MiB.
    place.good(&["build", "tiny.ode", "--set", "model.width=256"]);
    place.good(&["train", "tiny.odex", "--out", "run"]);
    let before = place.bytes("run/checkpoint.safetensors");
    let odec = env!("CARGO_BIN_EXE_odec");
    let (tight, script) = ("ulimit -f 32; exec \"$@\"", "ulimit -f 2048; exec \"$@\"");
    let fresh = ["-c", tight, "sh", odec, "train", "tiny.odex"];
    // The reference device opens no code, which would not fit either.
    let fresh = [&fresh[..], &["--out", "small", "--device", "reference"]].concat();
    let (code, said) = stderr(spawn(&mut place.through(Command::new("sh"), &fresh)));
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("cannot write small/model.odex: File too large"),
        "{said}"
    );
    let go_on = ["train", "--resume", "run", "--steps", "40"];
    let mut args = vec!["-c", script, "sh", odec];
    args.extend(go_on);
    args.extend(["--checkpoint-every", "0"]);
    let (code, said) = stderr(spawn(&mut place.through(Command::new("sh"), &args)));
    assert_eq!(code, Some(1), "{said}");
    for part in [
        "the run stops at step 31: cannot write run/checkpoint.safetensors",
        "The checkpoint of step 30 is untouched",
        "allow larger files",
        "odec train --resume run",
    ] {
        assert!(said.contains(part), "{part:?} is not in\n{said}");
    }
    assert!(place.bytes("run/checkpoint.safetensors") == before);
    // With room again, the run is the one that had it all the time.
    place.good(&go_on);
    place.good(&["train", "tiny.odex", "--out", "roomy", "--steps", "40"]);
    assert!(place.tensors("run") == place.tensors("roomy"));
}

/// Wherever a build meets the limit, in what the code generator hands over, in the linker's file or in the artifact, it says what
/// helps and leaves nothing.
#[test]
fn a_full_disk_stops_a_build() {
    let place = Place::alone();
    let odec = env!("CARGO_BIN_EXE_odec");
    let mut met = BTreeSet::new();
    for blocks in (6..20).map(|n| 1 << n) {
        let limited = format!("ulimit -f {blocks}; exec \"$@\"");
        let args = [
            "-c", &limited, "sh", odec, "build", "tiny.ode", "-o", "b.odex",
        ];
        let (code, said) = stderr(spawn(&mut place.through(Command::new("sh"), &args)));
        if code == Some(0) {
            break;
        }
        assert_eq!(code, Some(1), "{blocks}: {said}");
        assert!(said.contains("allow larger files"), "{blocks}: {said}");
        assert!(!place.path().join("b.odex").exists());
        let what = said.split_inclusive("cannot ").nth(1).unwrap_or(&said);
        met.insert(
            what.split_whitespace()
                .take(3)
                .collect::<Vec<_>>()
                .join(" "),
        );
    }
    assert!(place.path().join("b.odex").exists());
    assert!(met.len() > 1, "{met:?}");
}

/// A folder that becomes read-only under a run. The superuser may write everywhere, so it gives the run to nobody.
#[test]
fn a_read_only_folder_stops_the_run_and_spares_the_last_checkpoint() {
    const NOBODY: u32 = 65534;
    let place = Place::alone();
    place.good(&["train", "tiny.ode", "--out", "run"]);
    let folder = place.path().join("run");
    let allow = |path: &Path, mode| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(path, mode).expect("our own folder");
    };
    let mut c = place.command(&[
        "train",
        "--resume",
        "run",
        "--steps",
        "1000000000",
        "--checkpoint-every",
        "0",
    ]);
    if std::fs::metadata("/proc/self").expect("a process").uid() == 0 {
        allow(place.path(), 0o755);
        let inside = std::fs::read_dir(&folder).expect("a folder");
        let inside = inside.map(|e| e.expect("a file").path());
        for path in inside.chain([folder.clone()]) {
            chown(path, Some(NOBODY), Some(NOBODY)).expect("we are the superuser");
        }
        c.uid(NOBODY).gid(NOBODY);
    }
    let mut child = spawn(&mut c);
    place.wait_for_steps("run", 50, &mut child);
    allow(&folder, 0o555);
    let (code, said) = stderr(child);
    assert_eq!(code, Some(1), "{said}");
    for part in ["is untouched", "make the folder writable", "--resume run"] {
        assert!(said.contains(part), "{part:?} is not in\n{said}");
    }
    allow(&folder, 0o755);
    place.good(&["eval", "run", "--windows", "2"]);
}

/// Nothing is learned at a rate of 0 from parameters that are almost 0: said once, in all sittings together, wherever one looks.
#[test]
fn a_run_that_learns_nothing_says_so_once() {
    let place = Place::new();
    let still = TINY
        .replace("lr: 1e-2", "lr: 0")
        .replace("std: 0.1", "std: 1e-5");
    place.write("still.ode", &still);
    let sitting = |args: &[&str]| {
        let out = place.odec(args);
        assert!(out.status.success(), "{}", text(&out.stderr));
        let summary: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
        (
            text(&out.stderr).contains("warning: "),
            summary["warning"].clone(),
        )
    };
    let start = ["train", "still.ode", "--out", "run", "--json", "--steps"];
    let (said, given) = sitting(&[&start[..], &["19"]].concat());
    assert!(!said && given.is_null(), "{given}");
    let resume = ["train", "--resume", "run", "--json", "--steps"];
    let (said, given) = sitting(&[&resume[..], &["25"]].concat());
    let warning = given.as_str().expect("a warning");
    assert!(
        said && warning.starts_with("step 20: the loss has been ln 256 = 5.545 for 20 steps"),
        "{given}"
    );
    let (said, again) = sitting(&[&resume[..], &["50"]].concat());
    assert!(!said && again == given, "{again}");
    let lines = place.metrics("run");
    assert_eq!(lines.iter().filter(|l| l["warning"].is_string()).count(), 1);
    let text = place.good(&["train", "--resume", "run", "--steps", "51"]);
    assert!(text.contains(&format!("warning: {warning}")), "{text}");
}

/// With `--json` standard error has warnings alone.
#[test]
fn json_comes_without_progress() {
    let place = Place::new();
    for args in [
        &[
            "train", "tiny.ode", "--out", "run", "--steps", "2", "--json",
        ][..],
        &["eval", "run", "--json"],
    ] {
        let out = place.odec(args);
        assert!(out.status.success(), "{}", text(&out.stderr));
        assert_eq!(text(&out.stderr), "", "odec {args:?}");
    }
}

/// What a resumed run is asked for and what it finds is said.
#[test]
fn resuming_says_what_does_not_fit() {
    let place = Place::new();
    place.good(&["train", "tiny.ode", "--out", "run"]);
    let (code, said) = place.bad(&["train", "--resume", "run", "--steps", "10"]);
    assert_eq!(code, 1);
    assert!(
        said.contains("run has done 30 steps already, so it cannot end after 10"),
        "{said}"
    );
    let resumed = |steps: &str| {
        let out = place.odec(&["train", "--resume", "run", "--steps", steps]);
        assert!(out.status.success());
        text(&out.stderr)
    };
    let said = resumed("30");
    assert!(said.contains("all 30 steps are done already"), "{said}");
    let metrics = place.read("run/metrics.jsonl");
    let (first, rest) = metrics.split_once('\n').expect("lines");
    place.write(
        "run/metrics.jsonl",
        &format!("{first}\n{{\"step\":2,\"lo\n{rest}"),
    );
    let said = resumed("31");
    assert!(
        said.contains("warning: run/metrics.jsonl: 1 line cannot be read and is left out (line 2)"),
        "{said}"
    );
    assert!(!resumed("32").contains("warning"));
}

/// A refusal is all that is said.
#[test]
fn generate_prints_nothing_before_it_refuses() {
    let place = Place::new();
    place.good(&["train", "tiny.ode", "--out", "run", "--steps", "1"]);
    let words = [
        "generate",
        "run",
        "--prompt",
        "the quick",
        "--temperature=-1",
    ];
    let out = place.odec(&words);
    assert_eq!(
        (out.status.code(), text(&out.stdout)),
        (Some(2), String::new())
    );
    assert!(text(&out.stderr).contains("a number of at least 0"));
    let only = place.good(&["generate", "run", "--prompt", "the quick", "--tokens", "0"]);
    assert_eq!(only, "the quick\n");
}

/// Prompts of other lengths, across the end of the context.
#[test]
fn texts_generated_together_are_those_generated_alone() {
    let place = Place::new();
    place.good(&["train", "tiny.ode", "--out", "run", "--steps", "5"]);
    let given = ["generate", "run", "--tokens", "70", "--top-k", "40"];
    let prompts = ["--prompt", "the quick brown fox", "--prompt", "a"];
    let of = |more: &[&str]| place.good(&[&given[..], more].concat());
    let all = of(&[&prompts[..], &["--samples", "3", "--seed", "5", "--json"]].concat());
    let all = all
        .lines()
        .map(|l| serde_json::from_str::<serde_json::Value>(l).expect("JSON"));
    let all: Vec<serde_json::Value> = all.collect();
    let word = |v: &serde_json::Value| v.as_str().expect("a word").to_string();
    let mut printed = String::new();
    for (n, text) in all.iter().enumerate() {
        let (prompt, seed) = (word(&text["prompt"]), text["seed"].to_string());
        assert_eq!(prompt, prompts[1 + n / 3 * 2]);
        assert_eq!(seed, (5 + n % 3).to_string());
        let alone = of(&["--prompt", &prompt, "--seed", &seed]);
        assert_eq!(format!("{prompt}{}\n", word(&text["text"])), alone);
        printed += &format!("--- text {} of 6, seed {seed} ---\n{alone}", n + 1);
    }
    assert_eq!(all.len(), 6);
    assert!(all[0]["text"] != all[1]["text"], "seeds differ");
    let said = of(&[&prompts[..], &["--samples", "3", "--seed", "5"]].concat());
    assert_eq!(said, printed);
}

/// A learning rate at which training explodes.
#[test]
fn a_run_that_diverges_names_step_tensor_and_checkpoint() {
    let place = Place::new();
    place.write("hot.ode", &TINY.replace("lr: 1e-2", "lr: 1e12"));
    let (code, said) = place.bad(&[
        "train",
        "hot.ode",
        "--out",
        "run",
        "--checkpoint-every",
        "0",
    ]);
    assert_eq!(code, 1, "{said}");
    let error = said.lines().last().expect("an error");
    assert!(error.contains("is not finite at step"), "{said}");
    assert!(error.contains("is the first tensor that is not"), "{said}");
    let checkpoint = "the last good checkpoint is run/checkpoint.safetensors (step ";
    assert!(error.contains(checkpoint), "{said}");
    // It can be read. With such numbers the loss may have no value, which is an error behind what is printed.
    let out = place.odec(&["eval", "run", "--windows", "2"]);
    let read = text(&out.stdout);
    assert!(read.contains("32 predicted tokens"), "{read}");
}

/// A launch is called after its last operation: the message names functions that are fused into it, too. Before the first step no learning rate is
/// at fault.
#[test]
fn a_function_without_a_value_is_named() {
    let place = Place::new();
    let logarithm = "rmsnorm |> linear(16) |> logarithm";
    let text = TINY.replace("rmsnorm |> swiglu(hidden: 24)", logarithm);
    place.write(
        "log.ode",
        &format!("{text}\nlayer logarithm(x: value) {{ return log(x) }}\n"),
    );
    let (_, said) = place.bad(&["train", "log.ode", "--out", "run"]);
    let error = said.lines().last().expect("an error");
    for part in ["is not finite at step 1", " log", "Look for functions"] {
        assert!(error.contains(part), "{part}\n{said}");
    }
    assert!(!error.contains("learning rate"), "{said}");
    let (code, said) = place.bad(&["eval", "run", "--windows", "1"]);
    assert!(
        code == 1 && said.contains("the loss of run is not finite"),
        "{said}"
    );
}

/// A second signal ends the process at once, in the middle of a step, as if it did not listen.
#[test]
fn a_second_signal_ends_the_process_at_once() {
    let place = Place::new();
    // One step takes many seconds.
    place.write("slow.ode", &TINY.replace("batch 4", "batch 8192"));
    let args = ["train", "slow.ode", "--out", "run", "--device", "reference"];
    let mut child = spawn(&mut place.command(&args));
    let started = Instant::now();
    while !place.path().join("run/checkpoint.safetensors").exists() {
        assert!(
            started.elapsed() < Duration::from_secs(600),
            "no checkpoint"
        );
        assert!(child.try_wait().expect("a state").is_none(), "it ended");
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(500));
    let signal = |child: &Child| {
        let kill = format!("kill -INT {}", child.id());
        let done = Command::new("sh").args(["-c", &kill]).status();
        assert!(done.expect("sh").success());
    };
    signal(&child);
    std::thread::sleep(Duration::from_millis(300));
    assert!(
        child.try_wait().expect("a state").is_none(),
        "the first one only asks"
    );
    signal(&child);
    let asked = Instant::now();
    let ended = child.wait().expect("it ends");
    assert_eq!(ended.signal(), Some(2), "{ended:?}");
    assert!(
        asked.elapsed() < Duration::from_secs(60),
        "{:?}",
        asked.elapsed()
    );
    assert_eq!(
        place.metrics("run").len(),
        0,
        "in the middle of the first step"
    );
    // The folder is free, and the run as it was saved.
    place.good(&["eval", "run", "--windows", "1", "--device", "reference"]);
}

/// Hidden tokens are the same in micro-batches, and each part counts by how many it has.
#[test]
fn accumulated_gradients_of_hidden_tokens() {
    let place = Place::new();
    let masked = TINY
        .replace("vocab: 256", "vocab: 257")
        .replace(", causal, rope", "")
        .replace("loss      cross_entropy", "loss      masked(rate: 15%)");
    let first = |n: u32| {
        let (file, out) = (format!("by{n}.ode"), format!("by{n}"));
        place.write(
            &file,
            &masked.replace("batch 4", &format!("batch 8;  accumulate {n}")),
        );
        place.good(&["train", &file, "--out", &out, "--steps", "1"]);
        let m = place.metrics(&out);
        ["loss", "grad_norm"].map(|key| m[0][key].as_f64().expect("a number"))
    };
    let whole = first(1);
    for n in [2, 8] {
        for (a, b) in whole.iter().zip(first(n)) {
            assert!((a - b).abs() < 1e-6 * a, "{a} and {b} in {n} parts");
        }
    }
}

/// Micro-batches give the gradient of the whole batch up to rounding, and compiled code the bits of the reference device.
#[test]
fn accumulated_gradients_are_those_of_the_batch() {
    let place = Place::new();
    let batch = |n: u32| format!("batch 8;  accumulate {n}");
    for n in [1, 4] {
        place.write(&format!("by{n}.ode"), &TINY.replace("batch 4", &batch(n)));
    }
    let train = |name: &str, steps: &str, device: &str| {
        let out = format!("{name}-{steps}-{device}");
        let file = format!("{name}.ode");
        let args = [
            "train", &file, "--out", &out, "--steps", steps, "--device", device,
        ];
        place.good(&args);
        out
    };
    let first = |run: &str| {
        let m = place.metrics(run);
        let number = |key: &str| m[0][key].as_f64().expect("a number");
        [number("loss"), number("grad_norm")]
    };
    let whole = first(&train("by1", "1", "cpu"));
    let parts = first(&train("by4", "1", "cpu"));
    for (a, b) in whole.iter().zip(parts) {
        assert!((a - b).abs() < 1e-6 * a, "{a} and {b}");
    }
    let (cpu, reference) = (train("by4", "5", "cpu"), train("by4", "5", "reference"));
    assert!(place.tensors(&cpu) == place.tensors(&reference));
    assert_eq!(place.metrics(&cpu), place.metrics(&reference));
    // Adam's step is a sign, nearly: parameters agree where gradients are not about zero.
    let values = |run: &str| -> Vec<f32> {
        let tensors = place.tensors(run);
        let bytes = tensors.iter().flat_map(|(_, b)| b.as_chunks::<4>().0);
        bytes.map(|b| f32::from_le_bytes(*b)).collect()
    };
    let (a, b) = (
        values(&train("by1", "1", "reference")),
        values(&train("by4", "1", "reference")),
    );
    let far = a
        .iter()
        .zip(&b)
        .filter(|(a, b)| (*a - *b).abs() > 1e-5)
        .count();
    assert!(
        far * 1000 < a.len(),
        "{far} of {} parameters and moments differ",
        a.len()
    );
    assert!(a != b, "another order of summation");
    // In small pieces, it needs less memory.
    let planned = |file: &str| -> u64 {
        let args = ["bench", file, "--steps", "1", "--json"];
        let v: serde_json::Value = serde_json::from_str(&place.good(&args)).expect("JSON");
        v["arena_bytes"].as_u64().expect("bytes")
    };
    assert!(planned("by4.ode") < planned("by1.ode"));
    place.write("by3.ode", &TINY.replace("batch 4", &batch(3)));
    let (_, said) = place.bad(&["check", "by3.ode"]);
    assert!(
        said.contains("a batch of 8 cannot be cut into 3 equal parts"),
        "{said}"
    );
}

/// `from` in a train block takes a run's parameters, or a file's, also into another number of steps.
#[test]
fn a_file_says_which_run_it_starts_from() {
    let place = Place::new();
    let start = |from: &str| TINY.replace("seed 0", &format!("seed 1\n  from {from}"));
    place.good(&["train", "tiny.ode", "--out", "runs/a", "--steps", "3"]);
    std::fs::create_dir(place.path().join("models")).expect("a folder");
    let parameters = |run: &str| {
        let mut all = place.tensors(run);
        all.retain(|(name, _)| !name.starts_with("moment"));
        all
    };
    // No step is taken: a run that was asked for none has its initial parameters.
    let begin = |out: &str, more: &[&str]| {
        let none = ["train", "models/fine.ode", "--out", out, "--steps", "0"];
        place.good(&[&none[..], more].concat());
        parameters(out)
    };
    let trained = parameters("runs/a");
    place.write("models/fine.ode", &start(r#""../runs/a""#));
    assert!(begin("runs/b", &[]) == trained);
    place.write(
        "models/fine.ode",
        &start(r#""../runs/a/checkpoint.safetensors""#),
    );
    assert!(begin("runs/c", &[]) == trained);
    // What the command line says wins.
    place.good(&["train", "tiny.ode", "--out", "runs/other", "--steps", "1"]);
    assert!(begin("runs/d", &["--init", "runs/other"]) == parameters("runs/other"));

    // One step fewer: a part of the parameters. One more: a map of names says whose they are.
    let one = begin("runs/e", &["--set", "model.steps=1"]);
    assert!(one.len() < trained.len() && one.iter().all(|p| trained.contains(p)));
    let three = ["--set", "model.steps=3"];
    let (code, said) = place.bad(&[&["check", "models/fine.ode"][..], &three].concat());
    let place_of = |said: &str| said.contains("models/fine.ode:19:3") && said.contains("  from ");
    assert!(code == 1 && place_of(&said), "{said}");
    assert!(said.contains("missing: step.2.att.q.weight"), "{said}");
    place.write(
        "models/names.json",
        r#"{"step.2.*.*": "step.1.*.*", "step.2.*.*.*": "step.1.*.*.*"}"#,
    );
    place.write("models/fine.ode", &start(r#""../runs/a", "names.json""#));
    let three = begin("runs/f", &three);
    let of = |step: &str| {
        let of = |(name, bytes): &(String, Vec<u8>)| {
            Some((name.strip_prefix(step)?.to_string(), bytes.clone()))
        };
        three.iter().filter_map(of).collect::<Vec<_>>()
    };
    assert!(!of("step.1.").is_empty() && of("step.1.") == of("step.2."));
    assert!(trained.iter().all(|p| three.contains(p)));

    // It goes on learning, and a resumed run does not begin again.
    place.good(&[
        "train",
        "models/fine.ode",
        "--out",
        "runs/g",
        "--steps",
        "4",
    ]);
    place.good(&[
        "train",
        "models/fine.ode",
        "--out",
        "runs/h",
        "--steps",
        "2",
    ]);
    place.good(&["train", "--resume", "runs/h", "--steps", "4"]);
    assert!(place.tensors("runs/g") == place.tensors("runs/h"));
    assert!(parameters("runs/g") != trained);

    // What is not there is a warning before it is needed.
    place.write("models/fine.ode", &start(r#""../runs/none""#));
    let out = place.odec(&["check", "models/fine.ode"]);
    let said = text(&out.stderr);
    assert!(out.status.success() && place_of(&said), "{said}");
    assert!(
        said.contains("warning") && said.contains("there is no models/../runs/none"),
        "{said}"
    );
    let (code, said) = place.bad(&["train", "models/fine.ode", "--out", "runs/x"]);
    assert!(
        code == 1 && said.contains("there is no file models/../runs/none"),
        "{said}"
    );
    place.write("models/fine.ode", &start(r#""../tiny.ode""#));
    let (code, said) = place.bad(&["check", "models/fine.ode"]);
    assert!(
        code == 1 && place_of(&said) && said.contains("is not a safetensors file"),
        "{said}"
    );
}
