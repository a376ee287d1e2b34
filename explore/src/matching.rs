//! What all trials have alike, solved from exact costs.
//!
//! Takes the first trial's cost as the aim and a value that may be changed; gives the value at which another trial costs the same. Training steps
//! follow by a division, a size of the model by bisection: each size is compiled, and sizes that the model cannot have are passed over.

use odec_driver::fail::Done;
use std::collections::BTreeMap;

/// Largest size that is tried.
const LARGEST: u64 = 1 << 20;
/// How many sizes are looked at beside one that the model cannot have.
const NEAR: u64 = 64;

/// The number of steps, at least 1, at which steps of so much work are nearest to an amount of work.
pub fn steps(aim: u128, of_step: u128) -> u64 {
    let of_step = of_step.max(1);
    let rounded = (aim + of_step / 2) / of_step;
    u64::try_from(rounded).unwrap_or(u64::MAX).max(1)
}

/// How far a value is from an aim, as a share of it.
pub fn off(value: u128, aim: u128) -> f64 {
    let (value, aim) = (value as f64, aim as f64);
    match aim == 0.0 {
        true if value == 0.0 => 0.0,
        true => f64::INFINITY,
        false => value / aim - 1.0,
    }
}

/// Sizes and what they cost, where the model can have them.
struct Costs<'c> {
    of: &'c mut dyn FnMut(u64) -> Done<Option<u128>>,
    known: BTreeMap<u64, Option<u128>>,
}

impl Costs<'_> {
    fn at(&mut self, size: u64) -> Done<Option<u128>> {
        if let Some(known) = self.known.get(&size) {
            return Ok(*known);
        }
        let cost = (self.of)(size)?;
        self.known.insert(size, cost);
        Ok(cost)
    }

    /// The size nearest to one, strictly between two others, that the model can have.
    fn near(&mut self, size: u64, above: u64, below: u64) -> Done<Option<(u64, u128)>> {
        for distance in 0..=NEAR {
            for size in [size.saturating_sub(distance), size.saturating_add(distance)] {
                if size > above
                    && size < below
                    && let Some(cost) = self.at(size)?
                {
                    return Ok(Some((size, cost)));
                }
            }
        }
        Ok(None)
    }
}

/// The size at which a cost that grows with it is nearest to an aim, with that cost; begins at `start`. `None`: none is possible.
///
/// # Errors
/// As what says the costs.
pub fn size(
    start: u64,
    aim: u128,
    of: &mut dyn FnMut(u64) -> Done<Option<u128>>,
) -> Done<Option<(u64, u128)>> {
    let known = BTreeMap::new();
    let mut costs = Costs { of, known };
    let Some(first) = costs.near(start, 0, LARGEST)? else {
        return Ok(None);
    };
    // One of them costs too little, the other too much, or there is no such size.
    let (mut low, mut high) = (first, first);
    while high.1 < aim {
        let above = costs.near(high.0.saturating_mul(2), high.0, LARGEST)?;
        let Some(above) = above else { break };
        (low, high) = (high, above);
    }
    while low.1 > aim {
        let Some(below) = costs.near(low.0 / 2, 0, low.0)? else {
            break;
        };
        (low, high) = (below, low);
    }
    while high.0 - low.0 > 1 {
        let middle = low.0 + (high.0 - low.0) / 2;
        match costs.near(middle, low.0, high.0)? {
            None => break,
            Some(found) if found.1 < aim => low = found,
            Some(found) => high = found,
        }
    }
    let nearer = high.1.abs_diff(aim) < low.1.abs_diff(aim);
    Ok(Some(if nearer { high } else { low }))
}
