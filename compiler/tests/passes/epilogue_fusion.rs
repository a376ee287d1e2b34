//! Epilogues: what joins, what must not, and that neither bits nor memory tell.

use crate::memory::AT;
use crate::numbers::{executor, results, tokens};
use crate::programs::library;
use crate::source::built;
use crate::systems::options;
use odec_compiler::passes::epilogue_fusion::fuse_epilogues;
use odec_compiler::passes::fuse::Fusion;
use odec_compiler::passes::launch_list::{BufferId, Launch, LaunchList, Placement};
use odec_compiler::passes::{Assembled, ModelParts, Options, assemble, build_manifest};
use odec_graph::Shared;
use odec_program::expr::{ColMap, Expr, ReduceOp, RowMap, UnaryOp};
use odec_program::kernel::{Contract, Extent, Mode, Rows, Store};
use odec_program::{
    Access, Bindings, Body, Coeff, DType, Entry, EntryId, KernelSpec, Operand, Site, Size, Slot,
    Target,
};
use odec_runtime::Reader;

const COLS: u64 = 4;

/// The product of a row for each token and a matrix of `n` columns and `k` rows, in f32.
pub fn contraction(n: u64, k: u64) -> Contract {
    let sizes = [Extent::Dynamic, Extent::Static(n), Extent::Static(k)];
    Contract::new(DType::F32, sizes, options().tiling.blocking)
}

/// A contraction of `a` and `b`, a map of its result and `x` that writes `y`; `x` is made first.
fn pair() -> LaunchList {
    let mut code = LaunchList::default();
    let state = Size {
        factor: COLS,
        ..Size::TOKENS
    };
    let [a, b, x, sum, y] = ["a", "b", "x", "sum", "y"].map(|name| {
        let home = match name {
            "a" => Placement::Fixed(Operand::at(Slot::Params, 0)),
            "b" => Placement::Fixed(Operand::at(Slot::Params, 1 << 20)),
            _ => Placement::Arena,
        };
        code.buffer(name, DType::F32, state, home)
    });
    let contract = KernelSpec::Contract(contraction(COLS, 8));
    let (tokens, cols) = (Size::TOKENS, Size::fixed(COLS));
    let made = map(&[a, x], |body, uniform| {
        let a = body.load(0, Access::full(COLS));
        body.mul(uniform, a)
    });
    code.launches.push(made);
    code.launches.push(Launch {
        spec: contract.into(),
        args: vec![a, b, sum],
        dims: vec![tokens, cols, Size::fixed(8)],
        coeffs: vec![],
        site: step(0),
        guard: None,
        held: None,
    });
    // The sum is neither the first operand nor the first that is read: x + u · sum.
    let after = map(&[x, sum, y], |body, uniform| {
        let x = body.load(0, Access::full(COLS));
        let sum = body.load(1, Access::full(COLS));
        let more = body.mul(uniform, sum);
        body.add(x, more)
    });
    code.launches.push(after);
    code
}

fn step(k: u32) -> Shared<Site> {
    let site = Site {
        step: Some(k),
        ..Site::default()
    };
    site.into()
}

/// A map over all tokens; its last argument is its result.
fn map(
    args: &[BufferId],
    value: impl Fn(&mut Body, odec_program::ExprId) -> odec_program::ExprId,
) -> Launch {
    let mut body = Body::default();
    let uniform = body.uniform(0);
    let value = value(&mut body, uniform);
    Launch {
        spec: KernelSpec::Rows(Rows {
            dtype: DType::F32,
            cols: COLS,
            operands: vec![DType::F32; args.len()],
            uniforms: 1,
            body,
            stores: vec![Store {
                operand: args.len() as u32 - 1,
                access: Access::full(COLS),
                value,
            }],
        })
        .into(),
        args: args.to_vec(),
        dims: vec![Size::TOKENS, Size::ONE],
        coeffs: vec![Coeff::Value(0.5)],
        site: step(1),
        guard: None,
        held: None,
    }
}

