//! Decides whether a claim is true: each claim of [`super::properties`] for each kind of scheme.
//!
//! Takes a scheme; gives true, false with what is true instead, or the reason why it is not known. Facts of an implicit method are about
//! its equation as written; a note says what holds for the iterated step. A splitting is taken with exact flows. A claim that does not
//! apply to this kind of scheme is false. The mathematics is in `odec-numerics`.

use super::claims::Instance;
use super::declared_tableau;
use super::exponential::{Stiff, stiff};
use super::general::{General, general};
use super::iterated::Iterated;
use super::modified::ModifiedEquation;
use super::opaque_field::alone;
use super::pair_facts::{PairFacts, facts};
use super::pair_start::steps_off;
use super::report::{embedded, embedded_in, evaluations, modified_of, stability};
use super::summary::axes;
use crate::scheme::Coeff;
use crate::scheme::flow::Flow;
use crate::scheme::method::{
    LocatedStep, Unsupported, at_start, located, located_at, program, to_tolerance,
};
use crate::scheme::per_use::SHARED;
use crate::scheme::stage::Steps;
use odec_exact::Exact;
use odec_numerics::Tableau;
use odec_numerics::effective::Reached;
use odec_numerics::multistep::Multistep;
use odec_numerics::properties::{Kind, Properties};
use odec_numerics::ssp::{Ssp, ssp};
use odec_numerics::stability::Stability;
use odec_numerics::symplectic::{Broken, Symplectic, symplectic};
use odec_text::number::number;

/// What was found about a claim.
pub enum Found {
    /// With what has to be said of it.
    True(Option<String>),
    /// What is true instead.
    False(String),
    Unknown(String),
}

/// What decides a claim, or why it cannot be decided.
type Decided<T = Found> = Result<T, Found>;

/// A splitting: flows of fields, each with its part of the step.
type Word = Vec<(usize, Exact)>;

/// A scheme as the methods that claims may be about.
pub struct Subject {
    flow: Flow,
    computed: Result<Tableau, Unsupported>,
    /// Its step.
    located: Option<LocatedStep>,
    implicit: Option<Tableau>,
    /// Stages of its tableau that its result does not use.
    unused: Vec<usize>,
    multistep: Option<Multistep>,
    /// Of a scheme that reads earlier steps.
    general: Option<General>,
    /// Of a scheme with exact flows; they may be added up, too.
    word: Option<Option<Word>>,
    /// Of a step program that keeps a velocity or a momentum.
    pair: Option<PairFacts>,
    /// The same, with its partner.
    flows: Option<LocatedStep>,
    /// Evaluations of a step.
    evaluated: Option<usize>,
    /// Of a method whose coefficients are functions of a linear field.
    stiff: Option<Result<Stiff, Unsupported>>,
    tolerance: Option<Exact>,
    /// Which entries of its tableau are 0, where functions without an exact value are among the others.
    pattern: Option<Tableau>,
}

impl Subject {
    pub fn new(i: &Instance) -> Subject {
        let flow = alone(&i.scheme, i.start_by.clone(), i.settings.clone(), i.listed);
        let exact = located(&flow, Steps::Exact, &SHARED).ok();
        let computed = located(&flow, Steps::Euler, &SHARED);
        let tolerance = to_tolerance(&flow);
        let evaluated = evaluations(&flow);
        let flows = exact.filter(LocatedStep::has_flows);
        let stiff = computed.as_ref().ok().and_then(stiff);
        let located = computed.clone().ok();
        let computed = computed.and_then(|p| p.tableau());
        let written = declared_tableau::tableau(&i.scheme, &i.settings);
        let rows = declared_tableau::multistep(&i.scheme, &i.settings);
        let several = computed.is_err() && rows.is_none();
        let pattern = several.then(|| rounded(&flow)).flatten();
        Subject {
            general: several.then(|| general(&flow).ok()).flatten(),
            pair: several.then(|| facts(&flow)).flatten(),
            word: flows.as_ref().map(|p| p.line.word()),
            flows,
            unused: written.as_ref().map(unused).unwrap_or_default(),
            implicit: written.filter(|t| !t.is_explicit()),
            multistep: rows.map(|(alpha, beta)| Multistep { alpha, beta }),
            tolerance,
            pattern,
            computed,
            stiff,
            located,
            evaluated,
            flow,
        }
    }

