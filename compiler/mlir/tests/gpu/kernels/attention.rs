//! Attention: whole sequences, their gradients, and keys that were kept.

use super::{Case, check, emulated, floats, of_type, reference, room};
use odec_program::kernel::{Attend, Scores};
use odec_program::{DType, KernelSpec, Target};

/// Attention in f32 with heads of their own.
fn attend(heads: u64, head: u64, causal: bool) -> Attend {
    Attend {
        dtype: DType::F32,
        inputs: DType::F32,
        heads,
        kv_heads: heads,
        head,
        causal,
        room: None,
        window: None,
        scale: 1.0 / (head as f64).sqrt(),
        rounds: false,
        value: None,
        scores: Default::default(),
        order: Default::default(),
        partial: false,
        others: false,
    }
}

/// A forward launch, and the backward one that follows it.
fn forward_and_backward(spec: Attend, batch: u64, seq: u64) -> [Case; 2] {
    to_keys(spec, [batch, seq, seq])
}

/// The same of so many sequences, and queries and keys of each.
fn to_keys(spec: Attend, [batch, seq, keys]: [u64; 3]) -> [Case; 2] {
    let rows = batch * seq * spec.heads;
    let (n, results) = (rows * spec.head, rows * spec.value_head());
    let of_keys = |columns: u64| batch * keys * spec.kv_heads * columns;
    let [narrow, values] = [spec.head, spec.value_head()].map(of_keys);
    let mut dims = vec![batch, seq];
    dims.extend(spec.others.then_some(keys));
    let case = |spec, operands| Case {
        spec,
        operands,
        aliases: vec![],
        dims: dims.clone(),
        coeffs: vec![],
    };
    let (d_o, fourth) = match spec.reads_delta() {
        true => (of_type(spec.inputs, results, 9), floats(rows, 8)),
        false => (floats(results, 9), of_type(spec.inputs, results, 8)),
    };
    let inputs: Vec<Vec<u32>> = [(n, 1), (narrow, 2), (values, 3)]
        .map(|(n, seed)| of_type(spec.inputs, n, seed))
        .to_vec();
    let forward = case(
        KernelSpec::Attend(spec.clone()),
        [
            inputs.clone(),
            vec![room(results), room(rows)],
            sinks(&spec),
            table(&spec),
            numbers(&spec, batch, keys),
        ]
        .concat(),
    );
    let done = reference(&forward);
    let results = vec![
        fourth,
        done[4].clone(),
        d_o,
        room(n),
        room(narrow),
        room(values),
    ];
    let of_distances = || room(batch * seq * spec.bias_columns());
    let behind = [
        Vec::from_iter(spec.scores.distances.map(|_| of_distances())),
        table(&spec),
        numbers(&spec, batch, keys),
    ]
    .concat();
    let mut spec = spec;
    spec.scores.sinks = false;
    let spec = KernelSpec::AttendBackward(spec);
    [forward, case(spec, [inputs, results, behind].concat())]
}

/// The operand of who takes part, if there is one, of so many tokens of a sequence: of the first sequence one of seven, of a second one nobody, of a
/// third the last.
fn numbers(spec: &Attend, batch: u64, tokens: u64) -> Vec<Vec<u32>> {
    let number = |n: u64| match (n / tokens, n * n % 7 % 3) {
        (0, 0) => 0.0,
        (2, _) if n % tokens == tokens - 1 => 3.5,
        (_, 1) => f32::NAN,
        _ => -1.0,
    };
    let all = || (0..batch * tokens).map(|n| number(n).to_bits()).collect();
    Vec::from_iter(spec.partial.then(all))
}

/// The operand of sinks, if there is one.
fn sinks(spec: &Attend) -> Vec<Vec<u32>> {
    match spec.scores.sinks {
        true => vec![floats(spec.heads, 11)],
        false => vec![],
    }
}

/// The operand of biases by distance, if there is one.
fn table(spec: &Attend) -> Vec<Vec<u32>> {
    let table = |rows: u64| floats(rows * spec.bias_columns(), 12);
    Vec::from_iter(spec.scores.distances.map(table))
}

