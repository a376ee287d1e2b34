//! Reads how an equation is solved: iterates and what is made of them, `anderson(memory: 5, tol: 1/1000, max: 30) gradient implicit`.

use super::parse::Reader;
use crate::ValueId;
use crate::solver::{Gradient, Solver};
use crate::stage::{Iterates, StageInstr};
use odec_solver::{Mixing, Rule};
use odec_text::cursor::Parsed;

const RULES: [Rule; 2] = [Rule::Anderson, Rule::Broyden];

impl Reader<'_> {
    /// `anderson[1](z1 -> k3, y1 -> k2, memory: 5, tol: 1/1000)`, `next(x -> k1, tol: 1/100)`.
    pub fn mix(&mut self) -> Parsed<StageInstr> {
        let expected = "`next`, `anderson` or `broyden`";
        let rule = self.rule("next", expected)?;
        let (of, of_at) = self.entry()?;
        self.cursor.need("(")?;
        let mut seen = vec![self.iterates()?];
        self.within(of, of_at, &seen[0])?;
        let memory = loop {
            self.cursor.need(",")?;
            if let Some(rule) = rule
                && self.label("memory")
            {
                let memory = self.whole("a number of iterates")?;
                self.cursor.need(",")?;
                break Some((rule, memory));
            }
            if rule.is_none() && self.cursor.rest().starts_with("tol") {
                break None;
            }
            let at = self.place();
            seen.push(self.iterates()?);
            if seen.last().map(Vec::len) != seen.first().map(Vec::len) {
                let what = "expected as many unknowns as in the newest iterates";
                return self.cursor.error(at, what);
            }
        };
        let tol = self.tolerance()?;
        self.cursor.need(")")?;
        let (rule, memory) = memory.unwrap_or_default();
        let mixing = Mixing { tol, memory, rule };
        Ok(StageInstr::Mix { of, seen, mixing })
    }

    /// `solution[1](s1 -> k32) by fixed_point(iterations: 3) gradient phantom(1)`.
    pub fn solution(&mut self) -> Parsed<StageInstr> {
        self.keyword("solution")?;
        let (of, of_at) = self.entry()?;
        self.cursor.need("(")?;
        let unknowns = self.iterates()?;
        self.within(of, of_at, &unknowns)?;
        self.cursor.need(")")?;
        self.keyword("by")?;
        let solver = Solver {
            finds: self.finds()?,
            gradient: self.gradient()?,
        };
        Ok(StageInstr::Solution {
            of,
            unknowns,
            solver,
        })
    }

    fn finds(&mut self) -> Parsed<odec_solver::Solver> {
        let expected = "`fixed_point`, `anderson` or `broyden`";
        let rule = self.rule("fixed_point", expected)?;
        self.cursor.need("(")?;
        if rule.is_none() && self.label("iterations") {
            let iterations = self.whole("a number of iterations")?;
            self.cursor.need(")")?;
            return Ok(Solver::plain(iterations).finds);
        }
        let mut memory = 0;
        if rule.is_some() {
            self.labelled("memory")?;
            memory = self.whole("a number of iterates")?;
            self.cursor.need(",")?;
        }
        let tol = self.tolerance()?;
        self.cursor.need(",")?;
        self.labelled("max")?;
        let iterations = self.whole("a number of iterations")?;
        self.cursor.need(")")?;
        let rule = rule.unwrap_or_default();
        Ok(odec_solver::Solver {
            mixing: Some(Mixing { tol, memory, rule }),
            iterations,
        })
    }

    fn gradient(&mut self) -> Parsed<Gradient> {
        if self.cursor.rest().is_empty() {
            return Ok(Gradient::Unroll);
        }
        self.keyword("gradient")?;
        let at = self.place();
        let expected = "`implicit`, `phantom(1)` or `last(1)`";
        let counted: fn(usize) -> Gradient = match self.cursor.name(expected)? {
            "implicit" => return Ok(Gradient::Implicit),
            "phantom" => Gradient::Phantom,
            "last" => Gradient::Last,
            _ => return self.cursor.error(at, format!("expected {expected}")),
        };
        self.cursor.need("(")?;
        let n = self.whole("a number of iterations")?;
        self.cursor.need(")")?;
        Ok(counted(n))
    }

    /// The rule that a word names; `None`: the plain one.
    fn rule(&mut self, plain: &str, expected: &str) -> Parsed<Option<Rule>> {
        let at = self.place();
        let name = self.cursor.name(expected)?;
        match RULES.into_iter().find(|r| r.name() == name) {
            None if name != plain => self.cursor.error(at, format!("expected {expected}")),
            rule => Ok(rule),
        }
    }

    fn tolerance(&mut self) -> Parsed<odec_exact::Exact> {
        self.labelled("tol")?;
        self.number()
    }

    /// Which of several unknowns, and where that stands.
    fn entry(&mut self) -> Parsed<(usize, usize)> {
        let at = self.place();
        if !self.cursor.take("[") {
            return Ok((0, at));
        }
        let of = self.whole("the number of an unknown")?;
        self.cursor.need("]")?;
        Ok((of, at))
    }

    fn within(&self, of: usize, at: usize, unknowns: &Iterates) -> Parsed<()> {
        match of < unknowns.len() {
            true => Ok(()),
            false => {
                let last = unknowns.len() - 1;
                let what = format!("expected the number of an unknown, up to {last}");
                self.cursor.error(at, what)
            }
        }
    }

    /// `x -> k1`, `[x, x] -> [y1, y2]`.
    fn iterates(&mut self) -> Parsed<Iterates> {
        let from = self.side()?;
        self.cursor.need("->")?;
        let at = self.place();
        let to = self.side()?;
        if from.len() != to.len() {
            let what = format!("expected as many values as before `->`: {}", from.len());
            return self.cursor.error(at, what);
        }
        Ok(from.into_iter().zip(to).map(|(z, f)| [z, f]).collect())
    }

    fn side(&mut self) -> Parsed<Vec<ValueId>> {
        match self.cursor.take("[") {
            true => self.values("]"),
            false => Ok(vec![self.value()?]),
        }
    }
}
