//! CUDA graphs: sequences of launches that repeat are replayed with one call.
//!
//! Takes the launches of a run, which [`super::CudaDevice`] collects until something else is asked for. A sequence of kernels and
//! shapes that is seen for the first time is launched as it is (it may never come again: a prompt of some length); the second
//! time the driver makes a graph of it, a chain, which is replayed from then on. Another batch or length of sequence is
//! another sequence, with a graph of its own.
//!
//! What changes from run to run while kernels and shapes stay (learning rate and step number, where new keys go and how many
//! there are) are arguments, so those nodes are told their new arguments before a replay. The other way, to keep such
//! numbers in the card's memory, would give kernels an argument that the specifications do not know, for a handful of nodes of
//! a run. What changes in every element (tokens, the key of dropout) is in memory anyway, at a place that stays.
//! Updating a node takes time of the host, during which the card would wait. So where the addresses and dims of a node have changed twice by the same
//! amounts, as from token to token, the node is updated for the next replay right after this one is queued (`Steps`). Before a replay, nodes that differ
//! from what is asked for are updated.

use super::Driver;
use super::plan::{Launch, Mapped};
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

/// Where a launch comes from, for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The kernel's symbol.
    pub kernel: Rc<str>,
    /// The entry, and the equation within it.
    pub site: Rc<str>,
    /// Where the dims are among the arguments.
    pub dims: std::ops::Range<usize>,
}

/// A launch, and the number of its kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    pub function: usize,
    pub launch: Launch,
    pub origin: Origin,
}

impl fmt::Display for Planned {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Origin { kernel, site, dims } = &self.origin;
        let shape = self.launch.shape;
        write!(
            f,
            "kernel {kernel} at {site}, dims {:?}, {} blocks of {} threads, {} bytes of shared memory",
            self.launch.arguments.get(dims.clone()).unwrap_or(&[]),
            shape.blocks,
            shape.threads,
            shape.shared
        )
    }
}

impl Planned {
    /// Whether a node of a graph can be either, given its arguments.
    fn alike(&self, other: &Planned) -> bool {
        let arguments = |p: &Planned| (p.launch.arguments.len(), p.launch.maps.len());
        (self.function, self.launch.shape) == (other.function, other.launch.shape)
            && arguments(self) == arguments(other)
    }
}

/// The steps of launches that differ, by their numbers, but for those whose coefficients do.
fn steps(before: &[Planned], after: &[Planned]) -> BTreeMap<usize, Steps> {
    let pairs = before.iter().zip(after).enumerate();
    let moved = pairs.filter(|(_, (before, after))| {
        let end = before.origin.dims.end;
        let coeffs = before.launch.arguments[end..] == after.launch.arguments[end..];
        before.launch != after.launch && coeffs
    });
    let moved = moved.map(|(n, (before, after))| (n, Steps::between(before, after)));
    moved.collect()
}

/// The most blocks of a launch, on average, in a sequence of small launches, as of a token that is read.
const SMALL: u64 = 64;

/// Whether a graph of these launches uses programmatic dependent launch, where its kernels wait by themselves: if the launches are small. On an H200 a
/// token took 0.81 to 0.96 of the time with it, and a step of training, whose launches fill the card, 1.03 to 1.06 times as long.
fn begin_early(launches: &[Planned]) -> bool {
    let blocks: u64 = launches.iter().map(|p| p.launch.shape.blocks).sum();
    blocks <= SMALL * launches.len() as u64
}

/// Fewer launches than this are not worth a graph.
const WORTH: usize = 4;
/// Sequences that are remembered; the one that was not used for longest makes room.
const KEPT: usize = 16;

/// The sequences that were seen.
pub struct Graphs<G> {
    known: Vec<Known<G>>,
    /// Whether kernels wait by themselves for the launch before theirs ([`odec_program::gpu::awaits`]).
    awaits: bool,
    /// Counts runs, to tell which sequence was used last.
    clock: u64,
}

struct Known<G> {
    /// The graph's nodes with the arguments that they have now: those of the last run, or of the next one.
    nodes: Vec<Planned>,
    /// The launches of the last run, and by how much those that changed had changed then.
    last: Vec<Planned>,
    steps: BTreeMap<usize, Steps>,
    graph: Option<G>,
    used: u64,
}

/// By how much each number of a launch changes from run to run: arguments, then of each map the address, extents and strides.
#[derive(PartialEq, Eq)]
struct Steps(Vec<u64>);

/// The numbers of a launch that may change while its kernel and shape stay.
fn numbers(launch: &mut Launch) -> impl Iterator<Item = &mut u64> {
    let maps = launch.maps.iter_mut().flat_map(|mapped| {
        let Mapped { address, map } = mapped;
        let sizes = map.extents.iter_mut().chain(&mut map.strides);
        std::iter::once(address).chain(sizes)
    });
    launch.arguments.iter_mut().chain(maps)
}