#[test]
fn a_map_of_a_sum_becomes_its_epilogue() {
    let before = pair();
    let after = fuse_epilogues(before.clone(), options().tiling);
    let [made, joined] = &after.launches[..] else {
        panic!("{:?}", after.launches)
    };
    assert_eq!(made, &before.launches[0]);
    let ([a, b, _], [x, _, y]) = (&before.launches[1].args[..], &before.launches[2].args[..])
    else {
        panic!("three arguments each")
    };
    assert_eq!(joined.args, [*a, *b, *x, *y]);
    assert_eq!(joined.coeffs, before.launches[2].coeffs);
    assert_eq!(joined.dims, before.launches[1].dims);
    assert_eq!(joined.site, step(0));
    let KernelSpec::Contract(c) = &*joined.spec else {
        panic!("{:?}", joined.spec)
    };
    let e = c.epilogue.as_ref().expect("joined");
    assert_eq!((e.operands, e.uniforms), (1, 1));
    let nodes = &e.body.nodes;
    assert!(nodes.contains(&Expr::Acc), "{nodes:?}");
    let access = Access::full(COLS);
    assert!(
        nodes.contains(&Expr::Load { operand: 2, access }),
        "{nodes:?}"
    );
    let modes: Vec<Mode> = joined.uses().map(|(_, mode)| mode).collect();
    assert!(modes.len() == 4 && modes[3].writes() && !modes[2].writes());
}

#[test]
fn what_an_epilogue_cannot_do_is_not_joined() {
    type Change = fn(&mut LaunchList);
    fn contract(code: &mut LaunchList) -> &mut Contract {
        match &mut *code.launches[1].spec {
            KernelSpec::Contract(c) => c,
            other => panic!("{other:?}"),
        }
    }
    fn rows(code: &mut LaunchList) -> &mut Rows {
        match &mut *code.launches[2].spec {
            KernelSpec::Rows(k) => k,
            other => panic!("{other:?}"),
        }
    }
    fn reads(code: &mut LaunchList, operand: u32, by: Access) {
        for e in &mut rows(code).body.nodes {
            match e {
                Expr::Load { operand: o, access } if *o == operand => *access = by,
                _ => {}
            }
        }
    }
    fn elsewhere(row: RowMap, col: ColMap) -> Access {
        let stride = COLS;
        Access { row, col, stride }
    }
    /// The map's value through another expression.
    fn through(
        code: &mut LaunchList,
        f: impl Fn(&mut Body, odec_program::ExprId) -> odec_program::ExprId,
    ) {
        let k = rows(code);
        k.stores[0].value = f(&mut k.body, k.stores[0].value);
    }
    let changes: [(&str, Change); 17] = [
        ("adds onto what is there", |c| contract(c).accumulate = true),
        ("a gradient of weights", |c| contract(c).a_transposed = true),
        ("the sum is read at other columns", |c| {
            reads(c, 1, elsewhere(RowMap::Row, ColMap::HalfSwap(COLS)))
        }),
        ("the sum's first row is read by all", |c| {
            reads(c, 1, elsewhere(RowMap::Zero, ColMap::Col))
        }),
        ("by position", |c| {
            reads(c, 0, elsewhere(RowMap::Position, ColMap::Col))
        }),
        ("columns turned", |c| {
            reads(c, 0, elsewhere(RowMap::Row, ColMap::repeat(2)))
        }),
        ("a reduction", |c| {
            through(c, |b, x| b.reduce(ReduceOp::Sum, x))
        }),
        ("numbers of rows", |c| {
            through(c, |b, x| {
                let row = b.push(Expr::RowIndex);
                b.add(x, row)
            })
        }),
        ("noise", |c| through(c, |b, x| b.push(Expr::Random([x; 4])))),
        ("too much for every register of a tile", |c| {
            through(c, |b, x| (0..4).fold(x, |x, _| b.unary(UnaryOp::Erf, x)))
        }),
        ("a result in bf16", |c| rows(c).operands[2] = DType::Bf16),
        ("two results", |c| {
            let k = rows(c);
            k.stores.push(k.stores[0]);
        }),
        ("other rows", |c| c.launches[2].dims[0] = Size::BATCH),
        ("a guard", |c| c.launches[2].guard = Some(BufferId(0))),
        ("another reader of the sum", |c| {
            let mut other = c.launches[2].clone();
            other.args[2] = c.buffer("z", DType::F32, Size::TOKENS, Placement::Arena);
            c.launches.push(other);
        }),
        ("another operand is made after the sum", |c| {
            c.launches.swap(0, 1)
        }),
        ("an operand that others may write by another name", |c| {
            c.buffers[2].home = Placement::Fixed(Operand::at(Slot::Cache, 0))
        }),
    ];
    for (what, change) in changes {
        let mut code = pair();
        change(&mut code);
        assert_eq!(
            fuse_epilogues(code.clone(), options().tiling),
            code,
            "{what}"
        );
    }
}

