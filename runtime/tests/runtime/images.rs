//! Files of images: what is read of them, in which order, and what is refused.

use crate::support::{self, SIDE, VOCAB, WIDTH};
use flate2::Compression;
use flate2::write::GzEncoder;
use odec_program::manifest::{Data, Flow, Form, Images, Times};
use odec_program::names::{LABEL, PATCHES, TARGETS, TIME};
use odec_runtime::data::dataset::{Draw, Unit};
use odec_runtime::data::{DataError, Source, sources};
use odec_runtime::device::rng::Stream;
use odec_runtime::infer::evaluate::judge;
use odec_runtime::parameters::checkpoint::{self, Checkpoint};
use odec_runtime::system::owned::{CHECKPOINT, METRICS};
use odec_runtime::{
    Artifact, Batch, Dataset, DeviceChoice, Executor, Run, Sampling, Settings, Show, State,
    Tokenizer, dataset_of, exec, generate, open_run, resume, train,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Cursor, Write};
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

/// Images of 4 × 6 with two patches of 2 × 2 above each other and three beside each other.
const SHAPE: Images = Images {
    height: 4,
    width: 6,
    channels: 1,
    patch: 2,
    classes: 10,
    mean: 0.25,
    std: 0.5,
    crop: 0,
    flip: false,
    leading: 0,
    flow: None,
};
const NUMBERS: usize = 24;
const PATCHES_OF_ONE: u64 = 6;

struct Place(TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.at(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }
}

fn opened(
    files: &[PathBuf],
    shape: &Images,
    held_out_percent: u32,
) -> Result<Box<dyn Dataset>, DataError> {
    let data = Data {
        files: files.iter().map(|f| f.display().to_string()).collect(),
        form: Form::Images(shape.clone()),
        held_out_percent,
    };
    let source = Source {
        data: &data,
        tokenizer: &Tokenizer::bytes(),
        cache: Path::new("/nowhere"),
        context: 16,
        show: Show::Nothing,
    };
    sources::open(source, shape.classes)
}

/// Image n: every pixel is n, but the one at its own place.
fn pixels(n: usize) -> Vec<u8> {
    let mut image = vec![n as u8; NUMBERS];
    image[n % NUMBERS] = 255;
    image
}

pub fn npy(kind: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let head = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}\n");
    let length = (head.len() as u16).to_le_bytes();
    [b"\x93NUMPY\x01\0", &length[..], head.as_bytes(), data].concat()
}

fn idx(shape: &[u32], data: &[u8]) -> Vec<u8> {
    let lengths = shape.iter().flat_map(|n| n.to_be_bytes());
    let head = [0, 0, 8, shape.len() as u8].into_iter().chain(lengths);
    head.chain(data.iter().copied()).collect()
}

fn gz(data: &[u8]) -> Vec<u8> {
    let mut out = GzEncoder::new(vec![], Compression::fast());
    out.write_all(data).unwrap();
    out.finish().unwrap()
}

pub fn npz(arrays: &[(&str, Vec<u8>)], packed: bool) -> Vec<u8> {
    let mut out = ZipWriter::new(Cursor::new(vec![]));
    let method = match packed {
        true => CompressionMethod::Deflated,
        false => CompressionMethod::Stored,
    };
    let options = SimpleFileOptions::default().compression_method(method);
    for (name, data) in arrays {
        out.start_file(format!("{name}.npy"), options).unwrap();
        out.write_all(data).unwrap();
    }
    out.finish().unwrap().into_inner()
}

fn png(width: u32, height: u32, color: png::ColorType, data: &[u8]) -> Vec<u8> {
    let mut out = vec![];
    let mut encoder = png::Encoder::new(&mut out, width, height);
    encoder.set_color(color);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header().unwrap();
    writer.write_image_data(data).unwrap();
    writer.finish().unwrap();
    out
}

fn grey(n: usize) -> Vec<u8> {
    png(6, 4, png::ColorType::Grayscale, &pixels(n))
}

