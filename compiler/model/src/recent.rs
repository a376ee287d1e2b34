//! Which attention reads recent tokens alone while text is generated, and how many are kept for it ([`Recent`]).
//!
//! Whether one rows of a value are enough is known when all that read it are: a graph is built, what it attends to is looked at here, and where that
//! saves rows, it is built again. Attention comes in the same order both times.

use odec_graph::Value;
use odec_program::Recent;
use std::collections::BTreeSet;

/// Attention of a graph to what is kept of its own tokens.
#[derive(Default)]
pub(super) struct Windows {
    /// Of each attention so far, its window, and what is kept for it.
    read: Vec<(Option<u64>, Vec<Value>)>,
    /// Those that read recent tokens alone, by their number, and what is kept for all of these.
    chosen: BTreeSet<usize>,
    recent: Option<Recent>,
}

impl Windows {
    /// What is kept for the next attention, if not all.
    pub(super) fn next(&mut self, window: Option<u64>, kept: Vec<Value>) -> Option<Recent> {
        let number = self.read.len();
        self.read.push((window, kept));
        self.recent.filter(|_| self.chosen.contains(&number))
    }

    /// For the same graph built again, in a context of so many tokens; `None` where all tokens are kept. What is read without a window, or through one
    /// that is as long as the context, is kept whole for all that read it.
    pub(super) fn found(&self, context: u64) -> Option<Windows> {
        let short = |window: &Option<u64>| window.is_some_and(|w| Recent::of(w, context).is_some());
        let (mut chosen, mut others): (Vec<_>, Vec<_>) =
            (self.read.iter().enumerate()).partition(|(_, (window, _))| short(window));
        let mut whole: BTreeSet<Value> = BTreeSet::new();
        while !others.is_empty() {
            whole.extend(others.iter().flat_map(|(_, (_, kept))| kept));
            let apart = |(_, (_, kept)): &(usize, &(_, Vec<Value>))| {
                kept.iter().all(|x| !whole.contains(x))
            };
            (chosen, others) = chosen.into_iter().partition(apart);
        }
        let longest = chosen.iter().filter_map(|(_, (window, _))| *window).max()?;
        Some(Windows {
            read: vec![],
            chosen: chosen.into_iter().map(|(number, _)| number).collect(),
            recent: Recent::of(longest, context),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(read: &[(Option<u64>, &[u32])]) -> (Vec<usize>, Option<u64>) {
        let mut all = Windows::default();
        for (window, nodes) in read {
            let kept = nodes.iter().map(|node| Value {
                node: *node,
                port: 0,
            });
            assert_eq!(all.next(*window, kept.collect()), None);
        }
        let found = all.found(1000).unwrap_or_default();
        let longest = found.recent.map(|r| r.window);
        (found.chosen.into_iter().collect(), longest)
    }

    #[test]
    fn what_is_read_without_a_window_is_kept_whole() {
        assert_eq!(found(&[]), (vec![], None));
        assert_eq!(found(&[(None, &[0]), (Some(2000), &[1])]), (vec![], None));
        let two: [(Option<u64>, &[u32]); 2] = [(Some(9), &[0, 1]), (Some(70), &[2])];
        assert_eq!(found(&two), (vec![0, 1], Some(70)));
        // One is read both ways, and with it what another attention reads beside it; none of these has the longest window that counts.
        let shared: [(Option<u64>, &[u32]); 4] = [
            (Some(9), &[4]),
            (Some(80), &[0, 1]),
            (Some(70), &[1, 2]),
            (None, &[2, 3]),
        ];
        assert_eq!(found(&shared), (vec![0], Some(9)));
    }
}
