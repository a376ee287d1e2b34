//! Runs beside each other: listed, compared, on a page, exported; and what a page holds is the runs' and runs nothing.

#![cfg(all(feature = "mlir", unix))]

mod place;

use odec_runtime::system::shown::markup;
use odec_source::escape::escaped_lines;
use place::{Place, TINY, text};
use serde_json::Value;
use std::path::Path;

/// The tiny model, and one of width 24 that imports its field, for so many steps.
fn runs() -> Place {
    let place = Place::new();
    place.write("fields.ode", "field ffn = rmsnorm |> swiglu(hidden: 24)\n");
    let imports = TINY.replace(
        "field ffn   = rmsnorm |> swiglu(hidden: 24)",
        "use \"fields.ode\"",
    );
    assert_ne!(imports, TINY);
    place.write("imports.ode", &imports);
    place.good(&["train", "tiny.ode", "--out", "runs/a"]);
    let set = ["--set", "model.width=24", "--set", "train.steps=20"];
    place.good(&[&["train", "imports.ode", "--out", "runs/b"][..], &set].concat());
    place
}

fn json(place: &Place, args: &[&str]) -> Value {
    serde_json::from_str(&place.good(args)).expect("JSON")
}

/// The lines of a run's metrics with a key.
fn metrics(place: &Place, run: &str, key: &str) -> Vec<Value> {
    let all = place.read(&format!("{run}/metrics.jsonl"));
    let all = all
        .lines()
        .map(|l| serde_json::from_str(l).expect("a line"));
    all.filter(|v: &Value| v.get(key).is_some()).collect()
}

#[test]
fn runs_are_listed_and_damaged_or_foreign_folders_are_named() {
    let place = runs();
    std::fs::create_dir_all(place.path().join("runs/notes/old")).expect("a folder");
    std::fs::create_dir(place.path().join("runs/damaged")).expect("a folder");
    place.write("runs/damaged/.lock", "odec run 1\n");
    place.write("runs/damaged/checkpoint.safetensors", "cut");
    let all = json(&place, &["runs", "--json"]);
    let [a, b] = &all["runs"].as_array().expect("a list")[..] else {
        panic!("{all}")
    };
    assert_eq!(
        (&a["folder"], &b["folder"]),
        (&"runs/a".into(), &"runs/b".into())
    );
    assert_eq!(a["scheme"], "iie(layer, r: 1)");
    assert_eq!(
        (&a["steps"], &a["seen"], &a["unit"]),
        (&30.into(), &(30 * 4 * 16).into(), &"tokens".into())
    );
    assert_eq!(
        (&b["planned_steps"], &b["complete"]),
        (&20.into(), &true.into())
    );
    assert_eq!(b["settings"][0], "model.width=24");
    let last = metrics(&place, "runs/a", "held_out_loss");
    assert_eq!(
        a["held_out_loss"],
        last.last().expect("one")["held_out_loss"]
    );
    let refused: Vec<&str> = all["refused"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|r| r["folder"].as_str().expect("a name"))
        .collect();
    assert_eq!(refused, ["runs/damaged", "runs/notes"]);

    let mut c = place.command(&["runs"]);
    let out = c
        .env("COLUMNS", "110")
        .env("LC_ALL", "C.UTF-8")
        .env("TERM", "xterm")
        .output()
        .expect("odec starts");
    assert!(out.status.success());
    let shown = text(&out.stdout);
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines[0].starts_with("run  scheme"), "{shown}");
    assert!(
        lines[1].starts_with("a    iie(layer, r: 1)     30") && lines[1].contains('█'),
        "{shown}"
    );
    assert!(
        lines[3].starts_with("runs/damaged: ")
            && lines[4] == "runs/notes: it is no run, and holds none",
        "{shown}"
    );
    // The same in ASCII, and with fewer columns where there is less room.
    let out = place
        .command(&["runs"])
        .env("COLUMNS", "60")
        .env("TERM", "dumb")
        .output()
        .expect("odec starts");
    let narrow = text(&out.stdout);
    assert!(
        narrow
            .lines()
            .take(3)
            .all(|l| l.is_ascii() && l.len() <= 60),
        "{narrow}"
    );
    assert!(
        narrow.contains("held out") && !narrow.contains("scheme"),
        "{narrow}"
    );

    let (code, said) = place.bad(&["runs", "nowhere"]);
    assert_eq!(code, 1);
    assert!(said.contains("there is no folder nowhere"), "{said}");
}

