//! Tests of every layer, in Rust or of the library, made of what it declares: widths, parameters, derivatives, decoding, arguments,
//! defaults, mistakes.

use crate::common::compile_text;
use odec_compiler::model::alone::{Alone, alone};
use odec_compiler::model::layers::{
    Argument, DEFINITIONS, Definition, Form, Grid, Group, Reads, Silent, Sizes, find,
};
use odec_compiler::model::page::{self, Page};
use odec_compiler::model::{Built, CompileError};
use odec_graph::ops::{Cache, Carry};
use odec_graph::types::Elem;
use odec_graph::{Builder, Exact, Graph, OpKind, Tensor, TensorType, Value, print, run, verify};
use odec_library::shipped;
use odec_program::{Bindings, Dim};
use std::collections::{BTreeMap, BTreeSet};

const WIDTH: u64 = 16;
const CONTEXT: u64 = 6;
const VOCAB: u64 = 11;

/// The pages of all layers.
fn pages() -> Vec<Page> {
    let library = shipped::library();
    let page = |name| page::page(name, library).unwrap_or_else(|e| panic!("{name}: {e:?}"));
    page::names(library).filter_map(page).collect()
}

/// Every example of every layer.
fn every_example() -> Vec<(String, String)> {
    let each = |page: Page| {
        let examples = page.examples.into_iter();
        examples.map(move |e| (page.name.clone(), e.text))
    };
    pages().into_iter().flat_map(each).collect()
}

/// Every example of every layer in Rust.
fn examples() -> impl Iterator<Item = (&'static Definition, &'static str)> {
    let each = |d: &'static Definition| d.examples.iter().map(move |e| (d, e.text));
    DEFINITIONS.iter().flat_map(each)
}

/// A layer by itself, in a small model.
fn small(text: &str) -> Result<Alone, CompileError> {
    let sizes = Sizes {
        vocab: Some(VOCAB),
        context: CONTEXT,
        width: WIDTH,
        grid: Some(Grid {
            sides: [2, 3],
            leading: 0,
            fixed: true,
        }),
    };
    alone(text, sizes, shipped::library())
}

fn good(text: &str) -> Alone {
    small(text).unwrap_or_else(|e| panic!("{text}: {e:?}"))
}

/// What is said of a layer that is not valid.
fn said(text: &str) -> Vec<String> {
    match small(text) {
        Err(CompileError::Source(messages)) => messages.into_iter().map(|d| d.message).collect(),
        Err(CompileError::Internal(e)) => panic!("{text}: {e}"),
        Ok(_) => panic!("{text} is valid"),
    }
}

/// A model of one step along a layer.
fn model(text: &str) -> Built {
    let layer = good(text);
    let fit = match layer.columns {
        WIDTH => "",
        _ => " |> linear",
    };
    let ends = match (is_on_grid(&layer.reads), is_told(&layer.reads)) {
        (false, false) => [
            format!("tokens(vocab: {VOCAB}, context: {CONTEXT})"),
            format!("learned(width: {WIDTH})"),
            "logits".into(),
        ],
        // What reads tokens is told nothing beside them.
        (false, true) => [
            "patches(image: [2, 3], patch: 1, channels: 5)".into(),
            format!("linear(width: {WIDTH}), condition(time_token)"),
            "linear(5)".into(),
        ],
        (true, _) => [
            "image(size: [2, 3], channels: 5)".into(),
            format!("conv(kernel: 1, width: {WIDTH})"),
            format!("classes({VOCAB})"),
        ],
    };
    let [input, embed, output] = ends;
    let source = format!(
        "field f = {text}{fit}\nmodel small {{\n  input {input}\n  embed {embed}\n  \
         evolve euler(f) for 1 step\n  output {output}\n  init normal(std: 0.5)\n}}\n"
    );
    let outcome = compile_text(&source);
    outcome.checked().built.clone().expect("a model")
}

/// Whether a field reads tokens on a grid, or where they stand there.
fn is_on_grid(reads: &Reads) -> bool {
    reads.grid || reads.rotary.iter().any(|a| a.turns.grid.is_some())
}

/// Whether a field reads what a model is told beside its input.
fn is_told(reads: &Reads) -> bool {
    reads.states.iter().any(|state| state == "condition")
}