/// `images` and `labels` of so many images, in order, of classes n % 10.
fn arrays(images: usize) -> [(&'static str, Vec<u8>); 2] {
    let all: Vec<u8> = (0..images).flat_map(pixels).collect();
    let classes: Vec<u8> = (0..images).map(|n| (n % 10) as u8).collect();
    [
        ("images", npy("|u1", &format!("({images}, 4, 6)"), &all)),
        ("labels", npy("|u1", &format!("({images},)"), &classes)),
    ]
}

fn all(set: &dyn Dataset) -> Vec<Batch> {
    let batches = set.held_out_batches(4, PATCHES_OF_ONE, None).unwrap();
    batches.map(Result::unwrap).collect()
}

/// What image n must be in a batch.
fn wanted(n: usize, shape: &Images) -> Vec<f32> {
    let image = pixels(n);
    let mut out = vec![];
    for (top, left) in [(0, 0), (0, 2), (0, 4), (2, 0), (2, 2), (2, 4)] {
        for (y, x) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let grey = f64::from(image[(top + y) * 6 + left + x]) / 255.0;
            out.push(((f64::from(grey as f32) - shape.mean) / shape.std) as f32);
        }
    }
    out
}

/// All of some files, as if they were held out: images 0 to 11.
fn reads_twelve(files: &[PathBuf], shape: &Images) {
    let set = opened(files, shape, 0).unwrap();
    assert_eq!(
        (set.unit(), set.len(), set.held_out_rows(1)),
        (Unit::Images, 12, 0)
    );
    let set = set.all_held_out();
    let batches = all(&*set);
    let rows: Vec<u64> = batches.iter().map(|b| b.rows).collect();
    assert_eq!(rows, [4, 4, 4]);
    let numbers: Vec<f32> = batches
        .iter()
        .flat_map(|b| b.real(PATCHES).to_vec())
        .collect();
    let classes: Vec<i32> = batches
        .iter()
        .flat_map(|b| b.whole(TARGETS).to_vec())
        .collect();
    for n in 0..12 {
        let image = &numbers[n * NUMBERS..(n + 1) * NUMBERS];
        assert_eq!(image, wanted(n, shape), "{files:?}, image {n}");
    }
    let classes: Vec<usize> = classes.iter().map(|c| *c as usize).collect();
    assert_eq!(classes, (0..12).map(|n| n % 10).collect::<Vec<_>>());
}

#[test]
fn the_same_images_are_read_from_files_of_all_kinds() {
    let p = Place::new();
    let [images, labels] = arrays(12).map(|(_, bytes)| bytes);
    for packed in [false, true] {
        reads_twelve(&[p.write("a.npz", &npz(&arrays(12), packed))], &SHAPE);
    }
    let [(_, i), (_, l)] = arrays(12);
    let keras = [("x_test", vec![]), ("y_train", l), ("x_train", i)];
    reads_twelve(&[p.write("k.npz", &npz(&keras, true))], &SHAPE);
    p.write("labels.npy", &labels);
    reads_twelve(&[p.write("images.npy", &images)], &SHAPE);
    // Real numbers, classes of other widths, a column of them.
    let plain: Vec<u8> = (0..12).flat_map(pixels).collect();
    let of = |number: fn(f32) -> Vec<u8>| -> Vec<u8> {
        let numbers = plain.iter().map(|b| f32::from(*b) / 255.0);
        numbers.flat_map(number).collect()
    };
    let four = npy("<f4", "(12, 4, 6, 1)", &of(|x| x.to_le_bytes().into()));
    let eight = npy(
        "<f8",
        "(12, 4, 6)",
        &of(|x| f64::from(x).to_le_bytes().into()),
    );
    let wide: Vec<u8> = (0..12i64).flat_map(|n| (n % 10).to_le_bytes()).collect();
    p.write("y_train.npy", &npy("<i8", "(12, 1)", &wide));
    reads_twelve(&[p.write("x_train.npy", &four)], &SHAPE);
    p.write("y.npy", &npy("<i8", "(12,)", &wide));
    reads_twelve(&[p.write("x.npy", &eight)], &SHAPE);
    // IDX, plain and packed.
    let classes: Vec<u8> = (0..12).map(|n| n % 10).collect();
    let (images, labels) = (idx(&[12, 4, 6], &plain), idx(&[12], &classes));
    p.write("train-labels-idx1-ubyte", &labels);
    reads_twelve(&[p.write("train-images-idx3-ubyte", &images)], &SHAPE);
    p.write("t10k-labels.idx1-ubyte.gz", &gz(&labels));
    reads_twelve(
        &[p.write("t10k-images.idx3-ubyte.gz", &gz(&images))],
        &SHAPE,
    );
    // Several files follow one another.
    let part = |from: usize, to: usize| {
        let plain: Vec<u8> = (from..to).flat_map(pixels).collect();
        let n = to - from;
        let images = npy("|u1", &format!("({n}, 4, 6)"), &plain);
        let labels = npy("|u1", &format!("({n},)"), &classes[from..to]);
        npz(&[("x", images), ("y", labels)], true)
    };
    let files = [
        p.write("1.npz", &part(0, 5)),
        p.write("2.npz", &part(5, 12)),
    ];
    reads_twelve(&files, &SHAPE);
}

