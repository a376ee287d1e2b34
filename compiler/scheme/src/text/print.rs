//! Writes the textual form of a stage program.

use super::letter;
use crate::Coeff;
use crate::combination::{Combination, ValueId};
use crate::exponential::called;
use crate::resolve::count;
use crate::stage::{
    Iterates, Projection, StageInstr, StageProgram, Unknown, default_eps, evaluations,
};
use odec_text::word::word;
use std::collections::BTreeMap;
use std::fmt;

impl fmt::Display for StageProgram {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let evaluated = count(self.evaluations(), "evaluation");
        match self.title.as_str() {
            "" => writeln!(f, "— {evaluated}")?,
            title => writeln!(f, "{title} — {evaluated}")?,
        }
        let fields: Vec<&str> = self.fields.iter().map(|l| &*l.name).collect();
        if self.mentioned() != fields {
            writeln!(f, "  fields {}", fields.join(", "))?;
        }
        for l in &self.learned {
            let kind = [(l.shared, " shared"), (l.per_channel, " per channel")];
            let kind = kind.iter().filter(|(is, _)| *is);
            let kind: String = kind.map(|(_, word)| *word).collect();
            writeln!(f, "  learn{kind} {} = {}", l.name, l.init)?;
        }
        for d in &self.derived {
            writeln!(f, "  let {d}")?;
        }
        let names = self.names();
        let part = |f: &mut fmt::Formatter, from: usize, instrs: &[StageInstr]| {
            let each = instrs.iter().enumerate();
            each.map(|(i, instr)| (from + i, instr))
                .try_for_each(|(i, instr)| {
                    let made = &names[i + 1];
                    writeln!(f, "  {made} = {}", self.instr(i, instr, &names))
                })
        };
        let end = |f: &mut fmt::Formatter, result: &Combination| {
            let name = |v: ValueId| names[v.0 as usize].clone();
            writeln!(f, "  return {}", result.display(&name))
        };
        part(f, 0, &self.instrs)?;
        for (kept, v) in &self.keeps {
            writeln!(f, "  keep {kept} = {}", names[v.0 as usize])?;
        }
        end(f, &self.result)?;
        let Some(e) = &self.embedded else {
            return Ok(());
        };
        writeln!(f, "  embedded{}", more(evaluations(&e.instrs)))?;
        part(f, self.instrs.len(), &e.instrs)?;
        end(f, &e.result)
    }
}

/// What follows `embedded`.
pub(super) fn more(evaluations: usize) -> String {
    match evaluations {
        0 => String::new(),
        n => format!(" — {} more", count(n, "evaluation")),
    }
}

impl StageProgram {
    /// The instructions of the step, then those of its partner.
    fn all(&self) -> impl Iterator<Item = &StageInstr> {
        let partner = self.embedded.iter().flat_map(|e| &e.instrs);
        self.instrs.iter().chain(partner)
    }

    /// The fields that instructions name, in order.
    fn mentioned(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for instr in self.all() {
            if let StageInstr::Eval { field, .. }
            | StageInstr::Flow { field, .. }
            | StageInstr::Phi { field, .. } = instr
                && !names.contains(&&*self.fields[*field].name)
            {
                names.push(&self.fields[*field].name);
            }
        }
        names
    }

    /// Names of all values: `x`, then letters with numbers.
    fn names(&self) -> Vec<String> {
        let mut counts: BTreeMap<char, usize> = BTreeMap::new();
        let mut names = vec!["x".to_string()];
        names.extend(self.all().map(|i| {
            let n = counts.entry(letter(i)).or_default();
            *n += 1;
            format!("{}{n}", letter(i))
        }));
        names
    }

