//! Graph passes by files: a graph as text, the passes to run, what they make of it, and whether it still means the same.
//!
//! A file of `files/` begins with a comment that says what it shows, and lines `key: value`; behind `---` stands the graph, behind
//! the next `---` what the passes make of it. With `INSTA_UPDATE=always` the last part is written anew:
//! `INSTA_UPDATE=always cargo nextest run --workspace --test passes -E 'test(files)'`.
//!
//! | key | value |
//! |---|---|
//! | `passes` | names of [`GRAPH_PASSES`], in order; `precision bf16`, `quantize int8`, `revolve 2` (states kept), `gradient loss by w v` |
//! | `meaning` | `bits`, or `within 1e-12`, relative to the largest number of a result |
//! | `numbers` | `0.5 to 2`: where reals are drawn from; −1 to 1 without it |

use odec_compiler::passes::{GRAPH_PASSES, Policy};
use odec_graph::print::text_unfolded as print;
use odec_graph::text::parse;
use odec_graph::{Builder, Elem, Graph, Node, OpKind, Tensor, gradient, run, verify};
use odec_program::Bindings;
use odec_program::manifest::{Memory, Precision};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

type Tensors = BTreeMap<String, Tensor>;

const AT: Bindings = Bindings::new(2, 3);
/// Exclusive bound of indices that are drawn.
const INDICES: u64 = 4;

struct Case {
    passes: Vec<String>,
    /// `None`: bit for bit.
    within: Option<f64>,
    numbers: (f64, f64),
    graph: Graph,
    expected: String,
}

/// Lines of the head, the graph, and the place where what is expected begins.
fn case(text: &str) -> Result<(Case, usize), String> {
    let (head, rest) = text
        .split_once("---\n")
        .ok_or("no `---` before the graph")?;
    let (graph, expected) = rest.split_once("---\n").ok_or("no `---` after the graph")?;
    let (mut passes, mut meaning, mut numbers) = (None, None, (-1.0, 1.0));
    for line in head.lines().filter(|l| !l.starts_with("//")) {
        let (key, value) = line
            .split_once(": ")
            .ok_or(format!("`{line}` is no `key: value`"))?;
        match key {
            "passes" => passes = Some(value.split(", ").map(String::from).collect()),
            "meaning" => meaning = Some(value),
            "numbers" => {
                let (low, high) = value
                    .split_once(" to ")
                    .ok_or("`numbers` is `low to high`")?;
                let number = |x: &str| x.parse::<f64>().map_err(|e| e.to_string());
                numbers = (number(low)?, number(high)?);
            }
            _ => return Err(format!("no key is named `{key}`")),
        }
    }
    let within = match meaning.ok_or("no `meaning`")? {
        "bits" => None,
        m => Some(
            m.strip_prefix("within ")
                .and_then(|x| x.parse().ok())
                .ok_or("`meaning` is `bits` or `within 1e-12`")?,
        ),
    };
    let above = (head.lines().count() + 1) as u32;
    let graph = parse(graph).map_err(|mut e| {
        e.line += above;
        e.to_string()
    })?;
    verify(&graph).map_err(|e| e.to_string())?;
    let case = Case {
        passes: passes.ok_or("no `passes`")?,
        within,
        numbers,
        graph,
        expected: expected.into(),
    };
    Ok((case, text.len() - expected.len()))
}

/// One pass, as it is written; derivatives become outputs `d.w`.
fn pass(graph: &Graph, written: &str) -> Result<Graph, String> {
    let (name, argument) = written.split_once(' ').unwrap_or((written, ""));
    if name == "gradient" {
        return differentiated(graph, argument);
    }
    let mut policy = Policy::default();
    match (name, argument) {
        ("precision", "bf16") => policy.precision = Precision::Bf16,
        ("quantize", name) => {
            policy.weights = Some(name.parse().map_err(|_| "`quantize int8` has 8 bits")?)
        }
        ("revolve", slots) => {
            let slots = slots.parse().map_err(|_| "`revolve 2` keeps two states")?;
            policy.memory = Memory::Revolve { slots };
        }
        (_, "") => {}
        _ => return Err(format!("`{name}` takes no `{argument}`")),
    }
    let pass = GRAPH_PASSES.iter().find(|p| p.name == name);
    let pass = pass.ok_or(format!("no pass is named `{name}`"))?;
    let made = (pass.run)(graph, policy).map_err(|e| e.to_string())?;
    Ok(made.unwrap_or_else(|| graph.clone()))
}

