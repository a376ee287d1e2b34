//! Which images are held out, and the order and changes of the others.

use super::{NUMBERS, PATCHES_OF_ONE, Place, SHAPE, all, arrays, npy, npz, opened, wanted};
use odec_program::manifest::{Flow, Images, Times};
use odec_program::names::{LABEL, PATCHES, TARGETS, TIME};
use odec_runtime::data::dataset::Draw;
use odec_runtime::{Batch, Dataset};
use std::collections::{BTreeMap, BTreeSet};

/// Images that differ in their first patch: the n-th is n / 1024 everywhere.
fn numbered(images: usize, percent: u32) -> (Place, Box<dyn Dataset>) {
    let p = Place::new();
    let first = |n: usize| (n as f32 / 1024.0).to_le_bytes().repeat(NUMBERS);
    let all: Vec<u8> = (0..images).flat_map(first).collect();
    let classes: Vec<u8> = (0..images).map(|n| (n * 10 / images) as u8).collect();
    let arrays = [
        ("images", npy("<f4", &format!("({images}, 4, 6)"), &all)),
        ("labels", npy("|u1", &format!("({images},)"), &classes)),
    ];
    let plain = Images {
        mean: 0.0,
        std: 1.0,
        ..SHAPE
    };
    let set = opened(&[p.write("n.npz", &npz(&arrays, true))], &plain, percent).unwrap();
    (p, set)
}

fn numbers_of(b: &Batch) -> Vec<usize> {
    let images = b.real(PATCHES).chunks(NUMBERS);
    images.map(|i| (1024.0 * i[0]) as usize).collect()
}

fn held_out(set: &dyn Dataset) -> Vec<usize> {
    all(set).iter().flat_map(numbers_of).collect()
}

#[test]
fn what_is_held_out_is_of_all_classes_and_always_the_same() {
    let (_place, set) = numbered(1000, 20);
    let held = held_out(&*set);
    assert_eq!((held.len(), set.held_out_rows(6)), (200, 200));
    assert!(held.is_sorted());
    // The files are sorted by class: of each there are about 20, with a deviation of 4.
    let mut classes = BTreeMap::new();
    held.iter()
        .for_each(|n| *classes.entry(n / 100).or_insert(0) += 1);
    assert!(
        classes.len() == 10 && classes.values().all(|n| (6..40).contains(n)),
        "{classes:?}"
    );
    assert_eq!(held, held_out(&*numbered(1000, 20).1));
    // A larger part has all of a smaller one, and so has the same part of more images nearly all.
    let larger: BTreeSet<usize> = held_out(&*numbered(1000, 40).1).into_iter().collect();
    assert!(held.iter().all(|n| larger.contains(n)));
    let more: BTreeSet<usize> = held_out(&*numbered(1010, 20).1).into_iter().collect();
    assert!(held.iter().filter(|n| more.contains(n)).count() > 190);
    // Some of them, evenly spread.
    let some = set
        .held_out_batches(64, 6, Some(10))
        .unwrap()
        .next()
        .unwrap();
    let every: Vec<usize> = held.iter().step_by(20).copied().collect();
    assert_eq!(numbers_of(&some.unwrap()), every);
}

#[test]
fn an_epoch_has_each_image_for_training_once_and_no_other() {
    for images in [10, 16, 17, 1000] {
        let (_place, set) = numbered(images, 20);
        let held: BTreeSet<usize> = held_out(&*set).into_iter().collect();
        let training = images - held.len();
        let draw = |seed, step| {
            let (seed, step, batch) = (seed, step, 4);
            Draw {
                seed,
                step,
                batch,
                tokens: None,
            }
        };
        let epochs = |seed: u64| -> Vec<usize> {
            let steps = (2 * training).div_ceil(4) as u64;
            let batches = (0..steps).map(|s| set.training_batch(draw(seed, s), 0..4, 6));
            let drawn = batches.flat_map(|b| numbers_of(&b.unwrap()));
            drawn.take(2 * training).collect()
        };
        let drawn = epochs(3);
        let (first, second) = drawn.split_at(training);
        for epoch in [first, second] {
            let once: BTreeSet<usize> = epoch.iter().copied().collect();
            assert_eq!(once.len(), training, "{images}");
            assert!(once.is_disjoint(&held), "{images}");
        }
        assert!(!first.is_sorted() && first != second && drawn != epochs(4));
        assert_eq!(drawn, epochs(3));
        // Micro-batches are parts of the same draw, any of which can be drawn alone.
        let whole = set.training_batch(draw(3, 7), 0..4, 6).unwrap();
        let later = set.training_batch(draw(3, 7), 2..4, 6).unwrap();
        assert_eq!(numbers_of(&whole)[2..], numbers_of(&later));
        assert_eq!(whole.whole(TARGETS)[2..], *later.whole(TARGETS));
        assert_ne!(whole.key, later.key);
    }
}

/// The image of a row, whose patches are as large as it.
fn row(b: &Batch, n: u64) -> &[f32] {
    &b.real(PATCHES)[n as usize * 48..][..48]
}