    fn tableau(&self) -> Decided<&Tableau> {
        let several = "and this claim is about one-step methods";
        match (&self.implicit, &self.computed) {
            (Some(t), _) | (None, Ok(t)) => Ok(t),
            _ if self.multistep.is_some() => {
                let why = format!("it is a linear multistep method, {several}");
                Err(Found::False(why))
            }
            _ if self.history().is_some() => {
                let why = format!("it reads values of earlier steps, {several}");
                Err(Found::False(why))
            }
            (None, Err(beyond)) => {
                let why = format!("it has no tableau: {}", beyond.why);
                Err(Found::Unknown(why))
            }
        }
    }

    /// The same, for claims about nothing but which entries are 0.
    fn pattern(&self) -> Decided<&Tableau> {
        let pattern = self.pattern.as_ref().ok_or(());
        pattern.or_else(|()| self.tableau())
    }

    fn of_one_field(&self) -> Decided<&Tableau> {
        let t = self.tableau()?;
        one_field(t.fields.len()).map(|()| t)
    }

    /// A general linear method that keeps more than a state.
    fn history(&self) -> Option<&General> {
        self.general.as_ref().filter(|g| g.has_history())
    }

    /// The flows of a splitting.
    fn word(&self) -> Decided<Option<&Word>> {
        match &self.word {
            None => Ok(None),
            Some(Some(word)) => Ok(Some(word)),
            Some(None) => Err(Found::Unknown(
                "it is not a composition of exact flows".into(),
            )),
        }
    }

    /// Whether the step solves an equation, as it is written.
    fn is_implicit(&self) -> bool {
        let rows = self.multistep.as_ref();
        self.implicit.is_some() || rows.is_some_and(|m| !m.beta[0].is_zero())
    }

    /// What is true of the equation, and `left` of it in the step that is computed.
    fn of_equation(&self, left: impl FnOnce(&Subject) -> Option<String>) -> Found {
        let note = match &self.tolerance {
            _ if !self.is_implicit() => None,
            Some(tol) => Some(format!("of the equation, solved to {tol}")),
            None => {
                let left = left(self).map(|l| format!("; {l}"));
                Some(format!("of the equation{}", left.unwrap_or_default()))
            }
        };
        Found::True(note)
    }

    /// How far the computed step is stable.
    fn iterated(&self) -> Option<String> {
        let found = match &self.multistep {
            Some(_) => Iterated::of_steps(&self.flow),
            None => Iterated::of_tableau(self.computed.as_ref().ok()?),
        };
        Some(found?.sentence())
    }

    /// That the computed step lacks what the equation has.
    fn lacks(&self, what: &str, has: impl FnOnce(&Tableau) -> bool) -> Option<String> {
        let t = self.computed.as_ref().ok()?;
        let is = if has(t) { "is" } else { "is not" };
        Some(format!("the iterated step, which is explicit, {is} {what}"))
    }
}

/// The tableau of a one-step method with functions of numbers computed in f64, which are 0 nowhere where they are not.
fn rounded(flow: &Flow) -> Option<Tableau> {
    if flow.scheme.looks_back() {
        return None;
    }
    let program = program(flow, Steps::Euler, &SHARED).ok()?;
    let known = |c: &Coeff, _| at_start(&program, &c.rounded().ok()?);
    let step: LocatedStep = located_at(flow, &program, &SHARED, &known).ok()?;
    step.tableau().ok()
}

fn one_field(fields: usize) -> Decided<()> {
    match fields {
        1 => Ok(()),
        n => Err(Found::False(format!(
            "it has {n} fields, and this claim is about methods of one field"
        ))),
    }
}

fn either(is: bool, actual: impl FnOnce() -> String) -> Found {
    match is {
        true => Found::True(None),
        false => Found::False(actual()),
    }
}

fn counted(claimed: &Exact, actual: usize, what: &str) -> Found {
    either(*claimed == Exact::int(actual as i64), || {
        format!("it has {what}{actual}")
    })
}

fn undecided() -> Found {
    Found::Unknown("odec cannot decide it".into())
}

