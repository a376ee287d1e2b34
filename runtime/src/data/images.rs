//! Images with their classes, as batches of patches: a part to train on, another held out.
//!
//! Takes the numbers of images ([`Pixels`]) and the number of a class for each. Files may be sorted by class, so which images are held out is
//! drawn, once for all: an image's number in the data decides, not the seed of a run. Training goes through all other images before any comes
//! again, in an order of its own each time. Leaves files to [`mod@crate::data::sources`].

use crate::data::DataError;
use crate::data::dataset::{Batch, Batches, Dataset, Draw, Unit};
use crate::data::draw::{divided, drawn};
use crate::data::identity::Identity;
use crate::data::pixels::Pixels;
use crate::device::rng::Stream;
use odec_program::manifest::Images;
use odec_program::noise;
use std::ops::Range;

/// Images in two parts.
pub struct ImageSet {
    name: String,
    files: Vec<Identity>,
    shape: Images,
    /// One after the other.
    pixels: Vec<Pixels>,
    classes: Vec<i32>,
    /// Numbers of images, in order.
    train: Vec<u32>,
    held_out: Vec<u32>,
}

impl ImageSet {
    /// Divides images: `percent` per cent (rounded down to images) are held out.
    pub(super) fn new(
        name: String,
        files: Vec<Identity>,
        shape: Images,
        (pixels, classes): (Vec<Pixels>, Vec<i32>),
        percent: u32,
    ) -> ImageSet {
        let (train, held_out) = divided("held-out images", classes.len() as u32, percent);
        ImageSet {
            name,
            files,
            shape,
            pixels,
            classes,
            train,
            held_out,
        }
    }

    /// The numbers of patches, and the class of each image.
    fn batch(&self, images: &[u32], columns: u64) -> Result<Batch, DataError> {
        let numbers = self.shape.numbers();
        let mut plain = vec![0.0; images.len() * numbers];
        let mut first = 0;
        for p in &self.pixels {
            let inside = first..first + p.len();
            let wanted = images.iter().map(|n| *n as usize);
            let rows = plain.chunks_exact_mut(numbers).zip(wanted);
            let of_it = rows.filter(|(_, n)| inside.contains(n));
            p.read(of_it.map(|(row, n)| (n - first, row)).collect())?;
            first += p.len();
        }
        let mut patches = Vec::with_capacity(plain.len());
        let rows = plain.chunks_exact(numbers);
        rows.for_each(|image| self.shape.cut(image, &mut patches));
        let classes = images.iter().map(|n| self.classes[*n as usize]);
        Ok(Batch::of_images(columns, patches, classes.collect()))
    }

    fn some(&self, part: &'static str, images: &[u32]) -> Result<(), DataError> {
        match images {
            [] => Err(DataError::NoImages {
                path: self.name.clone(),
                part,
            }),
            _ => Ok(()),
        }
    }
}

impl Dataset for ImageSet {
    fn name(&self) -> &str {
        &self.name
    }

    fn files(&self) -> &[Identity] {
        &self.files
    }

    fn unit(&self) -> Unit {
        Unit::Images
    }

    fn len(&self) -> u64 {
        self.classes.len() as u64
    }

    fn is_empty(&self) -> bool {
        self.classes.is_empty()
    }

    fn expected(&self, rows: u64, _: u64) -> f64 {
        rows as f64
    }

    fn all_held_out(self: Box<Self>) -> Box<dyn Dataset> {
        Box::new(ImageSet {
            train: vec![],
            held_out: (0..self.classes.len() as u32).collect(),
            ..*self
        })
    }

    fn held_out_rows(&self, _: u64) -> u64 {
        self.held_out.len() as u64
    }

    /// Row r of step s is number `s · batch + r` of all draws. So many draws as there are images for training are an epoch: each is drawn
    /// once, in the order of the seed and the epoch.
    fn training_batch(
        &self,
        Draw { seed, step, batch }: Draw,
        rows: Range<u64>,
        context: u64,
    ) -> Result<Batch, DataError> {
        self.some("training", &self.train)?;
        let images = self.train.len() as u64;
        let order = Stream::new(seed, "images");
        let numbers = rows.clone().map(|r| {
            let number = u128::from(step) * u128::from(batch) + u128::from(r);
            self.train[drawn(&order, number, images) as usize]
        });
        let numbers: Vec<u32> = numbers.collect();
        let first = step.wrapping_shl(16).wrapping_add(rows.start);
        let key = Stream::new(seed, noise::KEY).below(first, 1 << noise::BITS);
        Ok(Batch {
            key: key as i32,
            ..self.batch(&numbers, context)?
        })
    }

    /// The held-out images in the order of the data, each once.
    fn held_out_batches(
        &self,
        rows: u64,
        context: u64,
        most: Option<u64>,
    ) -> Result<Batches<'_>, DataError> {
        self.some("held-out", &self.held_out)?;
        let (rows, all) = (rows.max(1) as usize, self.held_out.len());
        let taken = most.map_or(all, |n| all.min(n as usize));
        let batches = (0..taken).step_by(rows).map(move |n| {
            let spread = |w: usize| (w as u128 * all as u128 / taken as u128) as usize;
            let images = (n..(n + rows).min(taken)).map(|w| self.held_out[spread(w)]);
            self.batch(&images.collect::<Vec<_>>(), context)
        });
        Ok(Box::new(batches))
    }
}

/// How images of a manifest are laid out.
pub(super) trait Layout {
    /// Numbers of an image.
    fn numbers(&self) -> usize;
    /// Appends an image in patches, row by row from the top left, with mean and deviation taken out. Numbers of the image and of a patch stand
    /// in the order of y, x and channel.
    fn cut(&self, image: &[f32], out: &mut Vec<f32>);
}

impl Layout for Images {
    fn numbers(&self) -> usize {
        (self.height * self.width * self.channels) as usize
    }

    fn cut(&self, image: &[f32], out: &mut Vec<f32>) {
        let row = (self.width * self.channels) as usize;
        let (side, piece) = (self.patch as usize, (self.patch * self.channels) as usize);
        let standard = |x: &f32| ((f64::from(*x) - self.mean) / self.std) as f32;
        for band in image.chunks_exact(side * row) {
            for left in (0..row).step_by(piece) {
                for line in band.chunks_exact(row) {
                    out.extend(line[left..left + piece].iter().map(standard));
                }
            }
        }
    }
}
