//! Formatting: the tree and the comments stay, the text settles at once, and blanks do not matter.

use odec_grammar::ast::File;
use odec_grammar::{Diagnostic, Sources, format, parse, render};
use odec_library::{SchemeFile, shipped};
use proptest::prelude::*;
use serde_json::Value;
use std::time::{Duration, Instant};

fn without_spans(node: &mut Value) {
    match node {
        Value::Array(nodes) => nodes.iter_mut().for_each(without_spans),
        Value::Object(fields) => {
            fields.remove("span");
            fields.values_mut().for_each(without_spans);
        }
        _ => {}
    }
}

fn tree(file: &File) -> Value {
    let mut tree = serde_json::to_value(file).unwrap();
    without_spans(&mut tree);
    tree
}

/// All comments of a text, sorted. A `//` in a string is none.
fn comments(text: &str) -> Vec<&str> {
    let mut comments: Vec<&str> = text
        .lines()
        .filter_map(|line| {
            let mut quoted = false;
            let at = line.char_indices().find(|&(at, c)| {
                quoted ^= c == '"';
                !quoted && line[at..].starts_with("//")
            });
            at.map(|(at, _)| line[at..].trim_end())
        })
        .collect();
    comments.sort_unstable();
    comments
}

fn shown(errors: &[Diagnostic], text: &str) -> String {
    let mut sources = Sources::default();
    sources.add("text.ode", text);
    errors
        .iter()
        .map(|error| render(error, &sources, false))
        .collect()
}

/// Formats a good text and checks what every formatted text promises.
fn formatted(text: &str) -> String {
    let (before, errors) = parse(0, text);
    assert!(errors.is_empty(), "{}\n{text}", shown(&errors, text));
    let once = format(0, text).unwrap_or_else(|errors| panic!("{errors:#?}\n{text}"));
    let (after, errors) = parse(0, &once);
    assert!(errors.is_empty(), "{}\n{text}", shown(&errors, &once));
    assert_eq!(tree(&before), tree(&after), "{text}\n-----\n{once}");
    assert_eq!(comments(text), comments(&once), "{text}\n-----\n{once}");
    let twice = format(0, &once).unwrap();
    assert_eq!(once, twice, "{text}");
    for line in once.lines() {
        assert_eq!(line, line.trim_end());
    }
    assert!(!once.starts_with('\n') && !once.ends_with("\n\n"));
    assert!(once.is_empty() || once.ends_with('\n'));
    once
}

#[test]
fn examples() {
    insta::glob!("inputs/*.ode", |path| {
        formatted(&std::fs::read_to_string(path).unwrap());
    });
}

/// `schemes/` is in the house style.
#[test]
fn library() {
    for SchemeFile { text, path, .. } in shipped::all() {
        assert_eq!(&formatted(text), text, "{}", path.display());
    }
}

#[test]
fn ugly() {
    insta::glob!("format/*.ode", |path| {
        let text = formatted(&std::fs::read_to_string(path).unwrap());
        insta::assert_snapshot!(text);
    });
}