/// Whether a claim holds.
pub fn decide(name: &str, value: Option<&Exact>, s: &Subject) -> Decided {
    let zero = Exact::zero();
    let value = value.unwrap_or(&zero);
    match name {
        "stages" => stages(value, s),
        "evaluations" => {
            let cannot = || Found::Unknown("its evaluations cannot be counted".into());
            let n = s.evaluated.ok_or_else(cannot)?;
            Ok(either(*value == Exact::int(n as i64), || {
                format!("a step takes {n}")
            }))
        }
        "embedded order" => partner(value, s),
        "stage_order" => {
            let order = Properties::new(s.of_one_field()?).stage_order();
            Ok(match counted(value, order, "stage order ") {
                Found::True(_) => s.of_equation(|_| None),
                other => other,
            })
        }
        "stiff_order" => stiff_order(value, s),
        "ssp" => monotone(value, s),
        "effective_order" => reached(value, s, "effective order", |m| m.effective),
        "energy_order" => reached(value, s, "energy order", |m| m.energy),
        "energy_preserving" => match instead(s)?.energy {
            Some(r) if r.exactly => Ok(Found::False(format!(
                "for Hamiltonian fields it preserves the energy up to order {}",
                r.order
            ))),
            _ => Err(undecided()),
        },
        "A_stable" | "L_stable" => damped(name, s),
        "zero_stable" => zero_stable(s),
        "symplectic" => keeps_area(s),
        "symmetric" => symmetric(s),
        "fsal" => {
            let is = Properties::new(s.of_one_field()?).first_same_as_last;
            Ok(either(is, || {
                "its last stage is not the first one of the next step".to_string()
            }))
        }
        "stiffly_accurate" => {
            let is = Properties::new(s.of_one_field()?).stiffly_accurate;
            Ok(either(is, || {
                "its last stage is not its result".to_string()
            }))
        }
        kind => of_kind(kind, s),
    }
}

fn stages(value: &Exact, s: &Subject) -> Decided {
    if s.multistep.is_some() {
        let why = "it is a linear multistep method, which has no stages";
        return Err(Found::False(why.into()));
    }
    let n = match (s.history(), &s.stiff) {
        _ if s.pair.is_some() => s.pair.as_ref().map_or(0, |p| p.pair.evaluations()),
        (Some(g), _) => g.glm.stages(),
        (None, Some(Ok(stiff))) => stiff.stages,
        (None, _) => s.pattern()?.stages(),
    };
    Ok(match counted(value, n, "") {
        Found::False(actual) => Found::False(format!("{actual}{}", without(&s.unused))),
        other => other,
    })
}

/// Which rows of a tableau are no stages.
fn without(unused: &[usize]) -> String {
    let numbers: Vec<String> = unused.iter().map(|j| (j + 1).to_string()).collect();
    match &numbers[..] {
        [] => String::new(),
        [one] => format!(", for its result does not use stage {one}"),
        _ => format!(
            ", for its result does not use stages {}",
            numbers.join(", ")
        ),
    }
}

/// The stages that neither the weights nor the stages of these read.
fn unused(t: &Tableau) -> Vec<usize> {
    let rows = || [&t.b].into_iter().chain(&t.embedded);
    let reads = |row: &[Exact], j: usize| !row[j].is_zero();
    let mut used: Vec<bool> = (0..t.stages())
        .map(|j| rows().any(|b| reads(b, j)))
        .collect();
    let mut open: Vec<usize> = (0..t.stages()).filter(|j| used[*j]).collect();
    while let Some(i) = open.pop() {
        for j in (0..t.stages()).filter(|j| reads(&t.a[i], *j)) {
            if !std::mem::replace(&mut used[j], true) {
                open.push(j);
            }
        }
    }
    (0..t.stages()).filter(|j| !used[*j]).collect()
}

/// The order for all linear fields, however stiff.
fn stiff_order(value: &Exact, s: &Subject) -> Decided {
    match &s.stiff {
        None => Err(Found::False(
            "it applies no function of a linear field, and this claim is about exponential integrators"
                .into(),
        )),
        Some(Err(beyond)) => Err(Found::Unknown(beyond.why.clone())),
        Some(Ok(stiff)) if *value == Exact::int(stiff.order.order as i64) => {
            Ok(Found::True(stiff.weakly()))
        }
        Some(Ok(stiff)) => Ok(Found::False(format!(
            "it has stiff order {}",
            stiff.sentence()
        ))),
    }
}

/// What the method integrates instead.
fn instead(s: &Subject) -> Decided<ModifiedEquation> {
    let t = match &s.flows {
        Some(_) => None,
        None => Some(s.tableau()?),
    };
    modified_of(t, s.flows.as_ref()).ok_or_else(undecided)
}

/// Up to which order the modified equation has a property.
fn reached(
    value: &Exact,
    s: &Subject,
    what: &str,
    of: impl Fn(&ModifiedEquation) -> Option<Reached>,
) -> Decided {
    let found = of(&instead(s)?).ok_or_else(undecided)?;
    let own = Exact::int(found.order as i64);
    if !found.exactly {
        let least = format!("its {what} is at least {}", found.order);
        let unknown = format!("{least}, and odec does not look further");
        return match value - &own {
            more if more.is_negative() => Ok(Found::False(least)),
            more if more.is_zero() => Ok(match s.of_equation(|_| None) {
                Found::True(Some(of)) => Found::True(Some(format!("{of}; {unknown}"))),
                _ => Found::True(Some(unknown)),
            }),
            _ => Err(Found::Unknown(unknown)),
        };
    }
    Ok(match counted(value, found.order, &format!("{what} ")) {
        Found::True(_) => s.of_equation(|_| None),
        other => other,
    })
}