impl Steps {
    fn between(before: &Planned, after: &Planned) -> Steps {
        let (mut before, mut after) = (before.launch.clone(), after.launch.clone());
        let pairs = numbers(&mut after).zip(numbers(&mut before));
        Steps(
            pairs
                .map(|(after, before)| after.wrapping_sub(*before))
                .collect(),
        )
    }

    /// The launch of the run after.
    fn after(&self, launch: &Planned) -> Planned {
        let mut next = launch.clone();
        for (number, step) in numbers(&mut next.launch).zip(&self.0) {
            *number = number.wrapping_add(*step);
        }
        next
    }
}

impl<G> Graphs<G> {
    /// None yet. With `awaits`, kernels wait by themselves for the launch before theirs.
    pub fn new(awaits: bool) -> Graphs<G> {
        Graphs {
            known: Vec::new(),
            awaits,
            clock: 0,
        }
    }
}

/// Queues a launch; an error of the driver names the launch.
///
/// # Errors
/// When the driver refuses.
pub fn one<D: Driver>(driver: &mut D, launch: &Planned) -> Result<(), String> {
    let named = |why: String| format!("{why}; refused was {launch}");
    driver.launch(launch).map_err(named)
}

/// Queues launches one by one.
///
/// # Errors
/// As [`one`].
pub fn each<D: Driver>(driver: &mut D, launches: &[Planned]) -> Result<(), String> {
    launches.iter().try_for_each(|p| one(driver, p))
}

impl<G> Graphs<G> {
    /// Queues a run's launches.
    ///
    /// # Errors
    /// When the driver refuses, in its words.
    pub fn run<D>(&mut self, driver: &mut D, launches: Vec<Planned>) -> Result<(), String>
    where
        D: Driver<Graph = G>,
    {
        if launches.len() < WORTH {
            return each(driver, &launches);
        }
        self.clock += 1;
        let same = |k: &Known<G>| {
            k.last.len() == launches.len() && k.last.iter().zip(&launches).all(|(a, b)| a.alike(b))
        };
        let Some(found) = self.known.iter().position(same) else {
            each(driver, &launches)?;
            self.remember(launches);
            return Ok(());
        };
        let known = &mut self.known[found];
        known.used = self.clock;
        let graph = match &mut known.graph {
            Some(graph) => {
                let nodes = known.nodes.iter_mut().zip(&launches).enumerate();
                for (n, (is, new)) in nodes.filter(|(_, (is, new))| is.launch != new.launch) {
                    let named = |why: String| format!("{why}; refused was a graph's node, {new}");
                    driver.update(graph, n, new).map_err(named)?;
                    *is = new.clone();
                }
                graph
            }
            none => {
                let early = self.awaits && begin_early(&launches);
                known.nodes.clone_from(&launches);
                none.insert(driver.instantiate(&launches, early)?)
            }
        };
        driver.replay(graph)?;
        let steps = steps(&known.last, &launches);
        let same = steps
            .iter()
            .filter(|(n, step)| known.steps.get(n) == Some(step));
        for (n, step) in same {
            let next = step.after(&launches[*n]);
            // Where the driver refuses it, because it lies beyond the end of a matrix, say, the node keeps what it has.
            if driver.update(graph, *n, &next).is_ok() {
                known.nodes[*n] = next;
            }
        }
        (known.steps, known.last) = (steps, launches);
        Ok(())
    }