#[test]
fn two_runs_are_compared_at_equal_steps() {
    let place = runs();
    let d = json(&place, &["diff", "runs/a", "runs/b", "--json"]);
    let source = d["source"].as_str().expect("a text");
    assert!(
        source.contains("\n-field ffn   = rmsnorm |> swiglu(hidden: 24)\n+use \"fields.ode\"\n"),
        "{source}"
    );
    assert!(source.contains("+// fields.ode"), "{source}");
    let of = |list: &Value, name: &str| -> Option<(Value, Value)> {
        let mut all = list.as_array().expect("a list").iter();
        all.find(|v| v["name"] == name)
            .map(|v| (v["a"].clone(), v["b"].clone()))
    };
    let pair = |a: &str, b: &str| Some((Value::from(a), Value::from(b)));
    assert_eq!(of(&d["settings"], "model.width"), pair("16", "24"));
    assert_eq!(of(&d["settings"], "train.steps"), pair("30", "20"));
    assert_eq!(of(&d["settings"], "set.model.width"), None);
    assert_eq!(of(&d["data"], "contents.0"), None);
    assert_eq!(d["comparable"], true);
    // What is measured is what the metrics hold: runs of 30 and of 20 steps have evaluations in common.
    let held_out = d["held_out"].as_array().expect("a list");
    assert!(!held_out.is_empty());
    for at in held_out {
        for (run, key) in [("runs/a", "a"), ("runs/b", "b")] {
            let all = metrics(&place, run, "held_out_loss");
            let same = all
                .iter()
                .find(|m| m["step"] == at["step"])
                .expect("an evaluation");
            assert_eq!(same["held_out_loss"], at[key]);
        }
    }
    assert_eq!(
        (&d["training"]["step"], &d["training"]["mean_over"]),
        (&20.into(), &1.into())
    );
    let steps = metrics(&place, "runs/a", "loss");
    assert_eq!(d["training"]["a"], steps[19]["loss"]);
    // Operations are those that `odec check` counts.
    let checked = json(
        &place,
        &["check", "imports.ode", "--set", "model.width=24", "--json"],
    );
    let per_token = checked[0]["model"]["training_flops_per_token"]
        .as_f64()
        .expect("a number");
    assert_eq!(
        d["flops"]["b"].as_f64(),
        Some(per_token * 16.0 * 4.0 * 20.0)
    );

    let shown = place.good(&["diff", "runs/a", "runs/b"]);
    for part in [
        "Source",
        "Settings",
        "Artifact",
        "Results at equal steps",
        "held-out loss after step 18",
    ] {
        assert!(shown.contains(part), "{part}\n{shown}");
    }
    let same = place.good(&["diff", "runs/a", "runs/a"]);
    assert!(
        !same.contains("Settings") && !same.contains("Source"),
        "{same}"
    );
    let (code, said) = place.bad(&["diff", "runs/a", "runs"]);
    assert_eq!(code, 1);
    assert!(said.contains("the run has no checkpoint yet"), "{said}");
}

/// What `odec diff` calls a setting is what `--set` takes, in the file that says it.
#[test]
fn settings_that_differ_have_the_paths_of_set() {
    let place = Place::new();
    place.good(&["train", "tiny.ode", "--out", "first"]);
    let tune = "tune lora(rank: 2);  from \"first\";  schedule wsd(warmup: 3, decay: 4)\n";
    let at = TINY.rfind('}').expect("a train block");
    let tuned = format!("{}{tune}}}\n", &TINY[..at]);
    place.write("tuned.ode", &tuned);
    let set = ["--set", "train.lr=0.5", "--steps", "3"];
    place.good(&[&["train", "tuned.ode", "--out", "second"][..], &set].concat());
    let d = json(&place, &["diff", "first", "second", "--json"]);
    let all = d["settings"].as_array().expect("a list");
    let name = |v: &Value| v["name"].as_str().expect("a name").to_string();
    let names: Vec<String> = all.iter().map(name).collect();
    for needed in ["train.rank", "train.tune", "train.lr", "train.steps"] {
        assert!(names.iter().any(|n| n == needed), "{needed}: {names:?}");
    }
    for v in all {
        for (run, file) in [("a", "tiny.ode"), ("b", "tuned.ode")] {
            if let Some(value) = v[run].as_str() {
                let set = format!("{}={value}", name(v));
                place.good(&["check", file, "--paths", "--set", &set]);
            }
        }
    }
}

