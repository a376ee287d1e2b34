//! Memory plans: no two values alive at the same time overlap, in-place updates only where kernels allow them, and
//! the checker sees what a wrong plan would do.

use odec_compiler::passes::launch_list::{BufferId, Launch, LaunchList, Placement};
use odec_compiler::passes::plan::{
    ALIGN, Block, CheckError, Lifetime, PlanError, check, lifetimes, place, plan,
};
use odec_program::expr::ReduceOp;
use odec_program::kernel::{KernelSpec, Rows, Store};
use odec_program::{Access, Bindings, Body, DType, Operand, Size, Slot};
use proptest::prelude::*;

const AT: Bindings = Bindings::new(2, 8);

/// A row kernel that adds its inputs into every output; the first input is read once more across the row if `twice`.
fn rows(cols: u64, inputs: usize, outputs: usize, twice: bool) -> KernelSpec {
    let mut body = Body::default();
    let full = Access::full(cols);
    let mut sum = body.konst(0.0);
    for i in 0..inputs as u32 {
        let x = body.load(i, full);
        sum = body.add(sum, x);
    }
    if twice && inputs > 0 {
        let swapped = Access {
            col: odec_program::expr::ColMap::HalfSwap(cols),
            ..full
        };
        let x = body.load(0, swapped);
        let total = body.reduce(ReduceOp::Sum, x);
        sum = body.add(sum, total);
    }
    let stores = (0..outputs as u32).map(|o| Store {
        operand: inputs as u32 + o,
        access: full,
        value: sum,
    });
    KernelSpec::Rows(Rows {
        dtype: DType::F32,
        cols,
        operands: vec![DType::F32; inputs + outputs],
        uniforms: 0,
        stores: stores.collect(),
        body,
    })
}

fn launch(cols: u64, inputs: &[BufferId], outputs: &[BufferId], twice: bool) -> Launch {
    Launch {
        spec: rows(cols, inputs.len(), outputs.len(), twice).into(),
        args: [inputs, outputs].concat(),
        dims: vec![
            Size {
                factor: 1,
                batch: 1,
                seq: 1,
                past: 0,
                recent: 0,
                source: 0,
            },
            Size::ONE,
        ],
        coeffs: vec![],
        site: Default::default(),
        guard: None,
        held: None,
    }
}

fn buffer(code: &mut LaunchList, cols: u64) -> BufferId {
    let name = format!("%{}", code.buffers.len());
    code.buffer(
        name,
        DType::F32,
        Size {
            factor: cols,
            batch: 1,
            seq: 1,
            past: 0,
            recent: 0,
            source: 0,
        },
        Placement::Arena,
    )
}

/// What a random launch reads (as numbers to pick from what exists), how many results it has, its width, and whether
/// it reads across the row.
type Recipe = (Vec<usize>, usize, u64, bool);

fn random_code(recipes: &[Recipe]) -> LaunchList {
    let mut code = LaunchList::default();
    let mut made: Vec<(BufferId, u64)> = vec![];
    for (reads, outputs, width, twice) in recipes {
        let cols = [2, 4, 16][*width as usize % 3];
        let mut inputs: Vec<BufferId> = Vec::new();
        for r in reads.iter().filter(|_| !made.is_empty()) {
            // Prefer recent values of the same width, so that lifetimes vary.
            let same: Vec<_> = made.iter().filter(|m| m.1 == cols).collect();
            let recent = same.len().checked_sub(1 + r % same.len().max(1));
            inputs.extend(recent.map(|i| same[i].0).filter(|b| !inputs.contains(b)));
        }
        let outputs: Vec<BufferId> = (0..*outputs).map(|_| buffer(&mut code, cols)).collect();
        code.launches.push(launch(cols, &inputs, &outputs, *twice));
        made.extend(outputs.into_iter().map(|b| (b, cols)));
    }
    code
}

proptest! {
    #[test]
    fn blocks_alive_together_lie_apart(
        blocks in prop::collection::vec((0u64..9, 0u32..20, 0u32..8), 0..40)
    ) {
        let blocks: Vec<Block> = blocks
            .into_iter()
            .map(|(size, first, length)| Block { bytes: size * ALIGN, life: Lifetime { first, last: first + length } })
            .collect();
        let (offsets, peak) = place(&blocks, &[]);
        for (i, a) in blocks.iter().enumerate() {
            prop_assert_eq!(offsets[i] % ALIGN, 0);
            prop_assert!(offsets[i] + a.bytes <= peak);
            for (j, b) in blocks.iter().enumerate().skip(i + 1) {
                let together = a.life.first <= b.life.last && b.life.first <= a.life.last && a.bytes.min(b.bytes) > 0;
                let apart = offsets[i] + a.bytes <= offsets[j] || offsets[j] + b.bytes <= offsets[i];
                prop_assert!(!together || apart, "{i} and {j}");
            }
        }
        for t in 0..28 {
            let alive = blocks.iter().filter(|b| (b.life.first..=b.life.last).contains(&t));
            prop_assert!(alive.map(|b| b.bytes).sum::<u64>() <= peak);
        }
    }

    #[test]
    fn every_plan_passes_the_checker(
        recipes in prop::collection::vec(
            (prop::collection::vec(0usize..6, 0..4), 1usize..3, 0u64..3, any::<bool>()), 1..40)
    ) {
        let code = random_code(&recipes);
        let layout = plan(&code, AT).unwrap();
        prop_assert_eq!(check(&code, &layout, AT), Ok(()));
        prop_assert!(layout.lower_bound <= layout.peak && layout.peak <= layout.unshared);
    }

    /// Gradients take no more than they would beside everything else, and nothing is written over them.
    #[test]
    fn gradients_share_the_arena(
        recipes in prop::collection::vec(
            (prop::collection::vec(0usize..6, 0..4), 1usize..3, 0u64..3, any::<bool>()), 1..40),
        some in 1usize..6,
    ) {
        let mut code = random_code(&recipes);
        let alone = plan(&code, AT).unwrap();
        // The last one made lies first.
        let mut end = 0;
        for b in code.buffers.iter_mut().rev().step_by(some) {
            b.home = gradient(end);
            end += b.bytes(AT).unwrap().next_multiple_of(ALIGN);
        }
        let layout = plan(&code, AT).unwrap();
        prop_assert_eq!(check(&code, &layout, AT), Ok(()));
        prop_assert!(end <= layout.peak && layout.lower_bound <= layout.peak);
        prop_assert!(layout.peak <= end + alone.peak);
    }

    /// Moving one value onto another that is alive must not go unnoticed.
    #[test]
    fn the_checker_sees_collisions(
        recipes in prop::collection::vec(
            (prop::collection::vec(0usize..6, 1..4), 1usize..3, 0u64..1, any::<bool>()), 4..20)
    ) {
        let code = random_code(&recipes);
        let layout = plan(&code, AT).unwrap();
        let lives: Vec<Lifetime> = lifetimes(&code).into_iter().flatten().collect();
        for (a, la) in lives.iter().enumerate() {
            // b begins while a is still to be read by a later launch.
            for (b, _) in lives.iter().enumerate().filter(|(_, lb)| la.first < lb.first && lb.first < la.last) {
                let mut wrong = layout.clone();
                wrong.offsets[b] = layout.offsets[a];
                prop_assert!(check(&code, &wrong, AT).is_err(), "{b} onto {a}");
            }
        }
    }
}

