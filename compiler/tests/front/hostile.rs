//! Texts that would take forever, or the whole memory, or the stack: each gives a message within a second or two.

use crate::common::{Files, Outcome, compile_files, compile_text, model};
use odec_compiler::codes;
use odec_library::shipped;
use std::time::{Duration, Instant};

/// Compiles and expects an error with this code. The bound is generous: tests run unoptimised on busy machines.
fn refused(what: &str, text: &str, code: &str) -> Outcome {
    let start = Instant::now();
    let outcome = compile_text(text);
    let given: Vec<&str> = outcome.messages.iter().map(|d| d.code).collect();
    assert!(outcome.checked.is_none(), "{what} compiles");
    assert!(given.contains(&code), "{what}: {given:?}");
    assert!(given.len() <= 101, "{what}: {} messages", given.len());
    assert!(
        start.elapsed() < Duration::from_secs(120),
        "{what}: {:?}",
        start.elapsed()
    );
    outcome
}

fn wrapped(definitions: &str, flow: &str) -> String {
    format!("{definitions}\n{}", model(flow, 1, ""))
}

#[test]
fn long_programs_from_short_texts() {
    let doubling: String = (1..40)
        .map(|i| format!("field f{i} = increment(lie(f{}, f{}))\n", i - 1, i - 1))
        .collect();
    refused(
        "2^40 evaluations",
        &wrapped(&format!("field f0 = rmsnorm\n{doubling}"), "euler(f39)"),
        codes::TOO_LARGE,
    );
    let billions =
        "scheme b(F) { step x { y = x;  repeat 20000 { repeat 20000 { y = F(y) } } return y } }";
    refused("4·10^8 evaluations", billions, codes::TOO_LARGE);
    let idle = "scheme i(F) { let a = 1;  step x { b = 1;  repeat 20000 { repeat 20000 { b = a } } return x } }";
    refused("4·10^8 assignments", idle, codes::TOO_LARGE);
    let sums =
        "scheme s(F) { step x { y = x;  repeat 20000 { y = x + y + h*F(x + y) } return y } }";
    refused("long sums", sums, codes::TOO_LARGE);
    let nested =
        "scheme n(F) { step x { return x + h*sum i in 0..20000 { sum j in 0..20000 { F(x) } } } }";
    refused("nested sums", nested, codes::TOO_LARGE);
    refused(
        "10^5 steps",
        &model("rk4(layer)", 19_999, ""),
        codes::TOO_LARGE,
    );
    refused(
        "10^12 steps",
        &model("rk4(layer)", 1_000_000_000_000, ""),
        codes::TOO_LARGE,
    );
    let list = vec!["20000"; 2000].join(", ");
    refused(
        "long lists",
        &model(&format!("iie(layer, r: [{list}])"), 2000, ""),
        codes::TOO_LARGE,
    );
    for (what, step) in [
        ("2·10^8 coefficients", "x + a[0]*f[-1]"),
        ("2·10^8 past values", "sum j in 0.. { a[j]*f[-j] }"),
    ] {
        let scheme = format!(
            "scheme s(F) {{ learn a[..] = delta;  step x {{ f = F(x);  return {step} }} }}\n"
        );
        let text = format!("{scheme}{}", model("s(ffn)", 20_000, ""));
        refused(what, &text, codes::TOO_LARGE);
    }
}

/// Sixty schemes, each the one before twice: forty-five are too large, and refusing one takes a second. So the first says it, and the others
/// are not run.
#[test]
fn the_first_scheme_that_is_too_large_speaks_for_all() {
    let large = |name: &str| {
        format!(
            "scheme {name}(F) {{ step x {{ y = x;  repeat 20000 {{ y = x + y + h*F(x + y) }} return y }} }}\n"
        )
    };
    let text = format!("{}{}", large("a"), large("b"));
    let outcome = refused("two long sums", &text, codes::TOO_LARGE);
    assert_eq!(outcome.messages.len(), 1, "{}", outcome.rendered());
}

