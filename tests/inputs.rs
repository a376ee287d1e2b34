//! Names and files that a hostile hand would choose: pipes and devices as files, control characters, other people's texts.

mod place;

use place::{Place, TINY, text};
use std::process::Command;
use std::time::{Duration, Instant};

/// Exit code and standard error of a command that must end at once; a hang is a failure with a name.
fn ends(place: &Place, args: &[&str]) -> (i32, String) {
    let mut child = place
        .command(args)
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("odec starts");
    let begun = Instant::now();
    while child.try_wait().expect("a child").is_none() {
        if begun.elapsed() > Duration::from_secs(60) {
            child.kill().expect("killed");
            panic!("odec {args:?} hangs");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let out = child.wait_with_output().expect("it has ended");
    (out.status.code().expect("no signal"), text(&out.stderr))
}

#[test]
fn pipes_devices_and_folders_are_refused() {
    let place = Place::new();
    let pipe = place.path().join("pipe.ode");
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo starts").success());
    std::fs::create_dir(place.path().join("folder.ode")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", place.path().join("zero.ode")).unwrap();
    for (file, what) in [
        ("pipe.ode", "a pipe"),
        ("zero.ode", "a device"),
        ("folder.ode", "a folder"),
    ] {
        place.write("uses.ode", &format!("use \"{file}\"\n"));
        for args in [
            &["check", file][..],
            &["check", "uses.ode"],
            &["fmt", file],
            &["tokenize", file, "--tokenizer", "bytes", "-o", "x.bin"],
            &["tokenize", "corpus.txt", "--tokenizer", file, "-o", "x.bin"],
            &["train", "tiny.ode", "--init", "corpus.txt", "--map", file],
        ] {
            let (code, said) = ends(&place, args);
            assert_eq!(code, 1, "{args:?}: {said}");
            // What a link leads to is no `.ode` file, whatever else it is.
            let expected = match (args[1], file) {
                ("uses.ode", "zero.ode") => "`use` reads only those".to_string(),
                _ => format!("it is {what}, not a file"),
            };
            assert!(said.contains(&expected), "{args:?}: {said}");
        }
    }
}

#[test]
fn use_reads_no_other_files() {
    let place = Place::new();
    place.write("secret.txt", "root:x:0:0\nanother line\n");
    std::os::unix::fs::symlink("secret.txt", place.path().join("link.ode")).unwrap();
    for name in ["secret.txt", "link.ode"] {
        place.write("spy.ode", &format!("use \"{name}\"\n{TINY}"));
        let (code, said) = place.bad(&["check", "spy.ode"]);
        assert_eq!(code, 1);
        assert!(said.contains("`use` reads only those"), "{said}");
        assert!(
            !said.contains("root") && !said.contains("another"),
            "{said}"
        );
    }
}

#[test]
fn what_a_terminal_would_obey_is_escaped() {
    let place = Place::new();
    let name = "a\nerror: b\u{1b}[31m\u{202e}c.ode";
    let shown = "a\\nerror: b\\u{1b}[31m\\u{202e}c.ode";
    let plain = |said: &str| !said.contains(['\u{1b}', '\u{202e}']) && !said.contains("\nerror: b");
    // A file that is not there, one with mistakes, one that is good.
    let (_, missing) = place.bad(&["check", name]);
    assert!(plain(&missing) && missing.contains(shown), "{missing:?}");
    place.write(name, "scheme a(f) { \u{1b}[31m \u{202e} }\n");
    let (_, wrong) = place.bad(&["check", name]);
    assert!(plain(&wrong) && wrong.contains(shown), "{wrong:?}");
    place.write(name, TINY);
    let good = place.good(&["check", name]);
    assert!(plain(&good) && good.contains(shown), "{good:?}");
    // Names inside files and of other kinds.
    for args in [
        &["eval", name][..],
        &[
            "exec",
            "tiny.odex\u{1b}",
            "--entry",
            "loss",
            "--inputs",
            "i",
            "--outputs",
            "o",
        ],
        &[
            "tokenize",
            "corpus.txt",
            "--tokenizer",
            "\u{1b}.json",
            "-o",
            "x.bin",
        ],
        &["fmt", "none\u{1b}.ode"],
        &[
            "train",
            "tiny.ode",
            "--data",
            "none\u{1b}\n.txt",
            "--device",
            "reference",
        ],
    ] {
        let (_, said) = place.bad(args);
        assert!(
            plain(&said) && said.contains("\\u{1b}"),
            "{args:?}: {said:?}"
        );
    }
}
