//! Partitioned methods, for `q' = A(p)`, `p' = B(q)`, and Nyström methods, for `q'' = B(q)` (Hairer, Nørsett & Wanner 1993, II.14 and
//! II.15; Hairer, Lubich & Wanner 2006, II.2 and III.2).
//!
//! Takes a step that maps q and p to new ones; gives its order with any start of p ([`order`]), the order of its energy error
//! ([`energy`]), and whether it is symplectic, symmetric and explicit backwards. `q'' = B(q)` is the pair with A(p) = p: its
//! expansions need fewer trees ([`Trees::nystrom`]), its structure has conditions of its own ([`nystrom`]).

pub mod energy;
pub mod nystrom;
pub mod order;

use crate::symplectic::{Broken, symplectic};
use crate::tableau::Tableau;
use crate::trees::Trees;
use nystrom::Nystrom;
use odec_exact::Exact;
use order::Started;

/// The numbers of the fields in a tableau and of the colours in trees.
pub const A: usize = 0;
pub const B: usize = 1;

/// A method of one step for two states.
#[derive(Clone, Debug, PartialEq)]
pub struct Partitioned {
    /// Stages of A are evaluated at p and a sum of evaluations of B; those of B at q and a sum of evaluations of A. Entries between
    /// stages of one field are 0.
    tableau: Tableau,
    /// Where A(p) = p.
    nystrom: Option<Nystrom>,
}

/// What keeps a method from being symplectic.
#[derive(Clone, Debug, PartialEq)]
pub enum Unsymplectic {
    Pair(Box<Broken>),
    Nystrom(Box<nystrom::Broken>),
}

impl Partitioned {
    /// A method for two fields; `None`: an entry stands between stages of one field, or there are not two fields.
    pub fn separable(tableau: Tableau) -> Option<Partitioned> {
        let same = |i: usize, j: usize| tableau.field_of[i] == tableau.field_of[j];
        let n = tableau.stages();
        let mut pairs = (0..n).flat_map(|i| (0..n).map(move |j| (i, j)));
        let apart = pairs.all(|(i, j)| !same(i, j) || tableau.a[i][j].is_zero());
        let method = Partitioned {
            tableau,
            nystrom: None,
        };
        (apart && method.tableau.fields.len() == 2).then_some(method)
    }

    /// A method for `q'' = B(q)`; names of the velocity and of the field.
    pub fn second_order(method: Nystrom, names: [String; 2]) -> Partitioned {
        Partitioned {
            tableau: method.tableau(names),
            nystrom: Some(method),
        }
    }

    pub fn tableau(&self) -> &Tableau {
        &self.tableau
    }
    pub fn nystrom(&self) -> Option<&Nystrom> {
        self.nystrom.as_ref()
    }

    /// The trees that its expansions are compared on; none is made yet.
    pub fn trees(&self) -> Trees {
        let trees = match self.nystrom {
            Some(_) => Trees::nystrom(),
            None => Trees::separable(),
        };
        trees.for_values(VALUES.max(8 * self.tableau.stages()))
    }

    pub fn started(&self) -> Started {
        Started::new(&self.tableau)
    }

    /// Whether it keeps dq∧dp where A and B are gradients (Sun 1993; Suris 1989).
    pub fn symplectic(&self) -> Result<(), Unsymplectic> {
        match &self.nystrom {
            Some(n) => n.symplectic().map_err(Unsymplectic::Nystrom),
            None => match symplectic(&self.tableau) {
                Ok(_) => Ok(()),
                Err(broken) => Err(Unsymplectic::Pair(broken)),
            },
        }
    }

    /// Whether it is its own adjoint. With A odd and B even in p, as in `q'' = B(q)`, that is reversibility: to turn p round, to make a step
    /// and to turn p round again undoes a step (Hairer, Lubich & Wanner 2006, V.1).
    pub fn is_symmetric(&self) -> bool {
        match &self.nystrom {
            Some(n) => n.is_symmetric(),
            None => self.tableau.is_same_method(&self.adjoint()),
        }
    }

    /// The part of a step by which p must lie off the time of q for the method to be its own adjoint, if it is: 0 where
    /// [`Self::is_symmetric`]; leapfrog has p half a step before q.
    pub fn symmetric_with_offset(&self) -> Option<Exact> {
        match &self.nystrom {
            Some(n) => n.symmetric_with_offset(),
            None => self.is_symmetric().then(Exact::zero),
        }
    }

    /// Whether a step is made of evaluations alone.
    pub fn is_explicit(&self) -> bool {
        match &self.nystrom {
            Some(n) => is_acyclic(&n.reduced().a),
            None => is_acyclic(&self.tableau.reduced().a),
        }
    }

    /// Whether a step can be undone by evaluations alone: each update reads what it does not change.
    pub fn is_explicit_backwards(&self) -> bool {
        match &self.nystrom {
            Some(n) => n.is_explicit_backwards(),
            None => is_acyclic(&masked_adjoint(&self.tableau.reduced()).a),
        }
    }

    fn adjoint(&self) -> Tableau {
        masked_adjoint(&self.tableau)
    }
}

/// Least values of a step that trees are made for.
const VALUES: usize = 100;

/// The adjoint, with nothing between stages of one field.
fn masked_adjoint(t: &Tableau) -> Tableau {
    let mut t = t.adjoint();
    for i in 0..t.stages() {
        for j in 0..t.stages() {
            if t.field_of[i] == t.field_of[j] {
                t.a[i][j] = Exact::zero();
            }
        }
    }
    t
}

/// Whether stages can be put into an order in which each needs earlier ones alone.
pub(crate) fn is_acyclic(a: &[Vec<Exact>]) -> bool {
    let mut left: Vec<usize> = (0..a.len()).collect();
    loop {
        let waits = |i: &usize| left.iter().any(|j| !a[*i][*j].is_zero());
        let rest: Vec<usize> = left.iter().copied().filter(waits).collect();
        if rest.len() == left.len() {
            return rest.is_empty();
        }
        left = rest;
    }
}