/// Each number has few nested roots; together they are too many to be compared, so nothing is proved, and the warning says why.
#[test]
fn nested_roots_that_do_not_depend_on_each_other() {
    let row = |p: &str| format!("    (sqrt(1 + sqrt({p}))) | (sqrt(1 + sqrt({p})))\n");
    let rows: String = ["2", "3", "5", "7", "11", "13", "17", "19"]
        .map(row)
        .concat();
    let tail = "    | 1/9 1/9 1/9 1/9 1/9 1/9 1/9 1/9 1/9\n  }\n}\n";
    let text = format!("scheme n {{\n  order 2\n  tableau {{\n    0 |\n{rows}{tail}");
    let outcome = compile_text(&text);
    let shown = outcome.rendered();
    assert!(
        shown.contains("at most four independent nested roots"),
        "{shown}"
    );
    let long: Vec<String> = (2..400)
        .map(|n| format!("sqrt({n} + sqrt({}))", n + 1))
        .collect();
    let text = format!(
        "scheme l {{ tableau {{ 0 | ; | ({}) }} }}",
        long.join(" * ")
    );
    refused("398 nested roots", &text, codes::ARITHMETIC);
    let squares = "scheme q(F) { step x { a = sqrt(3 + sqrt(2));  repeat 100 { a = a*a + a } return x + a*F(x) } }";
    refused("powers of nested roots", squares, codes::ARITHMETIC);
}

#[test]
fn large_numbers() {
    let squares = "scheme q(F) { step x { a = 3/7;  repeat 100 { a = a*a } return x + a*F(x) } }";
    refused("(3/7)^(2^100)", squares, codes::ARITHMETIC);
    let powers = "scheme p(F) { step x { a = 1 + h;  repeat 100 { a = a*a } return x + a*F(x) } }";
    refused("(1 + h)^(2^100)", powers, codes::ARITHMETIC);
    refused(
        "10^(10^10)",
        "scheme e(F) { let a = 10^10^10;  step x { return x + a*F(x) } }",
        codes::ARITHMETIC,
    );
    let primes = (2..).filter(|n| (2..*n).all(|d| n % d != 0)).take(60);
    let factors: Vec<String> = primes.map(|p| format!("(1 + sqrt({p}))")).collect();
    let scheme = |lets: String, a: &str| {
        format!("scheme r(F) {{ {lets} let a = {a}\n step x {{ return x + a*F(x) }} }}")
    };
    let product = scheme(String::new(), &factors.join("*"));
    refused("a field of degree 2^60", &product, codes::ARITHMETIC);
    let lets = |n: usize| -> String {
        let inverse = "1/(7/10 + sqrt(2) + sqrt(3) + root(2, 3)/9)";
        (0..n).map(|i| format!("let a{i} = {inverse}\n")).collect()
    };
    let all: Vec<String> = (0..200).map(|i| format!("a{i}")).collect();
    let product = scheme(lets(200), &all.join("*"));
    refused("200 reciprocals multiplied", &product, codes::TOO_LARGE);
    refused(
        "5000 reciprocals",
        &scheme(lets(5000), "a0"),
        codes::TOO_LARGE,
    );
    // Quotients of sums of roots, made again and again where one would not look for them.
    let slow = "1/(7/10 + sqrt(2) + sqrt(3) + root(2, 3)/9)";
    let many = vec![slow; 250].join(" + ");
    for (what, scheme) in [
        (
            "in a loop",
            format!("step x {{ a = 1;  repeat 20000 {{ a = {slow} }} return x + a*F(x) }}"),
        ),
        (
            "of a state",
            format!("step x {{ y = x;  repeat 20000 {{ y = x/({slow}) }} return y + F(y) }}"),
        ),
        (
            "counted",
            format!(
                "step x {{ y = x;  repeat 20000 {{ repeat 0*{slow} {{ y = x }} }} return F(y) }}"
            ),
        ),
        (
            "in one number",
            format!("let a = 0*({many})\n step x {{ return x + a*F(x) }}"),
        ),
        (
            "in a fraction",
            format!("step x {{ y = x;  repeat 20000 {{ y = flow F(0*{slow}) from y }} return y }}"),
        ),
    ] {
        refused(
            what,
            &format!("scheme s(F) {{ {scheme} }}"),
            codes::TOO_LARGE,
        );
    }
    let rule = |h: &str| model("euler(att)", 19_000, &format!("h = {h}"));
    refused(
        "step sizes",
        &rule("1/(7/10 + k + sqrt(2) + sqrt(3) + root(2, 3)/9)"),
        codes::TOO_LARGE,
    );
    let flows = vec!["s(att)"; 2_000].join(", ");
    let scheme = format!(
        "scheme s(F, r = 0*({})) {{ step x {{ return x + r*F(x) }} }}\n",
        [slow; 50].join(" + ")
    );
    let text = scheme + &model(&format!("[{flows}]"), 2_000, "");
    refused("defaults", &text, codes::TOO_LARGE);
    let wide = "field f = rmsnorm |> swiglu(hidden: 1048576)\nmodel m { input tokens(vocab: 9, context: 9)\n embed learned(width: 1048576)\n evolve euler(f) for 5 steps\n output logits(tied) }";
    refused("10^13 parameters", wide, codes::TOO_LARGE);
}

