//! Arrays in files that odec writes: `.npz`, as `vectors` and NumPy read them.
//!
//! Takes names, shapes and elements; gives the bytes of an archive, equal ones for equal arrays.

use std::io::{self, Cursor, Write};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

/// The elements of an array, row by row.
#[derive(Clone, Copy, Debug)]
pub enum Elements<'a> {
    Real(&'a [f64]),
    Whole(&'a [i64]),
}

/// A file of `.npy`: version 1, elements of 8 bytes, the lowest first.
fn npy(shape: &[u64], of: Elements) -> Vec<u8> {
    let (kind, bytes): (_, Vec<u8>) = match of {
        Elements::Real(x) => ("<f8", x.iter().flat_map(|x| x.to_le_bytes()).collect()),
        Elements::Whole(n) => ("<i8", n.iter().flat_map(|n| n.to_le_bytes()).collect()),
    };
    let shape: String = shape.iter().map(|n| format!("{n}, ")).collect();
    let head = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': ({shape}), }}");
    // Elements begin at a multiple of 64, behind ten bytes and the head's last one.
    let length = (10 + head.len() + 1).next_multiple_of(64) - 10;
    let mut out = b"\x93NUMPY\x01\x00".to_vec();
    out.extend((length as u16).to_le_bytes());
    out.extend(format!("{head:<width$}\n", width = length - 1).bytes());
    out.extend(bytes);
    out
}

/// An archive of arrays by their names.
///
/// # Errors
/// When one is larger than archives hold.
pub fn npz(arrays: &[(&str, &[u64], Elements)]) -> io::Result<Vec<u8>> {
    let mut out = ZipWriter::new(Cursor::new(vec![]));
    let plain = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    for (name, shape, of) in arrays {
        out.start_file(format!("{name}.npy"), plain)?;
        out.write_all(&npy(shape, *of))?;
    }
    Ok(out.finish()?.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::array::{self, Element};

    #[test]
    fn heads_are_read_back() {
        for shape in [&[3][..], &[2, 1, 3], &[1234567, 1, 2]] {
            let bytes = npy(shape, Elements::Real(&[0.5, -1.0]));
            let head = array::npy(&bytes).unwrap();
            assert_eq!(
                (head.element, &head.shape[..], head.start % 64),
                (Element::Float(8), shape, 0)
            );
            assert_eq!(bytes[head.start as usize..][..8], 0.5f64.to_le_bytes());
        }
        let head = array::npy(&npy(&[2], Elements::Whole(&[7, -1]))).unwrap();
        assert_eq!(head.element, Element::Signed(8));
    }
}
