//! The arguments of a launch for the driver: blocks, threads, kernel arguments, and tensor maps.
//!
//! Takes a kernel and the operands of a launch; gives a [`Launch`] whose operands reach as far as the kernel does and are
//! aligned as its accesses assume, and whose maps the driver encodes.

use crate::device::memory::Words;
use odec_program::gpu::tensor::map::{TensorMap, maps};
use odec_program::gpu::{MAX_BLOCKS, Shape, alignment, shape};
use odec_program::kernel::Signature;
use odec_program::{KernelSpec, Target};

/// Where an operand starts in the card's memory, and how many words there are from there on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub address: u64,
    pub words: u64,
}

impl From<Words<'_>> for Place {
    /// Memory of this process, as of a device that shares it.
    fn from(words: Words) -> Place {
        Place {
            address: words.as_ptr() as u64,
            words: words.len() as u64,
        }
    }
}

/// A tensor map of an operand that is at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapped {
    pub address: u64,
    pub map: TensorMap,
}

/// One launch, ready for a driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    pub shape: Shape,
    /// Addresses of operands, then dims, then the bits of coefficients.
    pub arguments: Vec<u64>,
    /// What comes after them.
    pub maps: Vec<Mapped>,
}

/// Plans a launch of a kernel with its signature, whose code is for a target; `None` when there is nothing to do.
///
/// # Errors
/// In words, when the operands do not fit the kernel: a fault of the compiler.
pub fn plan(
    spec: &KernelSpec,
    signature: &Signature,
    target: Target,
    operands: &[Place],
    dims: &[u64],
    coeffs: &[f64],
) -> Result<Option<Launch>, String> {
    fn refused<T>(spec: &KernelSpec, what: String) -> Result<T, String> {
        Err(format!("kernel {}: {what}", spec.symbol()))
    }
    let wrong = |what: String| refused(spec, what);
    let words = operands.iter().map(|place| place.words);
    (signature.check(words, dims, coeffs)).or_else(|what| refused(spec, what))?;
    let Some(shape) = shape(spec, dims, target) else {
        return wrong("there is no such kernel for GPUs".into());
    };
    for (n, Place { address, .. }) in operands.iter().enumerate() {
        if !address.is_multiple_of(alignment(spec, signature, n)) {
            return wrong(format!("operand {n} at {address:#x} is not aligned"));
        }
    }
    if shape.blocks > MAX_BLOCKS {
        return wrong(format!("{} blocks", shape.blocks));
    }
    if shape.blocks == 0 {
        return Ok(None);
    }
    let mapped = |map: TensorMap| {
        let address = operands[map.operand].address;
        Mapped { address, map }
    };
    let maps: Vec<Mapped> = maps(spec, dims, target).into_iter().map(mapped).collect();
    if let Some(reason) = maps.iter().find_map(|m| m.map.refusal(m.address)) {
        return wrong(reason);
    }
    let addresses = operands.iter().map(|place| place.address);
    let arguments = addresses.chain(dims.iter().copied());
    let arguments = arguments.chain(coeffs.iter().map(|x| x.to_bits()));
    Ok(Some(Launch {
        shape,
        arguments: arguments.collect(),
        maps,
    }))
}
