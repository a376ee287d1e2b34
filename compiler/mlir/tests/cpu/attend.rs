//! Compiled attention against the scalar evaluator bit for bit, and against a plain f64 one, whose gradient is held
//! against finite differences.

mod case;

use crate::harness::{Buffer, Compiled, assert_same, evaluated, targets};
use case::{Case, IN_PAIRS, Shape, distance};
use odec_program::kernel::{Attend, Order};
use odec_program::real::Real;
use odec_program::{DType, KernelSpec, Target, bf16};

/// Both kernels for every target; the same for all batches and sequences.
fn compile<T: Real>(shape: Shape, causal: bool) -> Vec<(Target, Compiled)> {
    let specs = Case::new(shape, causal).specs::<T>();
    targets()
        .into_iter()
        .map(|t| (t, Compiled::new(&specs, t)))
        .collect()
}

fn check<T: Real>(shape: Shape, causal: bool, tolerance: f64, on: &[(Target, Compiled)]) {
    check_case::<T>(&Case::new(shape, causal), tolerance, on);
}

fn check_case<T: Real>(case: &Case, tolerance: f64, on: &[(Target, Compiled)]) {
    let shape = case.shape;
    let (o, lse) = case.forward(&case.q, &case.k, &case.v);
    let [dq, dk, dv, d_distances] = case.backward();
    let evaluated = case.evaluate::<T>();
    for (target, compiled) in on {
        let got = case.run::<T>(compiled, 1);
        let names = ["o", "lse", "dq", "dk", "dv", "d_distances"];
        for ((got, want), name) in got
            .iter()
            .zip([&o, &lse, &dq, &dk, &dv, &d_distances])
            .zip(names)
        {
            let far = distance(got, want);
            assert!(
                far <= tolerance,
                "{target} {shape:?} causal {}, {} heads of keys, window {:?}: {name} is {far:e} off",
                case.causal,
                case.kv_heads,
                case.window
            );
        }
        let split = case.run::<T>(compiled, 3);
        for n in 0..6 {
            let what = format!("{target} {shape:?}: {}", names[n]);
            assert_same(&split[n], &got[n], &format!("{what}, split"));
            assert_same(&got[n], &evaluated[n], &format!("{what}, evaluated"));
        }
    }
}

#[test]
fn the_reference_gradient_is_the_derivative() {
    for case in [
        Case::new([1, 5, 2, 3], false),
        Case::new([1, 5, 2, 3], true),
        Case::sharing([1, 5, 2, 3], 1, true, Some(2)),
        Case::of([1, 5, 2, 3], (1, 4), true, None),
        Case::of([1, 5, 2, 3], (2, 2), false, None).scored(),
        Case::of([1, 5, 4, 3], (2, 3), true, Some(3)).scored(),
        Case::of([2, 5, 2, 3], (1, 4), true, None).of_some(),
        Case::of_others([2, 5, 2, 3], (1, 4), 3),
        Case::of_others([2, 3, 2, 3], (1, 4), 5).of_some(),
        Case::of([2, 5, 2, 3], (2, 2), false, None)
            .biased(3)
            .scored(),
        Case::of([2, 5, 4, 3], (2, 3), true, Some(4)).biased(9),
    ] {
        let loss = |q: &[f64], k: &[f64], v: &[f64]| -> f64 {
            let (o, _) = case.forward(q, k, v);
            o.iter().zip(&case.d_o).map(|(a, b)| a * b).sum()
        };
        let exact = case.backward();
        let inputs = [case.q.clone(), case.k.clone(), case.v.clone()];
        for n in 0..3 {
            for i in 0..inputs[n].len() {
                let moved = |by: f64| {
                    let mut x = inputs.clone();
                    x[n][i] += by;
                    loss(&x[0], &x[1], &x[2])
                };
                let slope = (moved(1e-5) - moved(-1e-5)) / 2e-5;
                assert!(
                    (slope - exact[n][i]).abs() < 1e-8,
                    "input {n}, element {i}: {slope} and {}",
                    exact[n][i]
                );
            }
        }
        let moved = |i: usize, by: f64| {
            let mut case = case.clone();
            case.biases[i] += by;
            case.loss()
        };
        for (i, exact) in case.d_table().into_iter().enumerate() {
            let slope = (moved(i, 1e-5) - moved(i, -1e-5)) / 2e-5;
            assert!(
                (slope - exact).abs() < 1e-8,
                "bias {i}: {slope} and {exact}"
            );
        }
    }
}