    fn remember(&mut self, launches: Vec<Planned>) {
        if self.known.len() == KEPT {
            let oldest = (0..KEPT).min_by_key(|n| self.known[*n].used);
            oldest.map(|n| self.known.swap_remove(n));
        }
        self.known.push(Known {
            nodes: vec![],
            last: launches,
            steps: BTreeMap::new(),
            graph: None,
            used: self.clock,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::recording::{DriverCalls, Recorded, Recording};
    use super::*;
    use odec_program::gpu::Shape;

    fn sequence(blocks: u64, arguments: [u64; 3]) -> Vec<Planned> {
        let launch = |n: usize| Planned {
            function: n % 3,
            launch: Launch {
                shape: Shape {
                    blocks,
                    threads: 32,
                    shared: 0,
                },
                arguments: vec![arguments[n % 3], n as u64],
                maps: vec![],
            },
            origin: Origin {
                kernel: "k".into(),
                site: "here".into(),
                dims: 1..2,
            },
        };
        (0..7).map(launch).collect()
    }

    /// What launching one by one would have recorded.
    fn plainly(runs: &[Vec<Planned>]) -> Vec<Recorded> {
        let recording = Recording::default();
        for run in runs {
            each(&mut recording.clone(), run).unwrap();
        }
        recording.launches.take()
    }

    #[test]
    fn one_graph_for_many_runs_and_only_changed_nodes_are_told() {
        let runs: Vec<_> = (0..10).map(|n| sequence(5, [1, n, 3])).collect();
        let mut recording = Recording::default();
        let mut graphs = Graphs::new(false);
        for run in &runs {
            graphs.run(&mut recording, run.clone()).unwrap();
        }
        assert_eq!(recording.launches.take(), plainly(&runs));
        // Launched once, then a graph; eight further runs change the two nodes of kernel 1, and after the last they are updated for a run that does not come.
        let made = recording.made.get();
        assert_eq!(
            made,
            DriverCalls {
                graphs: 1,
                updates: 18,
                replays: 9,
                ..DriverCalls::default()
            }
        );
    }

    /// Nodes whose arguments change by the same amounts are updated after a replay, for the next. Where the next run asks for others, they are updated
    /// again: what is launched is always what was asked for.
    #[test]
    fn nodes_that_change_by_the_same_amounts_are_updated_ahead() {
        let places = [10, 20, 30, 40, 50, 60, 7, 8, 9, 10, 10, 10];
        let runs: Vec<_> = places.map(|n| sequence(5, [1, n, 3])).into();
        let mut recording = Recording::default();
        let mut graphs = Graphs::new(false);
        // Of each run, updates before it was replayed, and after.
        let mut updates = vec![];
        for run in &runs {
            let before = recording.made.get().updates;
            graphs.run(&mut recording, run.clone()).unwrap();
            updates.push(recording.made.get().updates - before);
        }
        assert_eq!(recording.launches.take(), plainly(&runs));
        // Two nodes change. The first run is launched, and the second makes the graph. After the third two steps are the same, so the nodes are updated for
        // the fourth, and so on. The seventh run is another, and so are the steps up to the ninth.
        assert_eq!(updates, [0, 0, 4, 2, 2, 2, 2, 2, 4, 2, 2, 0]);
    }

    /// A refusal ahead of a run is no error, unless the run comes.
    #[test]
    fn what_is_refused_ahead_is_an_error_when_it_is_asked_for() {
        let runs: Vec<_> = (0..6).map(|n| sequence(5, [1, 10 * n, 3])).collect();
        let mut recording = Recording {
            refuses: Some(|p| p.launch.arguments[0] == 40),
            ..Recording::default()
        };
        let mut graphs = Graphs::new(false);
        for run in &runs[..4] {
            graphs.run(&mut recording, run.clone()).unwrap();
        }
        assert_eq!(recording.launches.take(), plainly(&runs[..4]));
        let why = graphs.run(&mut recording, runs[4].clone()).unwrap_err();
        assert!(why.contains("refused was a graph's node"), "{why}");
    }

    #[test]
    fn other_shapes_are_other_graphs() {
        let runs: Vec<_> = (0..12).map(|n| sequence(1 + n % 2, [1, n, 3])).collect();
        let mut recording = Recording::default();
        let mut graphs = Graphs::new(false);
        for run in &runs {
            graphs.run(&mut recording, run.clone()).unwrap();
        }
        assert_eq!(recording.launches.take(), plainly(&runs));
        assert_eq!(recording.made.get().graphs, 2);
    }

    /// More shapes than are kept: nothing grows without end, and what is used often stays.
    #[test]
    fn what_was_not_used_for_longest_makes_room() {
        let mut recording = Recording::default();
        let mut graphs = Graphs::new(false);
        for n in 0..100 {
            graphs
                .run(&mut recording, sequence(1000, [1, n, 3]))
                .unwrap();
            graphs
                .run(&mut recording, sequence(1 + n, [1, 2, 3]))
                .unwrap();
        }
        assert_eq!(graphs.known.len(), KEPT);
        assert_eq!(recording.made.get().graphs, 1);
    }

    /// A token's launches do, but for its logits a block or a few each; not those of a batch.
    #[test]
    fn small_launches_begin_early() {
        let small = [sequence(1, [1, 2, 3]), sequence(16, [1, 2, 3])].concat();
        assert!(begin_early(&small));
        let logits = sequence(512, [1, 2, 3]);
        assert!(begin_early(&[&small[..], &logits[..1]].concat()));
        assert!(!begin_early(&logits));
    }

    #[test]
    fn few_launches_are_launched() {
        let mut recording = Recording::default();
        let mut graphs = Graphs::new(false);
        for _ in 0..5 {
            let few = sequence(1, [1, 2, 3])[..WORTH - 1].to_vec();
            graphs.run(&mut recording, few).unwrap();
        }
        assert_eq!(recording.made.get(), DriverCalls::default());
        assert_eq!(recording.launches.borrow().len(), 5 * (WORTH - 1));
    }
}