/// Numbers without a pattern, the same on every machine: whole ones below `VOCAB` for indices, others from −1/2 to 1/2.
fn numbers(ty: &TensorType, at: Bindings, from: usize) -> Tensor {
    let shape = ty.concrete(at);
    let n = shape.iter().product::<u64>() as usize;
    let number = |i: usize| {
        let mixed = ((from + i + 1).wrapping_mul(0x9e37_79b9) >> 7) & 0xffff;
        match ty.elem {
            Elem::Index => (mixed % VOCAB as usize) as f64,
            _ => mixed as f64 / 65536.0 - 0.5,
        }
    };
    Tensor::new(shape, (0..n).map(number).collect())
}

/// Values for all that a graph is fed with.
fn feeds(graph: &Graph, at: Bindings) -> BTreeMap<String, Tensor> {
    let fed = |(_, node): (u32, &odec_graph::Node)| {
        let name = match &node.op {
            OpKind::Parameter(p) => p.path.clone(),
            OpKind::Input(i) => i.name.clone(),
            _ => return None,
        };
        // By its name, so that all graphs of a model are fed the same.
        let from = name
            .bytes()
            .fold(0, |h: usize, b| (h * 31 + b as usize) % 9973);
        Some((name, numbers(&node.types[0], at, from)))
    };
    graph.nodes().filter_map(fed).collect()
}

#[test]
fn a_layer_says_what_its_graph_is() {
    for (name, text) in every_example() {
        let layer = good(&text);
        verify(&layer.graph).unwrap_or_else(|e| panic!("{text}: {e:?}"));
        let (_, y) = layer.graph.outputs().first().expect("a result");
        let mut state = TensorType::state(layer.columns);
        if layer.reads.grid {
            std::sync::Arc::make_mut(&mut state.shape)[1] = Dim::Fixed(CONTEXT);
        }
        assert_eq!(layer.graph.ty(*y), &state, "{text}");
        let parameters = layer.graph.nodes().filter_map(|(_, n)| match &n.op {
            OpKind::Parameter(p) => Some(p.path.clone()),
            _ => None,
        });
        let declared: BTreeSet<String> = layer.params.iter().map(|p| p.path.clone()).collect();
        assert_eq!(declared.len(), layer.params.len(), "{text}");
        assert_eq!(declared, parameters.collect(), "{text}");
        // A layer that is applied to others has their parameters among its own.
        let own = find(&name).is_some_and(|d| {
            let inside = |a: &Argument| matches!(a.form, Form::Fields | Form::Operand);
            d.role.is_none() && !d.arguments.iter().any(inside)
        });
        assert!(!own || declared.is_empty(), "{text}");
    }
}

#[test]
fn derivatives_are_those_of_differences() {
    let at = Bindings::new(2, 4);
    for (_, text) in every_example() {
        let built = model(&text);
        let given = feeds(&built.grad, at);
        let found = run(&built.grad, &given, at).unwrap_or_else(|e| panic!("{text}: {e}"));
        // Along one direction of all parameters.
        let direction: BTreeMap<&str, Vec<f64>> = built
            .params
            .iter()
            .map(|p| {
                let n = given[&p.path].data.len();
                let along = (0..n).map(|i| if i % 3 == 0 { 1.0 } else { -0.5 });
                (p.path.as_str(), along.collect())
            })
            .collect();
        let slope: f64 = direction
            .iter()
            .map(|(path, v)| {
                let d = &found[&format!("grad.{path}")].data;
                d.iter().zip(v).map(|(d, v)| d * v).sum::<f64>()
            })
            .sum();
        let moved = |h: f64| {
            let mut given = given.clone();
            for (path, v) in &direction {
                let x = &mut given.get_mut(*path).expect("a parameter").data;
                x.iter_mut().zip(v).for_each(|(x, v)| *x += h * v);
            }
            run(&built.grad, &given, at).expect("still defined")["loss"].data[0]
        };
        let h = 1e-5;
        let difference = (moved(h) - moved(-h)) / (2.0 * h);
        let close = (slope - difference).abs() <= 1e-6 * (1.0 + slope.abs());
        assert!(close, "{text}: {slope} is not {difference}");
        assert!(slope.abs() > 1e-3, "{text}: the direction says nothing");
    }
}