/// Sequences, heads and their columns around the sizes of tiles.
const SHAPES: [[u64; 4]; 7] = [
    [1, 1, 1, 1],
    [2, 5, 2, 3],
    [1, 33, 1, 10],
    [1, 64, 2, 16],
    [1, 65, 1, 17],
    [1, 100, 1, 36],
    [1, 97, 1, 64],
];

#[test]
fn attention_forward_and_backward() {
    let mut cases = vec![];
    for [batch, seq, heads, head] in SHAPES {
        for (causal, inputs) in [(true, DType::F32), (false, DType::F32), (true, DType::Bf16)] {
            let spec = Attend {
                inputs,
                ..attend(heads, head, causal)
            };
            if odec_program::gpu::tensor::attend::runs(&spec) {
                continue; // `gpu_tensor.rs`
            }
            cases.extend(forward_and_backward(spec, batch, seq));
        }
    }
    check(&cases);
}

/// Batch, sequence, heads, heads of keys, columns; windows of a token, within a tile, of tiles, beyond the sequence.
const SHARED: [([u64; 5], Option<u64>); 7] = [
    ([1, 70, 4, 2, 5], None),
    ([2, 33, 3, 1, 4], None),
    ([1, 70, 2, 2, 5], Some(1)),
    ([2, 97, 4, 2, 6], Some(5)),
    ([1, 132, 1, 1, 10], Some(33)),
    ([1, 200, 2, 1, 4], Some(64)),
    ([1, 70, 1, 1, 4], Some(u64::MAX)),
];

#[test]
fn attention_of_heads_that_share_keys_and_of_windows() {
    let mut cases = vec![];
    for ([batch, seq, heads, kv_heads, head], window) in SHARED {
        let spec = Attend {
            kv_heads,
            window,
            ..attend(heads, head, true)
        };
        cases.extend(forward_and_backward(spec, batch, seq));
    }
    let all = Attend {
        kv_heads: 2,
        ..attend(4, 8, false)
    };
    cases.extend(forward_and_backward(all, 1, 65));
    check(&cases);
}

/// Bounded scores that fall with distance, sinks, and heads of values of other widths.
fn others() -> Vec<Attend> {
    let scores = |softcap, alibi, sinks| Scores {
        softcap,
        alibi,
        sinks,
        distances: None,
    };
    let biased = |softcap, rows| Scores {
        distances: Some(rows),
        ..scores(softcap, softcap.is_some(), softcap.is_some())
    };
    let of = |scores, value, causal, window| Attend {
        kv_heads: 1,
        scores,
        value,
        window,
        ..attend(2, 5, causal)
    };
    vec![
        of(scores(Some(1.5), false, false), None, true, None),
        of(scores(None, true, false), None, true, Some(40)),
        of(scores(None, false, true), None, true, Some(3)),
        of(scores(Some(0.5), true, true), Some(18), true, None),
        of(scores(Some(4.0), true, true), Some(3), false, None),
        of(Scores::default(), Some(40), true, None),
        of(biased(None, 3), None, true, Some(40)),
        of(biased(Some(1.5), 50), Some(7), true, None),
        of(biased(None, 40), None, false, None),
        of(biased(Some(2.5), 100), Some(9), false, None),
    ]
}

#[test]
fn attention_with_other_scores_and_values() {
    let of = |spec| forward_and_backward(spec, 1, 70);
    let all = others().into_iter().flat_map(of);
    let half = Attend {
        inputs: DType::Bf16,
        value: Some(32),
        ..attend(1, 16, true)
    };
    let all: Vec<Case> = all.chain(forward_and_backward(half, 1, 67)).collect();
    check(&all);
}

#[test]
fn attention_to_kept_keys_with_other_scores_and_values() {
    let mut cases = vec![];
    for spec in others().into_iter().filter(|spec| spec.causal) {
        for (seq, past) in [(1, 70), (40, 29)] {
            let (width, results) = (spec.heads * spec.head, spec.heads * spec.value_head());
            let kept = |width: u64, seed| floats((past + seq) * (width / spec.heads), seed);
            let operands = vec![
                floats(seq * width, 1),
                kept(width, 2),
                kept(results, 3),
                room(seq * results),
            ];
            cases.push(Case {
                operands: [operands, sinks(&spec), table(&spec)].concat(),
                spec: KernelSpec::AttendCached(spec.clone()),
                aliases: vec![],
                dims: vec![seq, past],
                coeffs: vec![],
            });
        }
    }
    check(&cases);
}

