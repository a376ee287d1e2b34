//! Stage programs of library schemes and of flows over whole layers, as text.

use crate::common::{compile_text, model};
use odec_library::{LibraryScheme, shipped};

fn alone(text: &str) -> String {
    compile_text(text).checked().stages()
}

fn flow(flow: &str) -> String {
    compile_text(&model(flow, 1, "")).checked().stages()
}

#[test]
fn library() {
    for LibraryScheme { name, text, .. } in shipped::library().iter() {
        insta::assert_snapshot!(*name, alone(text));
    }
}

#[test]
fn flows() {
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
        insta::assert_snapshot!(name, flow(written));
    }
}
