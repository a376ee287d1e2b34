//! Whatever the input is, the parser answers: without a panic, in time, with located errors.

use odec_grammar::ast::*;
use odec_grammar::{Diagnostic, Sources, dump, dump_expr, parse, parse_value, render};
use odec_source::escape::escaped_lines;
use proptest::prelude::*;
use std::time::{Duration, Instant};

/// Parses and renders; all errors lie in the text. It takes milliseconds; the bound is for what would never end, on any machine.
fn answers(name: &str, text: &str) -> (File, Vec<Diagnostic>) {
    let begin = Instant::now();
    let mut sources = Sources::default();
    let source = sources.add(name, text);
    let (file, errors) = parse(source, text);
    for error in &errors {
        assert!(!error.labels.is_empty(), "{name}: no place in {error:?}");
        for label in &error.labels {
            assert!(
                label.span.start <= label.span.end && label.span.end as usize <= text.len(),
                "{name}: {error:?}"
            );
        }
        let shown = render(error, &sources, false);
        let said = escaped_lines(&error.message);
        assert!(shown.contains(&said), "{name}: {shown}");
    }
    dump(&file);
    let took = begin.elapsed();
    assert!(
        took < Duration::from_secs(60),
        "{name} took {took:?} for {} errors",
        errors.len()
    );
    (file, errors)
}

/// A fixed stream of bytes (splitmix64).
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x0de_c0de_u64;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    (0..bytes.div_ceil(8))
        .flat_map(|_| next().to_le_bytes())
        .take(bytes)
        .collect()
}

#[test]
fn hostile_texts_get_errors() {
    let half = 500_000;
    let printable: String = noise(1 << 20)
        .iter()
        .map(|b| char::from(b' ' + b % 95))
        .collect();
    let wide = String::from_utf8_lossy(&noise(300_000)).into_owned();
    let repeated = |unit: &str, bytes: usize| unit.repeat(bytes / unit.len());
    let item = |body: &str| format!("scheme s(F) {{ step x {{ {body} }} }}");
    let texts: Vec<(&str, String)> = vec![
        (
            "10 MB",
            String::from_utf8_lossy(&noise(10_000_000)).into_owned(),
        ),
        ("printable noise", printable),
        ("wide noise", wide),
        ("NUL", "\0".repeat(1 << 20)),
        ("open", repeated("(", half)),
        ("open braces", repeated("{", half)),
        ("close", repeated(")", half)),
        (
            "calls of calls",
            format!("field a = f{}", repeated("()", half)),
        ),
        (
            "methods",
            format!("scheme s(F) {{ {} }}", repeated("method ;", half)),
        ),
        (
            "unclosed calls",
            format!("field a = {}", repeated("f(", half)),
        ),
        ("unclosed items", repeated("scheme a {\n", half)),
        (
            "nested",
            format!("field a = {}x{}", "(".repeat(300), ")".repeat(300)),
        ),
        (
            "nested calls",
            format!("field a = {}x{}", "f(a: ".repeat(300), ")".repeat(300)),
        ),
        (
            "nested indices",
            format!("field a = {}1{}", "v[".repeat(300), "]".repeat(300)),
        ),
        (
            "nested repeats",
            item(&format!("{}{}", "repeat 2 { ".repeat(300), "}".repeat(300))),
        ),
        (
            "sums",
            item(&format!(
                "y = {}1{}",
                "sum j in 0..2 { ".repeat(300),
                "}".repeat(300)
            )),
        ),
        ("minus", format!("field a = {}1", repeated("-", half))),
        ("powers", format!("field a = 1{}", repeated("^1", half))),
        (
            "additions",
            format!("field a = 1{}", repeated(" + 1", half)),
        ),
        ("pipes", format!("field a = f{}", repeated(" |> f", half))),
        (
            "flows",
            format!("field a = {} x", repeated("flow A(1) from ", half)),
        ),
        ("string", format!("scheme s {{ cite \"{}", "a".repeat(half))),
        ("strings", repeated("cite \"\n", half)),
        ("digits", format!("field a = {}", "9".repeat(half))),
        ("exponent", "field a = 1e999999999999999999999".to_string()),
        ("docs", repeated("///\n", half)),
        ("broken items", repeated("field\n", half)),
        ("broken statements", item(&repeated("y = )\n", half))),
        ("bad statements", item(&repeated("y = 1 2\n", half))),
        (
            "bad entries",
            format!("train {{ {} }}", repeated("a ;", half)),
        ),
        (
            "bad rows",
            format!("scheme s {{ tableau {{ {} }} }}", repeated("1 2\n", half)),
        ),
        (
            "bars",
            format!("scheme s {{ tableau {{ {} }} }}", repeated("| ", half)),
        ),
        ("unknown items", repeated("nonsense { }\n", half)),
        ("one line", repeated("modle m { } ", half)),
        ("blanks", format!("{}x", " ".repeat(half))),
        ("braces", repeated("{}", half)),
    ];
    for (name, text) in &texts {
        let (_, errors) = answers(name, text);
        assert!(!errors.is_empty(), "{name} is no .ode file");
    }
}