fn partner(value: &Exact, s: &Subject) -> Decided {
    let none = || Found::False("it has no embedded partner".into());
    if s.multistep.is_some() {
        return Err(none());
    }
    let (is_there, order) = match &s.flows {
        Some(p) => (p.line.embedded.is_some(), embedded_in(p, None)),
        None => {
            let t = s.tableau()?;
            (t.embedded.is_some(), embedded(t, None))
        }
    };
    match order {
        _ if !is_there => Err(none()),
        Some(p) => Ok(counted(value, p, "a partner of order ")),
        _ => Err(undecided()),
    }
}

/// `ssp c`: c is the coefficient, exactly.
fn monotone(value: &Exact, s: &Subject) -> Decided {
    let why = "odec does not compute the SSP coefficient of such a method";
    let not_sought = || Found::Unknown(why.into());
    let found = match &s.multistep {
        Some(m) => m.ssp(),
        None if s.history().is_some() => None,
        None => ssp(s.of_one_field()?),
    };
    let found = found.ok_or_else(not_sought)?;
    if found.compared(value).ok_or_else(undecided)?.is_eq() {
        return Ok(s.of_equation(|_| None));
    }
    let actual = match &found {
        Ssp::None => "0".to_string(),
        Ssp::Unbounded => "unbounded".to_string(),
        Ssp::Exactly(c) => c.to_string(),
        Ssp::Between(c) => match c.decimals(value) {
            Some(digits) => format!("{digits}…"),
            None => "another number near it".to_string(),
        },
    };
    Ok(Found::False(format!("its SSP coefficient is {actual}")))
}

/// What is true of a stability function that is not damped.
fn undamped(s: &Stability) -> String {
    if s.a_stable == Some(true) {
        return "it is A-stable, and R(∞) is not 0".into();
    }
    let mut on_axes = Vec::new();
    axes(&s.real, &s.imaginary_squared, &mut on_axes);
    match on_axes.is_empty() {
        true => "|R(z)| > 1 somewhere in the left half-plane".into(),
        false => format!(
            "|R(z)| > 1 somewhere in the left half-plane; |R| ≤ 1 on the axes: {}",
            on_axes.join(", ")
        ),
    }
}

fn damped(name: &str, s: &Subject) -> Decided {
    let a = name == "A_stable";
    let mut instead = None;
    let is = match (&s.multistep, s.history()) {
        (Some(m), _) if a => m.facts().a_stable,
        (Some(m), _) => m.l_stable(),
        (None, Some(g)) => {
            one_field(g.glm.fields.len())?;
            let facts = g.glm.facts();
            let far = facts.characteristic.as_ref().map(|c| a || c.is_damped());
            facts.a_stable.zip(far).map(|(is, far)| is && far)
        }
        (None, None) => {
            let located = s.located.as_ref().filter(|_| s.implicit.is_none());
            let stability = stability(s.of_one_field()?, located).ok_or_else(undecided)?;
            instead = Some(undamped(&stability));
            match a {
                true => stability.a_stable,
                false => stability.l_stable,
            }
        }
    };
    Ok(match is.ok_or_else(undecided)? {
        true => s.of_equation(Subject::iterated),
        false => {
            Found::False(instead.unwrap_or_else(|| format!("it is not {}", name.replace('_', "-"))))
        }
    })
}

fn zero_stable(s: &Subject) -> Decided {
    if let Some(m) = &s.multistep {
        let is = m.zero_stable().ok_or_else(undecided)?;
        return Ok(either(is, || {
            "a root of ρ lies outside the unit disc, or is not simple on the circle".to_string()
        }));
    }
    // Where no force acts, the velocity stays as it is.
    if s.pair.is_some() {
        return Ok(Found::True(None));
    }
    match &s.general {
        None => s.tableau().map(|_| Found::True(None)),
        Some(g) => {
            let (is, _) = g.glm.zero_stable().ok_or_else(undecided)?;
            Ok(either(is, || {
                "a root of the minimal polynomial of V lies outside the unit disc, or is not simple on the circle"
                    .to_string()
            }))
        }
    }
}