#[test]
fn heads_of_every_size_f32() {
    for (head, both) in [
        (1, false),
        (8, true),
        (16, false),
        (24, false),
        (64, false),
        (80, false),
    ] {
        for causal in [true, false].into_iter().take(if both { 2 } else { 1 }) {
            let shape = [2, 70, 2, head];
            check::<f32>(shape, causal, 1e-5, &compile::<f32>(shape, causal));
        }
    }
}

/// q, k and v that bf16 holds: forward, what f32 gives for them; backward, o is rounded too.
#[test]
fn bf16_operands() {
    for (shape, causal) in [
        ([2, 70, 2, 24], true),
        ([1, 130, 1, 64], false),
        ([1, 3, 3, 1], true),
    ] {
        let mut case = Case::new(shape, causal).rounded();
        let plain = case.evaluate::<f32>();
        case.inputs = DType::Bf16;
        let want = case.evaluate::<f32>();
        assert_same(&want[0], &plain[0], "o");
        assert_same(&want[1], &plain[1], "lse");
        let [dq, dk, dv, _] = case.backward();
        for (got, exact) in want[2..].iter().zip([&dq, &dk, &dv]) {
            // δ is off by u · Σ |dO ∘ O| at most, where single columns leave the largest gradients small.
            assert!(distance(got, exact) < 2f64.powi(-5), "{shape:?}");
        }
        for target in targets() {
            let compiled = Compiled::new(&case.specs::<f32>(), target);
            for parts in [1, 3] {
                let got = case.run::<f32>(&compiled, parts);
                for (n, (got, want)) in got.iter().zip(&want).enumerate() {
                    assert_same(got, want, &format!("{target} {shape:?}, result {n}"));
                }
            }
        }
    }
}

/// Products in pairs: heads of odd widths, sequences, windows and blocks that end within pairs and chunks, every option. The evaluator is near f64, and compiled
/// code is it, in every bit.
#[test]
fn products_in_pairs() {
    IN_PAIRS.into_iter().for_each(near_and_same);
}

fn near_and_same(order: Order) {
    let of = |[seq, heads, head]: [usize; 3], shared, causal, window| {
        Case::of([2, seq, heads, head], shared, causal, window)
    };
    let ragged = |seq| of([seq, 2, 24], (2, 24), true, None);
    let cases = [
        ragged(70),
        ragged(1),
        ragged(2),
        ragged(131),
        of([131, 2, 64], (1, 64), false, None),
        of([131, 4, 5], (2, 7), true, Some(40)),
        of([67, 2, 3], (1, 16), false, None).scored(),
        of([150, 2, 16], (1, 16), true, Some(3)).scored(),
        of([150, 2, 16], (2, 9), true, Some(64)).scored(),
        of([150, 2, 16], (1, 9), true, None).biased(80),
        of([131, 2, 8], (2, 8), false, None).biased(5).scored(),
    ];
    for case in cases.map(|case| case.in_pairs(order)) {
        let found = case.evaluate::<f32>();
        let (shape, value) = (case.shape, case.value);
        let (o, lse) = case.forward(&case.q, &case.k, &case.v);
        // Weights are rounded once, which leaves each within u of itself; with |v| in the place of v, results are the sums of terms' sizes.
        let sizes: Vec<f64> = case.v.iter().map(|x| x.abs()).collect();
        let (sizes, _) = case.forward(&case.q, &case.k, &sizes);
        for ((got, want), size) in found[0].real().iter().zip(&o).zip(&sizes) {
            let far = (f64::from(*got) - want).abs();
            assert!(
                far <= (bf16::UNIT + 1e-5) * size,
                "{shape:?} {value}: {far:e}"
            );
        }
        assert!(distance(&found[1], &lse) <= 1e-5, "{shape:?}");
        for (got, exact) in found[2..].iter().zip(case.backward()) {
            assert!(distance(got, &exact) < 2f64.powi(-5), "{shape:?} {value}");
        }
        same_in_pairs(&case, &found);
    }
}