/// A graph whose caches come out again as they are after it ran.
fn keeping(graph: &Graph) -> Graph {
    let kept: Vec<(String, Value)> = graph
        .nodes()
        .flat_map(|(node, of)| {
            let ins: Vec<TensorType> = (of.operands.iter()).map(|v| graph.ty(*v).clone()).collect();
            let kind = of.op.kind(&ins);
            let kept = move |port| {
                let source = of.operands[kind.replaces(port)?];
                match &graph.node(source.node).op {
                    OpKind::Cache(Cache { path, .. }) | OpKind::Carry(Carry { path, .. }) => {
                        Some((path.clone(), Value { node, port }))
                    }
                    _ => None,
                }
            };
            (0..of.types.len() as u32).filter_map(kept)
        })
        .collect();
    let mut b = Builder::extend(graph.clone());
    kept.into_iter().for_each(|(path, v)| b.output(path, v));
    b.finish()
}

#[test]
fn a_text_in_pieces_is_the_whole_text() {
    every_example()
        .iter()
        .for_each(|(_, text)| reads_in_pieces(text));
}

fn reads_in_pieces(text: &str) {
    let (built, reads) = (model(text), good(text).reads);
    let whole = reads.later_tokens || is_told(&reads) || is_on_grid(&reads);
    assert_eq!(built.decode.is_none(), whole, "{text}");
    if built.decode.is_some() {
        let kept = in_pieces(&built, text);
        assert_eq!(kept.1, reads.carried, "{text}");
        assert!(
            (u64::from(reads.kept > 0)..=reads.kept).contains(&kept.0),
            "{text}"
        );
    }
}

/// A state of 16 columns that is keys and values, values that two attentions share, and two attentions with their own.
#[test]
fn what_is_read_twice_is_kept_once() {
    for (text, kept) in [
        ("attention(heads: 4, causal)", 32),
        ("attend(heads: 2, causal)", 16),
        ("attend(id, id, linear, heads: 2, causal)", 32),
        ("differential_attention(heads: 4)", 32),
        (
            "attention(heads: 4, causal) |> attention(heads: 4, causal)",
            64,
        ),
    ] {
        assert_eq!(in_pieces(&model(text), text), (kept, 0), "{text}");
    }
}

/// Chunks are for texts that are read whole: what reads on walks token by token.
#[test]
fn chunks_are_not_of_what_reads_on() {
    for (whole, in_chunks) in [
        (
            "scan(linear |> sigmoid, linear)",
            "scan(linear |> sigmoid, linear, chunks: 4)",
        ),
        ("cumsum", "cumsum(chunks: 4)"),
        ("gla(heads: 4)", "gla(heads: 4, chunks: 4)"),
    ] {
        let [whole, in_chunks] = [whole, in_chunks].map(model);
        assert_ne!(print::text(&whole.forward), print::text(&in_chunks.forward));
        let [whole, in_chunks] =
            [whole.decode, in_chunks.decode].map(|g| g.as_ref().map(print::text));
        assert!(whole.is_some() && whole == in_chunks);
    }
}

/// Reads a text whole and in pieces, which must give the same; the numbers that are kept of each token, and those that a run leaves to the next.
pub fn in_pieces(built: &Built, text: &str) -> (u64, u64) {
    let whole = Bindings::new(1, 5);
    let decode = built.decode.as_ref().expect("it can be read on");
    let given = feeds(&built.forward, whole);
    let wanted = run(&built.forward, &given, whole).expect("logits");
    let decode = keeping(decode);
    let mut given = given;
    let (mut kept, mut carried) = (0, 0);
    for (_, n) in decode.nodes() {
        let path = match &n.op {
            OpKind::Cache(c) => {
                kept += c.width;
                &c.path
            }
            OpKind::Carry(c) => {
                carried += c.rows * c.width;
                &c.path
            }
            _ => continue,
        };
        // A new text is read in memory that has held another.
        let shape = n.types[0].concrete(whole);
        let data = vec![7.0; shape.iter().product::<u64>() as usize];
        let old = Tensor::new(shape, data);
        assert!(given.insert(path.clone(), old).is_none(), "{text}: {path}");
    }
    let tokens = given["tokens"].clone();
    let (mut past, mut logits) = (0, Vec::new());
    for n in [2, 1, 2] {
        let at = Bindings::new(1, n as u64).after(past as u64);
        let piece = tokens.data[past..past + n].to_vec();
        given.insert("tokens".into(), Tensor::new(vec![1, n as u64, 1], piece));
        let mut made = run(&decode, &given, at).unwrap_or_else(|e| panic!("{text}: {e}"));
        logits.extend(made.remove("logits").expect("logits").data);
        given.extend(made);
        past += n;
    }
    assert_eq!(logits.len(), wanted["logits"].data.len(), "{text}");
    let mut pairs = logits.iter().zip(&wanted["logits"].data);
    assert!(pairs.all(|(a, b)| (a - b).abs() < 1e-12), "{text}");
    (kept, carried)
}