    /// What makes value `i + 1`.
    fn instr(&self, i: usize, instr: &StageInstr, names: &[String]) -> String {
        let name = |v: ValueId| names[v.0 as usize].clone();
        let field_name = |field: usize| &self.fields[field].name;
        match instr {
            StageInstr::Eval {
                field,
                usage,
                at,
                when,
                ..
            } => {
                let at: Vec<String> = at.iter().map(|v| name(*v)).collect();
                let using = match usage {
                    0 => String::new(),
                    n => format!(" use {}", n + 1),
                };
                let when = when.as_ref().map(|w| format!(" at {}", time(w)));
                let when = when.unwrap_or_default();
                format!("{}({}){using}{when}", field_name(*field), at.join(", "))
            }
            StageInstr::Combine(c) => c.display(&name),
            StageInstr::Past { name, when } => format!("past {name}{when}"),
            StageInstr::Unknown(Unknown::Without { why, .. }) => format!("unknown: {why}"),
            StageInstr::Unknown(Unknown::Solved { sum, away, .. }) => {
                let away = away.as_ref().map(|why| format!(", away: {}", word(why)));
                sum.display(&name) + &away.unwrap_or_default()
            }
            StageInstr::Product([a, b]) => format!("{}*{}", name(*a), name(*b)),
            StageInstr::Flow {
                field, at, over, ..
            } => format!("flow {}({over}) from {}", field_name(*field), name(*at)),
            StageInstr::Phi {
                field,
                index,
                over,
                at,
                ..
            } => {
                let (over, field) = (over.factor(), field_name(*field));
                format!("{}({over}*{field})({})", called(*index), name(*at))
            }
            StageInstr::Stop(at) => format!("stop {}", name(*at)),
            StageInstr::Normal {
                like,
                std,
                number: own,
            } => {
                let mut text = format!("normal(std: {std}");
                if *like != ValueId::STATE {
                    text += &format!(", like: {}", name(*like));
                }
                if *own != self.normals_before(i) {
                    text += &format!(", number: {}", own + 1);
                }
                text + ")"
            }
            StageInstr::Mix { of, seen, mixing } => {
                let mut parts: Vec<String> = seen.iter().map(|p| arrows(p, &name)).collect();
                let by = match mixing.memory {
                    0 => "next",
                    memory => {
                        parts.push(format!("memory: {memory}"));
                        mixing.rule.name()
                    }
                };
                parts.push(format!("tol: {}", mixing.tol));
                format!("{by}{}({})", number(*of), parts.join(", "))
            }
            StageInstr::Solution {
                of,
                unknowns,
                solver,
            } => {
                let unknowns = arrows(unknowns, &name);
                format!("solution{}({unknowns}) by {solver}", number(*of))
            }
            StageInstr::Project { at, onto } => projection(&name(*at), onto),
        }
    }

    /// Random numbers that come before an instruction.
    fn normals_before(&self, i: usize) -> usize {
        let normal = |i: &&StageInstr| matches!(i, StageInstr::Normal { .. });
        self.all().take(i).filter(normal).count()
    }
}

fn projection(at: &str, onto: &Projection) -> String {
    match onto {
        Projection::Nonnegative => format!("nonnegative({at})"),
        Projection::Moments { mean, std, eps } => {
            let eps = match *eps == default_eps() {
                true => String::new(),
                false => format!(", eps: {eps}"),
            };
            format!("normalize({at}, mean: {mean}, std: {std}{eps})")
        }
    }
}

/// `t + 1/2*h`: the step's own time first.
fn time(when: &Coeff) -> String {
    let ahead = when.sub(&Coeff::symbol("t")).ok();
    match ahead.filter(|a| !a.symbols().contains("t")) {
        None => when.to_string(),
        Some(ahead) if ahead.is_zero() => "t".into(),
        Some(ahead) => match ahead.to_string().strip_prefix('-') {
            Some(behind) => format!("t - {behind}"),
            None => format!("t + {ahead}"),
        },
    }
}

/// `x -> k1`, for several unknowns `[x, x] -> [y1, y2]`.
fn arrows(pairs: &Iterates, name: &dyn Fn(ValueId) -> String) -> String {
    let side = |i: usize| {
        let all: Vec<String> = pairs.iter().map(|p| name(p[i])).collect();
        match &all[..] {
            [one] => one.clone(),
            _ => format!("[{}]", all.join(", ")),
        }
    };
    format!("{} -> {}", side(0), side(1))
}

/// Which of several unknowns: nothing for the first.
fn number(of: usize) -> String {
    match of {
        0 => String::new(),
        _ => format!("[{of}]"),
    }
}
