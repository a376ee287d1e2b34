//! Files of images: what is read of them, in which order, and what is refused.

mod drawn;
mod learn;
mod read;
mod refused;

use flate2::Compression;
use flate2::write::GzEncoder;
use odec_program::manifest::{Data, Form, Images};
use odec_program::names::{PATCHES, TARGETS};
use odec_runtime::data::dataset::Unit;
use odec_runtime::data::{DataError, Source, sources};
use odec_runtime::{Batch, Dataset, Show, Tokenizer};
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
        source_context: 0,
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
