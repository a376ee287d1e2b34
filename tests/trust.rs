//! What somebody else made runs none of its code here: artifacts, runs, compiled objects (docs/security.md).

#![cfg(feature = "mlir")]

mod place;

use odec_program::manifest::{HASH_FILE, MANIFEST_FILE, SIGNATURE_FILE};
use odec_runtime::system::hash::sha256;
use place::{Place, text};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const ANEW: &str = "recompiled";

/// Changes a manifest, and recomputes every hash as a careful hand would.
fn change(artifact: &Path, how: impl Fn(&mut serde_json::Value)) {
    let file = artifact.join(MANIFEST_FILE);
    let mut manifest = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    how(&mut manifest);
    for object in manifest["objects"].as_array_mut().unwrap() {
        let code = fs::read(artifact.join(object["file"].as_str().unwrap())).unwrap();
        object["sha256"] = sha256(&code).into();
    }
    let text = serde_json::to_vec_pretty(&manifest).unwrap();
    let line = format!("{}  {MANIFEST_FILE}\n", sha256(&text));
    fs::write(artifact.join(HASH_FILE), line).unwrap();
    fs::write(file, text).unwrap();
}

/// Puts a shared object in the place of an artifact's kernels that makes the file `touched` when it is opened.
fn plant(place: &Place, artifact: &str) {
    let touched = place.path().join("touched");
    let code = format!(
        "#include <stdio.h>\n__attribute__((constructor)) static void run(void) {{ fclose(fopen(\"{}\", \"w\")); }}\n",
        touched.display()
    );
    place.write("planted.c", &code);
    let artifact = place.path().join(artifact);
    let made = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .arg(artifact.join("kernels.so"))
        .arg(place.path().join("planted.c"))
        .status();
    assert!(made.expect("cc starts").success());
    change(&artifact, |_| ());
}

fn touched(place: &Place) -> bool {
    fs::remove_file(place.path().join("touched")).is_ok()
}

/// A run whose artifact has planted kernels, and that artifact.
fn planted() -> Place {
    let place = Place::alone();
    place.good(&["build", "tiny.ode", "-o", "theirs.odex"]);
    plant(&place, "theirs.odex");
    let args = [
        "train",
        "theirs.odex",
        "--steps",
        "2",
        "--device",
        "reference",
    ];
    place.good(&[&args[..], &["--out", "theirs"]].concat());
    assert!(!touched(&place));
    place
}

/// Every command that runs one model, on the planted artifact or run.
const COMMANDS: [&[&str]; 8] = [
    &["generate", "theirs", "--prompt", "the", "--tokens", "8"],
    &["eval", "theirs", "--windows", "2"],
    &["bench", "theirs.odex", "--steps", "1", "--warmup", "0"],
    &["profile", "theirs.odex", "--steps", "1", "--warmup", "0"],
    &["compare", "theirs.odex", "--steps", "1"],
    &["train", "theirs.odex", "--steps", "1", "--out", "copied"],
    &["eval", "copied", "--windows", "2"],
    &["train", "--resume", "theirs", "--steps", "4"],
];

#[test]
fn no_command_opens_the_code_of_others_unless_told_to() {
    let place = planted();
    for args in COMMANDS {
        let out = place.odec(args);
        let said = text(&out.stderr);
        assert!(!touched(&place), "{args:?} ran their code");
        assert!(
            out.status.success() && said.contains(ANEW),
            "{args:?}: {said}"
        );
    }
    // It opens the model before it looks at the inputs.
    place.write("none.safetensors", "");
    let exec = "exec theirs.odex --entry loss --inputs none.safetensors --outputs out";
    let exec: Vec<&str> = exec.split(' ').collect();
    let (_, said) = place.bad(&exec);
    assert!(!touched(&place) && said.contains(ANEW), "{said}");
    // A report says on its page what could not be opened, and ends well.
    let report = ["report", "theirs", "-o", "page.html", "--prompt", "the"];
    let said = text(&place.odec(&report).stderr);
    assert!(!touched(&place) && said.contains(ANEW), "{said}");
    place.good(&[&report[..], &["--trust"]].concat());
    assert!(touched(&place), "--trust of a report ran nothing");
    for args in COMMANDS.iter().chain([&&exec[..]]) {
        if args.contains(&"copied") {
            continue;
        }
        let (_, said) = place.bad(&[args, &["--trust"][..]].concat());
        assert!(touched(&place), "--trust of {args:?} ran nothing: {said}");
    }
}

#[test]
fn what_is_compiled_anew_gives_the_same_results() {
    let place = planted();
    place.good(&["build", "tiny.ode", "-o", "ours.odex"]);
    place.good(&["train", "ours.odex", "--steps", "2", "--out", "ours"]);
    assert!(place.tensors("ours") == place.tensors("theirs"));
    let write = |run| {
        let out = place.odec(&["generate", run, "--prompt", "the quick", "--tokens", "40"]);
        assert_eq!(text(&out.stderr).contains(ANEW), run == "theirs");
        text(&out.stdout)
    };
    assert_eq!(write("ours"), write("theirs"));
    for run in ["ours", "theirs"] {
        place.good(&["train", "--resume", run, "--steps", "4"]);
    }
    assert!(place.tensors("ours") == place.tensors("theirs"));
}