/// Two layers that keep something, in one field: each has a memory of its own.
#[test]
fn what_layers_keep_is_apart() {
    let twice = "attention(heads: 2, causal) |> attention(heads: 2, causal)";
    let others =
        "concat(attention(heads: 2, causal), attention(heads: 4, kv_heads: 2, causal, rope))";
    let operands =
        "attend(heads: 2, causal) |> attend(linear, id, rotary(heads: 4), heads: 4, causal)";
    let scans = "scan(sigmoid, id) |> scan(sigmoid, id)";
    for text in [twice, others, operands, scans] {
        reads_in_pieces(text);
    }
}

/// A layer with one more argument.
fn with(text: &str, argument: &str) -> String {
    match text.strip_suffix(')') {
        Some(open) => format!("{open}, {argument})"),
        None => format!("{text}({argument})"),
    }
}

/// How a default is written, if it is a number or a word.
fn default(a: &Argument) -> Option<String> {
    match a.silent {
        Silent::Ratio(n, d) => Some(format!("{}: {n}/{d}", a.name)),
        Silent::Is(word) => Some(format!("{}: {word}", a.name)),
        Silent::Needed | Silent::Off | Silent::Follows(_) => None,
    }
}

#[test]
fn defaults_are_what_is_meant_where_nothing_is_said() {
    let mut tried = 0;
    for (d, text) in examples() {
        for a in d.arguments {
            let more = default(a)
                .filter(|_| !text.contains(&format!("{}:", a.name)))
                .map(|said| with(text, &said));
            let Some(more) = more else { continue };
            let [silent, said] = [text, &more].map(|t| print::text(&good(t).graph));
            assert_eq!(silent, said, "{text} and {more}");
            tried += 1;
        }
    }
    for page in pages().iter().filter(|page| page.file.is_some()) {
        let words = ["needed", "the layer's input"];
        let in_words = |text: &str| words.contains(&text) || text.starts_with("off");
        let defaults = (page.arguments.iter()).filter(|a| !in_words(&a.default));
        for (a, e) in defaults.flat_map(|a| page.examples.iter().map(move |e| (a, e))) {
            if !e.text.contains(&format!("{}:", a.name)) {
                // One that names another argument is what that is.
                let other = e.text.split_once(&format!("{}: ", a.default));
                let meant = other.and_then(|(_, said)| said.split([',', ')']).next());
                let meant = meant.unwrap_or(&a.default);
                let more = with(&e.text, &format!("{}: {meant}", a.name));
                let [silent, said] = [&e.text, &more].map(|t| print::text(&good(t).graph));
                assert_eq!(silent, said, "{} and {more}", e.text);
                tried += 1;
            }
        }
    }
    assert!(tried >= 8, "{tried}");
}

#[test]
fn mistakes_in_arguments_are_named() {
    for (name, text) in every_example() {
        let unknown = said(&with(&text, "nonsense: 1"));
        let wanted = format!("`{name}` has no argument `nonsense`");
        assert!(unknown.contains(&wanted), "{text}: {unknown:?}");
    }
    for page in pages().iter().filter(|page| page.file.is_some()) {
        for a in page.arguments.iter().filter(|a| a.default == "needed") {
            let wanted = format!("`{}` needs `{}`", page.name, a.name);
            assert!(said(&page.name).contains(&wanted), "{wanted}");
        }
    }
    for (d, text) in examples() {
        if d.arguments.iter().any(|a| a.silent == Silent::Needed) {
            assert!(!said(d.name).is_empty(), "{}", d.name);
        }
        for a in d.arguments {
            let named = format!("{}:", a.name);
            match a.form {
                Form::Number(_) if !text.contains(&named) => {
                    said(&with(text, &format!("{named} -1")));
                }
                Form::Whole if !text.contains(&named) => {
                    said(&with(text, &format!("{named} 0")));
                }
                Form::Word(_) if !text.contains(&named) => {
                    said(&with(text, &format!("{named} nonsense")));
                }
                Form::Flag if !text.contains(a.name) => {
                    let messages = said(&with(text, &format!("{named} 1")));
                    assert!(!messages.is_empty(), "{text}");
                }
                _ => {}
            }
        }
    }
}