/// A model with wide layers of every activation, its steps made of a scheme.
fn assembled(flow: &str, train: &str, (fusion, piece): (Fusion, u64)) -> Assembled {
    let text = format!(
        "field att = rmsnorm |> attention(heads: 2, causal, rope)\n\
         field gated = rmsnorm |> swiglu(hidden: 20)\n\
         field biased = layernorm |> gelu(hidden: 40, bias)\n\
         field bare = rmsnorm |> relu(hidden: 20)\n\
         field two = increment(lie(gated, biased))\n\
         field three = increment(lie(two, bare))\n\
         field layer = increment(lie(att, three))\n\
         model small {{\n  input tokens(vocab: 24, context: 64)\n  embed learned(width: 12)\n  \
         evolve {flow} for 2 steps {{ h = 1/2 }}\n  output rmsnorm |> logits(tied)\n}}\n\
         train {{ data tokens(\"none.bin\");  optimizer adamw(lr: 1e-3)\n\
         batch 2;  steps 10;  memory {train} }}\n"
    );
    let built = built(&text);
    let options = Options {
        fusion,
        piece,
        ..options()
    };
    assemble(&ModelParts::new(&built, &text), options).unwrap_or_else(|e| panic!("{flow}: {e}"))
}

/// How many launches of an entry have an epilogue.
fn epilogues(a: &Assembled, entry: &str) -> usize {
    let program = &a.manifest.program;
    let has = |i: &&odec_program::Instr| match &program.kernels[i.kernel as usize].spec {
        KernelSpec::Contract(c) => c.epilogue.is_some(),
        _ => false,
    };
    program.entries[entry].instrs.iter().filter(has).count()
}

/// Bits of logits, loss, gradients, and logits of a text read in parts.
fn bits(a: &Assembled) -> Vec<u64> {
    let mut e = executor(&a.manifest);
    let mut out = Vec::new();
    for at in [AT, Bindings::new(1, 33)] {
        out.extend(results(&mut e, at, 24));
    }
    let text = tokens(Bindings::new(1, 9), 24, 1);
    let mut reader = Reader::new(&mut e).unwrap();
    for part in [&text[..4], &text[4..5], &text[5..]] {
        out.extend(reader.read(part).unwrap().iter().map(f64::to_bits));
    }
    out
}

#[test]
fn joining_changes_no_bit() {
    for (flow, train) in [
        ("lie(att, three)", "store"),
        ("lie(att, three)", "store;  precision bf16"),
        ("lie(att, three)", "store;  precision f64"),
        ("rk4(layer)", "revolve(slots: 1)"),
    ] {
        let made = |fusion| assembled(flow, train, (fusion, u64::MAX));
        let (joined, apart) = (made(Fusion::On), made(Fusion::Rows));
        for (name, e) in &joined.manifest.program.entries {
            let other: &Entry = &apart.manifest.program.entries[name];
            let n = epilogues(&joined, name.as_str());
            assert_eq!(epilogues(&apart, name.as_str()), 0);
            assert_eq!(e.instrs.len() + n, other.instrs.len(), "{flow}, {name}");
            assert!(e.arena_bytes <= other.arena_bytes, "{flow}, {name}");
        }
        let rounds = train.contains("bf16");
        for name in ["forward", "loss", "decode"] {
            // What is rounded on its way to memory is no epilogue's result.
            assert_eq!(
                epilogues(&joined, name) == 0,
                rounds,
                "{flow}, {train}, {name}"
            );
        }
        assert!(bits(&joined) == bits(&apart), "{flow}, {train}");
    }
}