#[test]
fn deep_definitions() {
    let chain: String = (1..500)
        .map(|i| format!("field f{i} = increment(euler(f{}))\n", i - 1))
        .collect();
    refused(
        "500 definitions",
        &wrapped(&format!("field f0 = rmsnorm\n{chain}"), "euler(f499)"),
        codes::TOO_LARGE,
    );
    let inner = |i: usize| format!("{}f{}{}", "increment(euler(".repeat(30), i, "))".repeat(30));
    let deep: String = (1..50)
        .map(|i| format!("field f{i} = {}\n", inner(i - 1)))
        .collect();
    refused(
        "deep definitions",
        &wrapped(&format!("field f0 = rmsnorm\n{deep}"), "euler(f49)"),
        codes::TOO_LARGE,
    );
    let sum = |i: usize| {
        format!(
            "scheme s{i}(F) {{ step x {{ return F(x){} }} }}\n",
            " + 0*h*x".repeat(100)
        )
    };
    let schemes: String = (0..40).map(sum).collect();
    let nest = |acc: String, i: usize| format!("increment(s{i}({acc}))");
    let flow = (0..39).fold("rmsnorm".to_string(), nest);
    refused(
        "long sums inside each other",
        &wrapped(&schemes, &format!("s39({flow})")),
        codes::TOO_LARGE,
    );
}

#[test]
fn many_definitions() {
    let fields: String = (0..5000)
        .map(|i| format!("field f{i} = rmsnorm |> nothing{i}\n"))
        .collect();
    let outcome = refused("5000 mistakes", &fields, codes::UNKNOWN_NAME);
    assert_eq!(outcome.messages.len(), 101, "and how many more");
    let schemes: String = (0..5000)
        .map(|i| format!("scheme s{i}(F) {{ order 1;  step x {{ return x + h*F(x) }} }}\n"))
        .collect();
    assert_eq!(compile_text(&schemes).checked().programs.len(), 5000);
}

#[test]
fn many_files() {
    let mut files = Files::default();
    for i in 0..200 {
        files.0.insert(format!("{i}"), format!("use \"{}\"", i + 1));
    }
    let outcome = compile_files("main.ode", "use \"0\"", &mut files);
    assert_eq!(
        outcome.messages.iter().map(|d| d.code).collect::<Vec<_>>(),
        [codes::TOO_LARGE]
    );
}

