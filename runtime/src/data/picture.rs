//! Reads PNG files of one size, and writes images as PNG files.
//!
//! Takes a file and the size that images have; gives bytes in the order of y, x and channel. Palettes and fewer than 8 bits become 8 bits, 16 bits
//! are cut to 8. What is damaged, larger, smaller or of other channels is refused with its name, before memory is taken for it.

use crate::data::DataError;
use crate::data::identity::Seen;
use png::{ColorType, Decoder, Limits, Transformations};
use std::io::Cursor;

/// Bytes of a file, and of what a decoder keeps.
const MOST: u64 = 64 << 20;

/// How large images are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    pub height: u64,
    pub width: u64,
    pub channels: u64,
}

impl Size {
    /// Numbers of an image.
    pub fn numbers(self) -> usize {
        (self.height * self.width * self.channels) as usize
    }
}

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let s = if self.channels == 1 { "" } else { "s" };
        write!(
            f,
            "{} × {} with {} channel{s}",
            self.height, self.width, self.channels
        )
    }
}

/// A PNG file of an image's bytes; `None`, where PNG has no images of so many channels.
pub fn encode(size: Size, bytes: &[u8]) -> Option<Vec<u8>> {
    let color = match size.channels {
        1 => ColorType::Grayscale,
        2 => ColorType::GrayscaleAlpha,
        3 => ColorType::Rgb,
        4 => ColorType::Rgba,
        _ => return None,
    };
    let sides = (size.width.try_into().ok()?, size.height.try_into().ok()?);
    let mut out = Vec::new();
    let mut encoder = png::Encoder::new(&mut out, sides.0, sides.1);
    encoder.set_color(color);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header().ok()?;
    writer.write_image_data(bytes).ok()?;
    writer.finish().ok()?;
    Some(out)
}

/// The bytes of a file's image.
///
/// # Errors
/// When it cannot be read, has changed, is damaged, or has another size.
pub fn read(file: &Seen, size: Size) -> Result<Vec<u8>, DataError> {
    let refused = |reason| DataError::images(file.path(), reason);
    if file.bytes() > MOST {
        return Err(refused(format!(
            "it has {} bytes; an image has at most {MOST}",
            file.bytes()
        )));
    }
    let mut bytes = vec![0; file.bytes() as usize];
    file.open()?.read_at(&mut bytes, 0)?;
    decode(&bytes, size).map_err(refused)
}

/// The same, of a file's bytes; else, what is wrong with them.
fn decode(bytes: &[u8], size: Size) -> Result<Vec<u8>, String> {
    let damaged = |e: png::DecodingError| format!("it cannot be read as PNG: {e}");
    let limits = Limits {
        bytes: MOST as usize,
    };
    let mut decoder = Decoder::new_with_limits(Cursor::new(bytes), limits);
    decoder.set_transformations(Transformations::EXPAND | Transformations::STRIP_16);
    let mut reader = decoder.read_info().map_err(damaged)?;
    let (width, height) = reader.info().size();
    let channels = match reader.output_color_type().0 {
        ColorType::Grayscale => 1,
        ColorType::GrayscaleAlpha => 2,
        ColorType::Rgb | ColorType::Indexed => 3,
        ColorType::Rgba => 4,
    };
    let found = Size {
        height: height.into(),
        width: width.into(),
        channels,
    };
    if found != size {
        return Err(format!(
            "it is an image of {found}; this model reads {size}"
        ));
    }
    let mut out = vec![0; size.numbers()];
    reader.next_frame(&mut out).map_err(damaged)?;
    Ok(out)
}
