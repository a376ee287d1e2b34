//! How parameters start, and constant tables are filled.
//!
//! Takes the manifest's tables and a seed; writes values of the program's real type at the planned offsets. A random
//! parameter is drawn from the stream named `init <path>`: element e is normal number `e mod 4` of
//! block `e / 4`, times the standard deviation, computed in f64 and rounded once. So equal paths start
//! alike in different schemes, and no draw depends on which other parameters exist.

use crate::device::reals::RealsMut;
use odec_program::DType;
use odec_program::manifest::{Constant, Init, Param};
use odec_program::rng::Stream;
use std::iter::repeat;

/// Elements of a parameter.
pub fn elements(p: &Param) -> usize {
    p.shape.iter().product::<u64>() as usize
}

/// Where a parameter lies in a buffer of elements of type `real`.
pub fn range(p: &Param, real: DType) -> std::ops::Range<usize> {
    let start = (p.offset / real.bytes()) as usize;
    start..start + elements(p)
}

/// The starting values of the parameter of a path, without end.
pub fn values(path: &str, init: &Init, seed: u64) -> Box<dyn Iterator<Item = f64>> {
    match *init {
        Init::Zeros => Box::new(repeat(0.0)),
        Init::Ones => Box::new(repeat(1.0)),
        Init::Constant(x) => Box::new(repeat(x)),
        Init::Normal { std } => {
            let stream = stream(path, seed);
            let blocks = (0..).flat_map(move |block| stream.normal4(block));
            Box::new(blocks.map(move |z| std * z))
        }
    }
}

/// Numbers that are drawn at once, a multiple of four.
const DRAWN: usize = 4096;

/// Writes one parameter's starting values.
pub fn parameter(p: &Param, seed: u64, mut out: RealsMut) {
    let Init::Normal { std } = p.init else {
        return out.fill(values(&p.path, &p.init, seed));
    };
    let stream = stream(&p.path, seed);
    let (mut drawn, count) = (vec![0.0; DRAWN], elements(p));
    for first in (0..count).step_by(DRAWN) {
        let part = &mut drawn[..DRAWN.min(count - first)];
        stream.normals(first as u64 / 4, part);
        let mut out = out.part(first..first + part.len());
        out.fill(part.iter().map(|z| std * z));
    }
}

fn stream(path: &str, seed: u64) -> Stream {
    Stream::new(seed, &format!("init {path}"))
}

/// Writes all parameters into `Slot::Params`.
pub fn parameters(params: &[Param], seed: u64, mut memory: RealsMut) {
    let real = memory.dtype();
    for p in params {
        parameter(p, seed, memory.part(range(p, real)));
    }
}

/// Writes all tables into `Slot::Consts`.
pub fn constants(tables: &[Constant], mut memory: RealsMut) {
    let bytes = memory.dtype().bytes();
    for c in tables {
        let [rows, cols] = c.table.shape();
        let start = (c.offset / bytes) as usize;
        let end = start + (rows * cols) as usize;
        memory.part(start..end).fill(c.table.values().into_iter());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use odec_program::manifest::Table;

    fn param(path: &str, shape: &[u64], init: Init) -> Param {
        Param {
            path: path.into(),
            shape: shape.to_vec(),
            offset: 0,
            init,
            decay: true,
        }
    }

    #[test]
    fn normal_parameters_depend_on_seed_path_and_element_only() {
        let fill = |path, n: u64, seed| {
            let p = param(path, &[n], Init::Normal { std: 0.02 });
            let mut out = vec![0.0; n as usize];
            parameter(&p, seed, RealsMut::F32(&mut out));
            out
        };
        let long = fill("step.0.att.q.weight", 1001, 0);
        assert_eq!(long[..37], fill("step.0.att.q.weight", 37, 0));
        assert_ne!(long[..37], fill("step.1.att.q.weight", 37, 0));
        assert_ne!(long[..37], fill("step.0.att.q.weight", 37, 1));
        let std = (long.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / 1001.0).sqrt();
        assert!((std - 0.02).abs() < 0.0025, "{std}");
        let init = Init::Normal { std: 0.02 };
        let one_by_one = values("a", &init, 3).map(|x| x as f32);
        assert!(one_by_one.take(9001).eq(fill("a", 9001, 3)));
    }

    #[test]
    fn the_start_of_a_parameter_never_changes() {
        // Frozen so that runs of different versions can be compared.
        let p = param("embed.weight", &[4], Init::Normal { std: 1.0 });
        let mut out = [0.0; 4];
        parameter(&p, 0, RealsMut::F32(&mut out));
        insta::assert_debug_snapshot!(out.map(|x| format!("{x:.4}")));
    }

    #[test]
    fn gaps_and_neighbours_stay_as_they_are() {
        let mut ones = param("a", &[3], Init::Ones);
        ones.offset = 64;
        let mut memory = vec![7.0f32; 32];
        parameters(
            &[ones, param("b", &[2, 2], Init::Constant(0.5))],
            0,
            RealsMut::F32(&mut memory),
        );
        assert_eq!(memory[..4], [0.5; 4]);
        assert_eq!(memory[4..16], [7.0; 12]);
        assert_eq!(memory[16..19], [1.0; 3]);
        assert_eq!(memory[19..], [7.0; 13]);
    }

    #[test]
    fn tables_are_rounded_from_f64() {
        let table = Table::RotaryCos {
            positions: 3,
            head: 4,
            base: 10_000.0,
            turns: Default::default(),
        };
        let mut memory = vec![0.0f32; 16];
        constants(
            &[Constant {
                offset: 8,
                table: table.clone(),
            }],
            RealsMut::F32(&mut memory),
        );
        let want: Vec<f32> = table.values().iter().map(|x| *x as f32).collect();
        assert_eq!(memory[2..14], want);
        assert_eq!((memory[0], memory[14]), (0.0, 0.0));
    }
}
