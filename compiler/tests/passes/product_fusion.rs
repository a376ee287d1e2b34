//! Sums of products as one contraction: what joins, what must not, and that results keep their bits.

use crate::epilogue_fusion::contraction;
use crate::memory::{AT, model};
use crate::numbers::{executor, results};
use crate::source::built;
use odec_compiler::passes::fuse::Fusion;
use odec_compiler::passes::launch_list::{BufferId, Launch, LaunchList, Placement};
use odec_compiler::passes::product_fusion::fuse_products;
use odec_compiler::passes::{Assembled, ModelParts, Options, assemble};
use odec_graph::Shared;
use odec_program::gpu::tensor::warpgroup::Tokens;
use odec_program::kernel::{Contract, Extent, Layout, Terms};
use odec_program::{DType, KernelSpec, Operand, Site, Size, Slot, Target};

/// Inner length and columns.
const WIDE: u64 = 64;

fn options() -> Options {
    Options::of(Target::Sm90a, DType::F32)
}

fn evaluation(number: u32) -> Shared<Site> {
    let site = Site {
        evaluation: Some(number),
        ..Site::default()
    };
    site.into()
}

/// The sum of so many products of activations and weights, each added onto what the one before has written: a launch each.
fn sum(products: usize) -> LaunchList {
    let mut code = LaunchList::default();
    let state = Size {
        factor: WIDE,
        ..Size::TOKENS
    };
    let out = code.buffer("sum", DType::F32, state, Placement::Arena);
    for n in 0..products as u64 {
        let weights = Placement::Fixed(Operand::at(Slot::Rounded, n * WIDE * WIDE * 2));
        let a = code.buffer("a", DType::Bf16, state, Placement::Arena);
        let b = code.buffer("b", DType::Bf16, Size::fixed(WIDE * WIDE), weights);
        let contract = Contract {
            a: DType::Bf16,
            b: DType::Bf16,
            layout: Layout::Rows,
            accumulate: n > 0,
            ..contraction(WIDE, WIDE)
        };
        code.launches.push(Launch {
            spec: KernelSpec::Contract(contract).into(),
            args: vec![a, b, out],
            dims: vec![Size::TOKENS, Size::fixed(WIDE), Size::fixed(WIDE)],
            coeffs: vec![],
            site: evaluation(0),
            guard: None,
            held: None,
        });
    }
    code
}

/// The terms of each contraction that is left.
fn terms(code: LaunchList) -> Vec<u32> {
    let left = fuse_products(code, options().tiling).launches;
    let of = |l: &Launch| match &*l.spec {
        KernelSpec::Contract(c) => Some(c.terms.0),
        _ => None,
    };
    left.iter().filter_map(of).collect()
}

#[test]
fn products_that_are_added_up_become_one() {
    let before = sum(3);
    let after = fuse_products(before.clone(), options().tiling);
    let [joined] = &after.launches[..] else {
        panic!("{:?}", after.launches)
    };
    let args: Vec<BufferId> = before
        .launches
        .iter()
        .flat_map(|l| l.args[..2].to_vec())
        .collect();
    assert_eq!(joined.args[..6], args);
    assert_eq!(joined.args[6], before.launches[0].args[2]);
    let KernelSpec::Contract(c) = &*joined.spec else {
        unreachable!("it was one")
    };
    assert_eq!((c.terms, c.accumulate), (Terms(3), false));
    assert_eq!(joined.spec.validate(), Ok(()));

    // What the first adds onto stays.
    let mut onto = before;
    let mut first = (*onto.launches[0].spec).clone();
    if let KernelSpec::Contract(c) = &mut first {
        c.accumulate = true;
    }
    onto.launches[0].spec = first.into();
    let after = fuse_products(onto, options().tiling);
    assert!(matches!(&*after.launches[0].spec, KernelSpec::Contract(c) if c.accumulate));
    // As many as a kernel takes.
    assert_eq!(terms(sum(6)), [Terms::MOST, 2]);
}

#[test]
fn products_stay_apart_where_they_must() {
    let apart = |change: &dyn Fn(&mut LaunchList)| {
        let mut code = sum(2);
        change(&mut code);
        terms(code)
    };
    assert_eq!(apart(&|_| {}), [2]);
    // Of another evaluation, or of none.
    assert_eq!(apart(&|code| code.launches[1].site = evaluation(1)), [1, 1]);
    let nowhere = |code: &mut LaunchList| {
        for l in &mut code.launches {
            l.site = Site::default().into();
        }
    };
    assert_eq!(apart(&nowhere), [1, 1]);
    // Another launch between the two, which reads or writes what is at a place among their arguments: 0 is a factor, 2 the sum.
    let between = |code: &mut LaunchList, own: usize, theirs: usize| {
        let mut other = sum(1).launches.remove(0);
        let state = code.get(code.launches[0].args[0]).size;
        let new = |code: &mut LaunchList, dtype| code.buffer("x", dtype, state, Placement::Arena);
        let (x, y) = (new(code, DType::Bf16), new(code, DType::Bf16));
        other.args = vec![x, y, new(code, DType::F32)];
        other.args[own] = code.launches[0].args[theirs];
        code.launches.insert(1, other);
    };
    assert_eq!(apart(&|code| between(code, 0, 0)), [1, 2]);
    assert_eq!(apart(&|code| between(code, 2, 0)), [1, 1, 1]);
    assert_eq!(apart(&|code| between(code, 0, 2)), [1, 1, 1]);
    // A row of no whole pieces of 16 bytes does not come by a tensor map.
    let uneven = |code: &mut LaunchList| {
        for l in &mut code.launches {
            let mut spec = (*l.spec).clone();
            if let KernelSpec::Contract(c) = &mut spec {
                c.k = Extent::Static(WIDE - 4);
            }
            l.spec = spec.into();
        }
    };
    assert_eq!(apart(&uneven), [1, 1]);
    // Other targets have no such kernels, nor has an entry that reads tokens.
    for warpgroups in [None, Some(Tokens::Few)] {
        let mut tiling = options().tiling;
        tiling.warpgroups = warpgroups;
        assert_eq!(fuse_products(sum(2), tiling), sum(2));
    }
}

fn assembled(fusion: Fusion) -> Assembled {
    let (_, text) = model("lie(att, ffn)", 2, "store;  precision bf16");
    // Wide enough for tensor cores, in whole pieces of 16 bytes.
    let text = text
        .replace("width: 12", "width: 64")
        .replace("hidden: 20", "hidden: 24");
    let options = Options {
        fusion,
        ..options()
    };
    assemble(&ModelParts::new(&built(&text), &text), options).expect("it fits")
}

/// The gradient of what queries, keys and values are made of has three terms, that of gate and up two; results have the bits of
/// contractions one after the other.
#[test]
fn gradients_of_a_layer_are_sums_of_products() {
    let [joined, apart] = [Fusion::On, Fusion::Off].map(assembled);
    let program = &joined.manifest.program;
    let terms = |i: &odec_program::Instr| match &program.kernels[i.kernel as usize].spec {
        KernelSpec::Contract(c) if c.terms != Terms::ONE => Some(c.terms.0),
        _ => None,
    };
    let grad: Vec<u32> = program.entries["grad"]
        .instrs
        .iter()
        .filter_map(terms)
        .collect();
    assert_eq!(grad, [2, 3, 2, 3]);
    let [joined, apart] = [joined, apart].map(|a| results(&mut executor(&a.manifest), AT, 256));
    assert_eq!(joined, apart);
}