/// What is wrong with a capacity is said where it stands.
#[test]
fn capacities_are_numbers_within_bounds() {
    for value in ["0", "-5/4", "1e9", "log(0)", "[1, 2]", "linear"] {
        let text = format!("moe(experts: 4, top_k: 2, hidden: 4, capacity: {value})");
        let Err(CompileError::Source(messages)) = small(&text) else {
            panic!("{text} is valid");
        };
        let source = format!("\nfield shown = {text}\n");
        let at = messages[0].labels[0].span;
        let said = &source[at.start as usize..at.end as usize];
        assert_eq!((said, messages.len()), (value, 1), "{messages:?}");
    }
    for value in ["1/1000", "5/4", "4096", "sqrt(2)", "width/vocab"] {
        let text = format!("moe(experts: 4, top_k: 2, hidden: 4, capacity: {value})");
        good(&text);
    }
}

/// Functions of a field are defined where a layer says that it multiplies columns, and nowhere else.
#[test]
fn functions_of_a_field_need_a_diagonal_one() {
    for (name, text) in every_example() {
        let source = format!(
            "scheme s(L) {{ step x {{ return exp(h*L)(x) }} }}\nfield f = {text}\n\
             model small {{\n  input tokens(vocab: 11, context: 6)\n  embed learned(width: {WIDTH})\n  \
             evolve s(f) for 1 step\n  output logits\n}}\n"
        );
        let outcome = compile_text(&source);
        let diagonal = find(&name).is_some_and(|d| d.facts.diagonal);
        assert_eq!(outcome.checked.is_some(), diagonal, "{text}");
    }
}

#[test]
fn a_page_is_complete() {
    let names: BTreeSet<&str> = DEFINITIONS.iter().map(|d| d.name).collect();
    assert_eq!(names.len(), DEFINITIONS.len());
    for page in pages() {
        let name = &page.name;
        assert!(!page.examples.is_empty(), "{name} has no example");
        let arguments: BTreeSet<&str> = page.arguments.iter().map(|a| a.name.as_str()).collect();
        assert_eq!(arguments.len(), page.arguments.len(), "{name}");
        assert!(
            page.summary.ends_with('.') && !page.formula.is_empty(),
            "{name}"
        );
        for a in &page.arguments {
            let all = [&a.form, &a.default, &a.meaning];
            assert!(all.iter().all(|text| !text.is_empty()), "{name}: {a:?}");
        }
        let said = page.examples.iter();
        assert!(
            said.clone()
                .all(|e| e.text.starts_with(name) && !e.meaning.is_empty()),
            "{name}"
        );
        // Where a layer of the library is from is said; one in Rust may be nobody's.
        assert!(
            page.file.is_none() || !page.source.is_empty(),
            "{name} has no source"
        );
    }
    let norm = find("standardize").expect("a function");
    let eps = norm.arguments.iter().find(|a| a.name == "eps");
    let meant = eps.and_then(Argument::number_meant);
    assert_eq!(meant, Some(Exact::ratio(1, 100_000)));
}

/// What is not a file has a reason.
#[test]
fn each_layer_in_rust_has_a_reason() {
    let page = include_str!("../../../ARCHITECTURE.md");
    let (_, table) = page.split_once("## Layers in Rust").expect("the section");
    let (table, _) = table.split_once("\n## ").expect("another one");
    let rows = table.lines().filter(|l| l.starts_with("| `"));
    let names = rows.filter_map(|l| l.split('|').nth(1));
    let listed: BTreeSet<&str> = names
        .flat_map(|n| n.split('`').skip(1).step_by(2))
        .collect();
    let layers = DEFINITIONS.iter().filter(|d| d.group == Group::Layers);
    let layers: BTreeSet<&str> = layers.map(|d| d.name).collect();
    assert_eq!(listed, layers);
}