#[test]
fn images_for_training_are_shifted_and_flipped_by_their_draw() {
    let p = Place::new();
    // Numbers that tell images, pixels and channels apart; none is 0.
    let data: Vec<u8> = (0..20 * 48)
        .map(|n| (n / 48 + n % 48 * 4 + 1) as u8)
        .collect();
    let images = npy("|u1", "(20, 4, 4, 3)", &data);
    let labels = npy("|u1", "(20,)", &[0; 20]);
    let file = p.write("a.npz", &npz(&[("x", images), ("y", labels)], false));
    let shape = |crop, flip| Images {
        width: 4,
        patch: 4,
        channels: 3,
        crop,
        flip,
        ..SHAPE
    };
    let open = |crop, flip| opened(std::slice::from_ref(&file), &shape(crop, flip), 50).unwrap();
    let plain = open(0, false);
    let draw = |step| Draw {
        seed: 5,
        step,
        batch: 10,
        tokens: None,
    };
    let black = ((0.0 - SHAPE.mean) / SHAPE.std) as f32;
    // Image with y, x and channel from which a shifted one is read.
    let moved = |image: &[f32], (down, right, flip): (i64, i64, bool)| -> Vec<f32> {
        let at = |y: i64, x: i64, c: usize| match (0..4).contains(&y) && (0..4).contains(&x) {
            true => image[(y * 4 + if flip { 3 - x } else { x }) as usize * 3 + c],
            false => black,
        };
        let pixels = (0..4).flat_map(|y| (0..4).map(move |x| (y - down, x - right)));
        pixels
            .flat_map(|(y, x)| (0..3).map(move |c| at(y, x, c)))
            .collect()
    };
    for (crop, flip) in [(0, true), (2, false), (1, true)] {
        let set = open(crop, flip);
        let mut seen = BTreeMap::new();
        for step in 0..60 {
            let (old, new) = (
                plain.training_batch(draw(step), 0..10, 1),
                set.training_batch(draw(step), 0..10, 1),
            );
            let (old, new) = (old.unwrap(), new.unwrap());
            assert_eq!((old.whole(TARGETS), old.key), (new.whole(TARGETS), new.key));
            for n in 0..10 {
                let by = crop as i64;
                let all = (-by..=by)
                    .flat_map(|y| (-by..=by).flat_map(move |x| [false, true].map(|f| (y, x, f))));
                let found = all.filter(|to| moved(row(&old, n), *to) == row(&new, n));
                let found: Vec<_> = found.collect();
                assert_eq!(found.len(), 1, "one shift, and flipped or not");
                *seen.entry(found[0]).or_insert(0) += 1;
            }
            // A step can be drawn again, and a part of it alone.
            let part = set.training_batch(draw(step), 3..7, 1).unwrap();
            (3..7).for_each(|n| assert_eq!(row(&part, n - 3), row(&new, n)));
        }
        // Each of them, about as often as the others: 600 draws.
        let kinds = (2 * crop + 1).pow(2) * (1 + u64::from(flip));
        let (least, most) = (seen.values().min().unwrap(), seen.values().max().unwrap());
        let mean = 600 / kinds;
        assert!(
            seen.len() as u64 == kinds && *least > mean / 3 && *most < mean * 2,
            "{seen:?}"
        );
        // Those held out are as they are.
        let held_out = |set: &dyn Dataset| -> Vec<Batch> {
            set.held_out_batches(4, 1, None)
                .unwrap()
                .map(Result::unwrap)
                .collect()
        };
        assert_eq!(held_out(&*set), held_out(&*plain));
    }
    // Another seed draws other shifts of its own.
    let (set, other) = (open(2, true), Draw { seed: 6, ..draw(0) });
    let [a, b] = [draw(0), other].map(|d| set.training_batch(d, 0..10, 1).unwrap());
    assert_ne!(a, b);
}

/// A model with rows of its own is given as many empty ones behind the patches.
#[test]
fn rows_of_the_model_have_room() {
    let p = Place::new();
    let file = p.write("a.npz", &npz(&arrays(4), false));
    let shape = Images {
        leading: 1,
        ..SHAPE
    };
    let set = opened(&[file], &shape, 0).unwrap().all_held_out();
    let batch = set.held_out_batches(4, PATCHES_OF_ONE + 1, None).unwrap();
    let batch = batch.map(Result::unwrap).next().unwrap();
    assert_eq!((batch.rows, batch.columns), (4, 7));
    for (n, image) in batch.real(PATCHES).chunks_exact(NUMBERS + 4).enumerate() {
        assert_eq!(image[..NUMBERS], wanted(n, &SHAPE));
        assert_eq!(image[NUMBERS..], [0.0; 4]);
    }
}