/// Gradients and values so small that products and sums are about the smallest normal number: what is rounded to zero has one sign, however many zeros
/// are added to it.
#[test]
fn pairs_of_small_numbers() {
    let masks = [(true, Some(5)), (false, None)];
    for ((causal, window), order) in masks
        .into_iter()
        .flat_map(|mask| IN_PAIRS.map(|o| (mask, o)))
    {
        let mut case = Case::of([1, 150, 2, 8], (1, 8), causal, window);
        let small = |x: &mut Vec<f64>, size: f64| x.iter_mut().for_each(|x| *x *= size);
        small(&mut case.q, 20.0);
        small(&mut case.v, 1e-20);
        small(&mut case.d_o, 1e-18);
        let case = case.in_pairs(order);
        let found = case.evaluate::<f32>();
        let zeros = found[2..].iter().flat_map(Buffer::real);
        let zeros = zeros.filter(|x| x.to_bits() == 0).count();
        assert!(zeros > 100, "{zeros}");
        same_in_pairs(&case, &found);
    }
}

/// Compares compiled kernels, in one part and in three, with what the evaluator found.
fn same_in_pairs(case: &Case, found: &[Buffer<f32>; 6]) {
    for target in case.targets() {
        let compiled = Compiled::new(&case.specs::<f32>(), target);
        for parts in [1, 3] {
            let got = case.run::<f32>(&compiled, parts);
            for (n, (got, want)) in got.iter().zip(found).enumerate() {
                let what = format!("{target} {:?} {:?}, result {n}", case.shape, case.window);
                assert_same(got, want, &what);
            }
        }
    }
}

#[test]
fn ragged_sequences_f32() {
    for causal in [false, true] {
        let compiled = compile::<f32>([1, 1, 3, 16], causal);
        for seq in [1, 2, 15, 17, 63, 64, 65, 128, 150, 200] {
            check::<f32>([1, seq, 3, 16], causal, 1e-5, &compiled);
        }
    }
}

/// Heads that share keys, and windows shorter and longer than a block: queries of one block begin to see in different ones.
#[test]
fn shared_keys_and_windows() {
    for (n, (heads, kv_heads, window)) in [
        (4, 2, None),
        (3, 1, Some(1)),
        (2, 2, Some(40)),
        (4, 1, Some(64)),
        (2, 1, Some(100)),
    ]
    .into_iter()
    .enumerate()
    {
        let case = |seq| Case::sharing([2, seq, heads, 8], kv_heads, true, window);
        let on = compiled_in_turn::<f32>(&case(1), n);
        for seq in [5, 64, 131, 200] {
            check_case::<f32>(&case(seq), 1e-5, &on);
        }
    }
    let case = Case::sharing([1, 70, 4, 8], 2, false, None);
    check_case::<f32>(&case, 1e-5, &compiled_in_turn::<f32>(&case, 0));
}

/// Both kernels of case number `n` for one target, each target in turn: which keys are seen and what becomes of scores is written the same for
/// all of them, and [`heads_of_every_size_f32`] tries vectors of every length.
fn compiled_in_turn<T: Real>(case: &Case, n: usize) -> Vec<(Target, Compiled)> {
    let all = targets();
    let target = all[n % all.len()];
    vec![(target, Compiled::new(&case.specs::<T>(), target))]
}

#[test]
fn values_of_other_widths() {
    for (n, (heads, kv_heads, head, value, causal)) in [
        (2, 2, 8, 16, true),
        (2, 1, 24, 5, true),
        (1, 1, 3, 40, false),
    ]
    .into_iter()
    .enumerate()
    {
        let case = |seq| Case::of([2, seq, heads, head], (kv_heads, value), causal, None);
        let on = compiled_in_turn::<f32>(&case(1), n);
        for seq in [5, 70] {
            check_case::<f32>(&case(seq), 1e-5, &on);
        }
    }
}

#[test]
fn bounded_scores_that_fall_with_distance_and_sinks() {
    for (n, (heads, kv_heads, causal, window)) in [
        (4, 2, true, None),
        (2, 2, false, None),
        (3, 1, true, Some(40)),
    ]
    .into_iter()
    .enumerate()
    {
        let case = |seq| Case::of([1, seq, heads, 8], (kv_heads, 8), causal, window).scored();
        let on = compiled_in_turn::<f32>(&case(1), n);
        for seq in [1, 17, 70] {
            check_case::<f32>(&case(seq), 1e-5, &on);
        }
    }
    let mut case = Case::new([1, 70, 2, 8], true);
    case.sinks = vec![-30.0, 30.0];
    check_case::<f32>(&case, 1e-5, &compiled_in_turn::<f32>(&case, 2));
    let case = Case::of([1, 70, 2, 8], (1, 12), true, Some(9)).scored();
    check_case::<f64>(&case, 1e-13, &compiled_in_turn::<f64>(&case, 0));
}

