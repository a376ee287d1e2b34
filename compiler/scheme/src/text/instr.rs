//! Reads what makes a value.

use super::parse::Reader;
use super::sum::path;
use crate::ValueId;
use crate::exponential::{MAX_INDEX, called};
use crate::stage::{Moment, Projection, StageInstr, Unknown, default_eps};
use crate::unknown::REASONS;
use odec_exact::Exact;
use odec_text::cursor::Parsed;

impl Reader<'_> {
    /// What stands behind `=`, by the letter before it.
    pub fn made_by(&mut self, letter: char) -> Parsed<StageInstr> {
        match letter {
            'k' => self.evaluation(),
            'p' => self.past(),
            'q' => {
                let a = self.value()?;
                self.cursor.need("*")?;
                Ok(StageInstr::Product([a, self.value()?]))
            }
            'v' => self.project(),
            'u' => self.flow(),
            'z' => self.mix(),
            's' => {
                self.keyword("stop")?;
                self.value().map(StageInstr::Stop)
            }
            'n' => self.normal(),
            'e' => self.solution(),
            'w' => self.unknown().map(StageInstr::Unknown),
            'f' => self.function(),
            _ => self.sum().map(StageInstr::Combine),
        }
    }

    /// `F(y1)`, `G(k1, x) use 2 at t + 1/2*h`.
    fn evaluation(&mut self) -> Parsed<StageInstr> {
        let field = self.field()?;
        self.cursor.need("(")?;
        let at = self.values(")")?;
        let usage = match self.word("use") {
            true => self.counted("a number from 1")?,
            false => 0,
        };
        let when = match self.word("at") {
            true => Some(self.coefficient()?),
            false => None,
        };
        Ok(StageInstr::Eval {
            field,
            usage,
            at,
            when,
            span: self.span,
        })
    }

    /// `past f[-2]`, `past f of the start`.
    fn past(&mut self) -> Parsed<StageInstr> {
        self.keyword("past")?;
        let name = self.cursor.name("a name that a step keeps")?.to_string();
        let when = match self.cursor.take("[") {
            true => {
                self.cursor.need("-")?;
                let ago = self.counted("a number of steps from 1")? + 1;
                self.cursor.need("]")?;
                Moment::Ago(ago)
            }
            false => {
                for word in ["of", "the", "start"] {
                    self.keyword(word)?;
                }
                Moment::Start
            }
        };
        Ok(StageInstr::Past { name, when })
    }

    /// `nonnegative(x)`, `normalize(x, mean: 0, std: 1)`.
    fn project(&mut self) -> Parsed<StageInstr> {
        let moments = match () {
            _ if self.word("nonnegative") => false,
            _ if self.word("normalize") => true,
            _ => return self.cursor.expected("`nonnegative` or `normalize`"),
        };
        self.cursor.need("(")?;
        let at = self.value()?;
        let onto = match moments {
            false => Projection::Nonnegative,
            true => {
                self.cursor.need(",")?;
                self.labelled("mean")?;
                let mean = self.coefficient()?;
                self.cursor.need(",")?;
                self.labelled("std")?;
                let std = self.coefficient()?;
                let eps = match self.cursor.take(",") {
                    true => {
                        self.labelled("eps")?;
                        self.number()?
                    }
                    false => default_eps(),
                };
                Projection::Moments { mean, std, eps }
            }
        };
        self.cursor.need(")")?;
        Ok(StageInstr::Project { at, onto })
    }

    /// `flow F(1/2*h) from x`.
    fn flow(&mut self) -> Parsed<StageInstr> {
        self.keyword("flow")?;
        let field = self.field()?;
        self.cursor.need("(")?;
        let over = self.coefficient()?;
        self.cursor.need(")")?;
        self.keyword("from")?;
        let at = self.value()?;
        Ok(StageInstr::Flow {
            field,
            at,
            over,
            span: self.span,
        })
    }

    /// `normal(std: 1/2, like: y1, number: 2)`.
    fn normal(&mut self) -> Parsed<StageInstr> {
        self.keyword("normal")?;
        self.cursor.need("(")?;
        self.labelled("std")?;
        let std: Exact = self.number()?;
        let (mut like, mut own) = (ValueId::STATE, self.normals);
        let mut more = self.cursor.take(",");
        if more && self.label("like") {
            like = self.value()?;
            more = self.cursor.take(",");
        }
        if more {
            self.labelled("number")?;
            own = self.counted("a number from 1")?;
        }
        self.cursor.need(")")?;
        self.normals += 1;
        Ok(StageInstr::Normal {
            like,
            std,
            number: own,
        })
    }

    /// `x + h*k1`, `x + h*k1, away: "why"`, `unknown: why`.
    fn unknown(&mut self) -> Parsed<Unknown> {
        let span = self.span;
        if self.label("unknown") {
            let why = self.cursor.rest().trim_end();
            let Some(why) = REASONS.into_iter().find(|r| *r == why) else {
                return self.cursor.expected("a reason why nothing is known");
            };
            self.cursor.at += why.len();
            return Ok(Unknown::Without { why, span });
        }
        self.ahead = true;
        let sum = self.sum();
        self.ahead = false;
        let sum = sum?;
        let away = match self.cursor.take(",") {
            true => {
                self.labelled("away")?;
                Some(self.cursor.word("a reason in quotation marks")?)
            }
            false => None,
        };
        Ok(Unknown::Solved { sum, away, span })
    }

    /// `exp(1/2*h*L)(x)`, `phi1(h*L)(k1)`.
    fn function(&mut self) -> Parsed<StageInstr> {
        let at = self.place();
        let name = self.cursor.name("`exp`, `phi1` and so on")?;
        let Some(index) = (0..=MAX_INDEX).find(|k| called(*k) == name) else {
            let what = format!("expected `exp`, or `phi1` to `phi{MAX_INDEX}`");
            return self.cursor.error(at, what);
        };
        self.cursor.need("(")?;
        let (over, field_at, field) = self.scaled()?;
        let field = self.field_called(field_at, field)?;
        self.cursor.need(")")?;
        self.cursor.need("(")?;
        let at = self.value()?;
        self.cursor.need(")")?;
        Ok(StageInstr::Phi {
            field,
            index,
            over,
            at,
            span: self.span,
        })
    }

    fn field(&mut self) -> Parsed<usize> {
        let at = self.place();
        match path(&mut self.cursor) {
            Some(name) => self.field_called(at, name),
            None => self.cursor.expected("the name of a field"),
        }
    }
}
