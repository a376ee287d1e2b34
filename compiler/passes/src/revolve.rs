//! Stores the states of a few steps only and recomputes the steps between them. Takes and gives a graph.
//!
//! Binomial checkpointing (Griewank & Walther 2000, ACM TOMS 26, Algorithm 799): with s kept states and r rounds,
//! `C(s + r, s)` steps can be reversed, each computed at most r times more. What is kept at a step is whatever crosses
//! into it: the state, and values of earlier steps where the scheme has a history. Exact: a replayed node does the same
//! operations on the same values, and gradients are added in the same order, so nothing but memory and time changes.
//! What stands outside all steps is kept; leaves what is cheap to `recompute`.

use super::rewrite::{Map, rebuild};
use odec_graph::{Builder, Graph, Pass, Site, TypeError, Value};
use std::collections::BTreeMap;

/// Clones steps so that at most `slots` of their states (one at least, the first step's) are kept at any time.
pub fn revolve(graph: &Graph, slots: u64) -> Result<Graph, TypeError> {
    let steps = Steps::of(graph);
    let mut replay = Replay {
        graph,
        kept: vec![Kept {
            step: 0,
            values: BTreeMap::new(),
        }],
        slots: slots.max(1),
        reversing: None,
        number: 0,
        steps: &steps,
    };
    let made = rebuild(graph, |b, _, node, operands, map| {
        let Some(k) = steps
            .of_site(&node.site)
            .filter(|_| node.site.pass == Pass::Backward)
        else {
            return b.copy(graph, node, operands);
        };
        let mut ops = Vec::new();
        for v in &node.operands {
            ops.push(replay.needed(b, map, k, *v)?);
        }
        b.site = node.site.clone();
        b.span = node.span;
        b.copy(graph, node, &ops)
    })?;
    // Forward values that the gradient alone needed are left over.
    Ok(made.without_dead())
}

/// How many steps are computed again when `steps` are reversed with `slots` kept states.
pub fn replays(steps: u64, slots: u64) -> u64 {
    if steps == 0 {
        return 0;
    }
    let rounds = (0..).find(|r| choose(slots + r, slots) >= steps);
    let rounds = rounds.expect("binomials grow");
    rounds * steps - choose(slots + rounds, slots + 1)
}

/// `n` over `k`, or the largest number.
fn choose(n: u64, k: u64) -> u64 {
    if k > n {
        return 0;
    }
    let k = k.min(n - k);
    (1..=k)
        .try_fold(1u64, |c, i| Some(c.checked_mul(n - k + i)? / i))
        .unwrap_or(u64::MAX)
}

/// How many of `steps` (two at least) to go on from a kept state before the next of `slots` (two at least, that one
/// included).
fn split(steps: u64, slots: u64) -> u64 {
    let cost = |m: &u64| m + replays(steps - m, slots - 1) + replays(*m, slots);
    (1..steps).min_by_key(cost).expect("two steps at least")
}

/// The steps of all evolves, numbered through, and what crosses between them.
struct Steps {
    numbers: BTreeMap<String, BTreeMap<u32, usize>>,
    /// The step that a forward value is computed in; none for what stands outside, and for what is no computation.
    made: Vec<Option<usize>>,
    /// For each step, the values of earlier ones that it or a later one reads, forward or backward.
    crossing: Vec<Vec<Value>>,
}

impl Steps {
    fn of(graph: &Graph) -> Steps {
        let mut numbers = BTreeMap::<String, BTreeMap<u32, usize>>::new();
        let mut count = 0;
        for (_, node) in graph.nodes().filter(|(_, n)| n.site.pass == Pass::Forward) {
            let Some(k) = node.site.step else { continue };
            let of_evolve = numbers.entry(node.site.evolve.clone()).or_default();
            of_evolve.entry(k).or_insert_with(|| {
                count += 1;
                count - 1
            });
        }
        let mut steps = Steps {
            crossing: vec![Vec::new(); count],
            numbers,
            made: Vec::new(),
        };
        steps.made = graph
            .nodes()
            .map(|(_, n)| match (n.site.pass, n.operands.is_empty()) {
                (Pass::Forward, false) => steps.of_site(&n.site),
                _ => None,
            })
            .collect();
        let mut last: BTreeMap<Value, usize> = BTreeMap::new();
        for (_, node) in graph.nodes() {
            let Some(k) = steps.of_site(&node.site) else {
                continue;
            };
            for v in &node.operands {
                if steps.made[v.node as usize].is_some_and(|m| m < k) {
                    let l = last.entry(*v).or_insert(k);
                    *l = k.max(*l);
                }
            }
        }
        for (v, last) in last {
            let made = steps.made[v.node as usize].expect("looked at above");
            for k in made + 1..=last {
                steps.crossing[k].push(v);
            }
        }
        steps
    }

    fn of_site(&self, site: &Site) -> Option<usize> {
        self.numbers.get(&site.evolve)?.get(&site.step?).copied()
    }
}

/// What is known at the beginning of a step: the values that cross into it.
#[derive(Clone)]
struct Kept {
    step: usize,
    values: BTreeMap<Value, Value>,
}

