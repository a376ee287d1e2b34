//! Where trials run: what is missing is told, and trials elsewhere are those of this process. Ray itself is in `tests/on_ray.py` (`make ray`).

#![cfg(all(feature = "mlir", unix))]

mod place;

use place::explored::{SMALL, file, json, place, trials};
use place::text;

/// What is missing is said, with what to install.
#[test]
fn engines_that_are_not_there_are_told_of() {
    let place = place(SMALL);
    let ray = ["explore", "e.ode", "--out", "x", "--engine", "ray"];
    let bad = |python: &str, args: &[&str]| {
        let mut command = place.command(args);
        let out = command
            .env("ODEC_PYTHON", python)
            .output()
            .expect("odec starts");
        assert!(!out.status.success(), "{}", text(&out.stdout));
        (out.status.code(), text(&out.stderr))
    };
    let (code, said) = bad("no-python-here", &ray);
    assert_eq!(code, Some(1), "{said}");
    for part in [
        "cannot start Python as `no-python-here`: there is no such program",
        "pip install 'ray[client]'",
        "`ODEC_PYTHON=.venv-ray/bin/python`",
        "`--engine local`",
    ] {
        assert!(said.contains(part), "{part:?} is not in\n{said}");
    }
    let script = |name: &str, text: &str| -> String {
        place.write(name, &format!("#!/bin/sh\n{text}\n"));
        let path = place.path().join(name);
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&path, mode).expect("a mode");
        path.to_string_lossy().into_owned()
    };
    // A Python without packages.
    let bare = script("bare", "exec python3 -I -S \"$@\"");
    let (code, said) = bad(&bare, &ray);
    assert_eq!(code, Some(1), "{said}");
    for part in [
        "has no Ray (No module named 'ray')",
        "-m pip install 'ray[client]'",
    ] {
        assert!(said.contains(part), "{part:?} is not in\n{said}");
    }
    let (code, said) = bad("true", &ray);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("Ray's driver ended") && said.contains("ray.log"),
        "{said}"
    );
    let talks = script("talks", "echo good morning; exec cat > /dev/null");
    let (code, said) = bad(&talks, &ray);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("something else than a line of JSON") && said.contains("`good morning`"),
        "{said}"
    );
    let (code, said) = bad("true", &["explore", "e.ode", "--engine", "roy"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.contains("`roy` is no engine; engines are local, ray, and ray://HOST"),
        "{said}"
    );
    assert!(
        trials(&place, "x")
            .iter()
            .all(|(hash, _)| { !place.path().join(format!("x/results/{hash}.json")).exists() })
    );
}

/// As much of Ray as the driver uses, with tasks as threads of one process.
const THREADS: &str = r#"
import concurrent.futures as futures

pool = futures.ThreadPoolExecutor(2)

def init(**known):
    pass

def nodes():
    return [{"Alive": True, "Resources": {"CPU": 2.0, "memory": MEMORY}}, {"Alive": False, "Resources": {}}]

class remote:
    def __init__(self, function):
        self.function = function
    def options(self, num_cpus, num_gpus, max_retries, memory, retry_exceptions):
        assert (num_cpus, num_gpus, max_retries) == (1, 0, 5) and 0 < memory < MEMORY
        return self
    def remote(self, *given):
        return pool.submit(self.function, *given)

def wait(refs, num_returns, timeout):
    done, left = futures.wait(refs, timeout, futures.FIRST_COMPLETED)
    return list(done), list(left)

def get(ref):
    return ref.result()

def cancel(ref, force):
    ref.cancel()

def shutdown():
    pass
"#;

/// Everything but Ray itself, which `make ray` has.
#[test]
fn trials_of_the_driver_are_those_of_this_process() {
    let place = place(SMALL);
    place.good(&["explore", "e.ode", "--out", "here"]);
    let there = |memory: &str| {
        place.write("ray.py", &THREADS.replace("MEMORY", memory));
        let ray = ["--engine", "ray", "--max-retries", "5", "--jobs", "2"];
        let args = [&["explore", "e.ode", "--out", "there"], &ray[..]].concat();
        let mut command = place.command(&args);
        command.env("ODEC_PYTHON", "python3");
        let out = command.env("PYTHONPATH", place.path()).output();
        out.expect("odec starts")
    };
    let out = there("1000");
    let said = text(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{said}");
    for part in ["`lie(att, ffn)` needs ", "there are 1000 B", "e.ode:"] {
        assert!(said.contains(part), "{part:?} is not in\n{said}");
    }
    // Of another length: Python takes a module compiled in the same second for the same one where its source is as long.
    let out = there("1e12 + 0");
    let said = text(&out.stderr);
    assert!(
        out.status.success(),
        "{said}\n{}",
        place.read("there/ray.log")
    );
    assert!(
        said.contains("4 trials (0 of 4 known), 2 at once, 1 thread each, by Ray on one machine"),
        "{said}"
    );
    for (hash, _) in trials(&place, "here") {
        let [here, there] = ["here", "there"].map(|e| format!("{e}/trials/{hash}"));
        assert!(place.tensors(&here) == place.tensors(&there), "{hash}");
    }
    assert_eq!(
        place.read("here/ranking.json"),
        place.read("there/ranking.json")
    );
    // What a trial cannot do is told by its own words, and ends the exploration.
    let more = SMALL.replace("heun(layer)]", "heun(layer), midpoint(layer)]");
    place.write("e.ode", &file(&more));
    let plan = json(&place.good(&["explore", "e.ode", "--plan", "--json"]));
    let hash = plan["trials"][4]["hash"].as_str().expect("a hash");
    place.write(&format!("there/trials/{hash}"), "in the way");
    let out = there("1e12");
    let said = text(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(said.contains("midpoint(layer), seed 0: error: "), "{said}");
}