/// Points between noise and images are those of their row and step, in whatever parts a step is drawn; a held-out image always has the same.
#[test]
fn points_between_noise_and_images_can_be_drawn_again() {
    let (_place, plain) = numbered(100, 20);
    let p = Place::new();
    let first = |n: usize| (n as f32 / 1024.0).to_le_bytes().repeat(NUMBERS);
    let all: Vec<u8> = (0..100).flat_map(first).collect();
    let classes: Vec<u8> = (0..100).map(|n| (n / 10) as u8).collect();
    let arrays = [
        ("images", npy("<f4", "(100, 4, 6)", &all)),
        ("labels", npy("|u1", "(100,)", &classes)),
    ];
    let file = p.write("n.npz", &npz(&arrays, true));
    let shape = Images {
        mean: 0.0,
        std: 1.0,
        leading: 2,
        flow: Some(Flow {
            times: Times::Uniform,
            labelled: true,
            dropped_percent: 0,
        }),
        ..SHAPE
    };
    let set = opened(&[file], &shape, 20).unwrap();
    let draw = |seed, step| Draw {
        seed,
        step,
        batch: 8,
        tokens: None,
    };
    let names = |b: &Batch| {
        b.inputs
            .iter()
            .map(|(name, _)| name.to_string())
            .collect::<Vec<_>>()
    };
    let whole = set.training_batch(draw(3, 7), 0..8, 8).unwrap();
    assert_eq!(names(&whole), [PATCHES, TIME, LABEL, TARGETS]);
    assert_eq!((whole.rows, whole.columns, whole.predicted), (8, 8, 8));
    // Image and noise of each row: x(t) + (1 − t) v and x(t) − t v. Behind them are two empty rows of four numbers.
    let images = plain.training_batch(draw(3, 7), 0..8, 6).unwrap();
    let length = NUMBERS + 8;
    for n in 0..8 {
        let row = |name| &whole.real(name)[n * length..][..length];
        let (x, v, t) = (row(PATCHES), row(TARGETS), whole.real(TIME)[n]);
        assert!((0.0..=1.0).contains(&t));
        for i in 0..NUMBERS {
            let data = images.real(PATCHES)[n * NUMBERS + i];
            assert!((x[i] + (1.0 - t) * v[i] - data).abs() < 1e-5);
        }
        assert!(x[NUMBERS..].iter().chain(&v[NUMBERS..]).all(|x| *x == 0.0));
        let class = images.whole(TARGETS)[n] as usize;
        let label: Vec<f32> = (0..10).map(|c| f32::from(u8::from(c == class))).collect();
        assert_eq!(whole.real(LABEL)[10 * n..][..10], label);
    }
    // Some labels are left out in training, none of what is held out.
    let less = Images {
        flow: shape.flow.map(|flow| Flow {
            dropped_percent: 50,
            ..flow
        }),
        ..shape.clone()
    };
    let less = opened(&[p.at("n.npz")], &less, 20).unwrap();
    let told = |b: &Batch| -> Vec<bool> {
        let rows = b.real(LABEL).chunks(10);
        rows.map(|row| row.contains(&1.0)).collect()
    };
    let batch = less.training_batch(draw(3, 7), 0..8, 8).unwrap();
    for n in 0..8 {
        let [some, all] = [&batch, &whole].map(|b| &b.real(LABEL)[10 * n..][..10]);
        assert!(some == all || some.iter().all(|x| *x == 0.0));
    }
    let of = |step| told(&less.training_batch(draw(3, step), 0..8, 8).unwrap());
    let many: Vec<bool> = (0..20).flat_map(of).collect();
    assert!(many.contains(&true) && many.contains(&false));
    assert_eq!(batch.real(PATCHES), whole.real(PATCHES));
    let held = less.held_out_batches(20, 8, None).unwrap();
    assert!(
        held.map(Result::unwrap)
            .all(|b| told(&b).into_iter().all(|t| t))
    );
    // A part of a step is a part of its numbers; other steps and seeds have others.
    let later = set.training_batch(draw(3, 7), 5..8, 8).unwrap();
    for (name, each) in [(PATCHES, length), (TIME, 1), (LABEL, 10), (TARGETS, length)] {
        assert_eq!(whole.real(name)[5 * each..], *later.real(name), "{name}");
    }
    for other in [draw(3, 8), draw(4, 7)] {
        let other = set.training_batch(other, 0..8, 8).unwrap();
        assert!(
            other
                .real(TIME)
                .iter()
                .all(|t| !whole.real(TIME).contains(t))
        );
    }
    // Held out, whatever stands beside an image.
    let held_out = |rows, most| -> Vec<Batch> {
        let all = set.held_out_batches(rows, 8, most).unwrap();
        all.map(Result::unwrap).collect()
    };
    let together = |name, batches: &[Batch]| -> Vec<f32> {
        batches.iter().flat_map(|b| b.real(name).to_vec()).collect()
    };
    for name in [PATCHES, TIME, LABEL, TARGETS] {
        let (all, one) = (held_out(20, None), held_out(1, None));
        assert_eq!(together(name, &all), together(name, &one), "{name}");
    }
    let some = together(TIME, &held_out(20, Some(4)));
    let every = together(TIME, &held_out(20, None)).into_iter().step_by(5);
    assert_eq!(some, every.collect::<Vec<_>>());
}