fn keeps_area(s: &Subject) -> Decided {
    if let Some(p) = &s.pair {
        let note = format!("of {}, where the fields are gradients", p.pair.equation());
        return Ok(match &p.symplectic {
            Ok(()) => Found::True(Some(note)),
            Err(why) => Found::False(why.clone()),
        });
    }
    if s.multistep.is_some() {
        let why = "no linear multistep method is symplectic (Tang 1993)";
        return Err(Found::False(why.into()));
    }
    if s.history().is_some() {
        return Err(undecided());
    }
    if s.word()?.is_some() {
        let note = "of its exact flows, where each field is Hamiltonian";
        return Ok(Found::True(Some(note.into())));
    }
    let t = s.tableau()?;
    let [a, b] = [0, 1].map(|f| t.fields.get(f).map_or("", String::as_str));
    Ok(match symplectic(t) {
        Ok(Symplectic::Sums) if t.fields.len() == 1 => {
            s.of_equation(|s| s.lacks("symplectic", |t| symplectic(t).is_ok()))
        }
        Ok(Symplectic::Sums) => Found::True(Some("where each field is Hamiltonian".into())),
        Ok(Symplectic::Partitioned) => Found::True(Some(format!(
            "of Hamiltonian systems q' = {a}(q, p), p' = {b}(q, p)"
        ))),
        Ok(Symplectic::Separable) => Found::True(Some(format!(
            "of separable Hamiltonian systems q' = {a}(p), p' = {b}(q)"
        ))),
        Err(broken) => Found::False(equation(&broken)),
    })
}

/// The first pair of stages that breaks `bᵢaᵢⱼ + bⱼaⱼᵢ = bᵢbⱼ`.
pub(super) fn equation(broken: &Broken) -> String {
    let (i, j) = (broken.stages.0 + 1, broken.stages.1 + 1);
    let (left, right) = (number(&broken.left), number(&broken.right));
    let of = match broken.reduced {
        true => "without unused and repeated stages, ",
        false => "",
    };
    format!("{of}b{i} a{i}{j} + b{j} a{j}{i} = {left}, where b{i} b{j} = {right}")
}

fn symmetric(s: &Subject) -> Decided {
    let other = "its adjoint is another method";
    if let Some(p) = &s.pair {
        return Ok(match &p.symmetric {
            Some(off) if off.is_zero() => Found::True(Some(format!("of {}", p.pair.equation()))),
            Some(off) => Found::False(format!(
                "{other}; it is symmetric with {} at t {}",
                p.pair.kept,
                steps_off(off)
            )),
            None => Found::False(other.into()),
        });
    }
    if let Some(m) = &s.multistep {
        return Ok(match m.is_symmetric().ok_or_else(undecided)? {
            true => s.of_equation(|_| None),
            false => Found::False(other.into()),
        });
    }
    if s.history().is_some() {
        return Err(undecided());
    }
    if let Some(word) = s.word()? {
        let unlike = word.iter().zip(word.iter().rev()).find(|(a, b)| a != b);
        let names = &s.tableau()?.fields;
        let flow = |(f, c): &(usize, Exact)| format!("{}({})", names[*f], number(c));
        return Ok(match unlike {
            None => Found::True(Some("of its exact flows".into())),
            Some((a, b)) => Found::False(format!(
                "in reverse order it has {} in place of {}",
                flow(b),
                flow(a)
            )),
        });
    }
    let t = s.tableau()?;
    Ok(match t.is_symmetric() {
        true => s.of_equation(|s| s.lacks("symmetric", Tableau::is_symmetric)),
        false => Found::False(other.into()),
    })
}

fn of_kind(kind: &str, s: &Subject) -> Decided {
    let own = match (&s.multistep, s.history()) {
        (Some(m), _) if kind == "explicit" => {
            let is = m.beta[0].is_zero();
            return Ok(either(is, || {
                "the new state depends on its own evaluation".to_string()
            }));
        }
        (None, Some(_)) if kind == "explicit" && s.pair.is_none() => Kind::Explicit,
        _ if kind == "explicit" && s.pair.is_some() => {
            let is = s.pair.as_ref().is_some_and(|p| p.pair.method.is_explicit());
            return Ok(either(is, || "it solves an equation".to_string()));
        }
        _ if kind == "explicit" => Properties::new(s.pattern()?).kind,
        _ => Properties::new(s.tableau()?).kind,
    };
    let is = match kind {
        "explicit" => own == Kind::Explicit,
        "sdirk" => own == Kind::Sdirk,
        "dirk" => matches!(own, Kind::Dirk | Kind::Sdirk | Kind::Esdirk),
        _ => own == Kind::Firk,
    };
    Ok(either(is, || format!("it is {}", own.name())))
}
