//! Suggests which row of a tableau is wrong when its order claim is false: a row in which a change of one weight, or a shift between two
//! entries that keeps the node, gives the claimed order.

use odec_exact::Exact;
use odec_numerics::order::{Expansion, Weights, expected, prove};
use odec_numerics::{Tableau, TreeId, Trees};

/// Most stages of a tableau that is searched.
const MAX_STAGES: usize = 13;
/// Most work: candidates times trees times entries of a tableau.
const MAX_WORK: usize = 3_000_000;

/// A row, and the entries that would fix it.
#[derive(Clone, Debug, PartialEq)]
pub struct Suspect {
    /// `None`: the weights.
    pub stage: Option<usize>,
    /// Entries, from 0, with the values that would do.
    pub entries: Vec<(usize, Exact)>,
}

impl Suspect {
    /// The same where evaluations have no rows.
    pub fn of_evaluations(&self) -> String {
        let each = self
            .entries
            .iter()
            .map(|(j, a)| format!("{a} times evaluation {}", j + 1));
        let each: Vec<String> = each.collect();
        let what = match self.stage {
            Some(i) => format!("the state of evaluation {}", i + 1),
            None => "the result".to_string(),
        };
        format!("{what} would have the order with {}", each.join(" and "))
    }

    pub fn sentence(&self) -> String {
        let entries = self.entries.iter();
        let each = entries.map(|(j, a)| format!("{a} as entry {}", j + 1));
        let each: Vec<String> = each.collect();
        let row = match self.stage {
            Some(i) => format!("the row of stage {}", i + 1),
            None => "the weights".to_string(),
        };
        format!("{row} would have the order with {}", each.join(" and "))
    }
}

/// The first row that can be fixed in this way. `alone`: single entries of stages may change, because no node says what they sum to.
pub fn row(t: &Tableau, order: usize, alone: bool) -> Option<Suspect> {
    if t.stages() > MAX_STAGES || t.fields.len() != 1 {
        return None;
    }
    let mut trees = Trees::new(1);
    while trees.orders() < order {
        if !trees.grow() {
            return None;
        }
    }
    let weights = (0..t.stages()).map(|j| (None, j, None));
    let shifts = |row: Option<usize>, n: usize| {
        let to = move |j: usize| {
            (0..n)
                .filter(move |k| *k != j)
                .map(move |k| (row, j, Some(k)))
        };
        (0..n).flat_map(to)
    };
    let explicit = t.is_explicit();
    let width = |i: usize| if explicit { i } else { t.stages() };
    let stages = (1..t.stages()).flat_map(|i| shifts(Some(i), width(i)));
    let single = (1..t.stages()).flat_map(|i| (0..width(i)).map(move |j| (Some(i), j, None)));
    let weights = weights.chain(single.filter(|_| alone));
    let all = weights.chain(stages).chain(shifts(None, t.stages()));
    let mut here = Weights::new(t)?;
    let mut each = (1..=order).flat_map(|n| trees.of_order(n));
    let broken = each.find_map(|tree| {
        let off = &here.coefficient(&trees, tree) - &expected(&trees, tree);
        (!off.is_zero()).then_some((tree, off))
    });
    // Weights come first: they are tried in any case.
    let most = MAX_WORK / (trees.len() * t.stages() * t.stages()).max(1);
    let all = all.take(most.max(t.stages()));
    let broken = broken?;
    let mut all =
        all.filter_map(|(stage, j, k)| mended(t, order, &mut trees, &broken, (stage, j, k)));
    all.next()
}

/// Entry `j` larger by what the first condition that does not hold asks for, entry `k` smaller by as much.
fn mended(
    t: &Tableau,
    order: usize,
    trees: &mut Trees,
    (tree, off): &(TreeId, Exact),
    (stage, j, k): (Option<usize>, usize, Option<usize>),
) -> Option<Suspect> {
    let shifted = |by: &Exact| {
        let mut t = t.clone();
        let row = match stage {
            Some(i) => &mut t.a[i],
            None => &mut t.b,
        };
        row[j] = &row[j] + by;
        if let Some(k) = k {
            row[k] = &row[k] - by;
        }
        t
    };
    let one = shifted(&Exact::one());
    let there = Weights::new(&one)?.coefficient(trees, *tree);
    let slope = &(&there - &expected(trees, *tree)) - off;
    let by = -&(off * &slope.recip().ok()?);
    let mended = shifted(&by);
    let mut weights = Weights::new(&mended)?;
    if prove(&mut weights, trees, order, None).order < order {
        return None;
    }
    let row = match stage {
        Some(i) => &mended.a[i],
        None => &mended.b,
    };
    let mut entries: Vec<usize> = [j].into_iter().chain(k).collect();
    entries.sort_unstable();
    Some(Suspect {
        stage,
        entries: entries.into_iter().map(|j| (j, row[j].clone())).collect(),
    })
}