#[test]
fn long_good_texts_parse() {
    let fields: String = (0..5_000)
        .map(|k| format!("field f{k} = rmsnorm |> linear({k})\n"))
        .collect();
    let (file, errors) = answers("fields", &fields);
    assert_eq!((file.items.len(), errors.len()), (5_000, 0));

    let statements: String = (0..5_000).map(|k| format!("y{k} = x + h*F(x)\n")).collect();
    let (file, errors) = answers(
        "statements",
        &format!("scheme s(F) {{ step x {{\n{statements} }} }}"),
    );
    assert_eq!((file.items.len(), errors.len()), (1, 0));

    let (file, errors) = answers(
        "crlf",
        "\u{feff}/// ü\r\nfield a = rmsnorm // é\r\n\r\nfield b = a\r\n",
    );
    assert_eq!((file.items.len(), errors.len()), (2, 0));
    assert_eq!(dump(&file), "(field a (doc \"ü\") rmsnorm)\n(field b a)\n");
}

/// The deepest nesting that the scan lets through still fits a small stack, there and back.
#[test]
fn limits_are_reachable() {
    let nest = |open: &str, close: &str, depth: usize| {
        format!("field a = {}x{}", open.repeat(depth), close.repeat(depth))
    };
    for (open, close) in [
        ("(", ")"),
        ("f(", ")"),
        ("f(a: ", ")"),
        ("[", "]"),
        ("v[", "]"),
        ("(-", ")^2"),
    ] {
        let depth = 120;
        let (file, errors) = answers(open, &nest(open, close, depth));
        assert_eq!(
            (file.items.len(), errors.len()),
            (1, 0),
            "{open}: {errors:?}"
        );
    }
    let (file, errors) = answers("sum", &format!("field a = x{}", " + x".repeat(500)));
    assert_eq!((file.items.len(), errors.len()), (1, 0));
}

/// Two broken items are two errors, and the good one between them is there.
#[test]
fn errors_are_local() {
    let (file, errors) = parse(
        0,
        "field a = = b\nfield c = d\nscheme e { order x }\nmodel f { output state }",
    );
    assert_eq!(errors.len(), 2, "{errors:#?}");
    assert_eq!(
        dump(&file),
        "(field c d)\n(scheme e)\n(model f\n  (output state))\n"
    );
}

/// Pieces that look like the language, in any order.
fn piece() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "scheme ",
        "field ",
        "model ",
        "train ",
        "explore ",
        "use ",
        "step ",
        "x ",
        "F",
        "h",
        "{",
        "}",
        "(",
        ")",
        "[",
        "]",
        "\n",
        "=",
        "|",
        "|>",
        "+",
        "-",
        "*",
        "/",
        "^",
        "1",
        "0.5",
        "1e-3",
        "..",
        "..=",
        ",",
        ";",
        ":",
        ".",
        "\"a\"",
        "\"",
        "%",
        " GiB",
        "return ",
        "repeat ",
        "sum j in ",
        "tableau {",
        "multistep {",
        "order 2",
        "evolve ",
        " for 3 steps ",
        "weights per step",
        "by heun",
        "method ",
        "adjoint(",
        "solve ",
        "from ",
        "learn ",
        "flow A(1) ",
        "/// d\n",
        "// c\n",
        "é",
        "\0",
        " ",
    ])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn token_soup_never_panics(pieces in prop::collection::vec(piece(), 0..120)) {
        answers("soup", &pieces.concat());
    }

    #[test]
    fn any_text_never_panics(text in "\\PC{0,200}", start in 0usize..10) {
        answers("text", &text);
        if text.is_char_boundary(start.min(text.len())) {
            let _ = parse_value(0, &text, start);
        }
    }

    /// A good file with one piece replaced or added still gives located errors.
    #[test]
    fn damaged_files_never_panic(at in 0usize..2000, length in 0usize..20, piece in piece()) {
        let text = include_str!("inputs/18_pcformer.ode");
        let start = text.floor_char_boundary(at.min(text.len()));
        let end = text.floor_char_boundary((start + length).min(text.len())).max(start);
        answers("damaged", &format!("{}{piece}{}", &text[..start], &text[end..]));
    }

    /// Numbers keep their text, whatever they are.
    #[test]
    fn numbers_are_exact(text in "[0-9]{1,40}(\\.[0-9]{1,40})?(e[+-]?[0-9]{1,2})?") {
        let value = parse_value(0, &text, 0).unwrap();
        prop_assert_eq!(value.kind, ExprKind::Number(text));
    }

    /// Expressions printed with all parentheses read back as the same tree.
    #[test]
    fn expressions_read_back(value in expression()) {
        let text = written(&value);
        let read = parse_value(0, &text, 0).unwrap();
        prop_assert_eq!(dump_expr(&read), dump_expr(&value));
    }
}

