//! Which order conditions each learned coefficient affects, and how many directions keep an order.
//!
//! Takes a scheme with settings; runs it with a variable for the change of each coefficient in the step that is looked
//! at, so that conditions are polynomials ([`Jet`]). Functions without an exact value may be variables too: what holds whatever they are
//! holds of them. Leaves solving them to `odec-numerics`, keeping an order to `keep.rs`.

use super::claims::Instance;
use super::opaque_field::alone;
use crate::scheme::coeff::Coeff;
use crate::scheme::function::Symbol;
use crate::scheme::method::{Unsupported, functions_at_start, located_at, program};
use crate::scheme::per_use::SHARED;
use crate::scheme::stage::Steps;
use crate::scheme::{Learned, StageProgram};
use odec_exact::Exact;
use odec_numerics::jet::{Jet, Space};
use odec_numerics::manifold::{self, Shape};
use odec_numerics::order::expected;
use odec_numerics::series::{Number, Series};
use odec_numerics::{TreeId, Trees, draw};
use std::cell::Cell;
use std::collections::BTreeSet;

/// Most coefficients of a scheme that are looked at.
pub const MAX_COEFFICIENTS: usize = 60;
/// Most conditions.
pub const MAX_CONDITIONS: usize = 300;
/// Products of terms that the whole polynomials of a scheme's conditions may take.
pub const WORK: usize = 300_000;
/// Highest degree of a polynomial.
pub const DEGREE: usize = 64;

/// An order condition `Φ(t) − 1/γ(t)` as a polynomial in changes of the coefficients.
#[derive(Clone, Debug)]
pub struct Condition {
    /// 0: that the old state stands once in the new one.
    pub order: usize,
    /// `None`: that of order 0.
    pub tree: Option<TreeId>,
    pub off: Jet,
}

/// The conditions up to an order.
pub struct Conditions {
    pub learned: Vec<Learned>,
    pub all: Vec<Condition>,
    pub trees: Trees,
    /// The highest order whose conditions are all there.
    pub orders: usize,
    /// The polynomials of all conditions are known, not only their slopes.
    pub are_whole: bool,
    pub fields: Vec<String>,
    /// Earlier steps were made with coefficients of their own, which these conditions take at their initial values.
    pub of_earlier_steps: bool,
}

impl Conditions {
    /// `F'F`.
    pub fn differential(&self, c: &Condition) -> String {
        match c.tree {
            Some(t) => draw::differential(&self.trees, t, &self.fields),
            None => "x".to_string(),
        }
    }
    /// The polynomials up to an order that are not 0 whatever the coefficients are.
    pub fn up_to(&self, order: usize) -> Vec<Jet> {
        let all = self.all.iter().filter(|c| c.order <= order);
        all.map(|c| c.off.clone())
            .filter(|j| !j.is_zero())
            .collect()
    }
}

/// The conditions up to an order, or up to where there are too many or they take too much work: whole polynomials where that takes
/// little enough, else values and slopes.
pub fn conditions(i: &Instance, up_to: usize) -> Result<Conditions, Unsupported> {
    let whole = polynomials(i, up_to)?;
    match whole.are_whole {
        true => Ok(whole),
        false => {
            let mut slopes = with(i, up_to, Space::new(1, 8 * WORK), Variables::Learned)?;
            slopes.all.retain(|c| c.order <= slopes.orders);
            slopes.are_whole = false;
            Ok(slopes)
        }
    }
}

/// The same, lost where they take too much work.
pub fn polynomials(i: &Instance, up_to: usize) -> Result<Conditions, Unsupported> {
    with(i, up_to, Space::new(DEGREE, WORK), Variables::Learned)
}

/// What conditions are polynomials in.
#[derive(Clone, Copy, PartialEq)]
enum Variables {
    /// Changes of learned coefficients.
    Learned,
    /// Functions without an exact value, with learned coefficients at their start.
    Functions,
}