#[test]
fn a_signature_counts_for_what_it_signed_and_for_its_user() {
    let place = Place::alone();
    let at = |name: &str| place.path().join(name);
    place.good(&["build", "tiny.ode", "-o", "m.odex"]);
    let bench = || {
        let out = place.odec(&["bench", "m.odex", "--steps", "1", "--warmup", "0"]);
        assert!(out.status.success(), "{}", text(&out.stderr));
        text(&out.stderr)
    };
    assert!(!bench().contains(ANEW));
    let key = at("cache/key");
    assert_eq!(
        fs::metadata(&key).unwrap().permissions().mode() & 0o777,
        0o600
    );
    assert_eq!(fs::read(&key).unwrap().len(), 32);

    let files = [MANIFEST_FILE, HASH_FILE].map(|f| at("m.odex").join(f));
    let signed = files.each_ref().map(|f| fs::read(f).unwrap());
    change(&at("m.odex"), |m| m["name"] = "other".into());
    assert!(bench().contains("this user's key did not sign it"));
    for (file, contents) in files.iter().zip(&signed) {
        fs::write(file, contents).unwrap();
    }
    assert!(!bench().contains(ANEW), "it is what was signed again");

    fs::rename(&key, at("key")).unwrap();
    assert!(
        bench().contains("this user's key did not sign it"),
        "a new key"
    );
    fs::rename(at("key"), &key).unwrap();
    assert!(!bench().contains(ANEW));
    fs::set_permissions(&key, Permissions::from_mode(0o644)).unwrap();
    assert!(bench().contains("cannot be compared: the key"));
    fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    fs::rename(&key, at("key")).unwrap();
    std::os::unix::fs::symlink(at("key"), &key).unwrap();
    assert!(bench().contains("cannot be compared: the key"));
    fs::remove_file(&key).unwrap();
    fs::rename(at("key"), &key).unwrap();

    fs::remove_file(at("m.odex").join(SIGNATURE_FILE)).unwrap();
    assert!(bench().contains("it is not signed"));
}

/// Kernels for cards are code too.
#[test]
fn code_for_cards_is_compiled_anew() {
    let place = Place::alone();
    place.good(&["build", "tiny.ode", "--target", "sm_80", "-o", "card.odex"]);
    place.write("card.odex/kernels.ptx", "// something else\n");
    change(&place.path().join("card.odex"), |_| ());
    let dry = ["compare", "card.odex", "--device", "cuda:dry"];
    let out = place.odec(&dry);
    let said = text(&out.stderr);
    assert!(out.status.success() && said.contains(ANEW), "{said}");
    let (_, said) = place.bad(&[&dry[..], &["--trust"]].concat());
    assert!(said.contains("has no kernel"), "{said}");
}

/// All compiled objects of a cache.
fn objects(cache: &Path) -> Vec<PathBuf> {
    let folders = fs::read_dir(cache).unwrap().map(|e| e.unwrap().path());
    let files = folders
        .filter(|p| p.is_dir())
        .flat_map(|p| fs::read_dir(p).unwrap());
    let mut files: Vec<PathBuf> = files.map(|e| e.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn a_cache_that_others_may_write_to_is_not_used() {
    let place = Place::alone();
    let cache = place.path().join("cache");
    fs::create_dir(&cache).unwrap();
    fs::set_permissions(&cache, Permissions::from_mode(0o777)).unwrap();
    let out = place.odec(&["build", "tiny.ode", "-o", "m.odex"]);
    let said = text(&out.stderr);
    assert!(
        out.status.success() && said.contains("is open to other users (mode 777)"),
        "{said}"
    );
    assert_eq!(fs::read_dir(&cache).unwrap().count(), 0);
    assert!(!place.path().join("m.odex").join(SIGNATURE_FILE).exists());
    fs::set_permissions(&cache, Permissions::from_mode(0o755)).unwrap();
    let out = place.odec(&["build", "tiny.ode", "-o", "m.odex"]);
    assert_eq!(text(&out.stderr), "");
    assert!(
        !objects(&cache).is_empty() && place.path().join("m.odex").join(SIGNATURE_FILE).exists()
    );
}

#[test]
fn the_object_of_another_kernel_is_not_taken_from_the_cache() {
    let place = Place::alone();
    let build = |to: &str| {
        place.good(&["build", "tiny.ode", "-o", to]);
        fs::read(place.path().join(to).join("kernels.so")).unwrap()
    };
    let before = build("a.odex");
    let files = objects(&place.path().join("cache"));
    let contents: Vec<Vec<u8>> = files.iter().map(|f| fs::read(f).unwrap()).collect();
    assert!(files.len() > 2);
    // Whole objects, each where the next one was.
    for (file, other) in files.iter().zip(contents.iter().cycle().skip(1)) {
        fs::write(file, other).unwrap();
    }
    assert!(build("b.odex") == before);
    let mended: Vec<Vec<u8>> = files.iter().map(|f| fs::read(f).unwrap()).collect();
    assert!(mended == contents);
}
