//! Images with their classes, as batches of patches: a part to train on, another held out.
//!
//! Takes the numbers of images ([`Pixels`]) and the number of a class for each. Images of training steps are shifted and flipped as the number of
//! their draw says. Leaves files to [`mod@crate::data::sources`], which images are held out and the order of the others to
//! [`mod@crate::data::parts`].

use crate::data::DataError;
use crate::data::dataset::{Batch, Batches, Dataset, Draw, Unit};
use crate::data::flow::{self, Draws};
use crate::data::identity::{DataFile, Identity};
use crate::data::parts::{self, Parts};
use crate::data::picture::Size;
use crate::data::pixels::Pixels;
use odec_program::manifest::Images;
use odec_program::names;
use odec_program::rng::Stream;
use std::ops::Range;
use std::path::PathBuf;

/// Images in two parts.
pub struct ImageSet {
    name: String,
    files: Vec<Identity>,
    shape: Images,
    /// One after the other.
    pixels: Vec<Pixels>,
    classes: Vec<i32>,
    parts: Parts,
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
        let parts = Parts::new("images", classes.len() as u32, percent);
        ImageSet {
            name,
            files,
            shape,
            pixels,
            classes,
            parts,
        }
    }

    /// The numbers of patches, and the class of each image; or points on the way to it. `change`: what is done with the numbers of each row before.
    /// `draw`: what noise and time of each row are drawn by.
    fn batch(
        &self,
        images: &[u32],
        columns: u64,
        change: impl Fn(u64, &mut [f32]),
        draw: impl Fn(u64) -> Draws,
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
        let patches = patches(&self.shape, &plain);
        let classes = images.iter().map(|n| self.classes[*n as usize]);
        let classes: Vec<i32> = classes.collect();
        let Some(flow) = self.shape.flow else {
            return Ok(Batch::of_images(columns, patches, classes));
        };
        Ok(flow::batch(
            (names::PATCHES, columns),
            (patches, numbers),
            images.len(),
            flow,
            (&classes, self.shape.classes),
            draw,
        ))
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

    fn expected(&self, draw: Draw, _: u64) -> f64 {
        draw.batch as f64
    }

    fn all_held_out(self: Box<Self>) -> Box<dyn Dataset> {
        let parts = self.parts.all_held_out();
        Box::new(ImageSet { parts, ..*self })
    }

    fn held_out_rows(&self, _: u64) -> u64 {
        self.parts.held_out.len() as u64
    }

    fn training_batch(
        &self,
        draw: Draw,
        rows: Range<u64>,
        context: u64,
    ) -> Result<Batch, DataError> {
        self.some("training", &self.parts.train)?;
        let drawn = self.parts.drawn(draw, rows.clone());
        let changes = Stream::new(draw.seed, "changed images");
        let change = |row, image: &mut [f32]| {
            let words = changes.block(parts::number(draw, rows.start + row) as u64);
            self.shape.augment(words, image);
        };
        let draws = flow::of_training(draw, rows.start);
        Ok(Batch {
            key: drawn.key,
            ..self.batch(&drawn.rows, context, change, draws)?
        })
    }

    fn held_out_batches(
        &self,
        rows: u64,
        context: u64,
        most: Option<u64>,
    ) -> Result<Batches<'_>, DataError> {
        self.some("held-out", &self.parts.held_out)?;
        let all = self.parts.held_out(rows, most);
        Ok(Box::new(all.map(move |images| {
            self.batch(&images, context, |_, _| {}, flow::of_held_out(&images))
        })))
    }
}

/// The patches of images, with the empty rows that a model needs behind them.
fn patches(shape: &Images, images: &[f32]) -> Vec<f32> {
    let mut patches = Vec::with_capacity(images.len());
    let zeros = vec![0.0; shape.row() * shape.leading as usize];
    for image in images.chunks_exact(shape.numbers()) {
        shape.cut(image, &mut patches);
        patches.extend(&zeros);
    }
    patches
}

/// The patches of images in PNG files.
///
/// # Errors
/// When a file cannot be read, or is no image of that size.
pub(crate) fn read(shape: &Images, files: &[PathBuf]) -> Result<Vec<f32>, DataError> {
    let size = Size {
        height: shape.height,
        width: shape.width,
        channels: shape.channels,
    };
    let seen = |path: &PathBuf| {
        let file = DataFile::open(path).map_err(DataError::of_images)?;
        Ok(file.seen())
    };
    let files = files.iter().map(seen).collect::<Result<_, DataError>>()?;
    let files = Pixels::Files { files, size };
    let mut images = vec![0.0; files.len() * size.numbers()];
    files.read(
        images
            .chunks_exact_mut(size.numbers())
            .enumerate()
            .collect(),
    )?;
    Ok(patches(shape, &images))
}

/// How images of a manifest are laid out.
pub(crate) trait Layout {
    /// Numbers of an image.
    fn numbers(&self) -> usize;
    /// Numbers of a patch.
    fn row(&self) -> usize;
    /// Appends an image in patches, row by row from the top left, with mean and deviation taken out. Numbers of the image and of a patch stand
    /// in the order of y, x and channel.
    fn cut(&self, image: &[f32], out: &mut Vec<f32>);
    /// The numbers of an image, from those of its patches: [`Layout::cut`] undone.
    fn join(&self, patches: &[f64]) -> Vec<f64>;
    /// Shifts and flips an image as four random words say: down, to the right, whether it is flipped. What is uncovered is 0.
    fn augment(&self, draw: [u32; 4], image: &mut [f32]);
}

impl Layout for Images {
    fn numbers(&self) -> usize {
        (self.height * self.width * self.channels) as usize
    }

    fn row(&self) -> usize {
        (self.patch * self.patch * self.channels) as usize
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

    fn join(&self, patches: &[f64]) -> Vec<f64> {
        let row = (self.width * self.channels) as usize;
        let (side, piece) = (self.patch as usize, (self.patch * self.channels) as usize);
        let mut image = vec![0.0; patches.len()];
        let mut lines = patches.chunks_exact(piece);
        for band in image.chunks_exact_mut(side * row) {
            for left in (0..row).step_by(piece) {
                for (line, from) in band.chunks_exact_mut(row).zip(&mut lines) {
                    let to = line[left..left + piece].iter_mut();
                    to.zip(from)
                        .for_each(|(to, x)| *to = x * self.std + self.mean);
                }
            }
        }
        image
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