fn differentiated(graph: &Graph, argument: &str) -> Result<Graph, String> {
    let (loss, by) = argument
        .split_once(" by ")
        .ok_or("`gradient loss by w v`")?;
    let of = graph.outputs().iter().find(|(name, _)| name == loss);
    let of = of.ok_or(format!("no output is named `{loss}`"))?.1;
    let by: Vec<&str> = by.split(' ').collect();
    let source = |wanted: &&str| {
        let found = graph.nodes().find(|(_, n)| source(&n.op) == Some(wanted));
        let value = found.map(|(node, _)| odec_graph::Value { node, port: 0 });
        value.ok_or(format!("no source is named `{wanted}`"))
    };
    let wrt: Result<Vec<_>, String> = by.iter().map(source).collect();
    let (graph, found) = gradient(graph.clone(), of, &wrt?).map_err(|e| e.to_string())?;
    let mut b = Builder::extend(graph);
    for (name, d) in by.iter().zip(found) {
        b.output(
            format!("d.{name}"),
            d.ok_or(format!("`{loss}` does not depend on `{name}`"))?,
        );
    }
    Ok(b.finish())
}

/// What a source is fed by.
fn source(op: &OpKind) -> Option<&str> {
    match op {
        OpKind::Parameter(p) => Some(&p.path),
        OpKind::Input(i) => Some(&i.name),
        OpKind::Cache(c) => Some(&c.path),
        OpKind::Carry(c) => Some(&c.path),
        _ => None,
    }
}

/// In [0, 1), from two numbers (SplitMix64's mixing).
fn unit(source: u64, element: u64) -> f64 {
    let z = (source << 32 | element)
        .wrapping_add(1)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}

/// Numbers for all sources, drawn one after another.
fn feeds(case: &Case) -> Tensors {
    let (low, high) = case.numbers;
    let sources = case
        .graph
        .nodes()
        .filter_map(|(_, n)| Some((source(&n.op)?, &n.types[0])));
    let tensor = |(i, (name, ty)): (usize, (&str, &odec_graph::TensorType))| {
        let shape = ty.concrete(AT);
        let count = shape.iter().product::<u64>();
        let one = |k: u64| match (unit(i as u64, k), ty.elem) {
            (x, Elem::Index) => (x * INDICES as f64).floor(),
            (x, _) => low + (high - low) * x,
        };
        (
            name.to_string(),
            Tensor::new(shape, (0..count).map(one).collect()),
        )
    };
    sources.enumerate().map(tensor).collect()
}

fn results(graph: &Graph, feeds: &Tensors) -> Result<Tensors, String> {
    run(graph, feeds, AT).map_err(|e| e.to_string())
}

/// Every result of the graph as it was is one of the graph as it is, and holds the same numbers.
fn same_meaning(case: &Case, after: &Graph, feeds: &Tensors) -> Result<(), String> {
    let (want, got) = (results(&case.graph, feeds)?, results(after, feeds)?);
    for (name, want) in &want {
        let got = got
            .get(name)
            .ok_or(format!("`{name}` is no result any more"))?;
        let scale = want.data.iter().fold(0.0, |m: f64, x| m.max(x.abs()));
        let same = |(a, b): (&f64, &f64)| match case.within {
            None => a.to_bits() == b.to_bits(),
            Some(bound) => (a - b).abs() <= bound * scale,
        };
        if want.shape != got.shape || !want.data.iter().zip(&got.data).all(same) {
            return Err(format!("`{name}` is {got:?}, not {want:?}"));
        }
    }
    Ok(())
}

/// Derivatives `d.w` against differences of the result that they are of, in a direction that is drawn.
fn same_slopes(case: &Case, after: &Graph, feeds: &Tensors) -> Result<(), String> {
    let Some(argument) = case.passes.iter().find_map(|p| p.strip_prefix("gradient ")) else {
        return Ok(());
    };
    let (loss, by) = argument
        .split_once(" by ")
        .ok_or("`gradient loss by w v`")?;
    let found = results(after, feeds)?;
    for name in by.split(' ') {
        let direction = |k: usize| unit(99, k as u64) - 0.5;
        let at = |h: f64| -> Result<f64, String> {
            let mut moved = feeds.clone();
            let x = moved.get_mut(name).ok_or("no such source")?;
            let each = x.data.iter_mut().enumerate();
            each.for_each(|(k, x)| *x += h * direction(k));
            Ok(results(&case.graph, &moved)?[loss].data[0])
        };
        let h = 1e-3;
        let slope = (8.0 * (at(h)? - at(-h)?) - (at(2.0 * h)? - at(-2.0 * h)?)) / (12.0 * h);
        let d = &found[&format!("d.{name}")].data;
        let d: f64 = d.iter().enumerate().map(|(k, d)| d * direction(k)).sum();
        let bound = case.within.unwrap_or(0.0).max(1e-7);
        if (d - slope).abs() > bound * d.abs().max(1.0) {
            return Err(format!(
                "`{loss}` changes with `{name}` by {slope}, not by {d}"
            ));
        }
    }
    Ok(())
}