#[test]
fn linear_attention_names_what_does_not_fit() {
    let cases = [
        (
            "linear, linear, linear, heads: 3",
            "3 heads do not divide the 16 columns of queries",
        ),
        (
            "linear, linear, linear(5), heads: 2",
            "2 heads do not divide the 5 columns of values",
        ),
        (
            "linear(8), linear, linear, heads: 2",
            "queries have 8 columns, keys 16",
        ),
        (
            "linear, linear, linear, heads: 2, decay: linear(3)",
            "the decay has 3 columns",
        ),
        (
            "linear, linear, linear, heads: 2, decay: linear(2), retention",
            "`retention` and `decay` both say how matrices fade",
        ),
        (
            "linear, linear, linear, heads: 2, delta: linear(3)",
            "the rates of the delta rule have 3 columns",
        ),
        (
            "linear, linear, linear, heads: 2, chunks: 0",
            "0 is out of range",
        ),
        (
            "linear, linear, heads: 2",
            "`linear_attention` is applied to 3 values, not to 2",
        ),
        ("linear, linear, linear", "`linear_attention` needs `heads`"),
        (
            "linear(2^17), linear(2^17), linear(2^17), heads: 2^17",
            "131072 is out of range",
        ),
        (
            "linear(2^15), linear(2^15), linear, heads: 1",
            "a head of queries has 32768 columns",
        ),
        (
            "linear, linear, linear(2^15), heads: 1",
            "a head of values has 32768 columns",
        ),
    ];
    for (arguments, wanted) in cases {
        let said = said(&format!("linear_attention({arguments})"));
        assert_eq!(said, [wanted]);
    }
}

/// As kernels take them.
#[test]
fn heads_of_attention_have_bounds() {
    for (text, wanted) in [
        (
            "attend(linear(2^15), linear(2^15), linear, heads: 1, causal)",
            "a head of queries has 32768 columns",
        ),
        (
            "attend(linear, linear, linear(2^15), heads: 1, causal)",
            "a head of values has 32768 columns",
        ),
        ("attention(heads: 2^17, causal)", "131072 is out of range"),
        (
            "linear(2^15) |> attention(heads: 1, causal)",
            "a head of queries has 32768 columns",
        ),
    ] {
        assert_eq!(said(text), [wanted]);
    }
}

#[test]
fn a_mixture_chooses_among_its_experts() {
    for (text, wanted) in [
        (
            "moe(experts: 2, top_k: 3, hidden: 4)",
            "3 of 2 experts cannot be chosen",
        ),
        ("moe(experts: 4, top_k: 0, hidden: 4)", "0 is out of range"),
        (
            "moe(experts: 64, top_k: 17, hidden: 4)",
            "17 is out of range",
        ),
        (
            "moe(experts: 4, top_k: 2, hidden: 4, activation: relu)",
            "this is no activation of experts",
        ),
        (
            "moe(experts: 4, top_k: 2, hidden: 4, capacity: 0)",
            "0 is out of range",
        ),
        (
            "moe(experts: 4, top_k: 2, hidden: 4, capacity: -5/4)",
            "-5/4 is out of range",
        ),
        (
            "moe(experts: 4, top_k: 2, hidden: 4, capacity: 1e9)",
            "1000000000 is out of range",
        ),
        (
            "moe(experts: 4, top_k: 2, hidden: 4, capacity: log(0))",
            "the logarithm of a number that is not positive",
        ),
        (
            "moe(experts: 4, top_k: 2, hidden: 4, capacity: 1/0)",
            "division by zero",
        ),
        (
            "moe(experts: 4, top_k: 2, hidden: 4, capacity: linear)",
            "`linear`",
        ),
        (
            "moe(experts: 4, top_k: 2, hidden: 4, capacity: [1, 2])",
            "this is not a number",
        ),
        ("moe(experts: 4, top_k: 2, hidden: 4, capacity)", "capacity"),
        (
            "moe(experts: 4, top_k: 2, hidden: 4, weights: some)",
            "these are no weights of experts",
        ),
        ("router(4)", "`router`"),
    ] {
        let said = said(text);
        assert!(said.iter().any(|m| m.contains(wanted)), "{text}: {said:?}");
    }
}