#[test]
fn a_page_shows_runs_and_runs_nothing_of_theirs() {
    let place = runs();
    let hostile = "<script>alert(1)<\" onload=alert(2) '";
    let source = format!("// </pre><script>alert(3)</script><img src=x onerror=alert(4)>{TINY}");
    place.write("hostile.ode", &source);
    let folder = format!("runs/{hostile}");
    place.good(&["train", "hostile.ode", "--out", &folder]);
    place.good(&["report", "runs", "-o", "page.html"]);
    let page = place.read("page.html");
    // One script, and no element or attribute from a file: what is between angle brackets is the page's own.
    assert_eq!(page.matches("<script").count(), 1);
    let tags: Vec<&str> = page
        .split('<')
        .skip(1)
        .map(|t| t.split('>').next().expect("a tag"))
        .collect();
    let outside =
        |t: &&&str| !t.starts_with("script") && t.contains("alert") && !t.starts_with("td ");
    let quoted = |t: &&&str| t.matches('"').count() % 2 == 1;
    assert_eq!(tags.iter().filter(outside).find(quoted), None);
    assert!(
        !page.contains("<script>alert") && !page.contains("<img src=x"),
        "a name is markup"
    );
    assert!(
        page.contains("&lt;script&gt;alert(1)&lt;&quot; onload=alert(2)"),
        "the name is not shown"
    );
    assert!(
        page.contains("&lt;/pre&gt;&lt;script&gt;alert(3)"),
        "the source is not shown"
    );
    assert!(page.contains("Content-Security-Policy"));
    // No network: pictures are in the page, and nothing else is named by an address.
    for from in ["src=\"http", "href=", "url(http", "@import", "fetch("] {
        assert!(!page.contains(from), "{from}");
    }
    // What the compiler counts and proves.
    let checked = json(&place, &["check", "tiny.ode", "--json"]);
    let per_token = checked[0]["model"]["training_flops_per_token"]
        .as_f64()
        .expect("a number");
    let flops = per_token * 16.0 * 4.0 * 30.0;
    assert!(
        page.contains(&format!("data-label=\"training FLOPs\" data-v=\"{flops}\"")),
        "{flops}"
    );
    assert!(page.contains("Order 1, limited by") && page.contains("data:image/svg+xml"));
    for picture in [
        "Loss against step",
        "Loss against tokens seen",
        "Loss against training FLOPs",
        "Loss against time",
    ] {
        assert!(page.contains(picture), "{picture}");
    }
    assert!(
        page.contains("Held-out loss against training FLOPs"),
        "no front"
    );
    // Equal folders give equal bytes.
    place.good(&["report", "runs", "-o", "again.html"]);
    assert_eq!(place.read("again.html"), page);
    let (code, said) = place.bad(&["report", "runs/a", "-o", "runs/a/metrics.jsonl"]);
    assert_eq!(code, 1);
    assert!(said.contains("is a file of the run"), "{said}");
}

#[test]
fn learned_coefficients_are_on_the_page() {
    let place = Place::new();
    let scheme = "scheme weighted(F) {\n  learn b = 1/2\n  learn shared c = 1\n  step x { return x + h*(b*F(x) + c*F(x)) }\n}\n";
    let model = TINY.replace("iie(layer, r: 1)", "weighted(layer)");
    place.write("weighted.ode", &format!("{scheme}{model}"));
    place.good(&["train", "weighted.ode", "--out", "run"]);
    place.good(&["report", "run", "-o", "page.html"]);
    let page = place.read("page.html");
    assert!(
        page.contains("<td class=\"word\"><code>scheme.b</code></td><td></td>"),
        "b has a value for each step"
    );
    let tensors = place.tensors("run");
    for (path, start) in [
        ("step.0.scheme.b", "0.5000"),
        ("step.1.scheme.b", "0.5000"),
        ("scheme.c", "1.0000"),
    ] {
        let (_, bytes) = tensors.iter().find(|(name, _)| name == path).expect(path);
        let now = f32::from_le_bytes(bytes[..4].try_into().expect("a number"));
        let shown = format!(
            "<td>{:.4}<span class=\"note\">from {start}</span></td>",
            f64::from(now)
        );
        assert!(page.contains(&shown), "{path}: {shown}");
    }
    // While it was trained: in the metrics, and as a curve for each on the page.
    let logged = metrics(&place, "run", "update_to_weight");
    assert_eq!(logged[0]["step"], 1);
    let evaluations = metrics(&place, "run", "held_out_loss");
    let behind = |v: &Value| v["step"].as_u64().expect("a step") + 1;
    let steps: Vec<u64> = evaluations.iter().map(behind).collect();
    // Behind the last one there is no step.
    let known: Vec<u64> = logged[1..].iter().map(|v| behind(v) - 1).collect();
    assert_eq!(known[..], steps[..steps.len() - 1]);
    for line in &logged {
        let coefficients = line["coefficients"].as_object().expect("coefficients");
        assert!(coefficients.contains_key("step.1.scheme.b") && coefficients.len() == 3);
        let moved = line["update_to_weight"].as_object().expect("ratios");
        let ratio = moved["step.0.att.q.weight"].as_f64().expect("a number");
        assert!(ratio > 0.0 && ratio < 1.0, "{ratio}");
    }
    let curves = page.matches("<title>scheme.b, step 1</title>").count();
    assert_eq!(curves, 2, "wide and narrow");
}

