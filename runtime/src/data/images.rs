//! Images with their classes, as batches of patches: a part to train on, another held out.
//!
//! Takes the numbers of images ([`Pixels`]) and the number of a class for each. Files may be sorted by class, so which images are held out is
//! drawn, once for all: an image's number in the data decides, not the seed of a run. Training goes through all other images before any comes
//! again, in an order of its own each time, each shifted and flipped as the number of its draw says. Leaves files to [`mod@crate::data::sources`].

use crate::data::DataError;
use crate::data::dataset::{Batch, Batches, Dataset, Draw, Unit};
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
        let (train, held_out) = divided(classes.len() as u32, percent);
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

    /// The numbers of patches, and the class of each image. `change`: what is done with the numbers of each row before.
    fn batch(
        &self,
        images: &[u32],
        columns: u64,
        change: impl Fn(u64, &mut [f32]),
    ) -> Result<Batch, DataError> {
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
        let rows = plain.chunks_exact_mut(numbers);
        rows.zip(0..).for_each(|(image, row)| change(row, image));
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
        let number = |r: u64| u128::from(step) * u128::from(batch) + u128::from(r);
        let drawn = rows.clone().map(|r| {
            let number = number(r);
            let epoch = (number / u128::from(images)) as u64;
            let place = (number % u128::from(images)) as u64;
            self.train[permuted(&order, epoch, place, images) as usize]
        });
        let drawn: Vec<u32> = drawn.collect();
        let changes = Stream::new(seed, "changed images");
        let first = step.wrapping_shl(16).wrapping_add(rows.start);
        let key = Stream::new(seed, noise::KEY).below(first, 1 << noise::BITS);
        Ok(Batch {
            key: key as i32,
            ..self.batch(&drawn, context, |row, image| {
                let draw = changes.block(number(rows.start + row) as u64);
                self.shape.augment(draw, image);
            })?
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
            self.batch(&images.collect::<Vec<_>>(), context, |_, _| {})
        });
        Ok(Box::new(batches))
    }
}

/// Numbers of images, drawn into a training and a held-out part: every image has a number that is drawn by its own, and those with the largest
/// ones are held out. So images that are added later move few others.
fn divided(images: u32, percent: u32) -> (Vec<u32>, Vec<u32>) {
    let stream = Stream::new(0, "held-out images");
    let mut order: Vec<u32> = (0..images).collect();
    order.sort_by_cached_key(|n| (stream.below(u64::from(*n), u64::MAX), *n));
    let cut = u64::from(images) - u64::from(images) * u64::from(percent) / 100;
    let mut held_out = order.split_off(cut as usize);
    order.sort_unstable();
    held_out.sort_unstable();
    (order, held_out)
}

/// Which of `0..n` is at a place of an epoch's order: a Feistel network over the numbers of twice `half` bits, walked until it gives one
/// below n (Black & Rogaway, "Ciphers with Arbitrary Finite Domains", 2002). Each comes once.
fn permuted(stream: &Stream, epoch: u64, place: u64, n: u64) -> u64 {
    const ROUNDS: u64 = 6;
    let bits = u64::BITS - n.saturating_sub(1).leading_zeros();
    let half = bits.div_ceil(2).max(1);
    let mask = (1 << half) - 1;
    let mut x = place;
    loop {
        for round in 0..ROUNDS {
            let (left, right) = (x >> half, x & mask);
            let number = (epoch * ROUNDS + round).wrapping_shl(half) | right;
            x = right << half | (left ^ (u64::from(stream.block(number)[0]) & mask));
        }
        if x < n {
            return x;
        }
    }
}

/// How images of a manifest are laid out.
pub(super) trait Layout {
    /// Numbers of an image.
    fn numbers(&self) -> usize;
    /// Appends an image in patches, row by row from the top left, with mean and deviation taken out. Numbers of the image and of a patch stand
    /// in the order of y, x and channel.
    fn cut(&self, image: &[f32], out: &mut Vec<f32>);
    /// Shifts and flips an image as four random words say: down, to the right, whether it is flipped. What is uncovered is 0.
    fn augment(&self, draw: [u32; 4], image: &mut [f32]);
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

    fn augment(&self, [down, right, flip, _]: [u32; 4], image: &mut [f32]) {
        // One of 2·crop + 1 shifts.
        let shift = |word: u32| {
            let shifts = 2 * self.crop + 1;
            let number = (u128::from(word) * u128::from(shifts)) >> u32::BITS;
            number as i64 - self.crop as i64
        };
        let (down, right) = (shift(down), shift(right));
        let flip = self.flip && flip >> (u32::BITS - 1) == 1;
        if (down, right, flip) == (0, 0, false) {
            return;
        }
        let (width, channels) = (self.width as usize, self.channels as usize);
        let before = image.to_vec();
        let lines: Vec<&[f32]> = before.chunks_exact(width * channels).collect();
        let from = |to: usize, by: i64, of: usize| {
            let n = to as i64 - by;
            usize::try_from(n).ok().filter(|n| *n < of)
        };
        for (y, line) in image.chunks_exact_mut(width * channels).enumerate() {
            let old = from(y, down, lines.len()).map(|y| lines[y]);
            for (x, pixel) in line.chunks_exact_mut(channels).enumerate() {
                let x = from(x, right, width).map(|x| if flip { width - 1 - x } else { x });
                match old.zip(x) {
                    Some((old, x)) => pixel.copy_from_slice(&old[x * channels..][..channels]),
                    None => pixel.fill(0.0),
                }
            }
        }
    }
}