fn expression() -> impl Strategy<Value = Expr> {
    let at = odec_grammar::Span {
        source: 0,
        start: 0,
        end: 0,
    };
    let make = move |kind| Expr { kind, span: at };
    let name = "[a-z][a-z0-9_]{0,5}".prop_filter("keywords are no names", |name| {
        parse_value(0, name, 0).is_ok_and(|value| value.kind == ExprKind::Name(name.clone()))
    });
    let number = "[0-9]{1,3}(\\.[0-9]{1,2})?";
    let leaf = prop_oneof![
        name.clone()
            .prop_map(move |name| make(ExprKind::Name(name))),
        number.prop_map(move |text| make(ExprKind::Number(text))),
        "[a-z ./]{0,6}".prop_map(move |text| make(ExprKind::Str(text))),
        Just(make(ExprKind::Quantity("4".into(), "GiB".into()))),
    ];
    leaf.prop_recursive(5, 40, 3, move |inner| {
        let ops = prop::sample::select(vec![
            BinOp::Add,
            BinOp::Sub,
            BinOp::Mul,
            BinOp::Div,
            BinOp::Pow,
        ]);
        let arg =
            (prop::option::of(name.clone()), inner.clone()).prop_map(move |(label, value)| Arg {
                label: label.map(|name| Ident { name, span: at }),
                value,
                by: None,
            });
        let call =
            (name.clone(), prop::collection::vec(arg, 0..3)).prop_map(move |(name, args)| {
                make(ExprKind::Call(Box::new(Call {
                    callee: make(ExprKind::Name(name)),
                    args,
                })))
            });
        prop_oneof![
            (ops, inner.clone(), inner.clone()).prop_map(move |(op, a, b)| make(ExprKind::Binary(
                op,
                Box::new(a),
                Box::new(b)
            ))),
            (inner.clone(), inner.clone())
                .prop_map(move |(a, b)| make(ExprKind::Pipe(Box::new(a), Box::new(b)))),
            inner
                .clone()
                .prop_map(move |a| make(ExprKind::Neg(Box::new(a)))),
            (name.clone(), inner.clone()).prop_map(move |(name, i)| make(ExprKind::Index(
                Ident { name, span: at },
                Box::new(i)
            ))),
            prop::collection::vec(inner, 2..4)
                .prop_map(move |values| make(ExprKind::Tuple(values))),
            call,
        ]
    })
}

/// An expression as source text, every operand in parentheses.
fn written(value: &Expr) -> String {
    let list = |values: &[Expr]| values.iter().map(written).collect::<Vec<_>>().join(", ");
    match &value.kind {
        ExprKind::Number(text) | ExprKind::Name(text) => text.clone(),
        ExprKind::Quantity(number, unit) => format!("{number} {unit}"),
        ExprKind::Str(text) => format!("\"{text}\""),
        ExprKind::Index(name, index) => format!("{}[{}]", name.name, written(index)),
        ExprKind::Tuple(values) => format!("({})", list(values)),
        ExprKind::Neg(inner) => format!("-({})", written(inner)),
        ExprKind::Pipe(a, b) => format!("({}) |> ({})", written(a), written(b)),
        ExprKind::Binary(op, a, b) => {
            let sign = match op {
                BinOp::Add => "+",
                BinOp::Sub => " - ",
                BinOp::Mul => "*",
                BinOp::Div => "/",
                BinOp::Pow => "^",
            };
            format!("({}){sign}({})", written(a), written(b))
        }
        ExprKind::Call(call) => {
            let args = call.args.iter().map(|arg| match &arg.label {
                Some(label) => format!("{}: {}", label.name, written(&arg.value)),
                None => written(&arg.value),
            });
            format!(
                "{}({})",
                written(&call.callee),
                args.collect::<Vec<_>>().join(", ")
            )
        }
        _ => unreachable!("the strategy makes no other kinds"),
    }
}
