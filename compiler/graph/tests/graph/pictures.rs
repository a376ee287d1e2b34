//! Graphs as text and DOT.

use crate::{models, tiny};
use odec_graph::Graph;
use odec_graph::fold::{Piece, fold};
use odec_graph::{dot, print, svg};
use std::collections::BTreeMap;

#[test]
fn a_model_as_text() {
    insta::assert_snapshot!(print::text(&tiny::iie(2, 1)));
}

#[test]
fn a_model_with_its_gradient_as_text() {
    let graph = models::with_gradients(tiny::iie(2, 0)).expect("differentiable");
    insta::assert_snapshot!(print::text(&graph));
}

#[test]
fn a_small_graph_as_dot() {
    insta::assert_snapshot!(dot::dot(&tiny::iie(1, 0)));
}

fn folded(graph: &Graph) -> Vec<(u32, u32)> {
    let mut nodes = Vec::new();
    let mut steps = Vec::new();
    for piece in fold(graph) {
        match piece {
            Piece::Plain(n) => nodes.extend(n),
            Piece::Steps(s) => {
                steps.push((s.first, s.last));
                nodes.extend(s.nodes.iter().chain(&s.others));
            }
        }
    }
    nodes.sort();
    assert!(nodes.into_iter().eq(0..graph.len()), "every node once");
    steps
}

#[test]
fn repeated_steps_are_folded() {
    // of the backward pass step 0 stands alone: its state comes from outside of all steps
    let graph = models::with_gradients(tiny::iie(6, 3)).expect("differentiable");
    assert_eq!(folded(&graph), [(0, 5), (5, 1), (0, 0)]);
    // the first weight gradient of shared weights begins a sum, the others add to it
    let graph = models::with_gradients(tiny::rk4_shared(5)).expect("differentiable");
    assert_eq!(folded(&graph), [(0, 4), (4, 4), (3, 1), (0, 0)]);
    // the first step has no history
    assert_eq!(folded(&tiny::history()), [(0, 0), (1, 3), (0, 1)]);
}

/// The boxes of a picture: x, y, width, height.
fn boxes(svg: &str) -> Vec<[f64; 4]> {
    let number = |line: &str, name: &str| -> f64 {
        let at = line.find(&format!(" {name}=\"")).expect("an attribute") + name.len() + 3;
        let end = line[at..].find('"').expect("its end");
        line[at..at + end].parse().expect("a number")
    };
    // panels are drawn with an opacity
    let rects = svg
        .lines()
        .filter(|l| l.starts_with("<rect") && !l.contains("fill-opacity"));
    rects
        .map(|l| ["x", "y", "width", "height"].map(|n| number(l, n)))
        .collect()
}

#[test]
fn a_model_as_svg() {
    insta::assert_snapshot!(svg::svg(
        &tiny::iie(4, 3),
        "iie(F, r: 3)",
        &BTreeMap::from([(String::new(), "per step".to_string())]),
    ));
}

/// Every box lies inside the picture and none on another; text is drawn at 0.602 em a character and fits.
#[test]
fn nothing_overlaps() {
    let models = [
        (tiny::iie(4, 3), 18),
        (tiny::iie_of_layer(4, 3), 26),
        (tiny::rk4_shared(1), 17),
        (tiny::history(), 23),
        (
            models::with_gradients(tiny::history()).expect("differentiable"),
            28,
        ),
    ];
    for (graph, count) in models {
        let svg = svg::svg(&graph, "a < b & c", &BTreeMap::new());
        assert!(svg.contains("a &lt; b &amp; c"));
        let boxes = boxes(&svg);
        assert_eq!(boxes.len(), count);
        let size = boxes
            .iter()
            .fold((0.0f64, 0.0f64), |(w, h), [x, y, bw, bh]| {
                (w.max(x + bw), h.max(y + bh))
            });
        assert!(svg.contains("viewBox=\"0 0 "));
        let view: Vec<f64> = svg
            .split("viewBox=\"0 0 ")
            .nth(1)
            .expect("one")
            .split('"')
            .next()
            .expect("its end")
            .split(' ')
            .map(|n| n.parse().expect("a number"))
            .collect();
        assert!(size.0 <= view[0] && size.1 <= view[1]);
        for (i, [x, y, w, h]) in boxes.iter().enumerate() {
            assert!(*x >= 0.0 && *y >= 0.0);
            for [a, b, c, d] in &boxes[..i] {
                let apart = x >= &(a + c) || a >= &(x + w) || y >= &(b + d) || b >= &(y + h);
                assert!(apart, "boxes {i} and before at {x}, {y} and {a}, {b}");
            }
        }
        let mut fits = 0;
        for line in svg
            .lines()
            .filter(|l| l.contains("class=\"m\"") && l.contains("middle"))
        {
            let text = line
                .split('>')
                .nth(1)
                .and_then(|t| t.split('<').next())
                .expect("text");
            let at: f64 = line
                .split("x=\"")
                .nth(1)
                .and_then(|t| t.split('"').next())
                .expect("x")
                .parse()
                .expect("a number");
            let y: f64 = line
                .split("y=\"")
                .nth(1)
                .and_then(|t| t.split('"').next())
                .expect("y")
                .parse()
                .expect("a number");
            let half = text.trim().chars().count() as f64 * 13.0 * 0.602 / 2.0;
            let inside = |[x, top, w, h]: &[f64; 4]| {
                at - half >= *x && at + half <= x + w && y > *top && y < top + h
            };
            assert!(boxes.iter().any(inside), "{text} is in no box");
            fits += 1;
        }
        assert!(fits > 5);
    }
}
