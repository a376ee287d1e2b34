//! Stage programs of library schemes and of flows over whole layers, as text.

use crate::common::{Cases, compile_text, model};
use odec_library::{LibraryScheme, shipped};
use std::collections::BTreeSet;

fn alone(text: &str) -> String {
    compile_text(text).checked().stages()
}

fn flow(flow: &str) -> String {
    compile_text(&model(flow, 1, "")).checked().stages()
}

/// A few schemes of each mechanism.
const CHOSEN: &[(&str, &[&str])] = &[
    ("tableaus", &["euler", "rk4", "dormand_prince"]),
    (
        "implicit",
        &[
            "backward_euler",
            "gauss4",
            "radau_iia3",
            "sdirk2",
            "tr_bdf2",
        ],
    ),
    (
        "splittings",
        &["lie", "strang", "yoshida4", "weighted_lie", "blanes_moan4"],
    ),
    ("multistep", &["ab3", "am3", "bdf2"]),
    ("general_linear", &["abm4", "hamming5", "butcher_hybrid5"]),
    ("implicit_and_explicit", &["imex_euler", "ars222"]),
    ("exponential", &["exponential_euler", "etdrk4", "lawson4"]),
    ("stabilized", &["rkc2", "rkl1"]),
    (
        "extrapolated",
        &["gragg", "extrapolated_euler4", "richardson_strang4"],
    ),
    (
        "two_states",
        &[
            "symplectic_euler",
            "velocity_verlet",
            "stoermer",
            "strehmel_weiner4",
        ],
    ),
    (
        "steps_of_transformers",
        &[
            "dlcl",
            "iie",
            "iiet_refresh",
            "injected",
            "pcformer4",
            "rk2_gated",
        ],
    ),
    ("fixed_points", &["deq"]),
    ("learned", &["rk4_learned", "ab4_learned", "gauss4_learned"]),
];

#[test]
fn chosen_schemes() {
    for (mechanism, names) in CHOSEN {
        let mut cases = Cases::default();
        for name in *names {
            cases.add(name, alone(shipped::text(name)));
        }
        insta::assert_snapshot!(format!("stages_{mechanism}"), cases);
    }
}

/// What instructions of a stage program are named by.
const LETTERS: &str = "kypqvuzsnewf";

/// Values of a line of a stage program: `k1`, `y2`, `p3`.
fn values(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|w| {
        w.len() > 1
            && w.starts_with(|c| LETTERS.contains(c))
            && w[1..].bytes().all(|b| b.is_ascii_digit())
    })
}

/// Every program of the library makes each value once and before it is read, and ends in results.
#[test]
fn values_are_made_once_before_they_are_read() {
    for LibraryScheme { name, text, .. } in shipped::library().iter() {
        let outcome = compile_text(text);
        for program in &outcome.checked().programs {
            let text = program.to_string();
            let mut made = BTreeSet::new();
            for line in text.lines().skip(1) {
                let (left, right) = line.split_once(" = ").unwrap_or(("", line));
                for v in values(right) {
                    assert!(made.contains(v), "{name}: {v} in `{line}` of\n{text}");
                }
                let left = values(left).filter(|_| !line.starts_with("  keep"));
                for v in left {
                    assert!(made.insert(v), "{name}: {v} is made twice in\n{text}");
                }
            }
            assert!(
                text.lines().any(|l| l.starts_with("  return ")),
                "{name}:\n{text}"
            );
        }
    }
}

#[test]
fn flows() {
    let mut cases = Cases::default();
    for (name, written) in [
        ("flow_lie", "lie(att, ffn)"),
        ("flow_strang_heun", "strang(ffn by heun, att)"),
        ("flow_strang_iie", "strang(ffn by iie(r: 1), att)"),
        ("flow_rk4_layer", "rk4(layer)"),
        ("flow_iie_layer", "iie(layer, r: 2)"),
        ("flow_heun_phi", "heun(phi)"),
        ("flow_euler_both", "euler(both)"),
        ("flow_nested_splitting", "lie(strang(ffn, att), ffn)"),
        (
            "flow_increment_of_heun_splitting",
            "euler(increment(strang(ffn by heun, att)))",
        ),
        ("flow_weighted_sum", "euler(1/2*att - 2*ffn)"),
        (
            "flow_irrational_sum",
            "euler(sqrt(2)*att - ffn/(1 + sqrt(3)))",
        ),
        ("flow_parallel_heun", "parallel(att by heun, ffn by heun)"),
        (
            "flow_parallel_of_three",
            "parallel(att by heun, lie(ffn, att), phi)",
        ),
        ("flow_hybrid", "lie(parallel(att, strang(ffn, att)), ffn)"),
        ("flow_strang_gauss", "strang(ffn by gauss4(r: 3), att)"),
        ("flow_radau_layer", "radau_iia3(layer, r: 2)"),
    ] {
        cases.add(name, flow(written));
    }
    insta::assert_snapshot!("stages_flows", cases);
}