#[test]
fn attention_to_kept_keys() {
    let mut cases = vec![];
    for (seq, past, head, kv_heads, window) in [
        (1, 0, 4, 2, None),
        (1, 70, 10, 2, None),
        (5, 3, 16, 2, None),
        (40, 29, 8, 2, None),
        (33, 64, 17, 2, None),
        (65, 1, 4, 2, None),
        (1, 140, 4, 1, Some(66)),
        (1, 3, 4, 2, Some(66)),
        (40, 29, 8, 1, Some(3)),
        (65, 70, 4, 1, Some(40)),
    ] {
        let heads = 2;
        let spec = Attend {
            kv_heads,
            window,
            ..attend(heads, head, true)
        };
        let (width, narrow) = (heads * head, kv_heads * head);
        cases.push(Case {
            spec: KernelSpec::AttendCached(spec),
            operands: vec![
                floats(seq * width, 1),
                floats((past + seq) * narrow, 2),
                floats((past + seq) * narrow, 3),
                room(seq * width),
            ],
            aliases: vec![],
            dims: vec![seq, past],
            coeffs: vec![],
        });
    }
    check(&cases);
}

#[test]
fn attention_to_kept_keys_of_several_sequences() {
    let mut cases = vec![];
    let some = Attend {
        partial: true,
        ..attend(2, 10, false)
    };
    let scored = Attend {
        scores: Scores {
            softcap: Some(1.5),
            sinks: true,
            ..Default::default()
        },
        ..some.clone()
    };
    let mut specs = vec![attend(2, 8, true), attend(2, 10, false), some, scored];
    specs.extend(others().into_iter().filter(|spec| spec.causal));
    for spec in specs {
        let (sequences, kept) = (3, 70);
        let spec = Attend {
            room: Some(kept),
            ..spec
        };
        let seq = if spec.causal { 1 } else { 40 };
        let (width, results) = (spec.heads * spec.head, spec.heads * spec.value_head());
        let keys = |width: u64, seed| {
            let columns = width / spec.heads * spec.kv_heads;
            floats(sequences * kept * columns, seed)
        };
        let mut operands = vec![
            floats(sequences * seq * width, 1),
            keys(width, 2),
            keys(results, 3),
            room(sequences * seq * results),
        ];
        let mut dims = vec![seq, 69, sequences];
        if spec.causal {
            operands.push(vec![69, 3, 64]);
            dims.push(kept);
        }
        let behind = [sinks(&spec), table(&spec), numbers(&spec, sequences, kept)].concat();
        cases.push(Case {
            operands: [operands, behind].concat(),
            spec: KernelSpec::AttendCached(spec),
            aliases: vec![],
            dims,
            coeffs: vec![],
        });
    }
    check(&cases);
}

#[test]
fn attention_of_tokens_that_take_part() {
    let some = |of: Attend| Attend {
        partial: true,
        ..of
    };
    let sinks = Scores {
        softcap: Some(1.5),
        sinks: true,
        ..Default::default()
    };
    let mut cases = vec![];
    for (batch, seq, spec) in [
        (3, 5, attend(2, 3, true)),
        (3, 130, attend(2, 8, true)),
        (2, 300, attend(1, 10, false)),
        (
            1,
            300,
            Attend {
                kv_heads: 1,
                value: Some(18),
                scores: sinks,
                ..attend(2, 5, true)
            },
        ),
        (
            1,
            200,
            Attend {
                inputs: DType::Bf16,
                ..attend(1, 16, true)
            },
        ),
    ] {
        cases.extend(forward_and_backward(some(spec), batch, seq));
    }
    // Kept keys of one sequence, then of several.
    let spec = some(Attend {
        scores: sinks,
        ..attend(2, 6, true)
    });
    for (seq, past) in [(1, 70), (40, 290), (33, 0)] {
        let kept = |seed| floats((past + seq) * 12, seed);
        let operands = vec![floats(seq * 12, 1), kept(2), kept(3), room(seq * 12)];
        let behind = [self::sinks(&spec), numbers(&spec, 1, past + seq)].concat();
        cases.push(Case {
            operands: [operands, behind].concat(),
            spec: KernelSpec::AttendCached(spec.clone()),
            aliases: vec![],
            dims: vec![seq, past],
            coeffs: vec![],
        });
    }
    for places in [vec![69, 3, 64], vec![7, 0, 69]] {
        let kept = |seed| floats(3 * 70 * 12, seed);
        let operands = vec![floats(3 * 12, 1), kept(2), kept(3), room(3 * 12), places];
        let behind = [self::sinks(&spec), numbers(&spec, 3, 70)].concat();
        cases.push(Case {
            operands: [operands, behind].concat(),
            spec: KernelSpec::AttendCached(Attend {
                room: Some(70),
                ..spec.clone()
            }),
            aliases: vec![],
            dims: vec![1, 69, 3, 70],
            coeffs: vec![],
        });
    }
    check(&cases);
}

