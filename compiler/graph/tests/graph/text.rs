//! Text in, text out: what is printed is read as the same graph, what is malformed is refused at its place.

use crate::common::Random;
use crate::{models, tiny};
use odec_graph::ops::{Input, Parameter, StopGradient};
use odec_graph::print::text_unfolded as print;
use odec_graph::solve::{Mixing, Pair, Rule, Solver};
use odec_graph::text::parse;
use odec_graph::{Builder, Elem, Exact, Graph, Node, Pass, Site, TensorType, Value, ops, verify};
use odec_program::Dim;
use odec_program::manifest::{Init, LongWaves, Places, Table, Turns, Waves};
use proptest::prelude::*;

/// A graph and what is read from its text are one, but for spans and for names that pictures use.
#[track_caller]
fn round_trip(graph: &Graph) {
    let text = print(graph);
    let read = parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let nodes = |g: &Graph| -> Vec<Node> {
        let without = |n: &Node| Node {
            span: None,
            ..n.clone()
        };
        g.nodes().map(|(_, n)| without(n)).collect()
    };
    assert_eq!(nodes(&read), nodes(graph), "{text}");
    assert_eq!(read.outputs(), graph.outputs(), "{text}");
    assert_eq!(read.solutions(), graph.solutions(), "{text}");
    assert_eq!(print(&read), text);
    assert_eq!(verify(&read), verify(graph));
}

#[test]
fn models_and_their_gradients() {
    for graph in [tiny::iie(3, 2), tiny::rk4_shared(2), tiny::history()] {
        round_trip(&graph);
        round_trip(&models::with_gradients(graph).expect("differentiable"));
    }
}

/// Attributes that no sample has.
#[test]
fn tables_and_sources() {
    let mut b = Builder::new();
    let base = 1e4;
    let weights = Waves::Weights {
        n: 3,
        base,
        scale: 0.1,
    };
    let positions = Waves::Positions { width: 6, base };
    for table in [
        Table::RotaryCos {
            positions: 5,
            head: 8,
            base: 0.5,
            turns: Turns {
                columns: Some(4),
                scaling: Some(8.0),
                long: Some(LongWaves {
                    context: 64.0,
                    slow: 0.5,
                    fast: 4.0,
                }),
                magnitude: Some(1.25),
                interleaved: true,
                grid: Some(Places {
                    leading: 1,
                    sides: [2, 2],
                }),
            },
        },
        Table::Time {
            t: -0.125,
            waves: positions,
        },
        Table::Frequencies(weights),
        Table::Frequencies(positions),
        Table::Phases(weights),
        Table::Phases(positions),
    ] {
        b.push1(ops::Table { table }, &[]).expect("a table");
    }
    for (elem, path) in [(Elem::Real, "a.k"), (Elem::Bf16, "a v\u{7f}\n\"\\é")] {
        let path = path.into();
        let cache = ops::Cache {
            path,
            positions: 9,
            width: 4,
            one: elem == Elem::Bf16,
            elem,
        };
        b.push1(cache, &[]).expect("a cache");
    }
    for init in [
        Init::Zeros,
        Init::Constant(-1.5e-7),
        Init::Normal { std: 0.02 },
    ] {
        let path = format!("{init:?}");
        let shape = vec![3, 4];
        b.push1(Parameter { path, shape, init }, &[])
            .expect("a parameter");
    }
    round_trip(&b.finish());
}

#[test]
fn fixed_points() {
    for rule in [None, Some(Rule::Anderson), Some(Rule::Broyden)] {
        let mut b = Builder::new();
        let mut input = |name: &str| {
            let (name, ty) = (name.into(), TensorType::state(4));
            b.push1(Input { name, ty }, &[]).expect("an input")
        };
        let (x, y) = (input("x"), input("y"));
        let z = [x, y].map(|v| b.push1(StopGradient, &[v]).expect("a map"));
        let f = z.map(|v| b.push1(ops::Exp, &[v]).expect("a map"));
        let (z, f) = (z.to_vec(), f.to_vec());
        let mixing = rule.map(|rule| Mixing {
            tol: Exact::ratio(1, 1000),
            memory: 3,
            rule,
        });
        let solver = Solver {
            mixing,
            iterations: 9,
        };
        b.solution(Pair { z, f }, solver).expect("a solution");
        round_trip(&b.finish());
    }
}