#[test]
fn samples_and_reports_of_the_state_are_on_the_page() {
    let place = Place::new();
    let model = TINY.replace(
        "weights per step",
        "weights per step;  report size = square",
    );
    place.write("text.ode", &model);
    place.good(&["train", "text.ode", "--out", "runs/text"]);
    let masked = TINY
        .replace("causal, ", "")
        .replace("vocab: 256", "vocab: 257");
    let masked = masked.replace("cross_entropy", "masked(rate: 15%)");
    place.write("masked.ode", &masked);
    place.good(&["train", "masked.ode", "--out", "runs/masked"]);
    let how = ["--prompt", "to <b", "--tokens", "20", "--seed", "3"];
    place.good(&[&["report", "runs", "-o", "page.html"][..], &how].concat());
    let said = json(
        &place,
        &[&["generate", "runs/text", "--json"][..], &how].concat(),
    );
    let text = markup(&escaped_lines(said["text"].as_str().expect("a text")));
    let shown = format!("<b>to &lt;b</b>{text}</pre>");
    let page = place.read("page.html");
    assert!(page.contains(&shown), "{shown}");
    // A dot for each of the two steps, wide and narrow.
    let picture = page.split("aria-label=\"size along the steps of the evolve\"");
    let dots = picture.map(|p| {
        p.split("</svg>")
            .next()
            .expect("a part")
            .matches("<circle")
            .count()
    });
    assert_eq!(dots.skip(1).collect::<Vec<_>>(), [2, 2]);
    let why = "<p class=\"soft\">this model fills in masked tokens";
    assert!(page.contains(why), "{page}");
    let (code, said) = place.bad(&["report", "runs", "-o", "page.html", "--prompt", ""]);
    assert!(code == 1 && said.contains("the prompt is empty"), "{said}");
    assert_eq!(place.read("page.html"), page, "it is as it was");
}

/// CRC-32C bit by bit, as RFC 3720 defines it.
fn crc(bytes: &[u8]) -> u32 {
    let mut crc = !0u32;
    for b in bytes {
        crc ^= u32::from(*b);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0x82f6_3b78 * (crc & 1));
        }
    }
    !crc
}

/// The records of an event file, their checksums compared.
fn records(mut bytes: &[u8]) -> Vec<&[u8]> {
    let checked = |data: &[u8], sum: &[u8]| {
        let masked = u32::from_le_bytes(sum.try_into().expect("4 bytes"));
        let unmasked = masked.wrapping_sub(0xa282_ead8).rotate_left(15);
        assert_eq!(unmasked, crc(data));
    };
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let length = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes")) as usize;
        checked(&bytes[..8], &bytes[8..12]);
        let (data, rest) = bytes[12..].split_at(length);
        checked(data, &rest[..4]);
        found.push(data);
        bytes = &rest[4..];
    }
    found
}

/// The fields of a message: number, and the bits of a number or the bytes of a text or message.
fn fields(mut bytes: &[u8]) -> Vec<(u64, u64, &[u8])> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let end = bytes.iter().position(|b| b & 0x80 == 0).expect("an end");
        let (number, rest) = bytes.split_at(end + 1);
        *bytes = rest;
        number
            .iter()
            .rev()
            .fold(0, |n, b| n << 7 | u64::from(b & 0x7f))
    }
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let (number, size) = match key & 7 {
            0 => (varint(&mut bytes), 0),
            1 => (
                u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes")),
                8,
            ),
            2 => (0, varint(&mut bytes) as usize),
            5 => (
                u32::from_le_bytes(bytes[..4].try_into().expect("4 bytes")).into(),
                4,
            ),
            wire => panic!("wire type {wire}"),
        };
        let (data, rest) = bytes.split_at(size);
        found.push((key >> 3, number, data));
        bytes = rest;
    }
    found
}