struct Replay<'g> {
    graph: &'g Graph,
    steps: &'g Steps,
    slots: u64,
    /// Rising; the first is step 0's, which is never given up.
    kept: Vec<Kept>,
    /// The step being reversed, with all that was computed again of it; none before the last step.
    reversing: Option<Kept>,
    /// Of the stretch of steps that is computed again.
    number: u32,
}

impl Replay<'_> {
    /// The value as the gradient of step `k` finds it.
    fn needed(
        &mut self,
        b: &mut Builder,
        map: &Map,
        k: usize,
        v: Value,
    ) -> Result<Value, TypeError> {
        // The last step is reversed as soon as it is done: nothing of it is computed again.
        let last = self.steps.crossing.len() - 1;
        if self.steps.made[v.node as usize].is_none_or(|made| made > k) || k == last {
            return Ok(map.get(v));
        }
        if self.reversing.as_ref().is_none_or(|r| r.step != k) {
            self.reversing = Some(self.reach(b, map, k)?);
        }
        let mut at = self.reversing.take().expect("just reached");
        let found = self.value(b, map, &mut at, v);
        self.reversing = Some(at);
        found
    }

    /// What crosses into step `k`, from the kept state before it; keeps states on the way while there are slots.
    fn reach(&mut self, b: &mut Builder, map: &Map, k: usize) -> Result<Kept, TypeError> {
        let last = self.steps.crossing.len() - 1;
        if self.reversing.is_none() {
            self.keep_first(map, last);
        }
        self.number += 1;
        while self.kept.len() > 1 && self.kept[self.kept.len() - 1].step > k {
            self.kept.pop();
        }
        loop {
            let top = self.kept[self.kept.len() - 1].clone();
            let (left, free) = self.room(&top, k);
            if left <= 1 {
                return Ok(top);
            }
            if free <= 1 {
                return self.advance(b, map, top, k);
            }
            let next = top.step + split(left, free) as usize;
            let next = self.advance(b, map, top, next)?;
            self.kept.push(next);
        }
    }

    /// Steps from a kept state to the end of step `k`, and slots for them, the state's own included.
    fn room(&self, top: &Kept, k: usize) -> (u64, u64) {
        let left = k + 1 - top.step;
        (left as u64, self.slots + 1 - self.kept.len() as u64)
    }

    /// The states that the forward pass keeps: they are there without being computed again.
    fn keep_first(&mut self, map: &Map, last: usize) {
        loop {
            let top = &self.kept[self.kept.len() - 1];
            let (left, free) = self.room(top, last);
            if left <= 1 || free <= 1 {
                return;
            }
            let step = top.step + split(left, free) as usize;
            let values = &self.steps.crossing[step];
            let values = values.iter().map(|v| (*v, map.get(*v))).collect();
            self.kept.push(Kept { step, values });
        }
    }

    /// Computes steps again up to the beginning of step `to`.
    fn advance(
        &self,
        b: &mut Builder,
        map: &Map,
        mut at: Kept,
        to: usize,
    ) -> Result<Kept, TypeError> {
        while at.step < to {
            let mut values = BTreeMap::new();
            for v in &self.steps.crossing[at.step + 1] {
                values.insert(*v, self.value(b, map, &mut at, *v)?);
            }
            at = Kept {
                step: at.step + 1,
                values,
            };
        }
        Ok(at)
    }

    /// A value of step `at.step` or before it, computed again if it is not there.
    fn value(
        &self,
        b: &mut Builder,
        map: &Map,
        at: &mut Kept,
        v: Value,
    ) -> Result<Value, TypeError> {
        if self.steps.made[v.node as usize].is_none() {
            return Ok(map.get(v));
        }
        // From the last node back: a step may be deeper than the stack.
        let mut waiting = vec![v];
        while let Some(v) = waiting.last().copied() {
            let node = self.graph.node(v.node);
            let missing = |o: &&Value| {
                self.steps.made[o.node as usize].is_some() && !at.values.contains_key(o)
            };
            if at.values.contains_key(&v) {
                waiting.pop();
            } else if let Some(o) = node.operands.iter().find(missing) {
                waiting.push(*o);
            } else {
                let operands: Vec<Value> = node
                    .operands
                    .iter()
                    .map(|o| at.values.get(o).copied().unwrap_or_else(|| map.get(*o)))
                    .collect();
                b.site = node.site.clone();
                b.site.pass = Pass::Backward;
                b.site.replay = self.number;
                b.span = node.span;
                let made = b.copy(self.graph, node, &operands)?;
                for (port, new) in made.into_iter().enumerate() {
                    let port = port as u32;
                    at.values.insert(Value { port, ..v }, new);
                }
            }
        }
        Ok(at.values[&v])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The closed form against the recursion it solves.
    #[test]
    fn replays_are_the_fewest() {
        let mut best = std::collections::BTreeMap::new();
        for slots in 1..6u64 {
            for steps in 0..40u64 {
                let cost = match (steps, slots) {
                    (0 | 1, _) => 0,
                    (n, 1) => n * (n - 1) / 2,
                    (n, s) => (1..n)
                        .map(|m| m + best[&(n - m, s - 1)] + best[&(m, s)])
                        .min()
                        .unwrap(),
                };
                best.insert((steps, slots), cost);
                assert_eq!(replays(steps, slots), cost, "{steps} steps, {slots} slots");
            }
        }
        assert_eq!(replays(1, 3), 0);
        assert_eq!(replays(10, 3), 15);
    }
}