/// One op after another, each with operands of its own, at random places.
fn graph_of(samples: &[(usize, u64)], paths: &[String]) -> Graph {
    let all = ops::samples();
    let mut b = Builder::new();
    for (i, (which, bits)) in samples.iter().enumerate() {
        let sample = &all[which % all.len()];
        let path = &paths[i % paths.len()];
        let mut random = Random(*bits);
        let mut one = |of: u64| {
            let found = random.bits().is_multiple_of(of);
            found.then(|| random.bits() as u32)
        };
        b.site = Site {
            evolve: one(3).map(|_| path.clone()).unwrap_or_default(),
            step: one(2),
            evaluation: one(2),
            path: one(2).map(|_| path.clone()).unwrap_or_default(),
            pass: one(2).map_or(Pass::Forward, |_| Pass::Backward),
            replay: one(3).unwrap_or(0),
        }
        .into();
        let operand = |(k, ty): (usize, &TensorType)| {
            let name = format!("{path}.{i}.{k}");
            let ty = ty.clone();
            b.push1(Input { name, ty }, &[]).expect("an input")
        };
        let ins: Vec<Value> = sample.ins.iter().enumerate().map(operand).collect();
        let made = b.push(sample.op.clone(), &ins).expect("a sample");
        for (k, v) in made.into_iter().enumerate() {
            b.output(format!("{path} {i} {k}"), v);
        }
    }
    b.finish()
}

#[test]
fn every_sample_of_every_op() {
    let each: Vec<(usize, u64)> = (0..ops::samples().len()).map(|i| (i, i as u64)).collect();
    round_trip(&graph_of(&each, &["att.q".into()]));
}

/// Words that are parts of sites, or have characters that words have not.
fn path() -> impl Strategy<Value = String> {
    let part = "(step|eval|replay)\\.[0-9]{1,2}";
    prop_oneof![
        "[a-z]{1,4}(\\.[a-z0-9]{1,3}){0,2}",
        part,
        Just("backward".to_string()),
        "\\PC{1,6}",
        "[\"\\\\ /:@%=,()\n\t\u{0}]{1,4}",
    ]
}

/// A text with a few places changed: cut, doubled, or with a sign put in.
fn damaged(text: &str, changes: &[(u32, u32, String)]) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    for (at, count, with) in changes {
        let at = *at as usize % (chars.len() + 1);
        let end = (at + *count as usize % 9).min(chars.len());
        chars.splice(at..end, with.chars());
    }
    chars.into_iter().collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_printed_is_read(
        samples in prop::collection::vec((any::<usize>(), any::<u64>()), 1..12),
        paths in prop::collection::vec(path(), 1..4),
    ) {
        round_trip(&graph_of(&samples, &paths));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Nothing panics, and what is still a graph is read as what it says.
    #[test]
    fn damaged_texts_are_refused_or_read(
        samples in prop::collection::vec((any::<usize>(), any::<u64>()), 1..4),
        changes in prop::collection::vec((any::<u32>(), any::<u32>(), "[]\\[ (),:=@%.\"0-9a-zBS\n-]{0,3}|18446744073709551615|\\PC"), 1..4),
    ) {
        let text = damaged(&print(&graph_of(&samples, &["att.q".into()])), &changes);
        if let Ok(graph) = parse(&text) {
            round_trip(&graph);
        }
    }
}