/// That an order holds whatever the functions are that have no exact value; `None`: it depends on them, or that is not known.
pub fn of_any_functions(i: &Instance, order: usize) -> Option<String> {
    if i.scheme.looks_back() {
        return None;
    }
    let flow = alone(&i.scheme, i.start_by.clone(), i.settings.clone(), i.listed);
    let functions = functions(&program(&flow, Steps::Exact, &SHARED).ok()?);
    if functions.is_empty() {
        return None;
    }
    let found = with(i, order, Space::new(DEGREE, WORK), Variables::Functions).ok()?;
    let mut all = found.all.iter();
    let holds = found.are_whole && found.orders >= order && all.all(|c| c.off.is_zero());
    let shown: Vec<String> = functions.iter().map(|f| format!("`{f}`")).collect();
    holds.then(|| format!("for any value of {}", shown.join(", ")))
}

/// The functions in the coefficients of a step, with learned numbers at their start.
fn functions(program: &StageProgram) -> BTreeSet<Symbol> {
    let settled = program.coefficients();
    let settled = settled.map(|c| functions_at_start(program, c));
    let each = settled.flat_map(|c| c.functions().cloned().collect::<Vec<_>>());
    each.collect()
}

/// A learned coefficient in a function, of which conditions are no polynomials.
fn in_function(program: &StageProgram) -> Option<(&Learned, &Symbol)> {
    let all = program.coefficients().flat_map(Coeff::functions);
    all.into_iter().find_map(|f| {
        let names = f.names();
        let mut learned = program.learned.iter();
        Some((learned.find(|l| names.contains(l.name.as_str()))?, f))
    })
}

fn with(
    i: &Instance,
    up_to: usize,
    space: std::rc::Rc<Space>,
    variables: Variables,
) -> Result<Conditions, Unsupported> {
    let flow = alone(&i.scheme, i.start_by.clone(), i.settings.clone(), i.listed);
    let program = program(&flow, Steps::Exact, &SHARED)?;
    if let (Variables::Learned, Some((l, f))) = (variables, in_function(&program)) {
        let why = format!(
            "`{}` is learned inside `{f}`, of which order conditions are no polynomials",
            l.name
        );
        return Err(Unsupported { span: l.span, why });
    }
    let learned = program.learned.clone();
    let functions: Vec<Symbol> = functions(&program).into_iter().collect();
    if learned.len() > MAX_COEFFICIENTS {
        return Err(Unsupported {
            span: i.scheme.name.span,
            why: format!("more than {MAX_COEFFICIENTS} coefficients are learned"),
        });
    }
    let earlier = Cell::new(false);
    let symbol = |name: &str, ago: i64| -> Option<Jet> {
        let number = learned.iter().position(|l| l.name == name)?;
        let l = &learned[number];
        if variables == Variables::Functions {
            return Some(Jet::constant(&l.init));
        }
        if ago > 0 && !l.shared {
            earlier.set(true);
            return Some(Jet::constant(&l.init));
        }
        Some(Jet::variable(number as u32, &l.init, &space))
    };
    let function = |f: &Symbol| -> Option<Jet> {
        let number = functions.iter().position(|known| known == f)?;
        let free = variables == Variables::Functions;
        free.then(|| Jet::variable((learned.len() + number) as u32, &Exact::zero(), &space))
    };
    let known = |c: &Coeff, ago: i64| -> Option<Jet> {
        let mut sum = Jet::constant(&Exact::zero());
        for (symbols, c) in c.terms() {
            let mut product = Jet::constant(c);
            for s in symbols {
                product = product.times(&match s {
                    Symbol::Name(name) => symbol(name, ago)?,
                    f => function(f)?,
                });
            }
            sum = sum.plus(&product);
        }
        Some(sum)
    };
    let located = located_at(&flow, &program, &SHARED, &known)?;
    let (mut series, states) = Series::of(&located.line);
    let mut all = Vec::new();
    for (value, off) in states {
        if !off.value().is_zero() {
            return Err(Unsupported {
                span: located.span(value),
                why: format!(
                    "it takes {} of the old state where a method of one step takes 1",
                    &off.value() + &Exact::one()
                ),
            });
        }
        if all.iter().all(|c: &Condition| c.off != off) {
            all.push(Condition {
                order: 0,
                tree: None,
                off,
            });
        }
    }
    let n = located.line.fields.len();
    let trees = match located.line.is_product_of_flows() {
        true => Trees::tall(n),
        false => Trees::new(n).linear(located.line.linear()),
    };
    let mut trees = trees.for_values(located.line.steps.len());
    let mut orders = 0;
    for order in 1..=up_to {
        if !trees.grow() || all.len() + trees.of_order(order).count() > MAX_CONDITIONS {
            break;
        }
        for t in trees.of_order(order) {
            let off = series
                .value(&trees, t)
                .minus(&Jet::constant(&expected(&trees, t)));
            let tree = Some(t);
            all.push(Condition { order, tree, off });
        }
        if all.iter().any(|c| c.off.is_lost()) {
            break;
        }
        orders = order;
    }
    Ok(Conditions {
        learned,
        are_whole: all.iter().all(|c| !c.off.is_lost()),
        all,
        trees,
        orders,
        fields: located.line.fields.clone(),
        of_earlier_steps: earlier.get(),
    })
}