/// Sequences, queries and keys of each: more of these and fewer, one block of them and several, with a sequence of whose keys none takes part.
#[test]
fn attention_to_keys_of_other_tokens() {
    let of = |heads, head| Attend {
        others: true,
        ..attend(heads, head, false)
    };
    let scores = Scores {
        softcap: Some(1.5),
        sinks: true,
        ..Default::default()
    };
    let mut cases = vec![];
    for (spec, lengths) in [
        (of(1, 3), vec![[1, 1, 1], [3, 5, 3], [1, 3, 130]]),
        (
            Attend {
                kv_heads: 2,
                ..of(4, 8)
            },
            vec![[2, 70, 5], [1, 3, 500]],
        ),
        (
            Attend {
                kv_heads: 1,
                value: Some(18),
                scores,
                ..of(2, 5)
            },
            vec![[3, 40, 65], [1, 65, 64]],
        ),
        (
            Attend {
                inputs: DType::Bf16,
                value: Some(32),
                ..of(1, 16)
            },
            vec![[2, 33, 100]],
        ),
    ] {
        for (lengths, partial) in lengths.into_iter().flat_map(|l| [(l, false), (l, true)]) {
            let spec = Attend {
                partial,
                ..spec.clone()
            };
            cases.extend(to_keys(spec, lengths));
        }
    }
    check(&cases);
}

/// What a query must not see may be anything.
#[test]
fn hidden_keys_are_not_touched() {
    let (seq, head) = (70, 8);
    let spec = attend(1, head, true);
    let n = seq * head;
    let mut values = floats(n, 3);
    values[(40 * head) as usize..].fill(f32::INFINITY.to_bits());
    let operands = vec![floats(n, 1), floats(n, 2), values, room(n), room(seq)];
    let case = Case {
        spec: KernelSpec::Attend(spec),
        operands,
        aliases: vec![],
        dims: vec![1, seq],
        coeffs: vec![],
    };
    let o = emulated(&case, Target::Sm90a)[3].clone();
    let finite = |row: u64| {
        let row = &o[(row * head) as usize..][..head as usize];
        row.iter().all(|x| f32::from_bits(*x).is_finite())
    };
    assert!((0..40).all(finite) && !finite(40));
    check(&[case]);
}

/// Nor may what lies before a window change anything.
#[test]
fn keys_before_a_window_are_not_touched() {
    let (seq, head) = (100, 4);
    let spec = Attend {
        window: Some(20),
        ..attend(1, head, true)
    };
    let [mut case, _] = forward_and_backward(spec, 1, seq);
    case.operands[1][..(30 * head) as usize].fill(f32::INFINITY.to_bits());
    case.operands[2][..(30 * head) as usize].fill(f32::INFINITY.to_bits());
    let o = emulated(&case, Target::Sm80)[3].clone();
    let finite = |row: u64| {
        let row = &o[(row * head) as usize..][..head as usize];
        row.iter().all(|x| f32::from_bits(*x).is_finite())
    };
    // Row 48 still sees key 29, row 49 begins at 30.
    assert!(!finite(48) && (49..seq).all(finite));
}