#[test]
fn epilogues_run_in_pieces() {
    let flow = "lie(att, three)";
    let whole = assembled(flow, "store", (Fusion::On, u64::MAX));
    let cut = assembled(flow, "store", (Fusion::On, 4 << 10));
    let entry = &cut.manifest.program.entries["forward"];
    let inside = |p: &odec_program::Pieces| p.first as usize..(p.first + p.count) as usize;
    let stretches = entry.pieces.iter().flat_map(inside);
    let joined = stretches.map(|i| &cut.manifest.program.kernels[entry.instrs[i].kernel as usize]);
    let joined =
        joined.filter(|k| matches!(&k.spec, KernelSpec::Contract(c) if c.epilogue.is_some()));
    assert!(joined.count() > 0, "{:?}", entry.pieces);
    assert!(bits(&cut) == bits(&whole));
}

#[test]
fn memory_of_the_library_does_not_grow() {
    for name in ["prenorm", "macaron", "rk4_layer", "gpt", "iiet"] {
        let (source, built) = library(name);
        let made = |fusion| {
            let options = Options {
                fusion,
                ..options()
            };
            build_manifest(&built, &source, options).unwrap()
        };
        let (joined, apart) = (made(Fusion::On), made(Fusion::Rows));
        assert!(epilogues(&joined, "forward") > 0, "{name}");
        for (m, before) in joined.memory.iter().zip(&apart.memory) {
            assert_eq!(m.entry, before.entry);
            assert!(m.arena <= before.arena, "{name}: {m:?}, {before:?}");
        }
    }
}

/// Where tokens are read one at a time on tensor cores, nothing is left that only rounds, and SwiGLU is the end of a product.
#[test]
fn a_token_on_tensor_cores_has_eleven_launches_a_layer() {
    let text = "field att = rmsnorm |> attention(heads: 4, causal, rope)\n\
         field ffn = rmsnorm |> swiglu(hidden: 48)\n\
         model small {\n  input tokens(vocab: 256, context: 20)\n  embed learned(width: 64)\n  \
         evolve lie(att, ffn) for 3 steps\n  output rmsnorm |> logits(tied)\n}\n\
         train { data text(\"none.txt\", tokenizer: bytes);  steps 1;  batch 1\n  optimizer adamw(lr: 1e-2)\n  precision bf16\n}\n";
    let built = built(text);
    let launches = |target: Target, id: EntryId| -> Vec<(&str, bool)> {
        let options = Options::of(target, built.real());
        let program = build_manifest(&built, text, options)
            .unwrap()
            .manifest
            .program;
        let entry = &program.entries[&id];
        let of = entry
            .instrs
            .iter()
            .filter(|i| program.sites[i.site as usize].step == Some(1));
        of.map(|i| match &program.kernels[i.kernel as usize].spec {
            KernelSpec::Contract(c) => match &c.epilogue {
                Some(e) => ("contract with an epilogue", c.rounds && e.halves == [2]),
                None => ("contract", c.rounds),
            },
            KernelSpec::AttendCached(a) | KernelSpec::Attend(a) => ("attend", a.rounds),
            KernelSpec::Rows(_) => ("rows", false),
            other => (other.kind(), false),
        })
        .collect()
    };
    // The norm, q, k, rotary positions, v (rounded into what is kept), o; the norm, gate, up, down.
    let expected = [
        ("rows", false),
        ("contract", false),
        ("contract", false),
        ("rows", false),
        ("contract", true),
        ("attend", true),
        ("contract", false),
        ("rows", false),
        ("contract", true),
        ("contract with an epilogue", true),
        ("contract", false),
    ];
    assert_eq!(launches(Target::Sm90a, EntryId::Decode), expected);
    let of_many = launches(Target::Sm90a, EntryId::Forward);
    assert!(of_many.contains(&("attend", true)));
    assert!(
        of_many
            .iter()
            .all(|(name, _)| *name != "contract with an epilogue")
    );
    // Processors have no such kernels.
    for target in [Target::Avx2, Target::Avx512, Target::Avx512Bf16] {
        for id in [EntryId::Decode, EntryId::Forward] {
            let launches = launches(target, id);
            assert!(launches.contains(&("attend", false)), "{target}");
            assert!(!launches.contains(&("attend", true)), "{target}");
            assert!(
                launches
                    .iter()
                    .all(|l| !l.0.starts_with("contract") || !l.1)
            );
        }
    }
}
