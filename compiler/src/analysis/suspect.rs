//! Which row of a tableau to look at when its claim is false: one in which a change of one weight, or a shift from one
//! entry to another that leaves the node alone, gives the order that is claimed.

use odec_graph::Exact;
use odec_numerics::order::{Expansion, Weights, expected, prove};
use odec_numerics::{Tableau, Trees};

/// Most stages of a tableau that is searched.
const MAX_STAGES: usize = 8;

/// A row, and what would mend it.
#[derive(Clone, Debug, PartialEq)]
pub struct Suspect {
    /// `None`: the weights.
    pub stage: Option<usize>,
    /// Entries, from 0, with the values that would do.
    pub entries: Vec<(usize, Exact)>,
}

impl Suspect {
    pub fn sentence(&self) -> String {
        let entries = self.entries.iter();
        let each = entries.map(|(j, a)| format!("{a} as entry {}", j + 1));
        let each: Vec<String> = each.collect();
        let row = match self.stage {
            Some(i) => format!("the row of stage {}", i + 1),
            None => "the weights".to_string(),
        };
        format!("{row} would do with {}", each.join(" and "))
    }
}

/// The first row that can be mended so.
pub fn row(t: &Tableau, order: usize) -> Option<Suspect> {
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
    let all = weights.chain(stages).chain(shifts(None, t.stages()));
    let mut all = all.filter_map(|(stage, j, k)| mended(t, order, &mut trees, stage, j, k));
    all.next()
}

/// Entry `j` larger by what the first condition asks for, entry `k` smaller by as much.
fn mended(
    t: &Tableau,
    order: usize,
    trees: &mut Trees,
    stage: Option<usize>,
    j: usize,
    k: Option<usize>,
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
    let (mut here, mut there) = (Weights::new(t)?, Weights::new(&one)?);
    let mut by = None;
    for tree in (1..=order).flat_map(|n| trees.of_order(n)) {
        let exact = expected(trees, tree);
        let off = &here.coefficient(trees, tree) - &exact;
        let slope = &(&there.coefficient(trees, tree) - &exact) - &off;
        match (off.is_zero(), slope.is_zero()) {
            (true, _) => {}
            (false, true) => return None,
            (false, false) => {
                by = Some(-&(&off * &slope.recip().ok()?));
                break;
            }
        }
    }
    let mended = shifted(&by?);
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