#[test]
fn small_texts() {
    for (text, expected) in [
        ("", ""),
        ("\n\n", ""),
        ("\u{feff}// only this\r\n\r\n\r\n", "// only this\n"),
        ("train{}", "train {}\n"),
        ("train{\n\n}", "train {}\n"),
        ("train{//c\n}", "train {  //c\n}\n"),
        ("field a=f()field b=f(\n)", "field a = f()\nfield b = f()\n"),
        ("train { a 1. .. }", ""),
        (
            "layer  f( a,b :number=1/2,c:flag, )as   mlp=rmsnorm|>linear( a )+b*id\nlayer longer=f( a:3 )\nlayer g   as  mlp{return f( a:4 )}",
            "layer f(a, b: number = 1/2, c: flag) as mlp = rmsnorm |> linear(a) + b*id\nlayer longer = f(a: 3)\nlayer g as mlp { return f(a: 4) }\n",
        ),
        (
            "layer  f( a:number  above   0=1,b:size from 2   to a-1,c : number below - 1 )=a*id",
            "layer f(a: number above 0 = 1, b: size from 2 to a - 1, c: number below -1) = a*id\n",
        ),
        (
            "train{optimizer adamw(lr:3e-4)except norm ,embed{weight_decay:0,lr :1e-4 ,}\nexcept att . q , step.0 by sgd(lr:1)}",
            "",
        ),
        (
            "train{optimizer adamw(lr:3e-4)except norm ,embed{weight_decay:0,lr :1e-4}\nexcept att.q , step.0 by sgd(lr:1)\nsteps 4}",
            "train {\n  optimizer adamw(lr: 3e-4) except norm, embed { weight_decay: 0, lr: 1e-4 }\n    except att.q, step.0 by sgd(lr: 1)\n  steps     4\n}\n",
        ),
        ("scheme s{A(1);B(1)}", "scheme s { A(1);  B(1) }\n"),
        (
            "scheme s{\nA(1);B(1);\nA(1)\n;}",
            "scheme s {\n  A(1);  B(1);\n  A(1)\n}\n",
        ),
        (
            "explore{\na 0..;b c\nd 1..;\ne 2}",
            "explore {\n  a 0..;  b c\n  d 1..;\n  e 2\n}\n",
        ),
        (
            "explore{ budget   2  h; a in [1]\nbudget 90min\nbudget 1\nh in [2]}",
            "explore {\n  budget 2 h\n  a      in [1]\n  budget 90 min\n  budget 1\n  h      in [2]\n}\n",
        ),
        ("train{\na 0..;\nb c}", "train {\n  a 0..;\n  b c\n}\n"),
        (
            "train{ a 4GiB;b 1%;c -1;d.e (1,2) }",
            "train { a 4 GiB;  b 1%;  c -1;  d.e (1, 2) }\n",
        ),
    ] {
        match format(0, text) {
            Ok(_) => assert_eq!(formatted(text), expected, "{text:?}"),
            Err(_) => assert_eq!(expected, "", "{text:?}"),
        }
    }
}

/// A text with errors is refused with all of them.
#[test]
fn errors_are_refused() {
    insta::glob!("errors/*.ode", |path| {
        let text = std::fs::read_to_string(path).unwrap();
        let (_, errors) = parse(0, &text);
        if !errors.is_empty() {
            assert_eq!(format(0, &text), Err(errors));
        }
    });
}

/// Whatever the input is, the answer comes within a second and can be read again.
#[test]
fn hostile_texts() {
    let nest = |open: &str, close: &str| {
        let depth = 120;
        format!("field a = {}x{}", open.repeat(depth), close.repeat(depth))
    };
    let item = |body: &str| format!("scheme s(F) {{ step x {{ {body} }} }}");
    let half = 100_000;
    let long = "a".repeat(half);
    let texts = [
        ("parentheses", nest("(", ")")),
        ("calls", nest("f(a: ", ")")),
        ("wide calls", nest("f(1234567890, b: 1 + ", " |> x, y)")),
        ("lists", nest("[1, ", "]")),
        ("powers", nest("(-", ")^2")),
        (
            "sums",
            item(&format!(
                "y = {}1{}",
                "sum j in 0..2 { ".repeat(120),
                "}".repeat(120)
            )),
        ),
        (
            "repeats",
            item(&format!("{}{}", "repeat 2 { ".repeat(120), "}".repeat(120))),
        ),
        (
            "statements in repeats",
            item(&format!(
                "{}{}",
                "repeat 2 { y = 1; z = 2 ".repeat(120),
                "}".repeat(120)
            )),
        ),
        (
            "operators",
            format!("field a = x{}", " + x |> y".repeat(250)),
        ),
        (
            "list",
            format!("train {{ a [{}1] }}", "1,".repeat(half / 2)),
        ),
        (
            "arguments",
            format!("train {{ a f({}1) }}", "abcdefghijkl,".repeat(half / 13)),
        ),
        (
            "values",
            format!("train {{ a 1{} }}", ", 1".repeat(half / 3)),
        ),
        (
            "flows",
            format!("scheme s(A) {{ {} }}", "A(1) ".repeat(half / 5)),
        ),
        ("statements", item(&"y = 1;".repeat(half / 6))),
        ("lines", item(&"y = 1\n".repeat(half / 6))),
        (
            "row",
            format!(
                "scheme s {{ tableau {{\n 0 | {}\n }} }}",
                "1 ".repeat(half / 2)
            ),
        ),
        (
            "rows",
            format!(
                "scheme s {{ tableau {{\n{} }} }}",
                "1 | 1 1 1\n".repeat(half / 10)
            ),
        ),
        (
            "wide rows",
            format!(
                "scheme s {{ tableau {{\n{} | {long}\n{} }} }}",
                "a".repeat(47),
                "1 | 1\n".repeat(10_000)
            ),
        ),
        (
            "fields",
            format!("field {long} = b\n{}", "field a = b\n".repeat(10_000)),
        ),
        (
            "keys",
            format!("train {{\n{long} 1\n{} }}", "a 1\n".repeat(10_000)),
        ),
        (
            "comments",
            format!(
                "field a = b // {long}\n{}",
                "field a = b // c\n".repeat(10_000)
            ),
        ),
        (
            "continued comments",
            format!(
                "field a = b // c\n{}",
                "            // d\n".repeat(half / 17)
            ),
        ),
        ("comment", format!("// {long}")),
        (
            "line ends",
            format!("field a = b{}field c = d", "\n".repeat(half)),
        ),
        ("blanks", format!("field a = {}b", " ".repeat(half))),
    ];
    for (name, text) in &texts {
        let begin = Instant::now();
        let once = format(0, text).unwrap_or_else(|errors| panic!("{name}: {:?}", errors[0]));
        let took = begin.elapsed();
        assert!(took < Duration::from_secs(60), "{name} took {took:?}");
        assert_eq!(format(0, &once).as_ref(), Ok(&once), "{name}");
    }
}

