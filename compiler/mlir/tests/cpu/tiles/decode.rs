//! Machine code of tile instructions.
//!
//! Takes bytes; gives the instruction that they begin with, if it is one of Intel AMX, and its length. Encodings are those
//! of the Software Developer's Manual, volume 2: VEX.128.0F38.W0, opcodes 49, 4B and 5C.

/// `base + index · 2^scale + displacement`; registers by their numbers in machine code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub base: Base,
    /// In loads and stores, the distance of rows.
    pub index: Option<u8>,
    pub scale: u8,
    pub displacement: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    None,
    Register(u8),
    /// The end of the instruction.
    Next,
}

/// An instruction; registers by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Configure(Place),
    Configuration(Place),
    Release,
    Zero(u8),
    Load(u8, Place),
    Store(u8, Place),
    Multiply { sums: u8, a: u8, b: u8 },
}

/// The instruction at the bytes that `code` gives by number.
pub fn decode(code: impl Fn(usize) -> u8) -> Option<(Op, usize)> {
    let (extension, rest, opcode, modrm) = (code(1), code(2), code(3), code(4));
    // Map 0F38, W = 0, 128 bits.
    if code(0) != 0xC4 || extension & 0x1F != 2 || rest & 0x84 != 0 {
        return None;
    }
    // Registers' fourth bits are stored inverted.
    let [r, x, b] = [7, 6, 5].map(|bit| (!extension >> bit & 1) << 3);
    let (prefix, second) = (rest & 3, !rest >> 3 & 15);
    let (mode, reg, rm) = (modrm >> 6, modrm >> 3 & 7 | r, modrm & 7);
    let tile = |n: u8| (n < 8).then_some(n);
    let alone = second == 0;
    let registers = match (opcode, prefix) {
        (0x5C, 2) => Some(Op::Multiply {
            sums: tile(reg)?,
            a: tile(rm | b)?,
            b: tile(second)?,
        }),
        (0x49, 0) if modrm == 0xC0 && alone => Some(Op::Release),
        (0x49, 3) if rm == 0 && alone => Some(Op::Zero(tile(reg)?)),
        _ => None,
    };
    if mode == 3 || registers.is_some() {
        return registers.filter(|_| mode == 3).map(|op| (op, 5));
    }
    let mut at = 5;
    let mut place = Place {
        base: Base::Register(rm | b),
        index: None,
        scale: 0,
        displacement: 0,
    };
    let mut wide = mode == 2;
    if rm == 4 {
        let sib = code(at);
        at += 1;
        let index = sib >> 3 & 7 | x;
        place.scale = sib >> 6;
        place.index = (index != 4).then_some(index);
        place.base = Base::Register(sib & 7 | b);
        if sib & 7 == 5 && mode == 0 {
            (place.base, wide) = (Base::None, true);
        }
    } else if rm == 5 && mode == 0 {
        (place.base, wide) = (Base::Next, true);
    }
    let bytes = [0, 1, 2, 3].map(|i| if wide { code(at + i) } else { 0 });
    if wide {
        place.displacement = i32::from_le_bytes(bytes);
        at += 4;
    } else if mode == 1 {
        place.displacement = i32::from(code(at) as i8);
        at += 1;
    }
    let op = match (opcode, prefix, reg) {
        (0x49, 0, 0) => Op::Configure(place),
        (0x49, 1, 0) => Op::Configuration(place),
        // With and without a hint that the data are not needed again.
        (0x4B, 3 | 1, _) if rm == 4 => Op::Load(tile(reg)?, place),
        (0x4B, 2, _) if rm == 4 => Op::Store(tile(reg)?, place),
        _ => return None,
    };
    alone.then_some((op, at))
}

/// All tile instructions of some machine code, in order, by a look at every byte.
pub fn all(code: &[u8]) -> Vec<Op> {
    let byte = |i: usize| code.get(i).copied().unwrap_or(0);
    let (mut at, mut found) = (0, Vec::new());
    while at < code.len() {
        match decode(|i| byte(at + i)) {
            Some((op, length)) => {
                found.push(op);
                at += length;
            }
            None => at += 1,
        }
    }
    found
}

/// Against LLVM's assembler (`llvm-mc -show-encoding`).
#[test]
fn instructions_are_read_as_they_are_written() {
    let place = |base, index: Option<u8>, scale, displacement| Place {
        base: if base == 16 {
            Base::None
        } else {
            Base::Register(base)
        },
        index,
        scale,
        displacement,
    };
    let next = Place {
        base: Base::Next,
        ..place(0, None, 0, 0x1234)
    };
    let cases: [(&[u8], Op); 11] = [
        (
            &[0xC4, 0xE2, 0x78, 0x49, 0x07],
            Op::Configure(place(7, None, 0, 0)),
        ),
        (
            &[0xC4, 0xC2, 0x78, 0x49, 0x45, 0x40],
            Op::Configure(place(13, None, 0, 64)),
        ),
        (
            &[0xC4, 0xE2, 0x78, 0x49, 0x05, 0x34, 0x12, 0, 0],
            Op::Configure(next),
        ),
        (
            &[0xC4, 0x82, 0x79, 0x49, 0x44, 0x8C, 0xF8],
            Op::Configuration(place(12, Some(9), 2, -8)),
        ),
        (&[0xC4, 0xE2, 0x78, 0x49, 0xC0], Op::Release),
        (&[0xC4, 0xE2, 0x7B, 0x49, 0xD8], Op::Zero(3)),
        (
            &[0xC4, 0xC2, 0x7B, 0x4B, 0xAC, 0x1E, 0, 4, 0, 0],
            Op::Load(5, place(14, Some(3), 0, 1024)),
        ),
        (
            &[0xC4, 0x82, 0x7B, 0x4B, 0x44, 0x25, 0],
            Op::Load(0, place(13, Some(12), 0, 0)),
        ),
        (
            &[0xC4, 0xA2, 0x79, 0x4B, 0x34, 0x7D, 0, 1, 0, 0],
            Op::Load(6, place(16, Some(15), 1, 256)),
        ),
        (
            &[0xC4, 0xE2, 0x7A, 0x4B, 0x14, 0x08],
            Op::Store(2, place(0, Some(1), 0, 0)),
        ),
        (
            &[0xC4, 0xE2, 0x42, 0x5C, 0xCC],
            Op::Multiply {
                sums: 1,
                a: 4,
                b: 7,
            },
        ),
    ];
    for (bytes, op) in cases {
        assert_eq!(
            decode(|i| bytes.get(i).copied().unwrap_or(0)),
            Some((op, bytes.len()))
        );
    }
    // vpermd, vfmadd231ps and a tile instruction of another kind (tdpbssd).
    for bytes in [
        [0xC4, 0xE2, 0x75, 0x36, 0xC2],
        [0xC4, 0xE2, 0x75, 0xB8, 0xC2],
        [0xC4, 0xE2, 0x43, 0x5E, 0xCC],
    ] {
        assert_eq!(decode(|i| bytes[i]), None);
    }
}