fn check(path: &Path) -> Result<(), String> {
    let text = std::fs::read_to_string(path).map_err(|e| e.to_string())?;
    let (case, expected_at) = case(&text)?;
    let mut after = case.graph.clone();
    for p in &case.passes {
        after = pass(&after, p)?;
        verify(&after).map_err(|e| format!("after `{p}`: {e}"))?;
    }
    let feeds = feeds(&case);
    same_meaning(&case, &after, &feeds)?;
    same_slopes(&case, &after, &feeds)?;
    let made = print(&after);
    if made == case.expected {
        return Ok(());
    }
    if std::env::var("INSTA_UPDATE").is_ok_and(|how| how == "always") {
        let text = format!("{}{made}", &text[..expected_at]);
        return std::fs::write(path, text).map_err(|e| e.to_string());
    }
    let line = made
        .lines()
        .zip(case.expected.lines())
        .take_while(|(a, b)| a == b);
    let line = line.count();
    let nth = |text: &str| text.lines().nth(line).unwrap_or("nothing").to_string();
    let above = text[..expected_at].lines().count() + line + 1;
    Err(format!(
        "line {above}:\n  expected {}\n  made     {}\nINSTA_UPDATE=always writes the whole result anew",
        nth(&case.expected),
        nth(&made)
    ))
}

/// What is printed of a graph is read as the same graph, but for spans and for names that pictures use.
#[track_caller]
pub fn is_read_back(graph: &Graph) {
    let text = print(graph);
    let read = parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let nodes = |g: &Graph| -> Vec<Node> {
        let without = |n: &Node| Node {
            span: None,
            ..n.clone()
        };
        g.nodes().map(|(_, n)| without(n)).collect()
    };
    for (a, b) in nodes(&read).iter().zip(&nodes(graph)) {
        assert_eq!(a, b);
    }
    assert_eq!(read.len(), graph.len());
    assert_eq!(read.outputs(), graph.outputs());
    assert_eq!(read.solutions(), graph.solutions());
    assert_eq!(print(&read), text);
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/passes/files")
}

fn within(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("a folder of the tests");
    let mut paths: Vec<PathBuf> = entries.map(|e| e.expect("an entry").path()).collect();
    paths.sort();
    paths
}

#[test]
fn every_file() {
    let files = within(&folder()).into_iter().flat_map(|f| within(&f));
    let wrong: Vec<String> = files
        .filter_map(|path| Some(format!("{}: {}", path.display(), check(&path).err()?)))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn every_graph_pass_has_a_file() {
    for p in GRAPH_PASSES {
        let files = folder().join(p.name);
        assert!(
            files.is_dir(),
            "no file in {} tests `{}`",
            files.display(),
            p.name
        );
    }
}

/// A file that is wrong is refused: a pass that changes the meaning does not go through.
#[test]
fn wrong_files_are_refused() {
    let file = |head: &str, graph: &str| match case(&format!("{head}---\n{graph}---\n")) {
        Err(why) => why,
        Ok((case, _)) => {
            let after = case
                .passes
                .iter()
                .try_fold(case.graph.clone(), |g, p| pass(&g, p));
            let meaning = |after| same_meaning(&case, &after, &feeds(&case));
            after.and_then(meaning).expect_err("a wrong file")
        }
    };
    let head = "passes: precision bf16\nmeaning: bits\n";
    let graph = "%x = input() name=x : [B, S, 4]\n%w = parameter() path=w init=ones : [4, 4]\n%y = matmul(%x, %w) layout=nt : [B, S, 4]\noutput y = %y\n";
    assert!(file(head, graph).starts_with("`y` is Tensor"));
    let wrong = graph.replace("%w)", "%v)");
    assert_eq!(
        file(head, &wrong),
        "line 6, column 17: `%v` is not defined above"
    );
    assert_eq!(
        file("passes: precision f8\nmeaning: bits\n", graph),
        "`precision` takes no `f8`"
    );
    assert_eq!(
        file("passes: faster\nmeaning: bits\n", graph),
        "no pass is named `faster`"
    );
    assert_eq!(file("passes: sums\n", graph), "no `meaning`");
}