/// Indentation can make a text longer than what is read; then it is refused, and says so.
#[test]
fn too_long_when_formatted() {
    let text = format!("train {{\n{}}}", "a\n1\n".repeat(240_000));
    let errors = format(0, &text).unwrap_err();
    assert_eq!(errors.len(), 1);
    insta::assert_snapshot!(shown(&errors, &text));
}

/// Good texts to vary.
fn texts() -> Vec<String> {
    let root = env!("CARGO_MANIFEST_DIR");
    let folders = ["tests/inputs", "tests/format"];
    let mut paths: Vec<_> = folders
        .iter()
        .flat_map(|folder| std::fs::read_dir(format!("{root}/{folder}")).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "ode"))
        .collect();
    paths.sort();
    let read = |path| std::fs::read_to_string(path).unwrap();
    let shipped = shipped::all().iter().map(|file| file.text.clone());
    paths.iter().map(read).chain(shipped).collect()
}

/// Words, numbers, strings, comments and signs of a line.
fn pieces(line: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = line.trim();
    while let Some(first) = rest.chars().next() {
        let while_ =
            |wanted: &dyn Fn(char) -> bool| rest.find(|c| !wanted(c)).unwrap_or(rest.len());
        let length = match first {
            '/' if rest.starts_with("//") => rest.len(),
            '"' => 2 + rest[1..].find('"').unwrap(),
            // A unit belongs to its number: no line end may come between.
            '0'..='9' => {
                let digits = |from: usize| {
                    let digits = rest[from..].find(|c: char| !c.is_ascii_digit());
                    digits.map_or(rest.len(), |length| from + length)
                };
                let mut number = digits(0);
                for (sign, skip) in [(".", 1), ("e-", 2), ("e", 1)] {
                    if rest[number..].starts_with(sign) && digits(number + skip) > number + skip {
                        number = digits(number + skip);
                    }
                }
                let unit = ["%", " GiB"]
                    .iter()
                    .find(|unit| rest[number..].starts_with(**unit));
                number + unit.map_or(0, |unit| unit.len())
            }
            c if c.is_alphabetic() || c == '_' => while_(&|c| c.is_alphanumeric() || c == '_'),
            _ => ["..=", "..", "|>"]
                .iter()
                .find(|sign| rest.starts_with(**sign))
                .map_or(first.len_utf8(), |sign| sign.len()),
        };
        pieces.push(&rest[..length]);
        rest = rest[length..].trim_start();
    }
    pieces
}