#[test]
fn mistakes_are_located() {
    let x = "%x = input() name=x : [B, S, 4]\n";
    let line = |rest: &str| match parse(&format!("{x}{rest}\n")) {
        Ok(graph) => panic!("{rest}: read as\n{}", print(&graph)),
        Err(e) => e.to_string(),
    };
    for (text, wanted) in [
        (
            "x",
            "line 2, column 1: expected `%name = op(…)`, `output` or `solution`, found `x`",
        ),
        (
            "%y",
            "line 2, column 3: expected `=`, found the end of the line",
        ),
        ("%y = 3(%x)", "line 2, column 6: there is no op `3`"),
        (
            "%y = exq(%x) : [B, S, 4]",
            "line 2, column 6: there is no op `exq`",
        ),
        (
            "%x = exp(%x) : [B, S, 4]",
            "line 2, column 1: `%x` is defined above already",
        ),
        (
            "%y = exp(%z) : [B, S, 4]",
            "line 2, column 10: `%z` is not defined above",
        ),
        (
            "%y = exp(%x.0) : [B, S, 4]",
            "line 2, column 10: `%x` has one result: write `%x`",
        ),
        (
            "%y = exp(%x : [B, S, 4]",
            "line 2, column 13: expected `,` or `)`, found `:`",
        ),
        (
            "%y = exp(%x)",
            "line 2, column 13: expected `:`, found the end of the line",
        ),
        (
            "%y = exp(%x) : [B, S, 5]",
            "line 2, column 16: `exp` gives [B, S, 4] here",
        ),
        (
            "%y = exp(%x) : [B, N, 4]",
            "line 2, column 20: expected `B`, `S`, `T` or a number, found `N`",
        ),
        (
            "%y = exp(%x) : [B, S]",
            "line 2, column 16: [B, S]: the last dimension must be fixed",
        ),
        (
            "%y = exp(%x) : [B, 0, 4]",
            "line 2, column 16: [B, 0, 4] has an empty dimension",
        ),
        (
            "%y = exp(%x) by=2 : [B, S, 4]",
            "line 2, column 14: `exp` has no attribute `by` here",
        ),
        (
            "%y = shift(%x) : [B, S, 4]",
            "line 2, column 16: expected `by=` and an exact number",
        ),
        (
            "%y = shift(%x) by=1/ : [B, S, 4]",
            "line 2, column 19: `by` is an exact number, not `1/`",
        ),
        (
            "%y = shift(%x) by=(1 : [B, S, 4]",
            "line 2, column 33: expected `)`, found the end of the line",
        ),
        (
            "%y = shift(%x) by=1) : [B, S, 4]",
            "line 2, column 20: `)` closes nothing here",
        ),
        (
            "%y = shift(%x) by=1 by=2 : [B, S, 4]",
            "line 2, column 21: `by` is given twice",
        ),
        (
            "%y = mul(%x) : [B, S, 4]",
            "line 2, column 6: mul: takes 2 operands, not 1",
        ),
        (
            "%y = matmul(%x, %x) layout=tt : [4, 4]",
            "line 2, column 28: `layout` is one of `nt`, `nn`, `tn`, not `tt`",
        ),
        (
            "%y = matmul(%x, %x) layout=tn factors=f8 : [4, 4]",
            "line 2, column 39: `factors` is `bf16`, not `f8`",
        ),
        (
            "%y = input() name=\"y : [4]",
            "line 2, column 19: these quotation marks are not closed in this line",
        ),
        (
            "%y = parameter() path=p init=normal : [4]",
            "line 2, column 30: `init` is `zeros`, `ones`, `constant(0.5)` or `normal(0.02)`, not `normal`",
        ),
        (
            "%y = parameter() path=p init=ones : [B, 4]",
            "line 2, column 37: expected a real type of fixed size, not [B, 4]",
        ),
        (
            "%y = exp(%x) : [B, S, 4] @",
            "line 2, column 27: expected a site, found the end of the line",
        ),
        (
            "%y = exp(%x) : [B, S, 4] @ eval.1 step.0",
            "line 2, column 35: a site is `evolve: step.0 eval.0 path backward replay.1`, each part where there is one",
        ),
        (
            "%y = exp(%x) : [B, S, 4] here",
            "line 2, column 26: expected the end of the line, found `here`",
        ),
        (
            "output y = %y",
            "line 2, column 12: `%y` is not defined above",
        ),
        (
            "output y = x",
            "line 2, column 12: expected a value, such as `%4`, found `x`",
        ),
        (
            "solution z=[%x] f=[] outs=[] iterations=1",
            "line 2, column 9: a solution has as many `f` and `outs` as `z`",
        ),
        (
            "steps 1–3: as step 0, 36 nodes each (%44–%151)",
            "line 2, column 1: steps are folded here: only the text of a whole graph can be read",
        ),
    ] {
        assert_eq!(line(text), wanted, "{text}");
    }
    let two =
        "%y = attention(%x, %x, %x) heads=2 causal=true : [B, S, 4], [B, S, 2]\noutput é = %y";
    let wanted = "line 3, column 8: expected the name of an output, found `é`";
    assert_eq!(line(two), wanted);
    let wanted = "line 3, column 12: `%y` has 2 results: `%y.0` and so on";
    assert_eq!(line(&two.replace('é', "e")), wanted);
    assert_eq!(line(&two.replace("é = %y", "e = %y.2")), wanted);
}

/// Names are the text's own, and comments and spaces mean nothing.
#[test]
fn hand_written_texts() {
    let text = "// y = x + 1\n\n  %in = input()  name=\"x\" : [ B,S , 4 ] // the state\n%out=shift( %in ) by=1:[B, S, 4]@step.0\noutput y=%out";
    let graph = parse(text).expect("a graph");
    let printed = "%0 = input() name=x : [B, S, 4]\n%1 = shift(%0) by=1 : [B, S, 4] @ step.0\noutput y = %1\n";
    assert_eq!(print(&graph), printed);
    assert_eq!(graph.ty(graph.outputs()[0].1).shape[2], Dim::Fixed(4));
}