/// Tables that end within a block, behind one and behind the sequence; keys before queries alone, and behind them too.
#[test]
fn biases_by_distance() {
    for (n, (heads, kv_heads, causal, window, rows)) in [
        (4, 2, true, None, 1),
        (2, 2, false, None, 40),
        (3, 1, true, Some(70), 100),
        (2, 1, false, None, 300),
    ]
    .into_iter()
    .enumerate()
    {
        let case = |seq| Case::of([2, seq, heads, 8], (kv_heads, 8), causal, window).biased(rows);
        let on = compiled_in_turn::<f32>(&case(1), n);
        for seq in [1, 17, 64, 70, 200] {
            check_case::<f32>(&case(seq), 1e-5, &on);
        }
    }
    let case = Case::of([1, 70, 2, 8], (1, 12), false, None)
        .biased(9)
        .scored();
    check_case::<f64>(&case, 1e-13, &compiled_in_turn::<f64>(&case, 1));
}

/// Tokens that take no part are no keys, and what is theirs is 0: sequences within a block and of several, of which some have none that takes part.
#[test]
fn tokens_that_take_no_part() {
    for (n, (heads, kv_heads, value, causal, sinks)) in [
        (4, 2, 8, true, vec![]),
        (2, 2, 8, false, vec![]),
        (2, 1, 12, true, vec![0.5, -1.0]),
    ]
    .into_iter()
    .enumerate()
    {
        let case = |seq| Case {
            sinks: sinks.clone(),
            ..Case::of([3, seq, heads, 8], (kv_heads, value), causal, None).of_some()
        };
        let on = compiled_in_turn::<f32>(&case(1), n);
        for seq in [1, 5, 70, 300] {
            check_case::<f32>(&case(seq), 1e-5, &on);
        }
    }
    for causal in [true, false] {
        let case = Case::of([2, 131, 2, 8], (1, 12), causal, None).of_some();
        check_case::<f64>(&case, 1e-13, &compiled_in_turn::<f64>(&case, causal.into()));
        for order in IN_PAIRS {
            let pairs = Case::of([2, 331, 2, 9], (1, 7), causal, None).of_some();
            let pairs = pairs.in_pairs(order);
            same_in_pairs(&pairs, &pairs.evaluate::<f32>());
        }
        // Nobody reads what is theirs.
        let mut lost = Case::of([2, 131, 2, 8], (1, 12), causal, None).of_some();
        let want = lost.evaluate::<f32>();
        for n in 0..2 * 131 {
            if lost.takes_part(n / 131, n % 131) {
                continue;
            }
            lost.q[n * 16..][..16].fill(f64::NAN);
            lost.k[n * 8..][..8].fill(f64::INFINITY);
            lost.v[n * 12..][..12].fill(f64::NAN);
            lost.d_o[n * 24..][..24].fill(f64::NAN);
        }
        for (target, compiled) in compiled_in_turn::<f32>(&lost, causal.into()) {
            for (n, (got, want)) in lost.run::<f32>(&compiled, 3).iter().zip(&want).enumerate() {
                assert_same(got, want, &format!("{target}, result {n}"));
            }
        }
    }
}

/// Keys of other tokens, fewer and more than queries, all or some of them; of a second sequence none takes part, and its queries give 0.
#[test]
fn keys_of_other_tokens() {
    let capped = |case: Case| Case {
        softcap: Some(2.5),
        ..case
    };
    for (n, (heads, kv_heads, value, sinks)) in [
        (4, 2, 8, vec![]),
        (2, 1, 12, vec![0.5, -1.0]),
        (3, 3, 5, vec![]),
    ]
    .into_iter()
    .enumerate()
    {
        let case = |seq, keys| Case {
            sinks: sinks.clone(),
            ..Case::of_others([3, seq, heads, 8], (kv_heads, value), keys)
        };
        let on = compiled_in_turn::<f32>(&case(1, 1), n);
        let of_some = compiled_in_turn::<f32>(&case(1, 1).of_some(), n + 1);
        for (seq, keys) in [(1, 70), (70, 1), (5, 130), (131, 64), (64, 65)] {
            // Gradients of a single key vanish.
            check_case::<f32>(&case(seq, keys), 2e-5, &on);
            check_case::<f32>(&case(seq, keys).of_some(), 2e-5, &of_some);
        }
    }
    let case = capped(Case::of_others([3, 40, 2, 8], (1, 12), 131));
    check_case::<f64>(&case, 1e-13, &compiled_in_turn::<f64>(&case, 0));
    let case = capped(Case::of_others([2, 131, 2, 8], (1, 12), 40)).of_some();
    check_case::<f64>(&case, 1e-13, &compiled_in_turn::<f64>(&case, 1));
    for (keys, order) in [1, 33, 131]
        .into_iter()
        .flat_map(|keys| IN_PAIRS.map(|o| (keys, o)))
    {
        let pairs = Case::of_others([2, 67, 2, 9], (1, 7), keys);
        let some = Case::of_others([3, 67, 2, 9], (1, 7), keys).of_some();
        for pairs in [pairs, some].map(|case| case.in_pairs(order)) {
            same_in_pairs(&pairs, &pairs.evaluate::<f32>());
        }
    }
}

