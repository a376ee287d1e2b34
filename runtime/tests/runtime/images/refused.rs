//! Files that are refused, by their names and what is wrong with them.

use super::{PATCHES_OF_ONE, Place, SHAPE, arrays, grey, gz, idx, npy, npz, opened, png};
use odec_program::manifest::Images;
use odec_runtime::data::DataError;
use odec_runtime::data::dataset::Draw;
use std::fs;
use std::path::{Path, PathBuf};

/// What is printed where some files are read, without the name of the folder.
fn refusal(p: &Place, file: &Path, shape: &Images) -> String {
    let set = opened(&[file.to_path_buf()], shape, 0);
    let batch = set.and_then(|set| {
        let draw = Draw {
            seed: 0,
            step: 0,
            batch: 12,
            tokens: None,
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
        tokens: None,
    };
    assert!(set.training_batch(draw, 0..4, 6).is_ok());
    p.write("images.npy", &images[..images.len() - 100]);
    let e = set.training_batch(draw, 0..4, 6).unwrap_err();
    assert!(matches!(e, DataError::Altered { .. }), "{e}");
}