/// What a coefficient does to the conditions.
#[derive(Clone, Debug, PartialEq)]
pub struct Touch {
    pub name: String,
    pub init: Exact,
    /// Order, differential and ∂Φ(t) of each condition that moves with it.
    pub slopes: Vec<(usize, String, Exact)>,
    /// The lowest order that a change can break; `None`: none of those looked at.
    pub breaks: Option<usize>,
}

/// The methods of an order near the initial values.
#[derive(Clone, Debug, PartialEq)]
pub struct Methods {
    pub order: usize,
    /// Directions in which no condition moves.
    pub tangent: usize,
    pub shape: Shape,
}

/// All about the learned coefficients of a scheme.
#[derive(Clone, Debug, PartialEq)]
pub struct Learning {
    pub coefficients: Vec<Touch>,
    /// The highest order whose conditions were looked at.
    pub up_to: usize,
    pub methods: Vec<Methods>,
}

/// `order`: what the scheme has at the initial values. `None`: nothing is learned.
pub fn learning(i: &Instance, order: usize) -> Option<Result<Learning, Unsupported>> {
    if i.scheme.learns.is_empty() && i.scheme.learned.is_none() {
        return None;
    }
    Some(conditions(i, order + 1).map(|c| facts(&c, order)))
}

fn facts(c: &Conditions, order: usize) -> Learning {
    let touch = |(v, l): (usize, &Learned)| {
        let v = v as u32;
        let slopes = c.all.iter().map(|k| (k, k.off.slope(v)));
        let slopes: Vec<(usize, String, Exact)> = slopes
            .filter(|(_, s)| !s.is_zero())
            .map(|(k, s)| (k.order, c.differential(k), s))
            .collect();
        Touch {
            name: l.name.clone(),
            init: l.init.clone(),
            breaks: c.all.iter().find(|k| k.off.has(v)).map(|k| k.order),
            slopes,
        }
    };
    let n = c.learned.len();
    let methods = (1..=order).map_while(|order| {
        let jets = c.up_to(order);
        let rank = manifold::rank(&manifold::jacobian(&jets, n), n)?;
        let known = c.orders >= order;
        known.then(|| Methods {
            order,
            tangent: n - rank,
            shape: match manifold::chart(&jets, n) {
                Ok(_) => Shape::Manifold,
                Err(_) => manifold::shape(&jets, n),
            },
        })
    });
    Learning {
        methods: methods.collect(),
        coefficients: c.learned.iter().enumerate().map(touch).collect(),
        up_to: c.orders,
    }
}
