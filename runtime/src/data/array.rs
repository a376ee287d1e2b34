//! The heads of files that hold one array: `.npy` of NumPy, and IDX, in which MNIST came.
//!
//! Takes a file's first bytes; gives what its elements are, its shape, and where they begin. A reader of our own: heads of `.npy` are a
//! dictionary of three entries, and those who read them as Python take as much memory and stack as a damaged file asks for. Leaves elements to
//! [`mod@crate::data::pixels`].

/// The most bytes of a head; NumPy writes 118.
pub const MOST_OF_A_HEAD: usize = 1 << 16;

/// What an element is; of several bytes, the lowest comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    Unsigned(usize),
    Signed(usize),
    Float(usize),
}

impl Element {
    pub fn bytes(self) -> usize {
        match self {
            Element::Unsigned(n) | Element::Signed(n) | Element::Float(n) => n,
        }
    }

    /// A whole number; `None` where it is none, or beyond 64 bits with a sign.
    pub fn whole(self, bytes: &[u8]) -> Option<i64> {
        let mut all = [0; 8];
        all[..self.bytes()].copy_from_slice(bytes);
        let unsigned = u64::from_le_bytes(all);
        let unused = 64 - 8 * self.bytes() as u32;
        match self {
            Element::Unsigned(_) => i64::try_from(unsigned).ok(),
            Element::Signed(_) => Some((unsigned << unused) as i64 >> unused),
            Element::Float(_) => None,
        }
    }
}

/// What stands before the elements of an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    pub element: Element,
    pub shape: Vec<u64>,
    /// Where its elements begin.
    pub start: u64,
}

impl Head {
    /// Bytes of all elements; `None`, where that is beyond 64 bits.
    pub fn bytes(&self) -> Option<u64> {
        let elements = self.shape.iter().try_fold(1u64, |n, d| n.checked_mul(*d));
        elements?.checked_mul(self.element.bytes() as u64)
    }
}

/// The head of a `.npy` file; else, what is wrong with it.
pub fn npy(first: &[u8]) -> Result<Head, String> {
    const MAGIC: &[u8] = b"\x93NUMPY";
    let rest = first.strip_prefix(MAGIC).ok_or("it is no .npy file")?;
    let cut = || "its head is cut short, or longer than 64 KiB".to_string();
    let (length, text) = match rest {
        [1, _, a, b, text @ ..] => (usize::from(u16::from_le_bytes([*a, *b])), text),
        [2 | 3, _, a, b, c, d, text @ ..] => (u32::from_le_bytes([*a, *b, *c, *d]) as usize, text),
        [version, ..] if *version > 3 => {
            return Err(format!(
                "it is of version {version} of .npy; 1 to 3 are read"
            ));
        }
        _ => return Err(cut()),
    };
    let start = first.len() - text.len() + length;
    let text = text.get(..length).ok_or_else(cut)?;
    let text = String::from_utf8_lossy(text);
    let of = |key: &str| text.split_once(key).map(|(_, rest)| rest.trim_start());
    let kind = of("'descr':").and_then(|t| t.strip_prefix('\'')?.split_once('\''));
    let shape = of("'shape':").and_then(|t| t.strip_prefix('(')?.split_once(')'));
    let order = of("'fortran_order':");
    let (Some((kind, _)), Some((shape, _)), Some(order)) = (kind, shape, order) else {
        return Err("its head does not say what elements it has, and how many".into());
    };
    if !order.starts_with("False") {
        return Err(
            "its elements stand in the order of Fortran; save np.ascontiguousarray of it".into(),
        );
    }
    let lengths = shape.split(',').map(str::trim).filter(|d| !d.is_empty());
    let shape = lengths.map(str::parse).collect::<Result<Vec<u64>, _>>();
    Ok(Head {
        element: element(kind).ok_or_else(|| {
            format!("its elements are {kind:?}; whole and real numbers of 1 to 8 bytes are read, the lowest byte first")
        })?,
        shape: shape.map_err(|_| "its shape is no list of lengths")?,
        start: start as u64,
    })
}

/// `<f4`, `|u1`: order of bytes, kind and how many.
fn element(kind: &str) -> Option<Element> {
    let bytes = kind.get(2..)?.parse().ok()?;
    match (kind.get(..1)?, kind.get(1..2)?, bytes) {
        ("|" | "<", "u", 1) | ("<", "u", 2 | 4 | 8) => Some(Element::Unsigned(bytes)),
        ("|" | "<", "i", 1) | ("<", "i", 2 | 4 | 8) => Some(Element::Signed(bytes)),
        ("<", "f", 4 | 8) => Some(Element::Float(bytes)),
        _ => None,
    }
}

/// The head of an IDX file of bytes; else, what is wrong with it.
pub fn idx(first: &[u8]) -> Result<Head, String> {
    let (lengths, rest) = match first {
        [0, 0, 8, n, rest @ ..] => (usize::from(*n), rest),
        [0, 0, kind @ 9..=14, ..] => {
            return Err(format!(
                "it is an IDX file of numbers of kind {kind}; bytes are read, which is kind 8"
            ));
        }
        _ => {
            return Err(
                "it is no IDX file; images are read from IDX, .npy and .npz files and from folders of PNG images".into(),
            );
        }
    };
    let shape = rest.as_chunks().0.get(..lengths);
    let shape = shape.ok_or("its head is cut short")?;
    Ok(Head {
        element: Element::Unsigned(1),
        shape: shape
            .iter()
            .map(|d| u32::from_be_bytes(*d).into())
            .collect(),
        start: 4 + 4 * lengths as u64,
    })
}