/// Sketches with words deleted, doubled or swapped for others: messages or models, never a panic.
#[test]
fn shuffled_sketches() {
    let folder = format!("{}/../grammar/tests/inputs", env!("CARGO_MANIFEST_DIR"));
    let mut paths: Vec<_> = std::fs::read_dir(&folder)
        .expect("sketches")
        .map(|e| e.expect("an entry").path())
        .collect();
    paths.sort();
    let texts: Vec<String> = paths
        .iter()
        .filter(|p| p.extension().is_some_and(|e| e == "ode"))
        .map(|p| std::fs::read_to_string(p).expect("a text"))
        .collect();
    let mut state = 1u64;
    let mut pick = |n: usize| {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 33) as usize % n
    };
    let words = |text: &str| -> Vec<String> {
        text.split_inclusive(|c: char| !c.is_alphanumeric() && c != '_')
            .map(str::to_string)
            .collect()
    };
    let all: Vec<String> = texts.iter().flat_map(|t| words(t)).collect();
    let mut compiled = 0;
    for round in 0..600 {
        let mut text = words(&texts[round % texts.len()]);
        for _ in 0..=pick(3) {
            let at = pick(text.len());
            match pick(3) {
                0 => _ = text.remove(at),
                1 => text.insert(at, all[pick(all.len())].clone()),
                _ => text[at] = all[pick(all.len())].clone(),
            }
        }
        let outcome = compile_text(&text.concat());
        assert!(outcome.checked.is_some() || !outcome.messages.is_empty());
        compiled += usize::from(outcome.checked.is_some());
    }
    assert!(
        compiled > 20,
        "only {compiled} of the shuffled texts still compile"
    );
}

/// Numbers as large as they get, and words where they do not belong.
const STRANGE: &[&str] = &[
    "0",
    "-1",
    "1/0",
    "10^9",
    "1e400",
    "sqrt(-1)",
    "root(2, 0)",
    "999999999999999999999",
    "x",
    "h",
    "t",
    "k",
    "F",
    "field",
    "layer",
    "step",
    "repeat",
    "learn",
    "tableau",
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    "|",
    "|>",
    ":",
    ";",
    "=",
    "..",
    "..=",
    "sum j in 0.. { }",
    "\"",
    "//",
    "///",
    "\n",
    "1%",
    "4 GiB",
    "per",
    "shared",
    "every 0",
    "of time",
    "by",
    "λ",
    "\u{0}",
];

/// The library's files with words taken out, doubled, exchanged and replaced, from a fixed seed: each compiles, or is
/// refused at a place in its text; nothing panics, nothing contradicts itself. The same as `fuzz/`, without guidance.
#[test]
fn damaged_files_are_refused_with_a_place() {
    // Long tables of numbers have no words that short ones lack, and take seconds to prove.
    let texts = shipped::all().iter();
    let texts: Vec<Vec<String>> = texts
        .filter(|file| file.text.len() < 2500)
        .map(|file| {
            let words = file
                .text
                .split_inclusive([' ', '\n', '(', ')', ',', '[', ']', '*', '+']);
            words.map(String::from).collect()
        })
        .collect();
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut below = |n: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as usize % n
    };
    let rounds = std::env::var("ODEC_FUZZ_ROUNDS").map_or(2000, |n| n.parse().unwrap());
    let (mut compiled, mut refused) = (0, 0);
    for _ in 0..rounds {
        let mut words = texts[below(texts.len())].clone();
        for _ in 0..1 + below(3) {
            let at = below(words.len());
            match below(5) {
                0 => _ = words.remove(at),
                1 => words.insert(at, words[at].clone()),
                2 => {
                    let other = below(words.len());
                    words.swap(at, other);
                }
                3 => words[at] = STRANGE[below(STRANGE.len())].into(),
                _ => {
                    let other = &texts[below(texts.len())];
                    words[at] = other[below(other.len())].clone();
                }
            }
            if words.is_empty() {
                break;
            }
        }
        let text = words.concat();
        let outcome = compile_text(&text);
        match outcome.checked {
            Some(_) => compiled += 1,
            None => refused += 1,
        }
        assert!(
            outcome.checked.is_some() || !outcome.messages.is_empty(),
            "refused without a word:\n{text}"
        );
        for d in &outcome.messages {
            assert!(!d.labels.is_empty(), "no place: {d:?}\n{text}");
        }
        outcome.rendered();
    }
    assert!(
        compiled > 50 && refused > 200,
        "{compiled} compiled, {refused} refused"
    );
}