#[test]
fn folders_of_pictures_are_classes_in_the_order_of_their_names() {
    let p = Place::new();
    // In the order of names: classes 0 to 9, with images 0 and 10, 1 and 11, 2, 3 …
    for n in 0..12 {
        p.write(
            &format!(
                "digits/{}/{n:02}.PNG",
                ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"][n % 10]
            ),
            &grey(n),
        );
    }
    p.write("digits/.hidden", b"");
    let set = opened(&[p.at("digits")], &SHAPE, 0).unwrap();
    let before = set.files().to_vec();
    let batches = all(&*set.all_held_out());
    let classes: Vec<i32> = batches
        .iter()
        .flat_map(|b| b.whole(TARGETS).to_vec())
        .collect();
    assert_eq!(classes, [0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    let numbers: Vec<f32> = batches
        .iter()
        .flat_map(|b| b.real(PATCHES).to_vec())
        .collect();
    for (place, n) in [0, 10, 1, 11, 2, 3, 4, 5, 6, 7, 8, 9]
        .into_iter()
        .enumerate()
    {
        let image = &numbers[place * NUMBERS..(place + 1) * NUMBERS];
        assert_eq!(image, wanted(n, &SHAPE), "image {n}");
    }
    // What is in the files is what a folder is known by.
    p.write("digits/c/02.PNG", &grey(3));
    let after = opened(&[p.at("digits")], &SHAPE, 0).unwrap();
    assert!(after.files()[0].change(&before[0]).is_some());
    // In colour: red, green and blue of a pixel stand beside each other.
    let colour = Images {
        channels: 3,
        patch: 4,
        width: 4,
        mean: 0.0,
        std: 1.0,
        ..SHAPE
    };
    let data: Vec<u8> = (0..48).collect();
    p.write("colour/x/1.png", &png(4, 4, png::ColorType::Rgb, &data));
    let set = opened(&[p.at("colour")], &colour, 0)
        .unwrap()
        .all_held_out();
    let found: Vec<f32> = data.iter().map(|n| f32::from(*n) / 255.0).collect();
    let batch = set.held_out_batches(1, 1, None).unwrap().next().unwrap();
    assert_eq!(batch.unwrap().real(PATCHES), found);
}

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
            Draw { seed, step, batch }
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

/// What is printed where some files are read, without the name of the folder.
fn refusal(p: &Place, file: &Path, shape: &Images) -> String {
    let set = opened(&[file.to_path_buf()], shape, 0);
    let batch = set.and_then(|set| {
        let draw = Draw {
            seed: 0,
            step: 0,
            batch: 12,
        };
        set.training_batch(draw, 0..12, PATCHES_OF_ONE)
    });
    let e = batch.expect_err("it is refused").to_string();
    e.replace(&p.0.path().display().to_string(), "")
}

#[test]
fn damaged_and_odd_files_are_named() {
    let p = Place::new();
    let [images, labels] = arrays(12).map(|(_, bytes)| bytes);
    let mut said = vec![];
    let mut refused = |file: PathBuf| said.push(refusal(&p, &file, &SHAPE));
    refused(p.at("nowhere.npz"));
    refused(p.at("nowhere"));
    refused(p.write("empty.npz", b""));
    refused(p.write(
        "text.npz",
        b"no archive at all, though it is long enough to look for one",
    ));
    let whole = npz(&arrays(12), true);
    refused(p.write("cut.npz", &whole[..whole.len() / 2]));
    refused(p.write("names.npz", &npz(&[("pictures", images.clone())], false)));
    let pair = |images: Vec<u8>, labels: Vec<u8>| npz(&[("x", images), ("y", labels)], true);
    let u1 = |shape: &str, n: usize| npy("|u1", shape, &vec![0; n]);
    for (name, images, labels) in [
        ("head", b"\x93NUMPY\x01\0\xff\xff{".to_vec(), labels.clone()),
        ("version", b"\x93NUMPY\x09\0".to_vec(), labels.clone()),
        ("no_npy", b"elements".to_vec(), labels.clone()),
        (
            "nested",
            npy("|u1", &"(".repeat(60_000), &[]),
            labels.clone(),
        ),
        ("records", npy("|V8", "(12, 4, 6)", &[]), labels.clone()),
        ("whole", npy("<i4", "(1, 4, 6)", &[0; 96]), u1("(1,)", 1)),
        ("short", npy("|u1", "(12, 4, 6)", &[0; 200]), labels.clone()),
        ("long", npy("|u1", "(12, 4, 6)", &[0; 300]), labels.clone()),
        ("size", u1("(12, 6, 4)", 288), labels.clone()),
        ("channels", u1("(12, 4, 6, 3)", 864), labels.clone()),
        ("flat", u1("(12, 24)", 288), labels.clone()),
        ("none", u1("(0, 4, 6)", 0), u1("(0,)", 0)),
        ("counts", images.clone(), u1("(11,)", 11)),
        ("floats", images.clone(), npy("<f4", "(12,)", &[0; 48])),
        (
            "class",
            images.clone(),
            npy("|u1", "(12,)", &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0]),
        ),
        ("negative", images.clone(), npy("|i1", "(12,)", &[255; 12])),
        (
            "nan",
            npy("<f4", "(12, 4, 6)", &f32::NAN.to_le_bytes().repeat(288)),
            labels.clone(),
        ),
        (
            "beyond",
            npy("<f8", "(12, 4, 6)", &1.5f64.to_le_bytes().repeat(288)),
            labels.clone(),
        ),
        (
            "below",
            npy("<f4", "(12, 4, 6)", &(-0.25f32).to_le_bytes().repeat(288)),
            labels.clone(),
        ),
    ] {
        refused(p.write(&format!("{name}.npz"), &pair(images, labels)));
    }
    let turned = npy("|u1", "(12, 4, 6)", &[0; 288]);
    let at = turned.windows(5).position(|w| w == b"False").unwrap();
    let turned = [&turned[..at], b"True ", &turned[at + 5..]].concat();
    refused(p.write("fortran.npz", &pair(turned, labels.clone())));
    // Files beside each other.
    refused(p.write("alone-images.npy", &images));
    refused(p.write("pictures.npy", &images));
    p.write("cut-labels.npy", &labels);
    refused(p.write("cut-images.npy", &images[..images.len() - 1]));
    refused(p.write("notes.txt", b"these are no images"));
    refused(p.write("wide-images-idx3", &[0, 0, 13, 3]));
    refused(p.write("cut-images-idx3", &[0, 0, 8, 3, 0, 0]));
    refused(p.write("bad-images-idx3.gz", b"\x1f\x8b\x08\0no deflate"));
    // Folders.
    fs::create_dir(p.at("bare")).unwrap();
    refused(p.at("bare"));
    p.write("gap/a/1.png", &grey(1));
    fs::create_dir(p.at("gap/b")).unwrap();
    p.write("gap/c/2.png", &grey(2));
    refused(p.at("gap"));
    p.write("flat/1.png", &grey(1));
    refused(p.at("flat"));
    p.write("photo/a/1.jpg", &grey(1));
    refused(p.at("photo"));
    (0..11).for_each(|n| drop(p.write(&format!("many/{n:02}/1.png"), &grey(1))));
    refused(p.at("many"));
    p.write("cut/a/1.png", &grey(1));
    p.write("cut/a/2.png", &grey(1)[..60]);
    p.write("cut/b/3.png", b"");
    refused(p.at("cut"));
    fs::remove_dir_all(p.at("cut/b")).unwrap();
    refused(p.at("cut"));
    let small = png(4, 4, png::ColorType::Grayscale, &[0; 16]);
    p.write("small/a/1.png", &small);
    refused(p.at("small"));
    p.write("clear/a/1.png", &png(6, 4, png::ColorType::Rgba, &[0; 96]));
    refused(p.at("clear"));
    insta::assert_snapshot!(said.join("\n"));
}

#[test]
fn what_a_file_says_of_itself_takes_no_memory() {
    let p = Place::new();
    let [_, labels] = arrays(12).map(|(_, bytes)| bytes);
    let refused = |name: &str, bytes: &[u8], why: &str| {
        let said = refusal(&p, &p.write(name, bytes), &SHAPE);
        assert!(said.contains(why), "{name}: {said}");
    };
    let claim = |shape: &str, data: &[u8]| {
        npz(
            &[("x", npy("|u1", shape, data)), ("y", labels.clone())],
            true,
        )
    };
    // More than there is memory for, more than 64 bits say, and what is not there.
    refused(
        "much.npz",
        &claim("(99999999999, 4, 6)", &[]),
        "that are unpacked",
    );
    refused(
        "over.npz",
        &claim("(18446744073709551615, 4, 6)", &[]),
        "that are unpacked",
    );
    refused(
        "missing.npz",
        &claim("(170000000, 4, 6)", &[1; 100]),
        "is cut short",
    );
    // A thousand times as many bytes unpacked as packed: no more are read than the head says.
    let bomb = claim("(2, 4, 6)", &vec![0; 64 << 20]);
    assert!(bomb.len() < 1 << 17);
    refused("bomb.npz", &bomb, "it has more than the 48 bytes");
    p.write("bomb-labels-idx1.gz", &gz(&idx(&[1], &[0])));
    let bomb = gz(&idx(&[1, 4, 6], &vec![0; 64 << 20]));
    refused(
        "bomb-images-idx3.gz",
        &bomb,
        "it has more than the 24 bytes",
    );
    // A picture of four thousand million pixels, in the head alone.
    let mut huge = grey(1);
    huge[16..24].copy_from_slice(&[0, 1, 0, 0, 0, 1, 0, 0]);
    let mut sum = flate2::Crc::new();
    sum.update(&huge[12..29]);
    huge[29..33].copy_from_slice(&sum.sum().to_be_bytes());
    p.write("huge/a/1.png", &huge);
    let said = refusal(&p, &p.at("huge"), &SHAPE);
    let wanted = "/huge/a/1.png: it is an image of 65536 × 65536 with 1 channel; this model reads 4 × 6 with 1 channel";
    assert_eq!(said, wanted);
    // The longest head of version 2.
    let long = [&b"\x93NUMPY\x02\0\xff\xff\xff\xff"[..], b"{'descr'"].concat();
    refused(
        "long.npz",
        &npz(&[("x", long), ("y", labels.clone())], true),
        "longer than 64 KiB",
    );
}

#[test]
fn a_file_that_changes_while_it_is_read_is_named() {
    let p = Place::new();
    let [images, labels] = arrays(12).map(|(_, bytes)| bytes);
    p.write("labels.npy", &labels);
    let file = p.write("images.npy", &images);
    let set = opened(&[file], &SHAPE, 0).unwrap();
    let draw = Draw {
        seed: 0,
        step: 0,
        batch: 4,
    };
    assert!(set.training_batch(draw, 0..4, 6).is_ok());
    p.write("images.npy", &images[..images.len() - 100]);
    let e = set.training_batch(draw, 0..4, 6).unwrap_err();
    assert!(matches!(e, DataError::Altered { .. }), "{e}");
}

/// Pictures of ten classes, drawn: two bright pixels of sixteen say which, the others are noise.
fn drawn(p: &Place, images: usize) -> PathBuf {
    let noise = Stream::new(5, "drawn");
    let pixel = |n: usize, i: usize| {
        let bright = i == n % 10 || i == n % 10 + 5;
        let dark = noise.below((n * 16 + i) as u64, 90) as u8;
        if bright { 255 - dark } else { dark }
    };
    let all: Vec<u8> = (0..images)
        .flat_map(|n| (0..16).map(move |i| pixel(n, i)))
        .collect();
    let classes: Vec<u8> = (0..images).map(|n| (n % 10) as u8).collect();
    let arrays = [
        (
            "images",
            npy("|u1", &format!("({images}, {SIDE}, {SIDE})"), &all),
        ),
        ("labels", npy("|u1", &format!("({images},)"), &classes)),
    ];
    p.write("drawn.npz", &npz(&arrays, true))
}

/// The tensors of a run, without the header, whose seconds differ.
fn tensors(run: &Path) -> Vec<u8> {
    let bytes = fs::read(run.join(CHECKPOINT)).unwrap();
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    bytes[8 + header..].to_vec()
}

#[test]
fn a_model_of_images_learns_resumes_to_the_bit_and_is_judged() {
    let p = Place::new();
    let artifact = Artifact::in_memory(support::images()).unwrap();
    let settings = Settings {
        data: vec![drawn(&p, 120)],
        device: DeviceChoice::Reference,
        show: Show::Nothing,
        evaluations: 4,
        held_out_windows: 12,
        ..Settings::default()
    };
    let summary = train(&artifact, &p.at("run"), &settings).unwrap();
    let held_out = summary.held_out.unwrap();
    assert_eq!(
        (held_out.of.number(), held_out.of.unit()),
        (12, Unit::Images)
    );
    let accuracy = held_out.accuracy.unwrap();
    // Guessing would tell a tenth.
    assert!(accuracy > 0.7, "{held_out:?}");
    let metrics = fs::read_to_string(p.at("run").join(METRICS)).unwrap();
    let (step, look) = (r#""images_per_s":"#, r#""images":12,"accuracy":"#);
    assert!(
        metrics.contains(step) && metrics.contains(look),
        "{metrics}"
    );
    assert!(!metrics.contains("tokens"), "{metrics}");

    // Stopped after some steps and continued, from its folder alone: before the 108 images for training are all drawn, and after.
    let half = p.at("half");
    let alone = Settings {
        data: vec![],
        ..settings.clone()
    };
    for (steps, images) in [(30, 120), (17, 68)] {
        let _ = fs::remove_dir_all(&half);
        let mut begun = Run::start(&artifact, &half, &settings).unwrap();
        (0..steps).for_each(|_| drop(begun.step().unwrap()));
        assert_eq!(begun.progress().step * support::BATCH, images);
        begun.save().unwrap();
        drop(begun);
        let whole = resume(&half, &alone).unwrap();
        assert!(whole.steps * support::BATCH > 108);
        assert!(tensors(&half) == tensors(&p.at("run")), "{steps}");
    }

    let mut x = open_run(&half, DeviceChoice::Reference, None).unwrap();
    let set = dataset_of(&half, &[], Show::Nothing).unwrap();
    let (e, table) = judge(&mut x, &*set, None, &mut |_| {}).unwrap();
    assert_eq!((e.of.number(), e.accuracy), (12, Some(accuracy)));
    let table = table.unwrap();
    let all: u64 = table.counts().map(|(_, _, n)| n).sum();
    let correct = table.counts().filter(|(class, of, _)| *of == Some(*class));
    let correct: u64 = correct.map(|(_, _, n)| n).sum();
    assert_eq!((all, correct as f64 / 12.0), (12, accuracy));
    // All of files of one's own.
    let other = dataset_of(&half, &[drawn(&p, 70)], Show::Nothing).unwrap();
    assert_eq!(other.held_out_rows(1), 70);
    let nothing = generate(
        &mut x,
        &Tokenizer::bytes(),
        "a",
        &Sampling::default(),
        &mut |_| Ok(()),
    );
    let words = nothing.unwrap_err().to_string();
    assert!(words.contains("there is nothing to generate"), "{words}");

    // A model whose logits are no numbers predicts no class.
    x.fetch(&[State::Params]).unwrap();
    let count = x.state(State::Params).len();
    x.state_mut(State::Params)
        .fill(std::iter::repeat_n(f64::NAN, count));
    let (e, table) = judge(&mut x, &*set, None, &mut |_| {}).unwrap();
    assert!(e.loss.is_nan() && e.accuracy == Some(0.0), "{e:?}");
    let table = table.unwrap();
    let none = table.counts().filter(|(_, of, _)| of.is_none());
    assert_eq!(none.map(|(_, _, n)| n).sum::<u64>(), 12);

    // The images of a run are known by what is in them.
    drawn(&p, 119);
    let changed = dataset_of(&half, &[], Show::Nothing).map(drop).unwrap_err();
    let words = changed.to_string();
    assert!(
        words.contains("the data of this run have changed") && words.contains("drawn.npz"),
        "{words}"
    );
    assert!(Checkpoint::open(&half.join(CHECKPOINT)).is_ok());
}

/// The form of images stands in the checkpoint again; what is cut by it is what the model reads.
#[test]
fn a_checkpoint_with_images_of_another_form_is_refused() {
    let p = Place::new();
    let artifact = Artifact::in_memory(support::images()).unwrap();
    let settings = Settings {
        data: vec![drawn(&p, 40)],
        device: DeviceChoice::Reference,
        show: Show::Nothing,
        ..Settings::default()
    };
    let out = p.at("run");
    let run = Run::start(&artifact, &out, &settings).unwrap();
    let mut progress = run.progress().clone();
    let Form::Images(own) = progress.data.form.clone() else {
        panic!("{:?}", progress.data.form)
    };
    let huge = 1 << 32;
    let changed = [
        Images {
            patch: 0,
            ..own.clone()
        },
        Images {
            height: huge,
            width: huge,
            ..own.clone()
        },
        Images {
            classes: 300,
            ..own
        },
    ];
    let forms = changed.into_iter().map(Form::Images);
    for form in forms.chain([Form::Tokens]) {
        progress.data.form = form;
        checkpoint::save(&out.join(CHECKPOINT), run.executor(), &progress).unwrap();
        let e = dataset_of(&out, &[], Show::Nothing).map(drop).unwrap_err();
        let words = e.to_string();
        assert!(
            words.ends_with("its images are not of the form that the model reads"),
            "{words}"
        );
    }
}

#[test]
fn shifts_and_flips_are_drawn_again_by_runs_that_go_on() {
    let p = Place::new();
    let run = |out: &str, (crop, flip): (u64, bool), stop: bool| {
        let mut m = support::images();
        let Form::Images(of) = &mut m.train.as_mut().unwrap().data.form else {
            panic!("no images");
        };
        (of.crop, of.flip) = (crop, flip);
        let artifact = Artifact::in_memory(m).unwrap();
        let settings = Settings {
            data: vec![drawn(&p, 60)],
            device: DeviceChoice::Reference,
            show: Show::Nothing,
            ..Settings::default()
        };
        let out = p.at(out);
        if !stop {
            train(&artifact, &out, &settings).unwrap();
            return tensors(&out);
        }
        let mut begun = Run::start(&artifact, &out, &settings).unwrap();
        (0..11).for_each(|_| drop(begun.step().unwrap()));
        begun.save().unwrap();
        drop(begun);
        let data = vec![];
        resume(&out, &Settings { data, ..settings }).unwrap();
        tensors(&out)
    };
    let whole = run("whole", (1, true), false);
    assert!(run("stopped", (1, true), true) == whole);
    assert!(run("plain", (0, false), false) != whole);
}

#[test]
fn an_entry_is_run_on_patches_from_a_file() {
    use safetensors::{Dtype, SafeTensors, serialize, tensor::TensorView};
    let p = Place::new();
    let artifact = Artifact::in_memory(support::images()).unwrap();
    let device = artifact.device(DeviceChoice::Reference, None).unwrap();
    let mut x = Executor::new(&artifact, device).unwrap();
    let table = [VOCAB as usize, WIDTH as usize];
    let number = |i: usize| (i % 7) as f32 / 8.0;
    let floats = |n: usize| -> Vec<u8> { (0..n).flat_map(|i| number(i).to_le_bytes()).collect() };
    let params = floats(table[0] * table[1]);
    let patches: Vec<u8> = (0..32)
        .flat_map(|i| f64::from(number(i + 3)).to_le_bytes())
        .collect();
    let classes: Vec<u8> = [3i64, 200].into_iter().flat_map(i64::to_le_bytes).collect();
    let mut run = |entry: &str, shape: &[usize]| {
        let view =
            |kind, shape: &[usize], data| TensorView::new(kind, shape.to_vec(), data).unwrap();
        let mut list: Vec<(String, TensorView)> = (artifact.manifest().params.iter())
            .map(|p| (p.path.clone(), view(Dtype::F32, &table, &params)))
            .collect();
        list.push(("patches".into(), view(Dtype::F64, shape, &patches)));
        list.push(("targets".into(), view(Dtype::I64, &[2], &classes)));
        let given = p.write("in.safetensors", &serialize(list, None).unwrap());
        let out = p.at("out.safetensors");
        exec(&mut x, entry, &given, &out).map(|()| fs::read(&out).unwrap())
    };
    let out = run("forward", &[2, 1, 16]).unwrap();
    let out = SafeTensors::deserialize(&out).unwrap();
    let logits = out.tensor("logits").unwrap();
    assert_eq!(logits.shape(), [2, 1, VOCAB as usize]);
    let logits = logits.data().as_chunks().0.iter();
    let logits: Vec<f32> = logits.map(|b| f32::from_le_bytes(*b)).collect();
    let wanted = |image: usize, class: usize| -> f32 {
        let product = |i: usize| number(image * 16 + i + 3) * number(class * 16 + i);
        (0..16).map(product).sum()
    };
    for (image, class) in [(0, 0), (0, 17), (1, 255)] {
        let found = logits[image * VOCAB as usize + class];
        assert_eq!(
            found,
            wanted(image, class),
            "exact in f32: multiples of 1/64"
        );
    }
    assert!(run("loss", &[2, 1, 16]).is_ok() && run("grad", &[2, 1, 16]).is_ok());
    let e = run("forward", &[1, 2, 16]).unwrap_err().to_string();
    assert!(e.contains("sequence 2"), "{e}");
    let e = run("loss", &[2, 16]).unwrap_err().to_string();
    assert!(
        e.contains("it must be [batch, sequence, 16] of f32 or f64"),
        "{e}"
    );
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
        }),
        ..SHAPE
    };
    let set = opened(&[file], &shape, 20).unwrap();
    let draw = |seed, step| Draw {
        seed,
        step,
        batch: 8,
    };
    let names = |b: &Batch| b.inputs.iter().map(|(name, _)| *name).collect::<Vec<_>>();
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