/// The same text with other blanks: everywhere around signs, line ends in brackets, more blank lines where there is one.
/// `bits` says where.
fn varied(text: &str, bits: &[u8]) -> String {
    let mut bits = bits.iter().cycle().copied();
    let mut bit = move || bits.next().unwrap_or(0);
    let mut out = String::new();
    let mut rows = false;
    for line in text.lines() {
        if line.is_empty() {
            out.push_str(["\n", "\n\n", " \n\t\n\n", "\r\n"][usize::from(bit() % 4)]);
            continue;
        }
        rows |= line.trim_end().ends_with("tableau {") || line.trim_end().ends_with("multistep {");
        rows &= line.trim() != "}";
        // Blanks mean something in rows that stand on one line as well.
        let fixed = rows || line.contains("tableau") || line.contains("multistep");
        // A comment that begins where the one behind the line above does goes on with it: this one begins where none does.
        let comment = line.trim_start().starts_with("//");
        let blanks = usize::from(bit() % 9);
        out.push_str(&" ".repeat(if comment { 0 } else { blanks }));
        if fixed {
            for word in line.split_inclusive(' ') {
                out.push_str(word);
                if word != "4 " && word.ends_with(' ') && !line.contains("//") {
                    out.push_str(&" ".repeat(usize::from(bit() % 3)));
                }
            }
        } else {
            let mut depth = 0usize;
            let mut before = "";
            for piece in pieces(line) {
                let words = |piece: &str, end: bool| {
                    let c = if end {
                        piece.chars().last()
                    } else {
                        piece.chars().next()
                    };
                    c.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '"')
                };
                let apart = words(before, true) && words(piece, false);
                let risky = before.ends_with("..") && piece.starts_with('=')
                    || before == "."
                    || piece == ".";
                let blanks = match bit() % 6 {
                    _ if before.is_empty() || risky => "",
                    0 if depth > 0 => "\n",
                    1 => "  ",
                    2 => "\t",
                    3 => " ",
                    _ if apart => " ",
                    _ => "",
                };
                out.push_str(blanks);
                out.push_str(piece);
                match piece {
                    "(" | "[" => depth += 1,
                    ")" | "]" => depth = depth.saturating_sub(1),
                    _ => {}
                }
                before = piece;
            }
        }
        out.push_str(["", " ", "\t", "\r"][usize::from(bit() % 4)]);
        out.push('\n');
    }
    out
}

/// The same text with comments strewn in.
fn commented(text: &str, places: &[(prop::sample::Index, u8)]) -> String {
    let mut out = text.to_string();
    for (number, (place, kind)) in places.iter().enumerate() {
        let gaps: Vec<usize> = out
            .char_indices()
            .filter(|(_, c)| " \n(),;{}=+*|[]".contains(*c))
            .map(|(at, _)| at)
            .collect();
        let at = gaps[place.index(gaps.len())];
        let comment = match kind % 4 {
            0 => format!(" // c{number}\n"),
            1 => format!("\n// c{number}\n"),
            2 => format!("\n\n   // c{number}\n\n"),
            _ => format!("\n/// c{number}\n"),
        };
        out.insert_str(at, &comment);
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn blanks_do_not_matter(
        text in prop::sample::select(texts()),
        bits in prop::collection::vec(any::<u8>(), 1..400),
    ) {
        let once = formatted(&text);
        let other = varied(&once, &bits);
        prop_assert_eq!(formatted(&other), once, "{}", other);
    }

    /// Where a comment may stand, it stays.
    #[test]
    fn comments_stay(
        text in prop::sample::select(texts()),
        places in prop::collection::vec(any::<(prop::sample::Index, u8)>(), 1..6),
    ) {
        let text = commented(&text, &places);
        if parse(0, &text).1.is_empty() {
            formatted(&text);
        }
    }

    /// Line ends and semicolons elsewhere: another text perhaps, but one that keeps its meaning.
    #[test]
    fn line_ends_move(
        text in prop::sample::select(texts()),
        places in prop::collection::vec(any::<(prop::sample::Index, u8)>(), 1..20),
    ) {
        let mut text = text;
        for (place, kind) in places {
            let gaps: Vec<usize> = text.match_indices([' ', '\n', ';']).map(|(at, _)| at).collect();
            let at = gaps[place.index(gaps.len())];
            text.replace_range(at..at + 1, ["\n", " ", ";", "\n\n\n", " ; "][usize::from(kind % 5)]);
        }
        if parse(0, &text).1.is_empty() {
            formatted(&text);
        }
    }

    /// A broken text is refused, never a panic; what is good after damage keeps its meaning too.
    #[test]
    fn damaged_texts(
        text in prop::sample::select(texts()),
        cuts in prop::collection::vec(any::<(prop::sample::Index, u8)>(), 1..4),
    ) {
        let mut text = text;
        for (place, length) in cuts {
            let start = text.floor_char_boundary(place.index(text.len()));
            let end = text.floor_char_boundary((start + usize::from(length % 16)).min(text.len()));
            text.replace_range(start..end, "");
        }
        match parse(0, &text).1 {
            errors if errors.is_empty() => drop(formatted(&text)),
            errors => prop_assert_eq!(format(0, &text), Err(errors)),
        }
    }
}