/// Reading token by token gives the bits of reading the whole.
#[test]
fn kept_keys_under_other_scores() {
    let case = || Case::of([1, 70, 2, 8], (1, 12), true, None).scored();
    let windowed = || Case::of([1, 70, 2, 8], (1, 12), true, Some(6));
    let some = || Case::of([1, 70, 2, 8], (1, 12), true, None).of_some();
    let biased = || windowed().biased(4).scored();
    kept_keys(&case());
    kept_keys(&case().biased(40));
    kept_keys(&some());
    for order in IN_PAIRS {
        for case in [case(), windowed(), some(), biased()] {
            kept_keys(&case.in_pairs(order));
        }
    }
}

fn kept_keys(case: &Case) {
    let ([_, _, heads, head], value) = (case.shape, case.value);
    let [KernelSpec::Attend(spec), _] = case.specs::<f32>() else {
        unreachable!()
    };
    let whole = &case.evaluate::<f32>()[0];
    let real = |x: &[f64]| Buffer::Real(x.iter().map(|x| *x as f32).collect::<Vec<f32>>());
    let kernel = KernelSpec::AttendCached(spec.clone());
    let on: Vec<Compiled> = (case.targets().into_iter())
        .map(|t| Compiled::new(std::slice::from_ref(&kernel), t))
        .collect();
    for (from, to) in [(0, 3), (60, 66), (69, 70)] {
        let part = |x: &[f64], columns: usize, from: usize| {
            real(&x[from * columns..to * columns]).in_type(case.inputs)
        };
        let rows = to - from;
        let mut operands = vec![
            part(&case.q, heads * head, from),
            part(&case.k, head, 0),
            part(&case.v, value, 0),
            Buffer::nan(rows * heads * value),
        ];
        if !case.sinks.is_empty() {
            operands.push(real(&case.sinks));
        }
        operands.extend(case.table());
        if !case.numbers.is_empty() {
            operands.push(real(&case.numbers[..to]));
        }
        let dims = [rows as u64, from as u64];
        let meant = evaluated(&kernel, &operands, &dims, &[]);
        let width = heads * value;
        let wanted = Buffer::Real(whole.real()[from * width..to * width].to_vec());
        assert_same(&meant[3], &wanted, "evaluated");
        for compiled in &on {
            let tiles = 0..kernel.tiles(&dims);
            let got = compiled.run(0, &operands, &[], &dims, &[], &[tiles]);
            assert_same(&got[3], &wanted, "compiled");
        }
    }
}