#[test]
fn event_files_hold_what_the_metrics_say() {
    let place = runs();
    place.good(&["export", "runs", "--metrics", "tensorboard", "-o", "events"]);
    let file = place.path().join("events/a/events.out.tfevents.odec");
    assert!(Path::new(&place.path().join("events/b/events.out.tfevents.odec")).exists());
    let bytes = std::fs::read(&file).expect("an event file");
    let all = records(&bytes);
    let version = fields(all[0]);
    assert_eq!((version[1].0, version[1].2), (3, &b"brain.Event:2"[..]));
    let lines = place.read("runs/a/metrics.jsonl");
    let lines: Vec<Value> = lines
        .lines()
        .map(|l| serde_json::from_str(l).expect("JSON"))
        .collect();
    assert_eq!(all.len(), 1 + lines.len());
    let start = f64::from_bits(version[0].1);
    for (record, line) in all[1..].iter().zip(&lines) {
        let event = fields(record);
        let time = f64::from_bits(event[0].1) - start;
        // Times since 1970 leave a quarter of a microsecond.
        assert!((time - line["seconds"].as_f64().expect("a time")).abs() < 1e-5);
        assert_eq!(
            (event[1].0, event[1].1),
            (2, line["step"].as_u64().expect("a step"))
        );
        let values: Vec<(String, f32)> = fields(event[2].2)
            .iter()
            .map(|(_, _, value)| {
                let value = fields(value);
                (text(value[0].2), f32::from_bits(value[1].1 as u32))
            })
            .collect();
        let said = |tag: &str| values.iter().find(|(t, _)| t == tag).map(|(_, x)| *x);
        let number = |key: &str| line.get(key).and_then(Value::as_f64).map(|x| x as f32);
        for (tag, key) in [
            ("loss/training", "loss"),
            ("loss/held_out", "held_out_loss"),
            ("learning_rate", "lr"),
            ("gradient_norm", "grad_norm"),
            ("tokens_per_s", "tokens_per_s"),
        ] {
            assert_eq!(said(tag), number(key), "{tag}");
        }
        let path = "step.0.att.q.weight";
        let moved = line["update_to_weight"][path].as_f64().map(|x| x as f32);
        assert_eq!(said(&format!("update_to_weight/{path}")), moved);
    }
    // The same as a table, and as lines.
    place.good(&["export", "runs", "--metrics", "csv", "-o", "metrics.csv"]);
    let table = place.read("metrics.csv");
    let mut rows = table.lines();
    let heads: Vec<&str> = rows.next().expect("heads").split(',').collect();
    assert_eq!(heads[..3], ["run", "step", "seconds"]);
    let losses: Vec<f64> = rows
        .filter(|r| r.starts_with("a,"))
        .filter_map(|r| {
            let at = heads
                .iter()
                .position(|h| *h == "loss/training")
                .expect("a column");
            r.split(',').nth(at).expect("a cell").parse().ok()
        })
        .collect();
    let want: Vec<f64> = lines.iter().filter_map(|l| l["loss"].as_f64()).collect();
    assert_eq!(losses, want);
    place.good(&[
        "export",
        "runs/a",
        "--metrics",
        "jsonl",
        "-o",
        "metrics.jsonl",
    ]);
    let copied = place.read("metrics.jsonl");
    for (copied, line) in copied.lines().zip(&lines) {
        let mut copied: Value = serde_json::from_str(copied).expect("JSON");
        let fields = copied.as_object_mut().expect("an object");
        assert_eq!(fields.remove("run"), Some("a".into()));
        assert_eq!(&copied, line);
    }
    let (code, said) = place.bad(&["export", "runs/a", "runs/b", "-o", "x.safetensors"]);
    assert_eq!(code, 1);
    assert!(
        said.contains("parameters are exported of one run"),
        "{said}"
    );
}

/// Bytes that are no UTF-8 are all shown alike.
#[test]
fn runs_whose_names_are_shown_alike_have_names_of_their_own() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let place = Place::new();
    for byte in [0xfe, 0xff] {
        place.good(&["train", "tiny.ode", "--out", "runs/new", "--steps", "1"]);
        let runs = place.path().join("runs");
        let named = runs.join(OsStr::from_bytes(&[b'a', byte]));
        std::fs::rename(runs.join("new"), named).expect("renamed");
    }
    place.good(&["export", "runs", "--metrics", "csv", "-o", "metrics.csv"]);
    let table = place.read("metrics.csv");
    let mut names: Vec<&str> = table
        .lines()
        .skip(1)
        .filter_map(|l| l.split(',').next())
        .collect();
    names.dedup();
    assert_eq!(names, ["a\u{fffd}", "a\u{fffd} (2)"]);
}
