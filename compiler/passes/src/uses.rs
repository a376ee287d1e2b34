//! Which launches use a buffer. Takes a [`LaunchList`]; gives, for each buffer, the launches in order.

use super::launch_list::LaunchList;
use std::collections::BTreeMap;

/// The launches that use a buffer, and whether they write it.
pub(super) type Uses = BTreeMap<usize, bool>;

/// Those of every buffer.
pub(super) fn uses(code: &LaunchList) -> Vec<Uses> {
    let mut out = vec![Uses::new(); code.buffers.len()];
    for (i, l) in code.launches.iter().enumerate() {
        for (b, mode) in l.uses() {
            *out[b.0 as usize].entry(i).or_default() |= mode.writes();
        }
    }
    out
}