/// Of several sequences, each with room for its own keys and a query at its own place, the bits of that token; and of all tokens where each sees all.
#[test]
fn kept_keys_of_several_sequences() {
    let ([batch, seq, heads, head], value) = ([3, 70, 2, 8], 12);
    let own = |window, order| (true, window, vec![69, 3, 64], order, false);
    let some = |places, order| (true, None, places, order, true);
    let chain = Order::Chain;
    let one_by_one = vec![
        own(None, chain),
        own(Some(5), chain),
        (false, None, vec![], chain, false),
        (false, None, vec![], chain, true),
        some(vec![69, 3, 64], chain),
        some(vec![3, 0, 69], chain),
    ];
    let in_pairs = IN_PAIRS.into_iter().flat_map(|order| {
        [
            own(Some(5), order),
            (false, None, vec![], order, false),
            (false, None, vec![], order, true),
            some(vec![64, 3, 69], order),
        ]
    });
    for (causal, window, places, order, part) in one_by_one.into_iter().chain(in_pairs) {
        let shape = [batch, seq, heads, head];
        let case = match causal {
            true => Case::of(shape, (1, value), causal, window),
            false => Case::of_others(shape, (1, value), seq),
        };
        let case = match (causal, part) {
            (true, false) => case.scored().biased(7),
            (_, true) => case.of_some(),
            (false, false) => case,
        };
        let case = match order {
            Order::Chain => case,
            order => case.in_pairs(order),
        };
        let [KernelSpec::Attend(spec), _] = case.specs::<f32>() else {
            unreachable!()
        };
        let spec = Attend {
            room: Some(seq as u64),
            others: false,
            ..spec
        };
        let whole = case.evaluate::<f32>()[0].clone();
        let rows = if causal { 1 } else { seq };
        let part = |x: &[f32], columns: usize| {
            let texts = x.chunks(seq * columns).enumerate();
            let rows = texts.flat_map(|(n, text)| match places.get(n) {
                Some(place) => text[place * columns..][..columns].to_vec(),
                None => text.to_vec(),
            });
            Buffer::Real(rows.collect::<Vec<f32>>())
        };
        let real = |x: &[f64]| x.iter().map(|x| *x as f32).collect::<Vec<f32>>();
        let mut operands = vec![
            part(&real(&case.q), heads * head).in_type(case.inputs),
            Buffer::Real(real(&case.k)).in_type(case.inputs),
            Buffer::Real(real(&case.v)).in_type(case.inputs),
            Buffer::nan(batch * rows * heads * value),
        ];
        let mut dims = vec![rows as u64, 69, batch as u64];
        if causal {
            operands.push(Buffer::Int(places.iter().map(|n| *n as i32).collect()));
            if !case.sinks.is_empty() {
                operands.push(Buffer::Real(real(&case.sinks)));
            }
            operands.extend(case.table());
            dims.push(seq as u64);
        }
        operands.extend(case.numbers());
        let wanted = part(whole.real(), heads * value);
        let kernel = KernelSpec::AttendCached(spec);
        let meant = evaluated(&kernel, &operands, &dims, &[]);
        assert_same(&meant[3], &wanted, "evaluated");
        let tiles = 0..kernel.tiles(&dims);
        for target in case.targets() {
            let compiled = Compiled::new(std::slice::from_ref(&kernel), target);
            let got = compiled.run(0, &operands, &[], &dims, &[], std::slice::from_ref(&tiles));
            assert_same(&got[3], &wanted, "compiled");
        }
    }
}

/// Exact FMA in f64 without the instruction is limited to moderate numbers, which these are.
#[test]
fn f64() {
    for (n, (shape, causal)) in [
        ([1, 100, 2, 16], true),
        ([2, 70, 1, 40], false),
        ([1, 1, 1, 8], true),
    ]
    .into_iter()
    .enumerate()
    {
        let case = Case::new(shape, causal);
        let on = match n {
            0 => compile::<f64>(shape, causal),
            _ => compiled_in_turn::<f64>(&case, n),
        };
        check_case::<f64>(&case, 1e-13, &on);
    }
}

#[test]
fn large_scores_do_not_overflow() {
    let mut case = Case::new([1, 80, 1, 16], true);
    case.q.iter_mut().for_each(|x| *x *= 40.0);
    let compiled = Compiled::new(&case.specs::<f32>(), targets()[0]);
    let (o, lse) = case.forward(&case.q, &case.k, &case.v);
    let got = case.run::<f32>(&compiled, 1);
    assert!(distance(&got[0], &o) < 2e-4 && distance(&got[1], &lse) < 1e-5);
    assert!(got.iter().all(|b| b.real().iter().all(|x| x.is_finite())));
}

#[test]
fn an_empty_head_is_refused() {
    let spec = Attend {
        dtype: odec_program::DType::F32,
        inputs: odec_program::DType::F32,
        heads: 1,
        kv_heads: 1,
        head: 0,
        causal: true,
        room: None,
        window: None,
        scale: 1.0,
        rounds: false,
        value: None,
        scores: Default::default(),
        order: Default::default(),
        partial: false,
        others: false,
    };
    let kernel = odec_program::Kernel {
        symbol: "k".into(),
        spec: KernelSpec::Attend(spec),
    };
    assert!(odec_mlir::mlir_text(&kernel, Target::Avx2).is_err());
}