#[test]
fn a_map_writes_over_an_input_that_dies() {
    let mut code = LaunchList::default();
    let [a, b, c] = [0, 1, 2].map(|_| buffer(&mut code, 4));
    code.launches = vec![
        launch(4, &[], &[a], false),
        launch(4, &[a], &[b], false),
        launch(4, &[b], &[c], true),
    ];
    let layout = plan(&code, AT).unwrap();
    assert_eq!(layout.offsets[a.0 as usize], layout.offsets[b.0 as usize]);
    // The last kernel reads its input across the row as well: no in-place update.
    assert_ne!(layout.offsets[b.0 as usize], layout.offsets[c.0 as usize]);

    let mut wrong = layout.clone();
    wrong.offsets[c.0 as usize] = wrong.offsets[b.0 as usize];
    assert!(matches!(
        check(&code, &wrong, AT),
        Err(CheckError::Clash { launch: 2, .. })
    ));
}

/// A place in the gradients.
fn gradient(offset: u64) -> Placement {
    Placement::Fixed(Operand::at(Slot::Grads, offset))
}

#[test]
fn what_dies_before_a_gradient_is_written_lies_in_its_place() {
    let mut code = LaunchList::default();
    let [a, b, g, c, d] = [0; 5].map(|_| buffer(&mut code, 4));
    code.buffers[g.0 as usize].home = gradient(0);
    code.launches = vec![
        launch(4, &[], &[a], false),
        launch(4, &[a], &[b], true),
        launch(4, &[b], &[g], true),
        launch(4, &[b], &[c], true),
        launch(4, &[c], &[d], true),
    ];
    let layout = plan(&code, AT).unwrap();
    let at = |b: BufferId| layout.offsets[b.0 as usize].unwrap();
    assert_eq!((at(a), at(g)), (0, 0));
    assert!([b, c, d].iter().all(|b| at(*b) > 0));

    let mut wrong = layout.clone();
    wrong.offsets[d.0 as usize] = Some(0);
    let found = check(&code, &wrong, AT);
    assert!(
        matches!(found, Err(CheckError::Gradient { .. })),
        "{found:?}"
    );
}

#[test]
fn gradients_of_an_earlier_run_are_left_alone() {
    let mut code = LaunchList::default();
    let [all, part, a, b] = [0; 4].map(|_| buffer(&mut code, 4));
    code.buffers[all.0 as usize].home = gradient(0);
    code.buffers[part.0 as usize].home = gradient(0);
    code.launches = vec![
        launch(4, &[], &[a], false),
        launch(4, &[all, a], &[b], true),
        launch(4, &[part], &[b], true),
    ];
    let layout = plan(&code, AT).unwrap();
    let end = code.get(all).bytes(AT).unwrap();
    let at = |b: BufferId| layout.offsets[b.0 as usize].unwrap();
    assert_eq!(check(&code, &layout, AT), Ok(()));
    assert!(at(a) >= end && at(b) >= end);

    let mut wrong = layout.clone();
    wrong.offsets[a.0 as usize] = Some(0);
    assert!(matches!(
        check(&code, &wrong, AT),
        Err(CheckError::Gradient { .. })
    ));
}

#[test]
fn what_cannot_be_counted_or_held_is_an_error() {
    let mut code = LaunchList::default();
    let big = code.buffer(
        "big",
        DType::F32,
        Size {
            factor: 1 << 20,
            batch: 2,
            seq: 2,
            past: 0,
            recent: 0,
            source: 0,
        },
        Placement::Arena,
    );
    code.launches = vec![launch(4, &[], &[big], false)];
    let at = |batch, seq| Bindings::new(batch, seq);
    assert!(
        matches!(plan(&code, at(1 << 20, 1 << 20)), Err(PlanError::Overflow { name, .. }) if name == "big")
    );
    assert!(
        matches!(plan(&code, at(1 << 6, 1 << 6)), Err(PlanError::TooLarge { largest, .. }) if largest == "big")
    );
    assert_eq!(plan(&code, at(2, 2)).unwrap().peak, 1 << 26);
}
