//! What is read of files of all kinds.

use super::{
    NUMBERS, Place, SHAPE, all, arrays, grey, gz, idx, npy, npz, opened, pixels, png, reads_twelve,
    wanted,
};
use odec_program::manifest::Images;
use odec_program::names::{PATCHES, TARGETS};

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
